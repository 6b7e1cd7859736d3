"""A hundred futures: one beginning, written on many times with different seeds, as batches that share one prefill."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from engine.control import Control
from engine.errors import PromptRefused, RunFailed
from engine.events import Event, ExperimentProgress, PrefillProgress, RunEnd, RunStart, TokenEvent
from engine.futures import FirstWord, Future, Futures
from engine.settings import MAX_LANES, FuturesQuestion, Request

if TYPE_CHECKING:
    from engine.session import Session

TELL_EVERY_S = 0.4  # so often the tree so far goes out
CACHE_SHARE = 0.3  # of the memory that is free, at most so much goes to the lanes' caches


@dataclass(eq=False)
class _Lane:
    seed: int
    token_ids: list[int] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    tail: str = ""
    reason: str = ""

    def future(self) -> Future:
        return Future(self.seed, tuple(self.token_ids), tuple(self.labels), tuple(self.texts), self.tail, self.reason)


def continuations(
    question: FuturesQuestion, session: Session, control: Control, emit: Callable[[Event], None]
) -> Futures:
    """The continuations that were asked for, or as many as were written when the control said stop.

    Emits progress in tokens, with what is there so far. Greedy, there is one future only.
    Raises PromptRefused, and RunFailed where the model failed before anything was written.
    """
    return _Foreseeing(question, session, control, emit).run()


def lanes_at_once(session: Session, tokens: int) -> int:
    """How many lanes of so many tokens one batch may have: at most MAX_LANES, and no more than fit into memory."""
    from engine.readings import read_memory

    per_lane = (session.facts.kv_bytes_per_token or 0) * tokens
    if not per_lane:
        return MAX_LANES
    reading = read_memory()
    gpu = min((g.total_bytes - (g.driver_used_bytes or g.reserved_bytes) for g in reading.gpus), default=None)
    on_gpu = any(device.startswith("cuda") for device in session.facts.devices) and gpu is not None
    free = gpu if on_gpu and gpu is not None else reading.available_bytes
    return max(1, min(MAX_LANES, int(free * CACHE_SHARE / per_lane)))


class _Foreseeing:
    def __init__(
        self, question: FuturesQuestion, session: Session, control: Control, emit: Callable[[Event], None]
    ) -> None:
        self.question, self.session, self.control, self.emit = question, session, control, emit
        self.lanes: list[_Lane] = []  # of the batches so far
        self.first: dict[int, FirstWord] = {}
        self.found = Futures(question, ())
        self.so_far: Futures | None = None  # as it was last told
        self.began = self.told = time.perf_counter()
        self.written = 0
        request = question.request
        self.count = 1 if request.lanes[0].greedy else question.count
        self.failed: RunEnd | None = None
        self.size = 0  # of the batch that is written now

    def run(self) -> Futures:
        request = self.question.request
        length = len(request.prompt_ids) + len(request.written) + self.question.tokens
        most = lanes_at_once(self.session, length)
        while len(self.lanes) < self.count and not self.control.cancelled() and self.failed is None:
            self._batch(min(most, self.count - len(self.lanes)))
        if self.failed is not None and not any(lane.token_ids for lane in self.lanes):
            raise RunFailed(self.failed.sentence or "The model failed.", self.failed.fix)
        if not self.written and not self.control.cancelled():
            raise PromptRefused("This text has come to its end already.", "Begin at a word before its end.")
        return self._so_far(whole=True)

    def _batch(self, size: int) -> None:
        from engine.loop import generate

        request, done = self.question.request, len(self.lanes)
        settings = request.lanes[0]
        seeds = [settings.seed + done + lane for lane in range(size)]
        asked = replace(
            request,
            lanes=tuple(replace(settings, seed=seed) for seed in seeds),
            max_new_tokens=len(request.written) + self.question.tokens,
            lockstep=True,
        )
        self.lanes += [_Lane(seed) for seed in seeds]
        self.size = size
        self.found = replace(self.found, batches=self.found.batches + 1)
        for event in generate(self.session, asked, self.control):
            self._take(event, asked, done)

    def _take(self, event: Event, asked: Request, before: int) -> None:
        match event:
            case RunStart(lane=0) if not before:
                self.found = replace(
                    self.found, begins_with=event.written_text or "", prompt_tokens=len(event.prompt_tokens)
                )
            case PrefillProgress():
                self._progress("reading")
                if event.done_tokens == event.total_tokens:
                    self.found = replace(
                        self.found,
                        reused_tokens=self.found.reused_tokens + event.reused_tokens,
                        read_tokens=self.found.read_tokens + event.done_tokens - event.reused_tokens,
                    )
            case TokenEvent():
                lane = self.lanes[before + event.lane]
                if not lane.token_ids:
                    self._learn_first(event)
                lane.token_ids.append(event.token_id)
                lane.labels.append(event.token_text)
                lane.texts.append(event.text)
                self.written += 1
                if event.lane == 0 or self.written % 64 == 0:
                    self._progress("")
            case RunEnd():
                lane = self.lanes[before + event.lane]
                lane.tail, lane.reason = event.tail_text, event.reason
                if event.reason == "error":
                    self.failed = event

    def _learn_first(self, event: TokenEvent) -> None:
        """All first words are drawn from one distribution: what each lane's event lists of it is put together."""
        for place, token_id in enumerate(event.candidate_ids):
            if token_id not in self.first:
                candidate = event.candidate(place)
                share = candidate.final or 0.0
                self.first[token_id] = FirstWord(token_id, candidate.text, share)

    def _progress(self, sentence: str) -> None:
        seconds = time.perf_counter() - self.began
        speed = self.written / seconds if seconds > 0 else 0.0
        total = self.count * self.question.tokens
        now = time.perf_counter()
        if self.written and now - self.told >= TELL_EVERY_S:
            self.told, self.so_far = now, self._so_far(whole=False)
        left = (total - self.written) / speed if speed else None
        over = sum(bool(lane.reason) for lane in self.lanes)
        self.emit(
            ExperimentProgress(
                self.question, self.written, total, sentence, speed, left, over, self.count, partial=self.so_far
            )
        )

    def _so_far(self, whole: bool) -> Futures:
        futures = [lane.future() for lane in self.lanes if lane.token_ids]
        if not whole:  # lanes of a batch go step by step: none is shown a token ahead of the others
            least = min((len(future.token_ids) for future in futures[-self.size :] if not future.reason), default=0)
            futures = [_first_tokens(f, least) if not f.reason else f for f in futures]
            futures = [future for future in futures if future.token_ids]
        first = sorted((word for word in self.first.values() if word.share > 0.0), key=lambda word: -word.share)
        return replace(
            self.found,
            futures=tuple(futures),
            first=tuple(first),
            written_tokens=self.written,
            elapsed_ms=(time.perf_counter() - self.began) * 1e3,
            whole=whole,
            stopped=whole and self.control.cancelled(),
        )


def _first_tokens(future: Future, count: int) -> Future:
    return replace(future, token_ids=future.token_ids[:count], labels=future.labels[:count], texts=future.texts[:count])
