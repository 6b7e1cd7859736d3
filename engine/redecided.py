"""What is kept of the words beyond the listed ones, and what other settings would have made of a finished run.

Plain frozen data; engine/sampling.py keeps the first, engine/redecide.py works out the second.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

FINE_NATS, FINE_BINS = 0.25, 64  # 16 nats below the most probable one
COARSE_NATS, COARSE_BINS = 1.0, 24  # to 40 nats below; one more bin for all beneath
BINS_OF_TAIL = FINE_BINS + COARSE_BINS + 1
SEEN_NATS = 12.0  # tokens of prompt and text are kept by name down to here


@dataclass(frozen=True, slots=True)
class Tail:
    """The vocabulary beyond a token's listed candidates: some by name, the others counted by their raw logit.

    Bin i of the first FINE_BINS holds logits that lie i to i + 1 times FINE_NATS below the largest, then follow
    COARSE_BINS bins, then one for all beneath. `masses` are sums of exp(logit - largest logit).
    """

    ids: array  # "i": the next by logit, then tokens of prompt and text from further down
    logits: array  # "f", raw
    below: float  # no token that is neither listed nor here by name nor `seen` has a larger logit
    first_bin: int  # the bins before it are empty
    counts: array  # "i", tokens in each bin
    masses: array  # "f"
    seen_count: int  # tokens of prompt and text that are more than SEEN_NATS below the largest: in no bin, not named
    seen_mass: float


STANDS, ELSEWHERE, OPEN = 0, 1, 2  # fates: the same word, another one, undecided
NOT_CUT, CUT_OPEN = 0, 255  # cuts: else 1 + the filter's place in events.FILTERS


@dataclass(frozen=True, slots=True)
class Redecided:
    """Every token of a finished run under other settings, each after the text that was really written before it.

    fates: per token STANDS, ELSEWHERE or OPEN. cuts: per token NOT_CUT, the code of the filter that cuts the written
    word, or CUT_OPEN. choices_low, choices_high: bounds of exp(entropy in nats of what would be drawn from).
    others: the token id that would stand there instead, where that is known, else -1.
    first: the first token that is certainly another, None where there is none; the text goes elsewhere there at the
    latest, and exactly there where `open_at` is None.
    open_at: the first undecided token before that, None where all is decided up to there.
    """

    fates: bytes
    cuts: bytes
    choices_low: array  # "d"
    choices_high: array  # "d"
    others: array  # "i"

    @property
    def first(self) -> int | None:
        at = self.fates.find(bytes([ELSEWHERE]))
        return at if at >= 0 else None

    @property
    def open_at(self) -> int | None:
        at = self.fates.find(bytes([OPEN]))
        first = self.first
        return at if at >= 0 and (first is None or at < first) else None

    @property
    def cut_count(self) -> int:
        return len(self.cuts) - self.cuts.count(NOT_CUT) - self.cuts.count(CUT_OPEN)

    @property
    def open_count(self) -> int:
        return self.fates.count(OPEN)
