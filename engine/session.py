"""A loaded model with its tokenizer, and what a view may know of it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from engine.events import SessionFacts, Unloaded
from engine.prefix import KeptPrefix
from engine.readings import give_memory_back, read_memory

if TYPE_CHECKING:
    from engine.blueprint import Blueprint
    from engine.lean import LeanWeights
    from engine.text import Vocabulary


@dataclass(eq=False)
class Session:
    """A model in eval mode without gradients, its tokenizer, and its facts. Made by `load`, ended by `close`."""

    model: Any
    tokenizer: Any
    facts: SessionFacts
    generation_config: Any
    blueprint: Blueprint
    lean: LeanWeights | None = None  # what the lean forward reads; None: the general path runs
    threads: tuple[int, int] = (0, 0)  # torch's, for one lane and for several; 0: as many as it has
    prefill_tokens_per_s: float = 0.0  # of the newest chunk of a prompt, by which the next prompt's are sized
    keep_windows: bool = False  # as in LoadPlan
    kept: KeptPrefix = field(default_factory=KeptPrefix)  # the last runs' caches
    offload_folder: tempfile.TemporaryDirectory | None = None  # weights on disk, removed with the session

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """What each token id is as bytes and as a label, made once."""
        from engine.text import Vocabulary

        return Vocabulary(self.tokenizer)

    def close(self) -> Unloaded:
        """Drops the weights, gives freed memory back to the system, and measures. A second call measures again."""
        self.model = self.tokenizer = self.generation_config = self.lean = None
        self.kept.drop()
        self.__dict__.pop("vocabulary", None)
        if self.offload_folder is not None:
            self.offload_folder.cleanup()
            self.offload_folder = None
        give_memory_back()
        return Unloaded(self.facts.name, self.facts.memory_before_bytes, read_memory().process_bytes)
