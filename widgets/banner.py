"""One line above the text for what a person must know: an error with its way out, or a note. Never a dialog."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QCoreApplication, Qt, Slot
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton, QSizePolicy, QToolButton, QWidget

from engine.events import EngineError
from widgets import theme
from widgets.panel import PlainLabel


class Banner(QFrame):
    """Hidden until something is said; stays until it is dismissed or something else is said."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("panel", True)
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._error = self._waits = False
        self._act: Callable[[], object] | None = None
        self._text = PlainLabel()
        self._text.setWordWrap(True)
        self._text.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self._text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._button = QPushButton()
        self._button.clicked.connect(self._do)
        self._close = QToolButton()
        self._close.setText("×")
        self._close.setToolTip(self.tr("Dismiss"))
        self._close.setAccessibleName(self.tr("Dismiss"))
        self._close.clicked.connect(self.dismiss)
        row = QHBoxLayout(self)
        row.setContentsMargins(14, 8, 8, 8)
        row.addWidget(self._text, 1)
        row.addWidget(self._button)
        row.addWidget(self._close)
        theme.changes.changed.connect(self._recolour)
        self.hide()

    def show_error(self, error: EngineError, button: str = "", act: Callable[[], object] | None = None) -> None:
        """An error's sentence and its way out, with a button that does it where there is one."""
        self._show(sentence_of(error), True, button, act)

    def show_note(self, text: str, button: str = "", act: Callable[[], object] | None = None) -> None:
        self._show(text, False, button, act)

    def show_wait(self, text: str) -> None:
        """A note that is true only while the engine is at work."""
        self._show(text, False, "", None)
        self._waits = True

    @Slot(object)
    def busy_changed(self, busy: object) -> None:
        if not busy and self._waits:
            self.dismiss()

    @Slot()
    def dismiss(self) -> None:
        self.hide()

    @property
    def text(self) -> str:
        return self._text.text()

    def _show(self, text: str, error: bool, button: str, act: Callable[[], object] | None) -> None:
        self._error, self._act, self._waits = error, act, False
        self._text.setText(text)
        self.setAccessibleName(text)
        self._button.setText(button)
        self._button.setVisible(bool(button))
        self._recolour()
        self.show()

    @Slot()
    def _do(self) -> None:
        if self._act is not None:
            self._act()

    @Slot()
    def _recolour(self) -> None:
        self._text.setProperty("role", "warning" if self._error else "")
        self._text.style().unpolish(self._text)
        self._text.style().polish(self._text)


def translated(template: str, fields: tuple[tuple[str, str], ...]) -> str:
    """An engine's sentence in the window's language, its fields filled in. "" where there is no template."""
    if not template:
        return ""
    text = QCoreApplication.translate("errors", template)
    return text.format(**dict(fields)) if fields else text


def sentence_of(error: EngineError) -> str:
    """What went wrong and the way out, in the window's language."""
    what = translated(error.what_template, error.fields) or error.what
    fix = translated(error.fix_template, error.fields) or error.fix
    return f"{what} {fix}".strip()
