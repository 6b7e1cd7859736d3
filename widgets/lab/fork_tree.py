"""The tree of forks under hand and keys: rows are shown, marked and renamed, and time is stretched.

Where a thing lies is in fork_places.py, and how it looks in fork_painting.py.
"""

from __future__ import annotations

import math

from PySide6.QtCore import QEvent, QPointF, QSize, Qt, Signal
from PySide6.QtGui import (
    QContextMenuEvent,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QAbstractScrollArea, QFrame, QLineEdit, QToolTip, QWidget

from engine.figures import branches
from widgets import theme
from widgets.format import count_text, plain_tooltip
from widgets.lab.fork_painting import Fonts, ForkPicture
from widgets.lab.fork_places import AXIS, INDENT, LEFT, Places
from widgets.lab.fork_rows import Key, Row
from widgets.run_store import RunStore

MOST_ZOOM = 64.0
ALONG = (Qt.Key.Key_Down, Qt.Key.Key_Up, Qt.Key.Key_Home, Qt.Key.Key_End, Qt.Key.Key_Left, Qt.Key.Key_Right)


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
        self._unseen = True  # the shown run's row was not painted yet
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
        self._fonts = Fonts.now()
        self._measure()

    def sizeHint(self) -> QSize:
        return QSize(640, 360)

    # ---------------------------------------------------------------- what is there

    def refresh(self) -> None:
        """Reads the store again."""
        made = tuple(
            (run.key, run.start.name, self.store.letter(run), run.end is not None, len(run.tokens))
            for run in self.store.runs
        )
        if made != self._made:
            self._made = made
            self._read()
        self._reveal_shown()

    def _read(self) -> None:
        runs = {run.key: run for run in self.store.runs}
        self.rows, places = [], {}
        for branch in branches(run.start for run in self.store.runs):
            places[branch.key] = len(self.rows)
            parent = places.get(branch.parent) if branch.parent is not None else None
            above = self.rows[parent].run if parent is not None else None
            self.rows.append(Row(self.store, runs[branch.key], branch, parent, above))
        self._longest = max((row.ends for row in self.rows), default=1) or 1
        marked = [key for key in self.marked if key in runs]
        if self.cursor not in runs:
            self.cursor = self.store.current.key if self.store.current is not None else None
            self._unseen = True
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
            self.cursor, self._unseen = current.key, True
            if current.key not in self.marked:
                self._mark([current.key])
            self._reveal_shown()
            self._describe()
        self.viewport().update()

    def _reveal_shown(self) -> None:
        """Brings the shown run's row into view, until it was painted there: after that a hand may scroll away."""
        if self._unseen and (at := self.row_of(self.cursor)) is not None:
            self._reveal(at)

    def row_of(self, key: Key | None) -> int | None:
        return next((at for at, row in enumerate(self.rows) if row.run.key == key), None)

    # ---------------------------------------------------------------- places

    @property
    def places(self) -> Places:
        """Where all of it lies now."""
        view = self.viewport()
        across, down = self.horizontalScrollBar().value(), self.verticalScrollBar().value()
        height = self._fonts.row_height
        return Places(view.width(), view.height(), across, down, height, len(self.rows), self._longest, self.zoom)

    def _measure(self) -> None:
        across, down, places = self.horizontalScrollBar(), self.verticalScrollBar(), self.places
        across.setPageStep(places.width)
        across.setSingleStep(40)
        across.setRange(0, max(0, round(places.whole_width) - places.width))
        down.setPageStep(places.height)
        down.setSingleStep(places.row_height // 2)
        down.setRange(0, max(0, round(places.whole_height) - places.height))
        self._place_field()
        self.viewport().update()

    def step_at(self, at: int, x: float) -> int | None:
        """The token of a row's run under a place on its bar, None beside it."""
        token, row = math.floor(self.places.token_at(x)), self.rows[at]
        return token - row.run.lost if row.begins <= token < row.ends else None

    def set_zoom(self, zoom: float, around: float | None = None) -> None:
        """Stretches time; `around`: the place in the viewport that stays."""
        around = self.viewport().width() / 3 if around is None else around
        token = self.places.token_at(around)
        self.zoom = max(1.0, min(MOST_ZOOM, zoom))
        self._measure()
        self.horizontalScrollBar().setValue(round(LEFT + token * self.places.scale - around))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._measure()
        self._reveal_shown()

    def wheelEvent(self, event: QWheelEvent) -> None:
        if event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            self.set_zoom(self.zoom * 1.25 ** (event.angleDelta().y() / 120), event.position().x())
            event.accept()
        else:
            super().wheelEvent(event)

    # ---------------------------------------------------------------- painting

    def paintEvent(self, event: QPaintEvent) -> None:
        store, run = self.store, self.store.current
        selected = None
        if run is not None and store.selected_step is not None and not store.following:
            selected = run.lost + store.selected_step
        picture = ForkPicture(
            self.rows, self.places, self._fonts, tuple(self.marked), self.cursor if self.hasFocus() else None,
            run.key if run is not None else None, selected, self._naming,
        )  # fmt: skip
        with QPainter(self.viewport()) as painter:  # an exception must not leave it open: that ends the process
            picture.paint(painter)
        self._unseen = self._unseen and self.row_of(self.cursor) is None

    # ---------------------------------------------------------------- hand

    def mousePressEvent(self, event: QMouseEvent) -> None:
        at = self.places.row_at(event.position().y())
        if event.button() != Qt.MouseButton.LeftButton or at is None:
            return
        held, key = event.modifiers(), self.rows[at].run.key
        if held & Qt.KeyboardModifier.ControlModifier:
            self._toggle(key)
            return
        if held & Qt.KeyboardModifier.ShiftModifier:
            self._mark_to(at)
            return
        on_bar = abs(event.position().y() - self.places.bar_of(at)) <= 9.0
        self._go(at, self.step_at(at, event.position().x()) if on_bar else None)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        at = self.places.row_at(event.position().y())
        if at is None or event.button() != Qt.MouseButton.LeftButton:
            return
        if event.position().y() < self.places.top_of(at) + 8.0 + self._fonts.name_height:
            self.rename()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        at = self.places.row_at(event.position().y())
        self.viewport().setCursor(Qt.CursorShape.ArrowCursor if at is None else Qt.CursorShape.PointingHandCursor)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        if event.reason() == QContextMenuEvent.Reason.Keyboard:
            at, place = self.row_of(self.cursor), None
            if at is not None:
                place = self.viewport().mapToGlobal(QPointF(40, self.places.bar_of(at)).toPoint())
        else:
            at, place = self.places.row_at(event.pos().y()), event.globalPos()
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

    def _stand_at(self, at: int) -> None:
        """The cursor goes to a row that is neither shown nor marked yet."""
        self.cursor = self.rows[at].run.key
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
        bar, places = self.verticalScrollBar(), self.places
        top = at * places.row_height
        if top < bar.value():
            bar.setValue(top)
        elif top + places.row_height + AXIS > bar.value() + places.height:
            bar.setValue(round(top + places.row_height + AXIS - places.height))

    # ---------------------------------------------------------------- keys

    def keyPressEvent(self, event: QKeyEvent) -> None:
        at, held = self.row_of(self.cursor), event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
        beside = held == Qt.KeyboardModifier.ControlModifier and event.key() in (*ALONG, Qt.Key.Key_Space)
        if not self.rows or (held & ~Qt.KeyboardModifier.ShiftModifier and not beside):
            super().keyPressEvent(event)
            return
        here = 0 if at is None else at
        go = self._stand_at if beside else self._mark_to if held else self._go
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
        self._field.setPlaceholderText(row.name)
        self._place_field()
        self._field.show()
        self._field.selectAll()
        self._field.setFocus()
        self.viewport().update()

    def _place_field(self) -> None:
        at = self.row_of(self._naming)
        if at is not None:
            left = max(LEFT, self.places.x_of(self.rows[at].begins) + INDENT) - 8.0
            height = round(self._fonts.name_height + 8.0)
            self._field.setGeometry(round(left), round(self.places.top_of(at)) + 2, 240, height)

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
            at = self.places.row_at(event.pos().y())
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
        self.setAccessibleDescription(text)
