"""Lanes in the window: what their page asks for goes to the engine, and what it sets up is remembered."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Slot

from app.laboratory import TEXT
from app.redecisions import names_in
from engine.errors import SettingsRefused
from engine.events import EngineError, PromptPreview, TokenNames
from engine.settings import LanePrompt, Request
from widgets.lab.lane_set import Lane, LaneSet
from widgets.lab.lane_wishes import ChangeLane, LanesPace, LanesPrompt, RunLanes, ShowText, SteerLanes

if TYPE_CHECKING:
    from app.main_window import MainWindow
    from widgets.lab.lanes_page import LanesPage

PAGE = "lanes"


class Lanes(QObject):
    """Routes the page's wishes. The prompt is the window's, and so are system text, stop strings and pace."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self.window = window
        self._shown: LanesPage | None = None
        self._tokens: int | None = None  # of the window's prompt, as previewed last
        # Name and vocabulary size of the model whose tokens lanes without a run name, as far as that is known.
        self._model: tuple[str, int] | None = None
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
            values = self.window.preferences.lanes
            page.restore(LaneSet.from_dict(values))
            self._model = _model_of(values)
        except SettingsRefused:
            names = tuple(lane.name for lane in page.lanes.lanes)
            page.restore(first_lanes(panel.settings(), names, panel.max_new_tokens()))  # type: ignore[arg-type]
            self._know_model()

    def _know_model(self) -> None:
        if (facts := self.window.store.facts) is not None:
            self._model = facts.name, facts.vocab_size

    def remember(self) -> None:
        if self._shown is not None:
            self.window.preferences.lanes = self._shown.lanes.as_dict() | {"model": self._model}

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
            markers_as_text=panel.markers_as_text(),
        )

    def token_names(self, lane: Lane) -> TokenNames | None:
        """Whose tokens its settings name, as far as that is known: of the model that wrote its run, or of the last."""
        if not lane.settings.names_tokens:
            return None
        run = self._shown.run_of(lane.key) if self._shown is not None else None
        if run is not None and run.facts is not None:
            return names_in(run, lane.settings)
        model = self._model if self._shown is not None else _model_of(self.window.preferences.lanes)
        return None if model is None else TokenNames(*model)

    def _foreign(self, lanes: LaneSet) -> tuple[list[Lane], str, bool]:
        """Lanes whose banned or biased tokens are those of another model than the loaded one, its name, and whether
        both have a vocabulary of one size, as relatives do: then the numbers may mean the same."""
        facts, found, name, alike = self.window.store.facts, [], "", True
        assert facts is not None
        for lane in lanes.lanes:
            names = self.token_names(lane)
            model = (names.model, names.vocab_size) if names is not None else None
            if lane.settings.names_tokens and model is not None and model[0] != facts.name:
                found.append(lane)
                name, alike = model[0], alike and model[1] == facts.vocab_size
        return found, name, alike

    @Slot()
    def take_tokens_out(self) -> None:
        """Takes what is banned or biased out of lanes where it is meant for another model; a step of their undo."""
        page = self._shown
        if page is None or self.window.store.facts is None:
            return
        lanes = page.lanes
        for lane in self._foreign(lanes)[0]:
            bare = replace(lane.settings, logit_bias=(), banned=(), banned_sequences=())
            lanes = lanes.with_lane(replace(lane, settings=bare))
        page.take(lanes)
        self.window.banner.dismiss()

    def run(self, wish: RunLanes) -> None:
        window = self.window
        if window.engine.busy == "run":
            if wish.one_token:
                window.running.one_token()
            return
        if not window.running.may_run():
            return
        foreign, model, alike = self._foreign(wish.lanes)
        letters = ", ".join(wish.lanes.letter(lane.key) for lane in foreign)
        if foreign and not alike:
            said = self.tr("Lane {letters}: the banned or boosted tokens are those of {model}, and other words here.")
            window.banner.show_note(
                said.format(letters=letters, model=model), self.tr("Take them out"), self.take_tokens_out
            )
            return
        try:
            request = self.request(wish.lanes)
        except SettingsRefused as error:
            window.banner.show_error(EngineError(error.what, error.fix, error.exit_code, "run"))
            return
        window.prompt_panel.remember()
        if window.running.launch(request, wish.one_token):
            run_id = window.engine.runs
            assert self._shown is not None
            self._shown.began(run_id)
            self._know_model()
            if foreign:
                said = self.tr("Lane {letters}: the tokens that are banned or boosted were chosen with {model}.")
                window.banner.show_note(said.format(letters=letters, model=model))

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


def _model_of(values: dict[str, Any]) -> tuple[str, int] | None:
    """Whose tokens the lanes in the preferences name, None where that is not known."""
    match values.get("model"):
        case [str(name), int(size)]:
            return name, size
    return None
