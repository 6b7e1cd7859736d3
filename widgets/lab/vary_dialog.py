"""Lanes filled at once: one setting in several values, all else as in the reference lane."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from PySide6.QtCore import QCoreApplication, Signal
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QGridLayout, QLineEdit, QVBoxLayout, QWidget

from engine.settings import RANGES, SamplingSettings, refusal
from widgets import theme
from widgets.choice import Choice
from widgets.fields import number_shown, read_number
from widgets.format import locale
from widgets.lab.lane_set import LEAST, MOST
from widgets.lab.lane_words import setting_text
from widgets.panel import PlainLabel
from widgets.sampling_rows import knobs
from widgets.small import SmallText

# What is tried first, from the model's plainest to its wildest.
FIRST_VALUES: dict[str, Sequence[float]] = {
    "temperature": (0, 0.7, 1.0, 1.4),
    "top_p": (0.5, 0.8, 0.95, 1),
    "top_k": (1, 10, 40, 0),
    "min_p": (0, 0.02, 0.1, 0.3),
    "repetition_penalty": (1, 1.1, 1.3),
    "typical_p": (0.2, 0.5, 0.9, 1),
    "presence_penalty": (0, 0.5, 1, 2),
    "frequency_penalty": (0, 0.5, 1, 2),
    "no_repeat_ngram_size": (0, 2, 3, 4),
    "seed": (1, 2, 3, 4),
}


@dataclass(frozen=True, slots=True)
class Variation:
    """One lane for each of these settings."""

    settings: tuple[SamplingSettings, ...]
    names: tuple[str, ...]


def values_read(text: str, integer: bool) -> list[int | float | str]:
    """The numbers of a line such as "0, 0.7; 1" or "1..4"; what cannot be read stays text.

    A comma between digits is the decimal point only where the system writes it so and no point is there.
    """
    if found := re.fullmatch(r"\s*(-?\d{1,18})\s*(?:\.\.|…)\s*(-?\d{1,18})\s*", text):
        low, high = int(found[1]), int(found[2])
        return list(range(low, min(high, low + MOST) + 1))
    decimal_comma = not integer and "." not in text and locale().decimalPoint() == ","
    parts = re.split(r"[;\s]+|,(?=\s|$)" if decimal_comma else r"[,;\s]+", text)
    found_values: list[int | float | str] = []
    for part in parts:
        if part := part.strip(","):
            value = read_number(part, integer)
            found_values.append(part if value is None else value)
    return found_values


class VaryDialog(QDialog):
    """Asks for a setting and its values. `chosen` carries a Variation."""

    chosen = Signal(object)

    def __init__(self, base: SamplingSettings, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.base = base
        self.setWindowTitle(self.tr("Vary one setting"))
        self.setting = Choice(self.tr("Setting"))
        first, more = knobs()
        for knob in (*first, *more):
            self.setting.addItem(knob.label, knob.name)
        self.setting.addItem(self.tr("Seed"), "seed")
        self.values_edit = QLineEdit()
        self.values_edit.setAccessibleName(self.tr("Values"))
        self.values_edit.setToolTip(self.tr("Numbers with commas between them, or 1..4 for whole numbers"))
        self.said = SmallText()
        self.said.setMinimumHeight(theme.base_px() * 3)
        self.buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Ok | QDialogButtonBox.StandardButton.Cancel)
        self.buttons.button(QDialogButtonBox.StandardButton.Ok).setText(self.tr("Fill the lanes"))
        self.buttons.button(QDialogButtonBox.StandardButton.Ok).setProperty("primary", True)
        self.buttons.accepted.connect(self._accept)
        self.buttons.rejected.connect(self.reject)
        grid = QGridLayout()
        grid.setHorizontalSpacing(10)
        grid.setVerticalSpacing(8)
        grid.addWidget(PlainLabel(self.tr("Setting")), 0, 0)
        grid.addWidget(self.setting, 0, 1)
        grid.addWidget(PlainLabel(self.tr("Values")), 1, 0)
        grid.addWidget(self.values_edit, 1, 1)
        grid.setColumnStretch(1, 1)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 14, 16, 14)
        column.setSpacing(10)
        column.addLayout(grid)
        column.addWidget(self.said)
        column.addWidget(self.buttons)
        self.setMinimumWidth(theme.base_px() * 30)
        self.setting.currentIndexChanged.connect(self._first_values)
        self.values_edit.textChanged.connect(self._show)
        self._first_values()
        self.values_edit.setFocus()

    def choose(self, name: str) -> None:
        """Stands on a setting with its first values."""
        self.setting.choose(name)

    def variation(self) -> Variation | None:
        """What would be filled in; None where the values are refused."""
        return None if self._problem() else self._made()

    def _first_values(self) -> None:
        values = FIRST_VALUES[self.setting.currentData()]
        self.values_edit.setText("; ".join(number_shown(value) for value in values))

    def _values(self) -> list[int | float | str]:
        name = self.setting.currentData()
        return values_read(self.values_edit.text(), name == "seed" or RANGES[name].integer)

    def _problem(self) -> str:
        name, values = self.setting.currentData(), self._values()
        for value in values:
            if isinstance(value, str):
                return self.tr("“{text}” is not a number here.").format(text=value[:24])
            if name != "seed" and (error := refusal(name, value)):
                return f"{error.what} {error.fix}"
        if len(values) < LEAST:
            return self.tr("Give at least two values: each makes a lane.")
        if len(values) > MOST:
            return self.tr("Give at most {most} values: so many lanes stand side by side.").format(most=MOST)
        return ""

    def _made(self) -> Variation:
        name = self.setting.currentData()
        settings = tuple(replace(self.base, **{name: value}) for value in self._values())  # type: ignore[arg-type]
        return Variation(settings, tuple(setting_text(name, each) for each in settings))

    def _show(self) -> None:
        problem = self._problem()
        ok = self.buttons.button(QDialogButtonBox.StandardButton.Ok)
        ok.setEnabled(not problem)
        self.said.setProperty("role", "warning" if problem else "muted")
        self.said.style().polish(self.said)
        if problem:
            self.said.setText(problem)
            return
        names = self._made().names
        text = QCoreApplication.translate("VaryDialog", "{count} lanes: {names}. All else is as in the reference lane.")
        self.said.setText(text.format(count=len(names), names=", ".join(names)))

    def _accept(self) -> None:
        if (made := self.variation()) is not None:
            self.chosen.emit(made)
            self.accept()
