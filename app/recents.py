"""The menu of recent runs: those that were recorded or opened last."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, Slot
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu

if TYPE_CHECKING:
    from app.main_window import MainWindow

KEPT = 10
WIDEST = 420  # pixels of a name in the menu


class Recents(QObject):
    """The names are in the preferences. open_file: what a choice does."""

    def __init__(self, window: MainWindow, open_file: Callable[[Path], object]) -> None:
        super().__init__(window)
        self.window = window
        self._open_file = open_file

    def remember(self, path: Path) -> None:
        """Puts a file first."""
        name, names = str(path.absolute()), self.window.preferences.recent_files
        self.window.preferences.recent_files = [name, *(each for each in names if each != name)][:KEPT]

    @Slot()
    def fill(self) -> None:
        """By name, with the folder where two share one; those that are gone are marked."""
        menu: QMenu = self.window.recent_menu  # type: ignore[attr-defined]  build_menus puts it there
        paths = [Path(name) for name in self.window.preferences.recent_files]
        menu.clear()
        menu.setToolTipsVisible(True)
        gone = [path for path in paths if not path.exists()]
        for path in paths:
            name = path.stem if sum(each.stem == path.stem for each in paths) == 1 else f"{path.stem} ({path.parent})"
            if path in gone:
                name = self.tr("{name}: not there any more").format(name=name)
            name = menu.fontMetrics().elidedText(name, Qt.TextElideMode.ElideMiddle, WIDEST)
            action = menu.addAction(name.replace("&", "&&"))
            action.setToolTip(str(path))
            action.setData(str(path))
            action.setEnabled(path not in gone)
        if not paths:
            menu.addAction(self.tr("None yet")).setEnabled(False)
            return
        menu.addSeparator()
        if gone:
            menu.addAction(self.tr("Forget those that are not there"), self.forget_gone)
        menu.addAction(self.tr("Clear this list"), self.forget_all)

    @Slot()
    def forget_gone(self) -> None:
        names = self.window.preferences.recent_files
        self.window.preferences.recent_files = [name for name in names if Path(name).exists()]

    @Slot()
    def forget_all(self) -> None:
        """The list only; the files stay."""
        self.window.preferences.recent_files = []

    @Slot(QAction)
    def choose(self, action: QAction) -> None:
        if action.data():
            self._open_file(Path(action.data()))
