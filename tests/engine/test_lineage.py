"""What a fork's file must hold before it, and which tokens it begins with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from engine import events as ev
from engine.lineage import ancestors, beginning, branches, descendants, own_tokens, story, told_again
from engine.settings import Parent, SamplingSettings
from tests.engine.test_replay import PREFILL, START, token

SETTINGS = SamplingSettings()


@dataclass
class Run:
    start: ev.RunStart
    tokens: list[ev.TokenEvent] = field(default_factory=list)
    facts: ev.SessionFacts | None = None
    prefill: list[ev.PrefillProgress] = field(default_factory=list)
    changes: list[ev.SettingsChanged] = field(default_factory=list)
    end: ev.RunEnd | None = None


def run(run_id: int, count: int, parent: Run | None = None, step: int = 0, lane: int = 0, lanes: int = 1) -> Run:
    """A run of so many own tokens, which began in another's after so many."""
    shared = parent.tokens[:step] if parent is not None else []
    start = replace(
        START, run_id=run_id, lane=lane, lanes=lanes, written=tuple(t.token_id for t in shared),
        parent=Parent(parent.start.run_id, parent.start.lane, step) if parent is not None else None,
    )  # fmt: skip
    own = [token(step + n, f" {run_id}{n}", run_id=run_id, lane=lane, token_id=10 + n % 3) for n in range(count)]
    return Run(start, [*shared, *own], prefill=[replace(PREFILL, run_id=run_id)])


@pytest.fixture
def family():
    first = run(1, 5)
    second = run(2, 3, first, 3)
    third = run(3, 2, second, 4)
    aside = run(4, 2, first, 1)
    return [first, second, third, aside]


def keys(events, kind):
    return [event.run_id for event in events if isinstance(event, kind)]


def test_the_story_of_a_fork_is_what_it_began_in_once_each_first_things_first(family):
    events = list(story(family[2].start, family))
    assert keys(events, ev.RunStart) == [1, 2]
    assert keys(events, ev.TokenEvent) == [1] * 5 + [2] * 3  # each its own, whole
    assert list(story(family[0].start, family)) == []
    assert keys(story(family[3].start, family), ev.RunStart) == [1]


def test_lanes_come_whole_and_in_the_order_in_which_they_were_written():
    lanes = [run(1, 2, lane=0, lanes=2), run(1, 3, lane=1, lanes=2)]
    lanes[1].changes.append(ev.SettingsChanged(1, 1, 1, SETTINGS))
    fork = run(2, 1, lanes[1], 2)
    events = list(story(fork.start, [*lanes, fork]))
    assert [event.lane for event in events if isinstance(event, ev.RunStart)] == [0, 1]
    order = [(event.step, event.lane, type(event).__name__) for event in events if hasattr(event, "step")]
    assert order == [
        (0, 0, "TokenEvent"), (0, 1, "TokenEvent"), (1, 0, "TokenEvent"), (1, 1, "SettingsChanged"),
        (1, 1, "TokenEvent"), (2, 1, "TokenEvent"),
    ]  # fmt: skip


def test_a_change_that_was_the_parents_is_not_told_twice(family):
    family[1].changes.append(ev.SettingsChanged(1, 0, 1, SETTINGS))
    assert not any(isinstance(event, ev.SettingsChanged) for event in told_again([family[1]]))


def test_a_fork_begins_with_the_tokens_that_it_says_were_written(family):
    first, second = family[0], family[1]
    shared = beginning(second.start, first.tokens)
    assert shared is not None
    assert all(mine is theirs for mine, theirs in zip(shared, first.tokens, strict=False))
    assert len(shared) == 3
    assert beginning(second.start, first.tokens[:2]) is None
    assert beginning(replace(second.start, written=(99, 11, 12)), first.tokens) is None
    assert own_tokens(second) == second.tokens[3:]


def test_the_tree_and_its_lines(family):
    starts = [each.start for each in family]
    by_key = {(start.run_id, start.lane): start for start in starts}
    assert [(b.key[0], b.parent and b.parent[0], b.begins, b.depth) for b in branches(starts)] == [
        (1, None, 0, 0), (2, 1, 3, 1), (3, 2, 4, 2), (4, 1, 1, 1)
    ]  # fmt: skip
    assert [start.run_id for start in ancestors(starts[2], by_key.get)] == [1, 2]
    assert [key[0] for key in descendants((2, 0), starts)] == [2, 3]
    assert [b.parent for b in branches(starts[1:2])] == [None]  # its parent is not here


def test_circles_end():
    one = replace(START, run_id=1, parent=Parent(2, 0, 0))
    two = replace(START, run_id=2, parent=Parent(1, 0, 0))
    assert [start.run_id for start in ancestors(one, {(1, 0): one, (2, 0): two}.get)] == [2]
    assert len(branches([one, two])) == 2
