"""Blind tests in the window: completed with the window's prompt, kept at every vote, exported."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Slot
from PySide6.QtWidgets import QFileDialog

from app.preferences import blind_folder
from engine.errors import FileRefused, SettingsRefused
from engine.events import BlindTest, EngineError
from engine.file_names import safe_name
from widgets.lab.experiment_wishes import AskRound, BeginBlind, ExportBlind, KeepBlind

if TYPE_CHECKING:
    from app.experiments import Experiments


class BlindTests(QObject):
    """The page's wishes. On a visit nothing is kept."""

    def __init__(self, experiments: Experiments) -> None:
        super().__init__(experiments)
        self.experiments = experiments
        self.window = experiments.window
        self.window.laboratory.route(BeginBlind, self.begin)
        self.window.laboratory.route(AskRound, self.ask_round)
        self.window.laboratory.route(KeepBlind, self.keep)
        self.window.laboratory.route(ExportBlind, self.export)

    @property
    def folder(self) -> Path | None:
        window = self.window
        if window.visit is None:
            return blind_folder()
        return Path(window.visit) / "blind" if window.visit else None

    @Slot(object)
    def begin(self, wish: BeginBlind) -> None:
        asked = self.experiments.asked(wish.max_new_tokens)
        if asked is None:
            return
        try:
            test = BlindTest(
                replace(asked, prompt=""), wish.prompts, wish.settings, wish.names, wish.at_end, wish.planned,
                begun=datetime.now().astimezone().isoformat(timespec="microseconds"),
            )  # fmt: skip
        except SettingsRefused as error:
            self.window.banner.show_error(EngineError(error.what, error.fix, error.exit_code, "run"))
            return
        self.experiments.page("blind").begin_test(test)

    @Slot(object)
    def ask_round(self, wish: AskRound) -> None:
        if self.experiments.begin(wish.question):
            self.experiments.page("blind").begun(wish.question)

    @Slot(object)
    def keep(self, wish: KeepBlind) -> None:
        from engine.blind_files import write_test

        folder = self.folder
        if folder is None:
            return
        try:
            write_test(folder / safe_name(wish.test.begun.replace(":", "."), ".json"), wish.test)
        except FileRefused as error:
            self.window.banner.show_error(EngineError(error.what, error.fix, error.exit_code, "record"))

    def newest(self) -> BlindTest | None:
        """The test that was kept last."""
        from engine.blind_files import read_test

        folder = self.folder
        files = sorted(folder.glob("*.json")) if folder is not None and folder.is_dir() else []
        for path in reversed(files):
            try:
                return read_test(path)
            except FileRefused as error:
                self.window.banner.show_error(EngineError(error.what, error.fix, error.exit_code, "record"))
        return None

    @Slot(object)
    def export(self, wish: ExportBlind) -> None:
        name = safe_name(f"blind test {wish.test.begun[:16].replace(':', '.')}", ".csv")
        start = Path(self.window.preferences.export_folder or Path.home()) / name
        path, _ = QFileDialog.getSaveFileName(
            self.window, self.tr("Export the blind test"), str(start), self.tr("CSV (*.csv);;JSON (*.json)")
        )
        if path:
            self.export_to(Path(path), wish.test)

    def export_to(self, path: Path, test: BlindTest) -> bool:
        """CSV, or JSON where the name ends so. False, with a banner, when it cannot be written."""
        from engine.blind_files import as_csv, as_json
        from engine.export_file import write_whole

        try:
            write_whole(path, as_json(test) if path.suffix.lower() == ".json" else as_csv(test))
        except FileRefused as error:
            self.window.banner.show_error(
                EngineError(error.what, error.fix, error.exit_code, "record", error.what_template, error.fix_template)
            )
            return False
        self.window.banner.show_note(self.tr("Saved in {path}.").format(path=path))
        return True
