import pytest
from PySide6.QtGui import QFontMetrics
from PySide6.QtWidgets import QHBoxLayout, QWidget

from widgets import theme
from widgets.panel import Panel, PlainLabel, scrolling


def test_a_short_title_is_never_cut_by_figures_beside_it(qtbot, qapp):
    theme.set_mode("light")
    theme.apply(qapp)
    panel = Panel("KV cache")
    qtbot.addWidget(panel)
    panel.set_remark("3.0 MB · 131 tokens, and more than that")
    panel.resize(220, 120)
    panel.show()
    label = panel.title_label
    assert label.font().bold()
    assert label.width() >= QFontMetrics(label.font()).horizontalAdvance("KV cache")


@pytest.mark.parametrize(("width", "shown"), [(700, "Uncertainty by token"), (220, "Uncertainty")])
def test_a_long_title_gives_way_word_by_word(qtbot, width, shown):
    panel = Panel("")
    qtbot.addWidget(panel)
    panel.set_title("Uncertainty by token, drag to go back in time " * 2, "Uncertainty by token", "Uncertainty")
    panel.set_remark("token 92 of 96")
    panel.resize(width, 120)
    panel.show()
    assert panel.title_label.text() == shown


def test_what_scrolls_up_and_down_alone_is_never_narrower_than_what_it_holds(qtbot):
    held = QWidget()
    row = QHBoxLayout(held)
    for _ in range(3):
        row.addWidget(PlainLabel("a value that must be seen"))
    area = scrolling(held)
    qtbot.addWidget(area)
    assert (
        area.minimumSizeHint().width() >= held.minimumSizeHint().width() + area.verticalScrollBar().sizeHint().width()
    )
