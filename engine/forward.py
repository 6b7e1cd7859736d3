"""The model's forward pass over a growing cache: which path runs, and the general one for every model."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicSlidingWindowLayer

from engine import cache as kv
from engine.errors import Cancelled
from engine.kernels import torch_threads
from engine.lean import LeanForward, never

if TYPE_CHECKING:
    from engine.session import Session


def forward_of(session: Session, expected_tokens: int = 0) -> Forward:
    """A new run's forward. expected_tokens: how long the run may become, for caches that are allocated ahead."""
    return GeneralForward(session) if session.lean is None else LeanForward(session.lean, expected_tokens)


def _layers_of(model: Any) -> Any:
    """The decoder's layers: the longest list of modules that a model has."""
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    return max(lists, key=len, default=())


class GeneralForward:
    """transformers' own forward with a dynamic cache. One for each run: it holds the run's KV cache.

    Some families need more than a cache that grows. Those with fixed states (mamba, hybrids) take a prompt in one piece
    only. Phi-3's rotary table changes once the text is longer than what the model was first made for, so that all is
    read anew there, as generate() does. Those whose past is none of transformers' caches (rwkv) read all at each step.
    """

    def __init__(self, session: Session) -> None:
        self.model, self._threads = session.model, session.threads
        parameters = inspect.signature(self.model.forward).parameters
        # Recent transformers call the cache `cache`, older ones `past_key_values`.
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        self._keep_windows = session.keep_windows
        self._cache = self._new_cache() if keeps_its_past(self.model) else None
        # One row of logits: MEM-21.
        self._arguments: dict[str, Any] = {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}
        self._positions = "position_ids" in parameters
        self._switch_tokens, self._switch_rereads = _rotary_switch(self.model.config.get_text_config(decoder=True))
        device = self.model.device
        self.device = torch.device("cpu") if device.type == "meta" else device
        self.lanes = 1
        self._ids = torch.empty(1, 0, dtype=torch.long, device=self.device)  # [lanes, tokens]: all that was read

    def _new_cache(self) -> DynamicCache:
        cache = DynamicCache(config=self.model.config)
        if self._keep_windows:
            for layer in cache.layers:
                if isinstance(layer, DynamicSlidingWindowLayer):
                    layer.activate_past_recording()
        return cache

    def in_one_piece(self, prompt_tokens: int) -> bool:
        """Whether a prompt of this length must be read by one call of `read`."""
        if self._cache is None or any(hasattr(layer, "recurrent_states") for layer in self._cache.layers):
            return True
        return 0 < self._switch_tokens < prompt_tokens

    def read(self, ids: list[int], cancelled: Callable[[], bool] = never) -> np.ndarray:
        """Prefill: reads more of the prompt. Returns the logits after its last token, float32 [vocab].

        cancelled is asked before each layer; raises Cancelled when it says so, and the cache is then of no use.
        """

        def look(*_: Any) -> None:
            if cancelled():
                raise Cancelled

        hooks = [layer.register_forward_pre_hook(look) for layer in _layers_of(self.model)]
        try:
            return self._run(torch.tensor([ids], device=self.device))[0]
        finally:
            for hook in hooks:
                hook.remove()

    def step(self, ids: list[int]) -> np.ndarray:
        """Decode: one token for each lane. Returns float32 [lanes, vocab]."""
        with torch_threads(self._threads[len(ids) > 1]):
            return self._run(torch.tensor(ids, device=self.device).unsqueeze(1))

    def _run(self, ids: torch.Tensor) -> np.ndarray:
        before = self._ids.shape[1]
        self._ids = torch.cat((self._ids, ids), dim=1)
        with torch.inference_mode():
            if self._cache is None:
                inputs = self.model.prepare_inputs_for_generation(self._ids, use_cache=False)
                return self.model(**inputs).logits[:, -1].float().cpu().numpy()
            if self._switch_rereads and 0 < before <= self._switch_tokens < self._ids.shape[1]:
                self._cache, ids = self._new_cache(), self._ids
            # use_cache is said each time: a config may switch it off (CAC-5).
            past: dict[str, Any] = {self._cache_name: self._cache, "use_cache": True}
            if self._positions:  # not every family asks its cache where it stands (CAC-6)
                end = self._ids.shape[1]
                past["position_ids"] = torch.arange(end - ids.shape[1], end, device=self.device).unsqueeze(0)
            logits = self.model(input_ids=ids, **past, **self._arguments).logits[:, -1]
            return logits.float().cpu().numpy()

    def share(self, lanes: int) -> None:
        """After the prefill: as many lanes go on from it, each with entries of its own (CAC-3)."""
        if lanes > 1:
            self._ids = self._ids.expand(lanes, -1)
            kv.share(self._cache, lanes)
        self.lanes = lanes

    def join(self, other: GeneralForward) -> bool:
        """Takes another forward's lanes behind its own, for one batch; False where that cannot be: they are not equally
        long (not every family minds a padding: CAC-6), or keep states."""
        alike = self._ids.shape[1] == other._ids.shape[1] and kv.can_join([self._cache, other._cache])
        if alike:
            kv.join([self._cache, other._cache])
            self._ids = torch.cat((self._ids, other._ids))
            self.lanes += other.lanes
        return alike

    def keep(self, rows: list[int]) -> None:
        """Drops the lanes that are over."""
        if len(rows) != self.lanes:
            index = torch.tensor(rows, device=self.device)
            self._ids = self._ids[index]
            kv.keep(self._cache, index)
            self.lanes = len(rows)

    def copy(self, row: int, tokens: int) -> GeneralForward | None:
        """One lane's first `tokens` tokens, in a cache of its own; None where that cannot be (see `crop`)."""
        mine = copy.copy(self)
        if tokens < self.tokens and not (tokens and kv.can_crop(self._cache, self.tokens)):
            return None
        mine._cache = kv.branch(self._cache, row, self.device)
        mine._ids, mine.lanes = self._ids[row : row + 1], 1
        return mine if tokens >= self.tokens or mine.crop(tokens) else None

    @property
    def tokens(self) -> int:
        """How many tokens each lane's cache holds."""
        return self._ids.shape[1] if self._cache is not None else 0

    def crop(self, tokens: int) -> bool:
        """Forgets all after the first `tokens` tokens; False, and the cache is of no use, where that cannot be.

        Fixed states know no way back, and windows lose what leaves them (CAC-2).
        """
        here = self.tokens
        if not tokens or self._cache is None or tokens <= self._switch_tokens < here:
            return False
        if tokens < here:
            if not kv.can_crop(self._cache, here):
                return False
            kv.crop(self._cache, here - tokens)
            self._ids = self._ids[:, :tokens]
        return not self.in_one_piece(0)

    def reserve(self, capacity: int) -> None:
        """The dynamic cache grows by itself."""

    def kv_bytes(self) -> list[tuple[int, int]]:
        """Each lane's bytes: in use, and allocated."""
        one = kv.bytes_in_use(self._cache) // self.lanes, kv.bytes_allocated(self._cache) // self.lanes
        return [one] * self.lanes


Forward = GeneralForward | LeanForward


def keeps_its_past(model: Any) -> bool:
    """Whether the model keeps what it has read in one of transformers' own caches."""
    if not {"cache", "past_key_values", "cache_params"} & inspect.signature(model.forward).parameters.keys():
        return False
    asked = getattr(model, "_supports_default_dynamic_cache", None)
    return asked is None or bool(asked())


def general_path(model: Any) -> str:
    """What GeneralForward does for this model, in words."""
    if keeps_its_past(model):
        return "transformers' forward with a dynamic cache"
    return "transformers' forward, which reads the whole text again for each token (this family keeps no cache)"


def _rotary_switch(config: Any) -> tuple[int, bool]:
    """(the length beyond which "longrope" takes another rotary table, 0 for none; whether all is read anew there)."""
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") != "longrope":
        return 0, False
    own = getattr(config, "original_max_position_embeddings", None)  # the families that generate() reads anew have it
    return int(own or rope.get("original_max_position_embeddings") or 0), own is not None
