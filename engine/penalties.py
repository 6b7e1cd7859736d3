"""What stands before the temperature, in transformers' order: logit bias, penalties, repeated n-grams, bans."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.errors import RunFailed
from engine.events import FILTERS
from engine.settings import SamplingSettings

if TYPE_CHECKING:
    from engine.sampling import History

NGRAM, BANNED = (1 + FILTERS.index(name) for name in ("no_repeat_ngram", "banned"))


@dataclass(frozen=True, slots=True)
class Bans:
    """Which tokens cannot be chosen, and why. ids of no two kinds are the same."""

    repeats: np.ndarray  # int64: they would complete an n-gram that is already there
    banned: np.ndarray  # int64: by the person

    def mark(self, ids: np.ndarray, codes: np.ndarray) -> None:
        """Writes the cut codes of these ids into `codes`."""
        for gone, code in ((self.repeats, NGRAM), (self.banned, BANNED)):
            if gone.size:
                codes[np.isin(ids, gone)] = code


NO_BANS = Bans(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def biased(logits: np.ndarray, settings: SamplingSettings) -> np.ndarray | None:
    """Logits with the bias added (OpenAI API; transformers' sequence_bias of single tokens), or None without one.

    float32 [vocab]. Ids beyond the vocabulary are nobody's.
    """
    if not settings.logit_bias:
        return None
    known = [(token_id, bias) for token_id, bias in settings.logit_bias if token_id < logits.size]
    if not known:
        return None
    result = logits.copy()
    result[[token_id for token_id, _ in known]] += np.array([bias for _, bias in known], dtype=np.float32)
    return result


def penalised(logits: np.ndarray, history: History, settings: SamplingSettings) -> np.ndarray | None:
    """Logits after the penalties, or None where none applies. float32 [vocab].

    The repetition penalty counts each token of prompt and text once, divides a positive and multiplies a negative
    logit (Keskar et al. 2019, as transformers does). Presence and frequency count written tokens only (OpenAI API).
    """
    result: np.ndarray | None = None
    if settings.repetition_penalty != 1.0 and history.seen:
        result = logits.copy()
        ids = history.seen_ids
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


def banned_by_person(ids: list[int], settings: SamplingSettings) -> np.ndarray:
    """The banned tokens after these ids, as transformers' bad_words_ids: of a sequence its last token, once the others
    stand before it. int64, ascending."""
    banned = set(settings.banned)
    for *before, last in settings.banned_sequences:
        if ids[len(ids) - len(before) :] == before and len(before) <= len(ids):
            banned.add(last)
    return np.array(sorted(banned), dtype=np.int64)


def bans_of(values: np.ndarray, history: History, settings: SamplingSettings, step: int) -> Bans:
    """Which tokens cannot be chosen. values: float32 [vocab], after bias and penalties.

    Where repeated n-grams would leave nobody, the most probable one is not counted as one (SAM-6). Raises RunFailed
    where the person's bans leave nobody.
    """
    if not (settings.no_repeat_ngram_size or settings.banned or settings.banned_sequences):
        return NO_BANS
    repeats = banned_by_ngram(history.ids, settings.no_repeat_ngram_size)
    banned = banned_by_person(history.ids, settings)
    repeats, banned = repeats[repeats < values.size], banned[banned < values.size]
    if not repeats.size and not banned.size:
        return Bans(repeats, banned)
    left = values.copy()
    left[banned] = -np.inf
    best = int(left.argmax())
    if not math.isfinite(left[best]):
        raise RunFailed(
            "Every token that could follow at step {step} is banned.", "Take a banned word away.", step=step
        )
    left[repeats] = -np.inf
    if not math.isfinite(left.max()):
        repeats = repeats[repeats != best]
    return Bans(repeats, np.setdiff1d(banned, repeats, assume_unique=True))
