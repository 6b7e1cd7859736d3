from __future__ import annotations

import pytest
from PySide6.QtGui import QImage, QPainter

from engine.settings import SamplingSettings
from tests.widgets import events_factory as make
from widgets import theme
from widgets.candidate_rows import LEAST_BAR, Rows

PENALISED = SamplingSettings(repetition_penalty=1.3)
BIASED = SamplingSettings(logit_bias=((10, 3.0), (11, -2.0)))
CUT_TOO = SamplingSettings(repetition_penalty=1.3, top_k=3)


def rows_of(settings: SamplingSettings, width: float, text: str = " river") -> Rows:
    """One word with nearly all of the odds, so that its bar is nearly as long as a bar can be."""
    event = make.token(0, text, prob=0.97, settings=settings, history=[10, 11, 12])
    return Rows(event.candidates[:6], width)


def painted(rows: Rows, index: int) -> QImage:
    image = QImage(round(rows.width), round(rows.height), QImage.Format.Format_RGB32)
    image.fill(theme.current().panel)
    with QPainter(image) as painter:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        rows.paint(painter, index, 0.0, before=False)
    return image


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("settings", [PENALISED, BIASED, CUT_TOO])
@pytest.mark.parametrize("text", [" river", "量子计算是一种利用"])
@pytest.mark.parametrize("width", [220, 260, 300, 380, 620])
def test_no_word_stands_on_a_bar_whatever_its_width(qtbot, width, text, settings, mode):
    theme.set_mode(mode)
    rows = rows_of(settings, width, text)
    candidate = rows.candidates[0]
    assert candidate.penalty or candidate.bias
    image, middle = painted(rows, 0), round(rows.height / 2)
    end = rows.bar_left + rows.bar_width * candidate.final
    for x in range(round(rows.bar_left) + 3, round(end) - 3):
        assert image.pixelColor(x, middle) == theme.current().probability


@pytest.mark.parametrize("settings", [PENALISED, BIASED, CUT_TOO, SamplingSettings()])
@pytest.mark.parametrize("width", range(220, 640, 20))
def test_label_bar_word_and_figures_stand_beside_one_another(qtbot, width, settings):
    rows = rows_of(settings, width)
    assert rows.bar_width >= LEAST_BAR
    figures = width - rows.before_width - rows.after_width
    assert rows.bar_left + rows.bar_width + rows.notes_width <= figures
    assert rows.label_width < rows.bar_left


def test_where_a_word_has_no_room_an_arrow_says_where_the_logit_went(qtbot):
    wide, narrow = rows_of(BIASED, 400), rows_of(BIASED, 230)
    assert 0.0 < narrow.notes_width < wide.notes_width
    assert rows_of(SamplingSettings(), 230).notes_width == 0.0
