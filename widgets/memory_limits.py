"""How much memory a load may fill on each device: one row per device."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from engine.events import DeviceLimit
from engine.settings import Range
from widgets import theme
from widgets.fields import NumberField
from widgets.format import bytes_text
from widgets.model_chip import device_words
from widgets.panel import ElidedLabel


class MemoryLimits(QWidget):
    """Fields in GB, "off" for all that is there. The CPU's row is always there, GPUs' once they are known."""

    changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.fields: dict[str, NumberField] = {}
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(2)
        self._add("cpu", 0)

    def _add(self, device: str, at: int) -> None:
        field = NumberField(Range(0.0, 1e6, 0.0), 0.0, step=0.5, off_word=True)
        field.setAccessibleName(self.tr("Memory limit in GB: {device}").format(device=device_words(device)))
        field.setFixedWidth(theme.base_px() * 6)
        label = ElidedLabel(self.tr("Limit, {device} (GB)").format(device=device_words(device)))
        tip = self.tr(
            "max_memory: the most that weights may take on this device, in GB; what is over goes to the next one, in "
            "the end to disk. Off: all."
        )
        label.setToolTip(tip)
        field.setToolTip(tip)
        row = QWidget()
        inner = QHBoxLayout(row)
        inner.setContentsMargins(0, 0, 0, 0)
        inner.addWidget(label, 1)
        inner.addWidget(field)
        holder = QWidget()
        column = QVBoxLayout(holder)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(row)
        column.addWidget(field.problem_label)
        self._column.insertWidget(at, holder)
        self.fields[device] = field
        field.value_changed.connect(self.changed)

    def set_devices(self, limits: Sequence[DeviceLimit]) -> None:
        """The devices of this machine; each has a row from then on."""
        for at, limit in enumerate(limits):
            if limit.name not in self.fields:
                self._add(limit.name, at)
            field = self.fields[limit.name]
            free = self.tr("{size} free now").format(size=bytes_text(limit.free_bytes))
            field.setToolTip(f"{field.toolTip().partition(chr(10))[0]}\n{free}")

    def commit(self) -> bool:
        """Takes what is written. False where something is refused; the field has the focus then."""
        for field in self.fields.values():
            if not field.commit():
                field.setFocus()  # a limit that was refused must not be loaded without
                return False
        return True

    def pairs(self) -> tuple[tuple[str, int], ...]:
        """(device, bytes) of each limit that is set."""
        return tuple((name, round(float(f.value()) * 1e9)) for name, f in self.fields.items() if f.value() > 0)
