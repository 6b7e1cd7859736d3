"""A model's sizes as plain numbers, and the memory ledger as arithmetic over them: a slider moves it at once.

Imports no torch and reads no model, so that a view may ask an `Estimate` for another context, number of lanes or
precision while it is being dragged. The numbers come from the empty model (engine/memory.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

ELEMENT_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
NOMINAL_BYTES = {**ELEMENT_BYTES, "int8": 1, "nf4": 0.5, "fp4": 0.5}
PREFILL_CHUNK = 512  # the loop's largest chunk: what is worked on at once
LEAST_CONTEXT = 256  # nobody is helped by an offer of less
NOT_WEIGHTS = ("kv_cache", "state", "logits", "working", "libraries", "unexplained")  # parts that are no weights


@dataclass(frozen=True, slots=True)
class LedgerPart:
    """One part of the memory ledger. None: not known (not yet measured, or not predictable)."""

    name: str  # "embedding", "attention", "feed-forward", "norms", "lm_head", "quantisation", "kv_cache", "logits", ...
    predicted_bytes: int | None
    measured_bytes: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class DeviceLimit:
    """What a device of this machine could still give, measured."""

    name: str  # "cpu", "cuda:0"
    free_bytes: int
    total_bytes: int
    title: str = ""  # as its maker calls it


@dataclass(frozen=True, slots=True)
class CacheLayer:
    """What one layer keeps per lane. Numbers of elements; a state's bytes are split by whether it follows precision."""

    kind: str  # "full", "window", "state", "none"
    per_token: int  # keys and values, elements per token
    window_tokens: int | None  # how many tokens a full window keeps (one less than the window)
    state_elements: int = 0  # of the model's precision
    state_fixed_bytes: int = 0  # of parts that stay float32 in any precision

    def held(self, tokens: int) -> int:
        """Elements of keys and values after so many tokens in one lane."""
        return self.per_token * (tokens if self.window_tokens is None else min(tokens, self.window_tokens))

    def keeping_all(self) -> CacheLayer:
        """The same layer where a window's tokens are kept when they have left it (CAC-2)."""
        return replace(self, window_tokens=None) if self.kind == "window" else self

    def state_bytes(self, bytes_per_element: int) -> int:
        return self.state_elements * bytes_per_element + self.state_fixed_bytes


@dataclass(frozen=True, slots=True)
class PrecisionSizes:
    """The weights in one precision: bytes by part. float_dtype: the type of what is not quantised, and of the cache."""

    precision: str
    float_dtype: str
    parts: tuple[tuple[str, int], ...]
    packed: bool = False  # some matrices are quantised, by the precision's name or in the files already

    @property
    def total_bytes(self) -> int:
        return sum(size for _, size in self.parts)

    def part(self, name: str) -> int:
        return dict(self.parts).get(name, 0)


@dataclass(frozen=True, slots=True)
class ModelPart:
    """What a person would put on a device as one piece: a layer, the embedding, the norm, the head."""

    name: str  # the module's name: "model.layers.3"
    layer: int | None
    weights_bytes: tuple[int, ...]  # in each of ModelSizes.precisions


@dataclass(frozen=True, slots=True)
class FitChange:
    """A change of the wish after which it fits. `changed`: "precision", "context", "lanes", "disk"."""

    changed: tuple[str, ...]
    precision: str
    context_tokens: int
    lanes: int
    disk_bytes: int  # of the weights, to lie on disk
    total_bytes: int  # needed in memory after the change


@dataclass(frozen=True, slots=True)
class FitAnswer:
    """changes: those that make it fit, the mildest first; nearest: what needs least, where none does."""

    changes: tuple[FitChange, ...]
    nearest: FitChange


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """What a ledger needs of a model."""

    parameters: int
    hidden_size: int
    heads: int
    kv_heads: int
    vocab_size: int
    widest_layer: int
    context_tokens: int  # 0: no limit known
    buffer_bytes: int  # tables that are no weights and keep their type
    precisions: tuple[PrecisionSizes, ...]
    cache: tuple[CacheLayer, ...] | None  # None: not predictable
    parts: tuple[ModelPart, ...] = ()
    notes: tuple[str, ...] = ()  # of the model, whatever is asked of it
    default_precision: str = ""  # what a load without a wish takes
    buffer_numbers: int = 0  # in tables that take the model's type, such as Gemma's scale

    def weights(self, precision: str) -> PrecisionSizes:
        """Raises KeyError for a precision that was not worked out."""
        for sizes in self.precisions:
            if sizes.precision == precision:
                return sizes
        raise KeyError(precision)

    def element_bytes(self, precision: str) -> int:
        """Bytes of one number of the cache and of what is worked on."""
        return ELEMENT_BYTES[self.weights(precision).float_dtype]

    def buffers(self, precision: str) -> int:
        return self.buffer_bytes + self.buffer_numbers * self.element_bytes(precision)

    def kv_bytes(self, precision: str, context_tokens: int, lanes: int = 1) -> int | None:
        return kv_bytes_of(self.cache, context_tokens, self.element_bytes(precision), lanes)

    def state_bytes(self, precision: str, lanes: int = 1) -> int:
        each = self.element_bytes(precision)
        return sum(layer.state_bytes(each) for layer in self.cache or ()) * lanes

    def logits_bytes(self, precision: str, lanes: int = 1) -> int:
        """One row per lane, in the model's type and as float32 (MEM-21)."""
        return self.vocab_size * lanes * (4 + self.element_bytes(precision))

    def working_bytes(self, precision: str, context_tokens: int, lanes: int = 1) -> int:
        """Estimated bytes that a forward pass holds besides weights and cache, at its largest moment.

        A chunk of the prompt through the widest layer (three such tensors and five of hidden width live at once), the
        attention mask over the context in the model's type, and one layer's cache twice, since appending copies it.
        """
        each = self.element_bytes(precision)
        chunk = min(PREFILL_CHUNK, context_tokens)
        widths = 3 * self.widest_layer + 5 * self.hidden_size
        mask = chunk * context_tokens * (1 + each)
        largest = max((layer.held(context_tokens) for layer in self.cache or ()), default=0)
        return max(chunk, lanes) * widths * each + mask + largest * each * lanes

    def need(self, precision: str, context_tokens: int, lanes: int = 1) -> int:
        """All bytes besides the libraries; where the cache is not predictable, without it."""
        return (
            self.weights(precision).total_bytes
            + self.buffers(precision)
            + (self.kv_bytes(precision, context_tokens, lanes) or 0)
            + self.state_bytes(precision, lanes)
            + self.logits_bytes(precision, lanes)
            + self.working_bytes(precision, context_tokens, lanes)
        )

    def ledger(self, precision: str, context_tokens: int, lanes: int = 1) -> tuple[LedgerPart, ...]:
        """The predicted parts; they add up to `need`."""
        sizes = self.weights(precision)
        parts = [LedgerPart(name, size) for name, size in sizes.parts if size]
        if size := self.buffers(precision):
            parts.append(LedgerPart("buffers", size, note="Tables that are no weights, such as rotary's."))
        cache = self.kv_bytes(precision, context_tokens, lanes)
        parts.append(LedgerPart("kv_cache", cache, note=self._cache_note()))
        if states := self.state_bytes(precision, lanes):
            parts.append(LedgerPart("state", states, note="Does not grow with the text."))
        logits, working = (
            self.logits_bytes(precision, lanes),
            self.working_bytes(precision, context_tokens, lanes),
        )
        parts.append(LedgerPart("logits", logits, note="One row per lane, in the model's type and as float32."))
        parts.append(LedgerPart("working", working, note="Estimated: one chunk of the prompt on its way."))
        return tuple(parts)

    def rough_bytes(self, precision: str, context_tokens: int, lanes: int = 1) -> int:
        return rough_bytes(self.parameters, NOMINAL_BYTES[precision], context_tokens, self.hidden_size, lanes)

    def better_rough_bytes(self, precision: str, context_tokens: int, lanes: int = 1) -> int:
        share = self.kv_heads / self.heads if self.heads else 1.0
        return better_rough_bytes(
            self.parameters, NOMINAL_BYTES[precision], context_tokens, self.hidden_size, share, lanes
        )

    def figures(self, precision: str, context_tokens: int, lanes: int = 1) -> dict[str, Any]:
        """The fields of an Estimate that depend on what is asked. Bytes."""
        sizes = self.weights(precision)
        cache = self.kv_bytes(precision, context_tokens, lanes)
        before = self.kv_bytes(precision, context_tokens - 1)
        after = self.kv_bytes(precision, context_tokens)
        embedding, head = sizes.part("embedding"), sizes.part("lm_head")
        why = self.why_rough_is_off(precision, context_tokens, lanes)
        return {
            "precision": precision,
            "context_tokens": context_tokens,
            "lanes": lanes,
            "embedding_bytes": embedding,
            "layers_bytes": sizes.total_bytes - embedding - head,
            "lm_head_bytes": head,
            "weights_bytes": sizes.total_bytes,
            "kv_bytes": cache,
            # What the last token of this context adds to one lane; a window that is full grows no more.
            "kv_bytes_per_token": None if after is None or before is None else after - before,
            "rough_total_bytes": self.rough_bytes(precision, context_tokens, lanes),
            "better_rough_total_bytes": self.better_rough_bytes(precision, context_tokens, lanes),
            "total_bytes": None if cache is None else self.need(precision, context_tokens, lanes),
            "parts": self.ledger(precision, context_tokens, lanes),
            "notes": tuple(note for note in (*self.notes, self._beyond_context(context_tokens), why) if note),
        }

    # ---------------------------------------------------------------- why the rough formula is off

    def why_rough_is_off(self, precision: str, context_tokens: int, lanes: int = 1) -> str:
        """One or two sentences on where the rough formula goes wrong for this model, "" where nothing is known.

        A classic block has about 12·hidden² parameters and keeps 2·hidden numbers per token, so the cache's share is
        sequence/(6·hidden); the formula's 2·sequence/hidden is 12 times that (MEM-3).
        """
        cache = self.kv_bytes(precision, context_tokens, lanes)
        if cache is None or not self.heads:
            return ""
        counted = self.rough_bytes(precision, context_tokens, lanes) - round(self.parameters * NOMINAL_BYTES[precision])
        reasons = ["takes 2·sequence/hidden, 12 times the share that blocks of 12·hidden² parameters keep"]
        if self.kv_heads < self.heads:
            reasons.append(f"counts every head although {self.kv_heads} of {self.heads} are kept")
        windows = [layer for layer in self.cache or () if layer.kind == "window"]
        if any(layer.window_tokens < context_tokens for layer in windows if layer.window_tokens is not None):
            reasons.append(f"lets {len(windows)} of {len(self.cache or ())} layers keep all that they let go")
        none = sum(1 for layer in self.cache or () if layer.kind in ("state", "none"))
        if none:
            reasons.append(f"counts {none} of {len(self.cache or ())} layers that keep no keys and values")
        if precision not in ELEMENT_BYTES:
            reasons.append(f"takes the cache in {precision} although it stays {self.weights(precision).float_dtype}")
        told = " and ".join(filter(None, (", ".join(reasons[:-1]), reasons[-1])))
        return (
            f"The rough formula counts {counted / 1e9:,.2f} GB for the text where this model keeps "
            f"{cache / 1e9:,.2f} GB: it {told}."
        )

    def _beyond_context(self, context_tokens: int) -> str:
        if not self.context_tokens or context_tokens <= self.context_tokens:
            return ""
        most = f"{self.context_tokens:,}"
        return f"{context_tokens:,} tokens are more than the model's context of {most}: it cannot use them."

    def _cache_note(self) -> str:
        if self.cache is None:
            return "Not predictable: this family keeps its past in a way of its own."
        windows = [layer for layer in self.cache if layer.kind == "window"]
        if not windows:
            return ""
        which = f"{len(windows)} of {len(self.cache)}"
        if windows[0].window_tokens is None:
            return f"Layers that look through a window and keep all tokens, for forks: {which}."
        return f"Layers that keep at most {windows[0].window_tokens:,} tokens: {which}."

    # ---------------------------------------------------------------- what would make it fit

    def changes_that_fit(
        self, precision: str, context_tokens: int, lanes: int, limit_bytes: int, most: int = 3
    ) -> FitAnswer:
        """Up to `most` changes after which the need is within the limit: single ones first, then two or three at once.

        Each goes only as far as it must: the largest smaller precision, the longest context (in steps of 256), the
        most lanes, the fewest layers on disk.
        """
        found: list[FitChange] = []
        steps = ("precision", "context", "lanes", "disk")
        for count in (1, 2, 3, 4):
            for changed in combinations(steps, count):
                # What one change alone achieves is not offered again with another one beside it.
                if any(set(known.changed) <= set(changed) for known in found):
                    continue
                wanted = self._smaller(precision) if "precision" in changed else [precision]
                made = (self._mildest(named, changed, context_tokens, lanes, limit_bytes) for named in wanted)
                found += [change for change in made if change][:1]
        nearest = min(
            (self._least(sizes.precision, context_tokens) for sizes in self.precisions), key=lambda c: c.total_bytes
        )
        return FitAnswer(tuple(found[:most]), nearest)

    def _mildest(
        self, precision: str, changed: tuple[str, ...], context: int, lanes: int, limit: int
    ) -> FitChange | None:
        """The smallest change of exactly these, with this precision, that fits; None if there is none."""

        def fitting(tokens: int, many: int) -> FitChange | None:
            need, disk = self.need(precision, tokens, many), 0
            if "disk" in changed:
                disk, need = self._on_disk(precision, need, limit)
                if not disk:
                    return None
            return FitChange(changed, precision, tokens, many, disk, need) if need <= limit else None

        if "context" in changed:
            lanes = 1 if "lanes" in changed else lanes  # both: one text, as long as it can be
            most = (context - 1) // LEAST_CONTEXT
            context = LEAST_CONTEXT * largest_where(lambda steps: fitting(steps * LEAST_CONTEXT, lanes), most)
        elif "lanes" in changed:
            lanes = largest_where(lambda many: fitting(context, many), lanes - 1)
        return fitting(context, lanes) if context and lanes else None

    def _smaller(self, precision: str) -> list[str]:
        """The precisions with fewer bytes than this one, the largest first; one of each size."""
        now = self.weights(precision).total_bytes
        sized: dict[int, str] = {}
        for sizes in self.precisions:
            if sizes.total_bytes < now:
                sized.setdefault(sizes.total_bytes, sizes.precision)
        return [sized[size] for size in sorted(sized, reverse=True)]

    def _layer_bytes(self, precision: str) -> list[int]:
        at = [sizes.precision for sizes in self.precisions].index(precision)
        return [part.weights_bytes[at] for part in self.parts if part.layer is not None]

    def _on_disk(self, precision: str, need: int, limit: int) -> tuple[int, int]:
        """(bytes of the fewest layers that must lie on disk, bytes then needed in memory); (0, need) if impossible.

        Whole layers, and room for the largest to come back while it works. Quantised weights cannot lie on disk.
        """
        if self.weights(precision).packed or need <= limit:
            return 0, need
        layers = self._layer_bytes(precision)
        room = max(layers, default=0)
        disk = 0
        for size in reversed(layers):  # the planner fills memory from the first layer on
            disk += size
            if need - disk + room <= limit:
                return disk, need - disk + room
        return 0, need

    def _least(self, precision: str, context_tokens: int) -> FitChange:
        """The least that this precision can be made to need: one short text, and if it may, all layers on disk."""
        tokens = min(LEAST_CONTEXT, context_tokens)
        need = self.need(precision, tokens)
        layers = [] if self.weights(precision).packed else self._layer_bytes(precision)
        if len(layers) > 1:
            disk, need = sum(layers), need - sum(layers) + max(layers)
            return FitChange(("precision", "context", "lanes", "disk"), precision, tokens, 1, disk, need)
        return FitChange(("precision", "context", "lanes"), precision, tokens, 1, 0, need)


# ---------------------------------------------------------------- formulas


def kv_bytes_of(
    layers: tuple[CacheLayer, ...] | None, tokens: int, bytes_per_element: int, lanes: int = 1
) -> int | None:
    """Bytes of the cache's keys and values after `tokens` tokens in each of `lanes` lanes. None: not predictable."""
    if layers is None:
        return None
    return sum(layer.held(tokens) for layer in layers) * bytes_per_element * lanes


def rough_bytes(parameters: int, bytes_each: float, context_tokens: int, hidden_size: int, lanes: int = 1) -> int:
    """The well-known rough formula: parameters × bytes × (1 + 2·sequence/hidden). Far too much (MEM-3).

    The formula knows one text. The 1 is the weights, which all lanes share; 2·sequence/hidden is what a text adds, and
    each lane has its own: so with several lanes that term is taken as often as there are lanes, and the weights once.
    """
    return round(parameters * bytes_each * (1 + lanes * 2 * context_tokens / hidden_size))


def better_rough_bytes(
    parameters: int, bytes_each: float, context_tokens: int, hidden_size: int, kv_share: float, lanes: int = 1
) -> int:
    """parameters × bytes × (1 + sequence/(6·hidden) × KV heads/heads): right within a few percent for plain families.

    A block has about 12·hidden² parameters and keeps 2·hidden numbers per token, hence the 6 (MEM-3). Lanes as in
    `rough_bytes`.
    """
    return round(parameters * bytes_each * (1 + lanes * context_tokens / (6 * hidden_size) * kv_share))


def largest_where(holds: Callable[[int], object], most: int) -> int:
    """The largest of 1 … most for which `holds`, 0 if none; where it holds for one it holds for all below."""
    low, high = 0, max(0, most)
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low
