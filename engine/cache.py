"""The KV cache: what is in use, what is held, lanes and rows. Works on transformers' caches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def tensors_of(cache: Any) -> list[torch.Tensor]:
    """Every tensor that a cache keeps: keys and values, and the fixed states of hybrid layers."""
    found: list[torch.Tensor] = []
    for layer in _layers(cache):
        for name in ("keys", "values"):
            if isinstance(value := getattr(layer, name, None), torch.Tensor):
                found.append(value)
        for name in ("conv_states", "recurrent_states"):
            states = getattr(layer, name, None)
            states = states.values() if isinstance(states, dict) else states if isinstance(states, list) else [states]
            found += [state for state in states if isinstance(state, torch.Tensor)]
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
    """Bytes of the entries in use, all lanes together."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(cache))


def bytes_allocated(cache: Any) -> int:
    """Bytes of the storage behind the entries; cropping frees none of it (CAC-1)."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors_of(cache)}
    return sum(storages.values())
