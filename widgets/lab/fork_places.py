"""Where the tree of forks lies in its viewport: tokens across, rows down. Numbers only, in pixels."""

from __future__ import annotations

from dataclasses import dataclass

LEFT = 14.0  # of the first token
TEXT_ROOM = 320.0  # right of the longest bar, so that a late fork's text can be read
INDENT = 8.0  # of a row's words, from where its bar begins
AXIS = 26.0


@dataclass(frozen=True, slots=True)
class Places:
    """width, height: of the viewport. across, down: how far it is scrolled. longest: the longest run, in tokens."""

    width: int
    height: int
    across: int
    down: int
    row_height: int
    rows: int
    longest: int
    zoom: float

    @property
    def scale(self) -> float:
        """Pixels for each token."""
        return max(8.0, self.width - LEFT - TEXT_ROOM) / self.longest * self.zoom

    @property
    def whole_width(self) -> float:
        return LEFT + self.longest * self.scale + TEXT_ROOM

    @property
    def whole_height(self) -> float:
        return AXIS + self.rows * self.row_height + 8

    def x_of(self, token: float) -> float:
        return LEFT + token * self.scale - self.across

    def token_at(self, x: float) -> float:
        return (x - LEFT + self.across) / self.scale

    def top_of(self, at: int) -> float:
        return AXIS + at * self.row_height - self.down

    def bar_of(self, at: int) -> float:
        """The middle of a row's bar."""
        return self.top_of(at) + self.row_height - 12.0

    def row_at(self, y: float) -> int | None:
        at = int((y - AXIS + self.down) // self.row_height)
        return at if y >= AXIS and 0 <= at < self.rows else None

    def seen(self) -> list[int]:
        """The rows of which a part is in the viewport, below the axis."""
        tops = ((at, self.top_of(at)) for at in range(self.rows))
        return [at for at, top in tops if top < self.height and top + self.row_height > AXIS]
