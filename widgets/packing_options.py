"""How int8, nf4 and fp4 are packed: three settings under a fold, since their usual values are right for most."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QCheckBox, QHBoxLayout, QToolButton, QVBoxLayout, QWidget

from engine.settings import FLOATS, INT8_THRESHOLD
from widgets import theme
from widgets.choice import Choice
from widgets.fields import NumberField
from widgets.panel import ElidedLabel
from widgets.small import SmallLabel

USUAL = 6.0


class PackingOptions(QWidget):
    """`fields` are those of a LoadPlan. The fold's own line says what differs from the usual."""

    changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.fold = QToolButton()
        self.fold.setCheckable(True)
        self.fold.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.fold.setIconSize(QSize(12, 12))
        self.fold.setToolTip(self.tr("How int8, nf4 and fp4 are packed; the usual values are right for most models."))
        self.threshold = NumberField(INT8_THRESHOLD, USUAL, step=0.5, off_word=True)
        self.threshold.setAccessibleName(self.tr("Outlier threshold of int8"))
        self.threshold.setToolTip(
            self.tr(
                "llm_int8_threshold: inputs as large as this are multiplied in 16 bits, since a few of them carry much "
                "of the meaning. Lower is more exact and slower. Off: none are kept apart."
            )
        )
        self.threshold.setFixedWidth(theme.base_px() * 6)
        self.double = QCheckBox(self.tr("nf4, fp4: double quantisation"))
        self.double.setChecked(True)
        self.double.setToolTip(
            self.tr(
                "nf4 and fp4: the constants of each block of 64 numbers are packed as well: 0.4 bits less for each "
                "number."
            )
        )
        self.compute = Choice(self.tr("Compute type"))
        self.compute.setToolTip(self.tr("nf4 and fp4: the type to which packed numbers are unpacked for each product."))
        self.compute.addItem(self.tr("the model's own"), None)
        for name in FLOATS:
            self.compute.addItem(name, name)
        self.content = QWidget()
        inside = QVBoxLayout(self.content)
        inside.setContentsMargins(0, 0, 0, 0)
        inside.setSpacing(6)
        name = ElidedLabel(self.tr("int8: outliers from"))
        name.setToolTip(self.threshold.toolTip())
        row = QHBoxLayout()
        row.addWidget(name, 1)
        row.addWidget(self.threshold)
        inside.addLayout(row)
        inside.addWidget(self.threshold.problem_label)
        name = SmallLabel(self.tr("nf4, fp4: compute in"))
        name.setToolTip(self.compute.toolTip())
        inside.addWidget(name)
        inside.addWidget(self.compute)
        inside.addWidget(self.double)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addWidget(self.fold)
        column.addWidget(self.content)
        self.fold.toggled.connect(self._unfold)
        self.threshold.value_changed.connect(self._changed)
        self.double.toggled.connect(self._changed)
        self.compute.activated.connect(self._changed)
        self._unfold(False)
        self._say()

    def fields(self) -> dict[str, Any]:
        """The packing's fields of a LoadPlan."""
        return {
            "int8_threshold": float(self.threshold.value()),
            "double_quantisation": self.double.isChecked(),
            "compute_dtype": self.compute.currentData(),
        }

    def commit(self) -> bool:
        """Takes what is half typed. False, with the focus there, where it is refused."""
        if self.threshold.commit():
            return True
        self.fold.setChecked(True)
        self.threshold.setFocus()
        return False

    def restore(self, threshold: float, double: bool, compute: str) -> None:
        """What was chosen last time; what cannot be is left at the usual."""
        if INT8_THRESHOLD.low <= threshold <= INT8_THRESHOLD.high:
            self.threshold.set_value(threshold)
        self.double.setChecked(double)
        self.compute.choose(compute or None)
        self._say()

    def _unfold(self, on: bool) -> None:
        theme.set_icon(self.fold, "chevron-down" if on else "chevron-right")
        self.content.setVisible(on)

    def _changed(self) -> None:
        self._say()
        self.changed.emit()

    def _say(self) -> None:
        other = self.fields() != {"int8_threshold": USUAL, "double_quantisation": True, "compute_dtype": None}
        self.fold.setText(self.tr("advanced: packing, changed") if other else self.tr("advanced: packing"))
