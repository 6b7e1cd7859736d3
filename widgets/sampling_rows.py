"""One sampling setting as a row: plain name, its number, a slider, and how many words it keeps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QCoreApplication, Qt, Signal
from PySide6.QtGui import QFontMetrics, QKeyEvent, QMouseEvent, QWheelEvent
from PySide6.QtWidgets import QHBoxLayout, QSlider, QToolButton, QVBoxLayout, QWidget

from engine.events import FILTERS, TokenEvent
from engine.settings import RANGES
from widgets import theme
from widgets.fields import NumberField, number_shown
from widgets.format import count_text
from widgets.panel import PlainLabel
from widgets.small import SmallText

POSITIONS = 1000
FRAME = 14  # pixels of a field beside its number


@dataclass(frozen=True)
class Knob:
    """How a setting looks. `place`: value to 0…1 on the slider; `pick`: back, rounded to what a hand can mean."""

    name: str
    label: str
    tip: str
    step: float
    place: Callable[[float], float]
    pick: Callable[[float], float]
    stage: str = ""  # the filter of the waterfall whose kept words are told
    off_word: bool = True


def _linear(low: float, high: float, decimals: int) -> tuple[Callable[[float], float], Callable[[float], float]]:
    return (
        lambda value: (value - low) / (high - low),
        lambda place: round(low + place * (high - low), decimals),
    )


def _share(decimals: int = 2) -> tuple[Callable[[float], float], Callable[[float], float]]:
    least = 10.0**-decimals  # 0 itself is refused
    return lambda value: value, lambda place: max(least, round(place, decimals))


TOP_K_MOST = 1000


def _place_top_k(value: float) -> float:
    return 1.0 if value == 0 else min(0.99, math.log(value) / math.log(TOP_K_MOST) * 0.98)


def _pick_top_k(place: float) -> float:
    # All the way right keeps every word, as with top-p; hence off is there and not at the left.
    return 0 if place > 0.99 else max(1, round(TOP_K_MOST ** min(1.0, place / 0.98)))


def knobs() -> tuple[tuple[Knob, ...], tuple[Knob, ...]]:
    """The settings shown first, and those under "more", in the window's language."""

    def tr(text: str) -> str:
        return QCoreApplication.translate("SamplingPanel", text)

    temperature_tip = tr(
        "Temperature: logits divided by T before the softmax. Below 1 the likely words gain, above 1 the unlikely. "
        "0 is greedy: always the most probable word, no draw. The slider ends at 2; up to 100 can be typed."
    )
    top_p_tip = tr(
        "Top-p (nucleus): keeps the fewest most probable words whose probabilities sum to at least p. 1 keeps all."
    )
    top_k_tip = tr("Top-k: keeps the k most probable words. The slider is logarithmic; all the way right is off.")
    min_p_tip = tr(
        "Min-p: keeps words with at least this share of the most probable word's probability. 0 keeps all. "
        "The slider is fine near 0."
    )
    repetition_tip = tr(
        "Repetition penalty: the logit of every word that already stands in prompt or text is divided by this where "
        "positive, multiplied where negative. 1 does nothing."
    )
    typical_tip = tr(
        "Typical-p: keeps the words whose surprise is nearest to the entropy, until their probabilities sum to p."
    )
    presence_tip = tr("Presence penalty: taken off the logit of every word that was written at least once.")
    frequency_tip = tr("Frequency penalty: taken off a word's logit once for each time that it was written.")
    ngram_tip = tr("No-repeat n-gram: a word that would complete a run of n words in the text already is cut. 0: off.")
    first = (
        Knob("temperature", tr("Temperature"), temperature_tip, 0.05, *_linear(0, 2, 2), off_word=False),
        Knob("top_p", tr("Top-p"), top_p_tip, 0.01, *_share(), stage="top_p"),
        Knob("top_k", tr("Top-k"), top_k_tip, 1, _place_top_k, _pick_top_k, stage="top_k"),
        Knob("min_p", tr("Min-p"), min_p_tip, 0.01, _cube_root, lambda x: _significant(x**3), stage="min_p"),
        Knob("repetition_penalty", tr("Repetition penalty"), repetition_tip, 0.01, *_linear(1, 2, 2)),
    )
    more = (
        Knob("typical_p", tr("Typical-p"), typical_tip, 0.01, *_share(), stage="typical_p"),
        Knob("presence_penalty", tr("Presence penalty"), presence_tip, 0.05, *_linear(-2, 2, 2)),
        Knob("frequency_penalty", tr("Frequency penalty"), frequency_tip, 0.05, *_linear(-2, 2, 2)),
        Knob("no_repeat_ngram_size", tr("No-repeat n-gram"), ngram_tip, 1, *_linear(0, 10, 0),
             stage="no_repeat_ngram"),
    )  # fmt: skip
    return first, more


def _cube_root(value: float) -> float:
    return max(0.0, value) ** (1 / 3)


def _significant(value: float) -> float:
    return float(f"{value:.2g}")


class SettingSlider(QSlider):
    """A slider that answers the hand only: the wheel scrolls the page unless it was clicked first."""

    stepped = Signal(object)  # int: arrow keys step the number, not the pixels
    reset_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(Qt.Orientation.Horizontal, parent)
        self.setRange(0, POSITIONS)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        steps = {
            Qt.Key.Key_Right: 1,
            Qt.Key.Key_Up: 1,
            Qt.Key.Key_Left: -1,
            Qt.Key.Key_Down: -1,
            Qt.Key.Key_PageUp: 10,
            Qt.Key.Key_PageDown: -10,
        }.get(Qt.Key(event.key()))
        if event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier:
            event.ignore()  # Alt+Left is the previous token
        elif steps is not None:
            self.stepped.emit(steps)
        elif event.key() in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace):
            self.reset_requested.emit()
        else:
            super().keyPressEvent(event)

    def wheelEvent(self, event: QWheelEvent) -> None:
        if self.hasFocus():
            super().wheelEvent(event)
        else:
            event.ignore()

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self.reset_requested.emit()


class SettingRow(QWidget):
    """One setting. `changed` carries the new number, `drag` True while the mouse holds the slider."""

    changed = Signal(object, bool)

    def __init__(self, knob: Knob, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.knob = knob
        self.default: int | float = RANGES[knob.name].off
        self.label = PlainLabel(knob.label)
        self.field = NumberField(
            RANGES[knob.name], RANGES[knob.name].off, step=knob.step, off_word=knob.off_word, parent=self
        )
        self.field.setMinimumWidth(theme.base_px() * 5)
        self._number = QFontMetrics(theme.font(bold=True))
        self.slider = SettingSlider(self)
        self.reset_button = QToolButton(self)
        theme.set_icon(self.reset_button, "reset")
        self.reset_button.setAutoRaise(True)
        self.kept = SmallText()
        self.kept.setVisible(bool(knob.stage))
        for part in (self.label, self.field, self.slider):
            part.setToolTip(knob.tip)
        self.field.setAccessibleName(knob.label)
        self.slider.setAccessibleName(knob.label)
        self.reset_button.setAccessibleName(self.tr("reset {name}").format(name=knob.label))
        policy = self.reset_button.sizePolicy()
        policy.setRetainSizeWhenHidden(True)
        self.reset_button.setSizePolicy(policy)

        top = QHBoxLayout()
        top.setContentsMargins(0, 0, 0, 0)
        top.setSpacing(2)
        top.addWidget(self.label, 1)
        top.addWidget(self.reset_button)
        top.addWidget(self.field)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addLayout(top)
        column.addWidget(self.slider)
        column.addWidget(self.kept)
        column.addWidget(self.field.problem_label)

        self.field.value_changed.connect(self._typed)
        self.slider.valueChanged.connect(self._slid)
        self.slider.stepped.connect(self.field.step_by)
        self.slider.reset_requested.connect(self.reset)
        self.reset_button.clicked.connect(self.reset)
        self.set_value(self.default)

    def value(self) -> int | float:
        return self.field.value()

    def set_value(self, value: float) -> None:
        """Shows a number bit for bit; the slider only stands near it."""
        self.field.set_value(value)
        self._place()

    def set_default(self, value: float) -> None:
        self.default = value
        self.reset_button.setToolTip(
            self.tr("back to {value} (also: double click on the slider, Delete)").format(value=number_shown(value))
        )
        self._place()

    def reset(self) -> None:
        if self.value() != self.default or self.field.problem:
            self.set_value(self.default)
            self.changed.emit(self.default, False)

    def show_kept(self, token: TokenEvent | None) -> None:
        """How many words this filter left at a token; where the slider has moved since, at which value that was."""
        if self.knob.stage not in FILTERS:
            return
        then = None if token is None else getattr(token.settings, self.knob.name)
        on = self.value() != RANGES[self.knob.name].off or (then is not None and then != RANGES[self.knob.name].off)
        self.kept.setVisible(on)
        if not on:
            return
        if token is None:
            text = self.tr("how many words it keeps: press Run")
            tip = self.tr("Press Run: then this says how many words are left after this setting at the shown token.")
        else:
            figures = {"kept": count_text(token.kept_after(self.knob.stage)), "all": count_text(token.vocab_size)}
            tip = self.tr("Measured at the shown token, after all settings above and this one.")
            if then == self.value():
                text = self.tr("keeps {kept} of {all} words here").format(**figures)
            else:
                text = self.tr("kept {kept} of {all} here, at {value}").format(**figures, value=number_shown(then))
                tip = self.tr("The shown token was chosen before this setting was moved.") + " " + tip
        if text != self.kept.text():
            self.kept.setText(text)
            self.kept.setToolTip(tip)

    def _typed(self, value: object) -> None:
        self._place()
        self.changed.emit(value, False)

    def _slid(self, position: int) -> None:
        value = self.knob.pick(position / POSITIONS)
        value = int(value) if self.field.integer else float(value)
        if value != self.value() or self.field.problem:
            self.field.set_value(value)
            self._tell()
            self.changed.emit(value, self.slider.isSliderDown())

    def _place(self) -> None:
        place = self.knob.place(self.value())
        self.slider.blockSignals(True)
        self.slider.setValue(round(min(1.0, max(0.0, place)) * POSITIONS))
        self.slider.blockSignals(False)
        self._tell()

    def _tell(self) -> None:
        text = self.field.text()
        self.field.setMaximumWidth(max(self.field.minimumWidth(), self._number.horizontalAdvance(text) + FRAME))
        self.slider.setAccessibleDescription(text)
        self.reset_button.setVisible(self.value() != self.default)
