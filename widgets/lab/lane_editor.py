"""The small window in which one lane is edited: its sampling, its words, its seed, its name, a prompt of its own.

What is moved here goes out at once; while the lane writes, its settings work from its next token on.
"""

from __future__ import annotations

import secrets
from dataclasses import replace

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import (
    QCheckBox,
    QDialog,
    QHBoxLayout,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from engine.settings import LanePrompt, Preset, SamplingSettings
from widgets import theme
from widgets.fields import NumberField, QuietLine
from widgets.foreign_tokens import Meant, names_of
from widgets.lab.lane_column import LetterChip
from widgets.lab.lane_set import Lane
from widgets.panel import PlainLabel, icon_button, scrolling
from widgets.presets_chooser import PresetChooser
from widgets.prompt_edit import PromptEdit
from widgets.run_store import RunStore
from widgets.sampling_constraints import Constraints
from widgets.sampling_rows import SettingRow, knobs
from widgets.small import SmallText

OFF = SamplingSettings()


class LaneEditor(QDialog):
    """Edits the lane that `show_lane` gave."""

    changed = Signal(object, bool)  # Lane; True: goes on with the step of undo that the last change began
    undo_requested = Signal()
    redo_requested = Signal()
    asked = Signal(object)  # a question to the loaded model

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.store = store
        self.lane = Lane(0, OFF)
        self.shared = LanePrompt("")
        self._facts = store.facts
        self._dragging = ""
        self._writing = False  # a prompt is being typed: one step of undo until something else is changed
        self.chip = LetterChip()
        self.name_field = QuietLine()
        self.name_field.setPlaceholderText(self.tr("name"))
        self.name_field.setAccessibleName(self.tr("Name of the lane"))
        self.name_field.setMaxLength(60)
        self.name_field.editingFinished.connect(self._renamed)
        self.rows: dict[str, SettingRow] = {}
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 14, 16, 14)
        column.setSpacing(10)
        head = QHBoxLayout()
        head.addWidget(self.chip)
        head.addWidget(self.name_field, 1)
        column.addLayout(head)
        column.addWidget(self._settings_part(), 1)
        column.addWidget(self._prompt_part())
        self.running_note = SmallText(
            self.tr("This lane writes now: settings work from its next token on, a prompt from the next run on.")
        )
        column.addWidget(self.running_note)
        for key, signal in (
            (QKeySequence.StandardKey.Undo, self.undo_requested),
            (QKeySequence.StandardKey.Redo, self.redo_requested),
        ):
            action = QAction(self)
            action.setShortcuts(key)
            action.triggered.connect(signal)
            self.addAction(action)
        store.frame.connect(self.refresh)
        self.refresh()

    def sizeHint(self) -> QSize:
        return QSize(theme.base_px() * 27, theme.base_px() * 44)

    # ---------------------------------------------------------------- building

    def _settings_part(self) -> QWidget:
        part = QWidget()
        part.setProperty("plain", True)
        column = QVBoxLayout(part)
        column.setContentsMargins(0, 0, 6, 0)
        column.setSpacing(8)
        self.presets = PresetChooser(keeping=False)
        self.presets.chosen.connect(self._preset_chosen)
        column.addWidget(self.presets)
        self.tokens_note = SmallText("", "warning")
        column.addWidget(self.tokens_note)
        first, more = knobs()
        for knob in first:
            column.addWidget(self._row(SettingRow(knob)))
        column.addLayout(self._seed_row())
        column.addWidget(self.seed_field.problem_label)
        self.more_button = QToolButton()
        self.more_button.setText(self.tr("more settings"))
        self.more_button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.more_button.setIconSize(QSize(12, 12))
        self.more_button.setCheckable(True)
        self.more_button.toggled.connect(self._show_more)
        self.more = QWidget()
        below = QVBoxLayout(self.more)
        below.setContentsMargins(0, 0, 0, 0)
        for knob in more:
            below.addWidget(self._row(SettingRow(knob)))
        self.constraints = Constraints(self.store, begins=False)
        self.constraints.changed.connect(self._constrained)
        self.constraints.asked.connect(self.asked)
        below.addWidget(self.constraints)
        column.addWidget(self.more_button)
        column.addWidget(self.more)
        column.addStretch(1)
        self._show_more(False)
        return scrolling(part)

    def _row(self, row: SettingRow) -> SettingRow:
        self.rows[row.knob.name] = row
        row.kept.hide()
        row.changed.connect(self._row_changed)
        return row

    def _seed_row(self) -> QHBoxLayout:
        self.seed_field = NumberField(None, 0, integer=True)
        self.seed_field.setAccessibleName(self.tr("Seed"))
        tip = self.tr("Lanes of one seed draw the same numbers, so that only their settings can part them.")
        self.seed_field.setToolTip(tip)
        self.seed_field.value_changed.connect(self._seed_typed)
        name = self.tr("Another seed at random")
        dice = icon_button("dice", name, self.tr("Another seed at random, for this lane alone"))
        dice.clicked.connect(self.roll)
        label = PlainLabel(self.tr("Seed"))
        label.setToolTip(tip)
        row = QHBoxLayout()
        row.setSpacing(2)
        row.addWidget(label, 1)
        row.addWidget(self.seed_field, 3)
        row.addWidget(dice)
        return row

    def _prompt_part(self) -> QWidget:
        part = QWidget()
        column = QVBoxLayout(part)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(6)
        self.own_box = QCheckBox(self.tr("A prompt of its own"))
        self.own_box.setToolTip(
            self.tr("Otherwise this lane is asked what all lanes are asked, and shares its prefill")
        )
        self.own_box.toggled.connect(self._own_toggled)
        self.own_part = QWidget()
        own = QVBoxLayout(self.own_part)
        own.setContentsMargins(0, 0, 0, 0)
        own.setSpacing(4)
        self.prompt_edit = self._edit(self.tr("Prompt of this lane"))
        self.system_edit = self._edit(self.tr("System prompt of this lane"))
        self.system_edit.setPlaceholderText(self.tr("the chat template's own"))
        own.addWidget(PlainLabel(self.tr("Prompt"), "muted"))
        own.addWidget(self.prompt_edit)
        own.addWidget(PlainLabel(self.tr("System prompt"), "muted"))
        own.addWidget(self.system_edit)
        column.addWidget(self.own_box)
        column.addWidget(self.own_part)
        return part

    def _edit(self, name: str) -> PromptEdit:
        edit = PromptEdit()
        edit.setAccessibleName(name)
        edit.setFixedHeight(round(theme.base_px() * 4.6))
        edit.written_changed.connect(self._prompt_written)
        return edit

    # ---------------------------------------------------------------- what it shows

    def show_lane(self, lane: Lane, letter: str, colour: int, shared: LanePrompt, meant: Meant) -> None:
        """Shows a lane; says nothing. shared: what lanes without a prompt of their own are asked. meant: what its
        settings are with the loaded model."""
        other = lane.key != self.lane.key
        self.lane, self.shared = lane, shared
        if other:
            self._dragging, self._writing = "", False
            self.presets.leave_note()
            self.constraints.drop_typed()
        self._see_model()
        self.chip.show_letter(letter, colour)
        self.setWindowTitle(self.tr("Lane {letter}").format(letter=letter))
        if self.name_field.text() != lane.name and (other or not self.name_field.isModified()):
            self.name_field.setText(lane.name)
        self._show_settings()
        self.constraints.show_settings(meant.settings)
        self.tokens_note.setText(meant.said)
        self.tokens_note.setVisible(bool(meant.said))
        self.own_box.blockSignals(True)
        self.own_box.setChecked(lane.own is not None)
        self.own_box.blockSignals(False)
        self.own_part.setVisible(lane.own is not None)
        own = lane.own or shared
        for edit, text in ((self.prompt_edit, own.prompt), (self.system_edit, own.system or "")):
            if edit.written() != text:
                edit.blockSignals(True)
                edit.write(text)
                edit.blockSignals(False)
        self._count_more()
        self.refresh()

    def _show_settings(self) -> None:
        settings = self.lane.settings
        for name, row in self.rows.items():
            if row.value() != getattr(settings, name) or row.field.problem:
                row.set_value(getattr(settings, name))
        if self.seed_field.value() != settings.seed:
            self.seed_field.set_value(settings.seed)
        self.presets.show_settings(settings)

    def refresh(self) -> None:
        """The loaded model's defaults; whether a run goes on."""
        if self.presets.presets is not self.store.presets:
            self.presets.set_presets(self.store.presets)
        facts = self.store.facts
        defaults = facts.generation_defaults if facts is not None else OFF
        for name, row in self.rows.items():
            if row.default != getattr(defaults, name):
                row.set_default(getattr(defaults, name))
        self._see_model()
        self.constraints.refresh()
        running = any(run.running for run in self.store.runs[-len("ABCDEFGH") :])
        if self.running_note.isVisibleTo(self) != running:
            self.running_note.setVisible(running)

    def _see_model(self) -> None:
        """Another one cuts words otherwise."""
        if self.store.facts is not self._facts:
            self._facts = self.store.facts
            self.constraints.forget_words()

    def commit(self) -> None:
        """Takes numbers and a name that are half typed."""
        for field in (*(row.field for row in self.rows.values()), self.seed_field):
            field.commit()
        self._renamed()

    # ---------------------------------------------------------------- what is changed

    def _take(self, lane: Lane, same_step: bool = False) -> None:
        if lane != self.lane:
            self.lane = lane
            self.presets.leave_note()
            self.presets.show_settings(lane.settings)
            self._count_more()
            self.changed.emit(lane, same_step)

    def _row_changed(self, value: object, drag: bool) -> None:
        name = self.sender().knob.name  # type: ignore[union-attr]
        same_drag = drag and self._dragging == name
        self._dragging, self._writing = name if drag else "", False
        self._take(replace(self.lane, settings=replace(self.lane.settings, **{name: value})), same_drag)  # type: ignore[arg-type]

    def _constrained(self, settings: object, drag: bool) -> None:
        """Tokens of another model that were left out are not taken along: what stands here now is the loaded one's."""
        same_drag = drag and self._dragging == "constraints"
        self._dragging, self._writing = "constraints" if drag else "", False
        assert isinstance(settings, SamplingSettings)
        names = names_of(settings, self.lane.tokens, self.store.facts, self.constraints.texts())
        self._take(replace(self.lane, settings=settings, tokens=names), same_drag)

    def _preset_chosen(self, preset: Preset) -> None:
        self._dragging, self._writing = "", False
        self._take(replace(self.lane, settings=preset.applied(self.lane.settings), tokens=preset.tokens))
        self._show_settings()

    def _seed_typed(self, value: object) -> None:
        self._dragging, self._writing = "", False
        self._take(replace(self.lane, settings=replace(self.lane.settings, seed=value)))  # type: ignore[arg-type]

    def roll(self) -> None:
        """Another seed."""
        seed = secrets.randbelow(1_000_000)
        self.seed_field.set_value(seed)
        self._seed_typed(seed)

    def _renamed(self) -> None:
        if self.name_field.isModified():
            self.name_field.setModified(False)
            self._dragging, self._writing = "", False
            self._take(replace(self.lane, name=self.name_field.text()))

    def _own_toggled(self, own: bool) -> None:
        self._dragging, self._writing = "", False
        self.own_part.setVisible(own)
        self._take(replace(self.lane, own=self._own_prompt() if own else None))

    def _prompt_written(self) -> None:
        if self.own_box.isChecked():
            same_step, self._writing, self._dragging = self._writing, True, ""
            self._take(replace(self.lane, own=self._own_prompt()), same_step)

    def _own_prompt(self) -> LanePrompt:
        return LanePrompt(self.prompt_edit.written(), self.system_edit.written() or None)

    def _show_more(self, shown: bool) -> None:
        self.more.setVisible(shown)
        theme.set_icon(self.more_button, "chevron-down" if shown else "chevron-right")

    def _count_more(self) -> None:
        _, more = knobs()
        count = sum(getattr(self.lane.settings, knob.name) != getattr(OFF, knob.name) for knob in more)
        count += self.constraints.count()
        text = self.tr("more settings")
        self.more_button.setText(f"{text} ({self.tr('{count} on').format(count=count)})" if count else text)
