"""One alternative as a row: label, bar (outline before the settings, solid after), figures, what cut it.

Shared by the panel "why this word" and the small window beside a hovered token.
"""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QT_TRANSLATE_NOOP, QCoreApplication, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QPainter, QPen

from engine.events import Candidate
from widgets import theme
from widgets.format import percent_text, token_label

BAR = 11.0  # height of a bar
LEAST_BAR, LEAST_LABEL = 24.0, 36.0  # widths
WORDS_FROM = 44.0  # of a bar's width: a narrower one gets its room back from the words beside it
_MIDDLE = Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine
_LEFT, _RIGHT = int(_MIDDLE | Qt.AlignmentFlag.AlignLeft), int(_MIDDLE | Qt.AlignmentFlag.AlignRight)
_CENTRE = int(_MIDDLE | Qt.AlignmentFlag.AlignHCenter)


_CUTS = {
    "top_k": QT_TRANSLATE_NOOP("cut", "top-k"),
    "top_p": QT_TRANSLATE_NOOP("cut", "top-p"),
    "min_p": QT_TRANSLATE_NOOP("cut", "min-p"),
    "typical_p": QT_TRANSLATE_NOOP("cut", "typical-p"),
    "no_repeat_ngram": QT_TRANSLATE_NOOP("cut", "no-repeat"),
    "banned": QT_TRANSLATE_NOOP("cut", "ban"),
    "bias": QT_TRANSLATE_NOOP("cut", "bias"),
    "penalties": QT_TRANSLATE_NOOP("cut", "penalty"),
}


def cut_word(stage: str) -> str:
    """The stage that cut, in the words of its slider."""
    return QCoreApplication.translate("cut", _CUTS[stage]) if stage in _CUTS else stage


def _moved(candidate: Candidate) -> bool:
    """Whether the settings changed its logit and left it to be drawn."""
    return not candidate.cut_by and bool(candidate.penalty or candidate.bias)


def _moved_words(candidate: Candidate) -> tuple[str, str]:
    """What changed its logit: by the word of its slider and, where that has no room, by where it went."""
    change = candidate.penalty + candidate.bias
    return cut_word("bias" if candidate.bias else "penalties"), "↑" if change > 0.0 else "↓"


class Rows:
    """Alternatives ready to be painted at one width: what costs time is worked out once, when a row is first seen.

    Made anew when the token, the width, the theme or a font changes.
    """

    def __init__(self, candidates: Sequence[Candidate], width: float) -> None:
        look = theme.current()
        self.candidates, self.width = candidates, width
        self.mono, self.bold, self.figure, self.small = (
            theme.mono(-1),
            theme.mono(-1, bold=True),
            theme.font(-1),
            theme.font(-2),
        )
        self._mono_metrics = QFontMetricsF(self.mono)
        small = QFontMetricsF(self.small)
        letter = self._mono_metrics.horizontalAdvance("n")
        labels = [token_label(candidate.text) for candidate in candidates]
        widest = max((self._advance(label, letter) for label in labels), default=0.0)
        figures = QFontMetricsF(self.figure)
        self.height = max(22.0, round(figures.height() * 1.42))
        self.label_width = min(max(widest + 2.0, 56.0), width / 3.0)  # a label takes at most a third
        self.before_width = figures.horizontalAdvance(">99.9%") + 8.0
        words = {cut_word(c.cut_by) for c in candidates if c.cut_by}
        moved = {_moved_words(c) for c in candidates if _moved(c)}
        self._chip_widths = {
            word: small.horizontalAdvance(word) + (12.0 if len(word) > 1 else 8.0) for word in words.union(*moved)
        }
        self._chip_height = small.height() + 2.0
        chips = max((self._chip_widths[word] for word in words), default=0.0)
        self.after_width = max(self.before_width, chips + 6.0)
        # The figures bring a gap of their own, which is enough beside a word.
        figures_width = self.before_width + self.after_width + (0.0 if moved else 10.0)
        # What moves a logit cuts nobody: its word has a column of its own beside the bars, which it must not cover.
        room = width - self.label_width - 10.0 - figures_width
        self.notes_width, self._note_form = 0.0, 0
        for form in (0, 1) if moved else ():
            self.notes_width = max(self._chip_widths[said[form]] for said in moved) + 6.0
            self._note_form = form
            if room - self.notes_width >= WORDS_FROM:
                break
        missing = LEAST_BAR - (room - self.notes_width)
        if missing > 0.0:
            self.label_width = max(min(self.label_width, LEAST_LABEL), self.label_width - missing)
        self.bar_left = self.label_width + 10.0
        self.bar_width = max(LEAST_BAR, width - self.bar_left - self.notes_width - figures_width)
        self._labels = labels
        self._texts: dict[int, tuple[str, str, str]] = {}
        self._chosen_ground = theme.mixed(look.panel, look.accent, 0.12)
        self._outline = QPen(theme.mixed(look.probability, look.ink, 0.25), 1.0)

    def _advance(self, label: str, letter: float) -> float:
        return len(label) * letter if label.isascii() else self._mono_metrics.horizontalAdvance(label)

    def _row_texts(self, index: int) -> tuple[str, str, str]:
        texts = self._texts.get(index)
        if texts is None:
            candidate = self.candidates[index]
            metrics = QFontMetricsF(self.bold) if candidate.chosen else self._mono_metrics
            label = metrics.elidedText(self._labels[index], Qt.TextElideMode.ElideRight, self.label_width)
            after = cut_word(candidate.cut_by) if candidate.cut_by else percent_text(candidate.final)
            texts = self._texts[index] = label, percent_text(candidate.raw), after
        return texts

    def paint(
        self,
        painter: QPainter,
        index: int,
        top: float,
        *,
        before: bool = True,
        after: bool = True,
        progress: float = 1.0,
    ) -> None:
        """Paints a row at the left edge. `progress` 0 to 1: from before the settings to after them."""
        look, candidate = theme.current(), self.candidates[index]
        label, before_text, after_text = self._row_texts(index)
        chosen, cut, ground = candidate.chosen, candidate.cut_by, look.panel
        painter.setPen(Qt.PenStyle.NoPen)
        if chosen:
            ground = self._chosen_ground
            painter.setBrush(ground)
            painter.drawRoundedRect(QRectF(-6, top + 1, self.width + 12, self.height - 2), 4, 4)
            painter.setBrush(look.accent)
            painter.drawRoundedRect(QRectF(-6, top + 1, 3, self.height - 2), 1.5, 1.5)

        track = QRectF(self.bar_left, top + (self.height - BAR) / 2, self.bar_width, BAR)
        painter.setBrush(look.track)
        painter.drawRoundedRect(track, 2.5, 2.5)
        final = candidate.final or 0.0
        if after:
            share = candidate.raw + (final - candidate.raw) * progress
            self._paint_bar(painter, track, share, look.probability, 18.0 * progress if cut else 0.0)
        if before:
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(self._outline)
            length = max(2.0, track.width() * candidate.raw) - 1
            painter.drawRoundedRect(QRectF(track.left() + 0.5, track.top() + 0.5, length, BAR - 1), 2, 2)

        painter.setFont(self.bold if chosen else self.mono)
        painter.setPen(theme.readable(look.accent, ground) if chosen else look.ink if final else look.muted)
        painter.drawText(QRectF(0, top, self.label_width + 2, self.height), _LEFT, label)
        painter.setFont(self.figure)
        painter.setPen(theme.readable(look.muted, ground))
        edge = self.width - self.after_width
        painter.drawText(QRectF(edge - self.before_width, top, self.before_width, self.height), _RIGHT, before_text)
        if cut:
            self._paint_chip(painter, self.width, top, after_text, look.cut(cut))
            return
        if final:
            painter.setPen(look.ink)
        painter.drawText(QRectF(edge, top, self.after_width, self.height), _RIGHT, after_text)
        if _moved(candidate):
            word = _moved_words(candidate)[self._note_form]
            self._paint_chip(painter, track.right() + self.notes_width, top, word, look.penalty)

    @staticmethod
    def _paint_bar(painter: QPainter, track: QRectF, share: float, colour: QColor, shift: float) -> None:
        """A cut bar leaves to the right: `shift` pixels so far."""
        if share <= 0.0:
            return
        left = track.left() + shift
        length = min(max(1.5, track.width() * share), track.right() - left)
        painter.setBrush(colour)
        painter.drawRoundedRect(QRectF(left, track.top(), length, BAR), 2.5, 2.5)

    def _paint_chip(self, painter: QPainter, right: float, top: float, word: str, role: QColor) -> None:
        width = self._chip_widths[word]
        box = QRectF(right - width, top + (self.height - self._chip_height) / 2, width, self._chip_height)
        _chip(painter, box, word, role, self.small)


def paint_chip(painter: QPainter, left: float, middle: float, word: str, role: QColor, font: QFont) -> QRectF:
    """A small label, its words in the role's colour. Returns where it lies."""
    metrics = QFontMetricsF(font)
    height = metrics.height() + 2.0
    box = QRectF(left, middle - height / 2, metrics.horizontalAdvance(word) + 12.0, height)
    _chip(painter, box, word, role, font)
    return box


def _chip(painter: QPainter, box: QRectF, word: str, role: QColor, font: QFont) -> None:
    ground, text = theme.current().chip(role)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(ground)
    painter.drawRoundedRect(box, 4, 4)
    painter.setPen(text)
    painter.setFont(font)
    painter.drawText(box, _CENTRE, word)
