"""A hundred futures drawn: heights are shares, rare ways are merged and can be opened, every word can be read."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QFontMetricsF

from engine.events import Answered, ExperimentProgress, FirstWord, Future, Futures, tree_of
from engine.settings import ForkWish, FuturesQuestion, FuturesWish, Parent, Request, SamplingSettings
from tests.widgets import events_factory as make
from tests.widgets.facts import facts
from widgets import theme
from widgets.lab.experiment_wishes import StopExperiment
from widgets.lab.futures_layout import ENDED, OTHERS, WORDS, columns, lay_out
from widgets.lab.futures_page import FuturesPage
from widgets.lab.futures_picture import FuturesPicture
from widgets.lab.wrapped import wrapped
from widgets.run_store import RunStore

IDS: dict[str, int] = {}


def future(seed: int, text: str, reason: str = "length") -> Future:
    """Each word with its space is a token."""
    words = tuple(re.findall(" ?[^ ]+", text))
    return Future(seed, tuple(IDS.setdefault(w, len(IDS)) for w in words), words, words, reason=reason)


def question(count: int = 20, tokens: int = 4, number: int = 0) -> FuturesQuestion:
    written = tuple(token.token_id for token in make.tokens(make.words("So the river")))
    settings = SamplingSettings(seed=100)
    request = Request(0, "p", lanes=(settings,), parent=Parent(1, 0, 3), written=written, max_new_tokens=9)
    return FuturesQuestion(request, count, tokens, number)


def river(**changes) -> Futures:
    texts = [" runs to the sea"] * 7 + [" runs to the hills"] * 5 + [" bends here"] * 4
    texts += [" sleeps now", " stops", " stops there", " 流过山谷"]
    futures = tuple(future(100 + seed, text) for seed, text in enumerate(texts))
    first = (FirstWord(IDS[" runs"], " runs", 0.55), FirstWord(IDS[" bends"], " bends", 0.25))
    return replace(Futures(question(), futures, first, "So the river", whole=True, batches=1), **changes)


@pytest.fixture
def picture(qtbot):
    theme.set_mode("light")
    picture = FuturesPicture()
    qtbot.addWidget(picture)
    picture.resize(900, 400)
    picture.show()
    picture.set_found(river())
    return picture


def named(picture, words):
    return next(box for box in picture.boxes if picture.said.words(box) == words)


# ---------------------------------------------------------------- heights and words


def test_a_boxs_height_is_its_share(picture):
    for words, count in (("runs to the", 12), ("sea", 7), ("hills", 5), ("bends here", 4)):
        box = named(picture, words)
        assert box.height == pytest.approx(count / 20)
        assert picture.rect_of(box).height() == pytest.approx(count / 20 * picture.viewport().height() - 2.0, abs=0.6)
    for box in picture.boxes:
        assert sum(child.height for child in box.children) == pytest.approx(box.height if box.children else 0.0)


def test_the_beginning_stands_at_the_edge_of_its_box(picture):
    picture.set_found(river(begins_with=" So the river"))
    assert named(picture, "So the river").parent is None


def test_rare_ways_are_one_box_of_others():
    root = tree_of(river().futures)
    boxes = lay_out(root, 0.15)
    (others,) = (box for box in boxes if box.kind == OTHERS)
    assert (others.count, len(others.node.children)) == (4, 3)
    assert columns(boxes) == 3
    fine = lay_out(root, 0.01)
    assert not any(box.kind == OTHERS for box in fine)
    assert [box.count for box in fine if box.kind == ENDED] == [1]  # " stops" and no more
    assert lay_out(tree_of([]), 0.1) == []


def test_the_first_words_stand_beside_their_exact_odds(picture):
    assert picture.said.share(named(picture, "runs to the")) == "12 of 20 · expected 55.0%"
    assert picture.said.share(named(picture, "sea")) == "7 of 20"
    about = picture.said.about(named(picture, "bends here"))
    assert "4 of 20 futures (20.0%)" in about
    assert "Expected 25.00%" in about
    assert "by about 9.7%" in about  # sqrt(0.25 * 0.75 / 20)
    assert " bends here" in about


def test_what_the_text_itself_wrote_is_marked(picture):
    written = tuple(IDS[word] for word in (" runs", " to", " the", " sea"))
    picture.set_found(river(begins_with="x"), written)
    assert picture.said.is_written(named(picture, "sea"))
    assert picture.said.is_written(named(picture, "runs to the"))
    assert not picture.said.is_written(named(picture, "hills"))
    assert "The text itself went this way." in picture.said.about(named(picture, "sea"))


@pytest.mark.parametrize(
    "text",
    ["a river runs to the far and cold sea and never back", "河水流过山谷，穿过城市，最后流入大海" * 3, "x" * 200],
)
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_words_that_find_no_room_end_in_an_ellipsis(qapp, text, rows):
    font, width = theme.font(1), 120.0
    for where in (Qt.TextElideMode.ElideRight, Qt.TextElideMode.ElideLeft):
        lines = wrapped(text, font, width, rows, where)
        assert 1 <= len(lines) <= rows
        assert all(QFontMetricsF(font).horizontalAdvance(line) <= width + 1.0 for line in lines)
        joined = "".join(lines).replace(" ", "")
        if where == Qt.TextElideMode.ElideRight:
            assert joined == text.replace(" ", "") or joined.endswith("…")
        else:
            assert joined == text.replace(" ", "") or joined.startswith("…")


def test_a_thin_box_says_in_its_tool_tip_what_it_has_no_room_for(picture):
    picture.resize(500, 60)
    for box in picture.boxes:
        assert picture.said.about(box)
    picture.grab()


# ---------------------------------------------------------------- hand and keys


def test_others_open_and_their_words_get_lines_of_their_own(picture, qtbot):
    picture.resize(900, 110)
    others = next(box for box in picture.boxes if box.kind == OTHERS and box.parent is picture.boxes[0])
    qtbot.mouseDClick(picture.viewport(), Qt.MouseButton.LeftButton, pos=picture.rect_of(others).center().toPoint())
    assert len(picture.roots) == 2
    assert picture.boxes[0].count == others.count
    assert not any(box.kind == OTHERS for box in picture.boxes)
    assert any("流过山谷" in picture.said.words(box) for box in picture.boxes)
    qtbot.keyClick(picture, Qt.Key.Key_Escape)
    assert len(picture.roots) == 1


def flat(count: int) -> Futures:
    """Each begins with another word."""
    return river(futures=tuple(future(seed, f" first{seed} then more") for seed in range(count)))


def test_where_every_first_word_is_rare_each_has_a_line_at_once(picture):
    picture.set_found(flat(100))
    assert len(picture.boxes[0].children) == 100
    assert not any(box.kind == OTHERS for box in picture.boxes)
    assert all(picture.rect_of(box).height() > picture._line for box in picture.boxes)
    assert picture.verticalScrollBar().maximum() > 0
    picture.setFocus()
    picture.choose(picture.boxes[-1])  # it is scrolled to
    assert picture.viewport().rect().contains(picture.rect_of(picture.chosen).center().toPoint())


def test_others_say_their_share_what_was_expected_and_how_to_open_them(picture):
    picture.resize(900, 110)
    others = next(box for box in picture.boxes if box.kind == OTHERS)
    assert picture.said.words(others) == "others: 4 of 20, in 3 ways"
    assert picture.said.share(others) == "20.0% · expected 20.0% · Return opens them"  # 1 - 0.55 - 0.25
    about = picture.said.about(others)
    assert "4 of 20 futures (20.0%)" in about
    assert "Expected 20.00%" in about
    assert "each then has a line of its own" in about
    picture.set_found(river(first=()))
    others = next(box for box in picture.boxes if box.kind == OTHERS)
    assert picture.said.share(others) == "20.0% · Return opens them"  # the odds of the others are not known


def test_others_that_were_opened_stay_open_while_more_are_written(picture, qtbot):
    picture.resize(900, 110)
    picture.setFocus()
    picture.choose(next(box for box in picture.boxes if box.kind == OTHERS))
    qtbot.keyClick(picture, Qt.Key.Key_Return)
    ways = len(picture.boxes[0].children)
    more = river()
    picture.set_found(replace(more, futures=(*more.futures, future(900, " stops at noon"))))
    assert len(picture.roots) == 2
    assert len(picture.boxes[0].children) == ways
    assert picture.boxes[0].count == 5
    qtbot.keyClick(picture, Qt.Key.Key_Escape)
    assert len(picture.roots) == 1


@pytest.mark.parametrize("height", [60, 140, 400])
@pytest.mark.parametrize("kinds", [2, 9, 60, 400])
def test_every_future_is_reached_by_keys_alone(picture, qtbot, height, kinds):
    """Into every box and out again: each future is a box of its own, or stands in the list behind one."""
    dice = random.Random(kinds)
    texts = [" ".join(f"w{dice.randrange(kinds)}" for _ in range(3)) for _ in range(60)]
    picture.resize(500, height)
    picture.set_found(river(futures=tuple(future(seed, f" {text}") for seed, text in enumerate(texts))))
    alone: set[int] = set()
    ways: list[list[tuple[int, ...]]] = [[]]  # how to get to each picture that was not seen yet
    seen: set[tuple[int, ...]] = set()
    while ways:
        way = ways.pop()
        while len(picture.roots) > 1:
            qtbot.keyClick(picture, Qt.Key.Key_Escape)
        for futures in way:
            picture.choose(next(box for box in picture.boxes[1:] if box.node.futures == futures))
            qtbot.keyClick(picture, Qt.Key.Key_Return)
        for box in picture.boxes[1:]:
            picture.choose(box)
            if box.kind == WORDS and (box.count == 1 or not box.node.children):
                alone.update(box.node.futures)
            elif picture.can_enter and box.node.futures not in seen:
                seen.add(box.node.futures)
                ways.append([*way, box.node.futures])
    assert alone == set(range(60))


def test_the_keys_walk_the_tree(picture, qtbot):
    picture.setFocus()
    for key, words in (
        (Qt.Key.Key_Right, "So the river"), (Qt.Key.Key_Right, "runs to the"), (Qt.Key.Key_Down, "bends here"),
        (Qt.Key.Key_Up, "runs to the"), (Qt.Key.Key_Right, "sea"), (Qt.Key.Key_Down, "hills"),
        (Qt.Key.Key_Left, "runs to the"), (Qt.Key.Key_Home, "So the river"),
    ):  # fmt: skip
        qtbot.keyClick(picture, key)
        assert picture.said.words(picture.chosen) == words
    assert "20 of 20 futures" in picture.accessibleDescription()


def test_return_goes_in_and_on_a_single_one_opens_it(picture, qtbot):
    opened = []
    picture.opened.connect(opened.append)
    picture.choose(named(picture, "runs to the"))
    qtbot.keyClick(picture, Qt.Key.Key_Return)
    assert picture.boxes[0].count == 12
    assert picture.said.words(picture.boxes[0]) == "So the river runs to the"
    picture.choose(named(picture, "sea"))
    qtbot.keyClick(picture, Qt.Key.Key_Return)
    assert picture.boxes[0].count == 7
    qtbot.keyClick(picture, Qt.Key.Key_Backspace)
    qtbot.keyClick(picture, Qt.Key.Key_Backspace)
    picture.choose(named(picture, "sleeps now"))
    qtbot.keyClick(picture, Qt.Key.Key_Return)
    assert opened == [16]


def test_what_grows_keeps_what_was_zoomed_into(picture):
    picture.choose(named(picture, "runs to the"))
    picture.enter()
    more = river()
    picture.set_found(replace(more, futures=(*more.futures, future(900, " runs to the moon"))))
    assert len(picture.roots) == 2
    assert picture.boxes[0].count == 13


def test_words_grow_for_a_projector(picture):
    before = QFontMetricsF(picture._word).height()
    picture.zoom_text(12)
    assert QFontMetricsF(picture._word).height() > before + 8
    picture.grab()


# ---------------------------------------------------------------- the page


@pytest.fixture
def page(qtbot):
    theme.set_mode("light")
    store = RunStore()
    store.facts = facts()
    tokens = make.tokens(make.words("So the river runs to the sea"))
    for event in (make.start(), *tokens, make.end(tokens)):
        store.take(event)
    page = FuturesPage(store)
    qtbot.addWidget(page)
    page.resize(1000, 700)
    page.show()
    page.heard = []
    page.asked.connect(page.heard.append)
    page.refresh()
    return page


def test_they_begin_in_place_of_the_selected_word(page, qtbot):
    assert page.word.value() == 1
    page.store.select(3)
    assert page.word.value() == 4
    assert "in place of “·runs”" in page.question_panel.remark_label.text()
    page.count.setValue(40)
    page.tokens.setValue(12)
    page.whose.setCurrentIndex(1)
    qtbot.mouseClick(page.bar.start, Qt.MouseButton.LeftButton)
    assert page.heard == [FuturesWish(Parent(1, 0, 3), 40, 12, True)]
    page.word.setValue(6)
    assert page.store.selected_step == 5
    page.word.setValue(8)
    assert "after its last word" in page.question_panel.remark_label.text()


def test_progress_shows_what_is_there_and_the_answer_all(page):
    asked = question()
    page.store.set_activity("experiment")
    page.begun(asked)
    assert page.bar.cancel.isVisible()
    some = river(whole=False)
    some = replace(some, futures=tuple(replace(f, reason="") for f in some.futures[:6]))
    page.store.take(ExperimentProgress(asked, 10, 80, partial=some))
    page.refresh()
    assert page.found is some
    assert page.model.rowCount() == 6
    page.bar.cancel.click()
    assert page.heard == [StopExperiment()]
    page.store.take(Answered(asked, river()))
    page.store.set_activity("idle")
    page.refresh()
    assert page.model.rowCount() == 20
    assert "effective number" in page.figures.text()
    assert not page.bar.cancel.isVisible()


def test_the_figures_say_how_many_futures_there_really_are(page):
    page._show(river())
    text = page.figures._wordings[0]
    assert "they share no word" in text
    assert "7 different texts" in text
    assert "after 1 token, " in text  # the unit, once
    # Shares 7, 5, 4, 1, 1, 1, 1 of 20 at the end, by hand: exp(1.6258) = 5.1.
    assert text.endswith("5.1 at the end")
    same = river(futures=tuple(future(seed, " runs to the sea") for seed in range(3)))
    page._show(same)
    assert "all share the first 4 tokens · one text · " in page.figures._wordings[0]
    page._show(river(futures=(future(1, " runs"),)))
    assert "there is one future" in page.figures._wordings[0]


def test_a_box_lists_its_continuations_and_one_goes_on_as_a_fork(page, qtbot):
    page._show(river())
    page.picture.choose(named(page.picture, "hills"))
    assert page.model.rowCount() == 5
    assert "5 of 20" in page.list_panel.title_label.text()
    qtbot.mouseClick(page.open_button, Qt.MouseButton.LeftButton)
    (wish,) = page.heard
    assert isinstance(wish, ForkWish)
    assert wish.parent == Parent(1, 0, 3)
    assert wish.forced == river().futures[7].token_ids
    assert wish.settings.seed == 107


def test_others_are_opened_with_the_mouse_by_a_button(page, qtbot):
    page._show(river())
    page.picture.zoom_text(14)
    assert not page.in_button.isVisible()
    page.picture.choose(next(box for box in page.picture.boxes if box.kind == OTHERS))
    assert page.in_button.isVisible()
    qtbot.mouseClick(page.in_button, Qt.MouseButton.LeftButton)
    assert len(page.picture.roots) == 2
    assert page.out_button.isVisible()
    qtbot.mouseClick(page.out_button, Qt.MouseButton.LeftButton)
    assert len(page.picture.roots) == 1


def test_a_text_that_is_gone_is_not_taken_for_another_one(page):
    page._show(river())
    page.store.take_runs(make.recorded([make.start(), *make.tokens(["a", "b"])]))
    page.go_on_with(0)
    assert page.heard == []
    assert "no longer here" in page.bar.error.text()


def test_an_error_is_told_where_it_was_asked(page):
    from engine.events import EngineError

    asked = question()
    page.begun(asked)
    page.store.take(Answered(asked, EngineError("The memory is full.", "Ask for fewer.", 4, "question")))
    page.refresh()
    assert "The memory is full." in page.bar.error.text()


def test_without_a_text_the_page_teaches(qtbot):
    store = RunStore()
    page = FuturesPage(store)
    qtbot.addWidget(page)
    page.show()
    page.refresh()
    page.ask()
    assert not page.bar.start.isEnabled()
    page.grab()


def test_the_fields_are_remembered_and_nonsense_changes_nothing(page):
    page.count.setValue(64)
    page.restore({"count": 9999, "tokens": "x", "own": 3})
    assert page.state() == {"count": 256, "tokens": 24, "own": False, "text_size": 1}
    page.restore({"count": 50, "tokens": 8, "own": True, "text_size": 9})
    assert page.state() == {"count": 50, "tokens": 8, "own": True, "text_size": 9}


def test_it_is_painted_in_both_themes(page):
    page._show(river())
    for mode in ("dark", "light"):
        theme.set_mode(mode)
        page.grab()
    box = page.picture.box_at(QPointF(page.picture.viewport().rect().center()))
    assert box is not None
    assert page.picture.box_at(QPointF(QPoint(-5, -5))) is None
    assert box.kind in (WORDS, OTHERS, ENDED)
