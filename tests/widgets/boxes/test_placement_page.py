"""The placement box: the loaded model measured, another that is only chosen predicted, and the price of offload."""

from __future__ import annotations

import pytest

from engine import events as ev
from engine.settings import EstimateQuestion, LoadPlan, OffloadQuestion, PlanWish, StopAsking
from tests.widgets.facts import facts
from tests.widgets.test_ledger_panel import CPU, SIZES, estimate
from widgets.boxes.placement_page import PlacementPage

PLACES = (
    ev.PlacedPart("model.embed_tokens", "cpu", 60_000_000),
    ev.PlacedPart("model.layers.0", "cpu", 20_000_000, 0),
    ev.PlacedPart("model.layers.1", "disk", 20_000_000, 1),
)
LEDGER = (
    ev.LedgerPart("embedding", 60_000_000, 60_000_000),
    ev.LedgerPart("attention", 40_000_000, 20_000_000),
    ev.LedgerPart("kv_cache", 9_000_000),
    ev.LedgerPart("on disk", None, 20_000_000),
)
READING = ev.MemoryReading(1.0, 900_000_000, 8_000_000_000, 16_000_000_000)
PRICE = ev.OffloadPrice(
    "m", "bfloat16", "cpu", 8,
    (
        ev.OffloadRow("", 0, 0, 20.0, 19.0, 25.0),
        ev.OffloadRow("disk", 8, 50_000_000, 110.0, 100.0, 120.0),
        ev.OffloadRow("disk", 15, 100_000_000, 160.0, 150.0, 170.0),
    ),
    ("The files were in the system's file cache.",),
)  # fmt: skip


@pytest.fixture
def page(qtbot, store):
    made = PlacementPage(store)
    qtbot.addWidget(made)
    made.resize(330, 800)
    made.show()
    return made


@pytest.fixture
def loaded(store, page):
    store.take(ev.Loaded(facts(places=PLACES, ledger=LEDGER, devices=("cpu", "disk"), sizes=SIZES)))
    store.take(READING)
    page.refresh()
    return page


def test_without_a_model_it_says_what_to_choose(page):
    page.refresh()
    assert "No model is chosen" in page.message.text()
    assert not page.body.isVisible()


def test_the_loaded_models_parts_add_up_to_the_process_and_the_rest_is_explained_in_words(loaded):
    rows = {name: measured for name, _, measured in loaded.ledger.table.rows()}
    assert rows["this process"] == 900_000_000
    assert rows["not explained"] == 900_000_000 - 120_000_000 - 80_000_000
    assert loaded.left_over.text().startswith("Not explained: ")
    assert "kept, not leaked" in loaded.left_over.text()


def test_each_devices_layers_are_drawn_as_measured(loaded):
    loaded.tabs.setCurrentIndex(1)
    assert loaded.picture.lines() == [
        "CPU · 80 MB · embed_tokens, layer 0",
        "disk · 20 MB · layer 1",
    ]


def test_a_newer_reading_moves_the_measured_side(store, loaded):
    store.take(ev.MemoryReading(2.0, 950_000_000, 8_000_000_000, 16_000_000_000))
    loaded.refresh()
    assert ("this process", 950_000_000) in [(name, measured) for name, _, measured in loaded.ledger.table.rows()]


def test_a_gpus_table_adds_up_to_the_drivers_figure(store, page):
    gpu = ev.GpuReading("card", 70_000_000, 90_000_000, 600_000_000, 24_000_000_000)
    on_gpu = (ev.PlacedPart("model.embed_tokens", "cuda:0", 60_000_000),)
    store.take(ev.Loaded(facts(places=on_gpu, devices=("cuda:0",), sizes=SIZES)))
    store.take(ev.MemoryReading(1.0, 900_000_000, 8_000_000_000, 16_000_000_000, (gpu,)))
    page.refresh()
    rows = page.gpus.tables[0].rows()
    assert rows[-1] == ("this GPU", None, 600_000_000)
    assert sum(measured for _, _, measured in rows[:-1]) == 600_000_000


def test_a_model_that_is_only_chosen_is_asked_for_and_predicted(qtbot, store, page):
    store.inside.choose(LoadPlan("models/llama", "bfloat16"))
    with qtbot.waitSignal(page.asked) as caught:
        page.refresh()
    assert caught.args == [EstimateQuestion("models/llama", "bfloat16")]
    store.take(ev.Answered(caught.args[0], estimate(CPU)))
    page.refresh()
    assert page.ledger.figures.text("exact") == "17.13 GB"
    assert page.price.isHidden()
    assert page.subject_bar.name.text() == estimate(CPU).model  # as config.json's folder is called, not what was typed
    page.tabs.setCurrentIndex(2)
    with qtbot.waitSignal(page.asked) as caught:
        pass
    assert isinstance(caught.args[0], PlanWish)
    assert (caught.args[0].model, caught.args[0].precision) == ("models/llama", "bfloat16")


def test_the_price_of_offload_is_measured_on_demand_and_can_be_cancelled(qtbot, store, loaded):
    loaded.tabs.setCurrentIndex(1)
    with qtbot.waitSignal(loaded.asked) as caught:
        loaded.price.measure.click()
    first = caught.args[0]
    assert isinstance(first, OffloadQuestion)
    assert loaded.price.stop.isVisible()
    with qtbot.waitSignal(loaded.asked) as caught:
        loaded.price.stop.click()
    assert isinstance(caught.args[0], StopAsking)
    store.take(ev.Answered(first, None))  # broken off
    loaded.refresh()
    assert loaded.price.measure.isVisible()
    assert loaded.price.rows() == []
    with qtbot.waitSignal(loaded.asked) as caught:
        loaded.price.measure.click()
    assert caught.args[0] != first  # another question, or the answer would be the old one
    store.take(ev.Answered(caught.args[0], PRICE))
    loaded.refresh()
    assert loaded.price.rows() == [
        ("all on CPU", "", "20.0 ms"),
        ("8 layers on disk", "50 MB", "110 ms"),
        ("15 layers on disk", "100 MB", "160 ms"),
    ]
    assert "Each GB on disk costs 1.0 s more per token" in loaded.price.words.text()


def test_while_a_run_goes_on_nothing_can_be_measured(store, loaded):
    loaded.tabs.setCurrentIndex(1)
    store.set_activity("decode")
    loaded.refresh()
    assert not loaded.price.measure.isEnabled()
    assert loaded.price.measure.toolTip()


def test_a_refusal_to_measure_is_its_sentence(store, loaded):
    loaded.measure()
    store.take(ev.Answered(loaded._question, ev.EngineError("Too few.", "Load another.", 3, "question")))
    loaded.refresh()
    assert loaded.price.words.text() == "Too few. Load another."
