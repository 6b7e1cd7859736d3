"""One run as it stands: plain data that the run store fills and views read. It knows no Qt."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from engine import events as ev
from engine.figures import beginning
from engine.settings import Parent


@dataclass(eq=False)
class Run:
    """One lane's generation as it stands. `starts[i]` is where token i's text begins in `text`."""

    start: ev.RunStart
    facts: ev.SessionFacts | None = None  # of the model that wrote it
    tokens: list[ev.TokenEvent] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    length: int = 0
    prefill: list[ev.PrefillProgress] = field(default_factory=list)
    changes: list[ev.SettingsChanged] = field(default_factory=list)
    end: ev.RunEnd | None = None
    readings: list[tuple[int, ev.MemoryReading]] = field(default_factory=list)  # each with the newest token as it came
    marks: dict[tuple[str, int | None], ev.Mark] = field(default_factory=dict)  # by kind and place
    gaps: int = 0  # tokens that a damaged recording has lost
    lost: int = 0  # of a fork whose parent is not there: so many tokens stand before the first one here

    @property
    def key(self) -> tuple[int, int]:
        return self.start.run_id, self.start.lane

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def running(self) -> bool:
        return self.end is None

    @property
    def bookmarks(self) -> list[ev.Mark]:
        """In the order of the text; a bookmark's number is its place here."""
        return sorted((m for m in self.marks.values() if m.what == "bookmark"), key=_step_of)

    @property
    def notes(self) -> list[ev.Mark]:
        """In the order of the text, the one on the run as a whole first."""
        return sorted((m for m in self.marks.values() if m.what == "note"), key=_step_of)

    def begin_in(self, parent: Run | None) -> None:
        """A fork begins with its parent's tokens, the same objects; where they are not there, with its own."""
        shared = beginning(self.start, parent.tokens) if parent is not None else None
        if parent is None or shared is None:
            self.lost = len(self.start.written)
            return
        for token in shared:
            self.add(token)
        self.changes = [change for change in parent.changes if change.step < len(shared)]
        self.readings = [reading for reading in parent.readings if reading[0] < len(shared)]

    @property
    def begins(self) -> int:
        """So many of the tokens here are those of the run in which it began."""
        return len(self.start.written) - self.lost

    def place(self, step: int) -> Parent:
        """Where a fork would begin that keeps the tokens before this one."""
        return Parent(*self.key, self.lost + step)

    def written_before(self, step: int) -> tuple[int, ...]:
        """The ids of all tokens before this one, those too that are not here."""
        return self.start.written[: self.lost] + tuple([token.token_id for token in self.tokens[:step]])

    def add(self, token: ev.TokenEvent) -> None:
        self.tokens.append(token)
        self.starts.append(self.length)
        self.pieces.append(token.text)
        self.length += len(token.text)

    def reading_at(self, step: int) -> ev.MemoryReading | None:
        """The memory as it was measured last when this token was the newest; None where it was not yet."""
        at = bisect_right(self.readings, step, key=_place_of)
        return self.readings[at - 1][1] if at else None

    def span(self, step: int) -> tuple[int, int]:
        """Where the text of a token lies in `text`, as Python positions [start, end)."""
        begin = self.starts[step]
        return begin, begin + len(self.tokens[step].text)

    def step_at(self, position: int) -> int | None:
        """The token whose text covers a position in `text`, or None past the end."""
        if not 0 <= position < self.length:
            return None
        step = bisect_right(self.starts, position) - 1
        while step > 0 and not self.tokens[step].text:  # a token that made nothing certain has no text of its own
            step -= 1
        return step if 0 <= step < len(self.tokens) else None


def _step_of(mark: ev.Mark) -> int:
    return -1 if mark.step is None else mark.step


def _place_of(reading: tuple[int, ev.MemoryReading]) -> int:
    return reading[0]
