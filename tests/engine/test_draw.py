"""The draw is a function of seed and step alone, the same everywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.draw import draw

CASES = json.loads((Path(__file__).parents[1] / "data" / "draws.json").read_text("utf-8"))


@pytest.mark.parametrize("case", CASES, ids=[f"{case['seed']} at {case['step']}" for case in CASES])
def test_draws_are_numpys_philox_exactly(case) -> None:
    assert draw(int(case["seed"]), case["step"]) == case["u"]


@given(st.integers() | st.sampled_from([2**31, 2**64, 2**128, -(2**130), 10**400]), st.integers(0, 2**40))
def test_any_integer_is_a_seed_and_every_draw_lies_in_the_half_open_unit_interval(seed: int, step: int) -> None:
    u = draw(seed, step)
    assert 0.0 <= u < 1.0
    assert draw(seed, step) == u
    assert draw(seed + 2**128, step) == u


def test_neighbouring_seeds_and_steps_draw_different_numbers() -> None:
    drawn = {draw(seed, step) for seed in range(-20, 20) for step in range(50)}
    assert len(drawn) == 40 * 50
    assert abs(sum(drawn) / len(drawn) - 0.5) < 0.03  # 4.6 standard deviations
