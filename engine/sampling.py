"""Logits → waterfall → token. Pure functions over NumPy arrays.

The order is that of transformers' processors: penalties, no-repeat n-gram, then temperature, top-k, top-p, min-p,
typical-p, each on what the last left. NumPy and not torch: these are small operations, and torch's threads make them
slower, a hundred times so on a busy machine. The vocabulary is sorted only as far as a setting asks.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine import redecided as kept_tail
from engine.errors import RunFailed
from engine.events import FILTERS, StageFigures
from engine.settings import SamplingSettings

CANDIDATES_KEPT = 40
NAMED_KEPT = 128  # with those that are kept for other settings, without their texts
# transformers compares float32 sums; a border closer than their rounding is decided as the exact sum would be.
BORDER = 1e-7


class History:
    """The ids that a lane has before it: its prompt and what it wrote. Padding is never among them (SAM-25)."""

    def __init__(self, prompt_ids: list[int]) -> None:
        self.ids = list(prompt_ids)
        self.written: Counter[int] = Counter()
        self.seen = set(prompt_ids)

    def add(self, token_id: int) -> None:
        self.ids.append(token_id)
        self.written[token_id] += 1
        self.seen.add(token_id)


class Ranking:
    """Values with the largest first, among equals the smaller id; sorted only as far as somebody asked."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self._order = np.empty(0, dtype=np.int64)

    def first(self, count: int) -> np.ndarray:
        """Ids of the `count` largest values, int64 [count]."""
        size = self.values.size
        count = min(count, size)
        if count > self._order.size:
            # Ascending ids, so that a stable sort leaves smaller ids first.
            ids = np.arange(size) if count * 8 > size else np.flatnonzero(self.values >= self._border(count))
            self._order = ids[np.argsort(-self.values[ids], kind="stable")]
        return self._order[:count]

    def _border(self, count: int) -> Any:
        """A value that at least `count` of them reach, and few more.

        Most often from the largest of each of many groups: as many groups as that have one that reaches it. A partition
        of all would take ten times as long.
        """
        size = self.values.size
        group = next((g for g in (64, 16) if size >= 4 * g * count), 0)
        if group:
            groups = np.maximum.reduce(self.values[: size // group * group].reshape(group, -1), axis=0)
            return np.partition(groups, groups.size - count)[groups.size - count]
        return np.partition(self.values, size - count)[size - count]

    def rank_of(self, token_id: int) -> int:
        """0 for the largest."""
        value = self.values[token_id]
        return int(np.count_nonzero(self.values > value) + np.count_nonzero(self.values[:token_id] == value))


@dataclass(frozen=True, slots=True)
class Decision:
    """Which token, and the whole waterfall around it. Field meanings as in events.TokenEvent."""

    token_id: int
    candidate_ids: np.ndarray  # int32 [candidates]
    candidate_logits: np.ndarray  # float64, raw
    candidate_adjusted: np.ndarray | None  # float64; None without penalties
    candidate_cuts: bytes
    logsumexp: float
    entropy_nats: float
    final_entropy_nats: float
    stages: tuple[StageFigures, ...]
    rank: int
    logprob: float
    final_logprob: float
    draw_low: float
    draw_high: float
    tail: kept_tail.Tail


def decide(
    logits: np.ndarray,
    history: History,
    settings: SamplingSettings,
    u: float | None,
    step: int = 0,
    precision: str = "",
) -> Decision:
    """The token that `u` picks under these settings, and why.

    logits: float32 [vocab], not changed. u: in [0, 1), None when greedy.
    Raises RunFailed when the logits are broken (NaN, +inf, nothing finite), naming the step and the precision.
    """
    raw = Ranking(logits)
    top, weight, entropy = _spread(logits, 1.0)
    if not math.isfinite(top) or not math.isfinite(weight):
        raise broken_logits(step, precision)
    raw_lse = top + math.log(weight)
    stages = [StageFigures("raw", int(logits.size), raw_lse)]
    funnel, adjusted, banned, before = _adjusted(raw, (top, weight, entropy), history, settings)
    stages += before

    if settings.greedy:
        chosen = int(funnel.ranking.first(1)[0])
        cuts = _no_cuts
        final_entropy, low, high, final_logprob = 0.0, 0.0, 1.0, 0.0
    else:
        if u is None:
            raise ValueError("a draw is needed unless the temperature is 0")
        stages += funnel.run(settings)
        chosen, low, high, final_logprob = funnel.pick(u)
        cuts, final_entropy = funnel.cut_codes, funnel.entropy()

    raw.first(NAMED_KEPT)
    ids = raw.first(CANDIDATES_KEPT)
    where = np.flatnonzero(ids == chosen)
    rank = int(where[0]) if where.size else raw.rank_of(chosen)
    if not where.size:
        ids = np.append(ids, chosen)
    codes = cuts(ids)
    if banned.size:
        codes[np.isin(ids, banned)] = 1 + FILTERS.index("no_repeat_ngram")
    return Decision(
        token_id=chosen,
        candidate_ids=ids.astype(np.int32),
        candidate_logits=logits[ids].astype(np.float64),
        candidate_adjusted=None if adjusted is None else adjusted[ids].astype(np.float64),
        candidate_cuts=codes.tobytes(),
        logsumexp=raw_lse,
        entropy_nats=entropy,
        final_entropy_nats=final_entropy,
        stages=tuple(stages),
        rank=rank,
        logprob=min(0.0, float(logits[chosen]) - raw_lse),
        final_logprob=final_logprob,
        draw_low=low,
        draw_high=high,
        tail=tail_of(raw, top, ids, history),
    )


def tail_of(raw: Ranking, top: float, listed: np.ndarray, history: History) -> kept_tail.Tail:
    """What is kept of the tokens beyond the listed ones, so that other settings can be decided without the model.

    top: the largest raw logit. listed: ids that are kept anyway. The bins are exact in order: equal logits share one.
    """
    logits = raw.values
    named = raw.first(NAMED_KEPT)
    below = float(logits[named[-1]]) if named.size < logits.size else -math.inf
    taken = np.zeros(logits.size, dtype=bool)
    taken[named] = taken[listed] = True
    seen = np.fromiter(history.seen, dtype=np.int64, count=len(history.seen))
    seen = seen[seen < logits.size]
    seen = seen[~taken[seen]]
    near = logits[seen] >= np.float32(top - kept_tail.SEEN_NATS)
    more, far = np.sort(seen[near]), seen[~near]
    chosen = listed[CANDIDATES_KEPT:]  # where it is none of the largest
    gone = np.concatenate((named, seen) if not chosen.size or chosen[0] in named else (named, chosen, seen))
    counts, masses = _binned(logits, np.float32(top))
    less, lighter = _binned(logits[gone], np.float32(top))
    counts, masses = counts - less, np.maximum(masses - lighter, 0.0)
    masses[counts == 0] = 0.0
    used = np.flatnonzero(counts)
    first, last = (int(used[0]), int(used[-1]) + 1) if used.size else (0, 0)
    ids = np.concatenate((named[CANDIDATES_KEPT:], more)).astype(np.int32)
    return kept_tail.Tail(
        ids=array("i", ids.tobytes()),
        logits=array("f", logits[ids].tobytes()),
        below=below,
        first_bin=first,
        counts=array("i", counts[first:last].astype(np.int32).tobytes()),
        masses=array("f", masses[first:last].astype(np.float32).tobytes()),
        seen_count=int(far.size),
        seen_mass=float(np.exp(logits[far].astype(np.float64) - top).sum()),
    )


_FINE = np.float32(1.0 / kept_tail.FINE_NATS)
_COARSE = round(kept_tail.COARSE_NATS / kept_tail.FINE_NATS)  # fine places in a coarse bin
_PLACES = kept_tail.FINE_BINS + _COARSE * kept_tail.COARSE_BINS
_PLACE_STARTS = np.append(np.arange(kept_tail.FINE_BINS), np.arange(kept_tail.FINE_BINS, _PLACES + 1, _COARSE))
_BIN_OF_PLACE = np.repeat(np.arange(kept_tail.BINS_OF_TAIL), np.diff(_PLACE_STARTS, append=_PLACES + 1))


def _places(depth: np.ndarray) -> np.ndarray:
    return (np.minimum(depth, np.float32(_PLACES) / _FINE) * _FINE).astype(np.int64)


def bins_of(depth: np.ndarray) -> np.ndarray:
    """The bin of each logit that lies this far (float32, at least 0) below the largest, of the same shape."""
    return _BIN_OF_PLACE[_places(depth)]


def bin_edges() -> np.ndarray:
    """How far below the largest logit each bin begins, in nats, and at last infinity. float64 [bins + 1]."""
    return np.append(_PLACE_STARTS / float(_FINE), np.inf)


_PIECE = 8192  # small enough that its arrays stay in the processor's cache: three times as fast as all at once


def _binned(values: np.ndarray, top: np.float32) -> tuple[np.ndarray, np.ndarray]:
    """How many of these logits, and the sum of exp(logit - top), in each bin."""
    counts, masses = np.zeros(_PLACES + 1, dtype=np.int64), np.zeros(_PLACES + 1)
    for start in range(0, values.size, _PIECE):
        with np.errstate(over="ignore"):
            depth = top - values[start : start + _PIECE]
        places = _places(depth)
        counts += np.bincount(places, minlength=_PLACES + 1)
        masses += np.bincount(places, np.exp(-depth), minlength=_PLACES + 1)
    return np.add.reduceat(counts, _PLACE_STARTS), np.add.reduceat(masses, _PLACE_STARTS)


def _adjusted(
    raw: Ranking, spread: tuple[float, float, float], history: History, settings: SamplingSettings
) -> tuple[_Funnel, np.ndarray | None, np.ndarray, list[StageFigures]]:
    """What stands before temperature: penalties and the n-gram ban.

    spread: that of the raw logits. Returns the funnel that temperature and filters go on with, the penalised logits
    (None where no penalty applies), the banned ids, and the figures of the stages that are on.
    """
    ranking, kept, stages = raw, int(raw.values.size), []
    adjusted = penalised(raw.values, history, settings)
    if adjusted is not None:
        ranking, spread = Ranking(adjusted), _spread(adjusted, 1.0)
        stages.append(StageFigures("penalties", kept, spread[0] + math.log(spread[1])))
    values, banned = _without_repeats(ranking.values, history, settings)
    if settings.no_repeat_ngram_size:
        if banned.size:
            ranking, spread = Ranking(values), _spread(values, 1.0)
        kept -= int(banned.size)
        stages.append(StageFigures("no_repeat_ngram", kept, spread[0] + math.log(spread[1])))
    top, weight, entropy = spread
    return _Funnel(ranking, top, weight, kept, settings.temperature, entropy), adjusted, banned, stages


def broken_logits(step: int, precision: str = "") -> RunFailed:
    return RunFailed(
        "The model gave numbers that are not finite at step {step}, in {precision}.",
        "float16 overflow is the usual cause; try bfloat16 or float32.",
        step=step,
        precision=precision or "an unknown precision",
    )


def _spread(values: np.ndarray, temperature: float) -> tuple[float, float, float]:
    """The largest value, the sum of exp((value - largest) / temperature), and that distribution's entropy in nats."""
    top = float(values.max())
    if not math.isfinite(top):
        return top, math.nan, math.nan
    with np.errstate(over="ignore", invalid="ignore"):  # -inf, and -inf * 0, where a token is impossible
        below = (values - np.float32(top)) * np.float32(1.0 / max(temperature, 1e-30))
        weights = np.exp(below)
        total = float(weights.sum(dtype=np.float64))
        np.multiply(below, weights, out=below)
        slope = float(below.sum(dtype=np.float64))
    if not math.isfinite(slope):
        slope = float(np.nansum(below, dtype=np.float64))
    return top, total, max(0.0, math.log(total) - slope / total)


def penalised(logits: np.ndarray, history: History, settings: SamplingSettings) -> np.ndarray | None:
    """Logits after the penalties, or None where none applies. float32 [vocab].

    The repetition penalty counts each token of prompt and text once, divides a positive and multiplies a negative
    logit (Keskar et al. 2019, as transformers does). Presence and frequency count written tokens only (OpenAI API).
    """
    result: np.ndarray | None = None
    if settings.repetition_penalty != 1.0 and history.seen:
        result = logits.copy()
        ids = np.fromiter(history.seen, dtype=np.int64)
        ids = ids[ids < logits.size]
        values = result[ids]
        penalty = np.float32(max(settings.repetition_penalty, 1e-30))  # below, float32 would make it 0
        with np.errstate(over="ignore"):
            values = np.where(values < 0, values * penalty, values / penalty)
        result[ids] = np.minimum(values, np.finfo(np.float32).max)
    if (settings.presence_penalty or settings.frequency_penalty) and history.written:
        result = logits.copy() if result is None else result
        ids = np.fromiter(history.written.keys(), dtype=np.int64)
        counts = np.fromiter(history.written.values(), dtype=np.float32)
        result[ids] -= np.float32(settings.presence_penalty) + np.float32(settings.frequency_penalty) * counts
    return result


def banned_by_ngram(ids: list[int], size: int) -> np.ndarray:
    """Tokens that would complete an n-gram that is already there, as transformers' no_repeat_ngram_size. int64."""
    if size <= 0 or len(ids) + 1 < size:
        return np.empty(0, dtype=np.int64)
    context = np.asarray(ids, dtype=np.int64)
    if size == 1:
        return np.unique(context)
    starts = len(ids) - size + 1
    matches = np.ones(max(starts, 0), dtype=bool)
    for offset in range(size - 1):
        matches &= context[offset : offset + starts] == context[len(ids) - size + 1 + offset]
    return np.unique(context[np.flatnonzero(matches) + size - 1])


def _without_repeats(values: np.ndarray, history: History, settings: SamplingSettings) -> tuple[np.ndarray, np.ndarray]:
    """Values where banned tokens are impossible, and their ids. Where nobody would be left, the most probable one is
    not banned (SAM-6)."""
    banned = banned_by_ngram(history.ids, settings.no_repeat_ngram_size)
    banned = banned[banned < values.size]
    if not banned.size:
        return values, banned
    left = values.copy()
    left[banned] = -np.inf
    if not math.isfinite(left.max()):
        best = int(values.argmax())
        left[best], banned = values[best], banned[banned != best]
    return left, banned


def _no_cuts(ids: np.ndarray) -> np.ndarray:
    return np.zeros(ids.size, dtype=np.uint8)


class _Funnel:
    """Temperature and the filters. Until typical-p, what survives is always the first `kept` of the ranking."""

    def __init__(
        self, ranking: Ranking, top: float, weight: float, kept: int, temperature: float, entropy: float
    ) -> None:
        self.ranking, self.top, self.weight, self.kept = ranking, top, weight, kept
        self.temperature = temperature
        self.whole = True  # nothing cut by the filters yet: `weight` is the sum over all that came in
        self.survivors = np.empty(0, dtype=np.int64)  # filled once the filters have cut
        self.weights = np.empty(0, dtype=np.float64)
        self._entropy = entropy
        self._borders: list[tuple[int, float, int]] = []  # cut code, value and id of the last that was kept
        self._typical: np.ndarray | None = None

    def run(self, settings: SamplingSettings) -> list[StageFigures]:
        """Applies every stage that is on; returns what each left."""
        figures: list[StageFigures] = []
        if self.temperature != 1.0:
            _, self.weight, self._entropy = _spread(self.ranking.values, self.temperature)
            figures.append(self._figures("temperature"))
        if settings.top_k:
            if settings.top_k < self.kept:
                border = self.ranking.values[self.ranking.first(settings.top_k)[-1]]
                self._keep("top_k", int(np.count_nonzero(self.ranking.values >= border)))  # ties stay
            figures.append(self._figures("top_k"))
        if settings.top_p < 1.0:
            self._keep("top_p", self._nucleus(settings.top_p))
            figures.append(self._figures("top_p"))
        if settings.min_p > 0.0:
            self._keep("min_p", self._at_least(settings.min_p))
            figures.append(self._figures("min_p"))
        if settings.typical_p < 1.0:
            self._keep_typical(settings.typical_p)
            figures.append(self._figures("typical_p"))
        return figures

    def _figures(self, name: str) -> StageFigures:
        return StageFigures(name, self.kept, self.top / self.temperature + math.log(self.weight))

    def _weights_of(self, ids: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):  # a tiny temperature: beyond every number below the largest
            return np.exp((self.ranking.values[ids].astype(np.float64) - self.top) / self.temperature)

    def _growing(self):
        """Ids and weights of ever longer beginnings of what is left, so that few tokens are sorted when few matter."""
        if not self.whole:
            yield self.survivors, self.weights
            return
        size = 64
        while True:
            size = min(size, self.kept)
            ids = self.ranking.first(size)
            yield ids, self._weights_of(ids)
            if size == self.kept:
                return
            size *= 16

    def _nucleus(self, top_p: float) -> int:
        """How many of the most probable are needed to reach top_p; the one that crosses it counts (Holtzman 2020)."""
        count = 1
        for _, weights in self._growing():
            before = np.concatenate(([0.0], np.cumsum(weights)[:-1]))
            count = int(np.count_nonzero(before < (top_p - BORDER) * self.weight))
            if count < weights.size:
                break
        return max(1, count)

    def _at_least(self, min_p: float) -> int:
        """How many have at least min_p times the largest probability (Nguyen et al. 2024)."""
        border = min_p * (1.0 - BORDER)
        if not self.whole:
            return max(1, int(np.count_nonzero(self.weights >= border)))
        scaled = (self.ranking.values - np.float32(self.top)) / np.float32(max(self.temperature, 1e-30))
        return max(1, int(np.count_nonzero(scaled >= math.log(border))))

    def _keep(self, stage: str, count: int) -> None:
        if count >= self.kept:
            return
        ids = self.ranking.first(count) if self.whole else self.survivors[:count]
        self.survivors, self.weights = ids, self._weights_of(ids)
        self.weight, self.kept, self.whole = float(self.weights.sum()), count, False
        self._borders.append((1 + FILTERS.index(stage), float(self.ranking.values[ids[-1]]), int(ids[-1])))

    def _keep_typical(self, mass: float) -> None:
        """Keeps those whose surprise is nearest the entropy until they share `mass` (Meister et al. 2022)."""
        if mass > 1.0 - BORDER:
            return  # what it would cut is less than transformers' rounding
        if self.whole:
            ids = self.ranking.first(self.kept)
            self.survivors, self.weights = ids, self._weights_of(ids)
        possible = self.weights > 0.0
        ids, weights = self.survivors[possible], self.weights[possible]
        total = float(weights.sum())
        surprise = math.log(total) - np.log(weights)
        entropy = float((weights * surprise).sum()) / total
        distance = np.abs(surprise - entropy)
        order = np.argsort(distance, kind="stable")
        shares = np.cumsum(weights[order]) / total
        last = min(int(np.count_nonzero(shares < mass - BORDER)), order.size - 1)
        keep = distance <= distance[order[last]] + 1e-12
        self.survivors, self.weights = ids[keep], weights[keep]
        self.weight, self.kept, self.whole = float(self.weights.sum()), int(self.survivors.size), False
        self._typical = self.survivors

    def pick(self, u: float) -> tuple[int, float, float, float]:
        """The token where u falls, most probable first: its id, its interval, the log of its probability."""
        target = u * self.weight
        ids, weights, sums = self.survivors, self.weights, np.empty(0)
        for ids, weights in self._growing():  # noqa: B007  what the last round left is used below
            sums = np.cumsum(weights)
            if sums[-1] > target:
                break
        at = int(np.searchsorted(sums, target, side="right"))
        # Rounding may leave the target beyond the last sum (SAM-8): then the last that is possible at all.
        at = min(at, int(np.flatnonzero(weights > 0.0)[-1]))
        low = 0.0 if at == 0 else float(sums[at - 1]) / self.weight
        high = min(1.0, float(sums[at]) / self.weight)
        return int(ids[at]), min(low, 1.0), high, math.log(min(1.0, float(weights[at]) / self.weight))

    def entropy(self) -> float:
        if self.whole:
            return self._entropy
        shares = self.weights[self.weights > 0.0] / self.weight
        return max(0.0, float(-(shares * np.log(shares)).sum()))

    def cut_codes(self, ids: np.ndarray) -> np.ndarray:
        """For each id 0, or the code of the first filter that cut it. uint8 [ids]."""
        codes = np.zeros(ids.size, dtype=np.uint8)
        values = self.ranking.values[ids].astype(np.float64)
        for code, value, last in self._borders:
            gone = (values < value) | ((values == value) & (ids > last))
            codes[gone & (codes == 0)] = code
        if self._typical is not None:
            gone = ~np.isin(ids, self._typical)
            codes[gone & (codes == 0)] = 1 + FILTERS.index("typical_p")
        return codes


def final_probabilities(logits: np.ndarray, history: History, settings: SamplingSettings) -> np.ndarray:
    """The whole distribution that is drawn from, float64 [vocab]; 1 at the greedy choice. For exports and checks."""
    result = np.zeros(logits.size)
    if settings.greedy:
        result[decide(logits, history, settings, None).token_id] = 1.0
        return result
    funnel, *_ = _adjusted(Ranking(logits), _spread(logits, 1.0), history, settings)
    funnel.run(settings)
    for ids, weights in funnel._growing():
        result[ids] = weights
    return result / result.sum()
