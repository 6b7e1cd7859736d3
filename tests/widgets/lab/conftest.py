"""What the tests of pages share: a page over the store of a loaded model, and a list of what it asked for."""

from __future__ import annotations

import pytest

from engine import events as ev
from tests.widgets.facts import facts
from widgets.run_store import RunStore


@pytest.fixture
def shown(qtbot):
    """Shows a page of a kind; what it asks for is in `page.wishes`."""

    def build(kind):
        store = RunStore()
        store.take(ev.Loaded(facts()))
        page = kind(store)
        qtbot.addWidget(page)
        page.resize(1000, 700)
        page.wishes = []
        page.asked.connect(page.wishes.append)
        page.show()
        page.refresh()
        return page

    return build
