"""What a person said of the word that is shown, or of the run, edited where it stands."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt, Signal, Slot
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QToolButton, QWidget

from widgets import theme
from widgets.format import count_text
from widgets.marks import Marks
from widgets.panel import PlainLabel
from widgets.run import Run
from widgets.small import make_small

LONGEST = 2000  # characters of a name or note


class NotesBar(QWidget):
    """A row with the bookmark's name and the note of the selected word; with the run's note while none is selected.

    Hidden where there is neither and none is being written. Enter or leaving takes the words, Esc brings the last
    ones back, and an emptied note goes.
    """

    left = Signal()  # the hand is done here

    def __init__(self, marks: Marks, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.marks = marks
        self._run: Run | None = None
        self._step: int | None = None  # None: the run
        self.name_label, self.name, self.name_gone = self._field(
            self.tr("Bookmark"), self.tr("Name it"), self.tr("Delete this bookmark (Ctrl+Shift+B)")
        )
        self.note_label, self.note, self.note_gone = self._field(
            self.tr("Note"), self.tr("A sentence"), self.tr("Delete this note")
        )
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(6)
        for stretch, parts in ((2, self._name_parts()), (5, self._note_parts())):
            for part in parts:
                row.addWidget(part, stretch if isinstance(part, QLineEdit) else 0)
        self.name.editingFinished.connect(self._take_name)
        self.note.editingFinished.connect(self._take_note)
        self.name_gone.clicked.connect(self._delete_bookmark)
        self.note_gone.clicked.connect(self._delete_note)
        marks.edit_asked.connect(self._begin)
        marks.store.marks_changed.connect(self.refresh)
        marks.store.selection_changed.connect(self.refresh)
        marks.store.frame.connect(self.refresh)
        theme.changes.changed.connect(self._restyle)
        self._restyle()
        self.hide()

    def _field(self, name: str, hint: str, delete: str) -> tuple[PlainLabel, QLineEdit, QToolButton]:
        label, field, gone = PlainLabel(name, "muted"), QLineEdit(), QToolButton()
        field.setPlaceholderText(hint)
        field.setAccessibleName(name)
        field.setMaxLength(LONGEST)
        field.installEventFilter(self)
        label.setBuddy(field)
        gone.setText("×")
        gone.setToolTip(delete)
        gone.setAccessibleName(delete)
        return label, field, gone

    def _name_parts(self) -> tuple[QWidget, ...]:
        return self.name_label, self.name, self.name_gone

    def _note_parts(self) -> tuple[QWidget, ...]:
        return self.note_label, self.note, self.note_gone

    def _restyle(self) -> None:
        make_small(self.name_label)
        make_small(self.note_label)

    @property
    def editing(self) -> bool:
        return self.name.hasFocus() or self.note.hasFocus()

    @Slot()
    def refresh(self) -> None:
        """Shows what is said of the selected word; not while a hand is writing."""
        if not self.editing:
            store = self.marks.store
            self._run = store.current
            self._step = None if store.following else store.selected_step
            self._show(False, False)

    def _show(self, ask_name: bool, ask_note: bool) -> None:
        named = self.marks.at("bookmark", self._step) if self._step is not None else None
        noted = self.marks.at("note", self._step)
        if named is not None:
            self.name_label.setText(self.tr("Bookmark {number}").format(number=count_text(self.marks.number(named))))
        self.note_label.setText(self.tr("Note") if self._step is not None else self.tr("Note on the run"))
        for field, mark in ((self.name, named), (self.note, noted)):
            text = mark.text if mark is not None else ""
            if field.text() != text:
                field.setText(text)
                field.setCursorPosition(0)
        for parts, shown in ((self._name_parts(), named or ask_name), (self._note_parts(), noted or ask_note)):
            for part in parts:
                part.setVisible(bool(shown))
        self.note_gone.setVisible(noted is not None)
        self.setVisible(bool(named or noted or ask_name or ask_note))

    @Slot(object)
    def _begin(self, place: object) -> None:
        what, step = place  # type: ignore[misc]
        self._run, self._step = self.marks.store.current, step
        self._show(what == "bookmark", what == "note")
        field = self.name if what == "bookmark" else self.note
        field.setFocus(Qt.FocusReason.ShortcutFocusReason)
        field.selectAll()

    @Slot()
    def _take_name(self) -> None:
        if self._run is not None and ("bookmark", self._step) in self._run.marks:
            self.marks.put("bookmark", self._step, self.name.text(), self._run)
        self.refresh()

    @Slot()
    def _take_note(self) -> None:
        self.marks.put("note", self._step, self.note.text(), self._run)
        self.refresh()

    @Slot()
    def _delete_bookmark(self) -> None:
        if self._step is not None:
            self.marks.put("bookmark", self._step, None, self._run)
        self.left.emit()

    @Slot()
    def _delete_note(self) -> None:
        self.marks.put("note", self._step, None, self._run)
        self.left.emit()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.KeyPress and isinstance(event, QKeyEvent):
            if event.key() == Qt.Key.Key_Escape:
                self._show(self.name.hasFocus(), self.note.hasFocus())  # the words as they were
                self.left.emit()
                return True
            if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                self.left.emit()  # leaving the field takes its words
                return True
        return super().eventFilter(watched, event)
