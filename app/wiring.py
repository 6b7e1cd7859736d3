"""Every connection between engine, store and widgets. One readable list; only bound methods of QObjects (THR-2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Slot

if TYPE_CHECKING:
    from app.main_window import MainWindow
    from widgets.run_store import RunStore

READ_EVERY_MS = 500


def connect(window: MainWindow) -> None:
    """Connects a new window."""
    engine, worker, store = window.engine, window.engine.worker, window.store

    # engine → store → views (views listen to the store by themselves)
    worker.event.connect(store.take)
    worker.event.connect(window.engine_event)
    worker.event.connect(window.trust.take)
    worker.event.connect(window.xrays.take)
    engine.busy_changed.connect(window.busy_changed)
    engine.busy_changed.connect(window.banner.busy_changed)
    engine.busy_changed.connect(window.xrays.busy_changed)
    worker.previewed.connect(window.prompt_panel.set_preview)
    worker.estimated.connect(window.show_estimate)
    worker.recording.connect(window.replays.recording_started)
    worker.record_problem.connect(window.replays.recording_failed)
    window.meter = MemoryMeter(store, window)

    # hands → engine
    window.model_panel.load_requested.connect(window.load)
    window.model_panel.unload_requested.connect(engine.unload)
    window.model_panel.cancel_requested.connect(window.running.stop)
    window.model_panel.estimate_requested.connect(window.estimate)
    window.model_panel.folder_chosen.connect(window.models.add_folder)
    window.model_panel.browse_requested.connect(window.models.show_browser)
    window.chip.clicked.connect(window.toggle_model_panel)
    window.prompt_panel.preview_requested.connect(window.running.ask_preview)
    window.prompt_panel.run_requested.connect(window.running.start_run)
    window.sampling_panel.settings_changed.connect(window.running.use_settings)
    window.sampling_panel.asked.connect(engine.ask)
    window.sampling_panel.run_requested.connect(window.running.start_run)
    window.sampling_panel.step_requested.connect(window.running.one_token)
    window.sampling_panel.pause_toggled.connect(window.running.toggle_pause)
    window.sampling_panel.stop_requested.connect(window.running.stop)
    window.sampling_panel.pace_changed.connect(window.running.set_pace)
    window.timeline.marks.stack = window.forks.stack
    window.timeline.marks.written.connect(window.replays.keep)
    window.text_view.canvas.play_asked.connect(window.timeline.player.toggle)
    window.strip.box_clicked.connect(window.show_box)
    window.box_view.asked.connect(window.asked_by_box)
    window.model_panel.asked.connect(engine.ask)

    # menus
    window.theme_actions.triggered.connect(window.choose_theme)
    window.keep_cache_action.toggled.connect(window.keep_cache)
    window.motion_action.toggled.connect(window.set_motion)
    window.recent_menu.aboutToShow.connect(window.replays.recents.fill)
    window.recent_menu.triggered.connect(window.replays.recents.choose)


class MemoryMeter(QObject):
    """Reads this process's and the machine's memory twice a second and tells the store."""

    def __init__(self, store: RunStore, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store = store
        self._timer = QTimer(self)
        self._timer.setInterval(READ_EVERY_MS)
        self._timer.timeout.connect(self.read)
        self._timer.start()

    @Slot()
    def read(self) -> None:
        from engine.readings import read_memory

        self._store.take(read_memory())
