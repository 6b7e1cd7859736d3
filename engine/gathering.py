"""What the long experiments share: one batch's figures gathered from its events, and how far the whole is."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Generator

from engine.control import Control
from engine.errors import RunFailed
from engine.events import Event, ExperimentProgress, PrefillProgress, RunEnd, TokenEvent
from engine.experiments import Asked, RunFigures
from engine.figures import GrowingFigures
from engine.loop import generate
from engine.session import Session
from engine.settings import SamplingSettings

TELL_EVERY_S = 0.25


def run_figures(text: GrowingFigures, end: RunEnd) -> RunFigures:
    """What is kept of a run that ended."""
    figures = text.figures()
    return RunFigures(
        tokens=figures.tokens,
        mean_surprise_nats=figures.mean_surprise_nats,
        mean_entropy_nats=figures.mean_entropy_nats,
        distinct=figures.distinct,
        repetition=figures.repetition,
        ended_by_eos=float(end.reason == "eos"),
        tokens_per_s=end.decode_tokens_per_s or math.nan,  # one token alone is no speed
        reason=end.reason,
        sentence=end.sentence,
    )


class Pace:
    """Says four times a second how far an experiment is. A run counts as many steps as it may have tokens.

    partial: what is known so far, for views that show it while it grows.
    """

    def __init__(self, question: object, runs: int, steps: int, emit: Callable[[Event], None]) -> None:
        self.question, self.runs, self.steps, self.emit = question, runs, steps, emit
        self.partial: object = None
        self.done_runs = 0
        self.tokens = 0  # written since it began, by all lanes
        self._lengths: list[int] = []  # of the runs that ended since then
        self._running: dict[int, int] = {}
        self._began = time.perf_counter()
        self._told = 0.0

    def token(self, lane: int) -> None:
        self.tokens += 1
        self._running[lane] = self._running.get(lane, 0) + 1
        self.tell()

    def ended(self, lane: int) -> None:
        self._lengths.append(self._running.pop(lane, 0))
        self.done_runs += 1

    def tell(self, now: bool = False) -> None:
        clock = time.perf_counter()
        if not now and clock - self._told < TELL_EVERY_S:
            return
        self._told = clock
        elapsed = clock - self._began
        rate = self.tokens / elapsed if elapsed > 0 else 0.0
        usual = statistics.fmean(self._lengths) if self._lengths else float(self.steps)
        running = sum(self._running.values())
        left = max(0.0, (self.runs - self.done_runs) * usual - running)
        done = min(self.runs * self.steps, self.done_runs * self.steps + running)
        self.emit(
            ExperimentProgress(
                self.question, done, self.runs * self.steps, tokens_per_s=rate,
                remaining_s=left / rate if self.tokens else None, runs_done=self.done_runs, runs=self.runs,
                partial=self.partial,
            )
        )  # fmt: skip


def events_of(
    session: Session, asked: Asked, lanes: list[SamplingSettings], control: Control, pace: Pace
) -> Generator[tuple[Event, RunFigures | None], None, None]:
    """A batch's events; a lane's end comes with its figures.

    A lane that was cancelled has no figures. Raises PromptRefused, and RunFailed where all lanes failed: that is no
    finding about settings.
    """
    texts = [GrowingFigures() for _ in lanes]
    failed: list[RunEnd] = []
    kept = session.kept
    kept_on, kept.on = kept.on, True  # later batches read the prompt from the cache
    before, known = list(kept.caches), False
    try:
        for event in generate(session, asked.request(lanes), control):
            figures = None
            if isinstance(event, TokenEvent):
                texts[event.lane].add(event)
                pace.token(event.lane)
            elif isinstance(event, PrefillProgress):
                known = event.reused_tokens >= event.total_tokens - 1
            elif isinstance(event, RunEnd) and event.reason != "cancelled":
                figures = run_figures(texts[event.lane], event)
                pace.ended(event.lane)
                if event.reason == "error":
                    failed.append(event)
                    if len(failed) == len(lanes):
                        raise RunFailed(event.sentence, event.fix)
            yield event, figures
    finally:
        # One cache that begins with the prompt is enough: a long experiment must not fill the memory with others. One
        # that the run was given goes with it, and comes back as a new one.
        still = [cache for cache in before if cache in kept.caches]
        new = [cache for cache in kept.caches if cache not in before]
        kept.caches = still if known and len(still) == len(before) else still + new[-1:]
        kept.on = kept_on
        if not kept_on:
            kept.drop()
