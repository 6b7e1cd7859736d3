"""The bar above the lanes: the prompt they share, the buttons that run, how they go, and what they will need."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt, Signal, Slot
from PySide6.QtWidgets import QHBoxLayout, QToolButton, QVBoxLayout, QWidget

from engine.events import SessionFacts
from engine.settings import Range
from widgets import theme
from widgets.choice import Choice
from widgets.fields import NumberField
from widgets.format import bytes_text, count_text, number_text
from widgets.lab.lane_set import MOST, MOST_NEW_TOKENS, LaneSet
from widgets.lab.parting import LaneWatch
from widgets.panel import FittingLabel, Panel, PlainLabel
from widgets.prompt_edit import PromptEdit
from widgets.run_controls import RunControls
from widgets.run_store import RunStore
from widgets.small import SmallText, make_small
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
        self.lockstep.addItem(self.tr("in lockstep"), True)
        self.lockstep.addItem(self.tr("each lane alone"), False)
        self.lockstep.setFixedWidth(theme.base_px() * 11)
        self.lockstep.currentIndexChanged.connect(self._chosen)
        self.limit_field = NumberField(Range(1, MOST_NEW_TOKENS, 256, integer=True), 256, step=16)
        self.limit_field.setAccessibleName(self.tr("Most new tokens"))
        self.limit_field.setFixedWidth(theme.base_px() * 5)
        self.limit_field.setAlignment(Qt.AlignmentFlag.AlignLeft)  # beside its name
        self.limit_label = PlainLabel(self.tr("most new tokens"), "muted")
        tip = self.tr("max new tokens: a lane ends after this many, where nothing ends it before.")
        self.limit_field.setToolTip(tip)
        self.limit_label.setToolTip(tip)
        self.need_label, self.note_label = FittingLabel("muted"), FittingLabel("muted")
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self.lockstep)
        row.addSpacing(4)
        row.addWidget(self.limit_label)
        row.addWidget(self.limit_field)
        row.addSpacing(4)
        said = QVBoxLayout()
        said.setSpacing(0)
        said.addWidget(self.need_label)
        said.addWidget(self.note_label)
        row.addLayout(said, 1)
        self.body.addLayout(row)
        self.body.addWidget(self.limit_field.problem_label)
        self.tokens_note = SmallText("", "warning")
        self.tokens_note.hide()
        self.body.addWidget(self.tokens_note)
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
        for label in (self.need_label, self.note_label):
            make_small(label)

    # ---------------------------------------------------------------- what it shows

    def show_lanes(self, lanes: LaneSet, left_out: int, said: str = "") -> None:
        """left_out: lanes without room. said: what became of tokens of another model, "" for nothing."""
        self.lanes, self._left_out = lanes, left_out
        self.tokens_note.setText(said)
        self.tokens_note.setVisible(bool(said))
        self.lockstep.blockSignals(True)
        self.lockstep.choose(lanes.lockstep)
        self.lockstep.blockSignals(False)
        self.lockstep.setToolTip(
            self.tr(
                "In lockstep: one forward pass writes a token of every lane. Fast.\n"
                "Each lane alone: computed one by one; slower, and in 16 bits, too, exactly as a run alone."
            )
        )
        needed = any(lane.own is None for lane in lanes.lanes)
        self.prompt_edit.setEnabled(needed)
        self.prompt_edit.setToolTip(
            self.tr("What all lanes are asked, but those with a prompt of their own")
            if needed
            else self.tr("Every lane has a prompt of its own: edit a lane to change it")
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
            words = self.tr("together {rate} / s · KV cache {bytes} (measured)")
            told = [words.format(rate=number_text(sum(rates), 0), bytes=bytes_text(held))]
            self._say(self.need_label, told, self.tr("All lanes together; KV cache entries in use."))
        else:
            told, fits = self.forecast()
            tip = self.tr("Keys and values of every token of every lane, by the model's own layers; predicted.")
            self._say(self.need_label, told, f"{told[0]}\n{tip}", "muted" if fits else "warning")
        self._say(self.note_label, *self._note())

    def _remark(self) -> tuple[str, str, str]:
        assert self.lanes is not None
        lanes = self.lanes
        count = count_text(len(lanes.lanes))
        asked = [lane.own for lane in lanes.lanes]
        if len(set(asked)) == 1:
            shared = self.tr("one prefill shared by {count} lanes").format(count=count)
        elif len(set(asked)) == len(asked):
            shared = self.tr("each lane is asked something else")
        else:
            shared = self.tr("one prefill shared where prompts agree")
        if lanes.seeds:
            draws = self.tr("different draws") if lanes.seeds_differ else self.tr("the same draws")
        else:
            draws = self.tr("no draws")
        tip = self.tr("The prompt is read once for all lanes that share it. With one seed all draw the same numbers.")
        return f"{shared} · {draws}", tip, draws

    def _note(self) -> tuple[list[str], str]:
        """What a person must know before trusting a difference (SAM-27), or of lanes that found no room: wordings, the
        longest first, and a tool tip."""
        assert self.lanes is not None
        facts = self.store.facts
        if self._left_out:
            one, count = self._left_out == 1, count_text(self._left_out)
            more = self.tr("1 more lane") if one else self.tr("{count} more lanes").format(count=count)
            said = self.tr("not shown: {lanes}; {most} stand side by side").format(lanes=more, most=MOST)
            return [said, more], said
        if facts is None or not self.lanes.lockstep or facts.precision == "float32":
            return [], ""
        tip = self.tr(
            "In {precision} a batch is rounded differently than a lane alone: the arithmetic, not the setting, may "
            "part two equal lanes.\nWhere that happens, it is said there. Each lane alone is exact."
        )
        wordings = (
            self.tr("in {precision} the arithmetic of a batch, not the setting, may part two equal lanes"),
            self.tr("{precision}: the arithmetic, not the setting, may part two equal lanes"),
            self.tr("{precision}: the arithmetic, too, may part lanes"),
        )
        return [words.format(precision=facts.precision) for words in wordings], tip.format(precision=facts.precision)

    def forecast(self) -> tuple[list[str], bool]:
        """What the lanes' KV cache will take at the most, in wordings, the longest first, and whether that is free."""
        facts, lanes = self.store.facts, self.lanes
        if facts is None or lanes is None:
            return [self.tr("No model is loaded yet.")], True
        most = facts.context_tokens or MOST_NEW_TOKENS
        tokens = min((self.prompt_tokens or 0) + lanes.max_new_tokens, most)
        own = sum(lane.own is not None for lane in lanes.lanes)  # asked what was not read yet
        needs = (
            kv_need(facts, tokens, len(lanes.lanes) - own),
            kv_need(facts, min(lanes.max_new_tokens, most), own),
        )
        if None in needs:
            return [self.tr("KV cache: not predictable for this model")], True
        need, free = sum(filter(None, needs)), free_bytes(self.store)
        fits = free is None or need <= free
        if fits and (own or self.prompt_tokens is None):
            wordings = (
                self.tr("KV cache: at most {bytes} for {count} lanes, and prompts that were not read yet (predicted)"),
                self.tr("KV cache: at most {bytes}, and unread prompts (predicted)"),
                self.tr("KV cache ≤ {bytes} + prompts"),
            )
        elif fits:
            wordings = (
                self.tr("KV cache: at most {bytes} for {count} lanes of {tokens} tokens (predicted)"),
                self.tr("KV cache: at most {bytes} (predicted)"),
                self.tr("KV cache ≤ {bytes}"),
            )
        else:
            wordings = (
                self.tr("{count} lanes of {tokens} tokens need {bytes} of KV cache, and {free} are free: take fewer"),
                self.tr("KV cache of {bytes}, {free} are free: take fewer lanes or tokens"),
                self.tr("needs {bytes}, {free} are free"),
            )
        figures = {
            "bytes": bytes_text(need),
            "count": count_text(len(lanes.lanes)),
            "tokens": count_text(tokens),
            "free": bytes_text(free),
        }
        return [words.format(**figures) for words in wordings], fits

    @staticmethod
    def _say(label: FittingLabel, wordings: Sequence[str], tooltip: str, role: str = "muted") -> None:
        if label.property("role") != role:
            label.setProperty("role", role)
            label.style().polish(label)
        label.set_wordings(*wordings or ("",))
        label.setToolTip(tooltip)
        label.setVisible(bool(wordings))

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
