import itertools

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QFontMetricsF
from PySide6.QtTest import QTest

from engine import events as ev
from tests.widgets import events_factory as make
from tests.widgets.facts import facts
from widgets import theme
from widgets.box_view import BoxView
from widgets.boxes import PAGES
from widgets.panel import PlainLabel
from widgets.pipeline_boxes import BOXES
from widgets.pipeline_strip import PipelineStrip
from widgets.run_store import RunStore


@pytest.fixture
def store(qapp):
    return RunStore()


@pytest.fixture
def strip(qtbot, store):
    made = PipelineStrip(store)
    qtbot.addWidget(made)
    made.resize(770, 46)
    made.show()
    return made


def test_nothing_is_known_before_anything_happened(strip):
    assert {box.figure for box in strip.boxes.values()} == {""}
    assert strip.lit() == set()


def test_loading_lights_the_stage_at_work(store, strip):
    store.take(ev.LoadProgress("blueprint", 0, 0, 41.0))
    store.take(ev.LoadProgress("weights", 67, 268, 100.0))
    store.frame.emit()
    assert strip.lit() == {"weights"}
    assert strip.boxes["weights"].lit
    assert strip.boxes["weights"].figure == "25%"
    assert strip.boxes["blueprint"].figure == "41.0 ms"
    assert strip.boxes["kernels"].figure == ""


def test_each_box_shows_its_own_measured_figure(store, strip):
    store.take(ev.Loaded(facts()))
    store.take(make.start())
    store.take(ev.PrefillProgress(1, 38, 38, 290.0, 38 * 23_040))
    events = make.river()
    for event in events:
        store.take(event)
    store.frame.emit()
    last = events[-1]
    figures = {name: box.figure for name, box in strip.boxes.items()}
    assert figures["blueprint"] == "210 ms"
    assert figures["weights"] == "269 MB"
    assert figures["placement"] == "CPU"
    assert figures["kernels"] == "sdpa"
    assert figures["tokenise"] == "38 tokens"
    assert figures["embed"] == "[1,1,576]"
    assert figures["layers"] == f"{last.forward_ms:.1f} ms"
    assert figures["probabilities"] == "0.60 ms"
    assert figures["sample"] == "u 0.231"
    assert figures["detokenise"] == "“·river”"
    assert figures["format"] == "chat"
    assert strip.boxes["layers"].text() == "30 layers"


def test_the_first_token_comes_from_the_whole_prompt(store, strip):
    store.take(ev.Loaded(facts()))
    store.take(make.start())
    for event in make.tokens([" a", " b"]):
        store.take(event)
    store.select(0)
    store.frame.emit()
    assert strip.boxes["embed"].figure == "[1,38,576]"


def test_a_prompt_whose_logits_were_kept_goes_through_no_layer_again(store, strip):
    store.take(ev.Loaded(facts()))
    store.take(make.start())
    store.take(ev.PrefillProgress(1, 38, 38, 0.2, 38 * 23_040, 38))
    for event in make.tokens([" a", " b"]):
        store.take(event)
    store.select(0)
    store.frame.emit()
    assert strip.boxes["embed"].figure == strip.boxes["layers"].figure == "reused"
    store.select(1)
    store.frame.emit()
    assert strip.boxes["embed"].figure == "[1,1,576]"
    assert strip.boxes["layers"].figure.endswith("ms")


def test_a_run_lights_what_is_at_work(qtbot, store, strip):
    store.take(ev.Loaded(facts()))
    store.take(make.start())
    store.frame.emit()
    assert strip.lit() == {"tokenise"}
    store.take(ev.PrefillProgress(1, 19, 38, 100.0, 0))
    assert strip.lit() == {"embed", "layers"}
    events = make.tokens([" a"])
    store.take(events[0])
    store.frame.emit()
    assert strip.lit() == {"layers"}
    assert "sample" in strip.passed()
    qtbot.waitUntil(lambda: not strip.boxes["sample"].passed)
    assert strip.boxes["layers"].lit
    store.set_activity("paused")
    assert strip.lit() == set()
    store.take(make.end(events))
    store.frame.emit()
    assert not any(box.lit for box in strip.boxes.values())


def test_greedy_has_no_draw(store, strip):
    from engine.settings import SamplingSettings

    store.take(make.start())
    store.take(make.token(0, " a", settings=SamplingSettings(temperature=0.0)))
    store.frame.emit()
    assert strip.boxes["sample"].figure == "greedy"


@pytest.mark.parametrize("width", [600, 770, 1100])
def test_all_boxes_lie_inside_and_beside_each_other(store, strip, width):
    store.take(ev.Loaded(facts()))
    store.frame.emit()
    strip.resize(width, 46)
    edges = [(strip.boxes[name].x(), strip.boxes[name].geometry().right()) for name in BOXES]
    assert edges[0][0] >= 0
    assert edges[-1][1] < width
    assert all(right < left for (_, right), (left, _) in itertools.pairwise(edges))


def test_no_name_and_no_shape_is_cut_at_the_width_of_a_small_window(store, strip):
    store.take(ev.Loaded(facts()))
    store.take(make.start())
    for step in range(2):
        store.take(make.token(step, " a"))
    store.frame.emit()
    strip.resize(770, 46)
    for box in strip.boxes.values():
        assert QFontMetricsF(theme.font(box.step - 1)).horizontalAdvance(box.text()) <= box.width() - 4
    embed = strip.boxes["embed"]
    assert embed.figure == "[1,1,576]"
    assert QFontMetricsF(theme.font(embed.step - 2)).horizontalAdvance(embed.figure) <= embed.width() - 4


def test_boxes_are_reached_by_keys(qtbot, strip):
    strip.activateWindow()
    first = strip.boxes["blueprint"]
    first.setFocus()
    qtbot.waitUntil(first.hasFocus)
    QTest.keyClick(first, Qt.Key.Key_Right)
    assert strip.boxes["skeleton"].hasFocus()
    with qtbot.waitSignal(strip.box_clicked) as caught:
        QTest.keyClick(strip.boxes["skeleton"], Qt.Key.Key_Return)
    assert caught.args == ["skeleton"]
    assert strip.boxes["skeleton"].opened


def test_every_box_has_a_name_for_screen_readers(strip):
    assert all(box.accessibleName() for box in strip.boxes.values())


@pytest.mark.parametrize("name", [box for box in BOXES if box not in PAGES])
def test_a_box_says_what_to_press_before_anything_is_known(qtbot, store, name):
    view = BoxView(store)
    qtbot.addWidget(view)
    view.show_box(name)
    assert view.rows() == []
    assert ("press Load" in view._what_to_press()) or ("Press Run" in view._what_to_press())


@pytest.mark.parametrize("name", [box for box in BOXES if box not in PAGES])
def test_a_box_knows_something_after_a_run_and_leaves_nothing_empty(qtbot, store, name):
    store.take(ev.Loaded(facts()))
    events = make.river()
    for event in (make.start(), ev.PrefillProgress(1, 38, 38, 290.0, 0), *events, make.end(events)):
        store.take(event)
    view = BoxView(store)
    qtbot.addWidget(view)
    view.show()
    view.show_box(name)
    assert view.rows()
    assert all(fact.name and fact.value for fact in view.rows())


def test_the_sample_box_follows_the_selected_token(qtbot, store):
    for event in (make.start(), *make.river()):
        store.take(event)
    view = BoxView(store)
    qtbot.addWidget(view)
    view.show_box("sample")
    view.show()
    assert ("u", "0.231000") in [(fact.name, fact.value) for fact in view.rows()]
    assert view._labels[1][0].text() == "0.231000"
    store.select(3)
    assert view._labels[1][0].text() == f"{store.current.tokens[3].u:.6f}"


def test_the_tokens_of_a_prompt_stand_in_columns(qtbot, store):
    view = BoxView(store)
    qtbot.addWidget(view)
    ids = (1, 9690, 42, 49_000, *range(100, 108))
    store.take(make.start(prompt_tokens=tuple(ev.PromptToken(i, f"<{i}>", False) for i in ids)))
    view.show_box("tokenise")
    lines = [label.text() for label in view.findChildren(PlainLabel) if label.text().endswith(">")]
    assert len(lines) == len(ids)
    assert len({line.index("<") for line in lines}) == 1
    assert lines[3].split() == ["3", "49000", "<49000>"]
