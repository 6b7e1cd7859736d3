"""A model's tokenizer, loaded and compared with the embedding it will index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.blueprint import Blueprint
from engine.errors import CannotLoad
from engine.skeleton import first_line

FILES = (
    "tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json", "vocab.bpe",
    "sentencepiece.bpe.model", "tokenizer_config.json",
)  # fmt: skip


def load_tokenizer(blueprint: Blueprint) -> tuple[Any, list[str]]:
    """(tokenizer, notes). Raises CannotLoad: missing, broken, or larger than the embedding (LOD-14, PRM-7)."""
    from transformers import AutoTokenizer

    located = blueprint.located
    if not located.gguf and not any((located.folder / name).is_file() for name in FILES):
        raise _missing(located.folder)
    options: dict[str, Any] = {"gguf_file": located.gguf} if located.gguf else {}
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            str(located.folder), local_files_only=True, trust_remote_code=blueprint.trust_remote_code, **options
        )
    except Exception as error:  # each tokenizer class fails in its own way
        reason = first_line(error)
    else:
        return tokenizer, _compared(tokenizer, blueprint)
    if not located.gguf and not any((located.folder / name).is_file() for name in FILES[:-1]):
        raise _missing(located.folder)  # only the settings of a tokenizer are there
    raise CannotLoad("The tokenizer cannot be read: {reason}.", "Download tokenizer.json again.", reason=reason)


def _missing(folder: Path) -> CannotLoad:
    return CannotLoad(
        "The folder {folder} has no tokenizer, so words cannot be cut into tokens.",
        "Download tokenizer.json and tokenizer_config.json of this model too.",
        folder=folder,
    )


def _compared(tokenizer: Any, blueprint: Blueprint) -> list[str]:
    """Notes on a tokenizer that differs from the embedding. Raises CannotLoad where its ids would be out of range."""
    vocabulary = tokenizer.get_vocab()
    rows = blueprint.vocab_size
    added = set(tokenizer.get_added_vocab())
    plain = [i for word, i in vocabulary.items() if word not in added]
    if not plain:
        raise _missing(blueprint.located.folder)
    if max(plain) >= rows:
        raise CannotLoad(
            "The tokenizer knows {tokens} tokens, the model's embedding has {rows} rows: they do not belong together.",
            "Take tokenizer and weights of the same model.",
            tokens=f"{max(plain) + 1:,}",
            rows=f"{rows:,}",
        )
    notes = []
    if beyond := sorted(word for word in added if vocabulary.get(word, 0) >= rows):
        names = ", ".join(beyond[:3])
        notes.append(f"The tokenizer's {names} lie beyond the model's embedding; a prompt that holds them is refused.")
    if len(vocabulary) < rows * 0.5:
        notes.append(
            f"The tokenizer knows {len(vocabulary):,} tokens and the embedding {rows:,}: it may be another model's."
        )
    return notes
