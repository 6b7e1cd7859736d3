"""What if: accelerate's plan for GPUs that need not be there, from a model's blueprint alone."""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer, Signal, Slot
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import (
    QCheckBox,
    QDialog,
    QDialogButtonBox,
    QHBoxLayout,
    QLineEdit,
    QVBoxLayout,
    QWidget,
)

from engine.errors import SettingsRefused
from engine.events import EngineError, Plan
from engine.settings import MAX_LANES, PRECISIONS, PlanWish, Range, gpus_named
from widgets import theme
from widgets.banner import translated
from widgets.choice import Choice
from widgets.fields import NumberField
from widgets.format import bytes_text
from widgets.panel import ElidedLabel, scrolling
from widgets.plan_picture import PlanPicture
from widgets.run_store import BUSY, RunStore
from widgets.small import SmallText

ASK_AFTER_MS = 150
# Memory as the cards' driver reports it, in MiB: a little less than their names say.
CARDS = (
    ("Tesla T4", 15360),
    ("RTX 4080", 16376),
    ("L4", 23034),
    ("RTX 3090", 24576),
    ("RTX 4090", 24564),
    ("RTX 5090", 32607),
    ("A100 40 GB", 40960),
    ("L40S", 46068),
    ("H100 80 GB", 81559),
    ("A100 80 GB", 81920),
    ("H200", 143771),
)
COUNTS = (1, 2, 4, 8)
FIRST_GPUS = "2x24"
HERE = -1  # in place of a card's bytes
MAPS = ("auto", "balanced", "balanced_low_0", "sequential")


class PlannerView(QWidget):
    """Inputs above, the picture below. Asks at each change, and shows the newest answer."""

    asked = Signal(object)  # PlanWish

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.store = store
        self._model = ""
        self._wish: PlanWish | None = None
        self._shown: object = None
        self._gpus: tuple[int, ...] = ()
        self._build()
        self._take_machine()
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(ASK_AFTER_MS)
        self._timer.timeout.connect(self.ask)
        store.frame.connect(self.refresh)
        self._show_words()

    def _build(self) -> None:
        self.gpus = QLineEdit()
        self.gpus.setAccessibleName(self.tr("GPUs"))
        self.gpus.setToolTip(self.tr("Count x memory in GB: 2x24, or 1x80, 2x24GiB. They need not be there."))
        self.problem = SmallText("", "warning")
        self.problem.hide()
        self.count = Choice(self.tr("How many cards"))
        for count in COUNTS:
            self.count.addItem(f"{count} ×", count)
        self.count.setMinimumContentsLength(3)
        self.card = Choice(self.tr("A card"))
        self.card.addItem(self.tr("choose a card…"), 0)
        self.card.addItem(self.tr("this machine, as it is now"), HERE)
        for name, mib in CARDS:
            self.card.addItem(f"{name} · {bytes_text(mib * 2**20)}", mib * 2**20)
        self.cpu = NumberField(Range(0.0, 100_000.0, 0.0), 0.0, step=8)
        self.cpu.setAccessibleName(self.tr("CPU memory in GB"))
        self.context = NumberField(Range(1, 2**40, 0, integer=True), 8192, step=1024)
        self.context.setAccessibleName(self.tr("Context"))
        self.lanes = NumberField(Range(1, MAX_LANES, 0, integer=True), 1)
        self.lanes.setAccessibleName(self.tr("Lanes"))
        self.precision = Choice(self.tr("Precision"))
        self.precision.addItem(self.tr("as in the files"), None)
        for name in PRECISIONS:
            self.precision.addItem(name, name)
        self.device_map = Choice(self.tr("Placement"))
        for name in MAPS:
            self.device_map.addItem(name, name)
        self.device_map.setToolTip(self.tr("The device map: which part of the model lies on which device."))
        self.room = QCheckBox(self.tr("leave room for the text"))
        self.room.setChecked(True)
        self.room.setToolTip(
            self.tr(
                "accelerate plans weights only. With this, each GPU's share of the KV cache and the working space are "
                "taken off its memory before; without, the plan is accelerate's own for the whole memory."
            )
        )
        self.title = ElidedLabel("", "value")
        self.verdict = SmallText()
        self.picture = PlanPicture()
        self.notes = SmallText()
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(6)
        inputs = QWidget()
        inputs.setMaximumWidth(theme.base_px() * 34)
        column = QVBoxLayout(inputs)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(6)
        outer.addWidget(self.title)
        outer.addWidget(inputs)
        column.addLayout(_row(self.tr("GPUs"), self.gpus))
        column.addWidget(self.problem)
        cards = QHBoxLayout()
        cards.setSpacing(6)
        cards.addWidget(self.count, 1)
        cards.addWidget(self.card, 3)
        column.addLayout(cards)
        column.addLayout(_row(self.tr("CPU (GB)"), self.cpu))
        column.addWidget(self.cpu.problem_label)
        column.addLayout(_row(self.tr("Precision"), self.precision))
        column.addLayout(_row(self.tr("Placement"), self.device_map))
        column.addLayout(_row(self.tr("Context"), self.context))
        column.addWidget(self.context.problem_label)
        column.addLayout(_row(self.tr("Lanes"), self.lanes))
        column.addWidget(self.lanes.problem_label)
        column.addWidget(self.room)
        outer.addSpacing(6)
        outer.addWidget(self.verdict)
        outer.addWidget(self.picture)
        outer.addWidget(self.notes)
        self.gpus.textEdited.connect(self._gpus_edited)
        self.card.activated.connect(self._card_chosen)
        self.count.activated.connect(self._card_chosen)
        for choice in (self.precision, self.device_map):
            choice.activated.connect(self._changed)
        for field in (self.cpu, self.context, self.lanes):
            field.value_changed.connect(self._changed)
        self.room.toggled.connect(self._changed)

    # ---------------------------------------------------------------- what is asked

    def set_model(self, model: str, name: str, precision: str | None = None) -> None:
        """model: as LoadPlan takes it; name: as shown."""
        if model != self._model:
            self._model, self._shown, self._wish = (
                model,
                None,
                None,
            )  # another model's picture must not stand under this name
            self.precision.choose(precision)
            self.title.setText(name)
            self.picture.show_plan(None)
            self.notes.setText("")
            self._changed()

    def set_context(self, context: int, lanes: int) -> None:
        self.context.set_value(context)
        self.lanes.set_value(lanes)
        self._changed()

    def wish(self) -> PlanWish | None:
        """What is asked, None where it cannot be."""
        if not self._model or self.problem.text():
            return None
        devices = None
        if self.card.currentData() != HERE:
            gpus = ((f"cuda:{at}", size) for at, size in enumerate(self._gpus))
            devices = (*gpus, ("cpu", round(float(self.cpu.value()) * 1e9)))
        return PlanWish(
            self._model,
            self.precision.currentData(),
            int(self.context.value()),
            int(self.lanes.value()),
            self.device_map.currentData(),
            devices,
            self.room.isChecked(),
        )

    @Slot()
    def _gpus_edited(self) -> None:
        try:
            self._gpus = gpus_named(self.gpus.text())
            problem = ""
        except SettingsRefused as error:
            problem = f"{translated(error.what_template, tuple(error.fields.items())) or error.what} {error.fix}"
        self.problem.setText(problem)
        self.problem.setVisible(bool(problem))
        self.gpus.setProperty("invalid", bool(problem))
        self.gpus.style().unpolish(self.gpus)
        self.gpus.style().polish(self.gpus)
        self.card.setCurrentIndex(0)
        if problem:  # the plan that stands here is another machine's
            self._shown = None
            self.picture.show_plan(None)
            self.notes.setText("")
        self._changed()

    @Slot()
    def _card_chosen(self) -> None:
        size, at = self.card.currentData(), self.card.currentIndex()
        here = size == HERE
        for field in (self.gpus, self.count, self.cpu):
            field.setEnabled(not here)
        if size and not here:
            self.gpus.setText(f"{self.count.currentData()}x{size // 2**20}MiB")
            self._gpus_edited()
            self.card.setCurrentIndex(at)
        else:
            self._changed()

    def _take_machine(self) -> None:
        """The machine as it was described last, in this planner or another."""
        text, cpu = self.store.described_machine
        try:
            self._gpus = gpus_named(text)
        except SettingsRefused:  # a remembered text that a hand broke
            text = FIRST_GPUS
            self._gpus = gpus_named(text)
        self.gpus.setText(text)
        self.cpu.set_value(cpu)

    @Slot()
    def _changed(self) -> None:
        if not self.problem.text():
            self.store.described_machine = (self.gpus.text(), float(self.cpu.value()))
        self._show_words()
        self._timer.start()

    @Slot()
    def ask(self) -> None:
        """Asks the engine for what is described, unless it is known."""
        self._wish = self.wish()
        inside = self.store.inside
        if self._wish is not None and self.isVisible():
            known = self._wish in inside.answers or self._wish in inside.pending
            if not known and self.store.activity not in BUSY:
                inside.pending.add(self._wish)
                self.asked.emit(self._wish)
        self.refresh()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if not self.problem.text():
            self._take_machine()
        self._timer.start()

    # ---------------------------------------------------------------- what is shown

    @Slot()
    def refresh(self) -> None:
        """Shows the newest answer; the one before stays until it is there."""
        if not self.isVisible():
            return
        asked = self._wish if not self.problem.text() else None
        answer = self.store.inside.answers.get(asked) if asked is not None else None
        if answer is None:
            waits = self._wish is None or self._wish in self.store.inside.pending or self._timer.isActive()
            if not waits and self.store.activity not in BUSY:
                self._timer.start()  # it was broken off by a load or a run that has ended
            self._show_words()
        elif answer is not self._shown:
            self._shown = answer
            self._show_answer(answer)

    def _show_answer(self, answer: object) -> None:
        if isinstance(answer, Plan):
            self.picture.show_plan(answer)
            self.title.setText(self.tr("{model} in {precision}").format(model=answer.model, precision=answer.precision))
            self._say(*self._verdict(answer))
            self.notes.setText("\n".join(answer.notes))
        elif isinstance(answer, EngineError):
            self.picture.show_plan(None)
            what = translated(answer.what_template, answer.fields) or answer.what
            self._say(f"{what} {translated(answer.fix_template, answer.fields) or answer.fix}", True)
            self.notes.setText("")

    def _verdict(self, plan: Plan) -> tuple[str, bool]:
        if plan.fits:
            return self.tr("Fits, predicted: everything lies where it is computed."), False
        words = []
        for device, name in (("cpu", self.tr("the CPU")), ("disk", self.tr("disk"))):
            size = plan.spilled_bytes(device) if device != plan.main_device else 0
            if size:
                words.append(self.tr("{size} on {device}").format(size=bytes_text(size), device=name))
        if not words:
            return self.tr("Does not fit, predicted: a device has no room for the text."), True
        text = self.tr("Does not fit on the GPUs, predicted: {spilled}.")
        if plan.main_device == "cpu":
            text = self.tr("Does not fit, predicted: {spilled}.")
        return text.format(spilled=", ".join(words)), True

    def _show_words(self) -> None:
        """What stands here while there is no answer."""
        if not self._model:
            self._say(self.tr("Choose a model: its config.json is enough. The plan for other GPUs stands here then."))
        elif self.store.activity in BUSY:
            self._say(self.tr("The engine is at work; the plan is made as soon as it is free."))
        elif self.problem.text():
            self._say("")
        elif self._shown is None:
            self._say(self.tr("planning…"))

    def _say(self, text: str, warning: bool = False) -> None:
        self.verdict.setText(text)
        role = "warning" if warning else "muted"
        if self.verdict.property("role") != role:
            self.verdict.setProperty("role", role)
            self.verdict.style().unpolish(self.verdict)
            self.verdict.style().polish(self.verdict)


def _row(name: str, field: QWidget) -> QHBoxLayout:
    row = QHBoxLayout()
    row.setSpacing(6)
    row.addWidget(ElidedLabel(name), 2)
    row.addWidget(field, 3)
    return row


class PlannerDialog(QDialog):
    """The planner in a window of its own, wide enough for many devices."""

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(self.tr("What fits on other GPUs"))
        self.planner = PlannerView(store)
        inside = QWidget()
        inside.setProperty("plain", True)
        column = QVBoxLayout(inside)
        column.setContentsMargins(0, 0, 8, 0)
        column.addWidget(self.planner)
        column.addStretch(1)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close)
        buttons.rejected.connect(self.reject)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 16, 16, 16)
        column.setSpacing(10)
        column.addWidget(scrolling(inside, self.tr("Plan")), 1)
        column.addWidget(buttons)
        self.resize(theme.base_px() * 50, theme.base_px() * 52)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
