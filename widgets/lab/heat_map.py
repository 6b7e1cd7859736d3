"""A grid of cells in even steps of one colour: values in the cells, a legend with its unit, keys and mouse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QHelpEvent, QKeyEvent, QLinearGradient, QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from widgets import theme
from widgets.format import plain_tooltip
from widgets.lab.even_shades import shade

GAP = 2
LEAST_CELL = 14
MOST_CELL = (220, 110)
LEGEND = 12  # height of its bar

Cell = tuple[int, int]


@dataclass(frozen=True, slots=True)
class HeatMapData:
    """values, texts, tips: [row][column]; NaN: nothing there. waiting: cells that are still to be run.

    words: of the least and the largest value, for the legend. across, down: what the columns and rows are.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    down: str
    across: str
    values: tuple[tuple[float, ...], ...]
    texts: tuple[tuple[str, ...], ...]
    tips: tuple[tuple[str, ...], ...]
    title: str = ""
    words: tuple[str, str] = ("", "")
    waiting: frozenset[Cell] = frozenset()

    @property
    def span(self) -> tuple[float, float]:
        known = [value for row in self.values for value in row if math.isfinite(value)]
        return (min(known), max(known)) if known else (0.0, 0.0)

    def place(self, cell: Cell, span: tuple[float, float] | None = None) -> float:
        """Where a value lies between the least and the largest, 0 to 1; the middle where all are alike, or differ by
        less than their figures show: what rounding left would look like a difference.

        span: `self.span`, for who asks about all cells.
        """
        low, high = self.span if span is None else span
        value = self.values[cell[0]][cell[1]]
        alike = low == high or self.words[0] == self.words[1] != ""
        return 0.5 if alike else (value - low) / (high - low)


class HeatMap(QWidget):
    """Arrow keys move, Space chooses more than one, Return opens. `current` is the cell with the frame."""

    current_changed = Signal()
    chosen_changed = Signal()
    opened = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.data: HeatMapData | None = None
        self.current: Cell = (0, 0)
        self.chosen: tuple[Cell, ...] = ()
        self._from: Cell = (0, 0)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMouseTracking(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setAccessibleName(self.tr("Heat map"))
        theme.changes.changed.connect(self.update)

    def minimumSizeHint(self) -> QSize:
        return QSize(220, 140)

    def set_data(self, data: HeatMapData | None) -> None:
        """Shows other figures; the current cell stays where the grid is as large as it was."""
        before, self.data = self.data, data
        same = before is not None and data is not None and (before.rows, before.columns) == (data.rows, data.columns)
        if not same:
            self.current, self.chosen, self._from = (0, 0), (), (0, 0)
        self._tell()
        self.update()

    # ---------------------------------------------------------------- where things are

    def _metrics(self) -> tuple[QRectF, float, float]:
        """(the cells' rectangle, a cell's width and height)."""
        data = self.data
        assert data is not None
        metrics = self.fontMetrics()
        left = max(metrics.horizontalAdvance(text) for text in (*data.rows, "0.00")) + 10
        if data.down:
            left = max(left, metrics.horizontalAdvance(data.down) // 2 + 10)
        below = metrics.height() * 2 + 8
        legend = LEGEND + metrics.height() + 18
        top = metrics.height() + 8 if data.down else 4
        width = min(MOST_CELL[0], max(LEAST_CELL, (self.width() - left - 2) / len(data.columns)))
        height = min(MOST_CELL[1], max(LEAST_CELL, (self.height() - below - legend - top) / len(data.rows)))
        return QRectF(left, top, width * len(data.columns), height * len(data.rows)), width, height

    def cell_at(self, position: QPointF) -> Cell | None:
        if self.data is None:
            return None
        area, width, height = self._metrics()
        if not area.contains(position):
            return None
        row, column = int((position.y() - area.top()) / height), int((position.x() - area.left()) / width)
        return min(row, len(self.data.rows) - 1), min(column, len(self.data.columns) - 1)

    def cell_rect(self, cell: Cell) -> QRectF:
        area, width, height = self._metrics()
        return QRectF(area.left() + cell[1] * width, area.top() + cell[0] * height, width - GAP, height - GAP)

    # ---------------------------------------------------------------- painting

    def paintEvent(self, event: QPaintEvent) -> None:
        data = self.data
        if data is None:
            return
        look = theme.current()
        with QPainter(self) as painter:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            area, width, height = self._metrics()
            self._paint_labels(painter, data, area, width, height)
            span = data.span
            for row in range(len(data.rows)):
                for column in range(len(data.columns)):
                    x, y = area.left() + column * width, area.top() + row * height
                    rect = QRectF(x, y, width - GAP, height - GAP)
                    if rect.intersects(QRectF(event.rect())):
                        self._paint_cell(painter, data, (row, column), rect, span)
            for cell in self.chosen:
                self._frame(painter, cell, look.ink, 1.5)
            if self.hasFocus() or self.chosen:
                self._frame(painter, self.current, look.accent if self.hasFocus() else look.ink, 2.0)
            self._paint_legend(painter, data, area)

    def _paint_cell(
        self, painter: QPainter, data: HeatMapData, cell: Cell, rect: QRectF, span: tuple[float, float]
    ) -> None:
        look = theme.current()
        value = data.values[cell[0]][cell[1]]
        if not math.isfinite(value):
            painter.setPen(QPen(look.line, 1, Qt.PenStyle.DotLine if cell in data.waiting else Qt.PenStyle.SolidLine))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(rect.adjusted(0.5, 0.5, -0.5, -0.5), 3, 3)
            ground = look.panel
        else:
            ground = shade(data.place(cell, span))
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(ground)
            painter.drawRoundedRect(rect, 3, 3)
        text = data.texts[cell[0]][cell[1]]
        if text and painter.fontMetrics().horizontalAdvance(text) <= rect.width() - 6 and (
            painter.fontMetrics().height() <= rect.height()
        ):  # fmt: skip
            painter.setPen(theme.readable(look.ink, ground) if math.isfinite(value) else look.muted)
            painter.drawText(rect, Qt.AlignmentFlag.AlignCenter, text)

    def _frame(self, painter: QPainter, cell: Cell, colour: QColor, width: float) -> None:
        painter.setPen(QPen(colour, width))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        inset = width / 2
        painter.drawRoundedRect(self.cell_rect(cell).adjusted(inset, inset, -inset, -inset), 3, 3)

    def _paint_labels(self, painter: QPainter, data: HeatMapData, area: QRectF, width: float, height: float) -> None:
        look, metrics = theme.current(), painter.fontMetrics()
        painter.setPen(look.muted)
        line = metrics.height()
        every = max(1, math.ceil(line / height))
        for row, text in enumerate(data.rows):
            if row % every == 0:
                rect = QRectF(0, area.top() + row * height, area.left() - 8, height - GAP)
                painter.drawText(rect, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, text)
        every = max(1, math.ceil((max(map(metrics.horizontalAdvance, data.columns)) + 6) / width))
        for column, text in enumerate(data.columns):
            if column % every == 0:
                wide = width * every
                rect = QRectF(area.left() + column * width - (wide - width) / 2, area.bottom() + 2, wide - GAP, line)
                painter.drawText(rect, Qt.AlignmentFlag.AlignCenter, text)
        painter.setPen(theme.readable(look.muted, look.panel))
        if data.down:
            painter.drawText(QPointF(0, metrics.ascent()), data.down + " ↓")
        across = QRectF(area.left(), area.bottom() + 2 + line, max(area.width(), self.width() - area.left()), line)
        painter.drawText(across, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, data.across + " →")

    def _paint_legend(self, painter: QPainter, data: HeatMapData, area: QRectF) -> None:
        look, metrics = theme.current(), painter.fontMetrics()
        low, high = data.words
        if not low:
            return
        words = f"{high} {data.title}".strip()
        bar = self.legend_bar(low, words)
        painter.setPen(look.muted)
        middle = bar.center().y() + metrics.ascent() / 2 - 1
        painter.drawText(QPointF(area.left(), middle), words if high == low else low)
        if high == low:
            return
        gradient = QLinearGradient(bar.topLeft(), bar.topRight())
        for step in range(17):
            gradient.setColorAt(step / 16, shade(step / 16))
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(gradient)
        painter.drawRoundedRect(bar, 3, 3)
        painter.setPen(look.muted)
        shown = metrics.elidedText(words, Qt.TextElideMode.ElideRight, int(self.width() - bar.right() - 10))
        painter.drawText(QPointF(bar.right() + 8, middle), shown)

    def legend_bar(self, low: str, words: str) -> QRectF:
        """The legend's strip of shades, which makes room for the words at its end."""
        (area, _, _), metrics = self._metrics(), self.fontMetrics()
        left, top = area.left() + metrics.horizontalAdvance(low) + 8, area.bottom() + 2 * metrics.height() + 14
        room = self.width() - left - metrics.horizontalAdvance(words) - 12
        return QRectF(left, top, max(60.0, min(180.0, area.width() * 0.5, room)), LEGEND)

    # ---------------------------------------------------------------- hands

    def keyPressEvent(self, event: QKeyEvent) -> None:
        moves = {
            Qt.Key.Key_Left: (0, -1),
            Qt.Key.Key_Right: (0, 1),
            Qt.Key.Key_Up: (-1, 0),
            Qt.Key.Key_Down: (1, 0),
            Qt.Key.Key_Home: (0, -1000),
            Qt.Key.Key_End: (0, 1000),
            Qt.Key.Key_PageUp: (-1000, 0),
            Qt.Key.Key_PageDown: (1000, 0),
        }
        modifiers = event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
        shift = modifiers == Qt.KeyboardModifier.ShiftModifier
        key = Qt.Key(event.key())
        if self.data is None or (modifiers and not shift):
            super().keyPressEvent(event)
        elif key in moves:
            row, column = self.current[0] + moves[key][0], self.current[1] + moves[key][1]
            self.go(
                (max(0, min(row, len(self.data.rows) - 1)), max(0, min(column, len(self.data.columns) - 1))),
                extend=shift,
                keep=True,
            )
        elif key == Qt.Key.Key_Space:
            self.toggle(self.current)
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.opened.emit()
        elif key == Qt.Key.Key_Escape and self.chosen:
            self._choose(())
        else:
            super().keyPressEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        cell = self.cell_at(event.position())
        if cell is None or event.button() != Qt.MouseButton.LeftButton:
            return
        if event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            self.toggle(cell)
        else:
            self.go(cell, extend=bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier))

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        if self.cell_at(event.position()) is not None:
            self.opened.emit()

    def go(self, cell: Cell, extend: bool = False, keep: bool = False) -> None:
        """Makes a cell the current one; `extend` chooses all between it and where extending began, `keep` leaves those
        that are chosen."""
        self.current = cell
        if extend:
            rows, columns = sorted((self._from[0], cell[0])), sorted((self._from[1], cell[1]))
            self._choose(
                [(r, c) for r in range(rows[0], rows[1] + 1) for c in range(columns[0], columns[1] + 1)]
            )  # fmt: skip
        else:
            self._from = cell
            if not keep:
                self._choose(())
        self._tell()
        self.current_changed.emit()
        self.update()

    def toggle(self, cell: Cell) -> None:
        self.current = self._from = cell
        chosen = self.chosen or ()
        self._choose([each for each in chosen if each != cell] if cell in chosen else [*chosen, cell])
        self._tell()
        self.current_changed.emit()

    def _choose(self, cells: Sequence[Cell]) -> None:
        if tuple(cells) != self.chosen:
            self.chosen = tuple(cells)
            self.chosen_changed.emit()
            self.update()

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            cell = self.cell_at(QPointF(event.pos()))
            if cell is not None and self.data is not None:
                QToolTip.showText(
                    event.globalPos(), plain_tooltip(self.data.tips[cell[0]][cell[1]]), self, _around(self, cell)
                )
            else:
                QToolTip.hideText()
            return True
        return super().event(event)

    def _tell(self) -> None:
        """What a screen reader says."""
        data = self.data
        self.setAccessibleDescription("" if data is None else data.tips[self.current[0]][self.current[1]])


def _around(map_: HeatMap, cell: Cell) -> QRect:
    return map_.cell_rect(cell).toAlignedRect()
