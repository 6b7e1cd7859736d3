"""The tensors of a model as a table: searched, marked, copied. Rows are painted only where they are seen."""

from __future__ import annotations

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt, Signal, Slot
from PySide6.QtGui import QKeySequence, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableView, QWidget

from engine.events import TensorRow
from widgets import theme
from widgets.boxes.page import to_clipboard
from widgets.boxes.skeleton_page import shape_text
from widgets.format import UNKNOWN, bytes_text, plain_tooltip

NAME, TYPE, SHAPE, BYTES, FILE = range(5)
WIDE_TYPE, WIDE_FILE = 34, 46  # in base sizes: from here on these columns have room
Index = QModelIndex | QPersistentModelIndex


class TensorModel(QAbstractTableModel):
    """What is left of the rows by search and mark."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._all: tuple[TensorRow, ...] = ()
        self.rows: list[TensorRow] = []
        self._wanted, self._marked = "", False
        self.short = False  # whether names leave out what all of them share

    def set_rows(self, rows: tuple[TensorRow, ...]) -> None:
        self._all = rows
        self._choose()

    def search(self, wanted: str, marked: bool) -> None:
        self._wanted, self._marked = wanted.strip().lower(), marked
        self._choose()

    def _choose(self) -> None:
        self.beginResetModel()
        wanted = self._wanted
        self.rows = [
            row
            for row in self._all
            if (not self._marked or row.mark)
            and (not wanted or wanted in row.name.lower() or wanted in row.file.lower())
        ]
        self.endResetModel()

    def rowCount(self, parent: Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index | None = None) -> int:
        return 5

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if orientation == Qt.Orientation.Vertical:
            return None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _side(section)
        if role != Qt.ItemDataRole.DisplayRole:
            return None
        return (self.tr("tensor"), self.tr("type"), self.tr("shape"), self.tr("bytes"), self.tr("file"))[section]

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        row = self.rows[index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            return self._text(row, index.column())
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _side(index.column())
        if role == Qt.ItemDataRole.ForegroundRole and row.mark:
            look = theme.current()
            return look.muted if row.mark == "tied" else look.warning
        if role == Qt.ItemDataRole.ToolTipRole:
            return plain_tooltip(self.described(row))
        return None

    def _text(self, row: TensorRow, column: int) -> str:
        if column == NAME:
            name = row.name.removeprefix("model.").removesuffix(".weight") if self.short else row.name
            return f"{self.mark_word(row.mark)} · {name}" if row.mark else name
        if column == TYPE:
            return row.dtype
        if column == SHAPE:
            return shape_text(row.shape)
        if column == BYTES:
            return bytes_text(row.bytes) if row.bytes else UNKNOWN
        return row.file

    def mark_word(self, mark: str) -> str:
        words = {"missing": self.tr("missing"), "unexpected": self.tr("unexpected"), "tied": self.tr("tied")}
        return words.get(mark, mark)

    def described(self, row: TensorRow) -> str:
        why = {
            "missing": self.tr("The model needs it, and no file holds it."),
            "unexpected": self.tr("A file holds it, and the model does not use it."),
            "tied": self.tr("The same numbers as {name}; they are kept once.").format(name=row.note),
        }
        parts = [row.name, " · ".join(p for p in (row.dtype, shape_text(row.shape), row.file) if p)]
        return "\n".join(p for p in (*parts, why.get(row.mark, "")) if p)


def _side(column: int) -> Qt.AlignmentFlag:
    right = column in (SHAPE, BYTES)
    return (Qt.AlignmentFlag.AlignRight if right else Qt.AlignmentFlag.AlignLeft) | Qt.AlignmentFlag.AlignVCenter


class TensorTable(QTableView):
    """`opened` goes out with the row on Enter or a double click."""

    opened = Signal(object)  # TensorRow

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.tensors = TensorModel(self)
        self.setModel(self.tensors)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setTextElideMode(Qt.TextElideMode.ElideLeft)  # the end of a name says most
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setTabKeyNavigation(False)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setAccessibleName(self.tr("Tensors"))
        self.verticalHeader().hide()
        header = self.horizontalHeader()
        header.setHighlightSections(False)
        header.setMinimumSectionSize(30)
        header.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        header.setSectionResizeMode(NAME, QHeaderView.ResizeMode.Stretch)
        self.doubleClicked.connect(self._open)
        theme.changes.changed.connect(self._restyle)
        self._restyle()

    @Slot()
    def _restyle(self) -> None:
        size = theme.base_px() - 2
        self.setStyleSheet(
            f"QTableView {{ font-size: {size}px; }} QHeaderView::section {{ font-size: {size}px; padding: 3px 4px; }}"
        )
        self.verticalHeader().setDefaultSectionSize(size + 8)
        metrics = self.fontMetrics()
        for column, widest in (
            (TYPE, "bfloat16"),
            (SHAPE, "128,256 × 16,384"),
            (BYTES, "999 MB"),
            (FILE, "model-00001-of"),
        ):
            self.setColumnWidth(
                column, round(metrics.horizontalAdvance(widest) * (size / max(1, metrics.height() - 3))) + 12
            )
        self.viewport().update()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        room = self.width() / theme.base_px()
        self.tensors.short = room < WIDE_TYPE
        self.setColumnHidden(TYPE, room < WIDE_TYPE)
        several = len({row.file for row in self.tensors.rows if row.file}) > 1
        self.setColumnHidden(FILE, room < WIDE_FILE or not several)

    def current_row(self) -> TensorRow | None:
        index = self.currentIndex()
        return self.tensors.rows[index.row()] if index.isValid() and index.row() < len(self.tensors.rows) else None

    @Slot()
    def _open(self) -> None:
        if (row := self.current_row()) is not None:
            self.opened.emit(row)

    def keyPressEvent(self, event) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._open()
        elif event.matches(QKeySequence.StandardKey.Copy):
            self.copy_rows()
        else:
            super().keyPressEvent(event)

    @Slot()
    def copy_rows(self) -> None:
        """The chosen rows, or all that are shown, as tab-separated lines with a head."""
        chosen = [self.tensors.rows[index.row()] for index in self.selectionModel().selectedRows()]
        lines = ["\t".join(("name", "file", "dtype", "shape", "bytes", "mark", "note"))]
        lines += [
            "\t".join((r.name, r.file, r.dtype, "×".join(map(str, r.shape)), str(r.bytes), r.mark, r.note))
            for r in (chosen if len(chosen) > 1 else self.tensors.rows)
        ]
        to_clipboard("\n".join(lines))
