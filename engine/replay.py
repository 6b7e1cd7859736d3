"""Events ↔ file. A replay is JSON Lines: a header, then what the engine said, one event a line.

docs/replay-format.md describes it. Only Python reads and writes it: other readers spoil large seeds (FIL-21).
Imports neither torch nor Qt, so a replay opens on a machine that has no model.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import logging
import math
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from engine import notes
from engine.errors import FileRefused
from engine.events import (
    CacheKept,
    Event,
    Mark,
    MemoryReading,
    PrefillProgress,
    RunEnd,
    RunStart,
    SessionFacts,
    TokenEvent,
    Unloaded,
)
from engine.figures import lane_letter
from engine.file_names import create_new
from engine.replay_lines import DAMAGED, KINDS, Reader, built, header_line, line_of, seed_value
from engine.settings import Request, SamplingSettings

log = logging.getLogger(__name__)

SCHEMA = 1
ENDING = ".jsonl"

CHECK_S = 1.0  # how often the recorder looks whether its file is still there
LONGEST_LINE = 64 * 2**20  # characters; a prompt of a million tokens fits
UNKNOWN_KEPT = 16 * 2**20  # characters of lines of unknown kinds that are kept
DAMAGED_NAMED = 5  # so many damaged lines are named by number, the others counted
ALIKE_NAMED = 2  # so many gaps, and lanes that break off, have a sentence of their own
HOPELESS = 100  # so many damaged lines and nothing else: this is no replay


def header_of(facts: SessionFacts, request: Request) -> dict[str, Any]:
    """What the first line says of a run: the model as it was loaded, what was asked, and the libraries' versions."""
    return {
        "model": facts.name,
        "model_path": facts.model_path,
        "precision": facts.precision,
        "device_map": facts.device_map,
        "devices": list(facts.devices),
        "seed": seed_value(request.lanes[0].seed),
        "lanes": list(request.lanes),
        "prompt": request.prompt,
        "system": request.system,
        "raw": request.raw,
        "stop": list(request.stop),
        "max_new_tokens": request.max_new_tokens,
        "versions": library_versions(),
    }


def library_versions() -> dict[str, str]:
    """The versions that a result may depend on, read from the packages' metadata and without importing them."""
    found = {"python": platform.python_version()}
    for name in ("glasswork", "torch", "transformers", "accelerate", "bitsandbytes", "numpy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


# ---------------------------------------------------------------- writing


class Recorder:
    """Writes a run down while it goes on. Never raises into the run: `problem` says what went wrong.

    Each line goes to the system at once, so that a crash loses no finished word. After a problem the events are kept
    and `move_to` writes all of them elsewhere (FIL-3). Safe from several threads.

    path: where to write; if that file exists the next free name is taken (FIL-4), `path` says which.
    header: what the first line says, see `docs/replay-format.md`; kind and schema are added.
    replace: an older file of that name goes away first (for scripts that name their output).
    keep: whether events are kept for `move_to`; a sweep's thousands of runs keep none.
    """

    def __init__(self, path: Path | str, header: dict[str, Any], replace: bool = False, keep: bool = True) -> None:
        self.path = Path(path)
        self.problem: FileRefused | None = None
        self._keep = keep
        self._header = {"kind": "header", "schema": SCHEMA, "reads_with": SCHEMA, **header}
        # Kept for `move_to`: the objects that the views keep too, so they cost nothing again.
        self._events: list[Event] = []
        self._running: set[tuple[int, int]] = set()
        self._file: BinaryIO | None = None
        self._closed = False
        self._lock = threading.Lock()
        with self._lock:
            self._open(self.path, replace)

    def take(self, event: Event, line: bytes | None = None) -> None:
        """Writes one event as a line. What a person says of a run is also taken after its end.

        line: what `line_of` makes of it, where that is known already.
        """
        with self._lock:
            if isinstance(event, Mark) and self._closed and self.problem is None:
                self._annotate(event)
                return
            if isinstance(event, RunStart):
                self._running.add((event.run_id, event.lane))
            elif isinstance(event, RunEnd):
                self._running.discard((event.run_id, event.lane))
            elif isinstance(event, (MemoryReading, Unloaded)) and not self._running:
                return  # the ends of the lanes are the last lines
            elif isinstance(event, CacheKept):
                return  # of this process, not of the run
            if self._keep:
                self._events.append(event)
            if self._file is not None:
                self._write(line or line_of(event))

    @property
    def kept(self) -> int:
        """How many events `move_to` would write."""
        return len(self._events)

    def keep_line(self, text: str) -> None:
        """Writes a line of a kind that only a newer version knows, as it stood in the file that it comes from."""
        with self._lock:
            if self._file is not None:
                self._write(text.encode("utf-8", "surrogatepass") + b"\n")

    def _annotate(self, mark: Mark) -> None:
        self._events.append(mark)
        try:
            notes.append(self.path, line_of(mark))
        except FileRefused as error:
            self.problem = error

    def move_to(self, path: Path | str) -> bool:
        """Writes everything so far to another place and goes on there. False, and `problem`, when that fails too."""
        with self._lock:
            self._shut()
            self._open(Path(path), replace=False)
            for event in self._events:
                if self._file is None:
                    return False
                self._write(line_of(event))
            if self._closed:
                self._shut()
            return self.problem is None

    def unfinished(self) -> list[tuple[RunStart, list[TokenEvent]]]:
        """The lanes that have no end yet, with their tokens."""
        with self._lock:
            tokens = [event for event in self._events if isinstance(event, TokenEvent)]
            starts = [event for event in self._events if isinstance(event, RunStart)]
            return [
                (start, [token for token in tokens if (token.run_id, token.lane) == (start.run_id, start.lane)])
                for start in starts
                if (start.run_id, start.lane) in self._running
            ]

    def close(self) -> None:
        """Ends the file. What could not be written stays, and `move_to` still works."""
        with self._lock:
            self._closed = True
            if self._file is not None:
                self._check()
            self._shut()

    def _open(self, path: Path, replace: bool) -> None:
        self.problem, self.path = None, path
        try:
            if replace and (path.is_symlink() or (path.exists() and not path.is_file())):
                # A device, a pipe or a link is written through: /dev/null must survive a recording made by root.
                self._file = open(path, "wb", buffering=0)  # noqa: SIM115  # type: ignore[assignment]
            else:
                if replace:
                    path.unlink(missing_ok=True)
                self._file, self.path = create_new(path)
        except (OSError, ValueError) as error:  # ValueError: a NUL in the name
            self._fail(error)
            return
        self._checked_s = time.monotonic()
        self._write(header_line(self._header))

    def _write(self, line: bytes) -> None:
        assert self._file is not None
        try:
            rest = memoryview(line)
            while rest:  # a nearly full disk takes a part
                rest = rest[self._file.write(rest) or 0 :]
        except OSError as error:
            self._fail(error)
            return
        if time.monotonic() - self._checked_s > CHECK_S:
            self._check()

    def _check(self) -> None:
        """A file whose folder was removed still takes what is written and keeps nothing (FIL-3)."""
        assert self._file is not None
        self._checked_s = time.monotonic()
        try:
            if os.fstat(self._file.fileno()).st_nlink == 0:
                raise FileNotFoundError("the file was removed")
        except OSError as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._shut()
        said = (error.strerror if isinstance(error, OSError) else None) or str(error)
        log.warning("cannot write %s: %s", self.path, error)
        self.problem = FileRefused(
            "The recording cannot be written to {path}: {said}.",
            "Nothing is lost yet: choose another place to save it.",
            path=str(self.path),
            said=said,
        )

    def _shut(self) -> None:
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                log.warning("closing %s: %s", self.path, error)
            self._file = None


# ---------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True)
class Replay:
    """A recording. `events` are equal to those that were recorded, so a view cannot tell them from a live run.

    damage: what is missing or broken, in sentences; empty when nothing is. notes: other things worth knowing.
    unknown: lines of kinds that a newer version wrote, with their number, as they stand in the file.
    """

    path: Path
    header: dict[str, Any]
    events: tuple[Event, ...]
    damage: str = ""
    notes: tuple[str, ...] = ()
    unknown: tuple[tuple[int, str], ...] = ()

    @property
    def facts(self) -> SessionFacts | None:
        """What the header tells of the model; None where it does not."""
        try:
            return built(SessionFacts, self.header["facts"])
        except DAMAGED:
            return None


def read_replay(path: Path | str, progress: Callable[[int, int], None] | None = None) -> Replay:
    """Opens a replay. Damaged lines are left out and named in `damage`; lanes without an end get one that says so.

    progress: called now and then with (bytes read, bytes in all); what it raises stops the reading.
    Raises FileRefused when the file cannot be read, is no replay, or was made by a newer version that this one
    cannot follow.
    """
    path = Path(path)
    try:
        # Only CR, LF or both end a line; str.splitlines would also break at U+2028 inside a text.
        with open(path, encoding="utf-8-sig", errors="surrogateescape", newline=None) as file:
            return _Opening(path).read(_lines(file, progress))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        said = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise FileRefused(
            "{path} cannot be read: {said}.", "Check the file's name and its permissions.", path=str(path), said=said
        ) from None


def _lines(file: Any, progress: Callable[[int, int], None] | None) -> Iterator[tuple[int, str | None, bool]]:
    """(number, text, whole) of each line; None for one that is too long, so that memory stays bounded (FIL-2)."""
    number = 0
    size = os.fstat(file.fileno()).st_size
    while text := file.readline(LONGEST_LINE):
        number += 1
        if progress is not None and number % 256 == 0:
            progress(file.buffer.tell(), size)
        whole = text.endswith("\n")
        if not whole and len(text) == LONGEST_LINE:
            while (more := file.readline(LONGEST_LINE)) and not more.endswith("\n"):
                pass
            yield number, None, True
        else:
            yield number, text.rstrip("\n"), whole


def _object(text: str) -> dict[str, Any] | None:
    """The JSON object in a line, or None where there is none."""
    try:
        if not text.isascii():
            text.encode()  # half a surrogate pair stands for a byte that is no UTF-8
        found = json.loads(text)
    except (ValueError, RecursionError):  # FIL-22: a seed of 5,000 digits, a hundred thousand brackets
        return None
    return found if isinstance(found, dict) else None


@dataclass(eq=False)
class _Lane:
    start: RunStart
    tokens: list[TokenEvent] = field(default_factory=list)
    ended: bool = False


class _Opening:
    """A replay while it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: dict[str, Any] = {}
        self.events: list[Event] = []
        self.lanes: dict[tuple[int, int], _Lane] = {}
        self.damaged: list[int] = []
        self.damage: list[str] = []
        self.gaps: list[str] = []
        self.unended: list[str] = []
        self.notes: list[str] = []
        self.unknown: list[tuple[int, str]] = []
        self.unknown_size = 0
        self.prefill_ms = 0.0
        self.reader = Reader()

    def read(self, lines: Iterator[tuple[int, str | None, bool]]) -> Replay:
        """lines: as `_lines` gives them."""
        number = 0
        for number, text, whole in lines:
            if text is not None and not text.strip():
                continue
            if text is None or not self._take(number, text):
                if number == 1 and not whole and text is not None and _begins_a_header(text):
                    self.damage.append("The file ends inside its first line, so nothing of the run is in it.")
                    return self._result()
                if not whole:
                    self.damage.append(f"The file breaks off in line {number}.")
                    break
                self.damaged.append(number)
                if len(self.damaged) >= HOPELESS and not self.lanes:
                    break
        if number == 0:
            raise FileRefused("{name} is empty.", "There is no recording in it.", name=self.path.name)
        if not self.header and not self.lanes:
            raise FileRefused("{name} is not a replay.", "Choose a file that was recorded here.", name=self.path.name)
        self._name_damaged()
        self._close_lanes()
        return self._result()

    def _take(self, number: int, text: str) -> bool:
        """Takes a line in; False when it is damaged."""
        found = _object(text)
        if found is None:
            return False
        kind = found.get("kind")
        if kind == "header":
            return self._take_header(found)
        if not isinstance(kind, str):
            return False
        if kind not in KINDS or (kind == "mark" and _is_newer(found)):
            if self.unknown_size + len(text) <= UNKNOWN_KEPT:
                self.unknown.append((number, text))
                self.unknown_size += len(text)
            return bool(self.header)  # a stranger's file may have kinds of its own
        try:
            event = self.reader.event(found)
        except DAMAGED:
            return False
        if self._was_told(event):
            return False
        self._add(event)
        return True

    def _was_told(self, event: Event) -> bool:
        """A line that stands there twice would double a word, or begin or end a run again."""
        if not isinstance(event, (RunStart, TokenEvent, RunEnd)):
            return False
        lane = self.lanes.get((event.run_id, event.lane))
        if lane is None or isinstance(event, RunStart):
            return lane is not None
        if isinstance(event, RunEnd):
            return lane.ended
        return bool(lane.tokens) and event.step <= lane.tokens[-1].step

    def _take_header(self, found: dict[str, Any]) -> bool:
        schema = found.get("schema")
        if self.header or not isinstance(schema, int) or isinstance(schema, bool):
            return False
        if schema > SCHEMA:
            needed = found.get("reads_with")
            if not isinstance(needed, int) or isinstance(needed, bool) or needed > SCHEMA:
                raise FileRefused(
                    "{name} was made by a newer version.", "Open it with a newer version.", name=self.path.name
                )
            self.notes.append("This file was made by a newer version; what this version does not know is left out.")
        self.header = found
        return True

    def _add(self, event: Event) -> None:
        match event:
            case RunStart():
                self.lanes[event.run_id, event.lane] = _Lane(event)
            case TokenEvent():
                lane = self._lane(event)
                missing = event.step - (lane.tokens[-1].step + 1 if lane.tokens else len(lane.start.written))
                if missing > 0:
                    letter = lane_letter(event.lane)
                    self.gaps.append(f"Before token {event.step + 1} of lane {letter}, tokens are missing: {missing}.")
                lane.tokens.append(event)
            case RunEnd():
                self._lane(event).ended = True
            case PrefillProgress():
                self.prefill_ms = event.elapsed_ms
        self.events.append(event)

    def _lane(self, event: TokenEvent | RunEnd) -> _Lane:
        """The event's lane; begun from the header where the line that began it is damaged, so that the rest opens."""
        key = event.run_id, event.lane
        if key not in self.lanes:
            settings = event.settings if isinstance(event, TokenEvent) else SamplingSettings()
            prompt = self.header.get("prompt")
            prompt = prompt if isinstance(prompt, str) else ""
            start = RunStart(
                *key, lanes=event.lane + 1, settings=settings, prompt=prompt, prompt_text="", prompt_tokens=(),
                ends=(), stop=(), max_new_tokens=0, context_tokens=0, tokenise_ms=math.nan,
                notes=("The beginning of this run is damaged in the file.",),
            )  # fmt: skip
            self.lanes[key] = _Lane(start)
            self.events.append(start)
        return self.lanes[key]

    def _close_lanes(self) -> None:
        """A lane without an end would look as if it still ran."""
        for (run_id, number), lane in self.lanes.items():
            if lane.ended:
                continue
            tokens = lane.tokens
            sentence = f"The file ends before lane {lane_letter(number)} did; tokens of it are here: {len(tokens)}."
            self.unended.append(sentence)
            newest = tokens[-1] if tokens else None
            written = lane.start.written
            text = (lane.start.written_text or "") + "".join(t.text for t in tokens)
            self.events.append(
                RunEnd(
                    run_id, number, "error", text, "", (*written, *(t.token_id for t in tokens)),
                    prompt_tokens=len(lane.start.prompt_tokens), new_tokens=len(written) + len(tokens),
                    prefill_ms=self.prefill_ms,
                    ttft_ms=math.nan, decode_ms=math.nan, decode_tokens_per_s=math.nan,
                    kv_bytes=newest.kv_bytes if newest else 0,
                    kv_allocated_bytes=newest.kv_allocated_bytes if newest else 0, sentence=sentence,
                )
            )  # fmt: skip
        if self.header and not self.lanes:
            self.damage.append("No run is in this file.")

    def _name_damaged(self) -> None:
        if not self.header:
            self.damage.append("The file has no readable first line, so its model and settings are not known.")
        if self.damaged:
            named = ", ".join(map(str, self.damaged[:DAMAGED_NAMED]))
            more = len(self.damaged) - DAMAGED_NAMED
            others = f" and {more} more" if more > 0 else ""
            lines = "Line" if len(self.damaged) == 1 else "Lines"
            self.damage.append(f"{lines} {named}{others} damaged and left out.")

    def _result(self) -> Replay:
        damage = " ".join([*self.damage, *_few(self.gaps), *_few(self.unended)])
        return Replay(self.path, self.header, tuple(self.events), damage, tuple(self.notes), tuple(self.unknown))


def _few(sentences: list[str]) -> list[str]:
    """So many as are read: eight lanes that break off must not fill the window."""
    more = len(sentences) - ALIKE_NAMED
    return sentences if more <= 0 else [*sentences[:ALIKE_NAMED], f"The same holds for {more} more."]


def _is_newer(mark: dict[str, Any]) -> bool:
    version = mark.get("version")
    return isinstance(version, int) and version > notes.VERSION


def _begins_a_header(text: str) -> bool:
    beginning = '{"kind":"header"'
    return text[: len(beginning)] == beginning[: len(text)]
