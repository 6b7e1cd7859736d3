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
    constrained = _constrained(settings.logit_bias, settings.banned, settings.banned_sequences)
    if constrained.size:
        constrained = constrained[constrained < logits.size]
        constrained = constrained[~taken[constrained]]
        taken[constrained] = True
    seen = np.fromiter(history.seen, dtype=np.int64, count=len(history.seen))
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
    return _BIN_OF_PLACE[np.minimum(depth * np.float32(_PER_NAT), np.float32(_PLACES)).astype(np.int64)]


def bin_edges() -> np.ndarray:
    """How far below the largest logit each bin begins, in nats, and at last infinity. float64 [bins + 1]."""
    return np.append(_PLACE_STARTS / float(_PER_NAT), np.inf)


_PIECE = 8192  # small enough that its arrays stay in the processor's cache: three times as fast as all at once


@dataclass(frozen=True, slots=True, eq=False)
class Weighed:
    """Raw logits once they were looked at, each weighing exp(logit - top).

    top: the largest. total: of the weights. entropy_nats: of the distribution. counts, masses: of tokens and of weights
    by fine place.
    """

    top: float
    total: float
    entropy_nats: float
    counts: np.ndarray
    masses: np.ndarray


def weighed(values: np.ndarray, top: float) -> Weighed:
    """What bins, log-sum-exp and entropy need of these logits, in one go.

    values: float32 [vocab], none NaN. top: the largest, finite.
    """
    counts, masses, slope = np.zeros(_PLACES + 1, dtype=np.int64), np.zeros(_PLACES + 1), 0.0
    for start in range(0, values.size, _PIECE):
        depth, weights, places = _placed(values[start : start + _PIECE], top)
        counts += np.bincount(places, minlength=_PLACES + 1)
        masses += np.bincount(places, weights, minlength=_PLACES + 1)  # sums in float64
        with np.errstate(invalid="ignore"):
            part = float(np.dot(depth, weights))
        # An impossible token is infinitely deep and weighs nothing.
        slope += part if math.isfinite(part) else float(np.nansum(depth[weights > 0.0] * weights[weights > 0.0]))
    total = float(masses.sum())
    return Weighed(top, total, max(0.0, math.log(total) + slope / total), counts, masses)


def binned(values: np.ndarray, raw: Weighed, without: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many logits, and the sum of exp(logit - top), in each bin, without these ids. int64 and float64 [bins]."""
    _, weights, places = _placed(values[without], raw.top)
    counts = raw.counts - np.bincount(places, minlength=_PLACES + 1)
    masses = raw.masses - np.bincount(places, weights, minlength=_PLACES + 1)
    masses[counts == 0] = 0.0
    masses = np.maximum(masses, 0.0)
    return np.add.reduceat(counts, _PLACE_STARTS), np.add.reduceat(masses, _PLACE_STARTS)


def _placed(values: np.ndarray, top: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How far below the largest each lies, in nats, its weight (both float32), and its fine place (int64)."""
    with np.errstate(over="ignore", invalid="ignore"):  # -inf, and inf * 0, where a token is impossible
        depth = np.float32(top) - values
        weights = np.exp(-depth)
        places = np.minimum(depth * np.float32(_PER_NAT), np.float32(_PLACES)).astype(np.int64)
    return depth, weights, places
