"""Several recordings as one set, for comparing them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from engine.events import Event, Mark, PrefillProgress, RunEnd, RunStart, SettingsChanged, TokenEvent


def newest_run(events: Iterable[Event]) -> int:
    """The number of the run that a recording is about: a fork's file holds the runs it began in before it. 0: none."""
    return next((event.run_id for event in reversed(list(events)) if isinstance(event, RunStart)), 0)


def renumbered(events: Iterable[Event], more: int, name: str = "") -> list[Event]:
    """The same events with run numbers so much higher, so that the runs of two files are not taken for one.

    name: for the lanes that have none.
    """
    found: list[Event] = []
    for event in events:
        match event:
            case RunStart():
                above = event.parent
                parent = replace(above, run_id=above.run_id + more) if above is not None else None
                event = replace(event, run_id=event.run_id + more, parent=parent, name=event.name or name)
            case TokenEvent() | PrefillProgress() | SettingsChanged() | RunEnd() | Mark():
                event = replace(event, run_id=event.run_id + more) if more else event
        found.append(event)
    return found
