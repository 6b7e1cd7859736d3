"""The row of pages: every title that stands there is read whole, and the others are in its menu."""

from __future__ import annotations

import pytest

from widgets.lab import PAGES
from widgets.lab.tabs import Tabs


@pytest.fixture
def tabs(qtbot):
    made = Tabs((page.name, page.title, page.hint) for page in PAGES)
    qtbot.addWidget(made)
    made.show()
    return made


def seen(tabs: Tabs) -> list[str]:
    return [tabs.tabText(at) for at in range(tabs.count()) if tabs.isTabVisible(at)]


def waiting(tabs: Tabs) -> list[str]:
    return [action.text() for action in tabs.menu.actions() if action.isVisible()]


@pytest.mark.parametrize("width", [200, 330, 405])
def test_a_title_is_whole_or_in_the_menu(tabs, width):
    tabs.resize(width, 30)
    assert seen(tabs) + waiting(tabs) == [page.title for page in PAGES]
    assert waiting(tabs)
    last = max(at for at in range(tabs.count()) if tabs.isTabVisible(at))
    assert tabs.tabRect(last).right() < tabs.more.x()


@pytest.mark.parametrize("width", [330, 405])
def test_a_window_that_becomes_narrow_scrolls_no_title_away(tabs, width):
    tabs.resize(1200, 30)
    tabs.choose(PAGES[-1].name)
    tabs.resize(width, 30)
    assert tabs.tabRect(0).left() >= 0
    assert seen(tabs)[-1] == PAGES[-1].title
    assert tabs.tabRect(tabs.currentIndex()).right() < tabs.more.x()


def test_in_a_wide_window_there_is_no_menu(tabs):
    tabs.resize(1200, 30)
    assert seen(tabs) == [page.title for page in PAGES]
    assert not tabs.more.isVisible()


def test_a_page_of_the_menu_takes_its_place_in_the_row(qtbot, tabs):
    tabs.resize(330, 30)
    action = tabs.menu.actions()[-1]
    with qtbot.waitSignal(tabs.chosen) as caught:
        action.trigger()
    assert caught.args == [PAGES[-1].name]
    assert seen(tabs)[-1] == PAGES[-1].title
    assert tabs.tabRect(tabs.currentIndex()).right() < tabs.more.x()
    tabs.choose(PAGES[0].name)
    assert PAGES[-1].title in waiting(tabs)
