from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PySide6.QtCore import QLocale, QPoint
from PySide6.QtWidgets import QApplication

from engine.settings import SamplingSettings
from tests.widgets import events_factory as make
from widgets import theme
from widgets.draw_bar import segments
from widgets.word_view import WordView, others_texts


@pytest.fixture(autouse=True)
def still():
    before, locale = theme.motion, QLocale()
    theme.motion = False
    QLocale.setDefault(QLocale(QLocale.Language.English))
    yield
    theme.motion = before
    QLocale.setDefault(locale)


def shown(qtbot, events, size=(380, 600)):
    return make.shown(qtbot, WordView, events, size)


def row(view, label):
    """The row's words, found by the label that begins them."""
    rows = [view.rows.row_text(i) for i in range(len(view.rows._candidates))]
    return next(text for text in rows if text.startswith(label + "   "))


def test_the_last_word_of_the_drawing_is_explained(qtbot):
    store, view = shown(qtbot, make.river())
    token = store.shown_token
    assert view.word_label.text() == "·river"
    assert view.rank_label.text() == "rank 1"
    assert (
        f"{token.surprise_nats:.2f} nats ({token.surprise_nats / math.log(2):.2f} bits)"
        in view.facts_label._wordings[0]
    )
    assert "after settings" in row(view, "·river")
    assert "cut by top-p: probability 0 in the draw" in row(view, "·stream")
    assert "penalties changed its logit" in row(view, "·ferry")
    assert view.draw.isVisible()


def test_a_word_that_is_read_from_the_right_heads_its_panel_at_the_left_too(qtbot):
    store, view = shown(qtbot, make.river())
    store.take(replace(make.river()[-1], step=len(store.current.tokens), token_text=" שלום"))
    store.frame.emit()
    assert view.word_label.text() == "·שלום"
    image = view.word_label.grab().toImage()
    ground = image.pixelColor(image.width() - 1, 0)
    inked = [x for x in range(image.width()) for y in range(image.height()) if image.pixelColor(x, y) != ground]
    assert max(inked) < image.width() / 2


def test_words_that_are_not_listed_are_counted_with_what_they_share():
    # 49,152 words of which the 12 first have all but 10.2%; 40 are listed, the others share it evenly.
    event = make.token(0, " river", prob=0.398, others=[(f" o{i}", 0.5 / 11) for i in range(11)])
    others = 0.102 * (49_152 - 40) / (49_152 - 12)
    assert (
        others_texts(event, event.candidates)[0]
        == f"49,112 more words share {others:.1%} before the settings, {others:.1%} after"
    )
    top_k = replace_settings(event, SamplingSettings(top_k=12))
    assert (
        others_texts(top_k, top_k.candidates)[0]
        == f"49,112 more words share {others:.1%} before the settings, 0% after"
    )


def replace_settings(event, sampling):
    return make.token(
        0, " river", prob=0.398, others=[(f" o{i}", 0.5 / 11) for i in range(11)], settings=sampling, u=event.u
    )


def test_the_favourite_may_be_the_one_that_was_cut(qtbot):
    # SAM-24: typical-p drops a favourite whose surprise is far from the entropy.
    typical = SamplingSettings(typical_p=0.2)
    event = make.token(
        0, "rare", prob=0.05, others=[("the", 0.5), *((f"o{i}", 0.044) for i in range(10))], settings=typical
    )
    assert event.candidates[0].cut_by == "typical_p"
    _store, view = shown(qtbot, [event])
    assert "cut by typical-p" in row(view, "the")
    assert "after settings" in row(view, "rare")
    assert not view.rows.grab().isNull()


def test_tokens_that_look_alike_are_rows_of_their_own(qtbot):
    # TXT-27
    event = make.token(0, "\ufffd", prob=0.3, others=[("\ufffd", 0.3), ("\ufffd", 0.2)], vocab=60)
    _store, view = shown(qtbot, [event])
    ids = [c.token_id for c in view.rows._candidates]
    assert len(set(ids)) == len(ids) >= 40
    assert [c.chosen for c in view.rows._candidates].count(True) == 1


def test_a_chosen_word_far_down_stays_in_sight(qtbot):
    event = make.token(0, "rare", prob=1e-5)
    _store, view = shown(qtbot, [event], size=(380, 330))
    rows = view.rows
    last = QPoint(20, rows.viewport().height() - 5)
    assert rows._candidates[rows.row_at(last)].chosen
    assert rows.row_at(QPoint(20, 5)) == 0
    # Scrolled to, it stands once, in its own place.
    rows.verticalScrollBar().setValue(round(8 * rows._rows.height))
    assert rows._candidates[rows.row_at(QPoint(20, int(4.5 * rows._rows.height)))].chosen
    assert not rows._candidates[rows.row_at(last)].chosen


def test_at_least_eight_rows_fit_and_more_where_there_is_room(qtbot):
    _store, view = shown(qtbot, make.river(), size=(320, 200))
    assert view.minimumSizeHint().height() <= view.height()
    assert view.rows.rows_in_view >= 8
    fewer = view.rows.rows_in_view
    view.resize(320, 900)
    assert view.rows.rows_in_view > fewer + 5


def test_hovering_shows_another_word_and_leaving_comes_back(qtbot):
    store, view = shown(qtbot, make.river())
    store.hover(1)
    assert view.word_label.text() == "·river" == make_label(store, 1)
    store.hover(2)
    assert view.word_label.text() == make_label(store, 2)
    store.hover(None)
    store.select(4)
    assert view.word_label.text() == make_label(store, 4)


def make_label(store, step):
    return store.current.tokens[step].token_text.replace(" ", "·")


def test_greedy_says_that_nothing_was_drawn(qtbot):
    event = make.token(0, "x", prob=0.6, settings=SamplingSettings(temperature=0))
    _store, view = shown(qtbot, [event])
    assert view.draw.words() == "greedy: no draw, the largest wins: x"
    assert "greedy" in row(view, "·boat")
    assert others_texts(event, event.candidates)[0].endswith("0% after")


def test_markup_in_tokens_is_shown_letter_by_letter(qtbot):
    event = make.token(0, "<s>", prob=0.4, others=[("<b>x</b>", 0.3), ("&lt;", 0.2)])
    _store, view = shown(qtbot, [event])
    assert view.word_label.text() == "<s>"
    assert view.word_label.sizeHint().width() >= view.word_label.fontMetrics().horizontalAdvance("<s>")
    qtbot.waitUntil(lambda: "&lt;s&gt;" in view.draw.toolTip())


def test_outline_and_solid_can_be_switched_off(qtbot):
    _store, view = shown(qtbot, make.river())
    both = view.rows.viewport().grab().toImage()
    view.before_button.click()
    without_outline = view.rows.viewport().grab().toImage()
    view.before_button.click()
    view.after_button.click()
    without_solid = view.rows.viewport().grab().toImage()
    view.after_button.click()
    assert both != without_outline != without_solid != both
    assert view.rows.viewport().grab().toImage() == both


def test_motion_ends_where_stillness_begins(qtbot):
    store, view = shown(qtbot, make.river())
    for step in (0, None):  # the panel has found its places once it has shown both words
        store.select(step)
        QApplication.processEvents()
    still = view.rows.grab().toImage(), view.draw.grab().toImage()
    theme.motion = True
    store.select(0)
    qtbot.waitUntil(lambda: view._motion.state() == view._motion.State.Stopped)
    view._since.invalidate()
    store.select(None)
    assert view._motion.state() == view._motion.State.Running
    qtbot.waitUntil(lambda: view._motion.state() == view._motion.State.Stopped)
    assert (view.rows.grab().toImage(), view.draw.grab().toImage()) == still


def test_an_empty_panel_says_what_will_be_drawn(qtbot):
    store, view = shown(qtbot, None)
    assert not view.draw.isVisible()
    assert not view.before_button.isEnabled()
    empty = view.rows.viewport().grab().toImage()
    store.take(make.start())
    store.take(make.token(0, "x"))
    store.frame.emit()
    assert view.draw.isVisible()
    assert view.rows.viewport().grab().toImage() != empty


def test_screen_readers_are_told_the_chosen_word_and_the_draw(qtbot):
    _store, view = shown(qtbot, make.river())
    qtbot.waitUntil(lambda: view.rows.accessibleDescription().startswith("chosen: ·river"))
    assert "u = 0.231" in view.draw.accessibleDescription()


SETTINGS = st.builds(
    SamplingSettings,
    temperature=st.sampled_from([0.5, 0.8, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 3, 20]),
    top_p=st.sampled_from([1.0, 0.9, 0.3]),
    min_p=st.sampled_from([0.0, 0.1]),
    typical_p=st.sampled_from([1.0, 0.5]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 5.0]),
)


@given(SETTINGS, st.floats(0, 1, exclude_max=True), st.sets(st.integers(10, 60)))
@example(SamplingSettings(temperature=1.0), 0.9999999999999998, set())  # beyond the last sum, by rounding
@settings(max_examples=80)
def test_the_draw_lies_in_the_chosen_words_interval_and_the_intervals_fill_the_bar(sampling, u, history):
    event = make.token(0, "x", settings=sampling, u=u, vocab=200, history=sorted(history))
    bar = segments(event, event.candidates)
    assert bar[0].low == pytest.approx(0.0, abs=1e-6)
    assert bar[-1].high == pytest.approx(1.0, abs=1e-5)
    for left, right in itertools.pairwise(bar):
        assert left.high == pytest.approx(right.low, abs=1e-5)
    chosen = [segment for segment in bar if segment.chosen]
    assert len(chosen) == 1
    assert chosen[0].token_id == event.token_id
    assert chosen[0].low - 1e-9 <= u <= chosen[0].high + 1e-9
    listed = {c.token_id: c.final for c in event.candidates if c.final}
    for segment in bar:
        if segment.token_id is not None:
            assert segment.high - segment.low == pytest.approx(listed[segment.token_id], abs=1e-5)


def test_a_run_of_one_certain_word_fills_the_bar():
    event = replace(make.token(0, "x", prob=0.999999, vocab=50, settings=SamplingSettings(top_k=1)))
    assert [(s.low, s.high) for s in segments(event, event.candidates)] == [(0.0, 1.0)]
