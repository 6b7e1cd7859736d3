from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from engine import events as ev
from engine.settings import LoadPlan
from engine.sizes import CacheLayer, PrecisionSizes
from tests.widgets.facts import facts
from widgets.model_panel import ModelChip, ModelPanel
from widgets.placement_dialog import PlacementDialog
from widgets.run_store import RunStore

SMALL = ev.ModelChoice("SmolLM2-135M-Instruct", "default", "default", 269_000_000, "llama", 134_515_008, "bfloat16")
CHINESE = ev.ModelChoice("通义 <b>7B</b>", "models/qwen", "folder", 15_000_000_000, "qwen2")


SIZES = ev.ModelSizes(
    parameters=7_500_000_000, hidden_size=3584, heads=28, kv_heads=4, vocab_size=152_064, widest_layer=18_944,
    context_tokens=32_768, buffer_bytes=0,
    precisions=tuple(
        PrecisionSizes(name, name if name.endswith(("16", "32")) else "bfloat16", (("embedding", size),))
        for name, size in (("float32", 30_000_000_000), ("bfloat16", 15_000_000_000), ("float16", 15_000_000_000),
                           ("int8", 8_000_000_000), ("nf4", 5_000_000_000), ("fp4", 5_000_000_000))
    ),
    cache=(CacheLayer("full", 28_672, None),),
    default_precision="bfloat16",
)  # fmt: skip


def estimate(**changes) -> ev.Estimate:
    values = {
        "model": "通义 <b>7B</b>", "precision": "bfloat16", "context_tokens": 8192, "lanes": 1,
        "parameters": 7_600_000_000,
        "embedding_bytes": 1_000_000_000, "layers_bytes": 13_000_000_000, "lm_head_bytes": 1_000_000_000,
        "weights_bytes": 15_000_000_000, "kv_bytes": 470_000_000, "kv_bytes_per_token": 57_344,
        "rough_total_bytes": 20_000_000_000, "better_rough_total_bytes": 16_000_000_000,
        "total_bytes": 15_500_000_000, "parts": (ev.LedgerPart("embedding", 1_000_000_000),),
        "available_bytes": 8_000_000_000, "sizes": SIZES,
    }  # fmt: skip
    return ev.Estimate(**(values | changes))


@pytest.fixture
def store(qapp):
    return RunStore()


@pytest.fixture
def panel(qtbot, store):
    made = ModelPanel(store)
    qtbot.addWidget(made)
    made.set_choices([SMALL, CHINESE])
    return made


def test_without_any_model_it_says_what_to_open(qtbot, store):
    made = ModelPanel(store)
    qtbot.addWidget(made)
    assert made.plan() is None
    assert not made.load_button.isEnabled()
    assert "Open a folder" in made.about.text()


def test_load_asks_for_what_is_chosen(qtbot, panel):
    panel.choose("models/qwen")
    panel.options.precision.setCurrentIndex(panel.options.precision.findData("nf4"))
    panel.options.device.setCurrentIndex(panel.options.device.findData("balanced"))
    panel.options.limits.fields["cpu"].selectAll()
    QTest.keyClicks(panel.options.limits.fields["cpu"], "1,5")
    with qtbot.waitSignal(panel.load_requested) as caught:
        panel.load_button.click()
    assert caught.args == [LoadPlan("models/qwen", "nf4", "balanced", (("cpu", 1_500_000_000),))]


def test_a_refused_limit_is_not_loaded_without(panel):
    said = []
    panel.load_requested.connect(said.append)
    panel.options.limits.fields["cpu"].selectAll()
    QTest.keyClicks(panel.options.limits.fields["cpu"], "much")
    panel.load_button.click()
    assert said == []
    assert panel.options.limits.fields["cpu"].problem


def test_a_table_by_layer_becomes_the_device_map(qtbot, panel):
    dialog = PlacementDialog((("model.layers.0", "cpu"), ("", "disk")), panel)
    qtbot.addWidget(dialog)
    dialog.accepted.connect(panel._table_edited)
    panel.options.device.setCurrentIndex(panel.options.device.findData("table"))
    dialog.accept()
    assert panel.plan().device_map == (("model.layers.0", "cpu"), ("", "disk"))


@pytest.mark.parametrize(
    "pairs", [(("model", ""),), (("model", "cpu"), ("model", "disk"))], ids=["no device", "a name twice"]
)
def test_a_table_that_cannot_be_used_stays_open_and_says_why(qtbot, panel, pairs):
    dialog = PlacementDialog(pairs, panel)
    qtbot.addWidget(dialog)
    dialog.accept()
    assert dialog.result() == 0
    assert not dialog.problem_label.isHidden()


def test_choosing_asks_for_an_estimate_once(qtbot, panel):
    with qtbot.waitSignal(panel.estimate_requested) as caught:
        panel.choose("models/qwen")
        panel.choose("default")
    assert caught.args == [LoadPlan("default")]


def test_what_does_not_fit_is_said_with_both_figures(panel):
    panel.choose("models/qwen")
    panel.set_estimate(estimate())
    verdict = panel.ledger.verdict
    assert verdict.text().startswith("Does not fit: 16.0 GB predicted, 8.0 GB free.")
    assert verdict.property("role") == "warning"
    panel.set_estimate(estimate(available_bytes=32_000_000_000))
    assert verdict.text().startswith("Fits: 16.0 GB predicted, 32.0 GB free.")
    assert verdict.property("role") == "muted"


def test_another_precision_moves_the_ledger_before_the_engine_answers(panel):
    panel.choose("models/qwen")
    panel._ask_estimate()
    panel.set_estimate(estimate(available_bytes=10_000_000_000))
    assert panel.ledger.verdict.text().startswith("Does not fit")
    panel.options.precision.setCurrentIndex(panel.options.precision.findData("nf4"))
    panel.options.precision.activated.emit(panel.options.precision.currentIndex())
    assert panel.ledger.wish()[0] == "nf4"
    assert panel.ledger.verdict.text().startswith("Fits")
    panel.options.precision.setCurrentIndex(0)
    panel.options.precision.activated.emit(0)
    assert panel.ledger.wish()[0] == "bfloat16"  # what the files say


def test_a_change_that_makes_it_fit_chooses_the_precision_too(qtbot, panel):
    panel.choose("models/qwen")
    panel._ask_estimate()
    panel.set_estimate(estimate(available_bytes=10_000_000_000))
    button = panel.ledger.change_buttons()[0]
    assert "int8 weights" in button.text()
    button.click()
    assert panel.plan().precision == "int8"
    assert panel.ledger.verdict.text().startswith("Fits")


def test_a_gpus_limit_has_a_row_of_its_own_and_goes_into_the_plan(panel):
    limits = (ev.DeviceLimit("cuda:0", 20_000_000_000, 24_000_000_000), ev.DeviceLimit("cpu", 8_000_000_000, 16))
    panel.set_estimate(estimate(limits=limits))
    assert sorted(panel.options.limits.fields) == ["cpu", "cuda:0"]
    field = panel.options.limits.fields["cuda:0"]
    field.selectAll()
    QTest.keyClicks(field, "12")
    assert panel.plan().max_memory_bytes == (("cuda:0", 12_000_000_000),)
    assert "20.0 GB free now" in field.toolTip()


def test_an_unknown_total_is_never_zero(panel):
    panel.set_estimate(estimate(total_bytes=None, kv_bytes=None, available_bytes=0, sizes=replace(SIZES, cache=None)))
    rows = panel.ledger.table.rows()
    assert not [row for row in rows if row[1] == 0]
    assert panel.ledger.figures.text("exact") == "–"
    assert "cannot be predicted" in panel.ledger.verdict.text()


def test_after_loading_predicted_and_measured_stand_side_by_side(store, panel):
    store.take(ev.Loaded(facts(notes=("The weights are tied.",))))
    store.frame.emit()
    rows = panel.ledger.table.rows()
    assert ("embedding", 56_623_104, 56_623_104) in rows
    assert ("KV cache", 188_743_680, None) in rows
    assert ("libraries", None, 120_000_000) in rows
    assert panel.notes.text() == "The weights are tied."
    assert "280 MB" in panel.fits.text()


def test_progress_shows_stage_bytes_and_tensor_and_can_be_cancelled(qtbot, store, panel):
    panel.show()
    store.take(ev.LoadProgress("weights", 3 * 2**32, 4 * 2**32, 400.0, "model.layers.3.mlp"))
    store.frame.emit()
    assert panel.progress.bar.value() == 750
    assert "12.9 GB of 17.2 GB" in panel.progress.label.text()
    assert panel.progress.detail.text() == "model.layers.3.mlp"
    assert not panel.load_button.isVisible()
    with qtbot.waitSignal(panel.cancel_requested):
        qtbot.mouseClick(panel.cancel_button, Qt.MouseButton.LeftButton)


def test_a_failed_load_is_a_sentence_a_fix_and_a_way_to_try_again(qtbot, store, panel):
    panel.show()
    store.take(ev.EngineError("x", "y", 3, "load", "{shard} ends early.", "Download {shard} again.", (("shard", "a"),)))
    store.frame.emit()
    assert panel.error.text() == "a ends early."
    assert panel.fix.text() == "Download a again."
    with qtbot.waitSignal(panel.load_requested):
        qtbot.mouseClick(panel.retry_button, Qt.MouseButton.LeftButton)
    store.take(ev.LoadProgress("blueprint", 0, 1, 0.0))
    store.frame.emit()
    assert not panel.error.isVisible()


def test_unload_waits_for_the_run(qtbot, store, panel):
    store.take(ev.Loaded(facts()))
    store.set_activity("decode")
    store.frame.emit()
    assert not panel.unload_button.isEnabled()
    store.set_activity("idle")
    store.frame.emit()
    with qtbot.waitSignal(panel.unload_requested):
        panel.unload_button.click()


def test_the_picker_follows_the_model_that_was_loaded(store, panel):
    panel.choose("models/qwen")
    store.take(ev.Loaded(facts()))
    store.frame.emit()
    assert panel.plan().model == "default"


def test_the_chip_names_model_precision_device_and_measured_weights(qtbot, store):
    chip = ModelChip(store)
    qtbot.addWidget(chip)
    assert chip.lines()[0] == "No model"
    store.take(ev.LoadProgress("weights", 1, 4, 0.0))
    assert chip.lines() == ("Loading…", "weights · 25%")
    store.take(ev.Loaded(facts(devices=("cuda:0", "cpu", "disk"))))
    assert chip.lines() == ("SmolLM2-135M-Instruct", "bfloat16 · GPU 0 + CPU + disk · 269 MB measured")
    with qtbot.waitSignal(chip.clicked):
        QTest.keyClick(chip, Qt.Key.Key_Space)


def test_what_is_wrong_with_one_model_never_stands_under_another(panel, store):
    store.take(ev.Loaded(facts()))
    panel.refresh()
    panel.choose("models/qwen")
    store.take(ev.EngineError("The files are broken.", "Download them again.", 3, "load"))
    panel.refresh()
    assert panel.error.text() == "The files are broken."
    assert not panel.error.isHidden()
    panel.set_estimate(ev.EngineError("It needs code of its own.", "Read it.", 3, "estimate"))
    assert panel.fits.text() == "It needs code of its own. Read it."  # and not the loaded model's figures
    assert panel.ledger_title.isHidden()
    panel.picker.setCurrentIndex(panel.picker.findData("default"))
    panel.picker.activated.emit(panel.picker.currentIndex())
    assert panel.error.isHidden()
    assert "loaded on" in panel.fits.text()


def test_a_list_of_models_that_comes_in_later_leaves_what_was_chosen(panel, store):
    store.take(ev.Loaded(facts()))
    panel.refresh()
    panel.set_choices([SMALL, CHINESE])
    assert panel.plan().model == "default"  # the loaded one, while nobody chose
    panel.choose("/models/opened")
    panel.set_choices([SMALL, CHINESE])
    panel.refresh()
    assert panel.plan().model == "/models/opened"
    panel.picker.setCurrentIndex(panel.picker.findData("models/qwen"))
    panel.picker.activated.emit(panel.picker.currentIndex())
    panel.set_choices([CHINESE, SMALL])
    panel.refresh()
    assert panel.plan().model == "models/qwen"
    store.take(ev.Loaded(facts()))
    panel.refresh()
    assert panel.plan().model == "default"


def test_a_table_that_is_not_made_leaves_the_placement_chosen_before(panel):
    options = panel.options
    for name in ("balanced", "by table"):
        at = options.device.findData(name) if name == "balanced" else options.device.count() - 1
        options.device.setCurrentIndex(at)
        options.device.activated.emit(at)
    (dialog,) = panel.findChildren(PlacementDialog)
    dialog.reject()
    assert panel.plan().device_map == "balanced"
    assert options.edit_table.isHidden()
