"""Words as a model's tokens, for bans and biases: what is asked and answered, and whose tokens settings name.

prompt.py finds the tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MOST_TEXTS = 2000  # of tokens that are kept


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

    def as_dict(self) -> dict[str, Any]:
        """As presets and preferences have it in JSON."""
        texts = {str(token_id): text for token_id, text in self.texts[:MOST_TEXTS]}
        return {"model": self.model, "vocab_size": self.vocab_size, "texts": texts}

    @classmethod
    def from_dict(cls, value: Any) -> TokenNames | None:
        """From what JSON kept of it; None where it cannot be read, or is of an older file."""
        try:
            model, size, texts = value["model"], value["vocab_size"], value.get("texts", {})
            known = tuple(sorted((int(token_id), text) for token_id, text in texts.items()))
            if type(model) is not str or type(size) is not int or not all(type(text) is str for _, text in known):
                return None
            return cls(model, size, known[:MOST_TEXTS])
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
