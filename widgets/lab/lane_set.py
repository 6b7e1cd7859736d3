"""The lanes as a person sets them up. Frozen: a change is a new set, so that undo is free and memory is plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.errors import SettingsRefused
from engine.events import TokenNames
from engine.settings import LanePrompt, SamplingSettings

LETTERS = "ABCDEFGH"
LEAST, MOST = 2, len(LETTERS)  # on the screen
MOST_NEW_TOKENS = 10_000_000


@dataclass(frozen=True, slots=True)
class Lane:
    """One lane. key: stays the same while the lane is edited or moved, and so does its letter; "": the first that is
    free. own: None: the prompt that all lanes share. tokens: whose token ids its settings name, where that is known."""

    key: int
    settings: SamplingSettings
    name: str = ""
    own: LanePrompt | None = None
    letter: str = ""
    tokens: TokenNames | None = None

    @property
    def colour(self) -> int:
        """In theme.lane: it goes with the letter."""
        return ord(self.letter[-1]) - ord("A")


@dataclass(frozen=True, slots=True)
class LaneSet:
    """From left to right. reference: the key of the lane that the others are compared with. lockstep: as in Request."""

    lanes: tuple[Lane, ...]
    reference: int
    lockstep: bool = True
    max_new_tokens: int = 256

    def __post_init__(self) -> None:
        if all(lane.key != self.reference for lane in self.lanes):
            object.__setattr__(self, "reference", self.lanes[0].key)
        if not all(lane.letter for lane in self.lanes):
            taken = {lane.letter for lane in self.lanes}
            free = (letter for letter in LETTERS if letter not in taken)
            lanes = tuple(lane if lane.letter else replace(lane, letter=next(free)) for lane in self.lanes)
            object.__setattr__(self, "lanes", lanes)

    # ---------------------------------------------------------------- asking

    def lane(self, key: int) -> Lane | None:
        return next((lane for lane in self.lanes if lane.key == key), None)

    def place(self, key: int) -> int:
        """Its place from the left. Raises ValueError for a lane that is not here."""
        return [lane.key for lane in self.lanes].index(key)

    def letter(self, key: int) -> str:
        return self.lanes[self.place(key)].letter

    @property
    def by_letter(self) -> tuple[Lane, ...]:
        """As the engine numbers them, so that a run's lanes have the letters that they have here."""
        return tuple(sorted(self.lanes, key=lambda lane: (len(lane.letter), lane.letter)))

    @property
    def reference_lane(self) -> Lane:
        lane = self.lane(self.reference)
        assert lane is not None
        return lane

    @property
    def full(self) -> bool:
        return len(self.lanes) >= MOST

    @property
    def own_prompts(self) -> bool:
        return any(lane.own is not None for lane in self.lanes)

    @property
    def seeds(self) -> set[int]:
        """Of the lanes that draw: with greedy or top-k 1 a seed decides nothing."""
        return {lane.settings.seed for lane in self.lanes if lane.settings.draws}

    @property
    def seeds_differ(self) -> bool:
        return len(self.seeds) > 1

    # ---------------------------------------------------------------- other sets

    def with_lane(self, lane: Lane) -> LaneSet:
        """With this lane in place of the one of its key."""
        return replace(self, lanes=tuple(lane if old.key == lane.key else old for old in self.lanes))

    def with_copy(self, key: int, next_key: int) -> LaneSet:
        """With one lane more, after the one it copies."""
        at = self.place(key)
        copy = replace(self.lanes[at], key=next_key, name="", letter="")
        return replace(self, lanes=(*self.lanes[: at + 1], copy, *self.lanes[at + 1 :]))

    def without(self, key: int) -> LaneSet:
        return replace(self, lanes=tuple(lane for lane in self.lanes if lane.key != key))

    def dealt(self) -> LaneSet:
        """The same lanes with letters from A on, without a gap, in the order that they had."""
        letters = {lane.key: letter for lane, letter in zip(self.by_letter, LETTERS, strict=False)}
        return replace(self, lanes=tuple(replace(lane, letter=letters[lane.key]) for lane in self.lanes))

    def moved(self, key: int, by: int) -> LaneSet:
        """The lane so many places further right; never beyond an end."""
        lanes = list(self.lanes)
        at = self.place(key)
        lane = lanes.pop(at)
        lanes.insert(max(0, min(len(lanes), at + by)), lane)
        return replace(self, lanes=tuple(lanes))

    def varied(self, settings: Sequence[SamplingSettings], names: Sequence[str], next_key: int) -> LaneSet:
        """The reference lane once for each of these settings, and nothing else."""
        like = self.reference_lane
        lanes = tuple(
            Lane(next_key + at, each, name, like.own, tokens=like.tokens)
            for at, (each, name) in enumerate(zip(settings, names, strict=True))
        )
        return replace(self, lanes=lanes[:MOST], reference=next_key)

    # ---------------------------------------------------------------- remembering

    def as_dict(self) -> dict[str, Any]:
        return {
            "lanes": [
                {
                    "name": lane.name,
                    "settings": lane.settings.as_dict(),
                    "prompt": None if lane.own is None else lane.own.prompt,
                    "system": None if lane.own is None else lane.own.system,
                    "tokens": None if lane.tokens is None else lane.tokens.as_dict(),
                }
                for lane in self.lanes
            ],
            "reference": self.place(self.reference),
            "lockstep": self.lockstep,
            "max_new_tokens": self.max_new_tokens,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> LaneSet:
        """What `as_dict` gave; keys are counted anew. Raises SettingsRefused for anything else."""
        try:
            lanes = tuple(_lane(key, each) for key, each in enumerate(values["lanes"]))
            reference, lockstep, most = values["reference"], values["lockstep"], values["max_new_tokens"]
            whole = type(reference) is int and type(most) is int and type(lockstep) is bool
            if not (LEAST <= len(lanes) <= MOST and whole and 1 <= most <= MOST_NEW_TOKENS and reference >= 0):
                raise ValueError
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise SettingsRefused("These lanes cannot be read.", "Set them up anew.") from error
        return cls(lanes, min(reference, len(lanes) - 1), lockstep, most)


def _lane(key: int, values: dict[str, Any]) -> Lane:
    name, prompt, system = values["name"], values["prompt"], values["system"]
    if not isinstance(name, str) or not isinstance(prompt, str | None) or not isinstance(system, str | None):
        raise TypeError
    own = None if prompt is None else LanePrompt(prompt, system)
    tokens = TokenNames.from_dict(values.get("tokens"))
    return Lane(key, SamplingSettings.from_dict(values["settings"]), name, own, tokens=tokens)
