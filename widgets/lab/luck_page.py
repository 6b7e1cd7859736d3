"""Luck or setting? Two settings with several seeds each: what differs more than luck would do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QCoreApplication, Qt, Signal, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QPlainTextEdit,
    QSplitter,
    QStackedWidget,
    QTreeWidget,
    QTreeWidgetItem,
    QVBoxLayout,
    QWidget,
)

from engine.events import EngineError, Luck, LuckFigure, LuckQuestion
from engine.settings import MAX_LANES, Range, SamplingSettings
from widgets import theme
from widgets.banner import sentence_of
from widgets.boxes.page import to_clipboard
from widgets.fields import NumberField
from widgets.format import plain_tooltip
from widgets.lab.experiment_bar import ExperimentBar
from widgets.lab.experiment_wishes import RunLuck, StopExperiment
from widgets.lab.figure_words import difference_text, figure_name, figure_text, figure_tip, figure_unit, settings_text
from widgets.lab.luck_words import METHOD, explanation, interval_text, summary, verdict_words
from widgets.lab.settings_list import LETTERS, Named, SettingsList, as_dicts, from_dicts
from widgets.lab.strip_plot import StripPlot
from widgets.panel import Panel, PlainLabel, scrolling
from widgets.run_store import RunStore
from widgets.small import EmptyText, SmallText, Verdict

FIRST = (Named(SamplingSettings(temperature=0.7)), Named(SamplingSettings(temperature=1.0)))

NARROW = 860  # pixels


class LuckPage(QWidget):
    """`asked`: RunLuck, StopExperiment, WordsQuestion."""

    asked = Signal(object)

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.store = store
        self.luck: Luck | None = None
        self._question: LuckQuestion | None = None
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(theme.GAP)
        column.addWidget(self._build_question())
        split = QSplitter(Qt.Orientation.Horizontal)
        split.setChildrenCollapsible(False)
        split.addWidget(self._build_figures())
        split.addWidget(self._build_text())
        split.setStretchFactor(0, 3)
        split.setStretchFactor(1, 2)
        column.addWidget(split, 1)
        self.show_luck(None)
        self.refresh()

    def _build_question(self) -> Panel:
        panel = Panel(self.tr("Luck or setting?"))
        self.list = SettingsList(self.store, FIRST, 2)
        self.list.asked.connect(self.asked)
        self.seeds = self._number(Range(2, MAX_LANES // 2, 16, integer=True), 16, self.tr("Seeds for each setting"))
        self.first_seed = self._number(None, 0, self.tr("First seed"))
        self.tokens = self._number(Range(1, 100_000, 1, integer=True), 64, self.tr("New tokens in each run"))
        self.first_seed.setToolTip(
            self.tr("A takes the seeds from here on, B those behind them. Other seeds are a new, independent try.")
        )
        self.bar = ExperimentBar(self.store, self.tr("Compare"))
        row = self.bar.row
        at = 2
        for words, field in (
            (self.tr("seeds each"), self.seeds),
            (self.tr("from"), self.first_seed),
            (self.tr("tokens"), self.tokens),
        ):
            label = PlainLabel(words, "muted")
            label.setBuddy(field)
            row.insertWidget(at, label)
            row.insertWidget(at + 1, field)
            at += 2
        panel.body.addWidget(self.list)
        panel.body.addWidget(self.bar)
        self.bar.started.connect(self.ask)
        self.bar.stopped.connect(self.stop)
        return panel

    def _number(self, allowed: Range | None, value: int, name: str) -> NumberField:
        field = NumberField(allowed, value, integer=True)
        field.setAccessibleName(name)
        field.setToolTip(name)
        field.setFixedWidth(theme.base_px() * 4)
        field.setAlignment(Qt.AlignmentFlag.AlignLeft)  # beside its own name
        return field

    def _build_figures(self) -> Panel:
        panel = Panel(self.tr("What differs"))
        self.table = QTreeWidget()
        self.table.setRootIsDecorated(False)
        self.table.setUniformRowHeights(True)
        self.table.setAccessibleName(self.tr("Figures of the two settings"))
        self.table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.table.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.table.setHeaderLabels(
            [self.tr("figure"), "A", "B", self.tr("B less A"), self.tr("95% interval"), self.tr("verdict")]
        )
        for at in range(1, 5):
            self.table.headerItem().setTextAlignment(at, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        header = self.table.header()
        header.setStretchLastSection(False)
        header.setMinimumSectionSize(30)
        for at in range(6):
            header.setSectionResizeMode(at, QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        self.table.currentItemChanged.connect(self._figure_chosen)
        self.copy = panel.add_button(self.tr("copy"), "copy", self.tr("Copy the figures as a table"))
        self.copy.clicked.connect(self.copy_table)
        self.words = Verdict()
        self.notes = SmallText()
        self.plot = StripPlot()
        self.plot.chosen.connect(self._dot_chosen)
        inside = QWidget()
        inside.setProperty("plain", True)
        column = QVBoxLayout(inside)
        column.setContentsMargins(0, 0, 4, 0)
        column.setSpacing(8)
        for part, stretch in ((self.table, 0), (self.words, 0), (self.plot, 1), (self.notes, 0)):
            column.addWidget(part, stretch)
        shown = scrolling(inside)
        self.empty = EmptyText(
            self.tr(
                "One lucky text looks like a better setting. Here each of two settings writes the prompt with many "
                "seeds, and every figure's spread inside a setting is held against the difference between them.\n\n"
                "Set A and B above, choose how many seeds, and press Compare (Ctrl+Return). Each seed becomes a dot; "
                "the verdict says whether the difference is the setting's doing or could be luck, and how many seeds "
                "would be needed to know. A click on a dot shows its text."
            )
        )
        self._stack = QStackedWidget()
        self.empty.setProperty("plain", True)
        self._stack.addWidget(scrolling(self.empty))
        self._stack.addWidget(shown)
        panel.body.addWidget(self._stack, 1)
        self._figures_panel = panel
        return panel

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Where there is no room for it, the interval stands in the sentence only."""
        super().resizeEvent(event)
        self.table.setColumnHidden(4, self.width() < NARROW)
        self._name_figures()

    def _name_figures(self) -> None:
        """The figures' names are read whole: where there is little room the unit stands in the tool tip only."""
        for at, figure in enumerate(self.luck.figures if self.luck is not None else ()):
            item, name, unit = self.table.topLevelItem(at), figure_name(figure.name), figure_unit(figure.name)
            assert item is not None
            whole = f"{name} ({unit})" if unit else name
            item.setText(0, name if self.width() < NARROW else whole)
            item.setToolTip(0, plain_tooltip(f"{whole}\n{figure_tip(figure.name)}"))
            item.setData(0, Qt.ItemDataRole.AccessibleTextRole, whole)

    def _build_text(self) -> Panel:
        panel = Panel(self.tr("Text of a seed"))
        panel.setMinimumWidth(190)
        self.text = QPlainTextEdit()
        self.text.setReadOnly(True)
        self.text.setAccessibleName(self.tr("Text of the chosen seed"))
        self.text.setPlaceholderText(self.tr("Choose a dot (click, or arrow keys): its text stands here."))
        panel.body.addWidget(self.text, 1)
        self._text_panel = panel
        return panel

    # ---------------------------------------------------------------- asking

    def run_page(self, one_token: bool) -> None:
        """The window's Run, while this page is seen."""
        if not one_token:
            self.ask()

    @Slot()
    def ask(self) -> None:
        self.refresh()  # what came since the last frame
        fields = (self.seeds, self.first_seed, self.tokens)
        if not self.bar.ready:
            return
        if not self.list.commit() or not all(field.commit() for field in fields):
            self.bar.show_error(self.tr("A value cannot be used: it is marked red."))
            return
        one, other = self.list.settings()
        self.asked.emit(
            RunLuck((one, other), int(self.seeds.value()), int(self.first_seed.value()), int(self.tokens.value()))
        )

    @Slot()
    def stop(self) -> None:
        self.asked.emit(StopExperiment())

    def begun(self, question: LuckQuestion) -> None:
        self._question, self.bar.asked = question, True
        self.refresh()

    def set_sources(self, sources: Sequence[Named]) -> None:
        """What may be taken over: the sliders, the lanes."""
        self.list.sources = tuple(sources)

    def state(self) -> dict[str, Any]:
        return {
            "settings": as_dicts(self.list.cards()),
            "seeds": int(self.seeds.value()),
            "first_seed": int(self.first_seed.value()),
            "tokens": int(self.tokens.value()),
        }

    def restore(self, values: dict[str, Any]) -> None:
        """What was set when the window was last closed; values that make no sense change nothing."""
        cards = from_dicts(values.get("settings"))
        if len(cards) == 2:
            self.list.restore(cards)
        for name, field in (("seeds", self.seeds), ("first_seed", self.first_seed), ("tokens", self.tokens)):
            value = values.get(name)
            allowed = field.allowed
            if type(value) is int and (allowed is None or allowed.low <= value <= allowed.high):
                field.set_value(value)

    # ---------------------------------------------------------------- showing

    @Slot()
    def refresh(self) -> None:
        answers = self.store.inside.answers
        if self._question is not None and self._question in answers:
            answer, self._question = answers[self._question], None
            self.bar.asked = False
            if isinstance(answer, Luck):
                self.show_luck(answer)
            elif isinstance(answer, EngineError):
                self.bar.show_error(sentence_of(answer))
        self.list.refresh()
        self.bar.refresh(LuckQuestion, "")
        self.list.setEnabled(not self.bar.working)

    def show_luck(self, luck: Luck | None) -> None:
        self.luck = luck
        self._stack.setCurrentIndex(0 if luck is None else 1)
        self.copy.setEnabled(luck is not None)
        self.table.clear()
        self.text.clear()
        self._text_panel.set_remark("")
        if luck is None:
            self._figures_panel.set_remark("")
            self.plot.show_figure(None, None)
            return
        self._figures_panel.set_remark(f"{luck.model} · {luck.precision}", "", luck.model)
        first, second = (settings_text(settings) for settings in luck.question.settings)
        right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        for figure in luck.figures:
            item = QTreeWidgetItem(
                [
                    "",
                    *(figure_text(figure.name, mean.mean) for mean in figure.means),
                    difference_text(figure.name, figure.difference.difference),
                    interval_text(figure),
                    verdict_words(figure),
                ]
            )
            item.setToolTip(1, plain_tooltip(first))
            item.setToolTip(2, plain_tooltip(second))
            item.setToolTip(5, plain_tooltip(QCoreApplication.translate("LuckPage", METHOD)))
            for at in range(1, 5):
                item.setTextAlignment(at, right)
            bold = theme.font(0, bold=figure.verdict == "setting")
            item.setFont(5, bold)
            self.table.addTopLevelItem(item)
        self._name_figures()
        rows = self.table.topLevelItemCount()
        height = self.table.sizeHintForRow(0) * rows + self.table.header().sizeHint().height() + 6
        self.table.setFixedHeight(height)
        # The cards above may have been changed since.
        compared = self.tr("Compared were A: {first}, and B: {second}.").format(first=first, second=second)
        self.notes.setText("\n".join([compared, *luck.notes, QCoreApplication.translate("LuckPage", METHOD)]))
        order = ("setting", "perhaps", "luck", "none")
        best = min(range(rows), key=lambda at: order.index(luck.figures[at].verdict))
        self.table.setCurrentItem(self.table.topLevelItem(best))
        self._figure_chosen()

    @property
    def figure(self) -> LuckFigure | None:
        """The one that is looked at."""
        at = self.table.indexOfTopLevelItem(self.table.currentItem()) if self.table.currentItem() else -1
        return self.luck.figures[at] if self.luck is not None and at >= 0 else None

    @Slot()
    def _figure_chosen(self) -> None:
        figure = self.figure
        if self.luck is None or figure is None:
            return
        self.words.setText(f"{summary(self.luck)}\n{explanation(self.luck, figure)}")
        self.plot.show_figure(self.luck, figure)

    @Slot(object)
    def _dot_chosen(self, place: object) -> None:
        luck = self.luck
        assert luck is not None
        side, at = place  # type: ignore[misc]
        seed = luck.question.lanes[side * luck.question.seeds + at].seed
        words = settings_text(luck.question.settings[side])
        self._text_panel.set_remark(
            self.tr("{letter}, seed {seed}").format(letter=LETTERS[side], seed=str(seed)[:20]), plain_tooltip(words)
        )
        self.text.setPlainText(luck.texts[side][at])

    @Slot()
    def copy_table(self) -> None:
        """Figures, means, difference, interval, p and verdict; tabs between them."""
        if self.luck is None:
            return
        lines = ["figure\tmean_A\tmean_B\tdifference\tlow\thigh\tp\tp_holm\tseeds_needed_estimated\tverdict"]
        for figure in self.luck.figures:
            difference = figure.difference
            numbers = (
                figure.means[0].mean, figure.means[1].mean, difference.difference, difference.low, difference.high,
                difference.p, figure.p_holm,
            )  # fmt: skip
            needed = "" if figure.seeds_needed is None else str(figure.seeds_needed)
            cells = [f"{number:.6g}" if number == number else "" for number in numbers]
            lines.append("\t".join([figure.name, *cells, needed, figure.verdict]))
        to_clipboard("\n".join(lines) + "\n")
