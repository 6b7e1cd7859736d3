"""The loaded model in two lines, at the top left; a click opens the model panel."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import QAbstractButton, QSizePolicy, QWidget

from widgets import theme
from widgets.format import bytes_text, plain_tooltip
from widgets.run_store import RunStore

PAD_X, PAD_Y = 12.0, 7.0


def device_words(device: str) -> str:
    """cpu → CPU, cuda:0 → GPU 0; others as they are."""
    if device.startswith("cuda"):
        return "GPU " + (device.partition(":")[2] or "0")
    return device.upper() if device in ("cpu", "mps", "xpu") else device


class ModelChip(QAbstractButton):
    """Name, and precision · device · memory measured; while loading or comparing, how far it is."""

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.store = store
        self._lines = ("", "")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        store.frame.connect(self.refresh)
        theme.changes.changed.connect(self._restyle)
        self.refresh()

    def lines(self) -> tuple[str, str]:
        """The two lines as shown."""
        store = self.store
        progress = store.load_progress
        if store.activity == "loading":
            if progress is not None and progress.total_bytes > 0:
                share = min(100, progress.done_bytes * 100 // progress.total_bytes)
                return self.tr("Loading…"), self.tr("{stage} · {percent}%").format(stage=progress.stage, percent=share)
            return self.tr("Loading…"), progress.stage if progress is not None else ""
        if store.activity == "x-ray":
            step, does = store.xray, {"read": self.tr("reading"), "decode": self.tr("writing")}
            if step is None:
                return self.tr("Precision x-ray…"), self.tr("starting…")
            precision = step.precision or self.tr("as in the files")
            return self.tr("Precision x-ray…"), f"{precision} · {does.get(step.stage, self.tr('loading'))}"
        facts = store.facts
        if facts is None:
            return self.tr("No model"), self.tr("click to choose one")
        devices = " + ".join(map(device_words, facts.devices))
        measured = self.tr("{size} measured").format(size=bytes_text(facts.weights_bytes))
        return facts.name, " · ".join((facts.precision, devices, measured))

    def refresh(self) -> None:
        lines = self.lines()
        if lines != self._lines:
            self._lines = lines
            self.setAccessibleName(self.tr("Model: {name}").format(name=lines[0]))
            self.setAccessibleDescription(lines[1])
            words = self.tr("Choose, load or unload a model (Ctrl+L). The size is that of the weights in memory.")
            self.setToolTip(plain_tooltip(f"{lines[0]}\n{lines[1]}\n{words}"))
            self.updateGeometry()
            self.update()

    def _restyle(self) -> None:
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        name, small = QFontMetricsF(theme.font(bold=True)), QFontMetricsF(theme.font(-2))
        width = max(name.horizontalAdvance(self._lines[0]), small.horizontalAdvance(self._lines[1]))
        return QSize(round(min(280.0, max(120.0, width)) + 2 * PAD_X + 2), self._height())

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.base_px() * 9, self._height())

    def _height(self) -> int:
        name, small = QFontMetricsF(theme.font(bold=True)), QFontMetricsF(theme.font(-2))
        return round(name.height() + small.height() + 2 * PAD_Y)

    def paintEvent(self, event: QPaintEvent) -> None:
        look = theme.current()
        with QPainter(self) as painter:  # an exception must not leave it open: that ends the process
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(look.accent if self.hasFocus() else look.line)
            painter.setBrush(look.track if self.isDown() or self.underMouse() else look.panel)
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), theme.CORNER, theme.CORNER)
            room = self.width() - 2 * PAD_X
            y = PAD_Y
            for text, font, colour in (
                (self._lines[0], theme.font(bold=True), look.ink),
                (self._lines[1], theme.font(-2), look.muted),
            ):
                metrics = QFontMetricsF(font)
                painter.setFont(font)
                painter.setPen(colour)
                box = QRectF(PAD_X, y, room, metrics.height())
                shown = metrics.elidedText(text, Qt.TextElideMode.ElideRight, room)
                painter.drawText(box, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, shown)
                y += metrics.height()
