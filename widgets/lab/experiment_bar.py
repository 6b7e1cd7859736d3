"""Start, cancel and progress of an experiment: the same row on each of its pages."""

from __future__ import annotations

from PySide6.QtCore import QSize, Signal
from PySide6.QtWidgets import QHBoxLayout, QProgressBar, QPushButton, QVBoxLayout, QWidget

from engine.events import ExperimentProgress
from widgets import theme
from widgets.format import count_text, duration_text, number_text, percent_text
from widgets.run_store import BUSY, RunStore
from widgets.small import SmallLabel, SmallText

STEPS = 1000


class ExperimentBar(QWidget):
    """One primary button, Cancel while the page's own question is worked on, a bar and a sentence, an error."""

    started = Signal()
    stopped = Signal()

    def __init__(self, store: RunStore, words: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.store = store
        self.asked = False  # pressed, and nothing heard yet
        self.start = QPushButton(words)
        self.start.setProperty("primary", True)
        theme.set_icon(self.start, "run")
        self.start.setIconSize(QSize(16, 16))
        self.cancel = QPushButton(self.tr("Cancel"))
        self.cancel.setToolTip(self.tr("Ends it within one token (Ctrl+.)"))
        self.bar = QProgressBar()
        self.bar.setTextVisible(False)
        self.bar.setAccessibleName(self.tr("Progress"))
        self.bar.setRange(0, STEPS)
        self.words = SmallLabel("", "")
        self.error = SmallText("", "warning")
        self.row = QHBoxLayout()
        self.row.setSpacing(8)
        self.row.addWidget(self.start)
        self.row.addWidget(self.cancel)
        self.row.addStretch(1)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(6)
        column.addLayout(self.row)
        for part in (self.bar, self.words, self.error):
            column.addWidget(part)
        self.start.clicked.connect(self.started)
        self.cancel.clicked.connect(self.stopped)
        self.show_error("")
        self.refresh(None, "")

    def show_error(self, text: str) -> None:
        self.error.setText(text)
        self.error.setVisible(bool(text))

    @property
    def ready(self) -> bool:
        """Whether it can be started; where not, the reason stands there."""
        if self.working:
            return False
        if not self.start.isEnabled():
            self.show_error(self.start.toolTip())
            return False
        self.show_error("")
        return True

    def refresh(self, kind: type | None, problem: str, able: bool = True) -> None:
        """kind: the class of the page's question. problem: why it cannot be asked now, beyond a busy engine."""
        progress = self.store.experiment
        working = self.store.activity == "experiment"
        mine = working and self.asked and (progress is None or isinstance(progress.question, kind or object))
        if not working:
            self.asked = self.asked and self.store.activity not in (*BUSY, "idle")
        busy = self.store.activity in BUSY
        no_model = self.store.facts is None
        self.cancel.setVisible(mine)
        self.start.setVisible(not mine)
        self.start.setEnabled(able and not busy and not no_model and not problem)
        tip = ""
        if self.store.activity == "loading":
            tip = self.tr("The model is still loading: wait until it is there.")
        elif no_model:
            tip = self.tr("No model is loaded: choose one first (Ctrl+L).")
        elif busy:
            tip = self.tr("The engine is at work: wait for its end, or stop it.")
        elif problem:
            tip = problem
        if self.start.isEnabled() and self.error.text() == self.start.toolTip():
            self.show_error("")  # what stood in the way is gone
        self.start.setToolTip(tip or self.tr("Runs it with the loaded model"))
        for part in (self.bar, self.words):
            part.setVisible(mine)
        if mine:
            self._show(progress)

    def _show(self, progress: ExperimentProgress | None) -> None:
        if progress is None or not progress.total:
            self.bar.setRange(0, 0)
            self.words.setText(self.tr("reading the prompt…"))
            return
        self.bar.setRange(0, STEPS)
        self.bar.setValue(progress.done * STEPS // progress.total)
        parts = [
            self.tr("{share} done").format(share=percent_text(progress.done / progress.total, 0)),
            self.tr("{done} of {all} runs ended").format(
                done=count_text(progress.runs_done), all=count_text(progress.runs)
            ),
        ]
        if progress.tokens_per_s:
            parts.append(self.tr("{rate} tok/s, all lanes together").format(rate=number_text(progress.tokens_per_s)))
        if progress.remaining_s is not None:
            parts.append(self.tr("about {time} left").format(time=duration_text(progress.remaining_s * 1e3)))
        self.words.setText(" · ".join(parts))
        self.bar.setAccessibleDescription(self.words.text())

    @property
    def working(self) -> bool:
        """Whether the page's own question is worked on."""
        return self.cancel.isVisibleTo(self)
