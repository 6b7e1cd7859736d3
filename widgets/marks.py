"""Bookmarks and notes of the run that is shown: setting, renaming, deleting, going from one to the next, and undo."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication, QObject, Signal, Slot
from PySide6.QtGui import QUndoCommand, QUndoStack

from engine.events import Mark
from widgets.format import count_text
from widgets.run import Run
from widgets.run_store import RunStore


class Marks(QObject):
    """Changes go into the store and out as `written`; whoever hears that keeps them with the replay.

    stack: where they can be undone; the window puts its own there, so that one key undoes whatever came last.
    """

    written = Signal(object)  # Mark
    edit_asked = Signal(object)  # (what, step): its words are to be written now

    def __init__(self, store: RunStore, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.store = store
        self.stack = QUndoStack(self)

    # -- what is here

    def at(self, what: str, step: int | None) -> Mark | None:
        """The mark of the current run at this place."""
        run = self.store.current
        return run.marks.get((what, step)) if run is not None else None

    def number(self, mark: Mark) -> int:
        """A bookmark's number, from 1 in the order of the text."""
        run = self.store.current
        return 1 + run.bookmarks.index(mark) if run is not None else 0

    # -- acts

    @Slot()
    def toggle_bookmark(self) -> None:
        """Sets a bookmark on the selected word, or takes it away."""
        step = self.store.selected_step
        if step is None:
            return
        self.put("bookmark", step, None if self.at("bookmark", step) else "")

    @Slot()
    def rename_bookmark(self) -> None:
        """Asks for the name of the selected word's bookmark; sets one where there is none."""
        step = self.store.selected_step
        if step is not None:
            if self.at("bookmark", step) is None:
                self.put("bookmark", step, "")
            self.edit_asked.emit(("bookmark", step))

    @Slot()
    def write_note(self) -> None:
        """Asks for a note on the selected word."""
        if (step := self.store.selected_step) is not None:
            self.edit_asked.emit(("note", step))

    @Slot()
    def write_run_note(self) -> None:
        """Asks for a note on the run as a whole."""
        if self.store.current is not None:
            self.edit_asked.emit(("note", None))

    def put(self, what: str, step: int | None, text: str | None, run: Run | None = None) -> None:
        """Writes a mark's words; None takes it away, and so does an empty note. run: None for the one that is shown."""
        run = run or self.store.current
        if run is None or self.store.run(run.key) is not run:
            return
        text = None if what == "note" and not (text or "").strip() else text
        there = run.marks.get((what, step))
        gone = Mark(*run.key, what, step, removed=True)
        after = gone if text is None else Mark(*run.key, what, step, " ".join(text.split()))
        before = there or gone
        if after != before:
            self.stack.push(_Marked(self, before, after))

    @Slot()
    def next_bookmark(self) -> None:
        self._go(1)

    @Slot()
    def previous_bookmark(self) -> None:
        self._go(-1)

    def _go(self, direction: int) -> None:
        """To the next bookmark behind or before the selected word; stays at the last one."""
        run, here = self.store.current, self.store.selected_step
        if run is None or here is None:
            return
        steps = [mark.step for mark in run.bookmarks if mark.step is not None and mark.step < len(run.tokens)]
        beyond = [step for step in steps if (step - here) * direction > 0]
        if beyond:
            self.store.rewind(min(beyond) if direction > 0 else max(beyond))

    def apply(self, mark: Mark) -> None:
        """As it is now, done or undone; the run and the place are shown, so that a person sees what came back."""
        run = self.store.run((mark.run_id, mark.lane))
        if run is None:
            return
        if run is not self.store.current:
            self.store.show(run)
        if mark.step is not None and mark.step != self.store.selected_step:
            self.store.select(mark.step)
        self.store.take(mark)
        self.written.emit(mark)


class _Marked(QUndoCommand):
    """A mark that was set, changed or taken away."""

    def __init__(self, marks: Marks, before: Mark, after: Mark) -> None:
        words = _tr("bookmark") if after.what == "bookmark" else _tr("note")
        super().__init__(words)
        self._marks, self._before, self._after = marks, before, after

    def redo(self) -> None:
        self._marks.apply(self._after)

    def undo(self) -> None:
        self._marks.apply(self._before)


def described(run: Run, step: int) -> str:
    """What a person said of a word, for tool tips and screen readers; "" where nothing was said."""
    said = []
    if mark := run.marks.get(("bookmark", step)):
        number = count_text(1 + run.bookmarks.index(mark))
        if mark.text:
            said.append(_tr("Bookmark {number}: {name}").format(number=number, name=mark.text))
        else:
            said.append(_tr("Bookmark {number}").format(number=number))
    if mark := run.marks.get(("note", step)):
        said.append(_tr("Note: {text}").format(text=mark.text))
    return ". ".join(said)


def _tr(text: str) -> str:
    return QCoreApplication.translate("Marks", text)
