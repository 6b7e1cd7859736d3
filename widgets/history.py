"""Undo for one frozen value: a change is a new value, so its history is a list."""

from __future__ import annotations

from typing import Generic, TypeVar

Value = TypeVar("Value")
KEPT = 200


class History(Generic[Value]):
    """The values that were set, and which of them holds."""

    def __init__(self, value: Value) -> None:
        self._values = [value]
        self._at = 0

    @property
    def value(self) -> Value:
        return self._values[self._at]

    @property
    def can_undo(self) -> bool:
        return self._at > 0

    @property
    def can_redo(self) -> bool:
        return self._at + 1 < len(self._values)

    def take(self, value: Value, same_step: bool = False) -> None:
        """Sets a value, as a step of its own or, with same_step, as part of the last one."""
        del self._values[self._at + 1 :]
        if same_step and self._at > 0:
            self._values[self._at] = value
        else:
            self._values.append(value)
            del self._values[:-KEPT]
        self._at = len(self._values) - 1

    def amend(self, value: Value) -> None:
        """Puts a value in place of the one that holds: no step, and what was undone can still be done again."""
        self._values[self._at] = value

    def undo(self) -> bool:
        """Back to the value before. False where there is none."""
        return self._go(-1)

    def redo(self) -> bool:
        return self._go(1)

    def _go(self, by: int) -> bool:
        if not 0 <= self._at + by < len(self._values):
            return False
        self._at += by
        return True
