"""Which run is shown: a small list in the text's header, there as soon as the store holds several."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QWidget

from widgets import theme
from widgets.choice import Choice
from widgets.format import plain_tooltip
from widgets.run_names import run_name, run_words
from widgets.run_store import RunStore

WIDEST, LEAST = 220, 76  # pixels


class RunChooser(Choice):
    """Lists the store's runs, the newest last; another choice is shown by all views."""

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__("", parent)
        self.setAccessibleName(self.tr("Shown run"))
        self.store = store
        self._known: list[tuple[tuple[int, int], str, str]] | None = None
        self._wanted = LEAST
        self.activated.connect(self._chosen)
        store.frame.connect(self.refresh)
        store.selection_changed.connect(self.refresh)
        store.runs_changed.connect(self.refresh)
        theme.changes.changed.connect(self._restyle)
        self._restyle()
        self.refresh()

    def _restyle(self) -> None:
        self.setFont(theme.font(-1))

    def sizeHint(self) -> QSize:
        return QSize(self._wanted, super().sizeHint().height())

    def refresh(self) -> None:
        """Reads the store again; cheap where no run came or went."""
        runs = self.store.runs
        known = [(run.key, run.start.name, self.store.letter(run)) for run in runs]
        if known != self._known:
            self._known = known
            self.clear()
            for run in runs:
                self.addItem(run_name(self.store, run))
                tip = plain_tooltip(run_words(self.store, run))
                self.setItemData(self.count() - 1, tip, Qt.ItemDataRole.ToolTipRole)
            self.setVisible(len(runs) > 1)
            width = max(
                (self.fontMetrics().horizontalAdvance(self.itemText(i)) for i in range(self.count())), default=0
            )
            # Long names give way where the window is small: what does not fit ends in an ellipsis.
            self.setMinimumWidth(min(LEAST, width + 44))
            self._wanted = min(WIDEST, width + 44)
            self.setMaximumWidth(self._wanted)
            self.updateGeometry()
        current = self.store.current
        if current in runs and self.currentIndex() != (at := runs.index(current)):
            self.setCurrentIndex(at)
            self.setToolTip(plain_tooltip(run_words(self.store, current)))

    def _chosen(self, at: int) -> None:
        if 0 <= at < len(self.store.runs) and self.store.runs[at] is not self.store.current:
            self.store.show(self.store.runs[at])

    def step(self, by: int) -> None:
        """Shows the next run or the one before."""
        runs = self.store.runs
        if self.store.current in runs and 0 <= (at := runs.index(self.store.current) + by) < len(runs):
            self.store.show(runs[at])
