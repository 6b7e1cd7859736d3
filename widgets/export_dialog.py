"""What to export, what goes in, and where to: one dialog for all kinds.

It only asks: `asked` carries an ExportWish, and whoever writes the file says how far it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QSize, Qt, Signal
from PySide6.QtGui import QCloseEvent
from PySide6.QtWidgets import (
    QCheckBox,
    QDialog,
    QFileDialog,
    QHBoxLayout,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QProgressBar,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from engine.settings import Range
from widgets import theme
from widgets.choice import Choice
from widgets.fields import NumberField
from widgets.panel import ElidedLabel, PlainLabel
from widgets.small import SmallText

MOST_ALTERNATIVES = 40


@dataclass(frozen=True)
class ExportKind:
    """single: of one run only. pictures: "" none, "in" inside the file, "out" each a file of its own."""

    name: str
    title: str
    words: str
    ending: str
    single: bool = False
    pictures: str = ""


def tr(text: str) -> str:
    return QCoreApplication.translate("ExportDialog", text)


def export_kinds() -> tuple[ExportKind, ...]:
    """What can be exported, in the window's language."""
    return (
        ExportKind(
            "html",
            tr("Report, HTML"),
            tr(
                "A comparison to read and pass on, all in one file: texts shaded by surprise, where they part and why, "
                "settings, figures, pictures. Opens in any browser, runs nothing and fetches nothing."
            ),
            ".html",
            pictures="in",
        ),
        ExportKind(
            "markdown",
            tr("Report, Markdown"),
            tr("The same as text for notes and repositories. Pictures are inside as data, which not all readers show."),
            ".md",
            pictures="in",
        ),
        ExportKind(
            "csv",
            tr("Tokens, CSV"),
            tr(
                "A row for each token with its odds, draw, times and settings, for a spreadsheet. Texts that it would "
                "take for a formula begin with an apostrophe."
            ),
            ".csv",
        ),
        ExportKind(
            "jsonl",
            tr("Tokens, JSON Lines"),
            tr("An object for each token, with the most probable alternatives, for scripts."),
            ".jsonl",
        ),
        ExportKind(
            "chat",
            tr("Chat messages, JSON"),
            tr("Roles and contents as OpenAI's API has them, the answer last."),
            ".json",
        ),
        ExportKind(
            "png",
            tr("Pictures, PNG"),
            tr("The views as they stand, at twice their size in pixels, each in a file of its own."),
            ".png",
            pictures="out",
        ),
        ExportKind(
            "svg",
            tr("Pictures, SVG"),
            tr("The views as they stand, as drawings that stay sharp at any size, each in a file of its own."),
            ".svg",
            pictures="out",
        ),
        ExportKind(
            "transformers",
            tr("Program for transformers"),
            tr("Python that does the same with transformers, every setting said. Greedy, it writes the same tokens."),
            ".py",
            single=True,
        ),
        ExportKind(
            "openai",
            tr("Request, OpenAI's API"),
            tr("A curl command with what that API knows; what it has no word for stands in comments."),
            ".sh",
            single=True,
        ),
    )


@dataclass(frozen=True, slots=True)
class ExportWish:
    """kind: an ExportKind's name. scope: which runs. pictures: names of views."""

    kind: str
    scope: str
    path: str
    alternatives: int = 0
    pictures: tuple[str, ...] = ()


class ExportDialog(QDialog):
    """suggest: a file's name without ending."""

    asked = Signal(object)  # ExportWish
    cancel_requested = Signal()

    def __init__(self, suggest: Callable[[], str], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(self.tr("Export"))
        self.suggest = suggest
        self.kinds = {kind.name: kind for kind in export_kinds()}
        self._boxes: dict[str, QCheckBox] = {}
        self._offered: list[str] = []  # views that are on the screen now
        self._folder = ""
        self._suggested = ""
        self._busy = False
        self.list = QListWidget()
        self.list.setAccessibleName(self.tr("Kind of export"))
        for kind in self.kinds.values():
            item = QListWidgetItem(kind.title)
            item.setData(Qt.ItemDataRole.UserRole, kind.name)
            item.setSizeHint(QSize(0, theme.base_px() * 2))
            self.list.addItem(item)
        self.list.setStyleSheet("QListWidget::item { padding-left: 6px; }")
        self.list.setFixedWidth(theme.base_px() * 15)
        self.words = PlainLabel("", "muted")
        self.words.setWordWrap(True)
        self.words.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.scopes = Choice(self.tr("Which runs"))
        self.alternatives = NumberField(Range(0, MOST_ALTERNATIVES, 0, integer=True), 5)
        self.alternatives.setAccessibleName(self.tr("Alternatives for each token"))
        self.alternatives.setFixedWidth(theme.base_px() * 5)
        self.file = QLineEdit()
        self.file.setAccessibleName(self.tr("File"))
        self.browse = QPushButton(self.tr("Browse…"))
        self.state = SmallText("")
        self.progress = QProgressBar()
        self.progress.setTextVisible(False)
        self.export_button = QPushButton(self.tr("Export"))
        self.export_button.setProperty("primary", True)
        self.export_button.setDefault(True)
        self.close_button = QPushButton(self.tr("Close"))
        self._lay_out()
        self.list.currentRowChanged.connect(self._kind_chosen)
        self.scopes.currentIndexChanged.connect(self._name_anew)
        self.file.textChanged.connect(self._file_changed)
        self.browse.clicked.connect(self.ask_file)
        self.export_button.clicked.connect(self.ask)
        self.close_button.clicked.connect(self.reject)
        self.resize(theme.base_px() * 56, theme.base_px() * 34)
        self.list.setCurrentRow(0)
        self._show_state()

    def _lay_out(self) -> None:
        right = QVBoxLayout()
        right.setSpacing(theme.GAP)
        right.addWidget(self.words)
        self.scope_row = _row(self.tr("Runs"), self.scopes)
        self.alternatives_row = _row(self.tr("Alternatives for each token"), self.alternatives, stretch=False)
        self.pictures_box = QWidget()
        column = QVBoxLayout(self.pictures_box)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        label = ElidedLabel(self.tr("Pictures of"))
        label.setToolTip(self.tr("The views that are on the screen now, as they stand."))
        column.addWidget(label)
        self._pictures_column = column
        right.addWidget(self.scope_row)
        right.addWidget(self.alternatives_row)
        right.addWidget(self.alternatives.problem_label)
        right.addWidget(self.pictures_box)
        right.addStretch(1)
        upper = QHBoxLayout()
        upper.setSpacing(theme.GAP * 2)
        upper.addWidget(self.list)
        upper.addLayout(right, 1)
        file = QHBoxLayout()
        file.addWidget(self.file, 1)
        file.addWidget(self.browse)
        below = QHBoxLayout()
        below.addWidget(self.state, 1)
        below.addWidget(self.close_button)
        below.addWidget(self.export_button)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 16, 16, 16)
        column.setSpacing(theme.GAP)
        column.addLayout(upper, 1)
        column.addLayout(file)
        column.addWidget(self.progress)
        column.addLayout(below)

    # ---------------------------------------------------------------- what can be chosen

    def set_scopes(self, scopes: Sequence[tuple[str, str]]) -> None:
        """(name, words) of the sets of runs; where none is left there is nothing to export."""
        before = self.scopes.currentData()
        self.scopes.clear()
        for name, words in scopes:
            self.scopes.addItem(words, name)
        self.scopes.choose(before)
        self._show_state()

    def set_pictures(self, views: Sequence[tuple[str, str]]) -> None:
        """(name, title) of the views that can be pictured. What was chosen before stays so."""
        for name, title in views:
            if name not in self._boxes:
                self._boxes[name] = box = QCheckBox()
                box.setChecked(True)
                box.toggled.connect(self._show_state)
                self._pictures_column.addWidget(box)
            self._boxes[name].setText(title)
        self._offered = [name for name, _ in views]
        for name, box in self._boxes.items():
            box.setVisible(name in self._offered)
        self._show_state()

    def chosen_pictures(self) -> tuple[str, ...]:
        return tuple(name for name in self._offered if self._boxes[name].isChecked())

    def choose(self, kind: str, folder: str) -> None:
        """Stands on this kind, with a file in this folder."""
        self._folder = folder
        self.list.setCurrentRow(max(0, list(self.kinds).index(kind) if kind in self.kinds else 0))
        self.file.clear()
        self._name_anew()

    @property
    def kind(self) -> ExportKind:
        return self.kinds[self.list.currentItem().data(Qt.ItemDataRole.UserRole)]

    def wish(self) -> ExportWish:
        kind = self.kind
        chosen = self.chosen_pictures() if kind.pictures else ()
        self.alternatives.commit()
        return ExportWish(
            kind.name, str(self.scopes.currentData()), self.path(), int(self.alternatives.value()), chosen
        )

    def path(self) -> str:
        """The file that would be written; a kind's ending is added where none is."""
        text = self.file.text().strip()
        if not text:
            return ""
        path = Path(text).expanduser()
        if not path.suffix and path.name:
            path = path.with_name(path.name + self.kind.ending)
        return str(path if path.is_absolute() or not self._folder else Path(self._folder) / path)

    # ---------------------------------------------------------------- what is said

    def show_progress(self, done: int, total: int) -> None:
        """total 0: not known."""
        self._busy = True
        self.progress.setRange(0, 1000 if total else 0)
        self.progress.setValue(round(1000 * done / total) if total else 0)
        self._show_state()
        self.state.setText(self.tr("Writing…"))

    def show_over(self, sentence: str = "", wrong: bool = False) -> None:
        """The export is over: what is to be said of it, in the warning's colour where it failed."""
        self._busy = False
        self._show_state()
        self._say(sentence, wrong)

    def _say(self, sentence: str, wrong: bool = False) -> None:
        self.state.setProperty("role", "warning" if wrong else "muted")
        self.state.style().unpolish(self.state)
        self.state.style().polish(self.state)
        self.state.setText(sentence)

    @property
    def busy(self) -> bool:
        return self._busy

    # ---------------------------------------------------------------- hands

    def ask(self) -> None:
        if self.export_button.isEnabled() and self.alternatives.commit():
            self.asked.emit(self.wish())

    def ask_file(self) -> None:
        kind = self.kind
        told = f"{kind.title} (*{kind.ending})"
        path, _ = QFileDialog.getSaveFileName(
            self, self.tr("Export"), self.path(), told, options=QFileDialog.Option.DontConfirmOverwrite
        )
        if path:
            self.file.setText(path)
            self._folder = str(Path(path).parent)

    def reject(self) -> None:
        """Close, or stop what is being written."""
        if self._busy:
            self.cancel_requested.emit()
        else:
            super().reject()

    def closeEvent(self, event: QCloseEvent) -> None:
        if self._busy:
            self.cancel_requested.emit()
        super().closeEvent(event)

    def _kind_chosen(self) -> None:
        kind = self.kind
        self.words.setText(kind.words)
        self.alternatives_row.setVisible(kind.name == "jsonl")
        self.pictures_box.setVisible(bool(kind.pictures))
        self.scope_row.setVisible(kind.pictures != "out" and not kind.single)
        self._name_anew()

    def _name_anew(self) -> None:
        """Another kind is another ending; a name that a person wrote stays."""
        name = self.suggest()
        if self.kind.name == "jsonl":
            name = self.tr("{name}, tokens").format(name=name)  # a saved replay has this name and ending
        suggested = str(Path(self._folder) / (name + self.kind.ending))
        text = self.file.text()
        if not text or text == self._suggested:
            self.file.setText(suggested)
        elif Path(text).suffix in {kind.ending for kind in self.kinds.values()}:
            self.file.setText(str(Path(text).with_suffix(self.kind.ending)))
        self._suggested = suggested
        self._show_state()

    def _file_changed(self) -> None:
        self._show_state()

    def _show_state(self) -> None:
        """What can be pressed, and what will be replaced."""
        for widget in (self.list, self.scopes, self.alternatives, self.pictures_box, self.file, self.browse):
            widget.setEnabled(not self._busy)
        self.progress.setVisible(self._busy)
        self.close_button.setText(self.tr("Stop") if self._busy else self.tr("Close"))
        problem = ""
        if not self.scopes.count():
            problem = self.tr("There is no run to export yet: press Run first.")
        elif not self.file.text().strip():
            problem = self.tr("Write the file's name.")
        elif self.kind.pictures == "out" and not self.chosen_pictures():
            problem = self.tr("Choose at least one picture.")
        self.export_button.setEnabled(not problem and not self._busy)
        replaces = not problem and any(Path(path).is_file() for path in self.files())
        self.export_button.setText(self.tr("Replace") if replaces else self.tr("Export"))
        self._say(problem or (self.tr("A file of this name is there and will be replaced.") if replaces else ""))

    def files(self) -> list[str]:
        """The files that would be written."""
        path = self.path()
        if self.kind.pictures != "out" or not path:
            return [path] if path else []
        return [picture_path(path, name) for name in self.chosen_pictures()]


def picture_path(path: str, view: str) -> str:
    """Where the picture of one view goes: its name behind the file's own."""
    return str(Path(path).with_name(f"{Path(path).stem}-{view}{Path(path).suffix}"))


def _row(text: str, widget: QWidget, stretch: bool = True) -> QWidget:
    held = QWidget()
    row = QHBoxLayout(held)
    row.setContentsMargins(0, 0, 0, 0)
    label = ElidedLabel(text)
    row.addWidget(label, 0 if stretch else 1)
    row.addWidget(widget, 1 if stretch else 0)
    return held
