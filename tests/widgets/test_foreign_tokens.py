"""Token ids of another model are left out of the panel, or taken over by exact text; that is said and can be undone."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from engine import events as ev
from engine.settings import Preset, SamplingSettings
from tests.widgets.facts import facts
from widgets.foreign_tokens import question_of, taken_over
from widgets.lab.lanes_page import LanesPage
from widgets.run_store import RunStore
from widgets.sampling_panel import SamplingPanel

THEIRS = ev.TokenNames("theirs", 500, ((40, " cat"), (41, "riv"), (42, "er"), (43, " 河"), (44, "同")))
USED = SamplingSettings(
    temperature=0.5, logit_bias=((40, 3.0), (44, -1.0)), banned=(43, 45), banned_sequences=((41, 42), (41, 45))
)
TAKEN = SamplingSettings(temperature=0.5, logit_bias=((7, 3.0), (44, -1.0)), banned_sequences=((8, 9),))
PRESET = Preset("mine", USED, tokens=THEIRS)
HERE = {" cat": (7,), "riv": (8,), "er": (9,), " 河": (200, 201), "同": (300,)}  # how the loaded model cuts these
LABELS = {40: "dog", 41: "x", 42: "y", 43: "z", 44: "同", 45: "w"}


def told(question: ev.WordsQuestion, here=HERE, labels=LABELS) -> ev.WordTokens:
    """What the loaded model answers: each word as typed alone, as far as these tests need."""

    def form(word):
        ids = here[word]
        return (ev.WordForm(word, ids, (word,) if len(ids) == 1 else ("?",) * len(ids)),)

    return ev.WordTokens(tuple(map(form, question.words)), tuple(labels.get(i, f"<{i}>") for i in question.ids))


def answer(panel) -> None:
    question = panel.questions[-1]
    panel.store.take(ev.Answered(question, told(question)))
    panel.refresh()


def test_tokens_are_taken_over_by_exact_text_where_each_is_one_token():
    question = question_of(USED, THEIRS)
    assert question.ids == (40, 41, 42, 43, 44, 45)
    found = taken_over(USED, THEIRS, question, told(question))
    assert found.settings == TAKEN
    assert found.left == ("·河", "<45>", "riv<45>")
    assert found.moved == 3  # 44 is the same here


def test_a_presets_foreign_tokens_never_stand_under_the_loaded_models_names(panel):
    before = SamplingSettings(top_k=7, seed=3)
    panel.take_settings(before)
    panel.choose_preset(PRESET)
    assert panel.settings() == SamplingSettings(temperature=0.5, seed=3)
    assert panel.left_out.isVisible()
    assert "those of theirs, and ours is loaded" in panel.left_out_note.text()
    answer(panel)
    assert panel.settings().logit_bias == ((7, 3.0), (44, -1.0))
    assert panel.settings().banned == ()
    said = panel.left_out_note.text()
    assert said.startswith("Left out are tokens of theirs whose text is no token of ours: “·河”, “<45>”, “riv<45>”.")
    assert said.endswith("3 tokens of theirs are taken over by their text.")
    QTest.mouseClick(panel.left_out_button, Qt.MouseButton.LeftButton)
    assert panel.settings() == before  # all of it was one step
    assert not panel.left_out.isVisible()
    panel.choose_preset(PRESET)
    answer(panel)
    assert panel.left_out_button.isVisible()
    panel.roll()
    assert not panel.left_out_button.isVisible()  # it would take the other seed back, and not the preset


def test_with_its_own_model_a_preset_is_as_it_was_saved(panel):
    panel.choose_preset(Preset("own", USED, tokens=ev.TokenNames("ours", facts().vocab_size, THEIRS.texts)))
    assert panel.settings() == USED
    assert not panel.left_out.isVisible()


def test_an_older_preset_does_not_say_whose_tokens_it_names_and_that_is_said(panel):
    panel.choose_preset(Preset("old", USED))
    assert panel.settings() == USED
    assert "does not say whose tokens" in panel.left_out_note.text()
    panel.choose_preset(Preset("plain", SamplingSettings(top_p=0.5)))
    assert not panel.left_out.isVisible()


def test_without_a_model_they_wait_for_one_and_are_left_out_if_it_is_another(qtbot):
    panel = SamplingPanel(RunStore())
    qtbot.addWidget(panel)
    panel.questions = []
    panel.asked.connect(panel.questions.append)
    panel.choose_preset(PRESET)
    assert panel.settings() == USED
    assert panel.token_names() == THEIRS
    panel.store.take(ev.Loaded(facts(name="ours")))
    panel.store.set_activity("idle")
    panel.refresh()
    assert panel.settings() == SamplingSettings(temperature=0.5)
    answer(panel)
    assert panel.settings().banned_sequences == ((8, 9),)
    assert panel.token_names().model == "ours"


def test_another_model_leaves_out_what_was_meant_for_the_last_one_and_undo_brings_it_back_with_that(panel):
    panel.take_settings(USED)
    panel.refresh()
    panel.store.take(ev.Loaded(facts(name="theirs", vocab_size=500)))
    panel.refresh()
    assert panel.settings() == SamplingSettings(temperature=0.5)
    assert "those of ours, and theirs is loaded" in panel.left_out_note.text()
    panel.undo()  # here they would be other words
    assert panel.settings() == SamplingSettings(temperature=0.5)
    assert "those of ours" in panel.left_out_note.text()
    with_their_model = facts(name="ours")
    panel.store.take(ev.Loaded(with_their_model))
    panel.refresh()
    assert panel.settings() == USED
    assert not panel.left_out.isVisible()


def test_a_relative_that_calls_the_tokens_the_same_has_nothing_to_say(panel):
    panel.choose_preset(replace(PRESET, settings=SamplingSettings(banned=(44,))))
    answer(panel)
    assert panel.settings().banned == (44,)
    assert not panel.left_out.isVisible()


def test_a_lane_keeps_a_presets_tokens_and_means_what_the_loaded_model_has_of_them(qtbot, store):
    page = LanesPage(store)
    qtbot.addWidget(page)
    page.wishes = []
    page.asked.connect(page.wishes.append)
    page.edit(0)
    page.editor.presets.chosen.emit(PRESET)
    page.look()
    assert (page.lanes.lanes[0].settings, page.lanes.lanes[0].tokens) == (USED, THEIRS)
    assert "A: The banned and biased tokens are left out: they are those of theirs" in page.bar.tokens_note.text()
    assert "those of theirs" in page.editor.tokens_note.text()
    page.run_page(one_token=False)
    question, wish = page.wishes
    assert wish.lanes.lanes[0].settings == USED.without_tokens
    store.take(ev.Answered(question, told(question)))
    page.look()
    assert "3 tokens of theirs are taken over by their text." in page.bar.tokens_note.text()
    assert page.editor.tokens_note.text() == page.bar.tokens_note.text().removeprefix("A: ")
    page.run_page(one_token=False)
    assert page.wishes[-1].lanes.lanes[0].settings == TAKEN
    page.undo()
    assert page.bar.tokens_note.isHidden()
    page.redo()
    store.take(ev.Loaded(facts(name="theirs", vocab_size=500)))
    store.set_activity("idle")
    page.look()
    assert page.bar.tokens_note.isHidden()
    page.run_page(one_token=False)
    assert page.wishes[-1].lanes.lanes[0].settings == USED
