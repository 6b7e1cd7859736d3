"""Luck or setting says in words what the interval says, and a dot shows its text."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from engine import events as ev
from engine.luck import compared
from engine.settings import SamplingSettings
from widgets.lab.experiment_wishes import RunLuck
from widgets.lab.figure_words import settings_text
from widgets.lab.luck_page import LuckPage
from widgets.lab.luck_words import explanation, summary
from widgets.lab.settings_list import Named, SettingsList, as_dicts, from_dicts
from widgets.run_store import RunStore
from widgets.status_line import StatusLine

A, B = SamplingSettings(temperature=0.5), SamplingSettings(temperature=1.5, top_p=0.9)


def runs(surprises) -> tuple[ev.RunFigures, ...]:
    return tuple(ev.RunFigures(8, s, 2.0, 1.0, 0.0, 0.0, 5.0, "length") for s in surprises)


def luck(first, second) -> ev.Luck:
    one, other = runs(first), runs(second)
    question = ev.LuckQuestion(ev.Asked("a"), (A, B), len(first))
    texts = tuple(tuple(f"{letter}{at}" for at in range(len(first))) for letter in "AB")
    return ev.Luck(question, "model", "float32", (one, other), texts, compared(one, other))


APART, ALIKE = luck((1.0, 1.2, 1.1, 0.9), (3.0, 3.3, 2.9, 3.1)), luck((1.0, 2.0, 3.0, 4.0), (1.5, 2.5, 3.5, 4.5))


@pytest.fixture
def page(shown):
    return shown(LuckPage)


def test_a_difference_that_stands_out_is_the_settings_doing():
    words = explanation(APART, APART.figures[0])
    assert "the setting's doing" in words
    assert "+2.03 nats" in words
    assert "4 seeds each" in words
    assert summary(APART) == "The setting's doing: mean surprise."


def test_one_that_does_not_could_be_luck_and_the_seeds_are_estimated():
    words = explanation(ALIKE, ALIKE.figures[0])
    assert "could be luck" in words
    assert "(estimated)" in words
    assert str(ALIKE.figures[0].seeds_needed) in words
    assert summary(ALIKE) == "Nothing here is more than luck would do."
    assert "the same in every text" in explanation(ALIKE, ALIKE.figures[2])


def test_bar_and_words_tell_the_same_from_the_first_token_on(page):
    line = StatusLine(page.store)
    page.store.set_activity("experiment")
    page.begun(APART.question)
    page.store.take(ev.ExperimentProgress(APART.question, 256, 1024, runs_done=0, runs=16))
    page.refresh()
    line.refresh()
    assert page.bar.bar.value() * 4 == page.bar.bar.maximum()
    assert page.bar.words.text() == "25% done · 0 of 16 runs ended"
    assert line.state == "An experiment runs: 25%"


def test_run_before_the_frame_that_shows_the_end_of_the_last_one_is_heard(page):
    page.store.set_activity("experiment")
    page.begun(APART.question)
    page.run_page(one_token=False)
    assert page.wishes == []
    page.store.take(ev.Answered(APART.question, APART))
    page.store.set_activity("idle")
    page.run_page(one_token=False)
    assert len(page.wishes) == 1
    assert page.luck is APART


def test_texts_that_happen_to_agree_within_each_setting_ask_for_more_seeds(page):
    few = luck((1.0, 1.0), (2.0, 2.0))
    assert few.figures[0].verdict == "none"
    assert "take more seeds" in explanation(few, few.figures[0])
    page.show_luck(few)
    assert not page.plot.grab().isNull()
    four = luck((1.0,) * 4, (2.0,) * 4)
    assert "run it again" in explanation(four, four.figures[0])  # 2 in 70 alone, but it is one of six figures


def test_dots_are_chosen_by_key_and_mouse_and_show_their_text(page):
    page.show_luck(APART)
    page.plot.setFocus()
    QTest.keyClick(page.plot, Qt.Key.Key_Right)
    assert page.text.toPlainText() == "A3"  # the least surprise
    QTest.keyClick(page.plot, Qt.Key.Key_Right)
    assert page.text.toPlainText() == "A0"
    place = page.plot.dot(1, 2).toPoint()
    QTest.mouseClick(page.plot, Qt.MouseButton.LeftButton, pos=place)
    assert page.text.toPlainText() == "B2"
    assert "B, seed 6" in page._text_panel.remark_label.text()


def test_what_was_compared_is_said_also_when_the_cards_were_changed_since(page):
    page.show_luck(APART)
    page.list.take([replace(card, settings=SamplingSettings(temperature=0.1)) for card in page.list.cards()])
    page.refresh()
    first, second = map(settings_text, APART.question.settings)
    assert f"A: {first}, and B: {second}." in page.notes.text()


def test_what_is_asked_is_what_stands_there(page):
    page.list.take([Named(A, "calm"), Named(B)])
    page.seeds.set_value(5)
    page.first_seed.set_value(-3)
    page.run_page(one_token=False)
    assert page.wishes == [RunLuck((A, B), 5, -3, 64)]


def test_settings_are_undone_and_come_back(qtbot):
    made = SettingsList(RunStore(), [Named(A), Named(B)], 4)
    qtbot.addWidget(made)
    made.add()
    made.take([replace(made.cards()[0], name="calm"), *made.cards()[1:]])
    assert [card.name for card in made.cards()] == ["calm", "", ""]
    made.undo()
    made.undo()
    assert made.cards() == (Named(A), Named(B))
    made.redo()
    assert len(made.cards()) == 3
    assert from_dicts(as_dicts(made.cards())) == made.cards()
    for broken in (None, 3, [{}], [{"name": "a", "settings": {"temperature": -1}}]):
        assert from_dicts(broken) == ()


@pytest.mark.parametrize("width", [700, 1090, 420])
def test_the_names_of_settings_and_figures_are_read_whole(page, qtbot, width):
    """700: what the page has in a window of 1024 by 700."""
    page.resize(width, 560)
    page.show_luck(APART)
    page.list.restore([Named(A, "a name of forty characters, as long as can be"), Named(B)])
    labels = [label for card in page.list._cards for label in card._labels.values()]
    qtbot.waitUntil(lambda: all(label.width() >= label.sizeHint().width() for label in labels))
    assert page.list._cards[0].name_field.cursorPosition() == 0
    assert "as long as can be" in page.list._cards[0].name_field.toolTip()
    if width >= 700:
        for at in range(page.table.topLevelItemCount()):
            name = page.table.topLevelItem(at).text(0)
            assert page.table.fontMetrics().horizontalAdvance(name) + 6 <= page.table.columnWidth(0)
    assert "mean surprise (nats)" in page.table.topLevelItem(0).toolTip(0)


@pytest.mark.parametrize("width", [1090, 1580])
def test_a_number_stands_nearer_to_its_own_name_than_to_the_next(page, qtbot, width):
    page.resize(width, 560)
    card = page.list._cards[0]
    qtbot.waitUntil(lambda: card._columns == 3)
    name, number, following = card._labels["top_k"], card.fields["top_k"], card._labels["typical_p"]
    qtbot.waitUntil(lambda: following.y() == name.y())
    assert number.x() - name.geometry().right() < following.x() - number.geometry().right()


def test_in_the_smallest_window_the_rows_of_the_settings_are_not_cut(page, qtbot):
    page.resize(594, 476)  # as in a window of 900 x 600
    labels = [label for card in page.list._cards for label in card._labels.values()]
    qtbot.waitUntil(lambda: page.list._cards[0]._columns == 1)
    qtbot.waitUntil(lambda: all(label.height() >= label.sizeHint().height() for label in labels))
    assert page.height() == 476


def test_tab_goes_down_the_columns_as_the_eye_does(page):
    card = page.list._cards[0]
    tops = [(card._labels[name].x(), card._labels[name].y()) for name in card.fields]
    assert tops == sorted(tops)
