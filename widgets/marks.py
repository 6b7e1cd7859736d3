"""Bookmarks and notes of the run that is shown: setting, renaming, deleting, going from one to the next, and undo."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QCoreApplication, QObject, Signal, Slot

from engine.events import Mark
from widgets.format import count_text
from widgets.run_store import Run, RunStore

KEPT = 200  # acts that can be undone


class Marks(QObject):
    """Changes go into the store and out as `written`; whoever hears that keeps them with the replay."""

    written = Signal(object)  # Mark
    edit_asked = Signal(object)  # (what, step): its words are to be written now
    undo_changed = Signal()

    def __init__(self, store: RunStore, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.store = store
        self._done: list[tuple[Mark, Mark]] = []  # before, after
        self._undone: list[tuple[Mark, Mark]] = []

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
            self._done.append((before, after))
            del self._done[:-KEPT]
            self._undone.clear()
            self._apply(after)

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

    # -- undo

    @property
    def can_undo(self) -> bool:
        return bool(self._done)

    @property
    def can_redo(self) -> bool:
        return bool(self._undone)

    @Slot()
    def undo(self) -> None:
        if self._done:
            self._undone.append(self._done.pop())
            self._back_to(self._undone[-1][0])

    @Slot()
    def redo(self) -> None:
        if self._undone:
            self._done.append(self._undone.pop())
            self._back_to(self._done[-1][1])

    @Slot()
    def forget(self) -> None:
        """Other runs take the place of these: there is nothing to undo in them."""
        self._done.clear()
        self._undone.clear()
        self.undo_changed.emit()

    def _back_to(self, mark: Mark) -> None:
        """The place is shown, so that a person sees what was undone."""
        run = self.store.run((mark.run_id, mark.lane))
        if run is not None and run is not self.store.current:
            self.store.show(run)
        if run is not None and mark.step is not None:
            self.store.select(mark.step)
        self._apply(mark)

    def _apply(self, mark: Mark) -> None:
        self.store.take(mark)
        self.written.emit(mark)
        self.undo_changed.emit()


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


def moved(mark: Mark, run_id: int) -> Mark:
    """The mark of the same run under another number."""
    return replace(mark, run_id=run_id)


def _tr(text: str) -> str:
    return QCoreApplication.translate("Marks", text)
