"""Forks as a tree: which run began inside which, what of a run is its own, and what a file of it must hold.

Plain arithmetic over events. A run is anything with `start`, `tokens`, `prefill`, `changes` and `end`, such as the
store's runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from engine.events import Event, Loaded, PrefillProgress, RunEnd, RunStart, SessionFacts, SettingsChanged, TokenEvent

Key = tuple[int, int]  # run_id, lane


class Told(Protocol):
    """What is known of one lane's generation."""

    @property
    def start(self) -> RunStart: ...
    @property
    def facts(self) -> SessionFacts | None: ...
    @property
    def tokens(self) -> Sequence[TokenEvent]: ...
    @property
    def prefill(self) -> Sequence[PrefillProgress]: ...
    @property
    def changes(self) -> Sequence[SettingsChanged]: ...
    @property
    def end(self) -> RunEnd | None: ...


@dataclass(frozen=True, slots=True)
class Branch:
    """One run in the tree. parent: None where it began by itself, or what it began in is not there.

    begins: how many tokens it shares with what it began in; depth: how many forks lie before it.
    """

    key: Key
    parent: Key | None
    begins: int
    depth: int


def key_of(start: RunStart) -> Key:
    return start.run_id, start.lane


def parent_key(start: RunStart) -> Key | None:
    """The run that this one says it began in; one that names itself began nowhere."""
    if start.parent is None:
        return None
    key = start.parent.run_id, start.parent.lane
    return None if key == key_of(start) else key


def branches(starts: Iterable[RunStart]) -> list[Branch]:
    """The runs in the order in which a tree of them is drawn: each above what began inside it.

    What began latest stands first, so that no line from a parent down to a fork crosses another fork's text.
    """
    by_key = {key_of(start): start for start in starts}
    children: dict[Key | None, list[RunStart]] = {}
    for start in by_key.values():
        children.setdefault(_known_parent(start, by_key), []).append(start)
    found: list[Branch] = []
    waiting = [(start, 0) for start in reversed(children.get(None, []))]
    while waiting:
        start, depth = waiting.pop()
        key = key_of(start)
        found.append(Branch(key, _known_parent(start, by_key), len(start.written), depth))
        # Popped from the end: the latest fork comes first, of equal ones the first that was made.
        below = children.get(key, [])[::-1]
        below.sort(key=lambda child: len(child.written))
        waiting += [(child, depth + 1) for child in below]
    return found


def _known_parent(start: RunStart, by_key: dict[Key, RunStart]) -> Key | None:
    """The parent where it is there and the way up from it ends: a damaged file may run in circles."""
    parent, seen = parent_key(start), {key_of(start)}
    above = parent
    while above is not None and above in by_key:
        if above in seen:
            return None
        seen.add(above)
        above = parent_key(by_key[above])
    return parent if parent in by_key else None


def ancestors(start: RunStart, find: Callable[[Key], RunStart | None]) -> list[RunStart]:
    """The runs in which this one began, the first of all first. What is not there ends the line."""
    line: list[RunStart] = []
    seen = {key_of(start)}
    while (key := parent_key(start)) is not None and key not in seen and (above := find(key)) is not None:
        seen.add(key)
        line.append(above)
        start = above
    return line[::-1]


def descendants(key: Key, starts: Iterable[RunStart]) -> list[Key]:
    """This run and all that began in it, in the order of the tree."""
    found: set[Key] = {key}
    for branch in branches(starts):
        if branch.parent in found:
            found.add(branch.key)
    return [branch.key for branch in branches(starts) if branch.key in found]


def beginning(start: RunStart, tokens: Sequence[TokenEvent]) -> list[TokenEvent] | None:
    """The tokens of its parent that a fork begins with, or None where they are not those that it says were written.

    They are the parent's own objects. Where the fork stops at other strings, more or less text may have been certain
    by its first token: then the last of them say so.
    """
    count = len(start.written)
    shared = list(tokens[:count])
    if tuple(token.token_id for token in shared) != start.written or any(
        token.step != step for step, token in enumerate(shared)
    ):
        return None
    return shared if start.written_text is None else _with_text(shared, start.written_text)


def _with_text(tokens: list[TokenEvent], text: str) -> list[TokenEvent]:
    """The tokens with so much text as was certain for the fork; only the last ones can differ."""
    shown = "".join(token.text for token in tokens)
    if tokens and text.startswith(shown):
        if more := text[len(shown) :]:
            tokens[-1] = replace(tokens[-1], text=tokens[-1].text + more)
    elif shown.startswith(text):
        at, over = len(tokens), len(shown) - len(text)
        while over > 0:
            at -= 1
            kept = tokens[at].text[: max(0, len(tokens[at].text) - over)]
            over -= len(tokens[at].text) - len(kept)
            tokens[at] = replace(tokens[at], text=kept)
    return tokens


def own_tokens(run: Told) -> list[TokenEvent]:
    """What the run wrote itself: the tokens of its parent left out."""
    key = key_of(run.start)
    return [token for token in run.tokens if (token.run_id, token.lane) == key]


def told_again(lanes: Sequence[Told]) -> Iterator[Event]:
    """The events of the lanes of one request, as they came: each lane's own, without what it shares with a parent."""
    yield from (lane.start for lane in lanes)
    yield from lanes[0].prefill
    told: list[SettingsChanged | TokenEvent] = []
    for lane in lanes:
        told += (change for change in lane.changes if (change.run_id, change.lane) == key_of(lane.start))
        told += own_tokens(lane)
    # By step, a change before its token.
    yield from sorted(told, key=lambda event: (event.step, event.lane, isinstance(event, TokenEvent)))
    yield from (lane.end for lane in lanes if lane.end is not None)


def story(start: RunStart, runs: Iterable[Told]) -> Iterator[Event]:
    """All that a file of this run must hold before it: the runs it began in, each once, the first of all first.

    A run of several lanes comes whole. Where the model changes, it is named anew.
    """
    by_key = {key_of(run.start): run for run in runs}
    facts: SessionFacts | None = None
    for run_id in dict.fromkeys(
        above.run_id for above in ancestors(start, lambda key: by_key[key].start if key in by_key else None)
    ):
        lanes = [run for run in by_key.values() if run.start.run_id == run_id]
        if lanes[0].facts is not None and lanes[0].facts is not facts:
            facts = lanes[0].facts
            yield Loaded(facts)
        yield from told_again(lanes)
