"""The placement box: the memory ledger with its measured side, where each layer lies and what offload costs, and what
other GPUs would hold."""

from __future__ import annotations

from PySide6.QtCore import Qt, Slot
from PySide6.QtWidgets import (
    QGridLayout,
    QProgressBar,
    QPushButton,
    QScrollArea,
    QTabWidget,
    QVBoxLayout,
    QWidget,
)

from engine.events import (
    EngineError,
    Estimate,
    LedgerPart,
    MemoryReading,
    OffloadPrice,
    OffloadRow,
    PlannedDevice,
    SessionFacts,
)
from engine.settings import EstimateQuestion, OffloadQuestion, StopAsking
from widgets.banner import sentence_of
from widgets.boxes.page import Page
from widgets.format import bytes_text, count_text, duration_text
from widgets.ledger_panel import LedgerPanel
from widgets.ledger_view import LedgerView
from widgets.model_chip import device_words
from widgets.panel import scrolling
from widgets.plan_picture import PlanPicture
from widgets.planner_view import PlannerView
from widgets.run_store import BUSY, RunStore
from widgets.small import SmallLabel, SmallText


class PlacementPage(Page):
    """Three tabs about one model: memory, layers, other GPUs."""

    stage = "placement"

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(store, parent)
        self._shown: tuple = ()
        self.ledger = LedgerPanel()
        self.left_over = SmallText()
        self.gpus = GpuLedgers()
        self.picture = PlanPicture()
        self.where = SmallText()
        self.price = PriceView()
        self.planner = PlannerView(store)
        self.tabs = QTabWidget()
        self.tabs.setDocumentMode(True)
        self.tabs.tabBar().setDrawBase(False)
        self.tabs.setAccessibleName(self.tr("Memory and placement"))
        for name, parts in (
            (self.tr("memory"), (self.ledger, self.left_over, self.gpus)),
            (self.tr("layers"), (self.where, self.picture, self.price)),
            (self.tr("other GPUs"), (self.planner,)),
        ):
            self.tabs.addTab(_page(name, *parts), name)
        self.column.addWidget(self.tabs)
        self.planner.asked.connect(self.asked)
        self.price.measure.clicked.connect(self.measure)
        self.price.stop.clicked.connect(self.stop_measuring)
        self._question: OffloadQuestion | None = None

    def refresh(self) -> None:
        """Reads the store; does nothing while no figure on show has changed."""
        subject = self.store.subject
        facts = self.store.loading_facts if subject.state in ("loaded", "recorded") else None
        if facts is not None:
            self.subject_bar.show_subject(subject, facts.name, facts.model_path)
            self._show_loaded(facts, subject.state == "loaded")
        elif subject.state == "none":
            self.subject_bar.show_subject(subject)
            self.say_nothing()
        elif subject.state == "loading":
            self.subject_bar.show_subject(subject)
            self.say_waiting()
        else:
            self.subject_bar.show_subject(subject)
            found = self.answer_to(EstimateQuestion(subject.model, subject.precision))
            if isinstance(found, Estimate):
                self.subject_bar.show_subject(subject, found.model)
                self._show_chosen(subject.model, subject.precision, found)
            elif isinstance(found, EngineError):
                self.say_error(found)
            else:
                self.say_waiting()

    # ---------------------------------------------------------------- memory and layers

    def _show_chosen(self, model: str, precision: str | None, estimate: Estimate) -> None:
        self.say("")
        if self._shown == (model, precision, estimate):
            return
        self._shown = (model, precision, estimate)
        self.ledger.show_estimate(estimate)
        self.left_over.hide()
        self.gpus.show_parts(())
        self.picture.show_plan(None)
        self.where.setText(self.tr("Nothing is loaded: once it is, the device of each layer stands here, measured."))
        self.price.hide()
        self.planner.set_model(model, estimate.model, precision)

    def _show_loaded(self, facts: SessionFacts, live: bool) -> None:
        self.say("")
        reading = self.store.readings[-1] if live and self.store.readings else None
        kv_bytes = self._cache_now() if live else None
        measuring = self._question in self.store.inside.pending if self._question is not None else False
        price = self.store.inside.answers.get(self._question) if self._question is not None else None
        # Twice a second at most: the cache grows with each token, but the process is read only so often.
        state = (facts, reading, self.store.activity, measuring, price)
        if state == self._shown:
            return
        self._shown = state
        self.ledger.show_loaded(facts, reading, kv_bytes)
        last = facts.process_ledger(reading, kv_bytes)[-1]
        self.left_over.setText(self.tr("Not explained: {why}").format(why=last.note))
        self.left_over.setVisible(last.name == "unexplained")
        self._show_gpus(facts, reading, kv_bytes)
        self._show_layers(facts, kv_bytes)
        self.price.setVisible(live)
        self.price.show_state(measuring, self.store.activity in BUSY, price)
        self.planner.set_model(facts.model_path, facts.name, None)

    def _cache_now(self) -> int | None:
        """Bytes that the caches of the lanes which run now take together; None where none runs."""
        running = [run.tokens[-1].kv_allocated_bytes for run in self.store.runs if run.running and run.tokens]
        return sum(running) if running else None

    def _show_gpus(self, facts: SessionFacts, reading: MemoryReading | None, kv_bytes: int | None) -> None:
        used = [device for device in facts.devices if device.startswith("cuda:")]
        tables = []
        for index in range(len(reading.gpus)) if reading is not None else ():
            if f"cuda:{index}" in used and reading is not None:
                tables.append((index, facts.gpu_ledger(reading, index, kv_bytes if len(used) == 1 else None)))
        self.gpus.show_parts(tables)

    def _show_layers(self, facts: SessionFacts, kv_bytes: int | None) -> None:
        main = next((device for device in facts.devices if device not in ("cpu", "disk")), "cpu")
        # Without the devices' own memory, beside which a small model could not be seen; the ledger has the limits.
        devices = [
            PlannedDevice(device, 0, facts.on_device(device), (kv_bytes or 0) if device == main else 0, 0)
            for device in facts.devices
        ]
        self.picture.show_places(devices if facts.places else (), facts.places, main)
        words = self.tr("Measured: where the weights lie. Placement: {device_map}.").format(device_map=facts.device_map)
        self.where.setText(words if facts.places else self.tr("This recording does not tell where the layers lay."))

    # ---------------------------------------------------------------- the price of offload

    @Slot()
    def measure(self) -> None:
        number = self._question.number + 1 if self._question is not None else 0
        self._question = OffloadQuestion(number=number)
        self.store.inside.pending.add(self._question)
        self.asked.emit(self._question)
        self._shown = ()
        self.refresh()

    @Slot()
    def stop_measuring(self) -> None:
        self.asked.emit(StopAsking())


class GpuLedgers(QWidget):
    """A small measured table for each GPU that holds a part of the model."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(4)
        self.tables: dict[int, LedgerView] = {}
        self.hide()

    def show_parts(self, tables: list[tuple[int, tuple[LedgerPart, ...]]] | tuple[()]) -> None:
        self.setVisible(bool(tables))
        for index, parts in tables:
            if index not in self.tables:
                self._column.addWidget(SmallLabel(device_words(f"cuda:{index}"), "title"))
                self.tables[index] = LedgerView()
                self._column.addWidget(self.tables[index])
            total = sum(part.measured_bytes or 0 for part in parts)
            self.tables[index].set_parts(parts, [(self.tr("this GPU"), None, total)])


class PriceView(QWidget):
    """What offload costs per token on this machine: a button, and the table once it was measured."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.about = SmallText(
            self.tr(
                "The price of offload: this model is loaded again, with none, a quarter and half of its layers on the "
                "CPU or on disk, and a few tokens are timed with each. The loaded model stays."
            )
        )
        self.measure = QPushButton(self.tr("Measure what offload costs"))
        self.stop = QPushButton(self.tr("Cancel"))
        self.busy = QProgressBar()
        self.busy.setRange(0, 0)
        self.busy.setTextVisible(False)
        self.busy.setAccessibleName(self.tr("Measuring"))
        self.words = SmallText()
        self._holder = QWidget()
        self._grid = QGridLayout(self._holder)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(10)
        self._grid.setVerticalSpacing(3)
        self._grid.setColumnStretch(0, 1)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 8, 0, 0)
        column.setSpacing(6)
        for part in (self.about, self.measure, self.busy, self.stop, self._holder, self.words):
            column.addWidget(part)
        self._price: object = None
        self.show_state(False, False, None)

    def show_state(self, measuring: bool, occupied: bool, price: object) -> None:
        """occupied: a load or run goes on. price: OffloadPrice, EngineError or None."""
        self.measure.setVisible(not measuring)
        self.measure.setEnabled(not occupied)
        self.measure.setToolTip(
            self.tr("The engine is at work: wait for its end, or stop it.")
            if occupied
            else self.tr("A few seconds for a small model; a large one is loaded three times")
        )
        self.stop.setVisible(measuring)
        self.busy.setVisible(measuring)
        if price is self._price and price is not None:
            return
        self._price = price
        while self._grid.count():
            item = self._grid.takeAt(0)
            if item is not None and (widget := item.widget()) is not None:
                widget.deleteLater()
        self._holder.setVisible(isinstance(price, OffloadPrice))
        words = ""
        if isinstance(price, OffloadPrice):
            self._fill(price)
            words = "\n".join((*self._per_gb(price), *price.notes))
        elif isinstance(price, EngineError):
            words = sentence_of(price)
        self.words.setText(words)
        self.words.setVisible(bool(words))

    def rows(self) -> list[tuple[str, ...]]:
        """The table as shown, without its head."""
        found = []
        for row in range(1, self._grid.rowCount()):
            cells = [self._grid.itemAtPosition(row, column) for column in range(3)]
            labels = [cell.widget() for cell in cells if cell is not None]
            if len(labels) == 3:
                found.append(tuple(label.text() for label in labels if isinstance(label, SmallLabel)))
        return found

    def _fill(self, price: OffloadPrice) -> None:
        right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        head = (self.tr("measured"), self.tr("moved"), self.tr("per token"))
        lines = [head, *(self._line(price, row) for row in price.rows)]
        for at, line in enumerate(lines):
            for column, text in enumerate(line):
                label = SmallLabel(text, "muted" if at == 0 else ("value" if column == 2 else ""))
                if column:
                    label.setAlignment(right)
                self._grid.addWidget(label, at, column)

    def _line(self, price: OffloadPrice, row: OffloadRow) -> tuple[str, str, str]:
        if not row.place:
            name = self.tr("all on {device}").format(device=device_words(price.device))
        else:
            words = self.tr("1 layer on {place}") if row.layers == 1 else self.tr("{count} layers on {place}")
            name = words.format(count=count_text(row.layers), place=device_words(row.place))
        moved = bytes_text(row.moved_bytes) if row.moved_bytes else ""
        return name, moved, duration_text(row.step_ms)

    def _per_gb(self, price: OffloadPrice) -> list[str]:
        words = []
        for place in dict.fromkeys(row.place for row in price.rows if row.place):
            per_gb = price.ms_per_gb(place)
            if per_gb is not None:
                words.append(
                    self.tr("Each GB on {place} costs {time} more per token, measured between the two.").format(
                        place=device_words(place), time=duration_text(per_gb)
                    )
                )
            else:
                words.append(
                    self.tr("Between a quarter and a half on {place} no difference could be measured.").format(
                        place=device_words(place)
                    )
                )
        return words


def _page(name: str, *parts: QWidget) -> QScrollArea:
    inside = QWidget()
    inside.setProperty("plain", True)
    column = QVBoxLayout(inside)
    column.setContentsMargins(0, 8, 8, 0)
    column.setSpacing(10)
    for part in parts:
        column.addWidget(part)
    column.addStretch(1)
    return scrolling(inside, name)
