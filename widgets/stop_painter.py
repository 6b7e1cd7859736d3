"""Stop strings and given words in the text: what waits since it could become one, where one ended the run."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QCoreApplication, QPointF, QRectF, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPen

from engine.events import RunEnd, TokenEvent
from widgets import theme
from widgets.candidate_rows import paint_chip
from widgets.format import percent_text
from widgets.run import Run
from widgets.stop_list import spelled
from widgets.text_flow import Piece, TextFlow


def waiting_height(flow: TextFlow, run: Run | None) -> float:
    """Room below a text that grows, where what is held back may be said: always, so that nothing jumps."""
    return flow.line_height if run is not None and run.end is None and run.start.stop else 0.0


def waiting_text(held: str, stop: Sequence[str]) -> str:
    """What waits, and which stop string it could become."""
    whole = " / ".join(spelled(each) for each in stop if each.startswith(held))
    return QCoreApplication.translate("stop", "waiting: “{held}” could become the stop “{stop}”").format(
        held=spelled(held), stop=whole
    )


def paint_waiting(painter: QPainter, flow: TextFlow, run: Run, pieces: list[Piece], moment: int) -> None:
    """After the newest word at this moment: text that is held back, since it could become a stop string."""
    held = run.tokens[moment - 1].held if 0 < moment <= len(run.tokens) else ""
    over = run.end is not None and moment >= len(run.tokens)  # what waited was let go, or was the stop string
    if not held or over:
        return
    font = theme.font(-2)
    room = flow.width - 12.0
    words = QFontMetricsF(font).elidedText(waiting_text(held, run.start.stop), Qt.TextElideMode.ElideRight, room)
    width = QFontMetricsF(font).horizontalAdvance(words) + 12.0
    last = next((piece for piece in reversed(pieces) if piece.step < moment and piece.rect.width() > 0.0), None)
    left, top = 0.0, max(0.0, (flow.lines - 1) * flow.line_height)
    if last is not None:
        left, top = last.rect.right() + 6.0, last.rect.top()
    if left + width > flow.width:
        left, top = 0.0, top + flow.line_height
    paint_chip(painter, left, top + flow.line_height / 2, words, theme.current().warning, font)


def paint_stopped(painter: QPainter, flow: TextFlow, end: RunEnd, after: QRectF) -> None:
    """The stop string that ended a run, struck, since it is no part of the text; and the place where it began.

    after: the chip with the reason, beside which it stands.
    """
    if not end.stop_string:
        return
    look, font = theme.current(), theme.mono(-2)
    metrics = QFontMetricsF(font)
    room = max(24.0, flow.width - after.right() - 24.0)
    words = metrics.elidedText(spelled(end.stop_string), Qt.TextElideMode.ElideRight, room)
    box = paint_chip(painter, after.right() + 6.0, after.center().y(), words, look.warning, font)
    painter.setPen(QPen(look.warning, 1.2))
    painter.drawLine(QPointF(box.left() + 5.0, box.center().y()), QPointF(box.right() - 5.0, box.center().y()))
    line = flow.lines - 1
    pieces = list(flow.pieces(line, line))
    x = max((piece.rect.right() for piece in pieces), default=0.0)
    top = line * flow.line_height
    painter.fillRect(QRectF(x + 1.0, top + 4.0, 2.0, flow.line_height - 8.0), look.warning)


def paint_given(painter: QPainter, tokens: list[TokenEvent], pieces: list[Piece], moment: int) -> None:
    """A line over words that were given by the person and not chosen."""
    painter.setPen(QPen(theme.current().accent, 1.5, Qt.PenStyle.DotLine))
    for piece in pieces:
        if piece.step < moment and piece.step < len(tokens) and tokens[piece.step].forced:
            y = piece.rect.top() + 3.5
            painter.drawLine(QPointF(piece.rect.left() + 1.0, y), QPointF(piece.rect.right() - 1.0, y))


def given_words(token: TokenEvent) -> str:
    """What is said of a given word, "" for one that was chosen."""
    if not token.forced:
        return ""
    raw = token.candidate(token.candidate_ids.index(token.token_id)).raw
    return QCoreApplication.translate("stop", "Given, not chosen: the model itself gave it {share}.").format(
        share=percent_text(raw)
    )
