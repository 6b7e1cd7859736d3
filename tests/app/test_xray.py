"""The precision x-ray in a whole window: two loads, the result, and the model that was there before."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt

from engine.events import Xray, XrayProgress
from engine.settings import LoadPlan
from tests.tiny_models import tiny_folder


@pytest.fixture
def opened(loaded):
    """A window with its model loaded and the x-ray's dialog open."""

    def build(**preferences):
        window = loaded(**({"xray_precisions": ["float32", "bfloat16"], "xray_sample": "code"} | preferences))
        window.xrays.show()
        events = []
        window.engine.worker.event.connect(events.append, Qt.ConnectionType.DirectConnection)
        return window, window.xrays.view, events

    return build


def results(events):
    return [event for event in events if isinstance(event, Xray)]


def test_the_menu_opens_it_and_the_result_stands_in_it(opened, click, until):
    window, view, events = opened()
    action = next(a for menu in window.menus.actions() for a in menu.menu().actions() if "x-ray" in a.text())
    assert action.shortcut().toString() == "Ctrl+Shift+X"
    click(view.run_button)
    until(lambda: results(events) and not window.engine.busy)
    (found,) = results(events)
    assert (found.reference.precision, found.other.precision, found.sample) == ("float32", "bfloat16", "code")
    until(lambda: view.why.text())
    assert window.store.facts is not None


def test_the_model_that_was_loaded_is_kept_where_it_is_one_of_the_two(opened, click, until):
    window, view, events = opened()
    assert window.store.facts.precision == "float32"
    plan = window.engine.loaded_plan
    click(view.run_button)
    until(lambda: results(events) and not window.engine.busy)
    assert next(event.side for event in events if isinstance(event, XrayProgress)) == 1  # it comes last, and stays
    assert window.engine.loaded_plan == plan
    assert window.store.facts.precision == "float32"
    window.running.start_run()
    until(lambda: window.store.current is not None and window.store.current.end is not None)
    assert window.store.current.end.reason != "error"


def test_it_is_loaded_again_where_it_is_neither(opened, click, until):
    window, view, events = opened(xray_precisions=["bfloat16", "float16"])
    click(view.run_button)
    until(lambda: results(events) and not window.engine.busy and window.store.facts is not None)
    assert window.store.facts.precision == "float32"


def test_cancel_ends_it_and_the_model_comes_back(opened, click, until):
    window, view, events = opened()
    click(view.run_button)
    until(lambda: any(isinstance(event, XrayProgress) for event in events))
    click(view.cancel_button)
    until(lambda: not window.engine.busy and window.store.facts is not None)
    assert results(events) == []
    assert window.store.facts.precision == "float32"
    until(view.run_button.isEnabled)


def test_a_load_takes_its_place(opened, click, until, tmp_path):
    window, view, events = opened()
    other = tiny_folder(tmp_path / "other", "qwen2")
    click(view.run_button)
    until(lambda: any(isinstance(event, XrayProgress) for event in events))
    window.load(LoadPlan(str(other)))
    until(lambda: window.store.facts is not None and window.store.facts.name == "other" and not window.engine.busy)
    assert results(events) == []


def test_a_run_cannot_start_meanwhile_and_is_told_so(opened, click, until):
    window, view, _events = opened()
    click(view.run_button)
    until(lambda: window.engine.busy == "xray")
    window.running.start_run()
    assert "x-ray" in window.banner.text
    window.running.stop()
    until(lambda: not window.engine.busy and window.store.facts is not None)


def test_what_fails_is_told_in_the_dialog_and_the_model_comes_back(loaded, click, until, tmp_path):
    folder = tiny_folder(tmp_path / "mamba", "mamba")
    window = loaded(model=str(folder), xray_precisions=["float32", "int8"])
    window.xrays.show()
    view = window.xrays.view
    click(view.run_button)
    until(lambda: view.error.text() and not window.engine.busy and window.store.facts is not None)
    assert "does not run in int8" in view.error.text()
    assert window.store.facts.precision == "float32"


def test_the_choice_is_remembered(opened, click, until):
    window, view, events = opened()
    view.editor.setPlainText("one two three")
    view.other.setCurrentIndex(view.other.findData(None))
    click(view.run_button)
    until(lambda: results(events) and not window.engine.busy)
    preferences = window.preferences
    assert preferences.xray_precisions == ["float32", ""]
    assert (preferences.xray_sample, preferences.xray_text) == ("own", "one two three")
    (found,) = results(events)
    assert found.mean_kl_nats == 0.0  # as in the files is float32 here
    assert found.flips == ()


def test_closing_the_window_meanwhile_is_quick_and_clean(opened, click, until):
    window, view, events = opened()
    click(view.run_button)
    until(lambda: any(isinstance(event, XrayProgress) for event in events))
    window.close()
    assert not window.xrays.dialog.isVisible()
    assert results(events) == []


def test_the_packing_of_the_model_panel_is_used_and_remembered(opened, click, until):
    window, view, events = opened(
        xray_precisions=["float32", "nf4"], double_quantisation=False, compute_dtype="float32"
    )
    click(view.run_button)
    until(lambda: results(events) and not window.engine.busy)
    (found,) = results(events)
    assert "no double quantisation, computes in float32" in found.other.words
    assert window.preferences.double_quantisation is False
    assert window.engine.loaded_plan.precision is None  # float32 was loaded before, and stayed


def test_the_main_window_says_what_goes_on_and_stops_it(opened, click, until):
    window, view, _events = opened()
    click(view.run_button)
    until(lambda: window.store.xray is not None and window.chip.lines()[0] == "Precision x-ray…")
    assert window.chip.lines()[1].split(" · ")[0] in ("float32", "bfloat16")
    window.status_line.refresh()
    assert window.status_line.state == "Precision x-ray runs"
    assert not window.sampling_panel.controls.run_button.isEnabled()
    click(window.sampling_panel.controls.stop_button)
    until(lambda: not window.engine.busy and window.store.facts is not None)
    until(lambda: window.chip.lines()[0] == "tiny-llama")
    assert window.store.activity == "idle"
