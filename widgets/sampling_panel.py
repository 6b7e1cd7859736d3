"""How the next word is chosen: sliders, seed, limits, and the buttons that run.

A change goes out at once as a new frozen `SamplingSettings` and works from the next token on (SAM-10).
"""

from __future__ import annotations

import secrets
from dataclasses import replace

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QHBoxLayout, QMenu, QToolButton, QVBoxLayout, QWidget

from engine.events import SessionFacts, TokenNames, WordTokens
from engine.settings import Preset, Range, SamplingSettings
from widgets import theme
from widgets.fields import NumberField, number_shown
from widgets.foreign_tokens import (
    are_foreign,
    left_out_text,
    names_of,
    question_of,
    taken_over,
    taken_over_text,
    together,
)
from widgets.history import History
from widgets.panel import Panel, PlainLabel, icon_button
from widgets.presets_chooser import PresetChooser
from widgets.run_controls import RunControls
from widgets.run_store import BUSY, RunStore
from widgets.sampling_constraints import Constraints
from widgets.sampling_rows import SettingRow, knobs
from widgets.small import SmallText
from widgets.stop_list import StopList

MOST_NEW_TOKENS = 10_000_000
OFF = SamplingSettings()


class SamplingPanel(Panel):
    """The sampling settings of the coming and of the current run."""

    settings_changed = Signal(object)  # SamplingSettings
    run_requested = Signal()
    step_requested = Signal()
    pause_toggled = Signal()
    stop_requested = Signal()
    pace_changed = Signal(object)  # seconds per token
    asked = Signal(object)  # a question to the loaded model

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__("", parent)
        self.set_title(self.tr("Sampling"))
        self.store = store
        self._settings = OFF
        # Each step with whose token ids it names, None where that is not known.
        self._history: History[tuple[SamplingSettings, TokenNames | None]] = History((OFF, None))
        self._dragging = ""  # the setting whose slider is held: one drag is one step of the history
        self._defaults = OFF
        self._had_facts: SessionFacts | None = None
        # Another model's tokens that are looked for in the loaded one; whether a step of the history left them out, and
        # whether that step is offered to be undone.
        self._foreign: tuple[SamplingSettings, TokenNames, bool, bool] | None = None
        self._of_model = False  # the newest step was made by a change of model

        self.controls = RunControls(store)
        self.body.addWidget(self.controls)
        self.presets = PresetChooser()
        self.presets.chosen.connect(self.choose_preset)
        self.body.addWidget(self.presets)
        self._build_left_out()
        first, more = knobs()
        self.rows: dict[str, SettingRow] = {}
        for knob in first:
            self.body.addWidget(self._row(SettingRow(knob)))
        self._build_seed()
        self._build_limit()
        self._build_more([self._row(SettingRow(knob)) for knob in more])
        self._build_menu()

        for name in ("run_requested", "step_requested", "pause_toggled", "stop_requested", "pace_changed"):
            getattr(self.controls, name).connect(getattr(self, name))
        store.frame.connect(self.refresh)
        store.selection_changed.connect(self.refresh)
        store.hover_changed.connect(self.refresh)
        self.refresh()

    # ---------------------------------------------------------------- building

    def _row(self, row: SettingRow) -> SettingRow:
        self.rows[row.knob.name] = row
        row.changed.connect(self._row_changed)
        return row

    def _build_left_out(self) -> None:
        """What is said of tokens that came from another model."""
        self.left_out = QWidget()
        self.left_out_note = SmallText("", "warning")
        self.left_out_button = QToolButton()
        self.left_out_button.setText(self.tr("Undo"))
        self.left_out_button.setToolTip(self.tr("Back to the settings before"))
        self.left_out_button.clicked.connect(self.undo)
        column = QVBoxLayout(self.left_out)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        column.addWidget(self.left_out_note)
        column.addWidget(self.left_out_button, 0, Qt.AlignmentFlag.AlignLeft)
        self.body.addWidget(self.left_out)
        self._tell_left_out("")

    def _build_seed(self) -> None:
        self.seed_field = NumberField(None, 0, integer=True)
        self.seed_field.setAccessibleName(self.tr("Seed"))
        tip = self.tr(
            "Seed: any whole number. The draw of each token is one number from the seed and the token's place alone "
            "(Philox), so the same seed and settings write the same text."
        )
        self.seed_field.setToolTip(tip)
        dice = icon_button("dice", self.tr("Another seed at random"))
        dice.clicked.connect(self.roll)
        self.lock_button = icon_button("lock", self.tr("Locked: this seed for every run. Open: a new one each time."))
        self.lock_button.setCheckable(True)
        self.lock_button.setChecked(True)
        label = PlainLabel(self.tr("Seed"))
        label.setToolTip(tip)
        row = QHBoxLayout()
        row.setSpacing(2)
        row.addWidget(label, 1)
        row.addWidget(self.seed_field, 3)
        row.addWidget(dice)
        row.addWidget(self.lock_button)
        self.body.addLayout(row)
        self.body.addWidget(self.seed_field.problem_label)
        self.seed_field.value_changed.connect(self._seed_typed)

    def _build_limit(self) -> None:
        self.limit_field = NumberField(Range(1, MOST_NEW_TOKENS, 256, integer=True), 256, step=16)
        self.limit_field.setAccessibleName(self.tr("Most new tokens"))
        tip = self.tr("max new tokens: the run ends after this many, where nothing ends it before.")
        self.limit_field.setToolTip(tip)
        self.limit_field.setFixedWidth(theme.base_px() * 8)
        label = PlainLabel(self.tr("Most new tokens"))
        label.setToolTip(tip)
        row = QHBoxLayout()
        row.addWidget(label, 1)
        row.addWidget(self.limit_field)
        self.body.addLayout(row)
        self.body.addWidget(self.limit_field.problem_label)

    def _build_more(self, rows: list[SettingRow]) -> None:
        self.more_button = QToolButton()
        self.more_button.setText(self.tr("more settings"))
        self.more_button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.more_button.setCheckable(True)
        self.more_button.setIconSize(QSize(12, 12))
        self.more = QWidget()
        column = QVBoxLayout(self.more)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        for row in rows:
            column.addWidget(row)
        self.stop_list = StopList()
        column.addWidget(PlainLabel(self.tr("Stop at")))
        column.addWidget(self.stop_list)
        self.constraints = Constraints(self.store)
        column.addWidget(self.constraints)
        self.constraints.changed.connect(self._constrained)
        self.constraints.recut.connect(self._recut)
        self.constraints.asked.connect(self.asked)
        self.constraints.begin_changed.connect(self._count_more)
        self.body.addWidget(self.more_button)
        self.body.addWidget(self.more)
        self.more_button.toggled.connect(self._show_more)
        self.stop_list.changed.connect(self._count_more)
        self._show_more(False)

    def _build_menu(self) -> None:
        button = self.add_button(self.tr("reset"), "", self.tr("Reset, undo and redo of settings"))
        button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        menu = QMenu(button)
        self.defaults_action = menu.addAction(self.tr("To the model's own defaults"))
        self.defaults_action.triggered.connect(self.use_defaults)
        off = menu.addAction(self.tr("All off: the model's plain probabilities"))
        off.triggered.connect(self.use_off)
        menu.addSeparator()
        self.undo_action = menu.addAction(self.tr("Undo"))
        self.redo_action = menu.addAction(self.tr("Redo"))
        for action, key, slot in (
            (self.undo_action, QKeySequence.StandardKey.Undo, self.undo),
            (self.redo_action, QKeySequence.StandardKey.Redo, self.redo),
        ):
            action.setShortcuts(key)
            action.setShortcutContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
            action.triggered.connect(slot)
            self.addAction(action)
        button.setMenu(menu)
        self._enable_history()

    # ---------------------------------------------------------------- what is set

    def settings(self) -> SamplingSettings:
        """The settings as they stand; half typed numbers are taken first, refused ones are not."""
        for field in (*(row.field for row in self.rows.values()), self.seed_field):
            field.commit()
        if self.store.facts is not self._had_facts:
            self.refresh()  # another model's tokens are not to be had until the next frame
        return self._settings

    def set_settings(self, settings: SamplingSettings, names: TokenNames | None = None) -> None:
        """Shows settings from elsewhere, bit for bit; says nothing. names: whose tokens they name; None: not known."""
        self._settings = settings
        self._history = History((settings, names))
        self._show()

    def token_names(self) -> TokenNames | None:
        """Whose tokens the settings name, None where they name none or that is not known."""
        return self._names_of(self._settings, self._history.value[1]) if self._settings.names_tokens else None

    def max_new_tokens(self) -> int:
        self.limit_field.commit()
        return int(self.limit_field.value())

    def stop_strings(self) -> tuple[str, ...]:
        return self.stop_list.strings()

    def forced_text(self) -> str:
        """What every run begins with, "" for nothing."""
        return self.constraints.begin()

    def pace(self) -> float:
        """Seconds per token, 0 for full speed."""
        return self.controls.pace()

    def restore(
        self,
        settings: SamplingSettings,
        max_new_tokens: int,
        stop: tuple[str, ...],
        seconds_per_token: float,
        names: TokenNames | None = None,
    ) -> None:
        """What was set when the window was last closed."""
        self.set_settings(settings, names)
        if isinstance(max_new_tokens, int) and 1 <= max_new_tokens <= MOST_NEW_TOKENS:
            self.limit_field.set_value(max_new_tokens)
        self.stop_list.set_strings(tuple(stop))
        self.controls.set_pace(seconds_per_token)
        self._count_more()

    def prepare_run(self) -> None:
        """To be called before a run is asked for: another seed, unless it is locked."""
        if not self.lock_button.isChecked():
            self.roll()

    def roll(self) -> None:
        """Another seed."""
        self._take(replace(self._settings, seed=secrets.randbelow(1_000_000)))

    def use_defaults(self) -> None:
        """The model's own generation defaults; the seed stays."""
        self._take(replace(self._defaults, seed=self._settings.seed))

    def use_off(self) -> None:
        self._take(replace(OFF, seed=self._settings.seed))

    def choose_preset(self, preset: Preset) -> None:
        self.take_settings(preset.applied(self._settings), preset.tokens)
        if preset.settings.names_tokens and preset.tokens is None:
            self._tell_left_out(
                self.tr(
                    "This preset is of an older version and does not say whose tokens it bans or biases: look whether "
                    "the words below are the ones that are meant."
                ),
                undo=True,
            )

    def take_settings(self, settings: SamplingSettings, names: TokenNames | None = None) -> None:
        """Sets these, as a step that can be undone. names: whose tokens they name; None: the loaded model's.

        Another model's tokens are other words here: they are left out, and taken over where their text is a token.
        """
        facts, before = self.store.facts, self._settings
        self._tell_left_out("")
        self._foreign = None
        if facts is None or names is None or not are_foreign(settings, names, facts):
            self._take(settings, names=names)
            return
        self._take(settings.without_tokens)
        self._leave_out(settings, names, facts, stepped=self._settings != before, undo=True)

    def undo(self) -> None:
        if self._history.undo():
            self._came_back()

    def redo(self) -> None:
        if self._history.redo():
            self._came_back()

    def _came_back(self) -> None:
        self._foreign, self._of_model = None, False
        self.presets.leave_note()
        settings, names = self._history.value
        foreign = are_foreign(settings, names, self.store.facts)
        self._settings = settings.without_tokens if foreign else settings
        self._tell_left_out("")
        if foreign and names is not None and self.store.facts is not None:
            self._tell_left_out(left_out_text(names, self.store.facts))
        self._show()
        self._enable_history()
        self.settings_changed.emit(self._settings)

    def _row_changed(self, value: object, drag: bool) -> None:
        name = self.sender().knob.name  # type: ignore[union-attr]
        same_drag = drag and self._dragging == name
        self._dragging = name if drag else ""
        self._take(replace(self._settings, **{name: value}), same_drag)  # type: ignore[arg-type]

    def _constrained(self, settings: object, drag: bool) -> None:
        same_drag = drag and self._dragging == "constraints"
        self._dragging = "constraints" if drag else ""
        self._take(settings, same_drag)  # type: ignore[arg-type]

    def _recut(self, settings: object) -> None:
        """What another model cuts words into belongs to the step in which the last one's tokens were left out."""
        self._take(settings, same_step=self._of_model)  # type: ignore[arg-type]

    def _seed_typed(self, value: object) -> None:
        self._take(replace(self._settings, seed=value))  # type: ignore[arg-type]

    def _take(self, settings: SamplingSettings, same_step: bool = False, names: TokenNames | None = None) -> None:
        if settings == self._settings:
            return
        self.presets.leave_note()
        self.left_out_button.hide()  # it would take this back
        self._of_model = same_step and self._of_model
        names = self._names_of(settings, names or self._history.value[1])
        self._history.take((settings, names), same_step)
        self._settings = settings
        self._show()
        self._enable_history()
        self.settings_changed.emit(settings)

    # ---------------------------------------------------------------- another model's tokens

    def _names_of(self, settings: SamplingSettings, before: TokenNames | None) -> TokenNames | None:
        return names_of(settings, before, self.store.facts, self.constraints.texts())

    def _facts_changed(self, had: SessionFacts | None) -> None:
        """Another model is loaded, or none: what its tokens were called is kept, and those of another left out."""
        settings, names = self._history.value
        if had is not None and names is not None and names.are_of(had.name, had.vocab_size):
            texts = dict(names.texts) | self.constraints.texts()
            names = TokenNames(names.model, names.vocab_size, tuple(sorted(texts.items())))
            self._history.amend((settings, names))
        facts = self.store.facts
        if facts is None or not settings.names_tokens:
            return
        if names is None:
            self._history.amend((settings, self._names_of(settings, None)))
        elif are_foreign(self._settings, names, facts):
            rest = self.constraints.keep_words()
            self._take(self._settings.without_tokens)
            self._tell_left_out("")
            self._foreign, self._of_model = None, True
            if rest.names_tokens:
                self._leave_out(rest, names, facts, stepped=True, undo=False)
        elif not are_foreign(settings, names, facts) and self._settings != settings:
            self._settings = settings  # its model is back
            self._tell_left_out("")
            self._show()
            self.settings_changed.emit(settings)

    def _leave_out(
        self, settings: SamplingSettings, names: TokenNames, facts: SessionFacts, stepped: bool, undo: bool
    ) -> None:
        self._foreign = settings, names, stepped, undo
        self._tell_left_out(left_out_text(names, facts), undo=undo and stepped)
        self.refresh()

    def _look_for_foreign(self) -> None:
        """Asks the loaded model which of another one's tokens it has; takes them over once it has said so."""
        facts, inside = self.store.facts, self.store.inside
        if self._foreign is None or facts is None:
            return
        settings, names, stepped, undo = self._foreign
        question = question_of(settings, names)
        answer = inside.answers.get(question)
        if answer is None:
            if question not in inside.pending and self.store.activity not in BUSY:
                inside.pending.add(question)
                self.asked.emit(question)
        elif isinstance(answer, WordTokens):
            self._foreign = None
            found = taken_over(settings, names, question, answer)
            said, before = taken_over_text(found, names, facts), self._settings
            self._take(together(before, found.settings), same_step=stepped)
            self._tell_left_out(said, undo=undo and (stepped or self._settings != before))

    def _tell_left_out(self, text: str, undo: bool = False) -> None:
        self.left_out_note.setText(text)
        self.left_out.setAccessibleName(text)
        self.left_out_button.setVisible(undo)
        self.left_out.setVisible(bool(text))

    def _show(self) -> None:
        for name, row in self.rows.items():
            value = getattr(self._settings, name)
            if row.value() != value:
                row.set_value(value)
        if self.seed_field.value() != self._settings.seed:
            self.seed_field.set_value(self._settings.seed)
        self.constraints.show_settings(self._settings)
        self._count_more()
        self._tell_greedy()
        self.presets.show_settings(self._settings)
        self.refresh()

    def _tell_greedy(self) -> None:
        self.set_remark(
            self.tr("greedy") if self._settings.greedy else "",
            self.tr("Temperature 0: always the most probable word, no draw; the seed changes nothing."),
        )

    def _enable_history(self) -> None:
        self.undo_action.setEnabled(self._history.can_undo)
        self.redo_action.setEnabled(self._history.can_redo)

    # ---------------------------------------------------------------- what is shown

    def refresh(self) -> None:
        """Words kept at the shown token, and the defaults of the model that is loaded."""
        facts = self.store.facts
        if facts is not self._had_facts:
            had, self._had_facts = self._had_facts, facts
            self._facts_changed(had)
            self._defaults = facts.generation_defaults if facts is not None else OFF
            for name, row in self.rows.items():
                row.set_default(getattr(self._defaults, name))
            self.defaults_action.setText(self._defaults_text())
        self.constraints.refresh()
        self._look_for_foreign()
        token = self.store.shown_token
        for row in self.rows.values():
            row.show_kept(token)

    def _defaults_text(self) -> str:
        parts = [
            f"{row.knob.label} {number_shown(getattr(self._defaults, name))}"
            for name, row in self.rows.items()
            if getattr(self._defaults, name) != getattr(OFF, name)
        ]
        if not parts:
            return self.tr("To the model's own defaults")
        return self.tr("To the model's own defaults: {list}").format(list=", ".join(parts))

    def _show_more(self, shown: bool) -> None:
        self.more.setVisible(shown)
        theme.set_icon(self.more_button, "chevron-down" if shown else "chevron-right")

    def _count_more(self) -> None:
        """A folded section still says that something in it is on."""
        _, more = knobs()
        count = sum(getattr(self._settings, knob.name) != getattr(OFF, knob.name) for knob in more)
        count += len(self.stop_list.strings()) + self.constraints.count()
        text = self.tr("more settings")
        self.more_button.setText(f"{text} ({self.tr('{count} on').format(count=count)})" if count else text)
