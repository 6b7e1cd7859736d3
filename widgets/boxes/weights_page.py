"""The weights box: the files in the order they are read, the tensors in them, and one tensor's numbers."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QRectF, QSize, Qt, Slot
from PySide6.QtGui import QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import (
    QCheckBox,
    QHBoxLayout,
    QLineEdit,
    QPushButton,
    QSizePolicy,
    QTabWidget,
    QVBoxLayout,
    QWidget,
)

from engine.events import EngineError, Histogram, HistogramQuestion, ShardRead, TensorRow, WeightsQuestion, WeightsTable
from widgets import theme
from widgets.banner import sentence_of
from widgets.boxes.histogram_view import HistogramView
from widgets.boxes.page import Page, copy_button
from widgets.boxes.tensor_table import TensorTable
from widgets.format import bytes_text, count_text, duration_text
from widgets.inside import Subject
from widgets.panel import scrolling
from widgets.run_store import BUSY, RunStore
from widgets.small import SmallText

BAR = 4.0
FILES, TENSORS, NUMBERS = range(3)  # tabs


class WeightsPage(Page):
    """Files with their speed, live while a model loads; tensors with marks; a histogram on demand."""

    stage = "weights"

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(store, parent)
        self._shown: WeightsTable | None = None
        self._question: HistogramQuestion | None = None
        self.kind = SmallText("", "")
        self.shards = ShardBars()
        self.notes = SmallText()
        files = QWidget()
        files.setProperty("plain", True)
        column = QVBoxLayout(files)
        column.setContentsMargins(0, 8, 6, 0)
        column.setSpacing(10)
        for part in (self.kind, self.shards, self.notes):
            column.addWidget(part)
        column.addStretch(1)
        self.tabs = QTabWidget()
        self.tabs.setAccessibleName(self.tr("Parts of this page"))
        self.tabs.setDocumentMode(True)
        self.tabs.tabBar().setDrawBase(False)
        self.tabs.addTab(scrolling(files, self.tr("Weight files")), self.tr("files"))
        self.tabs.addTab(self._tensors(), self.tr("tensors"))
        self.tabs.addTab(self._numbers(), self.tr("numbers"))
        self.column.addWidget(self.tabs)

    def _tensors(self) -> QWidget:
        self.search = QLineEdit()
        self.search.setPlaceholderText(self.tr("search"))
        self.search.setAccessibleName(self.tr("Search tensors by name or file"))
        self.search.setClearButtonEnabled(True)
        self.marked = QCheckBox(self.tr("marked"))
        self.marked.setToolTip(self.tr("Only tensors that are missing, unexpected or tied"))
        self.table = TensorTable()
        self.copy = copy_button(self.tr("copy"), self.tr("Copy the chosen rows, or all that are shown (Ctrl+C)"))
        self.copy.clicked.connect(self.table.copy_rows)
        self.search.textChanged.connect(self._search)
        self.marked.toggled.connect(self._search)
        self.table.opened.connect(self._ask)
        self.counted = SmallText()
        self.numbers = QPushButton(self.tr("numbers"))
        self.numbers.setToolTip(self.tr("Least, greatest, mean, and a histogram of the chosen tensor (Enter)"))
        self.numbers.clicked.connect(self.ask_numbers)
        row = QHBoxLayout()
        row.setSpacing(6)
        row.addWidget(self.search, 1)
        row.addWidget(self.marked)
        row.addWidget(self.copy)
        below = QHBoxLayout()
        below.addWidget(self.counted, 1)
        below.addWidget(self.numbers)
        side = QWidget()
        column = QVBoxLayout(side)
        column.setContentsMargins(0, 8, 0, 0)
        column.setSpacing(4)
        column.addLayout(row)
        column.addWidget(self.table, 1)
        column.addLayout(below)
        return side

    def _numbers(self) -> QWidget:
        self.histogram = HistogramView()
        self.histogram.other_wanted.connect(self._other)
        self.why_not = SmallText(self.tr("Choose a tensor in the table, and press Enter."))
        side = QWidget()
        column = QVBoxLayout(side)
        column.setContentsMargins(0, 8, 0, 0)
        column.setSpacing(4)
        column.addWidget(self.why_not)
        column.addWidget(self.histogram, 1)
        column.addStretch(0)
        self.histogram.hide()
        return side

    # ---------------------------------------------------------------- showing

    def refresh(self) -> None:
        """Reads the store: the shards at each frame of a load, the rest when it is another model's."""
        subject = self.store.subject
        if subject.state == "loading":
            self._show_loading(subject)
            return
        found = self._table_of(subject)
        if isinstance(found, WeightsTable):
            self.subject_bar.show_subject(subject, path=found.path)
            self.say("")
            if found is not self._shown:
                self._show(found)
            self._show_numbers()
            return
        self.say_why_not(subject, found)

    def _table_of(self, subject: Subject) -> object | None:
        if subject.state == "none":
            return None
        if subject.state == "loaded" and subject.model in self.store.inside.tables:
            return self.store.inside.tables[subject.model]
        return self.answer_to(WeightsQuestion(subject.model))

    def _show_loading(self, subject: Subject) -> None:
        self._shown = None
        inside, progress = self.store.inside, self.store.load_progress
        assert inside.loading is not None
        self.subject_bar.show_subject(subject, inside.loading.name, inside.loading.path)
        self.say("")
        self._enable_tensors(False)
        shards = sorted(inside.shards.values(), key=lambda shard: shard.place)
        text = self.tr("The files are opened…")
        if progress is not None and progress.total_bytes:
            text = self.tr("{done} of {total} read").format(
                done=bytes_text(progress.done_bytes), total=bytes_text(progress.total_bytes)
            )
        self.kind.setText(text)
        self.notes.hide()
        self.shards.set_shards(shards, live=True)

    def _show(self, table: WeightsTable) -> None:
        self._shown, self._question = table, None
        self._enable_tensors(True)
        self.kind.setText(self._about(table))
        self.shards.set_shards(table.shards, live=False)
        self.notes.setText("\n".join(table.notes))
        self.notes.setVisible(bool(table.notes))
        self.table.tensors.set_rows(table.tensors)
        self._search()
        count = self.tr("1 tensor") if len(table.tensors) == 1 else self.tr("{count} tensors")
        self.tabs.setTabText(TENSORS, count.format(count=count_text(len(table.tensors))))
        self.histogram.hide()
        self._say_why(self.tr("Choose a tensor in the table, and press Enter."))

    def _enable_tensors(self, on: bool) -> None:
        for at in (TENSORS, NUMBERS):
            self.tabs.setTabEnabled(at, on)

    def _about(self, table: WeightsTable) -> str:
        """What kind of files these are and why it matters; how fast they were read."""
        why = {
            "safetensors": self.tr("safetensors: names and numbers only. Nothing in such a file can run."),
            "pickle": self.tr(
                "pickle: such a file can run programs when it is read. It is read with weights_only, which lets "
                "nothing but numbers through; a safetensors version of the model is the safer choice."
            ),
            "gguf": self.tr("GGUF: names, numbers and the tokenizer in one file. Nothing in such a file can run."),
        }
        total = sum(shard.total_bytes for shard in table.shards)
        spent = sum(shard.elapsed_ms for shard in table.shards)
        size = self.tr("{size} in {count} files").format(size=bytes_text(total), count=count_text(len(table.shards)))
        if len(table.shards) == 1:
            size = self.tr("{size} in one file").format(size=bytes_text(total))
        if spent > 0:
            size += self.tr(", read in {time}, measured").format(time=duration_text(spent))
        return f"{why.get(table.kind, table.kind)}\n{size}."

    @Slot()
    def _search(self) -> None:
        self.table.tensors.search(self.search.text(), self.marked.isChecked())
        if self._shown is None:
            return
        model, counts = self.table.tensors, {}
        for row in self._shown.tensors:
            if row.mark:
                counts[row.mark] = counts.get(row.mark, 0) + 1
        words = [f"{count_text(n)} {model.mark_word(mark)}" for mark, n in counts.items()]
        text = ", ".join(words) if words else self.tr("nothing missing, nothing unexpected")
        if not self._shown.loaded:
            text += self.tr(" · by the files' headers, not loaded yet")
        if len(model.rows) != len(self._shown.tensors):
            text = self.tr("{count} shown · ").format(count=count_text(len(model.rows))) + text
        self.counted.setText(text)

    # ---------------------------------------------------------------- numbers

    @Slot()
    def ask_numbers(self) -> None:
        """Asks for the numbers of the chosen tensor, else of the first."""
        if self.table.current_row() is None:
            self.table.selectRow(0)
        if (row := self.table.current_row()) is not None:
            self._ask(row)

    @Slot(object)
    def _other(self, step: int) -> None:
        """The next or the previous tensor of the table."""
        at = self.table.currentIndex().row() + step
        if 0 <= at < len(self.table.tensors.rows):
            self.table.selectRow(at)
            self.ask_numbers()

    @Slot(object)
    def _ask(self, row: TensorRow) -> None:
        assert self._shown is not None
        self.tabs.setCurrentIndex(NUMBERS)
        if row.mark == "missing":
            self._question = None
            self.histogram.hide()
            text = self.tr("{name}: no file holds this tensor, so it has no numbers.")
            self._say_why(text.format(name=row.name))
            return
        name = row.note if row.mark == "tied" and not row.file else row.name
        self._question = HistogramQuestion(self._shown.path, name)
        self._show_numbers()

    def _show_numbers(self) -> None:
        question = self._question
        if question is None:
            return
        found = self.answer_to(question)
        if isinstance(found, Histogram):
            if self.histogram._shown is not found or self.histogram.isHidden():
                self.histogram.show_histogram(found)
                self.histogram.show()
            self._say_why("")
        elif isinstance(found, EngineError):
            self.histogram.hide()
            self._say_why(sentence_of(found))
        elif self.store.activity in BUSY:
            self._say_why(self.tr("The engine is at work: the numbers are counted once it is free."))
        else:
            self._say_why(self.tr("counting…"))

    def _say_why(self, text: str) -> None:
        self.why_not.setText(text)
        self.why_not.setVisible(bool(text))


class ShardBars(QWidget):
    """A row for each file in the order of reading: its name, bytes, speed, and how much of it was read."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._shards: tuple[ShardRead, ...] = ()
        self._live = False
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(self.tr("Weight files in the order of reading"))
        self.setToolTip(
            self.tr("Speed: the file's bytes over the loader's time for its tensors, measured; placing is in it.")
        )
        theme.changes.changed.connect(self._restyle)

    @Slot()
    def _restyle(self) -> None:
        self.updateGeometry()
        self.update()

    def set_shards(self, shards: Sequence[ShardRead], live: bool) -> None:
        """live: a load goes on."""
        if tuple(shards) == self._shards and live == self._live:
            return
        grown = len(shards) != len(self._shards)
        self._shards, self._live = tuple(shards), live
        self.setAccessibleDescription("\n".join(f"{shard.file}: {self.figures(shard)}" for shard in shards))
        if grown:
            self.updateGeometry()
        self.update()

    def figures(self, shard: ShardRead) -> str:
        """Bytes and speed as shown."""
        size = bytes_text(shard.total_bytes)
        if self._live and shard.done_bytes < shard.total_bytes:
            size = self.tr("{done} of {total}").format(done=bytes_text(shard.done_bytes), total=size)
        speed = shard.bytes_per_s
        return size if speed is None else f"{size} · {self.tr('{size} / s').format(size=bytes_text(speed))}"

    def _line(self) -> float:
        return QFontMetricsF(theme.font(-1)).height() + 2.0

    def sizeHint(self) -> QSize:
        return QSize(theme.base_px() * 16, round(len(self._shards) * (self._line() + BAR + 6.0)))

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.base_px() * 12, self.sizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        look, width = theme.current(), float(self.width())
        with QPainter(self) as painter:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setFont(theme.font(-1))
            metrics, line = QFontMetricsF(painter.font()), self._line()
            for at, shard in enumerate(self._shards):
                y = at * (line + BAR + 6.0)
                if y + line + BAR < event.rect().top() or y > event.rect().bottom():
                    continue
                figures = self.figures(shard)
                right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
                painter.setPen(look.muted)
                painter.drawText(QRectF(0, y, width, line), right, figures)
                room = width - metrics.horizontalAdvance(figures) - 10.0
                painter.setPen(look.ink)
                shown = metrics.elidedText(short_name(shard.file), Qt.TextElideMode.ElideMiddle, room)
                painter.drawText(QRectF(0, y, room, line), Qt.AlignmentFlag.AlignVCenter, shown)
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(look.track)
                painter.drawRoundedRect(QRectF(0, y + line, width, BAR), BAR / 2, BAR / 2)
                share = min(1.0, shard.done_bytes / shard.total_bytes) if shard.total_bytes else 0.0
                if share > 0:
                    painter.setBrush(look.accent if self._live and share < 1.0 else look.weights)
                    painter.drawRoundedRect(QRectF(0, y + line, max(2.0, width * share), BAR), BAR / 2, BAR / 2)


def short_name(file: str) -> str:
    """A weight file's name without the ending that all of them share: the number of a shard must find room."""
    return file.removesuffix(".safetensors")
