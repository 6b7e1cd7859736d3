from __future__ import annotations

from dataclasses import replace

import pytest

from engine import events as ev
from engine.replay import Recorder, read_replay
from tests.widgets import events_factory as make
from widgets.box_view import BoxView
from widgets.run import Run
from widgets.run_store import RunStore
from widgets.status_line import StatusLine, pace
from widgets.text_painter import end_word

READING = ev.MemoryReading(1.0, 487_000_000, 12_000_000_000, 16_000_000_000)


def shown(qtbot, events=(), *, width=1400, end=None, **start):
    store = RunStore()
    line = StatusLine(store)
    qtbot.addWidget(line)
    line.resize(width, 24)
    line.show()
    if events:
        store.take(make.start(**start))
        store.take(ev.PrefillProgress(1, 38, 38, 290.0, 875_520))
        for event in events:
            store.take(event)
        store.take(READING)
        if end:
            store.take(end)
    store.frame.emit()
    line.grab()
    return store, line


def timed(count, forward_ms=22.0, sampling_ms=1.0):
    return [replace(e, forward_ms=forward_ms, sampling_ms=sampling_ms) for e in make.tokens([" w"] * count)]


def values(line):
    return {figure.name: figure.value + figure.rest for figure in line.figures}


def test_a_running_runs_pace_comes_from_its_events():
    run = Run(make.start(tokenise_ms=1.5), tokens=timed(3))
    run.tokens[0] = replace(run.tokens[0], forward_ms=150.0, sampling_ms=0.5)
    run.prefill = [ev.PrefillProgress(1, 19, 38, 140.0, 0), ev.PrefillProgress(1, 38, 38, 290.0, 0)]
    times = pace(run)
    assert times.ttft_ms == pytest.approx(1.5 + 290.0 + 0.5)  # the last chunk's forward is in the prefill already
    assert times.per_token_ms == pytest.approx(23.0)
    assert times.tokens_per_s == pytest.approx(1000 / 23)


def test_the_first_token_alone_says_nothing_about_the_speed():
    times = pace(Run(make.start(), tokens=timed(1)))
    assert times.per_token_ms is times.tokens_per_s is None
    assert pace(Run(make.start())).ttft_ms is None


def test_a_run_whose_file_was_cut_did_not_fail_its_recording_ends_there(qtbot, tmp_path):
    events = make.river()
    recorder = Recorder(tmp_path / "run.jsonl", {})
    for event in (make.start(), *events, make.end(events)):
        recorder.take(event)
    recorder.close()
    whole = recorder.path.read_bytes()
    recorder.path.write_bytes(whole[: len(whole) // 2])
    store, line = shown(qtbot)
    store.take_runs(make.recorded(read_replay(recorder.path).events))
    line.refresh()
    assert line.state == "Recording damaged"
    assert end_word(store.current.end) == "recording ends here: file damaged"
    view = BoxView(store)
    qtbot.addWidget(view)
    view.show_box("format")
    assert {fact.name: fact.value for fact in view.rows()}["Ended by"] == "the end of the recording"
    failed = make.end(events, "error", sentence="The model gave numbers that are not finite.")
    assert end_word(failed) == "ended: error"


def test_an_ended_run_shows_the_engines_own_figures(qtbot):
    events = timed(5)
    _store, line = shown(qtbot, events, end=make.end(events, "eos", ttft_ms=312.0, decode_tokens_per_s=40.0))
    assert line.state == "Done"
    assert values(line)["First token"] == "312 ms"
    assert values(line)["Per token"] == "25.0 ms"
    assert values(line)["Speed"] == "40.0 / s"
    assert line.forecast is None


def test_a_run_of_one_token_has_no_speed(qtbot):
    events = timed(1)
    end = make.end(events, "length", decode_ms=0.0, decode_tokens_per_s=0.0)
    _store, line = shown(qtbot, events, end=end)
    assert "Speed" not in values(line)


def test_a_fork_that_wrote_nothing_has_no_times():
    first = make.tokens(["One", " two"])
    fork = make.start(run_id=2, written=tuple(token.token_id for token in first))
    ended = make.end(first, "stop string", run_id=2, ttft_ms=0.0, decode_ms=0.0, decode_tokens_per_s=0.0)
    times = pace(Run(fork, tokens=first, end=ended))
    assert times.ttft_ms is times.per_token_ms is times.tokens_per_s is None


def test_the_line_reads_as_drawn(qtbot):
    _store, line = shown(qtbot, timed(45))
    assert line.state == "Writing"
    assert values(line) == {
        "First token": "292 ms",
        "Per token": "23.0 ms",
        "Speed": "43.5 / s",
        "Context": "83 / 8,192",
        "Memory": "487 MB",
    }
    assert line.forecast.rest == "context full in 8,109 tokens (forecast)"
    assert "Writing, First token 292 ms" in line.accessibleDescription()


def test_every_figure_says_what_it_is(qtbot):
    _store, line = shown(qtbot, timed(45))
    for figure in line.figures:
        assert "measured" in figure.tooltip, figure
    assert "Predicted" in line.forecast.tooltip


def test_what_does_not_fit_is_left_out_from_the_right(qtbot):
    _store, line = shown(qtbot, timed(45))
    painted = [figure.name for _, figure in line._places]
    assert set(painted) == {"", "First token", "Per token", "Speed", "Context", "Memory"}
    line.resize(420, 24)
    line.grab()
    fewer = [figure.name for _, figure in line._places]
    assert 0 < len(fewer) < 5
    assert fewer == ["First token", "Per token", "Speed", "Context", "Memory"][: len(fewer)]
    assert all(box.right() <= 420 for box, _ in line._places)


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("eos", "Done"),
        ("length", "Done"),
        ("cancelled", "Stopped"),
        ("error", "Failed"),
        ("context full", "Context full"),
    ],
)
def test_the_state_after_a_run_is_its_end(qtbot, reason, word):
    events = timed(2)
    _store, line = shown(qtbot, events, end=make.end(events, reason))
    assert line.state == word


def test_the_state_follows_what_goes_on(qtbot):
    store, line = shown(qtbot)
    assert line.state == "No model loaded"
    assert line.figures == []
    store.take(ev.LoadProgress("weights", 1, 2, 3.0))
    store.frame.emit()
    assert line.state == "Loading the model"
    store.take(make.start())
    store.frame.emit()
    assert line.state == "Reading the prompt"
    store.take(make.token(0, "x", vocab=50))
    store.set_activity("paused")
    store.frame.emit()
    assert line.state == "Paused"


def test_a_model_without_a_known_limit_has_no_forecast(qtbot):
    _store, line = shown(qtbot, timed(3), context_tokens=0)
    assert values(line)["Context"] == "41"
    assert line.forecast is None


def test_pointing_finds_the_figure(qtbot):
    _store, line = shown(qtbot, timed(45))
    box, figure = line._places[-1]
    assert line.figure_at(box.center().x(), box.center().y()) is figure
    assert line.figure_at(-5, 0) is None
