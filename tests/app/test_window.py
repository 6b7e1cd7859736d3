"""The whole window on a tiny model, by mouse and key."""

from __future__ import annotations

import html
import json
import shutil
import sys
import threading
from dataclasses import replace

import pytest
from PySide6.QtCore import QMimeData, QObject, QPointF, Qt, QUrl, Slot
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QPushButton

from app.surprises import surprises_are_told
from engine.events import RunEnd, TokenEvent
from engine.replay import read_replay
from engine.settings import LoadPlan, SamplingSettings
from widgets import theme
from widgets.panel import PlainLabel
from widgets.pipeline_boxes import BOXES

# Greedy, this model does not come to an end token within many hundreds.
SLOW = {"seconds_per_token": 0.02, "max_new_tokens": 100_000, "sampling": {"temperature": 0}}


def controls(window):
    return window.sampling_panel.controls


class Listener(QObject):
    """Hears what the engine says, in the window's thread."""

    def __init__(self, window):
        super().__init__(window)
        self.events = []
        window.engine.worker.event.connect(self.take)

    @Slot(object)
    def take(self, event):
        self.events.append(event)

    def heard(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


def running(window, until, tokens=2):
    until(lambda: window.store.current is not None and len(window.store.current.tokens) >= tokens)


def over(window):
    return not window.engine.busy and window.store.activity == "idle"


# ---------------------------------------------------------------- load, run, end


def test_a_click_on_run_writes_the_text_to_its_end(loaded, click, until):
    window = loaded()
    assert window.left.currentIndex() == 0
    click(controls(window).run_button)
    until(lambda: over(window) and window.store.current is not None)
    run = window.store.current
    assert run.end is not None
    assert run.end.reason in ("length", "eos")
    assert run.text == run.end.text
    assert len(run.tokens) == run.end.new_tokens > 0
    until(controls(window).run_button.isEnabled)
    assert not controls(window).stop_button.isEnabled()
    assert not window.banner.isVisible()


def test_ctrl_return_in_the_prompt_runs_what_stands_there(loaded, qtbot, until):
    window = loaded()
    edit = window.prompt_panel.edit
    edit.selectAll()
    qtbot.keyClicks(edit, "xyz")
    qtbot.keyClick(edit, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    until(lambda: over(window) and window.store.current is not None)
    assert window.store.current.start.prompt == "xyz"


@pytest.mark.parametrize("page", ["text", "lanes"])
@pytest.mark.parametrize("act", ["run_action", "step_action"])
def test_run_pressed_while_the_recording_of_the_last_one_is_being_closed_is_heard(loaded, until, page, act):
    window = loaded()
    window.laboratory.show(page)
    window.run_action.trigger()
    until(lambda: window.store.current is not None)
    first = window.store.current.start.run_id
    pressed = []

    def press(_run):
        if window.store.activity != "idle" or pressed:
            return
        pressed.append(window.engine.busy)
        getattr(window, act).trigger()

    window.store.run_ended.connect(press)  # in the same thread: a plain function will do in a test
    until(lambda: pressed and window.store.current.start.run_id > first)
    assert pressed == ["run"]
    window.running.stop()
    until(lambda: over(window))
    assert len({run.start.run_id for run in window.store.runs}) == 2


def test_run_without_a_model_says_what_to_do(make_window, qtbot):
    window = make_window()
    window.run_action.trigger()
    assert window.banner.isVisible()
    assert window.store.current is None


# ---------------------------------------------------------------- stop


@pytest.mark.parametrize("times", [1, 2])
def test_stop_in_decode_ends_once_and_keeps_the_text(loaded, click, until, times):
    window = loaded(**SLOW)
    click(controls(window).run_button)
    running(window, until)
    ends = []
    window.store.run_ended.connect(ends.append)  # in the same thread: a plain function will do in a test
    text = window.store.current.text
    for _ in range(times):
        window.stop_action.trigger()
    until(lambda: over(window))
    assert [run.end.reason for run in ends] == ["cancelled"]
    assert window.store.current.text.startswith(text)
    window.stop_action.trigger()
    assert over(window)
    assert len(ends) == 1
    click(controls(window).run_button)  # and the next one goes
    until(lambda: len(window.store.runs) == 2)
    running(window, until)


def test_stop_in_the_prefill_of_a_long_prompt_leaves_no_token(loaded, click, until):
    window = loaded()
    window.prompt_panel.set_prompt("long " * 9000)
    click(controls(window).run_button)
    until(lambda: window.store.current is not None and window.store.current.prefill)
    click(controls(window).stop_button)
    until(lambda: over(window))
    run = window.store.current
    assert (run.end.reason, run.tokens) == ("cancelled", [])
    assert run.prefill[-1].done_tokens < run.prefill[-1].total_tokens


def test_stop_in_a_load_leaves_an_honest_empty_bench_and_the_next_load_works(make_window, until):
    window = make_window()
    window.start()
    window.stop_action.trigger()  # at once: a tiny model is loaded before a button could be found
    until(lambda: over(window))
    assert window.store.facts is None
    assert window.store.load_progress is None
    window.load(LoadPlan(window.preferences.model))
    until(lambda: window.store.facts is not None and over(window))


# ---------------------------------------------------------------- one token, pause, pace


def test_one_token_starts_and_then_steps(loaded, click, until):
    window = loaded(max_new_tokens=50)
    click(controls(window).step_button)
    running(window, until, 1)
    until(lambda: window.store.activity == "paused")
    for count in (2, 3):
        click(controls(window).step_button)
        running(window, until, count)
    until(lambda: window.store.activity == "paused")
    assert len(window.store.current.tokens) == 3
    click(controls(window).pause_button)  # on it goes
    until(lambda: over(window))
    assert window.store.current.end.reason in ("length", "eos")


def test_pause_holds_and_goes_on_and_stop_works_in_it(loaded, click, until):
    window = loaded(**SLOW)
    click(controls(window).run_button)
    running(window, until)
    click(controls(window).pause_button)
    assert window.engine.paused
    assert window.store.activity == "paused"
    click(controls(window).pause_button)
    count = len(window.store.current.tokens)
    running(window, until, count + 3)
    click(controls(window).pause_button)
    until(lambda: window.store.activity == "paused")
    click(controls(window).stop_button)
    until(lambda: over(window))
    assert window.store.current.end.reason == "cancelled"


def test_a_pause_in_prefill_still_shows_as_a_pause_when_the_prompt_is_read(loaded, click, until):
    window = loaded()
    window.prompt_panel.set_prompt("long " * 300)
    click(controls(window).run_button)
    window.pause_action.trigger()
    until(lambda: window.store.current is not None and window.store.current.prefill)
    until(lambda: window.store.current.prefill[-1].done_tokens == window.store.current.prefill[-1].total_tokens)
    until(lambda: window.store.activity == "paused")
    assert window.store.current.tokens == []
    window.pause_action.trigger()
    until(lambda: over(window))


def test_a_slider_moved_in_a_run_is_in_the_record_at_the_next_step(loaded, click, until, tmp_path, qtbot):
    window = loaded(visit=str(tmp_path), **SLOW)
    click(controls(window).run_button)
    running(window, until)
    window.sampling_panel.rows["temperature"].slider.setFocus()
    qtbot.keyClick(window.sampling_panel.rows["temperature"].slider, Qt.Key.Key_Right)
    wished = window.sampling_panel.settings()
    assert wished.temperature != SamplingSettings().temperature
    until(lambda: window.store.current.changes)
    step = window.store.current.changes[0].step
    running(window, until, step + 2)
    window.stop_action.trigger()
    until(lambda: over(window))
    run = window.store.current
    assert {token.settings for token in run.tokens[:step]} == {run.start.settings}
    assert {token.settings for token in run.tokens[step:]} == {wished}
    (path,) = tmp_path.glob("*.jsonl")
    recorded = [event for event in read_replay(path).events if isinstance(event, TokenEvent)]
    assert [token.settings for token in recorded] == [token.settings for token in run.tokens]


# ---------------------------------------------------------------- loads and failures


def test_a_load_during_a_run_stops_it_first(loaded, click, until, folder):
    window = loaded(**SLOW)
    click(controls(window).run_button)
    running(window, until)
    events = Listener(window).events
    window.load(LoadPlan(str(folder)))
    until(lambda: any(type(event).__name__ == "Loaded" for event in events) and over(window))
    names = [type(event).__name__ for event in events if not isinstance(event, TokenEvent)]
    assert names.index("RunEnd") < names.index("Unloaded") < names.index("Loaded")
    assert names.count("RunEnd") == 1
    assert window.store.current.end.reason == "cancelled"


def test_unload_during_a_run_stops_it_first(loaded, click, until):
    window = loaded(**SLOW)
    click(controls(window).run_button)
    running(window, until)
    window.unload_action.trigger()
    until(lambda: window.store.facts is None and over(window))
    assert window.store.current.end.reason == "cancelled"
    assert window.store.current.tokens  # what was written stands


def test_stop_also_calls_off_the_load_that_waits_for_a_run(loaded, click, until, folder):
    window = loaded(**SLOW)
    click(controls(window).run_button)
    running(window, until)
    window.load(LoadPlan(str(folder)))
    window.stop_action.trigger()
    until(lambda: over(window))
    assert window.store.facts is not None
    assert window.store.current.end.reason == "cancelled"


def test_a_broken_folder_is_told_with_a_way_out(loaded, until, tmp_path, folder):
    window = loaded()
    for kind in ("nothing there", "no weights", "cut weights", "no json"):
        load_broken(window, until, tmp_path / kind, folder, kind)
        window.load(LoadPlan(str(folder)))
        until(lambda: window.store.facts is not None and over(window))
        assert not window.banner.isVisible()


def load_broken(window, until, broken, folder, kind):
    if kind != "nothing there":
        broken.mkdir()
        for file in folder.iterdir():
            (broken / file.name).write_bytes(file.read_bytes())
    if kind == "no weights":
        (broken / "model.safetensors").unlink()
    elif kind == "cut weights":
        weights = (broken / "model.safetensors").read_bytes()
        (broken / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    elif kind == "no json":
        (broken / "config.json").write_text("{")
    window.load(LoadPlan(str(broken)))
    until(lambda: window.store.error is not None and over(window))
    assert window.banner.isVisible()
    error = window.store.error
    assert error.what in window.banner.text
    assert error.fix
    assert error.fix in window.banner.text
    assert window.left.currentIndex() == 1
    # What the window says of the model is what the engine holds.
    assert (window.store.facts is None) == (window.engine.worker.session is None)
    assert window.preferences.model == str(folder)  # the next start tries what worked


def test_an_exception_in_the_engine_keeps_the_text_and_the_next_run_works(loaded, click, until, monkeypatch):
    import engine.loop

    window = loaded()
    generate = engine.loop.generate

    def failing(session, request, control):
        for event in generate(session, request, control):
            yield event
            if isinstance(event, TokenEvent) and event.step == 2:
                raise RuntimeError("<b>the card fell out</b>")

    monkeypatch.setattr(engine.loop, "generate", failing)
    events = Listener(window).events
    click(controls(window).run_button)
    until(lambda: window.store.current is not None and window.store.current.end is not None and over(window))
    run = window.store.current
    assert len(run.tokens) == 3
    assert run.end.reason == "error"
    assert sum(isinstance(event, RunEnd) for event in events) == 1
    assert "<b>the card fell out</b>" in window.banner.text
    monkeypatch.undo()
    click(controls(window).run_button)
    until(lambda: over(window) and len(window.store.runs) == 2)
    assert window.store.current.end.reason in ("length", "eos")
    assert not window.banner.isVisible()


def test_a_prompt_that_cannot_run_is_told(loaded, click, until):
    window = loaded()
    window.prompt_panel.set_prompt("x" * 70_000)  # longer than the context
    click(controls(window).run_button)
    until(lambda: over(window) and window.banner.isVisible())
    window.prompt_panel.set_prompt("ab")
    click(controls(window).run_button)
    until(lambda: over(window) and window.store.current is not None)


def test_an_unforeseen_exception_reaches_the_person_from_any_thread(make_window, until):
    window = make_window()

    def fail():
        try:
            raise ZeroDivisionError("<b>by nought</b>")
        except ZeroDivisionError:
            sys.excepthook(*sys.exc_info())

    before = sys.excepthook
    with surprises_are_told(window):
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
        until(window.banner.isVisible)
        assert "<b>by nought</b>" in window.banner.text
        window.banner.dismiss()
        fail()  # a paint event fails with every frame: told once
        assert not window.banner.isVisible()
    assert sys.excepthook is before


# ---------------------------------------------------------------- recording


def test_a_vanished_folder_lets_the_run_go_on_and_another_place_takes_all(loaded, click, until, tmp_path, monkeypatch):
    blocked = tmp_path / "runs"
    blocked.write_text("a file where a folder should be")
    window = loaded(visit=str(blocked))
    click(controls(window).run_button)
    until(lambda: over(window) and window.store.current is not None)
    assert window.store.current.end.reason in ("length", "eos")
    assert window.banner.isVisible()
    assert window.banner._button.isVisible()
    place = tmp_path / "elsewhere.jsonl"
    monkeypatch.setattr("app.replays.QFileDialog.getSaveFileName", lambda *_: (str(place), ""))
    click(window.banner._button)
    replay = read_replay(place)
    assert not replay.damage
    ends = [event for event in replay.events if isinstance(event, RunEnd)]
    assert [end.text for end in ends] == [window.store.current.text]
    assert str(place) in window.banner.text


def test_a_folder_that_goes_in_the_middle_of_a_run_costs_no_token(loaded, click, until, tmp_path, monkeypatch):
    monkeypatch.setattr("engine.replay.CHECK_S", 0.0)
    runs = tmp_path / "runs"
    window = loaded(visit=str(runs), **SLOW)
    click(controls(window).run_button)
    running(window, until)
    shutil.rmtree(runs)
    until(window.banner.isVisible)
    running(window, until, len(window.store.current.tokens) + 2)  # it goes on
    place = tmp_path / "elsewhere.jsonl"
    monkeypatch.setattr("app.replays.QFileDialog.getSaveFileName", lambda *_: (str(place), ""))
    click(window.banner._button)
    running(window, until, len(window.store.current.tokens) + 2)
    window.stop_action.trigger()
    until(lambda: over(window))
    replay = read_replay(place)
    assert not replay.damage
    assert tuple(e for e in replay.events if isinstance(e, TokenEvent)) == tuple(window.store.current.tokens)
    assert replay.events[-1] == window.store.current.end


def test_a_cancelled_choice_of_a_place_leaves_the_way_open(loaded, click, until, tmp_path, monkeypatch):
    blocked = tmp_path / "runs"
    blocked.write_text("")
    window = loaded(visit=str(blocked))
    click(controls(window).run_button)
    until(lambda: over(window) and window.banner.isVisible())
    monkeypatch.setattr("app.replays.QFileDialog.getSaveFileName", lambda *_: ("", ""))
    click(window.banner._button)
    assert window.banner._button.isVisible()
    # A place that refuses too is told again, with the same way out.
    monkeypatch.setattr("app.replays.QFileDialog.getSaveFileName", lambda *_: (str(blocked / "x.jsonl"), ""))
    click(window.banner._button)
    assert window.banner._button.isVisible()
    assert str(blocked / "x.jsonl") in window.banner.text


def test_every_run_is_a_file_of_its_own(loaded, click, until, tmp_path):
    window = loaded(visit=str(tmp_path))
    for count in (1, 2):
        click(controls(window).run_button)
        until(lambda count=count: over(window) and len(window.store.runs) == count)
    texts = []
    for path in sorted(tmp_path.glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        assert lines[0]["kind"] == "header"
        assert lines[-1]["kind"] == "end"
        texts.append(lines[-1]["text"])
    assert texts == [run.text for run in window.store.runs]


# ---------------------------------------------------------------- replays


@pytest.fixture
def recording(loaded, click, until, tmp_path):
    window = loaded(visit=str(tmp_path), max_new_tokens=12)
    click(controls(window).run_button)
    until(lambda: over(window) and window.store.current is not None)
    (path,) = tmp_path.glob("*.jsonl")
    return window, path


def test_a_replay_shows_what_the_run_showed(recording, make_window):
    window, path = recording
    other = make_window()
    assert other.replays.open_file(path)
    live, replayed = window.store.current, other.store.current
    assert replayed.text == live.text
    assert replayed.tokens == live.tokens
    assert replayed.end == live.end
    assert replayed.facts == live.facts
    assert other.store.facts is None
    assert not controls(other).run_button.isEnabled()


def test_sliders_decide_a_replay_again_without_its_model_and_back(recording, make_window, click, until):
    window, path = recording
    other = make_window()
    other.replays.open_file(path)
    own, bar = window.sampling_panel.settings(), other.text_view.redecided_bar
    other.sampling_panel.set_settings(own)
    other.sampling_panel.take_settings(replace(own, temperature=0.0 if not own.greedy else 1.0))
    until(lambda: bar.isVisible())
    assert other.store.facts is None
    found = other.text_view.canvas.redecided
    assert len(found.fates) == len(other.store.current.tokens)
    assert not found.open_count
    click(bar.button)
    until(lambda: not bar.isVisible())
    assert other.sampling_panel.settings() == own
    assert other.text_view.canvas.redecided is None


def test_sliders_that_stood_elsewhere_all_along_are_named_where_one_is_moved(recording, make_window, until):
    """A replay opens with the sliders where they are: what is decided is not the moved one's doing alone."""
    window, path = recording
    other = make_window()
    other.replays.open_file(path)
    own, bar = window.sampling_panel.settings(), other.text_view.redecided_bar
    other.sampling_panel.take_settings(replace(own, temperature=1.5, seed=own.seed + 1))
    until(lambda: bar.isVisible())
    words = f"T {own.temperature:g} → 1.5, seed {own.seed} → {own.seed + 1}"
    assert bar.label.text().endswith(" 2 settings differ.")
    assert bar.accessibleName().endswith(words)
    assert words in html.unescape(bar.button.toolTip())
    other.sampling_panel.take_settings(replace(own, temperature=1.5))
    until(lambda: "differ" not in bar.label.text())


def test_the_settings_that_a_run_only_ended_with_are_decided_too(loaded, click, until):
    """Its first words were written with others: under the last ones alone the text would go elsewhere before."""
    cold, hot = SamplingSettings(temperature=0.0, seed=3), SamplingSettings(temperature=2.0, seed=3)
    window = loaded(seconds_per_token=0.02, max_new_tokens=24, sampling=cold.as_dict())
    click(controls(window).run_button)
    until(lambda: window.store.current is not None and len(window.store.current.tokens) > 4)
    window.sampling_panel.take_settings(hot)
    until(lambda: over(window))
    run, bar = window.store.current, window.text_view.redecided_bar
    (change,) = run.changes
    assert not bar.isVisible()
    window.sampling_panel.take_settings(replace(hot, top_k=3))
    until(lambda: bar.isVisible())
    window.sampling_panel.take_settings(hot)
    window.redecisions.work()
    found = window.text_view.canvas.redecided
    assert found.first is not None
    assert found.first < change.step
    assert bar.label.text().endswith(" Its own settings changed on the way.")
    assert not any(found.fates[change.step :])  # from there on the words are those of these settings
    click(bar.button)
    assert not bar.isVisible()
    assert not window.redecisions._timer.isActive()


def test_a_replay_saved_again_is_the_same_run_of_the_same_model(recording, make_window, tmp_path):
    _, path = recording
    other = make_window()
    other.replays.open_file(path)
    assert other.replays.save_to(tmp_path / "again.jsonl")
    before, after = read_replay(path), read_replay(tmp_path / "again.jsonl")
    assert after.header["model"] == before.header["model"]
    assert after.header["prompt"] == before.header["prompt"]
    assert after.header["raw"] == before.header["raw"]
    kinds = (TokenEvent, RunEnd)
    assert [e for e in after.events if isinstance(e, kinds)] == [e for e in before.events if isinstance(e, kinds)]


def test_a_run_after_a_replay_does_not_mix_with_it(recording, loaded, click, until):
    """Both may carry the same number."""
    _, path = recording
    window = loaded(prompt="q", max_new_tokens=5)
    window.replays.open_file(path)
    replayed = window.store.current
    prefill, text = list(replayed.prefill), replayed.text
    click(controls(window).run_button)
    until(lambda: over(window) and window.store.current is not replayed)
    assert window.store.current.start.prompt == "q"
    assert (replayed.prefill, replayed.text) == (prefill, text)
    assert window.store.run(replayed.key) is replayed


def test_a_replay_waits_while_a_run_goes_on(recording, loaded, click, until):
    _, path = recording
    window = loaded(**SLOW)
    click(controls(window).run_button)
    running(window, until)
    run = window.store.current
    assert not window.replays.open_file(path)
    assert window.store.current is run
    running(window, until, len(run.tokens) + 2)  # it goes on
    assert controls(window).stop_button.isEnabled()
    click(window.banner._button)  # stop and open
    until(lambda: window.store.current is not run)
    assert run.end.reason == "cancelled"
    assert over(window)


def dropped(window, path):
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path))])
    enter = QDragEnterEvent(
        window.rect().center(),
        Qt.DropAction.CopyAction,
        data,
        Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
    )
    window.dragEnterEvent(enter)
    assert enter.isAccepted()
    event = QDropEvent(
        QPointF(window.rect().center()),
        Qt.DropAction.CopyAction,
        data,
        Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
    )
    window.dropEvent(event)
    assert event.isAccepted()


def test_files_can_be_dropped(recording, make_window, until, tmp_path, folder):
    _, path = recording
    window = make_window()
    dropped(window, path)
    assert window.store.current is not None
    (tmp_path / "letter.txt").write_text("no replay")
    dropped(window, tmp_path / "letter.txt")
    assert "letter.txt" in window.banner.text
    assert window.store.current is not None  # a refusal takes nothing away
    dropped(window, folder)
    until(lambda: window.store.facts is not None and over(window))


def test_a_file_dropped_on_the_prompt_is_opened_not_written(make_window, folder):
    window = make_window()
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(folder))])
    assert not window.prompt_panel.edit.canInsertFromMimeData(data)


# ---------------------------------------------------------------- looks


def test_the_theme_changes_while_a_run_goes_on(loaded, click, until):
    window = loaded(theme="light", **SLOW)
    click(controls(window).run_button)
    running(window, until)
    dark = theme.current().dark
    window.switch_theme()
    assert theme.current().dark is not dark
    count = len(window.store.current.tokens)
    running(window, until, count + 2)
    window.grab()
    window.stop_action.trigger()
    until(lambda: over(window))


def test_a_box_that_is_looked_at_leaves_the_text_as_wide_as_it_was(loaded, until, qapp):
    window = loaded()
    window.resize(1024, 700)
    window.restore_layout()
    qapp.processEvents()
    before = window.docks["word"].width(), window.text_view.width()
    for box in BOXES:
        window.show_box(box)
        qapp.processEvents()
        cut = [part for part in window.box_view.findChildren(QPushButton) if part.isVisible()]
        assert all(part.width() >= part.minimumSizeHint().width() for part in cut), box
        for value, _ in window.box_view._labels if window.box_view.isVisible() else ():
            if value.isVisible():
                assert value.mapTo(window.box_view, value.rect().topRight()).x() <= window.box_view.width(), box
    window.show_box("sample")
    qapp.processEvents()
    assert (window.docks["word"].width(), window.text_view.width()) == before


@pytest.mark.parametrize("longest", [False, True])
def test_no_name_of_a_setting_is_cut_in_a_small_window(make_window, qapp, longest):
    window = make_window()
    window.resize(1024, 700)
    window.restore_layout()
    panel = window.sampling_panel
    if longest:
        third = 0.1 + 0.2
        panel.set_settings(SamplingSettings(
            temperature=third, top_k=2**31 - 1, top_p=third, min_p=third, typical_p=third, repetition_penalty=1 + third,
            presence_penalty=-third, frequency_penalty=-third, no_repeat_ngram_size=2**31 - 1, seed=2**70,
        ))  # fmt: skip
        panel.limit_field.set_value(10_000_000)
    panel.more_button.setChecked(True)
    qapp.processEvents()
    assert panel.width() < 300
    names = [label for label in panel.findChildren(PlainLabel) if label.isVisible() and not label.wordWrap()]
    assert len(names) > len(panel.rows)
    for name in names:
        assert name.fontMetrics().horizontalAdvance(name.text()) <= name.contentsRect().width(), name.text()
        assert name.mapTo(panel, name.rect().topRight()).x() < panel.width(), name.text()
    count = panel.rows["top_k"].field
    assert count.fontMetrics().horizontalAdvance(count.text()) < count.width() - 8


def test_the_layout_comes_back(make_window):
    window = make_window()
    window.docks["word"].close()
    window.docks["memory"].close()
    assert not window.docks["word"].isVisible()
    window.restore_layout()
    assert all(dock.isVisible() for dock in window.docks.values())
    before = window.docks["write"].width()
    window.laboratory.show("lanes")
    window.restore_layout()  # what the page has no room for stays away until the text comes back
    assert [name for name, dock in window.docks.items() if dock.isVisible()] == ["word"]
    window.laboratory.show_text()
    assert all(dock.isVisible() for dock in window.docks.values())
    assert window.docks["write"].width() == before
