"""A field for one number of any size, typed with a point or a comma.

A spin box is the wrong widget: it drops the separator of other locales, rounds what it is given, turns NaN into its
maximum and ends at 32 bits (THR-23, SAM-2).
"""

from __future__ import annotations

import math
import re
import unicodedata
from decimal import Decimal

from PySide6.QtCore import QEvent, QRect, Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QKeySequence, QPainter, QPaintEvent
from PySide6.QtWidgets import QLineEdit, QStyle, QStyleOptionFrame, QWidget

from engine.settings import Range
from widgets.format import count_text, locale, with_minus
from widgets.small import SmallText

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_WHOLE = re.compile(r"[+-]?\d+")
_TO_POINT = str.maketrans({",": ".", "。": ".", "٫": ".", "、": ".", "−": "-", "–": "-"})


def read_number(text: str, integer: bool = False) -> int | float | None:
    """The number a person wrote, or None where it cannot be read. Point and comma both are the decimal point.

    Nothing is guessed: two separators, "nan" and "inf" are not numbers here. Whole numbers keep all digits, and may be
    grouped as `count_text` groups them.
    """
    text = "".join(unicodedata.normalize("NFKC", text).split())
    if integer:
        return _read_whole(text)
    text = text.translate(_TO_POINT)
    return float(text) if _NUMBER.fullmatch(text) else None


def _read_whole(text: str) -> int | None:
    bare = text.replace(locale().groupSeparator(), "")
    try:
        value = int(bare.translate(_TO_POINT)) if _WHOLE.fullmatch(bare.translate(_TO_POINT)) else None
    except ValueError:  # more digits than Python turns into an integer
        return None
    if bare == text or value is None:
        return value
    return value if with_minus(text) == "".join(count_text(value).split()) else None


def number_shown(value: float) -> str:
    """The shortest text that reads back as this very number, with the system's decimal point."""
    if isinstance(value, int):
        return str(value)
    text = repr(float(value))
    text = text.removesuffix(".0")
    return text.replace(".", ",") if locale().decimalPoint() == "," else text


class QuietLine(QLineEdit):
    """A line whose undo belongs to the settings or lanes around it as a whole, unless something is half typed in it.

    While nobody writes, what finds no room ends in an ellipsis: a part of a number reads as another number.
    """

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ShortcutOverride and not self.isModified():
            assert isinstance(event, QKeyEvent)
            if event.matches(QKeySequence.StandardKey.Undo) or event.matches(QKeySequence.StandardKey.Redo):
                event.ignore()
                return False
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        shown = self.shown_text()
        if self.hasFocus() or shown == self.text():
            super().paintEvent(event)
            return
        option = QStyleOptionFrame()
        self.initStyleOption(option)
        with QPainter(self) as painter:  # an exception must not leave it open: that ends the process
            self.style().drawPrimitive(QStyle.PrimitiveElement.PE_PanelLineEdit, option, painter, self)
            painter.setPen(self.palette().text().color())
            place = self._room().adjusted(2, 0, 0, 0)  # as far from the edge as Qt writes
            painter.drawText(place, int(Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine), shown)

    def shown_text(self) -> str:
        """What is read while nobody writes."""
        room = self._room().width() - 4
        return self.fontMetrics().elidedText(self.text(), Qt.TextElideMode.ElideRight, room)

    def _room(self) -> QRect:
        option = QStyleOptionFrame()
        self.initStyleOption(option)
        return self.style().subElementRect(QStyle.SubElement.SE_LineEditContents, option, self)


class NumberField(QuietLine):
    """A line for one number. Enter or leaving takes it, Esc brings the last one back, Up and Down step it.

    What cannot be used is refused where it stands: red outline, and a sentence in `problem_label`, which whoever lays
    this field out puts below it. `value()` stays what it was.
    """

    value_changed = Signal(object)  # int or float: a typed signal would cut large ones (THR-22)

    def __init__(
        self,
        allowed: Range | None,
        value: float,
        *,
        integer: bool = False,
        step: float = 1,
        off_word: bool = False,
        parent: QWidget | None = None,
    ) -> None:
        """allowed: None for any whole number. off_word: the value that does nothing is shown as "off"."""
        super().__init__(parent)
        self.allowed, self.integer = allowed, integer or (allowed.integer if allowed else True)
        self.step, self._value = step, value
        self._off = allowed.off if allowed and off_word else None
        self.problem = ""
        self.problem_label = SmallText("", "warning")
        self.problem_label.hide()
        self.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.setProperty("quiet", True)
        self.textEdited.connect(self._edited)
        self.editingFinished.connect(self.commit)
        self._show()

    def value(self) -> int | float:
        return self._value

    def set_value(self, value: float) -> None:
        """Shows a number from elsewhere; says nothing."""
        self._value = value
        self._refuse("")
        self._show()

    def commit(self) -> bool:
        """Takes what is written. False where it is refused."""
        if not self.isModified():
            return not self.problem
        text = self.text()
        is_off = self._off is not None and text.strip().lower() in ("", "off", self.tr("off").lower())
        value = self._off if is_off else read_number(text, self.integer)
        if value is not None and self.integer:
            value = int(value)
        if value is None:
            # A number with a separator in a field for whole ones is readable, and still not what is asked for.
            self._refuse(self.tr("“{text}” is not a number here.").format(text=text[:24]) + " " + self.range_text())
            return False
        if not self._fits(value):
            self._refuse(self.range_text())
            return False
        self._refuse("")
        changed = value != self._value
        self._value = value
        self._show()
        if changed:
            self.value_changed.emit(value)
        return True

    def range_text(self) -> str:
        """Which numbers are taken, as a sentence."""
        kind = self.tr("whole number") if self.integer else self.tr("number")
        if self.allowed is None:
            return self.tr("Give any {kind}.").format(kind=kind)
        if self.allowed.low_open:
            text = self.tr("Give a {kind} more than {low} and up to {high}.")
        else:
            text = self.tr("Give a {kind} from {low} to {high}.")
        whole = [int(edge) if float(edge).is_integer() else edge for edge in (self.allowed.low, self.allowed.high)]
        return text.format(kind=kind, low=number_shown(whole[0]), high=number_shown(whole[1]))

    def _fits(self, value: float) -> bool:
        if self.allowed is None:
            return True
        if not self.allowed.low <= value <= self.allowed.high:  # before isfinite, which overflows on huge integers
            return False
        return math.isfinite(value) and not (self.allowed.low_open and value == self.allowed.low)

    def stepped(self, steps: int) -> int | float:
        """The value that many steps further, within the range; decimal, so that 0.1 + 0.2 is 0.3."""
        exact = Decimal(self._value) if self.integer else Decimal(repr(float(self._value)))
        value: int | float = self._value
        if self.integer:
            value = int(self._value) + int(self.step) * steps
        else:
            value = float(exact + Decimal(repr(float(self.step))) * steps)
        if self.allowed is not None:
            low = self.allowed.low + (self.step if self.allowed.low_open else 0)
            if value < low:
                value = min(low, self._value)
            elif value > self.allowed.high:
                value = self.allowed.high
        return int(value) if self.integer else float(value)

    def step_by(self, steps: int) -> None:
        value = self.stepped(steps)
        changed = value != self._value
        self.set_value(value)
        self.selectAll()
        if changed:
            self.value_changed.emit(value)

    # -- keys and focus

    def keyPressEvent(self, event: QKeyEvent) -> None:
        steps = {
            Qt.Key.Key_Up: 1,
            Qt.Key.Key_Down: -1,
            Qt.Key.Key_PageUp: 10,
            Qt.Key.Key_PageDown: -10,
        }.get(Qt.Key(event.key()))
        if steps is not None:
            if self.commit():
                self.step_by(steps)
        elif event.key() == Qt.Key.Key_Escape and (self.isModified() or self.problem):
            self.set_value(self._value)
            self.selectAll()
        else:
            super().keyPressEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        if not self.problem and not self.isModified():
            self._show()
            self.selectAll()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        if not self.problem and not self.isModified():
            self._show()

    def _show(self) -> None:
        self.setText(number_shown(self._value) if self.hasFocus() else self._read_text())
        self.setCursorPosition(0)
        self.setModified(False)

    def _read_text(self) -> str:
        """What stands there while nobody writes: counts are grouped as everywhere, seeds are not counts."""
        if self._off is not None and self._value == self._off:
            return self.tr("off")
        if self.allowed is None:
            return number_shown(self._value)
        return count_text(int(self._value)) if self.integer else with_minus(number_shown(self._value))

    def _edited(self) -> None:
        if self.problem:
            self._refuse("")

    def _refuse(self, problem: str) -> None:
        if problem == self.problem:
            return
        self.problem = problem
        self.problem_label.setText(problem)
        self.problem_label.setVisible(bool(problem) and self.problem_label.parent() is not None)
        self.setAccessibleDescription(problem)
        self.setProperty("invalid", bool(problem))
        self.style().unpolish(self)
        self.style().polish(self)
