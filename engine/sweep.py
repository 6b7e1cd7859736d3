"""A sweep is run: batches of lanes after one prefill, each run written down as it goes, to be gone on with later."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace

from engine.control import Control
from engine.errors import Cancelled
from engine.events import Event, Loaded, PrefillProgress, RunEnd, RunStart, SettingsChanged, TokenEvent
from engine.experiments import RunFigures, Sweep, SweepBatch, SweepQuestion, SweepRun
from engine.gathering import Pace, events_of
from engine.prompt import prepare
from engine.readings import give_memory_back, own_bytes, read_memory
from engine.replay import Recorder, header_of
from engine.session import Session
from engine.sweep_folder import SweepFolder, cannot_write, model_of, open_or_begin

SHARE_OF_FREE = 0.25  # of the memory that the machine could give, so much may go to a batch's caches


def sweep(question: SweepQuestion, session: Session, control: Control, emit: Callable[[Event], None]) -> Sweep:
    """Runs what is still to be done of a sweep. Cancelled, it returns what there is; the same question goes on.

    Raises SettingsRefused where the folder holds another question or model, FileRefused where it cannot be written,
    PromptRefused, and RunFailed where the model fails in all lanes at once.
    """
    prompt = prepare(session, question.asked.request([question.base]))
    folder = open_or_begin(question, model_of(session.facts, prompt.ids))
    with folder.alone():
        todo = [number for number, run in enumerate(folder.runs) if run is None]
        pace = Pace(question, question.count, question.asked.max_new_tokens, emit)
        pace.done_runs = question.count - len(todo)
        pace.partial = folder.sweep()
        pace.tell(now=True)
        lanes = lanes_that_fit(question, session, len(prompt.ids))
        if lanes < question.batch and todo:
            together = "One lane runs at a time" if lanes == 1 else f"{lanes} lanes run together"
            folder.notes.append(f"{together} and not {question.batch}: more would not fit the memory.")
        for first in range(0, len(todo), lanes):
            if control.cancelled():
                break
            _run_batch(folder, todo[first : first + lanes], session, control, pace)
            pace.partial = folder.sweep()
            pace.tell(now=True)
    return folder.sweep()


def lanes_that_fit(question: SweepQuestion, session: Session, prompt_tokens: int) -> int:
    """How many lanes run together: those that were asked for, or as many as the free memory's share holds the KV cache
    of. predicted; 1 at least."""
    per_token = session.facts.kv_bytes_per_token
    if not per_token:
        return question.batch
    lane = per_token * (prompt_tokens + question.asked.max_new_tokens)
    return max(1, min(question.batch, int(read_memory().available_bytes * SHARE_OF_FREE / lane)))


def _run_batch(folder: SweepFolder, numbers: list[int], session: Session, control: Control, pace: Pace) -> None:
    runs = [folder.question.run(number) for number in numbers]
    writers = [_Writer(folder, run, session) for run in runs]
    began, before, reused = time.perf_counter(), pace.tokens, 0
    finished = 0
    lanes = [run.settings for run in runs]
    try:
        with closing(events_of(session, folder.question.asked, lanes, control, pace)) as events:
            for event, figures in events:
                if isinstance(event, PrefillProgress):
                    reused = event.reused_tokens
                    for writer in writers:
                        writer.take(event)
                elif isinstance(event, (RunStart, TokenEvent, SettingsChanged, RunEnd)):
                    writers[event.lane].take(event)
                    if figures is not None:
                        writers[event.lane].finish(figures)
                        finished += 1
    except Cancelled:
        pass
    finally:
        for writer in writers:
            writer.drop()
    give_memory_back()  # the C library would keep what each batch freed: some MB more each time
    if finished:
        folder.add_batch(
            SweepBatch(
                finished, pace.tokens - before, time.perf_counter() - began, own_bytes(), reused,
                session.facts.kernel,
            )
        )  # fmt: skip


class _Writer:
    """One run's replay, as that of a run with one lane: opened alone it needs no other."""

    def __init__(self, folder: SweepFolder, run: SweepRun, session: Session) -> None:
        self.folder, self.run = folder, run
        request = folder.question.asked.request([run.settings], run.number + 1)
        header = header_of(session.facts, request) | {"sweep": {"number": run.number, "cell": list(run.cell)}}
        self.recorder: Recorder | None = Recorder(folder.replay(run.number), header, replace=True, keep=False)
        self.recorder.take(Loaded(session.facts))
        self._check()

    def take(self, event: RunStart | PrefillProgress | TokenEvent | SettingsChanged | RunEnd) -> None:
        assert self.recorder is not None
        number = self.run.number + 1
        if isinstance(event, PrefillProgress):
            event = replace(event, run_id=number)
        elif isinstance(event, RunStart):
            note = f"Written in a batch of {event.lanes} lanes of a sweep." if event.lanes > 1 else ""
            notes = (*event.notes, *filter(None, [note]))
            event = replace(event, run_id=number, lane=0, lanes=1, notes=notes, name=self._name())
        else:
            event = replace(event, run_id=number, lane=0)
        self.recorder.take(event)
        self._check()

    def _name(self) -> str:
        """What is varied, so that runs which are compared later tell apart."""
        values = [f"{axis.name} {getattr(self.run.settings, axis.name):g}" for axis in self.folder.question.axes]
        if len(self.folder.question.seeds) > 1:
            values.append(f"seed {str(self.run.settings.seed)[:20]}")
        return ", ".join(values)

    def _check(self) -> None:
        assert self.recorder is not None
        if problem := self.recorder.problem:
            raise cannot_write(self.folder.path, OSError(0, str(problem.fields.get("said", problem.what))))

    def finish(self, figures: RunFigures) -> None:
        """The run is whole: its replay is closed before its figures say that it is there."""
        assert self.recorder is not None
        self.recorder.close()
        self._check()
        self.recorder = None
        self.folder.add(self.run.number, figures)

    def drop(self) -> None:
        """What was broken off goes: it is done again."""
        if self.recorder is not None:
            self.recorder.close()
            with suppress(OSError):
                self.recorder.path.unlink(missing_ok=True)
            self.recorder = None
