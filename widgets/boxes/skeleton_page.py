"""The skeleton box: the tree of the empty model, repeated layers folded; shapes, parameters, predicted bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from PySide6.QtCore import Qt, Slot
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHBoxLayout,
    QHeaderView,
    QLineEdit,
    QToolButton,
    QTreeWidget,
    QTreeWidgetItem,
    QWidget,
)

from engine.events import Leaf, Module, Outline
from widgets import theme
from widgets.boxes.blueprint_rows import share_name
from widgets.boxes.outline_page import OutlinePage
from widgets.boxes.page import copy_button, to_clipboard
from widgets.format import bytes_text, count_text, plain_tooltip, short_count
from widgets.run_store import RunStore
from widgets.small import SmallText

NAME, PARAMETERS, BYTES = range(3)
PATHS = Qt.ItemDataRole.UserRole  # what a search looks into: the whole names, or the pattern with its numbers
LINE = Qt.ItemDataRole.UserRole + 1  # the row as it is copied


class SkeletonPage(OutlinePage):
    """The tree, a search field over it, and the totals."""

    stage = "skeleton"

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(store, parent)
        self.total = SmallText("", "")
        self.search = QLineEdit()
        self.search.setPlaceholderText(self.tr("search"))
        self.search.setToolTip(self.tr("Part of a name or class: q_proj, layers.17, MLP"))
        self.search.setAccessibleName(self.tr("Search the tree"))
        self.search.setClearButtonEnabled(True)
        self.search.textChanged.connect(self._filter)
        self.unfold = QToolButton()
        self.unfold.setText(self.tr("open all"))
        self.unfold.setCheckable(True)
        self.unfold.setToolTip(self.tr("Open or close every part"))
        self.unfold.toggled.connect(self._open_all)
        self.copy = copy_button(self.tr("copy"), self.tr("Copy the chosen rows, or all of them, as a table (Ctrl+C)"))
        self.copy.clicked.connect(self.copy_rows)
        self.tree = TreeTable(self)
        self.tree.setHeaderLabels([self.tr("part"), self.tr("params"), self.tr("bytes")])
        self.tree.headerItem().setToolTip(PARAMETERS, self.tr("Parameters of it and all below it; tied ones once."))
        self.tree.headerItem().setToolTip(BYTES, self.tr("Predicted bytes of one, in the chosen precision."))
        self.tree.setAccessibleName(self.tr("The empty model's parts"))
        self.nothing = SmallText(self.tr("Nothing in this model is called so."))
        self.nothing.hide()
        row = QHBoxLayout()
        row.setSpacing(4)
        row.addWidget(self.search, 1)
        row.addWidget(self.unfold)
        row.addWidget(self.copy)
        self.column.addWidget(self.total)
        self.column.addLayout(row)
        self.column.addWidget(self.nothing)
        self.column.addWidget(self.tree, 1)

    def show_outline(self, outline: Outline) -> None:
        self.total.setText(
            self.tr(
                "Built empty, without memory for its numbers: {count} parameters, {size} predicted in {precision}."
            ).format(
                count=count_text(outline.parameters),
                size=bytes_text(outline.predicted_bytes),
                precision=outline.precision,
            )
        )
        self.tree.clear()
        root = self._item(outline.tree, ())
        self.tree.addTopLevelItem(root)
        root.setExpanded(True)
        for item in _below(root):  # down to where the layers are folded
            if item.data(NAME, PATHS)[1].count("{}") == 1 and "{}" not in item.parent().data(NAME, PATHS)[1]:
                self.tree.scrollToItem(item.parent())
                item.parent().setExpanded(True)
        self.tree.scrollToTop()
        if self.unfold.isChecked():
            self.tree.expandAll()
        self._filter(self.search.text())

    def _item(self, module: Module, folds: tuple[Sequence[int], ...]) -> QTreeWidgetItem:
        """The row of a module and of all below it. folds: the numbers for which each "{}" of its path stands."""
        if module.numbers:
            folds = (*folds, module.numbers)
            text = self.tr("{count} × {kind}").format(count=len(module.numbers), kind=module.kind)
            term = self.tr("{kind}, numbers {numbers}; figures are those of one").format(
                kind=module.kind, numbers=numbers_text(module.numbers)
            )
        else:
            text = module.name or module.kind
            term = module.kind
        if len(module.leaves) == 1 and not module.parts:  # a part that is one tensor is one row
            leaf = module.leaves[0]
            return self._leaf(leaf, f"{module.path}.{leaf.name}", folds, text, module.kind)
        path = module.path or module.kind
        item = QTreeWidgetItem([text, short_count(module.parameters) if module.parameters else "", ""])
        if module.predicted_bytes:
            item.setText(BYTES, bytes_text(module.predicted_bytes))
        self._finish(item, path, folds, term, module.kind, module.parameters, module.predicted_bytes)
        for leaf in module.leaves:
            item.addChild(self._leaf(leaf, f"{module.path}.{leaf.name}" if module.path else leaf.name, folds))
        for part in module.parts:
            item.addChild(self._item(part, folds))
        return item

    def _leaf(
        self, leaf: Leaf, path: str, folds: tuple[Sequence[int], ...], name: str = "", kind: str = ""
    ) -> QTreeWidgetItem:
        shape = shape_text(leaf.shape)
        item = QTreeWidgetItem([f"{name or leaf.name}  {shape}", "", ""])
        if leaf.tied_to:
            term = self.tr("tied: the same numbers as {name}, counted there").format(name=leaf.tied_to)
            item.setText(BYTES, self.tr("tied"))
        else:
            buffer = leaf.role == "buffer"
            term = self.tr("a table that is no weight (buffer)") if buffer else share_name(leaf.role)
            item.setText(PARAMETERS, "" if buffer else short_count(leaf.numel))
            item.setText(BYTES, bytes_text(leaf.predicted_bytes))
        count = 0 if leaf.tied_to else leaf.numel
        self._finish(item, path, folds, term, kind, count, leaf.predicted_bytes, shape)
        return item

    def _finish(
        self,
        item: QTreeWidgetItem,
        path: str,
        folds: tuple[Sequence[int], ...],
        term: str,
        kind: str,
        count: int,
        size: int,
        shape: str = "",
    ) -> None:
        shown = path
        for numbers in folds:
            shown = shown.replace("{}", f"[{numbers_text(numbers)}]", 1)
        tip = self.tr("{name}\n{term}\nparameters: {count}, {size} predicted").format(
            name=shown, term=term, count=count_text(count), size=bytes_text(size)
        )
        item.setToolTip(NAME, plain_tooltip(tip))
        item.setData(NAME, PATHS, (kind, path, folds))
        item.setData(NAME, LINE, "\t".join((shown, kind, shape, str(count), str(size))))
        for column in (PARAMETERS, BYTES):
            item.setTextAlignment(column, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)

    # ---------------------------------------------------------------- acts

    @Slot(str)
    def _filter(self, text: str) -> None:
        root = self.tree.topLevelItem(0)
        if root is None:
            return
        wanted = text.strip().lower()
        found = _keep(root, wanted)
        self.nothing.setVisible(bool(wanted) and not found)

    @Slot(bool)
    def _open_all(self, on: bool) -> None:
        if on:
            self.tree.expandAll()
        elif (root := self.tree.topLevelItem(0)) is not None:
            self.tree.collapseAll()
            root.setExpanded(True)

    @Slot()
    def copy_rows(self) -> None:
        """The chosen rows, or all that are shown, as tab-separated lines with a head."""
        root = self.tree.topLevelItem(0)
        items = self.tree.selectedItems() or [i for i in ((root, *_below(root)) if root else ()) if not i.isHidden()]
        head = "\t".join(("name", "class", "shape", "parameters", "predicted_bytes"))
        to_clipboard("\n".join([head, *(str(item.data(NAME, LINE)) for item in items)]))


class TreeTable(QTreeWidget):
    """A tree whose first column takes the room that is left, and whose rows are copied by the page."""

    def __init__(self, page: SkeletonPage) -> None:
        super().__init__(page)
        self._page = page
        self.setColumnCount(3)
        self.setIndentation(12)
        self.setUniformRowHeights(True)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setTextElideMode(Qt.TextElideMode.ElideRight)
        header = self.header()
        header.setStretchLastSection(False)
        header.setMinimumSectionSize(30)
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(NAME, QHeaderView.ResizeMode.Stretch)
        for column in (PARAMETERS, BYTES):
            self.headerItem().setTextAlignment(column, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        theme.changes.changed.connect(self._restyle)
        self._restyle()

    @Slot()
    def _restyle(self) -> None:
        # Names of a deep tree and two columns of figures must find room in a dock of 330 pixels.
        self.setStyleSheet(
            f"QTreeView {{ font-size: {theme.base_px() - 2}px; }} QTreeView::item {{ padding: 1px 0; }}"
            f" QHeaderView::section {{ font-size: {theme.base_px() - 2}px; padding: 3px 4px; }}"
        )

    def keyPressEvent(self, event) -> None:
        if event.matches(QKeySequence.StandardKey.Copy):
            self._page.copy_rows()
            return
        super().keyPressEvent(event)


def _below(item: QTreeWidgetItem) -> Iterator[QTreeWidgetItem]:
    for at in range(item.childCount()):
        child = item.child(at)
        yield child
        yield from _below(child)


def _keep(item: QTreeWidgetItem, wanted: str) -> bool:
    """Hides what does not hold the wanted words; True where it or something below it stays."""
    kind, path, folds = item.data(NAME, PATHS)
    here = not wanted or wanted in kind.lower() or matches(path, folds, wanted)
    below = [_keep(item.child(at), "" if here and wanted else wanted) for at in range(item.childCount())]
    kept = here or any(below)
    item.setHidden(not kept)
    if wanted and any(below) and not here:
        item.setExpanded(True)
    return kept


def matches(path: str, folds: Sequence[Sequence[int]], wanted: str) -> bool:
    """Whether a name holds the wanted words, with any of the numbers it stands for in place of "{}"."""
    names = [path.lower()]
    for numbers in folds:
        names = [name.replace("{}", str(number), 1) for name in names for number in numbers]
    return any(wanted in name for name in names)


def numbers_text(numbers: Sequence[int]) -> str:
    """0–29, or 0, 2, 4."""
    if len(numbers) > 1 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]}–{numbers[-1]}"
    return ", ".join(map(str, numbers))


def shape_text(shape: Sequence[int]) -> str:
    """49,152 × 576"""
    return " × ".join(count_text(size) for size in shape)
