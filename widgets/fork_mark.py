"""The place in a text where the run left the one that it began in."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication, QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPolygonF

from widgets import theme
from widgets.run import Run
from widgets.run_names import run_name
from widgets.run_store import RunStore
from widgets.text_flow import Piece, place_in


def paint_fork(painter: QPainter, run: Run, pieces: list[Piece], moment: int) -> None:
    """A small flag before the first word that is the run's own."""
    if run.start.parent is None or not run.begins < moment:
        return
    place = place_in(pieces, run.tokens, run.begins)
    if place is None:
        return
    x, top = float(round(place.left())), place.top() + 1.0
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(theme.current().accent)
    painter.drawRect(QRectF(x - 1.0, top, 2.0, place.height() - 2.0))
    painter.drawPolygon(QPolygonF([QPointF(x - 4.0, top), QPointF(x + 4.0, top), QPointF(x, top + 5.0)]))


def fork_words(store: RunStore, run: Run, step: int) -> str:
    """What is said of the first word that is the run's own, "" of others."""
    if run.start.parent is None or step != run.begins:
        return ""
    above = store.above(run)
    if above is None:
        return QCoreApplication.translate("Fork", "Here this text left a run that is not here.")
    return QCoreApplication.translate("Fork", "Here this text left {name}.").format(name=run_name(store, above))
