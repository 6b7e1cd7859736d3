"""A model's tokenizer, loaded and compared with the embedding it will index."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.blueprint import Blueprint, end_sources
from engine.errors import CannotLoad
from engine.files import refuse_other_kinds, size_and_head
from engine.skeleton import first_line
from engine.text import is_breakdown
from engine.trust import code_needed, names_code

FILES = (
    "tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json", "vocab.bpe",
    "sentencepiece.bpe.model", "tokenizer_config.json",
)  # fmt: skip
TABLES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
# What every tokenizer should give back as it was; one that belongs to another model, or is damaged, often does not.
SAMPLES = (
    ("English", "The river bends here, and it's slow."),
    ("Chinese", "量子计算是什么？"),
    ("digits", "3.14159 and 1,024"),
    ("emoji", "🌊🦜"),
)
USUAL_PADDING = 0.02  # of the rows: sizes are rounded up so that matrices divide well


def load_tokenizer(blueprint: Blueprint) -> tuple[Any, list[str]]:
    """(tokenizer, notes). Raises CannotLoad: missing, broken, or larger than the embedding (LOD-14, PRM-7);
    NeedsAnswer where it brings code of its own (LOD-4)."""
    from transformers import AutoTokenizer

    located = blueprint.located
    if not located.gguf and not any((located.folder / name).is_file() for name in FILES):
        raise _missing(located.folder)
    options: dict[str, Any] = {"gguf_file": located.gguf} if located.gguf else {}
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            str(located.folder), local_files_only=True, trust_remote_code=blueprint.trust_remote_code, **options
        )
    except BaseException as error:  # each tokenizer class fails in its own way
        if not is_breakdown(error):
            raise
        reason = first_line(error)
    else:
        return tokenizer, _compared(tokenizer, blueprint)
    if not blueprint.trust_remote_code and names_code(located.folder, "tokenizer_config.json"):
        raise code_needed(located.folder)
    if not located.gguf and not any((located.folder / name).is_file() for name in FILES[:-1]):
        raise _missing(located.folder)  # only the settings of a tokenizer are there
    for name in () if located.gguf else TABLES:
        _refuse_no_table(located.folder / name)
    raise CannotLoad(
        "The tokenizer cannot be read: {reason}.",
        "Download tokenizer.json and tokenizer_config.json again.",
        reason=reason,
    )


def _refuse_no_table(file: Path) -> None:
    """One of a tokenizer's files that is something else than a table of settings. Raises CannotLoad, naming it."""
    if not file.is_file():
        return
    size, head = size_and_head(file)
    refuse_other_kinds(file.name, head, size)
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise CannotLoad("{name} is no table in JSON.", "Download {name} again.", name=file.name)


def _missing(folder: Path) -> CannotLoad:
    return CannotLoad(
        "The folder {folder} has no tokenizer, so words cannot be cut into tokens.",
        "Download tokenizer.json and tokenizer_config.json of this model too.",
        folder=folder,
    )


# ---------------------------------------------------------------- does it belong to this model


def _compared(tokenizer: Any, blueprint: Blueprint) -> list[str]:
    """Notes on a tokenizer that differs from the model. Raises CannotLoad where its ids would be out of range."""
    rows = blueprint.vocab_size
    added: dict[str, int] = tokenizer.get_added_vocab()
    known, largest = _plain_ids(tokenizer, added)
    if not known:
        raise _missing(blueprint.located.folder)
    if largest >= rows:
        raise CannotLoad(
            "The tokenizer knows {tokens} tokens, the model's embedding has {rows} rows: they do not belong together.",
            "Take tokenizer and weights of the same model.",
            tokens=f"{largest + 1:,}",
            rows=f"{rows:,}",
        )
    notes = []
    if beyond := sorted(word for word, token_id in added.items() if token_id >= rows):
        names = ", ".join(beyond[:3])
        notes.append(f"The tokenizer's {names} lie beyond the model's embedding; a prompt that holds them is refused.")
    notes += _size_note(len(tokenizer), rows)
    notes += _special_notes(tokenizer, blueprint, max(largest, *added.values(), 0))
    notes += _round_trip_notes(tokenizer)
    return notes


def _plain_ids(tokenizer: Any, added: dict[str, int]) -> tuple[int, int]:
    """How many tokens there are besides the added ones, and the largest of their ids."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        count = backend.get_vocab_size(with_added_tokens=False)
        # Ids without a gap, as nearly always, end where they are as many as they should be; the whole vocabulary as
        # Python's strings takes 40 ms, a tenth of a load.
        if (
            count
            and backend.id_to_token(count - 1) is not None
            and (count in added.values() or not backend.id_to_token(count))
        ):
            return count, count - 1
    plain = [token_id for word, token_id in tokenizer.get_vocab().items() if word not in added]
    return len(plain), max(plain, default=-1)


def _size_note(tokens: int, rows: int) -> list[str]:
    """Rows of the embedding that no token leads to."""
    unused = rows - tokens
    if unused <= 0:
        return []
    told = f"The tokenizer knows {tokens:,} tokens and the embedding has {rows:,} rows"
    if unused > rows * 0.5:
        return [f"{told}: it may be another model's."]
    if unused > max(USUAL_PADDING * rows, 512):
        return [f"{told}: {unused:,} rows are never used, more than padding explains."]
    padding = "one row is" if unused == 1 else f"{unused:,} rows are"
    return [f"{told}: {padding} padding."]


def _special_notes(tokenizer: Any, blueprint: Blueprint, largest_id: int) -> list[str]:
    """Where beginning, end and padding are other tokens by the tokenizer than by the model's files."""
    text = blueprint.text_config
    told: list[str] = []
    ends = {i for ids in end_sources(blueprint).values() for i in ids}
    own = tokenizer.eos_token_id
    if ends and own is not None and own not in ends:
        told.append(f"end is {own} by the tokenizer, {_ids(ends)} by the model's files")
    for name, words in (("bos_token_id", "beginning"), ("pad_token_id", "padding")):
        mine, theirs = getattr(tokenizer, name, None), getattr(text, name, None)
        if isinstance(mine, int) and isinstance(theirs, int) and theirs >= 0 and mine != theirs:
            told.append(f"{words} is {mine} by the tokenizer, {theirs} by config.json")
    notes = []
    if told:
        maybe = " It may be another model's tokenizer." if len(told) > 1 else ""
        notes.append(f"Special tokens differ: {'; '.join(told)}.{maybe}")
    if unknown := sorted(i for i in ends if not 0 <= i < blueprint.vocab_size):
        notes.append(f"The end token {_ids(unknown)} lies outside the vocabulary of {blueprint.vocab_size:,}.")
    elif unknown := sorted(i for i in ends if i > largest_id):
        notes.append(f"The tokenizer has no token {_ids(unknown)}, with which the model ends a text.")
    return notes


def _ids(ids: Any) -> str:
    return ", ".join(map(str, sorted(ids)))


def _round_trip_notes(tokenizer: Any) -> list[str]:
    """Sample text that does not come back. A leading space is the only freedom: many tokenizers add one."""
    lost: list[str] = []
    changed: list[str] = []
    example = ""
    for name, text in SAMPLES:
        back = _back(tokenizer, text)
        if back.strip() == text:
            continue
        if _letters(back) == _letters(text):
            changed.append(name)
        else:
            lost.append(name)
            example = example or f"“{text}” comes back as “{back[:60]}”"
    notes = []
    if lost:
        what = "it is damaged, or another model's" if "English" in lost else "such text cannot be read by this model"
        notes.append(f"The tokenizer does not give back {' and '.join(lost)}: {example}; {what}.")
    if changed:
        notes.append(f"The tokenizer changes spaces, accents or capitals of what it reads ({', '.join(changed)}).")
    return notes


def _back(tokenizer: Any, text: str) -> str:
    try:
        ids = tokenizer.encode(text, add_special_tokens=False)
        return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))
    except BaseException as error:  # each tokenizer class fails in its own way
        if not is_breakdown(error):
            raise
        return first_line(error)


def _letters(text: str) -> str:
    import unicodedata

    plain = unicodedata.normalize("NFKD", text).casefold()
    return "".join(c for c in plain if not c.isspace() and not unicodedata.combining(c))
