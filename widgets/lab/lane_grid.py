"""Lanes side by side where there is room for them, else in rows of equal length that scroll."""

from __future__ import annotations

import math
from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QGridLayout, QScrollArea, QWidget

from widgets import theme


class LaneGrid(QScrollArea):
    """Never makes a lane smaller than `least`; as many in each row as are needed for rows of equal length."""

    def __init__(self, least: QSize, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.least = least
        self.columns: list[QWidget] = []
        self.per_row = 0
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._inner = QWidget()
        self._inner.setProperty("plain", True)
        self._grid = QGridLayout(self._inner)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setSpacing(theme.GAP)
        self.setWidget(self._inner)

    def set_columns(self, columns: Sequence[QWidget]) -> None:
        """Shows these from left to right; others that were here are taken out."""
        if self.columns != list(columns):
            self.columns, self.per_row = list(columns), 0
            self._arrange()

    def fitting(self, width: int) -> int:
        """How many lanes stand in a row of this width."""
        count = max(1, len(self.columns))
        most = max(1, (width + theme.GAP) // (self.least.width() + theme.GAP))
        rows = math.ceil(count / most)
        return math.ceil(count / rows)

    def _arrange(self) -> None:
        per_row = self.fitting(self.viewport().width())
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
            column.setMinimumHeight(self.least.height())
            self._grid.addWidget(column, at // per_row, at % per_row)
            self._grid.setRowStretch(at // per_row, 1)
            self._grid.setColumnStretch(at % per_row, 1)
            column.show()
        for before, after in zip(self.columns, self.columns[1:], strict=False):
            QWidget.setTabOrder(before, after)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def minimumSizeHint(self) -> QSize:
        return QSize(self.least.width(), self.least.height())
