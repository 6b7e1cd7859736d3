"""A blind round shows nothing but texts and numbers; the verdict says in words what the votes allow."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import QEvent, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QPlainTextEdit, QWidget

from engine import events as ev
from engine.settings import SamplingSettings
from tests.widgets.facts import facts
from widgets.lab.blind_page import BlindPage
from widgets.lab.blind_result import notes, verdicts
from widgets.lab.experiment_wishes import AskRound, BeginBlind, KeepBlind, StopExperiment

SETTINGS = tuple(SamplingSettings(temperature=t) for t in (0.5, 1.0, 1.5))
TEST = ev.BlindTest(ev.Asked("", raw=True, max_new_tokens=8), ("A hill.",), SETTINGS[:2], ("calm", "wild"), True, 20)


def voted(test: ev.BlindTest, *preferred: int) -> ev.BlindTest:
    for number, setting in enumerate(preferred):
        test = test.with_texts(number, test.next_prompt, [f"{number} {at}" for at in range(len(test.settings))])
        test = test.with_vote(test.rounds[-1].shown.index((setting,)))
    return test


@pytest.fixture
def page(shown):
    made = shown(BlindPage)
    made.set_prompt("A hill.")
    made.refresh()
    return made


def told(page, question, *texts):
    loaded = page.store.facts
    return ev.BlindTexts(question, loaded.name, loaded.precision, texts, ("length",) * len(texts))


def answer(page, *texts):
    """The engine writes the texts that were asked for last."""
    question = next(wish.question for wish in reversed(page.wishes) if isinstance(wish, AskRound))
    page.store.set_activity("experiment")
    page.begun(question)
    page.store.set_activity("idle")
    page.store.take(ev.Answered(question, told(page, question, *texts)))
    page.refresh()
    return question


def test_a_test_is_asked_with_what_stands_there(page):
    page.setup.planned.set_value(7)
    page.bar.start.click()
    (wish,) = page.wishes
    assert isinstance(wish, BeginBlind)
    assert (wish.prompts, wish.planned, wish.at_end) == (("A hill.",), 7, True)
    assert len(wish.settings) == 2


def test_nothing_in_a_round_names_a_setting(page, qapp):
    page.begin_test(TEST)
    answer(page, "one text", "another text")
    qapp.processEvents()  # the panels of the texts come into view
    said = set()
    for widget in page.findChildren(QWidget):
        if widget.isVisible():
            said |= {widget.toolTip(), widget.accessibleName(), widget.accessibleDescription()}
            said |= {str(widget.property("text") or ""), widget.windowTitle()}
        if isinstance(widget, QPlainTextEdit) and widget.isVisible():
            said.add(widget.toPlainText())
    for word in ("calm", "wild", "temperature", "0.5", "seed"):
        assert not [text for text in said if word in text], word
    assert {"one text", "another text"} <= said
    assert not page.store.runs


def test_all_settings_draw_with_one_new_seed_each_round_and_texts_are_written_ahead(page):
    page.begin_test(TEST)
    first = answer(page, "a", "b")
    second = next(wish.question for wish in reversed(page.wishes) if isinstance(wish, AskRound))
    assert second != first  # asked for while the first is read
    assert second.seed != first.seed
    answer(page, "c", "d")
    assert page.test.open_round.texts == ("a", "b")  # what was written ahead does not push it away
    page.round.vote(0)
    assert page.test.open_round.texts == ("c", "d")


def test_texts_that_are_wanted_while_the_engine_still_ends_its_work_are_asked_for_after_it(page):
    page.begin_test(TEST)
    question = page.wishes[-1].question
    page.store.set_activity("experiment")
    page.begun(question)
    page.store.take(ev.Answered(question, told(page, question, "a", "a")))
    asked = len(page.wishes)
    page.refresh()  # the answer is there, and the engine is not free yet
    assert page.test.equal == 1
    assert not any(isinstance(wish, AskRound) for wish in page.wishes[asked:])
    page.store.set_activity("idle")
    page.refresh()
    assert isinstance(page.wishes[-1], AskRound)


def test_texts_that_wait_for_another_run_are_not_said_to_be_written(page):
    page.begin_test(TEST)
    answer(page, "a", "b")
    answer(page, "c", "d")
    below = page.round.end.y()
    page.store.set_activity("paused")  # a run of another page
    page.round.vote(0)
    page.round.vote(0)
    page.refresh()
    assert page.test.open_round is None
    assert "The engine is at work" in page.state_words.text()
    page.grab()
    assert abs(page.round.end.y() - below) < 40  # the buttons stay below, where texts were
    page.store.set_activity("idle")
    page.refresh()
    assert isinstance(page.wishes[-1], AskRound)


def test_keys_vote_take_back_and_show(page):
    page.begin_test(TEST)
    answer(page, "a", "b")
    page.round.vote(5)  # no such text
    assert not page.test.voted
    page.round.vote(1)
    answer(page, "c", "d")
    page.take_back()
    assert page.test.open_round.texts == ("a", "b")
    page.round.vote(-1)
    assert page.test.undecided == 1
    assert page.test.open_round.texts == ("c", "d")  # nobody had judged it: it comes again
    assert isinstance(page.wishes[-1], (KeepBlind, AskRound))


def test_a_vote_is_taken_back_by_key_also_while_the_next_texts_are_written(page, qtbot, qapp):
    page.activateWindow()
    qtbot.waitUntil(page.isActiveWindow)
    page.begin_test(TEST)
    answer(page, "a", "b")
    QTest.keyClick(qapp.focusWidget(), Qt.Key.Key_1)
    assert page.test.open_round is None
    qapp.sendPostedEvents(None, QEvent.Type.DeferredDelete)  # the texts that were read are gone
    QTest.keyClick(qapp.focusWidget(), Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert not page.test.voted
    assert page.test.open_round.texts == ("a", "b")
    assert qapp.focusWidget() in page.round.findChildren(QPlainTextEdit)


def test_texts_at_equal_pace_come_with_as_many_characters_each(page):
    page.setup.pace.choose("paced")
    page.begin_test(TEST)
    answer(page, "a" * 50, "b" * 9)
    assert [edit.toPlainText() for edit in page.round._texts] == ["", ""]
    page.round._tick()
    lengths = {len(edit.toPlainText()) for edit in page.round._texts}
    assert lengths == {4}
    page.round._texts[0].setFocus()
    page.round.show_all()
    assert {edit.toPlainText() for edit in page.round._texts} == {"a" * 50, "b" * 9}
    assert not page.round._timer.isActive()


def test_an_error_stops_the_test_and_the_button_goes_on(page):
    page.begin_test(TEST)
    question = page.wishes[-1].question
    page.store.set_activity("experiment")
    page.begun(question)
    page.store.set_activity("idle")
    page.store.take(ev.Answered(question, ev.EngineError("The memory is full.", "Use fewer lanes.", 4, "question")))
    page.refresh()
    assert "memory is full" in page.bar.error.text()
    assert page.resume.isVisible()
    asked = len(page.wishes)
    page.resume.click()
    assert isinstance(page.wishes[asked], AskRound)


def test_a_test_is_of_the_model_that_it_was_begun_with_and_can_be_ended_without_a_vote(page, qtbot):
    page.begin_test(TEST)
    page.stop()  # before the first texts
    page.begun(page.wishes[-2].question)
    page.store.set_activity("experiment")
    page.store.set_activity("idle")
    page.refresh()
    page.store.take(ev.Loaded(facts(name="another")))
    page.store.set_activity("idle")
    page.go_on()
    answer(page, "one", "two")
    assert "votes on two models cannot be counted together" in page.bar.error.text()
    assert page.test.rounds == ()
    qtbot.mouseClick(page.round.end, Qt.MouseButton.LeftButton)
    assert page._stack.currentWidget() is page.setup
    kept = [wish.test for wish in page.wishes if isinstance(wish, KeepBlind)]
    assert kept[-1].finished  # and is not gone on with at the next start


def test_ended_while_texts_are_written_it_stops_them(page):
    page.begin_test(voted(TEST, 0))
    question = page.wishes[-1].question
    page.store.set_activity("experiment")
    page.begun(question)
    page.finish()
    assert page.test.finished
    assert any(isinstance(wish, StopExperiment) for wish in page.wishes)
    QTest.keyClick(page.round, Qt.Key.Key_1)  # no round is open
    assert len(page.test.voted) == 1


def test_the_verdict_is_as_sure_as_the_votes_allow():
    (sure,) = verdicts(voted(TEST, *[0] * 15, *[1] * 5))
    assert sure == "A calm is preferred to B wild: 15 of 20 votes, p\u00a0=\u00a00.041."
    (unsure,) = verdicts(voted(TEST, *[1] * 11, *[0] * 9))
    assert "no difference seen" in unsure
    assert "11 of 20 votes" in unsure
    three = replace(TEST, settings=SETTINGS, names=())
    told = verdicts(voted(three, *[0] * 12, *[1] * 3, *[2] * 3))
    assert "among so many comparisons it is not" in told[0]
    assert any("3 comparisons" in note for note in notes(voted(three, 0)))
    assert verdicts(three) == ["Between 3 pairs no vote chose."]
    assert any("Ended after 1 of 20" in note for note in notes(voted(TEST, 0)))
