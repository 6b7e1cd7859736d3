"""The page of forks: the tree of the store's runs, and the shown run's text below it."""

from __future__ import annotations

from PySide6.QtCore import QPoint, Qt, Signal, Slot
from PySide6.QtGui import QAction, QKeySequence, QShowEvent
from PySide6.QtWidgets import QMenu, QSplitter, QToolButton, QVBoxLayout, QWidget

from engine.settings import CompareWish, PruneWish, RenameWish
from widgets import theme
from widgets.format import count_text
from widgets.lab.fork_tree import ForkTree
from widgets.panel import Panel
from widgets.run_store import RunStore
from widgets.text_canvas import TextCanvas

MOST_COMPARED = 8


class _Text(TextCanvas):
    """Lays nothing out while it is not seen."""

    def refresh(self) -> None:
        if self.isVisible():
            super().refresh()

    def _selection_changed(self) -> None:
        if self.isVisible():
            super()._selection_changed()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()
        self._selection_changed()


class ForksPage(QWidget):
    """Asks for CompareWish, PruneWish and RenameWish."""

    asked = Signal(object)

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.store = store
        self.tree = ForkTree(store)
        self.panel = Panel("")
        self.panel.set_title(self.tr("Forks: texts that grew out of one another"), self.tr("Forks"))
        self.panel.show_focus_of(self.tree)
        self.setFocusProxy(self.tree)
        self.panel.body.addWidget(self.tree, 1)
        self.compare_button = self._button(
            self.tr("Compare"),
            self.tr(
                "Show the marked texts side by side (C). Mark several with Ctrl, Shift or Space; while Ctrl is held, "
                "arrows mark none on their way."
            ),
        )
        self.compare_button.clicked.connect(self.compare)
        self.rename_button = self._button(self.tr("Rename"), self.tr("Give the text a name (F2)"))
        self.rename_button.clicked.connect(self.tree.rename)
        self.prune_button = self._button(
            self.tr("Prune"),
            self.tr("Take the marked texts, and what grew out of them, off the tree (Delete). Their files stay."),
        )
        self.prune_button.clicked.connect(self.prune)
        self.tree.compare_asked.connect(self.compare)
        self.tree.prune_asked.connect(self.prune)
        self.tree.renamed.connect(self._renamed)
        self.tree.marks_changed.connect(self._show_state)
        self.tree.menu_asked.connect(self._show_menu)

        self.canvas = _Text(store)
        below = Panel(self.tr("Text of the shown run"))
        below.show_focus_of(self.canvas)
        below.body.addWidget(self.canvas, 1)
        self.splitter = QSplitter(Qt.Orientation.Vertical)
        self.splitter.setChildrenCollapsible(False)
        self.splitter.addWidget(self.panel)
        self.splitter.addWidget(below)
        self.splitter.setStretchFactor(0, 1)
        self.splitter.setSizes([520, 160])
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self.splitter)
        self._undo: list[QAction] = []
        store.runs_changed.connect(self.refresh)
        theme.changes.changed.connect(self._show_state)
        self.refresh()

    def _button(self, text: str, tooltip: str) -> QToolButton:
        return self.panel.add_button(text, "", tooltip)

    def set_undo(self, actions: list[QAction]) -> None:
        """Undo and redo, as buttons and in the menu."""
        self._undo = actions
        for action in actions:
            button = QToolButton()
            button.setDefaultAction(action)
            button.setAccessibleName(action.text())
            self.panel.header.addWidget(button)

    @Slot()
    def refresh(self) -> None:
        self.tree.refresh()
        self._show_state()

    def _show_state(self) -> None:
        marked = len(self.tree.marked)
        self.compare_button.setEnabled(2 <= marked <= MOST_COMPARED)
        self.prune_button.setEnabled(marked > 0)
        self.rename_button.setEnabled(self.tree.cursor is not None)
        forks = sum(row.parent is not None for row in self.tree.rows)
        runs = len(self.tree.rows)
        short = (
            self.tr("{runs} texts").format(runs=count_text(runs)) if runs > 1 else self.tr("one text") if runs else ""
        )
        text = short
        if runs > 1:
            text = self.tr("texts: {runs}, of them forks: {forks}").format(
                runs=count_text(runs), forks=count_text(forks)
            )
        if marked > 1:
            text += " · " + self.tr("{count} marked").format(count=count_text(marked))
        self.panel.set_remark(text, "", short)

    @Slot()
    def compare(self) -> None:
        if 2 <= len(self.tree.marked) <= MOST_COMPARED:
            self.asked.emit(CompareWish(tuple(self.tree.marked)))

    @Slot()
    def prune(self) -> None:
        if self.tree.marked:
            self.asked.emit(PruneWish(tuple(self.tree.marked)))

    @Slot(object, object)
    def _renamed(self, key: object, name: object) -> None:
        self.asked.emit(RenameWish(key, str(name)))  # type: ignore[arg-type]

    @Slot(object)
    def _show_menu(self, at: QPoint) -> None:
        menu = self.menu()
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(at)

    def menu(self) -> QMenu:
        """What can be done with what is marked."""
        menu = QMenu(self)
        for text, key, slot, button in (
            (self.tr("Compare the marked texts"), "C", self.compare, self.compare_button),
            (self.tr("Rename…"), "F2", self.tree.rename, self.rename_button),
            (self.tr("Prune"), "Del", self.prune, self.prune_button),
        ):
            act = menu.addAction(text)
            act.setShortcut(QKeySequence(key))
            act.setEnabled(button.isEnabled())
            act.triggered.connect(slot)
        menu.addSeparator()
        menu.addActions(self._undo)
        return menu
