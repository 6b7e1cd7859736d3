"""Text in a few lines of one width, for boxes: what finds no room ends in an ellipsis and is never just cut off."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QFont, QFontMetricsF, QTextLayout, QTextOption


def wrapped(text: str, font: QFont, width: float, rows: int, elide: Qt.TextElideMode) -> list[str]:
    """The text cut into at most so many lines of this width; what finds no room is elided, never just cut off."""
    if rows <= 1 or QFontMetricsF(font).horizontalAdvance(text) <= width:
        return [QFontMetricsF(font).elidedText(text, elide, width)]
    if elide == Qt.TextElideMode.ElideLeft:
        return _last_lines(text, font, width, rows)
    option = QTextOption()
    option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
    layout = QTextLayout(text, font)
    layout.setTextOption(option)
    layout.beginLayout()
    lines: list[str] = []
    data = text.encode("utf-16-le")  # positions count UTF-16 units (THR-24)
    while (line := layout.createLine()).isValid():
        line.setLineWidth(width)
        begin, length = line.textStart(), line.textLength()
        if len(lines) == rows - 1:
            rest = data[2 * begin :].decode("utf-16-le")
            lines.append(QFontMetricsF(font).elidedText(rest, Qt.TextElideMode.ElideRight, width))
            break
        lines.append(data[2 * begin : 2 * (begin + length)].decode("utf-16-le").rstrip())
    layout.endLayout()
    return lines


def _last_lines(text: str, font: QFont, width: float, rows: int) -> list[str]:
    """The end of a text in so many lines, its beginning elided."""
    for begin in range(len(text)):
        shown = ("…" if begin else "") + text[begin:].lstrip() if begin else text
        lines = wrapped(shown, font, width, rows + 1, Qt.TextElideMode.ElideRight)
        if len(lines) <= rows:
            return lines
    return [QFontMetricsF(font).elidedText(text, Qt.TextElideMode.ElideLeft, width)]
