"""The memory ledger with its sliders: what a model needs for this context, these lanes and this precision, and whether
it fits. All of it is arithmetic over the event's numbers, so it follows the hand."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from engine.events import DeviceLimit, Estimate, FitChange, LedgerPart, MemoryReading, ModelSizes, SessionFacts
from engine.settings import MAX_LANES, PRECISIONS, Range
from widgets import theme
from widgets.choice import Choice
from widgets.fields import NumberField
from widgets.fit_bar import FitBar, Limit, Segment
from widgets.format import UNKNOWN, bytes_text, count_text, number_text, plain_tooltip
from widgets.ledger_view import CACHE_PARTS, PARTS_OF_RUN, LedgerView
from widgets.model_chip import device_words
from widgets.panel import ElidedLabel, PlainLabel
from widgets.sampling_rows import SettingSlider
from widgets.small import SmallLabel, SmallText

LANE_STOPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, MAX_LANES)
NO_LIMIT_CONTEXT = 131_072  # the slider's end where the model names none
LONGEST = 2**40


def context_stops(model_context: int) -> tuple[int, ...]:
    """Where the context slider stops: powers of two and the halves between them, the model's own context last."""
    end = model_context or NO_LIMIT_CONTEXT
    stops = [size for power in range(6, 24) for size in (2**power, 3 * 2 ** (power - 1)) if size < end]
    return (*sorted(stops), end)


class WishRow(QWidget):
    """A name, a number that can be typed, and a slider over its usual values."""

    changed = Signal(object)  # int

    def __init__(self, name: str, tip: str, most: int, value: int, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.stops: tuple[int, ...] = (value,)
        label = ElidedLabel(name)
        self.field = NumberField(Range(1, most, 0, integer=True), value)
        self.field.setFixedWidth(theme.base_px() * 6)
        self.field.setAccessibleName(name)
        self.slider = SettingSlider()
        self.slider.setAccessibleName(name)
        for part in (label, self.field, self.slider):
            part.setToolTip(tip)
        row = QHBoxLayout()
        row.setSpacing(6)
        row.addWidget(label, 1)
        row.addWidget(self.field)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addLayout(row)
        column.addWidget(self.slider)
        column.addWidget(self.field.problem_label)
        self.field.value_changed.connect(self._typed)
        self.slider.valueChanged.connect(self._slid)
        self.slider.stepped.connect(self._stepped)

    def value(self) -> int:
        return int(self.field.value())

    def set_stops(self, stops: Sequence[int]) -> None:
        self.stops = tuple(stops)
        self.slider.blockSignals(True)
        self.slider.setRange(0, len(self.stops) - 1)
        self.slider.blockSignals(False)
        self.set_value(self.value())

    def set_value(self, value: int) -> None:
        """Shows a number from elsewhere; says nothing."""
        self.field.set_value(value)
        self.slider.blockSignals(True)
        self.slider.setValue(min(bisect_left(self.stops, value), len(self.stops) - 1))
        self.slider.blockSignals(False)

    @Slot(object)
    def _typed(self, value: object) -> None:
        self.set_value(int(value))  # type: ignore[call-overload]
        self.changed.emit(self.value())

    @Slot(int)
    def _slid(self, place: int) -> None:
        if self.stops[place] != self.value():
            self.field.set_value(self.stops[place])
            self.changed.emit(self.value())

    @Slot(object)
    def _stepped(self, steps: object) -> None:
        self.slider.setValue(self.slider.value() + int(steps))  # type: ignore[call-overload]


class LedgerPanel(QWidget):
    """Sliders, the bar with the devices' limits, whether it fits and what would make it, the parts, four figures.

    Shows an `Estimate` of what is chosen (`show_estimate`) or a loaded model with its measured side (`show_loaded`).
    """

    wished = Signal(object)  # FitChange or the like: (precision, context, lanes) that a hand asks for

    def __init__(self, precision_row: bool = True, parent: QWidget | None = None) -> None:
        """precision_row: False where the precision is chosen elsewhere and told by `set_precision`."""
        super().__init__(parent)
        self._sizes: ModelSizes | None = None
        self._model = ""
        self._precision = ""
        self._loaded_as = ""
        self._limits: tuple[DeviceLimit, ...] = ()
        self._device_map = "auto"
        self._libraries = 0
        self._measured: tuple[LedgerPart, ...] = ()
        self._weights_measured: int | None = None
        self._kept_context = 0  # what a hand asked for, which another model keeps as far as it can; 0: nothing yet
        self.context = WishRow(
            self.tr("Context"), self.tr("Tokens that each lane may hold: prompt and text. It sizes the KV cache."),
            LONGEST, 8192,
        )  # fmt: skip
        self.lanes = WishRow(
            self.tr("Lanes"), self.tr("Texts at once. Each has a KV cache of its own; the weights are shared."),
            MAX_LANES, 1,
        )  # fmt: skip
        self.lanes.set_stops(LANE_STOPS)
        self.precision = Choice(self.tr("Precision"))
        for name in PRECISIONS:
            self.precision.addItem(name, name)
        self.precision_row = QWidget()
        row = QHBoxLayout(self.precision_row)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(6)
        row.addWidget(ElidedLabel(self.tr("Precision")), 1)
        row.addWidget(self.precision, 1)
        self.bar = FitBar()
        self.verdict = SmallText()
        self.changes = QWidget()
        self._changes = QVBoxLayout(self.changes)
        self._changes.setContentsMargins(0, 0, 0, 0)
        self._changes.setSpacing(4)
        self.table = LedgerView()
        self.figures = FiguresView()
        self.why = SmallText()
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        parts = (self.precision_row, self.context, self.lanes, self.bar, self.verdict, self.changes, self.table)
        for part in (*parts, self.figures, self.why):
            column.addWidget(part)
        self.precision_row.setVisible(precision_row)
        self.context.changed.connect(self._context_moved)
        self.lanes.changed.connect(self._moved)
        self.precision.activated.connect(self._precision_chosen)
        self.refresh()

    # ---------------------------------------------------------------- what is shown

    def wish(self) -> tuple[str, int, int]:
        """(precision, context, lanes) as they stand."""
        return self._precision, self.context.value(), self.lanes.value()

    def show_estimate(self, estimate: Estimate, device_map: str = "auto") -> None:
        """What is chosen and not loaded. Context and lanes stay where a hand put them while it is the same model."""
        self._device_map = device_map
        self._limits, self._libraries = estimate.limits, estimate.libraries_bytes
        if not self._limits and estimate.available_bytes:
            self._limits = (DeviceLimit("cpu", estimate.available_bytes, 0),)
        self._measured, self._weights_measured, self._loaded_as = (), None, ""
        self._precision = estimate.precision
        self._take(estimate.model, estimate.sizes, estimate.precision, estimate.context_tokens)

    def show_loaded(
        self, facts: SessionFacts, reading: MemoryReading | None = None, kv_bytes: int | None = None
    ) -> None:
        """A loaded model, measured; reading and kv_bytes are those of now, if there are any."""
        self._device_map, self._libraries = "auto", facts.memory_before_bytes
        self._measured = facts.process_ledger(reading, kv_bytes)
        self._weights_measured = facts.weights_bytes
        self._limits = _limits_for(facts, reading, kv_bytes or 0) if reading is not None else ()
        known = facts.sizes is not None and facts.precision in [p.precision for p in facts.sizes.precisions]
        self._loaded_as = facts.precision
        context = min(facts.context_tokens or 8192, 8192)
        self._take(facts.name, facts.sizes if known else None, facts.precision, context)

    def show_nothing(self) -> None:
        self._sizes, self._model, self._measured = None, "", ()
        self.refresh()

    def set_precision(self, precision: str) -> None:
        """From elsewhere; says nothing."""
        if precision != self._precision:
            self._precision = precision
            self.refresh()

    def set_device_map(self, device_map: str) -> None:
        self._device_map = device_map
        self.refresh()

    def set_wish(self, context: int, lanes: int) -> None:
        """What is remembered; says nothing. context 0: each model's own, at most 8,192."""
        self._kept_context = context
        if context:
            self.context.set_value(context)
        self.lanes.set_value(lanes)
        self.refresh()

    def kept_wish(self) -> tuple[int, int]:
        """(context, lanes) to be remembered, as `set_wish` takes them."""
        return self._kept_context, self.lanes.value()

    def _take(self, model: str, sizes: ModelSizes | None, precision: str, context: int) -> None:
        other = model != self._model or (sizes is None) != (self._sizes is None)
        if self._sizes is not sizes:
            self._precision = precision
        self._model, self._sizes = model, sizes
        if other:
            self.context.set_stops(context_stops(sizes.context_tokens if sizes else 0))
            most = (sizes.context_tokens if sizes else 0) or LONGEST
            self.context.set_value(min(self._kept_context, most) or context)
        self.refresh()

    # ---------------------------------------------------------------- by hand

    @Slot(object)
    def _context_moved(self, tokens: object) -> None:
        self._kept_context = int(tokens)  # type: ignore[call-overload]
        self._moved()

    @Slot()
    def _moved(self) -> None:
        self.refresh()
        self.wished.emit(self.wish())

    @Slot()
    def _precision_chosen(self) -> None:
        self._precision = self.precision.currentData()
        self._moved()

    @Slot()
    def _apply(self) -> None:
        """Takes the change whose button was pressed."""
        button = self.sender()
        change = button.property("change") if button is not None else None
        if isinstance(change, FitChange):
            self._precision = change.precision
            self.context.set_value(change.context_tokens)
            self.lanes.set_value(change.lanes)
            self._moved()

    # ---------------------------------------------------------------- showing

    def refresh(self) -> None:
        sizes = self._sizes
        for part in (self.context, self.lanes, self.figures):
            part.setVisible(sizes is not None)
        if sizes is None:
            self.bar.show_need((), ())
            self._show_changes(())
            self.verdict.setText("")
            self.why.setText("")
            self._show_table([], None)
            return
        self.precision.choose(self._precision)
        wish = self.wish()
        parts, need = list(sizes.ledger(*wish)), sizes.need(*wish)
        self._show_table(parts, need)
        self._show_bar(parts)
        self._show_fit(sizes, need)
        self.figures.show_figures(sizes, wish, self._measured_figure(), self._cache_measured() is not None)
        self.why.setText(sizes.why_rough_is_off(*wish))
        self._hide_empty()

    def _show_table(self, parts: list[LedgerPart], need: int | None) -> None:
        measured = {part.name: part for part in self._measured}
        rows = []
        for part in parts:
            mine = measured.pop(part.name, None)
            rows.append(replace(part, measured_bytes=mine.measured_bytes) if mine else part)
        rows += measured.values()
        totals: list[tuple[str, int | None, int | None]] = []
        if need is not None and not self._measured:
            if self._libraries:
                note = self.tr("Measured now: this program and its libraries, before any weights.")
                rows.append(LedgerPart("libraries", self._libraries, None, note))
            totals.append((self.tr("together"), need + self._libraries, None))
        elif self._measured:
            total = sum(part.measured_bytes or 0 for part in self._measured)
            predicted = None if need is None else need + self._libraries
            totals.append((self.tr("this process"), predicted, total))
        self.table.set_parts(rows, totals)
        self._hide_empty()

    def _show_bar(self, parts: list[LedgerPart]) -> None:
        def together(names: tuple[str, ...] | None) -> int:
            return sum(
                p.predicted_bytes or 0 for p in parts if (p.name in names if names else p.name not in PARTS_OF_RUN)
            )

        segments = (
            Segment(self.tr("weights"), "weights", together(None)),
            Segment(self.tr("KV cache"), "kv_cache", together(CACHE_PARTS)),
            Segment(self.tr("working"), "working", together(("logits", "working"))),
        )
        self.bar.show_need(segments, [Limit(name, size) for name, size in self._lines()])

    def _lines(self) -> list[tuple[str, int]]:
        """Where devices are full, in the order in which they are filled: each with those before it."""
        chosen = [limit for limit in self._limits if limit.name == self._device_map] or list(self._limits)
        lines, filled = [], 0
        for limit in chosen:
            filled += limit.free_bytes
            name = device_words(limit.name)
            lines.append((name if not lines else self.tr("with {name}").format(name=name), filled))
        return lines

    def _show_fit(self, sizes: ModelSizes, need: int) -> None:
        lines = self._lines()
        free = lines[-1][1] if lines else 0
        too_much = bool(free) and need > free
        if too_much:
            text = self.tr("Does not fit: {need} predicted, {available} free.")
        elif free and len(lines) > 1 and need > lines[0][1]:
            text = self.tr("Fits when it is split: {need} predicted, {available} free on all devices together.")
        elif free:
            text = self.tr("Fits: {need} predicted, {available} free.")
        else:
            text = self.tr("{need} predicted.")
        text = text.format(need=bytes_text(need), available=bytes_text(free))
        wish = self.wish()
        if sizes.kv_bytes(*wish) is None:
            text += " " + self.tr("The KV cache of this family cannot be predicted and comes on top.")
        changes: tuple[FitChange, ...] = ()
        if too_much:
            answer = sizes.changes_that_fit(*wish, free)
            changes = answer.changes
            if changes:
                text += " " + self.tr("It would fit with:")
            else:
                text += " " + self.tr("Nothing makes it fit; the nearest is {change}.").format(
                    change=self.change_text(answer.nearest)
                )
        self.verdict.setText(text)
        role = "warning" if too_much else "muted"
        if self.verdict.property("role") != role:
            self.verdict.setProperty("role", role)
            self.verdict.style().unpolish(self.verdict)
            self.verdict.style().polish(self.verdict)
        self._show_changes(changes)

    def change_text(self, change: FitChange) -> str:
        """A change of the wish in words, with what it then needs."""
        words = []
        if "precision" in change.changed:
            words.append(self.tr("{precision} weights").format(precision=change.precision))
        if "context" in change.changed:
            words.append(self.tr("{count} tokens of context").format(count=count_text(change.context_tokens)))
        if "lanes" in change.changed:
            one = change.lanes == 1
            words.append(self.tr("one lane") if one else self.tr("{count} lanes").format(count=change.lanes))
        if "disk" in change.changed:
            words.append(self.tr("{size} on disk (slow)").format(size=bytes_text(change.disk_bytes)))
        return self.tr("{changes}: {size}").format(changes=" + ".join(words), size=bytes_text(change.total_bytes))

    def change_texts(self) -> list[str]:
        """The changes on offer, as shown."""
        return [line.text() for line in self._change_lines()]

    def change_buttons(self) -> list[QPushButton]:
        """Those that move the sliders."""
        return [line for line in self._change_lines() if isinstance(line, QPushButton)]

    def _change_lines(self) -> list[QPushButton | SmallText]:
        found = (self._changes.itemAt(at).widget() for at in range(self._changes.count()))
        return [line for line in found if isinstance(line, (QPushButton, SmallText))]

    def _show_changes(self, changes: Sequence[FitChange]) -> None:
        lines = self._change_lines()
        if [line.property("change") for line in lines] == list(changes):
            return
        for line in lines:
            self._changes.removeWidget(line)
            line.deleteLater()
        for change in changes:
            line: QPushButton | SmallText
            if change.changed == ("disk",):  # no slider moves there: the placement does it, by itself if it is auto
                line = SmallText(self.change_text(change), "")
                line.setToolTip(
                    self.tr("With placement auto the rest goes to disk by itself; a table names the parts.")
                )
            else:
                line = QPushButton(self.change_text(change))
                line.setAutoDefault(False)
                line.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
                line.setToolTip(self.tr("Move the sliders there"))
                line.clicked.connect(self._apply)
            line.setProperty("change", change)
            self._changes.addWidget(line)
        self.changes.setVisible(bool(changes))

    def _cache_measured(self) -> int | None:
        return next((part.measured_bytes for part in self._measured if part.name == "kv_cache"), None)

    def _measured_figure(self) -> int | None:
        """Weights and KV cache as measured; None where nothing is loaded, or for another precision than the loaded."""
        if self._weights_measured is None or self._precision != self._loaded_as:
            return None
        return self._weights_measured + (self._cache_measured() or 0)

    def _hide_empty(self) -> None:
        for label in (self.verdict, self.why):
            label.setVisible(bool(label.text()))
        self.table.setVisible(bool(self.table.rows()))
        self.bar.setVisible(self._sizes is not None)


def _limits_for(facts: SessionFacts, reading: MemoryReading, kv_bytes: int) -> tuple[DeviceLimit, ...]:
    """What each device could give this model: what is free now, and what the model itself holds there already."""
    main = next((device for device in facts.devices if device not in ("cpu", "disk")), "cpu")
    limits = []
    for index, gpu in enumerate(reading.gpus):
        name = f"cuda:{index}"
        used = gpu.reserved_bytes if gpu.driver_used_bytes is None else gpu.driver_used_bytes
        held = facts.on_device(name) + (kv_bytes if name == main else 0)
        limits.append(DeviceLimit(name, max(0, gpu.total_bytes - used) + held, gpu.total_bytes, gpu.name))
    held = facts.on_device("cpu") + (kv_bytes if main == "cpu" else 0)
    return (*limits, DeviceLimit("cpu", reading.available_bytes + held, reading.total_bytes))


class FiguresView(QWidget):
    """Rough formula, better rough formula, exact sum and what was measured, one below the other."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName(self.tr("Four figures for weights and KV cache"))
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 4, 0, 0)
        grid.setHorizontalSpacing(10)
        grid.setVerticalSpacing(3)
        grid.setColumnStretch(0, 1)
        self._labels: dict[str, tuple[PlainLabel, PlainLabel]] = {}
        right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        for at, (name, words, tip) in enumerate(
            (
                ("rough", self.tr("rough formula"), self.tr("Predicted: parameters × bytes × (1 + 2·sequence/hidden)")),
                ("better", self.tr("better rough"),
                 self.tr("Predicted: parameters × bytes × (1 + sequence/(6·hidden) × KV heads/heads)")),
                ("exact", self.tr("exact"), self.tr("Predicted: the sum of all weights and of each layer's KV cache")),
                ("measured", self.tr("measured"),
                 self.tr("Measured: the loaded weights, and the KV cache that the run holds now")),
            )
        ):  # fmt: skip
            label, value, ratio = SmallLabel(words, ""), SmallLabel("", "value"), SmallLabel("")
            value.setAlignment(right)
            ratio.setAlignment(right)
            ratio.setMinimumWidth(theme.base_px() * 5)
            for part in (label, value, ratio):
                part.setToolTip(plain_tooltip(tip))
            for place, part in enumerate((label, value, ratio)):
                grid.addWidget(part, at, place)
            self._labels[name] = (value, ratio)

    def show_figures(
        self, sizes: ModelSizes, wish: tuple[str, int, int], measured: int | None, with_cache: bool = True
    ) -> None:
        """measured: weights and KV cache in bytes, None where nothing was; with_cache: whether a run holds a cache."""
        cache = sizes.kv_bytes(*wish)
        exact = None if cache is None else sizes.weights(wish[0]).total_bytes + cache
        figures = {
            "rough": sizes.rough_bytes(*wish),
            "better": sizes.better_rough_bytes(*wish),
            "exact": exact,
            "measured": measured,
        }
        for name, size in figures.items():
            value, ratio = self._labels[name]
            value.setText(UNKNOWN if size is None else figure_text(size))
            known = size is not None and exact and name in ("rough", "better")
            ratio.setText(self.tr("{ratio} × exact").format(ratio=number_text(size / exact, 2)) if known else "")  # type: ignore[operator]
        if measured is not None and not with_cache:
            self._labels["measured"][1].setText(self.tr("weights only"))
        told = [f"{name}: {value.text()}" for name, (value, _) in self._labels.items()]
        self.setAccessibleDescription("\n".join(told))

    def text(self, name: str) -> str:
        return self._labels[name][0].text()


def figure_text(size: int) -> str:
    """Bytes with two decimals: 80.30 GB."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{number_text(size / scale, 2)} {unit}"
    return bytes_text(size)
