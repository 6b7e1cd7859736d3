"""The sweep page: a grid over one or two settings, its heat map, and the cell that is looked at."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QAction, QKeySequence, QShortcut
from PySide6.QtWidgets import QHBoxLayout, QMenu, QPushButton, QStackedWidget, QToolButton, QVBoxLayout, QWidget

from engine.events import FIGURES, EngineError, Sweep, SweepQuestion, SweepsQuestion
from widgets import theme
from widgets.banner import sentence_of
from widgets.boxes.page import to_clipboard
from widgets.choice import Choice
from widgets.format import count_text, plain_tooltip
from widgets.lab.experiment_bar import ExperimentBar
from widgets.lab.experiment_wishes import FindSweeps, GoOn, OpenRuns, StopExperiment
from widgets.lab.figure_words import figure_name, figure_tip, figure_unit, setting_name
from widgets.lab.heat_map import HeatMap
from widgets.lab.sweep_cell import CellPanel
from widgets.lab.sweep_form import FormState, SweepForm
from widgets.lab.sweep_map import cell_words, heat_map, table
from widgets.panel import Panel
from widgets.run_store import BUSY, RunStore
from widgets.small import EmptyText, SmallText

MOST_LANES = 8  # that are shown side by side
LISTED = 12


class SweepPage(QWidget):
    """`asked`: RunSweep, GoOn, FindSweeps, OpenRuns, StopExperiment."""

    asked = Signal(object)

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.store = store
        self.sweep: Sweep | None = None
        self.kept: tuple[Sweep, ...] = ()  # those in the folder of sweeps
        self._question: SweepQuestion | None = None  # that is worked on
        self._finding: SweepsQuestion | None = None
        self._drawn: tuple = ()
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(theme.GAP)
        column.addWidget(self._build_question())
        row = QHBoxLayout()
        row.setSpacing(theme.GAP)
        row.addWidget(self._build_map(), 3)
        self.cell = CellPanel()
        row.addWidget(self.cell, 1)
        column.addLayout(row, 1)
        self.cell.open_button.clicked.connect(self.open_run)
        self.cell.compare_button.clicked.connect(self.compare)
        self.cell.opened.connect(self.open_run)
        shortcut = QShortcut(QKeySequence("C"), self.map)
        shortcut.setContext(Qt.ShortcutContext.WidgetShortcut)
        shortcut.activated.connect(self.compare)
        self.show_sweep(None)

    def _build_question(self) -> Panel:
        panel = Panel(self.tr("Sweep"))
        self.form = SweepForm()
        self.bar = ExperimentBar(self.store, self.tr("Run the sweep"))
        self.go_on = QPushButton(self.tr("Go on"))
        self.go_on.clicked.connect(self.continue_shown)
        self.bar.row.insertWidget(2, self.go_on)
        self.bar.row.insertWidget(3, self.form.sum_label, 20)
        self.note = SmallText()
        panel.body.addWidget(self.form)
        panel.body.addWidget(self.bar)
        panel.body.addWidget(self.note)
        self.kept_button = panel.add_button(self.tr("kept sweeps") + " ▾", "", self.tr("Sweeps that were run before"))
        self.kept_button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.kept_menu = QMenu(self.kept_button)
        self.kept_menu.setToolTipsVisible(True)
        self.kept_menu.aboutToShow.connect(self._fill_kept)
        self.kept_menu.triggered.connect(self._open_kept)
        self.kept_button.setMenu(self.kept_menu)
        self.form.changed.connect(self.refresh)
        self.form.entered.connect(self.ask)
        self.bar.started.connect(self.ask)
        self.bar.stopped.connect(self.stop)
        self._question_panel = panel
        return panel

    def _build_map(self) -> Panel:
        panel = Panel("")
        panel.set_title(self.tr("What came of it"), self.tr("Outcome"))
        self.figure = Choice(self.tr("Figure"))
        for name in FIGURES:
            unit = figure_unit(name)
            self.figure.addItem(f"{figure_name(name)} ({unit})" if unit else figure_name(name), name)
        self.figure.setFixedWidth(theme.base_px() * 15)
        self.figure.activated.connect(self._figure_chosen)
        panel.header.addSpacing(4)
        panel.header.addWidget(self.figure)
        self.copy = panel.add_button(self.tr("copy"), "copy", self.tr("Copy the figures of all cells as a table"))
        self.copy.clicked.connect(self.copy_table)
        self.map = HeatMap()
        self.map.current_changed.connect(self._show_cell)
        self.map.chosen_changed.connect(self._show_cell)
        self.map.opened.connect(self.open_run)
        self.empty = EmptyText(
            self.tr(
                "One text tells little about a setting. A sweep runs the prompt with every combination of two "
                "settings, several seeds each, and colours what came of it: how surprised the model was, how much it "
                "repeats, how long it writes.\n\n"
                "Choose one or two settings and their values above, and press Run the sweep (Ctrl+Return). Every run "
                "is recorded; a cell opens it (Return). Arrow keys go from cell to cell, Space chooses several to "
                "compare as lanes (C). A sweep that is stopped, by hand or by closing the program, goes on later."
            )
        )
        self.memory = SmallText()
        self._stack = QStackedWidget()
        self._stack.addWidget(self.empty)
        self._stack.addWidget(self.map)
        panel.body.addWidget(self._stack, 1)
        panel.body.addWidget(self.memory)
        panel.show_focus_of(self.map)
        self._map_panel = panel
        return panel

    # ---------------------------------------------------------------- asking

    @Slot()
    def ask(self) -> None:
        """A new sweep of what the form says."""
        self.refresh()  # what came since the last frame
        if self.bar.ready and (wish := self.form.wish()) is not None:
            self.asked.emit(wish)

    def run_page(self, one_token: bool) -> None:
        """The window's Run, while this page is seen."""
        if not one_token:
            self.ask()

    @Slot()
    def continue_shown(self) -> None:
        if self.sweep is not None and not self.sweep.complete and self.go_on.isEnabled():
            self.bar.show_error("")
            self.asked.emit(GoOn(self.sweep.question))

    @Slot()
    def stop(self) -> None:
        self.asked.emit(StopExperiment())

    def state(self) -> dict[str, Any]:
        return asdict(self.form.state())

    def restore(self, values: dict[str, Any]) -> None:
        """What was asked when the window was last closed; values that make no sense change nothing."""
        self.form.restore(FormState.from_dict(values))

    def begun(self, question: SweepQuestion) -> None:
        """The window has asked the engine."""
        self._question, self.bar.asked = question, True
        if self.sweep is None or self.sweep.question != question:
            self.show_sweep(None)
        self.refresh()

    def finding(self, question: SweepsQuestion) -> None:
        self._finding = question

    @Slot()
    def open_run(self) -> None:
        """The run of the current cell whose seed is chosen takes the place of what is shown."""
        number = self.cell.chosen_run()
        if self.sweep is not None and number is not None:
            self.asked.emit(OpenRuns((self._file(number),)))

    @Slot()
    def compare(self) -> None:
        """The chosen cells' runs of one seed as lanes, or all seeds of the one cell."""
        if self.sweep is None:
            return
        numbers = self._compared()
        if len(numbers) > 1:
            self.asked.emit(OpenRuns(tuple(map(self._file, numbers))))

    def _compared(self) -> list[int]:
        assert self.sweep is not None
        sweep, seed = self.sweep, self.cell.chosen_seed()
        if len(self.map.chosen) > 1:
            numbers = [sweep.question.numbers(self._cell(place))[seed] for place in self.map.chosen]
        else:
            numbers = list(sweep.question.numbers(self._cell(self.map.current)))
        return [number for number in numbers if sweep.runs[number] is not None][:MOST_LANES]

    def _file(self, number: int) -> str:
        assert self.sweep is not None
        question = self.sweep.question
        return f"{question.folder}/{question.run(number).file}"

    # ---------------------------------------------------------------- showing

    @Slot()
    def refresh(self) -> None:
        """Reads the store: how far the sweep is, and what was answered."""
        self._take_answers()
        progress = self.store.experiment
        if progress is not None and progress.question == self._question and isinstance(progress.partial, Sweep):
            self._keep(progress.partial)
        self.bar.refresh(SweepQuestion, self.form.problem)
        shown = self.sweep
        broken_off = shown is not None and not shown.complete and not self.bar.working
        self.go_on.setVisible(broken_off)
        self.go_on.setEnabled(self.store.activity not in BUSY and self.store.facts is not None)
        if shown is not None and broken_off:
            self.go_on.setText(self.tr("Go on: {left} left").format(left=count_text(len(shown.runs) - shown.done)))
        self.form.setEnabled(not self.bar.working)
        note = "\n".join(shown.notes) if shown is not None else ""
        self.note.setText(note)
        self.note.setVisible(bool(note))

    def _take_answers(self) -> None:
        answers = self.store.inside.answers
        if self._question is not None and self._question in answers:
            answer, self._question = answers[self._question], None
            self.bar.asked = False
            if isinstance(answer, Sweep):
                self._keep(answer)
                self.asked.emit(FindSweeps())
            elif isinstance(answer, EngineError):
                self.bar.show_error(sentence_of(answer))
        if self._finding is not None and self._finding in answers:
            answer, self._finding = answers[self._finding], None
            if isinstance(answer, EngineError):
                self.bar.show_error(sentence_of(answer))
            elif isinstance(answer, tuple):
                self._found(answer)

    def _found(self, sweeps: tuple[Sweep, ...]) -> None:
        """What lies in the folder. One that stopped in the middle is offered where nothing is shown."""
        self.kept = sweeps
        shown = self.sweep
        for sweep in sweeps:  # one that went on while another page was seen, and whose answer is gone
            if shown is not None and sweep.question.folder == shown.question.folder and sweep.done > shown.done:
                self.show_sweep(sweep)
        if self.sweep is None and self._question is None and sweeps and not sweeps[0].complete:
            self.show_sweep(sweeps[0])

    def show_one(self, sweep: Sweep) -> None:
        """A sweep that was chosen: shown, and the form says what it asked."""
        self.show_sweep(sweep)
        question = sweep.question
        self.form.show_axes(question.axes, question.seeds, question.asked.max_new_tokens, question.batch)
        self.map.setFocus()

    def _keep(self, sweep: Sweep) -> None:
        if sweep is not self.sweep:
            self.show_sweep(sweep)

    def show_sweep(self, sweep: Sweep | None) -> None:
        self.sweep = sweep
        self._stack.setCurrentIndex(0 if sweep is None else 1)
        self._draw()
        for button in (self.copy, self.figure):
            button.setEnabled(sweep is not None)
        memory = ""
        if sweep is not None and len(sweep.batches) > 1:
            first, last = sweep.batches[0].process_bytes, sweep.batches[-1].process_bytes
            memory = self.tr("Memory of the program after the first batch {first}, after the newest {last} (measured).")
            memory = memory.format(first=_megabytes(first), last=_megabytes(last))
        self.memory.setText(memory)
        self.memory.setToolTip(
            self.tr("Without the weights' pages, which are mapped from their file and come in as words are first used.")
        )
        self.memory.setVisible(bool(memory))

    @Slot()
    def _figure_chosen(self) -> None:
        self._draw()

    def _draw(self) -> None:
        figure, sweep = self.figure.currentData(), self.sweep
        self.figure.setToolTip(figure_tip(figure))
        self.map.set_data(None if sweep is None else heat_map(sweep, figure))
        if sweep is None:
            self._map_panel.set_remark("")
        else:
            remark = self.tr("{done} of {all} runs").format(
                done=count_text(sweep.done), all=count_text(len(sweep.runs))
            )
            prompt = sweep.question.asked.prompt
            self._map_panel.set_remark(f"{sweep.model} · {remark}", plain_tooltip(sweep.question.folder), remark)
            self.map.setAccessibleName(
                self.tr("Heat map of {figure}").format(figure=figure_name(figure)) + f": {prompt}"
            )
        self._show_cell()

    @Slot()
    def _show_cell(self) -> None:
        sweep = self.sweep
        if sweep is None:
            self.cell.show_cell(None, (0, 0), "", 0)
            return
        cell = self._cell(self.map.current)
        self.cell.show_cell(sweep, cell, cell_words(sweep.question, cell), len(self.map.chosen))
        self.cell.compare_button.setEnabled(len(self._compared()) > 1)

    def _cell(self, place: tuple[int, int]) -> tuple[int, int]:
        """The cell of the question at a place of the map: one axis alone lies across."""
        assert self.sweep is not None
        return (place[1], 0) if len(self.sweep.question.axes) == 1 else place

    # ---------------------------------------------------------------- kept ones

    @Slot()
    def _fill_kept(self) -> None:
        self.kept_menu.clear()
        for at, sweep in enumerate(self.kept[:LISTED]):
            axes = " × ".join(setting_name(axis.name) for axis in sweep.question.axes)
            words = self.tr("{begun}: {axes}, {done} of {all} runs").format(
                begun=sweep.begun[:16].replace("T", " "), axes=axes, done=sweep.done, all=len(sweep.runs)
            )
            action = self.kept_menu.addAction(words.replace("&", "&&"))
            action.setData(at)
            action.setEnabled(not self.bar.working)  # the one that is run is shown
        if not self.kept:
            self.kept_menu.addAction(self.tr("None yet")).setEnabled(False)
        self.kept_menu.addSeparator()
        self.kept_menu.addAction(self.tr("Open a folder…")).setData("folder")

    @Slot(QAction)
    def _open_kept(self, action: QAction) -> None:
        if action.data() == "folder":
            self.asked.emit(FindSweeps(choose=True))
        elif isinstance(action.data(), int) and action.data() < len(self.kept):
            self.show_one(self.kept[action.data()])

    @Slot()
    def copy_table(self) -> None:
        """All cells with the means and spreads of all figures, for a spreadsheet."""
        if self.sweep is not None:
            to_clipboard(table(self.sweep))


def _megabytes(count: int) -> str:
    """Fine enough to see a growth."""
    return f"{count_text(round(count / 1e6))} MB"
