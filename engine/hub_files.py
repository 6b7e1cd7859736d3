"""Which files of a repository make a model that can be loaded here, and which stay where they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.hub_store import RemoteFile

_SHARD = re.compile(r"(.+)-\d{5}-of-\d{5}\.(safetensors|bin)$")
_GGUF_PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$", re.IGNORECASE)
_PAPERS = ("readme.md", "license", "licence", "notice", "copying", "use_policy")
_BESIDE = (".json", ".jinja", ".txt", ".model", ".tiktoken", ".py")  # configs, tokenizers, templates, program code
_NOT = ("optimizer", "scheduler", "trainer_state", "training_args", "adapter_", "requirements")
LARGEST_BESIDE = 200_000_000  # no tokenizer is larger; a data set may be


@dataclass(frozen=True, slots=True)
class Choice:
    """Files that are fetched together: name as FileSet.name, weights as FileSet.weights."""

    name: str
    weights: str
    files: tuple[RemoteFile, ...]


def choices_in(files: Iterable[RemoteFile]) -> tuple[tuple[Choice, ...], str]:
    """(what can be chosen, best first; a sentence on what is left out, or why there is nothing).

    safetensors before pickles, and pickles only where there are no safetensors: they hold the same weights. Each GGUF
    file is a choice of its own. Other frameworks' weights, pictures and folders below are left out.
    """
    top = {file.name: file for file in files if "/" not in file.name and file.is_sane()}
    papers = [file for name, file in top.items() if name.lower().startswith(_PAPERS)]
    beside = [
        file
        for name, file in top.items()
        if name.endswith(_BESIDE) and not name.startswith(_NOT) and not name.endswith(".index.json")
        if file.size <= LARGEST_BESIDE and file not in papers
    ]
    choices = []
    for kind, single in (("safetensors", "model.safetensors"), ("pickle", "pytorch_model.bin")):
        weights = _weights(top, single)
        if weights and "config.json" in top and not choices:
            choices.append(Choice(kind, kind, (*weights, *beside, *papers)))
    ggufs = sorted(
        (file for name, file in top.items() if name.lower().endswith(".gguf") and "mmproj" not in name.lower()),
        key=lambda file: file.size,
    )
    whole = [file for file in ggufs if not _GGUF_PART.search(file.name)]
    choices += [Choice(file.name, "gguf", (file, *papers)) for file in whole]
    return tuple(choices), _note(top, choices, len(ggufs) - len(whole))


def _weights(top: dict[str, RemoteFile], single: str) -> Sequence[RemoteFile]:
    """The one file, or all shards with their index."""
    if single in top:
        return (top[single],)
    index = top.get(f"{single}.index.json")
    stem, ending = single.rsplit(".", 1)
    shards = sorted(
        (file for name, file in top.items() if (m := _SHARD.match(name)) and (m[1], m[2]) == (stem, ending)),
        key=lambda file: file.name,
    )
    return (*shards, index) if index and shards else ()


def _note(top: dict[str, RemoteFile], choices: list[Choice], parts: int) -> str:
    if parts:
        return "GGUF files in several parts are left out: they must be joined before they can be loaded."
    if choices:
        return ""
    if "adapter_config.json" in top:
        return "This is an adapter (LoRA), not a model: it changes another one."
    if "model_index.json" in top:
        return "This is a maker of pictures, not a text generator."
    if "config.json" not in top:
        return "There is no config.json and no GGUF file in it."
    return "There are no weights in it that can be loaded here: neither safetensors nor PyTorch's nor GGUF."
