"""The ledger's sliders move every figure at once; what does not fit says what would make it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from engine import events as ev
from engine.sizes import CacheLayer, ModelPart, PrecisionSizes
from tests.widgets.facts import facts
from widgets import theme
from widgets.fit_bar import FitBar, Limit, Segment
from widgets.ledger_panel import LedgerPanel, context_stops

FLOATS = {"float32": 4, "bfloat16": 2, "float16": 2}
LAYER = 218_112_000  # parameters of one of Llama 3.1 8B's 32 layers; its tables have 525,336,576 each, its norm 4,096


def sizes_of_llama_8b() -> ev.ModelSizes:
    total = 32 * LAYER + 2 * 525_336_576 + 4096
    precisions = []
    for name in ("float32", "bfloat16", "float16", "int8", "nf4", "fp4"):
        each = FLOATS.get(name, {"int8": 1.13, "nf4": 0.65, "fp4": 0.65}.get(name, 0))
        plain = name if name in FLOATS else "bfloat16"
        precisions.append(PrecisionSizes(name, plain, (("all", round(total * each)),), name not in FLOATS))
    layers = tuple(ModelPart(f"model.layers.{at}", at, (LAYER * 4, LAYER * 2, LAYER * 2, 1, 1, 1)) for at in range(32))
    return ev.ModelSizes(
        parameters=total, hidden_size=4096, heads=32, kv_heads=8, vocab_size=128_256, widest_layer=14_336,
        context_tokens=131_072, buffer_bytes=0, precisions=tuple(precisions),
        cache=(CacheLayer("full", 2048, None),) * 32, parts=layers, default_precision="bfloat16",
    )  # fmt: skip


SIZES = sizes_of_llama_8b()


def estimate(*limits: ev.DeviceLimit, context: int = 8192, sizes: ev.ModelSizes = SIZES) -> ev.Estimate:
    figures = sizes.figures("bfloat16", context)
    return ev.Estimate(model="Llama", parameters=SIZES.parameters, sizes=sizes, limits=limits, **figures)


CPU = ev.DeviceLimit("cpu", 24_000_000_000, 32_000_000_000)
SMALL_GPU = ev.DeviceLimit("cuda:0", 12_000_000_000, 12_900_000_000)


@pytest.fixture
def panel(qtbot):
    theme.set_mode("light")
    made = LedgerPanel()
    qtbot.addWidget(made)
    made.resize(330, 800)
    return made


def test_llama_3_8b_shows_its_four_figures_and_why_the_first_is_off(panel):
    panel.show_estimate(estimate(CPU))
    shown = [panel.figures.text(name) for name in ("rough", "better", "exact", "measured")]
    assert shown == ["80.30 GB", "17.40 GB", "17.13 GB", "–"]
    assert "8 of 32" in panel.why.text()


def test_the_context_slider_moves_cache_total_and_verdict(qtbot, panel):
    panel.show_estimate(estimate(CPU))
    assert panel.verdict.text().startswith("Fits: ")
    panel.show()
    with qtbot.waitSignal(panel.wished) as caught:
        panel.context.slider.setValue(len(panel.context.stops) - 1)
    assert caught.args == [("bfloat16", 131_072, 1)]
    assert panel.context.field.text() == "131,072"
    assert ("KV cache", 131_072 * 131_072, None) in panel.table.rows()
    assert panel.verdict.text().startswith("Does not fit: ")
    assert panel.verdict.property("role") == "warning"


def test_arrow_keys_go_from_stop_to_stop_and_a_number_can_be_typed(panel):
    panel.show_estimate(estimate(CPU))
    panel.show()
    QTest.keyClick(panel.context.slider, Qt.Key.Key_Right)
    assert panel.context.value() == 12_288
    panel.context.field.selectAll()
    QTest.keyClicks(panel.context.field, "5000")
    QTest.keyClick(panel.context.field, Qt.Key.Key_Return)
    assert panel.wish() == ("bfloat16", 5000, 1)
    panel.context.field.selectAll()
    QTest.keyClicks(panel.context.field, "0")
    QTest.keyClick(panel.context.field, Qt.Key.Key_Return)
    assert panel.wish() == ("bfloat16", 5000, 1)
    assert panel.context.field.problem


def test_lanes_multiply_the_cache_and_not_the_weights(panel):
    panel.show_estimate(estimate(CPU))
    panel.lanes.slider.setValue(panel.lanes.stops.index(4))
    rows = {name: predicted for name, predicted, _ in panel.table.rows()}
    assert rows["KV cache"] == 4 * 8192 * 131_072
    assert rows["all"] == SIZES.parameters * 2


def test_what_does_not_fit_offers_three_changes_and_a_press_takes_one(panel):
    panel.show_estimate(estimate(SMALL_GPU, CPU))
    panel.set_device_map("cuda:0")
    assert "It would fit with:" in panel.verdict.text()
    texts = panel.change_texts()
    assert len(texts) == 2  # of the single ones only these: 16 GB of weights leave no room for a shorter text
    assert texts[0].startswith("int8 weights: 10.")
    assert "on disk (slow)" in texts[1]
    panel.change_buttons()[0].click()
    assert panel.wish()[0] == "int8"
    assert panel.verdict.text().startswith("Fits: ")
    assert panel.change_texts() == []


def test_three_changes_where_there_are_three(panel):
    panel.show_estimate(estimate(CPU))
    panel.set_wish(32_768, 4)
    assert len(panel.change_texts()) == 3
    for button in panel.change_buttons():
        change = button.property("change")
        assert SIZES.need(change.precision, change.context_tokens, change.lanes) <= CPU.free_bytes or change.disk_bytes


def test_where_nothing_fits_the_nearest_is_said(panel):
    tiny = ev.DeviceLimit("cpu", 100_000_000, 200_000_000)
    panel.show_estimate(estimate(tiny))
    assert "Nothing makes it fit; the nearest is" in panel.verdict.text()
    assert panel.change_texts() == []


def test_devices_are_filled_one_after_the_other_and_each_has_its_line(panel):
    panel.show_estimate(estimate(SMALL_GPU, CPU))
    told = panel.bar.accessibleDescription()
    assert "GPU 0: 12.0 GB free" in told
    assert "with CPU: 36.0 GB free" in told
    assert panel.verdict.text().startswith("Fits when it is split")


def test_another_estimate_of_the_same_model_leaves_the_sliders_where_they_are(panel):
    panel.show_estimate(estimate(CPU))
    panel.set_wish(1000, 3)
    panel.show_estimate(estimate(CPU).at("nf4"))
    assert panel.wish() == ("nf4", 1000, 3)


def test_another_model_keeps_the_context_that_a_hand_chose_as_far_as_it_can(panel):
    panel.show_estimate(estimate(CPU))
    assert panel.kept_wish() == (0, 1)
    panel.show_estimate(replace(estimate(CPU, context=4096), model="another"))
    assert panel.wish() == ("bfloat16", 4096, 1)  # nothing was chosen: each model's own
    panel.context.slider.setValue(panel.context.stops.index(65_536))
    assert panel.kept_wish() == (65_536, 1)
    panel.show_estimate(replace(estimate(CPU, sizes=replace(SIZES, context_tokens=2048)), model="a small one"))
    assert panel.wish()[1] == 2048
    panel.show_estimate(replace(estimate(CPU), model="a large one"))
    assert panel.wish()[1] == 65_536


def test_a_loaded_model_adds_up_to_the_process_with_the_rest_named(panel):
    loaded = facts(
        sizes=replace(SIZES, precisions=SIZES.precisions[1:2]),
        places=(ev.PlacedPart("model", "cpu", 269_030_016),),
        ledger=(ev.LedgerPart("all", 269_030_016, 269_030_016), ev.LedgerPart("kv_cache", 188_743_680)),
    )
    reading = ev.MemoryReading(0.0, 500_000_000, 8_000_000_000, 16_000_000_000)
    panel.show_loaded(loaded, reading, 23_040_000)
    rows = {name: measured for name, _, measured in panel.table.rows()}
    assert rows["this process"] == 500_000_000
    assert rows["KV cache"] == 23_040_000
    assert rows["not explained"] == 500_000_000 - 120_000_000 - 269_030_016 - 23_040_000
    assert panel.figures.text("measured") == "292.10 MB"
    panel.show_loaded(loaded, replace(reading, process_bytes=200_000_000))
    assert {name: measured for name, _, measured in panel.table.rows()}["not explained"] < 0


def test_what_the_model_holds_already_is_free_for_it(panel):
    places = (ev.PlacedPart("a", "cuda:0", 10_000_000_000), ev.PlacedPart("b", "cpu", 6_000_000_000))
    loaded = facts(sizes=SIZES, places=places, devices=("cuda:0", "cpu"))
    gpu = ev.GpuReading("card", 10_000_000_000, 11_000_000_000, 12_000_000_000, 24_000_000_000)
    panel.show_loaded(
        loaded, ev.MemoryReading(0.0, 9_000_000_000, 4_000_000_000, 16_000_000_000, (gpu,)), 1_000_000_000
    )
    told = panel.bar.accessibleDescription()
    assert "GPU 0: 23.0 GB free" in told  # 24 less 12 that are in use, of which 11 are the model's own
    assert "with CPU: 33.0 GB free" in told


def test_a_recording_of_before_sizes_were_told_shows_what_it_has(panel):
    panel.show_loaded(facts())
    assert ("embedding", 56_623_104, 56_623_104) in panel.table.rows()
    assert not panel.context.isVisibleTo(panel)
    assert panel.verdict.text() == ""


def test_stops_end_with_the_models_own_context():
    assert context_stops(8192)[-3:] == (4096, 6144, 8192)
    assert context_stops(40_960)[-1] == 40_960
    assert context_stops(0)[-1] == 131_072
    assert context_stops(100) == (64, 96, 100)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_limit_is_a_line_across_the_bar_and_what_is_beyond_is_marked(qtbot, mode):
    theme.set_mode(mode)
    bar = FitBar()
    qtbot.addWidget(bar)
    bar.show_need((Segment("weights", "weights", 80), Segment("KV cache", "kv_cache", 40)), (Limit("CPU", 60),))
    bar.resize(400, bar.sizeHint().height())
    bar.show()
    picture = bar.grab().toImage()
    ratio = picture.devicePixelRatio()
    line = bar.limit_x(Limit("CPU", 60))
    assert line == pytest.approx(400 * 60 / (120 * 1.04))
    row = [picture.pixelColor(round(x * ratio), round((bar.height() - 30) * ratio)) for x in range(400)]
    warning = theme.current().warning
    near = [x for x in range(400) if abs(row[x].red() - warning.red()) + abs(row[x].green() - warning.green()) < 60]
    assert any(abs(x - line) < 3 for x in near)
    assert [x for x in near if x > line + 10]
    assert not [x for x in near if x < line - 10]
    theme.set_mode("light")
