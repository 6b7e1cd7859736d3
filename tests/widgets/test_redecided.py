"""Other settings over a finished text: the bar says where it goes elsewhere, and the words carry their marks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt

from engine.events import ELSEWHERE, FILTERS, OPEN, STANDS, Mark, Redecided
from engine.redecide import FinishedRun
from engine.settings import Parent, SamplingSettings
from tests.widgets import events_factory as make
from widgets import theme
from widgets.redecided_bar import choices_text, summary
from widgets.text_view import TextView

PLAIN = SamplingSettings()


def written() -> list:
    events = make.river(PLAIN)
    return [replace(event, step=step) for step, event in enumerate(events)]


def found_for(events, **changes) -> Redecided:
    return FinishedRun(make.start(), events).redecide(replace(PLAIN, **changes))


@pytest.fixture
def view(qtbot):
    events = written()
    store, view = make.shown(qtbot, TextView, events, (560, 360), make.end(events))
    return store, view, events


def test_a_cut_word_is_named_with_what_cuts_it(view) -> None:
    _, view, events = view
    found = found_for(events, top_p=0.3)
    view.show_redecided(found)
    first = found.first
    assert found.open_at is None
    assert FILTERS[found.cuts[first] - 1] == "top_p"
    assert view.redecided_bar.isVisible()
    text = view.redecided_bar.label.text()
    assert f"at word {first + 1}: " in text
    assert "is cut by top-p" in text
    assert f"{found.cut_count} of {len(events)} words would be cut" in text
    assert view.redecided_bar.accessibleName() == text


def test_the_sentence_has_the_whole_width_of_a_small_window_and_nothing_of_it_is_cut(qtbot, view) -> None:
    _, view, events = view
    view.show_redecided(found_for(events, top_p=0.3))
    bar = view.redecided_bar
    view.resize(404, 192)  # as in a window of 1024 x 700
    qtbot.waitUntil(lambda: bar.go_on.y() > bar.label.geometry().bottom())
    assert bar.label.width() == bar.width()
    qtbot.waitUntil(lambda: bar.label.height() >= bar.label.heightForWidth(bar.label.width()))
    assert bar.label.height() <= 3 * bar.label.fontMetrics().lineSpacing()
    view.resize(1400, 400)
    qtbot.waitUntil(lambda: bar.go_on.x() > bar.label.geometry().right())


def test_as_it_was_written_leaves_no_mark(view) -> None:
    _, view, events = view
    before = view.canvas.viewport().grab().toImage()
    view.show_redecided(found_for(events, top_p=0.3))
    assert view.canvas.viewport().grab().toImage() != before
    view.show_redecided(None)
    assert not view.redecided_bar.isVisible()
    view.canvas.resize(view.canvas.size())
    assert view.canvas.redecided is None


def test_the_way_back_is_a_button_with_a_key(qtbot, view) -> None:
    _, view, events = view
    view.show_redecided(found_for(events, top_p=0.3))
    with qtbot.waitSignal(view.as_written_requested):
        qtbot.keyClick(view.redecided_bar.button, Qt.Key.Key_Space)


def test_a_screen_reader_hears_what_becomes_of_the_word(view) -> None:
    store, view, events = view
    found = found_for(events, top_p=0.3)
    view.show_redecided(found)
    store.select(found.first)
    assert "is cut by top-p" in view.canvas.accessibleDescription()


def test_a_cut_word_is_struck_in_its_filters_colour(view) -> None:
    store, view, events = view
    found = found_for(events, top_p=0.3)
    store.select(next(step for step, cut in enumerate(found.cuts) if not cut))
    view.show_redecided(found)
    step = next(s for s, cut in enumerate(found.cuts) if cut and s > 1 and len(events[s].text.strip()) > 2)
    place = view.canvas.place_of(step)
    image = view.canvas.viewport().grab().toImage()
    column = [image.pixelColor(int(place.center().x()), int(place.top()) + y) for y in range(int(place.height()))]
    assert theme.current().cut("top_p") in column


def test_marks_of_half_a_character_stand_at_the_next_word(qtbot) -> None:
    """In many scripts a token is half a character, and its text comes with the next one."""
    events = written()[:8]
    events[3] = replace(events[3], text="")
    store, view = make.shown(qtbot, TextView, events, (560, 360), make.end(events))
    store.select(6)
    look = theme.current()

    def colours() -> set[str]:
        place = view.canvas.place_of(4).toRect()
        image = view.canvas.viewport().grab().toImage()
        return {
            image.pixelColor(x, y).name()
            for x in range(place.left() - 2, place.left() + 9)
            for y in range(place.top(), place.top() + 8)
        }

    assert not {look.warning.name(), look.accent.name()} & colours()
    view.show_redecided(answer([STANDS] * 3 + [ELSEWHERE] + [STANDS] * 4))
    assert look.warning.name() in colours()
    view.show_redecided(None)
    store.take(Mark(1, 0, "bookmark", 3))
    assert look.accent.name() in colours()
    store.take(Mark(1, 0, "bookmark", 3, removed=True))
    assert look.accent.name() not in colours()
    run = store.current
    run.start = replace(run.start, parent=Parent(9, 0, 3), written=(1, 2, 3))
    view.canvas.viewport().update()
    assert look.accent.name() in colours()


def test_another_run_takes_the_marks_away(view) -> None:
    store, view, events = view
    view.show_redecided(found_for(events, top_p=0.3))
    store.take(make.start(run_id=2))
    store.frame.emit()
    assert view.canvas.redecided is None


def answer(fates: list[int], cuts: list[int] | None = None, low: float = 2.0, high: float = 2.0) -> Redecided:
    from array import array

    size = len(fates)
    bounds = array("d", [low] * size), array("d", [high] * size)
    return Redecided(bytes(fates), bytes(cuts or [0] * size), *bounds, array("i", [-1] * size))


def test_without_a_draw_none_is_said_to_fall_beside_the_word(view) -> None:
    _, view, events = view
    found = found_for(events, temperature=0.0)
    assert found.first is not None
    view.show_redecided(found)
    text = view.redecided_bar.label.text()
    assert "is not the most probable" in text
    assert "draw" not in text


def test_what_is_undecided_is_said_and_never_guessed(qapp) -> None:
    events = written()[:3]
    said = summary(answer([STANDS, OPEN, ELSEWHERE]), events)
    assert "by word 3, not before word 2, which is undecided" in said
    assert "1 undecided" in said
    assert summary(answer([STANDS, OPEN, STANDS]), events).startswith("Undecided from word 2 on.")
    assert "he same text" in summary(answer([STANDS] * 3), events)


def test_bounds_of_the_choices_are_told_as_bounds(qapp) -> None:
    assert choices_text(answer([STANDS]), 0) == "2.0"
    assert choices_text(answer([STANDS], low=2.0, high=3.0), 0) == "2.0 … 3.0"
    assert choices_text(answer([STANDS], low=float("nan")), 0) == ""
