"""The bar above a finished text while other settings are set: what they would have changed, and the way back."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QHBoxLayout, QPushButton, QSizePolicy, QWidget

from engine.events import ELSEWHERE, FILTERS, OPEN, Redecided, TokenEvent
from widgets.candidate_rows import cut_word
from widgets.format import count_text, number_text, plain_tooltip, token_label
from widgets.panel import PlainLabel

SHORT = 2  # lines


class RedecidedBar(QFrame):
    """Hidden while the settings are those of the run."""

    back_requested = Signal()
    go_on_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.label = PlainLabel()
        self.label.setWordWrap(True)
        self.label.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.label.setToolTip(
            self.tr(
                "Decided again from what was kept of each word, without the model, with the same draws. Only the first "
                "word that differs is certain to be where the text goes elsewhere: what follows it would be another "
                "text, so of later words it is only said whether they would still stand after the words written here."
            )
        )
        self.button = QPushButton(self.tr("As written"))
        self.button.clicked.connect(self.back_requested)
        self.go_on = QPushButton(self.tr("Go on from there"))
        self.go_on.setToolTip(
            self.tr("Write on from that word with these settings and the same draws; this text stays (Ctrl+Shift+E)")
        )
        self.go_on.clicked.connect(self.go_on_requested)
        self.acts = QHBoxLayout()
        self.acts.setSpacing(8)
        self.acts.addWidget(self.go_on)
        self.acts.addWidget(self.button)
        self.row = QBoxLayout(QBoxLayout.Direction.LeftToRight, self)
        self.row.setContentsMargins(0, 0, 0, 0)
        self.row.setSpacing(6)
        self.row.addWidget(self.label, 1)
        self.row.addLayout(self.acts)
        self.row.setAlignment(self.acts, Qt.AlignmentFlag.AlignLeft)
        self.hide()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def _arrange(self) -> None:
        """The buttons stand beside a sentence that is short there, else below it."""
        beside = self.width() - self.acts.sizeHint().width() - self.row.spacing()
        short = self.label.heightForWidth(max(1, beside)) <= SHORT * self.label.fontMetrics().lineSpacing()
        directions = QBoxLayout.Direction
        self.row.setDirection(directions.LeftToRight if short else directions.TopToBottom)

    def show_redecided(
        self, found: Redecided | None, tokens: list[TokenEvent], differs: str = "", how: str = ""
    ) -> None:
        """differs: that the settings differ from the run's in more than the one that was moved; how: in what."""
        if found is None:
            self.hide()
            return
        text = f"{summary(found, tokens)} {differs}".strip()
        self.label.setText(text)
        self.setAccessibleName(f"{text} {how}".strip())
        back = self.tr("Sets the sliders back to the settings that this text was written with")
        self.button.setToolTip(plain_tooltip(f"{back}\n{how}".strip()))
        self.go_on.setVisible(found.first is not None or found.open_at is not None)
        self._arrange()
        self.show()


def cut_stage(found: Redecided, step: int) -> str | None:
    """The filter that would cut the written word, None where none would or where it is undecided."""
    code = found.cuts[step]
    return FILTERS[code - 1] if 0 < code <= len(FILTERS) else None


def summary(found: Redecided, tokens: list[TokenEvent]) -> str:
    """Where the text would go elsewhere, how many words would be cut, how many are undecided."""
    translate = QCoreApplication.translate
    parts = []
    first, open_at = found.first, found.open_at
    if open_at is not None:
        at = count_text(open_at + 1)
        if first is None:
            parts.append(translate("Redecided", "Undecided from word {at} on.").format(at=at))
        else:
            parts.append(
                translate("Redecided", "It would go elsewhere by word {last}, not before word "
                          "{at}, which is undecided.").format(at=at, last=count_text(first + 1))
            )  # fmt: skip
    elif first is None:
        parts.append(translate("Redecided", "The same text would be written with these settings."))
    else:
        parts.append(
            translate("Redecided", "It would go elsewhere at word {at}: {why}.").format(
                at=count_text(first + 1), why=why(found, tokens, first)
            )
        )
    total = count_text(len(tokens))
    cut, undecided = found.cut_count, found.open_count
    parts.append(translate("Redecided", "{cut} of {total} words would be cut").format(cut=count_text(cut), total=total))
    parts[-1] += (
        translate("Redecided", "; {count} undecided.").format(count=count_text(undecided)) if undecided else "."
    )
    return " ".join(parts)


def why(found: Redecided, tokens: list[TokenEvent], step: int) -> str:
    """What becomes of one written word, in a few words without a full stop."""
    translate = QCoreApplication.translate
    word, stage, fate = token_label(tokens[step].token_text), cut_stage(found, step), found.fates[step]
    if stage is not None:
        said = translate("Redecided", "{word} is cut by {stage}").format(word=word, stage=cut_word(stage))
    elif fate == ELSEWHERE and found.choices_low[step] == found.choices_high[step] == 1.0:  # nothing is drawn
        said = translate("Redecided", "{word} is not the most probable").format(word=word)
    elif fate == ELSEWHERE:
        said = translate("Redecided", "the draw falls beside {word}").format(word=word)
    elif fate == OPEN:
        said = translate("Redecided", "undecided: what was kept allows both")
    else:
        said = translate("Redecided", "{word} still stands at this place").format(word=word)
    other = other_text(found, tokens[step], step)
    if other:
        said += translate("Redecided", ", {word} instead").format(word=other)
    return said


def other_text(found: Redecided, token: TokenEvent, step: int) -> str:
    """The word that would stand there instead, "" where it or its text is not known."""
    other = found.others[step]
    if other < 0 or other not in token.candidate_ids:
        return ""
    return token_label(token.candidate_texts[token.candidate_ids.index(other)])


def choices_text(found: Redecided, step: int) -> str:
    """exp(entropy) of what would be drawn from: one number, or bounds where it is only bounded; "" if unknown."""
    low, high = found.choices_low[step], found.choices_high[step]
    if not (low == low and high < 1e12):
        return ""
    if high - low < 0.01 * high or number_text(low, 1) == number_text(high, 1):
        return number_text((low + high) / 2, 1)
    return f"{number_text(low, 1)} … {number_text(high, 1)}"
