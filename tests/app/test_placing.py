"""Memory and placement through the whole window: the engine's thread answers, the newest wish counts."""

from __future__ import annotations

import json
import threading

import pytest

from app.engine_thread import Engine
from app.preferences import read_preferences
from app.remembering import remember
from engine import events as ev
from engine.settings import OffloadQuestion, PlanWish
from widgets.planner_view import PlannerDialog

WAIT_S = 30


@pytest.fixture
def seventy(tmp_path):
    """A model of 70 billion parameters: its config.json is all there is."""
    config = {
        "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
        "tie_word_embeddings": False, "dtype": "bfloat16",
    }  # fmt: skip
    folder = tmp_path / "seventy"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def test_seventy_billion_parameters_are_planned_for_two_cards_while_nothing_can_be_loaded(
    make_window, until, click, seventy
):
    window = make_window()
    panel = window.model_panel
    panel.choose(seventy)
    until(lambda: panel.ledger.verdict.text())
    assert ("attention", 24_159_191_040, None) in panel.ledger.table.rows()
    panel.open_planner()
    dialog = window.findChild(PlannerDialog)
    until(dialog.planner.picture.lines)
    lines = dialog.planner.picture.lines()
    assert [line.partition(" · ")[0] for line in lines] == ["GPU 0", "GPU 1", "CPU", "disk"]
    assert "Does not fit on the GPUs" in dialog.planner.verdict.text()
    dialog.planner.gpus.setText("8x80")
    dialog.planner.gpus.textEdited.emit("8x80")
    until(lambda: dialog.planner.verdict.text().startswith("Fits"))
    dialog.reject()


def test_the_slider_moves_the_ledger_without_a_word_to_the_engine(make_window, until, seventy):
    window = make_window()
    panel = window.model_panel
    panel.choose(seventy)
    until(lambda: panel.ledger.verdict.text())
    asked = []
    panel.estimate_requested.connect(asked.append)
    panel.asked.connect(asked.append)
    panel.ledger.context.slider.setValue(len(panel.ledger.context.stops) - 1)
    assert ("KV cache", 131_072 * 327_680, None) in panel.ledger.table.rows()
    assert asked == []


def test_of_wishes_that_wait_only_the_newest_is_planned(qtbot, monkeypatch, until):
    begun, go_on = threading.Event(), threading.Event()
    planned = []

    def slow(question, *_):
        planned.append(question.lanes)
        begun.set()
        go_on.wait(WAIT_S)
        return "a plan"

    monkeypatch.setattr("engine.answers.answer", slow)
    engine = Engine()
    answered = []
    engine.worker.event.connect(answered.append)
    try:
        engine.ask(PlanWish("m", lanes=1))
        assert begun.wait(WAIT_S)
        for lanes in (2, 3, 4):
            engine.ask(PlanWish("m", lanes=lanes))
        go_on.set()
        until(lambda: len(answered) == 4)
    finally:
        go_on.set()
        engine.close()
    assert planned == [1, 4]
    assert [(a.question.lanes, a.answer) for a in answered] == [(1, "a plan"), (2, None), (3, None), (4, "a plan")]


def test_the_price_of_offload_is_measured_and_the_loaded_model_stays(loaded, until):
    window = loaded()
    window.show_box("placement")
    page = window.box_view.page("placement")
    page.tabs.setCurrentIndex(1)
    until(page.price.measure.isEnabled)
    page.price.measure.click()
    until(page.price.rows)
    assert [row[0] for row in page.price.rows()] == ["all on CPU", "1 layer on disk", "2 layers on disk"]
    assert window.store.facts is not None
    assert window.engine.worker.session.model is not None
    window.running.start_run()
    until(lambda: window.store.current is not None and window.store.current.end is not None)
    assert window.store.current.end.reason == "length"


def test_cancel_breaks_the_measuring_off_and_a_run_does_too(loaded, until, monkeypatch):
    begun = threading.Event()

    def slow(question, facts, control):
        from engine.errors import Cancelled

        begun.set()
        for _ in range(WAIT_S * 100):
            if control.cancelled():
                raise Cancelled
            threading.Event().wait(0.01)
        raise AssertionError("nobody cancelled")

    window = loaded()
    monkeypatch.setattr("engine.offload_price.measure_offload", slow)
    window.show_box("placement")
    page = window.box_view.page("placement")
    page.tabs.setCurrentIndex(1)
    until(page.price.measure.isEnabled)
    page.price.measure.click()
    assert begun.wait(WAIT_S)
    until(page.price.stop.isVisible)
    page.price.stop.click()
    until(page.price.measure.isVisible)
    begun.clear()
    page.price.measure.click()
    assert begun.wait(WAIT_S)
    window.running.start_run()
    until(lambda: window.store.current is not None and window.store.current.end is not None)
    until(page.price.measure.isVisible)
    assert isinstance(page._question, OffloadQuestion)
    assert page.price.rows() == []


def test_the_process_ledger_adds_up_to_a_reading(loaded, until):
    window = loaded(max_new_tokens=40)
    window.show_box("placement")
    page = window.box_view.page("placement")
    window.meter.read()

    def shown() -> dict:
        return {name: measured for name, _, measured in page.ledger.table.rows()}

    until(lambda: shown().get("this process") in [reading.process_bytes for reading in window.store.readings])
    rows = shown()
    assert sum(size or 0 for name, size in rows.items() if name != "this process") == rows["this process"]


def test_context_lanes_and_the_described_machine_are_remembered(make_window, tmp_path, monkeypatch):
    path = tmp_path / "settings.json"
    monkeypatch.setattr("app.preferences.preferences_path", lambda: path)
    window = make_window(ledger_context=4096, ledger_lanes=3, planned_gpus="8x80", planned_cpu_gb=512.0)
    assert window.model_panel.ledger.kept_wish() == (4096, 3)
    assert window.store.described_machine == ("8x80", 512.0)
    window.model_panel.ledger.set_wish(1000, 2)
    window.store.described_machine = ("1x16", 32.0)
    remember(window)
    kept, _ = read_preferences(path)
    assert (kept.ledger_context, kept.ledger_lanes) == (1000, 2)
    assert (kept.planned_gpus, kept.planned_cpu_gb) == ("1x16", 32.0)


def test_an_estimate_leaves_the_loaded_weights_out_of_the_libraries(loaded, until):
    window = loaded()
    before = window.store.facts.memory_before_bytes
    answers = []
    window.engine.worker.estimated.connect(answers.append)
    window.model_panel._ask_estimate()
    until(lambda: answers)
    assert isinstance(answers[-1], ev.Estimate)
    assert answers[-1].libraries_bytes == before
