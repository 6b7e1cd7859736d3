"""The models on this computer: a table to sort and filter, what is known of each, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Qt, QUrl, Signal, Slot
from PySide6.QtGui import QAction, QDesktopServices, QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QFileDialog,
    QHBoxLayout,
    QLineEdit,
    QMenu,
    QPushButton,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from engine.events import ModelChoice
from widgets import theme
from widgets.banner import translated
from widgets.details import Details, Line, beside, framed_page
from widgets.format import UNKNOWN, bytes_text, count_text, plain_tooltip, short_count, tokens_text
from widgets.panel import PlainLabel
from widgets.rows import Column, RowsView
from widgets.small import SmallLabel


class LocalModels(QWidget):
    """The first page of the model browser."""

    load_requested = Signal(object)  # str: what LoadPlan.model takes
    folder_added = Signal(object)  # str
    folder_removed = Signal(object)  # str
    hub_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._folders: tuple[str, ...] = ()
        self._cache = ""
        self._looked = False
        self._build_top()
        self._build_table()
        self._build_details()
        self._build_empty()
        self.split = beside(self.left, self.details)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, theme.GAP, 0, 0)
        column.setSpacing(8)
        column.addLayout(self.top)
        column.addWidget(self.split, 1)
        QShortcut(QKeySequence.StandardKey.Find, self, self.focus_filter, Qt.ShortcutContext.WindowShortcut)
        self.set_models((), (), "")
        self._looked = False
        self._show_which()

    # ---------------------------------------------------------------- building

    def _build_top(self) -> None:
        self.filter = QLineEdit()
        self.filter.setPlaceholderText(self.tr("filter by name, family, licence, …"))
        self.filter.setAccessibleName(self.tr("Filter"))
        self.filter.setToolTip(self.tr("Rows stay that hold every word. Ctrl+F comes here."))
        self.filter.setClearButtonEnabled(True)
        self.add_button = QPushButton(self.tr("Add folder…"))
        self.add_button.setToolTip(self.tr("Look for models in a folder and up to three folders below it"))
        theme.set_icon(self.add_button, "plus")
        self.remove_button = QPushButton(self.tr("Remove folder"))
        self.remove_button.setToolTip(self.tr("Stop looking in a folder. Nothing in it is deleted."))
        theme.set_icon(self.remove_button, "minus")
        self.folder_menu = QMenu(self.remove_button)
        self.folder_menu.triggered.connect(self._remove_folder)
        self.remove_button.setMenu(self.folder_menu)
        self.top = QHBoxLayout()
        self.top.setSpacing(8)
        self.top.addWidget(self.filter, 1)
        self.top.addWidget(self.add_button)
        self.top.addWidget(self.remove_button)
        for button in (self.add_button, self.remove_button):
            button.setAutoDefault(False)
        self.add_button.clicked.connect(self.add_folder)

    def _build_table(self) -> None:
        self.table = RowsView(self.tr("Models on this computer"), self._columns(), _identity, _tone)
        self.table.sortByColumn(0, Qt.SortOrder.AscendingOrder)
        self.table.chosen.connect(self._chosen)
        self.table.acted.connect(self._act)
        self.filter.textChanged.connect(self.table.set_filter)
        self.filter.textChanged.connect(self._show_which)
        self.filter.returnPressed.connect(self.table.setFocus)
        self.count = SmallLabel()

    def _columns(self) -> list[Column]:
        return [
            Column(self.tr("name"), lambda m: m.name, lambda m: m.name.casefold(), 22),
            Column(
                self.tr("parameters"), lambda m: _short(m.parameters), lambda m: m.parameters, 10, True,
                self.tr("How many weights it has, counted from the headers of its files"),
            ),
            Column(
                self.tr("size"), lambda m: bytes_text(m.size_bytes) if m.size_bytes else UNKNOWN,
                lambda m: m.size_bytes or None, 7, True, self.tr("The weight files on the disk"),
            ),
            Column(
                self.tr("precision"), lambda m: m.precision or UNKNOWN, lambda m: m.precision.casefold() or None, 9,
                False, self.tr("The number type of the weights on the disk, or how they are quantised"),
            ),
            Column(
                self.tr("context"), lambda m: count_text(m.context_tokens), lambda m: m.context_tokens, 7, True,
                self.tr("How many tokens prompt and text may have together"),
            ),
            Column(self.tr("licence"), lambda m: m.licence or UNKNOWN, lambda m: m.licence.casefold() or None, 10),
            Column(
                self.tr("chat"), self._template_word, lambda m: m.has_chat_template, 8, False,
                self.tr("Whether it has a chat template: made to answer messages, or to continue raw text"),
            ),
            Column(
                self.tr("files"), self._weights_word, lambda m: m.weights or None, 10, False,
                self.tr("safetensors and GGUF hold numbers only; a pickle can run a program when it is read"),
            ),
            Column(
                self.tr("family"), lambda m: m.family or UNKNOWN, lambda m: m.family.casefold() or None, 8, False,
                self.tr("model_type: which architecture it is built as"),
            ),
            Column(self.tr("where"), self._kind_word, lambda m: m.kind, 8),
        ]  # fmt: skip

    def _build_details(self) -> None:
        self.details = Details(self.tr("The chosen model"))
        self.details.setMinimumWidth(theme.base_px() * 19)
        self.load_button = QPushButton(self.tr("Load"))
        self.load_button.setProperty("primary", True)
        theme.set_icon(self.load_button, "load")
        self.show_button = QPushButton(self.tr("Show in folder"))
        theme.set_icon(self.show_button, "open")
        row = QHBoxLayout()
        row.setSpacing(8)
        for button in (self.load_button, self.show_button):
            button.setAutoDefault(False)
            row.addWidget(button, 1)
        self.details.acts.addLayout(row)
        self.load_button.clicked.connect(self._load)
        self.show_button.clicked.connect(self.show_in_folder)

    def _build_empty(self) -> None:
        self.empty_text = PlainLabel("", "muted")
        self.empty_text.setWordWrap(True)
        self.empty_text.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.empty_add = QPushButton(self.tr("Add folder…"))
        self.empty_hub = QPushButton(self.tr("Look on the hub"))
        self.empty_clear = QPushButton(self.tr("Clear the filter"))
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addStretch(1)
        for button in (self.empty_add, self.empty_hub, self.empty_clear):
            button.setAutoDefault(False)
            row.addWidget(button)
        row.addStretch(1)
        empty = framed_page()
        column = QVBoxLayout(empty)
        column.setContentsMargins(40, 0, 40, 0)
        column.setSpacing(12)
        column.addStretch(1)
        column.addWidget(self.empty_text)
        column.addLayout(row)
        column.addStretch(1)
        self.stack = QStackedWidget()
        self.stack.addWidget(self.table)
        self.stack.addWidget(empty)
        self.left = QWidget()
        column = QVBoxLayout(self.left)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(6)
        column.addWidget(self.stack, 1)
        column.addWidget(self.count)
        self.empty_add.clicked.connect(self.add_folder)
        self.empty_hub.clicked.connect(self.hub_wanted)
        self.empty_clear.clicked.connect(self.filter.clear)

    # ---------------------------------------------------------------- words

    def _template_word(self, model: ModelChoice) -> str:
        if model.has_chat_template is None:
            return UNKNOWN
        return self.tr("template") if model.has_chat_template else self.tr("none")

    def _weights_word(self, model: ModelChoice) -> str:
        return {"": UNKNOWN, "gguf": "GGUF"}.get(model.weights, model.weights)

    def _kind_word(self, model: ModelChoice) -> str:
        if model.hub_id:
            return self.tr("hub's cache")
        return {"default": self.tr("default"), "gguf": self.tr("GGUF file")}.get(model.kind, self.tr("folder"))

    def _lines(self, model: ModelChoice) -> list[Line]:
        context = tokens_text(model.context_tokens)
        pickle = self.tr("pickle files: they can run a program when they are read; you are asked before that")
        weights = {
            "safetensors": self.tr("safetensors: numbers only, nothing in them can run"),
            "gguf": self.tr("GGUF: one file with weights and tokenizer"),
            "pickle": pickle,
        }
        template = {
            True: self.tr("there is one: it answers messages"),
            False: self.tr("none: it continues raw text"),
        }
        counted = self.tr("Counted from the headers of the weight files")
        return [
            (self.tr("parameters"), count_text(model.parameters) if model.parameters else "", counted),
            (self.tr("size in files"), bytes_text(model.size_bytes) if model.size_bytes else "", ""),
            (self.tr("precision"), model.precision, ""),
            (self.tr("family"), model.family, ""),
            (self.tr("context"), context if model.context_tokens else "", ""),
            (self.tr("chat template"), template.get(model.has_chat_template, ""), ""),
            (self.tr("files"), weights.get(model.weights, ""), ""),
            (self.tr("licence"), model.licence or self.tr("its files name none"), ""),
            (self.tr("hub id"), model.hub_id, ""),
            (self.tr("path"), model.path, plain_tooltip(model.path)),
        ]

    # ---------------------------------------------------------------- showing

    def set_models(self, models: Sequence[ModelChoice], folders: Sequence[str], cache: str) -> None:
        """What was found; the folders that were chosen; where the hub's cache lies."""
        self._looked, self._folders, self._cache = True, tuple(folders), cache
        self.table.set_things(models)
        self.folder_menu.clear()
        for folder in self._folders:
            self.folder_menu.addAction(folder.replace("&", "&&")).setData(folder)
        self.remove_button.setEnabled(bool(self._folders))
        self._show_which()

    @Slot()
    def _show_which(self) -> None:
        """The table, or a sentence instead of an empty one."""
        things, shown = self.table.rows.things, self.table.shown()
        self.stack.setCurrentIndex(0 if shown else 1)
        filtered = bool(things) and not shown
        self.empty_clear.setVisible(filtered)
        self.empty_add.setVisible(not things and self._looked)
        self.empty_hub.setVisible(not things and self._looked)
        if not self._looked:
            self.empty_text.setText(self.tr("Looking for models…"))
        elif filtered:
            self.empty_text.setText(self.tr("No model here fits “{words}”.").format(words=self.filter.text()))
        else:
            places = "\n".join((self._cache, *self._folders)) if self._cache else ""
            self.empty_text.setText(
                self.tr(
                    "No model lies on this computer yet. Add a folder that holds some, or get one from the hub.\n\n"
                    "Looked in:\n{places}"
                ).format(places=places)
            )
        total = bytes_text(sum(model.size_bytes for model in shown))
        wrong = sum(model.problem is not None for model in shown)
        models = self.tr("1 model") if len(shown) == 1 else self.tr("{count} models").format(count=len(shown))
        text = f"{models} · {total}"
        if wrong == 1:
            text += " · " + self.tr("1 cannot be loaded as it lies there")
        elif wrong:
            text += " · " + self.tr("{count} cannot be loaded as they lie there").format(count=count_text(wrong))
        self.count.setText(text if shown else "")

    @Slot(object)
    def _chosen(self, model: ModelChoice | None) -> None:
        for button in (self.load_button, self.show_button):
            button.setEnabled(model is not None)
        if model is None:
            self.details.show_facts("", (), fix=self.tr("Choose a model: what is known of it stands here."))
            return
        problem = model.problem
        what = (translated(problem.what_template, problem.fields) or problem.what) if problem else ""
        fix = (translated(problem.fix_template, problem.fields) or problem.fix) if problem else ""
        self.details.show_facts(model.name, self._lines(model), what, fix)
        self.load_button.setEnabled(problem is None)
        self.load_button.setToolTip(
            self.tr("It cannot be loaded as it lies there.") if problem else self.tr("Load this model (Enter)")
        )

    # ---------------------------------------------------------------- acts

    @Slot()
    def focus_filter(self) -> None:
        self.filter.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.filter.selectAll()

    @Slot()
    def _load(self) -> None:
        self._act(self.table.current())

    @Slot(object)
    def _act(self, model: ModelChoice | None) -> None:
        if model is not None and model.problem is None:
            self.load_requested.emit(model.model)

    @Slot()
    def show_in_folder(self) -> None:
        """Opens the system's file manager where the model lies."""
        model = self.table.current()
        if model is not None and model.path:
            path = Path(model.path)
            QDesktopServices.openUrl(QUrl.fromLocalFile(str(path if path.is_dir() else path.parent)))

    @Slot()
    def add_folder(self) -> None:
        folder = QFileDialog.getExistingDirectory(self, self.tr("A folder with models"), str(Path.home()))
        if folder:
            self.folder_added.emit(folder)

    @Slot(QAction)
    def _remove_folder(self, action: QAction) -> None:
        self.folder_removed.emit(action.data())


def _identity(model: ModelChoice) -> object:
    return model.model


def _tone(model: ModelChoice) -> str:
    return "muted" if model.problem else ""


def _short(count: int | None) -> str:
    return UNKNOWN if not count else short_count(count)
