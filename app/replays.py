"""Replays in the window: the recording of the newest run, saving, opening, the recent ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, Slot
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QApplication, QFileDialog

from app.preferences import runs_folder
from engine.errors import FileRefused
from engine.events import EngineError, Loaded, RunStart
from engine.lineage import story, told_again
from engine.settings import Request
from widgets.run_store import Run

if TYPE_CHECKING:
    from app.main_window import MainWindow


class Replays(QObject):
    """requests: what each run here was asked, by its number."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self.window = window
        self.recorder = None  # of the newest run; kept, so that a full disk can be answered after the run
        self.requests: dict[int, Request] = {}
        self._headers: dict[int, dict] = {}  # what the replay's first line said of the other runs
        self._asked = Path()
        self._waits: Path | None = None  # opened when the run has stopped

    def open_what_waits(self) -> None:
        """The engine is free: opens the replay that a run stood in the way of."""
        path, self._waits = self._waits, None
        if path is not None:
            self.open_file(path)

    def _filter(self) -> str:
        return self.tr("Replays (*.jsonl);;All files (*)")

    @Slot(object)
    def recording_started(self, recorder: object) -> None:
        self.recorder = recorder

    @Slot(object)
    def recording_failed(self, problem: EngineError) -> None:
        self.window.banner.show_error(problem, self.tr("Choose another place…"), self.move_recording)

    @Slot()
    def move_recording(self) -> None:
        """A full disk: the run went on in memory, and all of it is written to the place the person names (FIL-3)."""
        if self.recorder is None:
            return
        path, _ = QFileDialog.getSaveFileName(self.window, self.tr("Save replay"), str(Path.home()), self._filter())
        if path:
            if self.recorder.move_to(path):
                self.window.banner.show_note(self.tr("The whole run is saved in {path}.").format(path=path))
            else:
                problem = self.recorder.problem
                self.recording_failed(EngineError(problem.what, problem.fix, problem.exit_code, "record"))

    @Slot()
    def save(self) -> None:
        if self.window.store.current is None:
            self.window.banner.show_note(self.tr("There is no run to save yet: press Run first."))
            return
        path, _ = QFileDialog.getSaveFileName(self.window, self.tr("Save replay"), str(Path.home()), self._filter())
        if path:
            self.save_to(Path(path))

    def save_to(self, path: Path) -> bool:
        """Writes the current run as it stands. False, with a banner, when that fails."""
        from engine.replay import Recorder

        run = self.window.store.current
        if run is None:
            return False
        lanes = [each for each in self.window.store.runs if each.start.run_id == run.start.run_id]
        recorder = Recorder(path, self.header_of(run), replace=True)
        for event in story(run.start, self.window.store.runs):
            recorder.take(event)
        if run.facts is not None:
            recorder.take(Loaded(run.facts))
        for event in told_again(lanes):
            recorder.take(event)
        recorder.close()
        if problem := recorder.problem:
            self.window.banner.show_error(
                EngineError(problem.what, problem.fix, problem.exit_code, "record"),
                self.tr("Choose another place…"),
                self.save,
            )
            return False
        self.window.banner.show_note(self.tr("Saved in {path}.").format(path=recorder.path))
        return True

    def header_of(self, run: Run) -> dict:
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

    @Slot()
    def open(self) -> None:
        folder = runs_folder() if runs_folder().is_dir() else Path.home()
        path, _ = QFileDialog.getOpenFileName(self.window, self.tr("Open a replay"), str(folder), self._filter())
        if path:
            self.open_file(Path(path))

    def open_file(self, path: Path) -> bool:
        """Shows a recorded run; works without a model and without torch. False, with a banner, when it cannot."""
        from engine.replay import read_replay

        if self.window.engine.busy == "run":
            self._asked = path
            self.window.banner.show_note(
                self.tr("A run goes on: a replay would take its place."),
                self.tr("Stop it and open the replay"),
                self.stop_and_open,
            )
            return False
        QApplication.setOverrideCursor(Qt.CursorShape.WaitCursor)
        try:
            replay = read_replay(path)
        except FileRefused as error:
            self.window.banner.show_error(EngineError(error.what, error.fix, error.exit_code, "replay"))
            return False
        finally:
            QApplication.restoreOverrideCursor()
        self.window.store.take_replay(replay.events)
        self.window.busy_changed(self.window.engine.busy)  # a load may go on
        header = {name: value for name, value in replay.header.items() if name not in ("kind", "schema", "reads_with")}
        runs = self.window.store.runs
        newest = max((run.start.run_id for run in runs), default=0)
        self.requests, self._headers = {}, {newest: header}
        for run in runs:  # the first line tells of the newest; of those that it began in their own lines do
            if run.start.run_id not in self._headers:
                self._headers[run.start.run_id] = header | _asked(run.start)
        self.window.engine.number_after(max(self._headers, default=0))
        notes = [note for note in (replay.damage, *replay.notes) if note]
        self.window.banner.show_note(" ".join(notes) if notes else self.tr("Replay: {name}").format(name=path.name))
        self._remember_file(path)
        return True

    @Slot()
    def stop_and_open(self) -> None:
        self.window.banner.dismiss()
        self.window.stop()
        if self.window.engine.busy:
            self._waits = self._asked
        else:
            self.open_file(self._asked)

    def _remember_file(self, path: Path) -> None:
        recent = [str(path), *(name for name in self.window.preferences.recent_files if name != str(path))][:10]
        self.window.preferences.recent_files = recent

    @Slot()
    def fill_recent(self) -> None:
        self.window.recent_menu.clear()
        for name in self.window.preferences.recent_files:
            self.window.recent_menu.addAction(Path(name).name.replace("&", "&&")).setData(name)
        if not self.window.preferences.recent_files:
            self.window.recent_menu.addAction(self.tr("None yet")).setEnabled(False)

    @Slot(QAction)
    def open_recent(self, action: QAction) -> None:
        if action.data():
            self.open_file(Path(action.data()))


def _asked(start: RunStart) -> dict:
    """What a run's own line says of what it was asked, as a first line has it."""
    return {
        "seed": start.settings.seed,
        "lanes": [start.settings],
        "prompt": start.prompt,
        "system": start.system,
        "stop": list(start.stop),
        "max_new_tokens": start.max_new_tokens,
    }
