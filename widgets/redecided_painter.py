"""Marks over a finished text: which words other settings would cut or replace, and where it first goes elsewhere."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen, QPolygonF

from engine.events import CUT_OPEN, ELSEWHERE, OPEN, Redecided, TokenEvent
from widgets import theme
from widgets.redecided_bar import cut_stage
from widgets.text_flow import Piece, place_in


def paint_redecided(
    painter: QPainter, found: Redecided, tokens: list[TokenEvent], pieces: list[Piece], selected: int | None
) -> None:
    """A cut word is dimmed and struck in the colour of its filter, one that the draw misses is underlined, an
    undecided one dotted; a flag stands where the text first goes elsewhere, if that is certain."""
    look = theme.current()
    for piece in pieces:
        if piece.step >= len(found.fates):
            continue
        rect, stage, fate = piece.rect, cut_stage(found, piece.step), found.fates[piece.step]
        middle, low = rect.top() + rect.height() * 0.54, rect.bottom() - 4.0
        if stage is not None:
            if piece.step != selected:
                _dim(painter, rect, look.panel)
            _line(painter, rect, middle, look.cut(stage), Qt.PenStyle.SolidLine, 1.8)
        elif fate == OPEN or found.cuts[piece.step] == CUT_OPEN:
            _line(painter, rect, low, look.muted, Qt.PenStyle.DotLine, 1.6)
        elif fate == ELSEWHERE:
            _line(painter, rect, low, look.muted, Qt.PenStyle.SolidLine, 1.6)
    certain = found.first if found.open_at is None else None
    place = None if certain is None else place_in(pieces, tokens, certain)
    if certain is not None and place is not None:
        stage = cut_stage(found, certain)
        paint_flag(painter, place, look.warning if stage is None else look.cut(stage))


def _dim(painter: QPainter, rect: QRectF, ground: QColor) -> None:
    veil = QColor(ground)
    veil.setAlphaF(0.38)
    painter.fillRect(rect, veil)


def _line(painter: QPainter, rect: QRectF, y: float, colour: QColor, style: Qt.PenStyle, width: float) -> None:
    painter.setPen(QPen(colour, width, style))
    painter.drawLine(QPointF(rect.left() + 2.0, y), QPointF(rect.right() - 1.0, y))


def paint_flag(painter: QPainter, rect: QRectF, colour: QColor) -> None:
    """A pole at the word's left and a pennant over it."""
    x, top, bottom = rect.left() + 1.0, rect.top(), rect.bottom() - 2.0
    painter.setPen(QPen(colour, 2.0))
    painter.drawLine(QPointF(x, top), QPointF(x, bottom))
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(colour)
    painter.drawPolygon(QPolygonF([QPointF(x, top), QPointF(x + 9.0, top + 3.5), QPointF(x, top + 7.0)]))
