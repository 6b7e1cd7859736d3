"""Figures of a run's tokens as columns that grow with it, so that a frame reads only what is new."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.events import TokenEvent
from widgets.run import Run


class Columns:
    """One float64 column per reader, as long as the run has tokens."""

    def __init__(self, *readers: Callable[[TokenEvent], float]) -> None:
        self._readers = readers
        self._run: Run | None = None
        self._values = np.zeros((len(readers), 256))
        self._count = 0

    def of(self, run: Run) -> np.ndarray:
        """The columns of a run: [readers, tokens]."""
        if run is not self._run:
            self._run, self._count = run, 0
        new = run.tokens[self._count :]
        while self._values.shape[1] < len(run.tokens):
            self._values = np.concatenate([self._values, np.zeros_like(self._values)], axis=1)
        for row, reader in enumerate(self._readers):
            if new:
                self._values[row, self._count : len(run.tokens)] = [float(reader(token)) for token in new]
        self._count = len(run.tokens)
        return self._values[:, : self._count]
