"""How uncertain the model was at each token; drag it to go back in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QAccessible,
    QColor,
    QFontMetricsF,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from widgets import theme
from widgets.format import count_text, nats_text, number_text, plain_tooltip, token_label
from widgets.mark_painter import mark_x, paint_on_timeline, row_height
from widgets.marks import Marks, described
from widgets.notes_bar import NotesBar
from widgets.panel import Panel
from widgets.playback import Player
from widgets.playback_buttons import PlaybackButtons
from widgets.run import Run
from widgets.run_store import RunStore

if TYPE_CHECKING:
    import numpy as np

WIDEST = 12.0  # of a bar with its gap, so that few tokens do not become boards
ROUND_FROM = 1.5  # pixels of a bar's round corner
GAP_FROM = 4.0  # narrower bars touch
FLOOR_NATS = 2.0  # the scale's least top, so that a certain text looks calm


class Timeline(Panel):
    """Bars of entropy along the current run of a store, the shown token marked; played back, bookmarks, notes."""

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__("", parent)
        self.set_title(
            self.tr("Uncertainty by token (nats), drag to go back in time"),
            self.tr("Uncertainty by token"),
            self.tr("Uncertainty"),
        )
        self.title_label.setToolTip(
            self.tr(
                "Entropy of the distribution before all settings, −Σ p ln p over the whole vocabulary, in nats; "
                "measured. 0 is certain; 2.3 nats is as open as a fair choice among 10 words.\n"
                "Where there are more tokens than pixels, a bar is the mean of several."
            )
        )
        self.store = store
        self.player = Player(store, self)
        self.marks = Marks(store, self)
        self.bars = TimelineBars(store, self)
        self.notes_bar = NotesBar(self.marks)
        self.buttons = PlaybackButtons(self.player, self.marks, self)
        self.setFocusProxy(self.bars)
        self.show_focus_of(self.bars)
        self.header.addWidget(self.buttons)
        self.body.setSpacing(4)
        self.body.addWidget(self.notes_bar)
        self.body.addWidget(self.bars, 1)
        self.bars.play_asked.connect(self.player.toggle)
        self.marks.edit_asked.connect(self.player.pause)
        self.notes_bar.left.connect(self.bars.setFocus)
        store.frame.connect(self._show_place)
        store.selection_changed.connect(self._show_place)
        self._show_place()

    def _show_place(self) -> None:
        step, run = self.store.selected_step, self.store.current
        if step is None or run is None:
            self.set_remark("")
            return
        number, count = count_text(step + 1), count_text(len(run.tokens))
        wordings = self.tr("token {number} of {count}").format(number=number, count=count), f"{number} / {count}"
        room = self.width() - self.minimumSizeHint().width() - self.header.spacing()
        self.set_remark(next((words for words in wordings if self.remark_label.advance(words) <= room), ""))

    def minimumSizeHint(self) -> QSize:
        """The place gives way where there is no room: the bars show it, too."""
        least = super().minimumSizeHint()
        if self.remark_label.isHidden():
            return least
        return QSize(least.width() - self.remark_label.minimumWidth() - self.header.spacing(), least.height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._show_place()


class TimelineBars(QWidget):
    """The bars themselves."""

    play_asked = Signal()

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.store = store
        self._run: Run | None = None
        self._entropy: np.ndarray | None = None  # float32, grows by doubling
        self._count = 0
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setAccessibleName(self.tr("Uncertainty by token"))
        store.frame.connect(self.refresh)
        store.selection_changed.connect(self.refresh)
        store.hover_changed.connect(self.update)
        store.marks_changed.connect(self._marks_changed)
        theme.changes.changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(320, 64)

    def minimumSizeHint(self) -> QSize:
        return QSize(80, round(36 + self._row()))

    def _marks_changed(self) -> None:
        self.updateGeometry()  # their row needs its room
        self.refresh()

    def refresh(self) -> None:
        """Takes in the tokens that came since the last frame."""
        run = self.store.current
        if run is not self._run:
            self._run, self._count = run, 0
            self.updateGeometry()
        if run is not None and len(run.tokens) > self._count:
            import numpy as np  # not before the window shows: its import takes a tenth of a second

            if self._entropy is None:
                self._entropy = np.zeros(256, dtype=np.float32)
            while self._entropy.size < len(run.tokens):
                self._entropy = np.concatenate([self._entropy, np.zeros_like(self._entropy)])
            new = [token.entropy_nats for token in run.tokens[self._count :]]
            # A damaged recording may hold any number, and float32 not every one.
            known = np.clip(np.nan_to_num(new, nan=0.0, posinf=0.0, neginf=0.0), -1e30, 1e30)
            self._entropy[self._count : len(run.tokens)] = known
            self._count = len(run.tokens)
        if not self.store.following or run is None or run.end is not None or QAccessible.isActive():
            self._describe()
        self.update()

    def _describe(self) -> None:
        step = self.store.selected_step
        text = ""
        if step is not None and self._run is not None:
            text = self._words(step)
        self.setAccessibleDescription(text)

    def _words(self, step: int) -> str:
        token = self._run.tokens[step] if self._run else None
        words = self.tr("token {number} of {count}: {label}, entropy {nats}").format(
            number=count_text(step + 1),
            count=count_text(self._count),
            label=token_label(token.token_text) if token else "",
            nats=nats_text(token.entropy_nats if token else None),
        )
        said = described(self._run, step) if self._run else ""
        return f"{words}. {said}" if said else words

    # -- places

    def pitch(self) -> float:
        """Width of a token on the line, in pixels; less than 1 where tokens share a pixel."""
        return min(WIDEST, self.width() / max(1, self._count))

    def step_at(self, x: float) -> int | None:
        """The token at a place, the nearest one beyond the ends."""
        if not self._count:
            return None
        return max(0, min(self._count - 1, int(x / self.pitch())))

    def step_of_mark(self, x: float, y: float) -> int | None:
        """The token whose bookmark or note is drawn here in the row above the bars."""
        if self._run is None or y >= self._row():
            return None
        steps = {step for _, step in self._run.marks if step is not None and step < self._count}
        near = [(abs(x - mark_x(step, self.pitch()) - 5.0), step) for step in steps]
        return min(near)[1] if near and min(near)[0] < 12.0 else None

    def _row(self) -> float:
        """Height of the row of marks; 0 where there are none."""
        marked = self._run is not None and any(step is not None for _, step in self._run.marks)
        return row_height() if marked else 0.0

    def bar_heights(self) -> np.ndarray:
        """What is drawn: one value per bar in nats, the mean of the tokens that share a pixel. float32 [bars]."""
        import numpy as np

        values = self._entropy[: self._count] if self._entropy is not None else np.empty(0, dtype=np.float32)
        if self._count <= self.width():
            return values
        edges = np.linspace(0, self._count, max(1, self.width()) + 1).astype(np.int64)[:-1]
        sums = np.add.reduceat(values, edges)
        return sums / np.diff(np.append(edges, self._count))

    # -- painting

    def paintEvent(self, event: QPaintEvent) -> None:
        with QPainter(self) as painter:  # an exception must not leave it open: that ends the process
            self._paint(painter)

    def _paint(self, painter: QPainter) -> None:
        if not self._count:
            self._paint_empty(painter)
            return
        look = theme.current()
        heights = self.bar_heights()
        top = max(FLOOR_NATS, float(heights.max()))
        room = self.height() - 2.0 - self._row()
        pitch = self.width() / heights.size if self._count > self.width() else self.pitch()
        gap = 2.0 if pitch >= GAP_FROM + 2 else 1.0 if pitch >= GAP_FROM else 0.0
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, gap > 0)
        painter.setPen(Qt.PenStyle.NoPen)
        radius = min(2.0, (pitch - gap) / 3)
        if radius < ROUND_FROM:  # not to be seen, and a call for each bar
            radius = 0.0
        bottom = self.height() - 1.0
        tall = (heights * (room / top)).clip(min=1.5).tolist()
        boxes = [QRectF(i * pitch, bottom - height, pitch - gap, height) for i, height in enumerate(tall)]
        # What was not written yet at the moment that is shown stands back.
        written = round(self.store.moment * heights.size / self._count)
        for part, share in ((boxes[:written], 0.72), (boxes[written:], 0.28)):
            painter.setBrush(theme.mixed(look.panel, look.weights, share))
            if radius:
                for box in part:
                    painter.drawRoundedRect(box, radius, radius)
            elif part:
                painter.drawRects(part)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, True)
        hovered, selected = self.store.hovered_step, self.store.selected_step
        if hovered is not None and hovered != selected and hovered < self._count:
            self._mark(painter, hovered, theme.mixed(look.panel, look.accent, 0.55), room / top, gap)
        if selected is not None and selected < self._count:
            self._mark(painter, selected, look.accent, room / top, gap)
        self._paint_scale(painter, top)
        if self._run is not None and self._run.marks:
            paint_on_timeline(painter, self._run, self._count, pitch=self.pitch(), selected=selected)

    def _mark(self, painter: QPainter, step: int, colour: QColor, scale: float, gap: float) -> None:
        pitch = self.pitch()
        width = max(3.0, pitch - gap)
        x = min(max(0.0, step * pitch + (pitch - gap - width) / 2), self.width() - width)
        height = max(4.0, float(self._entropy[step]) * scale)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(colour)
        painter.drawRoundedRect(QRectF(x, self.height() - 1.0 - height, width, height), 1.5, 1.5)
        if pitch < 3.0:  # a thin bar among thousands needs a line to be found by
            painter.fillRect(QRectF(x + width / 2 - 0.5, self._row(), 1.0, self.height()), colour)

    def _paint_scale(self, painter: QPainter, top: float) -> None:
        """The scale's top, where the bars leave room for it."""
        text = nats_text(top) if top >= 10 else f"{number_text(top, 1)} {self.tr('nats')}"
        painter.setFont(theme.font(-2))
        metrics = QFontMetricsF(painter.font())
        width = metrics.horizontalAdvance(text) + 4
        if self._count * self.pitch() < self.width() - width - 8:
            painter.setPen(theme.current().muted)
            painter.drawText(
                QRectF(self.width() - width, self._row(), width, metrics.height()),
                int(Qt.AlignmentFlag.AlignRight),
                text,
            )

    def _paint_empty(self, painter: QPainter) -> None:
        painter.setPen(theme.current().muted)
        painter.setFont(theme.font())
        text = self.tr("One bar per token appears here: high where many words were possible. Press Run (Ctrl+Return).")
        flags = int(Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap)
        painter.drawText(QRectF(self.rect()).adjusted(8, 0, -8, 0), flags, text)

    # -- hand and keys

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            x, y = event.position().x(), event.position().y()
            marked = self.step_of_mark(x, y)
            self.store.rewind(self.step_at(x) if marked is None else marked)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        step = self.step_at(event.position().x())
        if event.buttons() & Qt.MouseButton.LeftButton:
            self.store.hover(None)
            self.store.rewind(step)
        elif step is not None and event.position().x() <= self._count * self.pitch():
            self.store.hover(step)
        else:
            self.store.hover(None)

    def leaveEvent(self, event: QEvent) -> None:
        self.store.hover(None)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = self.store.selected_step
        held = event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
        if step is None or held:
            super().keyPressEvent(event)
            return
        match event.key():
            case Qt.Key.Key_Left:
                self.store.rewind(max(0, step - 1))
            case Qt.Key.Key_Right:
                self.store.rewind(step + 1)
            case Qt.Key.Key_PageUp:
                self.store.rewind(max(0, step - 10))
            case Qt.Key.Key_PageDown:
                self.store.rewind(step + 10)
            case Qt.Key.Key_Home:
                self.store.rewind(0)
            case Qt.Key.Key_End | Qt.Key.Key_Escape:
                self.store.select(None)
            case Qt.Key.Key_Space:
                self.play_asked.emit()
            case _:
                super().keyPressEvent(event)

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            marked = self.step_of_mark(event.pos().x(), event.pos().y())
            step = self.step_at(event.pos().x()) if marked is None else marked
            if step is not None and self._run is not None:
                QToolTip.showText(event.globalPos(), plain_tooltip(self._words(step)), self)
            return True
        return super().event(event)
