"""Which licence a model comes under, as its own files name it."""

from __future__ import annotations

from pathlib import Path

# What the first lines of a licence file say, and the name it goes by in model cards.
_TITLES = {
    "apache license": "apache-2.0",
    "mit license": "mit",
    "bsd 3-clause": "bsd-3-clause",
    "gnu affero general public license": "agpl",
    "gnu lesser general public license": "lgpl",
    "gnu general public license": "gpl",
    "creative commons attribution-noncommercial": "cc-by-nc",
    "creative commons attribution-sharealike": "cc-by-sa",
    "creative commons attribution": "cc-by",
    "gemma terms of use": "gemma",
    "openrail": "openrail",
}
_FILES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "LICENCE.txt", "COPYING", "LICENSE.pdf")
_READ = 64 * 1024
_LONGEST = 80


def licence_of(folder: Path) -> str:
    """The licence that the model card's head names, else the licence file's title; "" if there is neither."""
    return _from_card(folder / "README.md") or _from_file(folder)


def _from_card(card: Path) -> str:
    lines = _text(card).splitlines()
    if not lines or lines[0].strip() != "---":
        return ""
    found: dict[str, str] = {}
    name = ""
    for line in lines[1:]:
        if line.strip() == "---":
            break
        if line.lstrip().startswith("- "):
            value = line.lstrip()[2:]  # an entry of the list that the last name began
        elif line[:1].strip():
            name, _, value = line.partition(":")
            name = name.strip()
        else:
            continue
        if value.strip():
            found.setdefault(name, value.strip().strip("\"'")[:_LONGEST])
    licence = found.get("license", "")
    return found.get("license_name", "") if licence in ("", "other") else licence


def _from_file(folder: Path) -> str:
    for name in _FILES:
        head = " ".join(_text(folder / name)[:2000].split())
        if not head:
            continue
        small = head.lower()
        named = next((short for title, short in _TITLES.items() if title in small), "")
        first = next(line.strip() for line in _text(folder / name).splitlines() if line.strip())
        return named or (first[:_LONGEST] if not name.endswith(".pdf") else name)
    return ""


def _text(file: Path) -> str:
    try:
        with file.open(encoding="utf-8-sig", errors="replace") as stream:
            return stream.read(_READ)
    except OSError:
        return ""
