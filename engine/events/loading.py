"""What a load says, and what a view may know of a loaded model."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.events.readings import MemoryReading
from engine.settings import SamplingSettings
from engine.sizes import NOT_WEIGHTS, LedgerPart, ModelSizes

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
