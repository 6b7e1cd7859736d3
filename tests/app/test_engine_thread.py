"""The thread between window and engine: nothing is lost on the way, nothing is left when the window goes."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
from PySide6.QtCore import QObject, QThread, Signal, Slot

from app.engine_thread import Engine
from app.threads import told
from engine.events import EngineError, Loaded, RunEnd, TokenEvent
from engine.replay import Recorder, read_replay
from engine.settings import LoadPlan, Request, SamplingSettings
from tests.widgets import events_factory as made
from tests.widgets.facts import facts

LONG_S = 120  # for a process that imports torch on a busy machine


# ---------------------------------------------------------------- closing, in a process of its own


def closed(state, folder, tmp_path):
    """What a process said whose window was closed in this state, and the folder of its recordings."""
    environment = os.environ | {"PYTHONWARNINGS": "default"}
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        environment[name] = str(tmp_path / name)
    process = subprocess.run(
        [sys.executable, "-m", "tests.app.closing", state, str(folder), str(tmp_path / "runs")],
        capture_output=True,
        text=True,
        timeout=LONG_S,
        env=environment,
        cwd=Path(__file__).parents[2],
    )
    errors = [line for line in process.stderr.splitlines() if "This plugin does not support" not in line]
    assert errors == []
    assert process.returncode == 0
    return process.stdout.splitlines(), tmp_path / "runs"


def test_a_window_closed_in_a_load_goes_and_it_was_painted_before_any_heavy_import(folder, tmp_path):
    said, runs = closed("load", folder, tmp_path)
    assert said == ["painted with []", "closing load"]
    assert not runs.exists()


def test_a_window_closed_in_a_run_goes_and_leaves_a_whole_recording(folder, tmp_path):
    said, runs = closed("run", folder, tmp_path)
    assert said[-1] == "closing run"
    (path,) = runs.iterdir()
    assert_whole(path)


def test_a_replay_is_shown_without_torch(tmp_path):
    tokens = made.tokens([*made.words(made.RIVER), " <s>", "🌊"])
    recorder = Recorder(tmp_path / "river.jsonl", {"model": "m"})
    for event in (Loaded(facts()), made.start(), *tokens, made.end(tokens)):
        recorder.take(event)
    recorder.close()
    said, _ = closed("replay", recorder.path, tmp_path)
    text = "".join(token.text for token in tokens)
    assert said == ["painted with []", f"replayed with [] {len(tokens)} {text!r}", "closing "]


def assert_whole(path, at_least=3):
    replay = read_replay(path)
    assert not replay.damage
    (end,) = [event for event in replay.events if isinstance(event, RunEnd)]
    tokens = [event for event in replay.events if isinstance(event, TokenEvent)]
    assert (end.reason, end.new_tokens) == ("cancelled", len(tokens))
    assert len(tokens) >= at_least
    assert "".join(token.text for token in tokens) + end.tail_text == end.text
    assert json.loads(path.read_text(encoding="utf-8").splitlines()[-1])["kind"] == "end"


@pytest.mark.parametrize("state", ["idle", "load", "prefill", "decode", "paused", "unload"])
def test_a_window_closes_in_each_state_and_its_thread_ends(state, make_window, until, tmp_path, monkeypatch):
    """As above, for each state, but in this process, where Qt's warnings and leftover threads are failures."""
    monkeypatch.setattr("os._exit", left_in_anger)
    # A busy machine may need longer than a person should wait.
    monkeypatch.setattr("app.threads.WAIT_ON_CLOSE_MS", LONG_S * 1000)
    window = make_window(
        visit=str(tmp_path), max_new_tokens=100_000, sampling={"temperature": 0}, seconds_per_token=0.01
    )
    window.start()
    if state == "load":
        until(lambda: window.engine.busy == "load")
    else:
        until(lambda: window.store.facts is not None and not window.engine.busy)
    if state == "prefill":
        window.prompt_panel.set_prompt("long " * 9000)
    if state in ("prefill", "decode", "paused"):
        window.running.start_run()
        until(lambda: window.store.current is not None and window.store.current.prefill)
    if state in ("decode", "paused"):
        until(lambda: len(window.store.current.tokens) >= 3)
    if state == "paused":
        window.running.toggle_pause()
    if state == "unload":
        window.engine.unload()
    assert window.close()
    assert window.engine.worker.thread().isFinished()
    paths = list(tmp_path.glob("*.jsonl"))
    assert len(paths) == (state in ("prefill", "decode", "paused"))
    for path in paths:
        assert_whole(path, 0 if state == "prefill" else 3)


def left_in_anger(code):
    raise AssertionError("the process had to be left without its threads")


def test_a_library_that_cannot_be_interrupted_holds_no_window_back(make_window, until, tmp_path, monkeypatch):
    """One forward of a large model on a slow disk takes minutes; the process is left, the recording is whole."""
    import threading

    class Left(Exception):
        pass

    def leave(code):
        raise Left(code)

    release = threading.Event()
    monkeypatch.setattr("os._exit", leave)
    monkeypatch.setattr("app.threads.WAIT_ON_CLOSE_MS", 50)
    window = make_window(visit=str(tmp_path), max_new_tokens=100_000, sampling={"temperature": 0})
    window.start()
    until(lambda: window.store.facts is not None and not window.engine.busy)
    import engine.loop

    decode = engine.loop._Running.decode

    steps = []

    def slow(running, ids):
        steps.append(ids)
        if len(steps) == 4:
            release.wait()
        return decode(running, ids)

    monkeypatch.setattr(engine.loop._Running, "decode", slow)
    window.running.start_run()
    until(lambda: len(steps) == 4 and len(window.store.current.tokens) >= 3)
    with pytest.raises(Left, match="0"):
        window.engine.close()
    (path,) = tmp_path.glob("*.jsonl")
    assert_whole(path)
    release.set()
    assert window.engine.worker.thread().wait(LONG_S * 1000)
    assert_whole(path)  # what came after the end is not in it


# ---------------------------------------------------------------- across threads


class Sender(QObject):
    happened = Signal(object)

    def __init__(self, values):
        super().__init__()
        self.values = values

    @Slot()
    def send(self):
        for value in self.values:
            self.happened.emit(value)


class Receiver(QObject):
    def __init__(self, keep):
        super().__init__()
        self.count, self.kept, self.keep, self.threads = 0, [], keep, set()

    @Slot(object)
    def take(self, value):
        self.count += 1
        if self.keep:
            self.kept.append(value)
            self.threads.add(QThread.currentThread())


def sent_across(qtbot, values, keep=True):
    """A receiver in this thread that got the values from another."""
    thread, sender, receiver = QThread(), Sender(values), Receiver(keep)
    sender.moveToThread(thread)
    sender.happened.connect(receiver.take)
    thread.started.connect(sender.send)
    thread.start()
    try:
        qtbot.waitUntil(lambda: receiver.count == len(values), timeout=LONG_S * 1000)
    finally:
        thread.quit()
        thread.wait()
    return receiver


def test_two_hundred_thousand_events_leave_the_counts_of_true_and_none(qtbot):
    """THR-1: some versions of PySide6 lose a reference with every bool and None."""
    values = [True, None, (True, None)] * 66_667
    gc.collect()  # what other tests left behind holds both, too
    before = sys.getrefcount(True), sys.getrefcount(None)
    sent_across(qtbot, values, keep=False)
    after = sys.getrefcount(True), sys.getrefcount(None)
    # Since Python 3.12 these objects are immortal and the counts do not move at all.
    assert all(abs(a - b) < 10_000 for a, b in zip(after, before, strict=True)), (before, after)


def test_objects_arrive_as_they_are_in_the_receivers_thread(qtbot):
    values = [2**31, 2**63, 10**400, {1: 2}, "\ud800", 1e-320, (), None]
    receiver = sent_across(qtbot, values)
    assert receiver.kept == values
    assert receiver.threads == {receiver.thread()}


def test_every_connected_receiver_of_the_worker_lives_in_the_windows_thread(make_window):
    """What wiring.py connects are objects' methods; here the objects themselves are asked."""
    import ast
    import inspect

    import app.wiring

    window = make_window()
    names = {"window": window, "engine": window.engine, "worker": window.engine.worker, "store": window.store}
    connected = [
        call.args[0]
        for call in ast.walk(ast.parse(inspect.getsource(app.wiring.connect)))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "connect"
    ]
    assert len(connected) > 10
    for slot in connected:
        owner = eval(ast.unparse(slot.value), {}, names)
        assert isinstance(owner, QObject), ast.unparse(slot)
        assert owner.thread() is window.thread()


# ---------------------------------------------------------------- errors


def test_an_error_on_the_screen_holds_no_frame():
    """MEM-22: besides the traceback, causes, contexts and log records hold the failing frames' tensors."""

    class Tensor:
        pass

    held = []

    def fail():
        tensor = Tensor()
        held.append(weakref.ref(tensor))
        try:
            raise ValueError("first")
        except ValueError as cause:
            raise RuntimeError("second") from cause

    def worker():
        try:
            fail()
        except Exception as error:
            return told(error, "run")

    gc.disable()  # nothing but the counts may be needed
    try:
        said = worker()
        assert isinstance(said, EngineError)
        assert "second" in said.what
        assert "first" in said.trace
        assert held[0]() is None
    finally:
        gc.enable()


@pytest.fixture
def engine(qtbot):
    engine = Engine()
    yield engine
    engine.close()


class Ear(QObject):
    def __init__(self, engine):
        super().__init__()
        self.events = []
        engine.worker.event.connect(self.take)

    @Slot(object)
    def take(self, event):
        self.events.append(event)

    def names(self):
        return [type(event).__name__ for event in self.events]


def test_a_run_without_a_model_is_an_error_and_the_engine_is_free_again(engine, until):
    ear = Ear(engine)
    assert engine.run(Request(0, "ab"))
    assert not engine.run(Request(0, "ab"))  # one at a time
    until(lambda: not engine.busy)
    assert ear.names() == ["EngineError"]
    assert engine.run(Request(0, "ab"))
    until(lambda: not engine.busy)


def test_the_failing_frames_tensors_are_gone_when_the_error_is_shown(engine, until, folder, monkeypatch):
    class Tensor:
        pass

    held = []

    def failing(session, request, control):
        tensor = Tensor()
        held.append(weakref.ref(tensor))
        yield from ()
        raise MemoryError("out of memory")

    monkeypatch.setattr("engine.loop.generate", failing)
    ear = Ear(engine)
    engine.load(LoadPlan(str(folder)))
    until(lambda: not engine.busy)
    engine.run(Request(0, "ab"))
    until(lambda: "EngineError" in ear.names() and not engine.busy)
    assert held[0]() is None


def test_several_lanes_each_end_once_when_they_are_stopped(engine, until, folder, tmp_path):
    ear = Ear(engine)
    engine.load(LoadPlan(str(folder)))
    until(lambda: not engine.busy)
    lanes = tuple(SamplingSettings(temperature=0, seed=seed) for seed in range(3))
    engine.set_pace(0.01)
    engine.run(Request(0, "ab", raw=True, lanes=lanes, max_new_tokens=10_000), str(tmp_path))
    until(lambda: ear.names().count("TokenEvent") >= 6)
    engine.stop()
    engine.stop()
    until(lambda: not engine.busy)
    ends = [event for event in ear.events if type(event).__name__ == "RunEnd"]
    assert [(end.lane, end.reason) for end in ends] == [(0, "cancelled"), (1, "cancelled"), (2, "cancelled")]
    (path,) = tmp_path.glob("*.jsonl")
    replay = read_replay(path)
    assert not replay.damage
    assert [event for event in replay.events if type(event).__name__ == "RunEnd"] == ends


def test_nothing_starts_after_the_engine_was_closed(engine, folder):
    engine.close()
    engine.load(LoadPlan(str(folder)))
    engine.unload()
    engine.stop()
    engine.close()
    assert not engine.run(Request(0, "ab"))
    assert engine.busy == ""


def test_a_second_run_of_the_same_prompt_begins_from_the_kept_cache_until_that_is_switched_off(
    make_window, until, tmp_path
):
    window = make_window(visit=str(tmp_path), max_new_tokens=4, sampling={"temperature": 0})
    window.start()
    until(lambda: window.store.facts is not None and not window.engine.busy)

    def run():
        window.running.start_run()
        until(lambda: not window.engine.busy and window.store.current is not None)
        return window.store.current.prefill[-1]

    assert run().reused_tokens == 0
    assert window.store.cache_kept.bytes > 0
    again = run()
    assert again.reused_tokens == again.total_tokens
    window.show_box("layers")
    window.box_view.refresh()
    names = [fact.name for fact in window.box_view.rows()]
    assert "Of these" in names
    assert "Kept for the next run" in names
    window.keep_cache_action.trigger()
    until(lambda: window.store.cache_kept is None)
    assert not window.preferences.keep_cache
    assert run().reused_tokens == 0
    assert window.store.cache_kept is None
    assert window.close()
