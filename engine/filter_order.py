"""The filters in any order, on the logits that were kept of one token: who survives, and who cut the others.

For a look only: the loop keeps transformers' order. Some programs put the temperature last; then the filters see the
model's own probabilities, and a temperature of 100 flattens only among those that are left.

What is kept is exact for the largest logits and bounded for all others (docs/sliders.md), so each count is exact or a
pair of bounds. Pure NumPy; meaning and ties of each filter are those of engine/sampling.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine.deciding import EXACT_ERROR, Deciding
from engine.events import RunStart, TokenEvent
from engine.kept_rows import SUM_ERROR, KeptRows, WrittenText
from engine.ordered import ORDERED, OrderedFilters, OrderedStage
from engine.redecided import BINS_OF_TAIL
from engine.sampling import BORDER
from engine.settings import SamplingSettings
from engine.tail import bins_of

SURE, MAYBE = 0, 1


def ordered_filters(
    start: RunStart, before: Sequence[int], token: TokenEvent, settings: SamplingSettings, order: Sequence[str]
) -> OrderedFilters:
    """What these settings leave of a token's distribution when their stages come in this order.

    before: the ids that were written before the token. order: a permutation of ORDERED; stages that are off do nothing.
    """
    if sorted(order) != sorted(ORDERED):
        raise ValueError(f"{order} is no order of {ORDERED}")
    text = WrittenText(replace(start, written=tuple(before[: token.step])), (token,))
    run = KeptRows(text, (token,), np.zeros(1, dtype=np.int64))
    left = _Left(run, settings)
    stages = [OrderedStage("all", *left.counts())]
    for name in order:
        if left.apply(name):
            stages.append(OrderedStage(name, *left.counts()))
    return left.result(token, tuple(order), tuple(stages))


@dataclass(slots=True)
class _Bounds:
    low: np.ndarray
    high: np.ndarray


class _Left:
    """What is left after some stages. The head's tokens are known one by one, most probable first; below them lie bins
    of which only count and weight are known. Weights are exp((logit - largest) / temperature)."""

    def __init__(self, run: KeptRows, settings: SamplingSettings) -> None:
        self.settings = settings
        plain = Deciding(run, replace(settings, temperature=1.0))
        size = int(plain.heads[0]) if plain.known[0] else 0
        self.known = size > 0
        self.ids = run.ids[0, plain.order[0, :size]]
        self.depth = float(plain.best[0]) - plain.sorted_values[0, :size].astype(np.float64)  # nats below the largest
        shift = float(run.top[0]) - float(plain.best[0])
        self.members = plain.members[0].copy()
        # How far below the largest each bin's tokens lie at least and at most.
        self.near, self.far = -(plain.highs[0] + shift), -(plain.lows[0] + shift)
        self._widen(run, plain)
        self.missing = float(plain.missing[0])
        self.total = int(run.vocab[0] - plain.banned_count[0])
        temperature = max(settings.temperature, 1e-30)
        hot = Deciding(run, replace(settings, temperature=temperature)) if temperature != 1.0 else plain
        self.full = {1.0: _Bounds(plain.low[0], plain.high[0]), temperature: _Bounds(hot.low[0], hot.high[0])}
        self.a = 1.0
        self.head = np.ones((2, size), dtype=bool)  # SURE and MAYBE
        fewer = np.maximum(self.members - self.missing, 0.0)  # some may be in the last, whose tokens may be anywhere
        self.bins = _Bounds(fewer, self.members.copy())
        self.culprit = np.full(size, "", dtype=object)
        self.bin_culprit = np.full(self.members.size, "", dtype=object)
        self.gone = plain.bans
        self.row = plain
        self.run = run

    def _widen(self, run: KeptRows, plain: Deciding) -> None:
        """Named tokens beneath the head were counted in bins: a penalty may have moved them out of the bin's span."""
        lies = ~np.isneginf(plain.sorted_values[0]) & (np.arange(plain.sorted_values.shape[1]) >= plain.heads[0])
        if lies.any():
            values = plain.sorted_values[0][lies]
            depths = float(plain.best[0]) - values.astype(np.float64)
            at = bins_of(np.maximum(run.top[0] - values, np.float32(0.0)))
            if run.one_bin[0]:
                at = np.full(at.shape, BINS_OF_TAIL - 1)
            np.minimum.at(self.near, at, depths)
            np.maximum.at(self.far, at, depths)

    # ---------------------------------------------------------------- figures

    def counts(self) -> tuple[int, int]:
        """How many are left, at least and at most."""
        if not self._cut_yet() and self.head[SURE].all():
            return self.total, self.total
        low = int(self.head[SURE].sum() + self.bins.low.sum())
        high = int(self.head[MAYBE].sum() + self.bins.high.sum())
        return max(low, 1), max(min(high, self.total), low, 1)

    def weights(self) -> np.ndarray:
        return np.exp(-self.a * self.depth)

    def masses(self) -> _Bounds:
        """Bounds of the weight of what is left in each bin."""
        full = self.full[1.0 if self.a == 1.0 else max(self.settings.temperature, 1e-30)]
        with np.errstate(over="ignore", invalid="ignore"):
            least, most = np.exp(-self.a * self.far), np.exp(np.minimum(-self.a * self.near, 700.0))
            whole = self.bins.low >= self.members
            low = np.where(whole, full.low, self.bins.low * least)
            high = np.where(self.bins.high > 0, np.minimum(full.high, self.bins.high * most), 0.0)
        if not self._cut_yet():
            low = full.low.copy()
        return _Bounds(np.minimum(low, high), high)

    def _cut_yet(self) -> bool:
        return bool((self.bins.high < self.members).any() or (self.bin_culprit != "").any())

    def weight(self) -> tuple[float, float]:
        """Bounds of the weight of all that is left, rounding included."""
        weights, masses = self.weights(), self.masses()
        low = float(weights[self.head[SURE]].sum() + masses.low.sum())
        high = float(weights[self.head[MAYBE]].sum() + masses.high.sum())
        error = EXACT_ERROR if self.exact() else SUM_ERROR
        return low * (1 - error), high * (1 + error)

    def exact(self) -> bool:
        return bool((self.head[SURE] == self.head[MAYBE]).all() and not self.bins.high.any())

    # ---------------------------------------------------------------- stages

    def apply(self, name: str) -> bool:
        """One stage; False where it is off."""
        s = self.settings
        if name == "temperature":
            if s.temperature == 1.0:
                return False
            self.a = 1.0 / max(s.temperature, 1e-30)
            return True
        on = {
            "top_k": s.top_k > 0, "top_p": s.top_p < 1.0, "min_p": s.min_p > 0.0, "typical_p": s.typical_p < 1.0
        }[name]  # fmt: skip
        if not on:
            return False
        if not self.known:  # nobody surely lies above what is only counted
            self.bins.low[:], self.bin_culprit[:] = 0.0, "?"
            return True
        if name == "typical_p" and s.typical_p > 1.0 - BORDER:
            return True
        sure, maybe, low, high = getattr(self, f"_{name}")(getattr(s, name))
        self._settle(name, sure, maybe, low, high)
        return True

    def _settle(self, name: str, sure: np.ndarray, maybe: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
        """sure, maybe: of the head, who stays. low, high: how many of each bin stay, at least and at most."""
        if name != "typical_p" and self.head[MAYBE].any():
            first = int(np.argmax(self.head[MAYBE]))
            maybe[first] = True  # somebody is always left: the most probable one
            sure[first] = bool(self.head[SURE][first]) or sure[first]
        was_sure, was_maybe = self.head.copy()
        self.head = np.stack((was_sure & sure, was_maybe & maybe))
        lost = was_maybe & ~self.head[MAYBE]
        self.culprit[lost] = np.where(was_sure[lost], name, "?")
        self.culprit[was_sure & ~sure & self.head[MAYBE]] = "?"
        before = self.bins.high.copy(), self.bins.low.copy()
        self.bins = _Bounds(np.minimum(self.bins.low, np.floor(low)), np.minimum(self.bins.high, np.ceil(high)))
        self.bins.low = np.minimum(self.bins.low, self.bins.high)
        emptied = (before[0] > 0) & (self.bins.high == 0)
        self.bin_culprit[emptied] = np.where(before[1][emptied] >= self.members[emptied], name, "?")
        opened = (self.bins.low < before[1]) & ~emptied
        self.bin_culprit[opened] = "?"

    def _top_k(self, k: int) -> tuple[np.ndarray, ...]:
        above = self.depth[None, :] < self.depth[:, None]  # [i, j]: j stands strictly above i; ties stay
        before_low = (above & self.head[SURE]).sum(axis=1)
        loose = self.bins.high[-1]
        before_high = (above & self.head[MAYBE]).sum(axis=1)
        head_low, head_high = self.head[SURE].sum(), self.head[MAYBE].sum()
        low_before = head_low + np.cumsum(self.bins.low) - self.bins.low
        high_before = head_high + np.cumsum(self.bins.high) - self.bins.high + loose
        low = np.clip(k - high_before, 0.0, self.bins.low)
        high = np.where(low_before < k, self.bins.high, 0.0)
        high[-1] = loose if head_low < k else 0.0
        low[-1] = self.bins.low[-1] if k >= self.total else 0.0
        return before_high < k, before_low < k, low, high

    def _top_p(self, top_p: float) -> tuple[np.ndarray, ...]:
        weight_low, weight_high = self.weight()
        goal_low, goal_high = (top_p - BORDER) * weight_low, (top_p - BORDER) * weight_high
        weights, masses = self.weights(), self.masses()
        sure, maybe = weights * self.head[SURE], weights * self.head[MAYBE]
        before_low, before_high = np.cumsum(sure) - sure, np.cumsum(maybe) - maybe
        nudge = 1 + 1e-13
        low_before = sure.sum() + np.cumsum(masses.low) - masses.low
        high_before = maybe.sum() + np.cumsum(masses.high) - masses.high + masses.high[-1]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            least, most = np.exp(-self.a * self.far), np.exp(np.minimum(-self.a * self.near, 700.0))
            at_least = np.floor(np.maximum(goal_low - high_before, 0.0) / most * (1 - 1e-9))
            at_most = np.where(
                low_before >= goal_high * nudge, 0.0, np.ceil((goal_high - low_before) / least * (1 + 1e-9)) + 1
            )
        at_least, at_most = np.nan_to_num(at_least, nan=0.0), np.nan_to_num(at_most, nan=np.inf)
        low, high = np.minimum(at_least, self.bins.low), np.minimum(at_most, self.bins.high)
        through = high_before + masses.high
        low = np.where(through * nudge < goal_low, self.bins.low, low)
        low[-1] = 0.0
        high[-1] = self.bins.high[-1] if sure.sum() < goal_high * nudge else 0.0
        return before_high * nudge < goal_low, before_low < goal_high * nudge, low, high

    def _min_p(self, min_p: float) -> tuple[np.ndarray, ...]:
        tops = []  # how deep the most probable that is left lies, at least and at most
        for alive, some, depth in (
            (self.head[MAYBE], self.bins.high > 0, self.near),
            (self.head[SURE], self.bins.low > 0, self.far),
        ):
            tops.append(min((float(d.min()) for d in (self.depth[alive], depth[some]) if d.size), default=math.inf))
        border = -math.log(min_p * (1.0 - BORDER)) if min_p > 0 else math.inf
        # In nats below the largest, at this temperature.
        least, most = self.a * tops[0] + border, self.a * tops[1] + border
        error = 1e-6 * (1.0 + abs(border))
        scaled, near, far = self.a * self.depth, self.a * self.near, self.a * self.far
        low = np.where(far <= least - error, self.bins.low, 0.0)
        high = np.where(near <= most + error, self.bins.high, 0.0)
        return scaled <= least - error, scaled <= most + error, low, high

    def _typical_p(self, mass: float) -> tuple[np.ndarray, ...]:
        """Who is nearest to the mean surprise. Surprise less its mean is depth less its mean."""
        weights, masses = self.weights(), self.masses()
        near = np.concatenate((self.a * self.depth, self.a * self.near))
        far = np.concatenate((self.a * self.depth, self.a * self.far))
        low = np.concatenate((weights * self.head[SURE], masses.low))
        high = np.concatenate((weights * self.head[MAYBE], masses.high))
        some = high > 0.0
        mean_low, mean_high = mean_depth(low[some], high[some], near[some], far[some], sure=self.exact())
        # The interval of each distance to the mean.
        least = np.maximum(np.maximum(near - mean_high, mean_low - far), 0.0)
        most = np.maximum(np.abs(far - mean_low), np.abs(near - mean_high))
        most = np.maximum(most, np.maximum(np.abs(far - mean_high), np.abs(near - mean_low)))
        point = near == far
        if self.exact():
            least = most = np.abs(near - mean_low)
        slack = 1e-12
        with np.errstate(invalid="ignore"):
            surely = (most[None, :] + slack < least[:, None]) & some[None, :]  # [i, j]: j is nearer than i
            maybe = (least[None, :] <= most[:, None] + slack) & some[None, :]
        np.fill_diagonal(maybe, False)
        nearer_low, nearer_high = surely @ low, maybe @ high
        total_low, total_high = float(low.sum()), float(high.sum())
        error = EXACT_ERROR if self.exact() else SUM_ERROR
        goal_low, goal_high = (mass - BORDER) * total_low * (1 - error), (mass - BORDER) * total_high * (1 + error)
        own = np.where(point, 0.0, high)  # of a bin all must come before the last
        stays, may = nearer_high + own < goal_low, nearer_low < goal_high
        if self.exact():  # equal distances stay together
            stays = may
        size = self.depth.size
        inside = stays[size:], may[size:]
        return (
            stays[:size],
            may[:size],
            np.where(inside[0], self.bins.low, 0.0),
            np.where(inside[1], self.bins.high, 0.0),
        )

    # ---------------------------------------------------------------- the answer

    def result(self, token: TokenEvent, order: tuple[str, ...], stages: tuple[OrderedStage, ...]) -> OrderedFilters:
        weights, masses = self.weights(), self.masses()
        low, high = self.weight()
        places = {int(token_id): place for place, token_id in enumerate(self.ids)}
        cuts, shares = [], []
        for token_id in token.candidate_ids:
            place = places.get(token_id)
            if place is None:
                cuts.append(self._cut_of_other(token_id))
                shares.append((0.0, 0.0) if cuts[-1] not in ("", "?") else (0.0, 1.0))
                continue
            cuts.append(str(self.culprit[place]))
            least = weights[place] / high if self.head[SURE][place] and high > 0 else 0.0
            most = 0.0
            if self.head[MAYBE][place]:
                most = weights[place] / low if low > 0 else 1.0
            shares.append((min(1.0, float(least)), min(1.0, float(most))))
        surprise = self._raw_surprise(token, weights, masses)
        return OrderedFilters(order, stages, tuple(cuts), tuple(shares), *surprise)

    def _cut_of_other(self, token_id: int) -> str:
        """Of a listed token that is not in the head: banned before the filters, or in a bin."""
        at = np.flatnonzero(self.run.ids[0] == token_id)
        for name, gone in self.gone:
            if at.size and gone[0, at[0]]:
                return name
        alive = self.bins.high.any()
        if not alive:  # all bins are empty: one filter that emptied them all is the culprit
            names = {str(name) for name, count in zip(self.bin_culprit, self.members, strict=True) if count}
            return names.pop() if len(names) == 1 else "?"
        return "?" if (self.bins.low < self.members).any() else ""

    def _raw_surprise(self, token: TokenEvent, weights: np.ndarray, masses: _Bounds) -> tuple[float, float]:
        """Bounds of the mean surprise of what is drawn, by the model's own odds: nats."""
        raw = np.array([self._raw_of(int(i)) for i in self.ids])
        deep = token.logsumexp - raw  # surprise of each of the head
        low = np.concatenate((weights * self.head[SURE], masses.low))
        high = np.concatenate((weights * self.head[MAYBE], masses.high))
        base = token.logsumexp - float(self.run.top[0])
        near = np.concatenate((deep, base - self.run.highs[0]))
        far = np.concatenate((deep, base - self.run.lows[0]))
        some = high > 0.0
        if not some.any():
            return math.nan, math.nan
        return mean_depth(low[some], high[some], near[some], far[some], sure=self.exact())

    def _raw_of(self, token_id: int) -> float:
        return float(self.run.raw[0, int(np.searchsorted(self.run.ids[0], token_id))])


def mean_depth(
    low: np.ndarray, high: np.ndarray, near: np.ndarray, far: np.ndarray, *, sure: bool
) -> tuple[float, float]:
    """Bounds of the mean of values in [near, far], each weighted by something in [low, high].

    The least mean takes the full weight of what lies below it and the least of what lies above: a few rounds of
    that come to rest at it.
    """
    if sure:
        mean = float((low * near).sum() / low.sum())
        return mean, mean
    far = np.where(np.isfinite(far), far, near + 60.0)  # what lies deeper weighs nothing that a double shows

    def extreme(values: np.ndarray, least: bool) -> float:
        mean = float((high * values).sum() / high.sum())
        for _ in range(50):
            below = values < mean
            weights = np.where(below == least, high, low)
            total = weights.sum()
            if total <= 0.0:
                break
            new = float((weights * values).sum() / total)
            if abs(new - mean) <= 1e-15 * abs(mean):
                break
            mean = new
        return mean

    return extreme(near, True) - 1e-12, extreme(far, False) + 1e-12
