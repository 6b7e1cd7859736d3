"""Cards of settings keep whose tokens they name; with another model these are taken over by their text or left out."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from engine import events as ev
from engine.settings import SamplingSettings
from tests.widgets.facts import facts
from tests.widgets.test_foreign_tokens import TAKEN, THEIRS, USED, told
from widgets.lab.blind_page import BlindPage
from widgets.lab.experiment_wishes import RunLuck
from widgets.lab.luck_page import LuckPage
from widgets.lab.settings_list import Named, as_dicts, from_dicts

PLAIN = SamplingSettings(temperature=1.5)
LEFT_OUT = "The banned and biased tokens are left out: they are those of theirs, and tiny is loaded."


def has_model(page, name: str, vocab_size: int) -> None:
    page.store.take(ev.Loaded(facts(name=name, vocab_size=vocab_size)))
    page.store.set_activity("idle")
    page.refresh()


@pytest.fixture
def page(shown):
    """With a model that calls other tokens by the same numbers."""
    made = shown(LuckPage)
    has_model(made, "tiny", 300)
    return made


def questions(page) -> list[ev.WordsQuestion]:
    return [wish for wish in page.wishes if isinstance(wish, ev.WordsQuestion)]


def answer(page) -> None:
    question = questions(page)[-1]
    page.store.take(ev.Answered(question, told(question)))
    page.refresh()


def test_cards_of_another_model_are_run_without_its_tokens_and_then_with_those_of_one_text(page):
    page.list.take([Named(USED, "mine", THEIRS), Named(PLAIN)])
    page.run_page(one_token=False)  # before the model was asked
    assert page.wishes[-1].settings == (USED.without_tokens, PLAIN)
    page.refresh()
    page.refresh()
    assert len(questions(page)) == 1
    assert page.list.note.isVisible()
    assert page.list.note.text() == f"A: {LEFT_OUT}"
    answer(page)
    assert page.list.note.text() == (
        "A: Left out are tokens of theirs whose text is no token of tiny: “·河”, “<45>”, “riv<45>”. "
        "3 tokens of theirs are taken over by their text."
    )
    page.run_page(one_token=False)
    assert isinstance(page.wishes[-1], RunLuck)
    assert page.wishes[-1].settings == (TAKEN, PLAIN)
    for number in range(100):  # other answers push this one out of the store
        page.store.take(ev.Answered(number, number))
    assert page.list.settings() == (TAKEN, PLAIN)


def test_the_cards_stay_as_they_were_so_that_their_own_model_finds_its_tokens(page):
    page.list.take([Named(USED, "mine", THEIRS), Named(PLAIN)])
    page.refresh()
    answer(page)
    kept = json.loads(json.dumps(as_dicts(page.list.cards())))
    assert from_dicts(kept) == (Named(USED, "mine", THEIRS), Named(PLAIN))
    page.list._cards[0].fields["temperature"].value_changed.emit(0.5)
    has_model(page, "theirs", 500)
    assert page.list.settings() == (USED, PLAIN)
    assert not page.list.note.isVisible()


def test_what_both_cards_leave_out_is_said_once_and_undone_with_them(page):
    page.list.take([Named(USED, "", THEIRS), Named(replace(USED, top_k=5), "", THEIRS)])
    page.refresh()
    assert page.list.note.text() == f"A, B: {LEFT_OUT}"
    page.list.undo()
    page.refresh()
    assert not page.list.note.isVisible()


def test_of_what_an_older_version_kept_it_is_said_that_nobody_knows_whose_it_is(page):
    page.restore({"settings": [{"name": "", "settings": USED.as_dict()}, {"name": "", "settings": PLAIN.as_dict()}]})
    page.refresh()
    assert page.list.settings() == (USED, PLAIN)
    assert "taken as those of tiny" in page.list.note.text()
    assert not questions(page)


def test_tokens_of_the_loaded_model_get_their_texts_for_the_next_one(page):
    own = ev.TokenNames("tiny", 300)
    page.list.take([Named(SamplingSettings(banned=(40, 41)), "", own), Named(PLAIN)])
    page.refresh()
    assert questions(page) == [ev.WordsQuestion(ids=(40, 41))]
    answer(page)
    assert page.list.cards()[0].tokens.texts == ((40, "dog"), (41, "x"))
    page.list._cards[0].name_field.setText("no dog")
    page.list.commit()
    assert page.list.cards()[0].tokens.texts == ((40, "dog"), (41, "x"))
    assert not page.list.note.isVisible()
    page.refresh()
    assert len(questions(page)) == 1


def test_a_blind_test_begins_without_another_models_tokens(shown):
    page = shown(BlindPage)
    has_model(page, "tiny", 300)
    page.set_prompt("A hill.")
    page.setup.list.take([Named(USED, "mine", THEIRS), Named(USED.without_tokens, "plain")])
    page.refresh()
    assert questions(page)
    assert "the same" in page.setup.problem  # as long as nothing is taken over, they would write the same
    answer(page)
    assert page.setup.problem == ""
    page.bar.start.click()
    assert page.wishes[-1].settings == (TAKEN, USED.without_tokens)
    assert page.wishes[-1].names == ("mine", "plain")
