"""What a model would need, where its parts would lie, and what offload costs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.events.loading import Fact, PlacedPart
from engine.settings import PlanWish
from engine.sizes import DeviceLimit, LedgerPart, ModelSizes


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
