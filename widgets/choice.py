"""A combo box for panels that scroll."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QComboBox, QSizePolicy, QWidget


class Choice(QComboBox):
    """Neither asks for its longest entry's width nor turns under the wheel of a page that scrolls."""

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName(name)
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setMinimumContentsLength(8)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()

    def choose(self, data: object) -> bool:
        """Stands on the entry with this data, silently. False where there is none."""
        at = self.findData(data)
        if at >= 0:
            self.setCurrentIndex(at)
        return at >= 0
