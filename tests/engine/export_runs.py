"""Runs to export: made of real events, by hand where a text must be just so."""

from __future__ import annotations

from dataclasses import replace

from engine.export import ExportRun
from engine.settings import SamplingSettings
from tests.widgets.events_factory import end, start, token, tokens


def written_run(texts: list[str], **changes: object) -> ExportRun:
    """A run of tokens with these texts."""
    made = tokens(texts)
    return ExportRun(replace(start(), **changes), tuple(made), end(made), header={"raw": False})  # type: ignore[arg-type]


def run_with(settings: SamplingSettings, texts: tuple[str, ...] = (" a", " b"), **changes: object) -> ExportRun:
    made = [token(i, text, settings=settings) for i, text in enumerate(texts)]
    begun = replace(start(), settings=settings, **changes)  # type: ignore[arg-type]
    return ExportRun(begun, tuple(made), end(made), header={"raw": False, "model": "tiny", "precision": "float32"})
