"""Words are banned, lowered and raised as the loaded model's tokens, and follow undo, presets and another model."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from engine import events as ev
from engine.settings import SamplingSettings
from tests.widgets.facts import facts
from widgets.sampling_constraints import pick, place
from widgets.sampling_panel import SamplingPanel
from widgets.word_rules import BAN, others, rule_of, ruled, with_rule, without

ONE = (ev.WordForm("cat", (5,), ("cat",)), ev.WordForm(" cat", (6,), (" cat",)))
LONG = (ev.WordForm("river", (7, 8), ("riv", "er")), ev.WordForm(" river", (9,), (" river",)))

CATS = (ev.WordForm("cats", (5, 30), ("cat", "s")), ev.WordForm(" cats", (20,), (" cats",)))


def form(*ids: int) -> ev.WordForm:
    return ev.WordForm("", ids, tuple(map(str, ids)))


def answer(panel, **words) -> None:
    """The model's answer to what is asked now."""
    question = panel.constraints.question()
    told = ev.WordTokens(tuple(words[word] for word in question.words), tuple(f"<{i}>" for i in question.ids))
    panel.store.take(ev.Answered(question, told))
    panel.refresh()


def typed(panel, word: str) -> None:
    panel.constraints.line.setText(word)
    QTest.keyClick(panel.constraints.line, Qt.Key.Key_Return)


# ---------------------------------------------------------------- rules as settings


def test_a_ban_and_a_bias_are_said_in_tokens() -> None:
    off = SamplingSettings(temperature=0.5)
    banned = with_rule(with_rule(off, ONE, BAN), LONG, BAN)
    assert (banned.banned, banned.banned_sequences, banned.logit_bias) == ((5, 6, 9), ((7, 8),), ())
    raised = with_rule(banned, LONG, 2.5)
    assert (raised.banned, raised.banned_sequences) == ((5, 6), ())
    assert raised.logit_bias == ((7, 2.5), (9, 2.5))  # the first token of each form
    assert (rule_of(raised, ONE), rule_of(raised, LONG), rule_of(off, ONE)) == (BAN, 2.5, None)
    assert without(without(raised, LONG), ONE) == off


def test_tokens_of_no_known_word_are_told_apart() -> None:
    used = SamplingSettings(logit_bias=((5, 1.0), (6, 1.0), (40, -3.0)), banned=(9, 50), banned_sequences=((1, 2),))
    assert others(used, [ONE, LONG]) == [(40,), (9,), (50,), (1, 2)]


def test_the_slider_reaches_both_ends_and_rests_in_the_middle() -> None:
    assert [pick(at) for at in (0.0, 0.5, 1.0)] == [-100.0, 0.0, 100.0]
    for bias in (-100.0, -7.5, -0.4, 0.4, 3.0, 100.0):
        assert pick(place(bias)) == pytest.approx(bias, rel=0.02)


def test_words_that_begin_with_one_token_have_one_bias() -> None:
    """The settings know one bias for a token: a second one would have been the first one's too, without a word."""
    words = {"cat": ONE, "cats": CATS, "river": LONG}
    first = ruled(ruled(SamplingSettings(), words, ONE, -5.0), words, LONG, 1.0)
    both = ruled(first, words, CATS, 3.0)
    assert both.logit_bias == ((5, 3.0), (6, 3.0), (7, 1.0), (9, 1.0), (20, 3.0))
    assert [rule_of(both, forms) for forms in words.values()] == [3.0, 3.0, 1.0]
    assert ruled(both, words, CATS, None).logit_bias == ((5, 3.0), (6, 3.0), (7, 1.0), (9, 1.0))
    banned = ruled(both, words, CATS, BAN)
    assert (rule_of(banned, ONE), rule_of(banned, CATS), rule_of(banned, LONG)) == (3.0, BAN, 1.0)
    chain = {"a": (form(1), form(2)), "b": (form(2, 8), form(3)), "c": (form(3, 9),), "d": (form(4),)}
    made = ruled(SamplingSettings(), chain, chain["d"], 9.0)
    for word, bias in (("a", 1.0), ("b", 2.0), ("c", 4.0)):
        made = ruled(made, chain, chain[word], bias)
    assert [rule_of(made, forms) for forms in chain.values()] == [4.0, 4.0, 4.0, 9.0]


# ---------------------------------------------------------------- the section


def test_the_panel_says_which_words_share_a_first_token(panel):
    for word in ("cat", "cats"):
        typed(panel, word)
        answer(panel, cat=ONE, cats=CATS)
    rows = panel.constraints._rows
    rows["cat"].ruled.emit("cat", -5.0, False)
    assert "cats" not in rows["cat"].note.text()  # which is banned as a whole: the bias is the one word's
    rows["cats"].ruled.emit("cats", 3.0, False)
    assert [rows[word].field.value() for word in ("cat", "cats")] == [3.0, 3.0]
    assert "“cat” begins with the same token cat: the two have one bias." in rows["cats"].note.text()
    assert "“cats” begins with the same token cat: the two have one bias." in rows["cat"].note.text()
    panel.undo()
    assert rows["cat"].field.value() == -5.0
    panel.redo()
    rows["cats"].removed.emit("cats")
    assert rows["cat"].field.value() == 3.0
    assert list(rows) == ["cat"]
    typed(panel, "cats")
    answer(panel, cat=ONE, cats=CATS)
    rows["cats"].ruled.emit("cats", 1.0, False)
    rows["cat"].ruled.emit("cat", BAN, False)
    assert rows["cats"].field.value() == 1.0
    assert "“cat”, which is banned, is the token that it begins with" in rows["cats"].note.text()


def test_a_typed_word_is_banned_once_the_model_has_cut_it(qtbot, panel):
    typed(panel, "cat")
    assert panel.questions == [ev.WordsQuestion(("cat",))]
    assert panel.settings() == SamplingSettings()
    with qtbot.waitSignal(panel.settings_changed) as said:
        answer(panel, cat=ONE)
    assert said.args[0].banned == (5, 6)
    row = panel.constraints._rows["cat"]
    assert "cat 5 | ·cat 6" in row.note.text()
    assert "1 on" in panel.more_button.text()


def test_undo_takes_a_word_back_and_redo_brings_it(panel):
    typed(panel, "cat")
    answer(panel, cat=ONE)
    row = panel.constraints._rows["cat"]
    QTest.mouseClick(row.ban_button, Qt.MouseButton.LeftButton)
    assert panel.settings().logit_bias == ((5, -5.0), (6, -5.0))
    row.slider.setValue(1000)
    assert panel.settings().logit_bias == ((5, 100.0), (6, 100.0))
    for _ in range(2):
        panel.undo()
    assert panel.settings().banned == (5, 6)
    assert row.ban_button.isChecked()
    panel.undo()
    assert panel.settings() == SamplingSettings()
    assert not panel.constraints._rows
    panel.redo()
    assert list(panel.constraints._rows) == ["cat"]


def test_a_word_is_taken_out(panel):
    for word, forms in (("cat", ONE), ("river", LONG)):
        typed(panel, word)
        answer(panel, **({"cat": ONE} if word == "cat" else {"cat": ONE, "river": forms}))
    panel.constraints._rows["cat"].removed.emit("cat")
    assert panel.settings().banned == (9,)
    assert panel.settings().banned_sequences == ((7, 8),)
    note = panel.constraints._rows["river"].note.text()
    assert "riv 7 er 8" in note
    assert "last is cut" in note


def test_another_model_cuts_the_words_anew(store, panel):
    typed(panel, "cat")
    answer(panel, cat=ONE)
    store.take(ev.Loaded(facts(name="other")))
    panel.refresh()
    answer(panel, cat=LONG)
    assert panel.settings().banned_sequences == ((7, 8),)
    assert panel.settings().banned == (9,)


def test_a_change_of_model_is_one_step_of_undo_with_what_becomes_of_the_words(store, panel):
    typed(panel, "cat")
    answer(panel, cat=ONE)
    before = replace(panel.settings(), banned=(*panel.settings().banned, 40))
    panel.take_settings(before)
    store.take(ev.Loaded(facts(name="other")))
    panel.refresh()
    answer(panel, cat=LONG)
    assert panel.settings().banned_sequences == ((7, 8),)
    typed(panel, "cats")
    answer(panel, cat=LONG, cats=CATS)  # a new word is a step of its own
    panel.undo()
    assert panel.settings().banned_sequences == ((7, 8),)
    panel.undo()
    store.take(ev.Loaded(facts(name="ours")))
    panel.refresh()
    assert panel.settings() == before


def test_tokens_from_elsewhere_are_shown_by_the_models_name_for_them(panel):
    panel.set_settings(SamplingSettings(logit_bias=((40, 3.0),), banned=(41,)))
    panel.refresh()
    assert list(panel.constraints._rows) == [(40,), (41,)]
    answer(panel)
    assert panel.constraints._rows[(40,)].label.text() == "<40>"
    assert panel.constraints._rows[(41,)].ban_button.isChecked()


def test_of_very_many_tokens_a_few_are_shown_and_all_are_counted(panel):
    panel.set_settings(SamplingSettings(banned=tuple(range(20_000))))
    panel.refresh()
    assert len(panel.constraints._rows) == 40
    assert "19,960 more" in panel.constraints.more_label.text()
    assert panel.constraints.count() == 20_000
    assert len(panel.constraints.question().ids) == 40


def test_nothing_is_asked_while_a_run_goes_on_or_without_a_model(store, panel):
    store.set_activity("decode")
    typed(panel, "cat")
    assert not panel.questions
    assert "free" in panel.constraints._rows["cat"].note.text()
    store.take(ev.Unloaded("m", 0, 0))
    panel.refresh()
    assert "Load a model" in panel.constraints._rows["cat"].note.text()
    store.take(ev.Loaded(facts()))
    store.set_activity("idle")
    panel.refresh()
    assert panel.questions == [ev.WordsQuestion(("cat",))]


def test_an_empty_word_and_one_that_is_there_are_refused(panel):
    for word, said in (("", "Write a word"), ("cat", ""), ("cat", "already")):
        typed(panel, word)
        assert said in panel.constraints.problem.text()


def test_words_and_the_beginning_are_remembered(qtbot, store, panel):
    typed(panel, "cat")
    answer(panel, cat=ONE)
    panel.constraints.set_begin("Sure:\n\\")
    other = SamplingPanel(store)
    qtbot.addWidget(other)
    other.constraints.restore(panel.constraints.state())
    other.set_settings(panel.settings())
    assert list(other.constraints._rows) == ["cat"]
    assert panel.forced_text() == "Sure:\n\\"
    for broken in ("x", {"cat": 5}, {"cat": [["a", ["b"], []]]}, {"cat": [[1, [], []]]}, []):
        other.constraints.restore(broken)
    assert list(other.constraints._rows) == ["cat"]
