"""Which run each lane wrote, and runs from elsewhere as lanes."""

from __future__ import annotations

from collections.abc import Sequence

from engine.settings import LanePrompt
from widgets.lab.lane_set import LEAST, MOST, Lane, LaneSet
from widgets.run_store import Run, RunStore


class LaneRuns:
    """Knows runs by the lanes' keys, so that a lane that was removed comes back with its text."""

    def __init__(self, store: RunStore) -> None:
        self.store = store
        self.left_out = 0  # runs that were put side by side and found no room
        self._keys: dict[int, tuple[int, int]] = {}

    def began(self, lanes: LaneSet, run_id: int) -> tuple[tuple[int, int], ...]:
        """These lanes are written by this run; the keys of their runs."""
        self.left_out = 0
        for number, lane in enumerate(lanes.lanes):
            self._keys[lane.key] = (run_id, number)
        return tuple(self._keys[lane.key] for lane in lanes.lanes)

    def forget(self) -> None:
        """A recording took the place of all runs, and its own may have the same numbers."""
        self._keys.clear()

    def of(self, key: int) -> Run | None:
        """What the lane with this key wrote."""
        known = self._keys.get(key)
        return None if known is None else self.store.run(known)

    def adopt(self, lanes: LaneSet, shared: LanePrompt, next_key: int) -> LaneSet | None:
        """The runs that were put side by side elsewhere as lanes with keys from `next_key` on; None where they are
        these lanes' own, or fewer than two. shared: what lanes without a prompt of their own are asked."""
        runs = [run for key in self.store.compared if (run := self.store.run(key)) is not None]
        self.left_out = 0
        if len(runs) < LEAST or {run.key for run in runs[:MOST]} == {self._keys.get(lane.key) for lane in lanes.lanes}:
            return None
        self.left_out = max(0, len(runs) - MOST)
        return self._as_lanes(runs[:MOST], shared, next_key)

    def _as_lanes(self, runs: Sequence[Run], shared: LanePrompt, next_key: int) -> LaneSet:
        lanes = []
        for key, run in enumerate(runs, start=next_key):
            start = run.start
            asked = LanePrompt(start.prompt, start.system)
            lanes.append(Lane(key, start.settings, start.name, None if asked == shared else asked))
            self._keys[key] = run.key
        first = runs[0].start
        return LaneSet(tuple(lanes), next_key, first.lockstep, first.max_new_tokens)
