"""A table of frozen things: columns that say how each is shown and sorted, a filter, and what is chosen."""

from __future__ import annotations

import base64
import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QByteArray, QModelIndex, QSortFilterProxyModel, Qt, Signal, Slot
from PySide6.QtGui import QFontMetrics, QKeyEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableView, QWidget

from widgets import theme
from widgets.format import plain_tooltip

Index = QModelIndex | Any  # Qt gives a persistent one now and then
SORT = Qt.ItemDataRole.UserRole
LEAST = 0.85  # of its width a column keeps where there is no room for all


@dataclass(frozen=True)
class Column:
    """text: what is shown; key: what is sorted by (None stands last, either way); width in letters."""

    title: str
    text: Callable[[Any], str]
    key: Callable[[Any], Any]
    width: int = 10
    figures: bool = False  # right-aligned, and sorted largest first at the first click
    tooltip: str = ""


class RowsModel(QAbstractTableModel):
    """Holds the things. identity: what stays the same when a thing is read again. tone: a theme role for its text."""

    def __init__(
        self,
        columns: Sequence[Column],
        identity: Callable[[Any], object],
        tone: Callable[[Any], str],
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.columns, self.identity, self._tone = list(columns), identity, tone
        self.things: list[Any] = []

    def set_things(self, things: Sequence[Any]) -> None:
        self.beginResetModel()
        self.things = list(things)
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008  Qt's own default
        return 0 if parent.isValid() else len(self.things)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else len(self.columns)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if orientation != Qt.Orientation.Horizontal:
            return None
        column = self.columns[section]
        if role == Qt.ItemDataRole.DisplayRole:
            return column.title
        if role == Qt.ItemDataRole.ToolTipRole:
            return column.tooltip or None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(column)
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        thing, column = self.things[index.row()], self.columns[index.column()]
        if role == Qt.ItemDataRole.DisplayRole:
            return column.text(thing)
        if role == SORT:
            return column.key(thing)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(column)
        if role == Qt.ItemDataRole.ToolTipRole:
            return plain_tooltip(column.text(thing))
        if role == Qt.ItemDataRole.ForegroundRole and (tone := self._tone(thing)):
            return getattr(theme.current(), tone)
        return None


def _alignment(column: Column) -> int:
    side = Qt.AlignmentFlag.AlignRight if column.figures else Qt.AlignmentFlag.AlignLeft
    return int(side | Qt.AlignmentFlag.AlignVCenter)


class _Sorted(QSortFilterProxyModel):
    """Sorted by key; rows stay that hold every word of the filter in some column."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._words: list[str] = []

    def set_words(self, text: str) -> None:
        self._words = text.casefold().split()
        self.setFilterFixedString(text)  # the one way to filter anew that is the same in all versions of Qt

    def filterAcceptsRow(self, row: int, parent: Index) -> bool:
        model = self.sourceModel()
        assert isinstance(model, RowsModel)
        if not self._words:
            return True
        said = "\n".join(column.text(model.things[row]) for column in model.columns).casefold()
        return all(word in said for word in self._words)

    def lessThan(self, left: Index, right: Index) -> bool:
        one, other = left.data(SORT), right.data(SORT)
        if one is None or other is None:
            descending = self.sortOrder() == Qt.SortOrder.DescendingOrder
            return (one is None) is descending and one is not other
        return one < other


def quiet_table(view: QTableView) -> None:
    """No lines, no row numbers, one thing chosen at a time; Tab leaves the table, columns can be drawn wider."""
    view.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
    view.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
    view.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
    view.setTabKeyNavigation(False)
    view.setShowGrid(False)
    view.setWordWrap(False)
    view.verticalHeader().hide()
    view.horizontalHeader().setHighlightSections(False)
    view.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Interactive)


class RowsView(QTableView):
    """The table. One row is chosen; Enter or a double click acts on it."""

    chosen = Signal(object)  # the thing, or None
    acted = Signal(object)

    def __init__(
        self,
        name: str,
        columns: Sequence[Column],
        identity: Callable[[Any], object],
        tone: Callable[[Any], str],
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.rows = RowsModel(columns, identity, tone, self)
        self._sorted = _Sorted(self)
        self._sorted.setSourceModel(self.rows)
        self.setModel(self._sorted)
        self.setAccessibleName(name)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        quiet_table(self)
        header = self.horizontalHeader()
        header.setSectionsMovable(True)
        header.setStretchLastSection(True)
        header.setSortIndicatorShown(True)
        self.setSortingEnabled(True)
        theme.changes.changed.connect(self._restyle)
        self.selectionModel().currentRowChanged.connect(self._row_changed)
        self.doubleClicked.connect(self._act)
        self._wanted: list[int] = []  # widths where there is room for all
        self._fitting = False
        header.sectionResized.connect(self._column_drawn)
        self._restyle()
        self.set_widths()

    @Slot()
    def _restyle(self) -> None:
        self.verticalHeader().setDefaultSectionSize(round(theme.base_px() * 2.1))
        arrows = (theme.ICONS / "style").as_posix()
        # The arrow above the title, where it covers none of it, and cells as far from their edges as the titles are.
        self.setStyleSheet(
            "QTableView::item { padding: 0 3px; }"
            "QHeaderView::up-arrow, QHeaderView::down-arrow {"
            " subcontrol-position: top center; width: 9px; height: 9px; }"
            f"QHeaderView::up-arrow {{ image: url({arrows}/chevron-up.svg); }}"
            f"QHeaderView::down-arrow {{ image: url({arrows}/chevron-down.svg); }}"
        )
        self.viewport().update()

    def set_widths(self) -> None:
        """Each column as wide as its width says, and as its title needs."""
        self._wanted = self._widths(1.0)
        self._fit()

    def _widths(self, share: float) -> list[int]:
        """share: of what each column's width says."""
        letter, title = QFontMetrics(theme.font()).horizontalAdvance("n"), QFontMetrics(theme.font(bold=True))
        return [
            round(max(share * letter * column.width, title.horizontalAdvance(column.title))) + 14
            for column in self.rows.columns
        ]

    def _fit(self) -> None:
        """Where the columns find no room, those of words give a part of theirs; where that is not enough, the last
        ones go. What they say stands beside the table."""
        wanted, figures = self._wanted, [column.figures for column in self.rows.columns]
        least = [most if whole else min(few, most)
                 for few, most, whole in zip(self._widths(LEAST), wanted, figures, strict=True)]  # fmt: skip
        header, room = self.horizontalHeader(), self.viewport().width() if self.isVisible() else sum(wanted)
        columns = [header.logicalIndex(at) for at in range(header.count())]
        shown = columns
        while len(shown) > 1 and sum(least[at] for at in shown) > room:
            shown = shown[:-1]
        give, over = sum(wanted[at] - least[at] for at in shown), sum(wanted[at] for at in shown) - room
        part = min(1.0, over / give) if give and over > 0 else 0.0
        self._fitting = True
        for at in columns:
            self.setColumnHidden(at, at not in shown)
            if at in shown:
                self.setColumnWidth(at, math.floor(wanted[at] - part * (wanted[at] - least[at])))
        self._fitting = False

    @Slot(int, int, int)
    def _column_drawn(self, at: int, _before: int, width: int) -> None:
        """A person drew it wider or narrower; the last one only takes what the others leave."""
        header = self.horizontalHeader()
        after = range(header.visualIndex(at) + 1, header.count())
        if not self._fitting and not all(header.isSectionHidden(header.logicalIndex(place)) for place in after):
            self._wanted[at] = width

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self._fit()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._fit()

    # ---------------------------------------------------------------- what it holds

    def set_things(self, things: Sequence[Any]) -> None:
        """New content; what was chosen stays chosen where it still is, else the first row is."""
        before = self.current()
        known = None if before is None else self.rows.identity(before)
        self.rows.set_things(things)
        if not self.choose(known):
            self._choose_first()
        self._row_changed()

    def choose(self, identity: object) -> bool:
        """Chooses the thing of this identity. False where there is none, or the filter hides it."""
        for row, thing in enumerate(self.rows.things):
            if identity is not None and self.rows.identity(thing) == identity:
                index = self._sorted.mapFromSource(self.rows.index(row, 0))
                if index.isValid():
                    self.setCurrentIndex(index)
                    return True
        return False

    def current(self) -> Any:
        """The thing that is chosen, or None."""
        index = self._sorted.mapToSource(self.currentIndex())
        return self.rows.things[index.row()] if index.isValid() else None

    def shown(self) -> list[Any]:
        """The things in the order of the rows, those that the filter hides left out."""
        source = (self._sorted.mapToSource(self._sorted.index(row, 0)) for row in range(self._sorted.rowCount()))
        return [self.rows.things[index.row()] for index in source]

    @Slot(str)
    def set_filter(self, text: str) -> None:
        before = self.current()
        self._sorted.set_words(text)
        if self.current() is None:
            self._choose_first()
        if self.current() is not before:
            self._row_changed()

    def _choose_first(self) -> None:
        if self._sorted.rowCount():
            self.setCurrentIndex(self._sorted.index(0, 0))

    @Slot()
    def _row_changed(self) -> None:
        self.chosen.emit(self.current())

    @Slot()
    def _act(self) -> None:
        if (thing := self.current()) is not None:
            self.acted.emit(thing)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._act()
        else:
            super().keyPressEvent(event)

    # ---------------------------------------------------------------- remembering

    def columns_state(self) -> str:
        """Order, widths and sorting of the columns, as text."""
        header = base64.b64encode(self.horizontalHeader().saveState().data()).decode()
        return " ".join((header, *map(str, self._wanted)))

    def restore_columns(self, state: str) -> None:
        """Takes what `columns_state` gave; anything else leaves them as they are."""
        count = self.horizontalHeader().count()
        with contextlib.suppress(ValueError):
            kept, *widths = state.split()
            self.horizontalHeader().restoreState(QByteArray(base64.b64decode(kept)))
            if len(widths) == count:
                self._wanted = [max(20, min(int(width), 2000)) for width in widths]
        assert self.horizontalHeader().count() == count
        self._fit()
        header = self.horizontalHeader()
        self.sortByColumn(header.sortIndicatorSection(), header.sortIndicatorOrder())
