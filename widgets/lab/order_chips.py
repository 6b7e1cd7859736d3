"""The stages of sampling as chips in a row, moved by hand or key into another order."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication, QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QFontMetricsF,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from engine.events import ORDERED
from engine.settings import RANGES, SamplingSettings
from widgets import theme
from widgets.candidate_rows import cut_word
from widgets.fields import number_shown

GAP = 26.0  # between chips, where an arrow stands
PAD = 12.0


def stage_word(name: str) -> str:
    """A stage in the words of its slider; temperature cuts nobody and so is in no list of cuts."""
    return QCoreApplication.translate("order", "temperature") if name == "temperature" else cut_word(name)


class OrderChips(QWidget):
    """`order_changed` carries the new order, a tuple of stages."""

    order_changed = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.order: tuple[str, ...] = ORDERED
        self._settings = SamplingSettings()
        self._at = 0  # the chip that keys move
        self._held: str | None = None  # by the mouse
        self._grip = 0.0  # where on the chip it is held
        self._x = 0.0  # where the held chip is
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMouseTracking(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(self.tr("Order of the stages"))
        self.setToolTip(
            self.tr(
                "Drag a chip to another place. With keys: Left and Right choose one, Ctrl+Left and Ctrl+Right move it. "
                "For a look only: what is written keeps transformers' order, temperature first."
            )
        )
        self._describe()

    def set_order(self, order: tuple[str, ...]) -> None:
        """Shows an order from elsewhere; says nothing."""
        self.order = order
        self._describe()
        self.update()

    def set_settings(self, settings: SamplingSettings) -> None:
        self._settings = settings
        self._describe()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(round(self._width()), round(self._height() + 8))

    def minimumSizeHint(self) -> QSize:
        return QSize(200, self.sizeHint().height())

    # ---------------------------------------------------------------- places

    def _height(self) -> float:
        return QFontMetricsF(theme.font()).height() + 10.0

    def _text(self, name: str) -> str:
        value = getattr(self._settings, name)
        shown = number_shown(value) if self._on(name) else self.tr("off")
        return f"{stage_word(name)} {shown}"

    def _on(self, name: str) -> bool:
        return getattr(self._settings, name) != RANGES[name].off

    def _chip_width(self, name: str) -> float:
        return QFontMetricsF(theme.font()).horizontalAdvance(self._text(name)) + 2 * PAD

    def _width(self) -> float:
        return sum(self._chip_width(name) for name in self.order) + GAP * (len(self.order) - 1) + 4.0

    def chip_rect(self, name: str) -> QRectF:
        """Where a chip lies, while nothing is dragged."""
        squeeze = min(1.0, (self.width() - 4.0) / self._width())
        left = 2.0
        for each in self.order:
            width = self._chip_width(each) * squeeze
            if each == name:
                return QRectF(left, 4.0, width, self._height())
            left += width + GAP * squeeze
        raise KeyError(name)

    def _name_at(self, point: QPointF) -> str | None:
        return next((name for name in self.order if self.chip_rect(name).contains(point)), None)

    # ---------------------------------------------------------------- hand and keys

    def move_chip(self, name: str, place: int) -> None:
        """Puts a chip at a place of the order, 0 for the first."""
        others = [each for each in self.order if each != name]
        place = max(0, min(place, len(others)))
        order = (*others[:place], name, *others[place:])
        self._at = place
        if order != self.order:
            self.order = order
            self.order_changed.emit(order)
        self._describe()
        self.update()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        name = self._name_at(event.position())
        if event.button() == Qt.MouseButton.LeftButton and name is not None:
            self._held, self._at = name, self.order.index(name)
            self._x = self.chip_rect(name).left()
            self._grip = event.position().x() - self._x
            self.setCursor(Qt.CursorShape.ClosedHandCursor)
            self._describe()
            self.update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._held is None:
            over = self._name_at(event.position()) is not None
            self.setCursor(Qt.CursorShape.OpenHandCursor if over else Qt.CursorShape.ArrowCursor)
            return
        self._x = event.position().x() - self._grip
        middle = self._x + self.chip_rect(self._held).width() / 2
        others = [name for name in self.order if name != self._held]
        place = sum(self.chip_rect(name).center().x() < middle for name in others)
        self.move_chip(self._held, place)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self._held = None
        self.setCursor(Qt.CursorShape.ArrowCursor)
        self.update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        steps = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}.get(Qt.Key(event.key()))
        ends = {Qt.Key.Key_Home: 0, Qt.Key.Key_End: len(self.order) - 1}.get(Qt.Key(event.key()))
        modifiers = event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
        if (steps is None and ends is None) or modifiers not in (
            Qt.KeyboardModifier.NoModifier, Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.ShiftModifier,
        ):  # fmt: skip
            super().keyPressEvent(event)
            return
        place = ends if ends is not None else max(0, min(self._at + (steps or 0), len(self.order) - 1))
        if modifiers == Qt.KeyboardModifier.NoModifier:
            self._at = place
            self._describe()
            self.update()
        else:
            self.move_chip(self.order[self._at], place)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange):
            self.updateGeometry()

    def _describe(self) -> None:
        text = self.tr("{all}. Chosen: {name}, place {at} of {count}").format(
            all=", ".join(self._text(name) for name in self.order),
            name=stage_word(self.order[self._at]), at=self._at + 1, count=len(self.order),
        )  # fmt: skip
        self.setAccessibleDescription(text)

    # ---------------------------------------------------------------- painting

    def paintEvent(self, event: QPaintEvent) -> None:
        with QPainter(self) as painter:  # an exception must not leave it open: that ends the process
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            for name in self.order:
                if name != self._held:
                    self._paint_chip(painter, name, self.chip_rect(name))
            look = theme.current()
            for name in self.order[:-1]:
                rect = self.chip_rect(name)
                after = self.chip_rect(self.order[self.order.index(name) + 1]).left()
                painter.setPen(look.muted)
                painter.setFont(theme.font())
                painter.drawText(
                    QRectF(rect.right(), rect.top(), after - rect.right(), rect.height()),
                    int(Qt.AlignmentFlag.AlignCenter), "→",
                )  # fmt: skip
            if self._held is not None:
                rect = self.chip_rect(self._held)
                rect.moveLeft(max(2.0, min(self._x, self.width() - rect.width() - 2.0)))
                self._paint_chip(painter, self._held, rect)

    def _paint_chip(self, painter: QPainter, name: str, rect: QRectF) -> None:
        look = theme.current()
        role = look.accent if name == "temperature" else look.cut(name)
        ground, text = look.chip(role)
        on = self._on(name)
        focused = self.hasFocus() and self.order[self._at] == name
        edge = look.accent if focused else role if on else look.line
        painter.setBrush(ground if on else look.panel)
        painter.setPen(QPen(edge, 2.0 if focused else 1.0, Qt.PenStyle.SolidLine if on else Qt.PenStyle.DashLine))
        painter.drawRoundedRect(rect.adjusted(1, 1, -1, -1), 8.0, 8.0)
        painter.setPen(text if on else look.muted)
        painter.setFont(theme.font())
        shown = QFontMetricsF(theme.font()).elidedText(
            self._text(name), Qt.TextElideMode.ElideRight, rect.width() - PAD
        )
        painter.drawText(rect, int(Qt.AlignmentFlag.AlignCenter), shown)
