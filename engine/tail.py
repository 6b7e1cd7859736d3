"""What is kept of the tokens beyond the listed ones, so that other settings can be decided without the model."""

from __future__ import annotations

import math
from array import array
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from engine import redecided as kept
from engine.settings import SamplingSettings

if TYPE_CHECKING:
    from engine.sampling import History, Ranking

NAMED_KEPT = 128  # with the listed ones


def tail_of(
    raw: Ranking, top: float, listed: np.ndarray, others: np.ndarray, history: History, settings: SamplingSettings
) -> kept.Tail:
    """The tail of one decision. Bins are exact in order: equal logits share one.

    top: the largest raw logit. listed: ids of the largest that are kept anyway. others: what is listed beyond those.
    """
    logits = raw.values
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
    counts, masses = binned(logits, np.float32(top))
    less, lighter = binned(logits[gone], np.float32(top))
    counts, masses = counts - less, np.maximum(masses - lighter, 0.0)
    masses[counts == 0] = 0.0
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
_PLACE_WEIGHTS = np.exp(-np.arange(_PLACES + 1) / _PER_NAT)


def bins_of(depth: np.ndarray) -> np.ndarray:
    """The bin of each logit that lies this far (float32, at least 0) below the largest, of the same shape."""
    return _BIN_OF_PLACE[np.minimum(depth * np.float32(_PER_NAT), np.float32(_PLACES)).astype(np.int64)]


def bin_edges() -> np.ndarray:
    """How far below the largest logit each bin begins, in nats, and at last infinity. float64 [bins + 1]."""
    return np.append(_PLACE_STARTS / float(_PER_NAT), np.inf)


_PIECE = 8192  # small enough that its arrays stay in the processor's cache: three times as fast as all at once


def binned(values: np.ndarray, top: np.float32) -> tuple[np.ndarray, np.ndarray]:
    """How many of these logits, and the sum of exp(logit - top), in each bin. int64 and float64.

    One pass counts and weighs: each token adds `one` for itself, and its weight in units of its place's largest, which
    together stay below `one`.
    """
    one = float(1 << int(values.size).bit_length())
    sums = np.zeros(_PLACES + 1)
    for start in range(0, values.size, _PIECE):
        with np.errstate(over="ignore"):
            depth = top - values[start : start + _PIECE]
            depth *= np.float32(_PER_NAT)
        places = np.floor(depth)
        np.minimum(places, np.float32(_PLACES), out=places)
        depth -= places
        depth *= np.float32(-kept.FINE_NATS)
        np.exp(depth, out=depth)
        weights = depth.astype(np.float64)
        weights += one
        sums += np.bincount(places.astype(np.int64), weights, minlength=_PLACES + 1)
    counts = np.floor(sums / one)
    masses = (sums - counts * one) * _PLACE_WEIGHTS
    return np.add.reduceat(counts, _PLACE_STARTS).astype(np.int64), np.add.reduceat(masses, _PLACE_STARTS)
