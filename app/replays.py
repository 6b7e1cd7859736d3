"""Replays in the window: recordings, saving, opening, comparing; marks go into their files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, QTimer, Slot
from PySide6.QtWidgets import QFileDialog

from app.preferences import runs_folder
from app.recents import Recents
from app.replay_thread import KeepJob, MoveJob, Progress, ReadFile, ReadJob, ReplayThread, SaveJob
from engine.events import EngineError, Event, Loaded, Mark, RunStart
from engine.file_names import safe_name, told_apart
from engine.lineage import story, told_again
from engine.replay_sets import newest_run
from engine.settings import Request
from widgets.banner import translated
from widgets.compared import differences
from widgets.format import bytes_text, count_text
from widgets.opening_bar import OpeningBar
from widgets.run import Run
from widgets.run_store import RunStore

if TYPE_CHECKING:
    from app.main_window import MainWindow
    from engine.replay import Recorder

ENDING = ".jsonl"
SMALL_BYTES = 1_000_000  # read in some hundredths of a second, so it needs no thread and no bar
SMALL_EVENTS = 400
SLICE = 2000  # events that go into the store in one turn of the event loop
MOST_LANES = 8  # side by side


class Replays(QObject):
    """requests: what each run here was asked, by its number."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self.window = window
        self.recorder: Recorder | None = None  # of the newest run; kept, so that a full disk can be answered after it
        self.requests: dict[int, Request] = {}
        self.bar = OpeningBar()
        self.recents = Recents(window, self.open_file)
        self.files = ReplayThread(self)
        self._recorders: dict[int, Recorder] = {}  # of the runs that were written here, by their number
        self._origins: dict[int, tuple[Path, int]] = {}  # of the others: the file, and how much higher the number is
        self._headers: dict[int, dict[str, Any]] = {}  # what the replay's first line said of the other runs
        self._unknown: dict[Path, tuple[str, ...]] = {}  # lines that only a newer version knows
        self._job: object = None  # what goes on
        self._refused: object = None  # what failed last
        self._asked = ReadJob(())
        self._waits: ReadJob | None = None  # begun when the run has stopped
        self._filling: _Filling | None = None
        for worker in (self.files.worker, self.files.here):
            worker.progress.connect(self._show_progress)
            worker.read.connect(self._was_read)
            worker.saved.connect(self._was_saved)
            worker.ended.connect(self._ended)
            worker.not_kept.connect(self._not_kept)
        self.bar.cancel_requested.connect(self.cancel)
        window.store.opened.connect(self.forget)

    @Slot()
    def forget(self) -> None:
        """Other runs, perhaps under the same numbers, took the place of those that were there."""
        self.requests, self._headers, self._recorders, self._origins, self._unknown = {}, {}, {}, {}, {}

    def open_what_waits(self) -> None:
        """The engine is free: opens the replay that a run stood in the way of."""
        job, self._waits = self._waits, None
        if job is not None:
            self._begin_reading(job)

    def _filter(self) -> str:
        return self.tr("Replays (*.jsonl);;All files (*)")

    @property
    def at_work(self) -> bool:
        """A file is being read or saved."""
        return self._job is not None

    @Slot()
    def cancel(self) -> None:
        """Stops reading or saving; what was shown before stays."""
        self.files.cancel()
        self._job = self._filling = None
        self.bar.end()

    def close(self) -> None:
        self.cancel()
        self.files.close()

    # ---------------------------------------------------------------- the recording

    @Slot(object)
    def recording_started(self, recorder: Recorder) -> None:
        self.recorder = self._recorders[self.window.engine.runs] = recorder
        self.recents.remember(recorder.path)

    @Slot(object)
    def recording_failed(self, problem: EngineError) -> None:
        self.window.banner.show_error(problem, self.tr("Choose another place…"), self.move_recording)

    @Slot()
    def move_recording(self) -> None:
        """A full disk: the run went on in memory, and all of it is written to the place the person names (FIL-3)."""
        if self.recorder is None:
            return
        path = self._ask_where()
        if path is not None:
            job = self._start(MoveJob(self.recorder, path), self.tr("Saving {name}").format(name=path.name))
            self.files.move(job, at_once=self.recorder.kept <= SMALL_EVENTS)

    # ---------------------------------------------------------------- saving

    def _ask_where(self) -> Path | None:
        run = self.window.store.current
        name = safe_name(run.start.name or run.start.prompt, ENDING) if run is not None else ""
        proposed = str(Path.home() / name)
        path, _ = QFileDialog.getSaveFileName(self.window, self.tr("Save replay"), proposed, self._filter())
        if not path:
            return None
        return Path(path) if Path(path).suffix else Path(path + ENDING)

    @Slot()
    def save(self) -> None:
        if self.window.store.current is None:
            self.window.banner.show_note(self.tr("There is no run to save yet: press Run first."))
        elif (path := self._ask_where()) is not None:
            self.save_to(path)

    def save_to(self, path: Path) -> bool:
        """Writes the current run as it stands; a long one goes on while the window is used. False, with a banner,
        when that fails."""
        run = self.window.store.current
        if run is None:
            return False
        if run.running and self.recorder is not None and _same_file(path, self.recorder.path):
            self.window.banner.show_note(self.tr("The run is being written there already, word by word."))
            return True
        events = self._told(run)
        job = SaveJob(path, self.header_of(run), events, self._lines_of(run))
        self._start(job, self.tr("Saving {name}").format(name=path.name))
        self.files.save(job, at_once=len(events) <= SMALL_EVENTS)
        return self._refused is not job

    def _told(self, run: Run) -> tuple[Event, ...]:
        """All that the file of a run holds: the runs it began in, itself, and what was said of them."""
        store = self.window.store
        lanes = [each for each in store.runs if each.start.run_id == run.start.run_id]
        events: list[Event] = list(story(run.start, store.runs))
        if run.facts is not None:
            events.append(Loaded(run.facts))
        events += told_again(lanes)
        told = {(event.run_id, event.lane) for event in events if isinstance(event, RunStart)}
        events += [mark for each in store.runs if each.key in told for mark in each.marks.values()]
        return tuple(events)

    def _lines_of(self, run: Run) -> tuple[str, ...]:
        origin = self._origins.get(run.start.run_id)
        return self._unknown.get(origin[0], ()) if origin is not None else ()

    def header_of(self, run: Run) -> dict[str, Any]:
        """What the first line of its file says: of the model that wrote it, which need not be the one loaded now."""
        from engine.replay import header_of

        request = self.requests.get(run.start.run_id)
        if request is not None and run.facts is not None:
            return header_of(run.facts, request)
        return self._headers.get(run.start.run_id, {})

    def was_raw(self, run: Run) -> bool:
        """Whether the run was asked raw text, as far as that is known."""
        request = self.requests.get(run.start.run_id)
        return request.raw if request is not None else bool(self._headers.get(run.start.run_id, {}).get("raw"))

    # ---------------------------------------------------------------- opening and comparing

    def _ask_which(self, title: str) -> tuple[Path, ...]:
        folder = runs_folder() if runs_folder().is_dir() else Path.home()
        paths, _ = QFileDialog.getOpenFileNames(self.window, title, str(folder), self._filter())
        return tuple(map(Path, paths))

    @Slot()
    def open(self) -> None:
        paths = self._ask_which(self.tr("Open a replay, or several to compare them"))
        if len(paths) == 1:
            self.open_file(paths[0])
        elif paths:
            self.compare(paths)

    @Slot()
    def open_to_compare(self) -> None:
        """One file is put beside the run that is shown; several are compared with one another."""
        paths = self._ask_which(self.tr("Compare with another replay, or choose several"))
        if paths:
            self.compare(paths)

    def open_file(self, path: Path, said: tuple[str, ...] = ()) -> bool:
        """Shows a recorded run; works without a model and without torch. False, with a banner, when it cannot.

        A long file is read while the window is used: True, and a bar tells how far it is. said: what else is told then.
        """
        return self._begin_reading(ReadJob((path,), said=said))

    def compare(self, paths: Sequence[Path], said: tuple[str, ...] = ()) -> bool:
        """Puts recorded runs side by side, lettered in this order; a single one beside the run that is shown.

        Of several those that cannot be read are named, and the others are shown.
        """
        current = self.window.store.current
        if len(paths) == 1 and current is None:
            return self.open_file(paths[0])
        above = max((run.start.run_id for run in self.window.store.runs), default=0) if len(paths) == 1 else 0
        above = max(above, self.window.engine.runs)
        return self._begin_reading(ReadJob(tuple(paths), compare=True, above=above, said=said))

    def _begin_reading(self, job: ReadJob) -> bool:
        if self.window.engine.busy == "run":
            self._asked = job
            self.window.banner.show_note(
                self.tr("A run goes on: a replay would take its place."),
                self.tr("Stop it and open the replay"),
                self.stop_and_open,
            )
            return False
        names = ", ".join(path.name for path in job.paths)
        self._start(job, self.tr("Opening {name}").format(name=names))
        self.files.read(job, at_once=sum(map(_size, job.paths)) <= SMALL_BYTES)
        return self._refused is not job

    @Slot()
    def stop_and_open(self) -> None:
        self.window.banner.dismiss()
        self.window.running.stop()
        if self.window.engine.busy:
            self._waits = self._asked
        else:
            self._begin_reading(self._asked)

    @Slot(object, object, object)
    def _was_read(self, job: ReadJob, files: tuple[ReadFile, ...], refused: tuple[EngineError, ...]) -> None:
        if job is not self._job:
            return
        self.bar.begin(self.tr("Opening {name}").format(name=", ".join(path.name for path in job.paths)))
        self._filling = _Filling(job, files, _why_refused(refused))
        self._fill(at_once=sum(len(file.replay.events) for file in files) <= SLICE)

    @Slot()
    def _go_on_filling(self) -> None:
        self._fill(at_once=False)

    def _fill(self, at_once: bool) -> None:
        """Puts the next events into a store of their own; when all are in, they are shown."""
        filling = self._filling
        if filling is None or filling.job is not self._job:
            return
        while filling.take(SLICE):
            if not at_once:
                QTimer.singleShot(0, self._go_on_filling)
                return
        self._filling = self._job = None
        self.bar.end()
        if self.window.engine.busy == "run":  # it was begun meanwhile
            self._begin_reading(filling.job)
            return
        self._show(filling)

    def _show(self, filling: _Filling) -> None:
        job, files, recorded = filling.job, filling.files, filling.store
        store, beside = self.window.store, job.above > 0 and len(job.paths) == 1
        current = store.current
        if beside:
            store.add_runs(recorded)
        else:
            store.take_runs(recorded)
            self.window.busy_changed(self.window.engine.busy)  # a load may go on
        for file in files:
            self._take_file(file)
            self.recents.remember(file.replay.path)
        self.window.engine.number_after(max((run.start.run_id for run in store.runs), default=0))
        several = len(job.paths) > 1
        notes = [f"{file.replay.path.name}: {note}" if several else note for file in files for note in _notes(file)]
        said = [*job.said, *filling.refused, *notes]
        if job.compare and (beside or len(files) > 1):
            lanes = [run for file in files for run in store.runs if run.start.run_id == newest_run(file.replay.events)]
            if beside and current is not None:
                lanes.insert(0, current)
            said += self._compare(lanes)
        elif not notes:
            opened = self.tr("Replay: {name}").format(name=", ".join(file.replay.path.name for file in files))
            said = [f"{opened}.", *said] if said else [opened]
        self.window.banner.show_note(" ".join(said))

    def _compare(self, lanes: list[Run]) -> list[str]:
        """Puts these runs side by side; what is to be said of it."""
        window, said = self.window, []
        if len(lanes) > MOST_LANES:
            said.append(
                self.tr("The first {count} of {all} lanes are shown.").format(
                    count=count_text(MOST_LANES), all=count_text(len(lanes))
                )
            )
        lanes = lanes[:MOST_LANES]
        if lanes:
            window.laboratory.show("lanes")  # first: the page begins with what was set up last
            window.store.show(lanes[0])
        window.store.compare(lanes)
        return [*said, differences([(run, self.header_of(run)) for run in lanes], self._files_of(lanes))]

    def _files_of(self, runs: Sequence[Run]) -> list[str]:
        """The file of each, by as much of its path as tells it from the others'."""
        paths: list[Path | None] = []
        for number in (run.start.run_id for run in runs):
            recorder, origin = self._recorders.get(number), self._origins.get(number)
            paths.append(recorder.path if recorder is not None else origin[0] if origin is not None else None)
        names = iter(told_apart([path for path in paths if path is not None]))
        return [self.tr("the run that was shown") if path is None else next(names) for path in paths]

    def _take_file(self, file: ReadFile) -> None:
        """Where its runs come from. The first line tells of the newest; the runs it began in tell of themselves."""
        replay = file.replay
        header = {name: value for name, value in replay.header.items() if name not in ("kind", "schema", "reads_with")}
        newest = newest_run(replay.events)
        for start in (event for event in replay.events if isinstance(event, RunStart)):
            self._headers[start.run_id] = header if start.run_id == newest else header | _asked(start)
            self._origins[start.run_id] = replay.path, file.more
        self._unknown[replay.path] = tuple(line for _, line in replay.unknown)

    # ---------------------------------------------------------------- how it goes

    def _start(self, job: Any, words: str) -> Any:
        self._job, self._refused, self._filling = job, None, None
        self.bar.begin(words)
        return job

    @Slot(object)
    def _show_progress(self, progress: Progress) -> None:
        if progress.job is not self._job:
            return
        if isinstance(progress.job, ReadJob):
            words = self.tr("Opening {name}: {done} of {total}")
            done, total = bytes_text(progress.done), bytes_text(progress.total)
        else:
            words = self.tr("Saving {name}: {done} of {total} lines")
            done, total = count_text(progress.done), count_text(progress.total)
        self.bar.show_progress(words.format(name=progress.name, done=done, total=total), progress.done, progress.total)

    @Slot(object)
    def _was_saved(self, job: SaveJob | MoveJob) -> None:
        if job is self._job:
            self._job = None
            self.bar.end()
        self.recents.remember(job.path)
        if isinstance(job, MoveJob):
            self.window.banner.show_note(self.tr("The whole run is saved in {path}.").format(path=job.path))
            return
        for event in job.events:  # from now on marks go into this file
            if isinstance(event, RunStart) and event.run_id not in self._recorders:
                self._origins[event.run_id] = job.path, 0
        self._unknown[job.path] = job.lines
        self.window.banner.show_note(self.tr("Saved in {path}.").format(path=job.path))

    @Slot(object, object)
    def _ended(self, job: object, error: EngineError | None) -> None:
        """It failed, or the person stopped it."""
        if job is self._job:
            self._job = None
            self.bar.end()
        self._refused = job
        if error is None:
            return
        if isinstance(job, ReadJob):
            self.window.banner.show_error(error)
        else:
            again = self.move_recording if isinstance(job, MoveJob) else self.save
            self.window.banner.show_error(error, self.tr("Choose another place…"), again)

    # ---------------------------------------------------------------- bookmarks and notes

    @Slot(object)
    def keep(self, mark: Mark) -> None:
        """Writes a bookmark or note into the run's file; a run without one keeps it until it is saved."""
        if (recorder := self._recorders.get(mark.run_id)) is not None:
            self.files.keep(KeepJob(mark, recorder.path, recorder))
        elif (origin := self._origins.get(mark.run_id)) is not None:
            path, more = origin
            self.files.keep(KeepJob(replace(mark, run_id=mark.run_id - more), path))

    @Slot(object, object)
    def _not_kept(self, _job: KeepJob, error: EngineError) -> None:
        self.window.banner.show_error(error, self.tr("Save replay…"), self.save)


class _Filling:
    """Events of recordings on their way into a store of their own, some at a time. refused: why others are not here."""

    def __init__(self, job: ReadJob, files: tuple[ReadFile, ...], refused: list[str]) -> None:
        self.job, self.files, self.refused, self.store = job, files, refused, RunStore()
        self._left = list(files)
        self._events: Iterator[Event] = iter(())

    def take(self, count: int) -> bool:
        """Takes so many more in; False when all are in."""
        for _ in range(count):
            event = next(self._events, None)
            if event is not None:
                self.store.take(event)
            elif self._left:
                replay = self._left.pop(0).replay
                self.store.facts = replay.facts  # of another model than the last file's
                self._events = iter(replay.events)
            else:
                return False
        return True


def _why_refused(errors: Sequence[EngineError]) -> list[str]:
    """What is wrong with each file, and the ways out once."""
    whats = [translated(error.what_template, error.fields) or error.what for error in errors]
    fixes = [translated(error.fix_template, error.fields) or error.fix for error in errors]
    return [*whats, *dict.fromkeys(filter(None, fixes))]


def _notes(file: ReadFile) -> list[str]:
    return [note for note in (file.replay.damage, *file.replay.notes) if note]


def _size(path: Path) -> int:
    """Bytes; 0 where the reader will say what is wrong."""
    try:
        return path.stat().st_size
    except (OSError, ValueError):
        return 0


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _asked(start: RunStart) -> dict[str, Any]:
    """What a run's own line says of what it was asked, as a first line has it."""
    return {
        "seed": start.settings.seed,
        "lanes": [start.settings],
        "prompt": start.prompt,
        "system": start.system,
        "stop": list(start.stop),
        "max_new_tokens": start.max_new_tokens,
    }
