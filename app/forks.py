"""Forks in the window: a wish becomes a request, the runs before it go into its file, and all of it can be undone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, Slot
from PySide6.QtGui import QUndoCommand, QUndoStack
from PySide6.QtWidgets import QWidget

from app.laboratory import TEXT
from engine.errors import SettingsRefused
from engine.events import EngineError, Event, Mark, RunStart
from engine.lineage import descendants, story
from engine.settings import CompareWish, ForkWish, LoadPlan, Parent, PruneWish, RenameWish, Request

if TYPE_CHECKING:
    from app.main_window import MainWindow
    from widgets.run import Run
    from widgets.run_store import RunStore

Key = tuple[int, int]
ENDED_BY_ITSELF = ("eos", "stop string")
PAGES_OF_IT = (TEXT, "forks")  # on which a fork is seen as it is written


class _TakenOut:
    """Runs that were taken out of what is shown."""

    def __init__(self, store: RunStore, keys: list[Key]) -> None:
        self._store, self._before = store, (store.compared, store.letters, store.reference)
        self._taken = store.take_out(keys)
        self._after = store.compared

    def put_back(self) -> None:
        """What stood side by side does so again, unless others were compared meanwhile."""
        self._store.put_back(self._taken)
        if self._store.compared == self._after:
            self._store.put_beside(*self._before)


class _Pruned(QUndoCommand):
    """Runs that are taken out of what is shown. Their files stay."""

    def __init__(self, store: RunStore, keys: list[Key], words: str) -> None:
        super().__init__(words)
        self._store, self._keys = store, keys

    def redo(self) -> None:
        self._shown = self._store.current
        self._taken = _TakenOut(self._store, self._keys)

    def undo(self) -> None:
        """What was shown is shown again."""
        self._taken.put_back()
        if self._shown is not None:
            self._store.show(self._shown)


class _Forked(QUndoCommand):
    """A fork that was made: undone, it is taken out with all that began in it. Made already when it is pushed."""

    def __init__(self, forks: Forks, key: Key, words: str) -> None:
        super().__init__(words)
        self._forks, self._key = forks, key
        self._taken: _TakenOut | None = None

    def redo(self) -> None:
        self._forks.unwanted = [each for each in self._forks.unwanted if each is not self]
        if self._taken is not None:
            self._taken.put_back()
            self._taken = None

    def undo(self) -> None:
        """Where it, or what began in it, is still being written, that is stopped first, and all goes at its end."""
        engine, keys = self._forks.window.engine, self._keys()
        if engine.busy == "run" and any(engine.runs == run_id for run_id, _ in keys):
            self._forks.unwanted.append(self)
            engine.stop()
        else:
            self.take_out()

    def take_out(self) -> None:
        self._taken = _TakenOut(self._forks.window.store, self._keys())

    def _keys(self) -> list[Key]:
        return descendants(self._key, [run.start for run in self._forks.window.store.runs])


class _Renamed(QUndoCommand):
    """Another name of a run, also in its file: a line behind what was recorded."""

    def __init__(self, window: MainWindow, run: Run, name: str, words: str) -> None:
        super().__init__(words)
        self._window, self._key, self._after, self._before = window, run.key, name, run.start.name

    def redo(self) -> None:
        self._name(self._after)

    def undo(self) -> None:
        self._name(self._before)

    def _name(self, name: str) -> None:
        mark = Mark(*self._key, "name", None, name, removed=not name)
        self._window.store.take(mark)
        self._window.replays.keep(mark)


class Forks(QObject):
    """Owns the undo stack of the runs. `undo_action` and `redo_action` go into the menu."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self.window = window
        self.stack = QUndoStack(self)
        self.undo_action = self.stack.createUndoAction(self, self.tr("Undo"))
        self.redo_action = self.stack.createRedoAction(self, self.tr("Redo"))
        for action, key in ((self.undo_action, "Ctrl+Z"), (self.redo_action, "Ctrl+Shift+Z")):
            action.setShortcut(key)
            # Panels and fields have an undo of their own under the same keys.
            action.setShortcutContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        self._missing = ""  # the model that wrote what was to be forked
        self._waits: ForkWish | None = None  # until the run that goes on has stopped
        self._expected = 0  # the number of the fork that was asked for
        self.unwanted: list[_Forked] = []  # undone while they were written, in this order: they go at their end
        self._same: ForkWish | None = None
        for widget in (window.text_view, window.timeline, window.word_view):
            self.take_keys_of(widget)
        laboratory = window.laboratory
        laboratory.route(ForkWish, self.fork)
        laboratory.route(CompareWish, self.compare)
        laboratory.route(PruneWish, self.prune)
        laboratory.route(RenameWish, self.rename)
        laboratory.page_made.connect(self._page_made)
        window.word_view.asked.connect(self.fork)
        window.text_view.asked.connect(self.fork)
        window.text_view.redecided_bar.go_on_requested.connect(self.go_on_elsewhere)
        window.store.opened.connect(self._forget)
        window.store.run_started.connect(self._begun)
        window.engine.busy_changed.connect(self._busy_changed)

    def take_keys_of(self, widget: QWidget) -> None:
        """Undo and redo work while this widget or a part of it has the focus."""
        widget.addActions([self.undo_action, self.redo_action])

    @Slot(object, object)
    def _page_made(self, name: object, page: object) -> None:
        if name in ("forks", "futures") and isinstance(page, QWidget):
            self.take_keys_of(page)
        if name == "forks":
            page.set_undo([self.undo_action, self.redo_action])  # type: ignore[attr-defined]

    # ---------------------------------------------------------------- acts for the selected word

    @Slot()
    def go_on_here(self) -> None:
        """From the selected word on, which is decided anew; from the end where none is selected and the run is over."""
        store = self.window.store
        run, step = store.current, store.selected_step
        if run is None or step is None:
            self.window.banner.show_note(self.tr("There is no text to go on from yet: press Run first."))
            return
        at_end = store.following and not run.running
        if at_end and run.end is not None and run.end.reason in ENDED_BY_ITSELF:
            self.window.banner.show_note(
                self.tr("This text came to its end by itself: choose a word from which it is to go another way.")
            )
            return
        self.fork(ForkWish(run.place(step + 1 if at_end else step)))

    @Slot()
    def write_here(self) -> None:
        self.window.laboratory.show_text()
        self.window.text_view.write_here()

    @Slot()
    def choose_word(self) -> None:
        """To the list of alternatives, where Return goes on with the chosen one."""
        self.window.docks["word"].show()
        self.window.show_box("probabilities")
        self.window.word_view.rows.setFocus(Qt.FocusReason.ShortcutFocusReason)

    @Slot()
    def go_on_elsewhere(self) -> None:
        """From the word at which the settings as they stand would first have chosen another, or may have."""
        found, run = self.window.text_view.canvas.redecided, self.window.store.current
        if found is None or run is None:
            return
        places = [step for step in (found.first, found.open_at) if step is not None]
        if places:
            self.fork(ForkWish(run.place(min(places))))

    @Slot()
    def next_run(self) -> None:
        self.window.text_view.chooser.step(1)

    @Slot()
    def previous_run(self) -> None:
        self.window.text_view.chooser.step(-1)

    # ---------------------------------------------------------------- forking

    @Slot(object)
    def fork(self, wish: ForkWish) -> None:
        """Goes on as wished; a run that goes on is stopped first. A banner says why where that cannot be."""
        wish, run = self._rooted(wish)
        if run is None:
            return
        if self.window.engine.busy == "run":
            if self.same_model(run):
                self._waits = wish
                self.window.engine.stop()
            return
        if not self.may_go_on(run):
            return
        if self._same_text(wish, run):
            if self.window.sampling_panel.lock_button.isChecked():
                self._same = wish
                self.window.banner.show_note(
                    self.tr("With these settings and this seed the same text would be written again."),
                    self.tr("Take another seed"),
                    self.with_another_seed,
                )
                return
            self.window.sampling_panel.prepare_run()
        try:
            request = self.request(wish, run)
        except SettingsRefused as error:
            self.window.banner.show_error(EngineError(error.what, error.fix, error.exit_code, "run"))
            return
        start = replace(run.start, run_id=self.window.engine.runs + 1, lane=0, parent=request.parent)
        if self.window.running.launch(request, before=self._before(start)):
            self._expected = self.window.engine.runs
            if self.window.laboratory.current not in PAGES_OF_IT:
                self.window.laboratory.show_text()

    def _before(self, start: RunStart) -> tuple[Event, ...]:
        """What its file holds before it: the runs it began in, with their bookmarks and notes."""
        runs = self.window.store.runs
        events = tuple(story(start, runs))
        told = {(event.run_id, event.lane) for event in events if isinstance(event, RunStart)}
        return events + tuple(mark for run in runs if run.key in told for mark in run.marks.values())

    @Slot(object)
    def _begun(self, run: Run) -> None:
        """A fork that was refused has nothing to undo."""
        if run.key == (self._expected, 0):
            self._expected = 0
            self.stack.push(_Forked(self, run.key, self.tr("fork")))

    @Slot()
    def _forget(self) -> None:
        """A recording took the place of all runs, and its own may have the same numbers."""
        self.stack.clear()
        self.unwanted, self._waits, self._same = [], None, None

    @Slot()
    def with_another_seed(self) -> None:
        wish, self._same = self._same, None
        self.window.banner.dismiss()
        if wish is not None:
            self.window.sampling_panel.roll()
            self.fork(wish)

    def _rooted(self, wish: ForkWish) -> tuple[ForkWish, Run | None]:
        """The wish about the run that wrote the words before the fork: they may be its parent's."""
        store, place = self.window.store, wish.parent
        run = store.run((place.run_id, place.lane))
        while run is not None and not run.lost and run.start.parent is not None:
            above = store.run((run.start.parent.run_id, run.start.parent.lane))
            if above is None or place.step > len(run.start.written):
                break
            run, place = above, Parent(*above.key, place.step)
        return replace(wish, parent=place), run

    def request(self, wish: ForkWish, run: Run) -> Request:
        """What the engine is asked. Raises SettingsRefused."""
        start, panel = run.start, self.window.sampling_panel
        step = wish.parent.step - run.lost
        written = run.written_before(step)
        stood = run.text[: run.starts[step]] if step < len(run.tokens) else run.text
        if step >= len(run.tokens) and run.end is not None:
            stood += run.end.stop_string  # it was written, and cut off
        return Request(
            run_id=0,
            prompt=start.prompt,
            system=start.system,
            raw=self.window.replays.was_raw(run),
            lanes=(wish.settings or panel.settings(),),
            max_new_tokens=len(written) + panel.max_new_tokens(),
            # One that stands before the fork already would end it at once.
            stop=tuple(text for text in panel.stop_strings() if text not in stood),
            written=written,
            forced=wish.forced,
            forced_text=wish.text,
            parent=wish.parent,
            prompt_ids=tuple(token.token_id for token in start.prompt_tokens),
        )

    def _same_text(self, wish: ForkWish, run: Run) -> bool:
        """The same words would be written as stand there now."""
        step = wish.parent.step - run.lost
        if wish.forced or wish.text or step >= len(run.tokens):
            return False
        settings = wish.settings or self.window.sampling_panel.settings()
        return all(token.settings == settings and not token.forced for token in run.tokens[step:])

    def may_go_on(self, run: Run) -> bool:
        """Whether the engine could go on with this run now; a banner says why not, and offers the model that is
        missing. While another model is loading, the last one is not told of."""
        engine, wrote = self.window.engine, run.facts
        if (
            not engine.busy
            and self.window.store.facts is None
            and wrote is not None
            and Path(wrote.model_path).exists()
        ):
            self._missing = wrote.model_path
            self.window.banner.show_note(
                self.tr("No model is loaded; {wrote} wrote this text.").format(wrote=wrote.name),
                self.tr("Load {name}").format(name=wrote.name),
                self.load_missing,
            )
            return False
        return self.window.running.may_run() and self.same_model(run)

    def same_model(self, run: Run) -> bool:
        """Whether the loaded model is the one that wrote it; a banner says so where it is not."""
        loaded, wrote = self.window.store.facts, run.facts
        if loaded is None or wrote is None:
            return True
        if (loaded.name, loaded.vocab_size) == (wrote.name, wrote.vocab_size):
            return True
        self._missing = wrote.model_path
        self.window.banner.show_note(
            self.tr("{wrote} wrote this text, and {loaded} is loaded: its words are others.").format(
                wrote=wrote.name, loaded=loaded.name
            ),
            self.tr("Load {name}").format(name=wrote.name),
            self.load_missing,
        )
        return False

    @Slot()
    def load_missing(self) -> None:
        self.window.load(LoadPlan(self._missing))

    @Slot(object)
    def _busy_changed(self, busy: object) -> None:
        if busy:
            return
        unwanted, self.unwanted = self.unwanted, []
        for each in unwanted:
            each.take_out()
        wish, self._waits = self._waits, None
        if wish is not None:
            self.fork(wish)

    # ---------------------------------------------------------------- the tree

    @Slot(object)
    def prune(self, wish: PruneWish) -> None:
        """Takes runs, and all that began in them, out of what is shown."""
        store = self.window.store
        starts = [run.start for run in store.runs]
        keys = list(dict.fromkeys(key for each in wish.runs for key in descendants(each, starts)))
        if any(run.running for key in keys if (run := store.run(key)) is not None):
            self.window.banner.show_wait(self.tr("This text is still being written: stop it first (Ctrl+.)."))
            return
        if any(store.run(key) is not None for key in keys):
            self.stack.push(_Pruned(store, keys, self.tr("prune")))

    @Slot(object)
    def rename(self, wish: RenameWish) -> None:
        run = self.window.store.run(wish.run)
        name = " ".join(wish.name.split())[:80]
        if run is not None and run.start.name != name:
            self.stack.push(_Renamed(self.window, run, name, self.tr("rename")))

    @Slot(object)
    def compare(self, wish: CompareWish) -> None:
        store = self.window.store
        self.window.laboratory.show("lanes")  # first: the page begins with what was set up last
        store.compare(run for key in wish.runs if (run := store.run(key)) is not None)
