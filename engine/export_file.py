"""Writes a file whole or not at all: beside its place first, then in its place."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from engine.control import Control
from engine.errors import Cancelled, FileRefused
from engine.file_names import create_new

LOOK_EVERY = 64  # pieces, between two looks at whether to stop
TELL_EVERY_S = 0.03  # faster than a screen shows it, news would only queue up
_BLOCK = 2**18  # bytes
_HEADER = b'{"kind":"header"'  # how a replay begins, see docs/replay-format.md


def write_whole(
    path: Path | str,
    pieces: Iterable[str | bytes],
    control: Control | None = None,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Writes these pieces, text as UTF-8, and returns how many bytes they are. An older file of that name goes.

    progress: called now and then with the number of pieces so far. Raises FileRefused when it cannot be written or a
    recording stands there, and Cancelled; either way an older file is as it was, and nothing else is left behind.
    """
    path = Path(path)
    beside: Path | None = None
    written = 0
    try:
        if "\0" in str(path):
            raise OSError(0, "no file's name holds a zero byte")
        # A device, a pipe or a link is written through: /dev/null must survive.
        through = path.is_symlink() or (path.exists() and not path.is_file())
        if path.is_dir():
            raise IsADirectoryError(0, "it is a folder")
        if is_recording(path):
            raise FileExistsError(0, "it is a recording, which would be lost")
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(0, "it may not be changed")
        if through:
            file = open(path, "wb", buffering=0)  # noqa: SIM115
        else:
            file, beside = create_new(path.parent / f".{os.getpid()} export.part")
        with file:
            block, told_at = bytearray(), -math.inf
            for number, piece in enumerate(pieces, start=1):
                block += piece.encode("utf-8", "replace") if isinstance(piece, str) else piece
                if number % LOOK_EVERY == 0:
                    if control is not None and control.cancelled():
                        raise Cancelled
                    if progress is not None and (now := time.monotonic()) - told_at >= TELL_EVERY_S:
                        told_at = now
                        progress(number)
                if len(block) >= _BLOCK:
                    written += _written(file, block)
                    block.clear()
            written += _written(file, block)
            if beside is not None:
                os.fsync(file.fileno())  # a full disk may be told only here
        if control is not None and control.cancelled():
            raise Cancelled
        if beside is not None:
            os.replace(beside, path)
            beside = None
    except OSError as error:
        raise FileRefused(
            "{path} cannot be written: {said}.",
            "Choose another place; nothing was changed here.",
            path=str(path),
            said=error.strerror or error,
        ) from None
    finally:
        if beside is not None:
            with contextlib.suppress(OSError):
                os.unlink(beside)
    return written


def is_recording(path: Path) -> bool:
    """Whether a replay file stands there: tokens in JSON Lines have its ending, and must never take its place."""
    if path.is_file():
        with contextlib.suppress(OSError), open(path, "rb") as file:
            return file.read(len(_HEADER)) == _HEADER
    return False


def _written(file, block: bytearray) -> int:
    rest = memoryview(block)
    while rest:  # a nearly full disk takes a part
        taken = file.write(rest) or 0
        rest = rest[taken:]
    rest.release()
    return len(block)
