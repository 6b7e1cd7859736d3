"""What settings that stay as they were copied mean with the loaded model, which is asked of their tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engine.events import SessionFacts, TokenNames, WordsQuestion, WordTokens
from engine.settings import SamplingSettings
from widgets.foreign_tokens import Meant, meant, unnamed, with_texts
from widgets.run_store import BUSY, RunStore


class Meanings:
    """For a page whose settings may name other models' tokens. ask: puts a question to the loaded model."""

    def __init__(self, store: RunStore, ask: Callable[[WordsQuestion], object]) -> None:
        self._store, self._emit = store, ask
        self._answers: dict[WordsQuestion, object] = {}  # the store forgets the oldest
        self._answered_by: SessionFacts | None = None

    def of(self, settings: SamplingSettings, names: TokenNames | None) -> Meant:
        """As far as the model was asked; see `meant`."""
        return meant(settings, names, self._store.facts, self._answer_to)

    def asked(self, settings: SamplingSettings, names: TokenNames | None) -> TokenNames | None:
        """Asks what is not known of their tokens. Returns the names, with the texts of the loaded model's own tokens,
        by which another model can take them over later."""
        self._ask(self.of(settings, names).asked)
        question = unnamed(settings, names, self._store.facts)
        if question is None or names is None:
            return names
        if isinstance(answer := self._answer_to(question), WordTokens):
            return with_texts(names, question, answer)
        self._ask(question)
        return names

    def _answer_to(self, question: WordsQuestion) -> object:
        if self._store.facts is not self._answered_by:
            self._answers, self._answered_by = {}, self._store.facts
        if (answer := self._store.inside.answers.get(question)) is not None:
            self._answers[question] = answer
        return self._answers.get(question)

    def _ask(self, question: WordsQuestion | None) -> None:
        pending = self._store.inside.pending
        if question is None or question in pending or self._store.activity in BUSY:
            return
        if self._answer_to(question) is None:  # an error is an answer
            pending.add(question)
            self._emit(question)


def said_of(found: Iterable[tuple[str, Meant]]) -> str:
    """What became of the tokens of each, by letter; what is the same for several is said once."""
    letters: dict[str, list[str]] = {}
    for letter, each in found:
        letters.setdefault(each.said, []).append(letter)
    return "\n".join(f"{', '.join(here)}: {words}" for words, here in letters.items() if words)
