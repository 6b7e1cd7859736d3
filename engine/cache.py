"""The KV cache: what is in use, what is held, lanes and rows. Works on transformers' caches."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer


def entries_of(cache: Any) -> list[torch.Tensor]:
    """What grows with the text: each layer's keys and values, and the keys by which some choose what to look at."""
    found = [getattr(layer, name, None) for layer in _layers(cache) for name in ("keys", "values", "indexer_keys")]
    return [tensor for tensor in found if isinstance(tensor, torch.Tensor)]


def states_of(cache: Any) -> list[torch.Tensor]:
    """The fixed states of hybrid and state-space layers, which do not grow."""
    found: list[torch.Tensor] = []
    for layer in _layers(cache):
        _each_state(layer, lambda state: found.append(state) or state)
    return found


def share(cache: Any, lanes: int) -> None:
    """One lane's entries `lanes` times, each with a copy of its own (CAC-3)."""
    with torch.inference_mode():
        for layer in _layers(cache):
            if hasattr(layer, "batch_repeat_interleave"):
                layer.batch_repeat_interleave(lanes)
            _each_state(layer, lambda state: state.repeat_interleave(lanes, dim=0))


def keep(cache: Any, rows: torch.Tensor) -> None:
    """Only these rows of the batch, int64 [rows]."""
    with torch.inference_mode():
        for layer in _layers(cache):
            if hasattr(layer, "batch_select_indices"):
                layer.batch_select_indices(rows)
            _each_state(layer, lambda state: state.index_select(0, rows.to(state.device)))


def branch(cache: Any, row: int, device: torch.device) -> Any:
    """A cache of its own that holds one row of this one (`copy.copy` alone would share the layers: CAC-3)."""
    mine = copy.copy(cache)
    if cache is not None:
        mine.layers = [copy.copy(layer) for layer in cache.layers]
        for layer in mine.layers:
            for name in ("conv_states", "recurrent_states"):
                if isinstance(states := getattr(layer, name, None), dict):
                    setattr(layer, name, dict(states))
    keep(mine, torch.tensor([row], device=device))
    return mine


def can_join(caches: list[Any]) -> bool:
    """Whether these caches, of equally many tokens, can be rows of one: plain layers of entries."""
    return all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for cache in caches for layer in _layers(cache))


def join(caches: list[Any]) -> Any:
    """The rows of all in the first, which is changed."""
    with torch.inference_mode():
        for layers in zip(*(_layers(cache) for cache in caches), strict=True):
            layers[0].keys = torch.cat([layer.keys for layer in layers])
            layers[0].values = torch.cat([layer.values for layer in layers])
    return caches[0]


def can_crop(cache: Any, tokens: int) -> bool:
    """Whether the last of `tokens` tokens can be forgotten: every layer still holds all of them (CAC-2)."""
    return all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in _layers(cache)) and all(
        layer.keys is not None and layer.keys.shape[-2] == tokens for layer in _layers(cache)
    )


def crop(cache: Any, tokens: int) -> None:
    """Forgets the newest `tokens` tokens (the library counts them as a negative number: CAC-1)."""
    with torch.inference_mode():
        for layer in _layers(cache):
            if getattr(layer, "record_past", False):  # the library's own would forget what left the window, too
                layer.keys, layer.values = layer.keys[..., :-tokens, :], layer.values[..., :-tokens, :]
                layer.cumulative_length -= tokens
            else:
                layer.crop(-tokens)


def _layers(cache: Any) -> list[Any]:
    """None is the cache of a model that keeps nothing."""
    return [] if cache is None else cache.layers


def _each_state(layer: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """The fixed states, which the library's own batch functions leave out."""
    for name in ("conv_states", "recurrent_states"):
        states = getattr(layer, name, None)
        if isinstance(states, dict):
            states.update({key: change(state) for key, state in states.items() if state is not None})


def bytes_in_use(cache: Any) -> int:
    """Bytes of the entries in use, all lanes together, without the fixed states."""
    return sum(tensor.numel() * tensor.element_size() for tensor in entries_of(cache))


def bytes_allocated(cache: Any) -> int:
    """Bytes of the storage behind the entries, of which cropping frees nothing (CAC-1), and of the fixed states."""
    held = [*entries_of(cache), *states_of(cache)]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in held}
    return sum(storages.values())
