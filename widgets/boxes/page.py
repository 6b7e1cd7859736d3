"""What the pages of loading share: whose model it is, asking the engine, and words for what is not there."""

from __future__ import annotations

from pathlib import PurePath

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QToolButton, QVBoxLayout, QWidget

from engine.events import EngineError
from widgets import theme
from widgets.banner import sentence_of
from widgets.format import duration_text, plain_tooltip
from widgets.inside import Subject
from widgets.panel import ElidedLabel
from widgets.run_store import BUSY, RunStore
from widgets.small import SmallLabel, SmallText


class Page(QWidget):
    """A page about one model. Content goes into `body`, which is hidden while `message` says why there is none."""

    asked = Signal(object)  # a question of engine/inside.py
    stage = ""  # of LOAD_STAGES: its measured time stands beside the model's name

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.store = store
        self.setProperty("plain", True)
        self.subject_bar = SubjectBar(store, self.stage, self)
        self.message = SmallText()
        self.message.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.body = QWidget()
        self.body.setProperty("plain", True)
        self.column = QVBoxLayout(self.body)
        self.column.setContentsMargins(0, 0, 0, 0)
        self.column.setSpacing(6)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 4, 0, 0)
        column.setSpacing(8)
        column.addWidget(self.subject_bar)
        column.addWidget(self.message)
        column.addWidget(self.body, 1)
        column.addStretch(0)

    def answer_to(self, question: object) -> object | None:
        """The engine's answer, None where it is still to come. It is asked for once, and while nothing else goes on."""
        inside = self.store.inside
        found = inside.answers.get(question)
        if found is None and question not in inside.pending and self.store.activity not in BUSY:
            inside.pending.add(question)
            self.asked.emit(question)
        return found

    def say(self, text: str, warning: bool = False) -> None:
        """Words in place of the content; "" shows the content."""
        if self.message.text() != text or self.message.isVisibleTo(self) != bool(text):
            self.message.setText(text)
            set_role(self.message, "warning" if warning else "muted")
        self.message.setVisible(bool(text))
        self.body.setVisible(not text)

    def say_waiting(self) -> None:
        """Why nothing stands here yet, and when it will."""
        if self.store.activity == "loading":
            self.say(self.tr("A model is being loaded: this stands here as soon as its blueprint has been read."))
        elif self.store.activity in BUSY:
            self.say(self.tr("The engine is at work: this is read from the files once it is free."))
        else:
            self.say(self.tr("reading…"))

    def say_nothing(self) -> None:
        if self.store.activity in ("loading", "x-ray"):
            self.say_waiting()
            return
        self.say(self.tr("No model is chosen. Choose one (Ctrl+L): this stands here before it is loaded."))

    def say_why_not(self, subject: Subject, found: object | None) -> None:
        """Words in place of an answer that is not there: no model, an error, or still to come."""
        self.subject_bar.show_subject(subject)
        if subject.state == "none":
            self.say_nothing()
        elif isinstance(found, EngineError):
            self.say_error(found)
        else:
            self.say_waiting()

    def say_error(self, error: EngineError) -> None:
        self.say(sentence_of(error), warning=True)


class SubjectBar(QWidget):
    """Which model a page is about; where another was chosen than is loaded, a button goes to the other."""

    def __init__(self, store: RunStore, stage: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._store, self._stage = store, stage
        self.name = ElidedLabel("", "value")
        self.name.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.state = SmallLabel()
        self.state.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Preferred)
        self.other = QToolButton()
        self.other.clicked.connect(self._switch)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(6)
        row.addWidget(self.name, 1)
        row.addWidget(self.state)
        row.addWidget(self.other)

    def show_subject(self, subject: Subject, name: str = "", path: str = "") -> None:
        """name, path: as the answer tells them; before that what was asked for."""
        words = {
            "loading": self.tr("is being loaded"),
            "loaded": self.tr("loaded"),
            "recorded": self.tr("of the shown run"),
            "chosen": self.tr("chosen, not loaded"),
        }
        self.setVisible(subject.state in words)
        self.name.setText(name or PurePath(subject.model).name or subject.model)
        self.name.setToolTip(plain_tooltip(path or subject.model))
        store = self._store
        text, facts = words.get(subject.state, ""), store.loading_facts
        time_ms = dict(facts.stage_ms).get(self._stage) if facts is not None else None
        if subject.state in ("loaded", "recorded") and time_ms is not None:
            text += " · " + duration_text(time_ms)
        self.state.setText(text)
        self.state.setToolTip(self.tr("Time of this stage of the load, measured") if time_ms is not None else "")
        both = store.loading_facts is not None and store.inside.chosen is not None
        self.other.setVisible(both and subject.state == "chosen")
        self.other.setText(self.tr("show loaded"))
        self.other.setToolTip(self.tr("Back to the model that is loaded"))

    @Slot()
    def _switch(self) -> None:
        self._store.inside.at_choice = False
        self._store.mark()


def set_role(label: QWidget, role: str) -> None:
    if label.property("role") != role:
        label.setProperty("role", role)
        label.style().unpolish(label)
        label.style().polish(label)


def copy_button(text: str, tooltip: str, icon_only: bool = False) -> QToolButton:
    """A small button that copies; whoever makes it connects `clicked`."""
    button = QToolButton()
    button.setText(text)
    button.setToolTip(tooltip)
    button.setAccessibleName(tooltip)
    theme.set_icon(button, "copy")
    style = Qt.ToolButtonStyle
    button.setToolButtonStyle(style.ToolButtonIconOnly if icon_only else style.ToolButtonTextBesideIcon)
    return button


def to_clipboard(text: str) -> None:
    QGuiApplication.clipboard().setText(text)
