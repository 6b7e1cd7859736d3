"""A run played back: word after word at the speed it was written with, or at another."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot

from widgets.run import Run
from widgets.run_store import RunStore
from widgets.status_line import step_ms

FRAME_MS = 16
LONGEST_JUMP_S = 0.5  # a computer that slept does not find its run at the end
UNKNOWN_MS = 200.0  # for a recording that tells no times


@dataclass(frozen=True, slots=True)
class Speed:
    """So many times as fast as it was written, or, where `per_second` is not 0, so many tokens a second."""

    times: float = 1.0
    per_second: float = 0.0


SPEEDS = (
    *(Speed(times) for times in (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)),
    *(Speed(per_second=rate) for rate in (1.0, 2.0, 5.0, 10.0, 20.0, 50.0)),
)


class Player(QObject):
    """Moves the store's selection along the current run. A hand that moves it meanwhile is followed.

    The times are those that each token took: forward pass, sampling and text. What a pause or a pace waited is not in
    a recording. clock: seconds, for tests.
    """

    changed = Signal()  # it began, it ended, it has another speed

    def __init__(
        self, store: RunStore, parent: QObject | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(parent)
        self.store = store
        self.speed = Speed()
        self._clock = clock
        self._run: Run | None = None
        self._at = 0
        self._since = 0.0
        self._due_s = 0.0  # time that has passed at `_at` and is not used up
        self._typical_ms = UNKNOWN_MS
        self._timer = QTimer(self)
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.setInterval(FRAME_MS)
        self._timer.timeout.connect(self.tick)

    @property
    def playing(self) -> bool:
        return self.store.playing

    @property
    def can_play(self) -> bool:
        return self.store.current is not None and len(self.store.current.tokens) > 1

    @Slot()
    def toggle(self) -> None:
        self.pause() if self.playing else self.play()

    @Slot()
    def play(self) -> None:
        """From the selected word on; from the first where the newest is shown."""
        run = self.store.current
        if run is None or not self.can_play:
            return
        step = self.store.selected_step or 0
        if self.store.following or step >= len(run.tokens) - 1:
            step = 0
        known = [ms for ms in map(step_ms, run.tokens) if math.isfinite(ms)]
        self._typical_ms = sum(known) / len(known) if known else UNKNOWN_MS
        self._run, self._at, self._due_s, self._since = run, step, 0.0, self._clock()
        self.store.playing = True
        self.store.hover(None)  # a mouse that lies still on a word would hold the bars there
        self.store.rewind(step)
        self._timer.start()
        self.changed.emit()

    @Slot()
    def pause(self) -> None:
        if self.playing:
            self._timer.stop()
            self.store.playing = False
            self.store.mark()
            self.changed.emit()

    def set_speed(self, speed: Speed) -> None:
        if speed != self.speed:
            self.speed = speed
            self.changed.emit()

    @Slot()
    def faster(self) -> None:
        self._shift(1)

    @Slot()
    def slower(self) -> None:
        self._shift(-1)

    def _shift(self, by: int) -> None:
        """The next speed of its kind."""
        kind = [speed for speed in SPEEDS if bool(speed.per_second) == bool(self.speed.per_second)]
        at = kind.index(self.speed) if self.speed in kind else 0
        self.set_speed(kind[max(0, min(len(kind) - 1, at + by))])

    def wait_s(self, step: int) -> float:
        """How long this token lets wait after the one before it, at the chosen speed."""
        if self.speed.per_second:
            return 1.0 / self.speed.per_second
        assert self._run is not None
        ms = step_ms(self._run.tokens[step])
        return (ms if math.isfinite(ms) else self._typical_ms) / 1000.0 / self.speed.times

    @Slot()
    def tick(self) -> None:
        """Goes as far as the time that has passed allows."""
        now = self._clock()
        passed, self._since = min(LONGEST_JUMP_S, now - self._since), now
        run, here = self._run, self.store.selected_step
        if run is None or self.store.current is not run or self.store.following or here is None:
            self.pause()  # another run is shown, or the newest word was asked for
            return
        if here != self._at:
            self._at, self._due_s = here, 0.0
        self._due_s += passed
        step = self._at
        while step + 1 < len(run.tokens) and self._due_s >= (wait := self.wait_s(step + 1)):
            self._due_s -= wait
            step += 1
        if step != self._at:
            self._at = step
            self.store.rewind(step)
        if step + 1 >= len(run.tokens):
            self.store.select(None)  # at its end the window shows the run as it ended, or goes on with it
            self.pause()
