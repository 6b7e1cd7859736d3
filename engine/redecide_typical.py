"""Typical-p over rows of tokens of which some are only counted: who stays, who goes, and what hangs in between.

A token's surprise is -ln of its weight plus ln of all weights, and the entropy is the mean of that; so what decides is
how far its -ln weight lies from the mean one. That mean is known within bounds, most often narrow ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SLACK = 1e-7  # nats; more than what rounding does to distances below
_DEEPEST = 5000.0  # nats: weights end at 745
_APART = 4 * _DEEPEST  # between rows that are searched as one sorted array
_HALVINGS = 11  # to some hundredths of a nat; who lies nearer to a border is asked about singly
_USUAL = 64.0  # nats: borders lie nearer, unless the temperature is small


@dataclass(slots=True)
class Items:
    """What lives before typical-p, most probable first: [rows, items]; the last column lies anywhere in its span.

    near, far: bounds of each one's depth, -ln of its weight (of a bin: of its tokens). low, high: bounds of the weight.
    """

    near: np.ndarray
    far: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def rows(self, at: np.ndarray) -> Items:
        return Items(self.near[at], self.far[at], self.low[at], self.high[at])


class Nearest:
    """Bounds of how much weight lies nearer to the mean than a distance."""

    def __init__(self, items: Items, mean_low: np.ndarray, mean_high: np.ndarray) -> None:
        rows, count = items.near.shape
        self.items, self.mean_low, self.mean_high = items, mean_low - SLACK, mean_high + SLACK
        self.columns = count - 1
        near, far = items.near[:, :-1], items.far[:, :-1]
        # In order, by moving ends outwards where they are not.
        near = np.minimum.accumulate(np.clip(near, -_DEEPEST, _DEEPEST)[:, ::-1], axis=1)[:, ::-1]
        far = np.maximum.accumulate(np.clip(far, -_DEEPEST, _DEEPEST), axis=1)
        self._offset = np.arange(rows) * _APART
        self._near, self._far = ((ends + self._offset[:, None]).ravel() for ends in (near, far))
        zero = np.zeros((rows, 1))
        self._low = np.concatenate((zero, np.cumsum(items.low[:, :-1], axis=1)), axis=1)
        self._high = np.concatenate((zero, np.cumsum(items.high[:, :-1], axis=1)), axis=1)
        # Rounding of sums in order against sums by distance.
        self._slip = 1e-13 * self._high[:, -1]

    def distances(self, near: np.ndarray, far: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of the distance to the mean of what lies at these depths."""
        low, high = self.mean_low[rows], self.mean_high[rows]
        least = np.maximum(np.maximum(near - high, low - far), 0.0)
        return least, np.maximum(far - low, high - near)

    def all_distances(self) -> tuple[np.ndarray, np.ndarray]:
        """The same of all items, [rows, items]."""
        low, high = self.mean_low[:, None], self.mean_high[:, None]
        near, far = self.items.near, self.items.far
        return np.maximum(np.maximum(near - high, low - far), 0.0), np.maximum(far - low, high - near)

    def _before(self, ends: np.ndarray, value: np.ndarray, rows: np.ndarray, side: str) -> np.ndarray:
        value = np.clip(value, -2 * _DEEPEST + 1, 2 * _DEEPEST - 1) + self._offset[rows]
        return np.searchsorted(ends, value, side=side) - rows * self.columns  # type: ignore[call-overload]

    def at_most(self, distance: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """All weight that may lie as near as this or nearer."""
        end = self._before(self._near, self.mean_high[rows] + distance, rows, "right")
        begin = self._before(self._far, self.mean_low[rows] - distance, rows, "left")
        found = self._high[rows, end] - self._high[rows, np.minimum(begin, end)]
        least, _ = self.distances(self.items.near[rows, -1], self.items.far[rows, -1], rows)
        return found + np.where(least <= distance, self.items.high[rows, -1], 0.0) + self._slip[rows]

    def at_least(self, distance: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """All weight that surely lies nearer than this."""
        end = self._before(self._far, self.mean_low[rows] + distance, rows, "left")
        begin = self._before(self._near, self.mean_high[rows] - distance, rows, "right")
        found = self._low[rows, end] - self._low[rows, np.minimum(begin, end)]
        _, most = self.distances(self.items.near[rows, -1], self.items.far[rows, -1], rows)
        return np.maximum(found + np.where(most < distance, self.items.low[rows, -1], 0.0) - self._slip[rows], 0.0)

    def borders(self, goal_low: np.ndarray, goal_high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(nothing up to this distance is cut, nothing from this one on is left), [rows] each."""
        rows = np.arange(goal_low.size)
        usual = np.full(rows.size, _USUAL)
        near = self.at_most(usual, rows) >= goal_low
        sure_low, sure_high = np.where(near, -1.0, usual), np.where(near, usual, _DEEPEST)
        near = self.at_least(usual, rows) >= goal_high
        gone_low, gone_high = np.where(near, 0.0, usual), np.where(near, usual, 2 * _DEEPEST)
        for _ in range(_HALVINGS):
            middle = (sure_low + sure_high) / 2
            inside = self.at_most(np.maximum(middle, 0.0), rows) < goal_low
            sure_low, sure_high = np.where(inside, middle, sure_low), np.where(inside, sure_high, middle)
            middle = (gone_low + gone_high) / 2
            enough = self.at_least(middle, rows) >= goal_high
            gone_low, gone_high = np.where(enough, gone_low, middle), np.where(enough, middle, gone_high)
        return sure_low, gone_high

    def fate(
        self, depth: np.ndarray, own: np.ndarray, rows: np.ndarray, goal_low: np.ndarray, goal_high: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Whether a token of this depth and weight surely stays, and whether it surely goes."""
        least, most = self.distances(depth, depth, rows)
        return self.at_most(most, rows) - own < goal_low[rows], self.at_least(least, rows) >= goal_high[rows]


def mean_bounds(items: Items, depth_low: np.ndarray, depth_high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of the mean depth, weighted. depth_low, depth_high: of each item's mean depth, [rows, items].

    For any number r the mean is r + (sum of w (x - r)) / (sum of w), and the sum above is least where what lies under
    r weighs as much as it can; the nearer r lies to the mean, the less the sum below matters.
    """
    middle, centre = (items.low + items.high) / 2, (depth_low + depth_high) / 2
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        r = (middle * centre).sum(axis=1, keepdims=True) / middle.sum(axis=1, keepdims=True)
        total_low, total_high = items.low.sum(axis=1), items.high.sum(axis=1)
        under = (np.where(depth_low < r, items.high, items.low) * (depth_low - r)).sum(axis=1)
        over = (np.where(depth_high > r, items.high, items.low) * (depth_high - r)).sum(axis=1)
        low = r[:, 0] + under / np.where(under < 0, total_low, total_high)
        high = r[:, 0] + over / np.where(over > 0, total_low, total_high)
    return np.nan_to_num(low, nan=0.0, neginf=0.0), np.nan_to_num(high, nan=_DEEPEST, posinf=_DEEPEST)
