"""The list of alternatives: as many rows as fit, the others by scrolling; a chosen word further down is pinned."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPoint, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QContextMenuEvent,
    QFontMetricsF,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import QAbstractScrollArea, QFrame, QMenu, QToolTip, QWidget

from engine.events import Candidate, TokenEvent
from widgets import theme
from widgets.candidate_rows import Rows, cut_word, paint_chip
from widgets.format import number_text, percent_text, plain_tooltip, token_label

LEAST_ROWS = 8
INSET = 7.0  # room for the chosen row's mark


class CandidateList(QAbstractScrollArea):
    """Rows of a token's alternatives, by id (TXT-27), most probable first before the settings.

    A row can be pointed at, or chosen with the arrow keys: going on with that word instead is asked for by the word's
    id, with Enter, by its menu, or by the words that stand on the row then.
    """

    go_on_asked = Signal(object)  # token id

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._token: TokenEvent | None = None
        self._candidates: tuple[Candidate, ...] = ()
        self._before = self._after = True
        self._progress = 1.0
        self._pointed: int | None = None  # row under the mouse
        self._row: int | None = None  # row chosen with the keys
        self._offer = QRectF()  # where "go on with this" is painted
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.viewport().setAutoFillBackground(False)
        self.viewport().setMouseTracking(True)
        self.setAccessibleName(self.tr("Alternatives to the shown word"))
        self.verticalScrollBar().valueChanged.connect(self.viewport().update)
        theme.changes.changed.connect(self._theme_changed)
        self._restyle()

    def _restyle(self) -> None:
        self._rows = Rows(self._candidates, self.viewport().width() - 2 * INSET)
        self._measure()

    def _theme_changed(self) -> None:
        self._restyle()
        self.updateGeometry()

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.base_px() * 18, round(LEAST_ROWS * self._rows.height))

    def sizeHint(self) -> QSize:
        return QSize(theme.base_px() * 24, round(12 * self._rows.height))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._restyle()

    def set_token(self, token: TokenEvent | None, candidates: tuple[Candidate, ...]) -> None:
        self._token, self._candidates = token, candidates
        self._pointed = self._row = None
        self.verticalScrollBar().setValue(0)
        self._restyle()

    def describe(self) -> None:
        """Tells screen readers; not for each of many tokens in quick succession."""
        self.setAccessibleDescription(self._spoken())

    def set_before(self, show: bool) -> None:
        self._before = show
        self.viewport().update()

    def set_after(self, show: bool) -> None:
        self._after = show
        self.viewport().update()

    def set_progress(self, progress: float) -> None:
        self._progress = progress
        self.viewport().update()

    def _measure(self) -> None:
        bar = self.verticalScrollBar()
        bar.setSingleStep(round(self._rows.height))
        bar.setPageStep(self.viewport().height())
        hidden = max(0, len(self._candidates) - self.rows_in_view)
        bar.setRange(0, round(hidden * self._rows.height))  # whole rows only
        self.viewport().update()

    @property
    def rows_in_view(self) -> int:
        return int(self.viewport().height() // self._rows.height)

    def _pinned(self) -> int | None:
        """The chosen row's index where it lies below what is in view: it is shown in place of the last row."""
        bottom = self.verticalScrollBar().value() + self.viewport().height()
        for index, candidate in enumerate(self._candidates):
            if candidate.chosen:
                return index if (index + 1) * self._rows.height > bottom + 1 else None
        return None

    def row_at(self, point: QPoint) -> int | None:
        """Index of the alternative under a point of the viewport."""
        pinned = self._pinned()
        if pinned is not None and point.y() >= self._pin_top():
            return pinned
        index = int((point.y() + self.verticalScrollBar().value()) // self._rows.height)
        return index if 0 <= index < len(self._candidates) else None

    def _pin_top(self) -> float:
        return self.viewport().height() - self._rows.height - 2.0

    def paintEvent(self, event: QPaintEvent) -> None:
        with QPainter(self.viewport()) as painter:  # an exception must not leave it open: that ends the process
            self._paint(painter)

    def _paint(self, painter: QPainter) -> None:
        if self._token is None:
            self._paint_empty(painter)
            return
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.translate(INSET, 0.0)
        self._offer = QRectF()
        height, offset = self._rows.height, self.verticalScrollBar().value()
        pinned = self._pinned()
        room = self.viewport().height() if pinned is None else self._pin_top() - 2.0
        painter.save()
        painter.setClipRect(QRectF(-INSET, 0.0, self.viewport().width(), room))
        for index in range(int(offset // height), len(self._candidates)):
            top = index * height - offset
            if top + height > room + 1.0:
                break
            self._paint_row(painter, index, top)
        painter.restore()
        if pinned is not None:
            painter.setPen(QPen(theme.current().line, 1.0))
            painter.drawLine(0, int(self._pin_top()) - 1, int(self._rows.width), int(self._pin_top()) - 1)
            self._paint_row(painter, pinned, self._pin_top() + 1.0)

    def _paint_row(self, painter: QPainter, index: int, top: float) -> None:
        self._rows.paint(painter, index, top, before=self._before, after=self._after, progress=self._progress)
        if index == self._row and self.hasFocus():
            painter.setPen(QPen(theme.current().accent, 1.0))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(QRectF(-6.0, top + 0.5, self._rows.width + 12.0, self._rows.height - 1.0), 4.0, 4.0)
        if index == self._offered() and not self._candidates[index].chosen:
            words, font = self.tr("go on with this"), theme.font(-2)
            left = self._rows.bar_left + self._rows.bar_width - QFontMetricsF(font).horizontalAdvance(words) - 14.0
            left = max(0.0, left)
            box = paint_chip(painter, left, top + self._rows.height / 2, words, theme.current().accent, font)
            self._offer = box.translated(INSET, 0.0)

    def _offered(self) -> int | None:
        """The row that shows how to go on with it: under the mouse, else chosen with the keys."""
        return self._pointed if self._pointed is not None else self._row if self.hasFocus() else None

    def _paint_empty(self, painter: QPainter) -> None:
        painter.setPen(theme.current().muted)
        painter.setFont(theme.font())
        painter.drawText(
            self.viewport().rect().adjusted(8, 8, -8, -8),
            int(Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap),
            self.tr(
                "The words that could have come are drawn here: how probable each was, what your settings cut, "
                "and where the draw fell.\nPress Run (Ctrl+Return)."
            ),
        )

    # -- hand and keys

    def _point(self, row: int | None) -> None:
        if row != self._pointed:
            self._pointed = row
            self.viewport().update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._point(self.row_at(event.position().toPoint()) if self._token is not None else None)
        on_offer = self._offer.contains(event.position())
        self.viewport().setCursor(Qt.CursorShape.PointingHandCursor if on_offer else Qt.CursorShape.ArrowCursor)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        row = self.row_at(event.position().toPoint())
        if event.button() != Qt.MouseButton.LeftButton or row is None:
            return
        self._row = row
        self.viewport().update()
        if self._offer.contains(QPointF(event.position())):
            self._go_on(row)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        row = self.row_at(event.position().toPoint())
        if event.button() == Qt.MouseButton.LeftButton and row is not None:
            self._go_on(row)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        last = len(self._candidates) - 1
        here = self._row if self._row is not None else -1
        match event.key():
            case Qt.Key.Key_Down:
                self._choose(min(last, here + 1))
            case Qt.Key.Key_Up:
                self._choose(max(0, here - 1))
            case Qt.Key.Key_Home:
                self._choose(0)
            case Qt.Key.Key_End:
                self._choose(last)
            case Qt.Key.Key_Return | Qt.Key.Key_Enter if self._row is not None:
                self._go_on(self._row)
            case _:
                super().keyPressEvent(event)

    def _choose(self, row: int) -> None:
        if not 0 <= row < len(self._candidates):
            return
        self._row, self._pointed = row, None
        bar, height = self.verticalScrollBar(), self._rows.height
        room = self.rows_in_view * height
        if row * height < bar.value():
            bar.setValue(round(row * height))
        elif (row + 1) * height > bar.value() + room:
            bar.setValue(round((row + 1) * height - room))
        self.setAccessibleDescription(self.row_text(row))
        self.viewport().update()

    def _go_on(self, row: int) -> None:
        if not self._candidates[row].chosen:
            self.go_on_asked.emit(self._candidates[row].token_id)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        row = self._row if event.reason() == QContextMenuEvent.Reason.Keyboard else self.row_at(event.pos())
        if row is None or self._token is None:
            return
        self._choose(row)
        menu = self.menu_of(row)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(event.globalPos())

    def menu_of(self, row: int) -> QMenu:
        """What can be done with an alternative."""
        menu = QMenu(self)
        act = menu.addAction(
            self.tr("Go on with “{word}” instead")
            .format(word=token_label(self._candidates[row].text))
            .replace("&", "&&")
        )
        act.setShortcut(Qt.Key.Key_Return)
        act.setEnabled(not self._candidates[row].chosen)
        act.setData(row)
        act.triggered.connect(self._go_on_chosen)
        return menu

    def _go_on_chosen(self) -> None:
        if self._row is not None:
            self._go_on(self._row)

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Leave:
            self._point(None)
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            index = self.row_at(event.pos())
            if index is not None:
                QToolTip.showText(event.globalPos(), plain_tooltip(self.row_text(index)), self.viewport())
            else:
                QToolTip.hideText()
            return True
        return super().viewportEvent(event)

    def row_text(self, index: int) -> str:
        """A row in words, for its tool tip."""
        candidate, token = self._candidates[index], self._token
        assert token is not None
        tr = self.tr
        lines = [
            tr("{label}   token {id}, rank {rank}").format(
                label=token_label(candidate.text), id=candidate.token_id, rank=candidate.rank + 1
            ),
            tr("before settings {p} = exp(logit {logit} − log-sum-exp {total}), measured").format(
                p=percent_text(candidate.raw, 3),
                logit=number_text(candidate.logit, 3),
                total=number_text(token.logsumexp, 3),
            ),
        ]
        if candidate.bias:
            lines.append(tr("its bias changed its logit by {change}").format(change=number_text(candidate.bias, 3)))
        if candidate.penalty:
            lines.append(tr("penalties changed its logit by {change}").format(change=number_text(candidate.penalty, 3)))
        if candidate.cut_by is not None:
            lines.append(tr("cut by {stage}: probability 0 in the draw").format(stage=cut_word(candidate.cut_by)))
        elif token.u is None:
            lines.append(tr("greedy: the largest is taken, all others are not"))
        else:
            lines.append(tr("after settings {p}, what is drawn from").format(p=percent_text(candidate.final, 3)))
        return "\n".join(lines)

    def _spoken(self) -> str:
        parts = []
        for candidate in [c for c in self._candidates if c.chosen] + [c for c in self._candidates if not c.chosen][:4]:
            after = cut_word(candidate.cut_by) if candidate.cut_by else percent_text(candidate.final)
            words = self.tr("{label} {before}, after settings {after}").format(
                label=token_label(candidate.text), before=percent_text(candidate.raw), after=after
            )
            parts.append(self.tr("chosen: {words}").format(words=words) if candidate.chosen else words)
        return "; ".join(parts)
