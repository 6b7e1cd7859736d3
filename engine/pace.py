"""How many threads a decode step takes, found while it runs, since what is best depends on what else the machine does.

Alone on the machine, two threads are faster than one; beside another busy program each product waits until both have
had their turn, and one is up to five times faster than two. What was measured at the load is only where it begins.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from engine.kernels import torch_threads

SEEN, TRIED = 8, 3  # steps whose median counts: with the current number, with the other
FIRST_WAIT, LONGEST_WAIT = 32, 512  # steps between two trials of more: twice as many after each that did not help
CLEARLY, SUDDENLY = 0.95, 1.5


class Pace:
    """For steps of one kind. threads: to begin with, 0 for as many as torch has; half of them is the other choice."""

    def __init__(self, threads: int) -> None:
        most = torch.get_num_threads()
        self.threads = threads or most
        self.other = self.threads // 2 if self.threads > 1 else min(2, most)
        self._rows = 0
        self._left, self._wait = SEEN, FIRST_WAIT  # soon, since the machine may be busy as it begins
        self._times: deque[float] = deque(maxlen=SEEN)
        self._trial: list[float] = []
        self._usual = 0.0  # seconds of a step at the last decision

    @contextmanager
    def step(self, rows: int) -> Iterator[None]:
        """Around one step of so many rows: sets torch's threads, and learns from the time it took."""
        if rows != self._rows:
            self._rows, self._usual = rows, 0.0
            self._times.clear()
            self._trial.clear()
        trying = self.trying
        began = time.perf_counter()
        with torch_threads(self.other if trying else self.threads):
            yield
        self.took(time.perf_counter() - began, trying)

    @property
    def trying(self) -> bool:
        """Whether the next step takes the other number."""
        return self._left <= 0 and len(self._times) == SEEN and self.other != self.threads

    def took(self, seconds: float, trying: bool) -> None:
        """A step took so long; trying: with the other number."""
        if not trying:
            self._times.append(seconds)
            self._left -= 1
            if len(self._times) == SEEN and self._usual and statistics.median(self._times) > SUDDENLY * self._usual:
                self._left, self._wait, self._usual = 0, FIRST_WAIT, 0.0  # something else has begun to compute
            return
        self._trial.append(seconds)
        if len(self._trial) < TRIED:
            return
        usual, tried = statistics.median(self._times), statistics.median(self._trial)
        if tried < usual * CLEARLY:
            self.threads, self.other = self.other, self.threads
            self._times.clear()
            self._wait, self._usual = FIRST_WAIT, tried
        else:
            self._wait, self._usual = min(2 * self._wait, LONGEST_WAIT), usual
        # To try fewer threads on a quiet machine is a step twice as long: that waits until steps take longer.
        self._left = self._wait if self.other > self.threads else sys.maxsize
        self._trial.clear()
