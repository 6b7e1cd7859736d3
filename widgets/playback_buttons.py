"""The buttons in the timeline's header: play, its speed, bookmark, note."""

from __future__ import annotations

from PySide6.QtCore import Slot
from PySide6.QtGui import QAction, QActionGroup
from PySide6.QtWidgets import QHBoxLayout, QMenu, QToolButton, QWidget

from widgets import theme
from widgets.format import locale
from widgets.marks import Marks
from widgets.panel import icon_button
from widgets.playback import SPEEDS, Player, Speed


class PlaybackButtons(QWidget):
    """What is enabled follows the store."""

    def __init__(self, player: Player, marks: Marks, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.player, self.marks = player, marks
        self.play_button = icon_button("run", self.tr("Play back"))
        self.speed_button = QToolButton()
        self.speed_button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.bookmark_button = icon_button("bookmark", self.tr("Bookmark"))
        self.note_button = icon_button("note", self.tr("Note"))
        self.speed_menu = QMenu(self)
        self.speeds = QActionGroup(self)
        self._fill_speeds()
        self.speed_button.setMenu(self.speed_menu)
        row = QHBoxLayout(self)
        row.setContentsMargins(4, 0, 0, 0)
        row.setSpacing(2)
        for button in (self.play_button, self.speed_button, self.bookmark_button, self.note_button):
            row.addWidget(button)
        self.play_button.clicked.connect(player.toggle)
        self.bookmark_button.clicked.connect(marks.toggle_bookmark)
        self.note_button.clicked.connect(marks.write_note)
        self.bookmark_button.setCheckable(True)
        self.speeds.triggered.connect(self._choose)
        player.changed.connect(self.refresh)
        for news in (marks.store.frame, marks.store.selection_changed, marks.store.marks_changed):
            news.connect(self.refresh)
        self.refresh()

    def _fill_speeds(self) -> None:
        for speed in SPEEDS:
            if speed == next(each for each in SPEEDS if each.per_second):
                self.speed_menu.addSeparator()
            action = self.speed_menu.addAction(self._long(speed))
            action.setCheckable(True)
            action.setData(SPEEDS.index(speed))
            self.speeds.addAction(action)

    def _short(self, speed: Speed) -> str:
        if speed.per_second:
            return self.tr("{rate} / s").format(rate=figure(speed.per_second))
        return f"{figure(speed.times)}×"

    def _long(self, speed: Speed) -> str:
        if speed.per_second:
            return self.tr("{rate} tokens a second").format(rate=figure(speed.per_second))
        if speed.times == 1.0:
            return self.tr("as it was written, 1×")
        return f"{figure(speed.times)}×"

    @Slot()
    def refresh(self) -> None:
        """Reads the store and the player."""
        player, store = self.player, self.marks.store
        step = store.selected_step
        icon = "pause" if player.playing else "run"
        if self.play_button.property("theme_icon") != icon:
            theme.set_icon(self.play_button, icon)
        words = self.tr("Pause (F8)") if player.playing else self.tr("Play this run back (F8)")
        why = "" if player.can_play else "\n" + self.tr("There is no text to play yet.")
        self._tell(self.play_button, player.can_play, words + why)
        self.speed_button.setText(self._short(player.speed))
        self._tell(
            self.speed_button,
            True,
            self.tr(
                "How fast it is played: {speed}. Slower F7, faster F9.\n1× waits after each token as long as the next "
                "one took, measured: forward pass, sampling and text. Pauses and a slower pace are not in it."
            ).format(speed=self._long(player.speed)),
        )
        for action in self.speeds.actions():
            action.setChecked(SPEEDS[action.data()] == player.speed)
        marked = step is not None and self.marks.at("bookmark", step) is not None
        self.bookmark_button.setChecked(marked)
        take_away, set_one = self.tr("Take the bookmark away"), self.tr("Bookmark this word")
        self._tell(self.bookmark_button, step is not None, f"{take_away if marked else set_one} (Ctrl+Shift+B)")
        self._tell(self.note_button, step is not None, self.tr("Write a note on this word (Ctrl+J)"))

    @staticmethod
    def _tell(button: QToolButton, enabled: bool, tip: str) -> None:
        button.setEnabled(enabled)
        if button.toolTip() != tip:
            button.setToolTip(tip)
            button.setAccessibleDescription(tip)

    @Slot(QAction)
    def _choose(self, action: QAction) -> None:
        self.player.set_speed(SPEEDS[action.data()])


def figure(value: float) -> str:
    """0.25, 1, 16: as few digits as it needs."""
    return locale().toString(value, "g", 3)
