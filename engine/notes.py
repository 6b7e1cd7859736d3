"""What a person says of a run: bookmarks and notes, kept in the replay file itself.

Each change is one more line behind what is there, and the newest line about a place counts. So what was recorded is
never touched, the notes go wherever the file goes, a file that is still being written takes them too, and two windows
that write into one file lose nothing of each other's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.errors import FileRefused

VERSION = 1  # of such lines; a reader keeps newer ones as lines of an unknown kind
WHATS = ("bookmark", "note", "name")


@dataclass(frozen=True, slots=True)
class Mark:
    """A bookmark, a note, or the run's name. Raises ValueError where it is none of them.

    step: the token it belongs to; None: the run as a whole, for notes and names. text: the bookmark's or the run's
    name, which may be empty, or the note's sentence. removed: it was there and is there no more.
    """

    run_id: int
    lane: int
    what: str  # one of WHATS
    step: int | None
    text: str = ""
    removed: bool = False
    version: int = VERSION

    def __post_init__(self) -> None:
        of_word = {"bookmark": True, "note": self.step is not None, "name": False}.get(self.what)
        if of_word is None or of_word != (self.step is not None):
            raise ValueError(f"{self.what!r:.40} at {self.step} is no mark")
        if self.step is not None and self.step < 0:
            raise ValueError("a step is 0 or more")

    @property
    def place(self) -> tuple[str, int | None]:
        """What it is and where: there is one of a kind at a place."""
        return self.what, self.step


def append(path: Path, line: bytes) -> None:
    """Puts a whole line behind a finished file, which must be there. A line that was cut off stays a line by itself.

    Raises FileRefused where the file cannot be written.
    """
    try:
        with open(path, "r+b") as file:  # not "a": that would make a file that was moved away anew
            if file.seek(0, 2):
                file.seek(-1, 2)
                if file.read(1) not in (b"\n", b"\r"):
                    line = b"\n" + line
        with open(path, "ab", buffering=0) as file:
            if file.write(line) != len(line):
                raise OSError("the disk is full")
    except (OSError, ValueError) as error:
        said = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise FileRefused(
            "{name} cannot be written: {said}.",
            "The bookmarks and notes stay in this window: save the replay elsewhere, they go with it.",
            name=path.name,
            said=said,
        ) from None
