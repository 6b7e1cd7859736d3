"""One alternative as a row: label, bar (outline before the settings, solid after), figures, what cut it.

Shared by the panel "why this word" and the small window beside a hovered token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QCoreApplication, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QPainter, QPen

from engine.events import Candidate
from widgets import theme
from widgets.format import percent_text, token_label


def cut_word(stage: str) -> str:
    """The stage that cut, in the words of its slider."""
    tr = QCoreApplication.translate
    return {
        "top_k": tr("cut", "top-k"),
        "top_p": tr("cut", "top-p"),
        "min_p": tr("cut", "min-p"),
        "typical_p": tr("cut", "typical-p"),
        "no_repeat_ngram": tr("cut", "no-repeat"),
        "penalties": tr("cut", "penalty"),
    }.get(stage, stage)


@dataclass(frozen=True)
class RowStyle:
    """Fonts and columns of rows for one width. Made anew when the width, the theme or a font changes."""

    width: float
    mono: QFont
    mono_bold: QFont
    small: QFont
    label: float  # width of the label column
    before: float  # of each figure column
    after: float
    height: float

    @property
    def bar(self) -> tuple[float, float]:
        """Left edge and width of the bar column."""
        left = self.label + 10.0
        return left, max(24.0, self.width - left - self.before - self.after - 10.0)


def row_style(width: float, candidates: Sequence[Candidate]) -> RowStyle:
    """Columns for these alternatives; a label takes at most a third of the row."""
    mono, small = theme.mono(-1), theme.font(-2)
    widest = max((QFontMetricsF(mono).horizontalAdvance(token_label(c.text)) for c in candidates), default=0.0)
    figures = QFontMetricsF(theme.font(-1))
    before = figures.horizontalAdvance(">99.9%") + 8.0
    cuts = {c.cut_by for c in candidates if c.cut_by}
    chips = max((QFontMetricsF(small).horizontalAdvance(cut_word(cut)) for cut in cuts), default=0.0) + 14.0
    return RowStyle(
        width=width,
        mono=mono,
        mono_bold=theme.mono(-1, bold=True),
        small=small,
        label=min(max(widest + 2.0, 56.0), width / 3.0),
        before=before,
        after=max(before, chips + 4.0),
        height=max(22.0, round(figures.height() * 1.42)),
    )


def paint_row(
    painter: QPainter,
    style: RowStyle,
    top: float,
    candidate: Candidate,
    *,
    before: bool = True,
    after: bool = True,
    progress: float = 1.0,
) -> None:
    """Paints a row at the left edge. `progress` 0 to 1: from before the settings to after them."""
    look = theme.current()
    middle = top + style.height / 2
    cut, chosen = candidate.cut_by is not None, candidate.chosen
    if chosen:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.mixed(look.panel, look.accent, 0.12))
        painter.drawRoundedRect(QRectF(-6, top + 1, style.width + 12, style.height - 2), 4, 4)
        painter.setBrush(look.accent)
        painter.drawRoundedRect(QRectF(-6, top + 1, 3, style.height - 2), 1.5, 1.5)

    label = token_label(candidate.text)
    painter.setFont(style.mono_bold if chosen else style.mono)
    ground = theme.mixed(look.panel, look.accent, 0.12) if chosen else look.panel
    painter.setPen(theme.readable(look.accent, ground) if chosen else look.ink if candidate.final else look.muted)
    shown = QFontMetricsF(painter.font()).elidedText(label, Qt.TextElideMode.ElideRight, style.label)
    _text(painter, QRectF(0, top, style.label + 2, style.height), shown)

    left, width = style.bar
    thick = 11.0
    track = QRectF(left, middle - thick / 2, width, thick)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(look.track)
    painter.drawRoundedRect(track, 2.5, 2.5)
    final = candidate.final or 0.0
    if after:
        share = candidate.raw + (final - candidate.raw) * progress
        shift = 18.0 * progress if cut else 0.0  # a cut bar leaves to the right
        _bar(painter, track, share, look.probability, shift)
    if before:
        outline = QRectF(track.left() + 0.5, track.top() + 0.5, max(2.0, track.width() * candidate.raw) - 1, thick - 1)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(theme.mixed(look.probability, look.ink, 0.25), 1.0))
        painter.drawRoundedRect(outline, 2, 2)

    figure = theme.font(-1)
    painter.setFont(figure)
    right = Qt.AlignmentFlag.AlignRight
    column = QRectF(style.width - style.after - style.before, top, style.before, style.height)
    painter.setPen(theme.readable(look.muted, ground))
    _text(painter, column, percent_text(candidate.raw), right)
    column = QRectF(style.width - style.after, top, style.after, style.height)
    if cut:
        paint_chip(painter, column, cut_word(candidate.cut_by or ""), look.cut(candidate.cut_by or ""), style.small)
        return
    painter.setPen(look.ink if final else theme.readable(look.muted, ground))
    _text(painter, column, percent_text(final), right)
    if candidate.penalty:
        # A penalty cuts nobody, it shortens: its word stands on the bar, at the end that hides no bar's end.
        word, long_bar = cut_word("penalties"), max(candidate.raw, final) > 0.5
        chip = QFontMetricsF(style.small).horizontalAdvance(word) + 12
        if chip < width * 0.6:
            x = left + 2 if long_bar else track.right() - chip
            paint_chip(painter, QRectF(x, top, chip, style.height), word, look.penalty, style.small)


def _bar(painter: QPainter, track: QRectF, share: float, colour: QColor, shift: float = 0.0) -> None:
    if share <= 0.0:
        return
    painter.save()
    painter.setClipRect(track)
    painter.setBrush(colour)
    length = max(1.5, track.width() * share)
    painter.drawRoundedRect(QRectF(track.left() + shift, track.top(), length, track.height()), 2.5, 2.5)
    painter.restore()


def paint_chip(painter: QPainter, column: QRectF, word: str, role: QColor, font: QFont) -> QRectF:
    """A small label at the right end of a column, its words in the role's colour. Returns where it lies."""
    ground, text = theme.current().chip(role)
    metrics = QFontMetricsF(font)
    shown = metrics.elidedText(word, Qt.TextElideMode.ElideRight, column.width() - 12)
    width, height = metrics.horizontalAdvance(shown) + 12, metrics.height() + 2
    box = QRectF(column.right() - width, column.center().y() - height / 2, width, height)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(ground)
    painter.drawRoundedRect(box, 4, 4)
    painter.setPen(text)
    painter.setFont(font)
    _text(painter, box, shown, Qt.AlignmentFlag.AlignHCenter)
    return box


def _text(painter: QPainter, box: QRectF, text: str, side: Qt.AlignmentFlag = Qt.AlignmentFlag.AlignLeft) -> None:
    painter.drawText(box, int(side | Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine), text)
