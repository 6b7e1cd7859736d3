"""Lanes in the window: what their page asks for goes to the engine, and what it sets up is remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Slot

from app.laboratory import TEXT
from engine.errors import SettingsRefused
from engine.events import EngineError, PromptPreview
from engine.settings import LanePrompt, Request
from widgets.lab.lane_set import LaneSet
from widgets.lab.lane_wishes import ChangeLane, LanesPace, LanesPrompt, RunLanes, ShowText, SteerLanes

if TYPE_CHECKING:
    from app.main_window import MainWindow
    from widgets.lab.lanes_page import LanesPage

PAGE = "lanes"


class Lanes(QObject):
    """Routes the page's wishes. The prompt is the window's, and so are system text, beginning, stops and pace."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self.window = window
        self._shown: LanesPage | None = None
        self._tokens: int | None = None  # of the window's prompt, as previewed last
        laboratory = window.laboratory
        laboratory.route(RunLanes, self.run)
        laboratory.route(ChangeLane, self.change)
        laboratory.route(SteerLanes, self.steer)
        laboratory.route(LanesPace, self.set_pace)
        laboratory.route(LanesPrompt, self.write_prompt)
        laboratory.route(ShowText, self.show_text)
        laboratory.page_made.connect(self.page_made)
        laboratory.page_changed.connect(self.page_changed)
        window.prompt_panel.prompt_changed.connect(self.prompt_changed)
        window.text_view.canvas.size_changed.connect(self.size_changed)
        window.engine.worker.previewed.connect(self.previewed)

    @Slot(object, object)
    def page_made(self, name: object, page: object) -> None:
        if name == PAGE:
            self._shown = page  # type: ignore[assignment]
            self._restore()
            self.prompt_changed()
            self.size_changed()

    @Slot(object)
    def page_changed(self, name: object) -> None:
        if name == PAGE and self._shown is not None:
            self._shown.bar.set_prompt_tokens(self._tokens)
            self._shown.bar.controls.set_pace(self.window.sampling_panel.pace())

    def _restore(self) -> None:
        """What was set up last; at first the window's sampling settings, and the same hotter."""
        from widgets.lab.lanes_page import first_lanes

        assert self._shown is not None
        page, panel = self._shown, self.window.sampling_panel
        try:
            page.restore(LaneSet.from_dict(self.window.preferences.lanes))
        except SettingsRefused:
            names = tuple(lane.name for lane in page.lanes.lanes)
            lanes = first_lanes(panel.settings(), names, panel.max_new_tokens(), panel.token_names())  # type: ignore[arg-type]
            page.restore(lanes)

    def remember(self) -> None:
        if self._shown is not None:
            self.window.preferences.lanes = self._shown.lanes.as_dict()

    # ---------------------------------------------------------------- running

    def request(self, lanes: LaneSet) -> Request:
        """What the engine is asked. Raises SettingsRefused."""
        panel = self.window.prompt_panel
        shared, ordered = LanePrompt(panel.prompt(), panel.system()), lanes.by_letter
        return Request(
            run_id=0,
            prompt=shared.prompt,
            system=shared.system,
            raw=panel.raw(),
            lanes=tuple(lane.settings for lane in ordered),
            prompts=tuple(lane.own or shared for lane in ordered) if lanes.own_prompts else (),
            names=tuple(lane.name for lane in ordered),
            lockstep=lanes.lockstep,
            max_new_tokens=lanes.max_new_tokens,
            stop=self.window.sampling_panel.stop_strings(),
            forced_text=self.window.sampling_panel.forced_text(),
            markers_as_text=panel.markers_as_text(),
        )

    def run(self, wish: RunLanes) -> None:
        window = self.window
        if window.running.comes_after(lambda: self.run(wish)):
            return
        if window.engine.busy == "run":
            if wish.one_token:
                window.running.one_token()
            return
        if not window.running.may_run():
            return
        try:
            request = self.request(wish.lanes)
        except SettingsRefused as error:
            window.banner.show_error(EngineError(error.what, error.fix, error.exit_code, "run"))
            return
        window.prompt_panel.remember()
        if window.running.launch(request, wish.one_token):
            assert self._shown is not None
            self._shown.began(window.engine.runs)

    def change(self, wish: ChangeLane) -> None:
        """From the lane's next token on (SAM-10)."""
        self.window.engine.set_settings(wish.lane, wish.settings)

    def steer(self, wish: SteerLanes) -> None:
        {"pause": self.window.running.toggle_pause, "stop": self.window.running.stop}[wish.act]()

    def set_pace(self, wish: LanesPace) -> None:
        self.window.sampling_panel.controls.set_pace(wish.seconds_per_token)
        self.window.running.set_pace(wish.seconds_per_token)

    def show_text(self, _wish: ShowText) -> None:
        self.window.laboratory.show(TEXT)

    # ---------------------------------------------------------------- what the window has

    def write_prompt(self, wish: LanesPrompt) -> None:
        if self.window.prompt_panel.prompt() != wish.prompt:
            self.window.prompt_panel.set_prompt(wish.prompt)

    @Slot()
    def prompt_changed(self) -> None:
        if self._shown is not None:
            panel = self.window.prompt_panel
            self._shown.set_prompt(LanePrompt(panel.prompt(), panel.system()), panel.raw())

    @Slot(object)
    def previewed(self, preview: PromptPreview) -> None:
        self._tokens = len(preview.tokens) or None
        if self._shown is not None:
            self._shown.bar.set_prompt_tokens(self._tokens)

    @Slot()
    def size_changed(self) -> None:
        if self._shown is not None:
            self._shown.set_text_size(self.window.text_view.size_step())
