"""A text editor that gives text back as it was written, also when a megabyte is pasted."""

from __future__ import annotations

from PySide6.QtCore import QMimeData, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QPlainTextEdit, QWidget

EDITABLE = 100_000  # characters; laying out one longer line would stop the window for seconds
SHOWN = 2_000  # characters shown of a text that is too long to be edited here


class PromptEdit(QPlainTextEdit):
    """Ctrl+Return asks for a run. `written()` is the text, which `toPlainText` is not always.

    Qt's own reading turns no-break spaces into spaces and U+2028 into line breaks (THR-25); the raw text of the
    document keeps both. What a text widget cannot hold stays lost: a carriage return and U+2029 become line breaks,
    and a lone surrogate vanishes. Text beyond `EDITABLE` characters is held aside whole and only its beginning shown.
    """

    run_requested = Signal()
    written_changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._held: str | None = None
        self.setTabChangesFocus(True)
        self.textChanged.connect(self.written_changed)

    @property
    def held(self) -> bool:
        """True while the text is too long to be edited here."""
        return self._held is not None

    def written(self) -> str:
        if self._held is not None:
            return self._held
        return self.document().toRawText().replace("\u2029", "\n")

    def write(self, text: str) -> None:
        """Puts a text in place of what is there. Unlike setPlainText it can be undone."""
        self._held = text if len(text) > EDITABLE else None
        self.setReadOnly(self.held)
        shown = text if self._held is None else text[:SHOWN] + "…"
        if self.held:
            self.setPlainText(shown)  # nothing to undo: the text is not edited
            return
        cursor = self.textCursor()
        cursor.beginEditBlock()
        cursor.select(cursor.SelectionType.Document)
        cursor.insertText(shown)
        cursor.endEditBlock()
        self.setTextCursor(cursor)

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        """A file dropped here is for the window, which opens it."""
        return not any(url.isLocalFile() for url in source.urls()) and super().canInsertFromMimeData(source)

    def insertFromMimeData(self, source: QMimeData) -> None:
        text = source.text()
        if self.held:
            return
        cursor = self.textCursor()
        if len(text) + self.document().characterCount() <= EDITABLE:
            super().insertFromMimeData(source)
            return
        before = self.document().toRawText().replace("\u2029", "\n")
        # The cursor counts UTF-16 units, Python counts characters (THR-24).
        units = before.encode("utf-16-le", "surrogatepass")
        start, end = cursor.selectionStart() * 2, cursor.selectionEnd() * 2
        head = units[:start].decode("utf-16-le", "surrogatepass")
        tail = units[end:].decode("utf-16-le", "surrogatepass")
        self.write(head + text.replace("\r\n", "\n") + tail)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            if event.modifiers() & Qt.KeyboardModifier.ControlModifier:
                self.run_requested.emit()
                return
            if event.modifiers() & Qt.KeyboardModifier.ShiftModifier and not self.held:
                self.textCursor().insertText("\n")  # Qt would write U+2028, which no model expects
                return
        super().keyPressEvent(event)
