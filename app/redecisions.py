"""Sliders on finished text: while no run goes on, other settings re-decide the run that is shown. Without the model.

The arithmetic takes some tens of milliseconds for a thousand tokens, so it is done where it is asked, at most once a
frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Slot

if TYPE_CHECKING:
    from app.main_window import MainWindow
    from engine.redecide import FinishedRun
    from widgets.run_store import Run

FRAME_MS = 16


class Redecisions(QObject):
    """Listens to the sampling panel and the store, and tells the text view what would have been."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self.window = window
        self._known: tuple[Run, FinishedRun] | None = None
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(FRAME_MS)
        self._timer.timeout.connect(self.work)
        window.sampling_panel.settings_changed.connect(self.ask)
        window.store.run_started.connect(self.forget)
        window.store.selection_changed.connect(self.look)
        window.text_view.as_written_requested.connect(self.back)

    @Slot()
    def ask(self) -> None:
        """A setting moved: decides at the next frame."""
        if not self._timer.isActive():
            self._timer.start()

    @Slot()
    def forget(self) -> None:
        self.window.text_view.show_redecided(None)
        self._known = None

    @Slot()
    def look(self) -> None:
        """Another run may be shown: what was said of the last one goes."""
        if self._known is not None and self.window.store.current is not self._known[0]:
            self.forget()

    @Slot()
    def back(self) -> None:
        """As it was written: the settings go back to those that the run ended with."""
        run = self.window.store.current
        if run is not None and run.tokens:
            self.window.sampling_panel.take_settings(run.tokens[-1].settings)
        self.window.text_view.show_redecided(None)

    @Slot()
    def work(self) -> None:
        """A recording that has lost words decides nothing: penalties depend on all of them."""
        run, settings = self.window.store.current, self.window.sampling_panel.settings()
        if run is None or run.running or run.gaps or not run.tokens or run.tokens[-1].settings == settings:
            self.window.text_view.show_redecided(None)
            return
        from engine.redecide import FinishedRun

        if self._known is None or self._known[0] is not run:
            self._known = run, FinishedRun(run.start, run.tokens)
        self.window.text_view.show_redecided(self._known[1].redecide(settings))
