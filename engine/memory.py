"""What a model will need, worked out from its config before loading: weights by part, cache, logits, working space."""

from __future__ import annotations

import json
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Any

from engine.errors import SettingsRefused
from engine.events import Estimate, LedgerPart
from engine.settings import MAX_LANES, precision_named
from engine.skeleton import CacheLayer, Skeleton, TensorPlan, build_skeleton

if TYPE_CHECKING:
    from engine.blueprint import Blueprint

ELEMENT_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
NOMINAL_BYTES = {**ELEMENT_BYTES, "int8": 1, "nf4": 0.5, "fp4": 0.5}
PARTS = ("embedding", "attention", "feed-forward", "norms", "other", "lm_head", "not for text")
DEFAULT_CONTEXT = 8192
PREFILL_CHUNK = 512  # the loop's largest chunk: what is worked on at once
_BLOCK, _NESTED_BLOCK = 64, 256  # bitsandbytes' 4-bit constants, and the constants of those constants
_NESTED_TABLE_BYTES = (256 + 16) * 4 + 4  # per matrix: the two tables by which codes become numbers, and an offset


# ---------------------------------------------------------------- cache


@lru_cache(maxsize=32)
def _layers_of(config_json: str, config_class: type) -> tuple[CacheLayer, ...] | None:
    return build_skeleton(config_class.from_dict(json.loads(config_json))).cache


def cache_layers(config: Any) -> tuple[CacheLayer, ...] | None:
    """What each layer of a transformers config keeps, None if not predictable. Remembered per config."""
    return _layers_of(json.dumps(config.to_dict(), sort_keys=True, default=str), type(config))


def kv_bytes(config: Any, tokens: int, bytes_per_element: int, lanes: int = 1) -> int | None:
    """Bytes of the cache's keys and values after `tokens` tokens in each of `lanes` lanes. None: not predictable.

    config: transformers' config, or the cache layers of one. Equal to what transformers' DynamicCache keeps (MEM-1).
    """
    layers = config if isinstance(config, tuple) or config is None else cache_layers(config)
    if layers is None:
        return None
    held = 0
    for layer in layers:
        held += layer.per_token * (tokens if layer.window_tokens is None else min(tokens, layer.window_tokens))
    return held * bytes_per_element * lanes


def kv_bytes_per_token(config: Any, bytes_per_element: int) -> int | None:
    """Bytes that one more token adds to one lane once every window is full. None: not predictable."""
    layers = config if isinstance(config, tuple) or config is None else cache_layers(config)
    if layers is None:
        return None
    return sum(layer.per_token for layer in layers if layer.window_tokens is None) * bytes_per_element


def state_bytes(layers: tuple[CacheLayer, ...] | None, bytes_per_element: int, lanes: int = 1) -> int:
    """Bytes of the fixed states (convolutions, linear attention), which do not grow with the text."""
    return sum(layer.state_elements * bytes_per_element + layer.state_fixed_bytes for layer in layers or ()) * lanes


# ---------------------------------------------------------------- weights


def packed_bytes(tensor: TensorPlan, precision: str) -> tuple[int, int]:
    """Bytes of a linear layer's matrix in int8, nf4 or fp4: (numbers, constants), as bitsandbytes stores them.

    int8: one byte each, and a float32 per row. 4 bits: blocks of 64 with one byte each, those in blocks of 256 with a
    float32 each (double quantisation), and two small tables.
    """
    if precision == "int8":
        return tensor.numel, tensor.rows * 4
    blocks = ceil(tensor.numel / _BLOCK)
    return (tensor.numel + 1) // 2, blocks + 4 * ceil(blocks / _NESTED_BLOCK) + _NESTED_TABLE_BYTES


def weights_by_part(skeleton: Skeleton, precision: str, float_dtype: str) -> dict[str, int]:
    """Bytes of each of PARTS, and of "quantisation" (block constants). Tied tensors count once (MEM-9).

    float_dtype: the type of what stays unquantised.
    """
    parts: dict[str, int] = dict.fromkeys((*PARTS, "quantisation"), 0)
    packed = precision not in ELEMENT_BYTES
    plain = float_dtype if packed else precision
    size, kept = ELEMENT_BYTES[plain], skeleton.float32_kept.get(plain, frozenset())
    for tensor in skeleton.tensors:
        if packed and tensor.quantisable:
            numbers, constants = packed_bytes(tensor, precision)
            parts[tensor.role] += numbers
            parts["quantisation"] += constants
        else:
            parts[tensor.role] += tensor.numel * (4 if tensor.name in kept else size)
    return parts


# ---------------------------------------------------------------- the whole ledger


def rough_bytes(parameters: int, bytes_each: float, context_tokens: int, hidden_size: int) -> int:
    """The well-known rough formula: parameters × bytes × (1 + 2·sequence/hidden). Far too much (MEM-3)."""
    return round(parameters * bytes_each * (1 + 2 * context_tokens / hidden_size))


def better_rough_bytes(
    parameters: int, bytes_each: float, context_tokens: int, hidden_size: int, kv_share: float
) -> int:
    """parameters × bytes × (1 + sequence/(6·hidden) × KV heads/heads): right within a few percent for plain families.

    A block has about 12·hidden² parameters and keeps 2·hidden numbers per token, hence the 6 (MEM-3).
    """
    return round(parameters * bytes_each * (1 + context_tokens / (6 * hidden_size) * kv_share))


def working_bytes(blueprint: Blueprint, context_tokens: int, bytes_per_element: int, lanes: int = 1) -> int:
    """Estimated bytes that a forward pass holds besides weights and cache, at its largest moment.

    A chunk of the prompt through the widest layer (three such tensors and five of hidden width live at once), the
    attention mask over the context in the model's type, and one layer's cache twice, since appending copies it.
    """
    chunk = min(PREFILL_CHUNK, context_tokens)
    rows = max(chunk, lanes)
    widths = 3 * blueprint.widest_layer + 5 * blueprint.hidden_size
    mask = chunk * context_tokens * (1 + bytes_per_element)
    layers = blueprint.skeleton.cache or ()
    largest = max((la.per_token * min(context_tokens, la.window_tokens or context_tokens) for la in layers), default=0)
    return rows * widths * bytes_per_element + mask + largest * bytes_per_element * lanes


def estimate(
    model: str | Blueprint, precision: str | None = None, context_tokens: int | None = None, lanes: int = 1
) -> Estimate:
    """The predicted ledger of a model, from its config alone. Raises CannotLoad, SettingsRefused.

    precision None: what a load without a wish would take. context_tokens None: the model's, at most 8,192.
    """
    from engine.blueprint import Blueprint, read_blueprint
    from engine.readings import read_memory

    precision = precision_named(precision)
    if context_tokens is not None and not 1 <= context_tokens <= 2**40:
        raise SettingsRefused("The context cannot be {given} tokens.", "Give 1 or more.", given=context_tokens)
    if not 1 <= lanes <= MAX_LANES:
        raise SettingsRefused("There cannot be {given} lanes.", "Give 1 to {most}.", given=lanes, most=MAX_LANES)
    blueprint = model if isinstance(model, Blueprint) else read_blueprint(model)
    precision, float_dtype = blueprint.chosen(precision)
    context = context_tokens or min(blueprint.context_tokens or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
    element = ELEMENT_BYTES[float_dtype]
    skeleton = blueprint.skeleton
    weights = weights_by_part(skeleton, precision, float_dtype)
    total_weights = sum(weights.values())
    cache = kv_bytes(skeleton.cache, context, element, lanes)
    states = state_bytes(skeleton.cache, element, lanes)
    logits = blueprint.vocab_size * lanes * (4 + element)
    working = working_bytes(blueprint, context, element, lanes)
    bytes_each = NOMINAL_BYTES[precision]
    share = blueprint.kv_heads / blueprint.heads if blueprint.heads else 1.0
    parts = [LedgerPart(name, size) for name, size in weights.items() if size]
    parts.append(LedgerPart("kv_cache", cache, note=_cache_note(skeleton)))
    if states:
        parts.append(LedgerPart("state", states, note="Does not grow with the text."))
    parts.append(LedgerPart("logits", logits, note="One row per lane, in the model's type and as float32."))
    parts.append(LedgerPart("working", working, note="Estimated: one chunk of the prompt on its way."))
    return Estimate(
        model=blueprint.located.name,
        precision=precision,
        context_tokens=context,
        lanes=lanes,
        parameters=skeleton.parameters,
        embedding_bytes=weights["embedding"],
        layers_bytes=total_weights - weights["embedding"] - weights["lm_head"],
        lm_head_bytes=weights["lm_head"],
        weights_bytes=total_weights,
        kv_bytes=cache,
        kv_bytes_per_token=_growth(skeleton.cache, context, element),
        rough_total_bytes=rough_bytes(skeleton.parameters, bytes_each, context * lanes, blueprint.hidden_size),
        better_rough_total_bytes=better_rough_bytes(
            skeleton.parameters, bytes_each, context * lanes, blueprint.hidden_size, share
        ),
        total_bytes=None if cache is None else total_weights + cache + states + logits + working,
        parts=tuple(parts),
        facts=blueprint.facts,
        notes=(*blueprint.notes, *_notes(blueprint, context)),
        available_bytes=read_memory().available_bytes,
    )


def _growth(layers: tuple[CacheLayer, ...] | None, context_tokens: int, bytes_per_element: int) -> int | None:
    """Bytes that the last token of this context added to one lane; a window that is full grows no more."""
    now, before = (kv_bytes(layers, tokens, bytes_per_element) for tokens in (context_tokens, context_tokens - 1))
    return None if now is None or before is None else now - before


def _cache_note(skeleton: Skeleton) -> str:
    if skeleton.cache is None:
        return "Not predictable: this family keeps its past in a way of its own."
    windows = [layer for layer in skeleton.cache if layer.kind == "window"]
    if not windows:
        return ""
    return f"{len(windows)} of {len(skeleton.cache)} layers keep at most {windows[0].window_tokens:,} tokens."


def _notes(blueprint: Blueprint, context: int) -> list[str]:
    notes = []
    if blueprint.quantisation:
        notes.append(
            f"The files are quantised with {blueprint.quantisation}; the weights are counted as if they were not, "
            "so a load as the files say may need less."
        )
    if blueprint.context_tokens and context > blueprint.context_tokens:
        notes.append(
            f"{context:,} tokens are more than the model's context of {blueprint.context_tokens:,}: it cannot use them."
        )
    if blueprint.heads and blueprint.skeleton.cache is not None:
        grouped = ""
        if blueprint.kv_heads < blueprint.heads:
            grouped = f", and counts every head although {blueprint.kv_heads} of {blueprint.heads} are kept"
        notes.append(f"The rough formula takes the cache 12 times too large{grouped}.")
    return notes
