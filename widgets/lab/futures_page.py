"""The page of a hundred futures: from which word, how many, their tree, and the continuations behind a box."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QModelIndex, QStringListModel, Qt, Signal, Slot
from PySide6.QtGui import QAction
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHBoxLayout,
    QListView,
    QPushButton,
    QSpinBox,
    QSplitter,
    QVBoxLayout,
    QWidget,
)

from engine.events import EngineError, Futures, different, effective_number, shared_tokens
from engine.settings import FUTURE_TOKENS, FUTURES, ForkWish, FuturesQuestion, FuturesWish, Parent
from widgets import theme
from widgets.banner import sentence_of
from widgets.choice import Choice
from widgets.format import count_text, duration_text, number_text, plain_tooltip, token_label, tokens_text
from widgets.lab.experiment_bar import ExperimentBar
from widgets.lab.experiment_wishes import StopExperiment
from widgets.lab.futures_picture import FuturesPicture
from widgets.panel import FittingLabel, Panel, PlainLabel
from widgets.run import Run
from widgets.run_names import run_name
from widgets.run_store import RunStore
from widgets.text_painter import one_line

DEPTHS = (1, 4, 8, 16, 32, 64, 128)  # tokens after which the number of different futures is told


class FuturesPage(QWidget):
    """Asks for FuturesWish, ForkWish and StopExperiment."""

    asked = Signal(object)

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.store = store
        self.found: Futures | None = None
        self._question: FuturesQuestion | None = None  # that is worked on
        self._place: tuple[Run | None, int] = (None, 0)  # where the next ones begin
        self._members: list[int] = []  # the futures in the list
        self.splitter = QSplitter(Qt.Orientation.Vertical)
        self.splitter.setChildrenCollapsible(False)
        self.splitter.addWidget(self._build_picture())
        self.splitter.addWidget(self._build_list())
        self.splitter.setStretchFactor(0, 1)
        self.splitter.setSizes([480, 150])
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(theme.GAP)
        column.addWidget(self._build_question())
        column.addWidget(self.splitter, 1)
        self.setFocusProxy(self.picture)
        store.selection_changed.connect(self._selection_changed)
        theme.changes.changed.connect(self._show_figures)
        self._selection_changed()
        self.refresh()
        self._show_chosen()
        self._show_zoom()

    # ---------------------------------------------------------------- building

    def _build_question(self) -> Panel:
        panel = Panel("")
        panel.set_title(self.tr("A hundred futures from one word"), self.tr("Futures"))
        self.word = self._spin(1, 1, self.tr("Word of the text at which the futures begin, in its place"))
        self.word.valueChanged.connect(self._word_changed)
        self.count = self._spin(
            int(FUTURES.low), int(FUTURES.high), self.tr("How many continuations; each has a seed of its own")
        )
        self.count.setValue(100)
        self.tokens = self._spin(
            int(FUTURE_TOKENS.low), int(FUTURE_TOKENS.high), self.tr("How many tokens each of them is long")
        )
        self.tokens.setValue(24)
        self.whose = Choice(self.tr("Settings that they are written with"))
        self.whose.addItem(self.tr("the settings as they stand"), False)
        self.whose.addItem(self.tr("the settings of the text"), True)
        self.whose.setMinimumContentsLength(18)
        self.whose.setToolTip(self.tr("Settings that they are written with; their seeds are counted up from its seed"))
        self.whose.setSizePolicy(self.whose.sizePolicy().Policy.Fixed, self.whose.sizePolicy().verticalPolicy())
        row = QHBoxLayout()
        row.setSpacing(6)
        for words, field in (
            (self.tr("from word"), self.word),
            (self.tr("futures"), self.count),
            (self.tr("tokens each"), self.tokens),
            (self.tr("with"), self.whose),
        ):
            label = PlainLabel(words, "muted")
            label.setBuddy(field)
            row.addWidget(label)
            row.addWidget(field)
            row.addSpacing(8)
        self.bar = ExperimentBar(self.store, self.tr("Write futures"))
        self.bar.started.connect(self.ask)
        self.bar.stopped.connect(self.stop)
        self.bar.row.insertLayout(0, row)
        panel.body.addWidget(self.bar)
        self.question_panel = panel
        return panel

    def _spin(self, low: int, high: int, tip: str) -> QSpinBox:
        spin = QSpinBox()
        spin.setRange(low, high)
        spin.setAccessibleName(tip)
        spin.setToolTip(tip)
        spin.setAlignment(Qt.AlignmentFlag.AlignRight)
        spin.setKeyboardTracking(False)
        spin.setFixedWidth(theme.base_px() * 6)
        return spin

    def _build_picture(self) -> Panel:
        self.picture_panel = panel = Panel(self.tr("Where it could have gone"))
        self.picture = FuturesPicture()
        self.picture.chosen_changed.connect(self._show_chosen)
        self.picture.zoomed.connect(self._show_zoom)
        self.picture.opened.connect(self.go_on_with)
        panel.show_focus_of(self.picture)
        self.figures = FittingLabel("muted")
        self.figures.setToolTip(
            self.tr(
                "The effective number is exp(−Σ s ln s) over the shares s of different texts: as varied as a fair "
                "choice among so many (perplexity, Hill number of order 1). Worked out from what was drawn."
            )
        )
        self.in_button = panel.add_button(
            self.tr("Open"), "", self.tr("Into the chosen box: of others each gets a line of its own (Return)")
        )
        self.in_button.clicked.connect(self.picture.enter)
        self.out_button = panel.add_button(self.tr("Back out"), "", self.tr("Back out by one step (Esc)"))
        self.out_button.clicked.connect(self.picture.leave)
        self.smaller_button = panel.add_button(self.tr("Smaller words"), "minus", self.tr("Smaller words (-)"))
        self.smaller_button.clicked.connect(self._smaller)
        self.larger_button = panel.add_button(self.tr("Larger words"), "plus", self.tr("Larger words (+)"))
        self.larger_button.clicked.connect(self._larger)
        panel.body.addWidget(self.picture, 1)
        panel.body.addWidget(self.figures)
        return panel

    def _build_list(self) -> Panel:
        self.list_panel = panel = Panel(self.tr("Continuations"))
        self.model = QStringListModel(self)
        self.list = QListView()
        self.list.setModel(self.model)
        self.list.setAccessibleName(self.tr("Continuations behind the chosen box"))
        self.list.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.list.setUniformItemSizes(True)
        self.list.setTextElideMode(Qt.TextElideMode.ElideRight)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.activated.connect(self._activated)
        self.list.selectionModel().currentChanged.connect(self._current_changed)
        self.open_button = QPushButton(self.tr("Go on with it"))
        self.open_button.setToolTip(
            self.tr("Makes this continuation a fork of the text, which goes on from its end (Return)")
        )
        self.open_button.clicked.connect(self._open_current)
        self.whole = PlainLabel()
        self.whole.setWordWrap(True)
        self.whole.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.whole.setAlignment(Qt.AlignmentFlag.AlignTop)
        side = QVBoxLayout()
        side.setSpacing(6)
        side.addWidget(self.whole, 1)
        side.addWidget(self.open_button, 0, Qt.AlignmentFlag.AlignLeft)
        row = QHBoxLayout()
        row.setSpacing(theme.GAP)
        row.addWidget(self.list, 3)
        row.addLayout(side, 2)
        panel.body.addLayout(row, 1)
        panel.show_focus_of(self.list)
        return panel

    def set_undo(self, actions: list[QAction]) -> None:
        """Undo and redo of forks that were opened here."""
        self.addActions(actions)

    # ---------------------------------------------------------------- where they begin

    @Slot()
    def _selection_changed(self) -> None:
        """The futures begin at the selected word, in its place; where none is selected, at the first."""
        run, step = self.store.current, self.store.selected_step
        if run is None or step is None or self.store.following:
            step = 0
        self._set_place(run, step)

    def _set_place(self, run: Run | None, step: int) -> None:
        self._place = run, step
        self.word.blockSignals(True)
        self.word.setRange(1, max(1, len(run.tokens) + (not run.running) if run is not None else 1))
        self.word.setValue(step + 1)
        self.word.blockSignals(False)
        self._show_place()

    @Slot(int)
    def _word_changed(self, number: int) -> None:
        run = self.store.current
        self._place = run, number - 1
        if run is not None and number <= len(run.tokens):
            self.store.select(number - 1)
        self._show_place()

    def _show_place(self) -> None:
        run, step = self._place
        if run is None or not run.tokens:
            self.question_panel.set_remark("")
            return
        step = min(step, len(run.tokens))
        text = one_line("".join(token.text for token in run.tokens[max(0, step - 40) : step]))
        at_end = step >= len(run.tokens)
        word = "" if at_end else token_label(run.tokens[step].token_text)
        words = self.tr("{text} ▸ after its last word") if at_end else self.tr("{text} ▸ in place of “{word}”")
        wordings = [
            words.format(text=("…" if len(text) > length or step > 40 else "") + text[-length:], word=word).strip()
            for length in (90, 60, 30, 12)
        ]
        self.question_panel.set_remark(wordings[0], plain_tooltip(run_name(self.store, run)), *wordings[1:])

    # ---------------------------------------------------------------- asking

    @Slot()
    def ask(self) -> None:
        """As many futures as the fields say."""
        self.refresh()  # what came since the last frame
        run, step = self._place
        if not self.bar.ready or run is None:
            return
        place = Parent(*run.key, run.lost + min(step, len(run.tokens)))
        self.asked.emit(FuturesWish(place, self.count.value(), self.tokens.value(), bool(self.whose.currentData())))

    def run_page(self, one_token: bool) -> None:
        """The window's Run, while this page is seen."""
        if not one_token:
            self.ask()

    @Slot()
    def stop(self) -> None:
        self.asked.emit(StopExperiment())

    def begun(self, question: FuturesQuestion) -> None:
        """The window has asked the engine."""
        self._question, self.bar.asked = question, True
        self._show(None)
        self.refresh()

    @Slot(object)
    def go_on_with(self, place: object) -> None:
        """A continuation becomes a fork, which goes on from its end with the same draws."""
        if self.found is None or (parent := self.found.question.request.parent) is None:
            return
        if self._begun_in(self.found) is None:
            self.bar.show_error(self.tr("The text in which these begin is no longer here: open it again, or ask anew."))
            return
        self.bar.show_error("")
        future = self.found.futures[int(place)]  # type: ignore[call-overload]
        settings = replace(self.found.question.request.lanes[0], seed=future.seed)
        self.asked.emit(ForkWish(parent, forced=future.token_ids, settings=settings))

    # ---------------------------------------------------------------- remembering

    def state(self) -> dict[str, object]:
        """What the fields say, for the next start."""
        return {
            "count": self.count.value(),
            "tokens": self.tokens.value(),
            "own": bool(self.whose.currentData()),
            "text_size": self.picture.size_step,
        }

    def restore(self, values: dict[str, object]) -> None:
        """What the fields said; values that make no sense change nothing."""
        for name, field in (("count", self.count), ("tokens", self.tokens)):
            if isinstance(value := values.get(name), int):
                field.setValue(value)
        self.whose.setCurrentIndex(int(values.get("own") is True))
        if isinstance(size := values.get("text_size"), int):
            self.picture.zoom_text(size - self.picture.size_step)

    # ---------------------------------------------------------------- showing

    @Slot()
    def refresh(self) -> None:
        """Reads the store: how far it is, and what was answered."""
        progress = self.store.experiment
        if self._question is not None:
            answers = self.store.inside.answers
            if self._question in answers:
                answer, self._question = answers[self._question], None
                self.bar.asked = False
                if isinstance(answer, Futures):
                    self._show(answer)
                elif isinstance(answer, EngineError):
                    self.bar.show_error(sentence_of(answer))
                    self._show(self.found)
            elif progress is not None and progress.question == self._question:
                found = progress.partial
                if isinstance(found, Futures) and found is not self.found:
                    self._show(found)
        run, _ = self._place
        if run is not self.store.current or (run is not None and self.word.maximum() < len(run.tokens)):
            self._selection_changed()
        problem = self.tr("Write a text first (Ctrl+Shift+0).") if run is None or not run.tokens else ""
        self.bar.refresh(FuturesQuestion, problem)

    def _show(self, found: Futures | None) -> None:
        self.found = found
        written: tuple[int, ...] = ()
        if found is not None and (run := self._begun_in(found)) is not None:
            begins = len(found.question.request.written) - run.lost
            written = tuple(token.token_id for token in run.tokens[begins : begins + found.question.tokens])
        self.picture.set_found(found, written, waiting=self._question is not None)
        self._show_figures()
        self._show_zoom()

    def _begun_in(self, found: Futures) -> Run | None:
        """The run in which they begin; None where it is gone, perhaps with another in its place."""
        request = found.question.request
        run = self.store.run((request.parent.run_id, request.parent.lane)) if request.parent is not None else None
        if run is None or run.written_before(len(request.written) - run.lost) != request.written:
            return None
        prompt = tuple(token.token_id for token in run.start.prompt_tokens)
        return run if not request.prompt_ids or prompt == request.prompt_ids else None

    def _show_figures(self) -> None:
        found = self.found
        if found is None or not found.futures:
            self.figures.set_wordings("")
            self.picture_panel.set_remark("")
            return
        futures = found.futures
        total, shared = count_text(len(futures)), shared_tokens(futures)
        if not found.whole:
            self.figures.set_wordings("")
        elif len(futures) == 1:
            self.figures.set_wordings(self.tr("Temperature 0 takes the most probable word: there is one future."))
        else:
            common = self.tr("all share the first {count} tokens").format(count=count_text(shared))
            if shared < 2:
                common = self.tr("all share the first token") if shared else self.tr("they share no word")
            depths = [depth for depth in DEPTHS if depth < found.question.tokens]
            after = [
                self.tr("{number} after {depth}").format(
                    number=number_text(effective_number(futures, depth), 1), depth=count_text(depth)
                )
                for depth in depths
            ]
            if after:  # the unit once: "6.0 after 1 token, 40.2 after 4, 64.0 after 8"
                after[0] = self.tr("{number} after 1 token").format(
                    number=number_text(effective_number(futures, depths[0]), 1)
                )
            whole = self.tr("{number} at the end").format(number=number_text(effective_number(futures), 1))
            texts = different(futures)
            apart = self.tr("one text") if texts == 1 else self.tr("{count} different texts")
            apart = apart.format(count=count_text(texts))
            number = self.tr("effective number of futures")
            self.figures.set_wordings(
                f"{common} · {apart} · {number}: " + ", ".join([*after, whole]),
                f"{common} · {number}: " + ", ".join([*after[:3], whole]),
                f"{common} · {number}: {whole}",
                f"{number}: {whole}",
            )
        state = self.tr("{count} of {all}").format(count=total, all=count_text(found.question.count))
        if found.whole:
            cost = self.tr("beginning: {reused} reused, {read} read · {written} written in {time}").format(
                reused=count_text(found.reused_tokens),
                read=count_text(found.read_tokens),
                written=tokens_text(found.written_tokens),
                time=duration_text(found.elapsed_ms),
            )
            stopped = self.tr("stopped at {state}").format(state=state) + " · " if found.stopped else ""
            self.picture_panel.set_remark(
                stopped + cost,
                self.tr(
                    "Tokens of prompt and text whose keys and values were kept, and those that were read, for all "
                    "batches together: {batches}. Measured."
                ).format(batches=count_text(found.batches)),
                (stopped or state).removesuffix(" · "),
            )
        else:
            self.picture_panel.set_remark(state)

    @Slot()
    def _show_zoom(self) -> None:
        self.in_button.setVisible(self.picture.can_enter)
        self.out_button.setVisible(len(self.picture.roots) > 1)

    @Slot()
    def _show_chosen(self) -> None:
        """The continuations behind the chosen box; all of them where none is."""
        self._show_zoom()
        found, box = self.found, self.picture.chosen
        futures = found.futures if found is not None else ()
        self._members = list(box.node.futures) if box is not None else list(range(len(futures)))
        self.model.setStringList(
            [
                self.tr("seed {seed}   {text}").format(seed=futures[place].seed, text=one_line(futures[place].text))
                for place in self._members
            ]
        )
        title = self.tr("Continuations")
        if box is not None:
            title = self.tr("Continuations: {count} of {all}").format(
                count=count_text(box.count), all=count_text(len(futures))
            )
        self.list_panel.set_title(title)
        if self._members:
            self.list.setCurrentIndex(self.model.index(0))
        self._current_changed()

    @Slot()
    def _current_changed(self) -> None:
        place = self._current()
        self.open_button.setEnabled(place is not None)
        self.whole.setText("" if place is None or self.found is None else self.found.futures[place].text.strip())

    def _current(self) -> int | None:
        row = self.list.currentIndex().row()
        return self._members[row] if 0 <= row < len(self._members) else None

    @Slot(QModelIndex)
    def _activated(self, _index: QModelIndex) -> None:
        self._open_current()

    @Slot()
    def _open_current(self) -> None:
        if (place := self._current()) is not None:
            self.go_on_with(place)

    @Slot()
    def _smaller(self) -> None:
        self.picture.zoom_text(-1)

    @Slot()
    def _larger(self) -> None:
        self.picture.zoom_text(1)
