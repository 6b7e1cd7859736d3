"""File names made from what a person wrote, good on every system; and new files that are nobody else's."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

NAME_BYTES = 120  # file systems allow 255 bytes, some encrypted ones 143; the ending and a number must fit too (FIL-23)

# What Windows refuses inside a name; the slash and NUL are refused everywhere.
_REFUSED = set('<>:"/\\|?*')
# Devices of Windows, refused with any ending too ("nul.txt"), also with superscript digits.
_DEVICE = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³])(?=$|[. ])", re.IGNORECASE)
_JOINERS = "\u200c\u200d"  # inside words of some scripts, and inside emoji


def safe_name(text: str, ending: str = "") -> str:
    """A file name from any text: at most 120 bytes cut at a whole character, then the ending (FIL-4, FIL-23)."""
    text = unicodedata.normalize("NFC", text)
    cleaned = "".join(" " if _refused(character) else character for character in text)
    name = _trimmed(" ".join(cleaned.split()))
    if _DEVICE.match(name):
        name = "_" + name
    return (_cut(name) or "run") + ending


def _refused(character: str) -> bool:
    # Control and format characters, halves of characters, private and unassigned ones, line and paragraph ends.
    return character in _REFUSED or (
        unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") and character not in _JOINERS
    )


def _trimmed(name: str) -> str:
    """No leading dot (hidden) or dash (read as an option), no trailing dot or space (Windows drops them)."""
    return name.lstrip(" .-~" + _JOINERS).rstrip(" ." + _JOINERS)


def _cut(name: str) -> str:
    data = name.encode("utf-8")
    if len(data) <= NAME_BYTES:
        return name
    short = data[:NAME_BYTES].decode("utf-8", "ignore")
    # A character as a person sees it: its accents and what is joined to it go with it.
    at = len(short)
    while at > 0 and (unicodedata.combining(name[at]) or name[at] in _JOINERS or name[at - 1] in _JOINERS):
        at -= 1
    return _trimmed(name[: at or len(short)])


def told_apart(paths: Sequence[Path]) -> list[str]:
    """The paths' names, with as many of the folders above as different files of one name need to be told apart."""
    for count in range(1, max((len(path.parts) for path in paths), default=1)):
        names = ["/".join(path.parts[-count:]) for path in paths]
        if len(set(names)) == len(set(paths)):
            return names
    return [str(path) for path in paths]


def create_new(path: Path) -> tuple[BinaryIO, Path]:
    """Opens a file that nobody else has: this path, or the next free one ("name 2"). Unbuffered, for writing.

    Raises OSError when the folder does not let us.
    """
    for number in range(1, 10_000):
        free = path if number == 1 else path.with_name(f"{path.stem} {number}{path.suffix}")
        try:
            return open(free, "xb", buffering=0), free  # type: ignore[return-value]
        except FileExistsError:
            continue
        except PermissionError:
            # Windows says this, and not "exists", for a folder of that name or a file that is just going away.
            if not free.exists():
                raise
    raise FileExistsError(f"too many files named like {path.name}")
