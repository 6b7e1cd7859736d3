"""The quiet row above the window's centre: text, and the laboratory's pages."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QEvent, QSize, Qt, Signal, Slot
from PySide6.QtGui import QAction, QResizeEvent
from PySide6.QtWidgets import QMenu, QTabBar, QToolButton, QWidget


class Tabs(QTabBar):
    """One tab for each (name, title, tooltip). `chosen` says the name that a person chose.

    Those that find no room wait in a menu at the end of the row, so that no title is cut; the chosen one never does.
    """

    chosen = Signal(object)

    def __init__(self, pages: Iterable[tuple[str, str, str]], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setDrawBase(False)
        self.setExpanding(False)
        self.setUsesScrollButtons(False)
        self.setElideMode(Qt.TextElideMode.ElideNone)
        self.setAccessibleName(self.tr("Pages of the laboratory"))
        self.more = QToolButton(self)
        self.more.setText(self.tr("more") + " ▾")
        self.more.setToolTip(self.tr("Pages that find no room in this row"))
        self.more.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.menu = QMenu(self.more)
        self.menu.setToolTipsVisible(True)
        self.menu.triggered.connect(self._picked)
        self.more.setMenu(self.menu)
        self.more.hide()
        for name, title, hint in pages:
            at = self.addTab(title)
            self.setTabData(at, name)
            self.setTabToolTip(at, hint)
            self.menu.addAction(title.replace("&", "&&")).setToolTip(hint)
        self.currentChanged.connect(self._changed)

    def choose(self, name: str) -> None:
        """Shows which page stands there; says nothing."""
        for at in range(self.count()):
            if self.tabData(at) == name:
                self.blockSignals(True)
                self._fit(at)
                self.setCurrentIndex(at)
                self.blockSignals(False)

    def minimumSizeHint(self) -> QSize:
        return QSize(self.more.sizeHint().width(), super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._fit(self.currentIndex())  # first, or the row would scroll to the current one
        super().resizeEvent(event)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange) and self.count():
            self._fit(self.currentIndex())

    def _fit(self, chosen: int) -> None:
        """Puts into the menu what finds no room beside the chosen one, the last ones first."""
        widths = [self.tabSizeHint(at).width() for at in range(self.count())]
        shown = list(range(self.count()))
        if sum(widths) > self.width():
            room = self.width() - self.more.sizeHint().width()
            while len(shown) > 1 and sum(widths[at] for at in shown) > room:
                shown.remove(next(at for at in reversed(shown) if at != chosen))
        waiting = [at for at in range(self.count()) if at not in shown]
        before = self.blockSignals(True)
        for at in (*waiting, *shown):  # in this order there is never too much, or the row would scroll
            self.setTabVisible(at, at in shown)
        self.blockSignals(before)
        for at, action in enumerate(self.menu.actions()):
            action.setVisible(at in waiting)
        self.more.setVisible(bool(waiting))
        size = self.more.sizeHint()
        self.more.setGeometry(self.width() - size.width(), 0, size.width(), self.height())

    @Slot(QAction)
    def _picked(self, action: QAction) -> None:
        at = self.menu.actions().index(action)
        self._fit(at)
        self.setCurrentIndex(at)

    @Slot(int)
    def _changed(self, at: int) -> None:
        self._fit(at)
        self.chosen.emit(self.tabData(at))
