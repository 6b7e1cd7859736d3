"""Which models are on this computer, and where one lies. Imports neither torch nor transformers: the list is quick."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from engine.errors import CannotLoad
from engine.events import ModelChoice

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_GGUF_PART = re.compile(r"-\d{5}-of-(\d{5})\.gguf$", re.IGNORECASE)
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
            reason=error,
        ) from None
    if exists:
        return _resolve_file(path) if path.is_file() else _resolve_folder(path, path.resolve().name or text, "folder")
    if _HUB_ID.fullmatch(text) and not text.endswith(".gguf"):
        snapshot = cached_snapshot(text)
        if snapshot is not None:
            return _resolve_folder(snapshot, text.rpartition("/")[2], "cache")
        if "/" in text:
            raise CannotLoad(
                "{model} is not on this computer.",
                "Download it first (hf download {model}), or give the folder that holds it.",
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
    if (part := _GGUF_PART.search(path.name)) and int(part[1]) > 1:
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
    repository = hub_cache() / ("models--" + hub_id.replace("/", "--"))
    snapshots = repository / "snapshots"
    try:
        revision = (repository / "refs" / "main").read_text().strip()
        if revision and (snapshots / revision).is_dir():
            return snapshots / revision
    except OSError:
        pass
    try:
        found = sorted((path for path in snapshots.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    except OSError:
        return None
    return found[-1] if found else None


def find_models(extra_folders: Iterable[str | Path] = ()) -> list[ModelChoice]:
    """The models that are here: the default, the hub's cache, and what lies in or under the extra folders.

    Facts come from config.json alone, and a broken folder is left out or listed without them, never an error.
    """
    choices: list[ModelChoice] = []
    try:
        located = _resolve_default()
        choices.append(_choice(located, "default"))
    except (CannotLoad, ImportError):
        pass
    try:
        repositories = sorted(hub_cache().glob("models--*"))
    except OSError:
        repositories = []
    for repository in repositories:
        hub_id = repository.name.removeprefix("models--").replace("--", "/")
        snapshot = cached_snapshot(hub_id)
        if snapshot is not None:
            choices += _choices_in(snapshot, hub_id, "cache")
    for folder in map(Path, extra_folders):
        choices += _choices_in(folder, str(folder), "folder")
        try:
            below = sorted(path for path in folder.iterdir() if path.is_dir())
        except OSError:
            continue
        for path in below:
            choices += _choices_in(path, str(path), "folder")
    unique: dict[str, ModelChoice] = {}
    for choice in choices:
        unique.setdefault(choice.model, choice)
    return list(unique.values())


def _choices_in(folder: Path, model: str, kind: str) -> list[ModelChoice]:
    try:
        if (folder / "config.json").is_file():
            return [_choice(Located(Path(model).name, folder, kind), model)]
        return [_choice(Located(file.stem, folder, "gguf", file.name), str(file)) for file in gguf_files(folder)]
    except OSError:
        return []


def _choice(located: Located, model: str) -> ModelChoice:
    files = [located.path] if located.gguf else [f for f in located.folder.iterdir() if f.suffix in WEIGHT_ENDINGS]
    config = {} if located.gguf else read_json_quietly(located.folder / "config.json")
    inner: dict = config["text_config"] if isinstance(config.get("text_config"), dict) else {}
    context = config.get("max_position_embeddings") or inner.get("max_position_embeddings") or config.get("n_positions")
    template = (located.folder / "chat_template.jinja").is_file() or bool(
        read_json_quietly(located.folder / "tokenizer_config.json").get("chat_template")
    )
    quantised = config.get("quantization_config")
    precision = quantised.get("quant_method") if isinstance(quantised, dict) else None
    return ModelChoice(
        name=located.name,
        model=model,
        kind=located.kind,
        size_bytes=sum(file.stat().st_size for file in files if file.exists()),
        family=str(config.get("model_type") or ("gguf" if located.gguf else "")),
        precision=str(precision or config.get("dtype") or config.get("torch_dtype") or ""),
        context_tokens=context if isinstance(context, int) else None,
        has_chat_template=None if located.gguf else template,
        pickle_only=bool(files) and not any(f.suffix in (".safetensors", ".gguf") for f in files),
    )


def read_json_quietly(path: Path) -> dict:
    """A JSON file's object, or an empty one if there is none or it is broken (for listings only)."""
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
