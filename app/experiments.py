"""The laboratory's long experiments in the window: what pages wish for becomes a question, kept sweeps are found."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Slot
from PySide6.QtWidgets import QFileDialog

from app.blind import BlindTests
from app.preferences import sweeps_folder, write_preferences
from engine.errors import SettingsRefused
from engine.events import (
    Answered,
    Asked,
    EngineError,
    Loaded,
    LuckQuestion,
    Sweep,
    SweepQuestion,
    SweepsQuestion,
    WordsQuestion,
)
from engine.file_names import safe_name
from widgets.lab.experiment_wishes import FindSweeps, GoOn, OpenRuns, RunLuck, RunSweep, StopExperiment
from widgets.lab.lane_set import Lane, LaneSet
from widgets.lab.settings_list import Named

if TYPE_CHECKING:
    from app.main_window import MainWindow

# Where preferences keep what is set on a page.
FORMS = {"sweep": "sweep_form", "luck": "luck_form", "blind": "blind_form"}


class Experiments(QObject):
    """Between the laboratory's pages and the engine. Nothing of it is remembered on a visit."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self.window = window
        self._visit: tempfile.TemporaryDirectory | None = None
        self._numbers = 0  # each listing of sweeps is a question of its own
        self._offered = False
        self._offer: SweepsQuestion | None = None
        self._closing = False
        self._restored: set[str] = set()  # pages that have what was set on them last
        laboratory = window.laboratory
        for kind, act in (
            (RunSweep, self.run_sweep),
            (GoOn, self.go_on),
            (FindSweeps, self.find_sweeps),
            (OpenRuns, self.open_runs),
            (StopExperiment, self.stop),
            (RunLuck, self.run_luck),
            (WordsQuestion, window.engine.ask),
        ):
            laboratory.route(kind, act)
        self.blind = BlindTests(self)
        laboratory.page_changed.connect(self.page_changed)
        window.engine.worker.event.connect(self.take)

    @property
    def folder(self) -> Path:
        """Where sweeps are kept; on a visit a folder that goes with the window."""
        window = self.window
        if window.visit is None:
            return sweeps_folder()
        if window.visit:
            return Path(window.visit) / "sweeps"
        if self._visit is None:
            self._visit = tempfile.TemporaryDirectory(prefix="glasswork-sweeps-", ignore_cleanup_errors=True)
        return Path(self._visit.name)

    def page(self, name: str) -> Any:
        return self.window.laboratory.page(name)

    # ---------------------------------------------------------------- any experiment

    def begin(self, question: object) -> bool:
        """Asks the engine. False, with a note, where it is at work already or there is no model."""
        window = self.window
        if not window.running.may_run():
            return False
        window.store.inside.answers.pop(question, None)  # what it found the last time
        if not window.engine.experiment(question):
            window.banner.show_wait(self.tr("The engine is at work: wait for its end, or stop it."))
            return False
        window.banner.dismiss()
        return True

    def asked(self, max_new_tokens: int) -> Asked | None:
        """The window's prompt with so many tokens; None, with a banner, where it cannot be run."""
        window = self.window
        try:
            return replace(Asked.of(window.running.request()), max_new_tokens=max_new_tokens)
        except SettingsRefused as error:
            window.banner.show_error(EngineError(error.what, error.fix, error.exit_code, "run"))
            return None

    @Slot(object)
    def stop(self, _wish: object = None) -> None:
        self.window.running.stop()

    @Slot(object)
    def page_changed(self, name: object) -> None:
        """A page comes into view: it is told what the window knows."""
        if name not in FORMS:
            return
        page = self.page(str(name))
        if name not in self._restored:
            self._restored.add(str(name))
            values = getattr(self.window.preferences, FORMS[str(name)])
            page.restore(values)
            if name == "blind" and not values and len(lanes := self._lanes()) >= 2:
                page.setup.list.restore([Named(lane.settings, lane.name, lane.tokens) for lane in lanes])
            if name == "blind" and (kept := self.blind.newest()) is not None and not kept.finished:
                page.restore_test(kept)
        if name == "sweep":
            self.find_sweeps(FindSweeps())
        else:
            page.set_sources(self.sources())
        if name == "blind":
            page.set_prompt(self.window.prompt_panel.prompt())

    @Slot(object)
    def take(self, event: object) -> None:
        """What is no page's own: a sweep that was broken off is offered once the model is there."""
        if isinstance(event, Loaded) and not self._offered:
            self._offered = True
            going = self.window.preferences.going_sweep
            if self.window.visit is None and going and (Path(going) / "sweep.json").is_file():
                self._numbers += 1
                self._offer = SweepsQuestion(going, self._numbers)
                self.window.engine.ask(self._offer)
        elif isinstance(event, Answered):
            if event.question == self._offer:
                self._offer = None
                if isinstance(event.answer, tuple) and event.answer and not event.answer[0].complete:
                    self._offer_again(event.answer[0])
            elif isinstance(event.question, SweepQuestion) and not self._closing:
                self._remember_going("")  # done, stopped by hand, or failed: the page tells which

    # ---------------------------------------------------------------- sweeps

    @Slot(object)
    def run_sweep(self, wish: RunSweep) -> None:
        asked = self.asked(wish.max_new_tokens)
        if asked is None:
            return
        base = wish.base or self.window.sampling_panel.settings()
        try:
            question = SweepQuestion(self._new_folder(wish), asked, base, wish.axes, wish.seeds, wish.batch)
        except SettingsRefused as error:
            self.window.banner.show_error(EngineError(error.what, error.fix, error.exit_code, "run"))
            return
        self.window.prompt_panel.remember()
        self._begin_sweep(question)

    @Slot(object)
    def go_on(self, wish: GoOn) -> None:
        self._begin_sweep(wish.question)

    def _begin_sweep(self, question: SweepQuestion) -> None:
        if self.begin(question):
            self.page("sweep").begun(question)
            self.window.preferences.sweep_form = self.page("sweep").state()
            self._remember_going(question.folder)

    def _new_folder(self, wish: RunSweep) -> str:
        """A folder that nobody has: the day, the time and what is varied."""
        names = " x ".join(axis.name for axis in wish.axes)
        name = safe_name(f"{datetime.now():%Y-%m-%d %H.%M.%S} {names}")
        free = self.folder / name
        for number in range(2, 1000):
            if not free.exists():
                break
            free = self.folder / f"{name} {number}"
        return str(free)

    @Slot(object)
    def find_sweeps(self, wish: FindSweeps) -> None:
        """Asks for what is kept; a person may name another folder."""
        folder = str(self.folder)
        if wish.choose:
            folder = QFileDialog.getExistingDirectory(self.window, self.tr("Open the folder of a sweep"), folder)
            if not folder:
                return
        self._numbers += 1
        question = SweepsQuestion(folder, self._numbers)
        self.page("sweep").finding(question)
        self.window.engine.ask(question)

    def _remember_going(self, folder: str) -> None:
        """Written at once: a crash is what it is for."""
        if self.window.visit is None and self.window.preferences.going_sweep != folder:
            self.window.preferences.going_sweep = folder
            write_preferences(self.window.preferences)

    def _offer_again(self, sweep: Sweep) -> None:
        self._broken_off = sweep
        self.window.banner.show_note(
            self.tr("A sweep was going on when the program was closed: {done} of {all} runs are done.").format(
                done=sweep.done, all=len(sweep.runs)
            ),
            self.tr("Show it"),
            self.show_broken_off,
        )

    @Slot()
    def show_broken_off(self) -> None:
        self.window.banner.dismiss()
        self.window.laboratory.show("sweep")
        self.page("sweep").show_one(self._broken_off)

    # ---------------------------------------------------------------- luck or setting

    def sources(self) -> list[Named]:
        """Settings that are at hand: the sliders', and the lanes'."""
        panel = self.window.sampling_panel
        found = [Named(panel.settings(), self.tr("the sliders"), panel.token_names())]
        for lane in self._lanes():
            name = f"{lane.letter} {lane.name}".strip()
            found.append(Named(lane.settings, self.tr("lane {name}").format(name=name), lane.tokens))
        return found

    def _lanes(self) -> tuple[Lane, ...]:
        """Those of the lanes' page: as they stand there, or as they were remembered; none where it was never used."""
        page = self.window.laboratory.pages.get("lanes")
        try:
            lanes = page.lanes if page is not None else LaneSet.from_dict(self.window.preferences.lanes)  # type: ignore[attr-defined]
        except SettingsRefused:
            return ()
        return lanes.lanes

    @Slot(object)
    def run_luck(self, wish: RunLuck) -> None:
        asked = self.asked(wish.max_new_tokens)
        if asked is None:
            return
        question = LuckQuestion(asked, wish.settings, wish.seeds, wish.first_seed)
        self.window.prompt_panel.remember()
        if self.begin(question):
            self.page("luck").begun(question)

    # ---------------------------------------------------------------- runs

    @Slot(object)
    def open_runs(self, wish: OpenRuns) -> None:
        """One run becomes the text that is shown; several stand side by side."""
        window, files = self.window, [Path(file) for file in wish.files]
        if len(files) > 1:
            window.replays.compare(files)
        elif window.replays.open_file(files[0]):
            window.laboratory.show_text()

    def close(self) -> None:
        """The window closes. A sweep that goes on is offered at the next start."""
        self._closing = True
        for name, field in FORMS.items():
            if name in self._restored:
                setattr(self.window.preferences, field, self.page(name).state())
        if self._visit is not None:
            self._visit.cleanup()
