"""One tensor's numbers as a picture and figures."""

from __future__ import annotations

import math

from PySide6.QtCore import QEvent, QRectF, QSize, Qt, Signal, Slot
from PySide6.QtGui import QFontMetricsF, QHelpEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QHBoxLayout,
    QSizePolicy,
    QToolButton,
    QToolTip,
    QVBoxLayout,
    QWidget,
)

from engine.events import BINS, Histogram
from widgets import theme
from widgets.boxes.page import copy_button, to_clipboard
from widgets.format import (
    UNKNOWN,
    count_text,
    duration_text,
    locale,
    number_text,
    percent_text,
    plain_tooltip,
    with_minus,
)
from widgets.panel import ElidedLabel
from widgets.small import SmallText

BY_VALUE, BY_SIZE = 0, 1
HEIGHT = 110


class HistogramView(QWidget):
    """The picture, how it is drawn, and the figures below it."""

    other_wanted = Signal(object)  # 1: the next tensor, -1: the one before

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._shown: Histogram | None = None
        self.name = ElidedLabel("", "value")
        self.bins = QComboBox()
        self.bins.addItem(self.tr("by value"))
        self.bins.addItem(self.tr("by size (log)"))
        self.bins.setToolTip(
            self.tr("By value: 64 equal steps from the least to the greatest. By size: 64 equal steps of log2|x|.")
        )
        self.bins.setAccessibleName(self.tr("What the bars stand for"))
        self.log_heights = QCheckBox(self.tr("log heights"))
        self.log_heights.setToolTip(self.tr("Heights are logarithms of the counts: rare numbers become visible."))
        self.copy = copy_button(self.tr("copy"), self.tr("Copy the figures and the counts as a table"), icon_only=True)
        self.copy.clicked.connect(self.copy_figures)
        self.picture = Picture()
        self.figures = SmallText("", "")
        self.figures.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.source = SmallText()
        row = QHBoxLayout()
        row.setSpacing(6)
        row.addWidget(self.bins)
        row.addWidget(self.log_heights)
        row.addStretch(1)
        row.addWidget(self.copy)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 2, 0, 0)
        column.setSpacing(4)
        head = QHBoxLayout()
        head.setSpacing(2)
        head.addWidget(self.name, 1)
        for icon, text, step in (("chevron-up", self.tr("the tensor before"), self._before),
                                 ("chevron-down", self.tr("the next tensor"), self._next)):  # fmt: skip
            button = QToolButton()
            theme.set_icon(button, icon)
            button.setToolTip(text)
            button.setAccessibleName(text)
            button.clicked.connect(step)
            head.addWidget(button)
        column.addLayout(head)
        column.addLayout(row)
        column.addWidget(self.picture, 100)
        column.addWidget(self.figures)
        column.addWidget(self.source)
        column.addStretch(1)  # the picture has a greatest height, and words stay together
        self.bins.currentIndexChanged.connect(self._redraw)
        self.log_heights.toggled.connect(self._redraw)

    def show_histogram(self, histogram: Histogram) -> None:
        self._shown = histogram
        self.name.setText(histogram.tensor)
        self.name.setToolTip(plain_tooltip(histogram.tensor))
        self.figures.setText(" · ".join(f"{name} {value}" for name, value in self.rows()))
        where = self.tr("from memory") if histogram.source == "memory" else self.tr("from the file")
        text = self.tr("numbers: {count}, {dtype}, measured {where} in {time}").format(
            count=count_text(histogram.numel), dtype=histogram.dtype, where=where,
            time=duration_text(histogram.elapsed_ms),
        )  # fmt: skip
        self.source.setText(f"{text}. {histogram.note}".strip() if histogram.note else text)
        self._redraw()

    def rows(self) -> list[tuple[str, str]]:
        """(name, value) of each figure."""
        h = self._shown
        if h is None:
            return []
        return [
            (self.tr("min"), exact(h.low)),
            (self.tr("max"), exact(h.high)),
            (self.tr("mean"), exact(h.mean)),
            (self.tr("std"), exact(h.std)),
            (self.tr("zeros"), count_text(h.zeros)),
            (self.tr("NaN"), count_text(h.nans)),
            (self.tr("infinite"), count_text(h.infinities)),
        ]

    @Slot()
    def _before(self) -> None:
        self.other_wanted.emit(-1)

    @Slot()
    def _next(self) -> None:
        self.other_wanted.emit(1)

    @Slot()
    def _redraw(self) -> None:
        self.picture.set_histogram(self._shown, self.bins.currentIndex(), self.log_heights.isChecked())

    @Slot()
    def copy_figures(self) -> None:
        h = self._shown
        if h is None:
            return
        plain = [("tensor", h.tensor), ("dtype", h.dtype), ("shape", "×".join(map(str, h.shape))), ("numbers", h.numel),
                 ("min", h.low), ("max", h.high), ("mean", h.mean), ("std", h.std), ("zeros", h.zeros),
                 ("nan", h.nans), ("infinite", h.infinities)]  # fmt: skip
        lines = [f"{name}\t{'' if value is None else value}" for name, value in plain]
        lines.append("from\tto\tcount")
        lines += [f"{low!r}\t{high!r}\t{count}" for low, high, count in bins_of(h, self.bins.currentIndex())]
        to_clipboard("\n".join(lines))


def bins_of(histogram: Histogram, kind: int) -> list[tuple[float, float, int]]:
    """(from, to, count) of each bar: values, or sizes."""
    if kind == BY_SIZE:
        if histogram.exponents is None:
            return []
        low, high = histogram.exponents
        step = (high - low) / BINS
        return [(2.0 ** (low + i * step), 2.0 ** (low + (i + 1) * step), n) for i, n in enumerate(histogram.by_size)]
    if histogram.low is None or histogram.high is None:
        return []
    low, high = histogram.low, histogram.high
    if low == high:
        low, high = low - 0.5, high + 0.5
    step = (high - low) / BINS
    return [(low + i * step, low + (i + 1) * step, n) for i, n in enumerate(histogram.linear)]


def exact(value: float | None) -> str:
    """A number with four digits that count: 0.1356, −1.961, 3.2e−07."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value and not 1e-4 <= abs(value) < 1e5:
        return with_minus(locale().toString(value, "g", 3))
    digits = 4 if abs(value) < 1 else max(0, 3 - int(math.log10(abs(value))))
    return number_text(value, digits)


class Picture(QWidget):
    """64 bars over an axis with its ends and its zero."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._bins: list[tuple[float, float, int]] = []
        self._log = False
        self._kind = BY_VALUE
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMaximumHeight(2 * HEIGHT)
        self.setAccessibleName(self.tr("Histogram of the numbers"))
        theme.changes.changed.connect(self.update)

    def set_histogram(self, histogram: Histogram | None, kind: int, log: bool) -> None:
        self._bins = [] if histogram is None else bins_of(histogram, kind)
        self._kind, self._log = kind, log
        total = sum(count for _, _, count in self._bins)
        if total:
            low, high, most = max(self._bins, key=lambda each: each[2])
            self.setAccessibleDescription(
                self.tr("Most numbers, {share}, lie between {low} and {high}").format(
                    share=percent_text(most / total), low=exact(low), high=exact(high)
                )
            )
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(theme.base_px() * 16, HEIGHT)

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.base_px() * 12, HEIGHT // 2)

    def paintEvent(self, event: QPaintEvent) -> None:
        look, width = theme.current(), float(self.width())
        with QPainter(self) as painter:
            painter.setFont(theme.font(-2))
            metrics = QFontMetricsF(painter.font())
            base = self.height() - metrics.height() - 3.0
            painter.setPen(look.line)
            painter.drawLine(0, round(base), round(width), round(base))
            if not self._bins:
                painter.setPen(look.muted)
                text = self.tr("No number here is finite and not zero.")
                painter.drawText(QRectF(0, 0, width, base), Qt.AlignmentFlag.AlignCenter, text)
                return
            largest = max(self._height(count) for _, _, count in self._bins) or 1.0
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(look.weights)
            step = width / BINS
            for at, (_, _, count) in enumerate(self._bins):
                if count:
                    height = max(1.0, (base - 2.0) * self._height(count) / largest)
                    painter.drawRect(QRectF(at * step, base - height, max(1.0, step - 1.0), height))
            low, high = self._bins[0][0], self._bins[-1][1]
            painter.setPen(look.muted)
            below = QRectF(0, base + 1.0, width, metrics.height() + 2.0)
            painter.drawText(below, Qt.AlignmentFlag.AlignLeft, exact(low))
            painter.drawText(below, Qt.AlignmentFlag.AlignRight, exact(high))
            if self._kind == BY_VALUE and low < 0 < high:
                zero = width * -low / (high - low)
                painter.setPen(look.muted)
                painter.drawLine(round(zero), round(base), round(zero), round(base + 3))
                room = metrics.horizontalAdvance(exact(low)) + metrics.horizontalAdvance("00")
                if room < zero < width - room:
                    painter.drawText(
                        QRectF(zero - 20, below.y(), 40, below.height()), Qt.AlignmentFlag.AlignHCenter, "0"
                    )

    def _height(self, count: int) -> float:
        return math.log10(1 + count) if self._log else float(count)

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and self._bins:
            assert isinstance(event, QHelpEvent)
            at = min(BINS - 1, max(0, int(event.pos().x() * BINS / max(1, self.width()))))
            low, high, count = self._bins[at]
            text = self.tr("numbers between {low} and {high}: {count}, measured").format(
                count=count_text(count), low=exact(low), high=exact(high)
            )
            QToolTip.showText(event.globalPos(), text, self)
            return True
        return super().event(event)
