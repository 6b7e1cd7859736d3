"""The kernels box shows what runs and what was measured, measures when asked, and wishes for another kernel."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from engine import events as ev
from engine.settings import KernelQuestion, KernelWish, StopAsking
from tests.widgets import events_factory as made
from tests.widgets.facts import facts
from widgets.box_view import BoxView

ROWS = (
    ev.KernelRow("transformers", "transformers' own forward", 80.0, 100.0),
    ev.KernelRow(
        "transformers, eager attention", "the same, written out", 100.0, 120.0, kl_nats=0.001, same_first=0.99
    ),
    ev.KernelRow("float16", "16-bit weights packed", 20.0, 40.0, 1.2, 0.0005, 1.0),
    ev.KernelRow("int8", "8-bit weights", 16.0, 64.0, 0.4, 0.0061, 0.97),
    ev.KernelRow("compiled", "by torch.compile", error="torch.compile cannot be used"),
)
SURVEY = ev.KernelSurvey("model", "bfloat16", 32, 2, ROWS)
FIGURES = (
    ev.KernelFigure("plain", "torch's plain products", False, 1.0, 4.0),
    ev.KernelFigure("float16", "16-bit weights packed", True, 2.0, 9.5),
)


@pytest.fixture
def page(qtbot, store, asked):
    view = BoxView(store)
    qtbot.addWidget(view)
    view.asked.connect(asked.append)
    view.resize(330, 700)
    view.show()
    view.show_box("kernels")
    yield view.page("kernels")  # noqa: PT022  the view must stay for as long: qtbot holds it weakly


def load(store, **changes):
    known = {
        "kernel": "float16",
        "kernel_words": "16-bit weights packed, chosen by measuring",
        "kernel_figures": FIGURES,
    }
    store.take(ev.Loaded(replace(facts(), **(known | changes))))
    store.frame.emit()


def answer(store, question, found):
    store.take(ev.Answered(question, found))
    store.frame.emit()


def test_without_a_model_it_says_what_will_stand_here(page):
    page.refresh()
    assert "Load one" in page.message.text()
    assert not page.body.isVisibleTo(page)


def test_what_was_measured_at_the_load_is_shown_and_what_is_remembered_is_asked_for(page, store, asked):
    load(store)
    assert asked == [KernelQuestion()]
    assert page.table.rows() == [
        ["automatic", "", "", "", ""],
        ["plain", "1.0 ×", "4.0 ×", "", ""],
        ["● float16, packed", "2.0 ×", "9.5 ×", "", ""],
    ]
    answer(store, KernelQuestion(), ())  # nothing is remembered
    assert len(page.table.rows()) == 3
    assert page.table.isColumnHidden(3)  # nothing is known of errors


def test_measuring_shows_progress_can_be_stopped_and_fills_the_table(page, store, asked):
    load(store)
    QTest.mouseClick(page.measure, Qt.MouseButton.LeftButton)
    question = asked[-1]
    assert question.measure
    assert page.stop.isVisibleTo(page)
    store.take(ev.KernelProgress("float16: packing layer 3 of 30", 2, 5))
    store.frame.emit()
    assert (page.busy.value(), page.busy.maximum()) == (2, 5)
    assert page.progress.text() == "float16: packing layer 3 of 30"
    QTest.mouseClick(page.stop, Qt.MouseButton.LeftButton)
    assert isinstance(asked[-1], StopAsking)
    answer(store, question, SURVEY)
    assert not page.stop.isVisibleTo(page)
    assert page.table.rows()[1:] == [
        ["transformers", "1.0 ×", "6.4 ×", "–", ""],
        ["eager attention", "0.8 ×", "5.3 ×", "0.0010", "99%"],
        ["● float16, packed", "4.0 ×", "16.0 ×", "0.0005", "100%"],
        ["8-bit weights", "5.0 ×", "10.0 ×", "0.0061", "97%"],
        ["compiled", "not here", "", "", ""],
    ]
    assert "97% of first choices" in page.table.topLevelItem(4).toolTip(3)


def test_a_chosen_row_is_wished_for_and_the_one_that_runs_is_not(page, store, asked):
    load(store)
    answer(store, KernelQuestion(), SURVEY)
    table = page.table
    table.setCurrentItem(table.topLevelItem(3))
    assert not page.load.isEnabled()  # it runs
    for at, wish in ((4, KernelWish("int8")), (2, KernelWish("transformers", "eager")), (0, KernelWish(None))):
        table.setCurrentItem(table.topLevelItem(at))
        assert page.load.isEnabled()
        QTest.mouseClick(page.load, Qt.MouseButton.LeftButton)
        assert asked[-1] == wish
    assert page.words.text().startswith("The fastest")


def test_nothing_can_be_loaded_or_measured_while_a_run_goes_on(page, store):
    load(store)
    store.take(made.start())
    store.frame.emit()
    page.table.setCurrentItem(page.table.topLevelItem(1))
    assert not page.load.isEnabled()
    assert not page.measure.isEnabled()


def test_a_refusal_is_said(page, store, asked):
    load(store)
    page.measure_all()
    answer(
        store,
        asked[-1],
        ev.EngineError("Kernels can be compared for plain weights only.", "Load it plain.", 3, "question"),
    )
    assert "plain weights only" in page.words.text()
    assert page.measure.isVisibleTo(page)


def test_the_table_is_copied(page, store):
    from PySide6.QtGui import QGuiApplication

    load(store)
    answer(store, KernelQuestion(), SURVEY)
    page.copy_table()
    lines = QGuiApplication.clipboard().text().splitlines()
    assert lines[0] == "choice\t1 lane\t8 lanes\terror\tsame"
    assert lines[5] == "8-bit weights\t5.0 ×\t10.0 ×\t0.0061\t97%"
