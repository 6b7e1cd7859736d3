"""Which part of the model lies on which device: a small table, and how much memory may be used."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QDialog,
    QDialogButtonBox,
    QHBoxLayout,
    QHeaderView,
    QPushButton,
    QTableWidget,
    QTableWidgetItem,
    QVBoxLayout,
    QWidget,
)

from widgets.panel import PlainLabel
from widgets.small import SmallText


class PlacementDialog(QDialog):
    """Edits (module name, device) pairs. A name stands for everything below it: model.layers.3, lm_head, or ""."""

    def __init__(self, pairs: tuple[tuple[str, str], ...], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(self.tr("Placement by layer"))
        explain = PlainLabel(
            self.tr(
                "Each row puts a part of the model, by its module's name, on a device: cpu, cuda:0, cuda:1, … or disk. "
                "An empty name stands for all that no other row names."
            )
        )
        explain.setWordWrap(True)
        self.table = QTableWidget(0, 2)
        self.table.setAccessibleName(self.tr("Placement by layer"))
        self.table.setHorizontalHeaderLabels([self.tr("module"), self.tr("device")])
        self.table.horizontalHeader().setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        self.table.verticalHeader().hide()
        self.table.setTabKeyNavigation(False)
        for name, device in pairs or (("", "cpu"),):
            self.add_row(name, device)
        add = QPushButton(self.tr("Add a row"))
        remove = QPushButton(self.tr("Remove the row"))
        for button in (add, remove):
            button.setAutoDefault(False)
        add.clicked.connect(self.add_empty_row)
        remove.clicked.connect(self.remove_row)
        row = QHBoxLayout()
        row.addWidget(add)
        row.addWidget(remove)
        row.addStretch()
        self.problem_label = SmallText("", "warning")
        self.problem_label.hide()
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Ok | QDialogButtonBox.StandardButton.Cancel)
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 16, 16, 16)
        column.setSpacing(10)
        column.addWidget(explain)
        column.addWidget(self.table, 1)
        column.addLayout(row)
        column.addWidget(self.problem_label)
        column.addWidget(buttons)
        self.resize(460, 380)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)

    def add_row(self, name: str, device: str) -> None:
        at = self.table.rowCount()
        self.table.insertRow(at)
        self.table.setItem(at, 0, QTableWidgetItem(name))
        self.table.setItem(at, 1, QTableWidgetItem(device))

    def add_empty_row(self) -> None:
        self.add_row("", "cpu")
        self.table.setCurrentCell(self.table.rowCount() - 1, 0)
        self.table.editItem(self.table.currentItem())

    def remove_row(self) -> None:
        if self.table.currentRow() >= 0:
            self.table.removeRow(self.table.currentRow())

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """(module name, device) of each row."""
        cells = ((self.table.item(at, 0), self.table.item(at, 1)) for at in range(self.table.rowCount()))
        return tuple((name.text().strip() if name else "", device.text().strip() if device else "")
                     for name, device in cells)  # fmt: skip

    def accept(self) -> None:
        """Closes when the table can be used, else says what is missing."""
        pairs = self.pairs()
        names = [name for name, _ in pairs]
        twice = next((name for name in names if names.count(name) > 1), None)
        problem = ""
        if not pairs:
            problem = self.tr("The table is empty. Add a row, or choose another placement.")
        elif any(not device for _, device in pairs):
            problem = self.tr("A row names no device.")
        elif twice is not None:
            problem = self.tr("“{name}” stands in two rows.").format(name=twice)
        self.problem_label.setText(problem)
        self.problem_label.setVisible(bool(problem))
        if not problem:
            super().accept()
