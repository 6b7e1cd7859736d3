"""The small window beside a hovered token: what else could have stood there."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from engine.events import TokenEvent
from widgets import theme
from widgets.candidate_rows import Rows
from widgets.format import bits, count_text, nats_text, number_text, token_label

ROWS = 6
WIDTH = 320
MARGIN = 12


class TokenPopup(QWidget):
    """Never takes the mouse or the focus. Everything is painted as plain text (THR-26)."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent, Qt.WindowType.ToolTip | Qt.WindowType.FramelessWindowHint)
        self.setAttribute(Qt.WidgetAttribute.WA_ShowWithoutActivating)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.token: TokenEvent | None = None
        self.remark = ""

    def show_token(self, token: TokenEvent, below: QPoint, above: QPoint, remark: str = "") -> None:
        """Shows a token's alternatives under a global point, or over the other one where the screen ends.

        remark: a sentence under the figures.
        """
        self.token, self.remark = token, remark
        self._candidates = token.candidates[:ROWS]
        if not any(c.chosen for c in self._candidates):
            self._candidates = (*token.candidates[: ROWS - 1], *(c for c in token.candidates if c.chosen))
        self._rows = Rows(self._candidates, WIDTH - 2 * MARGIN)
        self.setFixedSize(self.sizeHint())
        screen = self.screen().availableGeometry()
        x = max(screen.left(), min(below.x(), screen.right() - self.width()))
        y = below.y() if below.y() + self.height() <= screen.bottom() else above.y() - self.height()
        self.move(x, max(screen.top(), y))
        self.show()
        self.update()

    def sizeHint(self) -> QSize:
        line = QFontMetricsF(theme.font()).height()
        rows = len(self._candidates) * self._rows.height if self.token is not None else 0
        return QSize(WIDTH, round(2 * MARGIN + 2 * line + self._remark_height() + 8 + rows))

    def _remark_height(self) -> float:
        if not self.remark:
            return 0.0
        room = QRectF(0, 0, WIDTH - 2 * MARGIN, 1000)
        return QFontMetricsF(theme.font(-1)).boundingRect(room, int(Qt.TextFlag.TextWordWrap), self.remark).height() + 4

    def paintEvent(self, event: QPaintEvent) -> None:
        with QPainter(self) as painter:  # an exception must not leave it open: that ends the process
            self._paint(painter)

    def _paint(self, painter: QPainter) -> None:
        token = self.token
        if token is None:
            return
        look = theme.current()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(theme.mixed(look.line, look.muted, 0.35))
        painter.setBrush(look.panel)
        # Square: without a compositor the corners outside a round frame would be black.
        painter.drawRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5))
        painter.translate(MARGIN, MARGIN)
        width, line = WIDTH - 2 * MARGIN, QFontMetricsF(theme.font()).height()
        rank = self.tr("rank {rank} of {vocabulary}").format(
            rank=count_text(token.rank + 1), vocabulary=count_text(token.vocab_size)
        )
        painter.setFont(theme.font(-1))
        painter.setPen(look.muted)
        flags = int(Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine)
        painter.drawText(QRectF(0, 0, width, line), flags | int(Qt.AlignmentFlag.AlignRight), rank)
        room = width - QFontMetricsF(painter.font()).horizontalAdvance(rank) - 12
        painter.setFont(theme.mono(bold=True))
        painter.setPen(look.ink)
        label = QFontMetricsF(painter.font()).elidedText(
            token_label(token.token_text), Qt.TextElideMode.ElideRight, room
        )
        painter.drawText(QRectF(0, 0, room, line), flags, label)
        surprise = self.tr("surprise {nats} · {bits} bits · token {step}").format(
            nats=nats_text(token.surprise_nats),
            bits=number_text(bits(token.surprise_nats), 2),
            step=count_text(token.step + 1),
        )
        painter.setFont(theme.font(-1))
        painter.setPen(look.muted)
        painter.drawText(QRectF(0, line, width, line), flags, surprise)
        if self.remark:
            painter.setPen(look.ink)
            place = QRectF(0, 2 * line + 4, width, self._remark_height())
            painter.drawText(place, int(Qt.TextFlag.TextWordWrap), self.remark)
        top = 2 * line + self._remark_height() + 8
        for index in range(len(self._candidates)):
            self._rows.paint(painter, index, top)
            top += self._rows.height
