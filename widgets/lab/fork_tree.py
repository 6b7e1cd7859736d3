"""The tree of forks, painted: time runs to the right in tokens, and each fork hangs below the text that it left."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QLineF, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QAccessible,
    QAccessibleEvent,
    QColor,
    QContextMenuEvent,
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
from PySide6.QtWidgets import QAbstractScrollArea, QFrame, QLineEdit, QToolTip, QWidget

from engine.figures import branches
from widgets import theme
from widgets.format import count_text, plain_tooltip
from widgets.lab.fork_rows import Row
from widgets.run_names import run_name
from widgets.run_store import RunStore

LEFT = 14.0  # of the first token
TEXT_ROOM = 320.0  # right of the longest bar, so that a late fork's text can be read
INDENT = 8.0  # of a row's words, from where its bar begins
BAR = 4.0
AXIS = 26.0
MOST_ZOOM = 64.0
TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
Key = tuple[int, int]


class ForkTree(QAbstractScrollArea):
    """The store's runs. A click shows a run, and with Ctrl or Shift marks several."""

    marks_changed = Signal()
    compare_asked = Signal()
    prune_asked = Signal()
    renamed = Signal(object, object)  # key, name
    menu_asked = Signal(object)  # a point of the screen

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.store = store
        self.rows: list[Row] = []
        self.marked: list[Key] = []  # in the order in which they were marked
        self.cursor: Key | None = None
        self.zoom = 1.0
        self._longest = 1
        self._made: tuple = ()
        self._field = QLineEdit(self.viewport())
        self._field.setAccessibleName(self.tr("Name of the run"))
        self._field.hide()
        self._field.editingFinished.connect(self._name_typed)
        self._field.installEventFilter(self)
        self._naming: Key | None = None
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.viewport().setAutoFillBackground(False)
        self.viewport().setMouseTracking(True)
        self.setAccessibleName(self.tr("Tree of forks"))
        store.selection_changed.connect(self._follow)
        theme.changes.changed.connect(self._restyle)
        self._restyle()

    def _restyle(self) -> None:
        self._small, self._name = theme.font(-1), theme.font(bold=True)
        self._plain, self._given = theme.font(1), theme.font(1, bold=True)
        self._line = QFontMetricsF(self._plain).height()
        self.row_height = round(QFontMetricsF(self._name).height() + self._line + BAR + 26.0)
        self._measure()

    def sizeHint(self) -> QSize:
        return QSize(640, 360)

    # ---------------------------------------------------------------- what is there

    def refresh(self) -> None:
        """Reads the store again."""
        made = tuple((run.key, run.start.name, run.end is not None, len(run.tokens)) for run in self.store.runs)
        if made == self._made:
            return
        self._made = made
        runs = {run.key: run for run in self.store.runs}
        self.rows, places = [], {}
        for branch in branches(run.start for run in self.store.runs):
            places[branch.key] = len(self.rows)
            parent = places.get(branch.parent) if branch.parent is not None else None
            above = self.rows[parent].run if parent is not None else None
            self.rows.append(Row(runs[branch.key], branch, parent, above))
        self._longest = max((row.ends for row in self.rows), default=1) or 1
        marked = [key for key in self.marked if key in runs]
        if self.cursor not in runs:
            self.cursor = self.store.current.key if self.store.current is not None else None
        if not marked and self.cursor is not None:
            marked = [self.cursor]
        if marked != self.marked:
            self.marked = marked
            self.marks_changed.emit()
        self._measure()
        self._describe()

    def _follow(self) -> None:
        """Another run is shown: the cursor stands on it."""
        if (current := self.store.current) is not None and current.key != self.cursor:
            self.cursor = current.key
            if current.key not in self.marked:
                self._mark([current.key])
            self._describe()
        self.viewport().update()

    def row_of(self, key: Key | None) -> int | None:
        return next((at for at, row in enumerate(self.rows) if row.run.key == key), None)

    # ---------------------------------------------------------------- places

    @property
    def scale(self) -> float:
        """Pixels for each token."""
        return max(8.0, self.viewport().width() - LEFT - TEXT_ROOM) / self._longest * self.zoom

    def x_of(self, token: float) -> float:
        return LEFT + token * self.scale - self.horizontalScrollBar().value()

    def _measure(self) -> None:
        across, down = self.horizontalScrollBar(), self.verticalScrollBar()
        width, height = self.viewport().width(), self.viewport().height()
        across.setPageStep(width)
        across.setSingleStep(40)
        across.setRange(0, max(0, round(LEFT + self._longest * self.scale + TEXT_ROOM) - width))
        down.setPageStep(height)
        down.setSingleStep(self.row_height // 2)
        down.setRange(0, max(0, round(AXIS + len(self.rows) * self.row_height + 8) - height))
        self._place_field()
        self.viewport().update()

    def top_of(self, at: int) -> float:
        return AXIS + at * self.row_height - self.verticalScrollBar().value()

    def bar_of(self, at: int) -> float:
        """The middle of a row's bar."""
        return self.top_of(at) + self.row_height - 12.0

    def row_at(self, y: float) -> int | None:
        at = int((y - AXIS + self.verticalScrollBar().value()) // self.row_height)
        return at if y >= AXIS and 0 <= at < len(self.rows) else None

    def step_at(self, at: int, x: float) -> int | None:
        """The token of a row's run under a place on its bar, None beside it."""
        token = int((x - LEFT + self.horizontalScrollBar().value()) // self.scale)
        row = self.rows[at]
        return token - row.run.lost if row.begins <= token < row.ends else None

    def set_zoom(self, zoom: float, around: float | None = None) -> None:
        """Stretches time; `around`: the place in the viewport that stays."""
        around = self.viewport().width() / 3 if around is None else around
        token = (around - LEFT + self.horizontalScrollBar().value()) / self.scale
        self.zoom = max(1.0, min(MOST_ZOOM, zoom))
        self._measure()
        self.horizontalScrollBar().setValue(round(LEFT + token * self.scale - around))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._measure()

    def wheelEvent(self, event: QWheelEvent) -> None:
        if event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            self.set_zoom(self.zoom * 1.25 ** (event.angleDelta().y() / 120), event.position().x())
            event.accept()
        else:
            super().wheelEvent(event)

    # ---------------------------------------------------------------- painting

    def paintEvent(self, event: QPaintEvent) -> None:
        with QPainter(self.viewport()) as painter:  # an exception must not leave it open: that ends the process
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            if not self.rows:
                self._paint_empty(painter)
                return
            self._paint_axis(painter)
            painter.setClipRect(QRectF(0, AXIS, self.viewport().width(), self.viewport().height() - AXIS))
            visible = [
                at
                for at in range(len(self.rows))
                if self.top_of(at) < self.viewport().height() and self.top_of(at) + self.row_height > AXIS
            ]
            for at in visible:
                self._paint_ground(painter, at)
            for at in range(len(self.rows)):  # a line may pass rows of which neither end is seen
                self._paint_stem(painter, at)
            for at in visible:
                self._paint_row(painter, at)
            self._paint_selected(painter)
            if len(self.rows) == 1:
                self._paint_hint(painter)

    def _paint_axis(self, painter: QPainter) -> None:
        look = theme.current()
        painter.setFont(theme.font(-2))
        metrics = QFontMetricsF(painter.font())
        widest = metrics.horizontalAdvance(count_text(self._longest)) + 28.0
        step = next((tick for tick in TICKS if tick * self.scale >= widest), TICKS[-1])
        painter.setPen(look.muted)
        words = self.tr("tokens")
        right = self.viewport().width() - metrics.horizontalAdvance(words) - 6.0
        for token in range(0, self._longest + 1, step):
            x = self.x_of(token)
            if -40.0 < x < right - 30.0:
                painter.drawText(QRectF(x - 30, 2, 60, AXIS - 8), int(Qt.AlignmentFlag.AlignCenter), count_text(token))
        painter.drawText(QRectF(right, 2, 200, AXIS - 8), int(Qt.AlignmentFlag.AlignVCenter), words)
        painter.setPen(QPen(look.line, 1.0))
        painter.drawLine(QLineF(0, AXIS - 2.5, self.viewport().width(), AXIS - 2.5))

    def _paint_ground(self, painter: QPainter, at: int) -> None:
        look, key = theme.current(), self.rows[at].run.key
        box = QRectF(2.0, self.top_of(at) + 2.0, self.viewport().width() - 4.0, self.row_height - 4.0)
        if key in self.marked:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self._tint())
            painter.drawRoundedRect(box, 5.0, 5.0)
        if key == self.cursor and self.hasFocus():
            painter.setPen(QPen(look.accent, 1.0))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(box.adjusted(0.5, 0.5, -0.5, -0.5), 5.0, 5.0)

    @staticmethod
    def _tint() -> QColor:
        look = theme.current()
        return theme.mixed(look.panel, look.accent, 0.10)

    def _paint_stem(self, painter: QPainter, at: int) -> None:
        """The line from where a fork left its parent down to its bar."""
        row, look = self.rows[at], theme.current()
        x = self.x_of(row.begins)
        pen = QPen(theme.mixed(look.panel, look.muted, 0.75), 1.5)
        if row.parent is not None:
            painter.setPen(pen)
            painter.drawLine(QLineF(x, self.bar_of(row.parent), x, self.bar_of(at)))
        elif row.begins:  # what it began in is not here
            pen.setStyle(Qt.PenStyle.DotLine)
            painter.setPen(pen)
            painter.drawLine(QLineF(self.x_of(0), self.bar_of(at), x, self.bar_of(at)))

    def _paint_row(self, painter: QPainter, at: int) -> None:
        row, look = self.rows[at], theme.current()
        run, y = row.run, self.bar_of(at)
        current = run is self.store.current
        ground = self._tint() if run.key in self.marked else look.panel
        x0, x1 = self.x_of(row.begins), self.x_of(max(row.ends, row.begins))
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(look.accent if current else theme.mixed(look.panel, look.weights, 0.8))
        painter.drawRoundedRect(QRectF(x0, y - BAR / 2, max(BAR, x1 - x0), BAR), BAR / 2, BAR / 2)
        if row.parent is not None:
            for middle in (self.bar_of(row.parent), y):
                painter.drawEllipse(QPointF(x0, middle), 4.0, 4.0)
        left = max(LEFT, x0 + INDENT)
        width = self.viewport().width() - left - 10.0
        if width < 40.0:
            return
        top = self.top_of(at) + 7.0
        height = QFontMetricsF(self._name).height()
        if self._naming != run.key:
            self._paint_words(painter, QRectF(left, top, width, height), self._head(row, ground))
        self._paint_words(painter, QRectF(left, top + height + 1.0, width, self._line), self._text(row, ground))

    def _paint_selected(self, painter: QPainter) -> None:
        """The selected token, on the bar of the run that wrote it."""
        run, step = self.store.current, self.store.selected_step
        at = self.row_of(run.key) if run is not None else None
        if run is None or step is None or at is None or self.store.following:
            return
        token = run.lost + step
        while (parent := self.rows[at].parent) is not None and token < self.rows[at].begins:
            at = parent
        x, y = self.x_of(token + 0.5), self.bar_of(at)
        painter.fillRect(QRectF(x - 1.0, y - 7.0, 2.0, 14.0), theme.current().accent)

    def _head(self, row: Row, ground: QColor) -> list[tuple[str, object, QColor]]:
        look = theme.current()
        name = theme.readable(look.accent, ground) if row.run is self.store.current else look.ink
        rest = theme.readable(look.muted, ground)
        return [(row.name, self._name, name), ("   " + " · ".join(row.about()), self._small, rest)]

    def _text(self, row: Row, ground: QColor) -> list[tuple[str, object, QColor]]:
        look = theme.current()
        given, words = row.text()
        return [(given, self._given, theme.readable(look.accent, ground)), (words, self._plain, look.ink)]

    @staticmethod
    def _paint_words(painter: QPainter, box: QRectF, parts: list) -> None:
        flags = int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft | Qt.TextFlag.TextSingleLine)
        x, right = box.left(), box.right()
        for text, font, colour in parts:
            if not text or right - x < 12.0:
                continue
            metrics = QFontMetricsF(font)
            shown = metrics.elidedText(text, Qt.TextElideMode.ElideRight, right - x)
            painter.setFont(font)
            painter.setPen(colour)
            painter.drawText(QRectF(x, box.top(), right - x, box.height()), flags, shown)
            x += metrics.horizontalAdvance(shown)
            if shown != text:
                break

    def _paint_empty(self, painter: QPainter) -> None:
        painter.setPen(theme.current().muted)
        painter.setFont(theme.font(1))
        painter.drawText(
            self.viewport().rect().adjusted(24, 12, -24, -12),
            int(Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap),
            "\n".join(
                (
                    self.tr("Texts that grew out of one another are drawn here as a tree."),
                    self.tr("Press Run (Ctrl+Return) for the first one."),
                    self._how(),
                )
            ),
        )

    def _how(self) -> str:
        return self.tr(
            "At any word you can then go on another way: with other settings (Ctrl+Shift+Return), with another word of "
            "“Why this word” (Ctrl+Shift+A), or with what you write (Ctrl+Shift+W)."
        )

    def _paint_hint(self, painter: QPainter) -> None:
        painter.setPen(theme.current().muted)
        painter.setFont(theme.font())
        top = self.top_of(1) + 12.0
        box = QRectF(LEFT + INDENT, top, min(560.0, self.viewport().width() - 2 * LEFT - INDENT), 200.0)
        painter.drawText(box, int(Qt.TextFlag.TextWordWrap), self._how())

    # ---------------------------------------------------------------- hand

    def mousePressEvent(self, event: QMouseEvent) -> None:
        at = self.row_at(event.position().y())
        if event.button() != Qt.MouseButton.LeftButton or at is None:
            return
        held, key = event.modifiers(), self.rows[at].run.key
        if held & Qt.KeyboardModifier.ControlModifier:
            self._toggle(key)
            return
        if held & Qt.KeyboardModifier.ShiftModifier:
            self._mark_to(at)
            return
        on_bar = abs(event.position().y() - self.bar_of(at)) <= 9.0
        self._go(at, self.step_at(at, event.position().x()) if on_bar else None)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        at = self.row_at(event.position().y())
        if at is None or event.button() != Qt.MouseButton.LeftButton:
            return
        if event.position().y() < self.top_of(at) + 8.0 + QFontMetricsF(self._name).height():
            self.rename()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        at = self.row_at(event.position().y())
        self.viewport().setCursor(Qt.CursorShape.ArrowCursor if at is None else Qt.CursorShape.PointingHandCursor)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        if event.reason() == QContextMenuEvent.Reason.Keyboard:
            at = self.row_of(self.cursor)
            place = self.viewport().mapToGlobal(QPointF(40, self.bar_of(at)).toPoint()) if at is not None else None
        else:
            at, place = self.row_at(event.pos().y()), event.globalPos()
            if at is not None and self.rows[at].run.key not in self.marked:
                self._go(at)
        if at is not None:
            self.menu_asked.emit(place)

    def _go(self, at: int, step: int | None = None) -> None:
        """Shows a row's run, and a token of it."""
        row = self.rows[max(0, min(at, len(self.rows) - 1))]
        self.cursor = row.run.key
        self._mark([row.run.key])
        if row.run is not self.store.current:
            self.store.show(row.run)
        if step is not None:
            self.store.select(step)
        self._reveal(at)
        self._describe()
        self.viewport().update()

    def _mark(self, keys: list[Key]) -> None:
        if keys != self.marked:
            self.marked = keys
            self.marks_changed.emit()
            self.viewport().update()

    def _toggle(self, key: Key) -> None:
        self.cursor = key
        self._mark([k for k in self.marked if k != key] if key in self.marked else [*self.marked, key])
        self._describe()

    def _mark_to(self, at: int) -> None:
        """All rows from the first marked one to this."""
        first = self.row_of(self.marked[0]) if self.marked else at
        first = at if first is None else first
        low, high = min(first, at), max(first, at)
        keys = [self.rows[place].run.key for place in range(low, high + 1)]
        self.cursor = self.rows[at].run.key
        self._mark(keys if first <= at else keys[::-1])
        self._reveal(at)
        self._describe()

    def _reveal(self, at: int) -> None:
        bar, top = self.verticalScrollBar(), at * self.row_height
        if top < bar.value():
            bar.setValue(top)
        elif top + self.row_height + AXIS > bar.value() + self.viewport().height():
            bar.setValue(round(top + self.row_height + AXIS - self.viewport().height()))

    # ---------------------------------------------------------------- keys

    def keyPressEvent(self, event: QKeyEvent) -> None:
        at, held = self.row_of(self.cursor), event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
        if not self.rows or held & ~Qt.KeyboardModifier.ShiftModifier:
            super().keyPressEvent(event)
            return
        here = 0 if at is None else at
        go = self._mark_to if held else self._go
        match event.key():
            case Qt.Key.Key_Down:
                go(min(len(self.rows) - 1, here + 1))
            case Qt.Key.Key_Up:
                go(max(0, here - 1))
            case Qt.Key.Key_Home:
                go(0)
            case Qt.Key.Key_End:
                go(len(self.rows) - 1)
            case Qt.Key.Key_Left if (parent := self.rows[here].parent) is not None:
                go(parent)
            case Qt.Key.Key_Right:
                child = next((place for place, row in enumerate(self.rows) if row.parent == here), None)
                if child is not None:
                    go(child)
            case Qt.Key.Key_Space:
                self._toggle(self.rows[here].run.key)
            case Qt.Key.Key_Return | Qt.Key.Key_Enter:
                self._go(here)
            case Qt.Key.Key_F2:
                self.rename()
            case Qt.Key.Key_Delete | Qt.Key.Key_Backspace:
                self.prune_asked.emit()
            case Qt.Key.Key_C:
                self.compare_asked.emit()
            case Qt.Key.Key_Plus | Qt.Key.Key_Equal:
                self.set_zoom(self.zoom * 1.5)
            case Qt.Key.Key_Minus:
                self.set_zoom(self.zoom / 1.5)
            case _:
                super().keyPressEvent(event)

    # ---------------------------------------------------------------- names

    def rename(self) -> None:
        """Opens the field over the name at the cursor."""
        at = self.row_of(self.cursor)
        if at is None:
            return
        row = self.rows[at]
        self._reveal(at)
        self._naming = row.run.key
        self._field.setText(row.run.start.name)
        self._field.setPlaceholderText(run_name(row.run.start))
        self._place_field()
        self._field.show()
        self._field.selectAll()
        self._field.setFocus()
        self.viewport().update()

    def _place_field(self) -> None:
        at = self.row_of(self._naming)
        if at is not None:
            left = max(LEFT, self.x_of(self.rows[at].begins) + INDENT) - 8.0
            height = round(QFontMetricsF(self._name).height() + 8.0)
            self._field.setGeometry(round(left), round(self.top_of(at)) + 2, 240, height)

    def _name_typed(self) -> None:
        key, self._naming = self._naming, None
        had_focus = self._field.hasFocus()
        self._field.hide()
        if had_focus:
            self.setFocus()
        if key is not None:
            self.renamed.emit(key, self._field.text())
        self.viewport().update()

    def eventFilter(self, watched: object, event: QEvent) -> bool:
        if event.type() == QEvent.Type.KeyPress and isinstance(event, QKeyEvent) and event.key() == Qt.Key.Key_Escape:
            self._naming = None
            self._field.hide()
            self.setFocus()
            return True
        return super().eventFilter(watched, event)  # type: ignore[arg-type]

    # ---------------------------------------------------------------- words

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            at = self.row_at(event.pos().y())
            if at is None:
                QToolTip.hideText()
            else:
                words = self.rows[at].words(self.step_at(at, event.pos().x()))
                QToolTip.showText(event.globalPos(), plain_tooltip(words), self.viewport())
            return True
        return super().viewportEvent(event)

    def _describe(self) -> None:
        at = self.row_of(self.cursor)
        text = "" if at is None else self.rows[at].words()
        if at is not None and self.rows[at].run.key in self.marked and len(self.marked) > 1:
            text += "\n" + self.tr("one of {count} marked").format(count=count_text(len(self.marked)))
        if text != self.accessibleDescription():
            self.setAccessibleDescription(text)
            if QAccessible.isActive():
                QAccessible.updateAccessibility(QAccessibleEvent(self, QAccessible.Event.DescriptionChanged))
