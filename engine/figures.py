"""Figures of finished or growing texts, and where two texts part. Plain arithmetic over events: views use it too."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count

from engine.events import RunStart, TokenEvent
from engine.lineage import (  # noqa: F401  views import the arithmetic over runs from here
    Branch,
    ancestors,
    beginning,
    branches,
    descendants,
    own_tokens,
)

NGRAM = 3  # of the distinct n-grams: the usual measure of variety beside single words (Li et al. 2016)


@dataclass(frozen=True, slots=True)
class TextFigures:
    """What can be counted of one text. NaN where there is nothing to count.

    mean_surprise_nats: of the words that the model chose, by its raw odds; forced ones are left out.
    distinct: distinct n-grams of NGRAM tokens over all of them, 0 to 1.
    repetition: share of tokens that end an n-gram which stood before, 0 to 1.
    """

    tokens: int
    mean_surprise_nats: float
    distinct: float
    repetition: float
    mean_entropy_nats: float


def figures_of(tokens: Iterable[TokenEvent]) -> TextFigures:
    """The figures of a run's tokens, in O(tokens)."""
    growing = GrowingFigures()
    for token in tokens:
        growing.add(token)
    return growing.figures()


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """The first place where two texts' token ids part; None while one is the beginning of the other."""
    for place, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        if mine != theirs:
            return place
    return None


class GrowingFigures:
    """The figures of a text that grows: each token is looked at once, and asking costs the same at any length."""

    def __init__(self) -> None:
        self.tokens = 0
        self._surprise_nats = self._entropy_nats = 0.0
        self._chosen = self._grams = self._repeated = 0
        self._last: tuple[int, ...] = ()
        self._seen: set[tuple[int, ...]] = set()

    def add(self, token: TokenEvent) -> None:
        self.tokens += 1
        if not token.forced:
            self._chosen += 1
            self._surprise_nats += token.surprise_nats
            self._entropy_nats += token.entropy_nats
        self._last = (*self._last, token.token_id)[-NGRAM:]
        if len(self._last) == NGRAM:
            self._grams += 1
            self._repeated += self._last in self._seen
            self._seen.add(self._last)

    def figures(self) -> TextFigures:
        """Those of the tokens so far."""
        chosen = self._chosen or math.nan
        return TextFigures(
            tokens=self.tokens,
            mean_surprise_nats=self._surprise_nats / chosen,
            distinct=len(self._seen) / (self._grams or math.nan),
            repetition=self._repeated / (self.tokens or math.nan),
            mean_entropy_nats=self._entropy_nats / chosen,
        )


def lane_letter(lane: int) -> str:
    """A, B, … Z, AA, AB, … as spreadsheets count."""
    letters = ""
    lane += 1
    while lane:
        lane, place = divmod(lane - 1, 26)
        letters = chr(ord("A") + place) + letters
    return letters


def letters_beside(starts: Sequence[RunStart], given: Sequence[str] = ()) -> list[str]:
    """The letters of runs that stand side by side, each another one.

    One of several lanes keeps its own where that is free; others take the next one that is. given: those that are
    settled already, "" where not.
    """
    found = list(given) or [""] * len(starts)
    for at, start in enumerate(starts):
        own = lane_letter(start.lane)
        if not found[at] and start.lanes > 1 and own not in found:
            found[at] = own
    free = (letter for letter in map(lane_letter, count()) if letter not in found)
    return [letter or next(free) for letter in found]
