"""How fast this process reads memory: the ceiling of decode, since each token needs every weight read once.

Source: the roofline model (Williams, Waterman and Patterson 2009); one row of activations makes decode memory-bound.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from engine.quantised import plain_tensors

ROUNDS = 3
MOST_BYTES = 1_000_000_000  # so much is read in a round, so that the measurement stays short for large models


def read_bandwidth(model: Any) -> float:
    """Bytes per second at which torch's threads read this model's own weights, the best of three rounds.

    The weights themselves are summed, so nothing is allocated. 0.0 where they lie on several devices or on disk.
    """
    weights = _as_floats(model)
    if not weights:
        return 0.0
    size = sum(weight.numel() * 4 for weight in weights)
    on_gpu = weights[0].device.type == "cuda"
    best = float("inf")
    with torch.inference_mode():
        for _ in range(ROUNDS + 1):  # the first brings mapped weights into memory
            began = time.perf_counter()
            for weight in weights:
                weight.sum()
            if on_gpu:
                torch.cuda.synchronize()
            best = min(best, time.perf_counter() - began)
    return size / best if best > 0 else 0.0


def bytes_read_per_token(model: Any, weights_bytes: int) -> int:
    """What a decode step reads of the weights: all, but of an untied embedding one row only. The KV cache is extra."""
    embedding = model.get_input_embeddings().weight
    head = model.get_output_embeddings()
    tied = head is not None and head.weight.data_ptr() == embedding.data_ptr()
    return weights_bytes - (0 if tied else embedding.numel() * embedding.element_size())


def _as_floats(model: Any) -> list[torch.Tensor]:
    """The weights as flat float32, whatever their type: only the reading counts, not the sum."""
    found: list[torch.Tensor] = []
    seen: set[int] = set()
    total = 0
    devices = {parameter.device for parameter in model.parameters()}
    if len(devices) != 1 or next(iter(devices)).type == "meta":
        return []
    for data in (tensor for parameter in model.parameters() for tensor in plain_tensors(parameter)):
        if data.data_ptr() in seen or not data.is_contiguous() or total > MOST_BYTES:
            continue
        seen.add(data.data_ptr())
        flat = data.view(-1).view(torch.uint8)
        flat = flat[: flat.numel() // 4 * 4]
        if flat.storage_offset() % 4 == 0 and flat.numel():
            found.append(flat.view(torch.float32))
            total += flat.numel()
    return found
