"""Letters of runs that stand side by side: a run has the same one wherever it is named."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from engine.events import RunStart
from engine.figures import lane_letter


def own_letter(start: RunStart | None) -> str:
    """That of one of several lanes, "" for all else."""
    return lane_letter(start.lane) if start is not None and start.lanes > 1 else ""


def letters_of(starts: Sequence[RunStart | None], held: Sequence[str] = ()) -> list[str]:
    """A letter for each, all different. None: a lane that has written nothing yet.

    held: what each is called so far, "" where nothing. A lane of several has its own as far as that is free, and never
    that of another lane of its run, which would then be named as this one is. Others keep what they have.
    """
    own = [own_letter(start) for start in starts]
    kept = [
        "" if _is_anothers(start, letter) else letter
        for start, letter in zip(starts, held or [""] * len(starts), strict=True)
    ]
    found = [mine if mine == letter else "" for mine, letter in zip(own, kept, strict=True)]
    for letters in (own, kept):
        for at, letter in enumerate(letters):
            if not found[at] and letter not in found:
                found[at] = letter
    for at, start in enumerate(starts):
        first = start.lanes if start is not None and own[at] else 0
        found[at] = found[at] or next(letter for letter in map(lane_letter, count(first)) if letter not in found)
    return found


def _is_anothers(start: RunStart | None, letter: str) -> bool:
    """Whether another lane of the same run has this letter by itself."""
    lanes = start.lanes if start is not None else 1
    return lanes > 1 and letter != own_letter(start) and letter in map(lane_letter, range(lanes))
