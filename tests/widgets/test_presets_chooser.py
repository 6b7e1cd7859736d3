"""The chooser of presets, driven as a person would."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt

from engine.presets import BUILT_IN, model_preset
from engine.settings import LanePrompt, Preset, SamplingSettings
from widgets.foreign_tokens import Meant
from widgets.lab.lane_editor import LaneEditor
from widgets.lab.lane_set import Lane
from widgets.presets_chooser import PresetChooser
from widgets.run_store import RunStore
from widgets.sampling_panel import SamplingPanel

MINE = Preset("mine", SamplingSettings(top_k=7, seed=5))
SEEDED = Preset("seeded", SamplingSettings(top_k=7, seed=12345678901234567890), with_seed=True)
MODEL = model_preset(SamplingSettings(temperature=0.2, top_p=0.8))


@pytest.fixture
def panel(qtbot):
    panel = SamplingPanel(RunStore())
    qtbot.addWidget(panel)
    panel.presets.set_presets((MODEL, *BUILT_IN, MINE, SEEDED))
    panel.resize(300, 700)
    panel.show()
    return panel


def pick(qtbot, chooser: PresetChooser, preset: Preset) -> None:
    """By the keyboard: opens nothing, steps to it."""
    at = next(i for i in range(chooser.list.count()) if chooser.list.itemData(i) == preset)
    chooser.list.setCurrentIndex(at)
    chooser.list.activated.emit(at)


def test_choosing_sets_the_sliders_leaves_the_seed_and_can_be_undone(qtbot, panel):
    before = replace(panel.settings(), seed=99)
    panel.take_settings(before)
    pick(qtbot, panel.presets, MINE)
    assert panel.settings() == SamplingSettings(top_k=7, seed=99)
    assert panel.rows["top_k"].value() == 7
    panel.undo()
    assert panel.settings() == before


def test_a_preset_with_a_seed_brings_it(qtbot, panel):
    pick(qtbot, panel.presets, SEEDED)
    assert panel.settings().seed == 12345678901234567890


def test_a_slider_that_moves_makes_the_preset_a_changed_one(qtbot, panel):
    pick(qtbot, panel.presets, MINE)
    assert not panel.presets.changed_label.isVisibleTo(panel)
    panel.take_settings(replace(panel.settings(), top_k=8))
    assert panel.presets.changed_label.isVisibleTo(panel)
    assert panel.presets.current == MINE


def test_that_a_preset_was_changed_is_readable_in_the_narrowest_panel(qtbot, panel):
    pick(qtbot, panel.presets, MINE)
    panel.resize(270, 700)
    panel.take_settings(replace(panel.settings(), top_k=8))
    qtbot.waitUntil(lambda: panel.width() == 270 and not panel.presets.label.isVisibleTo(panel))
    label = panel.presets.changed_label
    qtbot.waitUntil(lambda: label.width() >= label.fontMetrics().horizontalAdvance("changed"))
    assert panel.presets.list.currentText() == "mine"
    pick(qtbot, panel.presets, MINE)  # again: back to it
    assert panel.settings().top_k == 7
    assert not panel.presets.is_changed()


def test_another_seed_does_not_change_a_preset_without_one(qtbot, panel):
    pick(qtbot, panel.presets, MINE)
    panel.roll()
    assert not panel.presets.is_changed()
    pick(qtbot, panel.presets, SEEDED)
    panel.roll()
    assert panel.presets.current == MINE  # the same settings without a seed of its own
    assert not panel.presets.is_changed()


def test_settings_that_are_a_presets_are_called_so(panel):
    panel.take_settings(BUILT_IN[2].applied(panel.settings()))
    assert panel.presets.current == BUILT_IN[2]


def test_settings_that_are_no_preset_are_called_none(panel):
    panel.take_settings(SamplingSettings(top_k=3))
    assert panel.presets.current is None
    assert panel.presets.list.currentText() == "none"
    assert not panel.presets.changed_label.isVisibleTo(panel)


def test_only_ones_own_can_be_renamed_and_deleted(qtbot, panel):
    chooser, deleted = panel.presets, []
    chooser.delete_requested.connect(deleted.append)
    for preset, own in ((MODEL, False), (BUILT_IN[0], False), (MINE, True)):
        pick(qtbot, chooser, preset)
        assert chooser.delete_action.isEnabled() is own
        assert chooser.rename_action.isEnabled() is own
        chooser.delete()
    assert deleted == [MINE]


def test_a_name_is_typed_where_the_preset_stands(qtbot, panel):
    chooser, saved = panel.presets, []
    chooser.save_requested.connect(lambda name, seed: saved.append((name, seed)))
    chooser.save_action.trigger()
    assert chooser.name_line.isVisibleTo(panel)
    qtbot.keyClicks(chooser.name_line, "warm")
    chooser.with_seed.setChecked(True)
    qtbot.keyClick(chooser.name_line, Qt.Key.Key_Return)
    assert saved == [("warm", True)]
    chooser.refuse_name("No.")
    assert chooser.name_problem.isVisibleTo(panel)
    qtbot.keyClick(chooser.name_line, Qt.Key.Key_Escape)
    assert not chooser.name_line.isVisibleTo(panel)


def test_a_new_name_begins_with_the_old_one(qtbot, panel):
    chooser, renamed = panel.presets, []
    chooser.rename_requested.connect(lambda preset, name: renamed.append((preset, name)))
    pick(qtbot, chooser, MINE)
    chooser.rename_action.trigger()
    assert chooser.name_line.text() == "mine"
    qtbot.keyClicks(chooser.name_line, "ours")  # it was selected
    qtbot.keyClick(chooser.name_line, Qt.Key.Key_Return)
    assert renamed == [(MINE, "ours")]


def test_a_chooser_without_keeping_only_chooses(qtbot):
    chooser = PresetChooser(keeping=False)
    qtbot.addWidget(chooser)
    chooser.set_presets((MODEL, MINE))
    chooser.set_undo("nothing")
    chooser.show_settings(MINE.settings)
    assert chooser.current == MINE
    assert not hasattr(chooser, "menu_button")


@pytest.mark.parametrize("name", ["<b>bold</b>", "\u202egnp", "a" * 80, "河流", "&File"])
def test_any_name_is_shown_as_text(qtbot, panel, name):
    odd = Preset(name, SamplingSettings(top_k=9), words="<img src=x>")
    panel.presets.set_presets((*BUILT_IN, odd))
    pick(qtbot, panel.presets, odd)
    assert panel.presets.current == odd
    assert "<img" not in panel.presets.list.toolTip()


def test_the_models_own_preset_follows_the_model(qtbot, panel):
    pick(qtbot, panel.presets, MODEL)
    other = model_preset(SamplingSettings(temperature=0.7))
    panel.presets.set_presets((other, *BUILT_IN))
    assert panel.presets.current == other
    assert panel.presets.is_changed()


def show(editor: LaneEditor, lane: Lane) -> None:
    editor.show_lane(lane, "A", 0, LanePrompt("x"), Meant(lane.settings))


def test_a_lanes_editor_offers_the_same_presets(qtbot):
    store = RunStore()
    store.presets = (MODEL, *BUILT_IN, MINE)
    editor, changed = LaneEditor(store), []
    qtbot.addWidget(editor)
    editor.changed.connect(lambda lane, same_step: changed.append((lane.settings, same_step)))
    show(editor, Lane(1, SamplingSettings(seed=3)))
    assert editor.presets.current is None
    pick(qtbot, editor.presets, MINE)
    assert changed == [(SamplingSettings(top_k=7, seed=3), False)]
    assert editor.rows["top_k"].value() == 7
    store.presets = (*BUILT_IN,)
    editor.refresh()
    assert editor.presets.list.findText("mine") < 0


def test_what_was_told_goes_with_the_next_thing_that_is_done(qtbot, panel):
    chooser = panel.presets

    def told() -> bool:
        chooser.tell("The file is not readable as JSON.")
        assert chooser.note.isVisible()
        return True

    for act in (
        lambda: panel.rows["top_k"].changed.emit(9, False),
        panel.undo,
        panel.roll,
        lambda: pick(qtbot, chooser, MINE),
        chooser.ask_name,
        chooser.menu_button.menu().aboutToShow.emit,
        chooser.list.opening.emit,
    ):
        assert told()
        act()
        assert not chooser.note.isVisible()


def test_what_is_told_of_a_lane_goes_with_its_next_change(qtbot):
    editor = LaneEditor(RunStore())
    qtbot.addWidget(editor)
    show(editor, Lane(1, SamplingSettings(seed=3)))
    editor.presets.tell("Something is left out.")
    editor.roll()
    assert not editor.presets.note.isVisibleTo(editor)
    editor.presets.tell("Something is left out.")
    show(editor, Lane(2, SamplingSettings()))
    assert not editor.presets.note.isVisibleTo(editor)
