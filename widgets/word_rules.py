"""Which words a person banned, lowered or raised, as the settings say it in tokens. Pure functions.

A rule is a bias from -100 to 100, or BAN. A word of several tokens is banned as a sequence: of it the last token is cut
where the others stand before it. A bias of such a word falls on its first token, as nothing else would begin it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from engine.events import WordForm
from engine.settings import SamplingSettings

BAN = -math.inf  # as transformers has it: forbidding is a bias of minus infinity

Forms = tuple[WordForm, ...]


def rule_of(settings: SamplingSettings, forms: Forms) -> float | None:
    """What the settings say of a word, None where they say nothing of it or not of all its forms."""
    if not forms:
        return None
    if all(form.ids[0] in settings.banned if len(form.ids) == 1 else form.ids in settings.banned_sequences
           for form in forms):  # fmt: skip
        return BAN
    biases = dict(settings.logit_bias)
    found = {biases.get(form.ids[0]) for form in forms}
    return found.pop() if len(found) == 1 else None


def without(settings: SamplingSettings, forms: Forms) -> SamplingSettings:
    """The settings with nothing said of this word."""
    firsts, whole = {form.ids[0] for form in forms}, {form.ids for form in forms}
    return replace(
        settings,
        logit_bias=tuple(pair for pair in settings.logit_bias if pair[0] not in firsts),
        banned=tuple(token_id for token_id in settings.banned if (token_id,) not in whole),
        banned_sequences=tuple(ids for ids in settings.banned_sequences if ids not in whole),
    )


def with_rule(settings: SamplingSettings, forms: Forms, rule: float) -> SamplingSettings:
    """The settings with this said of the word, whatever they said before."""
    settings = without(settings, forms)
    if rule == BAN:
        return replace(settings, banned_sequences=(*settings.banned_sequences, *(form.ids for form in forms)))
    firsts = dict.fromkeys(form.ids[0] for form in forms)
    return replace(settings, logit_bias=(*settings.logit_bias, *((token_id, rule) for token_id in firsts)))


def others(settings: SamplingSettings, words: Iterable[Forms]) -> list[tuple[int, ...]]:
    """Tokens and sequences of the settings that belong to none of these words, each once."""
    known = [forms for forms in words if rule_of(settings, forms) is not None]
    firsts = {(form.ids[0],) for forms in known if rule_of(settings, forms) != BAN for form in forms}
    whole = {form.ids for forms in known if rule_of(settings, forms) == BAN for form in forms}
    biased = dict.fromkeys((token_id,) for token_id, _ in settings.logit_bias)
    banned = dict.fromkeys([*((token_id,) for token_id in settings.banned), *settings.banned_sequences])
    return list(dict.fromkeys([*(ids for ids in biased if ids not in firsts), *(i for i in banned if i not in whole)]))
