"""The blueprint box: config.json as facts a person can read, and as it was written."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QRectF, QSize, Qt, Slot
from PySide6.QtGui import QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import (
    QGridLayout,
    QHBoxLayout,
    QPlainTextEdit,
    QSizePolicy,
    QTabWidget,
    QVBoxLayout,
    QWidget,
)

from engine.events import Outline
from widgets import theme
from widgets.boxes.blueprint_rows import Row, family_sentence, rows, share_name
from widgets.boxes.outline_page import OutlinePage
from widgets.boxes.page import copy_button, to_clipboard
from widgets.format import percent_text, plain_tooltip, short_count
from widgets.panel import scrolling
from widgets.run_store import RunStore
from widgets.small import SmallLabel, SmallText

BAR = 4.0


class BlueprintPage(OutlinePage):
    """Facts with a picture of the shares; the raw file beside them."""

    stage = "blueprint"

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(store, parent)
        self._rows: list[Row] = []
        self.about = SmallText("", "")
        self.shares = ShareBars()
        self.grid = QGridLayout()
        self.grid.setHorizontalSpacing(10)
        self.grid.setVerticalSpacing(5)
        self.grid.setColumnStretch(1, 1)
        self.notes = SmallText()
        self.copy_facts = copy_button(self.tr("copy"), self.tr("Copy these facts as a table"))
        self.copy_facts.clicked.connect(self._copy_facts)
        facts = QWidget()
        facts.setProperty("plain", True)
        column = QVBoxLayout(facts)
        column.setContentsMargins(0, 8, 6, 0)
        column.setSpacing(10)
        for part in (self.about, self.shares):
            column.addWidget(part)
        column.addLayout(self.grid)
        column.addWidget(self.notes)
        column.addWidget(self.copy_facts, 0, Qt.AlignmentFlag.AlignRight)
        column.addStretch(1)
        area = scrolling(facts, self.tr("The model's facts"))
        self.raw = QPlainTextEdit()
        self.raw.setReadOnly(True)
        self.raw.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.raw.setAccessibleName(self.tr("config.json as it was written"))
        self.copy_raw = copy_button(self.tr("copy"), self.tr("Copy the whole file"))
        self.copy_raw.clicked.connect(self._copy_raw)
        written = QWidget()
        column = QVBoxLayout(written)
        column.setContentsMargins(0, 8, 0, 0)
        column.setSpacing(4)
        column.addWidget(self.raw, 1)
        row = QHBoxLayout()
        row.addStretch(1)
        row.addWidget(self.copy_raw)
        column.addLayout(row)
        self.tabs = QTabWidget()
        self.tabs.setAccessibleName(self.tr("Parts of this page"))
        self.tabs.setDocumentMode(True)
        self.tabs.tabBar().setDrawBase(False)
        self.tabs.addTab(area, self.tr("facts"))
        self.tabs.addTab(written, "config.json")
        self.column.addWidget(self.tabs)
        theme.changes.changed.connect(self._restyle)
        self._restyle()

    @Slot()
    def _restyle(self) -> None:
        self.raw.setFont(theme.mono(-1))

    def show_outline(self, outline: Outline) -> None:
        self.about.setText(family_sentence(outline))
        self.shares.set_shares(outline.shares)
        self._rows = rows(outline)
        while (item := self.grid.takeAt(0)) is not None:
            item.widget().deleteLater()
        for at, row in enumerate(self._rows):
            name, value = SmallLabel(row.name), SmallText(row.value, "")
            name.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Preferred)
            value.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignTop)
            value.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            for place, label in enumerate((name, value)):
                label.setToolTip(plain_tooltip(row.tooltip))
                self.grid.addWidget(label, at, place, Qt.AlignmentFlag.AlignTop if not place else Qt.Alignment())
        self.notes.setText("\n".join(outline.notes))
        self.notes.setVisible(bool(outline.notes))
        self.raw.setPlainText(outline.raw)
        self.tabs.setTabText(1, outline.source if len(outline.source) < 24 else self.tr("header"))
        self.tabs.setTabToolTip(1, plain_tooltip(outline.source))

    @Slot()
    def _copy_facts(self) -> None:
        to_clipboard("\n".join(f"{row.name}\t{row.value}" for row in self._rows))

    @Slot()
    def _copy_raw(self) -> None:
        to_clipboard(self.raw.toPlainText())


class ShareBars(QWidget):
    """A bar for each part of the model, as long as its share of the parameters."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._shares: list[tuple[str, int]] = []
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(self.tr("Parameters by part"))
        self.setToolTip(self.tr("Parameters by part, counted on the empty model; tied ones count once."))
        theme.changes.changed.connect(self._restyle)

    @Slot()
    def _restyle(self) -> None:
        self.updateGeometry()
        self.update()

    def set_shares(self, shares: Sequence[tuple[str, int]]) -> None:
        self._shares = [(share_name(role), count) for role, count in shares if count]
        total = sum(count for _, count in self._shares) or 1
        self.setAccessibleDescription("\n".join(f"{name}: {percent_text(n / total)}" for name, n in self._shares))
        self.updateGeometry()
        self.update()

    def _line(self) -> float:
        return QFontMetricsF(theme.font(-1)).height() + 2.0

    def sizeHint(self) -> QSize:
        return QSize(theme.base_px() * 16, round(len(self._shares) * (self._line() + BAR + 5.0)))

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.base_px() * 12, self.sizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        look, width = theme.current(), float(self.width())
        total = sum(count for _, count in self._shares) or 1
        with QPainter(self) as painter:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setFont(theme.font(-1))
            metrics, line, y = QFontMetricsF(painter.font()), self._line(), 0.0
            column = metrics.horizontalAdvance("100.0%") + 4.0
            for name, count in self._shares:
                percent, amount = percent_text(count / total), short_count(count)
                right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
                painter.setPen(look.ink)
                painter.drawText(QRectF(width - column, y, column, line), right, percent)
                painter.setPen(look.muted)
                painter.drawText(QRectF(0, y, width - column - 6.0, line), right, amount)
                room = width - column - metrics.horizontalAdvance(amount) - 14.0
                painter.setPen(look.ink)
                shown = metrics.elidedText(name, Qt.TextElideMode.ElideRight, room)
                painter.drawText(QRectF(0, y, room, line), Qt.AlignmentFlag.AlignVCenter, shown)
                y += line
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(look.track)
                painter.drawRoundedRect(QRectF(0, y, width, BAR), BAR / 2, BAR / 2)
                painter.setBrush(look.weights)
                painter.drawRoundedRect(QRectF(0, y, max(2.0, width * count / total), BAR), BAR / 2, BAR / 2)
                y += BAR + 5.0
