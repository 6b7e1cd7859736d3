"""The only place where Qt meets the engine: a QThread, a worker object in it, and the handle the window holds.

Work crosses as frozen objects through signals that are connected to bound methods of QObjects (a lambda as a slot
would run in the emitter's thread, THR-21). Stop, pause, pace and new settings go through a `Control`, which the loop
looks at before each token, and not through a slot, which would wait behind the work.
"""

from __future__ import annotations

import logging
import math
import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QThread, Signal, Slot

from engine.control import Control
from engine.errors import Cancelled, WorkbenchError
from engine.events import Answered, CacheKept, EngineError, Event, LoadProgress, RunEnd, RunStart, TokenEvent
from engine.settings import LoadPlan, PlanWish, Request, StopAsking, XrayQuestion

if TYPE_CHECKING:
    from engine.replay import Recorder
    from engine.session import Session

log = logging.getLogger(__name__)
WAIT_ON_CLOSE_MS = 1500


@dataclass(frozen=True, slots=True)
class LoadJob:
    plan: LoadPlan
    control: Control


@dataclass(frozen=True, slots=True)
class RunJob:
    request: Request
    control: Control
    record_folder: str  # "": not recorded
    before: tuple[Event, ...] = ()  # of a fork: the runs it began in, for its file


@dataclass(frozen=True, slots=True)
class PreviewJob:
    prompt: str
    system: str | None
    raw: bool
    markers_as_text: bool


@dataclass(frozen=True, slots=True)
class EstimateJob:
    plan: LoadPlan
    context_tokens: int | None


@dataclass(frozen=True, slots=True)
class AskJob:
    question: object  # one of engine/inside.py
    control: Control


@dataclass(frozen=True, slots=True)
class ExperimentJob:
    question: object  # one that engine/answers.py runs the model for
    control: Control


@dataclass(frozen=True, slots=True)
class XrayJob:
    question: XrayQuestion
    control: Control


def told(error: Exception, during: str) -> EngineError:
    """An exception as plain text. Whoever keeps this keeps no frame and no tensor (MEM-22)."""
    trace = "".join(traceback.format_exception(error))
    log.error("%s failed\n%s", during, trace)
    if isinstance(error, WorkbenchError):
        fields = tuple((name, str(value)) for name, value in error.fields.items())
        return EngineError(
            error.what, error.fix, error.exit_code, during, error.what_template, error.fix_template, fields, trace
        )
    said = " ".join(str(error).split())[:300]
    what = f"Something unexpected happened: {type(error).__name__}: {said}"
    return EngineError(what, "What was written stands; try again. The log has the details.", 4, during, trace=trace)


class Worker(QObject):
    """Runs in the engine's thread. Every slot catches what its body raises and says it as an event (THR-7)."""

    event = Signal(object)  # engine events
    previewed = Signal(object)  # PromptPreview
    estimated = Signal(object)  # Estimate, or EngineError
    recording = Signal(object)  # the Recorder of the run that begins
    record_problem = Signal(object)  # EngineError
    finished = Signal(object)  # "load", "run", "unload", "xray", "experiment": the engine is free again

    def __init__(self) -> None:
        super().__init__()
        self.session: Session | None = None
        self.recorder: Recorder | None = None
        self._keep_cache = True
        self._plan: LoadPlan | None = None

    @Slot(object)
    def load(self, job: LoadJob) -> None:
        try:
            # Said before the first heavy import, so that the window shows progress from the first moment.
            self.event.emit(LoadProgress("blueprint", 0, 0, 0.0))
            from engine.loading import load

            self.session = load(job.plan, self.event.emit, job.control, before_weights=self._make_room)
            self._plan = job.plan
            from engine.events import Loaded

            self.event.emit(Loaded(self.session.facts))
        except Cancelled:
            pass
        except Exception as error:  # a thread's edge
            self.event.emit(self._load_failed(error, job.plan))
        if self.session is None:
            self._give_memory_back()
        self.finished.emit("load")

    @Slot()
    def unload(self) -> None:
        try:
            self.close_session()
        except Exception as error:  # a thread's edge
            self.event.emit(told(error, "unload"))
        self.finished.emit("unload")

    @Slot(object)
    def keep_cache(self, on: bool) -> None:
        """Whether the last run's KV cache stays in memory, so that a run of the same prompt begins at once."""
        self._keep_cache = bool(on)
        if self.session is not None:
            self.session.kept.on = self._keep_cache
            if not on and self.session.kept.caches:
                self.session.kept.drop()
                self._give_memory_back()
        if not on:
            self.event.emit(CacheKept(0, 0))

    @Slot(object)
    def run(self, job: RunJob) -> None:
        starts: list[RunStart] = []
        ended: set[tuple[int, int]] = set()
        tokens: list[TokenEvent] = []
        try:
            if self.session is None:
                raise WorkbenchError("No model is loaded.", "Load one first.")
            from engine.loop import generate
            from engine.replay_lines import line_of

            self.session.kept.on = self._keep_cache
            # Before the clock of the run starts: what a fork began in may be long.
            before = [(event, line_of(event)) for event in job.before if job.record_folder]
            for event in generate(self.session, job.request, job.control):
                if isinstance(event, RunStart):
                    starts.append(event)
                    if self.recorder is None and job.record_folder:
                        self._start_recording(job, before)
                elif isinstance(event, TokenEvent):
                    tokens.append(event)
                elif isinstance(event, RunEnd):
                    ended.add((event.run_id, event.lane))
                self._record(event)
                self.event.emit(event)
        except Exception as error:  # a thread's edge
            self.event.emit(told(error, "prompt" if not starts else "run"))
            for start in starts:
                if (start.run_id, start.lane) not in ended:
                    end = broken_end(start, tokens, "error")
                    self._record(end)
                    self.event.emit(end)
        self._stop_recording()
        self.finished.emit("run")

    @Slot(object)
    def xray(self, job: XrayJob) -> None:
        from app.xray import compare

        compare(self, job)
        if self.session is None:
            self._give_memory_back()
        self.finished.emit("xray")

    @Slot(object)
    def experiment(self, job: ExperimentJob) -> None:
        """Answers a question that runs the model for a while; what it wrote by then is in the answer when stopped."""
        self.ask(AskJob(job.question, job.control))
        self.finished.emit("experiment")

    @property
    def loaded_plan(self) -> LoadPlan | None:
        """How the session was loaded; None without one."""
        return self._plan if self.session is not None else None

    def take_session(self, session: Session, plan: LoadPlan | None) -> None:
        self.session, self._plan = session, plan

    @Slot(object)
    def preview(self, job: PreviewJob) -> None:
        if self.session is None:
            return
        try:
            from engine.prompt import preview

            self.previewed.emit(preview(self.session, job.prompt, job.system, job.raw, job.markers_as_text))
        except Exception as error:  # a thread's edge
            self.event.emit(told(error, "prompt"))

    @Slot(object)
    def estimate(self, job: EstimateJob) -> None:
        try:
            from engine.memory import estimate

            plan = job.plan
            before = self.session.facts.memory_before_bytes if self.session is not None else None
            packed = plan.double_quantisation
            found = estimate(plan.model, plan.precision, job.context_tokens, 1, before, packed, plan.keep_windows)
            self.estimated.emit(found)
        except Exception as error:  # a thread's edge
            self.estimated.emit(told(error, "estimate"))

    @Slot(object)
    def ask(self, job: AskJob) -> None:
        found: object = None  # as it stays where a load or run was waiting
        try:
            if not job.control.cancelled():
                from engine.answers import answer

                found = answer(job.question, self.session, job.control, self.event.emit)
        except Cancelled:
            pass
        except Exception as error:  # a thread's edge
            found = told(error, "question")
        self.event.emit(Answered(job.question, found))

    def _make_room(self) -> bool:
        """The next model was found good as far as can be told without reading it: only now the loaded one goes."""
        loaded = self.session is not None
        self.close_session()
        return loaded

    def _load_failed(self, error: Exception, plan: LoadPlan) -> Event:
        """The error as an event; one that a person may allow is a question about the plan that was asked for."""
        from engine.trust import NeedsAnswer

        said = told(error, "load")
        return replace(error.question, plan=plan, error=said) if isinstance(error, NeedsAnswer) else said

    def close_session(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            self.event.emit(session.close())

    def _give_memory_back(self) -> None:
        from engine.readings import give_memory_back

        give_memory_back()

    def _start_recording(self, job: RunJob, before: list[tuple[Event, bytes]]) -> None:
        from engine.events import Loaded
        from engine.file_names import safe_name
        from engine.replay import ENDING, Recorder, header_of

        assert self.session is not None
        facts = self.session.facts
        folder = Path(job.record_folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            log.warning("the folder for runs cannot be made: %s", error)  # the recorder says it to the person
        self.recorder = Recorder(folder / safe_name(job.request.prompt, ENDING), header_of(facts, job.request))
        for event, line in before:
            self.recorder.take(event, line)
        self.recorder.take(Loaded(facts))
        self.recording.emit(self.recorder)
        if self.recorder.problem:
            self.record_problem.emit(told(self.recorder.problem, "record"))

    def _record(self, event: Event) -> None:
        if self.recorder is None:
            return
        known = self.recorder.problem
        self.recorder.take(event)
        if self.recorder.problem and not known:
            self.record_problem.emit(told(self.recorder.problem, "record"))

    def _stop_recording(self) -> None:
        recorder, self.recorder = self.recorder, None
        if recorder is not None:
            recorder.close()


def broken_end(start: RunStart, tokens: list[TokenEvent], reason: str) -> RunEnd:
    """The end of a lane whose loop did not come to say it: what was written, and no figures that nobody measured."""
    mine = [token for token in tokens if (token.run_id, token.lane) == (start.run_id, start.lane)]
    text = (start.written_text or "") + "".join(token.text for token in mine)
    written = start.written
    kv_bytes, kv_allocated_bytes = (mine[-1].kv_bytes, mine[-1].kv_allocated_bytes) if mine else (0, 0)
    unknown = math.nan
    return RunEnd(
        start.run_id, start.lane, reason, text, "", (*written, *(token.token_id for token in mine)),
        len(start.prompt_tokens), len(written) + len(mine), unknown, unknown, unknown, unknown, kv_bytes,
        kv_allocated_bytes,
    )  # fmt: skip


class Engine(QObject):
    """The window's handle on the engine. Lives in the window's thread; holds no model."""

    _load = Signal(object)
    _unload = Signal()
    _run = Signal(object)
    _xray = Signal(object)
    _experiment = Signal(object)
    _keep_cache = Signal(bool)
    _preview = Signal(object)
    _estimate = Signal(object)
    _ask = Signal(object)
    busy_changed = Signal(object)  # "", "load", "run", "unload", "xray", "experiment"

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.worker = Worker()
        self._thread = QThread(self)
        self._thread.setObjectName("engine")
        self.worker.moveToThread(self._thread)
        self._load.connect(self.worker.load)
        self._unload.connect(self.worker.unload)
        self._run.connect(self.worker.run)
        self._xray.connect(self.worker.xray)
        self._experiment.connect(self.worker.experiment)
        self._keep_cache.connect(self.worker.keep_cache)
        self._preview.connect(self.worker.preview)
        self._estimate.connect(self.worker.estimate)
        self._ask.connect(self.worker.ask)
        self.worker.finished.connect(self._became_free)
        self._control = Control()
        self._questions = Control()  # cancelled as soon as something else begins
        self._plan = Control()  # of the newest question to the planner
        self._pace_s = 0.0
        self.busy = ""
        self._next: Callable[[], None] | None = None  # a load or unload that waits for what it interrupted
        self._put_back: LoadPlan | None = None  # what an x-ray took away
        self._runs = 0
        self._closed = False
        self._thread.start()

    def load(self, plan: LoadPlan) -> None:
        """Loads a model; a run or load that goes on is stopped first, never both at once (LOD-11)."""
        if self._waits(lambda: self.load(plan)):
            return
        self._start("load")
        self._load.emit(LoadJob(plan, self._control))

    @Slot()
    def unload(self) -> None:
        """Lets the model go; a run or load that goes on is stopped first."""
        if self._waits(self.unload):
            return
        self._start("unload")
        self._unload.emit()

    def run(
        self, request: Request, record_folder: str = "", one_token: bool = False, before: tuple[Event, ...] = ()
    ) -> bool:
        """Starts a run with a number of its own. False when the engine is at work already. before: as in RunJob."""
        if self.busy or self._closed:
            return False
        self._runs += 1
        self._start("run")
        self._control.set_pace(self._pace_s)
        if one_token:
            self._control.step_once()
        self._run.emit(RunJob(replace(request, run_id=self._runs), self._control, record_folder, before))
        return True

    def xray(self, question: XrayQuestion) -> bool:
        """Compares two precisions; the model that is loaded now is there again afterwards. False when at work."""
        if self.busy or self._closed:
            return False
        self._put_back = self.loaded_plan
        self._start("xray")
        self._xray.emit(XrayJob(question, self._control))
        return True

    def experiment(self, question: object) -> bool:
        """Runs the model for a question; progress and answer come as events, `stop` ends it. False when at work."""
        if self.busy or self._closed:
            return False
        self._start("experiment")
        self._experiment.emit(ExperimentJob(question, self._control))
        return True

    @property
    def loaded_plan(self) -> LoadPlan | None:
        """How the loaded model was loaded. Only while the engine is free."""
        return self.worker.loaded_plan

    def stop(self) -> None:
        """Ends the load or run within one tensor, chunk or token, and what waits for its end. Harmless when nothing
        goes on, or twice (THR-5)."""
        self._next = None
        self._control.cancel()

    def _waits(self, act: Callable[[], None]) -> bool:
        """True where something goes on: it is stopped, and then `act` comes (LOD-11)."""
        if self.busy and not self._closed:
            self._next = act
            self._control.cancel()
        return bool(self.busy) or self._closed

    def pause(self) -> None:
        self._control.pause()

    def resume(self) -> None:
        self._control.resume()

    def step_once(self) -> None:
        self._control.step_once()

    @property
    def runs(self) -> int:
        """The number of the newest run."""
        return self._runs

    def number_after(self, run_id: int) -> None:
        """The next run has a higher number than this: a replay brings numbers of its own."""
        self._runs = max(self._runs, run_id)

    @property
    def paused(self) -> bool:
        return self._control.paused

    def set_pace(self, seconds_per_token: float) -> None:
        self._pace_s = seconds_per_token
        self._control.set_pace(seconds_per_token)

    def keep_cache(self, on: bool) -> None:
        self._keep_cache.emit(on)

    def set_settings(self, lane: int, settings: object) -> None:
        self._control.set_settings(lane, settings)  # type: ignore[arg-type]

    def preview(self, job: PreviewJob) -> None:
        if self.busy not in ("run", "experiment"):  # it would wait behind the run and then be stale
            self._preview.emit(job)

    def estimate(self, job: EstimateJob) -> None:
        self._estimate.emit(job)

    @Slot(object)
    def ask(self, question: object) -> None:
        """A view's question; the answer comes as an `Answered`. One that would hold up a load or run is broken off.

        Of questions to the planner only the newest counts: those before it that still wait are broken off too.
        """
        if isinstance(question, StopAsking):
            self._questions.cancel()
            self._questions = Control()
            return
        control = self._questions
        if isinstance(question, PlanWish):
            self._plan.cancel()
            control = self._plan = Control()
        self._ask.emit(AskJob(question, control))

    def close(self) -> None:
        """Cancel, quit, wait. Leaves the process within two seconds even where a library cannot be interrupted."""
        if self._closed:
            return
        self._closed = True
        self._next = None
        self._control.cancel()
        self._questions.cancel()
        self._plan.cancel()
        self._thread.quit()
        if not self._thread.wait(WAIT_ON_CLOSE_MS):
            # Importing torch or one large forward cannot be broken off. The record is whole up to here.
            log.info("the engine's thread was still inside a library on close")
            if recorder := self.worker.recorder:
                for start, tokens in recorder.unfinished():
                    recorder.take(broken_end(start, tokens, "cancelled"))
                recorder.close()
            logging.shutdown()
            os._exit(0)

    def _start(self, what: str) -> None:
        self._control = Control()
        self._questions.cancel()
        self._plan.cancel()
        self._questions = Control()
        self.busy = what
        self.busy_changed.emit(what)

    @Slot(object)
    def _became_free(self, _what: object) -> None:
        self.busy = ""
        self.busy_changed.emit("")
        act, self._next = self._next, None
        plan, self._put_back = self._put_back, None
        if self._closed:
            return
        if act is not None:
            act()
        elif plan is not None and self.loaded_plan is None:
            self.load(plan)
