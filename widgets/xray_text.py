"""A text shaded by how far two precisions are apart at each token; another first choice is underlined."""

from __future__ import annotations

import math
from typing import NamedTuple

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QFont,
    QFontMetricsF,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import QToolTip, QWidget

from engine.events import Xray
from widgets import theme
from widgets.format import plain_tooltip
from widgets.text_flow import Piece, TextFlow, has_right_to_left
from widgets.text_painter import shown_character
from widgets.xray_figures import about_token, kl_shade, tr

LINE = 1.75  # of the font's height: room for the underline


def flow_of(found: Xray, font: QFont, width: float) -> TextFlow:
    """The text cut into lines of this width."""
    flow = TextFlow(font, width - 2.0, round(QFontMetricsF(font).height() * LINE))
    for at, token in enumerate(found.tokens):
        flow.append(at, "".join(shown_character(c) for c in token.text))
    flow.settle()
    return flow


class Mark(NamedTuple):
    """What stands behind a piece of text: half a character has no letters of its own, so the whole one shows it too."""

    tokens: tuple[int, ...]  # the piece's token last, before it those that had no letters
    kl_nats: float | None
    flipped: bool


def marks_of(found: Xray) -> dict[int, Mark]:
    """The mark of each token that has letters, by its place."""
    marks: dict[int, Mark] = {}
    waiting: list[int] = []
    for at, token in enumerate(found.tokens):
        waiting.append(at)
        if token.text:
            those = [found.tokens[each] for each in waiting]
            known = [each.kl_nats for each in those if each.kl_nats is not None]
            marks[at] = Mark(tuple(waiting), max(known, default=None), any(each.flipped for each in those))
            waiting = []
    return marks


def _word(found: Xray, flow: TextFlow, piece: Piece, before: Piece | None) -> QRectF:
    """A piece without the blank that begins its token: so words stand apart, and no blank hangs at a line's end."""
    text = found.tokens[piece.step].text
    blank = flow.metrics.horizontalAdvance(" ")
    begun = before is not None and before.step == piece.step
    if begun or not text.startswith(" ") or not text.strip() or has_right_to_left(text):
        return piece.rect
    return piece.rect.adjusted(min(blank, piece.rect.width()), 0.0, 0.0, 0.0)


def paint_xray(painter: QPainter, found: Xray, flow: TextFlow, pieces: list[Piece], marked: int | None = None) -> None:
    """Shades, letters, underlines; the marked token in a frame."""
    look, marks = theme.current(), marks_of(found)
    painter.setPen(Qt.PenStyle.NoPen)
    befores = [None, *pieces]
    words = [_word(found, flow, piece, before) for piece, before in zip(pieces, befores, strict=False)]
    for piece, word in zip(pieces, words, strict=True):
        shade = kl_shade(look, marks[piece.step].kl_nats)
        if shade is not None and word.width() > 0.5:
            painter.setBrush(shade)
            painter.drawRoundedRect(word.adjusted(-1.0, 4.0, 1.0, -4.0), 3.0, 3.0)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.setPen(look.ink)
    drawn = None
    for piece in pieces:
        line = piece.line.lineNumber(), piece.origin
        if line != drawn:
            drawn = line
            piece.line.draw(painter, piece.origin)
    for piece, word in zip(pieces, words, strict=True):
        if word.width() <= 0.5:
            continue
        if marks[piece.step].flipped:
            y = word.bottom() - 3.0
            painter.setPen(QPen(look.warning, 2.0))
            painter.drawLine(QPointF(word.left(), y), QPointF(word.right(), y))
        if marked in marks[piece.step].tokens:
            painter.setPen(QPen(look.accent, 1.5))
            painter.drawRoundedRect(word.adjusted(-1.75, 3.25, 1.75, -3.25), 3.0, 3.0)


class XrayText(QWidget):
    """Point at a token, or move with the arrow keys: left and right by token, up and down by changed first choice."""

    pointed = Signal(object)  # the token's place, or None

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._found: Xray | None = None
        self._flow: TextFlow | None = None
        self._hovered: int | None = None
        self._selected: int | None = None
        self.setProperty("plain", True)
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName(tr("The text, shaded by how far the two precisions are apart"))
        theme.changes.changed.connect(self._lay_out)

    def set_xray(self, found: Xray | None) -> None:
        self._found, self._hovered, self._selected = found, None, None
        self._lay_out()
        self.pointed.emit(None)

    @property
    def marked(self) -> int | None:
        """The token that is described: the one under the mouse, else the one that was clicked."""
        return self._hovered if self._hovered is not None else self._selected

    def select(self, at: int | None) -> None:
        self._selected = at
        self._tell()

    def place_of(self, at: int) -> QRectF:
        """Where a token stands; for half a character, where the whole one does. Empty where there is none."""
        if self._flow is None or self._found is None:
            return QRectF()
        home = next((step for step, mark in marks_of(self._found).items() if at in mark.tokens), None)
        return next((piece.rect for piece in self._flow.pieces(0, self._flow.lines) if piece.step == home), QRectF())

    def _tell(self) -> None:
        at = self.marked
        words = "" if at is None or self._found is None else about_token(self._found, at)
        self.setAccessibleDescription(words)
        self.pointed.emit(at)
        self.update()

    def _lay_out(self) -> None:
        self._flow = None if self._found is None else flow_of(self._found, theme.font(1), self.width())
        self.setMinimumHeight(0 if self._flow is None else math.ceil(self._flow.lines * self._flow.line_height))
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(400, self.minimumHeight())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self._lay_out()

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._found is None or self._flow is None:
            return
        height = self._flow.line_height
        first, last = int(event.rect().top() // height), int(event.rect().bottom() // height)
        with QPainter(self) as painter:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            pieces = list(self._flow.pieces(max(0, first), last))
            paint_xray(painter, self._found, self._flow, pieces, self.marked)

    # -- hand and keys

    def _at(self, point: QPointF) -> int | None:
        return None if self._flow is None else self._flow.step_at(point)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        at = self._at(event.position())
        if at != self._hovered:
            self._hovered = at
            self._tell()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self.select(self._at(event.position()))

    def leaveEvent(self, event: QEvent) -> None:
        self._hovered = None
        self._tell()

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip:
            assert isinstance(event, QHelpEvent)
            at = self._at(QPointF(event.pos()))
            if at is None or self._found is None:
                QToolTip.hideText()
            else:
                words = "\n\n".join(about_token(self._found, each) for each in marks_of(self._found)[at].tokens)
                QToolTip.showText(event.globalPos(), plain_tooltip(words), self)
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if self._found is None or not (places := self._places(Qt.Key(event.key()))):
            super().keyPressEvent(event)
            return
        self._hovered = None
        self.select(places[0])

    def _places(self, key: Qt.Key) -> list[int]:
        """Where a key leads to, the nearest first; the place where it is already when there is nothing further."""
        assert self._found is not None
        last, flips = len(self._found.tokens) - 1, self._found.flips
        now = self._selected
        match key:
            case Qt.Key.Key_Right:
                return [0 if now is None else min(last, now + 1)]
            case Qt.Key.Key_Left:
                return [max(0, last if now is None else now - 1)]
            case Qt.Key.Key_Home:
                return [0]
            case Qt.Key.Key_End:
                return [last]
            case Qt.Key.Key_Down:
                return [at for at in flips if now is None or at > now] or [now if now is not None else 0]
            case Qt.Key.Key_Up:
                return [at for at in reversed(flips) if now is None or at < now] or [now if now is not None else last]
        return []
