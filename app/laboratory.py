"""The laboratory in the window: which page stands in the centre, and where what it asks for goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QCoreApplication, QObject, QSize, Qt, Signal, Slot
from PySide6.QtWidgets import QSizePolicy, QStackedWidget, QWidget

from widgets.lab import PAGES, LabPage
from widgets.lab.tabs import Tabs

if TYPE_CHECKING:
    from app.main_window import MainWindow

SIDES = (Qt.DockWidgetArea.LeftDockWidgetArea, Qt.DockWidgetArea.RightDockWidgetArea)
TEXT = "text"  # the page that is not of the laboratory


def tr(text: str) -> str:
    return QCoreApplication.translate("Laboratory", text)


class Laboratory(QObject):
    """Owns the centre's pages. `text` is the page that the window begins with."""

    page_changed = Signal(object)
    page_made = Signal(object, object)  # its name, the page

    def __init__(self, window: MainWindow, text: QWidget) -> None:
        super().__init__(window)
        self._window = window
        self.pages: dict[str, QWidget] = {TEXT: text}
        self.stack = QStackedWidget()
        self.stack.addWidget(text)
        self.tabs = Tabs([(TEXT, tr("Text"), "")] + [(p.name, tr(p.title), tr(p.hint)) for p in PAGES])
        self.tabs.chosen.connect(self.show)
        self.tabs.setVisible(bool(PAGES))
        self.current = TEXT
        self._routes: dict[type, Callable[[Any], object]] = {}
        self._hidden: set[str] = set()  # docks that were hidden for a page and come back with the text
        self._sizes: dict[str, QSize] = {}  # of docks, as they were hidden
        window.store.frame.connect(self.refresh)

    def route(self, kind: type, act: Callable[[Any], object]) -> None:
        """Objects of this kind that pages ask for go to `act`."""
        self._routes[kind] = act

    @Slot(object)
    def asked(self, wish: object) -> None:
        self._routes[type(wish)](wish)

    def page(self, name: str) -> QWidget:
        """The page, made when it is first asked for."""
        if name not in self.pages:
            page = _named(name).factory(self._window.store)
            page.asked.connect(self.asked)
            self.pages[name] = page
            self.stack.addWidget(page)
            self.page_made.emit(name, page)
        return self.pages[name]

    @Slot(object)
    def show(self, name: object) -> None:
        """Puts a page into the centre; docks that it does not want beside it hide until the text comes back."""
        name = str(name)
        if name == self.current:
            return
        docks, keeps, page = self._window.docks, self._keeps(name), self.page(name)
        for each in self.pages.values():  # a page that is not seen asks for no room
            seen = QSizePolicy.Policy.Preferred if each is page else QSizePolicy.Policy.Ignored
            each.setSizePolicy(seen, seen)
        back = [dock for dock in docks if dock in self._hidden & keeps]
        for dock in back:
            docks[dock].show()
        self._hidden -= keeps
        self.current = name
        self.put_away()
        self.stack.setCurrentWidget(page)
        self._size_again(back)
        self.tabs.choose(name)
        self.refresh()
        self.page_changed.emit(name)

    def _keeps(self, name: str) -> set[str]:
        """The docks that stand beside a page."""
        return set(self._window.docks) if name == TEXT else set(_named(name).keeps)

    def put_away(self) -> None:
        """Hides the docks that the page does not want beside it, until the text comes back."""
        docks = self._window.docks
        away = [dock for dock in docks if dock not in self._keeps(self.current)]
        away = [dock for dock in away if docks[dock].isVisibleTo(self._window)]
        self._sizes |= {dock: docks[dock].size() for dock in away}
        for dock in away:
            docks[dock].hide()
            self._hidden.add(dock)

    def _size_again(self, names: list[str]) -> None:
        """As large as they were: a window that was made smaller meanwhile has forgotten it."""
        window = self._window
        window.layout().activate()  # what was shown just now has its place
        for at_side in (True, False):
            here = [name for name in names if (window.dockWidgetArea(window.docks[name]) in SIDES) == at_side]
            docks = [window.docks[name] for name in here]
            if docks:
                window.resizeDocks(docks, [self._sizes[name].width() for name in here], Qt.Orientation.Horizontal)
                window.resizeDocks(docks, [self._sizes[name].height() for name in here], Qt.Orientation.Vertical)

    @Slot()
    def show_text(self) -> None:
        self.show(TEXT)

    @Slot()
    def refresh(self) -> None:
        if self.current != TEXT:
            self.pages[self.current].refresh()  # type: ignore[attr-defined]


def _named(name: str) -> LabPage:
    return next(page for page in PAGES if page.name == name)
