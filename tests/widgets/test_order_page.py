"""The filters' chips are moved by hand and key, and the page shows what was answered, never more."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QScrollArea

from engine import events as ev
from engine.events import ORDERED, OrderQuestion, TwoOrders
from engine.filter_order import ordered_filters
from engine.settings import SamplingSettings
from tests.widgets import events_factory as make
from widgets.lab.order_chips import OrderChips
from widgets.lab.order_page import LAST, OrderPage, why_words
from widgets.lab.order_picture import ROW, kept_text, share_text
from widgets.run_store import RunStore


@pytest.fixture
def chips(qtbot):
    made = OrderChips()
    qtbot.addWidget(made)
    made.resize(900, made.sizeHint().height())
    made.set_settings(SamplingSettings(temperature=100.0, top_p=0.9))
    return made


@pytest.fixture
def page(qtbot):
    """A page over the river, whose questions are answered as the window answers them."""
    store = RunStore()
    made = OrderPage(store)
    made.asked_for = []

    def answer(question: OrderQuestion) -> None:
        made.asked_for.append(question)
        run = store.run((question.run_id, question.lane))
        token = run.tokens[question.step]
        before = run.written_before(question.step)
        orders = (
            ordered_filters(run.start, before, token, question.settings, order) for order in (ORDERED, question.order)
        )
        store.take(ev.Answered(question, TwoOrders(*orders)))

    made.asked.connect(answer)
    qtbot.addWidget(made)
    made.resize(900, 700)
    made.show()
    return made


def write(page) -> None:
    page.store.take(make.start())
    for event in make.river():
        page.store.take(event)
    page.refresh()


# ---------------------------------------------------------------- chips


def test_a_chip_is_dragged_to_another_place(qtbot, chips):
    said = []
    chips.order_changed.connect(said.append)
    begin, end = chips.chip_rect("temperature").center().toPoint(), chips.chip_rect("typical_p").center().toPoint()
    qtbot.mousePress(chips, Qt.MouseButton.LeftButton, pos=begin)
    for x in range(begin.x(), end.x() + 30, 20):
        qtbot.mouseMove(chips, QPoint(x, begin.y()))
    qtbot.mouseMove(chips, QPoint(end.x() + 30, begin.y()))
    qtbot.mouseRelease(chips, Qt.MouseButton.LeftButton, pos=end)
    assert chips.order == LAST == said[-1]


def test_a_chip_is_moved_with_keys(chips):
    for key, modifier in (
        (Qt.Key.Key_Right, Qt.KeyboardModifier.ControlModifier), (Qt.Key.Key_End, Qt.KeyboardModifier.ShiftModifier),
    ):  # fmt: skip
        QTest.keyClick(chips, key, modifier)
    assert chips.order == LAST
    QTest.keyClick(chips, Qt.Key.Key_Home)
    QTest.keyClick(chips, Qt.Key.Key_Right, Qt.KeyboardModifier.ControlModifier)
    assert chips.order == ("top_p", "top_k", "min_p", "typical_p", "temperature")
    assert "place 2 of 5" in chips.accessibleDescription()
    for _ in range(9):
        QTest.keyClick(chips, Qt.Key.Key_Left, Qt.KeyboardModifier.ControlModifier)
    assert chips.order == LAST


# ---------------------------------------------------------------- the page


def test_without_a_word_it_says_what_will_be_there(page):
    assert "No word yet" in page.top_panel.remark_label.text()
    assert not page.asked_for


def test_it_begins_with_the_settings_that_the_word_was_written_with(page):
    write(page)
    token = page.store.shown_token
    question = page.asked_for[-1]
    assert question.settings == token.settings
    assert (question.step, question.order) == (token.step, LAST)
    assert page.fields["top_k"].value() == 40
    page.refresh()
    assert page.asked_for[-1] is question  # asked once


def test_another_word_brings_its_own_settings_until_a_field_is_moved(page):
    write(page)
    page.store.select(0)
    page.refresh()
    assert page.asked_for[-1].settings == page.store.current.tokens[0].settings
    page.hot()
    page.store.select(len(page.store.current.tokens) - 1)
    page.refresh()
    last = page.asked_for[-1].settings
    assert (last.temperature, last.top_p, last.top_k) == (100.0, 0.9, 0)
    assert last.repetition_penalty == page.store.current.tokens[-1].settings.repetition_penalty
    page.as_written()
    assert page.fields["top_k"].value() == 40


def test_temperature_100_is_shown_in_both_orders(page):
    write(page)
    page.hot()
    page._take(
        SamplingSettings(temperature=100.0, top_p=0.8), touched=True
    )  # of these events some 90% are kept by name
    found = page.store.inside.answers[page.asked_for[-1]]
    assert found.other.stages[-1].most < found.today.stages[-1].least
    assert "model's own odds" in page.why.text()
    lines = page.list.lines()
    assert len(lines) == len(page.store.shown_token.candidate_ids)
    assert any("cut by top-p" in line.split("|")[1] and "cut" not in line.split("|")[0] for line in lines)
    page.first()
    assert "Both orders leave" in page.why.text()
    assert not page.grab().isNull()


def test_bounds_are_written_as_bounds() -> None:
    assert kept_text(5, 5) == "5"
    assert "to" in kept_text(5, 9)
    assert share_text(0.5, 0.5) == "50.0%"
    assert share_text(0.2, 0.3) == "20.0% … 30.0%"
    assert share_text(1.0 - 1e-12, 1.0) == "100%"


def test_a_low_temperature_is_told_otherwise(page):
    write(page)
    page._take(SamplingSettings(temperature=0.2, top_p=0.9), touched=True)
    found = page.store.inside.answers[page.asked_for[-1]]
    assert "100" not in why_words(found, page.settings)


def test_in_a_low_window_every_stage_is_drawn_and_the_page_scrolls(qtbot, page):
    write(page)
    page.fields["typical_p"].set_value(0.95)
    page._field_changed(0.95)
    page.resize(700, 500)  # as in a window of 1024 x 700
    area = page.findChild(QScrollArea)
    for funnel in (page.today, page.other):
        qtbot.waitUntil(lambda funnel=funnel: funnel.height() >= funnel.minimumSizeHint().height())
    qtbot.waitUntil(lambda: area.verticalScrollBar().maximum() > 0)
    assert area.widget().width() == area.viewport().width()
    assert page.list.height() >= 4 * ROW
    assert page.why.height() >= page.why.heightForWidth(page.why.width())
    ends = page.list.columns()
    for head, begin in zip(page.heads, (2 * ends[0] - ends[1], ends[0], ends[1]), strict=True):
        qtbot.waitUntil(lambda head=head, begin=begin: abs(head.x() - page.list.x() - begin - 12) <= 2)
