"""The painted text of a run: shading, pointing, keys. Laid out by text_flow, framed by text_view."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPoint, QPointF, QRect, QRectF, Qt, QTimer, Signal
from PySide6.QtGui import (
    QAccessible,
    QContextMenuEvent,
    QFontMetricsF,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
)
from PySide6.QtWidgets import QAbstractScrollArea, QFrame, QWidget

from engine.events import Redecided
from widgets import theme
from widgets.fork_mark import fork_words, paint_fork
from widgets.format import count_text, nats_text, token_label
from widgets.mark_painter import paint_in_text
from widgets.marks import described
from widgets.redecided_bar import choices_text, why
from widgets.redecided_painter import paint_redecided
from widgets.reuse import reuse_parts
from widgets.run import Run
from widgets.run_store import RunStore
from widgets.stop_painter import given_words, paint_given, paint_waiting, waiting_height
from widgets.text_flow import LINES_OPEN, Piece, TextFlow
from widgets.text_painter import end_height, paint_end, paint_pieces, shown_character, shown_text, without_stubs
from widgets.token_popup import TokenPopup

AT_ONCE = 2000  # tokens taken in at a time
SLICE = 400  # tokens laid out at a time when a long text is laid out anew
STANDARD_STEP = 4  # the text's size, in pixels off the base size
SMALLEST_STEP, LARGEST_STEP = -3, 40
POPUP_MS = 250
INSET = 1.0  # left and right of the text


class TextCanvas(QAbstractScrollArea):
    """The current run's text. Hovering and clicking go to the store; the store's selection is shown."""

    stuck_changed = Signal()  # whether the view follows the end
    size_changed = Signal()
    words_moved = Signal()  # they lie elsewhere in the viewport
    copy_asked = Signal()
    play_asked = Signal()
    menu_asked = Signal(object)  # where on the screen: acts for the selected word are wanted
    write_asked = Signal()  # Return: something else is to stand here

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.store = store
        self.show_special = False
        self.size_step = STANDARD_STEP
        self.follows_end = True
        self._run: Run | None = None
        self._done = 0  # tokens of the run that are in the flow
        self._tail_done = False
        self.redecided: Redecided | None = None  # what other settings would have made of the run
        self._new_flow: TextFlow | None = None  # being laid out anew, a slice at a time
        self._new_done = 0
        self._moving = False
        self._flow = self._empty_flow()
        self._popup = TokenPopup(self)
        self._popup_timer = self._timer(POPUP_MS, self._show_popup)
        self._slice_timer = self._timer(0, self._lay_out_slice)
        self._more_timer = self._timer(0, self.refresh)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.viewport().setMouseTracking(True)
        self.viewport().setAutoFillBackground(False)
        self.setAccessibleName(self.tr("Text of the run"))
        self.verticalScrollBar().valueChanged.connect(self._scrolled)
        store.frame.connect(self.refresh)
        store.selection_changed.connect(self._selection_changed)
        store.hover_changed.connect(self.viewport().update)
        store.marks_changed.connect(self.viewport().update)
        theme.changes.changed.connect(self._theme_changed)

    def _timer(self, ms: int, slot: object) -> QTimer:
        timer = QTimer(self)
        timer.setSingleShot(True)
        timer.setInterval(ms)
        timer.timeout.connect(slot)
        return timer

    # -- layout

    def _empty_flow(self) -> TextFlow:
        font = theme.font(self.size_step)
        return TextFlow(font, self.viewport().width() - 2 * INSET, round(QFontMetricsF(font).height() * 1.5))

    def refresh(self) -> None:
        """Takes in what the store has got since the last frame."""
        run = self.store.current
        if run is not self._run:
            self._run, self.redecided = run, None
            self._start_over()
            self.follows_end = True
            self.viewport().update()
        if run is None:
            return
        if self._done < len(run.tokens) or (run.end is not None and not self._tail_done):
            first = self._first_line_to_change()
            end = min(len(run.tokens), self._done + AT_ONCE)
            self._fill(self._flow, self._done, end)
            self._done, self._tail_done = end, run.end is not None and end == len(run.tokens)
            if end < len(run.tokens):  # a long recording was opened
                self._more_timer.start()
            self._measure()
            # Most frames add a word: only the last lines are painted again, unless all of them move (see _scrolled).
            top = round(first * self._flow.line_height) - self.verticalScrollBar().value()
            self.viewport().update(self.viewport().rect().adjusted(0, max(0, top), 0, 0))
            if run.end is not None or QAccessible.isActive():
                self._describe()

    def _first_line_to_change(self) -> int:
        """From here on new text may change something: it pulls at the last lines, and the newest token's mark moves."""
        newest = self._flow.lines_of(self._done - 1) if self._done else None
        return max(0, min(self._flow.lines - 1 - LINES_OPEN, newest[0] if newest is not None else 0))

    def _fill(self, flow: TextFlow, begin: int, end: int | None = None) -> None:
        run = self._run
        if run is None:
            return
        tokens = run.tokens[begin:end]
        for place, event in enumerate(tokens, begin):
            flow.append(place, shown_text(event, self.show_special))
        at_end = end is None or end >= len(run.tokens)
        if at_end and run.end is not None and run.end.tail_text and not (flow is self._flow and self._tail_done):
            step = len(run.tokens) - 1
            flow.append(max(0, step), "".join(shown_character(c) for c in run.end.tail_text))
        flow.settle()

    def _start_over(self) -> None:
        self._slice_timer.stop()
        self._new_flow = None
        self._flow, self._done, self._tail_done = self._empty_flow(), 0, False
        self._popup.hide()
        self._measure()

    def lay_out_again(self) -> None:
        """After a change of width, font or special tokens. Long texts take their time in slices; until then the old
        lines are shown."""
        self._new_flow, self._new_done = self._empty_flow(), 0
        if self._done <= 2 * SLICE:
            self._lay_out_slice(all_of_it=True)
        else:
            self._slice_timer.start()

    def _lay_out_slice(self, all_of_it: bool = False) -> None:
        flow, run = self._new_flow, self._run
        if flow is None:
            return
        if run is not None:
            end = len(run.tokens) if all_of_it else self._new_done + SLICE
            self._fill(flow, self._new_done, end)
            self._new_done = min(end, len(run.tokens))
            if self._new_done < len(run.tokens):
                self._slice_timer.start()
                return
            self._done, self._tail_done = len(run.tokens), run.end is not None
        anchor, seen = self._first_step_in_view(), self._selected_in_view(self.viewport().height())
        self._flow, self._new_flow = flow, None
        self._measure()
        if not self.follows_end and anchor is not None:
            self._scroll_to(anchor, at_top=True)
        if seen is not None:
            self._scroll_to(seen)
        self.viewport().update()

    def _first_step_in_view(self) -> int | None:
        number = int(self.verticalScrollBar().value() // self._flow.line_height)
        return next((piece.step for piece in self._flow.pieces(number, number + 1)), None)

    def _measure(self) -> None:
        """The scroll bar's range; stays at the end where it was at the end."""
        bar = self.verticalScrollBar()
        height = self._flow.lines * self._flow.line_height + end_height(
            self._flow, self._run.end if self._run is not None else None
        )
        height += waiting_height(self._flow, self._run)
        self._moving = True
        bar.setPageStep(self.viewport().height())
        bar.setSingleStep(round(self._flow.line_height))
        bar.setRange(0, max(0, round(height) - self.viewport().height()))
        if self.follows_end:
            bar.setValue(bar.maximum())
        self._moving = False
        self.words_moved.emit()

    def _scrolled(self) -> None:
        if not self._moving:
            at_end = self._at_end()
            if at_end != self.follows_end:
                self.follows_end = at_end
                self.stuck_changed.emit()
            self.words_moved.emit()
        self._popup.hide()
        self.viewport().update()

    def _at_end(self) -> bool:
        bar = self.verticalScrollBar()
        return bar.value() >= bar.maximum() - 2

    def follow_end(self) -> None:
        self.follows_end = True
        self._measure()
        self.stuck_changed.emit()
        self.viewport().update()

    def _scroll_to(self, step: int, at_top: bool = False) -> None:
        while self._run is not None and self._done <= step < len(self._run.tokens):
            self.refresh()  # a long text is still being laid out
        lines = self._flow.lines_of(step)
        if lines is None:
            return
        bar, height = self.verticalScrollBar(), self.viewport().height()
        top, bottom = lines[0] * self._flow.line_height, (lines[1] + 1) * self._flow.line_height
        if at_top or top < bar.value():
            bar.setValue(int(top))
        elif bottom > bar.value() + height:
            bar.setValue(round(bottom - height))

    # -- what the store says

    def _selection_changed(self) -> None:
        if self.store.current is not self._run:
            self.refresh()
        step, run = self.store.selected_step, self._run
        if not self.store.following:
            if step is not None:
                self._scroll_to(step)
                self.follows_end = False  # what grows or shrinks below must not move the word away
        elif run is not None and not self.follows_end and (run.running or self._at_end()):
            self.follow_end()
        self._describe()
        self.viewport().update()

    def _describe(self) -> None:
        step = self.store.selected_step
        text = ""
        if step is not None and self._run is not None:
            event = self._run.tokens[step]
            text = self.tr("token {number} of {count}: {label}, surprise {surprise}").format(
                number=count_text(step + 1),
                count=count_text(len(self._run.tokens)),
                label=token_label(event.token_text),
                surprise=nats_text(event.surprise_nats),
            )
            if what := self._what_of(step):
                text += ". " + what
        self.setAccessibleDescription(text)

    def show_redecided(self, found: Redecided | None) -> None:
        """Marks the words that other settings would cut or replace; None: as it was written."""
        self.redecided = found
        self._popup.hide()
        self._describe()
        self.viewport().update()

    def _what_of(self, step: int) -> str:
        """What a person said of a word, and what other settings would make of it; "" where there is neither."""
        found, run = self.redecided, self._run
        marks = described(run, step) if run is not None else ""
        if run is not None:
            parts = (marks, fork_words(self.store, run, step), given_words(run.tokens[step]))
            marks = "\n".join(words for words in parts if words)
        if found is None or run is None or step >= len(found.fates):
            return marks
        said = self.tr("With the settings now: {why}").format(why=why(found, run.tokens, step))
        if choices := choices_text(found, step):
            said += self.tr("; effective choices {count}").format(count=choices)
        return f"{marks}\n{said}" if marks else said

    def _theme_changed(self) -> None:
        self.lay_out_again()

    def set_show_special(self, show: bool) -> None:
        if show != self.show_special:
            self.show_special = show
            self.lay_out_again()

    def zoom(self, pixels: int) -> None:
        """Larger or smaller text."""
        step = max(SMALLEST_STEP, min(LARGEST_STEP, self.size_step + pixels))
        if step != self.size_step:
            self.size_step = step
            self.lay_out_again()
            self.size_changed.emit()

    # -- hand and keys

    def step_at(self, point: QPoint) -> int | None:
        """The token under a point of the viewport."""
        return self._flow.step_at(QPointF(point) + QPointF(-INSET, self.verticalScrollBar().value()))

    def place_of(self, step: int) -> QRectF | None:
        """Where a token's first part lies in the viewport, None where it has no text."""
        lines = self._flow.lines_of(step)
        if lines is not None:
            for piece in self._flow.pieces(*lines):
                if piece.step == step:
                    return piece.rect.translated(INSET, -self.verticalScrollBar().value())
        return None

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        step = self.step_at(event.position().toPoint())
        self.viewport().setCursor(Qt.CursorShape.ArrowCursor if step is None else Qt.CursorShape.PointingHandCursor)
        if step == self.store.hovered_step:
            return
        self.store.hover(step)
        if step is None:
            self._popup_timer.stop()
            self._popup.hide()
        elif self._popup.isVisible():
            self._show_popup()
        else:
            self._popup_timer.start()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() != Qt.MouseButton.LeftButton:
            return
        step = self.step_at(event.position().toPoint())
        if step is not None:
            self.store.select(step)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        if event.reason() == QContextMenuEvent.Reason.Keyboard:
            step = self.store.selected_step
            place = self.place_of(step) if step is not None else None
            at = self.viewport().mapToGlobal(place.bottomLeft().toPoint()) if place is not None else event.globalPos()
        else:
            step, at = self.step_at(event.pos()), event.globalPos()
            if step is not None:
                self.store.select(step)
        if step is not None:
            self._leave()
            self.menu_asked.emit(at)

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Leave:
            self._leave()
        return super().viewportEvent(event)

    def _leave(self) -> None:
        self._popup_timer.stop()
        self._popup.hide()
        self.store.hover(None)

    def _show_popup(self) -> None:
        step, run = self.store.hovered_step, self._run
        if step is None or run is None or step >= len(run.tokens) or not self.isVisible():
            return
        place = self.place_of(step)
        if place is not None:
            below = self.viewport().mapToGlobal(place.bottomLeft().toPoint() + QPoint(0, 4))
            above = self.viewport().mapToGlobal(place.topLeft().toPoint() - QPoint(0, 4))
            self._popup.show_token(run.tokens[step], below, above, self._what_of(step))

    def hideEvent(self, event: QEvent) -> None:
        self._leave()
        super().hideEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy_asked.emit()
            return
        store, step = self.store, self.store.selected_step
        key, plain = (
            event.key(),
            event.modifiers() in (Qt.KeyboardModifier.NoModifier, Qt.KeyboardModifier.KeypadModifier),
        )
        if not plain or step is None:
            super().keyPressEvent(event)
            return
        match key:
            case Qt.Key.Key_Left:
                store.select(max(0, step - 1))
            case Qt.Key.Key_Right:
                store.select(step + 1)
            case Qt.Key.Key_Home:
                store.select(0)
            case Qt.Key.Key_End | Qt.Key.Key_Escape:
                store.select(None)
                self.follow_end()
            case Qt.Key.Key_Space:
                self.play_asked.emit()
            case Qt.Key.Key_Return | Qt.Key.Key_Enter:
                self.write_asked.emit()
            case _:
                super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        seen = self._selected_in_view(event.oldSize().height())
        if event.size().width() != event.oldSize().width():
            self.lay_out_again()
        self._measure()
        if seen is not None:
            self._scroll_to(seen)

    def _selected_in_view(self, height: int) -> int | None:
        """The word that a person selected, where it is seen in a viewport of this height."""
        step = None if self.store.following else self.store.selected_step
        place = self.place_of(step) if step is not None else None
        return step if place is not None and place.top() >= 0 and place.bottom() <= height else None

    # -- painting

    def paintEvent(self, event: QPaintEvent) -> None:
        with QPainter(self.viewport()) as painter:  # an exception must not leave it open: that ends the process
            self._paint(painter, event.rect())

    def _paint(self, painter: QPainter, area: QRect) -> None:
        if self._run is None or not (self._run.tokens or self._run.end):
            self._paint_empty(painter)
            return
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        offset, height = self.verticalScrollBar().value(), self._flow.line_height
        painter.translate(INSET, -offset)
        first, last = int((offset + area.top()) // height), int((offset + area.bottom()) // height)
        pieces = without_stubs(self._flow, list(self._flow.pieces(first, last)))
        selected, hovered = self.marked_steps()
        self.paint_under(painter, pieces)
        moment = self.store.moment
        paint_pieces(painter, self._flow, self._run.tokens, pieces, selected, hovered, moment)
        if self.redecided is not None:
            paint_redecided(painter, self.redecided, self._run.tokens, pieces, selected)
        self.paint_over(painter, pieces)
        paint_in_text(painter, self._run, pieces, selected)
        paint_given(painter, self._run.tokens, pieces, moment)
        paint_fork(painter, self._run, pieces, moment)
        paint_waiting(painter, self._flow, self._run, pieces, moment)
        if self._run.end is not None and last >= self._flow.lines - 2 and moment == len(self._run.tokens):
            end = self._run.end
            reused, computed = reuse_parts(end, len(self._run.start.written)) if end.reused_tokens else ("", "")
            remarks = (f"{reused}, {computed}", reused) if computed else ()
            paint_end(painter, self._flow, end, remarks)

    def marked_steps(self) -> tuple[int | None, int | None]:
        """The tokens that are painted as selected and as hovered."""
        return self.store.selected_step, self.store.hovered_step

    def paint_under(self, painter: QPainter, pieces: list[Piece]) -> None:
        """What lies behind the words; nothing here."""

    def paint_over(self, painter: QPainter, pieces: list[Piece]) -> None:
        """Marks on the words; none here."""

    def empty_lines(self) -> list[str]:
        """What stands here before there is a text."""
        return [
            self.tr("The text appears here, word by word, shaded by how surprising each word was."),
            self.tr("Write a prompt and press Run (Ctrl+Return)."),
        ]

    def _paint_empty(self, painter: QPainter) -> None:
        look = theme.current()
        area = self.viewport().rect().adjusted(24, 12, -24, -12)
        lines = self.empty_lines() if self._run is None else [self.tr("Reading the prompt…")]
        painter.setPen(look.muted)
        painter.setFont(theme.font(1))
        painter.drawText(area, int(Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap), "\n".join(lines))
