"""A box with a page of its own shows it; the others keep the table of facts."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from tests.widgets.facts import facts
from widgets import box_view, boxes
from widgets.box_view import BoxView
from widgets.run_store import RunStore


class Page(QWidget):
    asked = Signal(object)
    made = 0

    def __init__(self, store: RunStore) -> None:
        super().__init__()
        Page.made += 1
        self.store, self.refreshed = store, 0

    def refresh(self) -> None:
        self.refreshed += 1


def test_a_page_is_made_when_first_shown_and_refreshed_only_while_it_is_seen(qtbot, monkeypatch):
    monkeypatch.setitem(boxes.PAGES, "placement", Page)
    assert box_view.PAGES is boxes.PAGES
    Page.made = 0
    store = RunStore()
    store.facts = facts()
    view = BoxView(store)
    qtbot.addWidget(view)
    view.show_box("tokenise")
    view.show()
    assert Page.made == 0
    view.show_box("placement")
    page = view.page("placement")
    assert isinstance(page, Page)
    assert Page.made == 1
    assert page.isVisible()
    assert page.refreshed > 0
    view.show_box("embed")
    seen = page.refreshed
    store.frame.emit()
    assert page.refreshed == seen
    assert not page.isVisible()
    view.show_box("placement")
    assert view.page("placement") is page
    assert page.refreshed == seen + 1
    view.hide()
    seen = page.refreshed
    store.frame.emit()
    assert page.refreshed == seen
    view.show()
    assert page.refreshed > seen


def test_what_a_page_asks_goes_out_through_the_view(qtbot, monkeypatch):
    monkeypatch.setitem(boxes.PAGES, "placement", Page)
    view = BoxView(RunStore())
    qtbot.addWidget(view)
    page = view.page("placement")
    with qtbot.waitSignal(view.asked) as heard:
        page.asked.emit(("a question",))
    assert heard.args == [("a question",)]
