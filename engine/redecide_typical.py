"""Typical-p over rows of tokens of which some are only counted: who stays, who goes, and what hangs in between.

A token's surprise is -ln of its weight plus ln of all weights, and the entropy is the mean of that; so what decides is
how far its -ln weight lies from the mean one. That mean is known within bounds, most often narrow ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SLACK = 1e-7  # nats; more than what rounding does to distances below
_DEEPEST = 5000.0  # nats: weights end at 745
_APART = 8 * _DEEPEST  # between rows that are searched as one sorted array


@dataclass(slots=True)
class Items:
    """What lives before typical-p: [rows, items].

    near, far: bounds of each one's depth, -ln of its weight (of a bin: of its tokens). low, high: bounds of the weight.
    """

    near: np.ndarray
    far: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def rows(self, at: np.ndarray) -> Items:
        return Items(self.near[at], self.far[at], self.low[at], self.high[at])

    def columns(self, at: slice) -> Items:
        return Items(self.near[:, at], self.far[:, at], self.low[:, at], self.high[:, at])


class Nearest:
    """Bounds of how much weight lies nearer to the mean than a distance."""

    def __init__(self, items: Items, mean_low: np.ndarray, mean_high: np.ndarray) -> None:
        self.mean_low, self.mean_high = mean_low - SLACK, mean_high + SLACK
        low, high = self.mean_low[:, None], self.mean_high[:, None]
        # Bounds of each item's distance, [rows, items].
        self.least = np.maximum(np.maximum(items.near - high, low - items.far), 0.0)
        self.most = np.maximum(items.far - low, high - items.near)
        self._may, self._high = _by_distance(self.least, items.high)
        self._surely, self._low = _by_distance(self.most, items.low)
        # Rounding of sums in one order against sums in another.
        slip = 1e-13 * self._high[:, -1:]
        self._high[:, 1:] += slip
        self._low = np.maximum(self._low - slip, 0.0)
        self._offset = np.arange(items.near.shape[0]) * _APART
        self._flat = (self._may + self._offset[:, None]).ravel()

    def borders(self, goal_low: np.ndarray, goal_high: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(what surely lies nearer than this stays, what surely lies farther than this goes, by how much at least all
        weight that may lie as near as an item beyond the first of them passes the goal), [rows] each."""
        rows, last = np.arange(goal_low.size), self.least.shape[1]
        found, reached = [], []
        for distances, sums, goal in ((self._may, self._high, goal_low), (self._surely, self._low, goal_high)):
            crossing = (sums[:, 1:] < goal[:, None]).sum(axis=1)
            found.append(np.where(crossing < last, distances[rows, np.minimum(crossing, last - 1)], np.inf))
            reached.append(sums[rows, np.minimum(crossing + 1, last)] - goal)
        return found[0], found[1], reached[0]

    def least_of(self, depth: np.ndarray) -> np.ndarray:
        """How near a token of this depth lies at least, [rows]."""
        return np.maximum(np.maximum(depth - self.mean_high, self.mean_low - depth), 0.0)

    def stays(self, depth: np.ndarray, own: np.ndarray, rows: np.ndarray, goal_low: np.ndarray) -> np.ndarray:
        """Whether tokens of this depth and weight in these rows surely stay: all others that may lie as near as they
        fall short of the goal."""
        most = np.maximum(depth - self.mean_low[rows], self.mean_high[rows] - depth)
        place = np.searchsorted(self._flat, np.minimum(most, _APART / 2) + self._offset[rows], side="right")
        return self._high[rows, place - rows * self.least.shape[1]] - own < goal_low[rows]


def _by_distance(distances: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distances in order, [rows, items], and what the first of them weigh, [rows, items + 1].

    As whole numbers the bits of floats from 0 on are in the same order, and sort six times as fast. The last bits
    make room for the column: an error far below SLACK.
    """
    mask = (1 << max(1, (distances.shape[1] - 1).bit_length())) - 1
    keys = (distances + 0.0).view(np.int64)  # -0 becomes 0
    keys &= ~mask
    keys |= np.arange(distances.shape[1])
    keys.sort(axis=1)
    sums = np.zeros((distances.shape[0], distances.shape[1] + 1))
    places = keys & mask
    places += distances.shape[1] * np.arange(distances.shape[0])[:, None]
    np.cumsum(weights.ravel().take(places), axis=1, out=sums[:, 1:])
    keys &= ~mask
    return keys.view(np.float64), sums


def mean_bounds(singles: Items, others: Items) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of the mean depth, weighted. singles: of one depth each. others: near and far bound each one's mean depth.

    For any number r the mean is r + (sum of w (x - r)) / (sum of w), and the sum above is least where what lies under
    r weighs as much as it can; the nearer r lies to the mean, the less the sum below matters.
    """
    rows = others.near.shape[0]
    # What has one depth and one weight does not depend on r.
    sure, moment = singles.low.sum(axis=1), _products(singles.low, singles.near)
    groups = [others] if np.array_equal(singles.low, singles.high) else [others, singles]
    total_low, total_high, middle, under, over = sure.copy(), sure.copy(), 2 * moment, np.zeros(rows), np.zeros(rows)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        spreads = []
        for group in groups:
            high = np.minimum(group.high, 1e200)  # also where nothing bounds it, a number
            low = group.low if group is others else np.zeros_like(group.low)
            spreads.append((group.near, group.far, low, high - group.low))
            total_low += low.sum(axis=1)
            total_high += group.high.sum(axis=1) - (sure if group is singles else 0.0)
            middle += _products(low, group.near) + _products(low + spreads[-1][3], group.far)
        r = middle / (total_low + total_high)
        column = r[:, None]
        for near, far, low, spread in spreads:
            under += _products(low + spread * (near < column), near - column)
            over += _products(low + spread * (far > column), far - column)
        under, over = under + moment - r * sure, over + moment - r * sure
        low = r + under / np.where(under < 0, total_low, total_high)
        high = r + over / np.where(over > 0, total_low, total_high)
    return np.nan_to_num(low, nan=0.0, neginf=0.0), np.nan_to_num(high, nan=_DEEPEST, posinf=_DEEPEST)


def _products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The sum of each row's products, [rows]."""
    return np.einsum("ij,ij->i", a, b)
