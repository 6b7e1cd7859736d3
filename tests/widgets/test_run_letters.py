"""A run has one letter wherever it is named, and no two that are named beside one another have the same."""

from __future__ import annotations

import pytest

from tests.widgets import events_factory as make
from widgets.run_letters import letters_of


def lane(run_id: int, at: int, lanes: int = 3):
    return make.start(run_id, lane=at, lanes=lanes)


@pytest.mark.parametrize(
    ("starts", "held", "letters"),
    [
        ([lane(1, 1), lane(1, 0)], "", ["B", "A"]),
        ([make.start(4), lane(1, 0), make.start(5)], "", ["B", "A", "C"]),
        ([lane(1, 0), lane(2, 0, lanes=2)], "", ["A", "C"]),  # B is the other lane of run 2
        ([None, lane(2, 0, lanes=2), lane(2, 1, lanes=2)], "ABC", ["C", "A", "B"]),  # as numbered after a removal
        ([lane(1, 0), lane(2, 0, lanes=2), lane(2, 1, lanes=2)], "ABC", ["A", "C", "B"]),
        ([lane(2, 0, lanes=2), lane(1, 0), lane(2, 1, lanes=2)], "CAB", ["C", "A", "B"]),  # moved: letters go along
        ([None, make.start(4)], "DB", ["D", "B"]),
    ],
)
def test_lanes_have_the_letters_of_their_run_and_never_another_lanes(starts, held, letters):
    assert letters_of(starts, list(held)) == letters
