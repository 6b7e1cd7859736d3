"""What has happened so far. Every view reads from here, none from another view, none from the engine.

Events come in one at a time and only mark the store stale; `frame` goes out at most 60 times a second, while a model
writes some 17 times, and views repaint on it. So a fast model never makes the window paint faster than a screen shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from PySide6.QtCore import QElapsedTimer, QObject, QTimer, Signal, Slot

from engine import events as ev
from engine.figures import ancestors
from engine.settings import Preset
from widgets.inside import Inside, Subject
from widgets.run import Run
from widgets.run_letters import letters_of, own_letter

FRAME_MS = 16
DECODE_FRAME_MS = 66  # while a model writes, which wants the processor's time
RUNNING = ("prefill", "decode", "paused")
BUSY = ("loading", *RUNNING, "x-ray", "experiment")  # activities during which the engine answers no question
READINGS_KEPT = 3600  # one an half second: half an hour


class RunStore(QObject):
    """The runs, the loaded model, the newest readings, and what is selected.

    `frame` says that something changed and views should read again. `selection_changed` and `hover_changed` go out
    at once, since they answer the hand.
    """

    frame = Signal()
    selection_changed = Signal()
    hover_changed = Signal()
    marks_changed = Signal()
    run_started = Signal(object)  # Run
    run_ended = Signal(object)  # Run
    runs_changed = Signal()  # some were taken out, put back or named, or others were opened
    opened = Signal()  # recorded runs took the place of what was there

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.runs: list[Run] = []
        self._by_key: dict[tuple[int, int], Run] = {}
        self.current: Run | None = None
        self.facts: ev.SessionFacts | None = None
        self.load_progress: ev.LoadProgress | None = None
        self.load_stages: dict[str, ev.LoadProgress] = {}
        self.inside = Inside()
        self.described_machine = ("2x24", 64.0)  # GPUs and CPU memory in GB, as the planners' inputs stand
        self.presets: tuple[Preset, ...] = ()  # all that can be chosen, the model's own first
        self.readings: list[ev.MemoryReading] = []
        self.error: ev.EngineError | None = None
        self.cache_kept: ev.CacheKept | None = None  # between runs
        self.activity = "idle"  # or one of BUSY
        self.experiment: ev.ExperimentProgress | None = None  # where the experiment that goes on stands
        self.xray: ev.XrayProgress | None = None  # where the x-ray that goes on stands
        self.stage = ""  # the box of the pipeline strip that is at work
        self._selected: int | None = None  # None: follow the newest
        self._hovered: int | None = None
        self._hovered_run: Run | None = None  # None: the current one
        self._rewound = False
        self.playing = False  # the run is played back
        self.compared: tuple[tuple[int, int], ...] = ()  # keys of the runs that stand side by side
        self.letters: dict[tuple[int, int], str] = {}  # of those
        self.reference: tuple[int, int] | None = None  # the others are compared with it; None: with the first
        self.version = 0  # counts changes, for views that want to know whether they are stale
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._tell)
        self._since_frame, self._since_token = QElapsedTimer(), QElapsedTimer()
        self._token_ms = 0  # between the last two tokens

    # -- what came from the engine

    def take(self, event: ev.Event) -> None:
        """Takes one event in. Cheap: appends and marks stale."""
        if not isinstance(event, ev.TokenEvent):
            self.inside.take(event)
        match event:
            case ev.TokenEvent():
                run = self._by_key.get((event.run_id, event.lane))
                if run is None or run.end is not None:
                    return
                run.add(self._in_place(run, event))
                if event.lane == 0:
                    self._token_ms = self._since_token.restart() if self._since_token.isValid() else 0
                    self._since_token.start()
                self.stage = "sample"
                if self.activity != "paused":
                    self.activity = "decode"
            case ev.RunStart():
                self.cache_kept = None  # the run has it
                run = Run(event, self.facts)
                if event.written:
                    parent = event.parent
                    run.begin_in(self._by_key.get((parent.run_id, parent.lane)) if parent is not None else None)
                self.runs.append(run)
                self._by_key[run.key] = run
                if event.lane == 0:
                    self.current, self._selected, self._hovered, self._rewound = run, None, None, False
                    self.selection_changed.emit()
                self.error = None
                self.activity, self.stage = "prefill", "tokenise"
                self.run_started.emit(run)
            case ev.PrefillProgress():
                for run in self.runs:
                    if run.start.run_id == event.run_id:
                        run.prefill.append(event)
                self.activity, self.stage = "prefill", "layers"
            case ev.SettingsChanged():
                if run := self._by_key.get((event.run_id, event.lane)):
                    run.changes.append(event)
            case ev.CacheKept():
                self.cache_kept = event if event.bytes else None
            case ev.RunEnd():
                run = self._by_key.get((event.run_id, event.lane))
                if run is None or run.end is not None:
                    return
                run.end = event
                run.pieces.append(event.tail_text)
                run.length += len(event.tail_text)
                if not any(r.running for r in self.runs):
                    self.activity, self.stage = "idle", ""
                self.run_ended.emit(run)
            case ev.LoadProgress():
                if event.stage == ev.LOAD_STAGES[0]:
                    self.load_stages, self.error = {}, None
                self.load_progress = event
                self.load_stages[event.stage] = event
                self.activity, self.stage = "loading", event.stage
            case ev.Loaded():
                self.facts, self.load_progress = event.facts, None
                self.activity, self.stage = "idle", ""
            case ev.Unloaded():
                self.facts = self.cache_kept = None
                if self.activity not in ("loading", "x-ray"):  # else it made room for what is loaded next
                    self.load_stages = {}
                    self.activity, self.stage = "idle", ""
            case ev.XrayProgress():
                self.xray = event
            case ev.ExperimentProgress():
                self.experiment = event
            case ev.EngineError():
                self.error = event
                self.load_progress = None
                self.activity, self.stage = "idle", ""
            case ev.MemoryReading():
                self.readings.append(event)
                del self.readings[:-READINGS_KEPT]
                for run in self.runs:
                    if run.running and run.tokens:
                        run.readings.append((len(run.tokens) - 1, event))
            case ev.Mark(what="name"):
                self.name_run((event.run_id, event.lane), "" if event.removed else event.text)
            case ev.Mark():
                if run := self._by_key.get((event.run_id, event.lane)):
                    if event.removed:
                        run.marks.pop(event.place, None)
                    else:
                        run.marks[event.place] = event
                    self.marks_changed.emit()
        self.mark()

    @staticmethod
    def _in_place(run: Run, event: ev.TokenEvent) -> ev.TokenEvent:
        """A token's step is its place (and `lost` more): a damaged recording may have lost some before it."""
        place = run.lost + len(run.tokens)
        if event.step == place:
            return event
        run.gaps = max(run.gaps, event.step - place)
        return replace(event, step=place)

    def add_runs(self, recorded: RunStore) -> None:
        """Puts recorded runs beside what is there. Their numbers must be new here."""
        self.runs = [*self.runs, *recorded.runs]
        self._by_key |= recorded._by_key
        self.runs_changed.emit()
        self.mark()

    def take_runs(self, recorded: RunStore) -> None:
        """Shows recorded runs in place of what was there; the loaded model, if any, stays loaded.

        recorded: a store of their own, which a long recording fills piece by piece.
        """
        self.runs, self._by_key, self.compared, self.error = recorded.runs, recorded._by_key, (), None
        self.inside.at_choice = False
        self.activity, self.stage = "idle", ""
        # A fork's file holds the runs it began in before it: the newest is what the file is about.
        newest = self.runs[-1].start.run_id if self.runs else 0
        lanes = [run for run in self.runs if run.start.run_id == newest]
        self.show(lanes[0] if lanes else None)
        self.compare(lanes if len(lanes) > 1 else ())
        self.opened.emit()
        self.runs_changed.emit()

    def set_activity(self, activity: str) -> None:
        """Paused and back, or idle after a cancelled load: known to whoever pressed the button, not to the engine."""
        self.activity = activity
        self.xray = self.experiment = None
        if activity == "idle":
            self.stage, self.load_progress = "", None
        self.mark()

    def mark(self) -> None:
        """Something changed: a frame follows, at once where the last one is long enough ago.

        While a model writes, frames come right after a token, the last before DECODE_FRAME_MS are over: so views paint
        while the model computes. Where they paint when the next token is chosen, both want Python's lock, and to
        choose it takes four times as long.
        """
        self.version += 1
        passed = self._since_frame.elapsed() if self._since_frame.isValid() else DECODE_FRAME_MS
        writes = self.activity == "decode"
        least = DECODE_FRAME_MS if writes else FRAME_MS
        if passed + (self._token_ms if writes else 0) >= least:
            self._timer.start(0)
        elif not self._timer.isActive():
            self._timer.start(least - passed)

    @Slot()
    def _tell(self) -> None:
        self._since_frame.start()
        self.frame.emit()

    # -- what the person looks at

    @property
    def shown_facts(self) -> ev.SessionFacts | None:
        """The model behind what is shown: that of the current run (a replay brings its own), else the loaded one."""
        return (self.current.facts if self.current is not None else None) or self.facts

    @property
    def loading_facts(self) -> ev.SessionFacts | None:
        """The model whose loading is shown: the loaded one where that is newer than the shown run."""
        return (self.facts if self.inside.at_loaded else None) or self.shown_facts

    @property
    def subject(self) -> Subject:
        """The model whose inside the pages of loading show."""
        return self.inside.subject(self.activity, self.loading_facts, self.facts)

    def run(self, key: tuple[int, int]) -> Run | None:
        return self._by_key.get(key)

    def above(self, run: Run) -> Run | None:
        """What it began in; None where that is not here, or it began by itself."""
        parent = run.start.parent
        return None if parent is None else self.run((parent.run_id, parent.lane))

    def take_out(self, keys: Iterable[tuple[int, int]]) -> list[tuple[int, Run]]:
        """Takes runs out of what is shown. Returns them with their places, for `put_back`."""
        gone, starts = set(keys), {run.key: run.start for run in self.runs}
        taken = [(place, run) for place, run in enumerate(self.runs) if run.key in gone]
        self.runs = [run for run in self.runs if run.key not in gone]
        self._by_key = {run.key: run for run in self.runs}
        self.compared = tuple(key for key in self.compared if key not in gone)
        if self.current is not None and self.current.key in gone:
            line = [self._by_key.get((above.run_id, above.lane)) for above in ancestors(self.current.start, starts.get)]
            stay = [run for run in line if run is not None]
            self.show(stay[-1] if stay else self.runs[-1] if self.runs else None)
        self.runs_changed.emit()
        self.mark()
        return taken

    def put_back(self, taken: list[tuple[int, Run]]) -> None:
        """Puts runs back where they were; the first of them is shown."""
        for place, run in taken:
            self.runs.insert(place, run)
            self._by_key[run.key] = run
        if taken:
            self.show(taken[0][1])
        self.runs_changed.emit()

    def name_run(self, key: tuple[int, int], name: str) -> None:
        """Gives a run another name; "" for none."""
        if run := self._by_key.get(key):
            run.start = replace(run.start, name=name)
            self.runs_changed.emit()
            self.mark()

    def show(self, run: Run | None) -> None:
        """Makes a run the one that all views show, following its newest token."""
        self.current, self._selected, self._hovered, self._rewound = run, None, None, False
        self.inside.at_loaded = False
        self.selection_changed.emit()
        self.mark()

    @property
    def following(self) -> bool:
        return self._selected is None

    @property
    def selected_step(self) -> int | None:
        """The token all views show: the clicked one, otherwise the newest. None where there is none."""
        if self.current is None or not self.current.tokens:
            return None
        newest = len(self.current.tokens) - 1
        return newest if self._selected is None else min(self._selected, newest)

    @property
    def hovered_step(self) -> int | None:
        return self._hovered

    @property
    def hovered_run(self) -> Run | None:
        """The run that is pointed at; None where none is."""
        return None if self._hovered is None else self._hovered_run or self.current

    @property
    def shown_token(self) -> ev.TokenEvent | None:
        """The token whose figures are shown: the hovered one, else the selected one."""
        run, step = self.current, self.selected_step
        if self._hovered is not None:
            run, step = self._hovered_run or run, self._hovered
        if run is None or step is None or not 0 <= step < len(run.tokens):
            return None
        return run.tokens[step]

    def select(self, step: int | None) -> None:
        """Selects a token of the current run; None, or the newest of a running run, follows the newest again."""
        self._set(step, rewound=False)

    def rewind(self, step: int | None) -> None:
        """Selects a token, and shows the window as it was when that one was the newest."""
        self._set(step, rewound=True)

    def step_by(self, steps: int) -> None:
        """To a token further on or back, as the last one was looked at."""
        if (step := self.selected_step) is not None:
            (self.rewind if self._rewound else self.select)(max(0, step + steps))

    @property
    def rewound(self) -> bool:
        """The window is as it was at the selected token; otherwise that is only the one that is looked at."""
        return self._rewound

    @property
    def moment(self) -> int:
        """So many tokens of the current run were written at the moment that the window shows."""
        written = len(self.current.tokens) if self.current is not None else 0
        return min(written, (self._selected or 0) + 1) if self.rewound else written

    def _set(self, step: int | None, rewound: bool) -> None:
        if self.current is not None and step is not None:
            newest = len(self.current.tokens) - 1
            step = None if newest < 0 or (step >= newest and self.current.running) else max(0, min(step, newest))
        rewound = rewound and step is not None
        if (step, rewound) != (self._selected, self._rewound):
            self._selected, self._rewound = step, rewound
            self.selection_changed.emit()
            self.mark()

    def compare(self, runs: Iterable[Run]) -> None:
        """Puts these runs side by side. A lane of several keeps its letter, others take the next that is free.

        Where the same ones stand there already, their letters and the reference stay.
        """
        here = list(runs)
        keys = tuple(run.key for run in here)
        if set(keys) == set(self.compared) == set(self.letters):
            self.put_beside(keys, self.letters, self.reference)
        else:
            self.put_beside(keys, dict(zip(keys, letters_of([run.start for run in here]), strict=True)))

    def put_beside(
        self,
        keys: tuple[tuple[int, int], ...],
        letters: dict[tuple[int, int], str],
        reference: tuple[int, int] | None = None,
    ) -> None:
        """Which runs stand side by side, what each is called there, and with which the others are compared."""
        self.compared, self.letters, self.reference = keys, letters, reference
        self.mark()

    def letter(self, run: Run) -> str:
        """What a lane is called: where it stands side by side, else among the lanes of its run. "" for a run alone."""
        beside = self.letters.get(run.key, "") if run.key in self.compared else ""
        return (beside or own_letter(run.start)) if run.start.lanes > 1 else ""

    def hover(self, step: int | None, run: Run | None = None) -> None:
        """Points at a token; run: of this one that stands beside the current run."""
        if (step, run) != (self._hovered, self._hovered_run):
            self._hovered, self._hovered_run = step, run
            self.hover_changed.emit()
