"""The precision x-ray: two precisions of the loaded model over one text, what differs and what each costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QEvent, QSize, Qt, Signal
from PySide6.QtGui import QFontMetrics, QKeySequence, QPainter, QPaintEvent, QShortcut
from PySide6.QtWidgets import (
    QApplication,
    QComboBox,
    QFileDialog,
    QGridLayout,
    QHBoxLayout,
    QMenu,
    QPlainTextEdit,
    QProgressBar,
    QPushButton,
    QStackedWidget,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from engine.events import LOAD_STAGES, EngineError, Xray, XrayProgress
from engine.settings import PRECISIONS
from widgets import theme
from widgets.banner import translated
from widgets.format import bytes_text, count_text
from widgets.panel import Panel, PlainLabel, scrolling
from widgets.small import SmallLabel, SmallText
from widgets.xray_figures import Row, about_token, as_markdown, as_tsv, explanation, summary, table, title
from widgets.xray_picture import paint_scale, save_picture
from widgets.xray_text import XrayText

OWN = "own"
LEAST_SIDE, MOST_SIDE = 370, 440


@dataclass(frozen=True, slots=True)
class XrayWish:
    """What a person asks for. A precision is one of PRECISIONS, None for what the files say."""

    reference: str | None
    other: str | None
    text: str
    sample: str  # "": the text is the person's own


class XrayView(QWidget):
    """Choose two precisions and a text, press Compare. All it asks for goes out as signals."""

    run_requested = Signal(object)  # XrayWish
    cancel_requested = Signal()

    def __init__(self, samples: Mapping[str, str], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._samples = dict(samples)
        self._found: Xray | None = None
        self._busy = self._able = False
        self._model = ""
        column = QVBoxLayout(self)
        column.setContentsMargins(theme.GAP, theme.GAP, theme.GAP, theme.GAP)
        column.setSpacing(theme.GAP)
        column.addWidget(self._build_question())
        row = QHBoxLayout()
        row.setSpacing(theme.GAP)
        row.addWidget(self._build_text(), 3)
        row.addWidget(self._build_figures(), 2)
        column.addLayout(row, 1)
        run = QShortcut(QKeySequence("Ctrl+Return"), self)
        run.activated.connect(self.ask)
        theme.changes.changed.connect(self._restyle)
        self.show_xray(None)
        self._show_state()

    # ---------------------------------------------------------------- building

    def _build_question(self) -> Panel:
        panel = Panel(self.tr("Precision x-ray"))
        self.question = panel
        self.reference, self.other = self._precisions(self.tr("Reference")), self._precisions(self.tr("Against"))
        self.reference.setToolTip(self.tr("What is held to be right; the other is measured against it."))
        self.other.setToolTip(self.tr("What may have lost something: usually the smaller of the two."))
        self.sample = QComboBox()
        self.sample.setAccessibleName(self.tr("Text"))
        names = {"prose": self.tr("prose"), "arithmetic": self.tr("arithmetic"), "code": self.tr("code")}
        for name in self._samples:
            self.sample.addItem(names.get(name, name), name)
        self.sample.addItem(self.tr("my own text"), OWN)
        self.run_button = QPushButton(self.tr("Compare"))
        self.run_button.setProperty("primary", True)
        theme.set_icon(self.run_button, "run")
        self.run_button.setIconSize(QSize(16, 16))
        self.cancel_button = QPushButton(self.tr("Cancel"))
        row = QHBoxLayout()
        row.setSpacing(8)
        for words, field in (
            (self.tr("reference"), self.reference),
            (self.tr("against"), self.other),
            (self.tr("text"), self.sample),
        ):
            label = PlainLabel(words, "muted")
            label.setBuddy(field)
            row.addWidget(label)
            row.addWidget(field)
            row.addSpacing(8)
        row.addStretch(1)
        row.addWidget(self.run_button)
        row.addWidget(self.cancel_button)
        self.editor = QPlainTextEdit()
        self.editor.setAccessibleName(self.tr("The text over which the two are compared"))
        self.editor.setPlaceholderText(
            self.tr("Write or paste a text here; its first 256 tokens are compared. A text in the model's own language "
                    "and kind tells most.")
        )  # fmt: skip
        self.editor.setTabChangesFocus(True)
        self.editor.setFixedHeight(theme.base_px() * 6)
        self.progress = QProgressBar()
        self.progress.setTextVisible(False)
        self.progress.setRange(0, 1000)
        self.progress.setAccessibleName(self.tr("Comparing"))
        self.stage = SmallLabel("", "")
        self.error = SmallText("", "warning")
        panel.body.addLayout(row)
        panel.body.addWidget(self.editor)
        for part in (self.progress, self.stage, self.error):
            panel.body.addWidget(part)
        self.run_button.clicked.connect(self.ask)
        self.cancel_button.clicked.connect(self.cancel_requested)
        self.sample.activated.connect(self._sample_chosen)
        self.editor.textChanged.connect(self._text_edited)
        self._sample_chosen()
        return panel

    def _precisions(self, name: str) -> QComboBox:
        combo = QComboBox()
        combo.setAccessibleName(name)
        for precision in PRECISIONS:
            combo.addItem(precision, precision)
        combo.addItem(self.tr("as in the files"), None)
        return combo

    def _build_text(self) -> Panel:
        panel = Panel(self.tr("Where they differ"))
        self.text = XrayText()
        self._area = scrolling(self.text)
        self._scale = _Scale()
        self.about = SmallText("", "")
        self.about.setMinimumHeight(theme.base_px() * 4)
        self.about.setAlignment(Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft)
        shown = QWidget()
        column = QVBoxLayout(shown)
        column.setContentsMargins(0, 4, 0, 0)
        column.addWidget(self._area, 1)
        column.addWidget(self._scale)
        column.addWidget(self.about)
        self.empty = SmallText(
            self.tr(
                "Each weight of a model can be kept with more or fewer bits. Fewer take less memory, and the model "
                "becomes a little less sure of what it knows.\n\n"
                "Choose two precisions and a text, and press Compare (Ctrl+Return). Both read the text, one after the "
                "other. Then it stands here, each token shaded by how far the two are apart there (KL divergence), and "
                "underlined where they would have gone on with another word. Beside it: perplexity, memory, speed.\n\n"
                "The model is loaded twice for that; the one that was loaded is there again afterwards."
            )
        )
        self.empty.setAlignment(Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft)
        self._stack = QStackedWidget()
        self._stack.addWidget(self.empty)
        self._stack.addWidget(shown)
        panel.body.addWidget(self._stack, 1)
        panel.show_focus_of(self.text)
        self.text.pointed.connect(self._pointed)
        self._text_panel = panel
        return panel

    def _build_figures(self) -> Panel:
        panel = Panel(self.tr("What it costs"))
        panel.setMinimumWidth(LEAST_SIDE)
        panel.setMaximumWidth(MOST_SIDE)
        self._grid_home = QVBoxLayout()
        panel.body.addLayout(self._grid_home)
        self.why = SmallText()
        self.why.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.copy_button = QToolButton()
        self.copy_button.setText(self.tr("Copy table"))
        self.copy_button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        menu = QMenu(self.copy_button)
        menu.addAction(self.tr("For a spreadsheet (tabs)")).triggered.connect(self.copy_tsv)
        menu.addAction(self.tr("As Markdown")).triggered.connect(self.copy_markdown)
        self.copy_button.setMenu(menu)
        self.copy_button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        theme.set_icon(self.copy_button, "copy")
        self.export_button = QToolButton()
        self.export_button.setText(self.tr("Export picture…"))
        self.export_button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        theme.set_icon(self.export_button, "save")
        for button in (self.copy_button, self.export_button):
            button.setIconSize(QSize(16, 16))
        self.export_button.clicked.connect(self.export)
        self.said = SmallLabel()
        row = QHBoxLayout()
        row.addWidget(self.copy_button)
        row.addWidget(self.export_button)
        row.addStretch(1)
        inside = QWidget()
        inside.setProperty("plain", True)
        column = QVBoxLayout(inside)
        column.setContentsMargins(0, 4, 4, 0)
        column.addWidget(self.why)
        column.addStretch(1)
        panel.body.addWidget(scrolling(inside), 1)
        panel.body.addLayout(row)
        panel.body.addWidget(self.said)
        self._figures = panel
        return panel

    # ---------------------------------------------------------------- asking

    def restore(self, reference: str, other: str, sample: str, own_text: str) -> None:
        """What was chosen last time; names that are not known change nothing."""
        for combo, name in ((self.reference, reference), (self.other, other)):
            if (at := combo.findData(name or None)) >= 0:
                combo.setCurrentIndex(at)
        self._own = own_text
        if (at := self.sample.findData(sample)) >= 0:
            self.sample.setCurrentIndex(at)
        self._sample_chosen()

    def wish(self) -> XrayWish:
        sample = self.sample.currentData()
        return XrayWish(
            self.reference.currentData(),
            self.other.currentData(),
            self.editor.toPlainText(),
            "" if sample == OWN else sample,
        )

    def own_text(self) -> str:
        return self._own

    def ask(self) -> None:
        if self.run_button.isEnabled() and not self._busy:
            self.error.setText("")
            self.run_requested.emit(self.wish())

    _own = ""

    def _sample_chosen(self) -> None:
        sample = self.sample.currentData()
        text = self._own if sample == OWN else self._samples.get(sample, "")
        if text != self.editor.toPlainText():
            self.editor.blockSignals(True)
            self.editor.setPlainText(text)
            self.editor.blockSignals(False)
        self._show_state()

    def _text_edited(self) -> None:
        """Whoever changes a shipped text has one of their own."""
        self._own = self.editor.toPlainText()
        self.sample.setCurrentIndex(self.sample.findData(OWN))
        self._show_state()

    # ---------------------------------------------------------------- showing

    @property
    def found(self) -> Xray | None:
        """What is shown."""
        return self._found

    def set_model(self, name: str) -> None:
        """The loaded model, "" for none: then there is nothing to compare."""
        if name != self._model:
            self._model = name
            self._able = bool(name)
            self.question.set_remark(name)
            self._show_state()

    def set_busy(self, busy: bool, others: bool = False) -> None:
        """busy: an x-ray goes on. others: something else keeps the engine."""
        self._busy = busy
        self._able = bool(self._model) and not others
        if busy:
            self.progress.setRange(0, 0)
            self.stage.setText(self.tr("starting…"))
        self._show_state()

    def show_progress(self, event: XrayProgress) -> None:
        """Where it stands: which of the two, and what it does."""
        words = dict.fromkeys(LOAD_STAGES, self.tr("loading"))
        words |= {"read": self.tr("reading the text"), "decode": self.tr("writing a few tokens, to measure the speed")}
        name = event.precision or self.tr("as in the files")
        text = f"{name} · {words.get(event.stage, event.stage)}"
        if event.total > 0:
            self.progress.setRange(0, 1000)
            self.progress.setValue(min(1000, event.done * 1000 // event.total))
            if event.stage in LOAD_STAGES:
                text += " · " + self.tr("{done} of {total}").format(
                    done=bytes_text(event.done), total=bytes_text(event.total)
                )
        else:
            self.progress.setRange(0, 0)
        self.stage.setText(text)
        self.progress.setAccessibleDescription(text)

    def show_error(self, error: EngineError) -> None:
        what = translated(error.what_template, error.fields) or error.what
        fix = translated(error.fix_template, error.fields) or error.fix
        self.error.setText(f"{what} {fix}".strip())
        self._show_state()

    def show_xray(self, found: Xray | None) -> None:
        self._found = found
        self.text.set_xray(found)
        self._stack.setCurrentIndex(0 if found is None else 1)
        self._text_panel.set_remark("" if found is None else self._counted(found))
        self._figures.set_remark("" if found is None else self.tr("measured"))
        self._fill_table()
        self.why.setText("" if found is None else explanation(found))
        self.said.setText("")
        for button in (self.copy_button, self.export_button):
            button.setEnabled(found is not None)
        self._pointed(None)

    def _counted(self, found: Xray) -> str:
        return self.tr("{flips} of {tokens}: another first choice").format(
            tokens=count_text(len(found.compared)), flips=count_text(len(found.flips))
        )

    def _show_state(self) -> None:
        if not hasattr(self, "error"):
            return
        self.cancel_button.setVisible(self._busy)
        self.run_button.setVisible(not self._busy)
        words = bool(self.editor.toPlainText().strip())
        self.run_button.setEnabled(self._able and words)
        if not self._model:
            tip = self.tr("No model is loaded: choose one first (Ctrl+L).")
        elif not self._able:
            tip = self.tr("The engine is at work: wait for its end, or stop it.")
        else:
            tip = self.tr("Load both, one after the other, and let them read the text (Ctrl+Return)") if words else (
                self.tr("There is no text yet.")
            )  # fmt: skip
        self.run_button.setToolTip(tip)
        for part in (self.progress, self.stage):
            part.setVisible(self._busy)
        for part in (self.reference, self.other, self.sample):
            part.setEnabled(not self._busy)
        self.editor.setReadOnly(self._busy)
        self.error.setVisible(bool(self.error.text()) and not self._busy)

    def _fill_table(self) -> None:
        while self._grid_home.count():
            item = self._grid_home.takeAt(0)
            if item is not None and (old := item.widget()) is not None:
                old.hide()
                old.deleteLater()
        home = QWidget()
        grid = QGridLayout(home)
        grid.setContentsMargins(0, 4, 0, 4)
        grid.setHorizontalSpacing(14)
        grid.setVerticalSpacing(7)
        grid.setColumnStretch(0, 1)
        if self._found is None:
            grid.addWidget(SmallText(self.tr("The two columns stand here once both have read the text.")), 0, 0)
        else:
            for at, words in enumerate((self._found.reference.precision, self._found.other.precision), start=1):
                label = PlainLabel(words, "value")
                label.setAlignment(Qt.AlignmentFlag.AlignRight)
                grid.addWidget(label, 0, at)
            for number, row in enumerate((*table(self._found), *summary(self._found)), start=1):
                self._add_row(grid, number, row)
        self._grid_home.addWidget(home)

    @staticmethod
    def _add_row(grid: QGridLayout, number: int, row: Row) -> None:
        name = PlainLabel(row.name, "muted")
        name.setToolTip(row.tooltip)
        grid.addWidget(name, number, 0)
        for at, words in enumerate((row.reference, row.other), start=1):
            if not words:
                continue
            value = PlainLabel(words)
            value.setToolTip(row.tooltip)
            value.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
            grid.addWidget(value, number, at, 1, 1 if row.other else 2)

    def _pointed(self, at: object) -> None:
        if self._found is None:
            return
        if not isinstance(at, int):
            self.about.setText(
                self.tr("Point at a word, or use the arrow keys: ↓ and ↑ go from one changed first choice to the next.")
            )
            return
        self.about.setText(about_token(self._found, at))
        place = self.text.place_of(at)
        if place.isValid() and self.text.hasFocus():
            self._area.ensureVisible(round(place.center().x()), round(place.center().y()), 0, round(place.height()))

    def _restyle(self) -> None:
        self.editor.setFixedHeight(theme.base_px() * 6)

    # ---------------------------------------------------------------- taking it away

    def copy_tsv(self) -> None:
        self._copy(as_tsv)

    def copy_markdown(self) -> None:
        self._copy(as_markdown)

    def _copy(self, how) -> None:
        if self._found is not None:
            QApplication.clipboard().setText(how(self._found))
            self.said.setText(self.tr("The table is on the clipboard."))

    def export(self) -> None:
        if self._found is None:
            return
        name = Path.home() / (title(self._found).replace(" · ", "-").replace(" ", "-").replace("/", "-") + ".png")
        path, _ = QFileDialog.getSaveFileName(
            self, self.tr("Export the picture"), str(name), self.tr("Pictures (*.png);;Drawings (*.svg)")
        )
        if path:
            self.export_to(path)

    def export_to(self, path: str) -> bool:
        """Writes the picture, PNG unless the name ends otherwise. False where it cannot be written; says so."""
        if self._found is None:
            return False
        if Path(path).suffix.lower() not in (".png", ".svg"):
            path += ".png"
        done = save_picture(self._found, path)
        self.said.setText(
            self.tr("Saved in {path}.").format(path=path)
            if done
            else self.tr("{path} cannot be written: choose another place.").format(path=path)
        )
        return done


class _Scale(QWidget):
    """What the shades mean."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        theme.changes.changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(200, 2 * QFontMetrics(theme.font(-2)).height() + 10)

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:
            self.updateGeometry()

    def paintEvent(self, event: QPaintEvent) -> None:
        with QPainter(self) as painter:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            paint_scale(painter, 0.0, 4.0, theme.font(-2), self.width())
