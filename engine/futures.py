"""Many continuations of one beginning, merged into a tree by what they begin with. Plain data and arithmetic.

`engine/continuations.py` makes them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from engine.settings import FuturesQuestion


@dataclass(frozen=True, slots=True)
class Future:
    """One continuation. labels: each token by itself; texts: what became certain with it; tail: released at its end.

    reason: as RunEnd's, "" while it is being written.
    """

    seed: int
    token_ids: tuple[int, ...]
    labels: tuple[str, ...]
    texts: tuple[str, ...]
    tail: str = ""
    reason: str = ""

    @property
    def text(self) -> str:
        return "".join(self.texts) + self.tail


@dataclass(frozen=True, slots=True)
class FirstWord:
    """A token that could have come first. share: its exact probability after all settings, 0 to 1."""

    token_id: int
    label: str
    share: float


@dataclass(frozen=True, slots=True)
class Futures:
    """What was asked, and the continuations that are there by now, in the order of their seeds.

    first: what could have come first, most probable first; the rest of the vocabulary shares what is left to 1.
    reused_tokens, computed_tokens: of the beginning, for all together; batches: how often the model was asked as one.
    whole: nothing more comes. stopped: because a person said so.
    """

    question: FuturesQuestion
    futures: tuple[Future, ...]
    first: tuple[FirstWord, ...] = ()
    begins_with: str = ""  # text of the run up to there
    prompt_tokens: int = 0
    reused_tokens: int = 0
    read_tokens: int = 0
    written_tokens: int = 0
    batches: int = 0
    elapsed_ms: float = 0.0
    whole: bool = False
    stopped: bool = False

    def expected(self, token_id: int) -> float | None:
        """The exact share of futures that begin with this token, None where it is not listed."""
        return next((word.share for word in self.first if word.token_id == token_id), None)


@dataclass(frozen=True, slots=True)
class Node:
    """Words that the same continuations share: tokens begin to end of each of them.

    futures: which they are, by place. children: how they go on, the most common first. ended: so many end here.
    """

    begin: int
    end: int
    futures: tuple[int, ...]
    children: tuple[Node, ...] = ()
    ended: int = 0

    @property
    def count(self) -> int:
        return len(self.futures)


def tree_of(futures: Sequence[Future]) -> Node:
    """The tree of what they begin with; its root holds what all share, which may be nothing.

    Merged by token, not by text: the same letters cut in two ways are two ways.
    """
    return _node([future.token_ids for future in futures], tuple(range(len(futures))), 0)


def _node(texts: list[tuple[int, ...]], members: tuple[int, ...], begin: int) -> Node:
    end = begin
    while True:
        groups: dict[int, list[int]] = {}
        ended = 0
        for member in members:
            if end < len(texts[member]):
                groups.setdefault(texts[member][end], []).append(member)
            else:
                ended += 1
        if len(groups) != 1 or ended:
            break
        end += 1
    children = sorted(groups.values(), key=lambda group: (-len(group), group[0]))
    return Node(begin, end, members, tuple([_node(texts, tuple(group), end) for group in children]), ended)


def words_of(futures: Sequence[Future], node: Node) -> str:
    """The node's words as text; the tokens' labels where no character of it is whole yet (half a Chinese one)."""
    if not node.futures:
        return ""
    future = futures[node.futures[0]]
    text = "".join(future.texts[node.begin : node.end])
    if node.end == len(future.token_ids):
        text += future.tail
    return text or "".join(future.labels[node.begin : node.end])


def effective_number(futures: Sequence[Future], tokens: int | None = None) -> float:
    """exp of the entropy of the shares of different beginnings of so many tokens (None: of whole continuations).

    As uncertain as a fair choice among so many; the perplexity of the shares (Hill number of order 1, Hill 1973).
    1 where all are the same, NaN where there are none.
    """
    if not futures:
        return math.nan
    counts = Counter(future.token_ids[:tokens] for future in futures)
    total = len(futures)
    return math.exp(-math.fsum(n / total * math.log(n / total) for n in counts.values()))


def different(futures: Sequence[Future]) -> int:
    """How many different texts they are, by token."""
    return len({future.token_ids for future in futures})


def shared_tokens(futures: Sequence[Future]) -> int:
    """How many tokens all of them begin with."""
    return tree_of(futures).end if futures else 0


def scatter(share: float, count: int) -> float:
    """By how much a share of `count` draws scatters around the true one: the binomial's standard deviation."""
    return math.sqrt(max(0.0, share * (1.0 - share)) / count) if count else math.nan
