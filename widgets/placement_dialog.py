"""Which part of the model lies on which device, as a table that is edited by hand: several rows at once, with undo."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QItemSelectionModel, Qt, Slot
from PySide6.QtGui import QKeySequence, QShortcut, QUndoCommand, QUndoStack
from PySide6.QtWidgets import (
    QAbstractItemView,
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

from engine.events import DeviceLimit, ModelSizes
from widgets import theme
from widgets.choice import Choice
from widgets.format import bytes_text
from widgets.model_chip import device_words
from widgets.panel import PlainLabel
from widgets.small import SmallText

MODULE, SIZE, DEVICE = range(3)
Pairs = tuple[tuple[str, str], ...]


class _Edit(QUndoCommand):
    """One change of the table, kept as the whole before and after: a table is a few hundred short rows."""

    def __init__(self, dialog: PlacementDialog, words: str, after: Pairs) -> None:
        super().__init__(words)
        self._dialog, self._before, self._after = dialog, dialog.pairs(), after

    def undo(self) -> None:
        self._dialog.show_pairs(self._before)

    def redo(self) -> None:
        self._dialog.show_pairs(self._after)


class PlacementDialog(QDialog):
    """Edits (module name, device) pairs. A name stands for everything below it: model.layers.3, lm_head, or ""."""

    def __init__(
        self,
        pairs: Pairs,
        parent: QWidget | None = None,
        sizes: ModelSizes | None = None,
        precision: str = "",
        limits: Sequence[DeviceLimit] = (),
    ) -> None:
        """sizes: of the model, so that each part has a row and a size; without, rows are typed."""
        super().__init__(parent)
        self.setWindowTitle(self.tr("Placement by layer"))
        self._limits = tuple(limits)
        known = sizes is not None and precision in [each.precision for each in sizes.precisions]
        at = [each.precision for each in sizes.precisions].index(precision) if known and sizes is not None else 0
        self._sizes = {part.name: part.weights_bytes[at] for part in sizes.parts} if known and sizes is not None else {}
        self._packed = known and sizes is not None and sizes.weights(precision).packed
        self.undo_stack = QUndoStack(self)
        self._edited = False
        self._build()
        self.show_pairs(self._spread(pairs or (("", "cpu"),)))
        self.undo_stack.canUndoChanged.connect(self.undo_button.setEnabled)
        self.undo_stack.canRedoChanged.connect(self.redo_button.setEnabled)

    def _build(self) -> None:
        explain = PlainLabel(
            self.tr(
                "Each row puts a part of the model on a device. Choose rows (Shift or Ctrl for several), then the "
                "device for them. A row may name any module, such as model.layers.3.mlp; an empty name stands for all "
                "that no other row names."
            )
        )
        explain.setWordWrap(True)
        self.table = QTableWidget(0, 3)
        self.table.setAccessibleName(self.tr("Placement by layer"))
        self.table.setHorizontalHeaderLabels([self.tr("module"), self.tr("predicted"), self.tr("device")])
        header = self.table.horizontalHeader()
        header.setSectionResizeMode(MODULE, QHeaderView.ResizeMode.Stretch)
        header.setSectionResizeMode(SIZE, QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(DEVICE, QHeaderView.ResizeMode.Interactive)
        header.setHighlightSections(False)
        header.setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        self.table.setColumnWidth(DEVICE, theme.base_px() * 7)
        self.table.setColumnHidden(SIZE, not self._sizes)
        self.table.verticalHeader().hide()
        self.table.verticalHeader().setDefaultSectionSize(theme.base_px() * 2)
        self.table.setTabKeyNavigation(False)
        self.table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.table.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.table.itemChanged.connect(self._typed)
        self.device = Choice(self.tr("Device for the chosen rows"))
        names = [limit.name for limit in self._limits] or ["cpu"]
        for name in [*names, "disk"]:
            self.device.addItem(device_words(name), name)
        self.set_button = self._button(self.tr("Set"), self.tr("Put the chosen rows on this device (Ctrl+Return)"))
        self.undo_button = self._button(self.tr("Undo"), self.tr("Undo (Ctrl+Z)"))
        self.redo_button = self._button(self.tr("Redo"), self.tr("Redo (Ctrl+Shift+Z)"))
        self.undo_button.setEnabled(False)
        self.redo_button.setEnabled(False)
        self.add_button = self._button(self.tr("Add a row"), self.tr("A row for a module of its own name"))
        self.remove_button = self._button(self.tr("Remove rows"), self.tr("Remove the chosen rows (Delete)"))
        above = QHBoxLayout()
        above.addWidget(PlainLabel(self.tr("chosen rows on")))
        above.addWidget(self.device, 1)
        above.addWidget(self.set_button)
        above.addStretch(1)
        above.addWidget(self.undo_button)
        above.addWidget(self.redo_button)
        below = QHBoxLayout()
        below.addWidget(self.add_button)
        below.addWidget(self.remove_button)
        below.addStretch()
        self.totals = SmallText()
        self.problem_label = SmallText("", "warning")
        self.problem_label.hide()
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Ok | QDialogButtonBox.StandardButton.Cancel)
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 16, 16, 16)
        column.setSpacing(10)
        column.addWidget(explain)
        column.addLayout(above)
        column.addWidget(self.table, 1)
        column.addLayout(below)
        column.addWidget(self.totals)
        column.addWidget(self.problem_label)
        column.addWidget(buttons)
        self.set_button.clicked.connect(self.set_device)
        self.undo_button.clicked.connect(self.undo_stack.undo)
        self.redo_button.clicked.connect(self.undo_stack.redo)
        self.add_button.clicked.connect(self.add_empty_row)
        self.remove_button.clicked.connect(self.remove_rows)
        for key, slot in (
            (QKeySequence(QKeySequence.StandardKey.Undo), self.undo_stack.undo),
            (QKeySequence(QKeySequence.StandardKey.Redo), self.undo_stack.redo),
            (QKeySequence("Ctrl+Return"), self.set_device),
        ):
            QShortcut(key, self).activated.connect(slot)
        delete = QShortcut(QKeySequence(QKeySequence.StandardKey.Delete), self.table)
        delete.setContext(Qt.ShortcutContext.WidgetShortcut)
        delete.activated.connect(self.remove_rows)
        self.resize(theme.base_px() * 42, theme.base_px() * 42)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)

    def _button(self, text: str, tooltip: str) -> QPushButton:
        button = QPushButton(text)
        button.setToolTip(tooltip)
        button.setAutoDefault(False)
        return button

    def _spread(self, pairs: Pairs) -> Pairs:
        """A row for each part that the model is known to have, on the device that the pairs say; other names stay."""
        if not self._sizes:
            return pairs
        rows = []
        for name in self._sizes:
            over = [module for module, _ in pairs if _inside(name, module)]
            if over:
                rows.append((name, dict(pairs)[max(over, key=len)]))
        return (*rows, *(pair for pair in pairs if not any(_inside(name, pair[0]) for name in self._sizes)))

    # ---------------------------------------------------------------- the table

    def pairs(self) -> Pairs:
        """(module name, device) of each row."""
        return tuple((self._cell(at, MODULE), self._cell(at, DEVICE)) for at in range(self.table.rowCount()))

    def _cell(self, row: int, column: int) -> str:
        item = self.table.item(row, column)
        return item.text().strip() if item is not None else ""

    def show_pairs(self, pairs: Pairs) -> None:
        """Shows these rows; what is chosen stays chosen where its row stays."""
        chosen = self.chosen_rows()
        self.table.blockSignals(True)
        self.table.setRowCount(len(pairs))
        for row, (name, device) in enumerate(pairs):
            size = QTableWidgetItem(bytes_text(self._sizes[name]) if name in self._sizes else "")
            size.setFlags(Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable)
            size.setTextAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
            for column, item in ((MODULE, QTableWidgetItem(name)), (SIZE, size), (DEVICE, QTableWidgetItem(device))):
                self.table.setItem(row, column, item)
        self.table.blockSignals(False)
        self._shown = pairs
        self.choose_rows([row for row in chosen if row < len(pairs)])
        self._show_state()

    def chosen_rows(self) -> list[int]:
        return sorted({index.row() for index in self.table.selectedIndexes()})

    def choose_rows(self, rows: Sequence[int]) -> None:
        selection = self.table.selectionModel()
        selection.clearSelection()
        flags = QItemSelectionModel.SelectionFlag
        for row in rows:
            selection.select(self.table.model().index(row, 0), flags.Select | flags.Rows)

    def _push(self, words: str, after: Pairs) -> None:
        if after != self._shown:
            self._edited = True
            self.undo_stack.push(_Edit(self, words, after))

    @Slot(object)
    def _typed(self, _item: QTableWidgetItem) -> None:
        """A cell was edited: what it says becomes one step that can be undone."""
        after = self.pairs()
        if after == self._shown:
            return
        before = self._shown
        self.show_pairs(before)
        self._push(self.tr("type"), after)

    @Slot()
    def set_device(self) -> None:
        """Puts the chosen rows on the device that stands above."""
        rows, device = self.chosen_rows(), self.device.currentData()
        after = tuple((name, device if at in rows else now) for at, (name, now) in enumerate(self.pairs()))
        self._push(self.tr("set device"), after)

    @Slot()
    def add_empty_row(self) -> None:
        self._push(self.tr("add a row"), (*self.pairs(), ("", "cpu")))
        self.table.setCurrentCell(self.table.rowCount() - 1, MODULE)
        self.table.editItem(self.table.currentItem())

    @Slot()
    def remove_rows(self) -> None:
        rows = self.chosen_rows()
        self._push(self.tr("remove rows"), tuple(pair for at, pair in enumerate(self.pairs()) if at not in rows))

    # ---------------------------------------------------------------- what is wrong

    def problem(self) -> str:
        """Why the table cannot be used, "" where it can."""
        pairs = self.pairs()
        names = [name for name, _ in pairs]
        if not pairs:
            return self.tr("The table is empty. Add a row, or choose another placement.")
        if any(not device for _, device in pairs):
            return self.tr("A row names no device.")
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            return self.tr("“{name}” stands in two rows.").format(name=twice)
        there = [limit.name for limit in self._limits]
        strange = next((device for _, device in pairs if there and _full(device) not in [*there, "disk"]), None)
        if strange is not None:
            return self.tr("There is no device “{name}” on this machine. It has {here}, and disk.").format(
                name=strange, here=", ".join(there)
            )
        if not self._sizes:
            return ""
        unknown = next((name for name in names if name and not self._belongs(name)), None)
        if unknown is not None:
            return self.tr("“{name}” is no part of this model. Its parts are called {parts}.").format(
                name=unknown, parts=", ".join([*list(self._sizes)[:3], "…"])
            )
        without = [part for part in self._sizes if not any(_inside(part, name) for name in names)]
        if without:
            named = ", ".join(without[:3]) + (", …" if len(without) > 3 else "")
            return self.tr("No row names a device for {parts}. Add one, or a row with an empty name.").format(
                parts=named
            )
        on_disk = self._bytes_on("disk")
        if on_disk and self._packed:
            return self.tr("Quantised weights cannot lie on disk.")
        if on_disk and on_disk == sum(self._sizes.values()):
            return self.tr("Everything lies on disk, and something has to compute.")
        return ""

    def _belongs(self, name: str) -> bool:
        """Whether a module's name can be of this model; what lies inside a part is known to the engine alone."""
        return any(_inside(part, name) or _inside(name, part) for part in self._sizes) or name == "lm_head"

    def _bytes_on(self, device: str) -> int:
        pairs = dict(self.pairs())
        total = 0
        for part, size in self._sizes.items():
            over = [name for name in pairs if _inside(part, name)]
            if over and _full(pairs[max(over, key=len)]) == device:
                total += size
        return total

    def _show_state(self) -> None:
        words = []
        over = False
        for limit in self._limits if self._sizes else ():
            used = self._bytes_on(limit.name)
            if used:
                words.append(
                    self.tr("{device} {used} of {free} free").format(
                        device=device_words(limit.name), used=bytes_text(used), free=bytes_text(limit.free_bytes)
                    )
                )
                over = over or used > limit.free_bytes
        if on_disk := self._bytes_on("disk"):
            words.append(self.tr("disk {used}, read again for every token").format(used=bytes_text(on_disk)))
        self.totals.setText(" · ".join(words))
        self.totals.setVisible(bool(words))
        self.totals.setProperty("role", "warning" if over else "muted")
        self.totals.style().unpolish(self.totals)
        self.totals.style().polish(self.totals)
        problem = self.problem() if self._edited else ""  # nobody is blamed before doing anything
        self.problem_label.setText(problem)
        self.problem_label.setVisible(bool(problem))

    def accept(self) -> None:
        """Closes when the table can be used, else says what is missing."""
        problem = self.problem()
        self.problem_label.setText(problem)
        self.problem_label.setVisible(bool(problem))
        if not problem:
            super().accept()


def _inside(name: str, module: str) -> bool:
    return not module or name == module or name.startswith(f"{module}.")


def _full(device: str) -> str:
    """ "cuda" and "0" are "cuda:0", as the engine takes them."""
    text = device.strip().lower()
    if text.isdigit():
        return f"cuda:{text}"
    return f"{text}:0" if text in ("cuda", "xpu") else text
