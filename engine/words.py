"""Words as a model's tokens, for bans and biases: what is asked and answered, and whose tokens settings name.

prompt.py finds the tokens.
"""

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


@dataclass(frozen=True, slots=True)
class TokenNames:
    """Whose token ids some settings name: another model means other words by the same numbers.

    texts: pairs of id and what the token is called there, as far as that is known.
    """

    model: str
    vocab_size: int
    texts: tuple[tuple[int, str], ...] = ()

    def are_of(self, model: str, vocab_size: int) -> bool:
        """Whether that model's tokens are meant."""
        return (self.model, self.vocab_size) == (model, vocab_size)
