"""What lanes wrote, side by side: a column for each over the table of the words where they part."""

from __future__ import annotations

from PySide6.QtCore import QElapsedTimer, Qt, QTimer, Signal, Slot
from PySide6.QtWidgets import QSplitter, QWidget

from widgets.lab.lane_column import LaneColumn
from widgets.lab.lane_grid import LaneGrid
from widgets.lab.lane_runs import LaneRuns
from widgets.lab.lane_set import LEAST, LaneSet
from widgets.lab.parting import LaneWatch, parting_rows
from widgets.lab.parting_table import PartingTable
from widgets.run_store import RunStore

WORDS_EVERY_MS = 250


class LaneTexts(QSplitter):
    """`show_lanes` says what is set up, `take_in` that something may have been written; acts at a column go out."""

    acted = Signal(object)  # LaneAct
    words_written = Signal()  # those below the texts, now and then

    def __init__(self, store: RunStore, lanes: LaneSet, runs: LaneRuns, parent: QWidget | None = None) -> None:
        super().__init__(Qt.Orientation.Vertical, parent)
        self.store = store
        self.columns: dict[int, LaneColumn] = {}  # by the lanes' keys
        self._lanes = lanes
        self._runs = runs
        self._parted: object = None
        self._text_size = 0
        self._since = QElapsedTimer()  # the words below the texts were written
        self._later = QTimer(self)  # the last words of a run, when no frame comes any more
        self._later.setSingleShot(True)
        self._later.setInterval(WORDS_EVERY_MS)
        self._later.timeout.connect(self.write_words)
        self.grid = LaneGrid(LaneColumn.least_size())
        self.table = PartingTable()
        self.setChildrenCollapsible(False)
        self.addWidget(self.grid)
        self.addWidget(self.table)
        self.setStretchFactor(0, 1)
        self.setSizes([420, 150])
        self.table.view.picked.connect(self._picked)
        self.show_lanes(lanes)

    @property
    def watches(self) -> list[LaneWatch | None]:
        """What each lane wrote beside the reference, from left to right."""
        return [self.columns[lane.key].watch for lane in self._lanes.lanes]

    def show_lanes(self, lanes: LaneSet) -> None:
        self._lanes = lanes
        for lane in lanes.lanes:
            if lane.key not in self.columns:
                column = LaneColumn(self.store, lane.key)
                column.acted.connect(self.acted)
                column.set_text_size(self._text_size)
                self.columns[lane.key] = column
        here = [self.columns[lane.key] for lane in lanes.lanes]
        self.grid.set_columns(here)
        for key in [key for key, column in self.columns.items() if column not in here]:
            # Its run is known by the lane's key: when the lane comes back, it is shown by another column.
            column = self.columns.pop(key)
            column.hide()
            column.deleteLater()
        for column in here:
            column.show_lane(lanes, len(lanes.lanes) > LEAST)
        self._bind()

    def commit(self) -> None:
        """Takes names that are half typed."""
        for column in self.columns.values():
            column.commit()

    def set_text_size(self, step: int) -> None:
        """As TextView.set_size_step."""
        self._text_size = step
        for column in self.columns.values():
            column.set_text_size(step)

    # ---------------------------------------------------------------- what was written

    def _bind(self) -> None:
        """Gives each lane its run, beside the reference's."""
        reference = self._runs.of(self._lanes.reference)
        for lane in self._lanes.lanes:
            column, run = self.columns[lane.key], self._runs.of(lane.key)
            watch = column.watch
            beside = None if reference is run else reference
            if run is None:
                if watch is not None or column.source.run is not None:
                    column.show_run(None)
            elif watch is None or watch.run is not run or watch.reference is not beside:
                column.show_run(LaneWatch(run, beside))
        self._parted = None
        self._show_table()

    def take_in(self) -> None:
        """Reads what was written since."""
        lanes = self._lanes.lanes
        if any(self._runs.of(lane.key) is not self.columns[lane.key].source.run for lane in lanes):
            self._bind()
        moved = [self.columns[lane.key].take_in() for lane in lanes]
        if any(moved):
            self._show_table()
            if not self._since.isValid() or self._since.elapsed() >= WORDS_EVERY_MS:
                self.write_words()
            elif not self._later.isActive():
                self._later.start()

    @Slot()
    def write_words(self) -> None:
        self._since.start()
        for lane in self._lanes.lanes:
            self.columns[lane.key].write_words()
        self.words_written.emit()

    def _show_table(self) -> None:
        lanes, watches = self._lanes, self.watches
        steps = {watch.parting.step for watch in watches if watch is not None and watch.parting is not None}
        parted = [
            None if watch is None else (watch.run.key, watch.parting, [step < len(watch.run.tokens) for step in steps])
            for watch in watches
        ]
        if parted != self._parted:
            self._parted = parted
            letters = tuple(lane.letter for lane in lanes.lanes)
            self.table.show_rows(parting_rows(watches, lanes.place(lanes.reference)), letters)

    @Slot(object, object)
    def _picked(self, step: int, lane: int) -> None:
        """A word of the table: selected in its lane."""
        column = self.columns[self._lanes.lanes[lane].key]
        if column.source.run is not None and step < len(column.source.run.tokens):
            column.source.select(step)
            self.grid.bring(column)
