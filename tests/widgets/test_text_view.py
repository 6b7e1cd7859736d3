from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from PySide6.QtCore import QCoreApplication, QPoint, Qt
from PySide6.QtGui import QGuiApplication, QImage, QPainter

from engine import events as ev
from tests.widgets import events_factory as make
from widgets import theme
from widgets.text_canvas import SLICE
from widgets.text_painter import end_word, paint_end
from widgets.text_view import TextView

HOSTILE = ["<s>", "<b>x</b>", " if a<b and c>d", " \x1b[31mred\x1b[0m", " &lt;", " <|im_end|>"]


def shown(qtbot, events, *, end=None, size=(560, 360)):
    return make.shown(qtbot, TextView, events, size, end)


def place(view, step) -> QPoint:
    return view.canvas.place_of(step).center().toPoint()


def colour_behind(view, step):
    """The colour at a token's upper left corner, inside its shade and beside its letters."""
    rect = view.canvas.place_of(step)
    image = view.canvas.viewport().grab().toImage()
    return image.pixelColor(int(rect.left() + 4), int(rect.top() + 5))


def painted(view) -> str:
    return "".join(block.text for block in view.canvas._flow.blocks)


def test_the_text_of_the_run_is_shown_as_it_arrives(qtbot):
    store, view = shown(qtbot, [])
    for event in make.tokens(make.words(make.RIVER)):
        store.take(event)
        store.frame.emit()
        assert painted(view) == store.current.text


def test_what_is_painted_word_by_word_is_what_is_painted_at_once(qtbot):
    # A frame paints the last lines only; what is on the screen must not differ from a whole repaint.
    words = [*make.words(make.RIVER), "\n\n", "", " 量子", "。", "", "\n", " end", *([" more"] * 30)]
    store, view = shown(qtbot, [], size=(320, 420))
    screen = view.canvas.viewport()
    for event in make.tokens(words):
        store.take(event)
        store.frame.emit()
        QCoreApplication.processEvents()
    grown = screen.screen().grabWindow(view.winId()).toImage()
    screen.update()
    QCoreApplication.processEvents()
    assert not grown.isNull()
    assert screen.screen().grabWindow(view.winId()).toImage() == grown


def test_clicking_selects_and_hovering_points_in_every_view(qtbot):
    store, view = shown(qtbot, make.tokens(make.words(make.RIVER)))
    area = view.canvas.viewport()
    qtbot.mouseMove(area, place(view, 12))
    assert store.hovered_step == 12
    qtbot.mouseClick(area, Qt.MouseButton.LeftButton, pos=place(view, 5))
    assert store.selected_step == 5
    assert not store.following
    qtbot.mouseMove(area, QPoint(area.width() - 3, area.height() - 3))
    assert store.hovered_step is None
    qtbot.mouseClick(area, Qt.MouseButton.LeftButton, pos=QPoint(area.width() - 3, area.height() - 3))
    assert store.selected_step == 5  # a click beside the text changes nothing


@pytest.mark.parametrize(
    "before",
    [["A", " 🌊", "👩\u200d", "👩\u200d", "👧", " "], ["𠮷", "野", "家"], ["e\u0301", "te\u0301"], ["\x00", "\u2028"]],
)
def test_exactly_the_token_after_hard_characters_is_hit(qtbot, before):
    store, view = shown(qtbot, make.tokens([*before, "hit", " after"]))
    step = len(before)
    qtbot.mouseClick(view.canvas.viewport(), Qt.MouseButton.LeftButton, pos=place(view, step))
    assert store.selected_step == step
    assert colour_behind(view, step) == theme.current().accent
    assert colour_behind(view, step + 1) != theme.current().accent


def test_what_other_views_select_and_hover_is_marked_here(qtbot):
    store, view = shown(qtbot, make.tokens(make.words(make.RIVER)))
    assert colour_behind(view, len(store.current.tokens) - 1) == theme.current().accent  # the newest
    store.select(3)
    assert colour_behind(view, 3) == theme.current().accent
    before = view.canvas.viewport().grab().toImage()
    store.hover(8)
    after = view.canvas.viewport().grab().toImage()
    assert before != after
    store.hover(None)
    assert view.canvas.viewport().grab().toImage() == before


def test_a_surprising_word_is_shaded_and_a_certain_one_is_not(qtbot):
    words = make.tokens(["aa", " bb", " cc"])
    words = [replace(e, logprob=lp) for e, lp in zip(words, (-0.01, -5.0, -0.01), strict=True)]
    _store, view = shown(qtbot, words)
    image = view.canvas.viewport().grab().toImage()
    assert colour_behind(view, 0) == image.pixelColor(image.width() - 2, image.height() - 2)
    assert colour_behind(view, 1) == theme.current().shade(5.0)


@pytest.mark.parametrize(
    ("keys", "step"),
    [
        ([Qt.Key.Key_Left], 8),
        ([Qt.Key.Key_Left, Qt.Key.Key_Left, Qt.Key.Key_Right], 8),
        ([Qt.Key.Key_Home], 0),
        ([Qt.Key.Key_Home, Qt.Key.Key_Left], 0),
        ([Qt.Key.Key_Home, Qt.Key.Key_End], 9),
        ([Qt.Key.Key_Home, Qt.Key.Key_Right, Qt.Key.Key_Escape], 9),
    ],
)
def test_keys_go_from_token_to_token(qtbot, keys, step):
    store, view = shown(qtbot, make.tokens([" word"] * 10))
    for key in keys:
        qtbot.keyClick(view.canvas, key)
    assert store.selected_step == step
    assert f"token {step + 1} of 10" in view.canvas.accessibleDescription()


def test_copy_takes_the_record_and_not_the_picture(qtbot):
    texts = ["a\u00a0b", "\u2028c", "\u2029d", "\r\ne", "\x00f", "\x1b[1m", "\u202e!"]
    store, view = shown(qtbot, make.tokens(texts))
    qtbot.keyClick(view.canvas, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == store.current.text == "".join(texts)
    QGuiApplication.clipboard().clear()
    view.copy_button.click()
    assert QGuiApplication.clipboard().text() == "".join(texts)


@pytest.mark.parametrize("text", HOSTILE)
def test_markup_and_escapes_are_shown_letter_by_letter(qtbot, text):
    _store, view = shown(qtbot, make.tokens(["start", text]))
    letters = text.replace("\x1b", "<U+001B>")
    width = view.canvas._flow.metrics.horizontalAdvance(letters)
    assert view.canvas.place_of(1).width() == pytest.approx(width, abs=3.0)


def test_controls_and_halves_of_pairs_are_made_visible(qtbot):
    _store, view = shown(qtbot, make.tokens(["a\x00b", "\ud83c", "\u202ec", "\x85"]))
    assert painted(view) == "a<U+0000>b<U+D83C><U+202E>c<U+0085>"


def test_special_tokens_are_shown_on_request_only(qtbot):
    events = [*make.tokens(["one", " two"]), make.special(2)]
    store, view = shown(qtbot, events, end=make.end(events, "eos"))
    assert painted(view) == "one two"
    view.special_button.click()
    assert painted(view) == "one two<|im_end|>"
    assert store.current.text == "one two"
    view.special_button.click()
    assert painted(view) == "one two"


def test_a_token_without_text_can_be_reached_and_is_marked_by_a_bar(qtbot):
    store, view = shown(qtbot, make.tokens(["one", "", " two"]))
    store.select(2)
    without = view.canvas.viewport().grab().toImage()
    store.select(1)
    image = view.canvas.viewport().grab().toImage()
    edge = view.canvas.place_of(0)
    assert image != without
    accent = theme.current().accent
    near = [image.pixelColor(int(edge.right()) + dx, int(edge.center().y())) for dx in (-1, 0, 1)]
    assert accent in near


def test_the_tail_that_was_held_back_is_shown_at_the_end(qtbot):
    events = make.tokens(["one", " tw"])
    store, view = shown(qtbot, events, end=make.end(events, "length", tail_text="o\ufffd"))
    assert painted(view) == store.current.text == "one two\ufffd"


@pytest.mark.parametrize("reason", ev.END_REASONS)
def test_the_text_stays_whatever_ends_the_run(qtbot, reason):
    events = make.tokens(["one", " two"])
    sentence = "The model gave numbers that are not finite at step 2." if reason == "error" else ""
    end = make.end(events, reason, sentence=sentence)
    store, view = shown(qtbot, events)
    before = view.canvas.viewport().grab().toImage()
    store.take(end)
    store.frame.emit()
    assert painted(view) == "one two"
    assert view.canvas.viewport().grab().toImage() != before  # the reason stands below the text
    assert end_word(end)
    store.take(ev.EngineError("The engine failed.", "Try again.", 4, "run"))
    store.frame.emit()
    assert painted(view) == "one two"


def test_a_run_of_one_token_says_so():
    assert end_word(make.end(make.tokens(["one"]), "length")) == "ended: length, 1 token"


def test_the_view_follows_the_end_unless_somebody_scrolled_up(qtbot):
    store, view = shown(qtbot, make.tokens([" word"] * 600), size=(400, 200))
    bar = view.canvas.verticalScrollBar()
    assert bar.value() == bar.maximum() > 0
    bar.setValue(bar.maximum() // 2)
    held = bar.value()
    for event in make.tokens([" more"] * 200, first=600):
        store.take(event)
    store.frame.emit()
    assert bar.value() == held
    assert view.follow_button.isVisible()
    view.follow_button.click()
    assert bar.value() == bar.maximum()
    assert not view.follow_button.isVisible()
    for event in make.tokens([" more"] * 200, first=800):
        store.take(event)
    store.frame.emit()
    assert bar.value() == bar.maximum()


def test_a_selection_made_elsewhere_is_scrolled_into_view(qtbot):
    store, view = shown(qtbot, make.tokens([" word"] * 900), size=(400, 200))
    store.select(3)
    assert view.canvas.viewport().rect().contains(place(view, 3))
    store.select(700)
    assert view.canvas.viewport().rect().contains(place(view, 700))


@pytest.mark.parametrize(("count", "step"), [(96, 90), (5000, 4500)])
def test_the_field_opens_beside_its_word_right_after_a_switch_of_runs_and_stays_there(qtbot, count, step):
    store, view = shown(qtbot, make.tokens([f" word{n}" for n in range(count)]), size=(420, 300))
    older = make.tokens([f" older{n}" for n in range(count)], run_id=2)
    run = make.recorded([make.start(run_id=2), *older, make.end(older)]).current
    store.runs.append(run)
    store.show(run)
    store.select(step)
    view.write_here()

    def beside() -> bool:
        place, field = view.canvas.place_of(step), view.write_field.geometry()
        inside = place is not None and view.canvas.viewport().rect().contains(place.toRect())
        return inside and min(abs(field.top() - place.bottom()), abs(place.top() - field.bottom())) < 10

    assert beside()
    view.resize(380, 240)  # as when the bar about other settings takes its room
    qtbot.waitUntil(lambda: view.canvas._new_flow is None)
    assert beside()


def test_a_long_text_is_laid_out_anew_in_slices_and_whole_at_the_end(qtbot):
    events = make.tokens([" word"] * (4 * SLICE))
    store, view = shown(qtbot, events, size=(500, 300))
    lines = view.canvas._flow.lines
    view.resize(300, 300)
    assert view.canvas._flow.lines == lines  # still the old ones
    for event in make.tokens([" late"] * 5, first=len(events)):  # the run goes on meanwhile
        store.take(event)
    store.frame.emit()
    qtbot.waitUntil(lambda: view.canvas._new_flow is None)
    assert view.canvas._flow.lines > lines
    assert painted(view) == store.current.text


def test_a_change_of_theme_and_size_repaints_the_same_text(qtbot):
    store, view = shown(qtbot, make.tokens(make.words(make.RIVER)))
    light = view.canvas.viewport().grab().toImage()
    theme.set_mode("dark")
    dark = view.canvas.viewport().grab().toImage()
    assert light != dark
    height = view.canvas._flow.line_height
    view.larger()
    view.larger()
    assert view.canvas._flow.line_height > height
    assert view.size_step() == 2
    view.set_size_step(0)
    assert view.canvas._flow.line_height == height
    assert painted(view) == store.current.text
    theme.set_mode("light")


def test_another_run_takes_the_place_of_the_last(qtbot):
    store, view = shown(qtbot, make.tokens(["old"]))
    store.take(make.start(run_id=2))
    for event in make.tokens(["new", " text"], run_id=2):
        store.take(event)
    store.frame.emit()
    assert painted(view) == "new text"
    store.show(store.runs[0])
    assert painted(view) == "old"


def test_the_hover_window_lists_the_chosen_token_and_the_most_probable(qtbot):
    store, view = shown(qtbot, [make.token(0, "rare", prob=1e-5)])
    qtbot.mouseMove(view.canvas.viewport(), place(view, 0))
    popup = view.canvas._popup
    qtbot.waitUntil(popup.isVisible)
    assert popup.token is store.current.tokens[0]
    listed = popup._candidates
    assert sum(c.chosen for c in listed) == 1
    assert [c.rank for c in listed[:3]] == [0, 1, 2]
    assert not popup.grab().isNull()
    view.hide()
    assert not popup.isVisible()


def test_an_empty_view_and_a_run_without_text_can_be_used(qtbot):
    store, view = shown(qtbot, None)
    qtbot.mouseClick(view.canvas.viewport(), Qt.MouseButton.LeftButton)
    qtbot.keyClick(view.canvas, Qt.Key.Key_Left)
    view.copy()
    assert not view.copy_button.isEnabled()
    empty = view.canvas.viewport().grab().toImage()
    store.take(make.start())
    store.frame.emit()
    assert view.canvas.viewport().grab().toImage() != empty  # "reading the prompt"
    store.take(make.end([], "cancelled"))
    store.frame.emit()
    assert painted(view) == ""


def test_a_word_of_a_run_beside_the_current_one_can_be_pointed_at(qtbot):
    store, _view = shown(qtbot, make.tokens(["aa", " bb"]))
    store.take(make.start(lane=1))
    for event in make.tokens(["cc", " dd"], lane=1):
        store.take(event)
    beside = store.run((1, 1))
    store.hover(0, beside)
    assert store.hovered_run is beside
    assert store.shown_token is beside.tokens[0]
    store.hover(0)  # the same place in the current run is another word
    assert store.shown_token is store.current.tokens[0]
    store.hover(None)
    assert store.hovered_run is None
    assert store.shown_token is store.current.tokens[1]


def test_what_was_reused_is_said_whole_beside_the_end_or_not_at_all(qtbot):
    """In the room of a lane: the longest wording that fits."""
    end = make.end(make.tokens([" a"]), "eos")
    full, short = "prompt reused, 0 + 47 computed", "prompt reused"

    def painted(width, *remarks):
        picture = QImage(420, 60, QImage.Format.Format_RGB32)
        picture.fill(0xFFFFFF)
        with QPainter(picture) as painter:
            paint_end(painter, SimpleNamespace(width=width, lines=1, line_height=20.0), end, remarks)
        return picture

    assert painted(400.0, full, short) == painted(400.0, full) != painted(400.0)
    assert painted(250.0, full, short) == painted(250.0, short) != painted(250.0)
    assert painted(140.0, full, short) == painted(140.0)
