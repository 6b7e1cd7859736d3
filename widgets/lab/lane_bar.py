"""The bar above the lanes: the prompt they share, the buttons that run, how they go, and what they will need."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt, Signal, Slot
from PySide6.QtWidgets import QHBoxLayout, QToolButton, QWidget

from engine.events import SessionFacts
from engine.settings import Range
from widgets import theme
from widgets.choice import Choice
from widgets.fields import NumberField
from widgets.format import bytes_text, count_text, number_text
from widgets.lab.lane_set import MOST, MOST_NEW_TOKENS, LaneSet
from widgets.lab.parting import LaneWatch
from widgets.panel import ElidedLabel, Panel
from widgets.prompt_edit import PromptEdit
from widgets.run_controls import RunControls
from widgets.run_store import RunStore
from widgets.small import SmallText
from widgets.status_line import pace


class LaneBar(Panel):
    """Shows a LaneSet's common part. Signals go to the page."""

    prompt_written = Signal(object)  # str
    lockstep_chosen = Signal(bool)

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__("", parent)
        self.set_title(self.tr("Lanes"))
        self.store = store
        self.lanes: LaneSet | None = None
        self._left_out = 0
        self._read: tuple[object, object] = (None, None)  # facts and reading that the words were written from
        self._watches: Sequence[LaneWatch | None] = ()
        self.prompt_tokens: int | None = None  # of the shared prompt, once it was read
        self.prompt_edit = PromptEdit()
        self.prompt_edit.setAccessibleName(self.tr("Prompt of all lanes"))
        self.prompt_edit.setToolTip(self.tr("What all lanes are asked, but those with a prompt of their own"))
        self.prompt_edit.setPlaceholderText(self.tr("What all lanes are asked"))
        self.prompt_edit.written_changed.connect(self._written)
        self.controls = RunControls(store)
        self.controls.run_button.setText(self.tr("Run lanes"))
        self.controls.setFixedWidth(theme.base_px() * 23)
        row = QHBoxLayout()
        row.setSpacing(theme.GAP)
        row.addWidget(self.prompt_edit, 1)
        row.addWidget(self.controls)
        self.body.addLayout(row)
        self.lockstep = Choice(self.tr("How the lanes go"))
        self.lockstep.addItem(self.tr("in lockstep, as one batch"), True)
        self.lockstep.addItem(self.tr("each lane alone"), False)
        self.lockstep.setMinimumWidth(theme.base_px() * 14)
        self.lockstep.currentIndexChanged.connect(self._chosen)
        self.limit_field = NumberField(Range(1, MOST_NEW_TOKENS, 256, integer=True), 256, step=16)
        self.limit_field.setAccessibleName(self.tr("Most new tokens"))
        self.limit_field.setFixedWidth(theme.base_px() * 5)
        self.limit_label = ElidedLabel(self.tr("most new tokens"), "muted")
        tip = self.tr("max new tokens: a lane ends after this many, where nothing ends it before.")
        self.limit_field.setToolTip(tip)
        self.limit_label.setToolTip(tip)
        self.need_label = SmallText()
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self.lockstep)
        row.addSpacing(4)
        row.addWidget(self.limit_label)
        row.addWidget(self.limit_field)
        row.addSpacing(4)
        row.addWidget(self.need_label, 1)
        self.body.addLayout(row)
        self.body.addWidget(self.limit_field.problem_label)
        self.note_label = SmallText()
        self.body.addWidget(self.note_label)
        self.lane_button = self._head_button(
            self.tr("Lane"), "plus", self.tr("One more lane, with the last one's settings (Ctrl+Shift+N)")
        )
        self.vary_button = self._head_button(
            self.tr("Vary…"), "", self.tr("Fill the lanes with one setting in several values (Ctrl+Shift+V)")
        )
        self.undo_button = self._head_button(
            self.tr("Undo"), "", self.tr("Take the last change of lanes back (Ctrl+Z)")
        )
        self.redo_button = self._head_button(self.tr("Redo"), "", self.tr("Do it again (Ctrl+Shift+Z)"))
        theme.changes.changed.connect(self._size)
        self._size()

    def _head_button(self, text: str, icon: str, tooltip: str) -> QToolButton:
        button = self.add_button(text, "", tooltip)
        if icon:
            theme.set_icon(button, icon)
            button.setIconSize(QSize(14, 14))
            button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        return button

    @Slot()
    def _size(self) -> None:
        self.prompt_edit.setFixedHeight(self.controls.sizeHint().height())

    # ---------------------------------------------------------------- what it shows

    def show_lanes(self, lanes: LaneSet, left_out: int) -> None:
        self.lanes, self._left_out = lanes, left_out
        self.lockstep.blockSignals(True)
        self.lockstep.choose(lanes.lockstep)
        self.lockstep.blockSignals(False)
        self.lockstep.setToolTip(
            self.tr(
                "In lockstep: one forward pass writes a token of every lane. Fast.\n"
                "Each lane alone: computed one by one; slower, and in 16 bits, too, exactly as a run alone."
            )
        )
        if self.limit_field.value() != lanes.max_new_tokens:
            self.limit_field.set_value(lanes.max_new_tokens)
        self.lane_button.setEnabled(not lanes.full)
        if lanes.full:
            self.lane_button.setToolTip(self.tr("{most} lanes are the most that stand side by side").format(most=MOST))
        else:
            self.lane_button.setToolTip(self.tr("One more lane, with the last one's settings (Ctrl+Shift+N)"))
        self.write_words()

    def show_prompt(self, text: str, raw: bool) -> None:
        if self.prompt_edit.written() != text:
            self.prompt_edit.blockSignals(True)
            self.prompt_edit.write(text)
            self.prompt_edit.blockSignals(False)

    def set_prompt_tokens(self, tokens: int | None) -> None:
        """How long the shared prompt is, in tokens."""
        if tokens != self.prompt_tokens:
            self.prompt_tokens = tokens
            self.write_words()

    def refresh(self, watches: Sequence[LaneWatch | None]) -> None:
        """At the store's frames: another model, or less memory."""
        self._watches = watches
        if self._read != self._readable():
            self.write_words()

    def _readable(self) -> tuple[object, object]:
        return self.store.facts, self.store.readings[-1] if self.store.readings else None

    def write_words(self) -> None:
        """What the lanes share, what they need, and what is to be known of their arithmetic."""
        self._read = self._readable()
        if self.lanes is None:
            return
        self.set_remark(*self._remark())
        running = [watch.run for watch in self._watches if watch is not None]
        if running and any(run.running for run in running):
            rates = [rate for run in running if run.running and (rate := pace(run).tokens_per_s) is not None]
            held = sum(run.tokens[-1].kv_bytes for run in running if run.tokens)
            self._say(
                self.need_label,
                self.tr("together {rate} / s · KV cache {bytes} (measured)").format(
                    rate=number_text(sum(rates), 0), bytes=bytes_text(held)
                ),
                "muted",
            )
        else:
            words, fits = self.forecast()
            self._say(self.need_label, words, "muted" if fits else "warning")
        self._say(self.note_label, self._note(), "muted")

    def _remark(self) -> tuple[str, str, str]:
        assert self.lanes is not None
        lanes = self.lanes
        count = count_text(len(lanes.lanes))
        shared = (
            self.tr("prompts of their own")
            if all(lane.own is not None for lane in lanes.lanes)
            else self.tr("one prefill shared where prompts agree")
            if lanes.own_prompts
            else self.tr("one prefill shared by {count} lanes").format(count=count)
        )
        draws = self.tr("different draws") if lanes.seeds_differ else self.tr("the same draws")
        tip = self.tr("The prompt is read once for all lanes that share it. With one seed all draw the same numbers.")
        return f"{shared} · {draws}", tip, draws

    def _note(self) -> str:
        """What a person must know before trusting a difference (SAM-27); lanes that found no room."""
        assert self.lanes is not None
        said = []
        if self._left_out:
            said.append(
                self.tr("{count} more lanes of this replay are not shown: {most} stand side by side.").format(
                    count=count_text(self._left_out), most=MOST
                )
            )
        facts = self.store.facts
        if facts is not None and self.lanes.lockstep and facts.precision != "float32":
            said.append(
                self.tr(
                    "In {precision} a batch is rounded differently than a lane alone: the arithmetic, not the "
                    "setting, may part two equal lanes. Where that happens, it is said there."
                ).format(precision=facts.precision)
            )
        return " ".join(said)

    def forecast(self) -> tuple[str, bool]:
        """What the lanes' KV cache will take at the most, as a sentence, and whether that is free. Predicted."""
        facts, lanes = self.store.facts, self.lanes
        if facts is None or lanes is None:
            return self.tr("No model is loaded yet."), True
        tokens = (self.prompt_tokens or 0) + lanes.max_new_tokens
        if facts.context_tokens:
            tokens = min(tokens, facts.context_tokens)
        count = len(lanes.lanes)
        need = kv_need(facts, tokens, count)
        if need is None:
            return self.tr("KV cache: not predictable for this model."), True
        free = free_bytes(self.store)
        words = self.tr("KV cache: at most {bytes} for {count} lanes of {tokens} tokens (predicted)").format(
            bytes=bytes_text(need), count=count_text(count), tokens=count_text(tokens)
        )
        if free is not None and need > free:
            return (
                self.tr(
                    "{count} lanes of {tokens} tokens need {bytes} of KV cache, and {free} are free: fewer lanes or "
                    "fewer new tokens fit."
                ).format(
                    count=count_text(count), tokens=count_text(tokens), bytes=bytes_text(need), free=bytes_text(free)
                ),
                False,
            )
        return words, True

    @staticmethod
    def _say(label: SmallText, words: str, role: str) -> None:
        if label.property("role") != role:
            label.setProperty("role", role)
            label.style().polish(label)
        if label.text() != words:
            label.setText(words)
        label.setVisible(bool(words))

    # ---------------------------------------------------------------- hand

    @Slot()
    def _written(self) -> None:
        self.prompt_written.emit(self.prompt_edit.written())

    @Slot(int)
    def _chosen(self, _at: int) -> None:
        self.lockstep_chosen.emit(bool(self.lockstep.currentData()))


def kv_need(facts: SessionFacts, tokens: int, lanes: int) -> int | None:
    """Predicted bytes of the KV cache of so many lanes; None: not predictable."""
    sizes = facts.sizes
    if sizes is not None and facts.precision in [each.precision for each in sizes.precisions]:
        return sizes.kv_bytes(facts.precision, tokens, lanes)
    return None if facts.kv_bytes_per_token is None else facts.kv_bytes_per_token * tokens * lanes


def free_bytes(store: RunStore) -> int | None:
    """Measured: what the device that holds the cache could still give; None: not read yet."""
    if not store.readings or store.facts is None:
        return None
    reading = store.readings[-1]
    if not any(device.startswith("cuda") for device in store.facts.devices):
        return reading.available_bytes
    free = 0
    for gpu in reading.gpus:
        used = gpu.driver_used_bytes if gpu.driver_used_bytes is not None else gpu.reserved_bytes
        free += gpu.total_bytes - used + gpu.reserved_bytes - gpu.allocated_bytes
    return free
