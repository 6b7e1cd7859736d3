from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from engine import events as ev
from engine.settings import SamplingSettings
from tests.widgets import events_factory as make
from tests.widgets.facts import facts
from widgets.run_controls import pace_of, position_of
from widgets.run_store import RunStore
from widgets.sampling_panel import SamplingPanel
from widgets.stop_list import escaped, unescaped


@pytest.fixture
def store(qapp):
    return RunStore()


@pytest.fixture
def panel(qtbot, store):
    made = SamplingPanel(store)
    qtbot.addWidget(made)
    return made


def test_settings_come_back_bit_for_bit(panel):
    settings = SamplingSettings(
        temperature=1e-6, top_k=2**31 - 1, top_p=0.1 + 0.2, min_p=0.0123456789, typical_p=1e-9,
        repetition_penalty=99.99, presence_penalty=-1.999, frequency_penalty=0.3333, no_repeat_ngram_size=77,
        seed=-(2**70),
    )  # fmt: skip
    panel.set_settings(settings)
    panel.refresh()
    assert panel.settings() == settings


def test_a_slider_says_one_new_settings_object_per_change(qtbot, panel):
    said = []
    panel.settings_changed.connect(said.append)
    panel.rows["temperature"].slider.setValue(400)
    assert said == [SamplingSettings(temperature=0.8)]
    QTest.keyClick(panel.rows["temperature"].slider, Qt.Key.Key_Right)
    assert said[1:] == [SamplingSettings(temperature=0.85)]


def test_a_slider_never_reaches_a_refused_value(panel):
    for row in panel.rows.values():
        for position in range(0, 1001, 50):
            row.slider.setValue(position)
            assert SamplingSettings(**{row.knob.name: row.value()})


def test_sliders_stand_where_their_own_value_is(panel):
    for row in panel.rows.values():
        for position in (0, 130, 500, 870, 1000):
            row.slider.setValue(position)
            value = row.value()
            row.set_value(value)
            row._slid(row.slider.value())
            assert row.value() == pytest.approx(value, rel=0.04, abs=0.01)


def test_a_typed_number_is_taken_without_leaving_the_field(panel):
    field = panel.rows["top_p"].field
    field.selectAll()
    QTest.keyClicks(field, "0,55")
    assert panel.settings().top_p == 0.55


def test_a_refused_number_leaves_the_setting(panel):
    said = []
    panel.settings_changed.connect(said.append)
    field = panel.rows["top_p"].field
    field.selectAll()
    QTest.keyClicks(field, "0")
    QTest.keyClick(field, Qt.Key.Key_Return)
    assert panel.settings().top_p == 1.0
    assert said == []
    assert "more than 0" in field.problem


def test_undo_and_redo_walk_through_the_settings(panel):
    panel.rows["temperature"].slider.setValue(400)
    panel.rows["top_k"].slider.setValue(500)
    last = panel.settings()
    panel.undo()
    assert panel.settings() == SamplingSettings(temperature=0.8)
    panel.undo()
    assert panel.settings() == SamplingSettings()
    panel.undo()
    panel.redo()
    panel.redo()
    assert panel.settings() == last


def test_reset_goes_to_the_models_own_defaults_and_keeps_the_seed(store, panel):
    store.take(ev.Loaded(facts()))
    store.frame.emit()
    panel.set_settings(SamplingSettings(temperature=1.7, top_k=5, seed=2**65))
    panel.use_defaults()
    assert panel.settings() == replace(facts().generation_defaults, seed=2**65)
    assert "0.2" in panel.defaults_action.text()
    panel.use_off()
    assert panel.settings() == SamplingSettings(seed=2**65)


def test_a_double_click_resets_one_slider(qtbot, panel):
    panel.show()
    row = panel.rows["min_p"]
    row.slider.setValue(700)
    assert row.value() > 0
    qtbot.mouseDClick(row.slider, Qt.MouseButton.LeftButton)
    assert panel.settings().min_p == 0.0


def test_before_a_run_it_says_what_will_stand_there_and_what_to_press(store, panel):
    panel.set_settings(SamplingSettings(top_p=0.9))
    store.take(ev.Loaded(facts()))
    store.frame.emit()
    assert panel.rows["top_p"].kept.text() == "how many words it keeps: press Run"


def test_it_says_how_many_words_each_filter_keeps_at_the_shown_token(store, panel):
    settings = SamplingSettings(temperature=0.8, top_p=0.9, seed=7)
    panel.set_settings(settings)
    store.take(make.start())
    for event in make.river(settings):
        store.take(event)
    store.frame.emit()
    kept = store.shown_token.kept_after("top_p")
    assert 0 < kept < 49_152
    assert panel.rows["top_p"].kept.text() == f"keeps {kept} of 49,152 words here"
    panel.rows["top_p"].slider.setValue(500)  # the token was chosen before
    assert panel.rows["top_p"].kept.text() == f"kept {kept} of 49,152 here, at 0.9"


def test_greedy_is_said(panel):
    panel.set_settings(SamplingSettings(temperature=0.0))
    assert panel.remark_label.text() == "greedy"


@pytest.mark.parametrize(
    ("loaded", "activity", "enabled"),
    [
        (False, "idle", (False, False, False, False)),
        (False, "loading", (False, False, False, True)),
        (True, "idle", (True, True, False, False)),
        (True, "prefill", (False, False, True, True)),
        (True, "decode", (False, True, True, True)),
        (True, "paused", (False, True, True, True)),
    ],
)
def test_buttons_are_enabled_as_the_activity_allows(store, panel, loaded, activity, enabled):
    if loaded:
        store.take(ev.Loaded(facts()))
    store.set_activity(activity)
    store.frame.emit()
    controls = panel.controls
    buttons = (controls.run_button, controls.step_button, controls.pause_button, controls.stop_button)
    assert tuple(button.isEnabled() for button in buttons) == enabled
    for button in buttons:
        assert button.isEnabled() or "\n" in button.toolTip()  # the second line says why not


def test_buttons_ask(qtbot, store, panel):
    store.take(ev.Loaded(facts()))
    store.frame.emit()
    with qtbot.waitSignal(panel.run_requested):
        panel.controls.run_button.click()
    with qtbot.waitSignal(panel.step_requested):
        panel.controls.step_button.click()


def test_the_pace_goes_from_one_token_in_two_seconds_to_full_speed(qtbot, panel):
    said = []
    panel.pace_changed.connect(said.append)
    slider = panel.controls.pace_slider
    assert panel.pace() == 0.0
    assert panel.controls.pace_text() == "full speed"
    slider.setValue(0)
    assert said == [2.0]
    assert panel.controls.pace_text() == "2.0 s / token"
    slider.setValue(1000)
    assert said == [2.0, 0.0]
    paces = [pace_of(position) for position in range(960)]
    assert paces == sorted(paces, reverse=True)
    assert pace_of(position_of(0.5)) == 0.5


@pytest.mark.parametrize("text", ["\n\n", "a\\n", "\t", "河流", "</s>", "\\", " "])
def test_a_stop_string_is_typed_as_it_is_shown(text):
    assert unescaped(escaped(text)) == text


def test_stop_strings_are_added_in_order_and_empty_ones_refused(qtbot, panel):
    panel.show()
    panel.more_button.setChecked(True)
    stops = panel.stop_list
    for text in ("\\n\\n", "END", "END"):
        stops.line.setText(text)
        QTest.keyClick(stops.line, Qt.Key.Key_Return)
    assert panel.stop_strings() == ("\n\n", "END")
    stops.line.setText("")
    QTest.keyClick(stops.line, Qt.Key.Key_Return)
    assert panel.stop_strings() == ("\n\n", "END")
    assert stops.problem.isVisible()


def test_an_unlocked_seed_changes_before_each_run(panel):
    panel.set_settings(SamplingSettings(seed=2**70))
    panel.prepare_run()
    assert panel.settings().seed == 2**70
    panel.lock_button.setChecked(False)
    panel.prepare_run()
    assert panel.settings().seed != 2**70


def test_what_was_set_is_restored(panel):
    settings = SamplingSettings(temperature=0.3, seed=2**80)
    panel.restore(settings, 1000, ("\n",), 0.5)
    assert (panel.settings(), panel.max_new_tokens(), panel.stop_strings(), panel.pace()) == (
        settings, 1000, ("\n",), 0.5,
    )  # fmt: skip
