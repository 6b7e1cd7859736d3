"""Running in the window: what the panels ask for becomes a request; stop, pause, one token, pace."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Slot

from app.engine_jobs import PreviewJob
from app.preferences import runs_folder
from engine.errors import SettingsRefused
from engine.events import EngineError, Event
from engine.settings import Request, SamplingSettings

if TYPE_CHECKING:
    from app.main_window import MainWindow


class Running(QObject):
    """Starts runs of the window's panels and of the laboratory's pages, and reaches the one that goes on."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self.window = window

    def request(self) -> Request:
        """What the panels ask for. Raises SettingsRefused where they cannot be run."""
        return Request(
            run_id=0,
            prompt=self.window.prompt_panel.prompt(),
            system=self.window.prompt_panel.system(),
            raw=self.window.prompt_panel.raw(),
            lanes=(self.window.sampling_panel.settings(),),
            max_new_tokens=self.window.sampling_panel.max_new_tokens(),
            stop=self.window.sampling_panel.stop_strings(),
            forced_text=self.window.sampling_panel.forced_text(),
            markers_as_text=self.window.prompt_panel.markers_as_text(),
        )

    @Slot()
    def start_run(self) -> None:
        self._begin(one_token=False)

    def _begin(self, one_token: bool) -> None:
        if run_page := getattr(self.window.laboratory.pages[self.window.laboratory.current], "run_page", None):
            run_page(one_token)  # Run means what is seen
            return
        if self.comes_after(lambda: self._begin(one_token)) or self.window.engine.busy == "run" or not self.may_run():
            return
        self.window.banner.dismiss()
        self.window.sampling_panel.prepare_run()
        try:
            request = self.request()
        except SettingsRefused as error:
            self.window.banner.show_error(EngineError(error.what, error.fix, error.exit_code, "run"))
            return
        self.window.prompt_panel.remember()
        self.launch(request, one_token)

    def comes_after(self, act: Callable[[], None]) -> bool:
        """Whether a run has ended whose recording is still being closed: then `act` comes once the engine is free."""
        window = self.window
        ended = window.engine.busy == "run" and window.store.activity == "idle"
        if ended:
            window.engine.when_free(act)
        return ended

    def may_run(self) -> bool:
        """Whether the engine could write now; a banner says why not."""
        waits = {
            "xray": self.tr("A precision x-ray goes on: the run can start once the model is back."),
            "experiment": self.tr("An experiment goes on: stop it, or wait for its end."),
            "load": self.tr("The model is still loading: the run can start once it is there."),
        }
        if busy := self.window.engine.busy:
            self.window.banner.show_wait(
                waits.get(busy, self.tr("The engine is at work: wait for its end, or stop it."))
            )
            return False
        if self.window.store.facts is None:
            self.window.banner.show_note(
                self.tr("No model is loaded: choose one first."),
                self.tr("Choose a model…"),
                self.window.show_model_panel,
            )
            return False
        return True

    def launch(self, request: Request, one_token: bool = False, before: tuple[Event, ...] = ()) -> bool:
        """Starts a run, recorded where runs are. before: as in RunJob."""
        self.window.banner.dismiss()
        folder = str(runs_folder()) if self.window.visit is None else self.window.visit
        if not self.window.engine.run(request, folder, one_token, before):
            return False
        self.window.replays.requests[self.window.engine.runs] = request
        self.window.store.set_activity("prefill")
        return True

    @Slot()
    def one_token(self) -> None:
        """One token more; starts a run that pauses after its first token when none goes on."""
        if self.window.engine.busy == "run" and self.window.store.activity != "idle":
            self.window.store.select(None)
            self.window.engine.step_once()
            self.window.store.set_activity("paused")
        else:
            self._begin(one_token=True)

    @Slot()
    def toggle_pause(self) -> None:
        if self.window.engine.busy != "run":
            return
        if self.window.engine.paused:
            self.window.engine.resume()
            self.window.store.set_activity("decode")
        else:
            self.window.engine.pause()
            self.window.store.set_activity("paused")

    @Slot()
    def stop(self) -> None:
        self.window.engine.stop()
        self.window.replays.cancel()

    @Slot(object)
    def use_settings(self, settings: SamplingSettings) -> None:
        """A slider moved: from the next token on (SAM-10)."""
        run = self.window.store.current
        self.window.engine.set_settings(run.start.lane if run is not None and run.running else 0, settings)

    @Slot(object)
    def set_pace(self, seconds_per_token: object) -> None:
        self.window.engine.set_pace(float(seconds_per_token))  # type: ignore[arg-type]

    @Slot()
    def ask_preview(self) -> None:
        panel = self.window.prompt_panel
        self.window.engine.preview(PreviewJob(panel.prompt(), panel.system(), panel.raw(), panel.markers_as_text()))
