"""The page of lanes: one prompt, several settings, side by side.

It holds what a person set up (a LaneSet with its history) and which run each lane wrote; all else it reads from the
store. What it wants goes out through `asked`.
"""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QElapsedTimer, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QAction, QHideEvent, QKeySequence, QShowEvent
from PySide6.QtWidgets import QApplication, QVBoxLayout, QWidget

from engine.events import TokenNames
from engine.settings import LanePrompt, SamplingSettings
from widgets.foreign_tokens import Meant
from widgets.history import History
from widgets.lab.lane_bar import LaneBar
from widgets.lab.lane_column import LaneAct
from widgets.lab.lane_editor import LaneEditor
from widgets.lab.lane_runs import LaneRuns
from widgets.lab.lane_set import LEAST, Lane, LaneSet
from widgets.lab.lane_texts import LaneTexts
from widgets.lab.lane_wishes import ChangeLane, LanesPace, LanesPrompt, RunLanes, ShowText, SteerLanes
from widgets.lab.vary_dialog import Variation, VaryDialog
from widgets.meanings import Meanings, said_of
from widgets.run import Run
from widgets.run_store import RunStore

FRAME_MS_PER_LANE = 6
HOTTER = 0.6  # the second lane at first, by so much


def first_lanes(
    settings: SamplingSettings, names: tuple[str, str], max_new_tokens: int = 256, tokens: TokenNames | None = None
) -> LaneSet:
    """What stands there before a person set up any: these settings, and the same hotter. tokens: as in Lane."""
    hotter = replace(settings, temperature=round(min(2.0, settings.temperature + HOTTER), 2))
    lanes = (Lane(0, settings, names[0], tokens=tokens), Lane(1, hotter, names[1], tokens=tokens))
    return LaneSet(lanes, 0, max_new_tokens=max_new_tokens)


class LanesPage(QWidget):
    """Two to eight lanes."""

    asked = Signal(object)  # one of lane_wishes, or a WordsQuestion to the loaded model

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.store = store
        self._history = History(first_lanes(SamplingSettings(), (self.tr("control"), self.tr("hotter"))))
        self._next_key = 2
        self._runs = LaneRuns(store)
        self._meanings = Meanings(store, self.asked.emit)
        self._seen_compared: tuple[tuple[int, int], ...] = ()
        self._shared = LanePrompt("")
        self._editor: LaneEditor | None = None
        self._edited = -1  # the key of the lane that is edited
        self._vary: VaryDialog | None = None
        self._looked = QElapsedTimer()  # the texts were
        self._next_look = QTimer(self)
        self._next_look.setSingleShot(True)
        self._next_look.timeout.connect(self.look)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.bar = LaneBar(store)
        self._shown = self._meant()
        self.texts = LaneTexts(store, self.lanes, self._runs)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(12)
        column.addWidget(self.bar)
        column.addWidget(self.texts, 1)
        self._connect()
        self._show_lanes()

    def _connect(self) -> None:
        bar = self.bar
        bar.prompt_written.connect(self._prompt_written)
        bar.controls.run_requested.connect(self._run)
        bar.prompt_edit.run_requested.connect(self._run)
        bar.controls.step_requested.connect(self._one_token)
        bar.controls.pause_toggled.connect(self._pause)
        bar.controls.stop_requested.connect(self._stop)
        bar.controls.pace_changed.connect(self._pace)
        bar.lockstep_chosen.connect(self._lockstep_chosen)
        bar.limit_field.value_changed.connect(self._limit_changed)
        bar.lane_button.clicked.connect(self.add_lane)
        bar.vary_button.clicked.connect(self.vary)
        bar.undo_button.clicked.connect(self.undo)
        bar.redo_button.clicked.connect(self.redo)
        self.texts.acted.connect(self._acted)
        self.texts.words_written.connect(bar.write_words)
        self.store.opened.connect(self._forget_runs)
        self.store.run_started.connect(self._came)
        self.undo_action = self._act(QKeySequence.StandardKey.Undo, self.undo)
        self.redo_action = self._act(QKeySequence.StandardKey.Redo, self.redo)
        self.add_action = self._act(QKeySequence("Ctrl+Shift+N"), self.add_lane)
        self.vary_action = self._act(QKeySequence("Ctrl+Shift+V"), self.vary)

    def _act(self, key: QKeySequence | QKeySequence.StandardKey, slot: object) -> QAction:
        action = QAction(self)
        action.setShortcuts(key) if isinstance(key, QKeySequence.StandardKey) else action.setShortcut(key)
        action.setShortcutContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        action.triggered.connect(slot)
        self.addAction(action)
        return action

    # ---------------------------------------------------------------- what is set up

    @property
    def lanes(self) -> LaneSet:
        return self._history.value

    def _meant(self) -> tuple[LaneSet, str]:
        """The same as the loaded model means them, which is what is run and shown; and what is said of that."""
        found = [(lane, self._meaning(lane)) for lane in self.lanes.lanes]
        lanes = tuple(replace(lane, settings=meant.settings) for lane, meant in found)
        return replace(self.lanes, lanes=lanes), said_of((lane.letter, meant) for lane, meant in found)

    def _meaning(self, lane: Lane) -> Meant:
        return self._meanings.of(lane.settings, lane.tokens)

    def _ask_of_tokens(self) -> None:
        """Asks the loaded model what is not known of the tokens, and keeps what its own are called."""
        for lane in self.lanes.lanes:
            tokens = self._meanings.asked(lane.settings, lane.tokens)
            if tokens is not lane.tokens:
                self._history.amend(self.lanes.with_lane(replace(lane, tokens=tokens)))

    def restore(self, lanes: LaneSet) -> None:
        """What was set up when the window was last closed."""
        self._next_key = max(lane.key for lane in lanes.lanes) + 1
        self._history = History(lanes)
        self._show_lanes()

    def take(self, lanes: LaneSet, same_step: bool = False) -> None:
        """Sets these up, as a step that can be undone; same_step: as part of the last one."""
        before = self.lanes
        if lanes != before:
            self._history.take(lanes, same_step)
            self._changed(before)

    @Slot()
    def undo(self) -> None:
        before = self.lanes
        if self._history.undo():
            self._came_back(before)

    @Slot()
    def redo(self) -> None:
        before = self.lanes
        if self._history.redo():
            self._came_back(before)

    def _came_back(self, before: LaneSet) -> None:
        """Lanes that stood here before: what they wrote may have been given other letters since."""
        self._history.amend(self._runs.lettered(self.lanes))
        self._changed(before)

    def _changed(self, before: LaneSet) -> None:
        lanes = self.lanes
        for lane in lanes.lanes:
            old = before.lane(lane.key)
            run = self._runs.of(lane.key)
            if old is None or run is None or not run.running:
                continue
            if (settings := self._meaning(lane).settings) != self._meaning(old).settings:
                self.asked.emit(ChangeLane(run.start.lane, settings))
        self._show_lanes()
        # An act by mouse leaves the focus where it was; undo must reach what was done here.
        focus = QApplication.focusWidget()
        inside = focus is not None and (
            self.isAncestorOf(focus) or focus is self or focus.window() is not self.window()
        )
        if not inside and self.isVisible():
            self.setFocus(Qt.FocusReason.OtherFocusReason)

    def _show_lanes(self) -> None:
        self._put_beside()
        self._shown = lanes, said = self._meant()
        self.texts.show_lanes(lanes)
        self.bar.show_lanes(lanes, len(self._runs.left_out), said)
        self.bar.undo_button.setEnabled(self._history.can_undo)
        self.bar.redo_button.setEnabled(self._history.can_redo)
        if self._editor is not None:
            self._show_edited()

    # ---------------------------------------------------------------- acts

    @Slot()
    def add_lane(self) -> None:
        """One more, with the last one's settings."""
        if not self.lanes.full:
            self._copy(self.lanes.lanes[-1].key)

    def _copy(self, key: int) -> None:
        self._next_key += 1
        self.take(self.lanes.with_copy(key, self._next_key - 1))

    @Slot(object)
    def _acted(self, act: LaneAct) -> None:
        lanes, key = self.lanes, act.key
        lane = lanes.lane(key)
        if lane is None:
            return
        match act.what:
            case "edit":
                self.edit(key)
            case "rename":
                self.take(lanes.with_lane(replace(lane, name=act.name)))
            case "duplicate":
                if not lanes.full:
                    self._copy(key)
            case "remove":
                if len(lanes.lanes) > LEAST:
                    self.take(lanes.without(key))
            case "left" | "right":
                self.take(lanes.moved(key, -1 if act.what == "left" else 1))
            case "reference":
                self.take(replace(lanes, reference=key))
            case "text":
                self.texts.columns[key].source.show_run()
                self.asked.emit(ShowText())

    def edit(self, key: int) -> None:
        """Opens the small window for one lane."""
        if self._editor is None:
            self._editor = LaneEditor(self.store, self)
            self._editor.changed.connect(self._edited_lane)
            self._editor.undo_requested.connect(self.undo)
            self._editor.redo_requested.connect(self.redo)
            self._editor.asked.connect(self.asked)
        else:
            self._editor.commit()
        self._edited = key
        self._show_edited()
        column = self.texts.columns[key]
        self._editor.resize(self._editor.sizeHint())
        self._editor.move(column.mapToGlobal(column.rect().topRight()) - self._editor.rect().topRight() / 4)
        self._editor.show()
        self._editor.raise_()
        self._editor.activateWindow()

    @property
    def editor(self) -> LaneEditor | None:
        """The small window, once it was opened."""
        return self._editor

    def _show_edited(self) -> None:
        assert self._editor is not None
        lane = self.lanes.lane(self._edited)
        if lane is None:
            self._editor.hide()
            return
        self._editor.show_lane(lane, lane.letter, lane.colour, self._shared, self._meaning(lane))

    @Slot(object, bool)
    def _edited_lane(self, lane: Lane, same_step: bool) -> None:
        if self.lanes.lane(lane.key) is not None:
            self.take(self.lanes.with_lane(lane), same_step)

    @Slot()
    def vary(self) -> None:
        """Asks which setting the lanes differ in."""
        self._vary = VaryDialog(self.lanes.reference_lane.settings, self)
        self._vary.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._vary.chosen.connect(self._varied)
        self._vary.open()

    @Slot(object)
    def _varied(self, variation: Variation) -> None:
        count = len(variation.settings)
        self._next_key += count
        self.take(self.lanes.varied(variation.settings, variation.names, self._next_key - count))

    @Slot(bool)
    def _lockstep_chosen(self, lockstep: bool) -> None:
        self.take(replace(self.lanes, lockstep=lockstep))

    @Slot(object)
    def _limit_changed(self, value: object) -> None:
        self.take(replace(self.lanes, max_new_tokens=value))  # type: ignore[arg-type]

    # ---------------------------------------------------------------- running

    def run_page(self, one_token: bool) -> None:
        """The window's Run and One token while this page is seen."""
        self.texts.commit()
        if self._editor is not None and self._editor.isVisible():
            self._editor.commit()
        self.bar.limit_field.commit()
        self.asked.emit(RunLanes(self._meant()[0], one_token))

    def run_of(self, key: int) -> Run | None:
        """What the lane with this key wrote."""
        return self._runs.of(key)

    def began(self, run_id: int) -> None:
        """The lanes as they stand are written by this run. Letters that lanes took along when they went come back."""
        self._history.amend(self.lanes.dealt())
        self._runs.began(self.lanes, run_id)
        self._seen_compared = self.store.compared
        self._show_lanes()

    @Slot()
    def _run(self) -> None:
        self.run_page(one_token=False)

    @Slot()
    def _one_token(self) -> None:
        self.run_page(one_token=True)

    @Slot()
    def _pause(self) -> None:
        self.asked.emit(SteerLanes("pause"))

    @Slot()
    def _stop(self) -> None:
        self.asked.emit(SteerLanes("stop"))

    @Slot(object)
    def _pace(self, seconds: object) -> None:
        self.asked.emit(LanesPace(float(seconds)))  # type: ignore[arg-type]

    @Slot(object)
    def _prompt_written(self, text: object) -> None:
        self._shared = replace(self._shared, prompt=str(text))
        self.asked.emit(LanesPrompt(str(text)))

    def set_prompt(self, prompt: LanePrompt, raw: bool) -> None:
        """What the window's prompt is; says nothing."""
        self._shared = prompt
        self.bar.show_prompt(prompt.prompt, raw)

    def set_text_size(self, step: int) -> None:
        """As TextView.set_size_step."""
        self.texts.set_text_size(step)

    # ---------------------------------------------------------------- what was written

    @Slot(object)
    def _came(self, run: Run) -> None:
        self._runs.came(run)

    @Slot()
    def _forget_runs(self) -> None:
        self._runs.forget()
        self._seen_compared = ()  # what stands side by side now may have the numbers of what stood there

    def refresh(self) -> None:
        """At the store's frames. Many lanes take their frames less often: painting would take time from the loop."""
        least_ms = FRAME_MS_PER_LANE * len(self.lanes.lanes)
        if not self._looked.isValid() or self._looked.elapsed() >= least_ms:
            self.look()
        elif not self._next_look.isActive():
            self._next_look.start(least_ms - self._looked.elapsed())

    @Slot()
    def look(self) -> None:
        """Takes in what was written."""
        self._looked.start()
        if self.store.compared != self._seen_compared:
            self._seen_compared = self.store.compared
            self._adopt()
        self._ask_of_tokens()
        if self._meant() != self._shown:  # another model is there, or it said what tokens are called
            self._show_lanes()
        self.texts.take_in()
        self.bar.refresh(self.texts.watches)

    def _adopt(self) -> None:
        """Runs that were put side by side elsewhere become the lanes; undo brings back those that were set up."""
        adopted = self._runs.adopt(self.lanes, self._shared, self._next_key)
        if adopted is not None:
            self._next_key += len(adopted.lanes)
            self.take(adopted)
        else:
            self._put_beside()

    def _put_beside(self) -> None:
        """What stands here is what reports and exports hold side by side, unless others were compared meanwhile."""
        if self.store.compared == self._seen_compared:
            self._runs.put_beside(self.lanes)
            self._seen_compared = self.store.compared

    def hideEvent(self, event: QHideEvent) -> None:
        """The small window goes with the page; what was half typed there is taken."""
        if self._editor is not None and self._editor.isVisible():
            self._editor.commit()
            self._editor.hide()
        super().hideEvent(event)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.look()
        self.texts.write_words()
