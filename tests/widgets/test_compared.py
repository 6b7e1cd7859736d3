from __future__ import annotations

from dataclasses import replace

import pytest

from engine.settings import SamplingSettings
from tests.widgets.lanes_factory import CONTROL, GREEDY, SAME_U, lane_events, store_with
from widgets.compared import differences

pytestmark = pytest.mark.usefixtures("qapp")
ONE = SamplingSettings(top_k=1, seed=3)


def told(*settings: SamplingSettings) -> str:
    store = store_with(*(lane_events(at, each, None if each.greedy else SAME_U) for at, each in enumerate(settings)))
    return differences([(run, {}) for run in store.runs])


def test_other_seeds_are_told_where_they_draw():
    assert "other seeds, and so other draws (A 7, B 8)" in told(CONTROL, replace(CONTROL, seed=8))


def test_seeds_that_decide_nothing_are_no_other_draws():
    assert told(GREEDY, ONE).endswith("no seed decides: what differs is the settings' doing.")
    assert told(ONE, replace(ONE, seed=8)) == (
        "Model, prompt and settings are the same, and no seed decides: nothing is drawn."
    )
    assert "the seed of those that draw are the same" in told(CONTROL, replace(GREEDY, seed=8))
    assert told(ONE, ONE) == "Model, prompt, seed and settings are the same."
