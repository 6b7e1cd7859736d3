"""Asks a person before a model's own code runs or pickle files are read, and remembers a yes by the files' hashes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Slot

from engine.events import EngineError, TrustQuestion
from engine.settings import LoadPlan
from widgets.trust_dialog import TrustDialog

if TYPE_CHECKING:
    from app.main_window import MainWindow

MOST_REMEMBERED = 200


class Trust(QObject):
    """Hears of every load that needs an answer; a yes loads again with it."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        self.dialog: TrustDialog | None = None

    @Slot(object)
    def take(self, event: object) -> None:
        if not isinstance(event, TrustQuestion):
            return
        if event.kind == "code" and event.digest in self._window.preferences.trusted_code:
            self._window.load(allowed(event))
            return
        if isinstance(event.error, EngineError):  # stands there until the answer, and after a no
            self._window.store.take(event.error)  # the model panel shows it
            self._window.show_model_panel()
        if self.dialog is not None:
            self.dialog.reject()
        self.dialog = TrustDialog(event, self._window)
        self.dialog.accepted.connect(self._allowed)
        self.dialog.finished.connect(self._answered)
        self.dialog.open()

    @Slot()
    def _allowed(self) -> None:
        assert self.dialog is not None
        question = self.dialog.question
        if question.kind == "code":
            known = self._window.preferences.trusted_code
            known.append(question.digest)
            del known[:-MOST_REMEMBERED]
        self._window.load(allowed(question))

    @Slot()
    def _answered(self) -> None:
        self.dialog = None


def allowed(question: TrustQuestion) -> LoadPlan:
    """The plan that was asked for, with the person's yes in it."""
    plan = question.plan
    assert isinstance(plan, LoadPlan)
    if question.kind == "code":
        return replace(plan, trust_remote_code=True, code_digest=question.digest)
    if question.kind == "tie":
        return replace(plan, tie_lm_head=True)
    return replace(plan, allow_pickle=True)
