"""The random numbers. Counter-based, so that a lane draws the same ones alone, in a batch, after a fork, anywhere."""

from __future__ import annotations

from numpy.random import Philox

_KEY_BITS = 2**128


def draw(seed: int, step: int) -> float:
    """The number in [0, 1) that a seed draws at a step: the upper 53 bits of Philox's first output.

    seed: any integer, taken modulo 2^128 as the key. step: 0, 1, 2, ... as the counter. Source: Salmon et al. 2011,
    "Parallel random numbers: as easy as 1, 2, 3", as NumPy's Philox (4x64, 10 rounds).
    """
    return (int(Philox(key=seed % _KEY_BITS, counter=step).random_raw()) >> 11) * 2.0**-53
