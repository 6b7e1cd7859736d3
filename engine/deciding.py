"""One walk of a finished run's tokens through the stages of other settings, with bounds where not all was kept.

The order, the meaning and the ties are those of engine/sampling.py. Tokens are rows of arrays, worked on together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine.before_filters import BeforeFilters, before_filters, sums_of
from engine.events import FILTERS
from engine.kept_rows import SUM_ERROR
from engine.redecide_typical import Items, Nearest, mean_bounds
from engine.redecided import CUT_OPEN, ELSEWHERE, NOT_CUT, OPEN, STANDS
from engine.sampling import BORDER
from engine.settings import SamplingSettings

if TYPE_CHECKING:
    from engine.kept_rows import KeptRows

FEW_SETTINGS = 4  # with more of them in a run, their own figures are not worth their time
EXACT_ERROR = 1e-12  # of sums over few, in float64
_CODES = {name: 1 + place for place, name in enumerate(FILTERS)}
_ALIVE, _GONE, _UNSURE = 0, 1, 2
_FAR = 4000.0  # nats; weights end at 745


@dataclass(slots=True)
class _Typical:
    """What typical-p makes of rows: bool [rows, head] who surely stays and who may; [rows] the chosen one's fate, and
    what is left at least."""

    stays: np.ndarray
    may: np.ndarray
    alive: np.ndarray
    lost: np.ndarray
    weight_low: np.ndarray

    @classmethod
    def none(cls, rows: int, width: int) -> _Typical:
        no, zeros = np.zeros(rows, dtype=bool), np.zeros(rows)
        return cls(np.zeros((rows, width), dtype=bool), np.zeros((rows, width), dtype=bool), no, no.copy(), zeros)


class Decided(NamedTuple):
    """As in Redecided, [rows] each."""

    fates: np.ndarray
    cuts: np.ndarray
    choices_low: np.ndarray
    choices_high: np.ndarray
    others: np.ndarray


class Deciding(BeforeFilters):
    """One walk through the stages. Of the head the first `sure` surely live and the first `most_alive` may; low and
    high: bounds of what lives in each bin."""

    def __init__(self, run: KeptRows, settings: SamplingSettings) -> None:
        super().__init__(run, settings)
        # What the stages write into.
        self.low, self.high = self.full_low.copy(), self.full_high.copy()
        self.status = np.full(run.rows, _ALIVE)
        self.code = np.zeros(run.rows, dtype=np.uint8)

    # -- the filters

    def run(self) -> Decided:
        run, s = self.run_, self.settings
        self.sure, self.most_alive = self.heads.copy(), self.heads.copy()
        self.total = run.vocab - self.banned_count
        self.untouched = True
        self.most_sums = self.stays = None  # once typical-p has cut in the midst: sums of who may live; who surely does
        self.before_low, self.before_high = self._before_chosen()
        self._use_own_figures()
        for name, gone in self.bans:
            mine = gone[self.rows, run.chosen]
            self._settle(~mine, mine, name)
        if s.greedy:
            return self._greedy()
        if s.top_k:
            self._top_k(s.top_k)
        if s.top_p < 1.0:
            self._top_p(s.top_p)
        if s.min_p > 0.0:
            self._min_p(s.min_p)
        if s.typical_p <= 1.0 - BORDER:
            self._typical(s.typical_p)
        return self._pick()

    def _settle(self, alive: np.ndarray, gone: np.ndarray, name: str) -> None:
        """The chosen tokens after a filter: which surely live on and which are surely cut; the others are open."""
        first = gone & (self.status == _ALIVE)
        self.code[first] = _CODES[name]
        self.status[(self.status == _ALIVE) & ~alive & ~gone] = _UNSURE
        self.status[gone] = _GONE

    def _before_chosen(self) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of what stands before the chosen token in the order of the draw."""
        rows, at = self.rows, np.minimum(self.place, self.heads)
        at_head = self.sums[rows, at]
        at_head_most = at_head if self.most_sums is None else self.most_sums[rows, at]
        low, high = at_head.copy(), at_head_most.copy()
        deep = np.flatnonzero(~self.in_head)  # most often few
        mine = np.arange(deep.size), self.bin[deep]
        low[deep] += (np.cumsum(self.low[deep, :-1], axis=1) - self.low[deep, :-1])[mine]
        high_through = np.cumsum(self.high[deep, :-1], axis=1)[mine] + self.high[deep, -1]
        high[deep] += np.maximum(high_through - self.own[deep], 0.0)
        return low, high

    def _use_own_figures(self) -> None:
        """Where only filters differ from what a token was drawn with, its own figures say what bins only bound."""
        run, s = self.run_, self.settings
        self.whole_low, self.whole_high = np.zeros(run.rows), np.full(run.rows, np.inf)
        base = self.best / max(s.temperature, 1e-30)
        for own, numbers in run.rows_of.items():
            if own.greedy or own.temperature != s.temperature:
                continue
            if before_filters(own) != before_filters(s):
                if len(run.rows_of) <= FEW_SETTINGS:
                    self._use_own_tails(own, np.array(numbers), base)
                continue
            rows = np.array(numbers)
            rows = rows[self.known[rows] & (np.abs(run.own_whole[rows] - base[rows]) < 700.0)]  # also none that is NaN
            weight = np.exp(run.own_whole[rows] - base[rows])
            self.whole_low[rows], self.whole_high[rows] = weight * (1 - SUM_ERROR), weight * (1 + SUM_ERROR)
            if own.typical_p <= 1.0 - BORDER:
                continue
            before = run.own_low[rows] * np.exp(run.own_last[rows] - base[rows])
            deep = ~self.in_head[rows] & np.isfinite(before)
            rows, before, error = rows[deep], before[deep], SUM_ERROR * weight[deep]
            self.before_low[rows] = np.maximum(self.before_low[rows], before - error)
            self.before_high[rows] = np.minimum(self.before_high[rows], before + error)

    def _use_own_tails(self, own: SamplingSettings, rows: np.ndarray, base: np.ndarray) -> None:
        """Where bias, penalties or bans differ and the temperature does not: what the tokens of no name weigh together,
        and before the chosen one, is what its own figures say less the named ones; but for those few that may move."""
        run, s = self.run_, self.settings
        if own.repetition_penalty < 1.0 or own.presence_penalty < 0.0 or own.frequency_penalty < 0.0:
            return  # tokens of prompt and text may have been lifted by nobody knows how much
        rows = rows[self.known[rows] & ~run.one_bin[rows] & (np.abs(run.own_whole[rows] - base[rows]) < 700.0)]
        theirs, mine = run.values(own)[rows], self.values[rows]
        fine = theirs.max(axis=1) > -np.inf
        rows, theirs, mine = rows[fine], theirs[fine], mine[fine]
        best, temperature = self.best[rows], max(s.temperature, 1e-30)
        at = np.flatnonzero(theirs != mine)  # most often a few of each row
        row = at // theirs.shape[1]
        with np.errstate(over="ignore", invalid="ignore"):
            before, after = (
                np.exp((values.ravel()[at].astype(np.float64) - best[row]) / temperature) for values in (theirs, mine)
            )
            counted = np.where(run.counts[rows] > 0, run.highs[rows], -np.inf)
            tops = np.exp((counted[:, :-1].max(axis=1) + run.top[rows] - best) / temperature)
            seen = run.counts[rows, -1] * np.exp((counted[:, -1] + run.top[rows] - best) / temperature)
            whole = np.exp(run.own_whole[rows] - base[rows])
            rest = whole + np.bincount(row, after - before, minlength=rows.size)
        seen = np.where(run.counts[rows, -1] > 0, seen, 0.0)
        lost = seen + np.where(self.missing[rows] > 0, self.missing[rows] * tops, 0.0)
        error = SUM_ERROR * whole
        good = np.isfinite(rest)
        self.whole_low[rows[good]] = (rest - lost - error)[good] * (1 - SUM_ERROR)
        self.whole_high[rows[good]] = (rest + self.high[rows, -1] + error)[good] * (1 + SUM_ERROR)
        if own.typical_p <= 1.0 - BORDER:
            return
        every, at = np.arange(rows.size), run.chosen[rows]
        old, new = theirs[every, at], mine[every, at]
        stood = run.own_low[rows] * np.exp(run.own_last[rows] - base[rows])
        deep = np.flatnonzero(~self.in_head[rows] & np.isfinite(stood) & (old == new) & np.isfinite(new))
        rows, ids, error, lost = rows[deep], run.ids[rows[deep]], error[deep], lost[deep]
        # Of what stood before it the named ones have moved.
        chosen, value, moved = run.chosen_id[rows, None], new[deep, None], []
        for values in (theirs[deep], mine[deep]):
            above = (values > value) | ((values == value) & (ids < chosen))
            with np.errstate(over="ignore", invalid="ignore"):
                weights = np.exp((values.astype(np.float64) - self.best[rows, None]) / temperature)
            moved.append(np.where(above, weights, 0.0).sum(axis=1))
        rest = stood[deep] - moved[0] + moved[1]
        self.before_low[rows] = np.maximum(self.before_low[rows], rest - lost - error)
        self.before_high[rows] = np.minimum(self.before_high[rows], rest + self.high[rows, -1] + error)

    def _weight(self) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of the weight of all that live, rounding included."""
        if self.most_sums is None:
            low = self.sums[self.rows, self.sure] + self.low.sum(axis=1)
            high = self.sums[self.rows, self.most_alive] + self.high.sum(axis=1)
        else:
            low = self.sums[:, -1] + self.low.sum(axis=1)
            high = self.most_sums[:, -1] + self.high.sum(axis=1)
        if self.untouched:
            return np.maximum(low * (1 - SUM_ERROR), self.whole_low), np.minimum(
                high * (1 + SUM_ERROR), self.whole_high
            )
        exact = self._exact() & (self.most_alive < self.total)
        error = np.where(exact, EXACT_ERROR, SUM_ERROR)
        low, high = low * (1 - error), high * (1 + error)
        return np.maximum(low, self.weight_low), np.minimum(high, self.weight_high)

    def _exact(self) -> np.ndarray:
        return self.known & (self.sure == self.most_alive) & (self.high.sum(axis=1) == 0.0)

    def _cut(self, low: np.ndarray, high: np.ndarray) -> None:
        """After a filter: bounds of the whole weight that come from the filter itself, beside those of its parts."""
        self.untouched = False
        self.weight_low, self.weight_high = low, high

    def _unbounded(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(self.run_.rows), np.full(self.run_.rows, np.inf)

    def _top_k(self, k: int) -> None:
        run = self.run_
        works = k < self.total
        inside = works & (k <= self.heads)
        border = self.sorted_values[self.rows, np.minimum(k, self.sorted_values.shape[1]) - 1]
        columns = np.arange(self.sorted_values.shape[1])
        ties = ((self.sorted_values >= border[:, None]) & (columns < self.heads[:, None])).sum(axis=1)
        self.sure = np.where(inside, ties, self.sure)
        self.most_alive = np.where(inside, ties, self.most_alive)
        rest = np.maximum(k - self.heads, 0)[:, None]
        through = np.cumsum(self.members[:, :-1], axis=1)
        before = through - self.members[:, :-1]
        loose = self.counts[:, -1:]
        full, gone = through + loose <= rest, before - self.missing[:, None] >= rest
        beyond = (works & ~inside)[:, None]
        part = np.clip((rest - before - loose) / np.maximum(self.members[:, :-1], 1), 0.0, 1.0)
        low, high = self.low[:, :-1], self.high[:, :-1]
        self.low[:, :-1] = np.where(inside[:, None], 0.0, np.where(beyond & ~full, low * part, low))
        self.high[:, :-1] = np.where(inside[:, None] | (beyond & gone), 0.0, high)
        self.low[works, -1] = 0.0
        self.high[inside, -1] = 0.0
        bin_full, bin_gone = full[self.rows, self.bin], gone[self.rows, self.bin]
        alive = np.where(self.in_head, ~inside | (self.place < ties), ~inside & bin_full)
        lost = np.where(self.in_head, inside & (self.place >= ties), inside | bin_gone)
        if _plain_order(self.settings):
            alive |= np.array([token.rank < k for token in run.tokens])
        self._settle(~works | alive, works & lost & self.known & ~alive, "top_k")
        self._cut(*self._unbounded())

    def _top_p(self, top_p: float) -> None:
        low, high = self._weight()
        goal_low, goal_high = (top_p - BORDER) * low, (top_p - BORDER) * high
        before = self.sums[:, :-1]
        columns = np.arange(before.shape[1])
        nudge = 1 + 1e-14
        surely = (before * nudge < goal_low[:, None]) & (columns < self.sure[:, None])
        maybe = (before < goal_high[:, None] * nudge) & (columns < self.most_alive[:, None])
        sure, most = np.maximum(1, surely.sum(axis=1)), np.maximum(1, maybe.sum(axis=1))
        self.sure, self.most_alive = np.minimum(sure, self.heads), np.minimum(most, self.heads)
        at_end = self.sums[self.rows, self.most_alive]
        ended = (self.most_alive < self.heads) | (at_end >= goal_high)
        # Bins: all of one lives where what is before its last still falls short, none where what is before its first
        # does not.
        on = np.flatnonzero(~ended)
        low_on, high_on, end = self.low[on, :-1], self.high[on, :-1], at_end[on, None]
        through = end + np.cumsum(high_on, axis=1) + self.high[on, -1:]
        ahead = end + np.cumsum(low_on, axis=1) - low_on
        last = self.high[on, -1]
        self.low, self.high = np.zeros_like(self.low), np.zeros_like(self.high)
        self.low[on, :-1] = np.where(through < goal_low[on, None], low_on, 0.0)
        self.high[on, :-1] = np.where(ahead >= goal_high[on, None], 0.0, high_on)
        self.high[on, -1] = last
        alive = np.where(self.in_head, self.place < self.sure, self.before_high * nudge < goal_low)
        lost = np.where(self.in_head, self.place >= self.most_alive, ended | (self.before_low >= goal_high * nudge))
        self._settle(alive & self.known, lost & self.known, "top_p")
        # The last that is kept crosses the goal: what is kept weighs at least that, and not much more.
        one = self.weights[self.rows, (self.sure - 1).clip(0)]
        reached = np.minimum(low, goal_low)
        self._cut(reached * (1 - EXACT_ERROR), (goal_high + np.maximum(one, self.roof_weight * ~ended)) * (1 + 1e-12))

    def _min_p(self, min_p: float) -> None:
        run, temperature = self.run_, max(self.settings.temperature, 1e-30)
        border = math.log(min_p * (1.0 - BORDER))
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = (self.sorted_values.astype(np.float64) - self.best[:, None]) / temperature
            shift = (run.top - self.best)[:, None]
            lows = (self.lows + shift) / temperature
            highs = (np.maximum(self.highs, run.ends) + shift) / temperature
        error = 1e-6 * (1.0 + abs(border))
        columns = np.arange(scaled.shape[1])
        surely = (scaled >= border + error) & (columns < self.heads[:, None])
        maybe = (scaled >= border - error) & (columns < self.heads[:, None])
        self.sure = np.minimum(self.sure, np.maximum(1, surely.sum(axis=1)))
        self.most_alive = np.minimum(self.most_alive, np.maximum(1, maybe.sum(axis=1)))
        self.low = np.where(lows >= border + error, self.low, 0.0)
        self.low[self.loose, -1] = 0.0
        self.high = np.where(highs < border - error, 0.0, self.high)
        mine = scaled[self.rows, self.place]
        self._settle(
            self.known & ((mine >= border + error) | (self.place == 0)),
            self.known & (mine < border - error) & (self.place > 0),
            "min_p",
        )
        self._cut(*self._unbounded())

    def _typical(self, mass: float) -> None:
        """As sampling.py where all that live are known; else by bounds: the distances hang on the whole entropy."""
        found = _Typical.none(self.run_.rows, self.weights.shape[1])
        exact = self._exact()
        exact[exact] = self._typical_exactly(mass, np.flatnonzero(exact), found)
        if not exact.all():
            self._typical_by_bounds(mass, np.flatnonzero(~exact & self.known), found)
        self._settle(found.alive, found.lost, "typical_p")
        self.weights = self.weights * found.may
        self.sums, self.most_sums = sums_of(self.weights * found.stays), sums_of(self.weights)
        self.stays = found.stays
        self.before_low, self.before_high = self._before_chosen()
        self.sure = np.where(exact, self.sure, 0)
        self._cut(found.weight_low, np.full(self.run_.rows, np.inf))

    def _typical_exactly(self, mass: float, at: np.ndarray, found: _Typical) -> np.ndarray:
        """Rows of which all that live are known by name. Which of them are sure: not where rounding decides."""
        columns = np.arange(self.weights.shape[1])
        living = (columns < self.sure[at, None]) & (self.weights[at] > 0.0)
        weights = np.where(living, self.weights[at], 0.0)
        total = weights.sum(axis=1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            surprise = np.where(living, np.log(total) - np.log(weights), 0.0)
            entropy = (weights * surprise).sum(axis=1, keepdims=True) / total
            distance = np.where(living, np.abs(surprise - entropy), np.inf)
            order = np.argsort(distance, axis=1, kind="stable")
            shares = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1) / total
        number = living.sum(axis=1)
        short = (shares < mass - BORDER) & (columns < number[:, None])
        last = np.clip(np.minimum(short.sum(axis=1), number - 1), 0, None)
        border = np.take_along_axis(distance, np.take_along_axis(order, last[:, None], axis=1), axis=1) + 1e-12
        with np.errstate(invalid="ignore"):
            near = ((np.abs(distance - border) < 2e-12) & (np.abs(distance - border + 1e-12) > 1e-15)).any(axis=1)
            near |= (np.abs(shares - (mass - BORDER)) < 1e-12).any(axis=1)
        sure = at[~near]
        stays = (living & (distance <= border))[~near]
        found.stays[sure] = found.may[sure] = stays
        mine = self.in_head[sure] & stays[np.arange(sure.size), np.minimum(self.place[sure], stays.shape[1] - 1)]
        found.alive[sure], found.lost[sure] = mine, ~mine
        return ~near

    def _typical_by_bounds(self, mass: float, at: np.ndarray, found: _Typical) -> None:
        """Rows of which some that live are only counted."""
        run, a = self.run_, 1.0 / max(self.settings.temperature, 1e-30)
        if not at.size:
            return
        # Named tokens beneath the head stand for nothing here: their bins count them.
        every_row = _most(at, run.rows)  # to copy most of the rows takes longer than all
        rows: Any = slice(None) if every_row else at
        width, first = int(self.heads[rows].max()), int(np.argmax((self.high > 0).any(axis=0)))
        number = run.rows if every_row else at.size
        every = np.arange(number)
        head, bins = (rows, slice(width)), (rows, slice(first, None))
        columns = np.arange(width)
        weights, best = self.weights[head], self.best[rows, None]
        with np.errstate(over="ignore", invalid="ignore"):
            depth = a * (best - self.sorted_values[head])
        last = depth[every, self.heads[rows] - 1]
        # Infinite ones stand for nothing; behind the head's last nothing lives.
        depth = np.minimum(np.nan_to_num(depth, copy=False, nan=_FAR, posinf=_FAR), last[:, None])
        shift = best - run.top[rows, None]
        near, far = self.highs[bins], self.lows[bins]
        fell = self.members[bins] > self.counts[bins]
        if fell.any():
            near = np.where(fell, run.ends[bins], near)
        with np.errstate(over="ignore", invalid="ignore"):
            near, far = np.clip(a * (shift - near), -_FAR, _FAR), np.clip(a * (shift - far), -_FAR, _FAR)
        living, maybe = columns < self.sure[rows, None], columns < self.most_alive[rows, None]
        items = Items(
            np.concatenate((depth, near), axis=1),
            np.concatenate((depth, far), axis=1),
            np.concatenate((weights * living, self.low[bins]), axis=1),
            np.concatenate((weights * maybe, self.high[bins]), axis=1),
        )
        mean_low, mean_high = (mean[rows] for mean in self._own_means())
        open_ = np.flatnonzero(~np.isfinite(mean_high))
        if open_.size:
            if not _most(open_, number):
                items_open, part = items.rows(open_), (np.arange(run.rows)[rows][open_], bins[1])
                mean_low[open_], mean_high[open_] = self._mean_depths(items_open, part)
            else:
                means = self._mean_depths(items, bins)
                mean_low[open_], mean_high[open_] = means[0][open_], means[1][open_]
        total_low, total_high = (total[rows] for total in self._weight())
        goal_low, goal_high = (mass - BORDER) * total_low, (mass - BORDER) * total_high
        nearest = Nearest(items, mean_low, mean_high)
        keeps, ends, overshoot = nearest.borders(goal_low, goal_high)
        stays, may = nearest.most < keeps[:, None], nearest.least <= ends[:, None]
        # The one that crosses the goal stays: of single tokens the own weight does not count.
        own = items.high[:, :width]
        at_border = np.flatnonzero((may & ~stays)[:, :width] & (own > overshoot[:, None]))
        row, column = at_border // width, at_border % width
        stays[row, column] = nearest.stays(depth[row, column], own[row, column], row, goal_low)
        self.low[bins] = np.where(stays[:, width:], self.low[bins], 0.0)
        self.low[self.loose, -1] = 0.0
        self.high[bins] = np.where(may[:, width:], self.high[bins], 0.0)
        with np.errstate(divide="ignore"):
            x = np.where(self.own[rows] > 0, -np.log(self.own[rows]), _FAR)
        alive = nearest.stays(x, self.own[rows], every, goal_low) & (self.own[rows] > 0)
        lost = nearest.least_of(x) > ends
        stays, may = stays[:, :width] & living & (weights > 0.0), may[:, :width] & maybe
        mine = at if every_row else slice(None)
        found.stays[at, :width], found.may[at, :width] = stays[mine], may[mine]
        found.alive[at], found.lost[at] = alive[mine], lost[mine]
        found.weight_low[at] = np.minimum(goal_low * (1 - 1e-9), total_low)[mine]

    def _own_means(self) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of the mean depth where only typical-p differs from what a token was drawn with, by its own entropy;
        0 and infinity elsewhere."""
        run, s = self.run_, self.settings
        low, high = np.zeros(run.rows), np.full(run.rows, np.inf)
        base = self.best / max(s.temperature, 1e-30)
        for own, numbers in run.rows_of.items():
            if own.typical_p <= 1.0 - BORDER or own.greedy or replace(own, typical_p=s.typical_p, seed=s.seed) != s:
                continue
            rows = np.array(numbers)
            rows = rows[np.abs(run.own_last[rows] - base[rows]) < 700.0]  # also none that is NaN
            entropy = np.log(run.own_choices[rows])
            mean = entropy - (run.own_last[rows] - base[rows])
            error = 8e-6 * (1.0 + entropy)
            low[rows], high[rows] = np.maximum(mean - error, 0.0), mean + error
        return low, high

    def _mean_depths(self, items: Items, part: Any) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of the mean depth of what lives, from its parts. part: the bins among the items, which come last."""
        full_low, whole, count = self.full_low[part], self.full_high[part], self.members[part]
        width = items.near.shape[1] - whole.shape[1]
        head, tail = items.columns(slice(width)), items.columns(slice(width, None))
        near, far = tail.near, tail.far
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # A bin's mean depth is at most that of equal parts, and at least that of parts at both ends (-x ln x is
            # concave). Filters cut a bin's deepest, so the first holds for what is left of it, too.
            equal = np.log(count / full_low)
            low_end, high_end = np.exp(-far), np.exp(-near)
            nearer = np.clip((whole - count * low_end) / np.maximum(high_end - low_end, 1e-300), 0.0, count)
            ends = nearer * high_end * near + np.where(low_end > 0, (count - nearer) * low_end * far, 0.0)
            ends = np.where(whole > 0, ends / whole, near)
        uncut = (tail.low == full_low) & (tail.high == whole) & (self.missing[part[0], None] == 0)
        least = np.where(uncut & np.isfinite(ends), np.clip(ends * (1 - 1e-9) - 1e-9, near, far), near)
        most = np.maximum(np.where(np.isfinite(equal), np.clip(equal + 1e-9, near, far), far), least)
        return mean_bounds(head, Items(least, most, tail.low, tail.high))

    # -- the draw

    def _greedy(self) -> Decided:
        first = self.order[:, 0]
        same = self.known & (first == self.run_.chosen)
        fates = np.where(same, STANDS, np.where(self.known, ELSEWHERE, OPEN))
        one = np.where(self.known, 1.0, 1.0)
        others = np.where(self.known & ~same, self.run_.ids[self.rows, first], -1)
        return self._answer(fates, one, one, others)

    def _pick(self) -> Decided:
        run = self.run_
        low, high = self._weight()
        u = run.draws(self.settings)
        nudge = 1 + EXACT_ERROR
        with np.errstate(invalid="ignore"):
            goal_low, goal_high = u * low, u * high
            falls_here = (goal_low >= self.before_high * nudge) & (goal_high * nudge < self.before_low + self.own)
            falls_beside = (goal_high * nudge < self.before_low) | (goal_low >= (self.before_high + self.own) * nudge)
        stands = self.known & falls_here & (self.status == _ALIVE)
        elsewhere = self.known & (falls_beside | (self.status == _GONE))
        fates = np.where(stands, STANDS, np.where(elsewhere, ELSEWHERE, OPEN))
        if self.most_sums is not None:
            return self._answer(fates, *self._choices(low, high), self._named_by_bounds(elsewhere, goal_low, goal_high))
        # Who stands there instead: the first of the head whose sum goes beyond the draw, by both bounds.
        under = (self.sums[:, 1:] <= goal_low[:, None]).sum(axis=1)
        over = (self.sums[:, 1:] <= (goal_high * nudge)[:, None]).sum(axis=1)
        sure = elsewhere & (under == over) & (under < self.sure)
        named = run.ids[self.rows, self.order[self.rows, np.minimum(under, run.ids.shape[1] - 1)]]
        others = np.where(sure & (named != run.chosen_id), named, -1)
        return self._answer(fates, *self._choices(low, high), others)

    def _named_by_bounds(self, elsewhere: np.ndarray, goal_low: np.ndarray, goal_high: np.ndarray) -> np.ndarray:
        """Who stands there instead, where typical-p has left gaps: who surely lives and where the draw surely falls."""
        assert self.most_sums is not None
        assert self.stays is not None
        nudge = 1 + EXACT_ERROR
        here = self.stays & (self.most_sums[:, :-1] * nudge <= goal_low[:, None])
        here &= goal_high[:, None] * nudge < self.sums[:, 1:]
        column = np.argmax(here, axis=1)
        named = self.run_.ids[self.rows, self.order[self.rows, column]]
        sure = elsewhere & here[self.rows, column] & (named != self.run_.chosen_id)
        return np.where(sure, named, -1)

    def _choices(self, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of exp(entropy) of what is drawn from: ln W - (sum of x ln x) / W over all that live."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            sums = sums_of(-self.weights * np.log(np.maximum(self.weights, 1e-300)))
            least, most = sums[self.rows, self.sure], sums[self.rows, self.most_alive]
            # -x ln x grows with x up to 1/e, and is concave: a bin's sum is at most that of equal parts.
            count = np.maximum(self.members, 1)
            each = np.minimum(self.high / count, math.exp(-1.0))
            most = most + np.where(self.high > 0.0, -count * each * np.log(each), 0.0).sum(axis=1)
            tops = np.minimum(self.roof_weight, 1.0)[:, None]
            least = least + np.where(self.low > 0.0, -self.low * np.log(np.minimum(tops, 1.0)), 0.0).sum(axis=1)
            floor, roof = np.log(low) + least / high, np.log(high) + most / low
        error = 1e-9
        return np.where(self.known, np.exp(np.maximum(floor - error, 0.0)), np.nan), np.where(
            self.known, np.exp(np.minimum(np.nan_to_num(roof, nan=50.0) + error, 50.0)), np.nan
        )

    def _answer(self, fates: np.ndarray, low: np.ndarray, high: np.ndarray, others: np.ndarray) -> Decided:
        run, s = self.run_, self.settings
        cuts = np.where(self.status == _UNSURE, CUT_OPEN, np.where(self.status == _GONE, self.code, NOT_CUT))
        cuts = np.where((self.status == _GONE) & (self.code == 0), CUT_OPEN, cuts)
        cuts = np.where(self.known, cuts, CUT_OPEN)
        low, high = low.copy(), high.copy()
        own = np.array(run.rows_of.get(s, []), dtype=np.int64)  # what it was drawn with
        fates[own], cuts[own], others[own] = STANDS, run.own_cuts[own], -1
        fates[run.forced], others[run.forced] = STANDS, -1  # it would be given again
        low[own] = high[own] = run.own_choices[own]
        return Decided(fates, cuts, low, high, others)


def _most(at: np.ndarray, rows: int) -> bool:
    return 2 * at.size > rows


def _plain_order(settings: SamplingSettings) -> bool:
    """Whether tokens stand in the order of their raw logits."""
    return before_filters(settings)[1:] == (1.0, 0.0, 0.0, 0, (), (), ())
