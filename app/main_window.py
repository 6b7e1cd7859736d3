"""The window: where the panels stand, the menus, and what each command does. Connections are in wiring.py."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import (
    QAction,
    QCloseEvent,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDropEvent,
    QKeySequence,
    QPaintEvent,
)
from PySide6.QtWidgets import (
    QApplication,
    QDockWidget,
    QFrame,
    QHBoxLayout,
    QMainWindow,
    QMessageBox,
    QSplitter,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app.drops import Drops
from app.engine_jobs import EstimateJob
from app.engine_thread import Engine
from app.experiments import Experiments
from app.exports import Exports
from app.filter_orders import FilterOrders
from app.forks import Forks
from app.futures import FuturesOfText
from app.laboratory import Laboratory
from app.lanes import Lanes
from app.menus import build_menus
from app.models import Models
from app.preferences import Preferences, read_preferences
from app.presets import Presets, presets_path
from app.redecisions import Redecisions
from app.remembering import remember, remember_plan, restore
from app.replays import Replays
from app.running import Running
from app.trust import Trust
from app.xray import Xrays
from engine.events import EngineError, Estimate, Loaded, PrefillProgress, RunEnd, TokenEvent
from engine.settings import KernelWish, LoadPlan
from widgets import theme
from widgets.banner import Banner
from widgets.box_view import BoxView
from widgets.model_chip import ModelChip
from widgets.model_panel import ModelPanel
from widgets.panel import scrolling
from widgets.pipeline_strip import PipelineStrip
from widgets.prompt_panel import PromptPanel
from widgets.run_store import RunStore
from widgets.sampling_panel import SamplingPanel
from widgets.status_line import StatusLine
from widgets.text_view import TextView
from widgets.timeline import Timeline
from widgets.word_view import WordView

LATEST_BEGIN_MS = 1000
WORD_BOXES = ("probabilities", "sample")  # boxes whose view is "why this word"


class MainWindow(QMainWindow):
    """note: a sentence to show at first. visit: nothing is remembered and runs go to this folder ("": nowhere)."""

    painted = Signal()  # for the first time: what takes long may begin

    def __init__(self, preferences: Preferences, note: str = "", visit: str | None = None) -> None:
        super().__init__()
        self.preferences = preferences
        self.visit = visit
        self.setWindowTitle("Glasswork")
        self.setAcceptDrops(True)
        self.setObjectName("glasswork")
        self.store = RunStore(self)
        self.engine = Engine(self)
        self.replays = Replays(self)
        self.models = Models(self)
        self.trust = Trust(self)
        self.xrays = Xrays(self)
        self.running = Running(self)
        self._painted = False
        self.first_replay: Path | None = None
        self._asked: LoadPlan | None = None  # remembered once it has loaded
        self._build()
        self.redecisions = Redecisions(self)
        self.drops = Drops(self)
        self.lanes = Lanes(self)
        self.forks = Forks(self)
        self.exports = Exports(self)
        self.presets = Presets(self, self.sampling_panel.presets, presets_path() if self.visit is None else None)
        self.experiments = Experiments(self)
        self.futures = FuturesOfText(self)
        self.filter_orders = FilterOrders(self)
        build_menus(self)
        from app.wiring import connect

        connect(self)
        restore(self)
        if note:
            self.banner.show_note(note)

    # ---------------------------------------------------------------- building

    def _build(self) -> None:
        self.chip = ModelChip(self.store)
        self.strip = PipelineStrip(self.store)
        self.banner = Banner()
        self.model_panel = ModelPanel(self.store)
        self.prompt_panel = PromptPanel(self.store)
        self.sampling_panel = SamplingPanel(self.store)
        self.text_view = TextView(self.store)
        self.timeline = Timeline(self.store)
        self.word_view = WordView(self.store)
        self.box_view = BoxView(self.store)
        self.status_line = StatusLine(self.store)
        self.plots: list[QWidget] = []

        top = QWidget()
        row = QHBoxLayout(top)
        row.setContentsMargins(0, 8, 0, 8)
        row.setSpacing(theme.GAP)
        row.addWidget(self.chip)
        row.addWidget(self.strip, 1)

        write = QWidget()
        column = QVBoxLayout(write)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(theme.GAP)
        column.addWidget(self.prompt_panel)
        column.addWidget(self.sampling_panel)
        column.addStretch(1)
        self.left = QStackedWidget()
        self.left.addWidget(scrolling(write))
        self.left.addWidget(scrolling(self.model_panel))
        self.right = QStackedWidget()
        self.right.addWidget(self.word_view)
        self.right.addWidget(self.box_view)

        middle = QSplitter(Qt.Orientation.Vertical)
        middle.setChildrenCollapsible(False)
        middle.addWidget(self.text_view)
        middle.addWidget(self.timeline)
        middle.setStretchFactor(0, 1)
        middle.setSizes([500, 110])
        centre = QWidget()
        column = QVBoxLayout(centre)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        column.addWidget(self.banner)
        column.addWidget(self.replays.bar)
        self.laboratory = Laboratory(self, middle)
        column.addWidget(self.laboratory.tabs)
        column.addWidget(self.laboratory.stack, 1)
        self.setCentralWidget(centre)
        self.setMenuWidget(self._header(top))
        self.setDockNestingEnabled(True)
        self.setCorner(Qt.Corner.BottomLeftCorner, Qt.DockWidgetArea.LeftDockWidgetArea)
        self.setCorner(Qt.Corner.BottomRightCorner, Qt.DockWidgetArea.BottomDockWidgetArea)

        self.docks = {
            "write": self._dock("write", self.tr("Model, prompt and sampling"), self.left, "Ctrl+1"),
            "word": self._dock("word", self.tr("Why this word"), self.right, "Ctrl+2"),
        }
        self.addDockWidget(Qt.DockWidgetArea.LeftDockWidgetArea, self.docks["write"])
        self.addDockWidget(Qt.DockWidgetArea.RightDockWidgetArea, self.docks["word"])
        self._plot_holders: dict[str, QVBoxLayout] = {}
        for number, (name, title) in enumerate(
            (("memory", self.tr("Memory")), ("kv_cache", self.tr("KV cache")), ("speed", self.tr("Speed"))), start=3
        ):
            holder = QWidget()
            self._plot_holders[name] = QVBoxLayout(holder)
            self._plot_holders[name].setContentsMargins(0, 0, 0, 0)
            self.docks[name] = self._dock(name, title, holder, f"Ctrl+{number}")
            self.addDockWidget(Qt.DockWidgetArea.BottomDockWidgetArea, self.docks[name])
        self.statusBar().addWidget(self.status_line, 1)
        self.statusBar().setSizeGripEnabled(False)
        self.setContentsMargins(theme.GAP, 0, theme.GAP, 4)
        self.setMinimumSize(QSize(900, 600))

    def _header(self, top: QWidget) -> QWidget:
        """Menu bar and top row in one widget, above the docks."""
        header = QWidget()
        column = QVBoxLayout(header)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        self.menus = self.menuBar()
        column.addWidget(self.menus)
        line = QFrame()
        line.setFrameShape(QFrame.Shape.HLine)
        line.setProperty("line", True)
        column.addWidget(top)
        return header

    def _dock(self, name: str, title: str, widget: QWidget, key: str) -> QDockWidget:
        dock = QDockWidget(title, self)
        dock.setObjectName(name)
        dock.setWidget(_framed(widget))
        dock.setTitleBarWidget(QWidget(dock))  # panels carry their own titles
        dock.setFeatures(QDockWidget.DockWidgetFeature.DockWidgetClosable)
        dock.toggleViewAction().setShortcut(QKeySequence(key))
        return dock

    @Slot()
    def build_plots(self) -> None:
        """pyqtgraph takes half a second to import, so plots come after the window shows."""
        if self.plots:
            return
        from widgets.plots.kv_cache import KvCachePlot
        from widgets.plots.memory import MemoryPlot
        from widgets.plots.speed import SpeedPlot

        for name, kind in (("memory", MemoryPlot), ("kv_cache", KvCachePlot), ("speed", SpeedPlot)):
            plot = kind(self.store)
            self.plots.append(plot)
            self._plot_holders[name].addWidget(plot)

    # ---------------------------------------------------------------- models

    @Slot()
    def show_model_panel(self) -> None:
        self.docks["write"].show()
        self.left.setCurrentIndex(1)
        self.model_panel.setFocus()

    @Slot()
    def toggle_model_panel(self) -> None:
        self.docks["write"].show()
        self.left.setCurrentIndex(0 if self.left.currentIndex() else 1)

    @Slot(object)
    def load(self, plan: LoadPlan) -> None:
        self._asked = plan
        self.banner.dismiss()
        self.engine.load(plan)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self._painted:
            QTimer.singleShot(0, self.say_painted)

    @Slot()
    def say_painted(self) -> None:
        if not self._painted:
            self._painted = True
            self.painted.emit()

    @Slot()
    def begin(self) -> None:
        """The first act: the replay that was asked for, or the last model."""
        if self.first_replay is None:
            self.start()
        else:
            self.build_plots()
            self.replays.open_file(self.first_replay)

    @Slot()
    def start(self) -> None:
        """What happens once the window is on the screen: the plots, the models that are here, the last model."""
        self.build_plots()
        self.models.refresh()
        preferences = self.preferences
        packing = self.model_panel.options.packing.fields()
        self.load(
            LoadPlan(
                preferences.model,
                preferences.precision or None,
                preferences.device_map,
                kernel=preferences.kernel or None,
                attention=preferences.attention or None,
                keep_windows=preferences.keep_windows,
                **packing,
            )
        )

    @Slot(object)
    def asked_by_box(self, question: object) -> None:
        """A box's question goes to the engine; a wish for another kernel is a load."""
        if not isinstance(question, KernelWish):
            self.engine.ask(question)
        elif (plan := self.engine.worker.loaded_plan) is not None:
            self.load(replace(plan, kernel=question.kernel, attention=question.attention))

    @Slot(object)
    def estimate(self, plan: LoadPlan) -> None:
        self.store.inside.choose(plan)
        self.engine.estimate(EstimateJob(plan, None))

    @Slot(object)
    def show_estimate(self, answer: Estimate | EngineError) -> None:
        self.model_panel.set_estimate(answer)

    @Slot(object)
    def engine_event(self, event: object) -> None:
        """What the store does not show by itself: errors, and which side of the left column is wanted."""
        if isinstance(event, (TokenEvent, PrefillProgress)):
            # Pressed before the prompt was read, or one token alone: the pause is only now.
            read = isinstance(event, TokenEvent) or event.done_tokens >= event.total_tokens
            if read and self.engine.paused and self.store.activity != "paused":
                self.store.set_activity("paused")
        elif isinstance(event, Loaded):
            if self._asked is not None:
                remember_plan(self.preferences, self._asked)
            self.left.setCurrentIndex(0)
            self.running.ask_preview()
        elif isinstance(event, EngineError) and event.during != "xray":  # that is told where it was asked
            self.banner.show_error(event)
            if event.during == "load":
                self.left.setCurrentIndex(1)
        elif isinstance(event, RunEnd) and event.reason == "error" and event.sentence:
            self.banner.show_error(EngineError(event.sentence, event.fix, 4, "run"))

    @Slot(object)
    def busy_changed(self, busy: object) -> None:
        if not busy:
            self.store.set_activity("idle")
            self.replays.open_what_waits()
            if self.store.facts is not None:
                self.running.ask_preview()  # a preview is not made while a run goes on
        elif busy == "load":
            self.store.set_activity("loading")
        elif busy == "xray":
            self.store.set_activity("x-ray")
        elif busy == "experiment":
            self.store.set_activity("experiment")

    @Slot()
    def previous_token(self) -> None:
        self.store.step_by(-1)

    @Slot()
    def next_token(self) -> None:
        self.store.step_by(1)

    @Slot()
    def follow(self) -> None:
        self.store.select(None)

    @Slot(object)
    def show_box(self, name: object) -> None:
        self.docks["word"].show()
        self.strip.set_opened(str(name))
        if name in WORD_BOXES:
            self.right.setCurrentWidget(self.word_view)
        else:
            self.box_view.show_box(str(name))
            self.right.setCurrentWidget(self.box_view)

    @Slot()
    def show_lab_page(self) -> None:
        """The page that the menu's act names."""
        act = self.sender()
        assert isinstance(act, QAction)
        self.laboratory.show(act.data())

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        self.drops.enter(event)

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        self.drops.hint.leave()

    def dropEvent(self, event: QDropEvent) -> None:
        self.drops.drop(event)

    # ---------------------------------------------------------------- looks

    @Slot(QAction)
    def choose_theme(self, action: QAction) -> None:
        self.preferences.theme = action.data()
        theme.set_mode(action.data())

    @Slot()
    def switch_theme(self) -> None:
        mode = "light" if theme.current().dark else "dark"
        for action in self.theme_actions.actions():
            action.setChecked(action.data() == mode)
        self.preferences.theme = mode
        theme.set_mode(mode)

    @Slot(bool)
    def keep_cache(self, on: bool) -> None:
        self.engine.keep_cache(on)
        self.preferences.keep_cache = on

    @Slot(bool)
    def set_motion(self, on: bool) -> None:
        theme.motion = on
        self.preferences.motion = on

    @Slot()
    def restore_layout(self) -> None:
        for dock in self.docks.values():
            dock.setFloating(False)
            dock.show()
        width, height = self.width(), self.height()
        side = max(270, min(320, width // 5))
        why = max(300, min(400, width // 4))
        self.resizeDocks([self.docks["write"], self.docks["word"]], [side, why], Qt.Orientation.Horizontal)
        below = [self.docks[name] for name in ("memory", "kv_cache", "speed")]
        self.resizeDocks(below, [width // 3] * 3, Qt.Orientation.Horizontal)
        self.resizeDocks(below, [max(150, height // 4)] * 3, Qt.Orientation.Vertical)
        self.layout().activate()
        self.laboratory.put_away()

    @Slot()
    def show_keys(self) -> None:
        """Every act and its key, as the menus have them."""
        lines = []
        for menu in self.menus.actions():
            for action in menu.menu().actions() if menu.menu() else ():
                for act in action.menu().actions() if action.menu() else (action,):
                    if not act.shortcut().isEmpty():
                        key = act.shortcut().toString(QKeySequence.SequenceFormat.NativeText)
                        lines.append(f"{key}\t{act.text().replace('&', '')}")
        self._message(self.tr("Keyboard"), "\n".join(lines))

    @Slot()
    def show_log(self) -> None:
        from engine.logs import log_path

        self._message(self.tr("Log"), str(log_path()))

    def _message(self, title: str, text: str) -> None:
        box = QMessageBox(self)
        box.setWindowTitle(title)
        box.setTextFormat(Qt.TextFormat.PlainText)
        box.setText(text)
        box.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.open()

    def closeEvent(self, event: QCloseEvent) -> None:
        """Cancel, quit, wait; then the window may go."""
        self.experiments.close()
        if self.visit is None:
            remember(self)
        self.hide()  # gone at once for the person, while the engine comes to its end
        self.models.stop()
        self.xrays.close()
        self.exports.close()
        self.engine.close()
        self.models.close()
        self.replays.close()
        super().closeEvent(event)


def _framed(widget: QWidget) -> QWidget:
    """Gives a dock's content its share of the gap between panels."""
    frame = QWidget()
    layout = QVBoxLayout(frame)
    layout.setContentsMargins(0, 0, 0, 0)
    layout.addWidget(widget)
    return frame


def run_window(replay: str | None = None) -> int:
    """Opens the window and runs until it is closed. Returns the exit code."""
    app = QApplication.instance() or QApplication(sys.argv[:1])
    assert isinstance(app, QApplication)
    app.setApplicationName("Glasswork")
    app.setQuitOnLastWindowClosed(True)
    preferences, note = read_preferences()
    theme.set_mode(preferences.theme if preferences.theme in ("light", "dark", "system") else "system")
    theme.apply(app)
    window = MainWindow(preferences, note)
    window.show()
    from engine.logs import start_logging

    start_logging()
    window.first_replay = Path(replay) if replay is not None else None
    window.painted.connect(window.begin)
    QTimer.singleShot(LATEST_BEGIN_MS, window.say_painted)  # a window that starts minimised is not painted
    from app.surprises import surprises_are_told

    with surprises_are_told(window):
        code = app.exec()
        window.engine.close()
        window.models.close()
        window.replays.close()
    return code
