"""How many words each stage leaves, as bars on a logarithmic scale; and the words, side by side in two orders."""

from __future__ import annotations

import math

from PySide6.QtCore import QCoreApplication, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QAbstractScrollArea, QFrame, QWidget

from engine.events import OrderedFilters, TokenEvent, TwoOrders
from widgets import theme
from widgets.candidate_rows import BAR, cut_word, paint_chip
from widgets.format import count_text, percent_text, token_label
from widgets.lab.order_chips import stage_word

ROW = 26.0
LEAST_ROWS = 4  # of the list: a low window scrolls the whole page
_MIDDLE = Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine
_LEFT, _RIGHT = int(_MIDDLE | Qt.AlignmentFlag.AlignLeft), int(_MIDDLE | Qt.AlignmentFlag.AlignRight)


def kept_text(least: int, most: int) -> str:
    """A count, or bounds where what was kept allows several."""
    if least == most:
        return count_text(least)
    return QCoreApplication.translate("order", "{least} to {most}").format(
        least=count_text(least), most=count_text(most)
    )


class Funnel(QWidget):
    """One order: a bar for each stage that is on. The length is the logarithm of how many words are left."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._found: OrderedFilters | None = None

    def show_order(self, found: OrderedFilters | None) -> None:
        self._found = found
        self.setAccessibleName(summary(found))
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(260, self.minimumSizeHint().height())

    def minimumSizeHint(self) -> QSize:
        return QSize(160, round((len(self._found.stages) if self._found else 3) * ROW))

    def paintEvent(self, event: QPaintEvent) -> None:
        with QPainter(self) as painter:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            if self._found is not None:
                self._paint(painter, self._found)

    def _paint(self, painter: QPainter, found: OrderedFilters) -> None:
        look, metrics = theme.current(), QFontMetricsF(theme.font(-1))
        names = [QCoreApplication.translate("order", "all words"), *(stage_word(s.name) for s in found.stages[1:])]
        texts = [kept_text(stage.least, stage.most) for stage in found.stages]
        left = max(metrics.horizontalAdvance(name) for name in names) + 12.0
        right = max(metrics.horizontalAdvance(text) for text in texts) + 12.0
        room = max(20.0, self.width() - left - right)
        largest = math.log(max(2, found.stages[0].most))
        painter.setFont(theme.font(-1))
        for row, (stage, name, text) in enumerate(zip(found.stages, names, texts, strict=True)):
            top = row * ROW
            painter.setPen(look.muted if row == 0 else look.ink)
            painter.drawText(QRectF(0, top, left, ROW), _LEFT, name)
            painter.drawText(QRectF(self.width() - right, top, right, ROW), _RIGHT, text)
            track = QRectF(left, top + (ROW - BAR) / 2, room, BAR)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(look.track)
            painter.drawRoundedRect(track, 2.5, 2.5)
            colour = _role(stage.name)
            painter.setBrush(colour)
            low, high = (2.0 + (room - 2.0) * math.log(max(1, n)) / largest for n in (stage.least, stage.most))
            painter.drawRoundedRect(QRectF(left, track.top(), low, BAR), 2.5, 2.5)
            if high > low + 1.0:  # between the bounds
                painter.setBrush(Qt.BrushStyle.NoBrush)
                painter.setPen(QPen(colour, 1.0, Qt.PenStyle.DotLine))
                painter.drawRoundedRect(QRectF(left + low, track.top() + 0.5, high - low, BAR - 1), 2.5, 2.5)


def _role(stage: str) -> QColor:
    look = theme.current()
    return look.weights if stage == "all" else look.accent if stage == "temperature" else look.cut(stage)


def summary(found: OrderedFilters | None) -> str:
    """One order in words, for a screen reader."""
    if found is None:
        return QCoreApplication.translate("order", "Nothing to show yet")
    return ", ".join(
        f"{stage_word(stage.name) if stage.name != 'all' else QCoreApplication.translate('order', 'all words')} "
        f"{kept_text(stage.least, stage.most)}"
        for stage in found.stages
    )


def share_text(low: float, high: float) -> str:
    """A probability, or bounds where they differ as shown."""
    if high - low < 1e-6:
        return percent_text(high)
    one, two = percent_text(low), percent_text(high)
    return one if one == two else f"{one} … {two}"


class OrderList(QAbstractScrollArea):
    """The word's alternatives: by the model, in today's order, in the other order. Cut ones name their culprit."""

    columns_moved = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._token: TokenEvent | None = None
        self._found: TwoOrders | None = None
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)
        self.setMinimumHeight(round(LEAST_ROWS * ROW))
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName(self.tr("The word's alternatives in both orders"))

    def show_orders(self, token: TokenEvent | None, found: TwoOrders | None) -> None:
        self._token, self._found = token, found
        self._measure()
        self.setAccessibleDescription("; ".join(self.lines()[:12]))
        self.viewport().update()

    def lines(self) -> list[str]:
        """Each alternative in words."""
        token, found = self._token, self._found
        if token is None or found is None:
            return []
        return [
            f"{token_label(token.candidate_texts[i])}: {_fate(found.today, i)} | {_fate(found.other, i)}"
            for i in range(len(token.candidate_ids))
        ]

    def _measure(self) -> None:
        rows = len(self._token.candidate_ids) if self._token is not None else 0
        bar = self.verticalScrollBar()
        bar.setPageStep(self.viewport().height())
        bar.setSingleStep(round(ROW))
        bar.setRange(0, max(0, round(rows * ROW) - self.viewport().height()))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._measure()
        self.columns_moved.emit()

    def columns(self) -> tuple[float, float, float]:
        """Where the model's share, today's and the other order's columns end."""
        width = float(self.viewport().width())
        label = min(190.0, width * 0.24)
        each = (width - label) / 3
        return label + each, label + 2 * each, width

    def paintEvent(self, event: QPaintEvent) -> None:
        with QPainter(self.viewport()) as painter:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            token, found = self._token, self._found
            if token is None or found is None:
                return
            offset = self.verticalScrollBar().value()
            first, last = int(offset // ROW), int((offset + self.viewport().height()) // ROW)
            for i in range(first, min(last + 1, len(token.candidate_ids))):
                self._paint_row(painter, token, found, i, i * ROW - offset)

    def _paint_row(self, painter: QPainter, token: TokenEvent, found: TwoOrders, i: int, top: float) -> None:
        look = theme.current()
        ends = self.columns()
        begin = ends[0] - (ends[1] - ends[0])
        chosen = token.candidate_ids[i] == token.token_id
        if chosen:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme.mixed(look.panel, look.accent, 0.12))
            painter.drawRoundedRect(QRectF(0, top + 1, ends[2], ROW - 2), 4, 4)
        font = theme.mono(-1, bold=chosen)
        label = QFontMetricsF(font).elidedText(
            token_label(token.candidate_texts[i]), Qt.TextElideMode.ElideRight, begin - 16
        )
        painter.setFont(font)
        painter.setPen(theme.readable(look.accent, look.panel) if chosen else look.ink)
        painter.drawText(QRectF(8, top, begin - 12, ROW), _LEFT, label)
        raw = token.candidate(i).raw
        self._paint_share(painter, QRectF(begin, top, ends[0] - begin, ROW), raw, raw, look.weights)
        for order, left, right in ((found.today, ends[0], ends[1]), (found.other, ends[1], ends[2])):
            cell = QRectF(left, top, right - left, ROW)
            cut = order.cuts[i]
            if cut == "?":
                painter.setFont(theme.font(-1))
                painter.setPen(look.muted)
                painter.drawText(cell.adjusted(12, 0, -8, 0), _LEFT, self.tr("undecided"))
            elif cut:
                paint_chip(painter, left + 12, top + ROW / 2, cut_word(cut), look.cut(cut), theme.font(-2))
            else:
                self._paint_share(painter, cell, *order.shares[i], look.probability)

    @staticmethod
    def _paint_share(painter: QPainter, cell: QRectF, low: float, high: float, colour: QColor) -> None:
        look, text = theme.current(), share_text(low, high)
        painter.setFont(theme.font(-1))
        room = max(60.0, QFontMetricsF(painter.font()).horizontalAdvance(text) + 10.0)
        track = QRectF(cell.left() + 12, cell.top() + (ROW - BAR) / 2, max(8.0, cell.width() - room - 22), BAR)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(look.track)
        painter.drawRoundedRect(track, 2.5, 2.5)
        if high > 0.0:
            painter.setBrush(colour)
            width = min(track.width(), max(1.5, track.width() * (low + high) / 2))
            painter.drawRoundedRect(QRectF(track.left(), track.top(), width, BAR), 2.5, 2.5)
        painter.setPen(look.ink)
        painter.drawText(QRectF(cell.right() - room - 8, cell.top(), room, ROW), _RIGHT, text)


def _fate(order: OrderedFilters, i: int) -> str:
    cut = order.cuts[i]
    translate = QCoreApplication.translate
    if cut == "?":
        return translate("order", "undecided")
    return translate("order", "cut by {stage}").format(stage=cut_word(cut)) if cut else share_text(*order.shares[i])
