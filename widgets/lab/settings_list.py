"""Two or more sampling settings beside one another, each with its letter: for pages that compare settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from PySide6.QtCore import Qt, QTimer, Signal, Slot
from PySide6.QtGui import QAction, QKeySequence, QResizeEvent, QShortcut
from PySide6.QtWidgets import QFrame, QGridLayout, QHBoxLayout, QMenu, QPushButton, QToolButton, QVBoxLayout, QWidget

from engine.errors import SettingsRefused
from engine.events import TokenNames
from engine.settings import RANGES, SamplingSettings
from widgets import theme
from widgets.fields import NumberField, QuietLine
from widgets.format import plain_tooltip
from widgets.history import History
from widgets.lab.figure_words import setting_name
from widgets.lab.lane_column import LetterChip
from widgets.meanings import Meanings, said_of
from widgets.panel import ElidedLabel
from widgets.run_store import RunStore
from widgets.small import SmallText

LETTERS = "ABCDEFGH"
STEPS = {"temperature": 0.05, "top_k": 1, "no_repeat_ngram_size": 1}
COLUMNS = (3, 2, 1)  # in which a card's fields may stand
BETWEEN = 6  # pixels


@dataclass(frozen=True, slots=True)
class Named:
    """Settings and what the person calls them. tokens: whose the token ids are that they name, where that is known."""

    settings: SamplingSettings
    name: str = ""
    tokens: TokenNames | None = None


def from_dicts(values: Any) -> tuple[Named, ...]:
    """From what JSON kept of them; () where that makes no sense."""
    try:
        return tuple(
            Named(
                SamplingSettings.from_dict(dict(each["settings"])),
                str(each["name"]),
                TokenNames.from_dict(each.get("tokens")),
            )
            for each in values
        )
    except (KeyError, TypeError, ValueError, SettingsRefused):
        return ()


def as_dicts(cards: Sequence[Named]) -> list[dict[str, Any]]:
    """As JSON keeps them: with whose tokens they name, as presets have it."""
    listed: list[dict[str, Any]] = []
    for card in cards:
        listed.append({"name": card.name, "settings": card.settings.as_dict()})
        if card.tokens is not None and card.settings.names_tokens:
            listed[-1]["tokens"] = card.tokens.as_dict()
    return listed


class SettingsCard(QFrame):
    """One setting. What it cannot show (seed, biases and whose tokens they are) is kept as it came."""

    changed = Signal()
    copy_requested = Signal(object)  # the place of another card, or of a source behind them
    removed = Signal()

    def __init__(self, letter: int, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.letter = letter
        self._named = Named(SamplingSettings())
        self.chip = LetterChip()
        self.chip.show_letter(LETTERS[letter], letter)
        self.name_field = QuietLine()
        self.name_field.setPlaceholderText(self.tr("name it"))
        self.name_field.setToolTip(self.tr("What this setting is called where the results stand; click to write"))
        self.name_field.setAccessibleName(self.tr("Name of setting {letter}").format(letter=LETTERS[letter]))
        self.name_field.setMaxLength(40)
        self.name_field.setProperty("quiet", True)
        self.name_field.editingFinished.connect(self._renamed)
        self.more = QToolButton()
        self.more.setText("⋯")
        self.more.setToolTip(self.tr("Take over other settings, or remove this one"))
        self.more.setAccessibleName(self.more.toolTip())
        self.more.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.menu = QMenu(self.more)
        self.menu.triggered.connect(self._act)
        self.more.setMenu(self.menu)
        top = QHBoxLayout()
        top.setSpacing(6)
        for part, stretch in ((self.chip, 0), (self.name_field, 1), (self.more, 0)):
            top.addWidget(part, stretch)
        self.grid = QGridLayout()
        self.grid.setHorizontalSpacing(BETWEEN)
        self.grid.setVerticalSpacing(0)
        self.fields: dict[str, NumberField] = {}
        self._labels: dict[str, ElidedLabel] = {}
        for name, allowed in RANGES.items():
            field = NumberField(allowed, allowed.off, step=STEPS.get(name, 0.01), off_word=name != "temperature")
            field.setFixedWidth(theme.base_px() * 4)
            words = f"{LETTERS[letter]}: {setting_name(name)}"
            field.setAccessibleName(words)
            label = ElidedLabel(setting_name(name), "muted")
            label.setToolTip(setting_name(name))
            field.value_changed.connect(self._edited)
            self.fields[name], self._labels[name] = field, label
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        column.addLayout(top)
        column.addLayout(self.grid)
        for field in self.fields.values():
            column.addWidget(field.problem_label)
        self._columns = 0
        self._place()

    def named(self) -> Named:
        return self._named

    def name_tokens(self, tokens: TokenNames | None) -> None:
        """It became known what the tokens of the settings are called."""
        self._named = replace(self._named, tokens=tokens)

    def show_named(self, named: Named) -> None:
        """Shows settings; says nothing."""
        self._named = named
        if self.name_field.text() != named.name:
            self.name_field.setText(named.name)
            self.name_field.setCursorPosition(0)  # of a long one the beginning is seen
        self.name_field.setToolTip(plain_tooltip(named.name) if named.name else "")
        for name, field in self.fields.items():
            field.set_value(getattr(named.settings, name))
            off = getattr(named.settings, name) == RANGES[name].off and name != "temperature"
            self._labels[name].setEnabled(not off)

    def commit(self) -> bool:
        """Takes what is half typed. False where something is refused."""
        self._renamed()
        return all(field.commit() for field in self.fields.values())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._fitting() != self._columns:
            # Not within the layout's own work: it would not hear that the card becomes higher.
            QTimer.singleShot(0, self, self._place)

    def _fitting(self) -> int:
        """In how many columns the settings can stand with their names whole."""
        return next((columns for columns in COLUMNS if self._needed(columns) <= self.width()), COLUMNS[-1])

    def _needed(self, columns: int) -> int:
        """How wide the card must be for that."""
        names = tuple(RANGES)
        rows = -(-len(names) // columns)
        width = (2 * columns - 1) * BETWEEN
        for first in range(0, len(names), rows):
            width += max(self._labels[name].sizeHint().width() for name in names[first : first + rows])
            width += max(self.fields[name].minimumWidth() for name in names[first : first + rows])
        return width

    @Slot()
    def _place(self) -> None:
        """Down the columns, so that the short names stand above one another and the long ones do."""
        columns = self._columns = self._fitting()
        rows = -(-len(RANGES) // columns)
        for at, name in enumerate(RANGES):
            self.grid.addWidget(self._labels[name], at % rows, 3 * (at // rows))
            self.grid.addWidget(self.fields[name], at % rows, 3 * (at // rows) + 1)
        for column in range(len(COLUMNS)):  # a number stands beside its own name, and far from the next one's
            self.grid.setColumnStretch(3 * column + 2, int(column < columns))
        self.updateGeometry()

    def _edited(self) -> None:
        try:
            settings = replace(
                self._named.settings, **{name: field.value() for name, field in self.fields.items()}
            )  # fmt: skip
        except SettingsRefused:
            return  # the field says why
        self.show_named(replace(self._named, settings=settings))
        self.changed.emit()

    def _renamed(self) -> None:
        if (name := self.name_field.text().strip()) != self._named.name:
            self._named = replace(self._named, name=name)
            self.name_field.setToolTip(plain_tooltip(name) if name else "")
            self.changed.emit()

    @Slot(QAction)
    def _act(self, action: QAction) -> None:
        if action.data() == "remove":
            self.removed.emit()
        elif action.data() is not None:
            self.copy_requested.emit(action.data())


class SettingsList(QWidget):
    """`changed` when something else stands there. Undo and redo (Ctrl+Z, Ctrl+Shift+Z) are for the whole list.

    Cards keep the tokens that they name and whose these are. `settings` has them as the loaded model's: taken over by
    their text or left out, which a note says.
    """

    changed = Signal()
    asked = Signal(object)  # WordsQuestion to the loaded model

    def __init__(self, store: RunStore, cards: Sequence[Named], most: int = 2, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.store = store
        self._meanings = Meanings(store, self.asked.emit)
        self.least, self.most = 2, most
        self.sources: tuple[Named, ...] = ()  # what may be taken over: sliders, lanes
        self._history = History(tuple(cards))
        self._cards: list[SettingsCard] = []
        self._grid = QGridLayout()
        self._grid.setHorizontalSpacing(24)
        self._grid.setVerticalSpacing(10)
        self.add_button = QPushButton(self.tr("Add a setting"), self)
        self.add_button.setVisible(most > 2)
        theme.set_icon(self.add_button, "plus")
        self.add_button.clicked.connect(self.add)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        column.addLayout(self._grid)
        self.note = SmallText("", "warning")
        self.note.hide()
        column.addWidget(self.note)
        if most > 2:
            column.addWidget(self.add_button, 0, Qt.AlignmentFlag.AlignLeft)
        for keys, slot in (
            (QKeySequence.StandardKey.Undo, self.undo),
            (QKeySequence("Ctrl+Shift+Z"), self.redo),
        ):
            shortcut = QShortcut(QKeySequence(keys), self)
            shortcut.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
            shortcut.activated.connect(slot)
        self._show(tuple(cards))

    def cards(self) -> tuple[Named, ...]:
        return self._history.value

    def settings(self) -> tuple[SamplingSettings, ...]:
        """What is to be run: other models' tokens are taken over or left out."""
        return tuple(self._meanings.of(card.settings, card.tokens).settings for card in self.cards())

    def refresh(self) -> None:
        """At the store's frames: asks for what is not known of the tokens, and says what became of them."""
        cards = tuple(replace(card, tokens=self._meanings.asked(card.settings, card.tokens)) for card in self.cards())
        for here, card in zip(self._cards, cards, strict=True):
            here.name_tokens(card.tokens)
        self._history.amend(cards)
        found = (self._meanings.of(card.settings, card.tokens) for card in cards)
        said = said_of(zip(LETTERS, found, strict=False))
        if said != self.note.text():
            self.note.setText(said)
            self.note.setVisible(bool(said))

    # ---------------------------------------------------------------- what is done

    def commit(self) -> bool:
        return all(card.commit() for card in self._cards)

    def restore(self, cards: Sequence[Named]) -> None:
        """What was there when the window was last closed; nothing to undo."""
        self._history = History(tuple(cards)[: self.most])
        self._show(self.cards())

    def take(self, cards: Sequence[Named]) -> None:
        """Other settings, as a step that can be undone."""
        if tuple(cards) == self.cards():
            return
        self._history.take(tuple(cards))
        self._show(self.cards())
        self.changed.emit()

    @Slot()
    def undo(self) -> None:
        if self._history.undo():
            self._came_back()

    @Slot()
    def redo(self) -> None:
        if self._history.redo():
            self._came_back()

    def _came_back(self) -> None:
        self._show(self.cards())
        self.changed.emit()

    @Slot()
    def add(self) -> None:
        """One more, as the last one stands: a difference is made by changing it."""
        cards = self.cards()
        if len(cards) < self.most:
            self.take([*cards, replace(cards[-1], name="")])
            self._cards[-1].fields["temperature"].setFocus()

    def _show(self, cards: tuple[Named, ...]) -> None:
        while len(self._cards) > len(cards):
            card = self._cards.pop()
            self._grid.removeWidget(card)
            card.hide()
            card.deleteLater()
        while len(self._cards) < len(cards):
            card = SettingsCard(len(self._cards))
            card.changed.connect(self._edited)
            card.removed.connect(self._removed)
            card.copy_requested.connect(self._copied)
            card.menu.aboutToShow.connect(self._fill_menu)
            self._grid.addWidget(card, len(self._cards) // 2, len(self._cards) % 2)
            self._cards.append(card)
        for card, named in zip(self._cards, cards, strict=True):
            card.show_named(named)
        for column in (0, 1):
            self._grid.setColumnStretch(column, 1)
        self.add_button.setEnabled(len(cards) < self.most)

    @Slot()
    def _edited(self) -> None:
        self.take([card.named() for card in self._cards])

    @Slot()
    def _removed(self) -> None:
        card = self.sender()
        if len(self._cards) > self.least:
            self.take([each.named() for each in self._cards if each is not card])

    @Slot(object)
    def _copied(self, place: object) -> None:
        card = self.sender()
        assert isinstance(place, int)
        every = [*self.cards(), *self.sources]
        self.take([every[place] if each is card else each.named() for each in self._cards])

    @Slot()
    def _fill_menu(self) -> None:
        card = next(each for each in self._cards if each.menu is self.sender())
        card.menu.clear()
        for at, source in enumerate(self.sources, start=len(self._cards)):
            words = self.tr("As {name}").format(name=source.name).replace("&", "&&")
            card.menu.addAction(words).setData(at)
        for at, other in enumerate(self._cards):
            if other is not card:
                card.menu.addAction(self.tr("As {letter}").format(letter=LETTERS[at])).setData(at)
        if self.most > 2:
            card.menu.addSeparator()
            remove = card.menu.addAction(self.tr("Remove"))
            remove.setData("remove")
            remove.setEnabled(len(self._cards) > self.least)
