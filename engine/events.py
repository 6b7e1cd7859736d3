"""What the engine says. Frozen, small, complete: numbers and text only, units in the names.

Everything a view shows about a run comes from these, and a replay file is these written down, so a view cannot
tell a live run from a replayed one.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, replace
from typing import Literal

from engine.blind import (  # noqa: F401  views import what the engine says from here
    NO_PREFERENCE,
    BlindRound,
    BlindTest,
    Pair,
    new_seed,
)
from engine.experiments import (  # noqa: F401  views import what the engine says from here
    FIGURES,
    MOST_RUNS,
    TEXT_FIGURES,
    USUAL_BATCH,
    Asked,
    BlindQuestion,
    BlindTexts,
    Luck,
    LuckFigure,
    LuckQuestion,
    Mean,
    RunFigures,
    Sweep,
    SweepAxis,
    SweepQuestion,
    SweepRun,
    SweepsQuestion,
    values_named,
)
from engine.futures import (  # noqa: F401  views import what the engine says from here
    FirstWord,
    Future,
    Futures,
    Node,
    different,
    effective_number,
    scatter,
    shared_tokens,
    tree_of,
    words_of,
)
from engine.inside import (  # noqa: F401  views import what the engine says from here
    BINS,
    CodeFile,
    Histogram,
    HistogramQuestion,
    Leaf,
    Module,
    Outline,
    OutlineQuestion,
    ShardRead,
    TensorRow,
    TrustQuestion,
    WeightsQuestion,
    WeightsTable,
)
from engine.notes import Mark as Mark  # views import what the engine says from here
from engine.ordered import ORDERED as ORDERED  # views import what the engine says from here
from engine.ordered import OrderedFilters as OrderedFilters
from engine.ordered import OrderQuestion as OrderQuestion
from engine.ordered import TwoOrders as TwoOrders
from engine.redecided import (  # noqa: F401  views import what the engine says from here
    CUT_OPEN,
    ELSEWHERE,
    NOT_CUT,
    OPEN,
    STANDS,
    Redecided,
    Tail,
)
from engine.settings import Parent, PlanWish, SamplingSettings
from engine.sizes import NOT_WEIGHTS, DeviceLimit, ModelSizes
from engine.sizes import FitAnswer as FitAnswer  # views import what the engine says from here
from engine.sizes import FitChange as FitChange
from engine.sizes import LedgerPart as LedgerPart
from engine.sizes import ModelPart as ModelPart
from engine.words import WordForm as WordForm
from engine.words import WordsQuestion as WordsQuestion
from engine.words import WordTokens as WordTokens

# ---------------------------------------------------------------- loading

LOAD_STAGES = ("blueprint", "skeleton", "weights", "placement", "kernels")


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """Where a load stands. `done_bytes` and `total_bytes` count weights in the files; elapsed since the stage began."""

    stage: str  # one of LOAD_STAGES
    done_bytes: int
    total_bytes: int
    elapsed_ms: float
    detail: str = ""  # the tensor or shard just read


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the blueprint or of a box: what, its value as shown, where it comes from."""

    name: str
    value: str
    source: str = ""  # "config.json", "measured", "predicted", "estimated", ...


@dataclass(frozen=True, slots=True)
class PlacedPart:
    """A part of the model (a layer, the embedding, the norm, the head) and the device on which it lies."""

    name: str  # the module's name
    device: str  # "cpu", "cuda:0", "disk"
    weights_bytes: int
    layer: int | None = None
    kv_bytes: int = 0  # of this layer's cache, where it was worked out


@dataclass(frozen=True, slots=True)
class KernelFigure:
    """Measured over some of this model's layers: tokens per second in times of plain products and one lane."""

    name: str
    words: str
    chosen: bool
    one_lane: float
    eight_lanes: float


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """What a view may know of a loaded model."""

    name: str  # "SmolLM2-135M-Instruct"
    model_path: str  # the folder or file that was loaded
    family: str  # config's model_type
    precision: str
    device_map: str  # as asked
    devices: tuple[str, ...]  # where layers lie: ("cpu",) or ("cuda:0", "cpu", "disk")
    parameters: int
    layers: int
    heads: int
    kv_heads: int
    hidden_size: int
    vocab_size: int
    context_tokens: int  # 0: no limit known
    attention: str  # "sdpa", "eager", ... as it runs
    decode_path: str  # which loop body runs and why, one sentence
    has_chat_template: bool
    weights_bytes: int  # measured: the parameters' and buffers' storage, tied counted once
    kv_bytes_per_token: int | None  # per lane, beyond any window; None: not predictable
    ledger: tuple[LedgerPart, ...] = ()
    facts: tuple[Fact, ...] = ()
    notes: tuple[str, ...] = ()  # things a person should know, one sentence each
    stage_ms: tuple[tuple[str, float], ...] = ()  # measured time of each of LOAD_STAGES
    read_bytes_per_s: float = 0.0  # measured: how fast this process reads these weights; 0: not measured
    read_bytes_per_token: int = 0  # weights that a decode step of one lane reads; the KV cache is extra
    generation_defaults: SamplingSettings = SamplingSettings()
    memory_before_bytes: int = 0  # process memory before and after loading
    memory_after_bytes: int = 0
    sizes: ModelSizes | None = None  # what a ledger for other wishes needs
    places: tuple[PlacedPart, ...] = ()  # measured: where each part of the loaded model lies
    kernel: str = "plain"  # that computes the products
    kernel_words: str = ""  # the same in words, and why it was chosen
    kernel_figures: tuple[KernelFigure, ...] = ()  # what was measured for the choice; empty: nothing was
    packed_bytes: int = 0  # copies of weights, packed for the processor, that are read instead of the model's own
    packing_bytes: int = 0  # how much more memory that takes: less than nothing where the model's own stay on disk

    def on_device(self, device: str) -> int:
        """Measured bytes of the weights on a device."""
        return sum(part.weights_bytes for part in self.places if part.device == device)

    def process_ledger(self, reading: MemoryReading | None, kv_bytes: int | None = None) -> tuple[LedgerPart, ...]:
        """The ledger whose measured side adds up to this process's memory, with what is not explained as the last part.

        reading: now; None for the moment after loading. kv_bytes: what the lanes' caches hold now, None without a run.
        Weights on a GPU or on disk are no memory of the process, and so are not in the sum (`gpu_ledger` has them).
        """
        total = reading.process_bytes if reading is not None else self.memory_after_bytes
        cache_here = all(not device.startswith("cuda") for device in self.devices)
        kv_here = kv_bytes if cache_here else None
        parts = [
            replace(part, measured_bytes=kv_here if part.name == "kv_cache" else part.measured_bytes)
            for part in self.ledger
        ]
        if all(device in ("cpu", "disk") for device in self.devices):
            parts = [part for part in parts if part.name != "on disk"]
        else:  # of a part that lies on several devices, only this one's weights count here
            parts = [part for part in parts if part.name in NOT_WEIGHTS]
            parts.insert(0, LedgerPart("weights", None, self.on_device("cpu")))
        parts.append(LedgerPart("libraries", None, self.memory_before_bytes, _LIBRARIES))
        if not self.places:  # a replay of before they were measured
            return tuple(parts)
        if self.packing_bytes:
            parts.append(LedgerPart("packed weights", None, self.packing_bytes, _PACKED))
        left = total - sum(part.measured_bytes or 0 for part in parts)
        parts.append(LedgerPart("unexplained", None, left, _LESS if left < 0 else _MORE))
        return tuple(parts)

    def gpu_ledger(self, reading: MemoryReading, index: int, kv_bytes: int | None = None) -> tuple[LedgerPart, ...]:
        """What one GPU holds, by the allocator and the driver; the measured parts add up to the driver's figure.

        kv_bytes: of all lanes; None where there is no run or the cache lies on several devices.
        """
        gpu = reading.gpus[index]
        weights = self.on_device(f"cuda:{index}")
        parts = [LedgerPart("weights", None, weights)]
        if kv_bytes:
            parts.append(LedgerPart("kv_cache", None, kv_bytes))
        parts.append(LedgerPart("unexplained", None, gpu.allocated_bytes - weights - (kv_bytes or 0), _ON_GPU))
        parts.append(LedgerPart("kept by the allocator", None, gpu.reserved_bytes - gpu.allocated_bytes))
        if gpu.driver_used_bytes is not None:
            parts.append(LedgerPart("driver and others", None, gpu.driver_used_bytes - gpu.reserved_bytes, _DRIVER))
        return tuple(parts)


_PACKED = "Copies packed for the processor, less the weights that they stand for and that stay on disk."
_LIBRARIES = "Python, torch, transformers and the window, before any weights."
_LESS = (
    "Below zero: weights that are mapped from the file are counted whole, and their memory arrives only when they "
    "are first read, with the first word."
)
_MORE = (
    "Working space that is in use now, what the window took since, and freed memory that the C library keeps "
    "(kept, not leaked)."
)
_ON_GPU = "By the allocator: working space that is in use now, and the libraries' own tables."
_DRIVER = "The driver's own context, and what other programs use."


@dataclass(frozen=True, slots=True)
class Loaded:
    facts: SessionFacts


@dataclass(frozen=True, slots=True)
class Unloaded:
    """The session is gone. Process memory before it was loaded, and after freed memory was given back."""

    name: str
    memory_before_bytes: int
    memory_after_bytes: int


# ---------------------------------------------------------------- running


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


@dataclass(frozen=True, slots=True)
class CacheKept:
    """What stays in memory between runs, so that a run which begins with the same tokens begins at once."""

    tokens: int
    bytes: int  # measured: as allocated


@dataclass(frozen=True, slots=True)
class EngineError:
    """Something failed in the engine. Plain text only: keeping the exception would keep its tensors (MEM-22)."""

    what: str
    fix: str
    exit_code: int
    during: str  # "load", "run", "prompt", "unload"
    what_template: str = ""  # untranslated, with its fields, for the window's language
    fix_template: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    trace: str = ""  # for the log


@dataclass(frozen=True, slots=True)
class KernelProgress:
    """Where a comparison of kernels stands."""

    words: str
    done: int
    of: int


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One choice, measured. The error is against the first row, transformers' own forward on the same weights."""

    name: str
    words: str
    step_ms: float = 0.0  # of one lane, median
    lanes_ms: float = 0.0  # of eight lanes at once
    packing_s: float = 0.0  # packing and compiling
    kl_nats: float = 0.0  # per token, mean
    same_first: float = 1.0  # share of tokens with the same first choice
    error: str = ""  # why it cannot be had


@dataclass(frozen=True, slots=True)
class KernelSurvey:
    """Every kernel and attention over the same text, with the loaded model on this machine."""

    model: str
    precision: str
    tokens: int
    threads: int
    rows: tuple[KernelRow, ...]


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a view's question: Outline, WeightsTable, Histogram, …, or why there is none."""

    question: object
    answer: object


@dataclass(frozen=True, slots=True)
class ExperimentProgress:
    """How far a long experiment is: a sweep, luck or setting, a hundred futures."""

    question: object
    done: int
    total: int
    sentence: str = ""
    tokens_per_s: float = 0.0  # of all its lanes together, measured since it began; 0: not known yet
    remaining_s: float | None = None  # estimated from what was measured since it began
    runs_done: int = 0  # where done and total count smaller steps
    runs: int = 0
    partial: object = None  # the result so far, where views show it while it grows


# ---------------------------------------------------------------- readings


@dataclass(frozen=True, slots=True)
class GpuReading:
    name: str
    allocated_bytes: int  # by tensors (the allocator)
    reserved_bytes: int  # by the allocator from the driver
    driver_used_bytes: int | None  # all processes (NVML); None: the driver does not tell
    total_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """Measured now."""

    time_s: float  # monotonic
    process_bytes: int  # resident
    available_bytes: int  # what the machine could still give
    total_bytes: int
    gpus: tuple[GpuReading, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model that is on this computer."""

    name: str
    model: str  # what LoadPlan.model takes
    kind: str  # "default", "folder", "gguf", "cache"
    size_bytes: int
    family: str = ""
    parameters: int | None = None
    precision: str = ""
    context_tokens: int | None = None
    has_chat_template: bool | None = None
    pickle_only: bool = False
    weights: str = ""  # "safetensors", "pickle", "gguf"; "" where none were found
    licence: str = ""  # as the model's card, header or licence file names it
    path: str = ""  # where it lies
    hub_id: str = ""  # of a model in the hub's cache
    problem: EngineError | None = None  # why it cannot be loaded as it lies there


# ---------------------------------------------------------------- the hub


@dataclass(frozen=True, slots=True)
class HubModel:
    """One line of a search on the hub. None: the hub does not tell."""

    hub_id: str
    downloads: int | None = None  # of the last 30 days
    likes: int | None = None
    parameters: int | None = None
    size_bytes: int | None = None  # predicted from the tensors' types; the files' own sizes come with HubOffer
    licence: str = ""
    gated: bool = False
    updated: str = ""  # day, as 2026-01-31
    task: str = ""  # "text-generation", ...


@dataclass(frozen=True, slots=True)
class FileSet:
    """Files of a repository that make one model together. `here_bytes` of them are on this computer already."""

    name: str  # "safetensors", "pickle", or a GGUF file's name
    weights: str  # as in ModelChoice
    files: tuple[str, ...]
    total_bytes: int
    here_bytes: int = 0


@dataclass(frozen=True, slots=True)
class HubOffer:
    """What a repository holds that can be loaded here. Empty `sets`: nothing; `note` says why."""

    hub_id: str
    revision: str
    sets: tuple[FileSet, ...]
    licence: str = ""
    gated: bool = False
    note: str = ""
    page: str = ""  # address of its page, for a browser
    logged_in: bool = False  # whether a token of the hub is stored on this computer


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """Where a download stands. Speed is measured over the last seconds; None: not known yet."""

    hub_id: str
    name: str  # of the FileSet
    state: str  # "waiting", "listing", "checking", "downloading", "retrying"
    done_bytes: int = 0
    total_bytes: int = 0
    bytes_per_s: float | None = None
    remaining_s: float | None = None
    file: str = ""


@dataclass(frozen=True, slots=True)
class DownloadEnd:
    """A download is over. `model` is what LoadPlan.model takes, "" unless it is whole."""

    hub_id: str
    name: str
    reason: str  # "done", "cancelled", "error"
    model: str = ""
    error: EngineError | None = None


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A download that broke off and can go on."""

    hub_id: str
    name: str
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a model will need, worked out from its config alone. All predicted; bytes."""

    model: str
    precision: str
    context_tokens: int
    lanes: int
    parameters: int
    embedding_bytes: int
    layers_bytes: int
    lm_head_bytes: int
    weights_bytes: int
    kv_bytes: int | None  # None: this family's layers are not known, so not predictable
    kv_bytes_per_token: int | None
    rough_total_bytes: int
    better_rough_total_bytes: int
    total_bytes: int | None
    parts: tuple[LedgerPart, ...] = ()
    facts: tuple[Fact, ...] = ()
    notes: tuple[str, ...] = ()
    available_bytes: int = 0
    sizes: ModelSizes | None = None
    limits: tuple[DeviceLimit, ...] = ()  # measured: what each device of this machine could give, the fastest first
    libraries_bytes: int = 0  # measured: this process before any weights

    @property
    def exact_bytes(self) -> int | None:
        """Weights and KV cache: what the rough formulas try to say."""
        return None if self.kv_bytes is None else self.weights_bytes + self.kv_bytes

    @property
    def need_bytes(self) -> int:
        """What must be free: the total, or where the cache is not predictable the rest of it."""
        return self.total_bytes if self.total_bytes is not None else sum(p.predicted_bytes or 0 for p in self.parts)

    def at(self, precision: str | None = None, context_tokens: int | None = None, lanes: int | None = None) -> Estimate:
        """The same model asked for something else: arithmetic only, at once. None keeps what was asked."""
        if self.sizes is None:
            return self
        wish = (precision or self.precision, context_tokens or self.context_tokens, lanes or self.lanes)
        return replace(self, **self.sizes.figures(*wish))

    def as_planned(self, precision: str | None) -> Estimate:
        """The same context and lanes in a plan's precision, None for the one that a load without a wish takes."""
        return self.at((precision or self.sizes.default_precision) if self.sizes else None)

    def limit_of(self, device_map: str = "auto") -> int:
        """What the devices of a placement could give together, measured; 0 where that is not known."""
        for limit in self.limits:
            if limit.name == device_map:
                return limit.free_bytes
        return sum(limit.free_bytes for limit in self.limits) or self.available_bytes


# ---------------------------------------------------------------- planning


@dataclass(frozen=True, slots=True)
class PlannedDevice:
    """A device, there or not, and what would lie on it. All predicted; bytes."""

    name: str  # "cuda:0", "cpu", "disk"
    memory_bytes: int  # 0: no limit (disk)
    weights_bytes: int
    kv_bytes: int
    working_bytes: int  # working space and logits, and room for the largest part that comes from elsewhere

    @property
    def used_bytes(self) -> int:
        return self.weights_bytes + self.kv_bytes + self.working_bytes

    @property
    def free_bytes(self) -> int:
        """Below zero: it does not fit."""
        return self.memory_bytes - self.used_bytes


@dataclass(frozen=True, slots=True)
class Plan:
    """Where accelerate would put a model's parts, on devices that need not be there. All predicted; bytes."""

    wish: PlanWish
    model: str
    precision: str
    context_tokens: int
    lanes: int
    devices: tuple[PlannedDevice, ...]
    parts: tuple[PlacedPart, ...]
    main_device: str  # where what lies on the CPU or on disk is computed
    moved_bytes_per_token: int  # weights that travel to the device that computes, for each token
    notes: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """All lies where it is computed, with room for the cache and the working space beside it, on GPUs if any."""
        gpus = any(device.name not in ("cpu", "disk") for device in self.devices)
        room = all(device.free_bytes >= 0 for device in self.devices if device.memory_bytes)
        return room and not self.moved_bytes_per_token and not (gpus and self.main_device == "cpu")

    def spilled_bytes(self, device: str) -> int:
        """Weights that lie on "cpu" or "disk"."""
        return sum(part.weights_bytes for part in self.parts if part.device == device)


@dataclass(frozen=True, slots=True)
class OffloadRow:
    """Decode with some layers away from the device that computes, timed. Median, least and most of the steps."""

    place: str  # "" for nothing moved, "cpu", "disk"
    layers: int
    moved_bytes: int  # per token
    step_ms: float
    low_ms: float
    high_ms: float


@dataclass(frozen=True, slots=True)
class OffloadPrice:
    """What offload costs per token on this machine, measured with one model."""

    model: str
    precision: str
    device: str  # that computes
    steps: int
    rows: tuple[OffloadRow, ...]
    notes: tuple[str, ...] = ()

    def extra_ms(self, row: OffloadRow) -> float:
        """Milliseconds more per token than with nothing moved."""
        return row.step_ms - self.rows[0].step_ms

    def ms_per_gb(self, place: str) -> float | None:
        """Milliseconds per token for each 10^9 bytes that are moved, from the runs that differ in nothing else.

        None where fewer than two were measured, or more bytes took no longer: the noise is larger than the price.
        """
        rows = [row for row in self.rows if row.place == place]
        if len(rows) < 2 or rows[-1].moved_bytes <= rows[0].moved_bytes:
            return None
        price = (rows[-1].step_ms - rows[0].step_ms) / (rows[-1].moved_bytes - rows[0].moved_bytes) * 1e9
        return price if price > 0 else None


# ---------------------------------------------------------------- two precisions over one text


@dataclass(frozen=True, slots=True)
class XrayProgress:
    """Where a precision x-ray stands. stage: one of LOAD_STAGES, then "read" (layers of the one pass) and "decode"."""

    side: int  # 0: the first of the two, 1: the second
    precision: str
    stage: str
    done: int
    total: int
    elapsed_ms: float  # since the stage began


@dataclass(frozen=True, slots=True)
class XraySide:
    """One of the two precisions. All measured, in the same run."""

    precision: str  # as loaded
    words: str  # what its layers really are, "" for plain numbers
    device: str
    weights_bytes: int
    load_ms: float
    read_ms: float  # the one pass over the text
    decode_tokens_per_s: float  # by the median step
    decode_tokens: int  # of so many
    decode_path: str
    perplexity: float
    unpacks: bool  # its weights are unpacked again for each product
    native: bool | None  # whether the processor multiplies in this type; None: not known


@dataclass(frozen=True, slots=True)
class XrayToken:
    """One token of the text, and what the two made of its place. None and "" for the first: nothing comes before it.

    logprob: ln of this token's probability. choice: the most probable token there, with its probability by the one and
    by the other precision.
    """

    token_id: int
    label: str
    text: str  # what became certain with it; "" for half a character
    special: bool = False
    kl_nats: float | None = None  # KL divergence, reference first, over the whole vocabulary
    reference_logprob: float = 0.0
    other_logprob: float = 0.0
    reference_choice: str = ""
    reference_choice_probs: tuple[float, float] = (0.0, 0.0)  # by the reference, by the other
    other_choice: str = ""
    other_choice_probs: tuple[float, float] = (0.0, 0.0)
    flipped: bool = False  # the two would have chosen differently


@dataclass(frozen=True, slots=True)
class Xray:
    """Two precisions of a model over one text. Source: KL divergence, Kullback and Leibler 1951."""

    model: str
    sample: str  # the shipped text's name, "" for the person's own
    reference: XraySide
    other: XraySide
    tokens: tuple[XrayToken, ...]
    notes: tuple[str, ...] = ()

    @property
    def compared(self) -> tuple[XrayToken, ...]:
        return tuple(token for token in self.tokens if token.kl_nats is not None)

    @property
    def mean_kl_nats(self) -> float:
        return math.fsum(token.kl_nats or 0.0 for token in self.compared) / max(1, len(self.compared))

    @property
    def largest_kl_nats(self) -> float:
        return max((token.kl_nats or 0.0 for token in self.compared), default=0.0)

    @property
    def flips(self) -> tuple[int, ...]:
        """Places in `tokens` where the first choice is another."""
        return tuple(at for at, token in enumerate(self.tokens) if token.flipped)

    @property
    def same_first_share(self) -> float:
        return 1.0 - len(self.flips) / max(1, len(self.compared))

    @property
    def slower_because(self) -> str:
        """Why the smaller of the two was slower here: "unpacking", "no kernels", "unknown"; "" where it was not.

        Less than a tenth slower is no finding: speeds differ by as much between two runs of one precision.
        """
        small, large = sorted((self.other, self.reference), key=lambda side: side.weights_bytes)
        as_fast = small.decode_tokens_per_s >= 0.9 * large.decode_tokens_per_s
        if small.weights_bytes == large.weights_bytes or as_fast:
            return ""
        if small.unpacks:
            return "unpacking"
        return "no kernels" if small.native is False and large.native is not False else "unknown"


Event = (
    LoadProgress
    | Loaded
    | Unloaded
    | RunStart
    | PrefillProgress
    | TokenEvent
    | SettingsChanged
    | RunEnd
    | CacheKept
    | EngineError
    | MemoryReading
    | XrayProgress
    | Xray
    | Outline
    | ShardRead
    | WeightsTable
    | TrustQuestion
    | Answered
    | ExperimentProgress
    | KernelProgress
    | Mark
)
