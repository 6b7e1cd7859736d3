"""Exports in the window: the dialog, the pictures of its views, the copies, and the writing in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QCoreApplication, QLocale, QObject, QThread, QUrl, Signal, Slot
from PySide6.QtGui import QDesktopServices, QGuiApplication
from PySide6.QtWidgets import QWidget

from app.threads import has_ended, leave, told
from engine.control import Control
from engine.errors import Cancelled
from engine.events import EngineError
from engine.export import ExportRun, chat_of, json_text, title_of, token_count
from engine.export_code import as_openai, as_transformers
from engine.export_file import write_whole
from engine.export_kinds import SINGLE, pieces_of
from engine.export_report import Picture
from engine.file_names import safe_name
from widgets.banner import sentence_of
from widgets.export_dialog import ExportDialog, ExportWish, picture_path
from widgets.format import bytes_text
from widgets.pictures import png_of, svg_of
from widgets.run import Run

if TYPE_CHECKING:
    from app.main_window import MainWindow

LONG_NAME = 40  # characters of a prompt in a file's name


@dataclass(frozen=True, eq=False)
class ExportJob:
    """files: pictures that are files of their own, as (path, bytes); otherwise the wish's file is written."""

    wish: ExportWish
    runs: tuple[ExportRun, ...]
    pictures: tuple[Picture, ...]
    files: tuple[tuple[str, bytes], ...]
    control: Control


@dataclass(frozen=True, slots=True)
class ExportEnd:
    """paths: what was written. Nothing was, where it was cancelled or failed."""

    wish: ExportWish
    paths: tuple[str, ...] = ()
    bytes: int = 0
    error: EngineError | None = None


class ExportWorker(QObject):
    progress = Signal(object)  # (done, total) in tokens
    ended = Signal(object)  # ExportEnd

    @Slot(object)
    def write(self, job: ExportJob) -> None:
        total, wish = token_count(job.runs), job.wish
        try:
            if job.files:
                written = sum(write_whole(path, [data], job.control) for path, data in job.files)
                self.ended.emit(ExportEnd(wish, tuple(path for path, _ in job.files), written))
                return
            pieces = pieces_of(wish.kind, list(job.runs), job.pictures, wish.alternatives, report_words, language())
            written = write_whole(
                wish.path, pieces, job.control, lambda done: self.progress.emit((min(done, total), total))
            )
            self.ended.emit(ExportEnd(wish, (wish.path,), written))
        except Cancelled:
            self.ended.emit(ExportEnd(wish))
        except Exception as error:  # a thread's edge
            self.ended.emit(ExportEnd(wish, error=told(error, "export")))


def report_words(text: str) -> str:
    """A report's own words in the window's language."""
    return QCoreApplication.translate("report", text)


def language() -> str:
    """The window's language, as a page names it."""
    return QLocale().bcp47Name() or "en"


class Exports(QObject):
    """The thread is started with the first export."""

    _write = Signal(object)

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self.window = window
        self.dialog: ExportDialog | None = None
        self.worker = ExportWorker()
        self._thread: QThread | None = None
        self._control = Control()
        self._going = False
        self._last = ""  # the file that was written

    # ---------------------------------------------------------------- which runs

    def taken(self, scope: str) -> tuple[ExportRun, ...]:
        """The runs of a scope as they stand now: "run" the shown one, "lanes" those beside it, "all" every one."""
        store = self.window.store
        runs: list[Run] = [store.current] if store.current is not None else []
        if scope == "all":
            runs = store.runs
        elif scope == "lanes" and store.current is not None:
            runs = self._beside(store.current)
        return tuple(
            ExportRun(
                run.start,
                tuple(run.tokens),
                run.end,
                run.facts,
                tuple(run.changes),
                self.window.replays.header_of(run),
                beside=store.letters.get(run.key, "") if run.key in store.compared else "",
                reference=run.key == store.reference and run.key in store.compared,
            )
            for run in runs
        )

    def _beside(self, current: Run) -> list[Run]:
        """What stands side by side: the runs that were put there, else the lanes of the shown run."""
        store = self.window.store
        compared = [run for run in (store.run(key) for key in store.compared) if run is not None]
        return compared or [run for run in store.runs if run.start.run_id == current.start.run_id]

    def _scopes(self) -> list[tuple[str, str]]:
        store, current = self.window.store, self.window.store.current
        if current is None:
            return []
        (run,) = self.taken("run")
        beside = self._beside(current)
        found = [("run", self.tr("This run: {name}").format(name=title_of(run)))]
        if len(beside) > 1:
            found.insert(0, ("lanes", self.tr("The {count} side by side").format(count=len(beside))))
        if len(store.runs) > max(1, len(beside)):
            found.append(("all", self.tr("All {count} runs of this window").format(count=len(store.runs))))
        return found

    # ---------------------------------------------------------------- pictures

    def _views(self) -> dict[str, tuple[str, QWidget]]:
        """The views that are on the screen now, by name, with their titles."""
        window = self.window
        found: dict[str, tuple[str, QWidget]] = {}
        if window.laboratory.current != "text":
            page = window.laboratory.stack.currentWidget()
            tabs = window.laboratory.tabs
            found["page"] = (tabs.tabText(tabs.currentIndex()).replace("&", ""), page)
        for name, view in zip(("memory", "kv_cache", "speed"), window.plots, strict=False):
            found[name] = (window.docks[name].windowTitle(), view)
        found["timeline"] = (self.tr("Timeline"), window.timeline)
        found["word"] = (self.tr("Why this word"), window.word_view)
        return {name: (title, view) for name, (title, view) in found.items() if view.isVisible()}

    def _pictures(self, wish: ExportWish, kind: str) -> list[tuple[str, Picture]]:
        (run,) = self.taken("run")
        found = []
        for name, (title, view) in self._views().items():
            if name in wish.pictures:
                data = png_of(view) if kind == "png" else svg_of(view, title)
                found.append((name, Picture(f"{title}: {title_of(run)}", kind, data, view.width())))
        return found

    # ---------------------------------------------------------------- the dialog

    @Slot()
    def show(self) -> ExportDialog:
        """Opens the dialog, standing where it stood last."""
        if self.dialog is None:
            self.dialog = ExportDialog(self._suggested, self.window)
            self.dialog.asked.connect(self.ask)
            self.dialog.cancel_requested.connect(self.cancel)
        dialog, preferences = self.dialog, self.window.preferences
        if not dialog.busy:
            dialog.set_scopes(self._scopes())
            dialog.set_pictures([(name, title) for name, (title, _) in self._views().items()])
            dialog.choose(preferences.export_kind, preferences.export_folder or str(Path.home()))
        dialog.show()
        dialog.raise_()
        dialog.activateWindow()
        return dialog

    def _suggested(self) -> str:
        run = self.window.store.current
        if run is None:
            return "run"
        words = run.start.name or run.start.prompt
        return safe_name(words[:LONG_NAME])

    @Slot(object)
    def ask(self, wish: ExportWish) -> None:
        """Takes the runs as they stand and hands them to the thread."""
        if self._going:
            return
        preferences = self.window.preferences
        preferences.export_kind, preferences.export_folder = wish.kind, str(Path(wish.path).parent)
        runs = self.taken("run" if wish.kind in SINGLE else wish.scope)
        if not runs:
            return
        files: tuple[tuple[str, bytes], ...] = ()
        pictures: list[tuple[str, Picture]] = []
        if wish.kind in ("png", "svg"):
            found = self._pictures(wish, wish.kind)
            files = tuple((picture_path(wish.path, name), picture.data) for name, picture in found)
            if not files:
                return
        elif wish.kind in ("html", "markdown"):
            pictures = self._pictures(wish, "png")
        self._control, self._going = Control(), True
        self._start()
        if self.dialog is not None:
            self.dialog.show_progress(0, 0)
        self._write.emit(ExportJob(wish, runs, tuple(picture for _, picture in pictures), files, self._control))

    def _start(self) -> None:
        if self._thread is None:
            self._thread = QThread(self)
            self._thread.setObjectName("export")
            self.worker.moveToThread(self._thread)
            self._write.connect(self.worker.write)
            self.worker.progress.connect(self._progressed)
            self.worker.ended.connect(self._ended)
            self._thread.start()

    @Slot()
    def cancel(self) -> None:
        self._control.cancel()

    @Slot(object)
    def _progressed(self, far: tuple[int, int]) -> None:
        if self.dialog is not None and self._going:
            self.dialog.show_progress(*far)

    @Slot(object)
    def _ended(self, end: ExportEnd) -> None:
        self._going = False
        dialog = self.dialog
        if end.error is not None:
            if dialog is not None:
                dialog.show_over(sentence_of(end.error), wrong=True)
            if dialog is None or not dialog.isVisible():
                self.window.banner.show_error(end.error, self.tr("Export…"), self.show)
            return
        if dialog is not None:
            dialog.show_over("" if end.paths else self.tr("Stopped; nothing was written."))
            if end.paths:
                dialog.accept()
        if end.paths:
            self._last = end.paths[0]
            size = bytes_text(end.bytes)
            if len(end.paths) == 1:
                note = self.tr("Saved in {path} ({size}).").format(path=end.paths[0], size=size)
            else:
                folder = str(Path(end.paths[0]).parent)
                note = self.tr("{count} pictures saved in {path} ({size}).").format(
                    count=len(end.paths), path=folder, size=size
                )
            self.window.banner.show_note(note, self.tr("Show the folder"), self.show_folder)

    @Slot()
    def show_folder(self) -> None:
        """In the system's own way; the file itself is not opened, since a program might run it."""
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(Path(self._last).parent)))

    # ---------------------------------------------------------------- copies

    @Slot()
    def copy_transformers(self) -> None:
        self._copy(as_transformers, self.tr("The program for transformers is in the clipboard."))

    @Slot()
    def copy_openai(self) -> None:
        self._copy(
            as_openai,
            self.tr("The request is in the clipboard; what OpenAI's API has no word for stands in its comments."),
        )

    @Slot()
    def copy_chat(self) -> None:
        self._copy(lambda run: json_text(chat_of(run)), self.tr("The messages are in the clipboard."))

    def _copy(self, made: Callable[[ExportRun], str], note: str) -> None:
        runs = self.taken("run")
        if not runs:
            self.window.banner.show_note(self.tr("There is no run to copy yet: press Run first."))
            return
        QGuiApplication.clipboard().setText(made(runs[0]))
        self.window.banner.show_note(note)

    # ---------------------------------------------------------------- closing

    def close(self) -> None:
        """Cancel, quit, wait: what is half written goes."""
        self._control.cancel()
        if self.dialog is not None:
            self.dialog.close()
        if self._thread is not None:
            self._thread.quit()
            if not has_ended(self._thread):
                leave("a disk did not answer on close")
