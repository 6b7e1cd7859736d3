"""Which layer lies on which device, as one bar per device: weights by layer, the KV cache, working space, head room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QHelpEvent, QPainter, QPainterPath, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from engine.events import PlacedPart, Plan, PlannedDevice
from widgets import theme
from widgets.fit_bar import SQUARE, segment_colour
from widgets.format import bytes_text, plain_tooltip
from widgets.model_chip import device_words

BAR = 18.0
GAP = 10.0


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a device's bar: [start, end) in bytes."""

    name: str
    role: str
    start: int
    end: int


def spans(parts: Sequence[PlacedPart]) -> list[tuple[str, int | None, int | None]]:
    """What lies on a device in few words: (name, first layer, last layer), neighbouring layers as one."""
    found: list[tuple[str, int | None, int | None]] = []
    for part in parts:
        if part.layer is None:
            found.append((part.name.rpartition(".")[2] or part.name, None, None))
        elif found and found[-1][2] is not None and part.layer in (found[-1][2], found[-1][2] + 1):
            found[-1] = ("", found[-1][1], part.layer)
        else:
            found.append(("", part.layer, part.layer))
    return found


class PlanPicture(QWidget):
    """One row per device. Nothing to show takes no room."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._devices: tuple[PlannedDevice, ...] = ()
        self._parts: tuple[PlacedPart, ...] = ()
        self._main = "cpu"
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(self.tr("Which layer lies on which device"))
        theme.changes.changed.connect(self._restyle)

    def _restyle(self) -> None:
        self.updateGeometry()
        self.update()

    def show_plan(self, plan: Plan | None) -> None:
        if plan is None:
            self.show_places((), (), "cpu")
        else:
            self.show_places(plan.devices, plan.parts, plan.main_device)

    def show_places(self, devices: Sequence[PlannedDevice], parts: Sequence[PlacedPart], main: str) -> None:
        """main: the device that computes what lies on the CPU or on disk."""
        self._devices, self._parts, self._main = tuple(devices), tuple(parts), main
        self.setAccessibleDescription("\n".join(self.lines()))
        self.updateGeometry()
        self.update()

    def lines(self) -> list[str]:
        """Each device in one line: what it holds, of how much, and which layers."""
        return [f"{' · '.join(self._words(device))} · {self._contents(device)}" for device in self._devices]

    def _words(self, device: PlannedDevice) -> tuple[str, str]:
        if device.memory_bytes:
            used, memory = bytes_text(device.used_bytes), bytes_text(device.memory_bytes)
            return device_words(device.name), self.tr("{used} of {memory}").format(used=used, memory=memory)
        return device_words(device.name), bytes_text(device.used_bytes)

    def _contents(self, device: PlannedDevice) -> str:
        mine = [part for part in self._parts if part.device == device.name]
        words = []
        for name, first, last in spans(mine):
            if first is None:
                words.append(name)
            elif first == last:
                words.append(self.tr("layer {number}").format(number=first))
            else:
                words.append(self.tr("layers {first}–{last}").format(first=first, last=last))
        return ", ".join(words) or self.tr("nothing")

    def pieces(self, device: PlannedDevice) -> list[Piece]:
        """The stretches of a device's bar, from the left."""
        found: list[Piece] = []
        at = 0
        for part in self._parts:
            if part.device == device.name:
                found.append(Piece(part.name, "weights", at, at + part.weights_bytes))
                at += part.weights_bytes
        for name, role, size in (
            (self.tr("KV cache"), "kv_cache", device.kv_bytes),
            (self.tr("working space"), "working", device.working_bytes),
        ):
            if size:
                found.append(Piece(name, role, at, at + size))
                at += size
        return found

    def _line(self) -> float:
        return QFontMetricsF(theme.font(-2)).height() + 2.0

    def _row(self) -> float:
        return self._line() * 2 + BAR + GAP

    def sizeHint(self) -> QSize:
        return QSize(theme.base_px() * 20, round(len(self._devices) * self._row() + self._top()))

    def _top(self) -> float:
        """Where the first device begins, below the legend."""
        return self._line() + 6.0 if self._devices else 0.0

    def _paint_legend(self, painter: QPainter, look: theme.Theme) -> None:
        metrics, line = QFontMetricsF(painter.font()), self._line()
        x = 0.0
        for role, words in (
            ("weights", self.tr("weights by layer")),
            ("kv_cache", self.tr("KV cache")),
            ("working", self.tr("working")),
        ):
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(segment_colour(role))
            painter.drawRoundedRect(QRectF(x, (line - SQUARE) / 2, SQUARE, SQUARE), 2, 2)
            painter.setPen(look.muted)
            x += SQUARE + 5.0
            painter.drawText(QRectF(x, 0, metrics.horizontalAdvance(words) + 2.0, line), words)
            x += metrics.horizontalAdvance(words) + 12.0

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.base_px() * 14, self.sizeHint().height())

    def scale(self) -> float:
        """Bytes for the whole width: the largest device's memory, or what is laid on one beyond that."""
        return max([1, *(max(device.memory_bytes, device.used_bytes) for device in self._devices)])

    def paintEvent(self, event: QPaintEvent) -> None:
        look = theme.current()
        line, width = self._line(), float(self.width())
        per_pixel = self.scale() / max(1.0, width)
        left, right = Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignRight
        with QPainter(self) as painter:  # an exception must not leave it open: that ends the process
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setFont(theme.font(-2))
            if self._devices:
                self._paint_legend(painter, look)
            for row, device in enumerate(self._devices):
                y = self._top() + row * self._row()
                over = bool(device.memory_bytes) and device.free_bytes < 0
                away = device.name in ("cpu", "disk") and device.name != self._main and device.weights_bytes > 0
                name, figures = self._words(device)
                painter.setFont(theme.font(-2, bold=True))
                painter.setPen(look.ink)
                painter.drawText(QRectF(0, y, width, line), left, name)
                painter.setFont(theme.font(-2))
                warn = over or away
                painter.setPen(theme.readable(look.warning, look.panel) if warn else look.muted)
                painter.drawText(QRectF(0, y, width, line), right, figures)
                self._paint_bar(painter, device, y + line, per_pixel, look)
                painter.setFont(theme.font(-2))
                painter.setPen(look.muted)
                contents = self._contents(device)
                if away:
                    contents = self.tr("moved for each token: {contents}").format(contents=contents)
                shown = QFontMetricsF(painter.font()).elidedText(contents, Qt.TextElideMode.ElideRight, width)
                painter.drawText(QRectF(0, y + line + BAR + 2.0, width, line), left, shown)

    def _paint_bar(
        self, painter: QPainter, device: PlannedDevice, y: float, per_pixel: float, look: theme.Theme
    ) -> None:
        width = (device.memory_bytes or device.used_bytes) / per_pixel
        box = QRectF(0, y, max(2.0, width), BAR)
        shape = QPainterPath()
        shape.addRoundedRect(QRectF(0, y, max(box.width(), device.used_bytes / per_pixel), BAR), 4, 4)
        painter.save()
        painter.setClipPath(shape)
        painter.fillRect(box, look.track)
        tints = (look.weights, theme.mixed(look.panel, look.weights, 0.78))
        for at, piece in enumerate(self.pieces(device)):
            colour = tints[at % 2] if piece.role == "weights" else segment_colour(piece.role)
            start, end = piece.start / per_pixel, piece.end / per_pixel
            painter.fillRect(QRectF(start, y, end - start, BAR), colour)
        if device.memory_bytes and device.free_bytes < 0:
            painter.setClipRect(QRectF(width, y, self.width(), BAR), Qt.ClipOperation.IntersectClip)
            painter.setPen(QPen(look.warning, 1.5))
            at = width - BAR
            while at < device.used_bytes / per_pixel:
                painter.drawLine(QPointF(at, y + BAR), QPointF(at + BAR, y))
                at += 6.0
        painter.restore()
        if device.memory_bytes:
            painter.setPen(QPen(look.warning, 1.5))
            x = min(width, self.width() - 1.0)
            painter.drawLine(QPointF(x, y - 2.0), QPointF(x, y + BAR + 2.0))

    def piece_at(self, x: float, y: float) -> tuple[PlannedDevice, Piece | None] | None:
        """The device in whose row a point lies, and the stretch of its bar under it."""
        row = int((y - self._top()) // self._row())
        if not 0 <= row < len(self._devices):
            return None
        device = self._devices[row]
        at = x * self.scale() / max(1.0, self.width())
        return device, next((piece for piece in self.pieces(device) if piece.start <= at < piece.end), None)

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip:
            assert isinstance(event, QHelpEvent)
            found = self.piece_at(event.pos().x(), event.pos().y())
            text = ""
            if found is not None:
                device, piece = found
                text = " · ".join(self._words(device))
                if piece is not None:
                    text = f"{piece.name}: {bytes_text(piece.end - piece.start)}\n{text}"
                text += f"\n{self._contents(device)}"
                if device.memory_bytes:
                    text += "\n" + self.tr("{size} free, predicted").format(size=bytes_text(device.free_bytes))
            QToolTip.showText(event.globalPos(), plain_tooltip(text) if text else "", self)
            return True
        return super().event(event)
