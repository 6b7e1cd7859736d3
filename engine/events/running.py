"""What a run says: its beginning, prefill, each token with its odds, its end."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from typing import Literal

from engine.redecided import Tail
from engine.settings import Parent, SamplingSettings


@dataclass(frozen=True, slots=True)
class PromptToken:
    token_id: int
    text: str  # as shown: special tokens by their name, broken bytes as <F0 9F>
    special: bool


@dataclass(frozen=True, slots=True)
class PromptPreview:
    """What a prompt becomes before it is run: the templated text and its tokens. `problem` says why it cannot run."""

    text: str
    tokens: tuple[PromptToken, ...]
    notes: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class EndToken:
    """A token id that ends a run, and the file that says so."""

    token_id: int
    text: str
    source: str


@dataclass(frozen=True, slots=True)
class RunStart:
    """One lane begins."""

    run_id: int
    lane: int
    lanes: int
    settings: SamplingSettings
    prompt: str  # as the person wrote it
    prompt_text: str  # after the chat template
    prompt_tokens: tuple[PromptToken, ...]
    ends: tuple[EndToken, ...]
    stop: tuple[str, ...]
    max_new_tokens: int
    context_tokens: int
    tokenise_ms: float
    notes: tuple[str, ...] = ()
    written: tuple[int, ...] = ()  # tokens that the lane begins with, as if it had written them: a fork
    parent: Parent | None = None  # the run whose tokens those are
    forced_tokens: int = 0  # so many tokens after those are given and not chosen
    name: str = ""  # what the person calls the lane
    system: str | None = None
    lockstep: bool = True  # as in Request
    written_text: str | None = None  # what of a fork's beginning was certain by its end; None: an older file


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """The prompt is being read. The last one has done_tokens == total_tokens."""

    run_id: int
    done_tokens: int
    total_tokens: int
    elapsed_ms: float
    kv_bytes: int  # one lane's
    reused_tokens: int = 0  # of those done, whose keys and values were kept from the last run


# Stages of the waterfall, in order. A candidate has a probability at each stage until one cuts it.
STAGES = (
    "raw", "bias", "penalties", "no_repeat_ngram", "banned", "temperature", "top_k", "top_p", "min_p", "typical_p"
)  # fmt: skip


# The stages that cut. Files have their places: what is new comes last.
FILTERS = ("no_repeat_ngram", "top_k", "top_p", "min_p", "typical_p", "banned")


CutBy = Literal["no_repeat_ngram", "top_k", "top_p", "min_p", "typical_p", "banned"]


@dataclass(frozen=True, slots=True)
class StageFigures:
    """What a stage left: how many tokens, and the log of the sum of exp(logit at this stage) over those left."""

    name: str
    kept_tokens: int
    logsumexp: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """One alternative, worked out from a TokenEvent when somebody looks at it."""

    rank: int  # by raw logit, 0 is the largest
    token_id: int
    text: str
    logit: float
    probs: dict[str, float]  # stage name -> probability, up to the stage that cut it
    raw: float
    final: float | None  # None: cut
    cut_by: str | None  # the first filter that cut it
    penalty: float  # what the penalties changed its logit by, 0 without
    chosen: bool
    bias: float = 0.0  # added to its raw logit before the penalties


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One token was chosen. Everything needed to show why, and to decide again without the model.

    The alternatives are kept as packed arrays (ids int32, logits float64), largest raw logit first (among equals the
    smaller id); the chosen token is always among them, at the end if its logit is not one of the largest. Ten
    thousand events must stay small, hence arrays and not objects. Probabilities follow:
    p(stage) = exp(logit(stage) - logsumexp(stage)).
    """

    run_id: int
    lane: int
    step: int  # 0 is the first new token
    token_id: int
    text: str  # text that became certain with this token, may be empty
    token_text: str  # the token by itself, as a label; broken bytes as <F0 9F>, special tokens by name
    special: bool
    candidate_ids: array  # array("i"), int32
    candidate_logits: array  # array("d"), raw
    candidate_adjusted: array  # array("d"), after penalties; the same object where there are none
    candidate_cuts: bytes  # per candidate: 0, or 1 + index in FILTERS of the first filter that cut it
    candidate_texts: tuple[str, ...]
    logsumexp: float  # over the whole vocabulary, raw logits
    entropy_nats: float  # of the raw distribution
    final_entropy_nats: float  # of the distribution drawn from
    stages: tuple[StageFigures, ...]  # "raw" first, then each stage that is switched on
    vocab_size: int
    rank: int  # of the chosen token by raw logit, 0 is the largest
    logprob: float  # ln of the chosen token's raw probability
    final_logprob: float  # ln of its probability after all settings
    u: float | None  # None: greedy
    draw_low: float  # the chosen token's interval on the final cumulative distribution
    draw_high: float
    temperature: float
    settings: SamplingSettings
    forward_ms: float
    sampling_ms: float  # waterfall, draw and text
    kv_bytes: int  # this lane's entries in use
    kv_allocated_bytes: int
    context_used_tokens: int  # prompt and written, this token included
    stop_cut: bool = False  # a stop string began inside this token or earlier
    tail: Tail | None = None  # what is kept beyond the candidates; None: an older file
    forced: bool = False  # given by the person; the odds are the model's all the same
    held: str = ""  # text that waits after this token, since it could become a stop string

    @property
    def surprise_nats(self) -> float:
        return -self.logprob

    def kept_after(self, stage: str) -> int:
        """How many tokens were left after a stage (a stage that is off leaves what came in)."""
        kept = self.vocab_size
        for figures in self.stages:
            if STAGES.index(figures.name) > STAGES.index(stage):
                break
            kept = figures.kept_tokens
        return kept

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The alternatives, most probable first by the raw distribution."""
        return tuple(self.candidate(i) for i in range(len(self.candidate_ids)))

    def candidate(self, i: int) -> Candidate:
        raw_logit, adjusted = self.candidate_logits[i], self.candidate_adjusted[i]
        code = self.candidate_cuts[i]
        cut_by = FILTERS[code - 1] if code else None
        probs: dict[str, float] = {}
        scale = 1.0
        for figures in self.stages:
            if figures.name == cut_by:
                break
            if figures.name == "temperature":
                scale = 1.0 / self.temperature
            logit = raw_logit if figures.name == "raw" else adjusted * scale
            probs[figures.name] = math.exp(min(0.0, logit - figures.logsumexp))
        token_id = self.candidate_ids[i]
        chosen = token_id == self.token_id
        bias = next((b for biased, b in self.settings.logit_bias if biased == token_id), 0.0)
        final: float | None
        if cut_by is not None:
            final = None
        elif self.u is None:
            final = 1.0 if chosen else 0.0
        else:
            final = probs[self.stages[-1].name]
        return Candidate(
            rank=self.rank if chosen else i,
            token_id=token_id,
            text=self.candidate_texts[i],
            logit=raw_logit,
            probs=probs,
            raw=probs["raw"],
            final=final,
            cut_by=cut_by,
            penalty=self._penalty(raw_logit + bias, adjusted),
            chosen=chosen,
            bias=bias,
        )

    @staticmethod
    def _penalty(before: float, after: float) -> float:
        change = after - before
        # Sums in float32: what is less than their last digits is none.
        return change if math.isfinite(change) and abs(change) > 1e-6 * (1.0 + abs(before)) else 0.0

    def others(self) -> tuple[float, float]:
        """What all tokens that are not listed share: (raw, final). With the listed ones it makes 1."""
        listed = self.candidates
        raw = 1.0 - math.fsum(c.raw for c in listed)
        final = 1.0 - math.fsum(c.final or 0.0 for c in listed)
        return max(0.0, raw), max(0.0, final)


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """From this step on a lane uses other settings."""

    run_id: int
    lane: int
    step: int
    settings: SamplingSettings


END_REASONS = ("eos", "stop string", "length", "context full", "cancelled", "error")


@dataclass(frozen=True, slots=True)
class RunEnd:
    """A lane is over. `tail_text` was held back (half a character, half a stop string) and is released now."""

    run_id: int
    lane: int
    reason: str  # one of END_REASONS
    text: str  # all of it, prompt not included
    tail_text: str
    token_ids: tuple[int, ...]
    prompt_tokens: int
    new_tokens: int
    prefill_ms: float
    ttft_ms: float  # request to first token
    decode_ms: float  # first token to last
    decode_tokens_per_s: float  # (new_tokens - 1) / decode time, waiting for a pace or pause not counted
    kv_bytes: int
    kv_allocated_bytes: int
    sentence: str = ""  # for "error" and other ends that need a word
    fix: str = ""
    stop_string: str = ""  # that was written and cut off, for the reason "stop string"
    reused_tokens: int = 0  # of prompt and beginning, not read again: their keys and values were kept
    computed_tokens: int = 0  # that went through the model for this lane: read (shared or not) and written

    @property
    def breaks_off(self) -> bool:
        """Whether the recording ended and not the run: its reader closes it with a sentence and without times."""
        return self.reason == "error" and bool(self.sentence) and math.isnan(self.decode_ms)


@dataclass(frozen=True, slots=True)
class CacheKept:
    """What stays in memory between runs, so that a run which begins with the same tokens begins at once."""

    tokens: int
    bytes: int  # measured: as allocated
