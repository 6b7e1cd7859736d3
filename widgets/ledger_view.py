"""The memory ledger: what each part needs as predicted, and what it took as measured."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QCoreApplication, QEvent, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QHelpEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from engine.events import LedgerPart
from widgets import theme
from widgets.format import UNKNOWN, bytes_text, plain_tooltip

BAR = 3.0
CACHE_PARTS = ("kv_cache", "state")
PARTS_OF_RUN = (*CACHE_PARTS, "logits", "working")  # what a run adds to the weights
WITHOUT_BAR = ("libraries", "unexplained")  # not of the model, and possibly below zero


def part_name(name: str) -> str:
    """A part of the ledger as a person reads it; names that we do not know stay as the engine says them."""
    known = {
        "embedding": QCoreApplication.translate("LedgerView", "embedding"),
        "attention": QCoreApplication.translate("LedgerView", "attention"),
        "feed-forward": QCoreApplication.translate("LedgerView", "feed-forward"),
        "norms": QCoreApplication.translate("LedgerView", "norms"),
        "lm_head": QCoreApplication.translate("LedgerView", "output (lm_head)"),
        "quantisation": QCoreApplication.translate("LedgerView", "quantisation constants"),
        "kv_cache": QCoreApplication.translate("LedgerView", "KV cache"),
        "state": QCoreApplication.translate("LedgerView", "fixed state"),
        "logits": QCoreApplication.translate("LedgerView", "logits"),
        "working": QCoreApplication.translate("LedgerView", "working space"),
        "libraries": QCoreApplication.translate("LedgerView", "libraries"),
        "unexplained": QCoreApplication.translate("LedgerView", "not explained"),
    }
    return known.get(name, name.replace("_", " "))


class LedgerView(QWidget):
    """Rows of parts with two columns of figures. Nothing known is a dash, never 0."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._parts: tuple[LedgerPart, ...] = ()
        self._totals: tuple[tuple[str, int | None, int | None], ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(self.tr("Memory ledger"))
        theme.changes.changed.connect(self._restyle)

    def _restyle(self) -> None:
        self.updateGeometry()
        self.update()

    def set_parts(self, parts: Sequence[LedgerPart], totals: Sequence[tuple[str, int | None, int | None]] = ()) -> None:
        """parts: as the engine says; those without any bytes are left out. totals: (name, predicted, measured)."""
        self._parts = tuple(part for part in parts if part.predicted_bytes or part.measured_bytes)
        self._totals = tuple(totals)
        lines = [
            self.tr("{name}: {predicted} predicted, {measured} measured").format(
                name=name, predicted=_figure(predicted), measured=_figure(measured)
            )
            for name, predicted, measured in self.rows()
        ]
        self.setAccessibleDescription("\n".join(lines))
        self.updateGeometry()
        self.update()

    def rows(self) -> list[tuple[str, int | None, int | None]]:
        """(name, predicted bytes, measured bytes) of each row as shown, the totals last."""
        parts = [(part_name(part.name), part.predicted_bytes, part.measured_bytes) for part in self._parts]
        return [*parts, *self._totals]

    def _line(self) -> float:
        return QFontMetricsF(theme.font(-1)).height() + 4.0

    def sizeHint(self) -> QSize:
        rows = len(self._parts) + len(self._totals)
        height = (rows + 1) * self._line() + len(self._parts) * (BAR + 3.0) + 8.0 if rows else 0
        return QSize(theme.base_px() * 17, round(height))

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.base_px() * 14, self.sizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self._parts and not self._totals:
            return
        look = theme.current()
        with QPainter(self) as painter:  # an exception must not leave it open: that ends the process
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setFont(theme.font(-1))
            line = self._line()
            column = QFontMetricsF(theme.font(-1, bold=True)).horizontalAdvance("9,999 MB") + 8.0
            width = float(self.width())
            any_measured = any(measured is not None for _, _, measured in self.rows())
            measured_from = width - column if any_measured else width
            predicted_from = measured_from - column
            right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
            left = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter

            def row(y: float, name: str, predicted: str, measured: str, name_role: object, role: object) -> None:
                painter.setPen(name_role)  # type: ignore[arg-type]
                metrics = QFontMetricsF(painter.font())
                shown = metrics.elidedText(name, Qt.TextElideMode.ElideRight, predicted_from - 4.0)
                painter.drawText(QRectF(0, y, predicted_from - 2.0, line), left, shown)
                painter.setPen(role)  # type: ignore[arg-type]
                painter.drawText(QRectF(predicted_from, y, column, line), right, predicted)
                if any_measured:
                    painter.drawText(QRectF(measured_from, y, column, line), right, measured)

            y = 0.0
            painter.setFont(theme.font(-2))
            row(y, "", self.tr("predicted"), self.tr("measured"), look.muted, look.muted)
            y += line
            painter.setFont(theme.font(-1))
            barred = [part for part in self._parts if part.name not in WITHOUT_BAR]
            largest = max((max(p.predicted_bytes or 0, p.measured_bytes or 0) for p in barred), default=1) or 1
            for part in self._parts:
                row(
                    y,
                    part_name(part.name),
                    _figure(part.predicted_bytes),
                    _figure(part.measured_bytes),
                    look.ink,
                    look.ink,
                )
                y += line
                if part.name in WITHOUT_BAR:
                    y += BAR + 3.0
                    continue
                colour = look.kv_cache if part.name.lower() in CACHE_PARTS else look.weights
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(look.track)
                painter.drawRoundedRect(QRectF(0, y, width, BAR), BAR / 2, BAR / 2)
                share = max(part.measured_bytes or 0, 0) or (part.predicted_bytes or 0)
                if share > 0:
                    painter.setBrush(colour)
                    painter.drawRoundedRect(QRectF(0, y, max(2.0, width * share / largest), BAR), BAR / 2, BAR / 2)
                y += BAR + 3.0
            if self._totals:
                painter.setPen(look.line)
                painter.drawLine(0, round(y + 3), self.width(), round(y + 3))
                y += 6.0
            painter.setFont(theme.font(-1, bold=True))
            for name, predicted, measured in self._totals:
                row(y, name, _figure(predicted), _figure(measured), look.ink, look.ink)
                y += line

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip:
            assert isinstance(event, QHelpEvent)
            part = self.part_at(event.pos().y())
            text = ""
            if part is not None:
                text = self.tr("{name}: {predicted} predicted, {measured} measured").format(
                    name=part_name(part.name),
                    predicted=_figure(part.predicted_bytes),
                    measured=_figure(part.measured_bytes),
                )
                text += f"\n{part.note}" if part.note else ""
            QToolTip.showText(event.globalPos(), plain_tooltip(text) if text else "", self)
            return True
        return super().event(event)

    def part_at(self, y: float) -> LedgerPart | None:
        """The part whose row is at this height."""
        at = int((y - self._line()) / (self._line() + BAR + 3.0)) if y >= self._line() else -1
        return self._parts[at] if 0 <= at < len(self._parts) else None


def _figure(count: int | None) -> str:
    return UNKNOWN if count is None else bytes_text(count)
