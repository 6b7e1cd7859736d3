"""Logits → waterfall → token. Pure functions over NumPy arrays.

The order is that of transformers' processors: logit bias, penalties, no-repeat n-gram, banned tokens, then temperature,
top-k, top-p, min-p, typical-p, each on what the last left. NumPy and not torch: these are small operations, and torch's
threads make them slower, a hundred times so on a busy machine. The vocabulary is sorted only as far as a setting asks.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.errors import RunFailed
from engine.events import FILTERS, StageFigures
from engine.penalties import Bans, bans_of, biased, penalised
from engine.redecided import Tail
from engine.settings import SamplingSettings
from engine.tail import NAMED_KEPT, Weighed, tail_of, weighed

CANDIDATES_KEPT = 40
# transformers compares float32 sums; a border closer than their rounding is decided as the exact sum would be.
BORDER = 1e-7


class History:
    """The ids that a lane has before it: its prompt and what it wrote. Padding is never among them (SAM-25)."""

    def __init__(self, prompt_ids: list[int]) -> None:
        self.ids = list(prompt_ids)
        self.written: Counter[int] = Counter()
        self.seen = set(prompt_ids)
        self._seen_ids = np.fromiter(self.seen, dtype=np.int64, count=len(self.seen))

    def add(self, token_id: int) -> None:
        self.ids.append(token_id)
        self.written[token_id] += 1
        if token_id not in self.seen:
            if len(self.seen) == self._seen_ids.size:
                self._seen_ids = np.resize(self._seen_ids, 2 * self._seen_ids.size + 64)
            self._seen_ids[len(self.seen)] = token_id
            self.seen.add(token_id)

    @property
    def seen_ids(self) -> np.ndarray:
        """The ids of `seen` as they came, int64 [seen]."""
        return self._seen_ids[: len(self.seen)]


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
    candidate_adjusted: np.ndarray | None  # float64; None without bias and penalties
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
    tail: Tail


def decide(
    logits: np.ndarray,
    history: History,
    settings: SamplingSettings,
    u: float | None,
    step: int = 0,
    precision: str = "",
    forced: int | None = None,
) -> Decision:
    """The token that `u` picks under these settings, and why.

    logits: float32 [vocab], not changed. u: in [0, 1), None when greedy. forced: this token is taken whatever `u` and
    the settings say; its odds are told all the same (a final_logprob of -inf where the settings cut it).
    Raises RunFailed when the logits are broken (NaN, +inf, nothing finite), naming the step and the precision, and when
    everything is banned.
    """
    raw = Ranking(logits)
    top = float(logits.max())  # NaN if any is
    if not math.isfinite(top):
        raise broken_logits(step, precision)
    raw.first(NAMED_KEPT)  # at once: whoever asks for fewer then finds them in order
    all_of = weighed(logits, top, settings.temperature if not settings.greedy else 1.0)
    raw_lse = top + math.log(all_of.total)
    stages = [StageFigures("raw", int(logits.size), raw_lse)]
    funnel, adjusted, bans, before = _adjusted(raw, all_of, history, settings, step)
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
    if forced is not None and forced != chosen:
        if settings.greedy:
            chosen, final_logprob = forced, -math.inf
        else:
            chosen, low, high, final_logprob = funnel.place_of(forced)

    ids = largest = raw.first(CANDIDATES_KEPT)
    where = np.flatnonzero(ids == chosen)
    rank = int(where[0]) if where.size else raw.rank_of(chosen)
    if not where.size:
        ids = np.append(ids, chosen)
    codes = cuts(ids)
    bans.mark(ids, codes)
    return Decision(
        token_id=chosen,
        candidate_ids=ids.astype(np.int32),
        candidate_logits=logits[ids].astype(np.float64),
        candidate_adjusted=None if adjusted is None else adjusted[ids].astype(np.float64),
        candidate_cuts=codes.tobytes(),
        logsumexp=raw_lse,
        entropy_nats=all_of.entropy_nats,
        final_entropy_nats=final_entropy,
        stages=tuple(stages),
        rank=rank,
        logprob=min(0.0, float(logits[chosen]) - raw_lse),
        final_logprob=final_logprob,
        draw_low=low,
        draw_high=high,
        tail=tail_of(raw, all_of, largest, ids[largest.size :], history, settings),
    )


def _adjusted(
    raw: Ranking, all_of: Weighed, history: History, settings: SamplingSettings, step: int
) -> tuple[_Funnel, np.ndarray | None, Bans, list[StageFigures]]:
    """What stands before temperature: bias, penalties and bans.

    Returns the funnel that temperature and filters go on with, the changed logits (None where neither bias nor penalty
    applies), the bans, and the figures of the stages that are on.
    """
    ranking, kept, stages = raw, int(raw.values.size), []

    def figures(name: str, count: int) -> None:
        stages.append(StageFigures(name, count, all_of.top + math.log(all_of.total)))

    def changed_to(values: np.ndarray) -> tuple[Ranking, Weighed]:
        temperature = settings.temperature if not settings.greedy else 1.0
        return Ranking(values), weighed(values, float(values.max()), temperature, by_place=False)

    adjusted = biased(raw.values, settings)
    if adjusted is not None:
        ranking, all_of = changed_to(adjusted)
    if settings.logit_bias:
        figures("bias", kept)
    changed = penalised(ranking.values, history, settings)
    if changed is not None:
        adjusted = changed
        ranking, all_of = changed_to(changed)
        figures("penalties", kept)
    bans = bans_of(ranking.values, history, settings, step)
    person = bool(settings.banned or settings.banned_sequences)
    for name, on, gone in (
        ("no_repeat_ngram", bool(settings.no_repeat_ngram_size), bans.repeats),
        ("banned", person, bans.banned),
    ):
        if gone.size:
            left = ranking.values.copy()
            left[gone] = -np.inf
            ranking, all_of = changed_to(left)
            kept -= int(gone.size)
        if on:
            figures(name, kept)
    return _Funnel(ranking, all_of, kept, settings.temperature), adjusted, bans, stages


def broken_logits(step: int, precision: str = "") -> RunFailed:
    return RunFailed(
        "The model gave numbers that are not finite at step {step}, in {precision}.",
        "float16 overflow is the usual cause; try bfloat16 or float32.",
        step=step,
        precision=precision or "an unknown precision",
    )


def _no_cuts(ids: np.ndarray) -> np.ndarray:
    return np.zeros(ids.size, dtype=np.uint8)


class _Funnel:
    """Temperature and the filters. Until typical-p, what survives is always the first `kept` of the ranking."""

    def __init__(self, ranking: Ranking, all_of: Weighed, kept: int, temperature: float) -> None:
        self.ranking, self.all_of, self.kept, self.temperature = ranking, all_of, kept, temperature
        self.top, self.weight = all_of.top, all_of.total
        self.whole = True  # nothing cut by the filters yet: `weight` is the sum over all that came in
        self.survivors = np.empty(0, dtype=np.int64)  # filled once the filters have cut
        self.weights = np.empty(0, dtype=np.float64)
        self._borders: list[tuple[int, float, int]] = []  # cut code, value and id of the last that was kept
        self._typical: np.ndarray | None = None

    def run(self, settings: SamplingSettings) -> list[StageFigures]:
        """Applies every stage that is on; returns what each left."""
        figures: list[StageFigures] = []
        if self.temperature != 1.0:
            self.weight = self.all_of.hot_total
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
        count = 1
        for ids, _ in self._growing():
            scaled = (self.ranking.values[ids] - np.float32(self.top)) / np.float32(max(self.temperature, 1e-30))
            count = int(np.count_nonzero(scaled >= math.log(border)))
            if count < ids.size:
                break
        return max(1, count)

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
        return self._placed(at, ids, weights, sums)

    def place_of(self, token_id: int) -> tuple[int, float, float, float]:
        """As `pick`, for a given token. One that was cut has no interval, and a probability of 0."""
        ids, weights = self.survivors, self.weights
        for ids, weights in self._growing():  # noqa: B007  what the last round left is used below
            if token_id in ids:
                break
        found = np.flatnonzero(ids == token_id)
        if not found.size or weights[found[0]] <= 0.0:
            return token_id, 0.0, 0.0, -math.inf
        return self._placed(int(found[0]), ids, weights, np.cumsum(weights))

    def _placed(
        self, at: int, ids: np.ndarray, weights: np.ndarray, sums: np.ndarray
    ) -> tuple[int, float, float, float]:
        """What `pick` returns, for the token at this place of these. The last one's interval ends at 1: the whole
        weight is another sum than theirs, by rounding."""
        low = float(sums[at - 1]) / self.weight if at else 0.0
        last = ids.size == self.kept and not weights[at + 1 :].any()
        high = 1.0 if last else min(1.0, float(sums[at]) / self.weight)
        return int(ids[at]), min(low, 1.0), high, math.log(min(1.0, float(weights[at]) / self.weight))

    def entropy(self) -> float:
        if self.whole:
            return self.all_of.hot_entropy_nats
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
    all_of = weighed(logits, float(logits.max()), settings.temperature, by_place=False)
    funnel, *_ = _adjusted(Ranking(logits), all_of, history, settings, 0)
    funnel.run(settings)
    for ids, weights in funnel._growing():
        result[ids] = weights
    return result / result.sum()
