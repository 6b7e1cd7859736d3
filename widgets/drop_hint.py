"""What would become of the files that a person drags over the window."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QDragEnterEvent, QDragLeaveEvent, QDropEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from widgets import theme

MARGIN = 12.0
ROOM = 0.9  # how much of the window below it hides


class DropHint(QWidget):
    """Lies over the whole window while something is dragged, so that no field below takes it for text."""

    dropped = Signal(object)  # QDropEvent

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._window = window
        self.words, self.more, self.refused = "", "", False
        self._entered = False
        self.setAcceptDrops(True)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.hide()

    def show_words(self, words: str, more: str, refused: bool) -> None:
        """words: what would happen. more: what can be dropped. refused: nothing would."""
        self.words, self.more, self.refused = words, more, refused
        self.setAccessibleName(words)
        self.setGeometry(self._window.rect())
        self.raise_()
        self.show()
        self.update()

    @Slot()
    def leave(self) -> None:
        """The window below was left: for this hint, or for good."""
        QTimer.singleShot(0, self._hide_unless_entered)

    @Slot()
    def _hide_unless_entered(self) -> None:
        if not self._entered:
            self.hide()

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        self._entered = True
        event.acceptProposedAction()

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        self.end()

    def dropEvent(self, event: QDropEvent) -> None:
        self.end()
        self.dropped.emit(event)

    def end(self) -> None:
        self._entered = False
        self.hide()

    def paintEvent(self, event: QPaintEvent) -> None:
        with QPainter(self) as painter:  # an exception must not leave it open: that ends the process
            self._paint(painter)

    def _paint(self, painter: QPainter) -> None:
        look = theme.current()
        ground = theme.mixed(look.ground, look.panel, 0.5)
        ground.setAlphaF(ROOM)
        painter.fillRect(self.rect(), ground)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        colour = look.warning if self.refused else look.accent
        pen = QPen(colour, 2.0, Qt.PenStyle.DashLine)
        painter.setPen(pen)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        frame = QRectF(self.rect()).adjusted(MARGIN, MARGIN, -MARGIN, -MARGIN)
        painter.drawRoundedRect(frame, theme.CORNER, theme.CORNER)
        room = frame.adjusted(4 * MARGIN, 0, -4 * MARGIN, 0)
        flags = int(Qt.AlignmentFlag.AlignHCenter | Qt.TextFlag.TextWordWrap | Qt.TextFlag.TextWrapAnywhere)
        painter.setFont(theme.font(5, bold=True))
        painter.setPen(theme.readable(colour, look.panel))
        height = painter.fontMetrics().boundingRect(room.toRect(), flags, self.words).height()
        top = room.center().y() - height
        painter.drawText(QRectF(room.left(), top, room.width(), height + 4), flags, self.words)
        painter.setFont(theme.font())
        painter.setPen(look.muted)
        painter.drawText(QRectF(room.left(), top + height + MARGIN, room.width(), 80), flags, self.more)
