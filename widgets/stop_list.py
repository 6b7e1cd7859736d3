"""The stop strings: one row each, with escapes shown, and a line to add one."""

from __future__ import annotations

import re

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from widgets.format import plain_tooltip, visible
from widgets.panel import ElidedLabel, icon_button
from widgets.small import SmallText

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}


def unescaped(text: str) -> str:
    r"""What is meant by \n, \t, \r and \\ in a typed line; other backslashes stay."""
    return re.sub(r"\\([ntr\\])", lambda match: _ESCAPES[match[1]], text)


def escaped(text: str) -> str:
    r"""A stop string as it is typed on one line."""
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return "".join(visible(character) for character in text)


def spelled(text: str) -> str:
    """The same to be read only: spaces at its ends are seen, as in tokens."""
    inner = text.strip(" ")
    lead = len(text) - len(text.lstrip(" "))
    return "·" * lead + escaped(inner) + "·" * (len(text) - lead - len(inner))


class StopList(QWidget):
    """Stop strings in the order in which they were given."""

    changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._strings: list[str] = []
        self.line = QLineEdit()
        self.line.setPlaceholderText(self.tr("add a stop string, Enter"))
        self.line.setAccessibleName(self.tr("Stop string to add"))
        self.line.setToolTip(
            self.tr(
                "The run ends where this text is written; it is cut off and never shown. Only written text is "
                "searched.\n\\n is a line break, \\t a tab, \\\\ a backslash."
            )
        )
        self.problem = SmallText("", "warning")
        self.problem.hide()
        self._rows = QVBoxLayout()
        self._rows.setSpacing(2)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addLayout(self._rows)
        column.addWidget(self.line)
        column.addWidget(self.problem)
        self.line.returnPressed.connect(self.add_typed)
        self.line.textEdited.connect(self.problem.hide)

    def strings(self) -> tuple[str, ...]:
        return tuple(self._strings)

    def set_strings(self, strings: tuple[str, ...]) -> None:
        self._strings = [text for text in dict.fromkeys(strings) if text]
        self._show()

    def add_typed(self) -> None:
        """Takes the typed line as a stop string, or says why not."""
        text = unescaped(self.line.text())
        if not text:
            self.problem.setText(
                self.tr("An empty stop string would stop everywhere: write the text at which to stop.")
            )
            self.problem.show()
            return
        if text in self._strings:
            self.problem.setText(self.tr("This stop string is in the list already."))
            self.problem.show()
            return
        self._strings.append(text)
        self.line.clear()
        self._show()
        self.changed.emit()

    def _show(self) -> None:
        while item := self._rows.takeAt(0):
            if widget := item.widget():
                widget.hide()
                widget.deleteLater()
        for text in self._strings:
            row = _StopRow(text, self)
            row.removed.connect(self._remove)
            self._rows.addWidget(row)

    def _remove(self, text: object) -> None:
        self._strings.remove(str(text))
        self._show()
        self.line.setFocus()
        self.changed.emit()


class _StopRow(QWidget):
    removed = Signal(object)  # str: a typed signal loses lone surrogates (THR-22)

    def __init__(self, text: str, parent: QWidget) -> None:
        super().__init__(parent)
        self._text = text
        label = ElidedLabel(spelled(text))
        label.setToolTip(plain_tooltip(spelled(text)))
        name = self.tr("remove {text}").format(text=spelled(text))
        button = icon_button("close", name, self.tr("Remove this stop string"), size=12)
        button.clicked.connect(self._remove)
        row = QHBoxLayout(self)
        row.setContentsMargins(4, 0, 0, 0)
        row.addWidget(label, 1)
        row.addWidget(button)

    def _remove(self) -> None:
        self.removed.emit(self._text)
