"""What is known of the chosen row: a title, a sentence where something is wrong, facts, and room for buttons."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QGridLayout, QSizePolicy, QSplitter, QVBoxLayout, QWidget

from widgets.panel import Panel, PlainLabel, scrolling
from widgets.small import SmallText

Line = tuple[str, str, str]  # name, value, tooltip


class Details(Panel):
    """Fill it with `show_facts`; put buttons into `acts`."""

    def __init__(self, title: str, parent: QWidget | None = None) -> None:
        super().__init__(title, parent)
        self.name = _selectable(PlainLabel())
        self.name.setProperty("role", "value")
        self.problem = _selectable(SmallText("", "warning"))
        self.fix = _selectable(SmallText("", ""))
        self._facts = QWidget()
        self._grid = QGridLayout(self._facts)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(12)
        self._grid.setVerticalSpacing(4)
        self._grid.setColumnStretch(1, 1)
        page = QWidget()
        column = QVBoxLayout(page)
        column.setContentsMargins(0, 0, 6, 0)
        column.setSpacing(8)
        for part in (self.name, self.problem, self.fix, self._facts):
            column.addWidget(part)
        column.addStretch(1)
        page.setProperty("plain", True)
        area = scrolling(page, title)
        self.show_focus_of(area)
        self.body.addWidget(area, 1)
        self.acts = QVBoxLayout()
        self.acts.setSpacing(8)
        self.body.addLayout(self.acts)
        self._lines: tuple[Line, ...] = ()

    def show_facts(self, name: str, lines: Sequence[Line], problem: str = "", fix: str = "") -> None:
        """Lines with an empty value are left out. All words are taken letter by letter."""
        for label, text in ((self.name, name), (self.problem, problem), (self.fix, fix)):
            label.setText(text)
            label.setVisible(bool(text))
        lines = tuple(line for line in lines if line[1])
        if lines == self._lines:
            return
        self._lines = lines
        while (item := self._grid.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        for row, (label, value, tooltip) in enumerate(lines):
            key = PlainLabel(label, "muted")
            shown = _selectable(PlainLabel(value))
            for part in (key, shown):
                part.setToolTip(tooltip)
            self._grid.addWidget(key, row, 0, Qt.AlignmentFlag.AlignTop)
            self._grid.addWidget(shown, row, 1)

    def facts(self) -> dict[str, str]:
        """The facts as shown."""
        return {name: value for name, value, _ in self._lines}


def _selectable(label: PlainLabel) -> PlainLabel:
    label.setWordWrap(True)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    label.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Minimum)
    return label


def framed_page() -> QFrame:
    """A page with a panel's frame, for a sentence where a table would stand."""
    page = QFrame()
    page.setProperty("panel", True)
    page.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
    return page


def beside(left: QWidget, details: QWidget) -> QSplitter:
    """A table and the details of its chosen row, side by side."""
    split = QSplitter(Qt.Orientation.Horizontal)
    split.setChildrenCollapsible(False)
    split.addWidget(left)
    split.addWidget(details)
    split.setStretchFactor(0, 1)
    split.setSizes([940, 290])
    return split
