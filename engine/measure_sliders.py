"""Measuring: how rare a finished text's words are undecided under other settings, and how long deciding takes."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, replace
from typing import Any

from engine.control import Control
from engine.events import RunStart, TokenEvent
from engine.loop import generate
from engine.measure import PROMPT
from engine.redecide import FinishedRun
from engine.session import Session
from engine.settings import Request, SamplingSettings

# As people write: with a few filters, with none, and hotter.
WRITTEN = (
    SamplingSettings(temperature=0.8, top_p=0.95, repetition_penalty=1.1, seed=1),
    SamplingSettings(seed=2),
    SamplingSettings(temperature=0.9, top_k=50, seed=3),
)
MOVED: dict[str, tuple[dict[str, Any], ...]] = {
    "temperature": tuple({"temperature": t} for t in (0.0, 0.3, 0.5, 0.7, 1.0, 1.2, 1.5, 2.0)),
    "top-p": tuple({"top_p": p} for p in (0.5, 0.8, 0.95, 0.99)),
    "top-k": tuple({"top_k": k} for k in (1, 10, 40, 100, 200)),
    "min-p": tuple({"min_p": p} for p in (0.02, 0.1, 0.2)),
    "typical-p": tuple({"typical_p": p} for p in (0.2, 0.5, 0.9, 0.95)),
    "repetition penalty": tuple({"repetition_penalty": r} for r in (1.0, 1.15, 1.3)),
    "no-repeat n-gram": ({"no_repeat_ngram_size": 2}, {"no_repeat_ngram_size": 3}),
}


# What takes longest: typical-p on, and another setting that moves.
WITH_TYPICAL: dict[str, tuple[dict[str, Any], ...]] = {
    "temperature, typical-p 0.9": tuple({"typical_p": 0.9, "temperature": t} for t in (0.5, 0.9, 1.2, 1.5, 2.0)),
    "penalty, typical-p 0.9": tuple({"typical_p": 0.9, "repetition_penalty": r} for r in (1.0, 1.05, 1.15, 1.3)),
}


@dataclass(frozen=True, slots=True)
class Undecided:
    """moved: the setting. words: how many were asked about, over all its values. ms: median for one value and run."""

    moved: str
    words: int
    undecided: int
    ms: float


def undecided(session: Session, tokens: int) -> list[Undecided]:
    """For each setting moved alone how many words stay undecided, over runs of the model written for this."""
    runs = [(_written(session, settings, tokens), settings) for settings in WRITTEN]
    found = []
    for name, changes in MOVED.items():
        words = open_words = 0
        times = []
        for run, settings in runs:
            for change in changes:
                began = time.perf_counter()
                answer = run.redecide(replace(settings, **change))
                times.append((time.perf_counter() - began) * 1e3)
                words += run.rows
                open_words += answer.open_count
        found.append(Undecided(name, words, open_words, statistics.median(times)))
    return found


def positions_ms(session: Session, tokens: int) -> dict[str, list[float]]:
    """For each setting that moves over a run of so many words: milliseconds of each position but the first."""
    settings = WRITTEN[0]
    run = _written(session, settings, tokens)
    found: dict[str, list[float]] = {}
    for name, changes in (MOVED | WITH_TYPICAL).items():
        times = []
        for change in changes * 2:
            began = time.perf_counter()
            run.redecide(replace(settings, **change))
            times.append((time.perf_counter() - began) * 1e3)
        found[name] = times[1:]
    return found


def _written(session: Session, settings: SamplingSettings, tokens: int) -> FinishedRun:
    raw = not session.facts.has_chat_template
    request = Request(1, PROMPT, raw=raw, lanes=(settings,), max_new_tokens=tokens, ignore_ends=True)
    events = list(generate(session, request, Control()))
    start = next(event for event in events if isinstance(event, RunStart))
    return FinishedRun(start, [e for e in events if isinstance(e, TokenEvent)])
