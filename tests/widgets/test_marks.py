"""Bookmarks and notes: set by hand, edited where they stand, walked through, undone."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt

from engine.events import Mark
from tests.widgets import events_factory as make
from widgets.mark_painter import mark_x
from widgets.marks import described
from widgets.text_view import TextView
from widgets.timeline import Timeline


@pytest.fixture
def shown(qtbot):
    events = make.tokens([" word"] * 30, vocab=50)
    store, view = make.shown(qtbot, Timeline, events, (629, 160), make.end(events))
    written = []
    view.marks.written.connect(written.append)
    return store, view, written


def bookmarks(store):
    return [(mark.step, mark.text) for mark in store.current.bookmarks]


def click(qtbot, button):
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


def test_the_button_sets_a_bookmark_on_the_word_and_takes_it_away(qtbot, shown):
    store, view, written = shown
    store.select(12)
    click(qtbot, view.buttons.bookmark_button)
    assert bookmarks(store) == [(12, "")]
    assert view.buttons.bookmark_button.isChecked()
    assert view.notes_bar.name_label.text() == "Bookmark 1"
    click(qtbot, view.buttons.bookmark_button)
    assert bookmarks(store) == []
    assert not view.buttons.bookmark_button.isChecked()
    assert written == [Mark(1, 0, "bookmark", 12), Mark(1, 0, "bookmark", 12, removed=True)]


def test_bookmarks_are_numbered_in_the_order_of_the_text(shown):
    store, view, _ = shown
    for step in (20, 4, 11):
        view.marks.put("bookmark", step, f"at {step}")
    assert bookmarks(store) == [(4, "at 4"), (11, "at 11"), (20, "at 20")]
    assert described(store.current, 20) == "Bookmark 3: at 20"
    assert [view.marks.number(mark) for mark in store.current.bookmarks] == [1, 2, 3]


def test_one_goes_from_bookmark_to_bookmark_and_the_window_goes_back_with_it(shown):
    store, view, _ = shown
    for step in (4, 11, 20):
        view.marks.put("bookmark", step, "")
    store.select(0)
    reached = []
    for _ in range(4):
        view.marks.next_bookmark()
        reached.append(store.selected_step)
    assert reached == [4, 11, 20, 20]
    assert store.moment == 21
    view.marks.previous_bookmark()
    assert store.selected_step == 11


def test_a_name_and_a_note_are_written_where_they_stand(qtbot, shown):
    store, view, _ = shown
    store.select(7)
    view.marks.rename_bookmark()
    assert view.notes_bar.name.hasFocus()
    qtbot.keyClicks(view.notes_bar.name, "the bend")
    qtbot.keyClick(view.notes_bar.name, Qt.Key.Key_Return)
    assert bookmarks(store) == [(7, "the bend")]
    assert view.bars.hasFocus()
    view.marks.write_note()
    qtbot.keyClicks(view.notes_bar.note, "  why   this word?")
    qtbot.keyClick(view.notes_bar.note, Qt.Key.Key_Return)
    assert store.current.notes == [Mark(1, 0, "note", 7, "why this word?")]
    assert described(store.current, 7) == "Bookmark 1: the bend. Note: why this word?"


def test_escape_brings_the_last_words_back(qtbot, shown):
    store, view, written = shown
    view.marks.put("note", 7, "first")
    store.select(7)
    view.marks.write_note()
    qtbot.keyClicks(view.notes_bar.note, "second")
    qtbot.keyClick(view.notes_bar.note, Qt.Key.Key_Escape)
    assert store.current.notes[0].text == "first"
    assert view.notes_bar.note.text() == "first"
    assert len(written) == 1


def test_an_emptied_note_goes_and_a_word_without_marks_has_no_row(qtbot, shown):
    store, view, _ = shown
    view.marks.put("note", 7, "first")
    store.select(7)
    assert view.notes_bar.isVisible()
    view.marks.write_note()
    qtbot.keyClick(view.notes_bar.note, Qt.Key.Key_Delete)
    qtbot.keyClick(view.notes_bar.note, Qt.Key.Key_Return)
    assert store.current.notes == []
    assert not view.notes_bar.isVisible()
    store.select(8)
    assert not view.notes_bar.isVisible()


def test_the_note_on_the_run_stands_there_while_no_word_is_selected(qtbot, shown):
    store, view, _ = shown
    view.marks.write_run_note()
    qtbot.keyClicks(view.notes_bar.note, "for Thursday")
    qtbot.keyClick(view.notes_bar.note, Qt.Key.Key_Return)
    assert store.current.notes == [Mark(1, 0, "note", None, "for Thursday")]
    store.select(3)
    assert not view.notes_bar.isVisible()
    store.select(None)
    assert view.notes_bar.isVisible()
    assert view.notes_bar.note_label.text() == "Note on the run"


def test_words_that_are_being_written_stay_with_their_run_when_another_begins(qtbot, shown):
    store, view, _ = shown
    store.select(7)
    view.marks.write_note()
    qtbot.keyClicks(view.notes_bar.note, "of the first")
    first = store.current
    store.take(make.start(run_id=2))
    for event in make.tokens([" x"] * 10, vocab=50, run_id=2):
        store.take(event)
    store.frame.emit()
    qtbot.keyClick(view.notes_bar.note, Qt.Key.Key_Return)
    assert [mark.text for mark in first.notes] == ["of the first"]
    assert store.run((2, 0)).notes == []


def test_every_act_is_undone_and_done_again(shown):
    store, view, written = shown
    marks, stack = view.marks, view.marks.stack
    marks.put("bookmark", 5, "")
    marks.put("bookmark", 5, "name")
    marks.put("note", 9, "a note")
    marks.put("bookmark", 5, None)
    states = [dict(store.current.marks)]
    while stack.canUndo():
        stack.undo()
        states.append(dict(store.current.marks))
    assert states[-1] == {}
    assert [len(state) for state in states] == [1, 2, 1, 1, 0]
    while stack.canRedo():
        stack.redo()
    assert dict(store.current.marks) == states[0]
    assert len(written) == 12  # each step is kept, also those back


def test_a_click_on_a_flag_goes_to_its_word_and_tells_it(qtbot, shown):
    store, view, _ = shown
    view.marks.put("bookmark", 20, "here")
    store.select(None)
    store.frame.emit()
    x = int(mark_x(20, view.bars.pitch())) + 4
    assert view.bars.step_of_mark(x, 4) == 20
    assert view.bars.step_of_mark(x, 40) is None
    qtbot.mouseClick(view.bars, Qt.MouseButton.LeftButton, pos=QPoint(x, 4))
    assert store.selected_step == 20
    assert "Bookmark 1: here" in view.bars.accessibleDescription()


def test_marks_beyond_what_a_damaged_recording_holds_harm_nothing(qtbot):
    events = make.tokens([" word"] * 5, vocab=50)
    marks = [Mark(1, 0, "bookmark", 400, "far"), Mark(1, 0, "note", 99, "x"), Mark(9, 0, "note", None, "no such run")]
    store, view = make.shown(qtbot, Timeline, [*events, *marks], (600, 160), make.end(events))
    text = TextView(store)
    qtbot.addWidget(text)
    view.marks.next_bookmark()
    assert store.selected_step == 4
    assert not view.grab().isNull()
    assert not text.grab().isNull()


def test_a_word_says_its_marks_when_it_is_pointed_at(qtbot):
    events = make.tokens([" word"] * 5, vocab=50)
    store, view = make.shown(qtbot, TextView, events, (600, 200), make.end(events))
    store.take(Mark(1, 0, "note", 2, "水流"))
    store.select(2)
    assert "Note: 水流" in view.canvas.accessibleDescription()
    before = view.canvas.viewport().grab().toImage()
    store.take(Mark(1, 0, "note", 2, removed=True))
    qtbot.wait(20)
    assert view.canvas.viewport().grab().toImage() != before
