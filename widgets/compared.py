"""In what compared runs differ besides their settings, said in words: only then is a difference the settings' doing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from PySide6.QtCore import QCoreApplication

from engine.settings import SamplingSettings
from widgets.run import Run
from widgets.run_letters import letters_of

LONGEST_NAME = 40


def differences(sides: Sequence[tuple[Run, Mapping[str, Any]]], files: Sequence[str] = ()) -> str:
    """A sentence or two about runs, each with what the first line of its recording says; "" for fewer than two.

    files: which each comes from, told where lanes of several have the same names.
    """
    if len(sides) < 2:
        return ""
    runs = [run for run, _ in sides]
    letters = letters_of([run.start for run in runs])
    found = [
        _told(_tr("models"), letters, [_model(run, header) for run, header in sides]),
        _told(_tr("precisions"), letters, [_precision(run, header) for run, header in sides]),
        _plain(_tr("other prompts"), [run.start.prompt for run in runs]),
        _plain(_tr("other system texts"), [run.start.system or header.get("system") for run, header in sides]),
        _told(_tr("seeds, and so other draws"), letters, [_seed(run) for run in runs]),
    ]
    others = [words for words in found if words]
    names = _names(letters, runs, files)
    if others:
        said = _tr("Not only the settings differ: {what}.").format(what="; ".join(others))
    else:
        said = _same({run.start.settings for run in runs})
    return f"{names}. {said}" if names else said


def _names(letters: Sequence[str], runs: Sequence[Run], files: Sequence[str]) -> str:
    """What each is called; where runs of several files have the same name, file by file."""
    named = [
        _tr("{letter} is {name}").format(letter=letter, name=run.start.name) if run.start.name else ""
        for letter, run in zip(letters, runs, strict=True)
    ]
    owners: dict[str, set[int]] = {}  # the runs of one file have one number
    for run in runs:
        owners.setdefault(run.start.name, set()).add(run.start.run_id)
    if not files or all(len(numbers) == 1 for name, numbers in owners.items() if name):
        return ", ".join(filter(None, named))
    told = []
    for _, places in groupby(range(len(runs)), lambda place: runs[place].start.run_id):
        here = list(places)
        lanes = ", ".join(named[place] or letters[place] for place in here)
        told.append(_tr("{file}: {lanes}").format(file=_short(files[here[0]]), lanes=lanes))
    return "; ".join(told)


def _short(name: str) -> str:
    """Of a long name both ends: copies differ in the last characters."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME // 2]}…{name[-LONGEST_NAME // 2 :]}"


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
