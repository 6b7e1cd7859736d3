"""The three stages of inference as one strip, lit as they really happen; a click opens a box's view."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QEnterEvent, QFontMetricsF, QKeyEvent, QPainter, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QAbstractButton, QSizePolicy, QWidget

from widgets import theme
from widgets.format import plain_tooltip
from widgets.pipeline_boxes import BOXES, COMPUTE, LOAD, OUTPUT, PER_TOKEN, figure, title, tooltip
from widgets.run_store import RunStore

GROUPS = (LOAD, COMPUTE, OUTPUT)
WIDEST = {"embed": "[1,1,9999]"}  # figures that find room; one that is shorter moves nothing
LIT_MS = 140  # how long the boxes after the layers stay lit once their token is there


class Box(QAbstractButton):
    """One box: a name and a figure."""

    def __init__(self, name: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.name = name
        self.figure = ""
        self.lit = self.passed = self.opened = False
        self.step = 0  # of the font
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)

    def show_state(self, text: str, figure: str, lit: bool, passed: bool, opened: bool) -> bool:
        """Takes what is to be seen; passed: a token went through just now. True where the name is a new one."""
        renamed = text != self.text()
        state = (text, figure, lit, passed, opened)
        if state != (self.text(), self.figure, self.lit, self.passed, self.opened):
            if renamed:
                self.setText(text)
            if figure != self.figure:
                self.setAccessibleDescription(figure)
            if renamed or lit != self.lit:
                self.setAccessibleName(self.tr("{name}, at work").format(name=text) if lit else text)
            self.figure, self.lit, self.passed, self.opened = figure, lit, passed, opened
            if self.underMouse():
                self._write_tooltip()
            self.update()
        return renamed

    def enterEvent(self, event: QEnterEvent) -> None:
        self._write_tooltip()
        super().enterEvent(event)

    def _write_tooltip(self) -> None:
        """Only where the mouse is: to write it takes longer than to paint the box."""
        self.setToolTip(plain_tooltip("\n".join(filter(None, (self.text(), self.figure, tooltip(self.name))))))

    def paintEvent(self, event: QPaintEvent) -> None:
        look = theme.current()
        with QPainter(self) as painter:  # an exception must not leave it open: that ends the process
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            box = QRectF(self.rect()).adjusted(1, 1, -1, -1)
            if self.lit:
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(look.accent)
                painter.drawRoundedRect(box, 6, 6)
            elif self.passed:
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(look.chip(look.accent)[0])
                painter.drawRoundedRect(box, 6, 6)
            elif self.underMouse() or self.isDown():
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(look.track)
                painter.drawRoundedRect(box, 6, 6)
            if self.hasFocus() or self.opened:
                painter.setBrush(Qt.BrushStyle.NoBrush)
                focus = look.ink if self.lit else look.accent
                painter.setPen(QPen(focus if self.hasFocus() else look.accent, 1.2))
                painter.drawRoundedRect(box.adjusted(0.2, 0.2, -0.2, -0.2), 6, 6)
            name_font, small_font = theme.font(self.step - 1), theme.font(self.step - 2)
            name, small = QFontMetricsF(name_font), QFontMetricsF(small_font)
            known = bool(self.figure) or self.lit
            top = (self.height() - name.height() - small.height()) / 2
            painter.setFont(name_font)
            painter.setPen(look.on_accent if self.lit else look.ink if known else look.muted)
            width = self.width() - 4.0
            shown = name.elidedText(self.text(), Qt.TextElideMode.ElideRight, width)
            painter.drawText(QRectF(2, top, width, name.height()), Qt.AlignmentFlag.AlignCenter, shown)
            painter.setFont(small_font)
            painter.setPen(look.on_accent if self.lit else look.muted)
            shown = small.elidedText(self.figure, Qt.TextElideMode.ElideRight, width)
            painter.drawText(QRectF(2, top + name.height(), width, small.height()), Qt.AlignmentFlag.AlignCenter, shown)


class PipelineStrip(QWidget):
    """Load → compute ↺ → output."""

    box_clicked = Signal(object)  # str: the box's name, one of pipeline_boxes.BOXES

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.store = store
        self._opened = ""
        self._tokens = 0
        self._run: object = None
        self._frames: list[QRectF] = []
        self._arrows: list[tuple[QPointF, str]] = []
        self.boxes = {name: Box(name, self) for name in BOXES}
        for box in self.boxes.values():
            box.clicked.connect(self._clicked)
            box.installEventFilter(self)
        self._dim = QTimer(self)
        self._dim.setSingleShot(True)
        self._dim.setInterval(LIT_MS)
        self._dim.timeout.connect(self.refresh)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(self.tr("Pipeline"))
        store.frame.connect(self.refresh)
        store.selection_changed.connect(self.refresh)
        store.hover_changed.connect(self.refresh)
        theme.changes.changed.connect(self._restyle)
        self.refresh()

    def set_opened(self, name: str) -> None:
        """Marks the box whose view is open; "" for none."""
        self._opened = name
        self.refresh()

    def lit(self) -> set[str]:
        """The boxes that are at work now."""
        store = self.store
        if store.activity == "loading":
            return {store.stage} & set(LOAD)
        if store.activity == "prefill":
            return {"tokenise"} if store.stage == "tokenise" else {"embed", "layers"}
        if self._decoding():
            # A token's event comes when its word is out; what goes on until the next is the forward pass.
            return {"layers"}
        return set()

    def passed(self) -> set[str]:
        """The boxes that a token has just gone through."""
        return set(PER_TOKEN) if self._decoding() and self._dim.isActive() else set()

    def _decoding(self) -> bool:
        return self.store.activity == "decode" or self.store.playing

    def refresh(self) -> None:
        """Reads the store."""
        run = self.store.current
        tokens = self.store.moment
        if (run is not self._run or tokens != self._tokens) and self._decoding():
            self._dim.start()
        self._run, self._tokens = run, tokens
        lit, passed = self.lit(), self.passed()
        renamed = [
            box.show_state(
                title(name, self.store), figure(name, self.store), name in lit, name in passed, name == self._opened
            )
            for name, box in self.boxes.items()
        ]
        if any(renamed):
            self._lay_out()

    # ---------------------------------------------------------------- places

    def sizeHint(self) -> QSize:
        return QSize(theme.base_px() * 74, self._height())

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.base_px() * 44, self._height())

    def _height(self) -> int:
        return round(
            QFontMetricsF(theme.font(bold=True)).height() + QFontMetricsF(theme.font(-2)).height() + 14
        )  # as the model's chip beside it

    def _lay_out(self) -> None:
        """Places the boxes: first the air goes, then the font gets smaller, then names are shortened."""
        room = float(self.width())
        for step, pad, arrow in ((0, 11.0, 26.0), (0, 7.0, 20.0), (0, 4.0, 14.0), (-1, 3.0, 13.0), (-2, 2.0, 12.0)):
            metrics, small = QFontMetricsF(theme.font(step - 1)), QFontMetricsF(theme.font(step - 2))
            least = {name: small.horizontalAdvance(WIDEST.get(name, "99.9 ms")) for name in self.boxes}
            widths = {
                name: max(metrics.horizontalAdvance(box.text()), least[name]) + 2 * pad + 4
                for name, box in self.boxes.items()
            }
            frame_pad = 4.0 if step == 0 else 2.0
            total = sum(widths.values()) + 2 * arrow + len(GROUPS) * 2 * frame_pad
            if total <= room:
                break
        scale = min(1.0, (room - 2 * arrow - len(GROUPS) * 2 * frame_pad) / sum(widths.values()))
        x = max(0.0, (room - total) / 2) if scale == 1.0 else 0.0
        self._frames, self._arrows = [], []
        height = float(self.height())
        for at, group in enumerate(GROUPS):
            start = x
            x += frame_pad
            for name in group:
                box = self.boxes[name]
                box.step = step
                width = max(1.0, widths[name] * scale)
                box.setGeometry(round(x), 3, round(x + width) - round(x), round(height) - 6)
                box.update()
                x += width
            x += frame_pad
            self._frames.append(QRectF(start + 0.5, 0.5, x - start - 1.0, height - 1.0))
            if at < len(GROUPS) - 1:
                self._arrows.append((QPointF(x + arrow / 2, height / 2), "→" if at == 0 else "↺"))
                x += arrow
        self.update()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._lay_out()

    def paintEvent(self, event: QPaintEvent) -> None:
        look = theme.current()
        with QPainter(self) as painter:  # an exception must not leave it open: that ends the process
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(look.line)
            painter.setBrush(look.panel)
            for frame in self._frames:
                painter.drawRoundedRect(frame, theme.CORNER, theme.CORNER)
            painter.setPen(look.muted)
            painter.setFont(theme.font(1))
            for centre, arrow in self._arrows:
                box = QRectF(centre.x() - 14, centre.y() - 14, 28, 28)
                painter.drawText(box, Qt.AlignmentFlag.AlignCenter, arrow)

    # ---------------------------------------------------------------- hands

    def eventFilter(self, watched, event: QEvent) -> bool:
        """Arrow keys go from box to box."""
        if event.type() == QEvent.Type.KeyPress and isinstance(watched, Box):
            assert isinstance(event, QKeyEvent)
            step = {Qt.Key.Key_Right: 1, Qt.Key.Key_Left: -1}.get(Qt.Key(event.key()))
            if step is not None and not event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier:
                at = BOXES.index(watched.name) + step
                if 0 <= at < len(BOXES):
                    self.boxes[BOXES[at]].setFocus(Qt.FocusReason.TabFocusReason)
                return True
            if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and not event.modifiers():
                watched.click()
                return True
        return super().eventFilter(watched, event)

    def _clicked(self) -> None:
        box = self.sender()
        assert isinstance(box, Box)
        self.set_opened(box.name)
        self.box_clicked.emit(box.name)

    def _restyle(self) -> None:
        self.updateGeometry()
        self._lay_out()
