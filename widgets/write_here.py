"""The small field over a word of the text: what is typed there is written in its place, and the text goes on."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QRect, Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent
from PySide6.QtWidgets import QApplication, QFrame, QHBoxLayout, QLineEdit, QPushButton, QVBoxLayout, QWidget

from widgets.format import token_label
from widgets.small import SmallText

WIDTH = 420


class WriteHere(QFrame):
    """Shown over a word. `written` says the text exactly as it was typed. Esc or a click elsewhere ends it."""

    written = Signal(object)
    closed = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setProperty("panel", True)
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.field = QLineEdit()
        self.field.setAccessibleName(self.tr("Text that is written here instead"))
        self.field.setPlaceholderText(self.tr("write something else here…"))
        self.field.installEventFilter(self)
        self.button = QPushButton(self.tr("Go on"))
        self.button.setToolTip(self.tr("Write this here and go on from it, with the settings as they stand (Return)"))
        self.button.clicked.connect(self.write)
        self.hint = SmallText()
        row = QHBoxLayout()
        row.setSpacing(6)
        row.addWidget(self.field, 1)
        row.addWidget(self.button)
        column = QVBoxLayout(self)
        column.setContentsMargins(10, 8, 10, 8)
        column.setSpacing(4)
        column.addLayout(row)
        column.addWidget(self.hint)
        self.field.textChanged.connect(self._typed)
        self.hide()

    def open_at(self, place: QRect, word: str) -> None:
        """Opens at a word. word: the text that stands there, "" at the end."""
        stands = token_label(word)
        self.hint.setText(
            self.tr("in place of “{word}”; a space before it counts").format(word=stands)
            if word.strip()
            else self.tr("written behind the text; a space before it counts")
        )
        lead = word[: len(word) - len(word.lstrip(" "))] if word.strip() else ""
        self.field.setText(word if word.isprintable() else lead)
        self.field.setSelection(len(lead), len(self.field.text()))
        self.put_at(place)
        self.show()
        self.raise_()
        self.field.setFocus()
        self._typed()

    def put_at(self, place: QRect) -> None:
        """Under a word, or over it where the parent ends."""
        area = self.parentWidget().rect()
        self.setFixedWidth(min(WIDTH, area.width() - 16))
        self.adjustSize()
        x = max(8, min(place.left() - 10, area.width() - self.width() - 8))
        below = place.bottom() + 4
        above = place.top() - self.height() - 4
        y = below if below + self.height() <= area.height() or above < 0 else above
        self.move(x, max(0, min(y, area.height() - self.height())))

    def _typed(self) -> None:
        self.button.setEnabled(bool(self.field.text()))

    def write(self) -> None:
        if text := self.field.text():
            self.close_it()
            self.written.emit(text)

    def close_it(self) -> None:
        if self.isVisible():
            self.hide()
            self.closed.emit()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.KeyPress and isinstance(event, QKeyEvent):
            if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                self.write()
                return True
            if event.key() == Qt.Key.Key_Escape:
                self.close_it()
                return True
        elif isinstance(event, QFocusEvent) and event.lostFocus() and event.reason() == Qt.FocusReason.MouseFocusReason:
            taker = QApplication.focusWidget()
            if taker is None or not self.isAncestorOf(taker):
                self.close_it()
        return super().eventFilter(watched, event)
