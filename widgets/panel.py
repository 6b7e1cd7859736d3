"""The frame that panels share: a title on the left, a remark and small buttons on the right, the content below."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QScrollArea, QSizePolicy, QToolButton, QVBoxLayout, QWidget

from widgets import theme

LONG_REMARK = 160  # pixels that a remark keeps beside a long title
SHORT_TITLE = 112


class PlainLabel(QLabel):
    """A label that takes nothing for markup: for tokens, prompts, file names and servers' words (THR-26).

    role: "title", "muted", "warning", "value" or "".
    """

    def __init__(self, text: str = "", role: str = "", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setTextFormat(Qt.TextFormat.PlainText)
        if role:
            self.setProperty("role", role)
        self.setText(text)


class ElidedLabel(PlainLabel):
    """A one-line label that shortens its text with an ellipsis instead of asking for room."""

    def minimumSizeHint(self) -> QSize:
        return QSize(self.fontMetrics().height(), super().minimumSizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        metrics = self.fontMetrics()
        if metrics.horizontalAdvance(self.text()) <= self.contentsRect().width():
            super().paintEvent(event)
            return
        with QPainter(self) as painter:
            painter.setPen(self.palette().windowText().color())
            shown = metrics.elidedText(self.text(), Qt.TextElideMode.ElideRight, self.contentsRect().width())
            painter.drawText(self.contentsRect(), int(self.alignment() | Qt.TextFlag.TextSingleLine), shown)


class FittingLabel(ElidedLabel):
    """Shows the longest of several wordings that fits, longest first."""

    def __init__(self, role: str = "", parent: QWidget | None = None) -> None:
        super().__init__("", role, parent)
        self._wordings: tuple[str, ...] = ("",)
        self._keep = 0

    def set_wordings(self, *wordings: str) -> None:
        self._wordings = wordings
        self._take_font()
        self.updateGeometry()
        self._choose()

    def advance(self, text: str) -> int:
        """The width that a text takes."""
        return self.fontMetrics().horizontalAdvance(text) + 2

    def keep_whole(self, widest: int) -> None:
        """Its shortest wording is never cut where it takes at most so many pixels, in whatever font it is shown."""
        self._keep = widest
        self._take_font()

    def _take_font(self) -> None:
        if self._keep:
            self.setMinimumWidth(min(self._keep, self.advance(self._wordings[-1])))

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:  # as the style does when the label is first seen: titles are bold
            self._take_font()
            self._choose()

    def sizeHint(self) -> QSize:
        return QSize(self.fontMetrics().horizontalAdvance(self._wordings[0]) + 2, super().sizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._choose()

    def _choose(self) -> None:
        room = self.contentsRect().width()
        fits = (w for w in self._wordings if self.fontMetrics().horizontalAdvance(w) <= room)
        self.setText(next(fits, self._wordings[-1]))


class Panel(QFrame):
    """A panel with a header. Put content into `body`, buttons into the header with `add_button`."""

    def __init__(self, title: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("panel", True)
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setAccessibleName(title)
        self.title_label = FittingLabel("title")
        self.remark_label = FittingLabel("muted")
        self.remark_label.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.remark_label.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.header = QHBoxLayout()
        self.header.setSpacing(4)
        self.header.addWidget(self.title_label)
        self.header.addStretch()
        self.header.addWidget(self.remark_label, 1)
        self.remark_label.hide()
        self.body = QVBoxLayout()
        self.body.setSpacing(8)
        column = QVBoxLayout(self)
        column.setContentsMargins(14, 9, 14, 12)
        column.setSpacing(6)
        column.addLayout(self.header)
        column.addLayout(self.body, 1)
        self.set_title(title)

    def show_focus_of(self, widget: QWidget) -> None:
        """The panel's line takes the accent while this part of it has the focus."""
        widget.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.FocusIn, QEvent.Type.FocusOut):
            self.setProperty("focused", event.type() == QEvent.Type.FocusIn)
            self.style().polish(self)
        return super().eventFilter(watched, event)

    def set_title(self, title: str, *shorter: str) -> None:
        """The title, and what stands there when it does not fit."""
        self.title_label.set_wordings(title, *shorter)
        # A short title stays whole beside a remark; a long one is shortened first.
        self.title_label.keep_whole(SHORT_TITLE)
        self.setAccessibleName(title)

    def set_remark(self, text: str, tooltip: str = "", *shorter: str) -> None:
        """The muted words on the right of the header, and what stands there where they do not fit. The tooltip must be
        plain words of our own."""
        self.remark_label.set_wordings(text, *shorter)
        self.remark_label.setVisible(bool(text))
        # Where both do not fit, the title gives way first: the remark holds figures.
        self.remark_label.setMinimumWidth(min(LONG_REMARK, self.remark_label.advance(shorter[-1] if shorter else text)))
        self.remark_label.setToolTip(tooltip)

    def add_button(self, text: str, icon: str = "", tooltip: str = "") -> QToolButton:
        """A small button at the right of the header; only its icon is shown when it has one."""
        button = QToolButton(self)
        button.setText(text)
        button.setToolTip(tooltip or text)
        button.setAccessibleName(text)
        if icon:
            theme.set_icon(button, icon)
            button.setIconSize(QSize(16, 16))
        self.header.addWidget(button)
        return button


def icon_button(icon: str, name: str, tooltip: str = "", size: int = 16) -> QToolButton:
    """A button of which only the icon is seen. tooltip: where more is to be said than its name."""
    button = QToolButton()
    theme.set_icon(button, icon)
    button.setIconSize(QSize(size, size))
    button.setAccessibleName(name)
    button.setToolTip(tooltip or name)
    return button


class ScrollingArea(QScrollArea):
    """It scrolls up and down alone, so it is never narrower than what it holds: what stands at the right, as values
    and buttons do, could not be reached."""

    def minimumSizeHint(self) -> QSize:
        least, held = super().minimumSizeHint(), self.widget()
        if held is None or not self.widgetResizable():
            return least
        bar = self.verticalScrollBar().sizeHint().width()
        return QSize(max(least.width(), held.minimumSizeHint().width() + bar), least.height())


def scrolling(widget: QWidget | None, name: str = "") -> QScrollArea:
    """A frame that scrolls this widget up and down, and is as wide as there is room.

    name: of a frame whose content cannot all be reached by keys. It takes the focus itself, and arrows scroll it.
    Without one it follows the focus of what it holds. widget: None where it is put in later.
    """
    area = ScrollingArea()
    area.setWidgetResizable(True)
    area.setFrameShape(QFrame.Shape.NoFrame)
    area.setFocusPolicy(Qt.FocusPolicy.StrongFocus if name else Qt.FocusPolicy.NoFocus)
    area.setAccessibleName(name)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    if widget is not None:
        area.setWidget(widget)
    return area
