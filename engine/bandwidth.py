"""How fast this process reads memory: the ceiling of decode, since each token needs every weight read once.

Source: the roofline model (Williams, Waterman and Patterson 2009); one row of activations makes decode memory-bound.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import torch

ROUNDS = 4
SAMPLE_NUMBERS = 16_000_000  # float32, 64 MB: more than a processor's cache keeps


def read_bandwidth(model: Any) -> float:
    """Bytes per second at which torch reads memory where the model lies, the best of some rounds.

    Measured once per device and number of threads, over a block of its own. 0.0 for a model on several devices.
    """
    devices = {str(parameter.device) for parameter in model.parameters()}
    if len(devices) != 1 or "meta" in devices:
        return 0.0
    return _bandwidth(next(iter(devices)), torch.get_num_threads())


@cache
def _bandwidth(device: str, threads: int) -> float:
    del threads  # part of what the result is remembered by
    block = torch.zeros(SAMPLE_NUMBERS, dtype=torch.float32, device=device)
    best = float("inf")
    with torch.inference_mode():
        for _ in range(ROUNDS):
            began = time.perf_counter()
            block.sum().item()  # .item() waits for a device
            best = min(best, time.perf_counter() - began)
    return SAMPLE_NUMBERS * 4 / best


def bytes_read_per_token(model: Any, weights_bytes: int) -> int:
    """What a decode step reads of the weights: all, but of an untied embedding one row only. The KV cache is extra."""
    embedding = model.get_input_embeddings().weight
    head = model.get_output_embeddings()
    tied = head is not None and head.weight.data_ptr() == embedding.data_ptr()
    return weights_bytes - (0 if tied else embedding.numel() * embedding.element_size())
