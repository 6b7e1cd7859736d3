"""What other GPUs would hold: asked at each change, the newest answer is shown, and what travels is told."""

from __future__ import annotations

import pytest
from PySide6.QtTest import QTest

from engine import events as ev
from engine.settings import PlanWish
from widgets import theme
from widgets.plan_picture import PlanPicture, spans
from widgets.planner_view import CARDS, PlannerView
from widgets.run_store import RunStore

GB = 10**9


def plan_of(wish: PlanWish, spilled: bool = True) -> ev.Plan:
    parts = [ev.PlacedPart("model.embed_tokens", "cuda:0", 2 * GB)]
    parts += [ev.PlacedPart(f"model.layers.{at}", f"cuda:{at // 4}", 3 * GB, at, GB // 10) for at in range(8)]
    parts += [ev.PlacedPart(f"model.layers.{at}", "cpu" if spilled else "cuda:1", 3 * GB, at) for at in (8, 9)]
    moved = 6 * GB if spilled else 0
    devices = (
        ev.PlannedDevice("cuda:0", 24 * GB, 14 * GB, GB, GB),
        ev.PlannedDevice("cuda:1", 24 * GB, 12 * GB + (6 * GB - moved), GB, GB),
        ev.PlannedDevice("cpu", 64 * GB, moved, 0, 0),
    )
    notes = ("6.0 GB of weights travel to GPU 0 again for every token.",) if spilled else ()
    return ev.Plan(wish, "Llama", "bfloat16", 8192, 1, devices, tuple(parts), "cuda:0", moved, notes)


@pytest.fixture
def store(qapp):
    return RunStore()


@pytest.fixture
def view(qtbot, store):
    theme.set_mode("light")
    made = PlannerView(store)
    qtbot.addWidget(made)
    made.resize(330, 700)
    made.show()
    return made


def asked_by(qtbot, view, act) -> PlanWish:
    with qtbot.waitSignal(view.asked) as caught:
        act()
    return caught.args[0]


def test_it_asks_for_the_model_and_the_described_machine(qtbot, view):
    wish = asked_by(qtbot, view, lambda: view.set_model("models/llama", "Llama", "nf4"))
    assert wish == PlanWish(
        "models/llama", "nf4", 8192, 1, "auto",
        (("cuda:0", 24 * GB), ("cuda:1", 24 * GB), ("cpu", 64 * GB)), True,
    )  # fmt: skip


def test_the_answer_is_a_picture_a_verdict_and_what_travels(qtbot, view, store):
    wish = asked_by(qtbot, view, lambda: view.set_model("m", "Llama"))
    store.take(ev.Answered(wish, plan_of(wish)))
    store.frame.emit()
    assert view.title.text() == "Llama in bfloat16"
    assert view.verdict.text() == "Does not fit on the GPUs, predicted: 6.0 GB on the CPU."
    assert "travel to GPU 0" in view.notes.text()
    assert view.picture.lines() == [
        "GPU 0 · 16.0 GB of 24.0 GB · embed_tokens, layers 0–3",
        "GPU 1 · 14.0 GB of 24.0 GB · layers 4–7",
        "CPU · 6.0 GB of 64.0 GB · layers 8–9",
    ]


def test_an_older_answer_stays_until_the_newest_is_there_and_never_replaces_it(qtbot, view, store):
    first = asked_by(qtbot, view, lambda: view.set_model("m", "Llama"))
    view.lanes.selectAll()
    QTest.keyClicks(view.lanes, "4")
    second = asked_by(qtbot, view, view.lanes.commit)
    assert (first.lanes, second.lanes) == (1, 4)
    store.take(ev.Answered(second, plan_of(second, spilled=False)))
    store.frame.emit()
    assert view.verdict.text().startswith("Fits, predicted")
    store.take(ev.Answered(first, plan_of(first)))
    store.frame.emit()
    assert view.verdict.text().startswith("Fits, predicted")


def test_another_models_picture_never_stands_under_this_ones_name(qtbot, view, store):
    wish = asked_by(qtbot, view, lambda: view.set_model("m", "Llama"))
    store.take(ev.Answered(wish, plan_of(wish)))
    store.frame.emit()
    asked_by(qtbot, view, lambda: view.set_model("other", "Other"))
    assert view.picture.lines() == []
    assert view.notes.text() == ""
    assert view.verdict.text() == "planning…"


def test_one_that_a_run_broke_off_is_asked_again_when_the_run_is_over(qtbot, view, store):
    wish = asked_by(qtbot, view, lambda: view.set_model("m", "Llama"))
    store.set_activity("decode")
    store.take(ev.Answered(wish, None))
    store.frame.emit()
    assert "as soon as it is free" in view.verdict.text()
    store.set_activity("idle")
    assert asked_by(qtbot, view, store.frame.emit) == wish


def test_gpus_that_cannot_be_read_say_what_can_and_nothing_is_asked(qtbot, view):
    asked_by(qtbot, view, lambda: view.set_model("m", "Llama"))
    view.gpus.selectAll()
    QTest.keyClicks(view.gpus, "two")
    assert "2x24" in view.problem.text()
    assert view.wish() is None
    view.gpus.selectAll()
    QTest.keyClicks(view.gpus, "1x80, 2x24")
    assert view.problem.isHidden()
    assert [size for _, size in view.wish().devices] == [80 * GB, 24 * GB, 24 * GB, 64 * GB]


def test_a_plan_goes_when_the_machine_it_was_made_for_can_no_longer_be_read(qtbot, view, store):
    wish = asked_by(qtbot, view, lambda: view.set_model("m", "Llama"))
    store.take(ev.Answered(wish, plan_of(wish)))
    store.frame.emit()
    assert view.verdict.text()
    view.gpus.selectAll()
    QTest.keyClicks(view.gpus, "two")
    assert view.verdict.text() == ""
    store.frame.emit()
    assert view.verdict.text() == ""


def test_another_planner_begins_with_the_machine_that_was_described_last(qtbot, view, store):
    view.gpus.selectAll()
    QTest.keyClicks(view.gpus, "8x80")
    other = PlannerView(store)
    qtbot.addWidget(other)
    other.set_model("m", "Llama")
    assert len(other.wish().devices) == 9
    store.described_machine = ("what?", 3.0)  # a settings file that a hand broke
    third = PlannerView(store)
    qtbot.addWidget(third)
    third.set_model("m", "Llama")
    assert third.wish().devices == (("cuda:0", 24 * GB), ("cuda:1", 24 * GB), ("cpu", 3 * GB))


def test_a_card_fills_in_what_its_driver_reports(view):
    view.set_model("m", "Llama")
    view.count.choose(8)
    view.card.choose(dict(CARDS)["H100 80 GB"] * 2**20)
    view.card.activated.emit(view.card.currentIndex())
    assert view.wish().devices[0] == ("cuda:0", 81_559 * 2**20)
    assert len(view.wish().devices) == 9


def test_this_machine_can_be_planned_for_too(qtbot, view):
    view.set_model("m", "Llama")
    view.card.choose(-1)
    view.card.activated.emit(view.card.currentIndex())
    assert view.wish().devices is None
    assert not view.gpus.isEnabled()
    view.card.setCurrentIndex(0)
    view.card.activated.emit(0)
    assert len(view.wish().devices) == 3
    assert view.gpus.isEnabled()


def test_a_machine_without_a_gpu_is_not_told_of_gpus(qtbot, view, store):
    wish = asked_by(qtbot, view, lambda: view.set_model("m", "Llama"))
    parts = (ev.PlacedPart("model.layers.0", "cpu", 20 * GB, 0), ev.PlacedPart("model.layers.1", "disk", 9 * GB, 1))
    devices = (ev.PlannedDevice("cpu", 24 * GB, 20 * GB, GB, GB), ev.PlannedDevice("disk", 0, 9 * GB, 0, 0))
    store.take(ev.Answered(wish, ev.Plan(wish, "Llama", "bfloat16", 8192, 1, devices, parts, "cpu", 9 * GB)))
    store.frame.emit()
    assert view.verdict.text() == "Does not fit, predicted: 9.0 GB on disk."
    assert view.picture.lines()[1] == "disk · 9.0 GB · layer 1"


def test_an_engines_refusal_is_shown_as_its_sentence(qtbot, view, store):
    wish = asked_by(qtbot, view, lambda: view.set_model("m", "Llama"))
    store.take(ev.Answered(wish, ev.EngineError("x", "y", 3, "question", "No {a} here.", "Take {a}.", (("a", "map"),))))
    store.frame.emit()
    assert view.verdict.text() == "No map here. Take map."
    assert view.picture.lines() == []


def test_without_a_model_it_says_what_to_choose(qtbot, view):
    assert "config.json is enough" in view.verdict.text()
    assert view.wish() is None


def test_neighbouring_layers_are_one_span():
    parts = [ev.PlacedPart("model.embed_tokens", "cpu", 1)]
    parts += [ev.PlacedPart(f"model.layers.{at}", "cpu", 1, at) for at in (0, 1, 2, 5)]
    parts += [ev.PlacedPart("lm_head", "cpu", 1)]
    assert spans(parts) == [("embed_tokens", None, None), ("", 0, 2), ("", 5, 5), ("lm_head", None, None)]


def test_the_point_under_the_pointer_is_the_layer_that_is_drawn_there(qtbot):
    picture = PlanPicture()
    qtbot.addWidget(picture)
    picture.show_plan(plan_of(PlanWish("m")))
    picture.resize(640, picture.sizeHint().height())  # 64 GB wide
    picture.show()
    y = picture.height() / 3 * 0.6
    device, piece = picture.piece_at(30, y)  # 3 GB: behind the embedding
    assert (device.name, piece.name) == ("cuda:0", "model.layers.0")
    assert picture.piece_at(145, y)[1].role == "kv_cache"  # 14 GB of weights, 1 GB of cache
    assert picture.piece_at(155, y)[1].role == "working"
    assert picture.piece_at(400, y)[1] is None
    assert picture.piece_at(400, -5) is None
