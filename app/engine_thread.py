"""The only place where Qt meets the engine: a QThread, the worker in it (engine_worker.py), and the window's handle.

Work crosses as frozen objects (engine_jobs.py) through signals that are connected to bound methods of QObjects (a
lambda as a slot would run in the emitter's thread, THR-21). Stop, pause, pace and new settings go through a `Control`,
which the loop looks at before each token, and not through a slot, which would wait behind the work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import QObject, QThread, Signal, Slot

from app.engine_jobs import AskJob, EstimateJob, ExperimentJob, LoadJob, PreviewJob, RunJob, XrayJob
from app.engine_worker import Worker, broken_end
from app.threads import has_ended, leave
from engine.control import Control
from engine.events import Event
from engine.settings import LoadPlan, PlanWish, Request, StopAsking, XrayQuestion


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

    def when_free(self, act: Callable[[], None]) -> None:
        """Lets `act` come after what is at work now, unless that is stopped."""
        self._next = act

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
        if not has_ended(self._thread):
            # Importing torch or one large forward cannot be broken off. The record is whole up to here.
            if recorder := self.worker.recorder:
                for start, tokens in recorder.unfinished():
                    recorder.take(broken_end(start, tokens, "cancelled"))
                recorder.close()
            leave("the engine's thread was still inside a library on close")

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
