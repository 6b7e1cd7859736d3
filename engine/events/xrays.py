"""Two precisions of a model over one text."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class XrayProgress:
    """Where a precision x-ray stands. stage: one of LOAD_STAGES, then "read" (layers of the one pass) and "decode"."""

    side: int  # 0: the first of the two, 1: the second
    precision: str
    stage: str
    done: int
    total: int
    elapsed_ms: float  # since the stage began


@dataclass(frozen=True, slots=True)
class XraySide:
    """One of the two precisions. All measured, in the same run."""

    precision: str  # as loaded
    words: str  # what its layers really are, "" for plain numbers
    device: str
    weights_bytes: int
    load_ms: float
    read_ms: float  # the one pass over the text
    decode_tokens_per_s: float  # by the median step
    decode_tokens: int  # of so many
    decode_path: str
    perplexity: float
    unpacks: bool  # its weights are unpacked again for each product
    native: bool | None  # whether the processor multiplies in this type; None: not known


@dataclass(frozen=True, slots=True)
class XrayToken:
    """One token of the text, and what the two made of its place. None and "" for the first: nothing comes before it.

    logprob: ln of this token's probability. choice: the most probable token there, with its probability by the one and
    by the other precision.
    """

    token_id: int
    label: str
    text: str  # what became certain with it; "" for half a character
    special: bool = False
    kl_nats: float | None = None  # KL divergence, reference first, over the whole vocabulary
    reference_logprob: float = 0.0
    other_logprob: float = 0.0
    reference_choice: str = ""
    reference_choice_probs: tuple[float, float] = (0.0, 0.0)  # by the reference, by the other
    other_choice: str = ""
    other_choice_probs: tuple[float, float] = (0.0, 0.0)
    flipped: bool = False  # the two would have chosen differently


@dataclass(frozen=True, slots=True)
class Xray:
    """Two precisions of a model over one text. Source: KL divergence, Kullback and Leibler 1951."""

    model: str
    sample: str  # the shipped text's name, "" for the person's own
    reference: XraySide
    other: XraySide
    tokens: tuple[XrayToken, ...]
    notes: tuple[str, ...] = ()

    @property
    def compared(self) -> tuple[XrayToken, ...]:
        return tuple(token for token in self.tokens if token.kl_nats is not None)

    @property
    def mean_kl_nats(self) -> float:
        return math.fsum(token.kl_nats or 0.0 for token in self.compared) / max(1, len(self.compared))

    @property
    def largest_kl_nats(self) -> float:
        return max((token.kl_nats or 0.0 for token in self.compared), default=0.0)

    @property
    def flips(self) -> tuple[int, ...]:
        """Places in `tokens` where the first choice is another."""
        return tuple(at for at, token in enumerate(self.tokens) if token.flipped)

    @property
    def same_first_share(self) -> float:
        return 1.0 - len(self.flips) / max(1, len(self.compared))

    @property
    def slower_because(self) -> str:
        """Why the smaller of the two was slower here: "unpacking", "no kernels", "unknown"; "" where it was not.

        Less than a tenth slower is no finding: speeds differ by as much between two runs of one precision.
        """
        small, large = sorted((self.other, self.reference), key=lambda side: side.weights_bytes)
        as_fast = small.decode_tokens_per_s >= 0.9 * large.decode_tokens_per_s
        if small.weights_bytes == large.weights_bytes or as_fast:
            return ""
        if small.unpacks:
            return "unpacking"
        return "no kernels" if small.native is False and large.native is not False else "unknown"
