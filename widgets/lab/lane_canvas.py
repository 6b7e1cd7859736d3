"""One lane's text: the text view's own canvas over one run of several, with what sets it apart from the others."""

from __future__ import annotations

from PySide6.QtCore import QObject, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFocusEvent, QPainter, QPen, QPolygonF
from PySide6.QtWidgets import QWidget

from widgets import theme
from widgets.redecided_painter import paint_flag
from widgets.run import Run
from widgets.run_store import RunStore
from widgets.text_canvas import TextCanvas
from widgets.text_flow import Piece, place_in


class LaneSource(QObject):
    """What a canvas reads of a store, for one run that need not be the current one.

    Pointing at a word points in the store, and a click makes the run the current one. A place that is selected in
    another lane is this lane's place too. `frame` is given by whoever owns the lane, when its run has changed.
    """

    frame = Signal()
    selection_changed = Signal()
    hover_changed = Signal()
    marks_changed = Signal()

    def __init__(self, store: RunStore, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.store = store
        self.run: Run | None = None
        store.selection_changed.connect(self.selection_changed)
        store.hover_changed.connect(self.hover_changed)
        store.marks_changed.connect(self.marks_changed)

    @property
    def current(self) -> Run | None:
        return self.run

    @property
    def runs(self) -> list[Run]:
        return self.store.runs

    def above(self, run: Run) -> Run | None:
        return self.store.above(run)

    def letter(self, run: Run) -> str:
        return self.store.letter(run)

    @property
    def shown(self) -> bool:
        """Whether this lane is the one that all other views show."""
        return self.run is not None and self.store.current is self.run

    @property
    def following(self) -> bool:
        return self.store.following

    @property
    def moment(self) -> int:
        """As in the store, for this run."""
        written = len(self.run.tokens) if self.run is not None else 0
        return min(written, self.store.moment) if self.store.rewound else written

    @property
    def selected_step(self) -> int | None:
        if self.run is None or not self.run.tokens:
            return None
        newest = len(self.run.tokens) - 1
        chosen = None if self.store.following else self.store.selected_step
        return newest if chosen is None else min(chosen, newest)

    @property
    def hovered_step(self) -> int | None:
        return self.store.hovered_step if self.store.hovered_run is self.run else None

    def hover(self, step: int | None) -> None:
        self.store.hover(step, None if step is None or self.shown else self.run)

    def select(self, step: int | None) -> None:
        self.show_run()
        self.store.select(step)

    def rewind(self, step: int | None) -> None:
        self.show_run()
        self.store.rewind(step)

    def show_run(self) -> None:
        """Makes this lane the one that all views show, at the place where they are."""
        if self.run is not None and not self.shown:
            step, rewound = None if self.store.following else self.store.selected_step, self.store.rewound
            self.store.show(self.run)
            (self.store.rewind if rewound else self.store.select)(step)


class LaneCanvas(TextCanvas):
    """The text of a lane. Set `colour`, `parted_at`, `words_at` and `teaching`, then `refresh`."""

    def __init__(self, source: LaneSource, parent: QWidget | None = None) -> None:
        self.colour = 0  # of the lane, in theme.lane
        self.parted_at: int | None = None  # where it leaves the reference
        self.changed_at: dict[int, str] = {}  # what became of the settings, by the step from which it holds
        self.parting_words = ""
        self.teaching: list[str] = []
        self.source = source
        super().__init__(source, parent)  # type: ignore[arg-type]  has all that a canvas asks of a store

    def set_marks(self, parted_at: int | None, parting_words: str, changed_at: dict[int, str]) -> None:
        if (parted_at, parting_words, changed_at) != (self.parted_at, self.parting_words, self.changed_at):
            self.parted_at, self.parting_words, self.changed_at = parted_at, parting_words, dict(changed_at)
            self.viewport().update()

    def set_teaching(self, lines: list[str]) -> None:
        if lines != self.teaching:
            self.teaching = lines
            self.viewport().update()

    def set_colour(self, colour: int) -> None:
        if colour != self.colour:
            self.colour = colour
            self.viewport().update()

    def sizeHint(self) -> QSize:
        """Little: rows of lanes are as low as they can be read, and taller where there is room."""
        return QSize(160, 64)

    def empty_lines(self) -> list[str]:
        return self.teaching

    def marked_steps(self) -> tuple[int | None, int | None]:
        """In the lane that all views show as ever; in the others the word at the same place is outlined."""
        store = self.source.store
        if self.source.shown:
            return store.selected_step, store.hovered_step
        same_place = None if store.following else store.selected_step
        return None, same_place if store.hovered_step is None else store.hovered_step

    def _what_of(self, step: int) -> str:
        said = [super()._what_of(step), self.changed_at.get(step, "")]
        said.append(self.parting_words if step == self.parted_at else "")
        return "\n".join(words for words in said if words)

    def paint_under(self, painter: QPainter, pieces: list[Piece]) -> None:
        """The lane's colour behind every word from the parting on."""
        if self.parted_at is None:
            return
        look = theme.current()
        ground, line = look.lane_ground(self.colour), theme.mixed(look.panel, look.lane(self.colour), 0.6)
        for piece in pieces:
            if piece.step >= self.parted_at:
                painter.fillRect(piece.rect, ground)
                below = QRectF(piece.rect.left(), piece.rect.bottom() - 2.5, piece.rect.width(), 1.5)
                painter.fillRect(below, line)  # seen where the shade of surprise covers the ground

    def paint_over(self, painter: QPainter, pieces: list[Piece]) -> None:
        """A flag where it parts, a diamond where its settings changed; at the next word where a token has no text."""
        look = theme.current()
        lane = look.lane(self.colour)
        tokens = self._run.tokens if self._run is not None else []
        flag = None if self.parted_at is None else place_in(pieces, tokens, self.parted_at)
        if flag is not None:
            paint_flag(painter, flag, lane)
        for step in self.changed_at:
            place = place_in(pieces, tokens, step)
            if place is not None:
                x, y = place.left() + 1.0, place.bottom() - 4.0
                painter.setPen(QPen(look.panel, 1.0))
                painter.setBrush(look.ink)
                corners = (QPointF(x, y - 5.0), QPointF(x + 5.0, y), QPointF(x, y + 5.0), QPointF(x - 5.0, y))
                painter.drawPolygon(QPolygonF(corners))

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        if event.reason() in (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason):
            self.source.show_run()
