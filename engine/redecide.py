"""What other settings would have made of a finished run, from what was kept of it and without the model.

Each token is decided after the text that was really written before it: so the first one that would have been another
is where the text would have gone elsewhere, and of the later ones it is only said whether their word would still
stand at that place. Everything not kept is known within bounds; where the bounds leave two answers, none is given.

The order, the meaning and the ties are those of engine/sampling.py. Tokens are rows of arrays, worked on together.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from engine.draw import draw
from engine.events import FILTERS, RunStart, TokenEvent
from engine.redecide_typical import Items, Nearest, mean_bounds
from engine.redecided import BINS_OF_TAIL, CUT_OPEN, ELSEWHERE, NOT_CUT, OPEN, SEEN_NATS, STANDS, Redecided
from engine.sampling import BORDER
from engine.settings import SamplingSettings
from engine.tail import bin_edges, bins_of

# sampling.py sums a whole vocabulary in float32: its sum may differ from the exact one by less than this share.
SUM_ERROR = 4e-6
FEW_SETTINGS = 4  # with more of them in a run, their own figures are not worth their time
EXACT_ERROR = 1e-12  # of sums over few, in float64
_CODES = {name: 1 + place for place, name in enumerate(FILTERS)}
_ALIVE, _GONE, _UNSURE = 0, 1, 2


class FinishedRun:
    """A run's tokens as arrays: made once, then asked as often as a slider moves. [rows] are tokens of one lane."""

    def __init__(self, start: RunStart, tokens: Sequence[TokenEvent]) -> None:
        self.tokens = tuple(tokens)
        self.rows = rows = len(self.tokens)
        named = [_named(token) for token in self.tokens]
        width = max((ids.size for ids, _ in named), default=1)
        self.ids = np.full((rows, width), np.iinfo(np.int64).max, dtype=np.int64)
        self.raw = np.full((rows, width), -np.inf, dtype=np.float32)
        for row, (ids, logits) in enumerate(named):
            order = np.argsort(ids)  # ascending ids, so that a stable sort leaves smaller ids first
            self.ids[row, : ids.size], self.raw[row, : ids.size] = ids[order], logits[order]
        self.chosen_id = np.array([token.token_id for token in self.tokens], dtype=np.int64)
        self.chosen = np.argmax(self.ids == self.chosen_id[:, None], axis=1) if rows else np.empty(0, dtype=np.int64)
        self.top = self.raw.max(axis=1) if rows else np.empty(0, dtype=np.float32)
        self.vocab = np.array([token.vocab_size for token in self.tokens], dtype=np.int64)
        self._ordered: tuple[tuple[object, ...], np.ndarray, np.ndarray] | None = None
        self._banned: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self._constrained: dict[tuple[object, ...], _Constraints] = {}
        # What stands before the filters, by Deciding: the newest, since most often it is a filter that moves.
        self.before_filters: tuple[tuple[object, ...], dict[str, Any]] | None = None
        self._read_history(start)
        self._read_tails()
        self._read_own()

    def _read_history(self, start: RunStart) -> None:
        """Which of the named tokens stand in prompt and text before each row, and how often they were written."""
        prompt = [token.token_id for token in start.prompt_tokens]
        before = list(start.written)[: self.tokens[0].step] if self.tokens else []
        self.sequence = [*prompt, *before, *self.chosen_id.tolist()]
        self.begun = len(prompt) + len(before)  # row i comes after the first begun + i of the sequence
        written = np.array([*before, *self.chosen_id.tolist()], dtype=np.int64)
        stride = written.size + 1
        keys = np.sort(written * stride + np.arange(written.size))
        at = len(before) + np.arange(self.rows)
        real = np.where(self.ids == np.iinfo(np.int64).max, -1, self.ids)
        low = np.searchsorted(keys, real * stride)
        self.times = (np.searchsorted(keys, real * stride + at[:, None]) - low).astype(np.float32)
        self.seen = (self.times > 0) | np.isin(real, np.array(prompt, dtype=np.int64))
        known, distinct = set(prompt) | set(before), np.zeros(self.rows, dtype=np.int64)
        for row, token_id in enumerate(self.chosen_id.tolist()):
            distinct[row] = len(known)
            known.add(token_id)
        self.unnamed_seen = distinct - self.seen.sum(axis=1)  # of prompt and text, their logits not known
        self.most_times = float(max((written == i).sum() for i in set(written.tolist()))) if written.size else 0.0

    def _read_tails(self) -> None:
        """Bins of what is not named, [rows, bins + 1]; the last is for tokens of prompt and text.

        lows and highs: bounds of their raw logits below the largest one. A file without bins has one that holds all.
        """
        rows = self.rows
        shape = (rows, BINS_OF_TAIL + 1)
        self.counts, self.masses, self.mass_error = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        edges = -bin_edges()  # nats relative to the largest logit
        self.lows, self.highs = np.tile(np.append(edges[1:], -np.inf), (rows, 1)), np.empty(shape)
        self.highs[:, :-1], self.highs[:, -1] = edges[:-1], 0.0
        for row, token in enumerate(self.tokens):
            top, tail = float(self.top[row]), token.tail
            if tail is not None:
                end = tail.first_bin + len(tail.counts)
                self.counts[row, tail.first_bin : end] = tail.counts
                self.masses[row, tail.first_bin : end] = tail.masses
                self.mass_error[row] = 4e-6 * self.masses[row]
                below, seen_below = tail.below - top, -SEEN_NATS
                self.counts[row, -1], self.masses[row, -1] = tail.seen_count, tail.seen_mass
                self.mass_error[row, -1] = 1e-9 * tail.seen_mass
            else:
                ids, logits = token.candidate_ids, token.candidate_logits
                # The last one is the chosen one where that is none of the largest.
                below = seen_below = logits[-2 if 1 <= len(ids) - 1 < token.rank else -1] - top
                rest = token.vocab_size - len(ids)
                weight = math.exp(min(token.logsumexp - top, 700.0))
                named = float(np.exp(self.raw[row].astype(np.float64) - top).sum())
                self.lows[row, -2], self.highs[row, -2] = -np.inf, 0.0
                self.counts[row, -2] = rest
                self.masses[row, -2] = max(0.0, weight - named) if rest else 0.0
                self.mass_error[row, -2] = SUM_ERROR * weight if rest else 0.0
            self.highs[row, :-1] = np.minimum(self.highs[row, :-1], below)
            self.highs[row, -1] = min(seen_below, below) if tail is None else seen_below
        np.minimum(self.lows, self.highs, out=self.lows)
        # Computed in float32: a logit may lie beside its bin by its last digits.
        self.lows -= 1e-5 * (1.0 + np.where(np.isfinite(self.lows), -self.lows, 0.0))
        # Where a bin ends, for named tokens that fall into it; only the unnamed are surely not above `below`.
        self.ends = np.append(edges[:-1], 0.0) + 1e-5 * (1.0 - np.append(edges[:-1], 0.0))
        self.ends[0] = np.inf  # with a penalty that lifts
        self.one_bin = np.array([token.tail is None for token in self.tokens], dtype=bool)
        self.ends = np.where(self.one_bin[:, None], np.inf, self.ends)

    def _read_own(self) -> None:
        """What each token was drawn with: its settings, and the exact figures of its own distribution."""
        self.rows_of: dict[SamplingSettings, list[int]] = {}
        for row, token in enumerate(self.tokens):
            self.rows_of.setdefault(token.settings, []).append(row)
        names = ("raw", "bias", "penalties", "no_repeat_ngram", "banned", "temperature")
        whole = [[f.logsumexp for f in token.stages if f.name in names] for token in self.tokens]
        self.own_whole = np.array([found[-1] if found else np.nan for found in whole])
        self.own_last = np.array([t.stages[-1].logsumexp if t.stages else np.nan for t in self.tokens])
        # A token that was given lies where it lies whatever was drawn, and its interval may be none.
        self.forced = np.array([token.forced for token in self.tokens], dtype=bool)
        self.own_low = np.array([math.nan if token.forced else token.draw_low for token in self.tokens])
        self.own_cuts = np.array([_own_cut(token) for token in self.tokens], dtype=np.uint8)
        self.own_choices = np.exp(np.minimum([token.final_entropy_nats for token in self.tokens], 50.0))

    # ---------------------------------------------------------------- deciding

    def redecide(self, settings: SamplingSettings) -> Redecided:
        """Every token under these settings."""
        if not self.rows:
            return Redecided(b"", b"", array("d"), array("d"), array("i"))
        return Deciding(self, settings).run()

    def ordered(self, key: tuple[object, ...], values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The order of the named tokens, largest first, and their values in it. The newest is kept: a filter or the
        temperature that moves leaves it as it is. key: the settings that these values hang on."""
        if self._ordered is None or self._ordered[0] != key:
            order = np.argsort(-values, axis=1, kind="stable")
            self._ordered = key, order, np.take_along_axis(values, order, axis=1)
        return self._ordered[1], self._ordered[2]

    def draws(self, settings: SamplingSettings) -> np.ndarray:
        """The number that each token's step draws from the settings' seed, float64 [rows]."""
        seed = settings.seed
        return np.array(
            [t.u if t.u is not None and t.settings.seed == seed else _draw(seed, t.step) for t in self.tokens]
        )

    def constraints(self, settings: SamplingSettings) -> _Constraints:
        """What bias and bans do to the named tokens, and how many of no name they touch. The newest are kept."""
        key = settings.logit_bias, settings.banned, settings.banned_sequences
        if key not in self._constrained:
            for old in list(self._constrained)[:-3]:
                del self._constrained[old]
            self._constrained[key] = self._find_constraints(settings)
        return self._constrained[key]

    def values(self, settings: SamplingSettings) -> np.ndarray:
        """The named tokens' logits as they come to the temperature: float32 [rows, named], banned ones -inf."""
        s, values = settings, self.raw
        if _constrained(s):
            values = values + self.constraints(s).bias
        if s.repetition_penalty != 1.0 or s.presence_penalty != 0.0 or s.frequency_penalty != 0.0:
            values = _penalised(values, self.seen, self.times, s)
        if s.no_repeat_ngram_size:
            values = np.where(self.banned(s.no_repeat_ngram_size)[0], np.float32(-np.inf), values)
        if s.banned or s.banned_sequences:
            values = np.where(self.constraints(s).banned, np.float32(-np.inf), values)
        return values

    def _find_constraints(self, settings: SamplingSettings) -> _Constraints:
        bias, mask = np.zeros(self.ids.shape, dtype=np.float32), np.zeros(self.ids.shape, dtype=bool)
        touched = np.zeros(self.rows, dtype=np.int64)
        unnamed_banned = np.zeros(self.rows, dtype=np.int64)

        def count_unnamed(ids: np.ndarray, named: np.ndarray) -> np.ndarray:
            return (ids[:, None] < self.vocab).sum(axis=0) - named.sum(axis=1)

        if settings.logit_bias:
            keys = np.array([token_id for token_id, _ in settings.logit_bias], dtype=np.int64)
            adds = np.array([add for _, add in settings.logit_bias], dtype=np.float32)
            place = np.minimum(np.searchsorted(keys, self.ids), keys.size - 1)
            named = keys[place] == self.ids
            bias = np.where(named, adds[place], np.float32(0.0))
            touched += count_unnamed(keys, named)
        if settings.banned:
            keys = np.array(settings.banned, dtype=np.int64)
            mask = np.isin(self.ids, keys)
            unnamed_banned += count_unnamed(keys, mask)
        sequence = np.array(self.sequence, dtype=np.int64)
        for *before, last in settings.banned_sequences:
            ends = np.ones(self.rows, dtype=bool)  # rows whose text ends with `before`
            for back, token_id in enumerate(reversed(before), start=1):
                at = self.begun + np.arange(self.rows) - back
                ends &= np.where(at >= 0, sequence[np.maximum(at, 0)] == token_id, False)
            if last not in settings.banned:
                named = self.ids == last
                unnamed_banned += ends & ~(named.any(axis=1)) & (last < self.vocab)
                mask |= named & ends[:, None]
        most = max((add for _, add in settings.logit_bias), default=0.0)
        return _Constraints(bias, mask, touched + unnamed_banned, unnamed_banned, max(0.0, most))

    def banned(self, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(which named tokens would repeat an n-gram, [rows, named]; how many do in all; how many of no name)."""
        if size not in self._banned:
            self._banned[size] = self._find_banned(size)
        return self._banned[size]

    def _find_banned(self, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        mask = np.zeros(self.ids.shape, dtype=bool)
        count, unnamed = np.zeros(self.rows, dtype=np.int64), np.zeros(self.rows, dtype=np.int64)
        after: defaultdict[tuple[int, ...], set[int]] = defaultdict(set)
        ids, done = self.sequence, size - 1
        for row in range(self.rows):
            length = self.begun + row
            while done < length:
                after[tuple(ids[done - size + 1 : done])].add(ids[done])
                done += 1
            found = after.get(tuple(ids[length - size + 1 : length])) if length + 1 >= size else None
            if found:
                these = np.fromiter(found, dtype=np.int64, count=len(found))
                these = these[these < self.vocab[row]]
                mask[row] = np.isin(self.ids[row], these)
                count[row] = these.size
                unnamed[row] = these.size - mask[row].sum()
        return mask, count, unnamed


def _own_cut(token: TokenEvent) -> int:
    """The code of what cut the token itself: only one that was given can be cut."""
    return token.candidate_cuts[token.candidate_ids.index(token.token_id)] if token.forced else NOT_CUT


@lru_cache(maxsize=20_000)
def _draw(seed: int, step: int) -> float:
    return draw(seed, step)


def _named(token: TokenEvent) -> tuple[np.ndarray, np.ndarray]:
    """Ids and raw logits of all that are kept by name: int64 and float32."""
    ids = np.array(token.candidate_ids, dtype=np.int64)
    logits = np.array(token.candidate_logits, dtype=np.float32)
    if token.tail is not None:
        ids = np.concatenate((ids, np.array(token.tail.ids, dtype=np.int64)))
        logits = np.concatenate((logits, np.array(token.tail.logits, dtype=np.float32)))
    once, first = np.unique(ids, return_index=True)  # the chosen one may be listed and among the next
    return once, logits[first]


_OF_ITS_OWN = ("run_", "settings")
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


@dataclass(frozen=True, slots=True)
class _Constraints:
    """bias: float32 [rows, named]. banned: bool [rows, named]. touched, unnamed_banned: [rows], tokens of no name that
    are biased or banned, and that are banned (at most). lift: the largest bias, at least 0."""

    bias: np.ndarray
    banned: np.ndarray
    touched: np.ndarray
    unnamed_banned: np.ndarray
    lift: float


class Deciding:
    """One walk through the stages. Weights are exp((logit - largest logit) / temperature).

    head: the named tokens that are surely above all others, in order; of them the first `sure` surely live and the
    first `most` may. bins: all others, the last column those of prompt and text whose place is open. low and high:
    bounds of what lives in each bin.
    """

    def __init__(self, run: FinishedRun, settings: SamplingSettings) -> None:
        self.run_, self.settings = run, settings
        key = _before_filters(settings)
        if run.before_filters is None or run.before_filters[0] != key:
            self.rows = np.arange(run.rows)
            self._adjust()
            self._order()
            run.before_filters = key, {name: value for name, value in vars(self).items() if name not in _OF_ITS_OWN}
        else:
            vars(self).update(run.before_filters[1])
        # What the stages write into.
        self.low, self.high = self.full_low.copy(), self.full_high.copy()
        self.status = np.full(run.rows, _ALIVE)
        self.code = np.zeros(run.rows, dtype=np.uint8)

    # -- before temperature

    def _adjust(self) -> None:
        """Penalties and bans: `values` of the named, bins and what may rise or fall among the rest."""
        run, s = self.run_, self.settings
        penalised = s.repetition_penalty != 1.0 or s.presence_penalty != 0.0 or s.frequency_penalty != 0.0
        self.missing = np.zeros(run.rows)  # so many counted tokens may be elsewhere
        touched, lift = np.zeros(run.rows, dtype=np.int64), 0.0
        constrained = _constrained(s)
        if constrained:
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
        if constrained and (s.banned or s.banned_sequences):
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
            bound = bound + max(0.0, -s.presence_penalty) + max(0.0, -s.frequency_penalty) * run.most_times
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
        self.order, self.sorted_values = run.ordered(_before_filters(s)[1:], self.values)
        order = self.order
        best = self.sorted_values[:, 0].astype(np.float64)
        some = self.counts > 0
        roof = np.where(some, self.highs, -np.inf).max(axis=1) + run.top  # no unnamed token lies above
        # What is known of the roof is a rounded difference, while equal logits share a place.
        finite = np.isfinite(roof)
        roof[finite] += 1e-6 * (1 + np.abs(roof[finite]))
        above = self.sorted_values > roof[:, None]
        self.heads = np.where(np.isfinite(self.sorted_values) & above, 1, 0).sum(axis=1)
        self.known = (self.heads > 0) & np.isfinite(best)
        self.best = np.where(self.known, best, 0.0)
        self.place = np.argmax(order == run.chosen[:, None], axis=1)  # the chosen one's, among the named
        self.in_head = self.place < self.heads
        temperature = max(s.temperature, 1e-30)
        with np.errstate(over="ignore", invalid="ignore"):
            weights = np.exp((self.sorted_values.astype(np.float64) - self.best[:, None]) / temperature)
        columns = np.arange(weights.shape[1])
        inside = columns < self.heads[:, None]
        self.own = np.where(self.known, np.minimum(weights[self.rows, self.place], 1.0), 0.0)
        head = weights[:, : max(1, int(self.heads.max()))]
        self.weights = np.where(inside[:, : head.shape[1]], np.minimum(head, 1.0), 0.0)
        self.sums = np.concatenate((np.zeros((run.rows, 1)), np.cumsum(self.weights, axis=1)), axis=1)
        self._fill_bins(np.where(inside | ~self.known[:, None], 0.0, np.minimum(weights, 1.0)), inside, temperature)

    def _fill_bins(self, weights: np.ndarray, inside: np.ndarray, temperature: float) -> None:
        """Bounds of each bin's weight at this temperature, with the named tokens that fell into it.

        A bin's count c and the sum m of x = exp(logit) are known, and all x lie in [low, high]. The sum of x^a, a = 1 /
        temperature, lies between c (m/c)^a (Jensen) and the chord's f high^a + (c - f) low^a: which is the upper one
        follows from the curvature.
        """
        run, a = self.run_, 1.0 / temperature
        shift = (run.top - self.best)[:, None]  # the adjusted largest against the raw one
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            low, high = np.exp(self.lows), np.exp(np.minimum(self.highs, 700.0))
            scale = np.exp(np.clip(a * shift, -700, 700))
            low_a, high_a = np.exp(a * (self.lows + shift)), np.exp(np.minimum(a * (self.highs + shift), 700.0))

            def jensen(mass: np.ndarray) -> np.ndarray:
                return np.where(mass > 0, self.counts * np.exp(a * np.log(mass / self.counts)) * scale, 0.0)

            def chord(mass: np.ndarray) -> np.ndarray:
                at_high = np.clip((mass - self.counts * low) / np.maximum(high - low, 1e-300), 0.0, self.counts)
                return at_high * high_a + (self.counts - at_high) * low_a

            under, over = (jensen, chord) if a >= 1.0 else (chord, jensen)
            self.low = np.where(self.counts > 0, under(self.least), 0.0)
            self.high = np.where(self.counts > 0, np.minimum(over(self.most), self.counts * high_a), 0.0)
        self.low, self.high = np.nan_to_num(self.low, nan=0.0), np.nan_to_num(self.high, nan=np.inf)
        self.low = np.minimum(self.low, self.high) * (1 - 1e-9)
        self.high = self.high * (1 + 1e-9)
        # A loose bin's tokens may weigh nothing at all, and the others may lack those.
        self.low[self.loose, -1] = 0.0
        with np.errstate(invalid="ignore"):
            lost = np.where(self.missing[:, None] > 0, self.missing[:, None] * high_a, 0.0)
        self.low[:, :-1] = np.maximum(self.low[:, :-1] - np.nan_to_num(lost[:, :-1], nan=np.inf), 0.0)
        self.roof_weight = np.where(self.counts > 0, high_a, 0.0).max(axis=1)
        self.bin = np.zeros(run.rows, dtype=np.int64)
        self.members = self.counts.copy()
        rows, columns = np.nonzero(~inside & (np.take_along_axis(run.ids, self.order, axis=1) < np.iinfo(np.int64).max))
        if rows.size:
            values = self.sorted_values[rows, columns]
            alive = ~np.isneginf(values)
            rows, columns, values = rows[alive], columns[alive], values[alive]
            with np.errstate(over="ignore"):
                bins = bins_of(np.maximum(run.top[rows] - values, np.float32(0.0)))
            bins = np.where(run.one_bin[rows], BINS_OF_TAIL - 1, bins)
            flat, size = rows * self.low.shape[1] + bins, self.low.size
            more = np.bincount(flat, weights[rows, columns], minlength=size).reshape(self.low.shape)
            self.low += more
            self.high += more
            self.members = self.members + np.bincount(flat, minlength=size).reshape(self.low.shape)
            chosen = columns == self.place[rows]
            self.bin[rows[chosen]] = bins[chosen]
        self.full_low, self.full_high = self.low, self.high  # before any filter

    # -- the filters

    def run(self) -> Redecided:
        run, s = self.run_, self.settings
        self.sure, self.most_alive = self.heads.copy(), self.heads.copy()
        self.total = run.vocab - self.banned_count
        self.untouched = True
        self.most_sums = self.stays = None  # once typical-p has cut in the midst: sums of who may live; who surely does
        self.before_low, self.before_high = self._before_chosen()
        self._use_own_figures()
        for name, gone in self.bans:
            mine = np.take_along_axis(gone, run.chosen[:, None], axis=1)[:, 0]
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
        at = np.minimum(self.place, self.heads)[:, None]
        at_head = at_head_most = np.take_along_axis(self.sums, at, axis=1)[:, 0]
        if self.most_sums is not None:
            at_head_most = np.take_along_axis(self.most_sums, at, axis=1)[:, 0]
        low, high = np.cumsum(self.low[:, :-1], axis=1), np.cumsum(self.high[:, :-1], axis=1)
        mine = self.bin[:, None]
        low_before = np.take_along_axis(np.pad(low, ((0, 0), (1, 0))), mine, axis=1)[:, 0]
        high_through = np.take_along_axis(high, mine, axis=1)[:, 0] + self.high[:, -1]
        return (
            np.where(self.in_head, at_head, at_head + low_before),
            np.where(self.in_head, at_head_most, at_head_most + np.maximum(high_through - self.own, 0.0)),
        )

    def _use_own_figures(self) -> None:
        """Where only filters differ from what a token was drawn with, its own figures say what bins only bound."""
        run, s = self.run_, self.settings
        self.whole_low, self.whole_high = np.zeros(run.rows), np.full(run.rows, np.inf)
        base = self.best / max(s.temperature, 1e-30)
        for own, numbers in run.rows_of.items():
            if own.greedy or own.temperature != s.temperature:
                continue
            if _before_filters(own) != _before_filters(s):
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
        theirs, mine, ids = run.values(own)[rows], self.values[rows], run.ids[rows]
        fine = np.isfinite(theirs).any(axis=1)
        rows, theirs, mine, ids = rows[fine], theirs[fine], mine[fine], ids[fine]
        best, temperature = self.best[rows, None], max(s.temperature, 1e-30)
        with np.errstate(over="ignore", invalid="ignore"):
            before, after = (np.exp((values.astype(np.float64) - best) / temperature) for values in (theirs, mine))
            counted = np.where(run.counts[rows] > 0, run.highs[rows], -np.inf)
            tops = np.exp((counted[:, :-1].max(axis=1) + run.top[rows] - best[:, 0]) / temperature)
            seen = run.counts[rows, -1] * np.exp((counted[:, -1] + run.top[rows] - best[:, 0]) / temperature)
            whole = np.exp(run.own_whole[rows] - base[rows])
        seen = np.where(run.counts[rows, -1] > 0, seen, 0.0)
        lost = seen + np.where(self.missing[rows] > 0, self.missing[rows] * tops, 0.0)
        error = SUM_ERROR * whole
        rest = whole - before.sum(axis=1) + after.sum(axis=1)
        good = np.isfinite(rest)
        self.whole_low[rows[good]] = (rest - lost - error)[good] * (1 - SUM_ERROR)
        self.whole_high[rows[good]] = (rest + self.high[rows, -1] + error)[good] * (1 + SUM_ERROR)
        if own.typical_p <= 1.0 - BORDER:
            return
        at = run.chosen[rows, None]
        old, new, chosen = (np.take_along_axis(a, at, axis=1) for a in (theirs, mine, ids))
        above = np.where((theirs > old) | ((theirs == old) & (ids < chosen)), before, 0.0).sum(axis=1)
        above_now = np.where((mine > new) | ((mine == new) & (ids < chosen)), after, 0.0).sum(axis=1)
        stood = run.own_low[rows] * np.exp(run.own_last[rows] - base[rows])
        deep = ~self.in_head[rows] & np.isfinite(stood) & (old == new)[:, 0] & np.isfinite(new[:, 0])
        rest = (stood - above + above_now)[deep]
        rows, error = rows[deep], error[deep]
        self.before_low[rows] = np.maximum(self.before_low[rows], rest - lost[deep] - error)
        self.before_high[rows] = np.minimum(self.before_high[rows], rest + self.high[rows, -1] + error)

    def _weight(self) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of the weight of all that live, rounding included."""
        if self.most_sums is None:
            low = np.take_along_axis(self.sums, self.sure[:, None], axis=1)[:, 0] + self.low.sum(axis=1)
            high = np.take_along_axis(self.sums, self.most_alive[:, None], axis=1)[:, 0] + self.high.sum(axis=1)
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
        mine = self.bin[:, None]
        bin_full = np.take_along_axis(full, mine, axis=1)[:, 0]
        bin_gone = np.take_along_axis(gone, mine, axis=1)[:, 0]
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
        at_end = np.take_along_axis(self.sums, self.most_alive[:, None], axis=1)[:, 0]
        ended = (self.most_alive < self.heads) | (at_end >= goal_high)
        # Bins: all of one lives where what is before its last still falls short, none where what is before its first
        # does not.
        through = at_end[:, None] + np.cumsum(self.high[:, :-1], axis=1) + self.high[:, -1:]
        ahead = at_end[:, None] + np.cumsum(self.low[:, :-1], axis=1) - self.low[:, :-1]
        full = (through < goal_low[:, None]) & ~ended[:, None]
        gone = (ahead >= goal_high[:, None]) | ended[:, None]
        self.low[:, :-1] = np.where(full, self.low[:, :-1], 0.0)
        self.high[:, :-1] = np.where(gone, 0.0, self.high[:, :-1])
        self.low[:, -1] = 0.0
        self.high[ended, -1] = 0.0
        alive = np.where(self.in_head, self.place < self.sure, self.before_high * nudge < goal_low)
        lost = np.where(self.in_head, self.place >= self.most_alive, ended | (self.before_low >= goal_high * nudge))
        self._settle(alive & self.known, lost & self.known, "top_p")
        # The last that is kept crosses the goal: what is kept weighs at least that, and not much more.
        one = np.take_along_axis(self.weights, (self.sure - 1).clip(0)[:, None], axis=1)[:, 0]
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
        zero = np.zeros((self.run_.rows, 1))
        self.weights = np.where(found.may, self.weights, 0.0)
        self.sums = np.concatenate((zero, np.cumsum(np.where(found.stays, self.weights, 0.0), axis=1)), axis=1)
        self.most_sums = np.concatenate((zero, np.cumsum(self.weights, axis=1)), axis=1)
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
        width = int(self.heads[at].max())  # named tokens beneath the head stand for nothing here: their bins count them
        used = np.flatnonzero(
            (self.high[at] > 0).any(axis=0) | (np.arange(self.high.shape[1]) == self.high.shape[1] - 1)
        )
        part = np.ix_(at, used)
        columns = np.arange(width)
        weights = self.weights[at, :width]
        with np.errstate(over="ignore", invalid="ignore"):
            depth = a * (self.best[at, None] - self.sorted_values[at, :width].astype(np.float64))
        last = depth[np.arange(at.size), self.heads[at] - 1]
        depth = np.minimum(np.nan_to_num(depth, nan=_FAR, posinf=_FAR), last[:, None])
        shift = (self.best - run.top)[at, None]
        fell = self.members[part] > self.counts[part]
        with np.errstate(over="ignore", invalid="ignore"):
            near = np.clip(a * (shift - np.where(fell, run.ends[part], self.highs[part])), -_FAR, _FAR)
            far = np.clip(a * (shift - self.lows[part]), -_FAR, _FAR)
        living, maybe = columns < self.sure[at, None], columns < self.most_alive[at, None]
        items = Items(
            np.concatenate((depth, near), axis=1),
            np.concatenate((depth, far), axis=1),
            np.concatenate((np.where(living, weights, 0.0), self.low[part]), axis=1),
            np.concatenate((np.where(maybe, weights, 0.0), self.high[part]), axis=1),
        )
        mean_low, mean_high = self._own_means(at)
        open_ = np.flatnonzero(~np.isfinite(mean_high))
        if open_.size:
            mean_low[open_], mean_high[open_] = self._mean_depths(items.rows(open_), at[open_], used)
        total_low, total_high = (total[at] for total in self._weight())
        goal_low, goal_high = (mass - BORDER) * total_low, (mass - BORDER) * total_high
        nearest = Nearest(items, mean_low, mean_high)
        keeps, ends = nearest.borders(goal_low, goal_high)
        least, most = nearest.all_distances()
        stays, may = most <= keeps[:, None], least < ends[:, None]
        # The one that crosses the goal stays: of single tokens the own weight does not count.
        row, column = np.nonzero((may & ~stays & (items.high > 0.0))[:, :width])
        x, own = depth[row, column], items.high[row, column]
        sure, gone = nearest.fate(x, own, row, goal_low, goal_high)
        stays[row, column], may[row, column] = sure, ~gone
        self.low[part] = np.where(stays[:, width:], self.low[part], 0.0)
        self.low[at[self.loose[at]], -1] = 0.0
        self.high[part] = np.where(may[:, width:], self.high[part], 0.0)
        with np.errstate(divide="ignore"):
            x = np.where(self.own[at] > 0, -np.log(self.own[at]), _FAR)
        alive, lost = nearest.fate(x, self.own[at], np.arange(at.size), goal_low, goal_high)
        found.stays[at, :width] = stays[:, :width] & living & (weights > 0.0)
        found.may[at, :width] = may[:, :width] & maybe
        found.alive[at], found.lost[at] = alive & (self.own[at] > 0), lost
        found.weight_low[at] = np.minimum(goal_low * (1 - 1e-9), total_low)

    def _own_means(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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
        return low[at], high[at]

    def _mean_depths(self, items: Items, at: np.ndarray, used: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of the mean depth of what lives, from its parts. used: the bins among the items, which come last."""
        part, bins = np.ix_(at, used), slice(items.near.shape[1] - used.size, None)
        near, far, count, whole = items.near[:, bins], items.far[:, bins], self.members[part], self.full_high[part]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # A bin's mean depth is at most that of equal parts, and at least that of parts at both ends (-x ln x is
            # concave). Filters cut a bin's deepest, so the first holds for what is left of it, too.
            equal = np.log(count / self.full_low[part])
            low_end, high_end = np.exp(-far), np.exp(-near)
            nearer = np.clip((whole - count * low_end) / np.maximum(high_end - low_end, 1e-300), 0.0, count)
            ends = nearer * high_end * near + np.where(low_end > 0, (count - nearer) * low_end * far, 0.0)
            ends = np.where(whole > 0, ends / whole, near)
        uncut = (
            (items.low[:, bins] == self.full_low[part]) & (items.high[:, bins] == whole) & (self.missing[at, None] == 0)
        )
        least, most = items.near.copy(), items.far.copy()
        least[:, bins] = np.where(uncut & np.isfinite(ends), np.clip(ends * (1 - 1e-9) - 1e-9, near, far), near)
        most[:, bins] = np.maximum(np.where(np.isfinite(equal), np.clip(equal + 1e-9, near, far), far), least[:, bins])
        return mean_bounds(items, least, most)

    # -- the draw

    def _greedy(self) -> Redecided:
        first = self.order[:, 0]
        same = self.known & (first == self.run_.chosen)
        fates = np.where(same, STANDS, np.where(self.known, ELSEWHERE, OPEN))
        one = np.where(self.known, 1.0, 1.0)
        others = np.where(self.known & ~same, self.run_.ids[self.rows, first], -1)
        return self._answer(fates, one, one, others)

    def _pick(self) -> Redecided:
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
            terms = np.where(self.weights > 0.0, -self.weights * np.log(self.weights), 0.0)
            sums = np.concatenate((np.zeros((self.run_.rows, 1)), np.cumsum(terms, axis=1)), axis=1)
            least = np.take_along_axis(sums, self.sure[:, None], axis=1)[:, 0]
            most = np.take_along_axis(sums, self.most_alive[:, None], axis=1)[:, 0]
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

    def _answer(self, fates: np.ndarray, low: np.ndarray, high: np.ndarray, others: np.ndarray) -> Redecided:
        run, s = self.run_, self.settings
        cuts = np.where(self.status == _UNSURE, CUT_OPEN, np.where(self.status == _GONE, self.code, NOT_CUT))
        cuts = np.where((self.status == _GONE) & (self.code == 0), CUT_OPEN, cuts)
        cuts = np.where(self.known, cuts, CUT_OPEN)
        low, high = low.copy(), high.copy()
        own = np.array(run.rows_of.get(s, []), dtype=np.int64)  # what it was drawn with
        fates[own], cuts[own], others[own] = STANDS, run.own_cuts[own], -1
        fates[run.forced], others[run.forced] = STANDS, -1  # it would be given again
        low[own] = high[own] = run.own_choices[own]
        return Redecided(
            fates.astype(np.uint8).tobytes(),
            cuts.astype(np.uint8).tobytes(),
            array("d", low.astype(np.float64).tobytes()),
            array("d", high.astype(np.float64).tobytes()),
            array("i", others.astype(np.int32).tobytes()),
        )


def _constrained(settings: SamplingSettings) -> bool:
    return bool(settings.logit_bias or settings.banned or settings.banned_sequences)


def _before_filters(settings: SamplingSettings) -> tuple[object, ...]:
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


def _plain_order(settings: SamplingSettings) -> bool:
    """Whether tokens stand in the order of their raw logits."""
    return _before_filters(settings)[1:] == (1.0, 0.0, 0.0, 0, (), (), ())


def _penalised(raw: np.ndarray, seen: np.ndarray, times: np.ndarray, settings: SamplingSettings) -> np.ndarray:
    """penalties.penalised over rows of named tokens, in the same float32 steps."""
    result = raw
    if settings.repetition_penalty != 1.0:
        penalty = np.float32(max(settings.repetition_penalty, 1e-30))
        with np.errstate(over="ignore", invalid="ignore"):
            changed = np.where(raw < 0, raw * penalty, raw / penalty)
        result = np.where(seen, np.minimum(changed, np.finfo(np.float32).max), raw)
    if settings.presence_penalty or settings.frequency_penalty:
        less = np.float32(settings.presence_penalty) + np.float32(settings.frequency_penalty) * times
        result = np.where(times > 0, result - less, result)
    return result
