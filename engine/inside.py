"""What a view may ask about the inside of a model, and the answers: plain frozen data, no torch.

A question goes to the engine's thread and comes back inside `events.Answered`, with the answer or an EngineError.
"""

from __future__ import annotations

from dataclasses import dataclass

BINS = 64  # of a histogram


# ---------------------------------------------------------------- blueprint and skeleton


@dataclass(frozen=True, slots=True)
class OutlineQuestion:
    """What is this model made of? precision: None for what the files say."""

    model: str  # as in LoadPlan
    precision: str | None = None


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor of the empty model. tied_to: the tensor it shares its numbers with; its bytes are counted there."""

    name: str
    shape: tuple[int, ...]
    numel: int
    predicted_bytes: int
    role: str = ""  # as the ledger's parts; "buffer": a table that is no weight
    tied_to: str = ""


@dataclass(frozen=True, slots=True)
class Module:
    """A part of the empty model. `numbers`: which of its equal siblings it stands for (empty: it stands alone).

    path: its whole name; where it or a part above it stands for several, "{}" is their number.
    parameters, predicted_bytes: of one of them, all below it included, tied ones once.
    """

    name: str
    path: str
    kind: str  # its class
    parameters: int
    predicted_bytes: int
    numbers: tuple[int, ...] = ()
    leaves: tuple[Leaf, ...] = ()
    parts: tuple[Module, ...] = ()


@dataclass(frozen=True, slots=True)
class Outline:
    """A model before its weights are read: config.json as numbers, and the tree of the empty model.

    0 or "" where the config does not say. The bytes are predicted for `precision`.
    """

    name: str
    path: str  # the folder or file
    source: str  # the file that was read: "config.json", or a GGUF file's name
    raw: str  # its text as written; for a GGUF file its header's keys
    family: str
    architecture: str  # class that config.json names
    precision: str
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    hidden_size: int
    feed_forward_size: int
    vocab_size: int
    context_tokens: int
    tied: bool
    parameters: int
    parameters_per_token: int  # fewer than `parameters` where experts are chosen
    experts: int
    experts_per_token: int
    rope_base: float
    rope_kind: str  # "default", "llama3", "yarn", ...
    rope_factor: float  # how many times longer the context was made
    activation: str
    windows: tuple[tuple[int | None, int], ...]  # (tokens a layer keeps, how many layers); None: all of them
    other_layers: int  # layers that keep a fixed state, or nothing
    dtype_files: tuple[str, ...]
    dtype_config: str
    quantisation: str
    shares: tuple[tuple[str, int], ...]  # parameters by part
    ends: tuple[tuple[str, tuple[int, ...]], ...]  # end tokens by the file that names them
    licence: str
    predicted_bytes: int
    tree: Module
    notes: tuple[str, ...] = ()


# ---------------------------------------------------------------- weights


@dataclass(frozen=True, slots=True)
class ShardRead:
    """How far a file has been read while a model loads. Time is the loader's for this file's tensors, measured."""

    file: str
    place: int  # in the order of loading, from 0
    total_bytes: int
    done_bytes: int
    elapsed_ms: float

    @property
    def bytes_per_s(self) -> float | None:
        return self.done_bytes / self.elapsed_ms * 1e3 if self.elapsed_ms > 0 and self.done_bytes else None


@dataclass(frozen=True, slots=True)
class WeightsQuestion:
    """Which tensors lie in which file, and which of them does the model need?"""

    model: str


@dataclass(frozen=True, slots=True)
class TensorRow:
    """A tensor of the files or of the model. mark: "" or "missing", "unexpected", "tied" (kept once, under `note`)."""

    name: str
    file: str  # "" where no file holds it
    dtype: str  # in the file, by torch's name; "" where it is in no file
    shape: tuple[int, ...]
    bytes: int  # in the file
    mark: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class WeightsTable:
    """The weight files of a model and their tensors. loaded: judged by the loader, else by names and shapes alone."""

    path: str
    kind: str  # "safetensors", "pickle", "gguf"
    loaded: bool
    shards: tuple[ShardRead, ...]  # those read, in order; before a load all of them, without a time
    tensors: tuple[TensorRow, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HistogramQuestion:
    """How are a tensor's numbers distributed? path: the model's folder or file, as in the table."""

    path: str
    tensor: str


@dataclass(frozen=True, slots=True)
class Histogram:
    """A tensor's numbers, measured: all of them, finite ones in the bins.

    linear: BINS counts between low and high. by_size: BINS counts of the numbers' sizes between 2^from and 2^to;
    zeros are in none of these. None where no number is finite, or all are zero.
    """

    tensor: str
    source: str  # "memory", "file"
    dtype: str
    shape: tuple[int, ...]
    numel: int
    low: float | None
    high: float | None
    mean: float | None
    std: float | None
    zeros: int
    nans: int
    infinities: int
    linear: tuple[int, ...]
    by_size: tuple[int, ...]
    exponents: tuple[float, float] | None  # (from, to) of by_size
    elapsed_ms: float
    note: str = ""


# ---------------------------------------------------------------- trust


@dataclass(frozen=True, slots=True)
class CodeFile:
    """A Python file that comes with a model. named_by: the keys of auto_map that begin in it."""

    name: str  # relative to the folder, with forward slashes
    bytes: int
    sha256: str
    named_by: tuple[str, ...]
    text: str  # to be read before it is allowed; cut where it is long
    whole: bool = True  # whether `text` is all of it


@dataclass(frozen=True, slots=True)
class TrustQuestion:
    """A load that needs a person's answer first. kind: "code" (Python files of the model), "pickle" (its weights),
    "tie" (no output head is in the files, and the embedding could be it).

    digest: of all files by name and content; an answer holds for exactly these. plan: the LoadPlan that was asked for.
    """

    kind: str
    path: str
    plan: object
    files: tuple[CodeFile, ...]
    digest: str
    elsewhere: tuple[str, ...] = ()  # parts of auto_map that are not in the folder
    error: object = None  # EngineError: what is said where the answer is no
