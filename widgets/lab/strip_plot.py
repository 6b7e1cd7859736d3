"""One figure of two settings: a dot for each seed, the mean with its interval; the difference below with its own."""

from __future__ import annotations

import math

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QHelpEvent, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from engine.events import Luck, LuckFigure
from widgets import theme
from widgets.format import plain_tooltip
from widgets.lab.figure_words import figure_name, figure_text

SIDE = 26  # room for the letters
LETTERS = "AB"
DOT = 3.5


class StripPlot(QWidget):
    """Left and right go from dot to dot, up and down from setting to setting; `chosen` says whose text is wanted."""

    chosen = Signal(object)  # (side, place)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.luck: Luck | None = None
        self.figure: LuckFigure | None = None
        self.place: tuple[int, int] | None = None  # the dot that is chosen
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumHeight(130)
        theme.changes.changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(400, 190)

    def show_figure(self, luck: Luck | None, figure: LuckFigure | None) -> None:
        if luck is not self.luck:
            self.place = None
        self.luck, self.figure = luck, figure
        self.setAccessibleName("" if figure is None else figure_name(figure.name))
        self.update()

    # ---------------------------------------------------------------- where things are

    def _values(self, side: int) -> list[float]:
        assert self.luck is not None
        assert self.figure is not None
        return [run.figure(self.figure.name) for run in self.luck.runs[side]]

    def _span(self) -> tuple[float, float]:
        assert self.figure is not None
        edges = [value for side in (0, 1) for value in self._values(side)]
        edges += [edge for mean in self.figure.means for edge in (mean.low, mean.high)]
        known = [edge for edge in edges if math.isfinite(edge)]
        low, high = (min(known), max(known)) if known else (0.0, 1.0)
        room = (high - low) * 0.05 or max(abs(high) * 0.1, 0.1)
        return low - room, high + room

    def _x(self, value: float) -> float:
        low, high = self._span()
        return SIDE + (value - low) / (high - low) * (self.width() - SIDE - 12)

    def _row(self, side: int) -> QRectF:
        line = self.fontMetrics().height() + 8
        height = (self.height() - line) / 2
        return QRectF(SIDE, side * height, self.width() - SIDE - 12, height - 4)

    def dot(self, side: int, place: int) -> QPointF | None:
        """Where a run's dot lies: at its value, stacked where others lie there too. None without a value."""
        values = self._values(side)
        if not math.isfinite(values[place]):
            return None
        x, row = self._x(values[place]), self._row(side)
        below = sum(
            1 for value in values[:place] if math.isfinite(value) and abs(self._x(value) - x) < 2 * DOT
        )  # fmt: skip
        # Alternately above and below the middle, so that equal values are as many dots.
        steps = max(1, int((row.height() / 2 - DOT - 2) / (2 * DOT + 1)))
        offset = ((below + 1) // 2) * (2 * DOT + 1) * (1 if below % 2 else -1)
        limit = steps * (2 * DOT + 1)
        return QPointF(x, row.center().y() + max(-limit, min(limit, offset)))

    def at(self, position: QPointF) -> tuple[int, int] | None:
        """The run whose dot is nearest, within reach."""
        if self.luck is None or self.figure is None:
            return None
        best: tuple[float, tuple[int, int]] | None = None
        for side in (0, 1):
            for place in range(len(self.luck.runs[side])):
                point = self.dot(side, place)
                if point is not None:
                    far = math.hypot(point.x() - position.x(), point.y() - position.y())
                    if far <= 2.5 * DOT and (best is None or far < best[0]):
                        best = far, (side, place)
        return best[1] if best else None

    # ---------------------------------------------------------------- painting

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.luck is None or self.figure is None:
            return
        look, figure = theme.current(), self.figure
        with QPainter(self) as painter:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            for side in (0, 1):
                row, colour = self._row(side), look.lane(side)
                painter.setPen(QPen(look.line, 1))
                painter.drawLine(QPointF(row.left(), row.center().y()), QPointF(row.right(), row.center().y()))
                painter.setPen(theme.readable(colour, look.panel))
                painter.setFont(theme.font(0, bold=True))
                painter.drawText(
                    QRectF(0, row.top(), SIDE - 8, row.height()), Qt.AlignmentFlag.AlignCenter, LETTERS[side]
                )
                self._paint_mean(painter, side, colour)
                for place in range(len(self.luck.runs[side])):
                    point = self.dot(side, place)
                    if point is None:
                        continue
                    ground = QColor(colour)
                    ground.setAlphaF(0.55)
                    painter.setBrush(ground)
                    painter.setPen(Qt.PenStyle.NoPen)
                    if (side, place) == self.place:
                        painter.setPen(QPen(look.ink, 2))
                        painter.setBrush(colour)
                    painter.drawEllipse(point, DOT, DOT)
            painter.setFont(theme.font(-2))
            painter.setPen(look.muted)
            low, high = self._span()
            bottom = QRectF(SIDE, self.height() - painter.fontMetrics().height() - 2, self.width() - SIDE - 12, 20)
            painter.drawText(
                bottom, Qt.AlignmentFlag.AlignLeft, figure_text(figure.name, max(low, 0.0) if low < 0 else low)
            )
            painter.drawText(bottom, Qt.AlignmentFlag.AlignRight, figure_text(figure.name, high, unit=True))
            if self.hasFocus():
                painter.setPen(QPen(look.accent, 1))
                painter.setBrush(Qt.BrushStyle.NoBrush)
                painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 4, 4)

    def _paint_mean(self, painter: QPainter, side: int, colour: QColor) -> None:
        assert self.figure is not None
        mean, row = self.figure.means[side], self._row(side)
        if not math.isfinite(mean.mean):
            return
        if math.isfinite(mean.low):
            band = QRectF(
                self._x(mean.low), row.top() + 3, max(2.0, self._x(mean.high) - self._x(mean.low)), row.height() - 6
            )
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme.mixed(theme.current().panel, colour, 0.18))
            painter.drawRoundedRect(band, 3, 3)
        painter.setPen(QPen(colour, 2))
        x = self._x(mean.mean)
        painter.drawLine(QPointF(x, row.top() + 3), QPointF(x, row.bottom() - 3))

    # ---------------------------------------------------------------- hands

    def choose(self, place: tuple[int, int]) -> None:
        self.place = place
        self.update()
        self.chosen.emit(place)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        place = self.at(event.position())
        if place is not None and event.button() == Qt.MouseButton.LeftButton:
            self.choose(place)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key = Qt.Key(event.key())
        if self.luck is None or event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier:
            super().keyPressEvent(event)
        elif key in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            side = self.place[0] if self.place else 0
            values = self._values(side)
            order = sorted((at for at, v in enumerate(values) if math.isfinite(v)), key=lambda at: values[at])
            if order:
                here = order.index(self.place[1]) if self.place and self.place[1] in order else -1
                by = 1 if key == Qt.Key.Key_Right else -1
                self.choose((side, order[max(0, min(len(order) - 1, here + by))]))
        elif key in (Qt.Key.Key_Up, Qt.Key.Key_Down):
            place = self.place[1] if self.place else 0
            self.choose((0 if key == Qt.Key.Key_Up else 1, place))
        else:
            super().keyPressEvent(event)

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            place = self.at(QPointF(event.pos()))
            if place is None or self.luck is None or self.figure is None:
                QToolTip.hideText()
            else:
                side, at = place
                seed = self.luck.question.lanes[side * self.luck.question.seeds + at].seed
                value = figure_text(self.figure.name, self._values(side)[at], unit=True)
                text = self.luck.texts[side][at]
                text = text if len(text) < 300 else text[:299] + "…"
                QToolTip.showText(event.globalPos(), plain_tooltip(f"{LETTERS[side]} · {seed} · {value}\n{text}"), self)
            return True
        return super().event(event)
