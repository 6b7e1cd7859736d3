"""A run played back takes the times that its words took, or those that were chosen."""

from __future__ import annotations

import math

import pytest
from PySide6.QtCore import Qt

from tests.widgets import events_factory as make
from widgets.playback import LONGEST_JUMP_S, SPEEDS, Player, Speed
from widgets.run_store import RunStore
from widgets.status_line import StatusLine
from widgets.timeline import Timeline

pytestmark = pytest.mark.usefixtures("qapp")  # for timers


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


TOOK_MS = (30.0, 100.0, 40.0, 200.0, 10.0, 60.0)  # forward and sampling of six tokens


def finished(took=TOOK_MS, end=True):
    store, clock = RunStore(), Clock()
    events = [
        make.token(step, f" w{step}", vocab=50, forward_ms=ms - 1.0, sampling_ms=1.0) for step, ms in enumerate(took)
    ]
    for event in (make.start(), *events, *([make.end(events)] if end else [])):
        store.take(event)
    player = Player(store, clock=clock)

    def after(ms):
        clock.now += ms / 1000.0
        player.tick()
        return store.selected_step

    return store, player, after


def test_each_word_comes_after_the_time_that_it_took():
    store, player, after = finished()
    player.play()
    assert store.selected_step == 0
    assert store.rewound
    assert after(99) == 0
    assert after(2) == 1  # 100 ms
    assert after(30) == 1
    assert after(10) == 2  # 140 ms
    assert after(150) == 2
    assert after(50) == 3  # 340 ms; 341 have passed
    assert after(9.5) == 4
    assert player.playing
    player.pause()


@pytest.mark.parametrize("times", [0.25, 0.5, 2.0, 16.0])
def test_at_another_speed_all_times_are_shorter_or_longer_by_it(times):
    _store, player, after = finished()
    player.set_speed(Speed(times))
    player.play()
    assert after(99 / times) == 0
    assert after(2 / times) == 1
    player.pause()


def test_at_so_many_words_a_second_all_take_the_same():
    _store, player, after = finished()
    player.set_speed(Speed(per_second=5.0))
    player.play()
    assert [after(ms) for ms in (199, 2, 200, 200)] == [0, 1, 2, 3]
    player.pause()


def test_at_its_end_it_stops_and_the_window_shows_the_run_as_it_ended():
    store, player, after = finished()
    player.play()
    for _ in range(20):
        after(100)
    assert not player.playing
    assert store.following
    assert not store.rewound
    player.play()  # again from the first word
    assert store.selected_step == 0
    player.pause()


def test_it_begins_where_the_timeline_stands_and_follows_a_hand():
    store, player, after = finished()
    store.rewind(2)
    player.play()
    assert store.selected_step == 2
    store.rewind(4)
    assert after(59) == 4
    assert after(2) == 5
    player.pause()


def test_playing_up_to_the_newest_word_of_a_run_that_goes_on_goes_on_with_it():
    store, player, after = finished(end=False)
    store.rewind(3)
    player.play()
    for _ in range(5):
        after(100)
    assert store.following
    assert not player.playing


@pytest.mark.parametrize("stops", ["another run", "the newest word"])
def test_it_stops_where_something_else_is_shown(stops):
    store, player, after = finished()
    player.play()
    if stops == "another run":
        store.take(make.start(run_id=2))
    else:
        store.select(None)
    after(20)
    assert not player.playing


def test_a_computer_that_slept_does_not_find_its_run_at_the_end():
    _store, player, after = finished((400.0,) * 6)
    player.play()
    assert after(3_600_000) == int(LONGEST_JUMP_S * 1000 // 400)
    player.pause()


def test_times_that_a_recording_does_not_tell_are_the_mean_of_the_others():
    _store, player, after = finished((50.0, math.nan, 50.0))
    player.play()
    assert after(49) == 0
    assert after(2) == 1
    player.pause()
    _store, player, after = finished((math.nan,) * 3)
    player.play()
    assert after(199) == 0
    assert after(2) == 1
    player.pause()


def test_faster_and_slower_go_through_the_speeds_of_their_kind():
    _store, player, _after = finished()
    assert player.speed == Speed(1.0)
    for _ in range(10):
        player.faster()
    assert player.speed == Speed(16.0)
    for _ in range(20):
        player.slower()
    assert player.speed == Speed(0.25)
    player.set_speed(Speed(per_second=5.0))
    player.slower()
    assert player.speed == Speed(per_second=2.0)
    assert {speed.times for speed in SPEEDS if not speed.per_second} == {0.25, 0.5, 1, 2, 4, 8, 16}


def test_nothing_and_a_single_word_cannot_be_played():
    store = RunStore()
    player = Player(store)
    player.toggle()
    assert not player.playing
    store.take(make.start())
    store.take(make.token(0, "w", vocab=50))
    player.toggle()
    assert not player.playing


def test_space_on_the_timeline_and_the_button_play_and_pause(qtbot):
    events = make.tokens([" w"] * 30, vocab=50)
    store, view = make.shown(qtbot, Timeline, events, (629, 120), make.end(events))
    status = StatusLine(store)
    qtbot.addWidget(status)
    qtbot.keyClick(view.bars, Qt.Key.Key_Space)
    assert store.playing
    assert store.selected_step == 0
    assert status.state == "Playing back: 1 of 30"
    assert view.buttons.play_button.property("theme_icon") == "pause"
    qtbot.mouseClick(view.buttons.play_button, Qt.MouseButton.LeftButton)
    assert not store.playing
    assert view.buttons.play_button.property("theme_icon") == "run"
    status.refresh()
    assert status.state.startswith("Back at token")


def test_a_speed_is_chosen_from_the_menu(qtbot):
    events = make.tokens([" w"] * 30, vocab=50)
    _store, view = make.shown(qtbot, Timeline, events, (629, 120), make.end(events))
    words = [action.text() for action in view.buttons.speed_menu.actions() if not action.isSeparator()]
    assert words[:3] == ["0.25×", "0.5×", "as it was written, 1×"]
    assert "5 tokens a second" in words
    view.buttons.speeds.actions()[words.index("5 tokens a second")].trigger()
    assert view.player.speed == Speed(per_second=5.0)
    assert view.buttons.speed_button.text() == "5 / s"
