"""One cell of a sweep: its figures with their spread over the seeds, and its runs to open."""

from __future__ import annotations

import math

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QGridLayout, QListWidget, QListWidgetItem, QPushButton, QWidget

from engine.events import FIGURES, Sweep
from widgets import theme
from widgets.format import UNKNOWN
from widgets.lab.figure_words import figure_name, figure_text, figure_tip
from widgets.panel import ElidedLabel, Panel, PlainLabel
from widgets.small import SmallText

NUMBER = Qt.ItemDataRole.UserRole


class CellPanel(Panel):
    """Beside the map. The seed that is chosen stays chosen from cell to cell."""

    opened = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("", parent)
        self.set_title(self.tr("Cell"))
        self.setMinimumWidth(theme.base_px() * 20)
        self.setMaximumWidth(theme.base_px() * 25)
        self._seed = 0
        self.words = SmallText("", "")
        self.grid = QGridLayout()
        self.grid.setHorizontalSpacing(8)
        self.grid.setVerticalSpacing(3)
        self.grid.setColumnStretch(0, 1)
        self._values: dict[str, tuple[ElidedLabel, ElidedLabel]] = {}
        right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        for row, figure in enumerate(FIGURES):
            name = PlainLabel(figure_name(figure), "muted")
            mean, spread = ElidedLabel("", "value"), ElidedLabel("", "muted")
            for label in (mean, spread):
                label.setAlignment(right)
            for column, label in enumerate((name, mean, spread)):
                label.setToolTip(figure_tip(figure))
                self.grid.addWidget(label, row, column)
            self._values[figure] = (mean, spread)
        self.runs = QListWidget()
        self.runs.setAccessibleName(self.tr("Runs of this cell"))
        self.runs.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.runs.setTextElideMode(Qt.TextElideMode.ElideRight)
        self.runs.currentRowChanged.connect(self._chosen)
        self.runs.itemActivated.connect(self._activated)
        # A low window takes from the list and not from the figures.
        self.runs.setMinimumHeight(2 * self.fontMetrics().lineSpacing())
        self.open_button = QPushButton(self.tr("Open the run"))
        self.open_button.setToolTip(self.tr("Shows it as text, with every word's odds (Return)"))
        self.compare_button = QPushButton(self.tr("Compare as lanes"))
        self.compare_button.setToolTip(
            self.tr("The chosen cells beside one another, or all seeds of this one (C). Space chooses a cell.")
        )
        self.body.addWidget(self.words)
        self.body.addLayout(self.grid)
        self.body.addWidget(self.runs, 1)
        self.body.addWidget(self.open_button)
        self.body.addWidget(self.compare_button)

    def show_cell(self, sweep: Sweep | None, cell: tuple[int, int], words: str, chosen: int) -> None:
        """chosen: how many cells are chosen on the map."""
        self.words.setText(words or self.tr("The cell with the frame: its figures, and its runs."))
        self.set_remark(self.tr("{count} chosen").format(count=chosen) if chosen else "")
        for figure, (mean_label, spread_label) in self._values.items():
            mean = sweep.mean(figure, cell) if sweep is not None else None
            mean_label.setText(UNKNOWN if mean is None else figure_text(figure, mean.mean))
            spread = mean is not None and mean.count > 1 and math.isfinite(mean.deviation)
            spread_label.setText(f"± {figure_text(figure, mean.deviation)}" if mean is not None and spread else "")
        self.runs.blockSignals(True)
        self.runs.clear()
        if sweep is not None:
            question = sweep.question
            for place, number in enumerate(question.numbers(cell)):
                run = sweep.runs[number]
                seed = self.tr("seed {seed}").format(seed=str(question.seeds[place])[:20])
                if run is None:
                    item = QListWidgetItem(f"{seed} · {self.tr('still to be run')}")
                    item.setFlags(Qt.ItemFlag.NoItemFlags)
                else:
                    item = QListWidgetItem(f"{seed} · {figure_text('tokens', run.tokens, unit=True)} · {run.reason}")
                    if run.sentence:
                        item.setToolTip(run.sentence)
                item.setData(NUMBER, number)
                self.runs.addItem(item)
            self.runs.setCurrentRow(min(self._seed, self.runs.count() - 1))
        self.runs.blockSignals(False)
        self._show_buttons()
        self.compare_button.setEnabled(False)  # the page knows what there is to compare

    def chosen_seed(self) -> int:
        """The place of the chosen seed among the seeds."""
        return max(0, self.runs.currentRow())

    def chosen_run(self) -> int | None:
        """The number of the chosen run; None where it is still to be done."""
        item = self.runs.currentItem()
        if item is None or not item.flags() & Qt.ItemFlag.ItemIsEnabled:
            return None
        return item.data(NUMBER)

    def _show_buttons(self) -> None:
        self.open_button.setEnabled(self.chosen_run() is not None)

    @Slot(int)
    def _chosen(self, row: int) -> None:
        if row >= 0:
            self._seed = row
        self._show_buttons()

    @Slot(QListWidgetItem)
    def _activated(self, _item: QListWidgetItem) -> None:
        self.opened.emit()
