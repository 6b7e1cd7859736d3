"""What was kept of some tokens of a finished run, as arrays, so that they are decided together.

A token's logits are known by name or counted in bins; what is only counted is known within bounds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from engine.draw import draw
from engine.events import RunStart, TokenEvent
from engine.redecided import BINS_OF_TAIL, NOT_CUT, SEEN_NATS
from engine.settings import SamplingSettings
from engine.tail import bin_edges

# sampling.py sums a whole vocabulary in float32: its sum may differ from the exact one by less than this share.
SUM_ERROR = 4e-6
NOBODY = np.iinfo(np.int64).max  # in place of an id, where a row names fewer tokens than others


@dataclass(frozen=True, slots=True)
class Constraints:
    """bias: float32 [rows, named]. banned: bool [rows, named]. touched, unnamed_banned: [rows], tokens of no name that
    are biased or banned, and that are banned (at most). lift: the largest bias, at least 0."""

    bias: np.ndarray
    banned: np.ndarray
    touched: np.ndarray
    unnamed_banned: np.ndarray
    lift: float


class WrittenText:
    """The ids of a run, prompt and all: its tokens, of which each is decided after those before it."""

    def __init__(self, start: RunStart, tokens: Sequence[TokenEvent]) -> None:
        before = list(start.written)[: tokens[0].step] if tokens else []
        written = [*before, *(token.token_id for token in tokens)]
        self.prompt = np.array([token.token_id for token in start.prompt_tokens], dtype=np.int64)
        self.written = np.array(written, dtype=np.int64)
        self.ids: list[int] = [*self.prompt.tolist(), *written]
        self.written_before = len(before)  # token i of the run comes after so many written ones and i more
        self.begun = self.prompt.size + len(before)
        # Where each id was written: sorted by id, then by place.
        self.stride = self.written.size + 1
        self.places = np.sort(self.written * self.stride + np.arange(self.written.size))
        known = set(self.prompt.tolist()) | set(before)
        self.distinct = np.zeros(len(tokens), dtype=np.int64)  # ids before each token
        for row, token in enumerate(tokens):
            self.distinct[row] = len(known)
            known.add(token.token_id)
        self.most_times = int(np.unique(self.written, return_counts=True)[1].max()) if written else 0
        self._repeats: dict[int, list[frozenset[int]]] = {}

    def times(self, ids: np.ndarray, at: np.ndarray) -> np.ndarray:
        """How often each id was written before its row's token: int64 [rows, named]. at: the rows' tokens."""
        low = np.searchsorted(self.places, ids * self.stride)
        return np.searchsorted(self.places, ids * self.stride + (self.written_before + at)[:, None]) - low

    def repeats(self, size: int) -> list[frozenset[int]]:
        """For each token the ids that would complete an n-gram of this size that is already there."""
        if size not in self._repeats:
            after: defaultdict[tuple[int, ...], set[int]] = defaultdict(set)
            ids, done, found = self.ids, size - 1, []
            for length in range(self.begun, len(ids)):
                while done < length:
                    after[tuple(ids[done - size + 1 : done])].add(ids[done])
                    done += 1
                ends = tuple(ids[length - size + 1 : length]) if length + 1 >= size else None
                found.append(frozenset(after.get(ends, ())) if ends is not None else frozenset())
            self._repeats[size] = found
        return self._repeats[size]


class KeptRows:
    """Some tokens of a run, a row each. Made once, then decided as often as a setting moves."""

    def __init__(self, text: WrittenText, tokens: Sequence[TokenEvent], at: np.ndarray) -> None:
        """at: int64 [rows], which of the run's tokens these are."""
        self.text, self.tokens, self.at = text, tuple(tokens), at
        self.rows = rows = len(self.tokens)
        named = [named_logits(token) for token in self.tokens]
        width = max((ids.size for ids, _ in named), default=1)
        self.ids = np.full((rows, width), NOBODY, dtype=np.int64)  # ascending, so that a stable sort leaves them so
        self.raw = np.full((rows, width), -np.inf, dtype=np.float32)
        for row, (ids, logits) in enumerate(named):
            self.ids[row, : ids.size], self.raw[row, : ids.size] = ids, logits
        self.chosen_id = np.array([token.token_id for token in self.tokens], dtype=np.int64)
        self.chosen = np.argmax(self.ids == self.chosen_id[:, None], axis=1) if rows else np.empty(0, dtype=np.int64)
        self.top = self.raw.max(axis=1) if rows else np.empty(0, dtype=np.float32)
        self.vocab = np.array([token.vocab_size for token in self.tokens], dtype=np.int64)
        self._ordered: tuple[tuple[object, ...], np.ndarray, np.ndarray, np.ndarray] | None = None
        self._banned: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self._constrained: dict[tuple[object, ...], Constraints] = {}
        # What stands before the filters, by Deciding: the newest, since most often it is a filter that moves.
        self.before_filters: tuple[tuple[object, ...], dict[str, Any]] | None = None
        real = np.where(self.ids == NOBODY, -1, self.ids)
        self.times = text.times(real, at).astype(np.float32)
        self.seen = (self.times > 0) | np.isin(real, text.prompt)
        self.unnamed_seen = text.distinct[at] - self.seen.sum(axis=1)  # of prompt and text, their logits not known
        self._read_tails()
        self._read_own()

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

    def ordered(self, key: tuple[object, ...], values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The order of the named tokens, largest first, their values in it, and the chosen one's place. The newest is
        kept: a filter or the temperature that moves leaves it as it is. key: the settings that these values hang on."""
        if self._ordered is None or self._ordered[0] != key:
            order = _largest_first(values)
            in_order = values.ravel().take(order + values.shape[1] * np.arange(self.rows)[:, None])
            self._ordered = key, order, in_order, np.argmax(order == self.chosen[:, None], axis=1)
        return self._ordered[1:]

    def draws(self, settings: SamplingSettings) -> np.ndarray:
        """The number that each token's step draws from the settings' seed, float64 [rows]."""
        seed = settings.seed
        return np.array(
            [t.u if t.u is not None and t.settings.seed == seed else _draw(seed, t.step) for t in self.tokens]
        )

    def constraints(self, settings: SamplingSettings) -> Constraints:
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
        if constrained(s):
            values = values + self.constraints(s).bias
        if s.repetition_penalty != 1.0 or s.presence_penalty != 0.0 or s.frequency_penalty != 0.0:
            values = penalised_rows(values, self.seen, self.times, s)
        if s.no_repeat_ngram_size:
            values = np.where(self.banned(s.no_repeat_ngram_size)[0], np.float32(-np.inf), values)
        if s.banned or s.banned_sequences:
            values = np.where(self.constraints(s).banned, np.float32(-np.inf), values)
        return values

    def _find_constraints(self, settings: SamplingSettings) -> Constraints:
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
        sequence = np.array(self.text.ids, dtype=np.int64)
        for *before, last in settings.banned_sequences:
            ends = np.ones(self.rows, dtype=bool)  # rows whose text ends with `before`
            for back, token_id in enumerate(reversed(before), start=1):
                at = self.text.begun + self.at - back
                ends &= np.where(at >= 0, sequence[np.maximum(at, 0)] == token_id, False)
            if last not in settings.banned:
                named = self.ids == last
                unnamed_banned += ends & ~(named.any(axis=1)) & (last < self.vocab)
                mask |= named & ends[:, None]
        most = max((add for _, add in settings.logit_bias), default=0.0)
        return Constraints(bias, mask, touched + unnamed_banned, unnamed_banned, max(0.0, most))

    def banned(self, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(which named tokens would repeat an n-gram, [rows, named]; how many do in all; how many of no name)."""
        if size not in self._banned:
            self._banned[size] = self._find_banned(size)
        return self._banned[size]

    def _find_banned(self, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        mask = np.zeros(self.ids.shape, dtype=bool)
        count, unnamed = np.zeros(self.rows, dtype=np.int64), np.zeros(self.rows, dtype=np.int64)
        repeats = self.text.repeats(size)
        for row, place in enumerate(self.at.tolist()):
            if found := repeats[place]:
                these = np.fromiter(found, dtype=np.int64, count=len(found))
                these = these[these < self.vocab[row]]
                mask[row] = np.isin(self.ids[row], these)
                count[row] = these.size
                unnamed[row] = these.size - mask[row].sum()
        return mask, count, unnamed


def constrained(settings: SamplingSettings) -> bool:
    return bool(settings.logit_bias or settings.banned or settings.banned_sequences)


def penalised_rows(raw: np.ndarray, seen: np.ndarray, times: np.ndarray, settings: SamplingSettings) -> np.ndarray:
    """penalties.penalised over rows of named tokens, in the same float32 steps."""
    result = raw.copy()
    flat = result.ravel()
    if settings.repetition_penalty != 1.0:
        penalty = np.float32(max(settings.repetition_penalty, 1e-30))
        at = np.flatnonzero(seen)  # much fewer
        these = flat[at]
        with np.errstate(over="ignore", invalid="ignore"):
            changed = np.where(these < 0, these * penalty, these / penalty)
        flat[at] = np.minimum(changed, np.finfo(np.float32).max)
    if settings.presence_penalty or settings.frequency_penalty:
        at = np.flatnonzero(times > 0)
        presence, frequency = np.float32(settings.presence_penalty), np.float32(settings.frequency_penalty)
        flat[at] -= presence + frequency * times.ravel()[at]
    return result


def _largest_first(values: np.ndarray) -> np.ndarray:
    """Columns of each row, largest value first, of equal ones the first. float32 [rows, columns], none NaN → int64.

    A float's bits, as a whole number, order as floats do but for the negative ones, which are turned round. With the
    column below them one fast sort of whole numbers does what a stable sort of floats takes six times as long for.
    """
    bits = (np.float32(0.0) - values).view(np.int32)  # 0 - 0 is +0: both zeros are one
    keys = (bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))).astype(np.int64)
    keys <<= 32
    keys |= np.arange(values.shape[1])
    keys.sort(axis=1)
    return keys & 0xFFFFFFFF


def _own_cut(token: TokenEvent) -> int:
    """The code of what cut the token itself: only one that was given can be cut."""
    return token.candidate_cuts[token.candidate_ids.index(token.token_id)] if token.forced else NOT_CUT


@lru_cache(maxsize=20_000)
def _draw(seed: int, step: int) -> float:
    return draw(seed, step)


def named_logits(token: TokenEvent) -> tuple[np.ndarray, np.ndarray]:
    """Ids, ascending, and raw logits of all that are kept by name: int64 and float32."""
    ids = np.array(token.candidate_ids, dtype=np.int64)
    # A damaged file may hold more than a float32 does.
    logits = np.minimum(token.candidate_logits, np.finfo(np.float32).max).astype(np.float32)
    if token.tail is not None:
        ids = np.concatenate((ids, np.array(token.tail.ids, dtype=np.int64)))
        logits = np.concatenate((logits, np.array(token.tail.logits, dtype=np.float32)))
    once, first = np.unique(ids, return_index=True)  # the chosen one may be listed and among the next
    return once, logits[first]


def named_count(token: TokenEvent) -> int:
    """How many logits of it are kept by name, or one more: the chosen one may be among them twice."""
    return len(token.candidate_ids) + (len(token.tail.ids) if token.tail is not None else 0)
