"""The statistics are the textbooks': binomial and Holm by hand, Student's t by printed tables."""

from __future__ import annotations

import math
import random

import pytest

from engine.statistics import (
    binomial_two_sided,
    holm,
    mean_of,
    seeds_needed,
    student_quantile,
    student_two_sided,
    welch,
)


@pytest.mark.parametrize(
    ("hits", "tries", "p"),
    [
        (15, 20, 2 * 21_700 / 2**20),  # 1 + 20 + 190 + 1140 + 4845 + 15504 = 21700 ways of 15 or more
        (5, 20, 2 * 21_700 / 2**20),
        (10, 10, 2 / 1024),
        (5, 10, 1.0),
        (6, 10, 2 * (210 + 120 + 45 + 10 + 1) / 1024),
        (0, 0, 1.0),
        (1, 1, 1.0),
    ],
)
def test_the_binomial_test_counts_the_ways(hits, tries, p):
    assert binomial_two_sided(hits, tries) == pytest.approx(p, rel=1e-12)


def test_fifteen_of_twenty_is_a_finding_and_eleven_of_twenty_is_none():
    assert round(binomial_two_sided(15, 20), 3) == 0.041
    assert binomial_two_sided(11, 20) == pytest.approx(0.8238, abs=5e-5)
    assert binomial_two_sided(600, 1000) < 1e-9  # whole numbers of any size
    with pytest.raises(ValueError, match="21 of 20"):
        binomial_two_sided(21, 20)


def test_holm_multiplies_the_smallest_most_and_keeps_the_order():
    assert holm([0.04, 0.01, 0.03]) == pytest.approx((0.06, 0.03, 0.06))
    assert holm([0.5, 0.9]) == pytest.approx((1.0, 1.0))
    assert holm([]) == ()


@pytest.mark.parametrize(
    ("share", "freedom", "t"),  # the table in every textbook
    [
        (0.975, 1, 12.7062),
        (0.975, 2, 4.3027),
        (0.975, 5, 2.5706),
        (0.975, 15, 2.1314),
        (0.975, 30, 2.0423),
        (0.95, 10, 1.8125),
        (0.995, 20, 2.8453),
        (0.8, 8, 0.8889),
        (0.975, 1e6, 1.9600),
        (0.5, 3, 0.0),
    ],
)
def test_students_quantiles_are_those_of_the_table(share, freedom, t):
    assert student_quantile(share, freedom) == pytest.approx(t, abs=6e-5)


def test_students_tails_are_exact_where_there_is_a_formula():
    for t in (0.1, 1.0, 3.0, 40.0):
        assert student_two_sided(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t), rel=1e-12)
        assert student_two_sided(t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-9)
    assert student_two_sided(math.inf, 4) == 0.0


def test_the_interval_of_a_mean_by_hand():
    found = mean_of([2.0, 4.0, 6.0, math.nan])  # deviation 2, error 2 / sqrt 3, t(2) = 4.3027
    assert (found.count, found.mean, found.deviation) == (3, 4.0, 2.0)
    assert found.high - found.mean == pytest.approx(4.302653 * 2 / math.sqrt(3), rel=1e-6)
    assert mean_of([]).count == 0
    assert math.isnan(mean_of([3.0]).low)
    assert mean_of([0.1] * 3).deviation == 0.0  # the mean of three times 0.1 is not 0.1 in doubles


def test_welch_by_hand():
    one, other = [1.0, 2.0, 3.0], [4.0, 6.0, 8.0, 10.0]
    # errors 1/3 and (20/3)/4 = 5/3; freedom 4 / (1/18 + 25/27) = 216/53
    found = welch(one, other)
    assert found.difference == 5.0
    assert found.freedom == pytest.approx(216 / 53)
    assert found.high - 5.0 == pytest.approx(student_quantile(0.975, 216 / 53) * math.sqrt(2))
    assert found.seen
    assert found.p == pytest.approx(student_two_sided(5 / math.sqrt(2), 216 / 53))
    assert found.p < 0.05


def test_samples_without_spread_differ_exactly_or_not_at_all():
    same, apart = welch([7.0] * 4, [7.0] * 4), welch([7.0] * 4, [8.0] * 4, certain=True)
    assert (same.low, same.high, same.p, same.seen) == (0.0, 0.0, 1.0, False)
    assert (apart.low, apart.high, apart.p, apart.seen) == (1.0, 1.0, 0.0, True)
    assert math.isnan(welch([1.0], [2.0, 3.0]).low)
    assert not welch([1.0], [2.0, 3.0]).seen


def test_a_few_draws_that_happen_to_agree_are_not_taken_for_certain():
    """Two texts that ended against two that did not: among equal settings one try in eight."""
    few = welch([0.0, 0.0], [1.0, 1.0])
    assert not few.seen
    assert math.isnan(few.low)
    assert math.isnan(few.p)
    four = welch([0.0] * 4, [1.0] * 4)
    assert four.seen
    assert four.p == pytest.approx(2 / 70)  # of 70 ways to deal out four of eight, two are as far apart


@pytest.mark.parametrize("kind", ["even", "skewed", "yes or no"])
def test_two_equal_settings_differ_in_few_of_many_tries(kind):
    draw = random.Random(5)
    value = {
        "even": draw.random,
        "skewed": lambda: draw.expovariate(1.0),
        "yes or no": lambda: float(draw.random() < 0.4),
    }[kind]
    held = sum(not welch([value() for _ in range(16)], [value() for _ in range(16)]).seen for _ in range(400))
    assert held >= 368  # 380 are promised for normal spreads


def test_seeds_that_would_be_needed_are_those_of_the_textbook():
    # Half a deviation apart: 64 in each group (Cohen 1988, table 2.4.1, d = 0.5, power 0.80, two-sided 0.05).
    one, other = mean_of([-1.0, 1.0] * 50), mean_of([-0.5, 1.5] * 50)
    needed = seeds_needed(one, other)
    assert needed is not None
    assert abs(needed - 63 * one.deviation**2) <= 2
    assert seeds_needed(one, one) is None
    assert seeds_needed(mean_of([1.0] * 3), mean_of([2.0] * 3)) is None
    assert seeds_needed(mean_of([0.0, 1e9]), mean_of([1e-9, 1e9])) is None
