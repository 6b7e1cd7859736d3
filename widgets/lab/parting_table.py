"""The table of first words where lanes part: each word, its draw, and the odds that every lane gave it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QSize, Qt, Signal, Slot
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QAbstractItemView, QTableView, QWidget

from widgets import theme
from widgets.format import count_text, number_text, plain_tooltip
from widgets.lab.lane_words import odds_tooltip, odds_words, tr, word_text
from widgets.lab.parting import PartingRow
from widgets.panel import Panel
from widgets.rows import quiet_table

Index = QModelIndex | Any  # Qt gives a persistent one now and then
FIXED = 3  # columns before the lanes'


class PartingModel(QAbstractTableModel):
    """PartingRows as a table: place, word, draw, then a column for each lane."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.rows: tuple[PartingRow, ...] = ()
        self.letters: tuple[str, ...] = ()  # of the lanes, from left to right

    def set_rows(self, rows: tuple[PartingRow, ...], letters: tuple[str, ...]) -> None:
        self.beginResetModel()
        self.rows, self.letters = rows, letters
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008  Qt's own default
        return 0 if parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else FIXED + len(self.letters)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            fixed = (tr("place"), tr("word"), tr("draw u"))
            return fixed[section] if section < FIXED else self.letters[section - FIXED]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return int(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        if role == Qt.ItemDataRole.ToolTipRole and section >= FIXED:
            return tr("The word's odds in lane {letter} after its settings; ✓: chosen by it").format(
                letter=self.letters[section - FIXED]
            )
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        row, column = self.rows[index.row()], index.column()
        lane = column - FIXED
        if role == Qt.ItemDataRole.DisplayRole:
            return self.cell(row, column)
        if role == Qt.ItemDataRole.ToolTipRole:
            return plain_tooltip(
                odds_tooltip(row.odds[lane], self.letters[lane]) if lane >= 0 else self.cell(row, column)
            )
        if role == Qt.ItemDataRole.FontRole:
            chosen = lane >= 0 and lane in row.choosers
            return theme.mono(-1) if column == 1 else theme.font(-1, bold=chosen)
        if role == Qt.ItemDataRole.ForegroundRole:
            quiet = column == 0 or (lane >= 0 and lane not in row.choosers)
            return theme.current().muted if quiet else theme.current().ink
        return None

    def cell(self, row: PartingRow, column: int) -> str:
        """What stands in a cell."""
        if column == 0:
            return tr("word {number}").format(number=count_text(row.step + 1)) if row.first_of_step else ""
        if column == 1:
            return word_text(row.word)
        if column == 2:
            return draws_text(row, self.letters)
        lane = column - FIXED
        words = odds_words(row.odds[lane])
        return f"{words} ✓" if lane in row.choosers else words


def draws_text(row: PartingRow, letters: Sequence[str]) -> str:
    """The draw of those who chose a word; each by itself where they differ."""

    def shown(u: float | None) -> str:
        return tr("no draw") if u is None else number_text(u, 3)

    if len(set(row.draws)) == 1:
        return shown(row.draws[0])
    return ", ".join(f"{letters[lane]} {shown(u)}" for lane, u in zip(row.choosers, row.draws, strict=True))


class PartingView(QTableView):
    """The table itself. `picked` says a place and a lane: that of the cell, or the first that chose the word."""

    picked = Signal(object, object)  # int each

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.rows = PartingModel(self)
        self.setModel(self.rows)
        self.setAccessibleName(tr("First words where the lanes part"))
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectItems)
        quiet_table(self)
        self.horizontalHeader().setMinimumSectionSize(theme.base_px() * 4)
        self.clicked.connect(self._pick)
        theme.changes.changed.connect(self._restyle)
        self._restyle()

    @Slot()
    def _restyle(self) -> None:
        self.verticalHeader().setDefaultSectionSize(round(theme.base_px() * 1.8))
        self.setStyleSheet(
            "QTableView { border: none; border-radius: 0; } QTableView::item { padding: 0 6px; }"
            "QHeaderView { background: transparent; } QHeaderView::section { padding: 2px 6px; }"
        )
        self.viewport().update()

    def set_rows(self, rows: tuple[PartingRow, ...], letters: tuple[str, ...]) -> None:
        if rows == self.rows.rows and letters == self.rows.letters:
            return
        self.rows.set_rows(rows, letters)
        self.resizeColumnsToContents()
        for column in range(self.rows.columnCount()):
            self.setColumnWidth(column, min(theme.base_px() * 18, self.columnWidth(column) + 10))

    @Slot(QModelIndex)
    def _pick(self, index: QModelIndex) -> None:
        row, lane = self.rows.rows[index.row()], index.column() - FIXED
        if lane < 0 or row.odds[lane] is None:
            lane = row.choosers[0]
        self.picked.emit(row.step, lane)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and not event.modifiers():
            if self.currentIndex().isValid():
                self._pick(self.currentIndex())
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if self.rows.rows:
            return
        with QPainter(self.viewport()) as painter:  # an exception must not leave it open: that ends the process
            painter.setPen(theme.current().muted)
            painter.setFont(theme.font())
            area = self.viewport().rect().adjusted(8, 0, -8, 0)
            painter.drawText(area, int(Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap), self.empty_text())

    def empty_text(self) -> str:
        return tr("Where lanes part, the words that each of them chose stand here, with the draw and each lane's odds.")


class PartingTable(Panel):
    """The table in its frame."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("", parent)
        self.set_title(tr("First words where the lanes part"), tr("Where the lanes part"))
        self.view = PartingView()
        self.show_focus_of(self.view)
        self.setFocusProxy(self.view)
        self.body.addWidget(self.view, 1)

    def sizeHint(self) -> QSize:
        return QSize(400, theme.base_px() * 12)

    def minimumSizeHint(self) -> QSize:
        return QSize(200, theme.base_px() * 7)

    def show_rows(self, rows: Sequence[PartingRow], letters: tuple[str, ...]) -> None:
        self.view.set_rows(tuple(rows), letters)
        drawn: dict[int, set[float]] = {}
        for row in rows:
            drawn.setdefault(row.step, set()).update(u for u in row.draws if u is not None)
        said = ""
        if any(drawn.values()):
            one = all(len(draws) < 2 for draws in drawn.values())
            said = tr("one draw, several distributions") if one else tr("lanes draw numbers of their own")
        self.set_remark(said, tr("With one seed all lanes draw the same number at a place: only their odds differ."))
