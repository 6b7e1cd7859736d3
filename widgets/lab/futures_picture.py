"""The picture of many futures: words in boxes whose height is their share, read from left to right."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QPoint, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontMetricsF,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QAbstractScrollArea, QFrame, QToolTip, QWidget

from engine.events import Futures, Node, tree_of
from widgets import theme
from widgets.format import count_text, plain_tooltip
from widgets.lab.futures_layout import OTHERS, WORDS, Box, columns, lay_out
from widgets.lab.futures_words import BoxWords
from widgets.lab.wrapped import wrapped

GAP = 2.0
PADDING = 8.0
NARROWEST = 132.0  # of a column
LARGEST_STEP, SMALLEST_STEP = 24, -2


class FuturesPicture(QAbstractScrollArea):
    """Shows Futures. `chosen_changed` says that another box is chosen, `opened` the place of a single future."""

    chosen_changed = Signal()
    zoomed = Signal()
    opened = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.found: Futures | None = None
        self.said: BoxWords | None = None  # in words; there as long as there are boxes
        self.boxes: list[Box] = []
        self.chosen: Box | None = None
        self.hovered: Box | None = None
        self.roots: list[Node] = []  # what was zoomed into, the whole first
        self.size_step = 1
        self._waiting = False
        self._texts: dict[tuple, list[str]] = {}
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.viewport().setMouseTracking(True)
        self.viewport().setAutoFillBackground(False)
        self.setAccessibleName(self.tr("Tree of futures"))
        self._height = 1.0
        self.horizontalScrollBar().valueChanged.connect(self.viewport().update)
        self.verticalScrollBar().valueChanged.connect(self.viewport().update)
        theme.changes.changed.connect(self._restyle)
        self._restyle()

    def sizeHint(self) -> QSize:
        return QSize(800, 420)

    def minimumSizeHint(self) -> QSize:
        return QSize(240, 140)

    def _restyle(self) -> None:
        self._word, self._small = theme.font(self.size_step), theme.font(self.size_step - 2)
        self._line = QFontMetricsF(self._word).height()
        self._small_line = QFontMetricsF(self._small).height()
        self._lay_out()

    def zoom_text(self, by: int) -> None:
        """Larger or smaller words."""
        step = max(SMALLEST_STEP, min(LARGEST_STEP, self.size_step + by))
        if step != self.size_step:
            self.size_step = step
            self._restyle()

    # ---------------------------------------------------------------- what is shown

    def set_found(self, found: Futures | None, written: Sequence[int] = (), waiting: bool = False) -> None:
        """Shows futures, or so many as there are by now; what was zoomed into stays where it still is."""
        self._waiting = waiting
        self.said = BoxWords(found, written) if found is not None else None
        if found is self.found:
            self.viewport().update()
            return
        before, chosen = self.roots, self.chosen
        same = found is not None and self.found is not None and found.question == self.found.question
        self.found = found
        tree = tree_of(found.futures) if found is not None and found.futures else None
        self.roots = [tree] if tree is not None else []
        if same and tree is not None:
            for old in before[1:]:
                new = _again(tree, old)
                if new is None:
                    break
                self.roots.append(new)
        self.chosen = self.hovered = None
        self._lay_out()
        if same and chosen is not None:
            self.chosen = next((b for b in self.boxes if (b.kind, b.node.futures) == _key(chosen)), None)
        self.chosen_changed.emit()

    def _lay_out(self) -> None:
        need = self._small_line + GAP + 3.0
        kept = _key(self.chosen) if self.chosen is not None else None
        height = max(1.0, float(self.viewport().height()))
        self._height = height
        self.boxes = lay_out(self.roots[-1], (need - 0.5) / height) if self.roots else []
        rare_only = bool(self.boxes) and [box.kind for box in self.boxes[0].children] == [OTHERS]
        if self.roots and (rare_only or (_is_others(self.roots[-1]) and len(self.roots) > 1)):
            # Rare ways and nothing else: each has a line of its own, and the picture scrolls.
            self._height = max(height, self.roots[-1].count * (self._line + GAP + 4.0))
            self.boxes = lay_out(self.roots[-1], (need - 0.5) / self._height)
        self.chosen = next((box for box in self.boxes if _key(box) == kept), None)
        self.hovered = None
        self._texts = {}
        self._measure()
        self._describe()

    def _measure(self) -> None:
        bar, width = self.horizontalScrollBar(), float(self.viewport().width())
        count = max(1, columns(self.boxes))
        self._column = max(NARROWEST, width / count)
        bar.setPageStep(round(width))
        bar.setSingleStep(40)
        bar.setRange(0, max(0, round(self._column * count - width)))
        down, seen = self.verticalScrollBar(), self.viewport().height()
        down.setPageStep(seen)
        down.setSingleStep(round(self._line))
        down.setRange(0, max(0, round(self._height - seen)))
        self.viewport().update()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._lay_out()

    def rect_of(self, box: Box) -> QRectF:
        """Where a box lies in the viewport. One that nothing hangs on goes to the right edge."""
        height = self._height
        x = box.column * self._column - self.horizontalScrollBar().value()
        count = max(1, columns(self.boxes))
        width = self._column if box.children else (count - box.column) * self._column
        y = box.top * height - self.verticalScrollBar().value()
        return QRectF(x, y, width - GAP, max(1.0, box.height * height - GAP))

    def box_at(self, point: QPointF) -> Box | None:
        return next((box for box in reversed(self.boxes) if self.rect_of(box).contains(point)), None)

    # ---------------------------------------------------------------- painting

    def paintEvent(self, event: QPaintEvent) -> None:
        with QPainter(self.viewport()) as painter:  # an exception must not leave it open: that ends the process
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            if not self.boxes:
                self._paint_empty(painter)
                return
            path = _path(self.hovered or self.chosen)
            for box in self.boxes:
                rect = self.rect_of(box)
                if rect.intersects(QRectF(self.viewport().rect())):
                    self._paint_box(painter, box, rect, box in path)

    def _paint_box(self, painter: QPainter, box: Box, rect: QRectF, on_path: bool) -> None:
        assert self.said is not None
        look = theme.current()
        ground = self._ground(box, on_path)
        radius = min(4.0, rect.height() / 2)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(ground)
        painter.drawRoundedRect(rect, radius, radius)
        if self.said.is_written(box) and box.parent is not None:
            painter.setBrush(look.accent)
            painter.drawRoundedRect(QRectF(rect.left(), rect.top(), 3.0, rect.height()), 1.5, 1.5)
        if box is self.chosen:
            painter.setPen(QPen(look.accent, 2.0 if self.hasFocus() else 1.0))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(rect.adjusted(1, 1, -1, -1), radius, radius)
        self._paint_text(painter, box, rect, ground)

    def _ground(self, box: Box, on_path: bool) -> QColor:
        look = theme.current()
        if box.kind != WORDS:
            return theme.mixed(look.track, look.muted, 0.18 if on_path else 0.0)
        share = 0.34 if on_path else 0.20 if box.column % 2 else 0.13
        return theme.mixed(look.panel, look.probability, share)

    def _paint_text(self, painter: QPainter, box: Box, rect: QRectF, ground: QColor) -> None:
        assert self.said is not None
        look = theme.current()
        inner = rect.adjusted(PADDING + (2.0 if self.said.is_written(box) else 0.0), 0.0, -PADDING, 0.0)
        # What is scrolled out on the left must not take the words with it.
        inner.setLeft(max(inner.left(), min(PADDING, inner.right() - 40.0)))
        inner.setTop(max(inner.top(), min(0.0, inner.bottom() - self._line - 2.0)))
        inner.setBottom(min(inner.bottom(), max(self.viewport().height(), inner.top() + self._line + 2.0)))
        low = inner.height() < self._line + 2.0
        font, line_height = (self._small, self._small_line) if low else (self._word, self._line)
        if inner.height() < line_height or inner.width() < 24.0:
            return
        muted = theme.readable(look.muted, ground)
        shares = box.kind in (WORDS, OTHERS) and box.node is not self.roots[0]
        with_share = shares and inner.height() >= line_height + self._small_line + 4.0
        room = inner.height() - (self._small_line + 4.0 if with_share else 0.0)
        lines = self._lines(box, font, inner.width(), max(1, int(room // line_height)))
        height = len(lines) * line_height + (self._small_line if with_share else 0.0)
        y = inner.top() + max(0.0, (inner.height() - height) / 2)
        painter.setFont(font)
        painter.setPen(look.ink if box.kind == WORDS else muted)
        flags = int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft | Qt.TextFlag.TextSingleLine)
        for line in lines:
            painter.drawText(QRectF(inner.left(), y, inner.width() + 2.0, line_height), flags, line)
            y += line_height
        if with_share:
            painter.setFont(self._small)
            painter.setPen(muted)
            metrics = QFontMetricsF(self._small)
            said = metrics.elidedText(self.said.share(box), Qt.TextElideMode.ElideRight, inner.width())
            painter.drawText(QRectF(inner.left(), y, inner.width() + 2.0, self._small_line), flags, said)
        elif box.kind == WORDS and shares and len(lines) == 1:
            # One line only: the share stands behind the words where there is room.
            metrics, small = QFontMetricsF(font), QFontMetricsF(self._small)
            said = count_text(box.count)
            left = inner.left() + metrics.horizontalAdvance(lines[0]) + 8.0
            if left + small.horizontalAdvance(said) <= inner.right():
                painter.setFont(self._small)
                painter.setPen(muted)
                painter.drawText(QRectF(left, y - line_height, inner.right() - left, line_height), flags, said)

    def _lines(self, box: Box, font: QFont, width: float, rows: int) -> list[str]:
        key = (id(box), round(width), rows)
        if key not in self._texts and self.said is not None:
            text = self.said.words(box)
            where = Qt.TextElideMode.ElideLeft if box.parent is None else Qt.TextElideMode.ElideRight
            self._texts[key] = wrapped(text, font, width, rows, where)
        return self._texts[key]

    def _paint_empty(self, painter: QPainter) -> None:
        painter.setPen(theme.current().muted)
        painter.setFont(theme.font(1))
        words = (
            self.tr("Reading the beginning…")
            if self._waiting
            else self.tr(
                "One text is one draw out of very many. Here a hundred continuations from the same word are drawn as "
                "a tree: words in boxes, each as high as the share of futures that go that way, so that you see what "
                "the model could have written, not only what it did.\n\nWrite a text, choose the word to begin at, and "
                "press Write futures (Ctrl+Return)."
            )
        )
        area = self.viewport().rect()
        room = min(620, area.width() - 48)
        box = QRectF(area.center().x() - room / 2, area.top() + 12.0, room, area.height() - 24.0)
        painter.drawText(box, int(Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap), words)

    # ---------------------------------------------------------------- hand

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        box = self.box_at(event.position())
        self.viewport().setCursor(Qt.CursorShape.ArrowCursor if box is None else Qt.CursorShape.PointingHandCursor)
        if box is not self.hovered:
            self.hovered = box
            self.viewport().update()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton and (box := self.box_at(event.position())) is not None:
            self.choose(box)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton and (box := self.box_at(event.position())) is not None:
            self.choose(box)
            self.enter()

    def wheelEvent(self, event: QWheelEvent) -> None:
        if event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            self.zoom_text(1 if event.angleDelta().y() > 0 else -1)
            event.accept()
        else:
            super().wheelEvent(event)

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Leave and self.hovered is not None:
            self.hovered = None
            self.viewport().update()
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            self._show_tip(event.pos(), event.globalPos())
            return True
        return super().viewportEvent(event)

    def _show_tip(self, at: QPoint, place: QPoint) -> None:
        box = self.box_at(QPointF(at))
        if box is None or self.said is None:
            QToolTip.hideText()
        else:
            QToolTip.showText(place, plain_tooltip(self.said.about(box)), self.viewport())

    def choose(self, box: Box | None) -> None:
        if box is not self.chosen:
            self.chosen = box
            self._reveal(box)
            self._describe()
            self.chosen_changed.emit()
            self.viewport().update()

    def _reveal(self, box: Box | None) -> None:
        if box is None:
            return
        bar, left = self.horizontalScrollBar(), box.column * self._column
        if left < bar.value():
            bar.setValue(round(left))
        elif left + self._column > bar.value() + self.viewport().width():
            bar.setValue(round(left + self._column - self.viewport().width()))
        down, rect = self.verticalScrollBar(), self.rect_of(box)
        if rect.bottom() < 0 or rect.top() > self.viewport().height():
            down.setValue(round(box.top * self._height))

    # ---------------------------------------------------------------- zoom

    @property
    def can_enter(self) -> bool:
        """Whether there is more to see in the chosen box than is drawn."""
        return self.chosen is not None and self.chosen.parent is not None and self.chosen.count > 1

    def enter(self) -> None:
        """Into the chosen box: it fills the height, and of others each gets a line. A single future is opened."""
        box = self.chosen
        if box is not None and box.count == 1:
            self.opened.emit(box.node.futures[0])
        elif box is not None and self.can_enter:
            self.roots.append(box.node)
            self._zoomed()

    def leave(self) -> None:
        """Back out by one step."""
        if len(self.roots) > 1:
            self.roots.pop()
            self._zoomed()

    def _zoomed(self) -> None:
        self.chosen = None
        self._lay_out()
        self.choose(self.boxes[0] if self.boxes else None)
        self.zoomed.emit()

    # ---------------------------------------------------------------- keys

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if not self.boxes or event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier:
            super().keyPressEvent(event)
            return
        box = self.chosen or self.boxes[0]
        match event.key():
            case Qt.Key.Key_Right:
                self.choose(box.children[0] if self.chosen is not None and box.children else box)
            case Qt.Key.Key_Left:
                self.choose(box.parent or box)
            case Qt.Key.Key_Down | Qt.Key.Key_Up:
                column = [each for each in self.boxes if each.column == box.column]
                at = column.index(box) + (1 if event.key() == Qt.Key.Key_Down else -1)
                self.choose(column[max(0, min(len(column) - 1, at))])
            case Qt.Key.Key_Home:
                self.choose(self.boxes[0])
            case Qt.Key.Key_Return | Qt.Key.Key_Enter:
                self.enter()
            case Qt.Key.Key_Backspace | Qt.Key.Key_Escape:
                self.leave()
            case Qt.Key.Key_Plus | Qt.Key.Key_Equal:
                self.zoom_text(1)
            case Qt.Key.Key_Minus:
                self.zoom_text(-1)
            case _:
                super().keyPressEvent(event)

    def _describe(self) -> None:
        text = ""
        if self.chosen is not None and self.said is not None:
            text = f"{self.said.words(self.chosen)}: {self.said.about(self.chosen)}"
        self.setAccessibleDescription(text)


def _key(box: Box) -> tuple[str, tuple[int, ...]]:
    return box.kind, box.node.futures


def _path(box: Box | None) -> list[Box]:
    found = []
    while box is not None:
        found.append(box)
        box = box.parent
    return found


def _is_others(node: Node) -> bool:
    """Ways that were put together because each is rare: they have no words in common."""
    return node.begin == node.end


def _again(tree: Node, old: Node) -> Node | None:
    """The node of a newer tree that holds what an older one held; None where they went apart."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if set(old.futures) <= set(node.futures):
            if _is_others(old) and node.end == old.end:
                ways = tuple(way for way in node.children if not set(way.futures).isdisjoint(old.futures))
                members = tuple(sorted(place for way in ways for place in way.futures))
                return Node(old.begin, old.end, members, ways)
            if node.begin == old.begin and node.begin != node.end:
                return node
            waiting += node.children
    return None
