"""What other settings would have made of a finished run, from what was kept of it and without the model.

Each token is decided after the text that was really written before it: so the first one that would have been another
is where the text would have gone elsewhere, and of the later ones it is only said whether their word would still
stand at that place. Everything not kept is known within bounds; where the bounds leave two answers, none is given.

The order, the meaning and the ties are those of engine/sampling.py. Tokens are rows of arrays, worked on together.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from engine.deciding import Decided, Deciding
from engine.events import RunStart, TokenEvent
from engine.kept_rows import KeptRows, WrittenText, named_count
from engine.redecided import Redecided
from engine.settings import SamplingSettings

WORTH_TWO = 300  # tokens from which on two threads are faster than one; NumPy lets them run side by side


class FinishedRun:
    """A run's tokens: read once, then asked as often as a slider moves."""

    def __init__(self, start: RunStart, tokens: Sequence[TokenEvent]) -> None:
        self.rows = len(tokens)
        text = WrittenText(start, tokens)
        # All rows of an array are as wide as the widest: those that name as many logits go together.
        widths = np.array([named_count(token) for token in tokens], dtype=np.int64)
        order = np.argsort(widths, kind="stable").astype(np.int64)
        numbers = [order] if self.rows else []
        if self.rows >= WORTH_TWO:
            work = np.cumsum(widths[order])
            numbers = np.split(order, [int(np.searchsorted(work, work[-1] / 2))])
        with np.errstate(over="ignore", invalid="ignore"):  # a damaged file may hold any number
            self.parts = [KeptRows(text, [tokens[i] for i in at], at) for at in numbers]

    def redecide(self, settings: SamplingSettings) -> Redecided:
        """Every token under these settings."""

        def decide(part: KeptRows) -> Decided:
            with np.errstate(over="ignore", invalid="ignore"):
                return Deciding(part, settings).run()

        if len(self.parts) == 1:
            found = [decide(self.parts[0])]
        else:
            with ThreadPoolExecutor(2, "redecide") as pool:
                found = list(pool.map(decide, self.parts))
        fates, cuts = np.zeros(self.rows, dtype=np.uint8), np.zeros(self.rows, dtype=np.uint8)
        low, high, others = np.zeros(self.rows), np.zeros(self.rows), np.zeros(self.rows, dtype=np.int32)
        for part, decided in zip(self.parts, found, strict=True):
            for whole, mine in zip((fates, cuts, low, high, others), decided, strict=True):
                whole[part.at] = mine
        return Redecided(
            fates.tobytes(),
            cuts.tobytes(),
            array("d", low.tobytes()),
            array("d", high.tobytes()),
            array("i", others.tobytes()),
        )
