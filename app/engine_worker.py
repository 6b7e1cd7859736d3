"""What runs in the engine's thread: jobs come in through slots, and the engine's events go out through signals."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal, Slot

from app.engine_jobs import AskJob, EstimateJob, ExperimentJob, LoadJob, PreviewJob, RunJob, XrayJob
from app.threads import told
from engine.errors import Cancelled, WorkbenchError
from engine.events import Answered, CacheKept, Event, LoadProgress, RunEnd, RunStart, TokenEvent
from engine.settings import LoadPlan

if TYPE_CHECKING:
    from engine.replay import Recorder
    from engine.session import Session

log = logging.getLogger(__name__)


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
