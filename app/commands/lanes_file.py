"""Lanes from a JSON file: each with its own name, prompt, system text and settings, for `record --lanes`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from engine.errors import SettingsRefused
from engine.settings import LanePrompt, SamplingSettings

NAMES = ("name", "prompt", "system", "settings")


@dataclass(frozen=True, slots=True)
class Lanes:
    """What a file asks for, lane by lane."""

    names: tuple[str, ...]
    prompts: tuple[LanePrompt, ...]
    settings: tuple[SamplingSettings, ...]


def read_lanes(path: str, prompt: str | None, system: str | None, seed: int | None) -> Lanes:
    """The lanes of a JSON file: a list of objects whose parts may all be left out.

    prompt, system, seed: what counts where a lane names none itself. Raises SettingsRefused, with the lane's number,
    for what cannot be read or run.
    """
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsRefused(
            "The lanes in {path} cannot be read: {said}.", "Give a JSON file.", path=path[:200], said=str(error)[:200]
        ) from None
    if not isinstance(found, list) or not found or not all(isinstance(lane, dict) for lane in found):
        raise SettingsRefused(
            "{path} holds no list of lanes.",
            'Write a list of objects: [{{"name": "warm", "prompt": "…", "settings": {{"temperature": 1.2}}}}].',
            path=path[:200],
        )
    names, prompts, settings = [], [], []
    for number, lane in enumerate(found, start=1):
        if unknown := set(lane) - set(NAMES):
            _refuse(number, f"knows no {sorted(map(str, unknown))[0]!r:.40}", f"Choose from {', '.join(NAMES)}.")
        for part in NAMES[:3]:
            if not isinstance(lane.get(part), (str, type(None))):
                _refuse(number, f"has a {part} that is no text", "Give a text.")
        asked = lane.get("prompt", prompt)
        if asked is None:
            _refuse(number, "has no prompt", "Give it one, or one for all by --prompt.")
        values = lane.get("settings", {})
        if not isinstance(values, dict):
            _refuse(number, "has settings that are no object", 'Write {"temperature": 0.8}.')
        if seed is not None:
            values = {"seed": seed} | values
        names.append(lane.get("name") or "")
        prompts.append(LanePrompt(asked, lane.get("system", system)))
        settings.append(SamplingSettings.from_dict(values))
    return Lanes(tuple(names), tuple(prompts), tuple(settings))


def _refuse(number: int, what: str, fix: str) -> NoReturn:
    raise SettingsRefused("Lane {number} of the file {said}.", "{way_out}", number=number, said=what, way_out=fix)
