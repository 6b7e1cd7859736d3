from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QWidget

from tests.widgets import events_factory as make
from widgets import theme
from widgets.timeline import Timeline


def shown(qtbot, events, width=629):
    return make.shown(qtbot, Timeline, events, (width, 120))


def centre(bars, step):
    return QPoint(int((step + 0.5) * bars.pitch()), bars.height() - 3)


def test_dragging_goes_back_in_time_and_the_last_one_follows_again(qtbot):
    store, view = shown(qtbot, make.tokens([" w"] * 30))
    bars = view.bars
    qtbot.mousePress(bars, Qt.MouseButton.LeftButton, pos=centre(bars, 20))
    assert store.selected_step == 20
    qtbot.mouseMove(bars, centre(bars, 7))
    assert store.selected_step == 7
    assert not store.following
    qtbot.mouseMove(bars, QPoint(-50, 5))
    assert store.selected_step == 0
    qtbot.mouseMove(bars, QPoint(10_000, 5))
    assert store.selected_step == 29
    assert store.following
    qtbot.mouseRelease(bars, Qt.MouseButton.LeftButton)


def test_hovering_and_leaving_reach_the_store(qtbot):
    store, view = shown(qtbot, make.tokens([" w"] * 30))
    qtbot.mouseMove(view.bars, centre(view.bars, 4))
    assert store.hovered_step == 4
    qtbot.mouseMove(view.bars, QPoint(view.bars.width() - 2, 4))  # right of the last bar
    assert store.hovered_step is None


@pytest.mark.parametrize(
    ("keys", "step"),
    [
        ([Qt.Key.Key_Left], 28),
        ([Qt.Key.Key_Home], 0),
        ([Qt.Key.Key_Home, Qt.Key.Key_Right, Qt.Key.Key_Right], 2),
        ([Qt.Key.Key_PageUp], 19),
        ([Qt.Key.Key_Home, Qt.Key.Key_Left], 0),
        ([Qt.Key.Key_Home, Qt.Key.Key_End], 29),
        ([Qt.Key.Key_Home, Qt.Key.Key_Escape], 29),
    ],
)
def test_keys_walk_through_the_tokens(qtbot, keys, step):
    store, view = shown(qtbot, make.tokens([" w"] * 30))
    for key in keys:
        qtbot.keyClick(view.bars, key)
    assert store.selected_step == step


def test_it_says_which_token_of_how_many(qtbot):
    store, view = shown(qtbot, make.tokens([" w"] * 45))
    assert view.remark_label.text() == "token 45 of 45"
    store.select(2)
    assert view.remark_label.text() == "token 3 of 45"
    assert "token 3 of 45" in view.bars.accessibleDescription()


def test_tokens_that_share_a_pixel_are_drawn_as_their_mean(qtbot):
    store, view = shown(qtbot, None)
    bars = view.bars
    kind = make.token(0, "x", vocab=50)
    store.take(make.start())
    for step in range(3 * bars.width()):
        store.take(replace(kind, step=step, entropy_nats=float(step % 3)))
    store.frame.emit()
    np.testing.assert_allclose(bars.bar_heights(), np.ones(bars.width()))  # each the mean of 0, 1, 2
    assert bars.step_at(0.0) == 0
    assert bars.step_at(bars.width() - 0.1) == 3 * bars.width() - 1


def test_figures_that_are_no_numbers_are_drawn_calmly(qtbot):
    events = make.tokens([" w"] * 5, vocab=50)
    values = (float("nan"), float("inf"), -float("inf"), 0.0, 1e308)
    events = [replace(event, entropy_nats=value) for event, value in zip(events, values, strict=True)]
    _store, view = shown(qtbot, events)
    assert np.isfinite(view.bars.bar_heights()).all()
    assert not view.bars.grab().isNull()


def test_the_shown_token_is_marked_in_accent(qtbot):
    store, view = shown(qtbot, make.tokens([" w"] * 10))
    store.select(3)
    image: QImage = view.bars.grab().toImage()
    assert image.pixelColor(centre(view.bars, 3)) == theme.current().accent
    assert image.pixelColor(centre(view.bars, 5)) != theme.current().accent


def test_another_run_starts_anew(qtbot):
    store, view = shown(qtbot, make.tokens([" w"] * 10))
    store.take(make.start(run_id=2))
    for event in make.tokens([" w"] * 3, run_id=2):
        store.take(event)
    store.frame.emit()
    assert view.bars.bar_heights().size == 3


def test_an_empty_timeline_says_what_will_be_drawn(qtbot):
    store, view = shown(qtbot, None)
    assert view.remark_label.text() == ""
    assert not view.remark_label.isVisible()
    qtbot.mouseClick(view.bars, Qt.MouseButton.LeftButton)
    qtbot.keyClick(view.bars, Qt.Key.Key_Left)
    assert store.selected_step is None


def test_in_a_narrow_window_the_place_gives_way_and_no_button_is_squeezed(qtbot):
    _store, view = shown(qtbot, make.tokens([" w"] * 220))
    window = QWidget()
    qtbot.addWidget(window)
    view.setParent(window)  # by itself its layout would not let it become narrower
    window.show()
    view.show()
    seen = []
    for width in (629, view.minimumSizeHint().width() + 80, view.minimumSizeHint().width()):
        view.resize(width, 120)
        qtbot.waitUntil(lambda: view.buttons.width() >= view.buttons.minimumSizeHint().width())
        seen.append(view.remark_label.text() if view.remark_label.isVisible() else "")
    assert seen == ["token 220 of 220", "220 / 220", ""]
    view.resize(629, 120)
    qtbot.waitUntil(lambda: view.remark_label.isVisible() and view.remark_label.text() == seen[0])
