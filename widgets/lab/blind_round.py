"""One blind round: the texts in the order of chance under their numbers, and the buttons to vote."""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer, Signal, Slot
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from engine.events import NO_PREFERENCE, BlindRound, BlindTest
from widgets import theme
from widgets.format import count_text
from widgets.panel import Panel
from widgets.small import Verdict

SPELLED = 3  # texts, up to which buttons have room for words
READING = 2  # pixels above the base size
TICK_MS, CHARACTERS = 50, 4  # of the equal pace: 80 characters a second for every text


class BlindRoundView(QWidget):
    """Nothing here depends on a setting but the texts themselves, until `names` are shown."""

    voted = Signal(object)  # a place, or NO_PREFERENCE
    went_on = Signal()
    undone = Signal()
    ended = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._round: BlindRound | None = None
        self._panels: list[Panel] = []
        self._texts: list[QPlainTextEdit] = []
        self._shown = 0
        self._open = self._told = False
        self.prompt = Verdict()  # whoever shows the round places it
        self.prompt.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        texts = QWidget()  # it keeps its room while there are none
        self._grid = QGridLayout(texts)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setSpacing(theme.GAP)
        self._votes = QHBoxLayout()
        self._votes.setSpacing(8)
        self._buttons: list[QPushButton] = []
        self.none = QPushButton(self.tr("No preference (0)"))
        self.none.clicked.connect(self._no_preference)
        self.next = QPushButton(self.tr("Next round"))
        self.next.setProperty("primary", True)
        self.next.setToolTip(self.tr("Return"))
        self.next.clicked.connect(self.went_on)
        self.undo = QPushButton(self.tr("Take the last vote back"))
        self.undo.setToolTip("Ctrl+Z")
        self.undo.clicked.connect(self.undone)
        self.end = QPushButton()
        self.end.clicked.connect(self.ended)
        for part in (self.none, self.next):
            self._votes.addWidget(part)
        self._votes.addStretch(1)
        self._votes.addWidget(self.undo)
        self._votes.addWidget(self.end)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        column.addWidget(texts, 1)
        column.addLayout(self._votes)
        for digit in range(9):
            self._shortcut(str(digit)).activated.connect(self._digit)
        self._shortcut("Ctrl+Z").activated.connect(self._undo)
        self._shortcut("Space").activated.connect(self.show_all)
        for key in ("Return", "Enter"):
            self._shortcut(key).activated.connect(self._return)
        self._timer = QTimer(self)
        self._timer.setInterval(TICK_MS)
        self._timer.timeout.connect(self._tick)

    def _shortcut(self, key: str) -> QShortcut:
        shortcut = QShortcut(QKeySequence(key), self)
        shortcut.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        return shortcut

    # ---------------------------------------------------------------- showing

    def show_round(self, test: BlindTest, shown: BlindRound | None, paced: bool) -> None:
        """A round that waits for its vote; None while its texts are being written."""
        self._timer.stop()
        self._told = False
        self._open = shown is not None
        self._round = shown
        self.prompt.setText("" if shown is None else shown.prompt)
        self._fit(0 if shown is None else len(shown.shown))
        for place in range(len(self._panels)):
            self._panels[place].set_title(str(place + 1))
            self._panels[place].set_remark("")
            assert shown is not None
            self._texts[place].setPlainText("" if paced else shown.text_at(place))
        self._shown = 0
        if paced and shown is not None:
            self._timer.start()
        self._show_buttons(test)
        # Without texts the focus stays here, so that a vote can be taken back while the next ones are written.
        (self._texts[0] if self._texts else self).setFocus()

    def show_names(self, test: BlindTest, shown: BlindRound) -> None:
        """After the vote: which settings wrote what, and what was preferred."""
        self.show_all()
        self._open, self._told = False, True
        for place, settings in enumerate(shown.shown):
            names = ", ".join(test.name(setting) for setting in settings)
            self._panels[place].set_title(f"{place + 1} · {names}", str(place + 1))
            self._panels[place].set_remark(self.tr("preferred") if shown.vote == place else "")
        self._show_buttons(test)
        self.next.setFocus()

    def _show_buttons(self, test: BlindTest) -> None:
        for place, button in enumerate(self._buttons):
            words = self.tr("{number} is better").format(number=place + 1) + f" ({place + 1})"
            button.setText(words if len(self._buttons) <= SPELLED else str(place + 1))
            button.setToolTip(words)
            button.setAccessibleName(words)
            button.setVisible(self._open)
        self.none.setVisible(self._open)
        self.next.setVisible(self._told)
        self.undo.setEnabled(bool(test.voted))
        votes = len(test.voted)
        self.end.setText(self.tr("End, and tell the names") if votes else self.tr("End the test"))
        self.end.setToolTip(
            self.tr("votes: {votes} of {planned}").format(votes=count_text(votes), planned=count_text(test.planned))
        )

    def _fit(self, count: int) -> None:
        """As many panels and buttons as there are texts."""
        while len(self._panels) > count:
            for part in (self._panels.pop(), self._texts.pop(), self._buttons.pop()):
                part.hide()
                part.deleteLater()
        while len(self._panels) < count:
            place = len(self._panels)
            panel, text, button = Panel(str(place + 1)), QPlainTextEdit(), QPushButton()
            text.setReadOnly(True)
            text.setFont(theme.font(READING))
            text.document().setDefaultFont(theme.font(READING))
            text.setProperty("place", place)
            text.setAccessibleName(self.tr("Text {number}").format(number=place + 1))
            panel.body.addWidget(text, 1)
            button.setProperty("place", place)
            button.clicked.connect(self._clicked)
            self._votes.insertWidget(place, button)
            self._panels.append(panel)
            self._texts.append(text)
            self._buttons.append(button)
        across = 4 if count > 4 else max(1, count)
        for place, panel in enumerate(self._panels):
            self._grid.addWidget(panel, place // across, place % across)
        for column in range(4):
            self._grid.setColumnStretch(column, 1 if column < across else 0)

    # ---------------------------------------------------------------- pace

    @Slot()
    def _tick(self) -> None:
        """Every text gets as many characters more."""
        assert self._round is not None
        self._shown += CHARACTERS
        longest = 0
        for place, edit in enumerate(self._texts):
            text = self._round.text_at(place)
            longest = max(longest, len(text))
            edit.setPlainText(text[: self._shown])
        if self._shown >= longest:
            self._timer.stop()

    @Slot()
    def show_all(self) -> None:
        """Ends the pace: the texts stand there whole."""
        if self._timer.isActive() and self._round is not None:
            self._timer.stop()
            for place, edit in enumerate(self._texts):
                edit.setPlainText(self._round.text_at(place))

    # ---------------------------------------------------------------- hands

    @Slot()
    def _digit(self) -> None:
        shortcut = self.sender()
        assert isinstance(shortcut, QShortcut)
        self.vote(int(shortcut.key().toString()) - 1)

    @Slot()
    def _clicked(self) -> None:
        self.vote(int(self.sender().property("place")))

    @Slot()
    def _no_preference(self) -> None:
        self.vote(NO_PREFERENCE)

    def vote(self, place: int) -> None:
        """Votes where a round is open; NO_PREFERENCE is -1, as is the key 0 less one."""
        if self._open and NO_PREFERENCE <= place < len(self._panels):
            self._open = False
            self.voted.emit(place)

    @Slot()
    def _return(self) -> None:
        if self._told:
            self.went_on.emit()

    @Slot()
    def _undo(self) -> None:
        if self.undo.isEnabled():
            self.undone.emit()
