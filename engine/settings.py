"""What can be asked of the engine: how to load, how to sample, what to run. All frozen; a change is a new object."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, fields, replace

from engine.errors import SettingsRefused
from engine.words import TokenNames

FLOATS = ("float32", "bfloat16", "float16")
PRECISIONS = (*FLOATS, "int8", "nf4", "fp4")
_PRECISION_ALIASES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def precision_named(name: str | None) -> str | None:
    """The precision's full name; None (as the files say) stays None. Raises SettingsRefused for others."""
    if name is None:
        return None
    full = _PRECISION_ALIASES.get(name, name)
    if full not in PRECISIONS:
        raise SettingsRefused(
            "The precision {name} is not known.", "Choose one of {known}.", name=repr(name), known=", ".join(PRECISIONS)
        )
    return full


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """How to load a model.

    model: "default", a folder, a GGUF file, or a hub id that is in the local cache.
    precision: one of PRECISIONS, or None for what the files say (config's dtype, then the file's).
    device_map: "auto", "balanced", "balanced_low_0", "sequential", one device ("cpu", "cuda:0"), or pairs of
        (module name, device) where a device may also be "disk".
    max_memory_bytes: pairs of (device, bytes), for the planner.
    attention: transformers' name of the attention implementation ("sdpa", "eager"), None for its own choice.
    kernel: a name of engine/kernels.py for how products are computed, None for the fastest of the exact ones.
    int8_threshold: inputs as large as this are multiplied in 16 bits (Dettmers 2022); 0 keeps none apart.
    double_quantisation: of nf4 and fp4, whose block constants are packed once more (Dettmers 2023).
    compute_dtype: what nf4 and fp4 are unpacked to for each product; None for the model's own floating type.
    keep_windows: layers that look through a sliding window keep all tokens, so that a fork reads nothing again.
    """

    model: str
    precision: str | None = None
    device_map: str | tuple[tuple[str, str], ...] = "auto"
    max_memory_bytes: tuple[tuple[str, int], ...] = ()
    offload_folder: str | None = None
    allow_pickle: bool = False
    trust_remote_code: bool = False
    code_digest: str = ""  # of the code files that a person read and allowed; "": whatever lies there
    tie_lm_head: bool = False
    attention: str | None = None
    kernel: str | None = None
    int8_threshold: float = 6.0
    double_quantisation: bool = True
    compute_dtype: str | None = None
    keep_windows: bool = False

    def __post_init__(self) -> None:
        number = isinstance(self.int8_threshold, (int, float)) and not isinstance(self.int8_threshold, bool)
        low, high = INT8_THRESHOLD.low, INT8_THRESHOLD.high
        if not number or not low <= self.int8_threshold <= high:
            raise SettingsRefused(
                "The outlier threshold of int8 cannot be {value}.",
                "Give a number from {low:g} to {high:g}; 0 keeps no outliers apart, 6 is usual.",
                value=str(self.int8_threshold)[:40],
                low=low,
                high=high,
            )
        if self.compute_dtype is not None and self.compute_dtype not in FLOATS:
            raise SettingsRefused(
                "Packed weights cannot be computed with in {name}.",
                "Choose one of {known}.",
                name=repr(self.compute_dtype)[:40],
                known=", ".join(FLOATS),
            )


@dataclass(frozen=True, slots=True)
class PlanWish:
    """A question to the planner: where would this model's parts lie?

    devices: pairs of (device, bytes) of a machine that need not be there ("cuda:0", …, "cpu"), or None for this one.
    device_map: as in LoadPlan. room_for_text: the planner leaves the KV cache's and the working space's share free.
    """

    model: str
    precision: str | None = None
    context_tokens: int | None = None
    lanes: int = 1
    device_map: str | tuple[tuple[str, str], ...] = "auto"
    devices: tuple[tuple[str, int], ...] | None = None
    room_for_text: bool = True


@dataclass(frozen=True, slots=True)
class OffloadQuestion:
    """What does it cost per token to keep layers of the loaded model away from the device that computes?

    number: another one is another question, so that measuring again is not answered from what is known.
    """

    steps: int = 8
    number: int = 0


@dataclass(frozen=True, slots=True)
class KernelQuestion:
    """What does each kernel do for the loaded model? measure: now; otherwise what is remembered.

    number: another one is another question, as in OffloadQuestion.
    """

    measure: bool = False
    number: int = 0


@dataclass(frozen=True, slots=True)
class KernelWish:
    """Not a question: the loaded model, loaded again with this kernel (None: the fastest exact one) and attention."""

    kernel: str | None
    attention: str | None = None


@dataclass(frozen=True, slots=True)
class EstimateQuestion:
    """What will this model need? precision None: what a load without a wish takes."""

    model: str
    precision: str | None = None


@dataclass(frozen=True, slots=True)
class StopAsking:
    """Not a question: breaks off the one that is being answered."""


MOST_GPUS = 64
_GPUS = re.compile(r"(?:(\d+)\s*[x×*]\s*)?(\d+(?:\.\d+)?)\s*(GB|GiB|MiB)?", re.IGNORECASE)


def gpus_named(text: str) -> tuple[int, ...]:
    """The bytes of each GPU of "2x24", "8 × 80 GB" or "2x24GiB, 1x81559MiB": GB are 10^9 bytes, GiB 2^30, MiB 2^20.

    Raises SettingsRefused for what cannot be read, nothing at all, or more than 64.
    """
    sizes: list[int] = []
    for part in text.replace(";", ",").split(","):
        found = _GPUS.fullmatch(part.strip())
        unit = {"gib": 2**30, "mib": 2**20}.get((found[3] or "").lower(), 10**9) if found else 1
        if not found or int(found[1] or 1) > MOST_GPUS or not 0 < float(found[2]) * unit <= 10**13:
            raise SettingsRefused(
                "The GPUs {text} cannot be read.",
                "Write count x memory in GB: 2x24, or 1x80,2x24 (at most {most} GPUs).",
                text=repr(text[:60]),
                most=MOST_GPUS,
            )
        sizes += [round(float(found[2]) * unit)] * int(found[1] or 1)
    if not 1 <= len(sizes) <= MOST_GPUS:
        raise SettingsRefused("{count} GPUs are too many.", "Name at most {most}.", count=len(sizes), most=MOST_GPUS)
    return tuple(sizes)


@dataclass(frozen=True, slots=True)
class XrayQuestion:
    """Two ways to load one model, and the text over which they are compared. sample: a shipped text's name, or ""."""

    reference: LoadPlan
    other: LoadPlan
    text: str
    sample: str = ""


_SETTING_ALIASES = {"no_repeat_ngram": "no_repeat_ngram_size"}  # the short name is understood in commands and files


@dataclass(frozen=True, slots=True)
class Range:
    """What a sampling setting may be. `off` is the value at which it does nothing."""

    low: float
    high: float
    off: float
    integer: bool = False
    low_open: bool = False  # the low end itself is refused


RANGES: dict[str, Range] = {
    "temperature": Range(0.0, 100.0, 1.0),
    "top_k": Range(0, 2**31 - 1, 0, integer=True),
    "top_p": Range(0.0, 1.0, 1.0, low_open=True),
    "min_p": Range(0.0, 1.0, 0.0),
    "typical_p": Range(0.0, 1.0, 1.0, low_open=True),
    "repetition_penalty": Range(0.0, 100.0, 1.0, low_open=True),
    "presence_penalty": Range(-2.0, 2.0, 0.0),
    "frequency_penalty": Range(-2.0, 2.0, 0.0),
    "no_repeat_ngram_size": Range(0, 2**31 - 1, 0, integer=True),
}


def refusal(name: str, value: object) -> SettingsRefused | None:
    """Why this value of a sampling setting is refused (with the allowed range), or None if it is fine."""
    allowed = RANGES[name]
    high = str(allowed.high) if allowed.integer else f"{allowed.high:g}"  # with all its digits
    span = f"{'more than ' if allowed.low_open else 'from '}{allowed.low:g} up to {high}"
    number = isinstance(value, int) if allowed.integer else isinstance(value, (int, float))
    # The comparison comes before math.isfinite, which overflows on integers beyond a double.
    if number and not isinstance(value, bool):
        in_range = allowed.low <= value <= allowed.high and not (allowed.low_open and value == allowed.low)  # type: ignore[operator]
        if in_range and math.isfinite(value):  # type: ignore[arg-type]
            return None
    return SettingsRefused(
        "{name} cannot be {value}.",
        "Give a {kind} {span}.",
        name=name,
        value=str(value)[:40],
        kind="whole number" if allowed.integer else "number",
        span=span,
    )


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How a lane chooses its words. Names and meaning are transformers' (presence and frequency: the OpenAI API's).

    temperature 0 is greedy. top_k 0, top_p 1, min_p 0, typical_p 1, repetition_penalty 1, no_repeat_ngram_size 0
    mean off. seed is any integer; two lanes with one seed draw the same numbers. logit_bias: pairs of (token id, what
    is added to its raw logit, -100 to 100). banned: token ids that are never chosen. banned_sequences: of each, two
    tokens or more, the last is never chosen where the others stand before it (a word of several tokens).
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    no_repeat_ngram_size: int = 0
    seed: int = 0
    logit_bias: tuple[tuple[int, float], ...] = ()
    banned: tuple[int, ...] = ()
    banned_sequences: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        for name, allowed in RANGES.items():
            value = getattr(self, name)
            if error := refusal(name, value):
                raise error
            # 1 and 1.0 must be one setting: the record compares them, and transformers refuses an integer temperature.
            object.__setattr__(self, name, int(value) if allowed.integer else float(value))
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise SettingsRefused(
                "The seed {seed} is not a whole number.", "Give any integer.", seed=str(self.seed)[:40]
            )
        # Sorted, so that the same constraints are the same settings.
        object.__setattr__(self, "logit_bias", tuple(sorted(_biases(self.logit_bias).items())))
        sequences = {tuple(map(_token_id, _several(ids))) for ids in _several(self.banned_sequences)}
        single = {ids[0] for ids in sequences if len(ids) == 1}
        object.__setattr__(self, "banned", tuple(sorted({_token_id(i) for i in _several(self.banned)} | single)))
        object.__setattr__(self, "banned_sequences", tuple(sorted(ids for ids in sequences if len(ids) > 1)))

    @property
    def greedy(self) -> bool:
        # Two different logits in float32 are never so near that a temperature this small leaves the lesser a chance.
        return self.temperature < 1e-30

    @property
    def draws(self) -> bool:
        """Whether a seed can matter: greedy and top-k 1 leave one word, which every draw takes."""
        return not self.greedy and self.top_k != 1

    @property
    def names_tokens(self) -> bool:
        """Whether they mean something with one tokenizer only."""
        return bool(self.logit_bias or self.banned or self.banned_sequences)

    @property
    def token_ids(self) -> set[int]:
        """All that they name."""
        sequences = (token_id for ids in self.banned_sequences for token_id in ids)
        return {*(token_id for token_id, _ in self.logit_bias), *self.banned, *sequences}

    @property
    def without_tokens(self) -> SamplingSettings:
        """The same for any tokenizer."""
        return replace(self, logit_bias=(), banned=(), banned_sequences=())

    def as_dict(self) -> dict[str, float | int]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, object]) -> SamplingSettings:
        """Settings from a file's or command's names and numbers. Raises SettingsRefused for unknown names."""
        known = {field.name for field in fields(cls)}
        values = {_SETTING_ALIASES.get(name, name): value for name, value in values.items()}
        for name in values:
            if name not in known:
                raise SettingsRefused(
                    "There is no sampling setting called {name}.",
                    "Choose from {known}.",
                    name=repr(str(name)[:40]),
                    known=", ".join(sorted(known)),
                )
        return cls(**values)  # type: ignore[arg-type]


LOGIT_BIAS = Range(-100.0, 100.0, 0.0)  # the OpenAI API's


def _several(values: object) -> list[object]:
    if not isinstance(values, (tuple, list)):
        raise SettingsRefused("{value} is no list of tokens.", "Give token ids.", value=str(values)[:40])
    return list(values)


def _token_id(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise SettingsRefused("{value} is no token id.", "Give a whole number from 0 on.", value=str(value)[:40])
    return value


def _biases(pairs: object) -> dict[int, float]:
    found: dict[int, float] = {}
    for pair in _several(pairs):
        if len(parts := _several(pair)) != 2:
            raise SettingsRefused("{value} is no logit bias.", "Give pairs of token id and bias.", value=str(pair)[:40])
        token_id, bias = _token_id(parts[0]), parts[1]
        number = isinstance(bias, (int, float)) and not isinstance(bias, bool)
        if not number or not LOGIT_BIAS.low <= bias <= LOGIT_BIAS.high:  # type: ignore[operator]
            raise SettingsRefused(
                "The logit bias {value} is not allowed.",
                "Give a number from {low:g} to {high:g}.",
                value=str(bias)[:40],
                low=LOGIT_BIAS.low,
                high=LOGIT_BIAS.high,
            )
        found[token_id] = float(bias)  # type: ignore[arg-type]
    return found


INT8_THRESHOLD = Range(0.0, 1000.0, 0.0)
MAX_LANES = 64


@dataclass(frozen=True, slots=True)
class LanePrompt:
    """What one lane is asked, where lanes are asked different things. system as in Request."""

    prompt: str
    system: str | None = None


@dataclass(frozen=True, slots=True)
class Parent:
    """Where a fork began: the run and lane, and how many of its written tokens the fork begins with."""

    run_id: int
    lane: int
    step: int


@dataclass(frozen=True, slots=True)
class Request:
    """One or more lanes, what they are asked, where to stop.

    prompt: a chat message, or raw text when `raw`. system: the chat's system text, None for the template's own.
    prompts: one for each lane where they are asked different things; empty: all are asked `prompt` and `system`.
    names: what each lane is called by the person, or empty.
    prompt_ids: the tokens that `prompt` became when its parent read it, so that a fork reads the same; empty: the
        prompt is cut anew.
    markers_as_text: text such as "<|im_end|>" typed by a person stays text and ends no turn (PRM-23).
    stop: stop strings; only written text is searched.
    ignore_ends: end tokens do not end the run, only length and stop strings do (for measuring).
    written: token ids that every lane begins with, as if it had written them (a fork). They count as new tokens, and
        the draws go on after theirs.
    forced: token ids that each lane must write next, whatever their odds (an alternative picked by hand). They count
        as new tokens, and are written whole even where they are more than those.
    forced_text: the same as text, behind `forced`; the model's tokenizer cuts it.
    parent: where the fork began.
    lockstep: the lanes go as one batch. Otherwise each is computed alone, in turn: slower, but in 16 bits, too, the
        arithmetic is that of a run alone.
    """

    run_id: int
    prompt: str
    system: str | None = None
    raw: bool = False
    lanes: tuple[SamplingSettings, ...] = (SamplingSettings(),)
    max_new_tokens: int = 256
    stop: tuple[str, ...] = ()
    markers_as_text: bool = True
    ignore_ends: bool = False
    written: tuple[int, ...] = ()
    forced: tuple[int, ...] = ()
    forced_text: str = ""
    parent: Parent | None = None
    lockstep: bool = True
    prompts: tuple[LanePrompt, ...] = ()
    names: tuple[str, ...] = ()
    prompt_ids: tuple[int, ...] = ()

    def lane_prompt(self, lane: int) -> LanePrompt:
        """What this lane is asked."""
        return self.prompts[lane] if self.prompts else LanePrompt(self.prompt, self.system)

    def __post_init__(self) -> None:
        for given in (self.prompts, self.names):
            if given and len(given) != len(self.lanes):
                raise SettingsRefused(
                    "Prompts or names given: {given}; lanes: {lanes}.",
                    "Give one for each lane, or none.",
                    given=len(given),
                    lanes=len(self.lanes),
                )
        if any(not text for text in self.stop):
            raise SettingsRefused("A stop string is empty.", "Remove it, or write the text at which to stop.")
        if not 1 <= len(self.lanes) <= MAX_LANES:
            raise SettingsRefused("A run has 1 to {most} lanes.", "Give fewer lanes.", most=MAX_LANES)
        if isinstance(self.max_new_tokens, bool) or not isinstance(self.max_new_tokens, int) or self.max_new_tokens < 1:
            raise SettingsRefused("The number of new tokens must be a whole number of at least 1.", "Give 1 or more.")
        if len(self.written) >= self.max_new_tokens:
            raise SettingsRefused(
                "The run ends after {most} new tokens, and so many are written already: {count}.",
                "Allow more new tokens.",
                count=len(self.written),
                most=self.max_new_tokens,
            )


@dataclass(frozen=True, slots=True)
class ForkWish:
    """A page's wish: go on with a run another way. Its first `parent.step` tokens stand, then come `forced` and `text`.

    settings None: as the panel has them.
    """

    parent: Parent
    forced: tuple[int, ...] = ()
    text: str = ""
    settings: SamplingSettings | None = None


@dataclass(frozen=True, slots=True)
class CompareWish:
    """A page's wish: show these runs beside one another. Each is (run_id, lane)."""

    runs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PruneWish:
    """A page's wish: take these runs, and all that began in them, out of what is shown. Their files stay."""

    runs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class RenameWish:
    """A page's wish: call this run by a name; "" by none."""

    run: tuple[int, int]
    name: str


FUTURES = Range(2, 256, 2, integer=True)
FUTURE_TOKENS = Range(1, 256, 1, integer=True)


@dataclass(frozen=True, slots=True)
class FuturesWish:
    """A page's wish: `count` continuations of a run's first `parent.step` tokens, each `tokens` long.

    own: with the settings that the run had there; otherwise those of the panel.
    """

    parent: Parent
    count: int = 100
    tokens: int = 24
    own: bool = False


@dataclass(frozen=True, slots=True)
class FuturesQuestion:
    """Many continuations of one beginning, as batches that share one prefill and differ in their seed only.

    request: prompt and `written` are the beginning, its one lane the settings; its seed is the first, then each one
    more. number: another one is another question, so that asking again writes anew.
    """

    request: Request
    count: int
    tokens: int
    number: int = 0


@dataclass(frozen=True, slots=True)
class Preset:
    """Sampling settings under a name.

    with_seed: the seed belongs to it; otherwise choosing it leaves the seed as it is. words: what it is good for.
    source: "own" of the person, "built in", or "model" for the generation defaults of the model that is loaded.
    tokens: whose the token ids of its settings are, where they name any and that is known.
    """

    name: str
    settings: SamplingSettings
    with_seed: bool = False
    words: str = ""
    source: str = "own"
    tokens: TokenNames | None = None

    def applied(self, settings: SamplingSettings) -> SamplingSettings:
        """What choosing it makes of these settings."""
        return self.settings if self.with_seed else replace(self.settings, seed=settings.seed)

    def fits(self, settings: SamplingSettings) -> bool:
        """Whether these settings are what choosing it would make of them."""
        return self.applied(settings) == settings
