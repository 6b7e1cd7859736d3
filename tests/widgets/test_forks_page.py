"""The tree of forks: drawn from the store, by mouse and key; what it wants goes out as wishes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint, Qt

from engine.figures import branches, descendants
from engine.settings import CompareWish, Parent, PruneWish, RenameWish, SamplingSettings
from tests.widgets import events_factory as make
from tests.widgets.test_store_forks import fork_events, parent_events
from widgets import theme
from widgets.lab.forks_page import ForksPage
from widgets.reuse import reuse_text
from widgets.run_names import run_name, run_words
from widgets.run_store import RunStore

CTRL = Qt.KeyboardModifier.ControlModifier


def grown() -> list:
    """1, its forks 2 at word 4 and 4 at word 7, and 3, a fork of 2 at word 5."""
    parent = parent_events()
    second = fork_events(parent, 4)
    third = fork_events([second[0], *parent[1:5], *second[1:3]], 5, run_id=3, texts=(" lake",))
    third[0] = replace(third[0], parent=Parent(2, 0, 5))
    hot = SamplingSettings(temperature=1.4)
    fourth = fork_events(parent, 7, run_id=4, texts=(" of", " the", " snow"), settings=hot)
    return [*parent, *second, *third, *fourth]


@pytest.fixture
def page(qtbot):
    theme.set_mode("light")
    store = RunStore()
    for event in grown():
        store.take(event)
    page = ForksPage(store)
    qtbot.addWidget(page)
    page.resize(900, 600)
    page.show()
    page.refresh()
    page.heard = []
    page.asked.connect(page.heard.append)
    page.held = store
    return page


def click(qtbot, page, at, x=200, held=Qt.KeyboardModifier.NoModifier, bar=False):
    y = page.tree.places.bar_of(at) if bar else page.tree.places.top_of(at) + 12
    qtbot.mouseClick(page.tree.viewport(), Qt.MouseButton.LeftButton, held, QPoint(round(x), round(y)))


def test_each_fork_hangs_below_what_it_left_and_no_line_crosses_a_text(page):
    rows = page.tree.rows
    assert [row.run.start.run_id for row in rows] == [1, 4, 2, 3]  # the latest fork first
    assert [row.parent for row in rows] == [None, 0, 0, 2]
    assert [(row.begins, row.ends) for row in rows] == [(0, 9), (7, 10), (4, 6), (5, 6)]
    for at, row in enumerate(rows):
        for between in rows[(row.parent or 0) + 1 : at]:
            assert between.begins >= row.begins


def test_time_runs_to_the_right_for_all_alike(page):
    tree = page.tree
    assert tree.places.x_of(7) - tree.places.x_of(4) == pytest.approx(3 * tree.places.scale)
    before = tree.places.scale
    tree.set_zoom(4.0)
    assert tree.places.scale == pytest.approx(4 * before)
    assert tree.horizontalScrollBar().maximum() > 0
    tree.set_zoom(0.1)
    assert tree.zoom == 1.0


def test_a_row_says_what_differs_how_long_it_is_and_why_it_ended(page):
    tree = page.tree
    words = tree.rows[1].words()
    assert "leaves run 1 at word 8" in words
    assert "T 1.0 → 1.4" in words or "T 1 → 1.4" in words
    assert "length 10, 3 of it its own" in words
    assert "ended: length" in words
    assert words.endswith(" of the snow")


def test_a_click_shows_the_run_and_on_its_bar_the_word(qtbot, page):
    store = page.store
    click(qtbot, page, 2)
    assert store.current.key == (2, 0)
    assert store.following
    click(qtbot, page, 0, page.tree.places.x_of(2.5), bar=True)
    assert store.current.key == (1, 0)
    assert store.selected_step == 2


def test_two_that_are_marked_are_compared(qtbot, page):
    assert not page.compare_button.isEnabled()
    click(qtbot, page, 1)
    click(qtbot, page, 3, held=CTRL)
    assert page.compare_button.isEnabled()
    qtbot.keyClick(page.tree, Qt.Key.Key_C)
    assert page.heard == [CompareWish(((4, 0), (3, 0)))]
    click(qtbot, page, 3, held=CTRL)
    assert not page.compare_button.isEnabled()


def test_the_keys_walk_the_tree(qtbot, page):
    store, tree = page.store, page.tree
    qtbot.keyClick(tree, Qt.Key.Key_Home)
    for key, expected in (
        (Qt.Key.Key_Down, 4), (Qt.Key.Key_Down, 2), (Qt.Key.Key_Right, 3), (Qt.Key.Key_Left, 2), (Qt.Key.Key_Left, 1),
        (Qt.Key.Key_Right, 4), (Qt.Key.Key_End, 3), (Qt.Key.Key_Down, 3), (Qt.Key.Key_Up, 2),
    ):  # fmt: skip
        qtbot.keyClick(tree, key)
        assert store.current.start.run_id == expected
    qtbot.keyClick(tree, Qt.Key.Key_Up, Qt.KeyboardModifier.ShiftModifier)
    assert tree.marked == [(2, 0), (4, 0)]
    assert "leaves run 1" in tree.accessibleDescription()


def test_runs_that_are_not_neighbours_are_marked_by_keys(qtbot, page):
    store, tree = page.store, page.tree
    qtbot.keyClick(tree, Qt.Key.Key_Home)
    shown = store.current
    qtbot.keyClick(tree, Qt.Key.Key_Down, CTRL)
    qtbot.keyClick(tree, Qt.Key.Key_End, CTRL)
    assert (store.current, tree.marked) == (shown, [shown.key])
    qtbot.keyClick(tree, Qt.Key.Key_Space)
    assert tree.marked == [(1, 0), (3, 0)]
    qtbot.keyClick(tree, Qt.Key.Key_Up, CTRL)
    qtbot.keyClick(tree, Qt.Key.Key_Space, CTRL)
    qtbot.keyClick(tree, Qt.Key.Key_C)
    assert page.heard == [CompareWish(((1, 0), (3, 0), (2, 0)))]


def test_the_shown_run_is_in_view_however_many_there_are_and_a_hand_may_scroll_away(qtbot):
    store = RunStore()
    page = ForksPage(store)
    qtbot.addWidget(page)
    page.resize(900, 600)
    page.show()
    tree, bar = page.tree, page.tree.verticalScrollBar()

    def in_view(run_id: int) -> bool:
        return 0 <= tree.places.top_of(tree.row_of((run_id, 0))) <= tree.viewport().height() - tree.places.row_height

    parent = parent_events()
    for run_id in range(1, 21):
        for event in parent:
            store.take(replace(event, run_id=run_id))
    page.refresh()
    assert in_view(20)
    page.grab()  # it was seen
    bar.setValue(0)
    page.refresh()
    assert bar.value() == 0
    store.show(store.runs[11])
    assert in_view(12)
    page.hide()
    store.show(store.runs[0])
    page.resize(800, 500)
    page.show()
    assert in_view(1)


def test_delete_prunes_what_is_marked(qtbot, page):
    click(qtbot, page, 2)
    qtbot.keyClick(page.tree, Qt.Key.Key_Delete)
    assert page.heard == [PruneWish(((2, 0),))]


def test_a_name_is_typed_in_place(qtbot, page):
    tree = page.tree
    click(qtbot, page, 1)
    qtbot.keyClick(tree, Qt.Key.Key_F2)
    field = tree._field
    assert field.isVisible()
    qtbot.keyClicks(field, "melting")
    qtbot.keyClick(field, Qt.Key.Key_Return)
    assert page.heard == [RenameWish((4, 0), "melting")]
    assert not field.isVisible()
    qtbot.keyClick(tree, Qt.Key.Key_F2)
    qtbot.keyClicks(field, "never")
    qtbot.keyClick(field, Qt.Key.Key_Escape)
    assert len(page.heard) == 1


def test_what_is_written_now_grows_and_what_is_taken_out_goes(page):
    store = page.store
    store.take(make.start(9))
    page.refresh()
    assert len(page.tree.rows) == 5
    for token in make.tokens([" one", " two"], run_id=9):
        store.take(token)
    page.refresh()
    assert page.tree.rows[-1].ends == 2
    assert "is being written" in page.tree.rows[4].words()
    store.take_out([(2, 0), (3, 0)])
    assert [row.run.key for row in page.tree.rows] == [(1, 0), (4, 0), (9, 0)]


def test_it_is_painted_when_empty_alone_lost_and_in_both_themes(qtbot):
    for events in ([], parent_events(), fork_events(parent_events(), 4), grown()):
        store = RunStore()
        for event in events:
            store.take(event)
        page = ForksPage(store)
        qtbot.addWidget(page)
        page.resize(500, 400)
        page.show()
        for mode in ("dark", "light"):
            theme.set_mode(mode)
            page.refresh()
            page.grab()
        if len(events) > 1 and store.runs[0].lost:
            assert "its beginning is not here" in page.tree.rows[0].words()


def test_circles_of_a_damaged_file_are_drawn_as_beginnings():
    one, two = make.start(1, parent=Parent(2, 0, 0)), make.start(2, parent=Parent(1, 0, 0))
    found = branches([one, two])
    assert {branch.key for branch in found} == {(1, 0), (2, 0)}
    assert descendants((1, 0), [one, two])
    assert [branch.parent for branch in branches([make.start(3, parent=Parent(3, 0, 0))])] == [None]


def test_runs_are_called_by_name_number_and_letter(page):
    for start in (make.start(5), make.start(6, lane=1, lanes=4), make.start(7, name="calm")):
        page.store.take(start)
    assert [run_name(page.store, run) for run in page.store.runs[4:]] == ["run 5", "run 6 B", "calm"]
    page.store.take(make.start(8, lane=1, lanes=2, name="calm"))  # lanes have the same names in each of their runs
    assert [run_name(page.store, run) for run in page.store.runs[6:]] == ["calm (run 7)", "calm (run 8 B)"]
    assert run_words(page.store, page.store.run((4, 0))).startswith("run 4 · from run 1 at word 8 · T")


@pytest.mark.parametrize(
    ("reused", "computed", "words"),
    [
        (437, 64, "prompt + 399 reused, 1 + 63 computed"),
        (38, 464, "prompt reused, 400 + 64 computed"),
        (20, 482, "20 of the prompt reused, 418 + 64 computed"),
        (0, 502, "nothing reused, 438 + 64 computed"),
        (0, 0, ""),
    ],
)
def test_the_counter_says_what_was_reused_and_computed(reused, computed, words):
    end = make.end(make.tokens([" a"]), reused_tokens=reused, computed_tokens=computed)
    assert reuse_text(end, 400) == words
