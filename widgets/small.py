"""Labels two pixels below the base size, for remarks under a control."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget

from widgets import theme
from widgets.panel import ElidedLabel, PlainLabel


class SmallLabel(ElidedLabel):
    """One small line, shortened where it does not fit."""

    def __init__(self, text: str = "", role: str = "muted", parent: QWidget | None = None) -> None:
        super().__init__(text, role, parent)
        theme.changes.changed.connect(self._restyle)
        self._restyle()

    def _restyle(self) -> None:
        make_small(self)


class SmallText(PlainLabel):
    """Small words that wrap."""

    def __init__(self, text: str = "", role: str = "muted", parent: QWidget | None = None) -> None:
        super().__init__(text, role, parent)
        self.setWordWrap(True)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Minimum)
        theme.changes.changed.connect(self._restyle)
        self._restyle()

    def _restyle(self) -> None:
        make_small(self)


class Verdict(PlainLabel):
    """What was found, in words that wrap and are read from far away."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("", "", parent)
        self.setWordWrap(True)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Minimum)
        self.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)


class EmptyText(PlainLabel):
    """What a page will show and how, in its middle, until there is something."""

    def __init__(self, text: str = "", parent: QWidget | None = None) -> None:
        super().__init__(text, "muted", parent)
        self.setWordWrap(True)
        self.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.setMargin(24)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Minimum)
        theme.changes.changed.connect(self._restyle)
        self._restyle()

    def _restyle(self) -> None:
        self.setFont(theme.font(1))


def make_small(label: QLabel) -> None:
    # A font set with setFont is lost when a style sheet's widget gets a new parent.
    size = f"font-size: {theme.base_px() - 2}px"
    if label.styleSheet() != size:
        label.setStyleSheet(size)
