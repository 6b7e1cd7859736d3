"""What a blind test asks: its settings, prompts, how many votes, when the names are told, how texts appear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QGridLayout, QPlainTextEdit, QVBoxLayout, QWidget

from engine.settings import Range, SamplingSettings
from widgets import theme
from widgets.choice import Choice
from widgets.fields import NumberField
from widgets.lab.experiment_wishes import BeginBlind
from widgets.lab.settings_list import LETTERS, Named, SettingsList, as_dicts, from_dicts
from widgets.panel import Panel, PlainLabel, scrolling
from widgets.run_store import RunStore
from widgets.small import SmallText

FIRST = (Named(SamplingSettings(temperature=0.7)), Named(SamplingSettings(temperature=1.0, min_p=0.1)))
AT_ONCE, PACED = "at once", "paced"


class BlindSetup(QWidget):
    """`changed` when something else is asked."""

    changed = Signal()

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.list = SettingsList(store, FIRST, len(LETTERS))
        inside = QWidget()
        inside.setProperty("plain", True)
        column = QVBoxLayout(inside)
        column.setContentsMargins(0, 0, 6, 0)
        column.addWidget(self.list)
        column.addStretch(1)
        area = scrolling(inside)
        settings = Panel(self.tr("Settings that compete"))
        settings.body.addWidget(area, 1)

        self.prompts = QPlainTextEdit()
        self.prompts.setAccessibleName(self.tr("Prompts"))
        self.prompts.setPlaceholderText(self.tr("One prompt on each line; the rounds take them in turn."))
        self.prompts.setTabChangesFocus(True)
        self.tokens = self._number(Range(1, 100_000, 1, integer=True), 96, self.tr("New tokens in each text"))
        self.planned = self._number(Range(1, 1000, 1, integer=True), 20, self.tr("Votes"))
        self.planned.setToolTip(
            self.tr(
                "Decided before the first vote: who looks at the result and goes on until it pleases finds what is "
                "not there."
            )
        )
        self.told = Choice(self.tr("When the names are told"))
        self.told.addItem(self.tr("names at the end"), True)
        self.told.addItem(self.tr("names after each vote"), False)
        self.pace = Choice(self.tr("How texts appear"))
        self.pace.addItem(self.tr("texts at once"), AT_ONCE)
        self.pace.addItem(self.tr("texts at equal pace"), PACED)
        grid = QGridLayout()
        grid.setHorizontalSpacing(8)
        for at, (words, field) in enumerate(((self.tr("votes"), self.planned), (self.tr("tokens"), self.tokens))):
            label = PlainLabel(words, "muted")
            label.setBuddy(field)
            grid.addWidget(label, at, 0)
            grid.addWidget(field, at, 1)
        grid.addWidget(self.told, 0, 2)
        grid.addWidget(self.pace, 1, 2)
        grid.setColumnStretch(2, 1)
        asked = Panel(self.tr("Prompts"))
        asked.set_remark(self.tr("one on each line"))
        asked.body.addWidget(self.prompts, 1)
        asked.body.addLayout(grid)
        self.about = SmallText(  # whoever shows the form places it
            self.tr(
                "Whoever knows which setting wrote a text reads it with other eyes. Here each round shows the texts of "
                "all settings, from one new seed, shuffled and unnamed. Vote with the keys 1, 2, … or 0 for no "
                "preference. In the end the names are told, with an honest verdict: 15 of 20 votes are a preference, "
                "11 of 20 are none that can be seen. Settings that write the same text are no round."
            )
        )
        columns = QGridLayout(self)
        columns.setContentsMargins(0, 0, 0, 0)
        columns.setSpacing(theme.GAP)
        columns.addWidget(settings, 0, 0)
        columns.addWidget(asked, 0, 1)
        columns.setColumnStretch(0, 3)
        columns.setColumnStretch(1, 2)
        columns.setRowStretch(0, 1)
        self._written = False  # by a person, so that the window's prompt no longer comes in
        self.list.changed.connect(self.changed)
        self.prompts.textChanged.connect(self._prompts_edited)

    def _number(self, allowed: Range, value: int, name: str) -> NumberField:
        field = NumberField(allowed, value, integer=True)
        field.setAccessibleName(name)
        field.setToolTip(name)
        field.setFixedWidth(theme.base_px() * 4)
        field.setAlignment(Qt.AlignmentFlag.AlignLeft)  # beside its own name
        return field

    @property
    def problem(self) -> str:
        """Why it cannot begin; "" where it can."""
        settings = self.list.settings()
        if len(set(settings)) != len(settings):
            return self.tr("Two of the settings are the same: change one, they would write the same texts.")
        if not self._lines():
            return self.tr("Write a prompt first.")
        return ""

    def wish(self) -> BeginBlind | None:
        """What is asked; None where a value is refused (it is marked) or there is a problem."""
        fields_fine = [field.commit() for field in (self.tokens, self.planned)]
        if not self.list.commit() or not all(fields_fine) or self.problem:
            return None
        names = tuple(card.name for card in self.list.cards())
        return BeginBlind(
            self.list.settings(), names, self._lines(),
            int(self.tokens.value()), int(self.planned.value()), bool(self.told.currentData()),
        )  # fmt: skip

    def _lines(self) -> tuple[str, ...]:
        return tuple(line.strip() for line in self.prompts.toPlainText().splitlines() if line.strip())

    def set_prompt(self, prompt: str) -> None:
        """The window's prompt, as long as nobody wrote others here."""
        if not self._written and prompt.strip():
            self.prompts.blockSignals(True)
            self.prompts.setPlainText(" ".join(prompt.split()))
            self.prompts.blockSignals(False)
            self.changed.emit()

    def set_sources(self, sources: Sequence[Named]) -> None:
        self.list.sources = tuple(sources)

    @Slot()
    def _prompts_edited(self) -> None:
        self._written = True
        self.changed.emit()

    def state(self) -> dict[str, Any]:
        return {
            "settings": as_dicts(self.list.cards()),
            "prompts": self.prompts.toPlainText() if self._written else "",
            "tokens": int(self.tokens.value()),
            "planned": int(self.planned.value()),
            "at_end": bool(self.told.currentData()),
            "pace": str(self.pace.currentData()),
        }

    def restore(self, values: dict[str, Any]) -> None:
        """What was set when the window was last closed; values that make no sense change nothing."""
        cards = from_dicts(values.get("settings"))
        if 2 <= len(cards) <= len(LETTERS):
            self.list.restore(cards)
        if isinstance(values.get("prompts"), str) and values["prompts"].strip():
            self.prompts.setPlainText(values["prompts"])
        for name, field in (("tokens", self.tokens), ("planned", self.planned)):
            value = values.get(name)
            if type(value) is int and field.allowed is not None and field.allowed.low <= value <= field.allowed.high:
                field.set_value(value)
        for name, choice in (("at_end", self.told), ("pace", self.pace)):
            if name in values:
                choice.choose(values[name])
