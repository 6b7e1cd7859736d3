"""Several recorded runs as lanes of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from engine.events import Event, Loaded, PrefillProgress, RunEnd, RunStart, SettingsChanged, TokenEvent
from engine.replay import read_replay


def side_by_side(files: Sequence[Path], names: Sequence[str] = ()) -> list[Event]:
    """The events of each file's newest run, as lanes of one run in this order. Raises FileRefused.

    The store takes them one after the other, so the order among lanes does not matter.
    """
    events: list[Event] = []
    for lane, file in enumerate(files):
        found = read_replay(file).events
        newest = max((event.run_id for event in found if isinstance(event, RunStart)), default=0)
        for event in found:
            if isinstance(event, Loaded):
                events.append(event)
            elif isinstance(event, RunStart) and event.run_id == newest:
                name = names[lane] if lane < len(names) else event.name
                events.append(replace(event, run_id=1, lane=lane, lanes=len(files), name=name))
            elif isinstance(event, PrefillProgress) and event.run_id == newest and lane == 0:
                events.append(replace(event, run_id=1))
            elif isinstance(event, (TokenEvent, SettingsChanged, RunEnd)) and event.run_id == newest:
                events.append(replace(event, run_id=1, lane=lane))
    return events
