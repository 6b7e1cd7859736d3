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
from engine.errors import Cancelled, PromptRefused, RunFailed, WorkbenchError
from engine.events import CacheKept, EndToken, Event, RunEnd, RunStart, SettingsChanged, TokenEvent
from engine.prefill import Batch, Prefill, batches
from engine.prompt import PreparedPrompt, continuation, end_tokens, prepare
from engine.sampling import Decision, History, decide
from engine.session import Session
from engine.settings import LanePrompt, Request, SamplingSettings
from engine.text import StopMatcher, TokenText

log = logging.getLogger(__name__)
LANES_KEPT = 8  # of a request with so few lanes, each lane's cache is kept for forks


@dataclass(eq=False)
class Lane:
    """One lane while it runs."""

    number: int
    settings: SamplingSettings
    prepared: PreparedPrompt
    history: History
    text: TokenText
    stop: StopMatcher
    forced: list[int] = field(default_factory=list)  # tokens that are given, in the order in which they come
    token_ids: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    logits: np.ndarray | None = None  # for the next token, float32 [vocab]
    forward_ms: float = 0.0  # of the pass that gave them
    kv_bytes: int = 0  # after it
    kv_allocated_bytes: int = 0
    reused: int = 0  # tokens whose keys and values were kept or shared
    computed: int = 0  # tokens that went through the model for this lane
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
    that the request says are written; where those hold a stop string, or end with an end token and nothing is given
    behind it, the lanes end before anything is read.

    Raises PromptRefused before the first event when a prompt cannot run. Whatever fails later ends the lanes with
    reason "error"; what was written stands.
    """
    started = time.perf_counter()
    run = _Running(session, request, control, started)
    lanes = run.lanes
    for lane in lanes:
        yield _run_start(session, request, lane, run.ends)
    try:
        reason = run.over_before()
        try:
            if not reason:
                yield from run.prefill()
        except Cancelled:
            reason = "cancelled"
        if reason:
            for lane in lanes:
                yield run.end(lane, reason)
            lanes = []
        while lanes:
            waited = control.wait_turn(max(lane.last_token_s for lane in lanes))
            for number, settings in control.take_settings().items():
                for lane in lanes:
                    if lane.number == number:
                        lane.settings = settings
                        yield SettingsChanged(request.run_id, number, lane.step, settings)
            going: list[Lane] = []
            cancelled = control.cancelled()
            for lane in lanes:
                if cancelled:
                    yield run.end(lane, "cancelled")
                    continue
                if lane.first_token_s:  # a wait before any token is no part of decode
                    lane.waited_s += waited
                try:
                    event = run.choose(lane)
                except RunFailed as error:  # one lane's broken numbers do not stop the others (SAM-22)
                    yield run.end(lane, "error", error.what, error.fix)
                    continue
                yield event
                if reason := run.stop_reason(lane):
                    yield run.end(lane, reason)
                else:
                    going.append(lane)
            run.leave(lanes, going)
            lanes = going
            run.decode(lanes)
    except Exception as error:  # the engine's edge: whatever torch raises, the text stays
        log.error("run failed\n%s", traceback.format_exc())
        failed = explained(error)
        # The frames hold tensors; nothing of the exception may outlive this block (MEM-22).
        error.__traceback__ = error.__cause__ = error.__context__ = None
        for lane in lanes:
            if not lane.over:  # others may have ended in the same round
                yield run.end(lane, "error", failed.what, failed.fix)
    if session.kept.caches:
        yield CacheKept(session.kept.tokens, session.kept.held_bytes)


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


def _run_start(session: Session, request: Request, lane: Lane, ends: tuple[EndToken, ...]) -> RunStart:
    prepared, asked = lane.prepared, request.lane_prompt(lane.number)
    notes = prepared.notes
    if not ends and not request.ignore_ends:
        notes += ("No file of this model names an end token, so only the length ends this run.",)
    return RunStart(
        run_id=request.run_id,
        lane=lane.number,
        lanes=len(request.lanes),
        settings=lane.settings,
        prompt=asked.prompt,
        prompt_text=prepared.text,
        prompt_tokens=prepared.tokens,
        ends=ends,
        stop=request.stop,
        max_new_tokens=request.max_new_tokens,
        context_tokens=session.facts.context_tokens,
        tokenise_ms=prepared.tokenise_ms,
        notes=notes,
        written=request.written,
        parent=request.parent,
        forced_tokens=len(lane.forced),
        name=request.names[lane.number] if request.names else "",
        system=asked.system,
        lockstep=request.lockstep,
        written_text="".join(lane.pieces) if request.written else None,
    )


def _prepared(session: Session, request: Request, lane: int) -> PreparedPrompt:
    """As `prepare`; where lanes are asked different things, a refusal says which lane's it is."""
    try:
        return prepare(session, request, lane)
    except PromptRefused as refused:
        if not request.prompts:
            raise
        name = request.names[lane] if request.names and request.names[lane] else str(lane + 1)
        raise PromptRefused(
            "Lane {lane}: " + refused.what_template, refused.fix_template, **refused.fields, lane=name
        ) from None


class _Running:
    """The lanes of one request, and what they share."""

    def __init__(self, session: Session, request: Request, control: Control, started: float) -> None:
        self.session, self.request, self.control, self.started = session, request, control, started
        self.ends = () if request.ignore_ends else end_tokens(session, request.raw)
        self._end_ids = {end.token_id for end in self.ends}
        self.batches: list[Batch] = []
        self.prefill_ms = 0.0
        forced = [*request.forced, *(continuation(session, request.forced_text) if request.forced_text else ())]
        if any(not 0 <= token_id < session.facts.vocab_size for token_id in (*forced, *request.written)):
            raise PromptRefused(
                "This model knows no such token.",
                "What was written belongs to another model: load that one, or begin anew.",
            )
        prepared: dict[LanePrompt, PreparedPrompt] = {}
        self.lanes: list[Lane] = []
        for number, settings in enumerate(request.lanes):
            asked = request.lane_prompt(number)
            if asked not in prepared:
                prepared[asked] = _prepared(session, request, number)
            text, stop = TokenText(session.vocabulary), StopMatcher(request.stop)
            prompt = prepared[asked]
            lane = Lane(number, settings, prompt, History(prompt.ids), text, stop, forced, started_s=started)
            for token_id in request.written:
                lane.begin_with(token_id)
            self.lanes.append(lane)

    def prefill(self) -> Iterator[Event]:
        """Reads what the lanes are asked, and makes them batches. Raises Cancelled."""
        lanes_of: dict[tuple[int, ...], list[int]] = {}
        for lane in self.lanes:
            lanes_of.setdefault((*lane.prepared.ids, *lane.token_ids), []).append(lane.number)
        new_tokens = self.request.max_new_tokens - len(self.request.written)
        prefill = Prefill(self.session, self.control, self.request.run_id, new_tokens)
        yield from prefill.read(list(map(list, lanes_of)), self.started)
        self.prefill_ms = prefill.ms
        for reading, numbers in zip(prefill.readings, lanes_of.values(), strict=True):
            for number in numbers:
                lane = self.lanes[number]
                lane.logits, lane.forward_ms = reading.logits, reading.last_ms
                lane.reused, lane.computed = reading.reused, reading.computed
        self.batches = batches(prefill.readings, list(lanes_of.values()), self.request.lockstep)
        self._weigh()

    def decode(self, lanes: list[Lane]) -> None:
        """One forward of each batch: the lanes' logits for their next token."""
        by_number = {lane.number: lane for lane in lanes}
        for batch in self.batches:
            mine = [by_number[number] for number in batch.lanes]
            began = time.perf_counter()
            rows = batch.forward.step([lane.token_ids[-1] for lane in mine])
            forward_ms = (time.perf_counter() - began) * 1e3
            for lane, logits in zip(mine, rows, strict=True):
                lane.logits, lane.forward_ms = logits, forward_ms
                lane.computed += 1
        self._weigh()

    def _weigh(self) -> None:
        for batch in self.batches:
            for number, (in_use, allocated) in zip(batch.lanes, batch.forward.kv_bytes(), strict=True):
                lane = self.lanes[number]
                lane.kv_bytes, lane.kv_allocated_bytes = in_use, allocated

    def leave(self, lanes: list[Lane], going: list[Lane]) -> None:
        """Drops the lanes that are over from their batches, and keeps their caches for the next run.

        Of many lanes only the last to end is kept: it has what all were asked.
        """
        if len(lanes) == len(going):
            return
        numbers, kept = {lane.number for lane in going}, self.session.kept
        for batch in list(self.batches):
            over = [(row, n) for row, n in enumerate(batch.lanes) if n not in numbers]
            left = [n for n in batch.lanes if n in numbers]
            few = len(self.lanes) <= LANES_KEPT
            for row, number in over if kept.on and (few or not going) else ():
                lane = self.lanes[number]
                tokens = len(lane.prepared.ids) + lane.step - 1  # the last token was read by nobody
                last = not left and (row, number) == over[-1]
                if last:
                    batch.forward.keep([row])
                forward = batch.forward if last else batch.forward.copy(row, tokens) if few else None
                if forward is not None:
                    kept.keep([*lane.prepared.ids, *lane.token_ids], forward)
            if not left:
                self.batches.remove(batch)
            elif over:
                batch.keep(left)

    def choose(self, lane: Lane) -> TokenEvent:
        """Samples a lane's next token, or takes the one that is given, into the lane."""
        began = time.perf_counter()
        settings, step = lane.settings, lane.step
        u = None if settings.greedy else draw(settings.seed, step)
        place = step - len(self.request.written)
        forced = lane.forced[place] if place < len(lane.forced) else None
        assert lane.logits is not None
        decision = decide(lane.logits, lane.history, settings, u, step, self.session.facts.precision, forced)
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
        return self._event(lane, decision, shown, u, (now - began) * 1e3, forced is not None)

    def _event(
        self, lane: Lane, decision: Decision, text: str, u: float | None, sampling_ms: float, forced: bool
    ) -> TokenEvent:
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
            forward_ms=lane.forward_ms,
            sampling_ms=sampling_ms,
            kv_bytes=lane.kv_bytes,
            kv_allocated_bytes=lane.kv_allocated_bytes,
            context_used_tokens=len(lane.history.ids),
            stop_cut=lane.stop.matched is not None,
            tail=decision.tail,
            forced=forced,
            held=lane.stop.held,
        )

    def over_before(self) -> str:
        """Why the lanes are over before they write anything: what is written ends there already. All have the same."""
        lane = self.lanes[0]
        if lane.stop.matched is not None:
            return "stop string"
        ended = bool(lane.token_ids) and lane.token_ids[-1] in self._end_ids
        return "eos" if ended and not lane.forced else ""  # what a person gives goes on behind an end, too

    def stop_reason(self, lane: Lane) -> str:
        """Why a lane is over after its newest token; empty if it goes on."""
        if lane.stop.matched is not None:
            return "stop string"
        if lane.token_ids[-1] in self._end_ids:
            return "eos"
        given = len(self.request.written) + len(lane.forced)  # what is given is written whole
        if lane.step >= max(self.request.max_new_tokens, given):
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
            prompt_tokens=len(lane.prepared.ids),
            new_tokens=lane.step,
            prefill_ms=self.prefill_ms,
            ttft_ms=(lane.first_token_s - lane.started_s) * 1e3 if fresh > 0 else 0.0,
            decode_ms=decode_s * 1e3,
            decode_tokens_per_s=(fresh - 1) / decode_s if decode_s > 0 else 0.0,
            kv_bytes=lane.kv_bytes,
            kv_allocated_bytes=lane.kv_allocated_bytes,
            sentence=sentence,
            fix=fix,
            stop_string=lane.stop.matched or "",
            reused_tokens=lane.reused,
            computed_tokens=lane.computed,
        )
