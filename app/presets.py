"""Presets in the window: the person's own in a file, ours, and the model's; saved, renamed, deleted, exchanged.

The file is read again before each change, so that two windows do not lose each other's presets (FIL-5).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Slot
from PySide6.QtWidgets import QFileDialog

from app.preferences import keep_aside, preferences_path
from engine.errors import FileRefused
from engine.events import EngineError
from engine.export_file import write_whole
from engine.presets import (
    BUILT_IN,
    LONGEST_FILE,
    PresetChange,
    PresetsRead,
    changed,
    clean_name,
    model_preset,
    presets_text,
    read_presets,
    same_name,
    with_new,
)
from engine.settings import Preset
from widgets.presets_chooser import PresetChooser, preset_name

if TYPE_CHECKING:
    from app.main_window import MainWindow

log = logging.getLogger(__name__)
LOCK_S = 2.0  # another window writes for some milliseconds
STEPS = 100  # that can be undone


def presets_path() -> Path:
    return preferences_path().with_name("presets.json")


def read_file(path: Path) -> PresetsRead:
    """The presets in a file. Raises FileRefused, and FileNotFoundError where there is none."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            return read_presets(file.read(LONGEST_FILE + 1))
    except FileNotFoundError:
        raise
    except UnicodeDecodeError:
        raise FileRefused("The file is no text in UTF-8.", "Choose a file that was exported here.") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise FileRefused(
            "{path} cannot be read: {said}.",
            "Choose another file.",
            path=str(path),
            said=getattr(error, "strerror", None) or error,
        ) from None


@dataclass(frozen=True, slots=True)
class Step:
    """What a person did, so that it can be undone."""

    words: str
    changes: tuple[PresetChange, ...]


class Presets(QObject):
    """path: where the person's own are kept; None: only as long as the window is open.

    The store has all of them, for other choosers (a lane's editor).
    """

    def __init__(self, window: MainWindow, chooser: PresetChooser, path: Path | None) -> None:
        super().__init__(window)
        self.window, self.chooser, self.path = window, chooser, path
        self.own: tuple[Preset, ...] = ()
        self._model: Preset | None = None
        self._had_facts: object = None
        self._steps: list[Step] = []
        self._unwritten = False  # what is here is more than what is in the file
        self._stamp: object = None
        chooser.save_requested.connect(self.save)
        chooser.rename_requested.connect(self.rename)
        chooser.delete_requested.connect(self.delete)
        chooser.undo_requested.connect(self.undo)
        chooser.import_requested.connect(self.ask_import)
        chooser.export_requested.connect(self.ask_export)
        chooser.opening.connect(self.look_again)
        window.store.frame.connect(self.look_at_model)
        self._begin()
        self.look_at_model()
        self._tell()

    @property
    def all(self) -> tuple[Preset, ...]:
        """The loaded model's own, ours, the person's."""
        return (*((self._model,) if self._model else ()), *BUILT_IN, *self.own)

    # ---------------------------------------------------------------- the file

    def _begin(self) -> None:
        if self.path is None:
            return
        try:
            found = read_file(self.path)
        except FileNotFoundError:
            return
        except FileRefused as error:
            log.warning("presets: %s", error)
            kept = keep_aside(self.path, "damaged") if self.path.is_file() and _may_read(self.path) else ""
            self.chooser.tell(self.tr("The file of presets could not be read; it starts anew{kept}.").format(kept=kept))
            return
        self.own, self._stamp = found.presets, _stamp(self.path)
        if found.newer:
            kept = keep_aside(self.path, "newer")
            self._unwritten = True
            note = self.tr("The presets are of a newer version; what this one knows of them is used{kept}.")
            self.chooser.tell(note.format(kept=kept))
        elif found.left_out:
            note = self.tr("Presets in the file that are damaged and left out: {count}.").format(count=found.left_out)
            self.chooser.tell(note)

    @Slot()
    def look_again(self) -> None:
        """Another window may have changed the file."""
        if self.path is None or self._unwritten or (stamp := _stamp(self.path)) == self._stamp:
            return
        with contextlib.suppress(FileRefused, FileNotFoundError):
            self.own, self._stamp = read_file(self.path).presets, stamp
            self._tell()

    def _change(self, changes: tuple[PresetChange, ...]) -> None:
        """Makes the changes here and in the file. What cannot be written stays here, with a note."""
        if self.path is None:
            self.own = changed(self.own, changes)
            self._tell()
            return
        with _alone(self.path):
            self.look_again()
            self.own = changed(self.own, changes)
            try:
                with contextlib.suppress(OSError):
                    self.path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(self.path, [presets_text(self.own)])
                self._unwritten, self._stamp = False, _stamp(self.path)
            except FileRefused as error:
                self._unwritten = True
                self.window.banner.show_error(
                    EngineError(error.what, "", error.exit_code, "presets"),
                    self.tr("Export my presets…"),
                    self.ask_export,
                )
        self._tell()

    # ---------------------------------------------------------------- what a person does

    @Slot(object, bool)
    def save(self, name: object, with_seed: bool) -> None:
        """Keeps the settings as they stand under a name; one of that name is replaced, which can be undone."""
        self.look_again()
        if (name := self._good_name(str(name))) is None:
            return
        panel = self.window.sampling_panel
        preset = Preset(name, panel.settings(), with_seed, tokens=panel.token_names())
        change = with_new(self.own, preset)
        words = self.tr("“{name}” is saved.") if change.before is None else self.tr("“{name}” is replaced.")
        self._do(Step(self.tr("save “{name}”").format(name=name), (change,)), words.format(name=name))
        self.chooser.accept_name()
        self.chooser.choose(preset)

    @Slot(object, object)
    def rename(self, preset: Preset, name: object) -> None:
        self.look_again()
        if (name := self._good_name(str(name))) is None:
            return
        if any(same_name(each.name, name) and not same_name(each.name, preset.name) for each in self.own):
            self.chooser.refuse_name(self.tr("There is a preset of this name already."))
            return
        if name != preset.name:
            at = [each.name for each in self.own].index(preset.name) if preset in self.own else 0
            renamed = replace(preset, name=name)
            step = Step(self.tr("rename “{name}”").format(name=preset.name), (PresetChange(preset, renamed, at),))
            self._do(step, self.tr("“{old}” is called “{name}” now.").format(old=preset.name, name=name))
            self.chooser.choose(renamed)
        self.chooser.accept_name()

    @Slot(object)
    def delete(self, preset: Preset) -> None:
        if preset not in self.own:
            return
        step = Step(
            self.tr("delete “{name}”").format(name=preset.name), (PresetChange(preset, None, self.own.index(preset)),)
        )
        self._do(step, self.tr("“{name}” is deleted.").format(name=preset.name))

    @Slot()
    def undo(self) -> None:
        if self._steps:
            step = self._steps.pop()
            self.chooser.tell("")
            self._change(tuple(change.undone for change in reversed(step.changes)))
            back = step.changes[0].before
            if back is not None and len(step.changes) == 1:
                self.chooser.choose(back)

    def _do(self, step: Step, words: str) -> None:
        self._steps = [*self._steps, step][-STEPS:]
        self._change(step.changes)
        self.chooser.tell(words, undo=True)

    def _good_name(self, name: str) -> str | None:
        name = clean_name(name)
        if not name:
            self.chooser.refuse_name(self.tr("Write a name first."))
            return None
        ours = (*BUILT_IN, model_preset(BUILT_IN[0].settings))
        if any(same_name(name, each.name) or same_name(name, preset_name(each)) for each in ours):
            self.chooser.refuse_name(self.tr("This name belongs to a preset that is always here: write another."))
            return None
        return name

    # ---------------------------------------------------------------- files that people exchange

    def _filter(self) -> str:
        return self.tr("Presets (*.json);;All files (*)")

    @Slot()
    def ask_import(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self.window, self.tr("Import presets"), self._folder(), self._filter())
        if path:
            self.take_file(Path(path))

    def take_file(self, path: Path) -> bool:
        """Adds a file's presets to one's own; of an equal name the file's gets a number. False where it cannot."""
        try:
            found = read_file(path)
        except FileNotFoundError:
            self.chooser.tell(self.tr("There is no file {path}.").format(path=str(path)))
            return False
        except FileRefused as error:
            self.chooser.tell(f"{error.what} {error.fix}".strip())
            return False
        self.look_again()
        self._remember(path)
        changes: list[PresetChange] = []
        own = self.own
        for preset in found.presets:
            if _is_here(preset, own):
                continue
            changes.append(with_new(own, replace(preset, name=self._free_name(preset.name, own))))
            own = changed(own, changes[-1:])
        words = [self.tr("Presets imported: {count}.").format(count=len(changes))]
        if same := len(found.presets) - len(changes):
            words.append(self.tr("Here already: {count}.").format(count=same))
        if found.left_out:
            words.append(self.tr("Damaged and left out: {count}.").format(count=found.left_out))
        if found.newer:
            words.append(self.tr("The file is of a newer version; what this one does not know is left out."))
        if changes:
            self._do(Step(self.tr("import {file}").format(file=path.name), tuple(changes)), " ".join(words))
        else:
            self.chooser.tell(" ".join(words))
        return True

    @staticmethod
    def _free_name(name: str, own: tuple[Preset, ...]) -> str:
        taken = (*BUILT_IN, model_preset(BUILT_IN[0].settings), *own)
        free, number = name, 2
        while any(same_name(free, each.name) for each in taken):
            free, number = f"{name} {number}", number + 1
        return free

    @Slot()
    def ask_export(self) -> None:
        path, _ = QFileDialog.getSaveFileName(
            self.window, self.tr("Export presets"), str(Path(self._folder()) / "presets.json"), self._filter()
        )
        if path:
            self.write_to(Path(path))

    def write_to(self, path: Path) -> bool:
        """Writes one's own presets to a file for others. False where it cannot be written."""
        try:
            write_whole(path, [presets_text(self.own)])
        except FileRefused as error:
            self.window.banner.show_error(
                EngineError(error.what, error.fix, error.exit_code, "presets"),
                self.tr("Choose another place…"),
                self.ask_export,
            )
            return False
        self._remember(path)
        told = self.tr("Written to {path}. Presets in it: {count}.")
        self.chooser.tell(told.format(count=len(self.own), path=str(path)))
        return True

    def _folder(self) -> str:
        return self.window.preferences.presets_folder or str(Path.home())

    def _remember(self, path: Path) -> None:
        self.window.preferences.presets_folder = str(path.parent)

    # ---------------------------------------------------------------- what is shown

    @Slot()
    def look_at_model(self) -> None:
        """The model's own preset is that of the model that is loaded."""
        facts = self.window.store.facts
        if facts is not self._had_facts:
            self._had_facts = facts
            self._model = None if facts is None else model_preset(facts.generation_defaults)
            self._tell()

    def _tell(self) -> None:
        self.chooser.set_presets(self.all)
        self.chooser.set_undo(self._steps[-1].words if self._steps else "")
        self.window.store.presets = self.all
        self.window.store.mark()


def _is_here(preset: Preset, own: tuple[Preset, ...]) -> bool:
    """Whether one's own hold it, perhaps under its name with the number that an earlier import gave it."""
    for each in own:
        before, _, number = each.name.rpartition(" ")
        named = each.name == preset.name or (before == preset.name and number.isdecimal())
        if named and replace(preset, name=each.name) == each:
            return True
    return False


def _stamp(path: Path) -> object:
    """What changes when the file does; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _may_read(path: Path) -> bool:
    """A file that may not be read is no damaged one, and stays where it is."""
    try:
        with open(path, "rb"):
            return True
    except OSError:
        return False


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One window at a time; where no lock can be had, nobody waits."""
    from filelock import FileLock, Timeout

    lock = FileLock(str(path) + ".lock")
    try:
        lock.acquire(timeout=LOCK_S)
    except (Timeout, OSError, NotImplementedError) as error:
        log.warning("presets are written without a lock: %s", error)
        yield
        return
    try:
        yield
    finally:
        lock.release()
