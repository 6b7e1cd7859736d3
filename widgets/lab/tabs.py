"""The quiet row above the window's centre: text, and the laboratory's pages."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QTabBar, QWidget


class Tabs(QTabBar):
    """One tab for each (name, title, tooltip). `chosen` says the name that a person chose."""

    chosen = Signal(object)

    def __init__(self, pages: Iterable[tuple[str, str, str]], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setDrawBase(False)
        self.setExpanding(False)
        self.setUsesScrollButtons(True)
        self.setElideMode(Qt.TextElideMode.ElideNone)
        self.setAccessibleName(self.tr("Pages of the laboratory"))
        for name, title, hint in pages:
            at = self.addTab(title)
            self.setTabData(at, name)
            self.setTabToolTip(at, hint)
        self.currentChanged.connect(self._changed)

    def choose(self, name: str) -> None:
        """Shows which page stands there; says nothing."""
        for at in range(self.count()):
            if self.tabData(at) == name:
                self.blockSignals(True)
                self.setCurrentIndex(at)
                self.blockSignals(False)

    @Slot(int)
    def _changed(self, at: int) -> None:
        self.chosen.emit(self.tabData(at))
