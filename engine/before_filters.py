"""How a finished run's tokens stand before the filters of other settings: bias, penalties, bans and temperature.

The named tokens in order, and what was only counted as bins with bounds of their weight. Tokens are rows of arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.kept_rows import constrained
from engine.redecided import BINS_OF_TAIL
from engine.settings import SamplingSettings
from engine.tail import bins_of

if TYPE_CHECKING:
    from engine.kept_rows import KeptRows

_OF_ITS_OWN = ("run_", "settings")


class BeforeFilters:
    """Worked out once for all settings that differ in filters only: the run's rows keep it.

    Weights are exp((logit - largest logit) / temperature). head: the named tokens that are surely above all others, in
    order. bins: all others, the last column those of prompt and text whose place is open. full_low and full_high:
    bounds of what each bin weighs.
    """

    def __init__(self, run: KeptRows, settings: SamplingSettings) -> None:
        self.run_, self.settings = run, settings
        key = before_filters(settings)
        if run.before_filters is None or run.before_filters[0] != key:
            self.rows = np.arange(run.rows)
            self._adjust()
            self._order()
            run.before_filters = key, {name: value for name, value in vars(self).items() if name not in _OF_ITS_OWN}
        else:
            vars(self).update(run.before_filters[1])

    def _adjust(self) -> None:
        """Penalties and bans: `values` of the named, bins and what may rise or fall among the rest."""
        run, s = self.run_, self.settings
        penalised = s.repetition_penalty != 1.0 or s.presence_penalty != 0.0 or s.frequency_penalty != 0.0
        self.missing = np.zeros(run.rows)  # so many counted tokens may be elsewhere
        touched, lift = np.zeros(run.rows, dtype=np.int64), 0.0
        has_constraints = constrained(s)
        if has_constraints:
            constraints = run.constraints(s)
            touched, lift = constraints.touched, constraints.lift
        self.values = run.values(s)
        self.counts, self.lows, self.highs = run.counts, run.lows, run.highs
        least, most = run.masses - run.mass_error, run.masses + run.mass_error
        self.least, self.most = np.maximum(least, 0.0), most
        self.loose = np.zeros(run.rows, dtype=bool)  # the last bin's tokens may lie anywhere below its upper bound
        self.banned_count = np.zeros(run.rows, dtype=np.int64)
        self.bans: list[tuple[str, np.ndarray]] = []  # filter and [rows, named], in order
        unnamed_repeats = np.zeros(run.rows, dtype=np.int64)
        if s.no_repeat_ngram_size:
            repeats, self.banned_count, unnamed_repeats = run.banned(s.no_repeat_ngram_size)
            self.bans.append(("no_repeat_ngram", repeats))
        if has_constraints and (s.banned or s.banned_sequences):
            both = constraints.banned & self.bans[0][1] if self.bans else constraints.banned & False
            self.bans.append(("banned", constraints.banned))
            self.banned_count = (
                self.banned_count + constraints.banned.sum(axis=1) - both.sum(axis=1) + constraints.unnamed_banned
            )
        if not penalised and not unnamed_repeats.any() and not touched.any():
            return
        self.counts, self.highs = self.counts.copy(), self.highs.copy()
        self.least, self.most = self.least.copy(), self.most.copy()
        held = np.where(self.counts[:, :-1] > 0, run.highs[:, :-1], -np.inf).max(axis=1)  # no token of a bin lies above
        moved = np.where(run.one_bin & (penalised | (unnamed_repeats > 0)), run.unnamed_seen, 0) + touched
        moved = np.minimum(moved, self.counts[:, :-1].sum(axis=1))
        self.missing = moved
        self.counts[:, -1] += moved
        self.loose = self.counts[:, -1] > 0
        self.least[self.loose, -1] = 0.0
        lifted = np.maximum(self.highs[:, -1], np.where(moved > 0, held, -np.inf)) + lift
        if penalised:
            bound = lifted + run.top  # as a raw logit
            repetition = max(s.repetition_penalty, 1e-30)
            with np.errstate(over="ignore", invalid="ignore"):
                bound = np.where(bound < 0, bound * repetition, bound / repetition)
            bound = bound + max(0.0, -s.presence_penalty) + max(0.0, -s.frequency_penalty) * run.text.most_times
            lifted = np.maximum(lifted, np.where(np.isfinite(bound), bound - run.top + 1e-4 * (1 + abs(bound)), np.inf))
        rises = lifted > self.highs[:, -1]
        self.highs[:, -1] = lifted
        # What may rise weighs what it could at most; what only falls weighs at most what it did.
        with np.errstate(over="ignore", invalid="ignore"):
            fallen = np.where(moved > 0, moved * np.exp(held), 0.0) + self.most[:, -1]
            self.most[:, -1] = np.where(rises, self.counts[:, -1] * np.exp(lifted), fallen)
        self.most[self.counts[:, -1] == 0, -1] = 0.0

    def _order(self) -> None:
        """The head in order; named tokens beneath go into the bins; weights at this temperature."""
        run, s = self.run_, self.settings
        self.order, self.sorted_values, self.place = run.ordered(before_filters(s)[1:], self.values)
        best = self.sorted_values[:, 0].astype(np.float64)
        roof = np.where(self.counts > 0, self.highs, -np.inf).max(axis=1) + run.top  # no unnamed token lies above
        # What is known of the roof is a rounded difference, while equal logits share a place.
        finite = np.isfinite(roof)
        roof[finite] += 1e-6 * (1 + np.abs(roof[finite]))
        self.heads = (self.sorted_values > roof[:, None]).sum(axis=1)
        self.known = (self.heads > 0) & np.isfinite(best)
        self.best = np.where(self.known, best, 0.0)
        self.in_head = self.place < self.heads
        temperature = max(s.temperature, 1e-30)
        head = self.sorted_values[:, : max(1, int(self.heads.max()))]
        inside = np.arange(head.shape[1]) < self.heads[:, None]
        self.weights = np.where(inside, self._weights_of(head, self.best[:, None]), 0.0)
        self.own = self._weights_of(self.values[self.rows, run.chosen], self.best) * self.known
        self.sums = sums_of(self.weights)
        self._fill_bins(temperature)

    def _weights_of(self, values: np.ndarray, best: np.ndarray) -> np.ndarray:
        """At most 1, float64, of logits of the same shape as the largest ones beside them."""
        with np.errstate(over="ignore", invalid="ignore"):
            weights = np.exp((values.astype(np.float64) - best) / max(self.settings.temperature, 1e-30))
        return np.minimum(weights, 1.0)

    def _fill_bins(self, temperature: float) -> None:
        """Bounds of each bin's weight at this temperature, with the named tokens that fell into it.

        A bin's count c and the sum m of x = exp(logit) are known, and all x lie in [low, high]. The sum of x^a, a = 1 /
        temperature, lies between c (m/c)^a (Jensen) and the chord's f high^a + (c - f) low^a: which is the upper one
        follows from the curvature.
        """
        run, a = self.run_, 1.0 / temperature
        shift = (run.top - self.best)[:, None]  # the adjusted largest against the raw one
        some = self.counts > 0
        each = np.maximum(self.counts, 1.0)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            low, high = np.exp(self.lows), np.exp(np.minimum(self.highs, 700.0))
            scale = np.exp(np.clip(a * shift, -700, 700))
            low_a, high_a = (np.exp(np.minimum(a * (ends + shift), 700.0)) for ends in (self.lows, self.highs))

            def jensen(mass: np.ndarray) -> np.ndarray:
                return self.counts * np.exp(a * np.log(mass / each)) * scale  # no mass: exp(-inf)

            def chord(mass: np.ndarray) -> np.ndarray:
                at_high = np.clip((mass - self.counts * low) / np.maximum(high - low, 1e-300), 0.0, self.counts)
                return at_high * high_a + (self.counts - at_high) * low_a

            under, over = (jensen, chord) if a >= 1.0 else (chord, jensen)
            self.low = under(self.least) * some
            self.high = np.minimum(over(self.most), self.counts * high_a) * some
        self.low, self.high = np.nan_to_num(self.low, nan=0.0), np.nan_to_num(self.high, nan=np.inf)
        self.low = np.minimum(self.low, self.high) * (1 - 1e-9)
        self.high = self.high * (1 + 1e-9)
        # A loose bin's tokens may weigh nothing at all, and the others may lack those.
        self.low[self.loose, -1] = 0.0
        with np.errstate(invalid="ignore"):
            lost = np.where(self.missing[:, None] > 0, self.missing[:, None] * high_a, 0.0)
        self.low[:, :-1] = np.maximum(self.low[:, :-1] - np.nan_to_num(lost[:, :-1], nan=np.inf), 0.0)
        self.roof_weight = (high_a * some).max(axis=1)
        self.bin = np.zeros(run.rows, dtype=np.int64)
        self.members = self.counts.copy()
        width = self.sorted_values.shape[1]
        beneath = (np.arange(width) >= self.heads[:, None]) & (self.sorted_values > -np.inf)
        if (at := np.flatnonzero(beneath)).size:
            rows, values = at // width, self.sorted_values.ravel()[at]
            with np.errstate(over="ignore"):
                bins = bins_of(np.maximum(run.top[rows] - values, np.float32(0.0)))
            bins = np.where(run.one_bin[rows], BINS_OF_TAIL - 1, bins)
            flat, size = rows * self.low.shape[1] + bins, self.low.size
            weights = self._weights_of(values, self.best[rows]) * self.known[rows]
            more = np.bincount(flat, weights, minlength=size).reshape(self.low.shape)
            self.low += more
            self.high += more
            self.members = self.members + np.bincount(flat, minlength=size).reshape(self.low.shape)
            chosen = at == rows * width + self.place[rows]
            self.bin[rows[chosen]] = bins[chosen]
        self.full_low, self.full_high = self.low, self.high  # before any filter


def sums_of(values: np.ndarray) -> np.ndarray:
    """[rows, n] → [rows, n + 1]: the sums of the first 0 to n."""
    sums = np.zeros((values.shape[0], values.shape[1] + 1))
    np.cumsum(values, axis=1, out=sums[:, 1:])
    return sums


def before_filters(settings: SamplingSettings) -> tuple[object, ...]:
    """What of settings decides how tokens stand before the filters."""
    return (
        settings.temperature,
        settings.repetition_penalty,
        settings.presence_penalty,
        settings.frequency_penalty,
        settings.no_repeat_ngram_size,
        settings.logit_bias,
        settings.banned,
        settings.banned_sequences,
    )
