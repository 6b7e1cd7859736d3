"""What is remembered between starts: one JSON file, written by Python's own reader and writer.

Not Qt's settings: their INI files run pickles when they are opened (FIL-24), and they lose large integers (FIL-21).
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import tempfile
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import platformdirs

log = logging.getLogger(__name__)
SCHEMA = 1


# What the sliders stand at when the program is opened for the first time: each filter has something to cut, so that
# a newcomer sees what it does. "reset" goes to the model's own defaults.
FIRST_SAMPLING = {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "repetition_penalty": 1.1, "seed": 7}


@dataclass
class Preferences:
    """All that is remembered. A field that is missing, of a wrong type or unknown in the file takes its default."""

    theme: str = "system"  # "light", "dark", "system"
    motion: bool = True
    keep_cache: bool = True  # between runs, so that one of the same prompt begins at once
    window: str = ""  # geometry and dock layout, base64 of Qt's own bytes
    layout: str = ""
    model: str = "default"
    precision: str = ""
    kernel: str = ""  # "": the fastest exact one
    attention: str = ""
    device_map: str = "auto"
    model_folders: list[str] = field(default_factory=list)
    model_browser: dict[str, Any] = field(default_factory=dict)  # as ModelBrowser.state gives it
    ledger_context: int = 0  # of the memory ledger; 0: the model's own
    ledger_lanes: int = 1
    planned_gpus: str = "2x24"  # the machine that the planner was told of
    planned_cpu_gb: float = 64.0
    prompt: str = "Describe how a river shapes the land it crosses."
    system: str = ""
    raw: bool = False
    sampling: dict[str, Any] = field(default_factory=lambda: dict(FIRST_SAMPLING))
    sampling_tokens: dict[str, Any] = field(default_factory=dict)  # whose tokens `sampling` names, as presets have it
    max_new_tokens: int = 256
    stop: list[str] = field(default_factory=list)
    begin_with: str = ""  # what every run is made to begin with
    words: dict[str, Any] = field(default_factory=dict)  # banned or biased, as Constraints.state gives them
    seconds_per_token: float = 0.0
    text_size: int = 0  # points more or less than the base
    lanes: dict[str, Any] = field(default_factory=dict)  # side by side, as LaneSet.as_dict gives them
    recent_files: list[str] = field(default_factory=list)
    presets_folder: str = ""  # where presets were last imported or exported
    export_folder: str = ""
    export_kind: str = "html"
    int8_threshold: float = 6.0
    double_quantisation: bool = True
    compute_dtype: str = ""  # "": the model's own
    keep_windows: bool = False
    xray_precisions: list[str] = field(default_factory=lambda: ["bfloat16", "int8"])  # the reference first
    xray_sample: str = "prose"  # or "own"
    xray_text: str = ""  # the person's own
    sweep_form: dict[str, Any] = field(default_factory=dict)  # as SweepForm.state gives it
    futures_form: dict[str, Any] = field(default_factory=dict)  # as FuturesPage.state gives it
    luck_form: dict[str, Any] = field(default_factory=dict)  # as LuckPage.state gives it
    blind_form: dict[str, Any] = field(default_factory=dict)  # as BlindPage.state gives it
    going_sweep: str = ""  # the folder of a sweep that goes on, to be offered after a crash or a close
    trusted_code: list[str] = field(default_factory=list)  # digests of models' code that a person allowed
    schema: int = SCHEMA  # of this file


LARGEST = 10**300  # beyond it no double holds an integer
# Outside these a value takes its default: least, most.
LIMITS = {
    "seconds_per_token": (0, 60),
    "max_new_tokens": (1, 10_000_000),
    "text_size": (-20, 60),
    "ledger_context": (0, 2**40),
    "ledger_lanes": (1, 64),
    "planned_cpu_gb": (0, 100_000),
    "int8_threshold": (0, 1000),
}


def preferences_path() -> Path:
    return Path(platformdirs.user_config_dir("glasswork")) / "settings.json"


def runs_folder() -> Path:
    """Where runs are written while they go on."""
    return Path(platformdirs.user_data_dir("glasswork")) / "runs"


def sweeps_folder() -> Path:
    """Where sweeps are kept, each in a folder of its own."""
    return Path(platformdirs.user_data_dir("glasswork")) / "sweeps"


def blind_folder() -> Path:
    """Where the votes of blind tests are kept, a file for each test."""
    return Path(platformdirs.user_state_dir("glasswork")) / "blind"


def read_preferences(path: Path | None = None) -> tuple[Preferences, str]:
    """The preferences, and a sentence for the person where the file was damaged (it is kept aside), else ""."""
    path = path or preferences_path()
    try:
        values = json.loads(path.read_text(encoding="utf-8-sig"))
        if not isinstance(values, dict):
            raise ValueError("not an object")
    except FileNotFoundError:
        return Preferences(), ""
    except PermissionError as error:
        log.warning("the settings file cannot be read: %s", error)
        return Preferences(), "The settings file may not be read; defaults are used."
    # A reader's exceptions are of many kinds (FIL-22): too many digits, too deep, not UTF-8, not readable.
    except (OSError, ValueError, RecursionError) as error:
        log.warning("the settings file cannot be read: %s", error)
        kept = keep_aside(path, "damaged")
        return Preferences(), f"The settings file was damaged; defaults are used{kept}."
    preferences, defaults = Preferences(), Preferences()
    for each in fields(Preferences):
        value, default = values.get(each.name), getattr(defaults, each.name)
        if isinstance(default, float) and isinstance(value, int) and abs(value) < LARGEST:
            value = float(value)
        if type(value) is type(default) and _fits(value, *LIMITS.get(each.name, (-math.inf, math.inf))):
            setattr(preferences, each.name, value)
    schema = values.get("schema", SCHEMA)
    if type(schema) is int and schema > SCHEMA:
        preferences.schema = SCHEMA
        kept = keep_aside(path, "newer")
        return preferences, f"The settings are of a newer version; what this one knows of them is used{kept}."
    return preferences, ""


def _fits(value: object, least: float, most: float) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, str) for item in value)
    return not isinstance(value, (int, float)) or (abs(value) < LARGEST and least <= value <= most)


def keep_aside(path: Path, why: str) -> str:
    """Moves the file aside under a free name; what a sentence says of it, "" where it could not be moved."""
    names = (path.with_suffix(f".{why}{number or ''}.json") for number in range(100))
    aside = next((name for name in names if not name.exists()), None)
    if aside is None:
        return ""
    try:
        os.replace(path, aside)
    except OSError as error:
        log.warning("%s cannot be kept aside: %s", path, error)
        return ""
    return f", the old file is kept as {aside.name}"


def write_preferences(preferences: Preferences, path: Path | None = None) -> bool:
    """Writes whole or not at all, so that two windows never leave half a file. False where it cannot be written."""
    path = path or preferences_path()
    name = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix="settings", suffix=".tmp")
        with open(handle, "w", encoding="utf-8") as file:
            json.dump(asdict(preferences), file, ensure_ascii=True, indent=1)
        os.replace(name, path)
    except OSError as error:
        log.warning("the settings cannot be written: %s", error)
        if name:
            with contextlib.suppress(OSError):
                os.unlink(name)
        return False
    return True
