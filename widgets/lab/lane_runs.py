"""Which run each lane wrote, and runs from elsewhere as lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.settings import LanePrompt
from widgets.foreign_tokens import names_in
from widgets.lab.lane_set import LEAST, MOST, Lane, LaneSet
from widgets.run import Run
from widgets.run_letters import letters_of
from widgets.run_store import RunStore


class LaneRuns:
    """Knows runs by the lanes' keys, so that a lane that was removed comes back with its text."""

    def __init__(self, store: RunStore) -> None:
        self.store = store
        self.left_out: tuple[tuple[int, int], ...] = ()  # runs that were put side by side and found no room
        self._keys: dict[int, tuple[int, int]] = {}
        self._to_come: set[tuple[int, int]] = set()  # asked for, and not in the store yet

    def began(self, lanes: LaneSet, run_id: int) -> None:
        """These lanes are written by this run, which numbers them by their letters."""
        self.left_out = ()
        for number, lane in enumerate(lanes.by_letter):
            self._keys[lane.key] = (run_id, number)
        self._to_come = {(run_id, number) for number in range(len(lanes.lanes))}

    def came(self, run: Run) -> None:
        """It is in the store; where it is there no longer, it was taken out."""
        self._to_come.discard(run.key)

    def lettered(self, lanes: LaneSet) -> LaneSet:
        """The same lanes, each called what its run is called elsewhere, as far as no two are then called the same."""
        runs = [self.of(lane.key) for lane in lanes.lanes]
        starts = [run.start if run is not None else None for run in runs]
        letters = letters_of(starts, [lane.letter for lane in lanes.lanes])
        return replace(
            lanes, lanes=tuple(replace(lane, letter=now) for lane, now in zip(lanes.lanes, letters, strict=True))
        )

    def forget(self) -> None:
        """A recording took the place of all runs, and its own may have the same numbers."""
        self._keys.clear()
        self._to_come.clear()
        self.left_out = ()

    def put_beside(self, lanes: LaneSet) -> None:
        """Lets reports and exports hold these runs side by side: in this order, with these letters and reference."""
        known = {self._keys[lane.key]: lane for lane in lanes.lanes if lane.key in self._keys}
        known = {key: lane for key, lane in known.items() if key in self._to_come or self.store.run(key) is not None}
        if known:
            letters = {key: lane.letter for key, lane in known.items()}
            self.store.put_beside((*known, *self.left_out), letters, self._keys.get(lanes.reference))

    def of(self, key: int) -> Run | None:
        """What the lane with this key wrote."""
        known = self._keys.get(key)
        return None if known is None else self.store.run(known)

    def adopt(self, lanes: LaneSet, shared: LanePrompt, next_key: int) -> LaneSet | None:
        """The runs that were put side by side elsewhere as lanes with keys from `next_key` on; None where they are
        these lanes' own, or fewer than two. shared: what lanes without a prompt of their own are asked."""
        runs = [run for key in self.store.compared if (run := self.store.run(key)) is not None]
        self.left_out = ()
        if len(runs) < LEAST or {run.key for run in runs[:MOST]} == {self._keys.get(lane.key) for lane in lanes.lanes}:
            return None
        self.left_out = tuple(run.key for run in runs[MOST:])
        return self._as_lanes(runs[:MOST], shared, next_key)

    def _as_lanes(self, runs: Sequence[Run], shared: LanePrompt, next_key: int) -> LaneSet:
        lanes, reference = [], next_key
        for key, run in enumerate(runs, start=next_key):
            start = run.start
            asked = LanePrompt(start.prompt, start.system)
            own = None if asked == shared else asked
            letter, tokens = self.store.letters.get(run.key, ""), names_in(run, start.settings)
            lanes.append(Lane(key, start.settings, start.name, own, letter, tokens))
            self._keys[key] = run.key
            if run.key == self.store.reference:
                reference = key
        first = runs[0].start
        return LaneSet(tuple(lanes), reference, first.lockstep, first.max_new_tokens)
