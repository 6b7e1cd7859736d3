"""Words as the loaded model's tokens: what is banned or biased when a person names a word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.session import Session


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


def tokens_of(question: WordsQuestion, session: Session) -> WordTokens:
    """The answer of a loaded model. A word that begins with a space has one form; a special token's name is text."""
    words = tuple(tuple(_forms(word, session)) for word in question.words)
    return WordTokens(words, tuple(map(session.vocabulary.label, question.ids)))


def _forms(word: str, session: Session) -> list[WordForm]:
    from engine.prompt import continuation

    found: dict[tuple[int, ...], WordForm] = {}
    for text in (word,) if word[:1].isspace() else (word, " " + word):
        ids = tuple(continuation(session, text))
        if ids and ids not in found:
            found[ids] = WordForm(text, ids, tuple(map(session.vocabulary.label, ids)))
    return list(found.values())
