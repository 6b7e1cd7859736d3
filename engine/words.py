"""Words as the loaded model's tokens, for bans and biases: what is asked and answered. prompt.py finds the tokens."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WordsQuestion:
    """Which tokens are these words, and what are these ids called?"""

    words: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WordForm:
    """One way in which a word stands in a text: as typed, or with a space before it."""

    text: str
    ids: tuple[int, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WordTokens:
    """words: for each word of the question its forms. labels: for each id, in the question's order."""

    words: tuple[tuple[WordForm, ...], ...]
    labels: tuple[str, ...]
