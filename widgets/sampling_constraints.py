"""What the text must begin with, and words that are banned, lowered or raised. A section of the sampling panel, and,
without the beginning, of a lane's settings.

What is shown follows from the settings, which know tokens only, and from what the model said of the words; so undo,
presets and settings from a file need nothing of their own.
"""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QCoreApplication, Signal
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QToolButton, QVBoxLayout, QWidget

from engine.events import EngineError, SessionFacts, WordForm, WordsQuestion, WordTokens
from engine.settings import LOGIT_BIAS, SamplingSettings
from widgets import theme
from widgets.fields import NumberField, QuietLine
from widgets.format import count_text, plain_tooltip, token_label
from widgets.panel import ElidedLabel, PlainLabel, icon_button
from widgets.run_store import BUSY, RunStore
from widgets.sampling_rows import POSITIONS, SettingSlider
from widgets.small import SmallText
from widgets.stop_list import escaped, unescaped
from widgets.word_rules import BAN, Forms, beginning_alike, others, rule_of, ruled, without

MOST_WORDS = 200
MOST_OTHERS = 40  # tokens of no word that are shown one by one
FEW = 4  # so many tokens of a word are spelled out
Key = str | tuple[int, ...]  # a word, or tokens that came with settings from elsewhere


def place(bias: float) -> float:
    """0 to 1 on the slider; the cube root leaves room around 0, where a logit's bias matters."""
    return 0.5 + 0.5 * (1 if bias > 0 else -1) * (abs(bias) / LOGIT_BIAS.high) ** (1 / 3)


def pick(at: float) -> float:
    """The bias at a place, rounded to what a hand can mean."""
    side = 2 * at - 1
    return 0.0 if abs(side) < 0.06 else float(f"{LOGIT_BIAS.high * side**3:.2g}")


class Constraints(QWidget):
    """`changed` carries new settings and whether a slider is held, `recut` those in which words have other tokens only;
    `asked` carries a question to the loaded model."""

    changed = Signal(object, bool)
    recut = Signal(object)
    asked = Signal(object)
    begin_changed = Signal()

    def __init__(self, store: RunStore, begins: bool = True, parent: QWidget | None = None) -> None:
        """begins: whether it is here that a person says what every run begins with."""
        super().__init__(parent)
        self.store = store
        self._settings = SamplingSettings()
        self._forms: dict[str, Forms] = {}  # each known word, as the loaded model cuts it
        self._wanted: dict[str, float] = {}  # words whose tokens are not known yet, and what is to become of them
        self._typed: set[str] = set()  # of those, the ones that are new
        self._labels: dict[int, str] = {}
        self._taken: object = None  # the newest answer
        self._facts: SessionFacts | None = None
        self._rows: dict[Key, ConstraintRow] = {}
        self._others_of: tuple[SamplingSettings | None, dict[str, Forms], list[tuple[int, ...]]] = None, {}, []
        self.begin_line = QLineEdit()
        self.begin_line.setPlaceholderText(self.tr("the text's first words"))
        self.begin_line.setAccessibleName(self.tr("The text begins with"))
        self.begin_line.setClearButtonEnabled(True)
        tip = self.tr(
            "Forced beginning: every run begins with this text, whatever its odds; then the model goes on. In the text "
            "these words are marked, and their surprise says how unlikely they were.\n"
            "\\n is a line break, \\t a tab, \\\\ a backslash."
        )
        self.begin_line.setToolTip(tip)
        self.line = QuietLine()
        self.line.setPlaceholderText(self.tr("add a word, Enter"))
        self.line.setAccessibleName(self.tr("Word to ban, lower or raise"))
        self.line.setToolTip(
            self.tr(
                "The word is taken as it is typed and with a space before it, as it stands inside a text. First it is "
                "banned; its slider lowers or raises it instead (logit bias, −100 to 100, added to the raw logit)."
            )
        )
        self.problem = SmallText("", "warning")
        self.problem.hide()
        self.more_label = SmallText()
        self.more_label.hide()
        self._column = QVBoxLayout()
        self._column.setSpacing(8)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        label = PlainLabel(self.tr("Begin with"))
        label.setToolTip(tip)
        if begins:
            column.addWidget(label)
            column.addWidget(self.begin_line)
            column.addSpacing(4)
        column.addWidget(PlainLabel(self.tr("Words")))
        column.addLayout(self._column)
        column.addWidget(self.more_label)
        column.addWidget(self.line)
        column.addWidget(self.problem)
        self.line.returnPressed.connect(self.add_typed)
        self.line.textEdited.connect(self.problem.hide)
        self.begin_line.textChanged.connect(self.begin_changed)

    # ---------------------------------------------------------------- what is set

    def begin(self) -> str:
        """What every run begins with, "" for nothing."""
        return unescaped(self.begin_line.text())

    def set_begin(self, text: str) -> None:
        self.begin_line.setText(escaped(text))

    def count(self) -> int:
        """How many constraints are on."""
        return len(self._rows) + max(0, len(self._others()) - MOST_OTHERS) + bool(self.begin())

    def show_settings(self, settings: SamplingSettings) -> None:
        """Settings from the panel; says nothing."""
        if settings != self._settings:
            self._settings = settings
            self._show()

    def texts(self) -> dict[int, str]:
        """What the tokens of the settings are called, as far as that was asked."""
        found, used = dict(self._labels), self._settings.token_ids
        for form in (form for forms in self._forms.values() for form in forms):
            found.update(zip(form.ids, form.labels, strict=True))
        return {token_id: text for token_id, text in found.items() if text and token_id in used}

    def keep_words(self) -> SamplingSettings:
        """Another model is there: words are asked for anew, with what is said of them. Returns what is said besides."""
        rest = self._settings
        for word, forms in self._forms.items():
            rule = rule_of(self._settings, forms)
            if rule is not None:
                self._wanted[word] = rule
                rest = without(rest, forms)
        self._forms = {}
        return rest

    def drop_typed(self) -> None:
        """Words whose tokens are not known yet are not meant for the settings that are shown next."""
        self._wanted, self._typed = {}, set()
        self.line.setText("")
        self.problem.hide()
        self._show()

    def forget_words(self) -> None:
        """Another model is there, and the settings are shown as they are with it: by their tokens."""
        self._forms = {}
        self._show()

    def state(self) -> dict[str, Any]:
        """The words with their tokens, as JSON has them."""
        in_effect = {word: forms for word, forms in self._forms.items() if rule_of(self._settings, forms) is not None}
        return {word: [[f.text, list(f.ids), list(f.labels)] for f in forms] for word, forms in in_effect.items()}

    def restore(self, state: object) -> None:
        """What `state` gave. What cannot be read is left out: the settings then show tokens instead of words."""
        for word, forms in state.items() if isinstance(state, dict) else ():
            try:
                found = tuple(WordForm(str(text), tuple(map(int, ids)), tuple(map(str, labels)))
                              for text, ids, labels in forms)  # fmt: skip
            except (TypeError, ValueError):
                continue
            if found and all(form.ids for form in found):
                self._forms[str(word)] = found
        self._show()

    def add_typed(self) -> None:
        """Takes the typed word, banned at first."""
        word = unescaped(self.line.text())
        known = word in self._wanted or word in self._rows
        said = ""
        if not word.strip() and not word.strip(" "):
            said = self.tr("Write a word first.")
        elif known:
            said = self.tr("This word is in the list already.")
        elif len(self._rows) >= MOST_WORDS:
            said = self.tr("{count} words are the most.").format(count=count_text(MOST_WORDS))
        self.problem.setText(said)
        self.problem.setVisible(bool(said))
        if said:
            return
        self.line.setText("")  # and nothing is half typed: undo is the settings' again
        self._wanted[word] = BAN
        self._typed.add(word)
        self._show()
        self.refresh()

    # ---------------------------------------------------------------- asking the model

    def question(self) -> WordsQuestion:
        """What is to be known for the words and tokens as they stand."""
        words = [word for word, forms in self._forms.items() if rule_of(self._settings, forms) is not None]
        words += [word for word in self._wanted if word not in words]
        ids = sorted({token_id for key in self._others()[:MOST_OTHERS] for token_id in key})
        return WordsQuestion(tuple(words), tuple(ids))

    def refresh(self) -> None:
        """Takes what the model said; asks it where a word or another model is new."""
        facts, inside = self.store.facts, self.store.inside
        if facts is not self._facts:
            self._facts, self._taken = facts, None
            self._labels = {}
            self._show_waiting()
        question = self.question()
        if facts is None or not (question.words or question.ids):
            return
        answer = inside.answers.get(question)
        if answer is None:
            if question not in inside.pending and self.store.activity not in BUSY:
                inside.pending.add(question)
                self.asked.emit(question)
            self._show_waiting()
        elif answer is not self._taken:
            self._taken = answer
            if isinstance(answer, WordTokens):
                self._take(question, answer)
            elif isinstance(answer, EngineError):
                self.problem.setText(f"{answer.what} {answer.fix}".strip())
                self.problem.show()

    def _take(self, question: WordsQuestion, answer: WordTokens) -> None:
        """Another model cuts a word otherwise: what was said of the old tokens is said of the new ones."""
        settings = self._settings
        self._labels.update(zip(question.ids, answer.labels, strict=True))
        for word, forms in zip(question.words, answer.words, strict=True):
            old = self._forms.get(word, ())
            rule = self._wanted.pop(word, None)
            if rule is None and forms != old:
                rule = rule_of(settings, old)
            if rule is not None:
                settings = ruled(settings, self._forms, old, None) if old else settings
            self._forms.pop(word, None)
            if forms:
                self._forms[word] = forms
                settings = settings if rule is None else ruled(settings, self._forms, forms, rule)
        new = self._typed & set(question.words)
        self._typed -= new
        if settings != self._settings:
            self._settings = settings
            if new:
                self.changed.emit(settings, False)
            else:
                self.recut.emit(settings)
        self._show()

    # ---------------------------------------------------------------- rows

    def _entries(self) -> dict[Key, tuple[Forms, float]]:
        found: dict[Key, tuple[Forms, float]] = {}
        for word, forms in self._forms.items():
            rule = rule_of(self._settings, forms)
            if rule is not None:
                found[word] = forms, rule
        for ids in self._others()[:MOST_OTHERS]:
            forms = (WordForm("", ids, tuple(self._labels.get(i, "") for i in ids)),)
            rule = rule_of(self._settings, forms)
            if rule is not None:
                found[ids] = forms, rule
        for word, rule in self._wanted.items():
            found[word] = (), rule
        return found

    def _others(self) -> list[tuple[int, ...]]:
        """Tokens of the settings that belong to no word, as last worked out."""
        if self._others_of[0] is not self._settings or self._others_of[1] != self._forms:
            self._others_of = self._settings, dict(self._forms), others(self._settings, self._forms.values())
        return self._others_of[2]

    def _show(self) -> None:
        entries = self._entries()
        more = max(0, len(self._others()) - MOST_OTHERS)
        words = self.tr("and 1 more token") if more == 1 else self.tr("and {count} more tokens")
        self.more_label.setText(words.format(count=count_text(more)))
        self.more_label.setVisible(more > 0)
        for key in [key for key in self._rows if key not in entries]:
            row = self._rows.pop(key)
            self._column.removeWidget(row)
            row.hide()
            row.deleteLater()
        for key, (forms, rule) in entries.items():
            row = self._rows.get(key)
            if row is None:
                row = self._rows[key] = ConstraintRow(key)
                row.ruled.connect(self._ruled)
                row.removed.connect(self._removed)
                self._column.addWidget(row)
            row.show_rule(forms, rule, self._alike(forms, rule))
        self._show_waiting()

    def _alike(self, forms: Forms, rule: float) -> str:
        """Which other words a bias reaches, as they begin with the same token; which ban leaves it without effect."""
        if rule == BAN or not forms:
            return ""
        biased: list[str] = []
        banned: list[str] = []
        token = ""
        for word, first in beginning_alike(self._forms, forms).items():
            other = rule_of(self._settings, self._forms[word])
            if other == BAN and any(form.ids == (first,) for form in self._forms[word]):
                banned.append(word)
            elif other is not None and other != BAN:
                biased.append(word)
            else:
                continue
            token = token or next(token_label(form.labels[0]) for form in forms if form.ids[0] == first)
        said: list[str] = []
        for words, one, several in (
            (biased,
             self.tr("{words} begins with the same token {token}: the two have one bias."),
             self.tr("{words} begin with the same token {token}: all have one bias.")),
            (banned,
             self.tr("{words}, which is banned, is the token that it begins with: the bias there changes nothing."),
             self.tr("{words}, which are banned, are tokens that it begins with: the bias there changes nothing.")),
        ):  # fmt: skip
            if words:
                listed = ", ".join(f"“{token_label(word)}”" for word in words)
                said.append((one if len(words) == 1 else several).format(words=listed, token=token))
        return " ".join(said)

    def _show_waiting(self) -> None:
        """What a word still waits for whose tokens are not known."""
        if self._facts is None:
            said = self.tr("Load a model: its tokenizer cuts the word into tokens.")
        elif self.store.activity in BUSY:
            said = self.tr("Its tokens are asked for as soon as the model is free.")
        else:
            said = self.tr("Asking the model for its tokens…")
        for word in self._wanted:
            if row := self._rows.get(word):
                row.show_note(said)

    def _forms_of(self, key: Key) -> Forms:
        if isinstance(key, str):
            return self._forms.get(key, ())
        return (WordForm("", key, ("",) * len(key)),)

    def _ruled(self, key: object, rule: object, drag: bool) -> None:
        forms = self._forms_of(key)  # type: ignore[arg-type]
        if key in self._wanted:
            self._wanted[key] = rule  # type: ignore[index,assignment]
        elif forms:
            self._settings = ruled(self._settings, self._forms, forms, rule)  # type: ignore[arg-type]
            self.changed.emit(self._settings, drag)
            self._show()

    def _removed(self, key: object) -> None:
        self._wanted.pop(key, None)  # type: ignore[call-overload]
        if forms := self._forms_of(key):  # type: ignore[arg-type]
            self._settings = ruled(self._settings, self._forms, forms, None)
            self.changed.emit(self._settings, False)
        self._show()
        self.line.setFocus()


class ConstraintRow(QWidget):
    """One word: banned, or with a bias and its slider; the tokens that it is; remove."""

    ruled = Signal(object, object, bool)  # key, rule, whether the slider is held
    removed = Signal(object)

    def __init__(self, key: Key, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.key = key
        self._bias = -5.0  # what it goes to when the ban is lifted
        word = token_label(key) if isinstance(key, str) else " ".join(map(str, key))
        self.label = ElidedLabel(word)
        self.label.setToolTip(plain_tooltip(word))
        self.ban_button = QToolButton()
        self.ban_button.setText(self.tr("ban"))
        self.ban_button.setCheckable(True)
        self.ban_button.setAccessibleName(self.tr("ban {word}").format(word=word))
        self.ban_button.setToolTip(self.tr("Banned: never written. Press to lower or raise the word instead."))
        self.field = NumberField(LOGIT_BIAS, 0.0, step=0.5, parent=self)
        self.field.setFixedWidth(theme.base_px() * 5)
        self.field.setAccessibleName(self.tr("bias of {word}").format(word=word))
        self.slider = SettingSlider(self)
        self.slider.setAccessibleName(self.tr("bias of {word}").format(word=word))
        tip = self.tr("Logit bias: added to the raw logit, before everything else. −100 bans in effect, 100 forces.")
        self.slider.setToolTip(tip)
        self.field.setToolTip(tip)
        name = self.tr("remove {word}").format(word=word)
        remove = icon_button("close", name, self.tr("Take this word out"), size=12)
        self.note = SmallText()
        top = QHBoxLayout()
        top.setSpacing(2)
        top.addWidget(self.label, 1)
        top.addWidget(self.ban_button)
        top.addWidget(self.field)
        top.addWidget(remove)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addLayout(top)
        column.addWidget(self.slider)
        column.addWidget(self.note)
        column.addWidget(self.field.problem_label)
        self.ban_button.clicked.connect(self._banned)
        self.field.value_changed.connect(self._typed)
        self.slider.valueChanged.connect(self._slid)
        self.slider.stepped.connect(self.field.step_by)
        self.slider.reset_requested.connect(self._reset)
        remove.clicked.connect(self._remove)

    def show_rule(self, forms: Forms, rule: float, alike: str = "") -> None:
        """The rule as the settings have it; says nothing. alike: a sentence on words that begin as this one does."""
        banned = rule == BAN
        self.ban_button.setChecked(banned)
        self.ban_button.setText(self.tr("banned") if banned else self.tr("ban"))
        self.field.setVisible(not banned)
        self.slider.setVisible(not banned)
        if not banned:
            self._bias = rule
            if self.field.value() != rule:
                self.field.set_value(rule)
            if not self.slider.isSliderDown():
                self.slider.blockSignals(True)
                self.slider.setValue(round(place(rule) * POSITIONS))
                self.slider.blockSignals(False)
        if forms:
            note = note_of(forms, banned)
            self.show_note(f"{note.rstrip('.')}. {alike}" if alike else note)
            self.note.setToolTip(plain_tooltip("\n".join(map(tokens_text, forms))))
            if not isinstance(self.key, str):
                self.label.setText("".join(map(token_label, forms[0].labels)) or " ".join(map(str, self.key)))

    def show_note(self, text: str) -> None:
        if text != self.note.text():
            self.note.setText(text)

    def _banned(self) -> None:
        self.ruled.emit(self.key, BAN if self.ban_button.isChecked() else self._bias, False)

    def _typed(self, value: object) -> None:
        self.ruled.emit(self.key, float(value), False)  # type: ignore[arg-type]

    def _slid(self, position: int) -> None:
        bias = pick(position / POSITIONS)
        if bias != self.field.value():
            self.field.set_value(bias)
            self.ruled.emit(self.key, bias, self.slider.isSliderDown())

    def _reset(self) -> None:
        self.field.set_value(0.0)
        self.ruled.emit(self.key, 0.0, False)

    def _remove(self) -> None:
        self.removed.emit(self.key)


def tokens_text(form: WordForm) -> str:
    """Each token with its id."""
    pairs = zip(form.ids, form.labels, strict=True)
    return " ".join(f"{token_label(label)} {token_id}" if label else str(token_id) for token_id, label in pairs)


def note_of(forms: Forms, banned: bool) -> str:
    """The tokens of a word, and what of them is touched."""
    translate = QCoreApplication.translate
    several = any(len(form.ids) > 1 for form in forms)
    parts = [
        tokens_text(form) if len(form.ids) <= FEW else translate("Constraints", "{count} tokens").format(
            count=count_text(len(form.ids)))
        for form in forms
    ]  # fmt: skip
    text = translate("Constraints", "tokens: {list}").format(list=" | ".join(parts))
    if banned and several:
        text += ". " + translate("Constraints", "Of several tokens the last is cut where the others stand before it.")
    elif banned:
        text += ". " + translate("Constraints", "Longer words that begin with this token go too.")
    elif several:
        text += ". " + translate("Constraints", "Only the first token is changed, for all words that begin with it.")
    return text
