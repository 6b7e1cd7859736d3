"""What the page of lanes asks for. All frozen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.settings import SamplingSettings
from widgets.lab.lane_set import LaneSet


@dataclass(frozen=True, slots=True)
class RunLanes:
    """All lanes, with the window's prompt where they have none of their own. one_token: one more, then a pause."""

    lanes: LaneSet
    one_token: bool = False


@dataclass(frozen=True, slots=True)
class ChangeLane:
    """From its next token on a lane of the run that goes on uses these settings. lane: its number in the run."""

    lane: int
    settings: SamplingSettings


@dataclass(frozen=True, slots=True)
class SteerLanes:
    """The run that goes on."""

    act: Literal["pause", "stop"]


@dataclass(frozen=True, slots=True)
class LanesPace:
    """As in Control.set_pace."""

    seconds_per_token: float


@dataclass(frozen=True, slots=True)
class LanesPrompt:
    """The prompt that the lanes share is the window's: here it was written anew."""

    prompt: str


@dataclass(frozen=True, slots=True)
class ShowText:
    """The page of the text, where the current run goes on: its words have acts there."""
