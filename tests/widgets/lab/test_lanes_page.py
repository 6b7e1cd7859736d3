"""The page of lanes, driven by mouse and key over a store whose lanes are written down."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QPoint, Qt

from engine import events as ev
from engine.figures import lane_letter
from engine.settings import LanePrompt, SamplingSettings
from tests.widgets import events_factory as made
from tests.widgets.facts import facts
from tests.widgets.lanes_factory import COMMON, CONTROL, GREEDY, HOTTER, SAME_U, lane_events, store_with
from tests.widgets.test_store_forks import fork_events, parent_events
from widgets import theme
from widgets.lab.fork_tree import ForkTree
from widgets.lab.lane_bar import free_bytes
from widgets.lab.lane_column import LaneColumn
from widgets.lab.lane_set import Lane, LaneSet
from widgets.lab.lane_wishes import ChangeLane, LanesPrompt, RunLanes, ShowText, SteerLanes
from widgets.lab.lanes_page import LanesPage
from widgets.lab.vary_dialog import Variation
from widgets.run_chooser import RunChooser
from widgets.run_store import RunStore

AT = len(COMMON)
LEFT = Qt.MouseButton.LeftButton
CONTROL_KEY = Qt.KeyboardModifier.ControlModifier


@pytest.fixture
def page_of(qtbot):
    """Builds pages over a store; what they ask for is in `page.wishes`."""
    theme.set_mode("light")
    kept = []  # qtbot holds them weakly

    def build(store: RunStore | None = None, *settings: SamplingSettings, size=(1040, 760)) -> LanesPage:
        page = LanesPage(store or store_with())
        qtbot.addWidget(page)
        page.wishes = []
        page.asked.connect(page.wishes.append)
        lanes = tuple(Lane(key, each) for key, each in enumerate(settings or (CONTROL, HOTTER)))
        page.restore(LaneSet(lanes, 0))
        page.resize(*size)
        page.show()
        page.activateWindow()
        QCoreApplication.processEvents()
        kept.append(page)
        return page

    return build


@pytest.fixture
def written(page_of):
    """Three lanes that were written: B leaves A at word 5, C too, without a draw."""
    store = store_with(
        lane_events(0, CONTROL, SAME_U, (" and", " on")),
        lane_events(1, HOTTER, SAME_U, (" was", " near")),
        lane_events(2, GREEDY, None, (" and", " off")),
    )
    page = page_of(store, CONTROL, HOTTER, GREEDY)
    page.began(1)
    page.look()
    page.texts.write_words()
    QCoreApplication.processEvents()
    return page


def columns(page):
    return [page.texts.columns[lane.key] for lane in page.lanes.lanes]


def place(column, step) -> QPoint:
    return column.canvas.place_of(step).center().toPoint()


def colour_behind(column, step):
    rect = column.canvas.place_of(step)
    image = column.canvas.viewport().grab().toImage()
    return image.pixelColor(int(rect.right() - 2), int(rect.bottom() - 1))


# ---------------------------------------------------------------- what is shown


def test_each_lane_shows_its_text_where_it_leaves_and_its_figures(written):
    a, b, c = columns(written)
    assert [column.canvas._run.text for column in (a, b, c)] == [
        "The river reaches the plain and on",
        "The river reaches the sea was near",
        "The river reaches the plain and off",
    ]
    assert a.parting_label.text() == "reference lane: the others are compared with it"
    assert b.parting_label.text() == "leaves A at word 5: same draw u = 0.400, different odds"
    assert "7\u00a0tokens" in a.figures_label.text()


def test_the_words_after_the_parting_are_tinted_in_the_lanes_colour(written):
    _, b, c = columns(written)
    look = theme.current()
    assert colour_behind(b, AT + 1) == look.lane_ground(1)
    assert colour_behind(b, AT - 1) != look.lane_ground(1)
    assert colour_behind(c, AT + 1) != look.lane_ground(2)  # C agrees until its last word
    assert colour_behind(c, AT + 2) == look.lane_ground(2)


def test_the_table_tells_each_lanes_odds_and_who_chose(written):
    rows = written.texts.table.view.rows
    cells = [[rows.data(rows.index(r, c)) for c in range(rows.columnCount())] for r in range(rows.rowCount())]
    assert cells[0][:3] == ["word 5", "·plain", "A 0.400, C no draw"]
    assert cells[0][3] == "60.0% ✓"
    assert cells[0][5] == "100% ✓"
    assert cells[1][1:4] == ["·sea", "0.400", "20.0%"]
    assert cells[1][4].endswith(" ✓")
    assert cells[1][5] == "0%"
    assert [cells[2][0], cells[2][1]] == ["word 7", "·on"]


def test_another_lane_can_be_the_reference(written, qtbot):
    a, b, _ = columns(written)
    b.reference_action.trigger()
    assert written.lanes.reference == b.key
    written.texts.write_words()
    assert b.parting_label.text().startswith("reference lane")
    assert a.parting_label.text().startswith("leaves B at word 5")
    assert colour_behind(a, AT + 1) == theme.current().lane_ground(0)
    qtbot.keyClick(written, Qt.Key.Key_Z, CONTROL_KEY)
    assert written.lanes.reference == a.key


def test_new_words_are_taken_in_at_the_next_frame(page_of):
    store = store_with(lane_events(0, CONTROL, SAME_U), lane_events(1, HOTTER, SAME_U))
    page = page_of(store)
    page.began(1)
    page.look()
    for event in (made.tokens([" more"], first=AT + 1)[0], made.tokens([" more"], first=AT + 1, lane=1)[0]):
        store.take(event)
    page.look()
    assert [column.canvas._run.text for column in columns(page)] == [
        "The river reaches the plain more",
        "The river reaches the sea more",
    ]


@pytest.mark.parametrize("size", [(628, 560), (690, 520), (1010, 760), (1400, 980)])
@pytest.mark.parametrize("count", [2, 4, 6, 8])
def test_lanes_stay_readable_and_never_scroll_as_their_texts_do(page_of, count, size):
    page = page_of(None, *[CONTROL] * count, size=size)
    least = columns(page)[0].least_size()
    assert all(c.width() >= least.width() and c.height() >= least.height() for c in columns(page))
    assert page.texts.grid.verticalScrollBar().maximum() == 0
    rows = len({column.y() for column in columns(page)})
    assert page.texts.grid.per_row * rows >= count > page.texts.grid.per_row * (rows - 1)
    if size[0] >= count * (least.width() + theme.GAP):
        assert page.texts.grid.horizontalScrollBar().maximum() == 0


def test_lanes_wrap_into_rows_of_equal_length_where_those_fit(page_of):
    page = page_of(None, *[CONTROL] * 6, size=(1400, 980))
    assert page.texts.grid.per_row == 3  # two rows of three, not five and one
    page.resize(690, 520)
    QCoreApplication.processEvents()
    assert page.texts.grid.per_row == 6


def seen(page, column) -> bool:
    """Whether the lane is in view, whole from left to right."""
    QCoreApplication.processEvents()
    left = column.mapTo(page.texts.grid.viewport(), QPoint(0, 0)).x()
    return left >= 0 and left + column.width() <= page.texts.grid.viewport().width()


def test_the_lane_with_the_keyboards_focus_is_in_view(page_of, qtbot):
    page = page_of(None, *[CONTROL] * 8, size=(628, 560))
    assert [seen(page, column) for column in columns(page)] == [True, True, *[False] * 6]
    columns(page)[0].name_field.setFocus()
    for number in range(1, 8):
        while page.focusWidget() is not columns(page)[number].name_field:
            qtbot.keyClick(page.focusWidget(), Qt.Key.Key_Tab)
        assert seen(page, columns(page)[number])
    column = columns(page)[7]
    column.canvas.setFocus()
    for _ in range(7):
        qtbot.keyClick(column.canvas, Qt.Key.Key_Left, CONTROL_KEY | Qt.KeyboardModifier.ShiftModifier)
        assert seen(page, column)
    assert columns(page)[0] is column


def test_a_new_lane_and_one_whose_word_is_picked_come_into_view(page_of, qtbot):
    settings = [CONTROL, GREEDY, GREEDY, GREEDY, HOTTER]
    store = store_with(
        *(lane_events(at, each, None if each.greedy else SAME_U, lanes=5) for at, each in enumerate(settings))
    )
    page = page_of(store, *settings, size=(628, 560))
    page.began(1)
    page.look()
    page.add_action.trigger()
    assert seen(page, columns(page)[5])
    columns(page)[0].canvas.setFocus()
    assert not seen(page, columns(page)[4])
    page.texts._picked(AT, 4)
    assert seen(page, columns(page)[4])


def test_under_the_mouse_no_lane_moves(page_of, qtbot):
    page = page_of(None, *[CONTROL] * 8, size=(628, 560))
    third = columns(page)[2]
    qtbot.mousePress(third.canvas.viewport(), LEFT, pos=QPoint(5, 5))
    QCoreApplication.processEvents()
    assert third.canvas.hasFocus()
    assert page.texts.grid.horizontalScrollBar().value() == 0
    qtbot.mouseRelease(third.canvas.viewport(), LEFT, pos=QPoint(5, 5))


def test_before_a_run_the_lanes_say_how_they_differ(page_of):
    page = page_of()
    a, b = columns(page)
    assert "a difference is the setting's doing" in a.canvas.empty_lines()[0]
    assert b.canvas.empty_lines() == ["Against A: T 1 → 2."]


# ---------------------------------------------------------------- pointing


def test_a_click_shows_that_lane_everywhere_and_lights_the_same_place_in_the_others(written, qtbot):
    store = written.store
    a, b, _ = columns(written)
    qtbot.mouseClick(b.canvas.viewport(), LEFT, pos=place(b, AT))
    assert store.current is b.source.run
    assert store.selected_step == AT
    assert b.canvas.marked_steps() == (AT, None)
    assert a.canvas.marked_steps() == (None, AT)


def test_hovering_points_at_the_word_of_the_lane_under_the_mouse(written, qtbot):
    store = written.store
    _, b, _ = columns(written)
    assert store.current is store.run((1, 0))
    qtbot.mouseMove(b.canvas.viewport(), place(b, AT))
    assert store.shown_token.token_text == " sea"
    assert store.current is store.run((1, 0))  # pointing shows, and does not choose
    qtbot.mouseMove(b.canvas.viewport(), QPoint(2, b.canvas.viewport().height() - 2))
    assert store.hovered_step is None


def test_a_word_of_the_table_is_selected_in_its_lane(written, qtbot):
    view = written.texts.table.view
    index = view.rows.index(1, 4)
    qtbot.mouseClick(view.viewport(), LEFT, pos=view.visualRect(index).center())
    assert written.store.current is written.store.run((1, 1))
    assert written.store.selected_step == AT


def test_arrow_keys_walk_in_the_lane_that_has_the_focus(written, qtbot):
    _, b, _ = columns(written)
    qtbot.mouseClick(b.canvas.viewport(), LEFT, pos=place(b, 2))
    qtbot.keyClick(b.canvas, Qt.Key.Key_Right)
    assert (written.store.current, written.store.selected_step) == (b.source.run, 3)


def test_a_lane_can_be_shown_as_the_windows_text_at_the_same_word(written, qtbot):
    _, b, _ = columns(written)
    written.store.select(3)
    b.text_action.trigger()
    assert written.wishes == [ShowText()]
    assert (written.store.current, written.store.selected_step) == (b.source.run, 3)


# ---------------------------------------------------------------- setting up


def test_a_new_lane_copies_the_last_one_and_undo_takes_it_back(page_of, qtbot):
    page = page_of()
    qtbot.mouseClick(page.bar.lane_button, LEFT)
    assert [lane.settings for lane in page.lanes.lanes] == [CONTROL, HOTTER, HOTTER]
    assert len({lane.key for lane in page.lanes.lanes}) == 3
    qtbot.keyClick(page, Qt.Key.Key_Z, CONTROL_KEY)
    assert [lane.settings for lane in page.lanes.lanes] == [CONTROL, HOTTER]


def test_eight_are_the_most_and_two_the_least(page_of):
    page = page_of()
    for _ in range(10):
        page.add_action.trigger()
    assert len(page.lanes.lanes) == 8
    assert not page.bar.lane_button.isEnabled()
    for column in columns(page):
        if column.remove_action.isEnabled():
            column.remove_action.trigger()
    assert len(page.lanes.lanes) == 2
    assert not columns(page)[0].remove_action.isEnabled()


def test_a_removed_lane_comes_back_with_its_text(written, qtbot):
    _, b, _ = columns(written)
    run = b.source.run
    b.remove_action.trigger()
    assert [c.source.run.start.lane for c in columns(written)] == [0, 2]
    assert [c.chip.letter for c in columns(written)] == ["A", "C"]  # as its run is called elsewhere
    assert b.isHidden()
    qtbot.keyClick(written, Qt.Key.Key_Z, CONTROL_KEY)
    assert columns(written)[1].source.run is run
    assert columns(written)[1].canvas._run.text == "The river reaches the sea was near"
    assert columns(written)[1].isVisible()
    assert columns(written)[1].chip.letter == "B"


def test_lanes_that_are_gone_leave_nothing_behind(page_of):
    page = page_of()
    for _ in range(5):
        page._varied(Variation((CONTROL, HOTTER, GREEDY), ("a", "b", "c")))
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    assert len(page.findChildren(LaneColumn)) == 3


def test_moving_a_lane_takes_its_text_along(written):
    _, _, c = columns(written)
    c.left_action.trigger()
    assert [each.source.run.start.lane for each in columns(written)] == [0, 2, 1]


def headers(page):
    model = page.texts.table.view.rows
    return [model.headerData(at, Qt.Orientation.Horizontal) for at in range(3, model.columnCount())]


def test_a_lane_keeps_its_letter_and_colour_wherever_it_goes(written):
    _, b, c = columns(written)
    colour = c.chip.colour
    c.left_action.trigger()
    assert [each.chip.letter for each in columns(written)] == headers(written) == ["A", "C", "B"]
    assert c.chip.colour == c.canvas.colour == colour
    assert written.texts.table.view.rows.cell(written.texts.table.view.rows.rows[0], 2) == "A 0.400, C no draw"
    b.reference_action.trigger()
    written.texts.write_words()
    assert c.parting_label.text().startswith("leaves B at word 5")
    assert written.store.compared == ((1, 0), (1, 2), (1, 1))
    assert written.store.letters == {run.key: lane_letter(run.start.lane) for run in written.store.runs}
    assert written.store.reference == (1, 1)


def test_a_new_lane_takes_a_free_letter_and_a_run_closes_the_gaps(written):
    columns(written)[1].remove_action.trigger()
    written.undo()
    columns(written)[0].remove_action.trigger()
    assert [each.chip.letter for each in columns(written)] == ["B", "C"]
    columns(written)[0].duplicate_action.trigger()
    assert [each.chip.letter for each in columns(written)] == ["B", "A", "C"]
    written.undo()
    columns(written)[1].left_action.trigger()
    written.began(2)  # C before B: the engine numbers them by their letters
    assert [each.chip.letter for each in columns(written)] == ["B", "A"]
    assert written.store.letters == {(2, 1): "B", (2, 0): "A"}
    assert written.store.compared == ((2, 1), (2, 0))


def test_a_run_has_one_letter_everywhere_after_a_removed_lane_came_back(written, qtbot):
    """The lanes that stayed are numbered anew by the next run; the one that comes back must not take their letters."""
    columns(written)[0].remove_action.trigger()
    written.began(2)
    for lane, settings in enumerate((HOTTER, GREEDY)):
        for event in lane_events(lane, settings, SAME_U if lane == 0 else None, lanes=2):
            written.store.take(replace(event, run_id=2))
    written.look()
    store, tree, chooser = written.store, ForkTree(written.store), RunChooser(written.store)
    qtbot.addWidget(tree)
    qtbot.addWidget(chooser)
    moved = columns(written)[1].left_action.trigger
    for act in (written.undo, moved, written.undo, written.redo):
        act()
        tree.refresh()
        chooser.refresh()
        page = {column.source.run.key: column.chip.letter for column in columns(written)}
        assert page == store.letters == {(1, 0): "A", (2, 0): "C", (2, 1): "B"}
        names = [chooser.itemText(at) for at in range(chooser.count())]
        assert names == ["run 1 A", "run 1 B", "run 1 C", "run 2 C", "run 2 B"]
        assert sorted(row.name for row in tree.rows) == sorted(names)


def test_what_was_taken_out_of_the_lanes_is_not_compared_until_it_comes_back(written):
    columns(written)[1].remove_action.trigger()
    assert written.store.compared == ((1, 0), (1, 2))
    written.undo()
    assert written.store.compared == ((1, 0), (1, 1), (1, 2))


def test_a_run_that_was_pruned_stands_beside_nothing_any_more(page_of):
    page = page_of(store_with(), CONTROL, HOTTER)
    page.began(1)
    assert page.store.compared == ((1, 0), (1, 1))  # as soon as they are asked for
    for event in (*lane_events(0, CONTROL, SAME_U, lanes=2), *lane_events(1, HOTTER, SAME_U, lanes=2)):
        page.store.take(event)
    taken = page.store.take_out([(1, 1)])
    page.look()
    page.undo_action.trigger()
    assert page.store.compared == ((1, 0),)
    page.store.put_back(taken)
    page.look()
    page.add_lane()
    assert page.store.compared == ((1, 0), (1, 1))


def test_in_a_lane_too_the_flag_of_a_fork_names_what_it_left(page_of):
    parent = parent_events(name="calm")
    store = RunStore()
    for event in (*parent, *fork_events(parent, 4, name="calm")):
        store.take(event)
    page = page_of(store)
    store.compare(store.runs)
    page.look()
    store.show(store.runs[1])
    store.select(4)
    assert "Here this text left calm (run 1)." in columns(page)[1].canvas.accessibleDescription()


def test_runs_compared_from_elsewhere_bring_their_letters(page_of):
    alone = [replace(event, run_id=2) for event in lane_events(0, CONTROL, SAME_U, lanes=1)]
    store = store_with(lane_events(0, CONTROL, SAME_U), lane_events(1, HOTTER, SAME_U), alone)
    page = page_of(store)
    store.compare(store.runs[1:])
    page.look()
    assert [each.chip.letter for each in columns(page)] == headers(page) == ["B", "A"]
    columns(page)[1].reference_action.trigger()
    store.compare(store.runs[1:])  # as an undo elsewhere does
    page.look()
    assert store.reference == (2, 0)


def test_the_lane_with_the_focus_is_edited_moved_and_removed_by_key(written, qtbot):
    both = CONTROL_KEY | Qt.KeyboardModifier.ShiftModifier
    _, _, c = columns(written)
    qtbot.mouseClick(c.canvas.viewport(), LEFT, pos=place(c, 1))
    qtbot.keyClick(c.canvas, Qt.Key.Key_Left, both)
    assert [lane.key for lane in written.lanes.lanes] == [0, 2, 1]
    qtbot.keyClick(c.canvas, Qt.Key.Key_R, both)
    assert written.lanes.reference == 2
    qtbot.keyClick(c.canvas, Qt.Key.Key_F2)
    assert written.editor.isVisible()
    assert written.editor.lane.key == 2
    written.editor.close()
    written.activateWindow()
    c.canvas.setFocus()
    QCoreApplication.processEvents()
    qtbot.keyClick(c.canvas, Qt.Key.Key_Delete)
    assert [lane.key for lane in written.lanes.lanes] == [0, 1]
    assert written.lanes.reference == 0


def test_a_name_is_written_where_it_stands(page_of, qtbot):
    page = page_of()
    field = columns(page)[1].name_field
    qtbot.mouseClick(field, LEFT)
    qtbot.keyClicks(field, "wild")
    qtbot.keyClick(field, Qt.Key.Key_Return)
    assert page.lanes.lanes[1].name == "wild"
    qtbot.keyClick(field, Qt.Key.Key_Z, CONTROL_KEY)
    assert page.lanes.lanes[1].name == ""
    assert field.text() == ""


def test_a_slider_of_the_editor_is_one_step_of_undo(page_of, qtbot):
    page = page_of()
    qtbot.mouseClick(columns(page)[1].edit_button, LEFT)
    editor = page.editor
    assert editor.isVisible()
    slider = editor.rows["temperature"].slider
    slider.setSliderDown(True)
    for position in (100, 300, 500):
        slider.setValue(position)
    slider.setSliderDown(False)
    assert page.lanes.lanes[1].settings.temperature == 1.0
    page.undo()
    assert page.lanes.lanes[1].settings == HOTTER
    assert editor.rows["temperature"].value() == 2.0
    page.redo()
    assert page.lanes.lanes[1].settings.temperature == 1.0


def test_a_word_is_banned_and_boosted_in_one_lane_and_each_is_one_step_of_undo(page_of, qtbot):
    page = page_of()
    page.edit(page.lanes.lanes[1].key)
    editor, words = page.editor, page.editor.constraints
    editor.more_button.setChecked(True)
    words.line.setFocus()
    qtbot.keyClicks(words.line, "cat")
    qtbot.keyClick(words.line, Qt.Key.Key_Return)
    assert page.wishes == [ev.WordsQuestion(("cat",))]
    forms = (ev.WordForm("cat", (5,), ("cat",)), ev.WordForm(" cat", (6,), (" cat",)))
    page.store.take(ev.Answered(page.wishes[0], ev.WordTokens((forms,), ())))
    editor.refresh()
    lane = page.lanes.lanes[1]
    assert lane.settings == replace(HOTTER, banned=(5, 6))
    assert (lane.tokens.model, lane.tokens.texts) == (facts().name, ((5, "cat"), (6, " cat")))
    assert editor.more_button.text() == "more settings (1 on)"
    slider = words._rows["cat"].slider
    words._rows["cat"].ban_button.click()
    slider.setSliderDown(True)
    for position in (600, 700, 800):
        slider.setValue(position)
    slider.setSliderDown(False)
    boosted = page.lanes.lanes[1].settings
    assert [token_id for token_id, bias in boosted.logit_bias if bias > 0] == [5, 6]
    assert page.lanes.lanes[0].settings == CONTROL
    page.undo()
    assert page.lanes.lanes[1].settings == replace(HOTTER, logit_bias=((5, -5.0), (6, -5.0)))
    page.undo()
    assert words._rows["cat"].ban_button.isChecked()
    qtbot.keyClick(words.line, Qt.Key.Key_Z, CONTROL_KEY)
    assert page.lanes.lanes[1] == Lane(1, HOTTER, letter="B")
    assert (words.line.text(), words.count()) == ("", 0)
    page.edit(page.lanes.lanes[0].key)
    assert words.count() == 0


def test_a_lane_may_have_a_prompt_of_its_own(page_of, qtbot):
    page = page_of()
    page.set_prompt(LanePrompt("shared", "be kind"), raw=False)
    page.edit(page.lanes.lanes[1].key)
    editor = page.editor
    editor.own_box.click()
    assert page.lanes.lanes[1].own == LanePrompt("shared", "be kind")  # begins with what all are asked
    editor.prompt_edit.write("another")
    assert page.lanes.lanes[1].own == LanePrompt("another", "be kind")
    editor.own_box.click()
    assert page.lanes.lanes[1].own is None


def test_the_shared_prompt_is_the_windows(page_of, qtbot):
    page = page_of()
    page.set_prompt(LanePrompt("before"), raw=False)
    page.bar.prompt_edit.selectAll()
    qtbot.keyClicks(page.bar.prompt_edit, "ab")
    assert page.wishes[-1] == LanesPrompt("ab")


def test_varying_fills_the_lanes_from_the_reference(page_of, qtbot):
    page = page_of()
    page.vary_action.trigger()
    dialog = page._vary
    dialog.choose("seed")
    dialog.values_edit.setText("1..4")
    dialog.buttons.accepted.emit()
    assert [lane.settings for lane in page.lanes.lanes] == [replace(CONTROL, seed=seed) for seed in (1, 2, 3, 4)]
    assert page.lanes.reference == page.lanes.lanes[0].key
    page.undo()
    assert [lane.settings for lane in page.lanes.lanes] == [CONTROL, HOTTER]


# ---------------------------------------------------------------- running


def test_run_asks_for_the_lanes_as_they_stand_with_what_is_half_typed(page_of, qtbot):
    page = page_of()
    field = columns(page)[0].name_field
    qtbot.mouseClick(field, LEFT)
    qtbot.keyClicks(field, "half")
    page.run_page(one_token=False)
    assert page.wishes == [RunLanes(page.lanes)]
    assert page.lanes.lanes[0].name == "half"


def test_the_buttons_stop_and_pause(page_of, click_enabled):
    store = store_with(lane_events(0, CONTROL, SAME_U), lane_events(1, HOTTER, SAME_U))
    page = page_of(store)
    page.began(1)
    store.frame.emit()
    click_enabled(page.bar.controls.pause_button)
    click_enabled(page.bar.controls.stop_button)
    assert page.wishes == [SteerLanes("pause"), SteerLanes("stop")]


@pytest.fixture
def click_enabled(qtbot):
    def click(button):
        qtbot.waitUntil(button.isEnabled)
        qtbot.mouseClick(button, LEFT)

    return click


def test_a_lane_that_writes_is_changed_at_once_and_only_that_one(page_of):
    store = store_with(lane_events(0, CONTROL, SAME_U), lane_events(1, HOTTER, SAME_U))
    page = page_of(store)
    page.began(1)
    page.look()
    cooler = replace(HOTTER, temperature=0.3)
    page._edited_lane(replace(page.lanes.lanes[1], settings=cooler), False)
    assert page.wishes == [ChangeLane(1, cooler)]
    page.undo()
    assert page.wishes[1:] == [ChangeLane(1, HOTTER)]
    store.take(made.end(store.run((1, 0)).tokens))
    page._edited_lane(replace(page.lanes.lanes[0], settings=cooler), False)  # A has ended
    assert len(page.wishes) == 2


def test_a_change_while_it_writes_is_marked_at_its_word(page_of):
    store = store_with(lane_events(0, CONTROL, SAME_U), lane_events(1, HOTTER, SAME_U))
    page = page_of(store)
    page.began(1)
    store.take(ev.SettingsChanged(1, 1, AT + 1, replace(HOTTER, temperature=0.3)))
    page.look()
    _, b = columns(page)
    assert b.canvas.changed_at == {AT + 1: "word 6: T 2 → 0.3"}
    store.take(made.tokens([" on"], first=AT + 1, lane=1)[0])
    page.look()
    assert "T 2 → 0.3" in b.canvas._what_of(AT + 1)
    assert columns(page)[0].canvas.changed_at == {}


def test_a_text_says_when_it_was_written_with_other_settings(written):
    b = columns(written)[1]
    written.store.take(made.end(b.source.run.tokens, lane=1))
    written._edited_lane(replace(written.lanes.lanes[1], settings=replace(HOTTER, temperature=0.5)), False)
    assert b.figures_label.text().endswith("written with T 2")
    written.undo()
    assert "written with" not in b.figures_label.text()


def test_in_16_bits_lockstep_it_is_said_that_the_arithmetic_may_part_lanes(page_of):
    page = page_of()
    page.look()
    assert "the arithmetic of a batch, not the setting, may part two equal lanes" in page.bar._note()[0][0]
    page.bar.lockstep.setCurrentIndex(1)
    assert not page.lanes.lockstep
    assert page.bar._note()[0] == []
    exact = page_of(store_with(loaded=facts(precision="float32")))
    exact.look()
    assert exact.bar._note()[0] == []


def test_a_cache_that_would_not_fit_is_told_before_running(page_of):
    store = store_with()
    page = page_of(store)
    page.bar.set_prompt_tokens(44)
    store.take(ev.MemoryReading(1.0, 10**9, 20_000_000, 10**10))
    page.look()
    words, fits = page.bar.forecast()
    # Two lanes of 44 + 256 tokens, 23,040 bytes each.
    assert fits
    assert "14 MB for 2 lanes of 300 tokens" in words[0]
    for _ in range(6):
        page.add_action.trigger()
    words, fits = page.bar.forecast()
    assert not fits
    assert "8 lanes of 300 tokens need 55 MB of KV cache, and 20 MB are free" in words[0]


def test_a_prompt_that_was_not_read_yet_is_in_no_forecast(page_of):
    page = page_of()
    assert "+ prompts" in page.bar.forecast()[0][-1]
    page.bar.set_prompt_tokens(44)
    assert "14 MB for 2 lanes of 300 tokens" in page.bar.forecast()[0][0]
    page.take(page.lanes.with_lane(replace(page.lanes.lanes[1], own=LanePrompt("another"))))
    # 44 + 256 tokens and 256, 23,040 bytes each.
    assert page.bar.forecast()[0][0].startswith("KV cache: at most 13 MB for 2 lanes, and prompts that were not read")


def test_on_a_gpu_what_the_driver_leaves_and_the_allocator_keeps_is_free(qapp):
    store = store_with(loaded=facts(devices=("cuda:0",)))
    assert free_bytes(store) is None
    for used, free in ((7_000, 5_000), (None, 7_000)):  # the driver need not tell: then what the allocator took counts
        gpu = ev.GpuReading("", allocated_bytes=3_000, reserved_bytes=5_000, driver_used_bytes=used, total_bytes=10_000)
        store.take(ev.MemoryReading(1.0, 1, 10**9, 10**10, (gpu,)))
        assert free_bytes(store) == free


# ---------------------------------------------------------------- runs from elsewhere


def test_runs_that_are_put_side_by_side_elsewhere_become_the_lanes(page_of):
    store = store_with(
        lane_events(0, CONTROL, SAME_U, name="calm", prompt="p"),
        lane_events(1, HOTTER, SAME_U, name="", prompt="p", system="be wild"),
    )
    page = page_of(store, GREEDY, GREEDY)
    page.set_prompt(LanePrompt("p"), raw=False)
    store.compare([store.run((1, 0)), store.run((1, 1))])
    page.look()
    assert [(lane.name, lane.settings) for lane in page.lanes.lanes] == [("calm", CONTROL), ("", HOTTER)]
    assert [lane.own for lane in page.lanes.lanes] == [None, LanePrompt("p", "be wild")]
    assert columns(page)[1].watch.parting.step == AT
    page.undo()
    assert [lane.settings for lane in page.lanes.lanes] == [GREEDY, GREEDY]


def test_a_recording_whose_runs_have_the_same_numbers_is_not_taken_for_what_was_written_here(written):
    before = written.lanes
    events = [*lane_events(0, GREEDY, None, lanes=2), *lane_events(1, GREEDY, None, lanes=2)]
    written.store.take_runs(made.recorded(events))
    written.look()
    assert [lane.settings for lane in written.lanes.lanes] == [GREEDY, GREEDY]
    written.undo()
    assert written.lanes == before
    assert [column.source.run for column in columns(written)] == [None, None, None]


def test_of_more_lanes_than_there_is_room_for_the_rest_is_counted(page_of):
    lanes = [lane_events(n, CONTROL, SAME_U, lanes=10) for n in range(10)]
    store = store_with(*lanes)
    page = page_of(store)
    store.compare(store.runs)
    page.look()
    assert len(page.lanes.lanes) == 8
    assert page.bar._note()[0] == ["not shown: 2 more lanes; 8 stand side by side", "2 more lanes"]
    store.compare(store.runs[1:])
    page.look()
    assert page.bar._note()[0][1] == "1 more lane"


def test_lanes_are_remembered_as_plain_data(page_of):
    page = page_of(None, CONTROL, HOTTER, GREEDY)
    page.take(page.lanes.with_lane(replace(page.lanes.lanes[2], name="贪心", own=LanePrompt("p", "s"))))
    page.take(replace(page.lanes, reference=page.lanes.lanes[1].key, lockstep=False, max_new_tokens=9))
    again = LaneSet.from_dict(page.lanes.as_dict())
    assert again == page.lanes


def test_every_control_has_a_name(page_of, qtbot):
    from tests.app.test_access import nameless

    page = page_of()
    page.edit(page.lanes.lanes[0].key)
    page.editor.own_box.click()
    page.editor.more_button.setChecked(True)
    page.vary_action.trigger()
    assert nameless(page) == []
    assert nameless(page.editor) == []
    assert nameless(page._vary) == []
    page._vary.close()
    page.editor.close()
