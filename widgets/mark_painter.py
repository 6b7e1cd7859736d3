"""How bookmarks and notes are drawn, on the timeline and in the text: a flag and a bubble, so that shape tells them."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPen, QPolygonF

from widgets import theme
from widgets.format import count_text
from widgets.run import Run
from widgets.text_flow import Piece, place_in

FLAG_WIDTH, FLAG_HEIGHT = 7.0, 9.0
BUBBLE_WIDTH, BUBBLE_HEIGHT = 9.0, 7.0
APART = 15.0  # marks on the timeline closer than this leave their number out


def paint_flag(painter: QPainter, x: float, top: float, colour: QColor, pole: float = FLAG_HEIGHT) -> None:
    """A ribbon as on a bookmark, its left edge at x."""
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(colour)
    ribbon = [(0.0, 0.0), (FLAG_WIDTH, 0.0), (FLAG_WIDTH, pole), (FLAG_WIDTH / 2, pole - 3.0), (0.0, pole)]
    painter.drawPolygon(QPolygonF([QPointF(x + dx, top + dy) for dx, dy in ribbon]))


def paint_bubble(painter: QPainter, x: float, top: float, colour: QColor) -> None:
    """A small speech bubble, its left edge at x."""
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(colour)
    painter.drawRoundedRect(QRectF(x, top, BUBBLE_WIDTH, BUBBLE_HEIGHT - 1.0), 1.5, 1.5)
    tail = [(2.0, BUBBLE_HEIGHT - 1.5), (5.5, BUBBLE_HEIGHT - 1.5), (2.0, BUBBLE_HEIGHT + 1.5)]
    painter.drawPolygon(QPolygonF([QPointF(x + dx, top + dy) for dx, dy in tail]))


def paint_in_text(painter: QPainter, run: Run, pieces: list[Piece], selected: int | None) -> None:
    """The marks of these words, above their first letter (bookmark) and under all of them (note)."""
    look = theme.current()

    def colour(step: int) -> QColor:
        return look.ink if step == selected else look.accent  # a selected word stands on accent

    for piece in pieces:
        if ("note", piece.step) in run.marks:
            painter.setPen(QPen(colour(piece.step), 1.5, Qt.PenStyle.DotLine))
            y = piece.rect.bottom() - 2.0
            painter.drawLine(QPointF(piece.rect.left() + 1, y), QPointF(piece.rect.right() - 1, y))
    for step in {step for _, step in run.marks if step is not None}:
        place = place_in(pieces, run.tokens, step)
        if place is None:
            continue
        x, top = place.left(), place.top()
        if ("bookmark", step) in run.marks:
            paint_flag(painter, x, top - 1.0, colour(step))
            x += FLAG_WIDTH + 2.0
        if ("note", step) in run.marks:
            paint_bubble(painter, x, top, colour(step))


def row_height() -> float:
    """Height of the row of marks above the timeline's bars."""
    return max(FLAG_HEIGHT, QFontMetricsF(theme.font(-3)).height()) + 3.0


def paint_on_timeline(painter: QPainter, run: Run, count: int, pitch: float, selected: int | None) -> None:
    """The marks of the run's first `count` tokens in a row at the top, bookmarks with their number."""
    look = theme.current()
    painter.setFont(theme.font(-3))
    metrics = QFontMetricsF(painter.font())
    ends: dict[int, float] = {}  # where a bookmark's flag and number end
    steps = [step for what, step in run.marks if what == "bookmark" and step is not None]
    for number, mark in enumerate(run.bookmarks, 1):
        if mark.step is None or mark.step >= count:
            continue
        x = mark_x(mark.step, pitch)
        colour = look.accent if mark.step == selected else look.muted
        paint_flag(painter, x, 0.0, colour, row_height() - 3.0)
        ends[mark.step] = x + FLAG_WIDTH + 3.0
        alone = all(not 0 < step - mark.step < APART / pitch for step in steps)
        if alone or mark.step == selected:
            text = count_text(number)
            box = QRectF(x + FLAG_WIDTH + 2.0, 0.0, metrics.horizontalAdvance(text) + 2, row_height() - 3.0)
            painter.setPen(theme.readable(colour, look.panel))
            painter.drawText(box, int(Qt.AlignmentFlag.AlignVCenter), text)
            ends[mark.step] = box.right() + 2.0
    for mark in run.notes:
        if mark.step is not None and mark.step < count:
            colour = look.accent if mark.step == selected else look.muted
            paint_bubble(painter, ends.get(mark.step, mark_x(mark.step, pitch)), 1.0, colour)


def mark_x(step: int, pitch: float) -> float:
    """Where the row's mark of a token begins."""
    return step * pitch
