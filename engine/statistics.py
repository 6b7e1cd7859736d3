"""What may be said of a few samples: exact, small, and without a statistics library.

Pure Python over floats. The beta function's continued fraction is that of Numerical Recipes (Press et al., 3rd ed.,
6.4), evaluated by Lentz's method; all values below were checked against printed tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

LEVEL = 0.95  # of every interval
POWER = 0.8  # with which a difference is to be seen, where the seeds for that are estimated
MOST_SEEDS = 100_000


def binomial_two_sided(hits: int, tries: int) -> float:
    """p of the exact two-sided binomial test against one half: how often a fair coin is at least as one-sided.

    Raises ValueError where hits are not 0 to tries. Both tails are alike at one half, so it is twice the smaller.
    """
    if not 0 <= hits <= tries:
        raise ValueError(f"{hits} of {tries}")
    tail = sum(math.comb(tries, count) for count in range(max(hits, tries - hits), tries + 1))
    return min(1.0, 2 * tail / 2**tries)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """The p values corrected for so many comparisons, in the order given. Source: Holm 1979, step-down."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for place, at in enumerate(sorted(range(len(p_values)), key=lambda at: p_values[at])):
        largest = max(largest, min(1.0, p_values[at] * (len(p_values) - place)))
        adjusted[at] = largest
    return tuple(adjusted)


# ---------------------------------------------------------------- Student's t


def student_two_sided(t: float, freedom: float) -> float:
    """How often a t of this size or larger, either way, comes with so many degrees of freedom (any real above 0)."""
    if math.isinf(t):
        return 0.0
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


@lru_cache(4096)  # samples of one size share it
def student_quantile(share: float, freedom: float) -> float:
    """The t below which this share lies (0.5 to 1, not 1), by halving: to the last digits of a double."""
    if not 0.5 <= share < 1 or not freedom > 0:
        raise ValueError(f"{share} of Student's t with {freedom} degrees of freedom")
    outside = 2 * (1 - share)
    low, high = 0.0, 1.0
    while student_two_sided(high, freedom) > outside:
        low, high = high, high * 2
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if student_two_sided(middle, freedom) > outside:
            low = middle
        else:
            high = middle
    return high


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b)."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1) / (a + b + 2):  # where the fraction converges quickly
        return math.exp(log_front) * _fraction(a, b, x) / a
    return 1.0 - math.exp(log_front) * _fraction(b, a, 1.0 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    found = d
    for m in range(1, 10_000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + term * d
            c = 1.0 + term / c
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = c if abs(c) > tiny else tiny
            found *= d * c
        if abs(d * c - 1.0) < 1e-15:
            break
    return found


# ---------------------------------------------------------------- means


@dataclass(frozen=True, slots=True)
class Mean:
    """Of one sample. deviation: the sample's standard deviation (over n - 1). NaN where there are too few for it."""

    count: int
    mean: float
    deviation: float
    low: float  # of the interval that holds the true mean in LEVEL of all samples
    high: float


@dataclass(frozen=True, slots=True)
class Difference:
    """The second sample's mean minus the first's, and where the true one lies. NaN where there are too few."""

    difference: float
    low: float
    high: float
    p: float  # of no difference, two-sided
    freedom: float

    @property
    def seen(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.low > 0 or self.high < 0


def mean_of(values: Sequence[float]) -> Mean:
    """The mean of a sample with Student's interval. Values that are NaN were not to be counted: they are left out."""
    values = [value for value in values if not math.isnan(value)]
    count = len(values)
    if not count:
        return Mean(0, math.nan, math.nan, math.nan, math.nan)
    mean = math.fsum(values) / count
    if count == 1:
        return Mean(1, mean, math.nan, math.nan, math.nan)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    if max(values) == min(values):  # not the rounding of the mean
        mean, deviation = values[0], 0.0
    half = student_quantile((1 + LEVEL) / 2, count - 1) * deviation / math.sqrt(count)
    return Mean(count, mean, deviation, mean - half, mean + half)


def welch(first: Sequence[float], second: Sequence[float], certain: bool = False) -> Difference:
    """The interval of the difference of two means whose spreads may differ, and Welch's two-sided p.

    Source: Welch 1947, degrees of freedom by Welch and Satterthwaite. NaN where a sample has fewer than two values.
    Two samples without any spread have no interval by that. certain: what was counted can have none, so they differ
    exactly. Otherwise chance alone may have parted them: p is that of all ways to deal out the values (Fisher), and
    the interval is NaN where these are too few to say anything at LEVEL.
    """
    one, other = mean_of(first), mean_of(second)
    if min(one.count, other.count) < 2:
        return Difference(other.mean - one.mean, math.nan, math.nan, math.nan, math.nan)
    difference = other.mean - one.mean
    errors = (one.deviation**2 / one.count, other.deviation**2 / other.count)
    error = sum(errors)
    if error == 0:
        p = 2 / math.comb(one.count + other.count, one.count) if difference and not certain else float(not difference)
        if difference and p > 1 - LEVEL:
            return Difference(difference, math.nan, math.nan, math.nan, math.nan)
        return Difference(difference, difference, difference, p, math.inf)
    freedom = error**2 / (errors[0] ** 2 / (one.count - 1) + errors[1] ** 2 / (other.count - 1))
    half = student_quantile((1 + LEVEL) / 2, freedom) * math.sqrt(error)
    p = student_two_sided(difference / math.sqrt(error), freedom)
    return Difference(difference, difference - half, difference + half, p, freedom)


def seeds_needed(one: Mean, other: Mean) -> int | None:
    """Estimated: how many values each sample needs for a difference and spreads like these to be seen.

    In POWER of all tries, that is, at LEVEL. None where there is no difference to look for, no spread is known, or
    more than MOST_SEEDS would be needed. The estimate is as uncertain as the difference it is made from.
    """
    difference = other.mean - one.mean
    spread = one.deviation**2 + other.deviation**2
    if not difference or not spread > 0:  # also NaN
        return None
    ratio = spread / difference**2

    def enough(count: int) -> bool:
        freedom = 2 * count - 2
        wanted = student_quantile((1 + LEVEL) / 2, freedom) + student_quantile(POWER, freedom)
        return wanted**2 * ratio <= count

    if not enough(MOST_SEEDS):
        return None
    low, high = 1, MOST_SEEDS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
