"""What the window asks of the engine's thread: frozen, so that it may cross; a `Control` where it can be broken off."""

from __future__ import annotations

from dataclasses import dataclass

from engine.control import Control
from engine.events import Event
from engine.settings import LoadPlan, Request, XrayQuestion


@dataclass(frozen=True, slots=True)
class LoadJob:
    plan: LoadPlan
    control: Control


@dataclass(frozen=True, slots=True)
class RunJob:
    request: Request
    control: Control
    record_folder: str  # "": not recorded
    before: tuple[Event, ...] = ()  # of a fork: the runs it began in, for its file


@dataclass(frozen=True, slots=True)
class PreviewJob:
    prompt: str
    system: str | None
    raw: bool
    markers_as_text: bool


@dataclass(frozen=True, slots=True)
class EstimateJob:
    plan: LoadPlan
    context_tokens: int | None


@dataclass(frozen=True, slots=True)
class AskJob:
    question: object  # one of engine/inside.py
    control: Control


@dataclass(frozen=True, slots=True)
class ExperimentJob:
    question: object  # one that engine/answers.py runs the model for
    control: Control


@dataclass(frozen=True, slots=True)
class XrayJob:
    question: XrayQuestion
    control: Control
