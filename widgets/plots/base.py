"""What all plots share: axes, theme, empty states, the shown token's line, hovering. The only caller of pyqtgraph.

Imported after the window shows, since pyqtgraph takes half a second.
"""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pyqtgraph as pg
from pyqtgraph.functions import arrayToQPolygonF
from PySide6.QtCore import QEvent, QPointF, QRectF, Qt, QTimer
from PySide6.QtGui import QBrush, QColor, QMouseEvent, QPainter, QPen, QPolygonF
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget

from widgets import theme
from widgets.format import count_text, number_text
from widgets.panel import Panel
from widgets.run import Run
from widgets.run_store import RunStore
from widgets.small import SmallLabel

GROUND, LINE, THIN, DOTTED, DASHED = "■", "━", "─", "┈", "╌"  # marks of a legend
# How long after news each plot draws. Different, so that no two draw in one turn of the event loop.
TURNS_MS = itertools.cycle((35, 47, 59))
TICK_OFFSET = 5  # pixels between an axis and its labels
UNIT_GAP = 12  # between the unit and where the axis begins: half a label stands there
VEIL = 0.72  # how much of what came later it hides
LARGEST = 1e300  # beyond it pyqtgraph's own arithmetic overflows


def series(*columns: Sequence[float | int | None] | np.ndarray) -> list[np.ndarray]:
    """The columns as float64 arrays of one length: None becomes NaN, infinities and what no double holds too.

    pyqtgraph ends the process at a None or at an integer beyond 64 bits (THR-27), so nothing reaches it but through
    here. Columns of different length are cut to the shortest.
    """
    length = min((len(column) for column in columns), default=0)
    return [_floats(column, length) for column in columns]


def _floats(values: Sequence[float | int | None] | np.ndarray, length: int) -> np.ndarray:
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuf":
        array = values[:length].astype(np.float64)
    else:
        array = np.array([_float(value) for value in values[:length]], dtype=np.float64)
    array[~(np.abs(array) < LARGEST)] = np.nan
    return array


def _float(value: float | int | None) -> float:
    try:
        return math.nan if value is None else float(value)
    except (OverflowError, TypeError, ValueError):
        return math.nan


def thinned(x: np.ndarray, y: np.ndarray, pixels: int) -> tuple[np.ndarray, np.ndarray]:
    """At most about two points a pixel, the least and the largest of each group, so that peaks stay."""
    groups = max(1, pixels)
    if len(y) <= 2 * groups:
        return x, y
    size = math.ceil(len(y) / groups)
    whole = len(y) // size * size
    parts = y[:whole].reshape(-1, size)
    filled = np.nan_to_num(parts, nan=0.0)
    low, high = filled.argmin(axis=1), filled.argmax(axis=1)
    first = np.arange(0, whole, size)
    keep = np.unique(np.concatenate([first + low, first + high, np.arange(whole, len(y)), [0, len(y) - 1]]))
    return x[keep], y[keep]


def ticks(top: float, count: int, whole: bool = False) -> list[float]:
    """0 and about `count` round steps (1, 2 or 5 times a power of ten) up to `top`."""
    if not 0.0 < top < LARGEST:
        return [0.0]
    rough = top / max(1, count)
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(scale * factor for factor in (1, 2, 5, 10) if scale * factor >= rough * 0.7)
    if whole:
        step = max(1.0, step)
    return [step * i for i in range(int(top / step + 1e-9) + 1)]


def with_room(size: float) -> float:
    """The next larger of eight steps to the next power of two: at most an eighth more. size: above 0."""
    step = 2.0 ** (math.floor(math.log2(size)) - 3)
    return math.ceil(size / step) * step


def bytes_ticks(values: list[float]) -> list[str]:
    """Labels of byte figures in the unit of the largest, which alone carries it."""
    top = max(values)
    unit, scale = next(((u, s) for u, s in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if top >= s), ("B", 1.0))
    return _with_unit(values, scale, unit)


def _with_unit(values: list[float], scale: float, unit: str) -> list[str]:
    step = (values[1] - values[0]) / scale if len(values) > 1 else 1.0
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 0
    texts = [number_text(value / scale, decimals) if value else "0" for value in values]
    texts[-1] = f"{texts[-1]} {unit}".strip()
    return texts


def rate_ticks(values: list[float]) -> list[str]:
    return _with_unit(values, 1.0, "/ s")


class Curve:
    """One line of a plot: its role's name in the theme, how it is drawn, whether the ground below it is filled."""

    def __init__(self, plot: Plot, role: str, *, width: float = 1.6, style=Qt.PenStyle.SolidLine, fill: float = 0.0):
        self.plot, self.role, self.width, self.style, self.fill = plot, role, width, style, fill
        self._x = self._y = np.empty(0)
        self.xs = self.ys = np.empty(0)  # as they stand on the plot
        self._lines: list[QPolygonF] = []  # of finite points each
        self._grounds: list[QPolygonF] = []  # a line and the axis beneath it
        self._pen, self._brush = QPen(), QBrush()

    def draw(self, x: Sequence[float | None] | np.ndarray, y: Sequence[float | int | None] | np.ndarray) -> None:
        """Takes the points; they are put on the plot with the next ranges."""
        points = self.plot.pixels() // (2 if self.style == Qt.PenStyle.SolidLine else 8)
        self._x, self._y = thinned(*series(x, y), points)

    def put(self, x_from: float, x_to: float, top: float) -> None:
        """Puts the points on the plot. A dotted line that leads millions of pixels away ends the process in Qt's
        painter, so what is far outside is brought near."""
        across = x_to - x_from
        self.xs = np.clip(self._x, x_from - across, x_to + across)
        self.ys = np.clip(self._y, -top, 3.0 * top)
        finite = np.isfinite(self.xs) & np.isfinite(self.ys)
        if finite.all():
            parts = [(0, finite.size)] if finite.size else []
        else:
            edges = np.flatnonzero(np.diff(finite, prepend=False, append=False))
            parts = list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
        self._lines = [arrayToQPolygonF(self.xs[begin:end], self.ys[begin:end]) for begin, end in parts]
        if self.fill:
            self._grounds = [
                arrayToQPolygonF(
                    np.append(self.xs[begin:end], self.xs[[end - 1, begin]]), np.append(self.ys[begin:end], (0.0, 0.0))
                )
                for begin, end in parts
            ]

    def restyle(self) -> None:
        colour = getattr(theme.current(), self.role)
        self._pen = QPen(colour, self.width, self.style)
        self._pen.setCosmetic(True)  # else the width is in bytes or tokens
        # An opaque tint: where two grounds lie on each other, the upper one is drawn first.
        self._brush = QBrush(theme.mixed(theme.current().panel, colour, self.fill))

    def paint(self, painter: QPainter) -> None:
        if self.fill:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self._brush)
            for ground in self._grounds:
                painter.drawPolygon(ground)
            painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(self._pen)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, True)
        for line in self._lines:
            painter.drawPolyline(line)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)


class Curves(pg.GraphicsObject):
    """A plot's curves as one item. pyqtgraph's own, one for each line and each ground, take five times as long."""

    def __init__(self, curves: list[Curve]) -> None:
        super().__init__()
        self._curves, self._rect = curves, QRectF()

    def put(self, x_from: float, x_to: float, top: float) -> None:
        """Puts the curves' points on the plot."""
        for curve in self._curves:
            curve.put(x_from, x_to, top)
        rect = QRectF(x_from, 0.0, x_to - x_from, top)
        if rect != self._rect:
            self.prepareGeometryChange()
            self._rect = rect
        self.update()

    def boundingRect(self) -> QRectF:
        return self._rect

    def paint(self, painter: QPainter, *_: object) -> None:
        for curve in self._curves:
            curve.paint(painter)


def whole(text: str) -> str:
    """For rich text, without a place where a line could end."""
    return html.escape(text).replace(" ", "&nbsp;")


class Plot(Panel):
    """A panel with one plot over the tokens of the current run. Subclasses say what is drawn in `redraw`."""

    def __init__(self, store: RunStore, title: str, parent: QWidget | None = None) -> None:
        super().__init__(title, parent)
        self.store = store
        self.curves: list[Curve] = []
        self._curves = Curves(self.curves)
        self.limits: list[Limit] = []
        self.by_token = True  # x is the token's number: hovering and clicking mean tokens
        self._drawn: tuple = ()
        self._ranges = (0.0, 0.0, 0.0)  # of the axes: x from, x to, y to
        self._ticks: dict[str, list[tuple[float, str]]] = {}
        self.graph = pg.PlotWidget(parent=self)
        self.view = self.graph.getPlotItem()
        self.view.setMenuEnabled(False)
        self.view.hideButtons()
        self.view.setMouseEnabled(False, False)
        self.view.setContentsMargins(0, 4, 6, 0)
        self.view.addItem(self._curves, ignoreBounds=True)
        box = self.view.getViewBox()
        box.setDefaultPadding(0.0)
        box.disableAutoRange()
        self.graph.setMouseTracking(True)
        self.graph.viewport().installEventFilter(self)
        self.graph.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.graph.viewport().setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.graph.setMinimumSize(80, 50)
        self.graph.setFrameShape(self.graph.Shape.NoFrame)
        self.legend = QLabel()
        self.legend.setTextFormat(Qt.TextFormat.RichText)  # our own words only
        policy = QSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Minimum)
        policy.setHeightForWidth(True)  # what does not fit into one line goes into the next: no mark stays unexplained
        self.legend.setSizePolicy(policy)
        self.legend.setWordWrap(True)
        self._legend: tuple[tuple[str, str, str], ...] = ()
        self.body.setSpacing(0)
        self.body.addWidget(self.legend)
        self.body.addWidget(self.graph, 1)
        self.empty = QLabel(self.graph)
        self.empty.setTextFormat(Qt.TextFormat.PlainText)
        self.empty.setProperty("role", "muted")
        self.empty.setWordWrap(True)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.empty.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.x_unit = SmallLabel(parent=self.graph)  # beside the axis's beginning: at its end it would be cut
        self.x_unit.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignTop)
        self.x_unit.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.selected_line = pg.InfiniteLine(angle=90, movable=False)
        self.hover_line = pg.InfiniteLine(angle=90, movable=False)
        # What came after the moment that the window is taken back to lies under a veil.
        self.veil = pg.LinearRegionItem(movable=False, pen=QPen(Qt.PenStyle.NoPen))
        self.veil.setZValue(9)
        self.veil.hide()
        self.view.addItem(self.veil, ignoreBounds=True)
        for line in (self.selected_line, self.hover_line):
            line.setZValue(10)
            line.hide()
            self.view.addItem(line, ignoreBounds=True)
        # About twenty times a second, each plot in a turn of its own, so that no turn of the event loop becomes long.
        self._turn = QTimer(self)
        self._turn.setSingleShot(True)
        self._turn.setInterval(next(TURNS_MS))
        self._turn.timeout.connect(self.refresh)
        store.frame.connect(self.soon)
        store.selection_changed.connect(self.refresh)
        store.hover_changed.connect(self.mark_tokens)
        theme.changes.changed.connect(self.restyle)

    # ---------------------------------------------------------------- for subclasses

    def begin(self) -> None:
        """To be called at the end of a subclass's construction."""
        self.restyle()
        self.refresh()

    def curve(self, role: str, **how) -> Curve:
        self.curves.append(Curve(self, role, **how))
        return self.curves[-1]

    def limit(self, role: str = "warning") -> Limit:
        self.limits.append(Limit(self, role))
        return self.limits[-1]

    def state(self) -> tuple:
        """What the drawing depends on; nothing is drawn again while it stays the same."""
        run = self.store.current
        return (id(run), len(run.tokens) if run is not None else 0, self.store.shown_facts)

    def redraw(self, run: Run | None) -> None:
        raise NotImplementedError

    def show_empty(self, text: str) -> None:
        """A sentence in place of the drawing: what will be drawn and what to press. "" for the drawing."""
        self.empty.setText(text)
        self.empty.setVisible(bool(text))
        self.x_unit.setVisible(not text)
        if text:
            self.set_legend()
        for side in ("left", "bottom"):
            axis = self.view.getAxis(side)
            if axis.isVisible() == bool(text):  # its own show and hide also give it its room, setVisible does not
                axis.hide() if text else axis.show()
        if text:
            for curve in self.curves:
                curve.draw((), ())
            self._curves.put(0.0, 1.0, 1.0)
            for limit in self.limits:
                limit.hide()
            self.selected_line.hide()
            self.hover_line.hide()
        self._place_words()

    def set_legend(self, *entries: tuple[str, str, str]) -> None:
        """What the marks mean, in a row under the header: each a role, a mark, and words of our own."""
        if entries != self._legend:
            self._legend = entries
            self._write_legend()

    def _write_legend(self) -> None:
        look = theme.current()
        words = [
            f'<span style="color:{getattr(look, role).name()}">{mark}</span>&nbsp;{whole(text)}'
            for role, mark, text in self._legend
        ]
        self.legend.setFont(theme.font(-2))
        self.legend.setText(
            f'<span style="color:{look.muted.name()}">{(" " if self.narrow() else "&nbsp;&nbsp; ").join(words)}</span>'
        )
        self.legend.setVisible(bool(words))

    def set_ranges(
        self,
        x_from: float,
        x_to: float,
        top: float,
        y_texts: Callable[[list[float]], list[str]] = bytes_ticks,
        x_unit: str = "",
    ) -> None:
        """The axes: x from and to, y from 0 to a little over `top`. Calm where figures are missing or absurd, and while
        a model writes: then they grow by steps, since to draw an axis anew takes longer than its curves."""
        top = top * 1.12 if 0.0 < top < LARGEST else 1.0
        x_to = x_to if math.isfinite(x_to) and x_to > x_from else x_from + 1.0
        run = self.store.current
        if self.by_token and run is not None and run.running:
            x_to, top = x_from + with_room(x_to - x_from), with_room(top)
        self._curves.put(x_from, x_to, top)
        if self._ranges != (x_from, x_to, top):
            self._ranges = x_from, x_to, top
            self.view.setRange(xRange=(x_from, x_to), yRange=(0.0, top), padding=0.0)
            self.view.getViewBox().updateMatrix()  # else pyqtgraph does it while painting, and all is painted twice
        line = self.fontMetrics().height()
        y_ticks = ticks(top, max(1, min(4, self.graph.height() // (line * 2))))
        room = top * (1.0 - 0.6 * line / max(line, self.graph.height() - 2 * line))  # a label at the edge is not drawn
        y_ticks = [tick for tick in y_ticks if tick <= room]
        self._set_ticks("left", list(zip(y_ticks, y_texts(y_ticks), strict=True)))
        across = max(2, self.graph.width() // (line * 6))
        x_ticks = [x_from + tick for tick in ticks(x_to - x_from, across, whole=True)]
        self._set_ticks("bottom", [(tick, count_text(round(tick))) for tick in x_ticks])
        self.x_unit.setText(x_unit)

    def _set_ticks(self, side: str, found: list[tuple[float, str]]) -> None:
        if self._ticks.get(side) != found:
            self._ticks[side] = found
            self.view.getAxis(side).setTicks([found])

    @property
    def top(self) -> float:
        """What the y axis reaches."""
        return self._ranges[2]

    def narrow(self) -> bool:
        """True where the header has room for one figure only."""
        return self.width() < theme.base_px() * 26

    def pixels(self) -> int:
        return max(50, self.graph.width())

    # ---------------------------------------------------------------- keeping up

    def soon(self) -> None:
        """Draws again in this plot's next turn."""
        if not self._turn.isActive():
            self._turn.start()

    def refresh(self) -> None:
        """Draws again if something to be seen has changed, and only while it can be seen."""
        state = (*self.state(), self.graph.width(), self.graph.height())
        if state != self._drawn and (self.isVisible() or not self._drawn):
            self._drawn = state
            self.redraw(self.store.current)
        self.mark_tokens()

    def showEvent(self, event) -> None:
        super().showEvent(event)
        self.refresh()

    def mark_tokens(self) -> None:
        """The vertical lines of the selected and of the hovered token."""
        drawing = self.by_token and not self.empty.isVisibleTo(self)
        for line, step in (
            (self.selected_line, None if self.store.following else self.store.selected_step),
            (self.hover_line, self.store.hovered_step),
        ):
            line.setVisible(drawing and step is not None)
            if step is not None:
                line.setValue(step)
        run, moment = self.store.current, self.store.moment
        veiled = drawing and run is not None and moment < len(run.tokens)
        self.veil.setVisible(veiled)
        if veiled:
            self.veil.setRegion((moment - 1, len(run.tokens)))
        if drawing:
            self.tell()

    def tell(self) -> None:
        """Writes the figures at the shown token into the header."""

    def restyle(self) -> None:
        look = theme.current()
        self.graph.setBackground(look.panel)
        small = theme.font(-2)
        for side in ("left", "bottom"):
            axis = self.view.getAxis(side)
            axis.setPen(QColor(0, 0, 0, 0) if side == "left" else look.line)
            axis.setTextPen(look.muted)
            axis.setTickPen(look.line)
            axis.setTickFont(small)
            axis.setStyle(
                tickLength=0,
                tickTextOffset=TICK_OFFSET,
                autoExpandTextSpace=False,
                autoReduceTextSpace=False,
                hideOverlappingLabels=False,
            )
            axis.enableAutoSIPrefix(False)
        self.view.getAxis("left").setGrid(255)
        self.view.getAxis("left").setWidth(round(self.fontMetrics().horizontalAdvance("1,000 MB")))
        self.view.getAxis("bottom").setHeight(round(theme.base_px() * 1.5))
        for part in (*self.curves, *self.limits):
            part.restyle()
        self._place_words()
        self._write_legend()
        veil = QColor(look.panel)
        veil.setAlphaF(VEIL)
        self.veil.setBrush(veil)
        self.selected_line.setPen(QPen(look.accent, 0))
        self.hover_line.setPen(QPen(look.muted, 0, Qt.PenStyle.DotLine))

    def eventFilter(self, watched, event: QEvent) -> bool:
        kind = event.type()
        if kind == QEvent.Type.Resize:
            self._place_words()
            self.refresh()  # other ticks fit now
        elif kind == QEvent.Type.Leave:
            self.store.hover(None)
        elif kind in (QEvent.Type.MouseMove, QEvent.Type.MouseButtonPress) and isinstance(event, QMouseEvent):
            step = self.step_at(event.position())
            if kind == QEvent.Type.MouseMove:
                self.store.hover(step)
            elif step is not None and event.button() == Qt.MouseButton.LeftButton:
                self.store.select(step)
        return super().eventFilter(watched, event)

    def step_at(self, position: QPointF) -> int | None:
        """The token at a place in the graph; None beside the drawing."""
        run = self.store.current
        if not self.by_token or run is None or not run.tokens or self.empty.isVisibleTo(self):
            return None
        box = self.view.getViewBox()
        scene = self.graph.mapToScene(position.toPoint())
        if not box.sceneBoundingRect().contains(scene):
            return None
        return max(0, min(len(run.tokens) - 1, round(box.mapSceneToView(scene).x())))

    def _place_words(self) -> None:
        self.empty.setGeometry(self.graph.rect().adjusted(12, 4, -12, -4))
        below = round(self.view.getAxis("bottom").minimumHeight()) - TICK_OFFSET
        beside = round(self.view.getAxis("left").minimumWidth()) - UNIT_GAP
        self.x_unit.setGeometry(0, self.graph.height() - below, beside, below)


class Limit:
    """A dashed line across the plot with its words at the right."""

    def __init__(self, plot: Plot, role: str) -> None:
        self.plot, self.role = plot, role
        self.line = pg.InfiniteLine(angle=0, movable=False)
        self.text = pg.TextItem(anchor=(1.0, 1.0))
        self._shown: tuple[float, str, float, float] | None = None
        for item in (self.line, self.text):
            plot.view.addItem(item, ignoreBounds=True)
            item.hide()

    def show(self, value: float, words: str, x_to: float) -> None:
        (level,) = series([value])
        if not math.isfinite(level[0]):
            self.hide()
            return
        shown = float(level[0]), words, x_to, self.plot.top
        if shown != self._shown:
            self._shown = shown
            self.line.setValue(level[0])
            # Words stand under a line that is close to the top.
            self.text.setAnchor((1.0, 0.0 if level[0] > 0.8 * self.plot.top else 1.0))
            self.text.setText(words)
            self.text.setPos(x_to, level[0])
        self.line.show()
        self.text.show()

    def hide(self) -> None:
        self.line.hide()
        self.text.hide()

    def restyle(self) -> None:
        look = theme.current()
        colour = theme.readable(getattr(look, self.role), look.panel)
        self.line.setPen(QPen(colour, 0, Qt.PenStyle.DashLine))
        self.text.setColor(colour)
        self.text.setFont(theme.font(-2))
