"""A sweep's folder: what was asked, by which model, and what is done. Imports no torch, so that it opens anywhere.

sweep.json says the question, the model and the libraries. figures.jsonl has a line for each finished run and for each
batch. run-00001.jsonl and so on are the runs' replays, written while they run. A run counts as done when its figures
are written and its replay is there; one that was broken off in the middle is done again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import filelock

from engine.catalog import WEIGHT_ENDINGS
from engine.errors import FileRefused, SettingsRefused
from engine.events import SessionFacts
from engine.experiments import FIGURES, RunFigures, Sweep, SweepAxis, SweepBatch, SweepQuestion
from engine.replay import library_versions
from engine.replay_lines import DAMAGED, built, header_line, seed_value

SCHEMA = 1
QUESTION, FIGURES_FILE, LOCK = "sweep.json", "figures.jsonl", ".lock"
MOST_FIGURE = 1e15  # far beyond any run's
SAMPLED_BYTES = 65_536  # read of each weight file at its beginning, middle and end


@dataclass(frozen=True, slots=True)
class SweepModel:
    """Which model a sweep belongs to. digest: of its config and of samples of its weights; prompt: of the prompt's ids,
    so that another tokenizer or chat template is another question too."""

    name: str
    path: str
    precision: str
    parameters: int
    digest: str
    prompt: str


@dataclass(eq=False)
class SweepFolder:
    """A sweep on disk. `runs` and `batches` are what figures.jsonl tells, and grow with `add`."""

    question: SweepQuestion
    model: SweepModel
    versions: dict[str, str]
    begun: str
    runs: list[RunFigures | None]
    batches: list[SweepBatch] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return Path(self.question.folder)

    def replay(self, number: int) -> Path:
        return self.path / self.question.run(number).file

    def add(self, number: int, figures: RunFigures) -> None:
        """Writes down that a run is done. Raises FileRefused."""
        self.runs[number] = figures
        self._append({"kind": "run", "number": number, "figures": figures})

    def add_batch(self, batch: SweepBatch) -> None:
        self.batches.append(batch)
        self._append({"kind": "batch", "batch": batch})

    def _append(self, line: dict[str, Any]) -> None:
        try:
            with open(self.path / FIGURES_FILE, "ab") as file:
                file.write(header_line(line))
        except OSError as error:
            raise cannot_write(self.path, error) from None

    def sweep(self) -> Sweep:
        """What is known now, for views."""
        model, notes = self.model, list(self.notes)
        kernels = sorted({batch.kernel for batch in self.batches})
        if len(kernels) > 1:
            notes.append(f"Its runs were computed by several kernels ({', '.join(kernels)}): they round differently.")
        return Sweep(
            self.question, model.name, model.precision, tuple(self.runs), tuple(self.batches), tuple(notes),
            self.begun,
        )  # fmt: skip

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keeps other programs away while runs are written. Raises FileRefused where one is at work already."""
        try:
            with filelock.FileLock(self.path / LOCK, timeout=0):
                yield
        except filelock.Timeout:
            raise FileRefused(
                "Another program runs the sweep in {folder} just now.",
                "Wait for its end, or take another folder.",
                folder=str(self.path),
            ) from None


def _figures(values: dict[str, Any]) -> RunFigures:
    """Raises ValueError for what no run could have, whose mean or spread might not even be a number."""
    found = built(RunFigures, values)
    if any(abs(found.figure(name)) > MOST_FIGURE for name in FIGURES):
        raise ValueError("no run has such figures")
    return found


def open_or_begin(question: SweepQuestion, model: SweepModel) -> SweepFolder:
    """The folder's sweep to go on with, or a new one. Raises FileRefused, and SettingsRefused for another question."""
    path = Path(question.folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        empty = not any(entry.name != LOCK for entry in path.iterdir())
    except (OSError, ValueError) as error:
        raise cannot_write(path, error) from None
    if (path / QUESTION).exists():
        folder = read(path)
        _refuse_another(folder, question, model)
        folder.question = replace(folder.question, batch=question.batch)
        if (here := library_versions()) != folder.versions:
            names = sorted(name for name in here.keys() | folder.versions.keys())
            changed = ", ".join(
                f"{name} {folder.versions.get(name, '–')} → {here.get(name, '–')}"
                for name in names
                if here.get(name) != folder.versions.get(name)
            )
            folder.notes.append(f"Libraries have changed since this sweep was begun: {changed}.")
        return folder
    if not empty:
        raise FileRefused(
            "{folder} holds other files.", "Give a new or an empty folder for the sweep.", folder=str(path)
        )
    begun = datetime.now().astimezone().isoformat(timespec="seconds")
    folder = SweepFolder(question, model, library_versions(), begun, [None] * question.count)
    _write_question(folder)
    return folder


def _write_question(folder: SweepFolder) -> None:
    """All or nothing: half a question would be no sweep."""
    values = {
        "kind": "sweep",
        "schema": SCHEMA,
        "begun": folder.begun,
        "question": replace(folder.question, folder=""),  # the folder may be moved
        "model": folder.model,
        "versions": folder.versions,
    }
    new = folder.path / (QUESTION + ".new")
    try:
        new.write_bytes(header_line(values))
        os.replace(new, folder.path / QUESTION)
    except OSError as error:
        raise cannot_write(folder.path, error) from None


def read(path: Path) -> SweepFolder:
    """A sweep as it lies on disk. Raises FileRefused where its question is damaged or of a newer version."""
    try:
        values = json.loads((path / QUESTION).read_text(encoding="utf-8"))
        schema = values["schema"]
        if schema > SCHEMA:
            raise FileRefused(
                "The sweep in {folder} was made by a newer version.",
                "Open it with that version.",
                folder=str(path),
            )
        question: SweepQuestion = built(SweepQuestion, values["question"])
        folder = SweepFolder(
            replace(question, folder=str(path)),
            built(SweepModel, values["model"]),
            {str(name): str(version) for name, version in values["versions"].items()},
            str(values["begun"]),
            [None] * question.count,
        )
    except OSError as error:
        raise FileRefused(
            "{folder} holds no sweep that can be read: {said}.",
            "Choose a folder with a sweep.json in it.",
            folder=str(path),
            said=error.strerror or str(error),
        ) from None
    except (*DAMAGED, AttributeError, RecursionError):
        raise FileRefused(
            "The sweep.json in {folder} is damaged.", "Begin the sweep anew in another folder.", folder=str(path)
        ) from None
    _read_figures(folder)
    return folder


def _read_figures(folder: SweepFolder) -> None:
    """The newest line about a run counts. A line that breaks off says nothing: its run is done again."""
    try:
        lines = (folder.path / FIGURES_FILE).read_bytes().split(b"\n")
    except FileNotFoundError:
        return
    except OSError as error:
        raise FileRefused(
            "{folder} cannot be read: {said}.", "Give it back its rights.", folder=str(folder.path), said=error.strerror
        ) from None
    if lines[-1]:  # what comes next must not be written behind half a line
        with suppress(OSError), open(folder.path / FIGURES_FILE, "ab") as file:
            file.write(b"\n")
    damaged = 0
    for line in filter(None, lines):
        try:
            values = json.loads(line)
            if values["kind"] == "batch":
                folder.batches.append(built(SweepBatch, values["batch"]))
            elif values["kind"] == "run" and 0 <= values["number"] < len(folder.runs):
                folder.runs[values["number"]] = _figures(values["figures"])
        except (*DAMAGED, UnicodeDecodeError, RecursionError):
            damaged += 1
    for number, run in enumerate(folder.runs):
        if run is not None and not folder.replay(number).is_file():
            folder.runs[number] = None
    if damaged:
        folder.notes.append(f"Damaged lines of {FIGURES_FILE}, left out: {damaged}. Their runs are done again.")


def _refuse_another(folder: SweepFolder, question: SweepQuestion, model: SweepModel) -> None:
    """A sweep goes on with the same question and the same model only: cells would not be comparable otherwise."""
    old, where = folder.question, str(folder.path)
    pairs: list[tuple[str, object, object]] = [
        (name.replace("_", " "), getattr(old.asked, name), getattr(question.asked, name))
        for name in ("prompt", "system", "raw", "max_new_tokens", "stop", "markers_as_text", "forced_text")
    ]
    pairs += [
        ("varied settings", _grid(old.axes), _grid(question.axes)),
        ("seeds", _told(old.seeds), _told(question.seeds)),
    ]
    varied = {axis.name for axis in question.axes} | {"seed"}
    there, here = old.base.as_dict(), question.base.as_dict()
    pairs += [(name, there[name], here[name]) for name in there if name not in varied]
    for name, then, now in pairs:
        if then != now:
            raise SettingsRefused(
                "The sweep in {folder} asked something else: {name} was {then}, and is {now} here.",
                "Take another folder for a new sweep, or ask the same again to go on with this one.",
                folder=where, name=name, then=_short(then), now=_short(now),
            )  # fmt: skip
    if (folder.model.digest, folder.model.precision) != (model.digest, model.precision):
        raise SettingsRefused(
            "The sweep in {folder} was begun with {then} in {then_precision}, and {now} in {now_precision} is loaded: "
            "{why}.",
            "Load the same model in the same precision to go on, or take another folder.",
            folder=where, then=folder.model.name[:200], then_precision=folder.model.precision[:40], now=model.name,
            now_precision=model.precision,
            why="the precision differs" if folder.model.digest == model.digest else "their files differ",
        )  # fmt: skip
    if folder.model.prompt != model.prompt:
        raise SettingsRefused(
            "The prompt of the sweep in {folder} becomes other tokens now.",
            "The model's tokenizer or chat template has changed: take another folder for a new sweep.",
            folder=where,
        )


def _grid(axes: Sequence[SweepAxis]) -> str:
    return ", ".join(f"{axis.name} {'/'.join(f'{value:g}' for value in axis.values)}" for axis in axes)


def _told(seeds: Sequence[int]) -> str:
    return ", ".join(str(seed_value(seed)) for seed in seeds)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"


def cannot_write(path: Path, error: Exception) -> FileRefused:
    said = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return FileRefused(
        "The sweep cannot be written to {folder}: {said}.",
        "Make room or take another folder; finished runs stand, and the sweep goes on from there.",
        folder=str(path)[:300],
        said=said,
    )


# ---------------------------------------------------------------- which model


def model_of(facts: SessionFacts, prompt_ids: Sequence[int]) -> SweepModel:
    """Who answers: by the files' sizes and samples of what is in them, so that other weights under one name differ."""
    prompt = hashlib.sha256(",".join(map(str, prompt_ids)).encode()).hexdigest()
    return SweepModel(
        facts.name, facts.model_path, facts.precision, facts.parameters, _digest(Path(facts.model_path)), prompt
    )


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    files = [path] if path.is_file() else sorted(path.glob("*")) if path.is_dir() else []
    for file in files:
        if file.name != "config.json" and file.suffix.lower() not in WEIGHT_ENDINGS:
            continue
        with suppress(OSError), open(file, "rb") as data:
            size = os.fstat(data.fileno()).st_size
            if len(files) > 1:  # a GGUF file may be called anything
                found.update(file.name.encode("utf-8", "surrogateescape"))
            found.update(str(size).encode())
            for begin in (0, size // 2, max(0, size - SAMPLED_BYTES)):
                data.seek(begin)
                found.update(data.read(SAMPLED_BYTES))
    return found.hexdigest()


# ---------------------------------------------------------------- which sweeps are here


def _is_sweep(folder: Path) -> bool:
    return os.path.isfile(folder / QUESTION)  # unlike Path's own, it is never raised that a folder may not be read


def sweeps_under(path: Path) -> tuple[Sweep, ...]:
    """The sweeps in a folder's folders, or the one in it, the newest first. What cannot be read is left out."""
    if _is_sweep(path):
        return (read(path).sweep(),)
    found: list[Sweep] = []
    with suppress(OSError, ValueError):  # ValueError: a NUL in the name
        for entry in path.iterdir():
            if _is_sweep(entry):
                with suppress(FileRefused, SettingsRefused):
                    found.append(read(entry).sweep())
    return tuple(sorted(found, key=lambda sweep: sweep.begun, reverse=True))
