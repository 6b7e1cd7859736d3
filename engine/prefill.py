"""Prefill: what the lanes of a request are asked is read, what agrees once, in chunks; and the lanes made batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from engine.control import Control
from engine.errors import Cancelled
from engine.events import PrefillProgress
from engine.forward import Forward, forward_of
from engine.prefix import Kept

if TYPE_CHECKING:
    from engine.session import Session

# A chunk of the prompt takes about this long, so that progress moves; its speed is known from the last prompt. Stop is
# seen sooner, before each layer. Small chunks cost much: each reads all weights.
CHUNK_S = 1.0
FIRST_CHUNK_TOKENS = 128
AHEAD_TOKENS = 2048  # of the tokens to be written, so many have their cache allocated from the start
LARGEST_CHUNK_TOKENS = 512


@dataclass(eq=False)
class Reading:
    """One prompt as it was read. logits: after its last token, float32 [vocab]."""

    ids: list[int]
    forward: Forward
    logits: np.ndarray
    reused: int  # tokens that were not read again
    computed: int  # tokens that went through the model
    last_ms: float  # of the forward that gave the logits


@dataclass(eq=False)
class Prefill:
    """Reads prompts of one request. `readings` has one for each different one, in order of the lanes."""

    session: Session
    control: Control
    run_id: int
    new_tokens: int  # how many a lane may write
    readings: list[Reading] = field(default_factory=list)
    ms: float = 0.0

    def read(self, prompts: list[list[int]], started: float) -> Iterator[PrefillProgress]:
        """Reads each different prompt; one that begins as another reads only what is new. Raises Cancelled.

        prompts: ids, all different. started: `time.perf_counter()` at the request.
        """
        total, before = sum(map(len, prompts)), 0
        stem_tokens = _common(prompts) if len(prompts) > 1 else 0
        stem: Forward | None = None
        for ids in prompts:
            forward, done = self._begin(ids, stem, stem_tokens)
            reused, computed, last_ms = done, 0, 0.0
            logits = self.session.kept.ends.get(tuple(ids)) if done == len(ids) else None
            if logits is not None:  # nothing is left to be read
                self.ms = (time.perf_counter() - started) * 1e3
                again = sum(each.reused for each in self.readings) + reused
                yield PrefillProgress(self.run_id, before + done, total, self.ms, forward.kv_bytes()[0][0], again)
            chunk = FIRST_CHUNK_TOKENS
            if speed := self.session.prefill_tokens_per_s:
                chunk = _fitting(speed)
            if whole := forward.in_one_piece(len(ids)):
                chunk = len(ids)
            while done < len(ids):
                # The others begin with a copy of what all have in common, which is taken when it has just been read.
                end = stem_tokens if stem is None and done < stem_tokens and not whole else len(ids)
                part = ids[done : min(done + chunk, end)]
                if self.control.cancelled():
                    raise Cancelled
                began = time.perf_counter()
                logits = forward.read(part, self.control.cancelled)
                now = time.perf_counter()
                done, computed = done + len(part), computed + len(part)
                last_ms, self.ms = (now - began) * 1e3, (now - started) * 1e3
                again = sum(each.reused for each in self.readings) + reused
                in_use = forward.kv_bytes()[0][0]
                yield PrefillProgress(self.run_id, before + done, total, self.ms, in_use, again)
                speed = len(part) / max(now - began, 1e-6)
                if len(part) >= FIRST_CHUNK_TOKENS:
                    self.session.prefill_tokens_per_s = speed
                chunk = _fitting(speed)
                if done == stem_tokens and stem is None and not whole:
                    stem = forward.copy(0, done)
            assert logits is not None
            self.session.kept.keep_end(ids, logits)
            before += done
            self.readings.append(Reading(ids, forward, logits, reused, computed, last_ms))

    def _begin(self, ids: list[int], stem: Forward | None, stem_tokens: int) -> tuple[Forward, int]:
        """A forward that has read a beginning of these ids, and how much of them: kept, shared, or new."""
        longest = len(ids) + min(self.new_tokens, AHEAD_TOKENS)
        context = self.session.facts.context_tokens
        expected = min(longest, context) if context else longest
        here = [(Kept(each.ids, each.forward).shared(ids[:-1]), each.forward) for each in self.readings]
        here += [(stem_tokens, stem)] if stem is not None else []
        forward, done = self.session.kept.take(ids) or (None, 0)
        for shared, other in sorted(here, key=lambda one: -one[0]):
            if shared <= done:
                break
            if not other.in_one_piece(0) and (copy := other.copy(0, shared)) is not None:
                forward, done = copy, shared
        if forward is None:
            return forward_of(self.session, expected), 0
        forward.reserve(expected)
        return forward, done


def _common(prompts: list[list[int]]) -> int:
    """How many tokens all begin with; the last of each is left to be read, for its logits."""
    shortest = min(map(len, prompts)) - 1
    return next((at for at in range(shortest) if len({ids[at] for ids in prompts}) > 1), shortest)


def _fitting(tokens_per_s: float) -> int:
    return int(min(LARGEST_CHUNK_TOKENS, max(FIRST_CHUNK_TOKENS, tokens_per_s * CHUNK_S)))


@dataclass(eq=False)
class Batch:
    """Lanes that are computed together. lanes: their numbers, as rows of the forward."""

    forward: Forward
    lanes: list[int]

    def keep(self, lanes: list[int]) -> None:
        """Drops the lanes that are over."""
        self.forward.keep([row for row, lane in enumerate(self.lanes) if lane in lanes])
        self.lanes = [lane for lane in self.lanes if lane in lanes]


def batches(readings: list[Reading], lanes_of: list[list[int]], lockstep: bool) -> list[Batch]:
    """The lanes as they decode after the prefill.

    lanes_of: for each reading the lanes that were asked it. lockstep: as few batches as can be; otherwise each lane is
    one by itself.
    """
    found: list[Batch] = []
    for reading, lanes in zip(readings, lanes_of, strict=True):
        forward = reading.forward
        if not lockstep:
            copies = [forward.copy(0, forward.tokens) for _ in lanes[1:]]  # the whole of a cache can always be copied
            found += [
                Batch(one, [lane]) for one, lane in zip([forward, *copies], lanes, strict=True) if one is not None
            ]
            continue
        forward.share(len(lanes))
        for batch in found:
            if batch.forward.join(forward):  # pyright: ignore[reportArgumentType]  one session's are of one kind
                batch.lanes += lanes
                break
        else:
            found.append(Batch(forward, list(lanes)))
    return found
