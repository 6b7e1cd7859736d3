"""What is needed as one bar, and what each device could give as a line across it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPainterPath, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from widgets import theme
from widgets.format import bytes_text

BAR = 16.0
SQUARE = 8.0


@dataclass(frozen=True, slots=True)
class Segment:
    """role: "weights", "kv_cache" or "working"."""

    name: str
    role: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Limit:
    name: str  # "CPU", "GPU 0"
    bytes: int


def segment_colour(role: str) -> QColor:
    look = theme.current()
    if role == "working":
        return theme.mixed(look.panel, look.muted, 0.6)
    return look.kv_cache if role == "kv_cache" else look.weights


class FitBar(QWidget):
    """Segments from the left, limits as lines with their words above; the part beyond the last limit is hatched."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._segments: tuple[Segment, ...] = ()
        self._limits: tuple[Limit, ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(self.tr("What is needed and what is free"))
        theme.changes.changed.connect(self._restyle)

    def _restyle(self) -> None:
        self.updateGeometry()
        self.update()

    def show_need(self, segments: Sequence[Segment], limits: Sequence[Limit]) -> None:
        """limits: in the order in which devices are filled; a line stands where one is full."""
        self._segments = tuple(segment for segment in segments if segment.bytes > 0)
        self._limits = tuple(limit for limit in limits if limit.bytes > 0)
        told = [self.tr("{name}: {size} needed").format(name=s.name, size=bytes_text(s.bytes)) for s in self._segments]
        told += [self.tr("{name}: {size} free").format(name=m.name, size=bytes_text(m.bytes)) for m in self._limits]
        self.setAccessibleDescription("\n".join(told))
        self.updateGeometry()
        self.update()

    def scale(self) -> float:
        """Bytes that the whole width stands for."""
        need = sum(segment.bytes for segment in self._segments)
        return max([need, *(limit.bytes for limit in self._limits), 1]) * 1.04

    def limit_x(self, limit: Limit) -> float:
        return self.width() * limit.bytes / self.scale()

    def _line(self) -> float:
        return QFontMetricsF(theme.font(-2)).height() + 2.0

    def _legend_rows(self, width: float) -> list[list[Segment]]:
        metrics = QFontMetricsF(theme.font(-2))
        rows: list[list[Segment]] = [[]]
        used = 0.0
        for segment in self._segments:
            wide = SQUARE + 5.0 + metrics.horizontalAdvance(_words(segment)) + 12.0
            if rows[-1] and used + wide > width:
                rows.append([])
                used = 0.0
            rows[-1].append(segment)
            used += wide
        return rows

    def sizeHint(self) -> QSize:
        if not self._segments:
            return QSize(theme.base_px() * 16, 0)
        legend = len(self._legend_rows(max(self.width(), theme.base_px() * 16)))
        return QSize(theme.base_px() * 16, round((len(self._limits) + legend) * self._line() + BAR + 10.0))

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.base_px() * 12, self.sizeHint().height())

    def resizeEvent(self, event) -> None:
        super().resizeEvent(event)
        self.updateGeometry()  # the legend may take another row

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self._segments:
            return
        look = theme.current()
        width, line = float(self.width()), self._line()
        scale = self.scale() / max(1.0, width)
        top = len(self._limits) * line + 2.0
        with QPainter(self) as painter:  # an exception must not leave it open: that ends the process
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setFont(theme.font(-2))
            box = QRectF(0, top, width, BAR)
            shape = QPainterPath()
            shape.addRoundedRect(box, 4, 4)
            painter.setClipPath(shape)
            painter.fillRect(box, look.track)
            x = 0.0
            for segment in self._segments:
                wide = max(1.0, segment.bytes / scale)
                painter.fillRect(QRectF(x, top, wide, BAR), segment_colour(segment.role))
                x += wide
            last = max((limit.bytes for limit in self._limits), default=0) / scale
            if self._limits and x > last + 0.5:
                painter.setClipRect(QRectF(last, top, width, BAR), Qt.ClipOperation.IntersectClip)
                painter.setPen(QPen(look.warning, 1.5))
                at = last - BAR
                while at < x:
                    painter.drawLine(QPointF(at, top + BAR), QPointF(at + BAR, top))
                    at += 6.0
            painter.setClipping(False)
            for row, limit in enumerate(self._limits):
                at = limit.bytes / scale
                painter.setPen(QPen(look.warning, 1.5))
                painter.drawLine(QPointF(at, row * line + 2.0), QPointF(at, top + BAR + 3.0))
                words = self.tr("{name} {size} free").format(name=limit.name, size=bytes_text(limit.bytes))
                wide = QFontMetricsF(painter.font()).horizontalAdvance(words) + 2.0
                left = at + 4.0 if at + 4.0 + wide <= width else max(0.0, at - 4.0 - wide)
                painter.setPen(theme.readable(look.warning, look.panel))
                painter.drawText(QRectF(left, row * line, wide, line), Qt.AlignmentFlag.AlignLeft, words)
            self._paint_legend(painter, top + BAR + 6.0, line, look)

    def _paint_legend(self, painter: QPainter, y: float, line: float, look: theme.Theme) -> None:
        metrics = QFontMetricsF(painter.font())
        for row in self._legend_rows(float(self.width())):
            x = 0.0
            for segment in row:
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(segment_colour(segment.role))
                painter.drawRoundedRect(QRectF(x, y + (line - SQUARE) / 2, SQUARE, SQUARE), 2, 2)
                x += SQUARE + 5.0
                words = _words(segment)
                painter.setPen(look.muted)
                painter.drawText(QRectF(x, y, metrics.horizontalAdvance(words) + 2.0, line), words)
                x += metrics.horizontalAdvance(words) + 12.0
            y += line


def _words(segment: Segment) -> str:
    return f"{segment.name} {bytes_text(segment.bytes)}"
