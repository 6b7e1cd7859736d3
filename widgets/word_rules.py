"""Which words a person banned, lowered or raised, as the settings say it in tokens. Pure functions.

A rule is a bias from -100 to 100, or BAN. A word of several tokens is banned as a sequence: of it the last token is cut
where the others stand before it. A bias of such a word falls on its first token, as nothing else would begin it: words
that begin with the same token have one bias.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
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


def beginning_alike(words: Mapping[str, Forms], forms: Forms) -> dict[str, int]:
    """The words of which a form begins with the first token of one of these forms, each with that token's id."""
    firsts = dict.fromkeys(form.ids[0] for form in forms)
    found: dict[str, int] = {}
    for word, others_forms in words.items():
        shared = [form.ids[0] for form in others_forms if form.ids[0] in firsts]
        if shared and others_forms != forms:
            found[word] = shared[0]
    return found


def ruled(settings: SamplingSettings, words: Mapping[str, Forms], forms: Forms, rule: float | None) -> SamplingSettings:
    """The settings with this said of a word, None for nothing, among all words that are known.

    Biased words that begin with a token of its own take its bias, as the settings know one for a token; where it is
    banned or taken out they keep theirs.
    """
    biased = {word: rule_of(settings, each) for word, each in words.items()}
    kept = {word: bias for word, bias in biased.items() if bias not in (None, BAN) and words[word] != forms}
    settings = without(settings, forms) if rule is None else with_rule(settings, forms, rule)
    waiting, seen = [forms], set[str]()
    while waiting:
        for word in beginning_alike({w: words[w] for w in kept if w not in seen}, waiting.pop()):
            seen.add(word)
            bias = kept[word] if rule in (None, BAN) else rule
            assert bias is not None
            settings = with_rule(settings, words[word], bias)
            waiting.append(words[word])
    return settings


def others(settings: SamplingSettings, words: Iterable[Forms]) -> list[tuple[int, ...]]:
    """Tokens and sequences of the settings that belong to none of these words, each once."""
    known = [forms for forms in words if rule_of(settings, forms) is not None]
    firsts = {(form.ids[0],) for forms in known if rule_of(settings, forms) != BAN for form in forms}
    whole = {form.ids for forms in known if rule_of(settings, forms) == BAN for form in forms}
    biased = dict.fromkeys((token_id,) for token_id, _ in settings.logit_bias)
    banned = dict.fromkeys([*((token_id,) for token_id in settings.banned), *settings.banned_sequences])
    return list(dict.fromkeys([*(ids for ids in biased if ids not in firsts), *(i for i in banned if i not in whole)]))
