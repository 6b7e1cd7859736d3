"""One lane on the page: letter, name, settings in short, its text, where it leaves the reference, its figures."""

from __future__ import annotations

import re
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QKeySequence, QPainter, QPainterPath, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QMenu, QToolButton, QVBoxLayout, QWidget

from widgets import theme
from widgets.fields import QuietLine
from widgets.format import plain_tooltip
from widgets.lab.lane_canvas import LaneCanvas, LaneSource
from widgets.lab.lane_set import MOST, Lane, LaneSet
from widgets.lab.lane_words import (
    changed_words,
    difference_words,
    figure_list,
    parting_words,
    place_words,
    settings_words,
)
from widgets.lab.parting import LaneWatch
from widgets.run import Run
from widgets.run_store import RunStore
from widgets.small import SmallLabel, SmallText
from widgets.text_canvas import STANDARD_STEP
from widgets.timeline import TimelineBars

STRIPE = 3.0  # of the lane's colour along the top
LEAST_WIDTH, LEAST_HEIGHT = 18, 20  # in base sizes
BARS_FROM = 24  # base sizes of height from which the bars are shown
UNIT_GAP = re.compile(r"(?<=[\d/]) ")  # no line begins with a unit
TEXT_STEP = -2  # the text is smaller than in the text view by this many pixels


@dataclass(frozen=True, slots=True)
class LaneAct:
    """What a person wants of a lane: "edit", "rename", "duplicate", "remove", "left", "right", "reference", "text"."""

    key: int
    what: str
    name: str = ""


class LetterChip(QWidget):
    """The lane's letter on its colour."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.letter, self.colour = "", 0
        theme.changes.changed.connect(self.update)

    def show_letter(self, letter: str, colour: int) -> None:
        if (letter, colour) != (self.letter, self.colour):
            self.letter, self.colour = letter, colour
            self.setAccessibleName(letter)
            self.update()

    def sizeHint(self) -> QSize:
        side = theme.base_px() + 7
        return QSize(side, side)

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        with QPainter(self) as painter:  # an exception must not leave it open: that ends the process
            look = theme.current()
            side = float(self.sizeHint().width())
            box = QRectF(0.0, (self.height() - side) / 2, side, side)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(look.lane(self.colour))
            painter.drawRoundedRect(box, 4.0, 4.0)
            painter.setPen(look.panel)
            painter.setFont(theme.font(0, bold=True))
            painter.drawText(box, int(Qt.AlignmentFlag.AlignCenter), self.letter)


class LaneColumn(QFrame):
    """Shows one lane of a LaneSet, and the run that it wrote, if any."""

    acted = Signal(object)  # LaneAct

    def __init__(self, store: RunStore, key: int, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.key = key
        self.lane: Lane | None = None
        self.watch: LaneWatch | None = None
        self.reference_letter = ""
        self._letter = ""
        self._colour = 0
        self._seen: tuple[Run | None, int, bool, int] = (None, 0, False, 0)
        self._known_changes: dict[int, str] = {}
        self._explained = 0  # figures that the tool tip tells of
        self.setProperty("panel", True)
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.source = LaneSource(store, self)
        self.canvas = LaneCanvas(self.source)
        self.canvas.zoom(TEXT_STEP)
        self.canvas.installEventFilter(self)
        # The bars are painted whole, so they are given a frame only as often as the figures.
        self.bar_source = LaneSource(store, self)
        self.bars = TimelineBars(self.bar_source)  # type: ignore[arg-type]  reads what a canvas reads
        self.bars.setFocusPolicy(Qt.FocusPolicy.NoFocus)  # the text has the same keys
        self.bars.setFixedHeight(30)
        self.chip = LetterChip()
        self.name_field = QuietLine()
        self.name_field.setProperty("quiet", True)
        self.name_field.setPlaceholderText(self.tr("name it"))
        self.name_field.setMaxLength(60)
        self.name_field.editingFinished.connect(self._renamed)
        self.edit_button = self._button(self.tr("edit"))
        self.edit_button.clicked.connect(self._edit)
        self.menu_button = self._button("⋯")
        self._build_menu()
        self.settings_label = SmallLabel()
        self.parting_label = SmallText("", "")
        self.figures_label = SmallText()

        head = QHBoxLayout()
        head.setSpacing(4)
        head.addWidget(self.chip)
        head.addWidget(self.name_field, 1)
        head.addWidget(self.edit_button)
        head.addWidget(self.menu_button)
        column = QVBoxLayout(self)
        column.setContentsMargins(12, 9, 12, 10)
        column.setSpacing(4)
        column.addLayout(head)
        column.addWidget(self.settings_label)
        column.addSpacing(2)
        column.addWidget(self.canvas, 1)
        column.addWidget(self.bars)
        column.addWidget(self.parting_label)
        column.addWidget(self.figures_label)
        theme.changes.changed.connect(self.update)

    def _button(self, text: str) -> QToolButton:
        button = QToolButton(self)
        button.setText(text)
        button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        return button

    def _build_menu(self) -> None:
        menu = QMenu(self.menu_button)
        self.reference_action = menu.addAction(self.tr("Compare the others with this lane"))
        self.duplicate_action = menu.addAction(self.tr("Duplicate"))
        self.left_action = menu.addAction(self.tr("Move left"))
        self.right_action = menu.addAction(self.tr("Move right"))
        self.text_action = menu.addAction(self.tr("Show on the page Text, to go on from a word"))
        menu.addSeparator()
        self.remove_action = menu.addAction(self.tr("Remove"))
        for action, what, key in (
            (self.reference_action, "reference", "Ctrl+Shift+R"),
            (self.duplicate_action, "duplicate", "Ctrl+Shift+D"),
            (self.left_action, "left", "Ctrl+Shift+Left"),
            (self.right_action, "right", "Ctrl+Shift+Right"),
            (self.text_action, "text", ""),
            (self.remove_action, "remove", "Delete"),
        ):
            action.setData(what)
            action.triggered.connect(self._menu_act)
            if key:
                action.setShortcut(QKeySequence(key))
                action.setShortcutContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
                self.addAction(action)
        self.menu_button.setMenu(menu)
        self.word_menu = QMenu(self)
        self.word_menu.addAction(self.text_action)
        self.canvas.menu_asked.connect(self.word_menu.popup)
        self.menu_button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)

    @staticmethod
    def least_size() -> QSize:
        """Below this a lane is not readable."""
        return QSize(theme.base_px() * LEAST_WIDTH, theme.base_px() * LEAST_HEIGHT)

    # ---------------------------------------------------------------- what it shows

    def show_lane(self, lanes: LaneSet, removable: bool) -> None:
        """The lane as it is set up now, and its place among the others."""
        lane = lanes.lane(self.key)
        assert lane is not None
        self.lane, place = lane, lanes.place(self.key)
        self._letter, self._colour = lane.letter, lane.colour
        self.reference_letter = lanes.letter(lanes.reference)
        is_reference = lanes.reference == self.key
        self.chip.show_letter(self._letter, self._colour)
        self.canvas.set_colour(self._colour)
        if self.name_field.text() != lane.name and not self.name_field.isModified():
            self.name_field.setText(lane.name)
            self.name_field.setCursorPosition(0)  # of a long name its beginning is seen
        name = self.tr("lane {letter}").format(letter=self._letter)
        self.setAccessibleName(f"{name} {lane.name}".strip())
        self.canvas.setAccessibleName(self.tr("Text of {lane}").format(lane=name))
        self.bars.setAccessibleName(self.tr("Uncertainty by token of {lane}").format(lane=name))
        self.name_field.setAccessibleName(self.tr("Name of {lane}").format(lane=name))
        tip = self.tr("What this lane is called; click to write")
        self.name_field.setToolTip(plain_tooltip(f"{lane.name}\n{tip}" if lane.name else tip))
        self.edit_button.setAccessibleName(self.tr("Edit {lane}").format(lane=name))
        self.edit_button.setToolTip(self.tr("Settings, seed and prompt of {lane} (F2)").format(lane=name))
        self.menu_button.setAccessibleName(self.tr("More for {lane}").format(lane=name))
        self.menu_button.setToolTip(self.tr("Duplicate, remove, move, compare with this lane"))
        self.reference_action.setEnabled(not is_reference)
        self.duplicate_action.setEnabled(not lanes.full)
        self.left_action.setEnabled(place > 0)
        self.right_action.setEnabled(place + 1 < len(lanes.lanes))
        self.remove_action.setEnabled(removable)
        if lanes.full:
            self.duplicate_action.setText(self.tr("Duplicate (there are {most} already)").format(most=MOST))
        else:
            self.duplicate_action.setText(self.tr("Duplicate"))
        words = settings_words(lane.settings, lanes.seeds_differ)
        if lane.own is not None:
            words += " · " + self.tr("own prompt")
        self.settings_label.setText(words)
        difference = "" if is_reference else difference_words(lane, lanes.reference_lane, self.reference_letter)
        self.settings_label.setToolTip(plain_tooltip("\n".join(part for part in (words, difference) if part)))
        if is_reference:
            self.canvas.set_teaching(
                [
                    self.tr("Lanes share one prompt and the same draws: a difference is the setting's doing."),
                    self.tr("Press Run lanes (Ctrl+Return)."),
                ]
            )
        else:
            self.canvas.set_teaching([difference[:1].upper() + difference[1:] + "."])
        self.write_words()
        self.update()

    def show_run(self, watch: LaneWatch | None) -> None:
        """The run that this lane wrote, beside the reference's."""
        self.watch = watch
        self.source.run = self.bar_source.run = watch.run if watch is not None else None
        self._seen = (None, -1, False, 0)
        self.source.frame.emit()
        self._show_bars()
        if watch is None:
            self.canvas.set_marks(None, "", {})
        else:
            self.take_in()
            if watch.run.end is not None:
                self.canvas.verticalScrollBar().setValue(0)  # where lanes part is near the beginning
        self.write_words()

    def take_in(self) -> bool:
        """What was written since the last frame. True where there was something."""
        if self.watch is None:
            return False
        run = self.watch.run
        parting = self.watch.parting
        self.watch.take_in()
        seen = (run, len(run.tokens), run.end is not None, len(run.changes))
        if seen == self._seen and parting is self.watch.parting:
            return False
        self._seen = seen
        self._mark()
        if not self.bars.isVisible():
            self._show_bars()
        self.source.frame.emit()
        return True

    def _mark(self) -> None:
        assert self.watch is not None
        parting = self.watch.parting
        words = parting_words(self.watch, self.reference_letter) if parting is not None else ""
        if len(self._known_changes) != len(self.watch.run.changes) or self.watch.run.changes:
            self._known_changes = changes_of(self.watch.run)
        self.canvas.set_marks(parting.step if parting is not None else None, words, self._known_changes)

    def write_words(self) -> None:
        """The lines below the text. Not at every frame: figures that flicker cannot be read."""
        watch = self.watch
        if watch is None:
            self.text_action.setEnabled(False)
            self._say(self.parting_label, "")
            self._say(self.figures_label, "")
            return
        self._mark()
        if watch.reference is None:
            self._say(self.parting_label, self.tr("reference lane: the others are compared with it"))
        else:
            self._say(self.parting_label, parting_words(watch, self.reference_letter))
        found = figure_list(watch)
        told = [UNIT_GAP.sub("\u00a0", figure.text) for figure in found]
        if stale := self._stale_words():
            told.append(stale)
        self._say(self.figures_label, "\u00a0· ".join(told))  # no line begins with the dot
        self.text_action.setEnabled(True)
        if len(found) != self._explained:
            self._explained = len(found)
            self.figures_label.setToolTip(plain_tooltip("\n".join(each.tooltip for each in found)))
        self.bar_source.frame.emit()

    def _stale_words(self) -> str:
        """Where the settings were edited after the text was written, what it was written with."""
        run = self.source.run
        if run is None or run.end is None or self.lane is None:
            return ""
        used = run.changes[-1].settings if run.changes else run.start.settings
        if used == self.lane.settings:
            return ""
        return self.tr("written with {settings}").format(
            settings=settings_words(used, used.seed != self.lane.settings.seed)
        )

    @staticmethod
    def _say(label: SmallText, words: str) -> None:
        if label.text() != words:
            label.setText(words)
        label.setVisible(bool(words))

    def set_text_size(self, step: int) -> None:
        """As TextView.set_size_step: pixels larger than the standard."""
        self.canvas.zoom(STANDARD_STEP + step + TEXT_STEP - self.canvas.size_step)

    # ---------------------------------------------------------------- hand and keys

    def _renamed(self) -> None:
        if self.lane is not None and self.name_field.isModified():
            self.name_field.setModified(False)
            if self.name_field.text() != self.lane.name:
                self.acted.emit(LaneAct(self.key, "rename", self.name_field.text()))

    def commit(self) -> None:
        """Takes a name that is half typed."""
        self._renamed()

    def _edit(self) -> None:
        self.acted.emit(LaneAct(self.key, "edit"))

    def _menu_act(self) -> None:
        self.acted.emit(LaneAct(self.key, self.sender().data()))  # type: ignore[attr-defined]

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """F2 edits; what the text does not take comes here."""
        if event.modifiers() == Qt.KeyboardModifier.NoModifier and event.key() == Qt.Key.Key_F2:
            self._edit()
        else:
            super().keyPressEvent(event)

    def eventFilter(self, watched: object, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.FocusIn, QEvent.Type.FocusOut):
            self.setProperty("focused", event.type() == QEvent.Type.FocusIn)
            self.style().polish(self)
        return super().eventFilter(watched, event)  # type: ignore[arg-type]

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._show_bars()

    def _show_bars(self) -> None:
        """Only where there is something to draw, and room for it beside the text."""
        run = self.source.run
        self.bars.setVisible(run is not None and bool(run.tokens) and self.height() >= theme.base_px() * BARS_FROM)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if event.rect().top() > STRIPE:  # most frames paint a word
            return
        with QPainter(self) as painter:  # an exception must not leave it open: that ends the process
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            frame = QPainterPath()
            frame.addRoundedRect(QRectF(self.rect()), theme.CORNER, theme.CORNER)
            stripe = QPainterPath(QPointF(0.0, 0.0))
            stripe.addRect(QRectF(0.0, 0.0, self.width(), STRIPE))
            painter.fillPath(frame.intersected(stripe), theme.current().lane(self._colour))


def changes_of(run: Run) -> dict[int, str]:
    """What became of a run's settings, in words, by the step from which it holds."""
    found: dict[int, str] = {}
    before = run.start.settings
    for change in run.changes:
        if words := changed_words(before, change.settings):
            said = f"{place_words(change.step)}: {words}"
            found[change.step] = f"{found[change.step]}\n{said}" if change.step in found else said
        before = change.settings
    return found
