"""What the pages of sweep, luck and blind test ask for. All frozen; the window's prompt and model complete them."""

from __future__ import annotations

from dataclasses import dataclass

from engine.events import BlindQuestion, BlindTest, SweepAxis, SweepQuestion
from engine.settings import SamplingSettings


@dataclass(frozen=True, slots=True)
class RunSweep:
    """A new sweep of the window's prompt. base: what is not varied; None: the sliders as they stand."""

    axes: tuple[SweepAxis, ...]
    seeds: tuple[int, ...]
    max_new_tokens: int
    batch: int
    base: SamplingSettings | None = None


@dataclass(frozen=True, slots=True)
class GoOn:
    """A sweep that is kept goes on where it stopped."""

    question: SweepQuestion


@dataclass(frozen=True, slots=True)
class FindSweeps:
    """The page wants to know which sweeps are kept. choose: a person names a folder first."""

    choose: bool = False


@dataclass(frozen=True, slots=True)
class OpenRuns:
    """Recorded runs take the place of what is shown: one in the text page, several as lanes."""

    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StopExperiment:
    """What was finished by then stands."""


@dataclass(frozen=True, slots=True)
class RunLuck:
    """first_seed: None for seeds that were not used before."""

    settings: tuple[SamplingSettings, SamplingSettings]
    seeds: int
    first_seed: int
    max_new_tokens: int


@dataclass(frozen=True, slots=True)
class BeginBlind:
    """A new blind test, which the window completes with system text and stop strings."""

    settings: tuple[SamplingSettings, ...]
    names: tuple[str, ...]
    prompts: tuple[str, ...]
    max_new_tokens: int
    planned: int
    at_end: bool


@dataclass(frozen=True, slots=True)
class AskRound:
    """The texts of a round."""

    question: BlindQuestion


@dataclass(frozen=True, slots=True)
class KeepBlind:
    """What was voted is to be kept."""

    test: BlindTest


@dataclass(frozen=True, slots=True)
class ExportBlind:
    """A person wants the test as a file, CSV or JSON."""

    test: BlindTest
