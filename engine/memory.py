"""What a model will need, worked out from its config before loading: weights by part, cache, logits, working space."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from engine.errors import SettingsRefused
from engine.events import Estimate
from engine.quantised import Quantised, is_unpacked_here, packed_size, packing_named
from engine.settings import MAX_LANES, PRECISIONS, precision_named
from engine.sizes import ELEMENT_BYTES, CacheLayer, ModelPart, ModelSizes, PrecisionSizes, kv_bytes_of
from engine.skeleton import Skeleton, TensorPlan, build_skeleton

if TYPE_CHECKING:
    from engine.blueprint import Blueprint

PARTS = ("embedding", "attention", "feed-forward", "norms", "other", "lm_head", "not for text")
DEFAULT_CONTEXT = 8192
_LAYER_NAME = re.compile(r"^.*?\.(layers?|h|blocks?)\.\d+")


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
    return kv_bytes_of(layers, tokens, bytes_per_element, lanes)


def kept_layers(layers: tuple[CacheLayer, ...] | None, keep_windows: bool) -> tuple[CacheLayer, ...] | None:
    """The cache's layers as they are kept: with all tokens of windows where that was chosen."""
    return tuple(layer.keeping_all() for layer in layers) if layers is not None and keep_windows else layers


def kv_bytes_per_token(config: Any, bytes_per_element: int) -> int | None:
    """Bytes that one more token adds to one lane once every window is full. None: not predictable."""
    layers = config if isinstance(config, tuple) or config is None else cache_layers(config)
    if layers is None:
        return None
    return sum(layer.per_token for layer in layers if layer.window_tokens is None) * bytes_per_element


def state_bytes(layers: tuple[CacheLayer, ...] | None, bytes_per_element: int, lanes: int = 1) -> int:
    """Bytes of the fixed states (convolutions, linear attention), which do not grow with the text."""
    return sum(layer.state_bytes(bytes_per_element) for layer in layers or ()) * lanes


# ---------------------------------------------------------------- weights


def packing_for(blueprint: Blueprint, precision: str, double_quantisation: bool = True) -> Quantised | None:
    """How the linear layers' matrices are packed when this model is loaded so: by the files, or by bitsandbytes."""
    return packing_named(precision, double_quantisation) or blueprint.packing


def weights_by_part(
    skeleton: Skeleton, precision: str, float_dtype: str, packing: Quantised | None = None
) -> dict[str, int]:
    """Bytes of each of PARTS, and of "quantisation" (block constants). Tied tensors count once (MEM-9).

    float_dtype: the type of what stays unquantised. packing: None for what the precision's name says.
    """
    packing = packing or packing_named(precision)
    parts: dict[str, int] = dict.fromkeys((*PARTS, "quantisation"), 0)
    for tensor in skeleton.tensors:
        size = tensor_bytes(skeleton, tensor, precision, float_dtype, packing)
        if packing is not None and packing.packs(tensor) and (packed := packed_size(tensor, packing)):
            parts["quantisation"] += packed[1]
            size -= packed[1]
        parts[tensor.role] += size
    return parts


def part_of(tensor: str) -> str:
    """The part of the model that a person would name: a layer, the embedding, the norm, the head."""
    if layer := _LAYER_NAME.search(tensor):
        return layer[0]
    return tensor.rpartition(".")[0] or tensor


def tensor_bytes(
    skeleton: Skeleton, tensor: TensorPlan, precision: str, float_dtype: str, packing: Quantised | None = None
) -> int:
    """Bytes of one tensor, its block constants included. packing: None for what the precision's name says."""
    packing = packing or packing_named(precision)
    if packing is not None and packing.packs(tensor) and (packed := packed_size(tensor, packing)):
        return sum(packed)
    plain = precision if precision in ELEMENT_BYTES else float_dtype
    kept = tensor.name in skeleton.float32_kept.get(plain, ())
    return tensor.numel * (4 if kept else ELEMENT_BYTES[plain])


# ---------------------------------------------------------------- the whole ledger


def model_sizes(blueprint: Blueprint, double_quantisation: bool = True, keep_windows: bool = False) -> ModelSizes:
    """All that a ledger needs, in every precision, as plain numbers. Raises CannotLoad where nothing can be built.

    double_quantisation, keep_windows: as in LoadPlan.
    """
    skeleton = blueprint.skeleton
    chosen = [(*blueprint.chosen(name), packing_for(blueprint, name, double_quantisation)) for name in PRECISIONS]
    precisions = [
        PrecisionSizes(name, plain, tuple(weights_by_part(skeleton, name, plain, packing).items()), packing is not None)
        for name, plain, packing in chosen
    ]
    parts: dict[str, list[int]] = {}
    layers: dict[str, int | None] = {}
    for tensor in skeleton.tensors:
        name = part_of(tensor.name)
        sizes = parts.setdefault(name, [0] * len(chosen))
        layers[name] = tensor.layer
        for at, (precision, plain, packing) in enumerate(chosen):
            sizes[at] += tensor_bytes(skeleton, tensor, precision, plain, packing)
    return ModelSizes(
        parameters=skeleton.parameters,
        hidden_size=blueprint.hidden_size,
        heads=blueprint.heads,
        kv_heads=blueprint.kv_heads,
        vocab_size=blueprint.vocab_size,
        widest_layer=blueprint.widest_layer,
        context_tokens=blueprint.context_tokens,
        buffer_bytes=skeleton.buffer_bytes,
        buffer_numbers=skeleton.buffer_numbers,
        precisions=tuple(precisions),
        cache=kept_layers(skeleton.cache, keep_windows),
        parts=tuple(ModelPart(name, layers[name], tuple(sizes)) for name, sizes in parts.items()),
        notes=(*blueprint.notes, *_notes(blueprint)),
        default_precision=blueprint.chosen(None)[0],
    )


def checked_wish(
    blueprint: Blueprint, precision: str | None, context_tokens: int | None, lanes: int
) -> tuple[str, str, int]:
    """(precision, floating type, context) of a wish. Raises SettingsRefused.

    precision None: what a load without a wish would take. context_tokens None: the model's, at most 8,192.
    """
    if context_tokens is not None and not 1 <= context_tokens <= 2**40:
        raise SettingsRefused("The context cannot be {given} tokens.", "Give 1 or more.", given=context_tokens)
    if not 1 <= lanes <= MAX_LANES:
        raise SettingsRefused("There cannot be {given} lanes.", "Give 1 to {most}.", given=lanes, most=MAX_LANES)
    context = context_tokens or min(blueprint.context_tokens or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
    return (*blueprint.chosen(precision_named(precision)), context)


def estimate(
    model: str | Blueprint,
    precision: str | None = None,
    context_tokens: int | None = None,
    lanes: int = 1,
    libraries_bytes: int | None = None,
    double_quantisation: bool = True,
    keep_windows: bool = False,
) -> Estimate:
    """The predicted ledger of a model, from its config alone. Raises CannotLoad, SettingsRefused.

    precision None: what a load without a wish would take. context_tokens None: the model's, at most 8,192.
    libraries_bytes: this process before any weights, None where none are loaded: then what it takes now.
    double_quantisation, keep_windows: as in LoadPlan.
    """
    from engine.blueprint import Blueprint, read_blueprint
    from engine.readings import device_limits, read_memory

    precision = precision_named(precision)
    blueprint = model if isinstance(model, Blueprint) else read_blueprint(model)
    precision, _, context = checked_wish(blueprint, precision, context_tokens, lanes)
    sizes = model_sizes(blueprint, double_quantisation, keep_windows)
    reading = read_memory()
    return Estimate(
        model=blueprint.located.name,
        parameters=sizes.parameters,
        facts=blueprint.facts,
        available_bytes=reading.available_bytes,
        sizes=sizes,
        limits=device_limits(),
        libraries_bytes=reading.process_bytes if libraries_bytes is None else libraries_bytes,
        **sizes.figures(precision, context, lanes),
    )


def _notes(blueprint: Blueprint) -> list[str]:
    quantised = blueprint.quantised
    if quantised is None:
        return []
    words = quantised.words
    if is_unpacked_here(quantised):
        return [f"The files are quantised ({words}); here they are unpacked when they are used, and counted so."]
    if any(quantised.packs(tensor) and packed_size(tensor, quantised) for tensor in blueprint.skeleton.tensors):
        return [f"The files are quantised ({words}), and their matrices are counted as they are packed."]
    return [
        f"The files are quantised ({words}) and do not say how tightly; the weights are counted as if they were not, "
        "so a load may need less."
    ]
