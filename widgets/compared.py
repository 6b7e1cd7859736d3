"""In what compared runs differ besides their settings, said in words: only then is a difference the settings' doing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from PySide6.QtCore import QCoreApplication

from engine.figures import letters_beside
from engine.settings import SamplingSettings
from widgets.run_store import Run

LONGEST_NAME = 40


def differences(sides: Sequence[tuple[Run, Mapping[str, Any]]]) -> str:
    """A sentence or two about runs, each with what the first line of its recording says; "" for fewer than two."""
    if len(sides) < 2:
        return ""
    runs = [run for run, _ in sides]
    letters = letters_beside([run.start for run in runs])
    found = [
        _told(_tr("models"), letters, [_model(run, header) for run, header in sides]),
        _told(_tr("precisions"), letters, [_precision(run, header) for run, header in sides]),
        _plain(_tr("other prompts"), [run.start.prompt for run in runs]),
        _plain(_tr("other system texts"), [run.start.system or header.get("system") for run, header in sides]),
        _told(_tr("seeds, and so other draws"), letters, [_seed(run) for run in runs]),
    ]
    others = [words for words in found if words]
    names = ", ".join(
        _tr("{letter} is {name}").format(letter=letter, name=run.start.name)
        for letter, run in zip(letters, runs, strict=True)
        if run.start.name
    )
    if others:
        said = _tr("Not only the settings differ: {what}.").format(what="; ".join(others))
    else:
        said = _same({run.start.settings for run in runs})
    return f"{names}. {said}" if names else said


def _same(settings: set[SamplingSettings]) -> str:
    """What is the same where neither models nor prompts nor draws differ."""
    alike = len({replace(each, seed=0) for each in settings}) == 1
    if len({each.seed for each in settings}) == 1:
        if alike:
            return _tr("Model, prompt, seed and settings are the same.")
        return _tr("Model, prompt and seed are the same: what differs is the settings' doing.")
    if alike:
        return _tr("Model, prompt and settings are the same, and no seed decides: nothing is drawn.")
    if any(each.draws for each in settings):
        return _tr("Model, prompt and the seed of those that draw are the same: what differs is the settings' doing.")
    return _tr("Model and prompt are the same, and no seed decides: what differs is the settings' doing.")


def _told(what: str, letters: Sequence[str], values: Sequence[str]) -> str:
    """What differs and how, by letter. Something that is not known is no difference."""
    known = [value for value in values if value]
    if len(set(known)) < 2:
        return ""
    each = ", ".join(f"{letter} {value}" for letter, value in zip(letters, values, strict=True) if value)
    return _tr("other {what} ({each})").format(what=what, each=each)


def _seed(run: Run) -> str:
    """Of a run that draws: with greedy or top-k 1 a seed decides nothing."""
    settings = run.start.settings
    return str(settings.seed)[:LONGEST_NAME] if settings.draws else ""


def _plain(words: str, values: Sequence[object]) -> str:
    return words if len(set(values)) > 1 else ""


def _model(run: Run, header: Mapping[str, Any]) -> str:
    name = run.facts.name if run.facts is not None else header.get("model")
    return name[:LONGEST_NAME] if isinstance(name, str) else ""


def _precision(run: Run, header: Mapping[str, Any]) -> str:
    name = run.facts.precision if run.facts is not None else header.get("precision")
    return name[:LONGEST_NAME] if isinstance(name, str) else ""


def _tr(text: str) -> str:
    return QCoreApplication.translate("Compared", text)
