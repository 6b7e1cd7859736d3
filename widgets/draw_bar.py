"""The draw: one number between 0 and 1 that lands on the cumulative distribution, most probable word first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPaintEvent, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from engine.events import Candidate, TokenEvent
from widgets import theme
from widgets.format import number_text, percent_text, plain_tooltip, token_label

BAR = 16.0


@dataclass(frozen=True, slots=True)
class Segment:
    """A word's interval on the bar; token_id None for words that are not listed."""

    token_id: int | None
    label: str
    low: float
    high: float
    chosen: bool = False


def segments(token: TokenEvent, candidates: Sequence[Candidate]) -> list[Segment]:
    """The intervals in the order of the draw.

    The chosen word's is exact; the listed words before it count from 0, those after it from its end, and what is left
    between belongs to words that are not listed.
    """
    if token.u is None:
        return [Segment(token.token_id, token_label(token.token_text), 0.0, 1.0, True)]
    kept = [c for c in candidates if c.final]
    kept.sort(key=lambda c: (-(c.final or 0.0), c.token_id))
    at = next((i for i, c in enumerate(kept) if c.chosen), len(kept))
    found: list[Segment] = []
    edge = 0.0
    for candidate in kept[:at]:
        high = min(edge + (candidate.final or 0.0), token.draw_low)
        found.append(Segment(candidate.token_id, token_label(candidate.text), edge, high))
        edge = high
    if token.draw_low - edge > 1e-6:
        found.append(Segment(None, "", edge, token.draw_low))
    found.append(Segment(token.token_id, token_label(token.token_text), token.draw_low, token.draw_high, True))
    edge = token.draw_high
    for candidate in kept[at + 1 :]:
        high = min(1.0, edge + (candidate.final or 0.0))
        found.append(Segment(candidate.token_id, token_label(candidate.text), edge, high))
        edge = high
    if 1.0 - edge > 1e-6:
        found.append(Segment(None, "", edge, 1.0))
    return found


class DrawBar(QWidget):
    """The bar with the mark where the draw fell; greedy is said in words."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._token: TokenEvent | None = None
        self._segments: list[Segment] = []
        self._progress = 1.0
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(self.tr("The draw"))
        theme.changes.changed.connect(self._restyle)

    def _restyle(self) -> None:
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        line = QFontMetricsF(theme.font(-1)).height()
        return QSize(theme.base_px() * 20, round(2 * line + BAR + 16))

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.base_px() * 8, self.sizeHint().height())

    def set_token(self, token: TokenEvent | None, candidates: Sequence[Candidate]) -> None:
        self._token = token
        self._segments = [] if token is None else segments(token, candidates)
        self.update()

    def describe(self) -> None:
        """Tool tip and words for screen readers; not for each of many tokens in quick succession."""
        words = self.words()
        self.setAccessibleDescription(words)
        self.setToolTip(plain_tooltip(words) if words else "")

    def set_progress(self, progress: float) -> None:
        self._progress = progress
        self.update()

    def words(self) -> str:
        """The draw in words, for the tool tip and for screen readers."""
        token = self._token
        if token is None:
            return ""
        label = token_label(token.token_text)
        if token.forced:
            return self.tr("{label} was given, not drawn; the bar shows what would have been drawn from").format(
                label=label
            )
        if token.u is None:
            return self.tr("greedy: no draw, the largest wins: {label}").format(label=label)
        return self.tr(
            "The draw u = {u} is one number between 0 and 1, from the seed {seed} and the step {step} alone (Philox).\n"
            "The words that are left lie side by side, the most probable first, each as wide as its probability.\n"
            "u falls between {low} and {high}: {label}, {p}. Measured."
        ).format(
            u=number_text(token.u, 6),
            seed=token.settings.seed,
            step=token.step,
            low=number_text(token.draw_low, 6),
            high=number_text(token.draw_high, 6),
            label=label,
            p=percent_text(token.draw_high - token.draw_low, 3),
        )

    def paintEvent(self, event: QPaintEvent) -> None:
        with QPainter(self) as painter:  # an exception must not leave it open: that ends the process
            self._paint(painter)

    def _paint(self, painter: QPainter) -> None:
        token = self._token
        if token is None:
            return
        look = theme.current()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(theme.font(-1))
        line = QFontMetricsF(painter.font()).height()
        bar = QRectF(0.0, line + 9.0, self.width(), BAR)
        number = 0
        for segment in self._segments:
            box = QRectF(
                bar.left() + segment.low * bar.width(),
                bar.top(),
                (segment.high - segment.low) * bar.width(),
                bar.height(),
            )
            if box.width() > 4.0:
                box.adjust(0.75, 0.0, -0.75, 0.0)  # a gap between neighbours
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self._colour(segment, number))
            painter.drawRoundedRect(box, 2.5, 2.5)
            number += segment.token_id is not None
        self._paint_labels(painter, bar, line)
        painter.setFont(theme.font(-1))
        painter.setPen(look.ink)
        flags = int(Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine)
        if token.forced:
            painter.drawText(QRectF(0, 2, self.width(), line), flags, self.tr("given, not drawn"))
            return
        if token.u is None:
            painter.drawText(QRectF(0, 2, self.width(), line), flags, self.tr("greedy: no draw, the largest wins"))
            return
        x = bar.left() + token.u * bar.width() * self._progress
        tip = QPointF(x, bar.top() - 1.0)
        painter.setBrush(look.ink)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.drawPolygon(QPolygonF([tip, tip + QPointF(-5, -7), tip + QPointF(5, -7)]))
        painter.fillRect(QRectF(x - 0.75, bar.top(), 1.5, bar.height()), look.panel)
        painter.setPen(look.ink)
        text = self.tr("draw u = {u}").format(u=number_text(token.u, 3))
        width = QFontMetricsF(painter.font()).horizontalAdvance(text)
        left = x + 9.0 if x + 9.0 + width <= self.width() else x - 9.0 - width
        painter.drawText(QRectF(max(0.0, left), 2.0, width + 2, line), flags, text)

    def _colour(self, segment: Segment, number: int) -> QColor:
        look = theme.current()
        if segment.token_id is None:
            return theme.mixed(look.panel, look.muted, 0.25)
        if segment.chosen:
            return look.accent
        return theme.mixed(look.panel, look.probability, max(0.3, 0.95 - 0.17 * number))

    def _paint_labels(self, painter: QPainter, bar: QRectF, line: float) -> None:
        look = theme.current()
        painter.setFont(theme.mono(-2))
        metrics = QFontMetricsF(painter.font())
        free = 0.0  # where the last label ended
        for segment in sorted(self._segments, key=lambda s: (not s.chosen, s.low)):
            middle = bar.left() + (segment.low + segment.high) / 2 * bar.width()
            if segment.token_id is None:
                continue
            width = metrics.horizontalAdvance(segment.label)
            room = (segment.high - segment.low) * bar.width()
            if segment.chosen:
                width = min(width, bar.width() / 2)
                left = max(0.0, min(middle - width / 2, self.width() - width))
                taken = left - 6.0, left + width + 6.0
                painter.setPen(theme.readable(look.accent, look.panel))
            else:
                left = middle - width / 2
                if width > room + 4.0 or left < free or (left < taken[1] and left + width > taken[0]) or left < 0.0:
                    continue
                if left + width > self.width():
                    continue
                free = left + width + 6.0
                painter.setPen(look.muted)
            text = metrics.elidedText(segment.label, Qt.TextElideMode.ElideRight, width + 1)
            painter.drawText(
                QRectF(left, bar.bottom() + 3.0, width + 2, line),
                int(Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine),
                text,
            )
