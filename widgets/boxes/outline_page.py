"""A page that shows a model's outline: from the load, or asked for before one."""

from __future__ import annotations

from PySide6.QtWidgets import QWidget

from engine.events import Outline, OutlineQuestion
from engine.settings import PRECISIONS
from widgets.boxes.page import Page
from widgets.inside import Subject
from widgets.run_store import RunStore


class OutlinePage(Page):
    """Calls `show_outline` when there is another one than before."""

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(store, parent)
        self._shown: Outline | None = None

    def show_outline(self, outline: Outline) -> None:
        raise NotImplementedError

    def refresh(self) -> None:
        """Reads the store; costs nothing when the model is the same."""
        subject = self.store.subject
        found = self._found(subject)
        if isinstance(found, Outline):
            self.subject_bar.show_subject(subject, found.name, found.path)
            self.say("")
            if found != self._shown:
                self._shown = found
                self.show_outline(found)
            return
        self.say_why_not(subject, found)

    def _found(self, subject: Subject) -> object | None:
        """The outline, or why there is none; None where it is still to come."""
        inside = self.store.inside
        if subject.state in ("none", "loading"):
            return inside.loading
        if subject.state == "loaded" and subject.model in inside.outlines:
            return inside.outlines[subject.model]
        precision = subject.precision if subject.precision in PRECISIONS else None
        return self.answer_to(OutlineQuestion(subject.model, precision))
