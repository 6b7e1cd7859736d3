"""How a model is to be loaded: its precision, where its parts lie, how much memory they may take."""

from __future__ import annotations

from PySide6.QtCore import Signal, Slot
from PySide6.QtWidgets import QCheckBox, QHBoxLayout, QToolButton, QVBoxLayout, QWidget

from engine.settings import PRECISIONS, LoadPlan
from widgets.choice import Choice
from widgets.memory_limits import MemoryLimits
from widgets.packing_options import PackingOptions
from widgets.small import SmallLabel

BY_TABLE = "table"


class LoadOptions(QWidget):
    """The choices below the model's name. What they come to is `plan`."""

    changed = Signal()
    packing_changed = Signal()
    table_wanted = Signal()  # the table by layer, to be edited

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.pairs: tuple[tuple[str, str], ...] = ()  # the table by layer
        self.precision = Choice(self.tr("Precision"))
        self.precision.addItem(self.tr("as in the files"), None)
        words = {
            "float32": self.tr("float32 · 4 bytes"),
            "bfloat16": self.tr("bfloat16 · 2 bytes"),
            "float16": self.tr("float16 · 2 bytes"),
            "int8": self.tr("int8 · 1 byte"),
            "nf4": self.tr("nf4 · half a byte"),
            "fp4": self.tr("fp4 · half a byte"),
        }
        self.precision.setToolTip(
            self.tr(
                "Bytes for each weight. bfloat16 has float32's range and fewer digits; float16 has more digits and a "
                "narrow range. int8, nf4 and fp4 are packed by bitsandbytes: smaller, and a little less exact."
            )
        )
        for name in PRECISIONS:
            self.precision.addItem(words[name], name)
        self.device = Choice(self.tr("Placement"))
        for text, name in (
            (self.tr("auto · fastest devices first"), "auto"),
            (self.tr("one device: CPU"), "cpu"),
            (self.tr("one device: first GPU"), "cuda:0"),
            (self.tr("balanced over all GPUs"), "balanced"),
            (self.tr("balanced, little on the first GPU"), "balanced_low_0"),
            (self.tr("sequential · fill one after the other"), "sequential"),
            (self.tr("a table by layer…"), BY_TABLE),
        ):
            self.device.addItem(text, name)
        self.device.setToolTip(self.tr("The device map: which part of the model lies on which device."))
        self.edit_table = QToolButton()
        self.edit_table.setText(self.tr("edit"))
        self.edit_table.hide()
        self._placed = "auto"  # the last one that was no table
        self.limits = MemoryLimits()
        self.packing = PackingOptions()
        self.windows = QCheckBox(self.tr("windows keep all tokens, for forks"))
        self.windows.setToolTip(
            self.tr(
                "Layers with a sliding window need only its tokens. Where they keep all, a fork or a second run goes "
                "on from any word without reading the text again, and the KV cache grows as without windows."
            )
        )
        self.windows.hide()  # until a model that has windows is chosen
        body = QVBoxLayout(self)
        body.setContentsMargins(0, 0, 0, 0)
        body.setSpacing(8)
        for label, field in ((self.tr("Precision"), self.precision), (self.tr("Placement"), self.device)):
            name = SmallLabel(label)
            name.setToolTip(field.toolTip())
            name.setContentsMargins(0, 2, 0, 0)
            row = QHBoxLayout()
            row.addWidget(field, 1)
            if field is self.device:
                row.addWidget(self.edit_table)
            column = QVBoxLayout()
            column.setSpacing(2)
            column.addWidget(name)
            column.addLayout(row)
            body.addLayout(column)
        body.addWidget(self.limits)
        body.addWidget(self.packing)
        body.addWidget(self.windows)
        self.precision.activated.connect(self.changed)
        self.device.activated.connect(self._device_chosen)
        self.edit_table.clicked.connect(self.table_wanted)
        self.limits.changed.connect(self.changed)
        self.packing.changed.connect(self.packing_changed)
        self.windows.toggled.connect(self.packing_changed)

    def commit(self) -> bool:
        """Takes over what was typed; False where something of it cannot be used, and its field has the focus."""
        return self.limits.commit() and self.packing.commit()

    def plan(self, model: str) -> LoadPlan:
        """This model, loaded as chosen here."""
        self.limits.commit()
        device = self.device.currentData()
        device_map = (self.pairs or (("", "cpu"),)) if device == BY_TABLE else device
        return LoadPlan(
            model,
            self.precision.currentData(),
            device_map,
            self.limits.pairs(),
            keep_windows=self.windows.isChecked() and not self.windows.isHidden(),
            **self.packing.fields(),
        )

    def one_device(self) -> str:
        """The one device that is chosen, else "auto" for all of them."""
        device = self.device.currentData()
        return "auto" if device == BY_TABLE or device is None else device

    def set_pairs(self, pairs: tuple[tuple[str, str], ...]) -> None:
        """The table by layer, as a person edited it."""
        self.pairs = pairs
        self.changed.emit()

    def no_table(self) -> None:
        """The table was closed without one: the placement chosen before stays."""
        if not self.pairs and self.device.currentData() == BY_TABLE:
            self.device.choose(self._placed)
            self._device_chosen()

    @Slot()
    def _device_chosen(self) -> None:
        by_table = self.device.currentData() == BY_TABLE
        self.edit_table.setVisible(by_table)
        if by_table and not self.pairs:
            self.table_wanted.emit()
        elif not by_table:
            self._placed = self.device.currentData()
        self.changed.emit()
