"""One line above the text while a long file is read or written: how far it is, and a way to stop it."""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer, Signal, Slot
from PySide6.QtWidgets import QFrame, QHBoxLayout, QProgressBar, QPushButton, QSizePolicy, QWidget

from widgets.panel import ElidedLabel

SHOWN_AFTER_MS = 200  # what is over before that was not long


class OpeningBar(QFrame):
    """Hidden unless something goes on."""

    cancel_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("panel", True)
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.label = ElidedLabel()
        self.label.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Preferred)
        self.bar = QProgressBar()
        self.bar.setTextVisible(False)
        self.bar.setRange(0, 1000)  # per mille: bytes would pass 32 bits
        self.cancel_button = QPushButton(self.tr("Cancel"))
        self.cancel_button.setToolTip(self.tr("Stops at once; what was shown before stays (Ctrl+.)"))
        self.cancel_button.clicked.connect(self.cancel_requested)
        row = QHBoxLayout(self)
        row.setContentsMargins(14, 8, 8, 8)
        row.setSpacing(12)
        row.addWidget(self.label, 2)
        row.addWidget(self.bar, 1)
        row.addWidget(self.cancel_button)
        self._soon = QTimer(self)
        self._soon.setSingleShot(True)
        self._soon.setInterval(SHOWN_AFTER_MS)
        self._soon.timeout.connect(self.show)
        self.hide()

    def begin(self, words: str) -> None:
        """Something begins that may become long."""
        self.bar.setRange(0, 0)
        self._tell(words)
        if not self.isVisible():
            self._soon.start()

    def show_progress(self, words: str, done: int, total: int) -> None:
        self.bar.setRange(0, 1000 if total else 0)
        if total:
            self.bar.setValue(min(1000, done * 1000 // total))
        self._tell(words)

    def _tell(self, words: str) -> None:
        self.label.setText(words)
        self.bar.setAccessibleName(words)

    @Slot()
    def end(self) -> None:
        self._soon.stop()
        self.hide()
