"""The heart: a prompt is read (prefill), then tokens are written one by one (decode), and everything is said.

`generate` can be read from top to bottom. Lanes of one request share the prefill and are decoded as one batch.
"""

from __future__ import annotations

import logging
import time
import traceback
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from engine.control import Control
from engine.draw import draw
from engine.errors import Cancelled, RunFailed, WorkbenchError
from engine.events import CacheKept, EndToken, Event, PrefillProgress, RunEnd, RunStart, SettingsChanged, TokenEvent
from engine.forward import Forward, forward_of
from engine.prompt import PreparedPrompt, end_tokens, prepare
from engine.sampling import Decision, History, decide
from engine.session import Session
from engine.settings import Request, SamplingSettings
from engine.text import StopMatcher, TokenText

log = logging.getLogger(__name__)

# A chunk of the prompt takes about this long, so that progress moves; its speed is known from the last prompt. Stop is
# seen sooner, before each layer. Small chunks cost much: each reads all weights.
CHUNK_S = 1.0
FIRST_CHUNK_TOKENS = 128
AHEAD_TOKENS = 2048  # of the tokens to be written, so many have their cache allocated from the start
LARGEST_CHUNK_TOKENS = 512


@dataclass(eq=False)
class Lane:
    """One lane while it runs. `row` of the batch is its place among the lanes that still run."""

    number: int
    settings: SamplingSettings
    history: History
    text: TokenText
    stop: StopMatcher
    token_ids: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    started_s: float = 0.0
    first_token_s: float = 0.0
    last_token_s: float = 0.0
    waited_s: float = 0.0  # for a pace or a pause, since the first token
    over: bool = False

    @property
    def step(self) -> int:
        return len(self.token_ids)

    def begin_with(self, token_id: int) -> None:
        """Takes a token that was written before (a fork)."""
        self.history.add(token_id)
        self.token_ids.append(token_id)
        self.pieces.append(self.stop.add(self.text.add(token_id)))


def generate(session: Session, request: Request, control: Control) -> Iterator[Event]:
    """Runs a request: RunStart for each lane, prefill progress, one TokenEvent per lane and step, RunEnd per lane.

    The last event is CacheKept where the session keeps its cache between runs. Lanes of a fork begin with the tokens
    that the request says are written.

    Raises PromptRefused before the first event when the prompt cannot run. Whatever fails later ends the lanes with
    reason "error"; what was written stands.
    """
    started = time.perf_counter()
    prepared = prepare(session, request)
    ends = () if request.ignore_ends else end_tokens(session, request.raw)
    vocabulary = session.vocabulary
    lanes = [
        Lane(n, settings, History(prepared.ids), TokenText(vocabulary), StopMatcher(request.stop), started_s=started)
        for n, settings in enumerate(request.lanes)
    ]
    for lane in lanes:
        for token_id in request.written:
            lane.begin_with(token_id)
        yield _run_start(session, request, lane, prepared, ends)
    run = _Running(session, request, prepared, {end.token_id for end in ends}, control)
    try:
        logits = yield from run.prefill(started)
        if logits is None:
            for lane in lanes:
                yield run.end(lane, "cancelled")
            return
        run.forward.share(len(lanes))
        rows = [logits] * len(lanes)
        while lanes:
            waited = control.wait_turn(max(lane.last_token_s for lane in lanes))
            for number, settings in control.take_settings().items():
                for lane in lanes:
                    if lane.number == number:
                        lane.settings = settings
                        yield SettingsChanged(request.run_id, number, lane.step, settings)
            going: list[int] = []  # rows that go on
            cancelled = control.cancelled()
            for row, lane in enumerate(lanes):
                if cancelled:
                    yield run.end(lane, "cancelled")
                    continue
                if lane.first_token_s:  # a wait before any token is no part of decode
                    lane.waited_s += waited
                try:
                    event = run.choose(lane, rows[row])
                except RunFailed as error:  # one lane's broken numbers do not stop the others (SAM-22)
                    yield run.end(lane, "error", error.what, error.fix)
                    continue
                yield event
                if reason := run.stop_reason(lane):
                    yield run.end(lane, reason)
                else:
                    going.append(row)
            if not going:
                run.leave(0, lanes[0])
            lanes = [lanes[row] for row in going]
            if lanes:
                run.forward.keep(going)
                rows = run.decode([lane.token_ids[-1] for lane in lanes])
    except Exception as error:  # the engine's edge: whatever torch raises, the text stays
        log.error("run failed\n%s", traceback.format_exc())
        failed = explained(error)
        # The frames hold tensors; nothing of the exception may outlive this block (MEM-22).
        error.__traceback__ = error.__cause__ = error.__context__ = None
        for lane in lanes:
            if not lane.over:  # others may have ended in the same round
                yield run.end(lane, "error", failed.what, failed.fix)
    if session.kept.forward is not None:
        yield CacheKept(len(session.kept.ids), session.kept.held_bytes)


def explained(error: Exception) -> WorkbenchError:
    """A library's exception as a sentence and a way out."""
    if isinstance(error, WorkbenchError):
        return RunFailed(error.what_template, error.fix_template, **error.fields)
    said = " ".join(str(error).split())[:300]
    if isinstance(error, MemoryError) or "out of memory" in said.lower() or "can't allocate memory" in said.lower():
        return RunFailed(
            "The memory is full.", "Shorten the context, use fewer lanes, or load a smaller precision.", said=said
        )
    return RunFailed(
        "The model failed: {kind}: {said}",
        "What was written stands. Run again; if it fails again, another precision or attention may work.",
        kind=type(error).__name__,
        said=said,
    )


def _run_start(
    session: Session, request: Request, lane: Lane, prepared: PreparedPrompt, ends: tuple[EndToken, ...]
) -> RunStart:
    notes = prepared.notes
    if not ends and not request.ignore_ends:
        notes += ("No file of this model names an end token, so only the length ends this run.",)
    return RunStart(
        run_id=request.run_id,
        lane=lane.number,
        lanes=len(request.lanes),
        settings=lane.settings,
        prompt=request.prompt,
        prompt_text=prepared.text,
        prompt_tokens=prepared.tokens,
        ends=ends,
        stop=request.stop,
        max_new_tokens=request.max_new_tokens,
        context_tokens=session.facts.context_tokens,
        tokenise_ms=prepared.tokenise_ms,
        notes=notes,
        written=request.written,
    )


class _Running:
    """What stays the same while the lanes of one request run."""

    forward: Forward  # made by `prefill`

    def __init__(
        self, session: Session, request: Request, prepared: PreparedPrompt, ends: set[int], control: Control
    ) -> None:
        self.session, self.request, self.prepared, self.ends, self.control = session, request, prepared, ends, control
        self.prefill_ms = self.forward_ms = 0.0
        self.reused = 0  # tokens whose keys and values were kept from the last run
        self.kv_bytes = self.kv_allocated_bytes = 0  # one lane's, after the newest forward

    def prefill(self, started: float) -> Iterator[Event]:
        """Reads the prompt in chunks; its value is the last logits, float32 [vocab], or None when cancelled."""
        ids, chunk = [*self.prepared.ids, *self.request.written], FIRST_CHUNK_TOKENS
        longest = len(ids) + min(self.request.max_new_tokens - len(self.request.written), AHEAD_TOKENS)
        context = self.session.facts.context_tokens
        expected = min(longest, context) if context else longest
        if kept := self.session.kept.take(ids):
            self.forward, self.reused = kept
            self.forward.reserve(expected)
        else:
            self.forward = forward_of(self.session, expected)
        done = self.reused
        if self.session.prefill_tokens_per_s:
            chunk = int(min(LARGEST_CHUNK_TOKENS, max(chunk, self.session.prefill_tokens_per_s * CHUNK_S)))
        if self.forward.in_one_piece(len(ids)):
            chunk = len(ids)
        logits: np.ndarray | None = None
        while done < len(ids):
            if self.control.cancelled():
                return None
            began = time.perf_counter()
            part = ids[done : done + chunk]
            try:
                logits = self.forward.read(part, self.control.cancelled)
            except Cancelled:
                return None
            now = time.perf_counter()
            done += len(part)
            # A step's forward time is that of the pass that gave its logits: for step 0 the last chunk.
            self.forward_ms, self.prefill_ms = (now - began) * 1e3, (now - started) * 1e3
            self.kv_bytes, self.kv_allocated_bytes = self.forward.kv_bytes()
            yield PrefillProgress(self.request.run_id, done, len(ids), self.prefill_ms, self.kv_bytes, self.reused)
            fitting = len(part) * CHUNK_S / max(now - began, 1e-6)
            if len(part) >= FIRST_CHUNK_TOKENS:
                self.session.prefill_tokens_per_s = len(part) / max(now - began, 1e-6)
            chunk = int(min(LARGEST_CHUNK_TOKENS, max(FIRST_CHUNK_TOKENS, fitting)))
        return logits

    def decode(self, last_ids: list[int]) -> list[np.ndarray]:
        """One forward of all lanes; their logits, each float32 [vocab]."""
        began = time.perf_counter()
        rows = list(self.forward.step(last_ids))
        self.forward_ms = (time.perf_counter() - began) * 1e3
        self.kv_bytes, self.kv_allocated_bytes = self.forward.kv_bytes()
        return rows

    def leave(self, row: int, lane: Lane) -> None:
        """Keeps this lane's cache for the next run."""
        if self.session.kept.on:
            self.forward.keep([row])
            self.session.kept.keep([*self.prepared.ids, *lane.token_ids], self.forward)

    def choose(self, lane: Lane, logits: np.ndarray) -> TokenEvent:
        """Samples a lane's next token and takes it into the lane."""
        began = time.perf_counter()
        settings, step = lane.settings, lane.step
        u = None if settings.greedy else draw(settings.seed, step)
        decision = decide(logits, lane.history, settings, u, step, self.session.facts.precision)
        lane.history.add(decision.token_id)
        lane.token_ids.append(decision.token_id)
        # The end token of a chat is a special token and has no text; any other end says its text as usual.
        certain = lane.text.add(decision.token_id)
        shown = lane.stop.add(certain)
        lane.pieces.append(shown)
        now = time.perf_counter()
        lane.last_token_s = now
        if not lane.first_token_s:
            lane.first_token_s = now
        return self._event(lane, decision, shown, u, (now - began) * 1e3)

    def _event(self, lane: Lane, decision: Decision, text: str, u: float | None, sampling_ms: float) -> TokenEvent:
        vocabulary, token_id = self.session.vocabulary, decision.token_id
        ids, logits = array("i", decision.candidate_ids.tobytes()), array("d", decision.candidate_logits.tobytes())
        adjusted = decision.candidate_adjusted
        return TokenEvent(
            run_id=self.request.run_id,
            lane=lane.number,
            step=lane.step - 1,
            token_id=token_id,
            text=text,
            token_text=vocabulary.label(token_id),
            special=token_id in vocabulary.special,
            candidate_ids=ids,
            candidate_logits=logits,
            candidate_adjusted=logits if adjusted is None else array("d", adjusted.tobytes()),
            candidate_cuts=decision.candidate_cuts,
            candidate_texts=tuple(map(vocabulary.label, ids)),
            logsumexp=decision.logsumexp,
            entropy_nats=decision.entropy_nats,
            final_entropy_nats=decision.final_entropy_nats,
            stages=decision.stages,
            vocab_size=self.session.facts.vocab_size,
            rank=decision.rank,
            logprob=decision.logprob,
            final_logprob=decision.final_logprob,
            u=u,
            draw_low=decision.draw_low,
            draw_high=decision.draw_high,
            temperature=lane.settings.temperature,
            settings=lane.settings,
            forward_ms=self.forward_ms,
            sampling_ms=sampling_ms,
            kv_bytes=self.kv_bytes,
            kv_allocated_bytes=self.kv_allocated_bytes,
            context_used_tokens=len(lane.history.ids),
            stop_cut=lane.stop.matched is not None,
            tail=decision.tail,
        )

    def stop_reason(self, lane: Lane) -> str:
        """Why a lane is over after its newest token; empty if it goes on."""
        if lane.stop.matched is not None:
            return "stop string"
        if lane.token_ids[-1] in self.ends:
            return "eos"
        if lane.step >= self.request.max_new_tokens:
            return "length"
        context = self.session.facts.context_tokens
        if context and len(lane.history.ids) >= context:
            return "context full"
        return ""

    def end(self, lane: Lane, reason: str, sentence: str = "", fix: str = "") -> RunEnd:
        """The lane's end; what was held back is released, unless a stop string matched (TXT-3, TXT-9)."""
        tail = "" if lane.stop.matched else lane.stop.add(lane.text.finish())
        tail += lane.stop.finish()
        if lane.stop.matched and reason in ("eos", "length", "context full"):
            reason = "stop string"  # half a character became whole only now
        lane.pieces.append(tail)
        lane.over = True
        fresh = lane.step - len(self.request.written)
        decode_s = lane.last_token_s - lane.first_token_s - lane.waited_s if fresh > 1 else 0.0
        return RunEnd(
            run_id=self.request.run_id,
            lane=lane.number,
            reason=reason,
            text="".join(lane.pieces),
            tail_text=tail,
            token_ids=tuple(lane.token_ids),
            prompt_tokens=len(self.prepared.ids),
            new_tokens=lane.step,
            prefill_ms=self.prefill_ms,
            ttft_ms=(lane.first_token_s - lane.started_s) * 1e3 if fresh > 0 else 0.0,
            decode_ms=decode_s * 1e3,
            decode_tokens_per_s=(fresh - 1) / decode_s if decode_s > 0 else 0.0,
            kv_bytes=self.kv_bytes,
            kv_allocated_bytes=self.kv_allocated_bytes,
            sentence=sentence,
            fix=fix,
            reused_tokens=self.reused,
        )
