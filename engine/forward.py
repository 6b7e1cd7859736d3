"""The model's forward pass over a growing cache: which path runs, and the general one for every model."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import DynamicCache

from engine import cache as kv
from engine.lean import LeanForward

if TYPE_CHECKING:
    from engine.session import Session


def forward_of(session: Session, expected_tokens: int = 0) -> GeneralForward | LeanForward:
    """A new run's forward. expected_tokens: how long the run may become, for caches that are allocated ahead."""
    return GeneralForward(session) if session.lean is None else LeanForward(session.lean, expected_tokens)


class GeneralForward:
    """transformers' own forward with a dynamic cache. One for each run: it holds the run's KV cache."""

    def __init__(self, session: Session) -> None:
        self.model = session.model
        parameters = inspect.signature(self.model.forward).parameters
        # Recent transformers call the cache `cache`, older ones `past_key_values`.
        cache_name = "cache" if "cache" in parameters else "past_key_values"
        self._cache = DynamicCache(config=self.model.config)
        # use_cache is said each time: a config may switch it off (CAC-5). One row of logits: MEM-21.
        self._arguments: dict[str, Any] = {cache_name: self._cache, "use_cache": True}
        if "logits_to_keep" in parameters:
            self._arguments["logits_to_keep"] = 1
        device = self.model.device
        self.device = torch.device("cpu") if device.type == "meta" else device
        self.lanes = 1

    def read(self, ids: list[int]) -> np.ndarray:
        """Prefill: reads more of the prompt. Returns the logits after its last token, float32 [vocab]."""
        return self._run(torch.tensor([ids], device=self.device))[0]

    def step(self, ids: list[int]) -> np.ndarray:
        """Decode: one token for each lane. Returns float32 [lanes, vocab]."""
        return self._run(torch.tensor(ids, device=self.device).unsqueeze(1))

    def _run(self, ids: torch.Tensor) -> np.ndarray:
        with torch.inference_mode():
            logits = self.model(input_ids=ids, **self._arguments).logits[:, -1]
            return logits.float().cpu().numpy()

    def share(self, lanes: int) -> None:
        """After the prefill: as many lanes go on from it, each with entries of its own (CAC-3)."""
        if lanes > 1:
            with torch.inference_mode():
                self._cache.batch_repeat_interleave(lanes)
        self.lanes = lanes

    def keep(self, rows: list[int]) -> None:
        """Drops the lanes that are over."""
        if len(rows) != self.lanes:
            with torch.inference_mode():
                self._cache.batch_select_indices(torch.tensor(rows, device=self.device))
            self.lanes = len(rows)

    def kv_bytes(self) -> tuple[int, int]:
        """One lane's bytes: in use, and allocated."""
        return kv.bytes_in_use(self._cache) // self.lanes, kv.bytes_allocated(self._cache) // self.lanes
