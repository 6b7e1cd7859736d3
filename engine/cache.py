"""The KV cache: what is in use, what is held, lanes and rows. Works on transformers' caches."""

from __future__ import annotations

from typing import Any

import torch


def tensors_of(cache: Any) -> list[torch.Tensor]:
    """Every tensor that a cache keeps: keys and values, and the fixed states of hybrid layers."""
    found: list[torch.Tensor] = []
    for layer in cache.layers:
        for name in ("keys", "values"):
            if isinstance(value := getattr(layer, name, None), torch.Tensor):
                found.append(value)
        for name in ("conv_states", "recurrent_states"):
            states = getattr(layer, name, None)
            states = states.values() if isinstance(states, dict) else states if isinstance(states, list) else [states]
            found += [state for state in states if isinstance(state, torch.Tensor)]
    return found


def bytes_in_use(cache: Any) -> int:
    """Bytes of the entries in use, all lanes together."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(cache))


def bytes_allocated(cache: Any) -> int:
    """Bytes of the storage behind the entries; cropping frees none of it (CAC-1)."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors_of(cache)}
    return sum(storages.values())
