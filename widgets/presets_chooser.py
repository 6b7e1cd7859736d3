"""A small chooser of presets: named sampling settings. For the sampling panel, and for a lane's editor.

It knows a list and what the sliders stand at, and says what the person wishes; who owns the presets does it.
"""

from __future__ import annotations

from dataclasses import fields

from PySide6.QtCore import QCoreApplication, Qt, Signal, Slot
from PySide6.QtGui import QAction, QKeyEvent, QKeySequence
from PySide6.QtWidgets import QCheckBox, QHBoxLayout, QLineEdit, QMenu, QToolButton, QVBoxLayout, QWidget

from engine.settings import RANGES, Preset, SamplingSettings
from widgets.choice import Choice
from widgets.fields import number_shown
from widgets.format import count_text, plain_tooltip, visible
from widgets.panel import PlainLabel, icon_button
from widgets.small import SmallLabel, SmallText

LONGEST_NAME = 80


def preset_name(preset: Preset) -> str:
    """What a preset is called here: a person's own as they wrote it, ours in the window's language."""
    if preset.source == "own":
        return "".join(map(visible, preset.name))
    return QCoreApplication.translate("presets", preset.name)


def preset_words(preset: Preset) -> str:
    """What it is good for and what it sets, for a tool tip."""
    words = preset.words
    if preset.source == "model":
        words = QCoreApplication.translate(
            "presets", "What the model's own generation_config.json asks for; what it does not name is off."
        )
    elif preset.source == "built in":
        words = QCoreApplication.translate("presets", words)
    return "\n".join(part for part in (words, settings_words(preset)) if part)


def settings_words(preset: Preset) -> str:
    """The settings that are on, in the field's terms."""
    off, told = SamplingSettings(), []
    for name in (each.name for each in fields(SamplingSettings)):
        value = getattr(preset.settings, name)
        if name == "seed":
            if preset.with_seed:
                told.append(f"seed {value if value.bit_length() < 200 else hex(value)[:24] + '…'}")
        elif name in RANGES:
            if value != getattr(off, name):
                told.append(f"{name} {number_shown(value)}")
        elif value:
            told.append(f"{name} {count_text(len(value))}")
    return ", ".join(told) or QCoreApplication.translate("presets", "All off: the model's plain probabilities.")


class _List(Choice):
    opening = Signal()  # before the list is shown: it may have grown in another window

    def showPopup(self) -> None:
        self.opening.emit()
        super().showPopup()


class _NameLine(QLineEdit):
    left = Signal()  # Esc

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.left.emit()
        else:
            super().keyPressEvent(event)


class PresetChooser(QWidget):
    """keeping: with a menu to save, rename, delete, import, export and undo; else it is only for choosing."""

    chosen = Signal(object)  # Preset
    save_requested = Signal(object, bool)  # name, with the seed
    rename_requested = Signal(object, object)  # Preset, name
    delete_requested = Signal(object)  # Preset
    import_requested = Signal()
    export_requested = Signal()
    undo_requested = Signal()
    opening = Signal()

    def __init__(self, keeping: bool = True, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.keeping = keeping
        self._presets: tuple[Preset, ...] = ()
        self._settings = SamplingSettings()
        self._chosen: Preset | None = None
        self._renaming: Preset | None = None
        self.label = PlainLabel(self.tr("Preset"))
        self.list = _List(self.tr("Preset"))
        self.label.setToolTip(
            self.tr("Sampling settings under a name. Choosing one leaves the seed as it is, unless it has its own.")
        )
        self.changed_label = SmallLabel("")
        self.changed_label.setText(self.tr("changed"))
        self.changed_label.setToolTip(
            self.tr("The settings are no longer those of this preset. Choose it again to go back to it.")
        )
        self.list.activated.connect(self._activated)
        self.list.opening.connect(self.opening)
        self.list.opening.connect(self.leave_note)
        row = QHBoxLayout()
        row.setSpacing(6)
        row.addWidget(self.label)
        row.addWidget(self.list, 1)
        row.addWidget(self.changed_label)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addLayout(row)
        self._build_name(column)
        self.note = SmallText("")
        self.undo_button = QToolButton()
        self.undo_button.setText(self.tr("Undo"))
        self.undo_button.clicked.connect(self.undo_requested)
        told = QHBoxLayout()
        told.addWidget(self.note, 1)
        told.addWidget(self.undo_button, 0, Qt.AlignmentFlag.AlignTop)
        column.addLayout(told)
        if keeping:
            row.addWidget(self._build_menu())
        self.tell("")
        self._show()

    def _build_name(self, column: QVBoxLayout) -> None:
        self.name_line = _NameLine()
        self.name_line.setMaxLength(LONGEST_NAME)
        self.name_line.setAccessibleName(self.tr("Name of the preset"))
        self.with_seed = QCheckBox(self.tr("with the seed"))
        self.with_seed.setToolTip(self.tr("The seed belongs to the preset: choosing it sets the seed, too."))
        keep = icon_button("check", self.tr("Keep it under this name (Enter)"), size=14)
        leave = icon_button("close", self.tr("Leave it (Esc)"), size=14)
        self.name_row = QWidget()
        row = QHBoxLayout(self.name_row)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(4)
        row.addWidget(self.name_line, 1)
        row.addWidget(keep)
        row.addWidget(leave)
        self.name_problem = SmallText("", "warning")
        column.addWidget(self.name_row)
        column.addWidget(self.with_seed)
        column.addWidget(self.name_problem)
        self.name_line.returnPressed.connect(self._named)
        self.name_line.left.connect(self._leave_name)
        self.name_line.textEdited.connect(self._name_typed)
        keep.clicked.connect(self._named)
        leave.clicked.connect(self._leave_name)
        self._leave_name()

    def _build_menu(self) -> QToolButton:
        self.menu_button = QToolButton()
        self.menu_button.setText("⋯")
        self.menu_button.setToolTip(self.tr("Save, rename, delete, import and export presets"))
        self.menu_button.setAccessibleName(self.tr("Presets: more"))
        self.menu_button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        menu = QMenu(self.menu_button)
        menu.aboutToShow.connect(self.leave_note)
        self.save_action = self._act(menu, self.tr("Save these settings as a preset…"), "Ins", self.ask_name)
        self.rename_action = self._act(menu, self.tr("Rename…"), "Shift+F2", self.ask_new_name)
        self.delete_action = self._act(menu, self.tr("Delete"), "Del", self.delete)
        menu.addSeparator()
        self.undo_action = self._act(menu, self.tr("Undo"), "", self.undo_requested)
        menu.addSeparator()
        self.import_action = self._act(menu, self.tr("Import from a file…"), "", self.import_requested)
        self.export_action = self._act(menu, self.tr("Export my presets…"), "", self.export_requested)
        self.menu_button.setMenu(menu)
        self.set_undo("")
        return self.menu_button

    def _act(self, menu: QMenu, text: str, key: str, slot) -> QAction:
        action = menu.addAction(text)
        if key:
            action.setShortcut(QKeySequence(key))
            action.setShortcutContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
            self.addAction(action)
        action.triggered.connect(slot)
        return action

    # ---------------------------------------------------------------- what is shown

    def set_presets(self, presets: tuple[Preset, ...]) -> None:
        """The presets to choose from: the model's own first, then ours, then the person's."""
        self._presets = presets
        if self._chosen is not None:
            self._chosen = next(
                (p for p in presets if (p.name, p.source) == (self._chosen.name, self._chosen.source)), None
            )
        self._fill()
        self._show()

    def choose(self, preset: Preset | None) -> None:
        """Takes this one as the one that was chosen; says nothing."""
        self._chosen = preset
        self._show()

    def show_settings(self, settings: SamplingSettings) -> None:
        """What the sliders stand at now."""
        if settings != self._settings:
            self._settings = settings
            self._show()

    @property
    def presets(self) -> tuple[Preset, ...]:
        return self._presets

    @property
    def current(self) -> Preset | None:
        """The preset that was chosen, whether or not the settings are still its own."""
        return self._chosen

    def is_changed(self) -> bool:
        return self._chosen is not None and not self._chosen.fits(self._settings)

    def tell(self, text: str, undo: bool = False) -> None:
        """A sentence below the list, with a button that undoes what it tells of. "" for none."""
        self.note.setText(text)
        self.note.setVisible(bool(text))
        self.undo_button.setVisible(bool(text) and undo)

    @Slot()
    def leave_note(self) -> None:
        """Something else is done: what was told of the last thing goes."""
        self.tell("")

    def set_undo(self, what: str) -> None:
        """What Undo would take back, in words; "" where there is nothing."""
        if not self.keeping:
            return
        self.undo_action.setEnabled(bool(what))
        self.undo_action.setText(self.tr("Undo: {what}").format(what=what) if what else self.tr("Undo"))

    def _fill(self) -> None:
        self.list.clear()
        source = ""
        for preset in self._presets:
            if source and source != preset.source:
                self.list.insertSeparator(self.list.count())
            source = preset.source
            self.list.addItem(preset_name(preset), preset)
            at = self.list.count() - 1
            self.list.setItemData(at, plain_tooltip(preset_words(preset)), Qt.ItemDataRole.ToolTipRole)

    def _show(self) -> None:
        fitting = self._chosen if self._chosen is not None and self._chosen.fits(self._settings) else None
        fitting = fitting or next((preset for preset in self._presets if preset.fits(self._settings)), None)
        self._chosen = fitting or self._chosen
        none = self._place(None)
        if self._chosen is None and none < 0:
            self.list.insertItem(0, self.tr("none"), None)
        elif self._chosen is not None and none >= 0:
            self.list.removeItem(none)
        self.list.setCurrentIndex(max(0, self._place(self._chosen)))
        changed = self.is_changed()
        self.changed_label.setVisible(changed)
        self.label.setVisible(not changed)  # a narrow panel has no room for both; the list says its name
        words = preset_words(self._chosen) if self._chosen else self.tr("These settings are no preset.")
        self.list.setToolTip(plain_tooltip(words))
        self.list.setAccessibleDescription(f"{self.tr('changed')}. {words}" if changed else words)
        if self.keeping:
            own = self._chosen is not None and self._chosen.source == "own"
            self.rename_action.setEnabled(own)
            self.delete_action.setEnabled(own)
            self.export_action.setEnabled(any(preset.source == "own" for preset in self._presets))

    def _place(self, preset: Preset | None) -> int:
        """Its place in the list, -1 where it is not in it. A preset has no equal by name and source."""
        for at in range(self.list.count()):
            found = self.list.itemData(at)
            if preset is None:
                if found is None and self.list.itemText(at):  # a separator has no text
                    return at
            elif isinstance(found, Preset) and (found.name, found.source) == (preset.name, preset.source):
                return at
        return -1

    def _activated(self, at: int) -> None:
        preset = self.list.itemData(at)
        if isinstance(preset, Preset):
            self.tell("")
            self._leave_name()
            self._chosen = preset
            self.chosen.emit(preset)
            self._show()

    # ---------------------------------------------------------------- a name

    def ask_name(self) -> None:
        """Opens the line for a new preset's name."""
        self._open_name(None, self._chosen.name if self._chosen and self._chosen.source == "own" else "")
        self.name_line.setPlaceholderText(self.tr("a name, Enter"))
        self.with_seed.setChecked(bool(self._chosen and self._chosen.source == "own" and self._chosen.with_seed))
        self.with_seed.show()

    def ask_new_name(self) -> None:
        if self._chosen is not None and self._chosen.source == "own":
            self._open_name(self._chosen, self._chosen.name)

    def _open_name(self, renaming: Preset | None, name: str) -> None:
        self.tell("")
        self._renaming = renaming
        self._name_typed()
        self.name_line.setText(name)
        self.name_line.selectAll()
        self.with_seed.hide()
        self.name_row.show()
        self.name_line.setFocus()

    def _leave_name(self) -> None:
        had_focus = self.name_line.hasFocus()
        self._renaming = None
        self.name_row.hide()
        self.with_seed.hide()
        self.name_problem.hide()
        if had_focus:
            self.list.setFocus()

    def _name_typed(self) -> None:
        self.name_problem.hide()

    def _named(self) -> None:
        """Hands the name over; whoever owns the presets answers with `refuse_name` or `accept_name`."""
        if self._renaming is not None:
            self.rename_requested.emit(self._renaming, self.name_line.text())
        else:
            self.save_requested.emit(self.name_line.text(), self.with_seed.isChecked())

    def refuse_name(self, sentence: str) -> None:
        self.name_problem.setText(sentence)
        self.name_problem.show()
        self.name_line.setFocus()

    def accept_name(self) -> None:
        self._leave_name()

    def delete(self) -> None:
        if self._chosen is not None and self._chosen.source == "own":
            self.delete_requested.emit(self._chosen)
