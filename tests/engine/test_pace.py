"""The number of threads of a step follows the machine: it is tried, kept where it helps, and tried less where not."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from engine.pace import FIRST_WAIT, LONGEST_WAIT, SEEN, TRIED, Pace


@pytest.fixture(autouse=True)
def four_threads(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)


def steps(pace: Pace, count: int, seconds: dict[int, float]) -> list[int]:
    """Runs steps that take as long as their number of threads says; returns those numbers."""
    taken = []
    for _ in range(count):
        trying = pace.trying
        taken.append(pace.other if trying else pace.threads)
        pace.took(seconds[taken[-1]], trying)
    return taken


def test_half_the_threads_are_tried_and_taken_where_they_are_faster():
    pace = Pace(0)
    taken = steps(pace, SEEN + TRIED + 5, {4: 2.0, 2: 1.0})
    assert taken == [4] * SEEN + [2] * (TRIED + 5)
    assert (pace.threads, pace.other) == (2, 4)


def test_fewer_threads_that_do_not_help_are_tried_once_as_long_as_the_machine_is_quiet():
    pace = Pace(4)
    taken = steps(pace, 4000, {4: 1.0, 2: 0.99})  # hardly faster is not faster
    assert taken == [4] * SEEN + [2] * TRIED + [4] * (4000 - SEEN - TRIED)


def test_more_threads_that_do_not_help_are_tried_less_and_less_often():
    pace = Pace(4)
    taken = steps(pace, 4000, {4: 1.0, 2: 0.9})
    tried = [at for at, threads in enumerate(taken) if threads == 4 and at >= SEEN][::TRIED]
    gaps = [later - earlier for earlier, later in pairwise(tried)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == LONGEST_WAIT + TRIED
    assert pace.threads == 2


def test_when_steps_suddenly_take_longer_the_other_number_is_tried_at_once():
    pace = Pace(4)
    steps(pace, 1000, {4: 1.0, 2: 1.5})
    taken = steps(pace, SEEN + TRIED, {4: 9.0, 2: 3.0})
    assert pace.threads == 2
    assert taken[-1] == 2
    steps(pace, SEEN + FIRST_WAIT + TRIED, {4: 1.0, 2: 1.5})  # the other program has ended
    assert pace.threads == 4


def test_one_thread_alone_is_never_changed_and_other_rows_are_seen_anew(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert set(steps(Pace(0), 300, {1: 1.0})) == {1}
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    pace = Pace(1)
    assert pace.other == 2
    steps(pace, SEEN, {1: 1.0, 2: 1.0})
    assert pace.trying
    with pace.step(3):
        pass
    assert not pace.trying
