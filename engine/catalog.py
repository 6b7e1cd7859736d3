"""Which models are on this computer, and where one lies. Imports neither torch nor transformers: the list is quick."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

from engine.errors import CannotLoad
from engine.events import ModelChoice

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_GGUF_PART = re.compile(r"-\d{5}-of-(\d{5})\.gguf$", re.IGNORECASE)
DEEPEST = 3  # folders below a chosen one: maker/model/version
MOST_FOLDERS = 5000  # looked at under chosen folders: someone may choose a whole disk
WEIGHT_ENDINGS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")


@dataclass(frozen=True, slots=True)
class Located:
    """Where a model lies. `gguf` is the file's name inside `folder` when the model is a GGUF file."""

    name: str
    folder: Path
    kind: str  # "default", "folder", "gguf", "cache"
    gguf: str | None = None

    @property
    def path(self) -> Path:
        """The folder or file that is loaded."""
        return self.folder / self.gguf if self.gguf else self.folder


def resolve(model: str) -> Located:
    """Where "default", a folder, a GGUF file or a cached hub id lies. Never asks the network (LOD-13).

    Raises CannotLoad with a sentence for each way in which nothing is there.
    """
    text = str(model).strip()
    if not text:
        raise CannotLoad("No model was named.", 'Give a folder, a GGUF file, a cached hub id, or "default".')
    if text == "default":
        return _resolve_default()
    try:
        path = Path(text).expanduser()
        exists = path.exists()
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, NUL inside, no home folder
        raise CannotLoad(
            "{path} cannot be a path: {reason}.",
            "Give the folder that holds config.json.",
            path=text[:200],
            reason=(error.strerror if isinstance(error, OSError) else None) or str(error)[:200],
        ) from None
    if exists:
        return _resolve_file(path) if path.is_file() else _resolve_folder(path, path.resolve().name or text, "folder")
    if HUB_ID.fullmatch(text) and not text.endswith(".gguf"):
        snapshot = cached_snapshot(text)
        if snapshot is not None:
            return _resolve_folder(snapshot, text.rpartition("/")[2], "cache")
        if "/" in text:
            raise CannotLoad(
                "{model} is not on this computer.",
                "Download it first (File, Models, or hf download {model}), or give the folder that holds it.",
                model=text,
            )
    raise CannotLoad(
        "{model} is not on this computer: there is no such folder, GGUF file or cached hub id.",
        'Check the path, or use "default".',
        model=text[:300],
    )


def _resolve_default() -> Located:
    from engine.default_model import default_model_path

    folder = Path(default_model_path())
    if not (folder / "config.json").is_file():
        raise CannotLoad("The default model is not on this computer yet.", "Run make setup, which fetches it once.")
    return Located(folder.name, folder, "default")


def _resolve_file(path: Path) -> Located:
    if path.suffix.lower() == ".gguf":
        _refuse_gguf_part(path)
        return Located(path.stem, path.parent, "gguf", path.name)
    raise CannotLoad(
        "{path} is a file, not a model folder.",
        "Give the folder that holds config.json and the weights: {folder}.",
        path=path,
        folder=path.parent,
    )


def _resolve_folder(folder: Path, name: str, kind: str) -> Located:
    try:
        ggufs = gguf_files(folder)
    except OSError as error:
        raise CannotLoad(
            "The folder {path} cannot be read: {reason}.", "Check its permissions.", path=folder, reason=error.strerror
        ) from None
    if (folder / "config.json").exists() or not ggufs:
        return Located(name, folder, kind)
    if len(ggufs) > 1:
        raise CannotLoad(
            "The folder {path} holds {count} GGUF files: {names}.",
            "Name one of them.",
            path=folder,
            count=len(ggufs),
            names=", ".join(file.name for file in ggufs[:8]),
        )
    _refuse_gguf_part(ggufs[0])
    return Located(ggufs[0].stem, folder, "gguf", ggufs[0].name)


def _refuse_gguf_part(path: Path) -> None:
    part = _GGUF_PART.search(path.name)
    if part and int(part[1]) > 1:
        raise CannotLoad(
            "{name} is one of {count} parts of a GGUF file.",
            "Join the parts first (llama-gguf-split --merge), then load the whole file.",
            name=path.name,
            count=int(part[1]),
        )


def gguf_files(folder: Path) -> list[Path]:
    """The folder's GGUF files that hold a language model, by name; picture projectors (mmproj) are left out."""
    return sorted(
        file
        for file in folder.iterdir()
        if file.suffix.lower() == ".gguf" and file.is_file() and "mmproj" not in file.name.lower()
    )


def hub_cache() -> Path:
    """The local Hugging Face cache, by the same variables that its own library reads."""
    if folder := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(folder).expanduser()
    if home := os.environ.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "huggingface" / "hub"


def cached_snapshot(hub_id: str) -> Path | None:
    """The snapshot folder of a cached hub id (its main branch, else the newest), or None if it is not cached."""
    return _snapshot(hub_cache() / repository_name(hub_id))


def _snapshot(repository: Path) -> Path | None:
    snapshots = repository / "snapshots"
    try:
        revision = (repository / "refs" / "main").read_text(encoding="utf-8").strip()
        if revision and (snapshots / revision).is_dir():
            return snapshots / revision
    except (OSError, ValueError):  # ValueError: no text in UTF-8, or a NUL inside
        pass
    try:
        found = sorted((path for path in snapshots.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    except OSError:
        return None
    return found[-1] if found else None


def find_models(extra_folders: Iterable[str | Path] = ()) -> list[ModelChoice]:
    """The models that are here: the default, the hub's cache, and what lies in or under the extra folders.

    Facts come from config.json and from the headers of the weights. What is broken is listed with its `problem`,
    a download that broke off too; a folder that holds nothing of a model is left out.
    """
    from engine.hub_store import unfinished
    from engine.model_facts import broken

    choices: list[ModelChoice] = []
    with contextlib.suppress(CannotLoad, ImportError):
        choices += _choices_in(_resolve_default().folder, "default", "default")
    choices += _cached_choices(hub_cache())
    for download in unfinished():
        error = CannotLoad(
            "The download of {name} is not finished: {done} of {total} MB are here.",
            "Let it go on: it stands under “on the hub”.",
            name=download.name,
            done=f"{download.done_bytes / 1e6:,.0f}",
            total=f"{download.total_bytes / 1e6:,.0f}",
        )
        name = download.hub_id.rpartition("/")[2]
        where = hub_cache() / repository_name(download.hub_id)
        choices.append(broken(name, f"{download.hub_id}#{download.name}", "cache", where, error, download.hub_id))
    seen: set[Path] = set()
    for folder in map(Path, extra_folders):
        choices += _choices_under(folder, DEEPEST, seen)
    unique: dict[str, ModelChoice] = {}
    for choice in choices:
        unique.setdefault(choice.model, choice)
    return list(unique.values())


def repository_name(hub_id: str) -> str:
    """The name of a model's folder in the hub's cache."""
    return "models--" + hub_id.replace("/", "--")


def _cached_choices(cache: Path) -> list[ModelChoice]:
    choices: list[ModelChoice] = []
    try:
        repositories = sorted(cache.glob("models--*"))
    except OSError:
        return []
    for repository in repositories:
        hub_id = repository.name.removeprefix("models--").replace("--", "/")
        snapshot = _snapshot(repository)
        if snapshot is not None:
            # A hub id is looked up in the one cache; elsewhere the folder itself is what can be loaded.
            model = hub_id if cache == hub_cache() else str(snapshot)
            named = Located(hub_id.rpartition("/")[2], snapshot, "cache")
            choices += [replace(choice, hub_id=hub_id) for choice in _choices_in(snapshot, model, "cache", named.name)]
    return choices


def _choices_under(folder: Path, depth: int, seen: set[Path]) -> list[ModelChoice]:
    """What lies in a folder, else in the folders below it, each once, in the order of their names."""
    try:
        real = folder.resolve()
        if real in seen or not folder.is_dir():
            return []
        seen.add(real)
        if any(folder.glob("models--*")):
            return _cached_choices(folder)
        if choices := _choices_in(folder, str(folder), "folder"):
            return choices
        below = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return []
    if depth <= 0 or len(seen) > MOST_FOLDERS:
        return []
    return [choice for path in below for choice in _choices_under(path, depth - 1, seen)]


def _choices_in(folder: Path, model: str, kind: str, name: str = "") -> list[ModelChoice]:
    """What a folder itself holds: a model of config.json and weights, GGUF files, both, or nothing."""
    from engine.model_facts import describe

    choices: list[ModelChoice] = []
    try:
        if _holds_a_model(folder):
            choices.append(describe(Located(name or folder.resolve().name, folder, kind), model))
        for file in gguf_files(folder):
            part = _GGUF_PART.search(file.name)
            if part and int(part[1]) > 1 and not part[0].startswith("-00001-"):
                continue  # the first part stands for all
            gguf = describe(Located(file.stem, folder, "gguf", file.name), str(file))
            choices.append(_part(gguf, file) if part else gguf)
    except OSError:
        return choices
    return choices


def _holds_a_model(folder: Path) -> bool:
    """Many programs have a config.json: it counts where weights lie beside it, or where it names a family."""
    names = [file.name for file in folder.iterdir()]
    if any(name.endswith(".safetensors") or fnmatch(name, "pytorch_model*.bin*") for name in names):
        return True
    return isinstance(read_json_quietly(folder / "config.json").get("model_type"), str)


def _part(choice: ModelChoice, file: Path) -> ModelChoice:
    from engine.model_facts import told_error

    try:
        _refuse_gguf_part(file)
    except CannotLoad as error:
        return replace(choice, problem=told_error(error, "catalog"))
    return choice


def read_json_quietly(path: Path) -> dict:
    """A JSON file's object, or an empty one if there is none or it is broken (for listings only)."""
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
