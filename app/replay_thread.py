"""Replay files in a thread of their own: reading, saving, and one more line for a bookmark or note.

As in engine_thread.py, work crosses as frozen objects, and a cancel reaches it through its Control. Small files are
worked on where they are asked for, by the same functions: they take less time than a frame or two.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, QThread, Signal, Slot

from app.threads import has_ended, leave, told
from engine.control import Control
from engine.errors import Cancelled, FileRefused
from engine.events import EngineError, Event, Mark, PrefillProgress, RunEnd, RunStart, SettingsChanged, TokenEvent

if TYPE_CHECKING:
    from engine.replay import Recorder, Replay

TELL_EVERY_S = 0.05
LEAST_FREE_BYTES = 300_000_000  # of memory: below it the machine would begin to swap


@dataclass(frozen=True, slots=True)
class ReadJob:
    """Files to be read, as they are or, for comparing them, as one set.

    above: 0, or they are put beside runs whose highest number this is. said: what is to be told with what they hold.
    """

    paths: tuple[Path, ...]
    compare: bool = False
    above: int = 0
    said: tuple[str, ...] = ()
    control: Control = field(default_factory=Control)


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A recording that was read. more: so much higher are the numbers of its runs than in the file."""

    replay: Replay
    more: int = 0


@dataclass(frozen=True, slots=True)
class SaveJob:
    """What a file is to hold: its first line, its events, and lines of kinds that only a newer version knows."""

    path: Path
    header: dict[str, Any]
    events: tuple[Event, ...]
    lines: tuple[str, ...] = ()
    control: Control = field(default_factory=Control)


@dataclass(frozen=True, slots=True)
class MoveJob:
    """A recording that could not be written goes to another place, whole."""

    recorder: Recorder
    path: Path
    control: Control = field(default_factory=Control)


@dataclass(frozen=True, slots=True)
class KeepJob:
    """A mark for a finished file, or for the recording that may still go on."""

    mark: Mark
    path: Path
    recorder: Recorder | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Of reading in bytes, of saving in lines."""

    job: object
    name: str
    done: int
    total: int


class ReplayWorker(QObject):
    """Every slot catches what its body raises and says it (THR-7)."""

    progress = Signal(object)  # Progress
    read = Signal(object, object, object)  # ReadJob, tuple of ReadFile, of EngineError: those that were refused
    saved = Signal(object)  # SaveJob or MoveJob
    ended = Signal(object, object)  # the job, EngineError or None: it was cancelled
    not_kept = Signal(object, object)  # KeepJob, EngineError

    @Slot(object)
    def read_files(self, job: ReadJob) -> None:
        try:
            files, refused = self._read_all(job)
        except Cancelled:
            self.ended.emit(job, None)
        except Exception as error:  # a thread's edge
            self.ended.emit(job, told(error, "replay"))
        else:
            self.read.emit(job, files, refused)

    def _read_all(self, job: ReadJob) -> tuple[tuple[ReadFile, ...], tuple[EngineError, ...]]:
        """What can be read, and why the others cannot. Raises FileRefused where none can."""
        from engine.replay_sets import renumbered

        found: list[ReadFile] = []
        refused: list[FileRefused] = []
        above = job.above
        for path in job.paths:
            try:
                replay = self._read(job, path)
            except FileRefused as error:
                refused.append(error)
                continue
            more = 0
            if job.compare:  # the numbers of one file right above those of the last
                lowest, highest = _numbers(replay.events)
                more = above + 1 - lowest
                above = highest + more
                replay = replace(replay, events=tuple(renumbered(replay.events, more, path.stem)))
            found.append(ReadFile(replay, more))
        if not found:
            raise _none_of(refused)
        return tuple(found), tuple([told(error, "replay") for error in refused])

    def _read(self, job: ReadJob, path: Path) -> Replay:
        from engine.replay import read_replay

        tell = self._teller(job, path.name)
        _room_for(path)

        def progress(done: int, total: int) -> None:
            tell(done, total)
            _room_for(path)

        return read_replay(path, progress)

    @Slot(object)
    def save(self, job: SaveJob) -> None:
        try:
            self._save(job)
        except Cancelled:
            self.ended.emit(job, None)
        except Exception as error:  # a thread's edge
            self.ended.emit(job, told(error, "record"))
        else:
            self.saved.emit(job)

    @Slot(object)
    def move(self, job: MoveJob) -> None:
        job.recorder.move_to(job.path)
        if (problem := job.recorder.problem) is None:
            self.saved.emit(job)
        else:
            self.ended.emit(job, told(problem, "record"))

    def _save(self, job: SaveJob) -> None:
        """Whole or not at all: what had the name before stays until the new file is whole."""
        from engine.replay import Recorder

        path = Path(os.path.realpath(job.path))
        part = path.parent / f".glasswork-{os.getpid()}-{time.monotonic_ns()}.part"
        tell = self._teller(job, job.path.name)
        recorder = Recorder(part, job.header, keep=False)
        try:
            for number, event in enumerate(job.events):
                if recorder.problem is not None:
                    break
                recorder.take(event)
                if number % 64 == 0:
                    tell(number, len(job.events))
            for line in job.lines:
                recorder.keep_line(line)
            recorder.close()
            if recorder.problem is not None:
                raise _cannot_write(job.path, str(recorder.problem.fields.get("said", "")))
            try:
                os.replace(part, path)
            except OSError as error:
                raise _cannot_write(job.path, error.strerror or str(error)) from None
        finally:
            recorder.close()
            part.unlink(missing_ok=True)

    def _teller(self, job: ReadJob | SaveJob, name: str) -> Callable[[int, int], None]:
        """Says how far it is, now and then; raises Cancelled where that was asked for."""
        last_s = 0.0

        def tell(done: int, total: int) -> None:
            nonlocal last_s
            if job.control.cancelled():
                raise Cancelled
            now = time.monotonic()
            if now - last_s >= TELL_EVERY_S:
                last_s = now
                self.progress.emit(Progress(job, name, done, total))

        return tell

    @Slot(object)
    def keep(self, job: KeepJob) -> None:
        try:
            keep(job)
        except Exception as error:  # a thread's edge
            self.not_kept.emit(job, told(error, "record"))

    @Slot()
    def finish(self) -> None:
        """After all that was asked for before."""
        QThread.currentThread().quit()


def keep(job: KeepJob) -> None:
    """Writes a mark's line. Raises FileRefused."""
    from engine import notes
    from engine.replay_lines import line_of

    if job.recorder is None:
        notes.append(job.path, line_of(job.mark))
        return
    known = job.recorder.problem
    job.recorder.take(job.mark)
    if (problem := job.recorder.problem) is not None and known is None:
        raise problem


def _room_for(path: Path) -> None:
    import psutil

    if psutil.virtual_memory().available < LEAST_FREE_BYTES:
        raise FileRefused(
            "{name} needs more memory than is free on this computer.",
            "Close other programs or unload the model, then open it again.",
            name=path.name,
        )


def _numbers(events: Iterable[Event]) -> tuple[int, int]:
    """The lowest and the highest number of a run that is told of, also of one whose beginning is lost."""
    found: set[int] = set()
    for event in events:
        if isinstance(event, (RunStart, PrefillProgress, TokenEvent, SettingsChanged, RunEnd, Mark)):
            found.add(event.run_id)
        if isinstance(event, RunStart) and event.parent is not None:
            found.add(event.parent.run_id)
    return min(found, default=1), max(found, default=0)


def _none_of(refused: list[FileRefused]) -> FileRefused:
    """Why nothing was read: each file is named."""
    if len(refused) == 1:
        return refused[0]
    said = " ".join(error.what for error in refused)
    return FileRefused("None of these files can be opened: {said}", "Choose others.", said=said)


def _cannot_write(path: Path, said: str) -> FileRefused:
    return FileRefused(
        "The replay cannot be written to {path}: {said}.",
        "Nothing is lost: choose another place.",
        path=str(path),
        said=said,
    )


class ReplayThread(QObject):
    """The window's handle. One file at a time; the one that was asked for last."""

    _read = Signal(object)
    _save = Signal(object)
    _move = Signal(object)
    _keep = Signal(object)
    _finish = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.worker, self.here = ReplayWorker(), ReplayWorker(self)  # in its thread, and in the window's
        self._thread = QThread(self)
        self._thread.setObjectName("replays")
        self.worker.moveToThread(self._thread)
        self._read.connect(self.worker.read_files)
        self._save.connect(self.worker.save)
        self._move.connect(self.worker.move)
        self._keep.connect(self.worker.keep)
        self._finish.connect(self.worker.finish)
        self._control: Control | None = None
        self._closed = False
        self._thread.start()

    def read(self, job: ReadJob, at_once: bool) -> None:
        self.cancel()
        self._control = job.control
        self.here.read_files(job) if at_once else self._read.emit(job)

    def save(self, job: SaveJob, at_once: bool) -> None:
        self.cancel()
        self._control = job.control
        self.here.save(job) if at_once else self._save.emit(job)

    def move(self, job: MoveJob, at_once: bool) -> None:
        self.here.move(job) if at_once else self._move.emit(job)

    def keep(self, job: KeepJob) -> None:
        """Marks are written in the order in which they were made, also those that wait behind a long file."""
        self._keep.emit(job)

    @Slot()
    def cancel(self) -> None:
        if self._control is not None:
            self._control.cancel()
            self._control = None

    def close(self) -> None:
        """Cancel, write the marks that wait, quit. Leaves the process where a disk does not answer."""
        if self._closed:
            return
        self._closed = True
        self.cancel()
        self._finish.emit()
        if not has_ended(self._thread) and not has_ended(self._thread):
            leave("a disk did not answer on close")
