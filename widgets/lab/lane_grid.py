"""Lanes side by side in as many rows as are high enough to be read; where that is too narrow, they scroll sideways."""

from __future__ import annotations

import math
from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt, QTimer, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QApplication, QFrame, QGridLayout, QScrollArea, QWidget

from widgets import theme


class LaneGrid(QScrollArea):
    """Never makes a lane smaller than `least`, and rows of equal length.

    Rows that do not fit below one another would scroll the same way as the texts in them; so only as many are made as
    fit, and what has no room stands to the right. The lane that has the keyboard's focus is always in view.
    """

    def __init__(self, least: QSize, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.least = least
        self.columns: list[QWidget] = []
        self.per_row = 0
        self._wanted: QWidget | None = None  # to be brought into view once all have their places
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._inner = QWidget()
        self._inner.setProperty("plain", True)
        self._grid = QGridLayout(self._inner)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setSpacing(theme.GAP)
        self.setWidget(self._inner)
        self._placed = QTimer(self)
        self._placed.setSingleShot(True)
        self._placed.setInterval(0)
        self._placed.timeout.connect(self._bring_wanted)
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        app.focusChanged.connect(self._focus_moved)

    def set_columns(self, columns: Sequence[QWidget]) -> None:
        """Shows these from left to right; others that were here are taken out. A new one, or one that was moved by the
        keyboard, is brought into view."""
        if self.columns != list(columns):
            new = [column for column in columns if column not in self.columns]
            self.columns, self.per_row = list(columns), 0
            self._arrange()
            if len(new) == 1:
                self.bring(new[0])
            elif (focused := self._holder(QApplication.focusWidget())) is not None:
                self.bring(focused)

    def fitting(self, width: int, height: int) -> int:
        """How many lanes stand in a row where so much is seen at once."""
        count = max(1, len(self.columns))
        most = max(1, (width + theme.GAP) // (self.least.width() + theme.GAP))
        rows = min(math.ceil(count / most), max(1, (height + theme.GAP) // (self.least.height() + theme.GAP)))
        return math.ceil(count / rows)

    def _arrange(self) -> None:
        # Without the bars' own room: where that decided, a bar could come and go without end.
        per_row = self.fitting(self.width(), self.height())
        if per_row == self.per_row:
            return
        self.per_row = per_row
        while self._grid.count():
            self._grid.takeAt(0)
        for line in range(self._grid.rowCount()):
            self._grid.setRowStretch(line, 0)
        for line in range(self._grid.columnCount()):
            self._grid.setColumnStretch(line, 0)
        for at, column in enumerate(self.columns):
            column.setMinimumSize(self.least)
            self._grid.addWidget(column, at // per_row, at % per_row)
            self._grid.setRowStretch(at // per_row, 1)
            self._grid.setColumnStretch(at % per_row, 1)
            column.show()
        for before, after in zip(self.columns, self.columns[1:], strict=False):
            QWidget.setTabOrder(before, after)

    # ---------------------------------------------------------------- what is in view

    def bring(self, column: QWidget) -> None:
        """Scrolls until this lane is seen, once all have their places."""
        self._wanted = column
        self._placed.start()

    @Slot()
    def _bring_wanted(self) -> None:
        column, self._wanted = self._wanted, None
        if column in self.columns:
            self._grid.activate()
            self.ensureWidgetVisible(column, 0, 0)

    def _holder(self, widget: QWidget | None) -> QWidget | None:
        """The lane in which a widget is, None for elsewhere."""
        if widget is None:
            return None
        return next((column for column in self.columns if column is widget or column.isAncestorOf(widget)), None)

    @Slot(QWidget, QWidget)
    def _focus_moved(self, _before: QWidget | None, now: QWidget | None) -> None:
        # Under a pressed mouse nothing may move: the click would end on another word.
        column = self._holder(now)
        if column is not None and QApplication.mouseButtons() == Qt.MouseButton.NoButton:
            self.bring(column)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()
        if (focused := self._holder(QApplication.focusWidget())) is not None:
            self.bring(focused)

    def minimumSizeHint(self) -> QSize:
        """One lane, and room for the bar below it: otherwise a second bar would come up for its height."""
        return QSize(self.least.width(), self.least.height() + self.horizontalScrollBar().sizeHint().height())
