"""What a sweep varies: one or two settings with their values, seeds, length, how many run together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from engine.errors import SettingsRefused
from engine.events import MOST_RUNS, USUAL_BATCH, SweepAxis, values_named
from engine.settings import MAX_LANES, RANGES, Range
from widgets import theme
from widgets.banner import translated
from widgets.choice import Choice
from widgets.fields import NumberField
from widgets.format import bytes_text, count_text
from widgets.lab.experiment_wishes import RunSweep
from widgets.lab.figure_words import setting_name
from widgets.panel import PlainLabel
from widgets.small import SmallLabel, SmallText

# Values to begin with, for a setting that nobody has written any for.
FIRST_VALUES = {
    "temperature": "0..1.4 step 0.2",
    "top_p": "0.5, 0.8, 0.9, 0.95, 1",
    "top_k": "1, 5, 20, 40, 100, 0",
    "min_p": "0, 0.02, 0.05, 0.1, 0.2",
    "typical_p": "0.2, 0.5, 0.8, 0.95, 1",
    "repetition_penalty": "1..1.4 step 0.1",
    "presence_penalty": "0..1.5 step 0.5",
    "frequency_penalty": "0..1.5 step 0.5",
    "no_repeat_ngram_size": "0, 2, 3, 4",
}
MOST_SEEDS, MOST_TOKENS = 100, 100_000
BYTES_PER_TOKEN = 6_500  # of a replay, as measured with the default model: for saying how much a sweep will take


@dataclass(frozen=True, slots=True)
class FormState:
    """What is remembered. names: of the two settings, the second may be ""; values: by setting."""

    names: tuple[str, str] = ("temperature", "top_p")
    values: tuple[tuple[str, str], ...] = ()
    seeds: int = 3
    first_seed: int = 0
    tokens: int = 64
    batch: int = USUAL_BATCH

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> FormState:
        """From what JSON kept of it. What is missing or makes no sense takes its default."""
        try:
            names = tuple(str(name) for name in values["names"])
            numbers = [values[name] for name in ("seeds", "first_seed", "tokens", "batch")]
            known = (*FIRST_VALUES, "")
            if len(names) != 2 or names[0] not in FIRST_VALUES or names[1] not in known:
                return cls()
            if any(type(number) is not int for number in numbers) or not 1 <= numbers[0] <= MOST_SEEDS:
                return cls()
            if not (1 <= numbers[2] <= MOST_TOKENS and 1 <= numbers[3] <= MAX_LANES):
                return cls()
            return cls(names, tuple((str(name), str(text)) for name, text in values["values"]), *numbers)
        except (KeyError, TypeError, ValueError):
            return cls()


class SweepForm(QWidget):
    """`changed` whenever something else is asked; `wish` is None, and `problem` says why, where it cannot be run."""

    changed = Signal()
    entered = Signal()  # Return in a field of values

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._values = dict(FIRST_VALUES)
        self.first, self.second = self._choice(self.tr("Setting to vary")), self._choice(self.tr("Second setting"))
        self.second.insertItem(0, self.tr("nothing else"), "")
        self.first_values, self.second_values = self._line(), self._line()
        self.seeds = self._number(Range(1, MOST_SEEDS, 1, integer=True), 3, self.tr("Seeds in each cell"))
        self.first_seed = self._number(None, 0, self.tr("First seed"))
        self.tokens = self._number(Range(1, MOST_TOKENS, 1, integer=True), 64, self.tr("New tokens in each run"))
        self.batch = self._number(Range(1, MAX_LANES, 1, integer=True), USUAL_BATCH, self.tr("Lanes that run together"))
        self.seeds.setToolTip(self.tr("Each cell is run with so many seeds, the same ones in all cells."))
        self.batch.setToolTip(
            self.tr("So many lanes are computed as one batch. More are quicker and take more memory for the KV cache.")
        )
        self.problem_label = SmallText("", "warning")
        self.sum_label = SmallLabel()  # whoever shows the form places it
        grid = QGridLayout()
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(8)
        grid.setVerticalSpacing(6)
        grid.setColumnStretch(2, 1)
        for row, (words, choice, line) in enumerate(
            (
                (self.tr("vary"), self.first, self.first_values),
                (self.tr("against"), self.second, self.second_values),
            )
        ):
            grid.addWidget(PlainLabel(words, "muted"), row, 0)
            grid.addWidget(choice, row, 1)
            grid.addWidget(line, row, 2)
        numbers = QHBoxLayout()
        numbers.setSpacing(6)
        for words, field in (
            (self.tr("seeds"), self.seeds),
            (self.tr("from"), self.first_seed),
            (self.tr("tokens"), self.tokens),
            (self.tr("together"), self.batch),
        ):
            label = PlainLabel(words, "muted")
            label.setBuddy(field)
            label.setToolTip(field.toolTip())
            numbers.addWidget(label)
            numbers.addWidget(field)
            numbers.addSpacing(6)
        numbers.addStretch(1)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(6)
        column.addLayout(grid)
        column.addLayout(numbers)
        for field in (self.seeds, self.first_seed, self.tokens, self.batch):
            column.addWidget(field.problem_label)
        column.addWidget(self.problem_label)
        self.first.activated.connect(self._chosen)
        self.second.activated.connect(self._chosen)
        self.restore(FormState())

    def _choice(self, name: str) -> Choice:
        choice = Choice(name)
        for setting in RANGES:
            choice.addItem(setting_name(setting), setting)
        choice.setFixedWidth(theme.base_px() * 12)
        return choice

    def _line(self) -> QLineEdit:
        line = QLineEdit()
        line.setToolTip(
            self.tr("Values with commas between them (0.5, 0.9, 1), or a range with its step (0..1.5 step 0.1).")
        )
        line.setAccessibleName(self.tr("Values"))
        line.textEdited.connect(self._edited)
        line.returnPressed.connect(self.entered)
        return line

    def _number(self, allowed: Range | None, value: int, name: str) -> NumberField:
        field = NumberField(allowed, value, integer=True)
        field.setAccessibleName(name)
        field.setToolTip(name)
        field.setFixedWidth(theme.base_px() * 4)
        field.setAlignment(Qt.AlignmentFlag.AlignLeft)  # beside its own name
        field.value_changed.connect(self._refresh)
        return field

    # ---------------------------------------------------------------- what is asked

    def wish(self) -> RunSweep | None:
        try:
            return self._wish()
        except SettingsRefused:
            return None

    def _wish(self) -> RunSweep:
        names = [self.first.currentData(), self.second.currentData()]
        if names[0] == names[1]:
            raise SettingsRefused("Both settings are the same.", "Choose two different ones, or one alone.")
        lines = (self.first_values, self.second_values)
        axes = tuple(
            values_named(name, line.text()) for name, line in zip(names, lines, strict=True) if name
        )  # fmt: skip
        first, seeds = int(self.first_seed.value()), int(self.seeds.value())
        return RunSweep(
            axes, tuple(range(first, first + seeds)), int(self.tokens.value()), int(self.batch.value())
        )  # fmt: skip

    def state(self) -> FormState:
        return FormState(
            (self.first.currentData(), self.second.currentData()),
            tuple((name, text) for name, text in self._values.items() if text != FIRST_VALUES[name]),
            int(self.seeds.value()), int(self.first_seed.value()), int(self.tokens.value()), int(self.batch.value()),
        )  # fmt: skip

    def restore(self, state: FormState) -> None:
        self._values = FIRST_VALUES | {name: text for name, text in state.values if name in FIRST_VALUES}
        self.first.choose(state.names[0])
        self.second.choose(state.names[1])
        numbers = (self.seeds, self.first_seed, self.tokens, self.batch)
        for field, value in zip(numbers, (state.seeds, state.first_seed, state.tokens, state.batch), strict=True):
            field.set_value(value)
        self._chosen()

    def show_axes(self, axes: tuple[SweepAxis, ...], seeds: tuple[int, ...], tokens: int, batch: int) -> None:
        """What a sweep that was opened asks, so that it can be asked again with a change."""
        values = {axis.name: ", ".join(f"{value:g}" for value in axis.values) for axis in axes}
        names = [*(axis.name for axis in axes), ""][:2]
        self.restore(
            FormState((names[0], names[1]), tuple((self._values | values).items()), len(seeds), seeds[0], tokens, batch)
        )

    # ---------------------------------------------------------------- hands

    def _chosen(self) -> None:
        for choice, line in ((self.first, self.first_values), (self.second, self.second_values)):
            name = choice.currentData()
            line.setEnabled(bool(name))
            line.setText(self._values.get(name, ""))
            line.setCursorPosition(0)
        self._refresh()

    def _edited(self) -> None:
        for choice, line in ((self.first, self.first_values), (self.second, self.second_values)):
            if choice.currentData():
                self._values[choice.currentData()] = line.text()
        self._refresh()

    def _refresh(self) -> None:
        problem, wish = "", None
        try:
            wish = self._wish()
        except SettingsRefused as error:
            fields = tuple((name, str(value)) for name, value in error.fields.items())
            what, fix = translated(error.what_template, fields), translated(error.fix_template, fields)
            problem = f"{what or error.what} {fix or error.fix}"
        runs = 0
        if wish is not None:
            runs = len(wish.seeds)
            for axis in wish.axes:
                runs *= len(axis.values)
            if runs > MOST_RUNS:
                problem = self.tr("These are {count} runs: give fewer values or seeds, up to {most}.").format(
                    count=count_text(runs), most=count_text(MOST_RUNS)
                )
        self.problem = problem
        self.runs = runs if not problem else 0
        self.problem_label.setText(problem)
        self.problem_label.setVisible(bool(problem))
        self.sum_label.setText("")
        if wish is not None and not problem:
            size = bytes_text(runs * wish.max_new_tokens * BYTES_PER_TOKEN)
            cells = " × ".join(count_text(len(axis.values)) for axis in wish.axes)
            self.sum_label.setText(
                self.tr("cells: {cells}, seeds: {seeds}, runs: {runs}, up to about {size} on disk (estimated)").format(
                    cells=cells, seeds=count_text(len(wish.seeds)), runs=count_text(runs), size=size
                )
            )
        self.sum_label.setToolTip(self.sum_label.text())
        self.changed.emit()

    problem = ""
    runs = 0
