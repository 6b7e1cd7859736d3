"""Running text cut into lines, for text that grows at its end and may be one endless paragraph.

QTextEdit's cost of an appended token grows with the paragraph. Here a paragraph is laid out in blocks of some twenty
lines; only the newest block is laid out again when text arrives. Each piece of text belongs to a token, and positions
inside a block count UTF-16 units, as Qt does (THR-24).
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QFont, QFontMetricsF, QTextLayout, QTextLine, QTextOption

if TYPE_CHECKING:
    from engine.events import TokenEvent

BLOCK_UNITS = 1200  # a block longer than this is cut
LINES_OPEN = 2  # the last lines of a cut block move on, since the next characters may still pull at them


def utf16_length(text: str) -> int:
    """Length as Qt counts it: characters beyond U+FFFF are two."""
    return len(text) if text.isascii() else len(text) + sum(c > "\uffff" for c in text)


def utf16_split(text: str, units: int) -> tuple[str, str]:
    """The text cut in two after so many UTF-16 units."""
    if text.isascii():
        return text[:units], text[units:]
    data = text.encode("utf-16-le")
    return data[: 2 * units].decode("utf-16-le"), data[2 * units :].decode("utf-16-le")


_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]")


def has_right_to_left(text: str) -> bool:
    return _RIGHT_TO_LEFT.search(text) is not None


@dataclass(eq=False, slots=True)
class Block:
    """A piece of a paragraph. Token `steps[i]` covers the units from begins[i] to begins[i + 1] (or to `units`)."""

    first_line: int
    text: str = ""
    units: int = 0
    steps: list[int] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    lines: int = 1
    direction: Qt.LayoutDirection = Qt.LayoutDirection.LayoutDirectionAuto
    layout: QTextLayout | None = None
    stale: bool = True


class Piece(NamedTuple):
    """A token's text on one line: where it is drawn."""

    step: int
    rect: QRectF
    line: QTextLine
    origin: QPointF


class TextFlow:
    """Lines of equal height at one width. `append` text, then `settle` before asking where something is."""

    def __init__(self, font: QFont, width: float, line_height: float) -> None:
        self.font, self.width, self.line_height = font, max(40.0, width), line_height
        self.metrics = QFontMetricsF(font)
        self._widest = max(self.metrics.maxWidth(), line_height)
        self.blocks = [Block(0)]
        self._first_steps = [-1]  # of each block; the last step that began before it where it is still empty

    @property
    def lines(self) -> int:
        return self.blocks[-1].first_line + self.blocks[-1].lines

    # -- growing

    def append(self, step: int, text: str) -> None:
        """Adds a token's text as it is to be shown; line breaks are "\\n"."""
        if not text:
            return
        head, *rest = text.split("\n")
        for line in rest:
            self._add(step, head + " ")  # the blank stands for the line break: it can be pointed at, and never wraps
            self._close()
            head = line
        if head:
            self._add(step, head)
            if self.blocks[-1].units > BLOCK_UNITS:
                self._cut()

    def _add(self, step: int, text: str) -> None:
        block = self.blocks[-1]
        if not block.steps:
            self._first_steps[-1] = step
        if not block.steps or block.steps[-1] != step:
            block.steps.append(step)
            block.begins.append(block.units)
        block.text += text
        block.units += utf16_length(text)
        block.stale = True

    def _close(self) -> None:
        self.settle()
        self._open(self.lines, Qt.LayoutDirection.LayoutDirectionAuto)

    def _open(self, first_line: int, direction: Qt.LayoutDirection) -> Block:
        last = self.blocks[-1].steps
        block = Block(first_line, direction=direction)
        self.blocks.append(block)
        self._first_steps.append(last[-1] if last else self._first_steps[-1])
        return block

    def _cut(self) -> None:
        """Leaves all but the last lines in the block, and goes on in a new one."""
        block = self.blocks[-1]
        layout = self._laid_out(block)
        if layout.lineCount() <= LINES_OPEN + 1:
            return
        kept = layout.lineCount() - LINES_OPEN
        at = layout.lineAt(kept).textStart()
        direction = layout.textOption().textDirection()
        if direction == Qt.LayoutDirection.LayoutDirectionAuto:  # the paragraph's first letters decide for all of it
            rtl = has_right_to_left(next((c for c in block.text if c.isalpha()), ""))
            direction = Qt.LayoutDirection.RightToLeft if rtl else Qt.LayoutDirection.LeftToRight
        first, rest = utf16_split(block.text, at)
        index = bisect_right(block.begins, at) - 1
        moved = block.steps[index:], [max(0, begin - at) for begin in block.begins[index:]]
        border = index + (block.begins[index] < at)  # a token across the border has a part in both
        block.text, block.units, block.lines = first, at, kept
        del block.steps[border:], block.begins[border:]
        new = self._open(block.first_line + kept, direction)
        new.text, new.units = rest, utf16_length(rest)
        new.steps, new.begins = moved
        self._first_steps[-1] = new.steps[0]

    def settle(self) -> None:
        """Counts the lines of the newest block."""
        block = self.blocks[-1]
        if not block.stale:
            return
        if block.units * self._widest < self.width:
            block.lines, block.layout, block.stale = 1, None, False  # fits on a line for certain; laid out when painted
        else:
            self._laid_out(block)

    def _laid_out(self, block: Block) -> QTextLayout:
        if block.layout is not None and not block.stale:
            return block.layout
        layout = QTextLayout(block.text, self.font)
        option = QTextOption()
        option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        option.setTextDirection(block.direction)
        option.setTabStopDistance(4 * self.metrics.horizontalAdvance("n"))
        layout.setTextOption(option)
        layout.setCacheEnabled(True)
        baseline = (self.line_height + self.metrics.ascent() - self.metrics.descent()) / 2
        layout.beginLayout()
        count = 0
        while (line := layout.createLine()).isValid():
            line.setLineWidth(self.width)
            # Fonts that step in for other scripts are taller: all lines keep one distance and one baseline.
            line.setPosition(QPointF(0.0, count * self.line_height + baseline - line.ascent()))
            count += 1
        layout.endLayout()
        block.layout, block.lines, block.stale = layout, max(1, count), False
        return layout

    # -- asking

    def block_at_line(self, line: int) -> int:
        """Index of the block that holds a line of the whole text."""
        return max(0, bisect_right(self.blocks, line, key=_first_line) - 1)

    def pieces(self, first_line: int, last_line: int) -> Iterator[Piece]:
        """The tokens' parts on these lines, from top to bottom. Rectangles count from the text's own top left."""
        index = self.block_at_line(first_line)
        while index < len(self.blocks) and self.blocks[index].first_line <= last_line:
            yield from self._block_pieces(self.blocks[index], first_line, last_line)
            index += 1

    def _block_pieces(self, block: Block, first_line: int, last_line: int) -> Iterator[Piece]:
        if not block.units:
            return
        layout = self._laid_out(block)
        origin = QPointF(0.0, block.first_line * self.line_height)
        rtl = block.direction == Qt.LayoutDirection.RightToLeft or has_right_to_left(block.text)
        last = min(block.lines - 1, last_line - block.first_line)
        for number in range(max(0, first_line - block.first_line), last + 1):
            line = layout.lineAt(number)
            top = (block.first_line + number) * self.line_height
            start = line.textStart()
            end = min(start + line.textLength(), block.units)
            right = _x(line, start)
            glyphs = self._glyphs(line) if rtl else []
            for i in range(max(0, bisect_right(block.begins, start) - 1), bisect_left(block.begins, end)):
                begin = max(start, block.begins[i])
                stop = min(end, block.begins[i + 1] if i + 1 < len(block.begins) else block.units)
                if rtl:
                    spans = self._spans(glyphs, begin, stop)
                else:  # each token begins where the last ended
                    left, right = right, _x(line, stop)
                    spans = [(left, right)]
                for left, right in spans:
                    yield Piece(block.steps[i], QRectF(left, top, right - left, self.line_height), line, origin)

    @staticmethod
    def _glyphs(line: QTextLine) -> list[tuple[int, float, float]]:
        """(unit, left, right) of each glyph that has a width.

        For mixed text: where directions meet, a cursor's position has two places, and Qt tells only one.
        """
        placed: list[tuple[int, float, float]] = []
        for run in line.glyphRuns(-1, -1, QTextLayout.GlyphRunRetrievalFlag.RetrieveAll):
            advances = run.rawFont().advancesForGlyphIndexes(run.glyphIndexes())
            for unit, place, advance in zip(run.stringIndexes(), run.positions(), advances, strict=True):
                if advance.x() > 0.0:
                    placed.append((unit, place.x(), place.x() + advance.x()))
        # A box that stands in for a missing glyph may lie about its width: the next glyph ends it.
        lefts = [*sorted({round(left, 2) for _, left, _ in placed}), math.inf]
        return [(unit, left, min(right, lefts[bisect_right(lefts, left + 0.02)])) for unit, left, right in placed]

    @staticmethod
    def _spans(glyphs: list[tuple[int, float, float]], begin: int, end: int) -> list[tuple[float, float]]:
        """Where units lie in mixed text: a token may fall into several places. Touching ones are joined."""
        found = [(left, right) for unit, left, right in glyphs if begin <= unit < end]
        found.sort()
        joined: list[tuple[float, float]] = []
        for left, right in found:
            if joined and left <= joined[-1][1] + 0.5:
                joined[-1] = joined[-1][0], max(right, joined[-1][1])
            else:
                joined.append((left, right))
        return joined

    def step_at(self, point: QPointF) -> int | None:
        """The token under a point, or None beside the text."""
        number = int(point.y() // self.line_height)
        if not 0 <= number < self.lines:
            return None
        for piece in self.pieces(number, number):
            if piece.rect.left() <= point.x() < piece.rect.right():
                return piece.step
        return None

    def lines_of(self, step: int) -> tuple[int, int] | None:
        """First and last line with a token's text; without any, the line where it stands; None before all text."""
        index = max(0, bisect_left(self._first_steps, step) - 1)
        before: int | None = None
        found: list[int] = []
        for block in self.blocks[index:]:
            if block.steps and block.steps[0] > step:
                break
            at = bisect_right(block.steps, step) - 1
            if at >= 0 and block.units:
                begin = block.begins[at]
                end = block.begins[at + 1] if at + 1 < len(block.begins) else block.units
                layout = self._laid_out(block)
                first = block.first_line + min(block.lines - 1, layout.lineForTextPosition(begin).lineNumber())
                last = block.first_line + min(block.lines - 1, layout.lineForTextPosition(end - 1).lineNumber())
                if block.steps[at] == step:
                    found += [first, last]
                else:
                    before = last
        if found:
            return min(found), max(found)
        return None if before is None else (before, before)


def place_in(pieces: list[Piece], tokens: list[TokenEvent], step: int) -> QRectF | None:
    """Where a mark of a token is painted: at the next word where the token has no text, such as half a character, and
    behind the last one where none follows. None where that is not among these pieces."""
    after = next((piece for piece in pieces if piece.step >= step), None)
    if after is not None:
        return None if _text_between(tokens, step, after.step) else after.rect
    if not pieces or _text_between(tokens, pieces[-1].step + 1, len(tokens)):
        return None
    return pieces[-1].rect.translated(pieces[-1].rect.width(), 0.0)


def _text_between(tokens: list[TokenEvent], first: int, end: int) -> bool:
    return any(tokens[step].text for step in range(first, min(end, len(tokens))))


def _first_line(block: Block) -> int:
    return block.first_line


def _x(line: QTextLine, unit: int) -> float:
    x = line.cursorToX(unit)
    return x[0] if isinstance(x, tuple) else x
