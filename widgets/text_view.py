"""The panel with the run's text, shaded by surprise."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRect, Signal
from PySide6.QtGui import QAction, QGuiApplication
from PySide6.QtWidgets import QMenu, QToolButton, QWidget

from engine.events import Redecided
from engine.settings import ForkWish
from widgets.panel import Panel
from widgets.redecided_bar import RedecidedBar
from widgets.run_chooser import RunChooser
from widgets.run_store import RunStore
from widgets.text_canvas import STANDARD_STEP, TextCanvas
from widgets.write_here import WriteHere


class TextView(Panel):
    """Shows the current run of a store; hovering and clicking a word goes to the store."""

    as_written_requested = Signal()
    asked = Signal(object)  # a ForkWish

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__("", parent)
        self.set_title(self.tr("Text, shaded by surprise"), self.tr("Text"))
        self.store = store
        self.canvas = TextCanvas(store, self)
        self.setFocusProxy(self.canvas)
        self.show_focus_of(self.canvas)
        self.redecided_bar = RedecidedBar()
        self.redecided_bar.back_requested.connect(self.as_written_requested)
        self.body.addWidget(self.redecided_bar)
        self.body.addWidget(self.canvas, 1)
        self.title_label.setToolTip(
            self.tr(
                "Surprise is −ln of the probability that the model itself gave to the word (raw, before all settings), "
                "in nats; measured.\nNo shade: under 0.1 nats, a word that was nearly certain. Half the full shade: "
                "1.7 nats, about 1 chance in 6.\nFull shade: from about 8 nats, 1 chance in 3,000."
            )
        )
        self.chooser = RunChooser(store, self)
        self.header.addWidget(self.chooser)
        self.fork_button = self.add_button(
            self.tr("Go on another way"), "fork", self.tr("Go on from the selected word another way")
        )
        self.fork_button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.word_menu = QMenu(self)
        self.fork_button.setMenu(self.word_menu)
        self.follow_button = self.add_button(
            self.tr("Follow the newest word"), "follow", self.tr("Follow the newest word (Esc)")
        )
        self.follow_button.clicked.connect(self.follow)
        self.special_button = self.add_button(
            self.tr("Show special tokens"), "eye", self.tr("Show special tokens, such as the end of a turn")
        )
        self.special_button.setCheckable(True)
        self.special_button.toggled.connect(self.canvas.set_show_special)
        self.copy_button = self.add_button(self.tr("Copy"), "copy", self.tr("Copy the text (Ctrl+C)"))
        self.copy_button.clicked.connect(self.copy)
        self.canvas.copy_asked.connect(self.copy)
        self.canvas.menu_asked.connect(self._show_menu)
        self.canvas.write_asked.connect(self.write_here)
        self.write_field = WriteHere(self.canvas)
        self.write_field.written.connect(self._written)
        self.write_field.closed.connect(self.canvas.setFocus)
        self._write_at = self._write_beside = 0  # tokens: where it is written, and at which one the field stands
        self.canvas.words_moved.connect(self._place_field)
        self.canvas.stuck_changed.connect(self._show_state)
        store.frame.connect(self._show_state)
        store.selection_changed.connect(self._show_state)
        self._show_state()

    def show_redecided(self, found: Redecided | None, differs: str = "", how: str = "") -> None:
        """Marks what other settings would have made of the finished text; None: as it was written. differs, how: as in
        RedecidedBar."""
        run = self.store.current
        self.canvas.show_redecided(found)
        self.redecided_bar.show_redecided(found, run.tokens if run is not None else [], differs, how)

    def set_word_acts(self, acts: list[QAction]) -> None:
        """What can be done at a word, for its menu and the header's button."""
        self.word_menu.addActions(acts)

    def write_here(self) -> None:
        """Opens the field in which something else is written at the selected word."""
        run, step = self.store.current, self.store.selected_step
        if run is None or step is None:
            return
        at_end = self.store.following and not run.running
        self._write_at, self._write_beside = step + 1 if at_end else step, step
        self.store.select(step)
        self.write_field.open_at(self._beside(), "" if at_end else run.tokens[step].text)

    def _beside(self) -> QRect:
        """Where the word lies at which the field stands; the text's end where it has no text."""
        place = self.canvas.place_of(self._write_beside)
        area = self.canvas.viewport().rect()
        return place.toRect() if place is not None else QRect(area.left(), area.bottom(), 1, 1)

    def _place_field(self) -> None:
        if self.write_field.isVisible():
            self.write_field.put_at(self._beside())

    def _written(self, text: object) -> None:
        if (run := self.store.current) is not None:
            self.asked.emit(ForkWish(run.place(min(self._write_at, len(run.tokens))), text=str(text)))

    def _show_menu(self, at: QPoint) -> None:
        self.word_menu.popup(at)

    def copy(self) -> None:
        """The record's text to the clipboard, never the widget's (THR-25)."""
        run = self.store.current
        if run is not None and run.length:
            QGuiApplication.clipboard().setText(run.text)

    def follow(self) -> None:
        self.store.select(None)
        self.canvas.follow_end()

    def size_step(self) -> int:
        """How many pixels the text is larger than its standard size."""
        return self.canvas.size_step - STANDARD_STEP

    def set_size_step(self, step: int) -> None:
        self.canvas.zoom(step - self.size_step())

    def larger(self) -> None:
        self.canvas.zoom(1)

    def smaller(self) -> None:
        self.canvas.zoom(-1)

    def set_show_special(self, show: bool) -> None:
        self.special_button.setChecked(show)

    def _show_state(self) -> None:
        run = self.store.current
        self.copy_button.setEnabled(run is not None and run.length > 0)
        self.fork_button.setEnabled(run is not None and bool(run.tokens))
        self.follow_button.setVisible(not self.store.following or not self.canvas.follows_end)
