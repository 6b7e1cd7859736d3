"""Taken back to a word, every view shows what it showed when that word was the newest."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint, Qt

from engine.events import MemoryReading
from tests.widgets import events_factory as make
from widgets import theme
from widgets.pipeline_boxes import figure
from widgets.run_store import RunStore
from widgets.status_line import StatusLine, pace
from widgets.text_view import TextView
from widgets.timeline import Timeline


def filled(count=40, end=True):
    events = make.tokens([" word"] * count, vocab=50)
    events = [replace(event, forward_ms=10.0 + event.step, sampling_ms=0.0) for event in events]
    store = RunStore()
    for event in (make.start(), *events, *([make.end(events)] if end else [])):
        store.take(event)
    return store


def test_a_click_looks_at_a_word_and_the_timeline_takes_the_window_back():
    store = filled()
    store.select(9)
    assert (store.rewound, store.moment) == (False, 40)
    store.rewind(9)
    assert (store.rewound, store.moment) == (True, 10)
    store.step_by(1)
    assert (store.rewound, store.moment) == (True, 11)
    store.select(None)
    assert (store.rewound, store.moment) == (False, 40)
    store.rewind(-5)
    assert store.moment == 1


def test_a_new_run_ends_it():
    store = filled()
    store.rewind(3)
    store.take(make.start(run_id=2))
    assert not store.rewound
    assert store.moment == 0


def test_the_speed_is_that_of_the_words_before():
    store = filled()
    run = store.current
    assert pace(run).ended
    then = pace(run, 11)
    assert not then.ended
    assert then.per_token_ms == pytest.approx(sum(10.0 + step for step in range(1, 11)) / 10)
    assert pace(run, 40).ended
    store.rewind(10)
    assert figure("stream", store) == "64.5 / s"  # 1000 / 15.5


def test_the_status_line_says_where_and_how_it_was(qtbot):
    store = filled()
    for step, size in ((5, 1e9), (20, 2e9)):
        store.current.readings.append((step, MemoryReading(0.0, int(size), 8 * 10**9, 16 * 10**9)))
    store.take(MemoryReading(9.0, 3 * 10**9, 8 * 10**9, 16 * 10**9))
    line = StatusLine(store)
    qtbot.addWidget(line)
    store.rewind(10)
    line.refresh()
    shown = {figure.name: figure.value for figure in line.figures}
    assert line.state == "Back at token 11 of 40"
    assert shown["Context"] == "49"  # 38 of the prompt, 11 written
    assert shown["Memory"] == "1.0 GB"  # as it was measured last then
    assert "8,143" in line.forecast.rest
    store.rewind(2)
    line.refresh()
    assert "Memory" not in {figure.name for figure in line.figures}  # not measured yet, so not told
    store.select(None)
    line.refresh()
    assert line.state == "Done"
    assert {figure.name: figure.value for figure in line.figures}["Memory"] == "3.0 GB"


def test_readings_stand_at_the_word_that_was_newest():
    store = RunStore()
    store.take(make.start())
    for event in make.tokens([" w"] * 3, vocab=50):
        store.take(event)
        store.take(MemoryReading(float(event.step), event.step + 1, 2, 3))
    assert [step for step, _ in store.current.readings] == [0, 1, 2]
    assert store.current.reading_at(1).process_bytes == 2


def test_later_words_stand_back_in_the_text(qtbot):
    events = make.tokens([" word"] * 12, vocab=50)
    store, view = make.shown(qtbot, TextView, events, (900, 260), make.end(events))
    canvas = view.canvas
    store.select(3)
    store.frame.emit()
    looked_at = ink_at(canvas, 8)
    assert looked_at == theme.current().ink
    store.rewind(3)
    store.frame.emit()
    assert ink_at(canvas, 8) == theme.current().muted
    assert ink_at(canvas, 2) == theme.current().ink


def ink_at(canvas, step):
    """The darkest colour in a word's place."""
    image = canvas.viewport().grab().toImage()
    place = canvas.place_of(step).toRect().adjusted(3, 0, 0, 0)
    colours = [
        image.pixelColor(x, y) for x in range(place.left(), place.right()) for y in range(place.top(), place.bottom())
    ]
    return min(colours, key=lambda colour: colour.lightness())


def test_later_bars_stand_back_on_the_timeline(qtbot):
    events = [replace(event, entropy_nats=2.0) for event in make.tokens([" w"] * 30, vocab=50)]
    store, view = make.shown(qtbot, Timeline, events, (629, 120), make.end(events))
    bars = view.bars

    def colour(step):
        return bars.grab().toImage().pixelColor(QPoint(int((step + 0.5) * bars.pitch()), bars.height() - 5))

    before = colour(20)
    qtbot.mouseClick(bars, Qt.MouseButton.LeftButton, pos=QPoint(int(10.5 * bars.pitch()), bars.height() - 5))
    assert store.rewound
    assert colour(5) == before
    assert colour(20) != before


def test_plots_veil_what_came_later(qtbot):
    from widgets.plots.kv_cache import KvCachePlot

    events = make.tokens([" w"] * 40, vocab=50)
    store, view = make.shown(qtbot, KvCachePlot, events, (420, 240), make.end(events))
    assert not view.veil.isVisible()
    store.rewind(9)
    assert view.veil.isVisible()
    assert view.veil.getRegion() == (9, 40)
    store.select(9)
    assert not view.veil.isVisible()


def test_a_recording_that_lost_words_is_shown_with_the_others_in_their_place(qtbot):
    events = make.tokens([" a", " b", " c", " d", " e"], vocab=50)
    kept = [events[0], events[1], events[4]]
    store, view = make.shown(qtbot, TextView, kept, (600, 200), make.end(kept))
    assert store.current.gaps == 2
    assert [token.step for token in store.current.tokens] == [0, 1, 2]
    store.rewind(2)
    assert store.shown_token.text == " e"
    assert not view.canvas.grab().isNull()
