"""A combo box for panels that scroll."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QPaintEvent, QWheelEvent
from PySide6.QtWidgets import QComboBox, QSizePolicy, QStyle, QStyleOptionComboBox, QStylePainter, QWidget


class Choice(QComboBox):
    """Neither asks for its longest entry's width nor turns under the wheel of a page that scrolls."""

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName(name)
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setMinimumContentsLength(8)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    def paintEvent(self, event: QPaintEvent) -> None:
        """As Qt draws it, but a text that finds no room ends in an ellipsis and not within a letter."""
        option = QStyleOptionComboBox()
        self.initStyleOption(option)
        field = self.style().subControlRect(
            QStyle.ComplexControl.CC_ComboBox, option, QStyle.SubControl.SC_ComboBoxEditField, self
        )
        middle = Qt.TextElideMode.ElideMiddle  # both ends of a model's name tell it apart
        option.currentText = self.fontMetrics().elidedText(option.currentText, middle, field.width() - 4)
        with QStylePainter(self) as painter:
            painter.drawComplexControl(QStyle.ComplexControl.CC_ComboBox, option)
            painter.drawControl(QStyle.ControlElement.CE_ComboBoxLabel, option)

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()

    def choose(self, data: object) -> bool:
        """Stands on the entry with this data, silently. False where there is none."""
        at = self.findData(data)
        if at >= 0:
            self.setCurrentIndex(at)
        return at >= 0
