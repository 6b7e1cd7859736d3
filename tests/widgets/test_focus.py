"""Whatever draws a mark of the focus is painted again when the focus comes and goes: Qt asks for it by itself, as long
as a viewport lets through what is below it."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QEvent, QObject
from PySide6.QtWidgets import QAbstractScrollArea, QPushButton, QVBoxLayout, QWidget

from widgets.candidate_list import CandidateList
from widgets.lab.fork_tree import ForkTree
from widgets.lab.futures_picture import FuturesPicture
from widgets.lab.heat_map import HeatMap
from widgets.lab.order_chips import OrderChips
from widgets.lab.strip_plot import StripPlot
from widgets.run_store import RunStore
from widgets.xray_text import XrayText


class Paints(QObject):
    """Counts how often a widget is painted."""

    count = 0

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        self.count += event.type() == QEvent.Type.Paint
        return super().eventFilter(watched, event)


@pytest.mark.parametrize("kind", [CandidateList, ForkTree, FuturesPicture, HeatMap, OrderChips, StripPlot, XrayText])
def test_it_is_painted_again_when_the_focus_comes_and_goes(qtbot, kind):
    home = QWidget()
    column = QVBoxLayout(home)
    button = QPushButton("elsewhere")
    shown = kind(RunStore()) if kind is ForkTree else kind()
    shown.setMinimumHeight(40)
    column.addWidget(button)
    column.addWidget(shown)
    qtbot.addWidget(home)
    home.resize(500, 400)
    with qtbot.waitActive(home):
        home.show()
        home.activateWindow()
    button.setFocus()
    paints = Paints()
    (shown.viewport() if isinstance(shown, QAbstractScrollArea) else shown).installEventFilter(paints)
    for widget in (shown, button):
        qtbot.wait(0)
        before = paints.count
        widget.setFocus()
        assert widget.hasFocus()
        qtbot.waitUntil(lambda before=before: paints.count > before)
