"""KV caches of the last runs, kept so that a run which begins with the same tokens need not read them again.

A fork at any token of a run that is still kept then reads one token. A run of the same prompt reads none: the logits
after a prompt are kept, too, since many rows are computed by another kernel than one row is, and in 16 bits to read its
last token again gives other last digits, and so now and then another text. The oldest ones go first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from engine.forward import Forward

MOST_CACHES = 16
MOST_BYTES = 2**29  # all together; the newest is kept whatever its size


@dataclass(eq=False, slots=True)
class Kept:
    """One lane's cache. ids: the tokens whose keys and values are in it."""

    ids: list[int]
    forward: Forward

    def shared(self, ids: list[int]) -> int:
        """How many of these tokens it begins with."""
        count = 0
        for mine, theirs in zip(self.ids, ids, strict=False):
            if mine != theirs:
                break
            count += 1
        return count


@dataclass(eq=False)
class KeptPrefix:
    """What a session holds between runs, the newest last. on: whether anything is kept."""

    on: bool = True
    caches: list[Kept] = field(default_factory=list)
    ends: dict[tuple[int, ...], np.ndarray] = field(default_factory=dict)  # the logits after prompts, float32 [vocab]

    def take(self, ids: list[int]) -> tuple[Forward, int] | None:
        """(a cache of the most tokens that these begin with, how many tokens that is), or None.

        All of them only where the logits after them are kept; else the last one is left to be read, for its logits.
        What is kept stays, and the run gets a copy of its beginning; a cache that the run goes on from at its very end
        is given away, and comes back with the run.
        """
        wanted = ids if tuple(ids) in self.ends else ids[:-1]
        for shared, _, kept in sorted(((k.shared(wanted), at, k) for at, k in enumerate(self.caches)), reverse=True):
            if not shared:
                break
            if kept.forward.in_one_piece(0):
                continue
            if shared >= len(kept.ids) - 1 and kept.forward.crop(shared):
                self.caches.remove(kept)
                return kept.forward, shared
            if (copy := kept.forward.copy(0, shared)) is not None:
                return copy, shared
        return None

    def keep(self, ids: list[int], forward: Forward) -> None:
        """Keeps one lane's cache after its run. ids: all that the lane read and wrote; the last may be in no cache."""
        if not self.on or forward.lanes != 1 or not forward.tokens:
            return
        forward.reserve(forward.tokens)  # what was allocated ahead goes back
        ids = ids[: forward.tokens]
        # What is a beginning of this one is of no more use.
        self.caches = [kept for kept in self.caches if kept.ids != ids[: len(kept.ids)]]
        self.caches.append(Kept(ids, forward))
        while len(self.caches) > 1 and (len(self.caches) > MOST_CACHES or self.held_bytes > MOST_BYTES):
            del self.caches[0]

    def keep_end(self, ids: list[int], logits: np.ndarray) -> None:
        """Keeps what the model said after a prompt."""
        if self.on:
            self.ends.pop(tuple(ids), None)
            self.ends[tuple(ids)] = logits.copy()  # of the row alone: it may be a view of many
            while len(self.ends) > MOST_CACHES:
                del self.ends[next(iter(self.ends))]

    def drop(self) -> None:
        self.caches, self.ends = [], {}

    @property
    def tokens(self) -> int:
        """Tokens in all that is kept."""
        return sum(kept.forward.tokens for kept in self.caches)

    @property
    def held_bytes(self) -> int:
        """Memory of what is kept."""
        ends = sum(logits.nbytes for logits in self.ends.values())
        return ends + sum(kept.forward.kv_bytes()[0][1] for kept in self.caches)
