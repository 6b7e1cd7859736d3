"""The kernels box: what computes, why, and what each other choice would do on this model and machine, measured."""

from __future__ import annotations

from PySide6.QtCore import Qt, Slot
from PySide6.QtWidgets import (
    QAbstractItemView,
    QGridLayout,
    QHBoxLayout,
    QHeaderView,
    QProgressBar,
    QPushButton,
    QTreeWidget,
    QTreeWidgetItem,
    QVBoxLayout,
    QWidget,
)

from engine.events import EngineError, KernelRow, KernelSurvey, SessionFacts
from engine.settings import KernelQuestion, KernelWish, StopAsking
from widgets import theme
from widgets.banner import sentence_of
from widgets.boxes.page import Page, copy_button, to_clipboard
from widgets.format import bytes_text, number_text, percent_text, plain_tooltip
from widgets.panel import PlainLabel, scrolling
from widgets.run_store import BUSY, RunStore
from widgets.small import SmallLabel, SmallText

NAME, SPEED, LANES, ERROR, SAME = range(5)
WISH = Qt.ItemDataRole.UserRole
WORDS = Qt.ItemDataRole.UserRole + 1
AUTO = "auto"
EAGER = "transformers, eager attention"


class KernelsPage(Page):
    """What ran at the top, the choices below; a chosen one is loaded with a button."""

    stage = "kernels"

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(store, parent)
        self._shown: tuple = ()
        self._number = 0
        self._question: KernelQuestion | None = None
        self.grid = QGridLayout()
        self.grid.setHorizontalSpacing(10)
        self.grid.setVerticalSpacing(6)
        self.grid.setColumnStretch(1, 1)
        self.about = SmallText()
        self.table = KernelTable(self)
        self.words = SmallText()
        self.load = QPushButton(self.tr("Load again with this"))
        self.load.setToolTip(self.tr("Loads the model with the chosen kernel; it is remembered for the next start"))
        self.measure = QPushButton(self.tr("Measure every choice"))
        self.measure.setToolTip(
            self.tr("The same text with each choice: some seconds each for a small model. The loaded model stays.")
        )
        self.stop = QPushButton(self.tr("Cancel"))
        self.busy = QProgressBar()
        self.busy.setTextVisible(False)
        self.busy.setAccessibleName(self.tr("Measuring"))
        self.progress = SmallLabel()
        self.copy = copy_button(self.tr("copy"), self.tr("Copy the table (Ctrl+C)"))
        row = QHBoxLayout()
        row.setSpacing(6)
        row.addWidget(self.measure, 1)
        row.addWidget(self.copy)
        content = QWidget()  # in a small window there is more of it than room
        content.setProperty("plain", True)
        column = QVBoxLayout(content)
        column.setContentsMargins(0, 0, 6, 0)
        column.setSpacing(6)
        column.addLayout(self.grid)
        for part in (self.about, self.table):
            column.addWidget(part)
        column.addLayout(row)
        for part in (self.load, self.busy, self.progress, self.stop, self.words):
            column.addWidget(part)
        column.addStretch(1)
        self.column.addWidget(scrolling(content))
        self.measure.clicked.connect(self.measure_all)
        self.stop.clicked.connect(self.stop_measuring)
        self.load.clicked.connect(self.load_chosen)
        self.copy.clicked.connect(self.copy_table)
        self.table.itemSelectionChanged.connect(self._say_chosen)
        self.table.itemActivated.connect(self._activated)

    def refresh(self) -> None:
        """Reads the store; does nothing while no figure on show has changed."""
        subject = self.store.subject
        facts = self.store.loading_facts if subject.state in ("loaded", "recorded") else None
        if facts is None:
            self.subject_bar.show_subject(subject)
            self.say(
                self.tr(
                    "Kernels are chosen when a model is loaded, by measuring. Load one (Ctrl+L): they stand here then."
                )
                if self.store.activity != "loading"
                else self.tr("A model is being loaded: its kernels are chosen last.")
            )
            self._shown = ()
            return
        self.say("")
        self.subject_bar.show_subject(subject, facts.name, facts.model_path)
        loaded = subject.state == "loaded"
        answer = self._answer() if loaded else None
        survey = answer if isinstance(answer, KernelSurvey) else None
        measuring = self._question in self.store.inside.pending if self._question is not None else False
        occupied = self.store.activity in BUSY
        step = self.store.inside.kernel_progress if measuring else None
        state = (facts, survey, measuring, occupied, step, loaded)
        if state == self._shown:
            return
        tables = (facts, survey) != self._shown[:2] if self._shown else True
        self._shown = state
        if tables:
            self._show_facts(facts)
            self.table.fill(facts, survey, loaded)
            self.about.setText(self._about(facts, survey))
        self.measure.setVisible(loaded and not measuring)
        self.measure.setEnabled(not occupied)
        self.load.setVisible(loaded and not measuring)
        self.copy.setVisible(survey is not None or bool(facts.kernel_figures))
        self.table.setVisible(self.table.topLevelItemCount() > 0)
        for part in (self.busy, self.progress, self.stop):
            part.setVisible(measuring)
        if step is not None:
            self.busy.setRange(0, max(1, step.of))
            self.busy.setValue(step.done)
            self.progress.setText(step.words)
        elif measuring:
            self.busy.setRange(0, 0)
            self.progress.setText(self.tr("waiting for the engine"))
        if isinstance(answer, EngineError):
            self.words.setText(sentence_of(answer))
            self.words.setVisible(True)
        else:
            self._say_chosen()

    def _answer(self) -> object | None:
        """The newest measurement, else what is remembered of this model on this machine."""
        if self._question is not None and (found := self.store.inside.answers.get(self._question)) is not None:
            return found
        return self.answer_to(KernelQuestion())

    @Slot()
    def measure_all(self) -> None:
        self._number += 1
        self._question = KernelQuestion(True, self._number)
        self.store.inside.kernel_progress = None
        self.store.inside.pending.add(self._question)
        self.asked.emit(self._question)
        self.refresh()

    @Slot()
    def stop_measuring(self) -> None:
        self.asked.emit(StopAsking())

    @Slot()
    def load_chosen(self) -> None:
        if (wish := self.table.chosen()) is not None:
            self.asked.emit(wish)

    @Slot()
    def _activated(self) -> None:
        if self.load.isEnabled() and self.load.isVisible():
            self.load_chosen()

    @Slot()
    def copy_table(self) -> None:
        to_clipboard("\n".join("\t".join(row) for row in self.table.rows(head=True)))

    @Slot()
    def _say_chosen(self) -> None:
        item = self.table.currentItem() if self.table.selectedItems() else None
        words = str(item.data(NAME, WORDS)) if item is not None else ""
        self.words.setText(words)
        self.words.setVisible(bool(words))
        facts = self.store.loading_facts
        same = facts is not None and self.table.chosen() == wish_of(running_name(facts))
        self.load.setEnabled(item is not None and not same and self.store.activity not in BUSY)

    def _show_facts(self, facts: SessionFacts) -> None:
        while self.grid.count():
            item = self.grid.takeAt(0)
            if item is not None and (widget := item.widget()) is not None:
                widget.deleteLater()
        lines = [(self.tr("attention"), facts.attention), (self.tr("decode"), facts.decode_path)]
        if facts.kernel_words:
            lines.append((self.tr("products"), facts.kernel_words))
        names = {"torch.compile": "torch.compile", "Quantised layers": self.tr("quantised layers")}
        lines += [(names[fact.name], fact.value) for fact in facts.facts if fact.name in names]
        if facts.packed_bytes:
            lines.append((self.tr("packed copy"), bytes_text(facts.packed_bytes)))
        for at, (name, value) in enumerate(lines):
            label, text = PlainLabel(name, "muted"), PlainLabel(value)
            label.setAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop)
            text.setWordWrap(True)
            text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            text.setToolTip(self.tr("Measured: what runs, not what was asked for"))
            self.grid.addWidget(label, at, 0)
            self.grid.addWidget(text, at, 1)

    def _about(self, facts: SessionFacts, survey: KernelSurvey | None) -> str:
        if survey is not None:
            return self.tr(
                "Measured with this model on this machine: {tokens} tokens of one text with each choice, threads: "
                "{threads}. Tokens per second in times of transformers' own forward; the error is against it."
            ).format(tokens=survey.tokens, threads=survey.threads)
        if facts.kernel_figures:
            return self.tr(
                "Measured on some of this model's layers when it was first loaded: tokens per second in times of plain "
                "products and one lane. “Measure every choice” times whole steps and their error."
            )
        if facts.kernel == "plain":
            return self.tr("Nothing was measured: the model is small, or its weights cannot be packed without a copy.")
        return ""


def running_name(facts: SessionFacts) -> str:
    """The row of the choice that runs now."""
    if facts.kernel == "transformers" and facts.attention == "eager":
        return EAGER
    return facts.kernel


def wish_of(name: str) -> KernelWish:
    if name == AUTO:
        return KernelWish(None)
    return KernelWish("transformers", "eager") if name == EAGER else KernelWish(name)


class KernelTable(QTreeWidget):
    """A row for each choice: speed of one lane, of eight lanes, error. The one that runs is bold and has a dot."""

    def __init__(self, page: KernelsPage) -> None:
        super().__init__(page)
        self.setRootIsDecorated(False)
        self.setUniformRowHeights(True)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setTextElideMode(Qt.TextElideMode.ElideRight)
        self.setAccessibleName(self.tr("Kernels, measured"))
        self.setHeaderLabels(
            [self.tr("choice"), self.tr("1 lane"), self.tr("8 lanes"), self.tr("error"), self.tr("same")]
        )
        self.setColumnHidden(SAME, True)  # a tool tip of the error, and in the copied table
        head = self.headerItem()
        head.setToolTip(SPEED, self.tr("Steps per second of one lane, in times of the first row's (measured)"))
        head.setToolTip(
            LANES, self.tr("Tokens per second of eight lanes at once, in times of one lane of the first row")
        )
        head.setToolTip(ERROR, self.tr("KL divergence per token in nats (measured)"))
        header = self.header()
        header.setStretchLastSection(False)
        header.setMinimumSectionSize(30)
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(NAME, QHeaderView.ResizeMode.Stretch)
        for column in (SPEED, LANES, ERROR):
            head.setTextAlignment(column, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        theme.changes.changed.connect(self._restyle)
        self._restyle()

    @Slot()
    def _restyle(self) -> None:
        self.setStyleSheet(f"QTreeView {{ font-size: {theme.base_px() - 2}px; }} QTreeView::item {{ padding: 2px 0; }}")

    def fill(self, facts: SessionFacts, survey: KernelSurvey | None, loaded: bool) -> None:
        """loaded: the model is here, so that a choice can be loaded; otherwise only what was measured is shown."""
        self.clear()
        runs = running_name(facts)
        if loaded:
            self._add(
                AUTO, self.tr("automatic"), self.tr("The fastest of the exact ones, by measuring at the load."), runs
            )
        if survey is not None and survey.rows:
            base = survey.rows[0]
            for row in survey.rows:
                self._add(row.name, self._label(row.name), row.words, runs, *self._figures(row, base))
        else:
            for figure in facts.kernel_figures:
                times = (
                    self.tr("{times} ×").format(times=number_text(value, 1))
                    for value in (figure.one_lane, figure.eight_lanes)
                )
                self._add(figure.name, self._label(figure.name), figure.words, runs, *times, "", "")
        self.setColumnHidden(ERROR, survey is None or not survey.rows)
        rows = self.topLevelItemCount()
        height = sum(self.sizeHintForRow(at) for at in range(rows)) + self.header().sizeHint().height() + 6
        self.setFixedHeight(height)

    def _add(self, name: str, label: str, words: str, runs: str, *figures: str) -> None:
        item = QTreeWidgetItem([label, *figures])
        item.setData(NAME, WISH, wish_of(name))
        item.setData(NAME, WORDS, words)
        item.setToolTip(NAME, plain_tooltip(words))
        for column in (SPEED, LANES, ERROR):
            item.setTextAlignment(column, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        if name == runs:
            font = self.font()
            font.setBold(True)
            for column in range(self.columnCount()):
                item.setFont(column, font)
            item.setText(NAME, f"● {label}")
            item.setToolTip(NAME, plain_tooltip(self.tr("Runs now. {words}").format(words=words)))
            item.setData(NAME, Qt.ItemDataRole.AccessibleTextRole, self.tr("{name}, runs now").format(name=label))
        if same := item.text(SAME):
            item.setToolTip(ERROR, self.tr("{percent} of first choices are the same").format(percent=same))
        self.addTopLevelItem(item)

    def _label(self, name: str) -> str:
        return {
            "transformers": self.tr("transformers"),
            EAGER: self.tr("eager attention"),
            "plain": self.tr("plain"),
            "compiled": self.tr("compiled"),
            "onednn": self.tr("packed by oneDNN"),
            "float16": self.tr("float16, packed"),
            "int8": self.tr("8-bit weights"),
            "int8-dynamic": self.tr("8-bit throughout"),
            "int8-smoothed": self.tr("8-bit, smoothed"),
        }.get(name, name)

    def _figures(self, row: KernelRow, base: KernelRow) -> tuple[str, str, str, str]:
        if row.error or not row.step_ms or not row.lanes_ms:
            return self.tr("not here"), "", "", ""
        speed, lanes = (
            number_text(times, 1) + " ×" for times in (base.step_ms / row.step_ms, 8 * base.step_ms / row.lanes_ms)
        )
        if row is base:
            return speed, lanes, "–", ""
        return speed, lanes, number_text(row.kl_nats, 4), percent_text(row.same_first, 0)

    def chosen(self) -> KernelWish | None:
        item = self.currentItem() if self.selectedItems() else None
        return item.data(NAME, WISH) if item is not None else None

    def rows(self, head: bool = False) -> list[list[str]]:
        """The table as shown."""
        items = [self.topLevelItem(at) for at in range(self.topLevelItemCount())]
        shown = [self.headerItem(), *items] if head else items
        return [[item.text(column) for column in range(self.columnCount())] for item in shown if item is not None]
