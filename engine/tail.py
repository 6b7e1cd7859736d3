"""What is kept of the tokens beyond the listed ones, so that other settings can be decided without the model."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from engine import redecided as kept
from engine.settings import SamplingSettings

if TYPE_CHECKING:
    from engine.sampling import History, Ranking

NAMED_KEPT = 128  # with the listed ones


def tail_of(
    raw: Ranking, all_of: Weighed, listed: np.ndarray, others: np.ndarray, history: History, settings: SamplingSettings
) -> kept.Tail:
    """The tail of one decision. Bins are exact in order: equal logits share one.

    all_of: the raw logits, by `weighed`. listed: ids of the largest that are kept anyway. others: what is listed beyond
        those.
    """
    logits, top = raw.values, all_of.top
    named = raw.first(NAMED_KEPT)
    below = float(logits[named[-1]]) if named.size < logits.size else -math.inf
    taken = np.zeros(logits.size, dtype=bool)
    taken[named] = taken[others] = True
    constrained = np.empty(0, dtype=np.int64)
    if settings.logit_bias or settings.banned or settings.banned_sequences:
        constrained = _constrained(settings.logit_bias, settings.banned, settings.banned_sequences)
        constrained = constrained[constrained < logits.size]
        constrained = constrained[~taken[constrained]]
        taken[constrained] = True
    seen = history.seen_ids
    seen = seen[seen < logits.size]
    seen = seen[~taken[seen]]
    near = logits[seen] >= np.float32(top - kept.SEEN_NATS)
    more, far = np.sort(np.concatenate((seen[near], constrained))), seen[~near]
    if others.size and others[0] in named:  # at most the chosen one
        others = others[:0]
    gone = np.concatenate((named, others, more, far))
    counts, masses = binned(logits, all_of, gone)
    used = np.flatnonzero(counts)
    first, last = (int(used[0]), int(used[-1]) + 1) if used.size else (0, 0)
    ids = np.concatenate((named[listed.size :], more)).astype(np.int32)
    return kept.Tail(
        ids=array("i", ids.tobytes()),
        logits=array("f", logits[ids].tobytes()),
        below=below,
        first_bin=first,
        counts=array("i", counts[first:last].astype(np.int32).tobytes()),
        masses=array("f", masses[first:last].astype(np.float32).tobytes()),
        seen_count=int(far.size),
        seen_mass=float(np.exp(logits[far].astype(np.float64) - top).sum()),
    )


@lru_cache(maxsize=64)
def _constrained(
    logit_bias: tuple[tuple[int, float], ...], banned: tuple[int, ...], sequences: tuple[tuple[int, ...], ...]
) -> np.ndarray:
    """Tokens that a person biased or banned: kept by name, so that a bias that moves is decided exactly. int64."""
    ids = {token_id for token_id, _ in logit_bias} | set(banned) | {sequence[-1] for sequence in sequences}
    return np.array(sorted(ids), dtype=np.int64)


_PER_NAT = round(1.0 / kept.FINE_NATS)
_COARSE = round(kept.COARSE_NATS / kept.FINE_NATS)  # fine places in a coarse bin
_PLACES = kept.FINE_BINS + _COARSE * kept.COARSE_BINS
_PLACE_STARTS = np.append(np.arange(kept.FINE_BINS), np.arange(kept.FINE_BINS, _PLACES + 1, _COARSE))
_BIN_OF_PLACE = np.repeat(np.arange(kept.BINS_OF_TAIL), np.diff(_PLACE_STARTS, append=_PLACES + 1))


def bins_of(depth: np.ndarray) -> np.ndarray:
    """The bin of each logit that lies this far (float32, at least 0) below the largest, of the same shape."""
    return _BIN_OF_PLACE[_places(depth)]


def bin_edges() -> np.ndarray:
    """How far below the largest logit each bin begins, in nats, and at last infinity. float64 [bins + 1]."""
    return np.append(_PLACE_STARTS / float(_PER_NAT), np.inf)


_PIECE = 8192  # small enough that its arrays stay in the processor's cache: three times as fast as all at once


@dataclass(frozen=True, slots=True, eq=False)
class Weighed:
    """Logits once they were looked at, each weighing exp(logit - top); `hot` at a temperature.

    top: the largest. total: of the weights. entropy_nats: of the distribution. counts, masses: of tokens and of weights
    by fine place, where they were asked for.
    """

    top: float
    total: float
    entropy_nats: float
    hot_total: float
    hot_entropy_nats: float
    counts: np.ndarray
    masses: np.ndarray


def weighed(values: np.ndarray, top: float, temperature: float = 1.0, by_place: bool = True) -> Weighed:
    """What bins, log-sum-exp and entropy need of these logits, in one go.

    values: float32 [vocab], none NaN. top: the largest. Where that is not finite, nothing else is.
    """
    counts, masses = np.zeros(_PLACES + 1, dtype=np.int64), np.zeros(_PLACES + 1)
    if not math.isfinite(top):
        return Weighed(top, math.nan, math.nan, math.nan, math.nan, counts, masses)
    total = slope = hot_total = hot_slope = 0.0
    within = _are_within(top - float(values.min()))
    colder = np.float32(-1.0 / max(temperature, 1e-30))
    with np.errstate(over="ignore", invalid="ignore"):  # -inf, and inf * 0, where a token is impossible
        for start in range(0, values.size, _PIECE):
            depth = np.float32(top) - values[start : start + _PIECE]
            weights = np.exp(-depth)
            slope += _slope(depth, weights)
            if by_place:
                places = _places(depth, within)
                counts += np.bincount(places, minlength=_PLACES + 1)
                masses += np.bincount(places, weights, minlength=_PLACES + 1)  # sums in float64
            else:
                total += float(weights.sum())
            if temperature != 1.0:
                weights = np.exp(depth * colder)
                hot_total += float(weights.sum())
                hot_slope += _slope(depth, weights)
        if by_place:
            total = float(masses.sum())
    entropy = max(0.0, math.log(total) + slope / total)
    if temperature == 1.0:
        return Weighed(top, total, entropy, total, entropy, counts, masses)
    hot_entropy = max(0.0, math.log(hot_total) + hot_slope / hot_total / max(temperature, 1e-30))
    return Weighed(top, total, entropy, hot_total, hot_entropy, counts, masses)


def _slope(depth: np.ndarray, weights: np.ndarray) -> float:
    found = float(np.dot(depth, weights))
    if math.isfinite(found):
        return found
    # An impossible token is infinitely deep and weighs nothing.
    return float(np.dot(depth[weights > 0.0], weights[weights > 0.0]))


def binned(values: np.ndarray, raw: Weighed, without: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many logits, and the sum of exp(logit - top), in each bin, without these ids. int64 and float64 [bins]."""
    with np.errstate(over="ignore", invalid="ignore"):
        depth = np.float32(raw.top) - values[without]
        places = _places(depth)
        counts = raw.counts - np.bincount(places, minlength=_PLACES + 1)
        masses = raw.masses - np.bincount(places, np.exp(-depth), minlength=_PLACES + 1)
    masses[counts == 0] = 0.0
    masses = np.maximum(masses, 0.0)
    return np.add.reduceat(counts, _PLACE_STARTS), np.add.reduceat(masses, _PLACE_STARTS)


def _are_within(deepest: float) -> bool:
    """Whether a logit that lies this far below the largest, and so all others, has a place before the last."""
    return deepest * _PER_NAT < _PLACES - 1


def _places(depth: np.ndarray, within: bool = False) -> np.ndarray:
    """The fine place of each logit that lies this far (float32, at least 0) below the largest, int64.

    within: all are known to lie before the last place, which takes half the time.
    """
    places = depth * np.float32(_PER_NAT)
    if not within:
        np.minimum(places, np.float32(_PLACES), out=places)
    return places.astype(np.int32).astype(np.int64)  # by way of int32, for which there are fast instructions
