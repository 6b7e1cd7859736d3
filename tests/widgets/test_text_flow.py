from __future__ import annotations

from itertools import groupby, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PySide6.QtCore import QPointF
from PySide6.QtGui import QTextLayout, QTextOption

from widgets import theme
from widgets.text_flow import TextFlow, utf16_length, utf16_split

LETTERS = st.sampled_from(
    [*"abc  .,", "量", "子", "。", "🌊", "𠮷", "é", "e\u0301", "👩\u200d👩\u200d👧", "\n", "\t", "ש", "ם", "م"]
)
PIECES = st.lists(st.lists(LETTERS, max_size=8).map("".join), max_size=40)


def flow_of(pieces, width=220.0):
    flow = TextFlow(theme.font(), width, 24.0)
    for step, text in enumerate(pieces):
        flow.append(step, text)
    flow.settle()
    return flow


def line_texts(flow):
    found = []
    for block in flow.blocks:
        layout = flow._laid_out(block)
        units = block.text.encode("utf-16-le")
        for number in range(block.lines if block.units else 0):
            line = layout.lineAt(number)
            start, end = line.textStart(), min(line.textStart() + line.textLength(), block.units)
            found.append(units[2 * start : 2 * end].decode("utf-16-le"))
    return found


@pytest.mark.usefixtures("qapp")
class TestGrowing:
    @given(PIECES)
    @settings(max_examples=60)
    def test_no_character_is_lost_or_doubled(self, pieces):
        flow = flow_of(pieces)
        assert "".join(block.text for block in flow.blocks) == "".join(pieces).replace("\n", " ")
        assert all(block.units == utf16_length(block.text) for block in flow.blocks)
        assert flow.lines == sum(block.lines for block in flow.blocks)

    def test_text_that_comes_by_the_token_lies_as_text_that_comes_at_once(self):
        # The right answer is Qt's own layout of the whole paragraph.
        words = [
            "The",
            *(f" {w}" for w in ["river", "河流", "begins", "🌊", "as", "meltwater，high", "in", "the", "mountains。"]),
        ] * 130
        text = "".join(words)
        whole = QTextLayout(text, theme.font())
        option = QTextOption()
        option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        whole.setTextOption(option)
        units, expected = text.encode("utf-16-le"), []
        whole.beginLayout()
        while (line := whole.createLine()).isValid():
            line.setLineWidth(220.0)
            expected.append(
                units[2 * line.textStart() : 2 * (line.textStart() + line.textLength())].decode("utf-16-le")
            )
        whole.endLayout()
        flow = TextFlow(theme.font(), 220.0, 24.0)
        for step, word in enumerate(words):
            flow.append(step, word)
            flow.settle()
        assert len(flow.blocks) > 3
        assert line_texts(flow) == expected

    def test_an_endless_word_is_cut_where_the_line_ends(self):
        flow = flow_of(["x" * 50] * 100)
        assert "".join(line_texts(flow)) == "x" * 5000
        assert flow.lines > 100

    def test_thousands_of_line_breaks_are_lines(self):
        flow = flow_of(["\n"] * 3000)
        assert flow.lines == 3001


@pytest.mark.usefixtures("qapp")
class TestPointing:
    @given(PIECES)
    @settings(max_examples=60)
    def test_the_middle_of_a_tokens_place_is_that_token(self, pieces):
        flow = flow_of(pieces)
        for piece in flow.pieces(0, flow.lines):
            if piece.rect.width() > 1.0:
                assert flow.step_at(piece.rect.center()) == piece.step

    @given(PIECES)
    @settings(max_examples=60)
    def test_places_of_tokens_do_not_overlap(self, pieces):
        flow = flow_of(pieces)
        for _, row in groupby(flow.pieces(0, flow.lines), key=lambda piece: piece.rect.top()):
            spans = sorted((piece.rect.left(), piece.rect.right()) for piece in row if piece.rect.width() > 0)
            assert all(left[1] <= right[0] + 0.51 for left, right in pairwise(spans))

    @given(PIECES)
    @settings(max_examples=60)
    def test_a_token_is_found_on_its_lines(self, pieces):
        flow = flow_of(pieces)
        tops: dict[int, list[int]] = {}
        for piece in flow.pieces(0, flow.lines):
            tops.setdefault(piece.step, []).append(round(piece.rect.top() / flow.line_height))
        for step, lines in tops.items():
            first, last = flow.lines_of(step)
            assert first <= min(lines)
            assert max(lines) <= last

    @pytest.mark.parametrize("before", ["A ", "A 🌊👩\u200d👩\u200d👧 ", "𠮷野家", "e\u0301t", "量子"])
    def test_characters_of_two_units_do_not_shift_the_next_token(self, before):
        flow = flow_of([before, "hit", " after"], width=400.0)
        places = {piece.step: piece.rect for piece in flow.pieces(0, 0)}
        width = flow.metrics.horizontalAdvance("hit")
        assert places[1].width() == pytest.approx(width, abs=1.5)
        assert places[1].left() == pytest.approx(places[0].right())
        for share in (0.1, 0.5, 0.9):
            assert flow.step_at(places[1].topLeft() + QPointF(share * places[1].width(), 5)) == 1

    def test_beside_the_text_there_is_no_token(self):
        flow = flow_of(["one", "\n", "two"], width=400.0)
        assert flow.step_at(QPointF(390.0, 5.0)) is None
        assert flow.step_at(QPointF(-5.0, 5.0)) is None
        assert flow.step_at(QPointF(5.0, -5.0)) is None
        assert flow.step_at(QPointF(5.0, 24.0 * 2 + 5)) is None
        assert flow.step_at(QPointF(5.0, 24.0 + 5)) == 2

    def test_right_to_left_words_are_hit_where_they_stand(self):
        flow = flow_of(["abc ", "שלום", " עולם", " xyz"], width=400.0)
        places = {piece.step: piece.rect for piece in flow.pieces(0, 0)}
        assert places[2].left() < places[1].left()  # the second word stands left of the first
        assert flow.step_at(places[1].center()) == 1
        assert flow.step_at(places[2].center()) == 2


@given(st.text(), st.integers(0, 60))
def test_cutting_by_units_agrees_with_utf16(text, units):
    text = "".join(c for c in text if not "\ud800" <= c <= "\udfff")
    edges = {utf16_length(text[:i]) for i in range(len(text) + 1)}
    assert utf16_length(text) == len(text.encode("utf-16-le")) // 2
    if units in edges:
        first, rest = utf16_split(text, units)
        assert first + rest == text
        assert utf16_length(first) == units
