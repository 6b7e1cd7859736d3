"""Token ids that settings bring from another model: left out, or taken over by exact text. Pure functions.

A preset, a replay or the last start may name tokens; the loaded model means other words by the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from PySide6.QtCore import QCoreApplication

from engine.events import SessionFacts, TokenNames, WordsQuestion, WordTokens
from engine.settings import SamplingSettings
from widgets.format import count_text, token_label
from widgets.run import Run

MOST_ASKED = 400  # texts that are looked for
MOST_SAID = 4


def tr(text: str) -> str:
    return QCoreApplication.translate("ForeignTokens", text)


def are_foreign(settings: SamplingSettings, names: TokenNames | None, facts: SessionFacts | None) -> bool:
    """Whether these settings name tokens of another model than the loaded one, as far as both are known."""
    if names is None or facts is None or not settings.names_tokens:
        return False
    return not names.are_of(facts.name, facts.vocab_size)


def names_in(run: Run, settings: SamplingSettings) -> TokenNames | None:
    """Whose tokens these settings of a run name, and what they are called as far as the run tells."""
    if run.facts is None or not settings.names_tokens:
        return None
    wanted, found = settings.token_ids, dict[int, str]()
    for token in run.tokens:
        listed = zip(token.candidate_ids, token.candidate_texts, strict=True)
        found.update((token_id, text) for token_id, text in listed if token_id in wanted)
        if len(found) == len(wanted):
            break
    return TokenNames(run.facts.name, run.facts.vocab_size, tuple(sorted(found.items())))


def names_of(
    settings: SamplingSettings, before: TokenNames | None, facts: SessionFacts | None, texts: Mapping[int, str]
) -> TokenNames | None:
    """Whose tokens settings name that were changed here: the loaded model's; without one, whose they were before.

    texts: what they are called, as far as that is known.
    """
    if facts is None or not settings.names_tokens:
        return before
    if before is not None and before.are_of(facts.name, facts.vocab_size):
        texts = dict(before.texts) | dict(texts)
    return TokenNames(facts.name, facts.vocab_size, tuple(sorted(texts.items())))


def question_of(settings: SamplingSettings, names: TokenNames) -> WordsQuestion:
    """What the loaded model is to be asked: what it calls these ids, and which tokens their texts are."""
    used, texts = settings.token_ids, dict(names.texts)
    words = dict.fromkeys(texts[token_id] for token_id in sorted(used) if texts.get(token_id))
    return WordsQuestion(tuple(words)[:MOST_ASKED], tuple(sorted(used)))


@dataclass(frozen=True, slots=True)
class TakenOver:
    """settings: with what could be taken over and nothing else. left: what could not, as it is called. moved: how many
    tokens have another id here."""

    settings: SamplingSettings
    left: tuple[str, ...] = ()
    moved: int = 0


def taken_over(settings: SamplingSettings, names: TokenNames, question: WordsQuestion, answer: WordTokens) -> TakenOver:
    """The settings' tokens as this model's: those that it calls the same, and those whose text is one of its tokens.

    A sequence is taken over where each of its tokens is.
    """
    texts, labels = dict(names.texts), dict(zip(question.ids, answer.labels, strict=True))
    single = {
        word: form.ids[0]
        for word, forms in zip(question.words, answer.words, strict=True)
        for form in forms
        if form.text == word and len(form.ids) == 1 and form.labels == (word,)
    }
    here: dict[int, int] = {}
    for token_id in settings.token_ids:
        text = texts.get(token_id)
        if text and labels.get(token_id) == text:
            here[token_id] = token_id
        elif text and text in single:
            here[token_id] = single[text]
    left: list[str] = []

    def known(ids: Sequence[int]) -> bool:
        if all(token_id in here for token_id in ids):
            return True
        left.append("".join(token_label(texts[i]) if texts.get(i) else f"<{i}>" for i in ids))
        return False

    made = replace(
        settings.without_tokens,
        logit_bias=tuple((here[token_id], bias) for token_id, bias in settings.logit_bias if known((token_id,))),
        banned=tuple(here[token_id] for token_id in settings.banned if known((token_id,))),
        banned_sequences=tuple(tuple(here[i] for i in ids) for ids in settings.banned_sequences if known(ids)),
    )
    return TakenOver(made, tuple(dict.fromkeys(left)), sum(here[i] != i for i in here))


def together(settings: SamplingSettings, more: SamplingSettings) -> SamplingSettings:
    """The settings with the tokens of others besides; where both name one, the first count."""
    biased = {token_id for token_id, _ in settings.logit_bias}
    return replace(
        settings,
        logit_bias=(*settings.logit_bias, *(pair for pair in more.logit_bias if pair[0] not in biased)),
        banned=(*settings.banned, *more.banned),
        banned_sequences=(*settings.banned_sequences, *more.banned_sequences),
    )


def left_out_text(names: TokenNames, facts: SessionFacts) -> str:
    """What is said before the loaded model was asked."""
    return tr("The banned and biased tokens are left out: they are those of {model}, and {loaded} is loaded.").format(
        model=names.model, loaded=facts.name
    )


def taken_over_text(found: TakenOver, names: TokenNames, facts: SessionFacts) -> str:
    """What was left out and why, what was taken over by its text; "" where all mean the same here."""
    said: list[str] = []
    if found.left:
        listed = ", ".join(f"“{each}”" for each in found.left[:MOST_SAID])
        if more := len(found.left) - MOST_SAID:
            listed += tr(" and {count} more").format(count=count_text(more)) if more > 0 else ""
        said.append(
            tr("Left out are tokens of {model} whose text is no token of {loaded}: {list}.").format(
                list=listed, model=names.model, loaded=facts.name
            )
        )
    if found.moved:
        words = (
            tr("One token of {model} is taken over by its text.")
            if found.moved == 1
            else tr("{count} tokens of {model} are taken over by their text.")
        )
        said.append(words.format(count=count_text(found.moved), model=names.model))
    return " ".join(said)


@dataclass(frozen=True, slots=True)
class Meant:
    """What settings are with the loaded model. said: what was left out or taken over and why, "" for nothing.

    asked: what the model is to be asked before their tokens can be taken over; None where there is nothing to ask.
    """

    settings: SamplingSettings
    said: str = ""
    asked: WordsQuestion | None = None


def meant(
    settings: SamplingSettings,
    names: TokenNames | None,
    facts: SessionFacts | None,
    answer_to: Callable[[WordsQuestion], object],
) -> Meant:
    """For settings that stay as they were copied, and are other ones with each model.

    names: whose tokens they name; None: of an older version. answer_to: what the loaded model said to a question, None
    where it was not asked. Without a model they stand as they are.
    """
    if facts is None or not settings.names_tokens:
        return Meant(settings)
    if names is None:
        return Meant(
            settings,
            tr(
                "An older version kept the banned and biased tokens and not whose they are: they are taken as those of "
                "{loaded}. Where they are not, take other settings."
            ).format(loaded=facts.name),
        )
    if not are_foreign(settings, names, facts):
        return Meant(settings)
    question = question_of(settings, names)
    answer = answer_to(question)
    if not isinstance(answer, WordTokens):
        return Meant(settings.without_tokens, left_out_text(names, facts), question)
    found = taken_over(settings, names, question, answer)
    return Meant(found.settings, taken_over_text(found, names, facts))


def unnamed(settings: SamplingSettings, names: TokenNames | None, facts: SessionFacts | None) -> WordsQuestion | None:
    """What the loaded model is to be asked so that its own tokens are known by their text; None for nothing."""
    if names is None or facts is None or not names.are_of(facts.name, facts.vocab_size):
        return None
    missing = settings.token_ids - {token_id for token_id, _ in names.texts}
    return WordsQuestion(ids=tuple(sorted(missing))) if missing else None


def with_texts(names: TokenNames, question: WordsQuestion, answer: WordTokens) -> TokenNames:
    """With what the answer calls them."""
    texts = dict(names.texts) | dict(zip(question.ids, answer.labels, strict=True))
    return replace(names, texts=tuple(sorted(texts.items())))
