"""How the text of a run is painted: shades, letters, marks, and why it ended."""

from __future__ import annotations

from functools import cache
from itertools import groupby, zip_longest

from PySide6.QtCore import QCoreApplication, QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPen

from engine.events import RunEnd, TokenEvent
from widgets import theme
from widgets.candidate_rows import paint_chip
from widgets.format import tokens_text, visible
from widgets.stop_painter import paint_stopped
from widgets.text_flow import Piece, TextFlow


def shown_text(event: TokenEvent, show_special: bool) -> str:
    """A token's text as painted: what would act or vanish is made visible; line breaks stay (TXT-12, THR-25)."""
    text = event.token_text if event.special and show_special else event.text
    return text if text.isprintable() else "".join(shown_character(c) for c in text)


def shown_character(character: str) -> str:
    """One character of a text as painted."""
    if character in "\n\u2028\u2029":
        return "\n"
    return character if character == "\t" else visible(character)


def one_line(text: str) -> str:
    """A text for one line: line breaks as marks, what would act or vanish made visible."""
    return "".join("↵ " if (shown := shown_character(c)) == "\n" else shown for c in text)


def paint_pieces(
    painter: QPainter,
    flow: TextFlow,
    tokens: list[TokenEvent],
    pieces: list[Piece],
    selected: int | None,
    hovered: int | None,
    moment: int,
) -> None:
    """Shades, letters, and the marks of the selected and the hovered token.

    moment: so many tokens were written at the moment that is shown; what came after them stands back.
    """
    look = theme.current()
    painter.setPen(Qt.PenStyle.NoPen)
    drawn_selected, before_selected = False, None
    for piece in pieces:
        colour = _shade(look.dark, tokens[piece.step].surprise_nats)
        if colour is not None and piece.step < moment:
            painter.setBrush(colour)
            painter.drawRoundedRect(_inner(piece.rect), 3.0, 3.0)
    for _, group in groupby(pieces, key=_line_of):
        line = list(group)
        late = sum(piece.step >= moment for piece in line)
        for piece in line if 0 < late < len(line) else line[:1]:  # letters of one colour are drawn at once
            painter.save()
            painter.setPen(look.muted if piece.step >= moment else look.ink)
            if 0 < late < len(line):
                painter.setClipRect(piece.rect, Qt.ClipOperation.IntersectClip)
            piece.line.draw(painter, piece.origin)
            painter.restore()
    for piece in pieces:
        token = tokens[piece.step]
        if piece.step >= moment:
            pass
        elif piece.step == selected:
            drawn_selected = True
            _repaint_piece(painter, piece, look.accent, look.on_accent)
        elif token.special:
            _repaint_piece(painter, piece, look.track, look.muted)
        elif token.stop_cut:
            painter.setPen(QPen(look.warning, 1.5, Qt.PenStyle.DashLine))
            y = piece.rect.bottom() - 4.0
            painter.drawLine(QPointF(piece.rect.left(), y), QPointF(piece.rect.right(), y))
        if piece.step == hovered and piece.step != selected:
            painter.setPen(QPen(look.accent, 1.5))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(_inner(piece.rect).adjusted(0.75, 0.75, -0.75, -0.75), 3.0, 3.0)
        if selected is not None and piece.step < selected:
            before_selected = piece
    if selected is not None and not drawn_selected and before_selected is not None:
        _paint_caret(painter, flow, selected, before_selected)


def _paint_caret(painter: QPainter, flow: TextFlow, selected: int, before: Piece) -> None:
    """A token whose text became certain only later has no width: a bar shows where it stands."""
    lines = flow.lines_of(selected)
    if lines is not None and lines[1] * flow.line_height == before.rect.top():
        x = before.rect.right()
        painter.fillRect(QRectF(x - 1.0, before.rect.top() + 3, 2.5, before.rect.height() - 6), theme.current().accent)


def without_stubs(flow: TextFlow, pieces: list[Piece]) -> list[Piece]:
    """Leaves out the blank at a line's end that belongs to a word on the next line."""
    blank = flow.metrics.horizontalAdvance(" ") + 1.0
    return [
        piece
        for piece, after in zip_longest(pieces, pieces[1:])
        if piece.rect.width() > blank
        or after is None
        or after.step != piece.step
        or after.rect.top() == piece.rect.top()
    ]


def _line_of(piece: Piece) -> tuple[int, float]:
    return piece.line.lineNumber(), piece.origin.y()


def _repaint_piece(painter: QPainter, piece: Piece, ground: QColor, text: QColor) -> None:
    painter.save()
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(ground)
    painter.drawRoundedRect(_inner(piece.rect), 3.0, 3.0)
    painter.setClipRect(piece.rect)
    painter.setPen(text)
    piece.line.draw(painter, piece.origin)
    painter.restore()


@cache
def _shade_step(dark: bool, twentieths: int) -> QColor | None:
    return (theme.DARK if dark else theme.LIGHT).shade(twentieths / 20)


def _shade(dark: bool, nats: float) -> QColor | None:
    return _shade_step(dark, round(nats * 20) if 0.0 <= nats < 60.0 else 1200)


def end_height(flow: TextFlow, end: RunEnd | None) -> float:
    """Room below the text for the reason why it ended."""
    if end is None:
        return 0.0
    height = flow.line_height + 6.0
    if end.sentence:
        height += _sentence_box(flow, end, 0.0).height() + 4.0
    return height


def _sentence(end: RunEnd) -> str:
    return f"{end.sentence} {end.fix}".strip()


def _sentence_box(flow: TextFlow, end: RunEnd, top: float) -> QRectF:
    room = QRectF(0.0, top, flow.width, 4000.0)
    return QFontMetricsF(theme.font()).boundingRect(room, int(Qt.TextFlag.TextWordWrap), _sentence(end))


def paint_end(painter: QPainter, flow: TextFlow, end: RunEnd, remarks: tuple[str, ...] = ()) -> None:
    """The chip below the text, and the sentence of an end that needs one.

    remarks: muted words beside the chip, the longest wording first; the first that fits whole is shown, or none.
    """
    look = theme.current()
    failed = end.reason == "error"
    middle = flow.lines * flow.line_height + 4.0 + flow.line_height / 2
    box = paint_chip(painter, 0.0, middle, end_word(end), look.warning if failed else look.muted, theme.font(-2))
    paint_stopped(painter, flow, end, box)
    font = theme.font(-2)
    room = flow.width - box.right() - 8.0
    remark = next((words for words in remarks if QFontMetricsF(font).horizontalAdvance(words) <= room), "")
    if remark and not end.stop_string:
        painter.setFont(font)
        painter.setPen(look.muted)
        place = QRectF(box.right() + 8.0, box.top(), room + 2.0, box.height())
        painter.drawText(place, int(Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine), remark)
    if end.sentence:
        painter.setFont(theme.font())
        painter.setPen(look.ink if failed else look.muted)
        place = _sentence_box(flow, end, box.bottom() + 6.0)
        place.setWidth(flow.width)
        painter.drawText(place, int(Qt.TextFlag.TextWordWrap), _sentence(end))


def end_word(end: RunEnd) -> str:
    """Why a run ended, for its chip."""
    translate = QCoreApplication.translate
    if end.breaks_off:
        return translate("end", "recording ends here: file damaged")
    return {
        "eos": translate("end", "ended by itself (eos)"),
        "stop string": translate("end", "ended: stop string"),
        "length": translate("end", "ended: length, {tokens}").format(tokens=tokens_text(end.new_tokens)),
        "context full": translate("end", "ended: context full"),
        "cancelled": translate("end", "stopped"),
        "error": translate("end", "ended: error"),
    }.get(end.reason, end.reason)


def _inner(rect: QRectF) -> QRectF:
    return rect.adjusted(0.0, 3.0, 0.0, -3.0)
