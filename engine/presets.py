"""Presets as JSON that people keep and exchange: named sampling settings. Text in, text out; nothing in it is run.

docs/presets.md describes the file. Python alone reads and writes it: other readers spoil large seeds (FIL-21).
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from engine.errors import FileRefused, SettingsRefused
from engine.replay_lines import settings_from, settings_values
from engine.settings import Preset, SamplingSettings
from engine.words import TokenNames

KIND = "glasswork presets"
SCHEMA = 1
MOST = 1000  # presets in a file
LONGEST_FILE = 4 * 2**20  # characters
LONGEST_NAME = 80

BUILT_IN = (
    Preset(
        "greedy",
        SamplingSettings(temperature=0.0),
        words="Always the most probable word: no draw, the same text each time. Small models soon repeat themselves.",
        source="built in",
    ),
    Preset(
        "careful",
        SamplingSettings(temperature=0.6, top_p=0.9),
        words="Mostly the favourites, with a little variety: temperature 0.6 sharpens the odds, top-p 0.9 cuts the "
        "least probable tenth. Fewer slips, fewer surprises.",
        source="built in",
    ),
    Preset(
        "playful",
        SamplingSettings(temperature=1.2, min_p=0.05),
        words="Flatter odds: temperature 1.2, and min-p 0.05 cuts words with less than a twentieth of the favourite's "
        "chance. More variety, and more mistakes.",
        source="built in",
    ),
)


def model_preset(settings: SamplingSettings) -> Preset:
    """The loaded model's own generation defaults, as its generation_config.json has them."""
    return Preset("the model's own", settings, source="model")


def clean_name(name: str) -> str:
    """A name as it is kept: one line, nothing invisible, at most LONGEST_NAME characters; "" where nothing is left."""
    shown = "".join(" " if _unseen(c) else c for c in name)
    return " ".join(shown.split())[:LONGEST_NAME].strip()


def _unseen(character: str) -> bool:
    # Controls, turners of direction, halves of characters, line ends; not the joiners of some scripts and of emoji.
    return unicodedata.category(character)[0] == "C" and character not in "\u200c\u200d"


def same_name(one: str, other: str) -> bool:
    """Names are told apart as people do: not by case, not by how an accent is written."""
    return _key(one) == _key(other)


def _key(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


@dataclass(frozen=True, slots=True)
class PresetsRead:
    """What a file holds. newer: a newer version wrote it. left_out: how many of its presets could not be read."""

    presets: tuple[Preset, ...]
    left_out: int = 0
    newer: bool = False


def read_presets(text: str) -> PresetsRead:
    """The presets in a file's text; those that cannot be read are counted.

    Raises FileRefused where it is no file of presets at all.
    """
    if len(text) > LONGEST_FILE:
        raise FileRefused("The file is too long for presets.", "Choose a file that was exported here.")
    try:
        found = json.loads(text.removeprefix("\ufeff"))
    # A reader's exceptions are of many kinds (FIL-22): too many digits, a hundred thousand brackets.
    except (ValueError, RecursionError):
        raise FileRefused("The file is not readable as JSON.", "Choose a file that was exported here.") from None
    listed = found.get("presets") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(listed, list) or found.get("kind") != KIND:
        raise FileRefused("The file holds no presets.", "Choose a file that was exported here.")
    schema = found.get("schema")
    presets: list[Preset] = []
    names: set[str] = set()
    for each in listed[:MOST]:
        preset = _preset(each)
        if preset is not None and _key(preset.name) not in names:
            names.add(_key(preset.name))
            presets.append(preset)
    newer = isinstance(schema, int) and not isinstance(schema, bool) and schema > SCHEMA
    return PresetsRead(tuple(presets), len(listed) - len(presets), newer)


def _preset(each: Any) -> Preset | None:
    """One preset of a file, or None where it is damaged. Settings that it does not name are off."""
    try:
        name, values, words = each["name"], dict(each["settings"]), each.get("words", "")
        if not isinstance(name, str) or not isinstance(words, str) or not (name := clean_name(name)):
            return None
        seed = values.get("seed", 0)
        if isinstance(seed, str) and not seed.lstrip("-").startswith("0x"):
            return None  # a long seed is a hexadecimal string; any other would be misread as one
        settings = settings_from(values)
        tokens = TokenNames.from_dict(each.get("tokens")) if settings.names_tokens else None
        return Preset(name, settings, "seed" in values, words[:1000], tokens=tokens)
    except (SettingsRefused, KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        return None


def presets_text(presets: Iterable[Preset]) -> str:
    """The file of these presets. Only what is on stands there, and the seed where it belongs to the preset."""
    off = settings_values(SamplingSettings())
    listed = []
    for preset in presets:
        values = {
            name: value
            for name, value in settings_values(preset.settings).items()
            if (preset.with_seed if name == "seed" else value != off.get(name))
        }
        kept: dict[str, Any] = {"name": preset.name} | ({"words": preset.words} if preset.words else {})
        kept["settings"] = values
        if preset.tokens is not None and preset.settings.names_tokens:
            kept["tokens"] = preset.tokens.as_dict()
        listed.append(kept)
    made = {"kind": KIND, "schema": SCHEMA, "presets": listed}
    return json.dumps(made, ensure_ascii=True, allow_nan=False, indent=1) + "\n"


# ---------------------------------------------------------------- changes that can be undone


@dataclass(frozen=True, slots=True)
class PresetChange:
    """One preset became another. before None: it is new. after None: it is deleted. at: its place in the list."""

    before: Preset | None
    after: Preset | None
    at: int = 0

    @property
    def undone(self) -> PresetChange:
        return PresetChange(self.after, self.before, self.at)


def changed(presets: tuple[Preset, ...], changes: Iterable[PresetChange]) -> tuple[Preset, ...]:
    """The list after these changes. What another window did to other presets stays."""
    made = list(presets)
    for change in changes:
        gone = [each for each in (change.before, change.after) if each is not None]
        places = [at for at, each in enumerate(made) if any(same_name(each.name, old.name) for old in gone)]
        made = [each for at, each in enumerate(made) if at not in places]
        if change.after is not None:
            made.insert(min(places[0] if places else change.at, len(made)), change.after)
    return tuple(made)


def with_new(presets: tuple[Preset, ...], new: Preset) -> PresetChange:
    """The change that keeps a preset: at the end, or in place of the one of that name."""
    for at, each in enumerate(presets):
        if same_name(each.name, new.name):
            return PresetChange(each, new, at)
    return PresetChange(None, new, len(presets))
