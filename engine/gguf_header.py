"""The header of a GGUF file: what it holds and whether it is whole, without reading its weights.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (version 2 and 3, little endian).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from engine.errors import CannotLoad

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LONGEST = 2**24  # of a string or of a list: beyond it the header is damaged
AGAIN = "Download this file again; an interrupted download is the usual cause."


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """`values` holds the single numbers and texts; of lists only the length is kept, under their name."""

    version: int
    values: dict[str, Any]
    lists: dict[str, int]
    tensor_types: dict[str, int]  # how many tensors of each type's name
    matrix_types: tuple[str, ...]
    parameters: int
    data_bytes: int

    @property
    def float_dtypes(self) -> tuple[str, ...]:
        """The floating types of its matrices, by torch's names; empty if they are all quantised."""
        names = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
        quantised = [name for name in self.matrix_types if name not in names]
        return () if quantised else tuple(names[name] for name in self.matrix_types)


def read_gguf_header(file: Path) -> GgufHeader:
    """The header of a GGUF file. Raises CannotLoad where it is none, damaged, or ends before its tensors do."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    from engine.files import refuse_other_kinds, size_and_head

    size, head = size_and_head(file)
    refuse_other_kinds(file.name, head, size)
    if not head.startswith(b"GGUF"):
        raise CannotLoad("{name} is not a GGUF file.", AGAIN, name=file.name)
    try:
        with file.open("rb") as stream:
            stream.seek(4)
            version = _number(stream, "I")
            if not 2 <= version <= 3:
                raise CannotLoad(
                    "{name} is GGUF of version {version}; versions 2 and 3 can be read.",
                    "Convert the model again with a newer llama.cpp.",
                    name=file.name,
                    version=version,
                )
            tensors, pairs = _number(stream, "Q"), _number(stream, "Q")
            values, lists = _pairs(stream, pairs)
            infos = [_tensor_info(stream) for _ in range(_sane(tensors))]
            header_end = stream.tell()
        alignment = _alignment(values)
    except (struct.error, ValueError, OverflowError, MemoryError, KeyError, RecursionError):
        raise CannotLoad("{name} is truncated or damaged within its header.", AGAIN, name=file.name) from None
    end = 0
    counts: dict[str, int] = {}
    matrices: dict[str, None] = {}
    parameters = 0
    for name, shape, kind, offset in infos:
        try:
            quantisation = GGMLQuantizationType(kind)
        except ValueError:
            raise CannotLoad(
                "{file} uses the number type {kind}, which is not known here (tensor {name}).",
                "A newer gguf package may know it (pip install -U gguf).",
                file=file.name,
                kind=kind,
                name=name,
            ) from None
        block, block_bytes = GGML_QUANT_SIZES[quantisation]
        numel = prod(shape)
        parameters += numel
        end = max(end, offset + numel // block * block_bytes)
        counts[quantisation.name] = counts.get(quantisation.name, 0) + 1
        if len(shape) > 1:
            matrices[quantisation.name] = None
    expected = -(-header_end // alignment) * alignment + end if infos else header_end
    if size < expected:
        raise CannotLoad(
            "{name} is truncated: {size} bytes are here, {expected} are expected.",
            AGAIN,
            name=file.name,
            size=f"{size:,}",
            expected=f"{expected:,}",
        )
    return GgufHeader(version, values, lists, counts, tuple(matrices), parameters, end)


def _alignment(values: dict[str, Any]) -> int:
    alignment = values.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= _LONGEST:
        raise ValueError("no alignment")
    return alignment


def _sane(count: int) -> int:
    if count > _LONGEST:
        raise ValueError("a length beyond reason")
    return count


def _number(stream: BinaryIO, kind: str) -> Any:
    return struct.unpack(f"<{kind}", stream.read(struct.calcsize(f"<{kind}")))[0]


def _text(stream: BinaryIO) -> str:
    length = _sane(_number(stream, "Q"))
    raw = stream.read(length)
    if len(raw) != length:
        raise ValueError("the file ends inside a text")
    return raw.decode("utf-8", errors="replace")


def _pairs(stream: BinaryIO, count: int) -> tuple[dict[str, Any], dict[str, int]]:
    values: dict[str, Any] = {}
    lists: dict[str, int] = {}
    for _ in range(_sane(count)):
        name, kind = _text(stream), _number(stream, "I")
        if kind == _ARRAY:
            lists[name] = _skip_list(stream)
        else:
            values[name] = _text(stream) if kind == _STRING else _number(stream, _SCALARS[kind])
    return values, lists


def _skip_list(stream: BinaryIO) -> int:
    kind, length = _number(stream, "I"), _sane(_number(stream, "Q"))
    if kind == _STRING:
        for _ in range(length):
            stream.seek(_sane(_number(stream, "Q")), 1)
    elif kind == _ARRAY:
        for _ in range(length):
            _skip_list(stream)
    else:
        stream.seek(length * struct.calcsize(f"<{_SCALARS[kind]}"), 1)
    return length


def _tensor_info(stream: BinaryIO) -> tuple[str, tuple[int, ...], int, int]:
    name, dimensions = _text(stream), _number(stream, "I")
    if dimensions > 8:
        raise ValueError("too many dimensions")
    shape = tuple(_number(stream, "Q") for _ in range(dimensions))
    return name, shape, _number(stream, "I"), _number(stream, "Q")
