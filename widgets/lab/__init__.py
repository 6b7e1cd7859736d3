"""Pages of the laboratory: what stands in the window's centre in place of text and timeline.

A page is a widget made by `factory(store)` when it is first shown, with `refresh()`, called when it comes into view
and at the store's frames while it is seen, never otherwise. What it wants goes out by a signal `asked` of one frozen
object; answers come back through the store. `app/laboratory.py` shows the pages and routes what they ask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class LabPage:
    """title, hint: untranslated, context "Laboratory". keeps: names of the docks that stay beside the page.

    module: where its class lies, imported when it is first shown, so that the window starts quickly.
    """

    name: str
    title: str
    hint: str
    key: str
    module: str
    kind: str
    keeps: tuple[str, ...] = ()

    @property
    def factory(self) -> Callable[[Any], Any]:
        from importlib import import_module

        return getattr(import_module(self.module), self.kind)


PAGES: tuple[LabPage, ...] = (
    LabPage(
        "lanes",
        "Lanes",
        "Several settings side by side: one prompt, one prefill, the same draws",
        "Ctrl+Shift+1",
        "widgets.lab.lanes_page",
        "LanesPage",
        keeps=("word",),
    ),
    LabPage(
        "forks",
        "Forks",
        "How texts grew out of one another",
        "Ctrl+Shift+2",
        "widgets.lab.forks_page",
        "ForksPage",
        keeps=("word",),
    ),
    LabPage(
        "futures",
        "Futures",
        "A hundred continuations of one beginning, as a tree with shares",
        "Ctrl+Shift+3",
        "widgets.lab.futures_page",
        "FuturesPage",
    ),
    LabPage(
        "sweep",
        "Sweep",
        "A grid over two settings, and what came of it",
        "Ctrl+Shift+4",
        "widgets.lab.sweep_page",
        "SweepPage",
        keeps=("write",),
    ),
    LabPage(
        "luck",
        "Luck or setting?",
        "Many seeds for each of two settings: what is the setting's doing, and what could be luck",
        "Ctrl+Shift+5",
        "widgets.lab.luck_page",
        "LuckPage",
        keeps=("write",),
    ),
    LabPage(
        "blind",
        "Blind test",
        "Texts without their names, votes, and what may be said of them",
        "Ctrl+Shift+6",
        "widgets.lab.blind_page",
        "BlindPage",
    ),
    LabPage(
        "order",
        "Order of filters",
        "Temperature first or last: how many words are left, and which filter cut each of the others",
        "Ctrl+Shift+7",
        "widgets.lab.order_page",
        "OrderPage",
        keeps=("word",),
    ),
)
