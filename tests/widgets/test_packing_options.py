"""The fold with the packing's settings."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt

from engine.events import ModelChoice
from engine.settings import LoadPlan
from widgets.model_panel import ModelPanel
from widgets.packing_options import PackingOptions
from widgets.run_store import RunStore

USUAL = {"int8_threshold": 6.0, "double_quantisation": True, "compute_dtype": None}


@pytest.fixture
def options(qtbot):
    made = PackingOptions()
    qtbot.addWidget(made)
    made.show()
    return made


def test_the_usual_values_are_those_of_a_plan(options):
    assert options.fields() == USUAL
    plan = LoadPlan("default")
    assert {name: getattr(plan, name) for name in USUAL} == USUAL


def test_it_is_folded_until_it_is_asked_for(options, qtbot):
    assert not options.content.isVisible()
    qtbot.mouseClick(options.fold, Qt.MouseButton.LeftButton)
    assert options.content.isVisible()
    qtbot.keyClick(options.fold, Qt.Key.Key_Space)
    assert not options.content.isVisible()


def test_a_change_is_said_on_the_fold_and_told(options, qtbot):
    options.fold.setChecked(True)
    with qtbot.waitSignal(options.changed, timeout=1000):
        qtbot.mouseClick(options.double, Qt.MouseButton.LeftButton, pos=options.double.rect().center())
    assert options.fields()["double_quantisation"] is False
    assert "changed" in options.fold.text()


def test_a_threshold_is_typed_and_refused_outside_its_range(options, qtbot):
    options.fold.setChecked(True)
    options.threshold.setFocus()
    options.threshold.selectAll()
    qtbot.keyClicks(options.threshold, "3,5")
    assert options.commit()
    assert options.fields()["int8_threshold"] == 3.5
    options.fold.setChecked(False)
    options.threshold.selectAll()
    qtbot.keyClicks(options.threshold, "-1")
    assert not options.commit()
    assert options.content.isVisible()  # what was refused is shown
    assert options.fields()["int8_threshold"] == 3.5


def test_what_is_restored_is_what_was_chosen_and_nonsense_is_left_alone(options):
    options.restore(0.0, False, "float16")
    assert options.fields() == {"int8_threshold": 0.0, "double_quantisation": False, "compute_dtype": "float16"}
    options.restore(-5.0, True, "int3")
    assert options.fields() == {"int8_threshold": 0.0, "double_quantisation": True, "compute_dtype": "float16"}


@pytest.fixture
def panel(qtbot):
    made = ModelPanel(RunStore())
    qtbot.addWidget(made)
    made.show()
    made.set_choices([ModelChoice("tiny", "models/tiny", "folder", 1000)])
    return made


def test_what_is_chosen_is_in_the_panels_plan_and_is_estimated(panel, qtbot):
    panel.options.packing.fold.setChecked(True)
    with qtbot.waitSignal(panel.estimate_requested, timeout=5000) as asked:
        panel.options.packing.double.click()
    assert asked.args[0].double_quantisation is False
    assert panel.plan().double_quantisation is False


def test_a_refused_threshold_loads_nothing(panel, qtbot):
    plans = []
    panel.load_requested.connect(plans.append)
    panel.options.packing.fold.setChecked(True)
    panel.options.packing.threshold.setFocus()
    panel.options.packing.threshold.selectAll()
    qtbot.keyClicks(panel.options.packing.threshold, "many")
    panel.load()
    assert plans == []
    assert panel.options.packing.threshold.problem
