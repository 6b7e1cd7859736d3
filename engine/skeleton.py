"""The empty model: every tensor's name and shape, no numbers. What it would weigh, and what its cache would keep.

Built on torch's meta device, so a model of 70 billion parameters takes a second and no memory.
"""

from __future__ import annotations

import inspect
import json
import logging
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from engine.errors import CannotLoad
from engine.sizes import CacheLayer

log = logging.getLogger(__name__)

_known_caches: dict[str, tuple[CacheLayer, ...] | None] = {}

_LAYER = re.compile(r"(?:^|\.)(?:layers?|h|blocks?)\.(\d+)\.")
_ROLES = (
    ("norms", re.compile(r"norm|(^|\.)ln_|layer_?norm|_ln\b", re.IGNORECASE)),
    ("attention", re.compile(r"attn|attention|mixer|mamba|conv|rglru|temporal_block|recurrent", re.IGNORECASE)),
    ("feed-forward", re.compile(r"mlp|ffn|feed_?forward|expert|moe|router|(^|\.)(fc1|fc2|dense_)", re.IGNORECASE)),
)


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """One parameter of the empty model. Tied parameters appear once."""

    name: str
    shape: tuple[int, ...]
    numel: int
    role: str  # "embedding", "attention", "feed-forward", "norms", "lm_head", "other", "not for text"
    layer: int | None
    quantisable: bool  # a linear layer's matrix that bitsandbytes would pack
    rows: int  # outputs of that layer


@dataclass(frozen=True, slots=True)
class Skeleton:
    """`cache` is None where the family keeps its past in a way that is not known here: not predictable."""

    model: Any
    tensors: tuple[TensorPlan, ...]
    cache: tuple[CacheLayer, ...] | None
    tied: bool  # the head and the embedding are one tensor
    float32_kept: dict[str, frozenset[str]]  # by the type asked for: the parameters that stay float32 all the same
    buffer_bytes: int  # of those that keep their type
    buffer_numbers: int  # in those that take the model's

    @property
    def parameters(self) -> int:
        return sum(tensor.numel for tensor in self.tensors)

    @property
    def layers(self) -> int:
        found = [tensor.layer for tensor in self.tensors if tensor.layer is not None and tensor.role != "not for text"]
        return max(found, default=-1) + 1


def build_skeleton(config: Any, trust_remote_code: bool = False) -> Skeleton:
    """The empty model of a transformers config. Raises CannotLoad if the config describes no buildable model."""
    return _built(json.dumps(config.to_dict(), sort_keys=True, default=str), type(config), trust_remote_code)


@lru_cache(maxsize=4)
def _built(config_json: str, kind: type, trust_remote_code: bool) -> Skeleton:
    """Remembered, since an estimate and the load after it look at the same model."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    config: Any = kind.from_dict(json.loads(config_json))
    config._experts_implementation = "batched_mm"  # the one that looks at no numbers, so that it runs when empty
    try:
        with torch.device("meta"), no_init_weights():
            model = AutoModelForCausalLM.from_config(
                config, attn_implementation="eager", dtype=torch.bfloat16, trust_remote_code=trust_remote_code
            )
    except Exception as error:  # each family's own checks raise what they like
        raise CannotLoad(
            "config.json does not describe a model that can be built: {reason}.",
            "Compare its numbers with the original config.json of this model.",
            reason=first_line(error),
        ) from None
    model.eval()
    model.tie_weights()
    tensors = _tensors(model)
    head, table = model.get_output_embeddings(), model.get_input_embeddings()
    return Skeleton(
        model=model,
        tensors=tensors,
        cache=_remembered_cache_layers(model),
        tied=head is not None and getattr(head, "weight", None) is getattr(table, "weight", 0),
        float32_kept={name: _float32_kept(model, tensors, name) for name in ("bfloat16", "float16")},
        buffer_bytes=sum(b.numel() * b.element_size() for b in model.buffers() if b.dtype != torch.bfloat16),
        buffer_numbers=sum(b.numel() for b in model.buffers() if b.dtype == torch.bfloat16),
    )


def _float32_kept(model: Any, tensors: tuple[TensorPlan, ...], dtype: str) -> frozenset[str]:
    import torch

    patterns = tuple(model._get_dtype_plan(getattr(torch, dtype)))
    return frozenset(t.name for t in tensors if any(re.search(pattern, t.name) for pattern in patterns))


def first_line(error: BaseException) -> str:
    """The first line of an exception's words, without a final stop, at most 300 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].endswith(":"):
        lines[0] = f"{lines[0]} {lines[1]}"
    return (lines[0] if lines else type(error).__name__)[:300].rstrip(". ")


def _tensors(model: Any) -> tuple[TensorPlan, ...]:
    from torch import nn
    from transformers.pytorch_utils import Conv1D
    from transformers.quantizers.base import get_keys_to_not_convert
    from transformers.quantizers.quantizers_utils import should_convert_module

    kept_out = get_keys_to_not_convert(model) + list(model._keep_in_fp32_modules or ())
    modules = dict(model.named_modules())
    names = {id(module): name for name, module in modules.items()}
    head = names.get(id(model.get_output_embeddings()), "\0")
    composite = model.config.get_text_config(decoder=True) is not model.config
    decoder = names.get(id(model.get_decoder()), "") if composite else ""
    tensors = []
    for name, parameter in model.named_parameters():
        owner_name = name.rpartition(".")[0]
        owner = modules[owner_name]
        layer = _LAYER.search(name)
        if decoder and not name.startswith(f"{decoder}.") and owner_name != head:
            role = "not for text"
        elif owner_name == head:
            role = "lm_head"
        elif isinstance(owner, nn.Embedding):
            role = "embedding"
        else:
            inside = name[layer.end() :] if layer else name
            role = next((role for role, pattern in _ROLES if pattern.search(inside)), "other")
        linear = isinstance(owner, Conv1D) or type(owner) is nn.Linear
        tensors.append(
            TensorPlan(
                name=name,
                shape=tuple(parameter.shape),
                numel=parameter.numel(),
                role=role,
                layer=int(layer[1]) if layer else None,
                quantisable=linear and name.endswith(".weight") and should_convert_module(owner_name, kept_out),
                rows=parameter.shape[1] if isinstance(owner, Conv1D) and parameter.ndim > 1 else parameter.shape[0],
            )
        )
    return tuple(tensors)


def _remembered_cache_layers(model: Any) -> tuple[CacheLayer, ...] | None:
    """As `_cache_layers`, once per config: an estimate comes before nearly every load, and it costs 10 ms a layer."""
    key = f"{type(model).__name__} {json.dumps(model.config.to_dict(), sort_keys=True, default=str)}"
    if key not in _known_caches:
        if len(_known_caches) >= 64:
            _known_caches.clear()
        _known_caches[key] = _cache_layers(model)
    return _known_caches[key]


def _cache_layers(model: Any) -> tuple[CacheLayer, ...] | None:
    """What each layer keeps, learned by letting the empty model read two tokens into transformers' own cache.

    The config's numbers alone mislead: DeepSeek-V3 keeps a latent, new-style Falcon all heads (CAC-4).
    """
    import torch
    from transformers import DynamicCache

    names = inspect.signature(model.forward).parameters
    try:
        cache = DynamicCache(config=model.config)
        arguments: dict[str, Any] = {"input_ids": torch.zeros(1, 2, dtype=torch.long, device="meta"), "use_cache": True}
        arguments[next(name for name in ("cache", "cache_params", "past_key_values") if name in names)] = cache
        if "position_ids" in names:
            arguments["position_ids"] = torch.arange(2, device="meta")[None]
        for module in model.modules():
            if hasattr(module, "warn_if_padding_and_no_attention_mask"):  # it looks at the ids
                module.warn_if_padding_and_no_attention_mask = lambda *ids_and_mask: None
            if "dynamic" in str(getattr(module, "rope_type", "")):  # it compares positions, and here are none
                module.rope_type = _without_dynamic(module.rope_type)
        with torch.no_grad():
            model(**arguments)
    except Exception as error:  # a family that needs real numbers, or a cache of its own
        log.info("the cache of %s cannot be predicted: %s", type(model).__name__, first_line(error))
        return None
    layers = [_cache_layer(layer) for layer in cache.layers]
    if any(layer is None for layer in layers) or all(layer.kind == "none" for layer in layers if layer):
        return None
    return tuple(layer for layer in layers if layer)


def _without_dynamic(rope_type: Any) -> Any:
    if isinstance(rope_type, dict):
        return {kind: _without_dynamic(each) for kind, each in rope_type.items()}
    return "default" if "dynamic" in str(rope_type) else rope_type


def _cache_layer(layer: Any) -> CacheLayer | None:
    """None: a class of cache layer whose growth is not known here."""
    from transformers import cache_utils as known

    per_token, window = 0, None
    keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
    followed = fixed = 0
    states = [*getattr(layer, "conv_states", {}).values(), *getattr(layer, "recurrent_states", {}).values()]
    for state in states:
        if state is not None and state.element_size() == 2:
            followed += state.numel()
        elif state is not None:
            fixed += state.numel() * state.element_size()
    if keys is not None and values is not None:
        per_token = keys.shape[1] * keys.shape[-1] + values.shape[1] * values.shape[-1]
    kind = type(layer)
    plain = (known.DynamicLayer, known.DummyLayer, known.LinearAttentionLayer)
    if kind in (known.DynamicSlidingWindowLayer, known.LinearAttentionAndSlidingWindowAttentionLayer):
        # A window of 1 keeps everything: the library cuts at -1 + 1, which is the beginning.
        window = layer.sliding_window - 1 or None
    elif kind is known.DynamicIndexedLayer:
        if layer.indexer_keys is not None:
            per_token += layer.indexer_keys.shape[-1]
    elif kind not in (*plain, known.LinearAttentionAndFullAttentionLayer):
        return None
    name = "none"
    if per_token:
        name = "full" if window is None else "window"
    elif followed or fixed:
        name = "state"
    return CacheLayer(name, per_token, window, followed, fixed)
