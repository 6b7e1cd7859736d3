"""The question before something of a model's own may run: its Python files to read, or why pickle files are risky."""

from __future__ import annotations

from PySide6.QtCore import Qt, Slot
from PySide6.QtWidgets import (
    QAbstractItemView,
    QDialog,
    QDialogButtonBox,
    QHeaderView,
    QPlainTextEdit,
    QPushButton,
    QSplitter,
    QTableWidget,
    QTableWidgetItem,
    QVBoxLayout,
    QWidget,
)

from engine.events import CodeFile, TrustQuestion
from widgets import theme
from widgets.format import bytes_text, plain_tooltip
from widgets.panel import PlainLabel
from widgets.small import SmallText


class TrustDialog(QDialog):
    """Shows what would run. `accepted` is the person's yes, to exactly these files."""

    def __init__(self, question: TrustQuestion, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.question = question
        code = question.kind == "code"
        titles = {
            "code": self.tr("Program code of this model"),
            "pickle": self.tr("Pickle files"),
            "tie": self.tr("No output head"),
        }
        self.setWindowTitle(titles[question.kind])
        explain = PlainLabel(self._explanation())
        explain.setWordWrap(True)
        self.place = SmallText(question.path)
        self.place.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        heads = (self.tr("file"), self.tr("bytes"), self.tr("begins here") if code else self.tr("calls"))
        self.files = QTableWidget(len(question.files), len(heads))
        self.files.setHorizontalHeaderLabels(list(heads))
        self.files.setAccessibleName(self.tr("Files"))
        self.files.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.files.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.files.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.files.setTabKeyNavigation(False)
        self.files.setShowGrid(False)
        self.files.verticalHeader().hide()
        header = self.files.horizontalHeader()
        header.setHighlightSections(False)
        header.setDefaultAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(2, QHeaderView.ResizeMode.Stretch)
        for at, file in enumerate(question.files):
            self._fill(at, file)
        self.hash = SmallText()
        self.hash.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.viewer = QPlainTextEdit()
        self.viewer.setReadOnly(True)
        self.viewer.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.viewer.setFont(theme.mono(-1))
        self.viewer.setAccessibleName(self.tr("The file's text"))
        below = QWidget()
        column = QVBoxLayout(below)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addWidget(self.hash)
        column.addWidget(self.viewer, 1)
        split = QSplitter(Qt.Orientation.Vertical)
        split.setChildrenCollapsible(False)
        split.addWidget(self.files)
        split.addWidget(below)
        split.setSizes([120, 320])
        self.buttons = QDialogButtonBox()
        self.no = QPushButton(self.tr("Do not load"))
        words = {
            "code": self.tr("Run this code and load"),
            "pickle": self.tr("Load with weights_only"),
            "tie": self.tr("Tie the head and load"),
        }
        self.yes = QPushButton(words[question.kind])
        self.buttons.addButton(self.yes, QDialogButtonBox.ButtonRole.AcceptRole)
        self.buttons.addButton(self.no, QDialogButtonBox.ButtonRole.RejectRole)
        self.yes.setAutoDefault(False)
        self.no.setDefault(True)  # Enter never runs a stranger's program
        # Code that is not here cannot have been read, and without the network it cannot run either.
        self.yes.setEnabled(bool(question.files) or question.kind == "tie")
        self.buttons.accepted.connect(self.accept)
        self.buttons.rejected.connect(self.reject)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 16, 16, 16)
        column.setSpacing(8)
        column.addWidget(explain)
        column.addWidget(self.place)
        if question.elsewhere:
            text = self.tr("Not in the folder: {parts}.").format(parts=", ".join(question.elsewhere))
            column.addWidget(SmallText(text, "warning"))
        column.addWidget(split, 1)
        remember = self.tr("A yes holds for exactly these files; when one of them changes, you are asked again.")
        if not code:
            remember = self.tr("A yes holds for this load only.")
        column.addWidget(SmallText(remember))
        column.addWidget(self.buttons)
        self.files.currentCellChanged.connect(self._show_file)
        if question.files:
            self.files.setCurrentCell(0, 0)
            self.resize(720, 620)
        else:
            split.hide()
            self.resize(520, self.sizeHint().height())
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.no.setFocus()

    def _explanation(self) -> str:
        if self.question.kind == "code":
            return self.tr(
                "This model brings Python files of its own, and cannot work without them. They would run on this "
                "computer with all your rights: they can read, send and delete your files. Read them first, and "
                "allow them only if you trust where they come from."
            )
        if self.question.kind == "tie":
            return self.tr(
                "The files hold no output head, and config.json does not say that the embedding is used for it. Many "
                "small models do so (the head is tied to the embedding) and forget to say it. If this one does not, "
                "it will write nonsense: then the download is incomplete."
            )
        return self.tr(
            "The weights of this model are pickle files. Reading a pickle can run programs; safetensors files, which "
            "most models offer too, cannot. If you go on, they are read with weights_only, which lets nothing but "
            "numbers through. Below stands what each file would call."
        )

    def _fill(self, at: int, file: CodeFile) -> None:
        called = file.text.splitlines()
        told = ", ".join(file.named_by)
        if self.question.kind == "pickle":
            told = self.tr("nothing") if not called and file.whole else ", ".join(called)
            if not file.whole:
                told = self.tr("could not be looked through")
        size = QTableWidgetItem(bytes_text(file.bytes))
        size.setTextAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        for column, item in enumerate((QTableWidgetItem(file.name), size, QTableWidgetItem(told))):
            item.setToolTip(plain_tooltip(item.text()))
            self.files.setItem(at, column, item)

    @Slot()
    def _show_file(self) -> None:
        at = self.files.currentRow()
        if not 0 <= at < len(self.question.files):
            return
        file = self.question.files[at]
        self.viewer.setPlainText(file.text)
        text = file.name + (self.tr(" · sha256 {hash}").format(hash=file.sha256) if file.sha256 else "")
        if not file.whole:
            text += " · " + self.tr("only its beginning is shown")
        self.hash.setText(text)
