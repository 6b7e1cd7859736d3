"""The KV cache of the last run, kept so that a run which begins with the same tokens need not read them again.

One cache is kept: the last lane's, prompt and text. A run of the same prompt then reads one token, and a fork at any
token of it reads none of the prompt again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.forward import Forward


@dataclass(eq=False)
class KeptPrefix:
    """What a session holds between runs. on: whether anything is kept."""

    on: bool = True
    ids: list[int] = field(default_factory=list)  # the tokens whose keys and values are in the cache
    forward: Forward | None = None

    def take(self, ids: list[int]) -> tuple[Forward, int] | None:
        """(the kept cache, cropped to what these tokens share with it, how many tokens that is), or None.

        At least one token is left to be read, since its logits are wanted. What was kept is given away: the run that
        takes it hands it back.
        """
        forward, known = self.forward, self.ids
        self.drop()
        if forward is None:
            return None
        shared = 0
        for mine, theirs in zip(known, ids[:-1], strict=False):
            if mine != theirs:
                break
            shared += 1
        return (forward, shared) if shared and forward.crop(shared) else None

    def keep(self, ids: list[int], forward: Forward) -> None:
        """Keeps one lane's cache after its run. ids: all that the lane read and wrote; the last may be in no cache."""
        if self.on and forward.lanes == 1:
            forward.reserve(forward.tokens)  # what was allocated ahead goes back
            self.ids, self.forward = ids[: forward.tokens], forward

    def drop(self) -> None:
        self.ids, self.forward = [], None

    @property
    def held_bytes(self) -> int:
        """Memory of what is kept."""
        return self.forward.kv_bytes()[1] if self.forward is not None else 0
