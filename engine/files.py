"""What the weight files of a folder hold, judged by their headers before anything is loaded.

transformers loads several broken folders without a word and names others by a Python error; here each is a sentence.
Format: https://huggingface.co/docs/safetensors (eight bytes of header length, JSON, data).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import zipfile
from dataclasses import dataclass, field
from math import prod
from pathlib import Path, PurePosixPath, PureWindowsPath
from stat import S_ISREG

from engine.catalog import gguf_files
from engine.errors import CannotLoad
from engine.trust import pickle_needed

BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "F64": 64, "I64": 64, "U64": 64,
    "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
DTYPE_NAMES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "F64": "float64"}
LARGEST_HEADER = 100_000_000  # the library's own limit
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.(safetensors|bin)$")
AGAIN = "Download this file again; an interrupted download is the usual cause."


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor as a file's header tells it."""

    name: str
    file: Path
    dtype: str  # as in the file: "F32", "BF16", ...
    shape: tuple[int, ...]
    bytes: int
    begin: int = 0  # where its numbers begin in the file


@dataclass(frozen=True, slots=True)
class WeightFiles:
    """The files that hold a model's weights. `tensors` is empty for pickles, whose content is known only by loading."""

    kind: str  # "safetensors", "pickle"
    files: tuple[Path, ...]
    tensors: dict[str, TensorEntry] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def total_bytes(self) -> int:
        if self.tensors:
            return sum(entry.bytes for entry in self.tensors.values())
        return sum(file.stat().st_size for file in self.files)

    def float_dtypes(self) -> tuple[str, ...]:
        """The floating types in the files, in the order of the files, by torch's names."""
        return tuple(dict.fromkeys(DTYPE_NAMES[e.dtype] for e in self.tensors.values() if e.dtype in DTYPE_NAMES))


def weight_files(folder: Path, allow_pickle: bool = False) -> WeightFiles:
    """The weights of a folder, checked by header, size and index. Raises CannotLoad, naming the file."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    shards = sorted(f for f in folder.glob("*.safetensors") if _SHARD.search(f.name))
    _refuse_two_sets(folder, single, index, shards)
    if _is_there(single):
        entries, notes = read_header(single), []
        if not entries:
            raise CannotLoad(
                "{file} holds no tensors.", "Save the model again, or download it again.", file=single.name
            )
        notes += [
            f"{other.name} lies beside {single.name} and is not used."
            for other in sorted(folder.glob("*.safetensors"))
            if other != single
        ]
        tensors = {entry.name: entry for entry in entries}
        return WeightFiles("safetensors", (single,), tensors, (*notes, *_unused_pickles(folder)))
    if _is_there(index):
        files, tensors, notes = _read_index(folder, index)
        return WeightFiles("safetensors", files, tensors, (*notes, *_unused_pickles(folder)))
    if shards:
        raise CannotLoad(
            "The folder holds {shards}, and no index that says which tensor lies in which.",
            "Download model.safetensors.index.json too.",
            shards=shards[0].name + _more_shards(len(shards) - 1),
        )
    if others := sorted(folder.glob("*.safetensors")):
        raise CannotLoad(
            "The folder holds {names}, and no model.safetensors.",
            "If one of these is the whole model, rename it to model.safetensors.",
            names=", ".join(file.name for file in others[:4]),
        )
    return _pickles(folder, allow_pickle)


def _is_there(file: Path) -> bool:
    """Whether a name is in the folder: a broken symbolic link is there too, and gets its own sentence."""
    return os.path.lexists(file)


def _described(file: Path) -> str:
    status = file.stat()
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(status.st_mtime))
    return f"{file.name} ({day}, {status.st_size:,} bytes)"


def _more_shards(count: int) -> str:
    return f" and {count} more shard{'s' if count > 1 else ''}" if count else ""


def _refuse_two_sets(folder: Path, single: Path, index: Path, shards: list[Path]) -> None:
    """LOD-21: transformers takes the single file without a word, even when the shards are newer."""
    if os.path.exists(single) and shards and any(shard.exists() for shard in shards):
        first = next(shard for shard in shards if shard.exists())
        other = _described(first) + _more_shards(len(shards) - 1)
        raise CannotLoad(
            "The folder holds two sets of weights: {one}, and {other}.",
            "Move the set that you do not want out of the folder.",
            one=_described(single),
            other=other,
        )
    if (single.exists() or index.exists()) and (ggufs := gguf_files(folder)):
        one = single if single.exists() else index
        raise CannotLoad(
            "The folder holds two sets of weights: {one}, and {other}.",
            "To load the GGUF file give its own path; to load the other set move the GGUF file out of the folder.",
            one=_described(one),
            other=_described(ggufs[0]),
        )


def _unused_pickles(folder: Path) -> list[str]:
    pickles = sorted(folder.glob("pytorch_model*.bin"))
    return [f"{pickles[0].name} lies beside the safetensors files and is not used."] if pickles else []


# ---------------------------------------------------------------- one safetensors file


def read_header(file: Path) -> list[TensorEntry]:
    """The tensors of a safetensors file, in the order of their data. Raises CannotLoad for every way to be broken."""
    size, head = size_and_head(file)
    name = file.name
    refuse_other_kinds(name, head, size)
    length = int.from_bytes(head[:8], "little")
    if length > LARGEST_HEADER:
        raise CannotLoad(
            "{name} is not a safetensors file, or its beginning is damaged: it claims a header of {length} bytes.",
            AGAIN,
            name=name,
            length=f"{length:,}",
        )
    if size < 8 or length + 8 > size:
        raise CannotLoad(
            "{name} is truncated: {size} bytes are here, and its header alone needs {expected}.",
            AGAIN,
            name=name,
            size=f"{size:,}",
            expected=f"{length + 8:,}",
        )
    entries = _entries(file, _header_json(file, length), 8 + length)
    end = 0
    for entry, begin, stop in entries:
        if begin != end or stop < begin:
            raise _damaged(name, f"tensor {entry.name} does not begin where the one before it ends")
        if stop - begin != entry.bytes:
            raise _damaged(
                name, f"tensor {entry.name} has {stop - begin:,} bytes where its shape needs {entry.bytes:,}"
            )
        end = stop
    expected = 8 + length + end
    if size < expected:
        raise CannotLoad(
            "{name} is truncated: {size} bytes are here, {expected} are expected.",
            AGAIN,
            name=name,
            size=f"{size:,}",
            expected=f"{expected:,}",
        )
    if size > expected:
        raise CannotLoad(
            "{name} is longer than its header says: {size} bytes are here, {expected} are expected.",
            AGAIN,
            name=name,
            size=f"{size:,}",
            expected=f"{expected:,}",
        )
    return [entry for entry, _, _ in entries]


def size_and_head(file: Path) -> tuple[int, bytes]:
    try:
        status = file.stat()
        if not S_ISREG(status.st_mode):  # a folder, or a pipe that would be waited for without an end
            raise CannotLoad("{name} is no file.", "Move it away, and download the file again.", name=file.name)
        with file.open("rb") as stream:
            return status.st_size, stream.read(512)
    except FileNotFoundError:
        raise CannotLoad("The file {name} is not there.", "Download it again.", name=file.name) from None
    except OSError as error:
        raise CannotLoad(
            "{name} cannot be read: {reason}.", "Check its permissions.", name=file.name, reason=error.strerror
        ) from None


def refuse_other_kinds(name: str, head: bytes, size: int) -> None:
    """Files that are not what they are called (LOD-23)."""
    text = head.lstrip().lower()
    if size == 0:
        raise CannotLoad("{name} is empty.", AGAIN, name=name)
    if head.startswith(b"version https://git-lfs"):
        expected = re.search(rb"size (\d+)", head)
        part = "the weights" if name.endswith((".safetensors", ".bin", ".gguf")) else "the file"
        raise CannotLoad(
            "{name} is only a pointer to {part} ({size} bytes), not {part}{expected}.",
            "Fetch the real file: git lfs pull, or download it from the hub.",
            name=name,
            part=part,
            size=size,
            expected=f" ({int(expected[1]):,} bytes)" if expected else "",
        )
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<head", b"<body")):
        raise CannotLoad(
            "{name} is a web page that was saved under this name, perhaps a sign-in page.",
            "Sign in where the model is offered, and download the file again.",
            name=name,
        )
    if head.startswith(b"GGUF") and not name.lower().endswith(".gguf"):
        raise CannotLoad("{name} is a GGUF file.", "Rename it so that it ends with .gguf, and load that.", name=name)
    if name.endswith(".safetensors"):
        if head.startswith((b"PK\x03\x04", b"\x80\x02")):
            raise CannotLoad(
                "{name} is a pickle file under the name of safetensors.",
                "Do not load it unless you trust where it comes from; then rename it to pytorch_model.bin.",
                name=name,
            )
        if head.startswith((b"{", b"[")):
            raise CannotLoad("{name} is a text file (JSON), perhaps a server's error message.", AGAIN, name=name)
        if not head.strip(b"\0"):
            raise CannotLoad("{name} begins with zeros: the download reserved the space only.", AGAIN, name=name)


def _header_json(file: Path, length: int) -> dict:
    with file.open("rb") as stream:
        stream.seek(8)
        raw = stream.read(length)
    try:
        header = json.loads(raw)
    except (ValueError, RecursionError):
        raise _damaged(file.name, "its header is not JSON") from None
    if not isinstance(header, dict):
        raise _damaged(file.name, "its header is not a table")
    return header


def _entries(file: Path, header: dict, data_begin: int) -> list[tuple[TensorEntry, int, int]]:
    entries = []
    for name, told in header.items():
        if name == "__metadata__":
            continue
        try:
            dtype, shape, (begin, stop) = told["dtype"], tuple(told["shape"]), told["data_offsets"]
            whole = all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in (*shape, begin, stop))
            sane = whole and isinstance(dtype, str) and max(stop, prod(shape)) < 2**63
        except (TypeError, KeyError, ValueError):
            sane = False
        if not sane:
            raise _damaged(file.name, f"what its header says of tensor {name!r} makes no sense")
        if dtype not in BITS:
            raise CannotLoad(
                "{file} uses the number type {dtype}, which is not known here (tensor {tensor}).",
                "A newer version of safetensors may know it; otherwise download the file again.",
                file=file.name,
                dtype=str(dtype)[:40],
                tensor=name,
            )
        size = prod(shape) * BITS[dtype] // 8
        entries.append((TensorEntry(name, file, dtype, shape, size, data_begin + begin), begin, stop))
    return sorted(entries, key=lambda item: (item[1], item[2]))


def _damaged(name: str, why: str) -> CannotLoad:
    return CannotLoad("{name} is damaged: {why}.", AGAIN, name=name, why=why)


# ---------------------------------------------------------------- shards and their index


def _read_index(folder: Path, index: Path) -> tuple[tuple[Path, ...], dict[str, TensorEntry], list[str]]:
    """LOD-6, LOD-22. Every shard the index names, their tensors, and notes."""
    weight_map, metadata = _weight_map(index)
    names = sorted(set(weight_map.values()))
    for name in names:
        if PurePosixPath(name).name != name or PureWindowsPath(name).name != name or name in (".", ".."):
            raise CannotLoad(
                "The index names {name}, a file outside the model's folder.",
                "Do not trust this folder; download the model from its maker.",
                name=name[:200],
            )
    missing = [name for name in names if not _holds(folder, name)]
    if missing:
        raise CannotLoad(
            "The folder lacks {count} of {total} shards: {names}.",
            "Download them again; an interrupted download is the usual cause.",
            count=len(missing),
            total=len(names),
            names=", ".join(name[:200] for name in missing[:4]) + (", …" if len(missing) > 4 else ""),
        )
    tensors: dict[str, TensorEntry] = {}
    for name in names:
        for entry in read_header(folder / name):
            tensors[entry.name] = entry
    lost = [name for name, file in weight_map.items() if name not in tensors or tensors[name].file.name != file]
    if lost:
        raise CannotLoad(
            "The index says that {tensor} lies in {file}, and it does not{more}.",
            "Index and shards come from different versions: download the whole folder again.",
            tensor=lost[0],
            file=weight_map[lost[0]],
            more=f" (and {len(lost) - 1} more like it)" if len(lost) > 1 else "",
        )
    notes = []
    held = sum(entry.bytes for entry in tensors.values())
    told = metadata.get("total_size")
    if told is not None and told != held:
        notes.append(f"The index says the weights have {told} bytes; they have {held:,}.")
    if extra := len(tensors) - len(weight_map):
        notes.append(f"The shards hold tensors that the index leaves out: {extra}.")
    return tuple(folder / name for name in names), tensors, notes


def _holds(folder: Path, name: str) -> bool:
    try:
        return (folder / name).exists()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _weight_map(index: Path) -> tuple[dict[str, str], dict]:
    again = "Download model.safetensors.index.json again."
    size, head = size_and_head(index)
    refuse_other_kinds(index.name, head, size)
    try:
        content = json.loads(index.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise CannotLoad("The index {name} is not JSON.", again, name=index.name) from None
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if (
        not isinstance(weight_map, dict)
        or not weight_map
        or not all(v and isinstance(v, str) for v in weight_map.values())
    ):
        raise CannotLoad("The index {name} does not say which file holds which tensor.", again, name=index.name)
    if not isinstance(content.get("metadata"), dict):
        raise CannotLoad(
            'The index {name} has no "metadata", without which the loader stops.',
            'Download it again, or add "metadata": {{}} to it.',
            name=index.name,
        )
    return weight_map, content["metadata"]


# ---------------------------------------------------------------- pickles


def _pickles(folder: Path, allow_pickle: bool) -> WeightFiles:
    """LOD-3: pickle files can run programs when they are read, so a person must agree; then weights_only."""
    index = folder / "pytorch_model.bin.index.json"
    if index.exists():
        names = sorted(set(_weight_map(index)[0].values()))
        files = tuple(folder / name for name in names if PurePosixPath(name).name == name)
        if missing := [name for name in names if not _holds(folder, name)]:
            raise CannotLoad("The file {name} is not there.", "Download it again.", name=missing[0][:200])
    else:
        files = tuple(file for file in (folder / "pytorch_model.bin",) if _is_there(file))
    if not files:
        raise CannotLoad(
            "There are no weights in {folder}.",
            "It needs model.safetensors, or shards with model.safetensors.index.json.",
            folder=folder,
        )
    for file in files:
        size, head = size_and_head(file)
        refuse_other_kinds(file.name, head, size)
        if head.startswith(b"PK") and not zipfile.is_zipfile(file):
            raise CannotLoad("{name} is truncated ({size} bytes).", AGAIN, name=file.name, size=f"{size:,}")
    if not allow_pickle:
        raise pickle_needed(files)
    return WeightFiles("pickle", files, {}, ("The weights are pickle files, read with weights_only.",))


def checksum_verdict(file: Path) -> str:
    """For a file of the hub's cache, whose name is its SHA-256: whether it agrees. Empty for other files (LOD-24)."""
    # One link further a blob may stand for an entry of the cache's shared store, which goes by another kind of hash.
    name = Path(os.readlink(file)).name if file.is_symlink() else file.name
    if not re.fullmatch(r"[0-9a-f]{64}", name):
        return ""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return "Its checksum agrees with the hub's." if digest == name else "Its checksum differs from the hub's."
