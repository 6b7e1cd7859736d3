"""What could run when a model is loaded, shown to a person first: Python files that come with it, and pickle files.

Nothing here imports or unpickles what it looks at.
"""

from __future__ import annotations

import hashlib
import json
import pickletools
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from engine.errors import CannotLoad
from engine.inside import CodeFile, TrustQuestion

MOST_TEXT = 400_000  # characters of a file that the viewer shows; the hash is of all of it
MOST_PICKLE = 50_000_000  # bytes of instructions that are looked through; tensors lie outside of them
OLD_PICKLES = 5  # mark, version, machine, the tensors, their keys
CONFIGS = ("config.json", "tokenizer_config.json", "generation_config.json", "processor_config.json")


class NeedsAnswer(CannotLoad):
    """A load that a person may allow. `question` says what there is to read first; its plan is filled in later."""

    def __init__(self, question: TrustQuestion, what: str, fix: str, **fields: object) -> None:
        super().__init__(what, fix, **fields)
        self.question = question


# ---------------------------------------------------------------- Python files


def code_question(folder: Path) -> TrustQuestion:
    """The Python files of a model's folder, those below it too, with what auto_map begins in which."""
    named, elsewhere = _auto_map(folder)
    files = []
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder).as_posix()
        if path.is_file():
            files.append(_code_file(path, name, tuple(named.pop(name, ()))))
    elsewhere += [f"{part}: {name}, which is not in the folder" for name, parts in named.items() for part in parts]
    return TrustQuestion("code", str(folder), None, tuple(files), _digest(files, elsewhere), tuple(elsewhere))


def code_needed(folder: Path) -> NeedsAnswer:
    """The refusal of a model whose own code would have to run (LOD-4)."""
    question = code_question(folder)
    return NeedsAnswer(
        question,
        "This model needs program code that comes with it ({files}).",
        "Read these files, and allow the code only if you trust its maker: in the window's question, or with "
        "--trust-remote-code.",
        files=", ".join(file.name for file in question.files) or "not in the folder",
    )


def refuse_changed_code(folder: Path, digest: str) -> None:
    """Raises NeedsAnswer where the files are not those that were read when the answer was given."""
    question = code_question(folder)
    if digest and digest != question.digest:
        raise NeedsAnswer(
            question,
            "The program code in {folder} is not the one that was allowed: a file changed since.",
            "Read the files again, and decide again.",
            folder=folder,
        )


def names_code(folder: Path, config: str) -> bool:
    """Whether a config of the folder asks for code of its own."""
    return bool(_json(folder / config).get("auto_map"))


def _auto_map(folder: Path) -> tuple[dict[str, list[str]], list[str]]:
    """({file: what begins in it}, what lies in other repositories) by the auto_map of each config."""
    named: dict[str, list[str]] = {}
    elsewhere: list[str] = []
    for config in CONFIGS:
        told = _json(folder / config).get("auto_map")
        for part, where in told.items() if isinstance(told, dict) else ():
            for place in where if isinstance(where, list) else [where]:
                if not isinstance(place, str):
                    continue
                repository, _, rest = place.rpartition("--")
                if repository:
                    elsewhere.append(f"{part}: {rest} of {repository}")
                else:
                    module, _, name = place.rpartition(".")
                    named.setdefault(module.replace(".", "/") + ".py", []).append(f"{part} → {name}")
    return named, elsewhere


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _code_file(path: Path, name: str, named_by: tuple[str, ...]) -> CodeFile:
    try:
        data = path.read_bytes()
    except OSError as error:
        return CodeFile(name, 0, "", named_by, f"It cannot be read: {error.strerror}.", whole=False)
    text = data.decode("utf-8", errors="replace")
    return CodeFile(
        name, len(data), hashlib.sha256(data).hexdigest(), named_by, text[:MOST_TEXT], len(text) <= MOST_TEXT
    )


def _digest(files: list[CodeFile], elsewhere: list[str]) -> str:
    told = [[file.name, file.sha256, list(file.named_by)] for file in files]
    return hashlib.sha256(json.dumps([told, elsewhere]).encode()).hexdigest()


# ---------------------------------------------------------------- a head that is not there


def tie_needed(folder: Path, name: str) -> NeedsAnswer:
    """The refusal of files without an output head, which a person may replace by the embedding (LOD-25)."""
    return NeedsAnswer(
        TrustQuestion("tie", str(folder), None, (), ""),
        "{name} is not in the files, and config.json does not say that the head is tied to the embedding.",
        "If this family ties them, choose to tie the head to the embedding, in the window's question or with "
        "--tie-lm-head; otherwise download the model again.",
        name=name,
    )


# ---------------------------------------------------------------- pickle files


def pickle_needed(files: tuple[Path, ...]) -> NeedsAnswer:
    """The refusal of pickle files until a person agrees (LOD-3); then they are read with weights_only."""
    shown = []
    for file in files:
        names, whole = pickle_names(file)
        shown.append(CodeFile(file.name, file.stat().st_size, "", (), "\n".join(names), whole))
    question = TrustQuestion("pickle", str(files[0].parent), None, tuple(shown), "")
    return NeedsAnswer(
        question,
        "The weights are pickle files ({name}), which can run programs when they are read.",
        "Prefer a safetensors version of this model; or allow pickle files if you trust where it comes from, in the "
        "window's question or with --allow-pickle.",
        name=files[0].name,
    )


def pickle_names(file: Path) -> tuple[tuple[str, ...], bool]:
    """(what a pickle would call, by its full names; whether all of it could be looked through). Runs nothing."""
    names: set[str] = set()
    whole = True
    try:
        for data in _instructions(file):
            strings: list[str] = []  # the newest two are what STACK_GLOBAL takes
            for opcode, argument, _ in pickletools.genops(data):
                if opcode.name in ("GLOBAL", "INST"):
                    names.add(str(argument).replace(" ", "."))
                elif opcode.name == "STACK_GLOBAL":
                    names.add(".".join(strings[-2:]) if len(strings) > 1 else "something that is worked out")
                elif isinstance(argument, str):
                    strings.append(argument)
    except (OSError, ValueError, IndexError, zipfile.BadZipFile, UnicodeError):
        whole = False
    usual = ("torch.", "collections.OrderedDict")  # what every such file calls comes last
    return tuple(sorted(names, key=lambda name: (name.startswith(usual), name))), whole


def _instructions(file: Path) -> Iterator[bytes | BinaryIO]:
    """The pickles inside a file of torch: of a zip its .pkl parts, of the older kind the five at its beginning."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            for part in archive.infolist():
                if part.filename.endswith(".pkl"):
                    if part.file_size > MOST_PICKLE:
                        raise ValueError("too long to look through")
                    yield archive.read(part)
        return
    with file.open("rb") as stream:
        for _ in range(OLD_PICKLES):
            yield stream
