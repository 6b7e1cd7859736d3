"""A word becomes the ids that the model would write for it, in a text and at a text's beginning."""

from __future__ import annotations

from engine.answers import answer
from engine.control import Control
from engine.events import WordsQuestion, WordTokens
from engine.loop import generate
from engine.settings import Request, SamplingSettings


def ask(session, *words: str, ids: tuple[int, ...] = ()) -> WordTokens:
    found = answer(WordsQuestion(words, ids), session, Control())
    assert isinstance(found, WordTokens)
    return found


def test_a_word_has_a_form_with_and_one_without_a_space(default_session) -> None:
    forms = ask(default_session, "Paris", " Paris", "猫")
    paris, spaced, cat = forms.words
    tokenizer = default_session.tokenizer
    assert [form.text for form in paris] == ["Paris", " Paris"]
    assert [list(form.ids) for form in paris] == [tokenizer("Paris")["input_ids"], tokenizer(" Paris")["input_ids"]]
    assert [form.text for form in spaced] == [" Paris"]
    for form in (*paris, *cat):
        assert tokenizer.decode(list(form.ids), clean_up_tokenization_spaces=False) == form.text


def test_ids_are_called_by_their_labels(default_session) -> None:
    (only,) = ask(default_session, " Paris").words[0]
    assert ask(default_session, ids=only.ids).labels == only.labels == (" Paris",)


def test_a_name_of_a_special_token_is_text(default_session) -> None:
    end = default_session.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert all(end not in form.ids for form in ask(default_session, "<|im_end|>").words[0])


def test_a_banned_word_is_not_written_again(default_session) -> None:
    """The word that greedy writes first goes, in both forms, and the run goes on with another."""

    def text_with(used: SamplingSettings) -> str:
        request = Request(1, "Name a colour.", lanes=(used,), max_new_tokens=12)
        return list(generate(default_session, request, Control()))[-2].text  # the last is CacheKept

    before = text_with(SamplingSettings(temperature=0.0))
    word = max(before.split(), key=len).strip(".,!?\"'*")
    forms = ask(default_session, word).words[0]
    after = text_with(SamplingSettings(temperature=0.0, banned_sequences=tuple(form.ids for form in forms)))
    assert word in before
    assert word not in after
    assert after
