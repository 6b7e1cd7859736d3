"""Whether the tensors in the files are those that the model needs, and whether their numbers can be weights."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BufferedReader
from math import prod
from typing import Any

from safetensors import safe_open

from engine.blueprint import Blueprint
from engine.errors import CannotLoad
from engine.files import DTYPE_NAMES, TensorEntry, WeightFiles, checksum_verdict
from engine.trust import tie_needed

_EXPERT = re.compile(r"^(.*\.experts\.)(\d+)\.(.+)$")
FLOAT16_LARGEST = 65504.0
PIECE_BYTES = 1 << 22  # read and looked at together, small enough for the processor's cache


def refuse_wrong_tensors(blueprint: Blueprint, files: WeightFiles) -> None:
    """Compares the files' headers with the empty model, before anything is read. Raises CannotLoad.

    Only where the files name tensors as the model does; families whose loader renames or fuses are judged after
    loading, by the loader's own missing keys.
    """
    if not files.tensors or blueprint.quantisation:
        return
    _refuse_missing_experts(files)
    model = blueprint.skeleton.model
    state = model.state_dict()
    shapes = {name: tuple(t.shape) for name, t in state.items()}
    held = {name if name in shapes else _with_prefix(name, model): entry for name, entry in files.tensors.items()}
    for name, entry in held.items():
        if name in shapes and entry.shape != shapes[name]:
            raise wrong_shape(name, entry.shape, shapes[name])
        if name in shapes and state[name].is_floating_point() and not entry.dtype.startswith(("F", "BF")):
            raise CannotLoad(
                "The tensor {name} holds numbers of the type {dtype} in {file}, which are no weights as they stand.",
                "The files may be packed by a method that config.json does not name: download the whole folder again.",
                name=name,
                dtype=entry.dtype,
                file=entry.file.name,
            )
    known = sum(name in shapes for name in held)
    if known < len(held) * 0.5:
        return
    aliases = dict(getattr(model, "all_tied_weights_keys", None) or {})
    missing = []
    for name, _ in model.named_parameters():
        group = {name, *(a for a, b in aliases.items() if b == name), aliases.get(name, name)}
        if not group & held.keys():
            missing.append(name)
    renamed = [name for name in held if name not in shapes]
    if missing and not renamed:
        raise missing_tensors(missing, blueprint, files)


def _with_prefix(name: str, model: Any) -> str:
    """A base model's file leaves out the prefix ("h.0…" for "transformer.h.0…")."""
    return f"{model.base_model_prefix}.{name}"


def wrong_shape(name: str, in_file: Iterable[int], in_model: Iterable[int]) -> CannotLoad:
    return CannotLoad(
        "The tensor {name} has the shape {in_file} in the files, and {in_model} by config.json.",
        "Config and weights come from different models: take both from the same place.",
        name=name,
        in_file=list(in_file),
        in_model=list(in_model),
    )


def missing_tensors(missing: list[str], blueprint: Blueprint, files: WeightFiles) -> CannotLoad:
    """The refusal for tensors that the files lack; transformers would fill them with random numbers (LOD-1, LOD-25)."""
    head = blueprint.skeleton.model.get_output_embeddings()
    head_names = {
        f"{name}.weight"
        for name, module in blueprint.skeleton.model.named_modules()
        if head is not None and module is head
    }
    if set(missing) <= head_names:
        return tie_needed(blueprint.located.folder, missing[0])
    layers_in_files = _layers_in(files)
    layers = ""
    if layers_in_files and layers_in_files < blueprint.layers:
        layers = f" config.json asks for {blueprint.layers} layers, the files hold {layers_in_files}."
    return CannotLoad(
        "The files lack {names}, which the model needs.{layers}",
        "Config and weights do not belong together, or a file is missing: download the model again.",
        names=", ".join(sorted(missing)[:3]) + (f", … ({len(missing)} tensors)" if len(missing) > 3 else ""),
        layers=layers,
    )


def _layers_in(files: WeightFiles) -> int:
    found = [int(m[1]) for name in files.tensors if (m := re.search(r"(?:^|\.)(?:layers?|h|blocks?)\.(\d+)\.", name))]
    return max(found, default=-1) + 1


def _refuse_missing_experts(files: WeightFiles) -> None:
    """One expert's matrix missing: the loader's error names a report that was printed elsewhere (LOD-27)."""
    groups: dict[str, dict[str, set[int]]] = {}
    for name in files.tensors:
        if found := _EXPERT.match(name):
            groups.setdefault(found[1], {}).setdefault(found[3], set()).add(int(found[2]))
    for prefix, by_part in groups.items():
        everyone = set().union(*by_part.values())
        everyone |= set(range(max(everyone)))
        lost = [f"{prefix}{i}.{part}" for part, there in sorted(by_part.items()) for i in sorted(everyone - there)]
        if lost:
            raise CannotLoad(
                "An expert is incomplete: {name} is not in the files{more}.",
                "Download the model again; a file may be missing.",
                name=lost[0],
                more=f" (and {len(lost) - 1} more)" if len(lost) > 1 else "",
            )


# ---------------------------------------------------------------- numbers


@dataclass
class Damage:
    """What the numbers told, gathered while tensors are read (LOD-24)."""

    looked_at: int = 0
    zero: list[str] = field(default_factory=list)
    not_finite: list[str] = field(default_factory=list)
    too_large: list[str] = field(default_factory=list)  # for float16

    def look(self, name: str, tensor: Any) -> None:
        """Notes a tensor that cannot be a weight. Norms and biases may well be zero, also where many experts' or
        heads' biases stand in one table; matrices not."""
        self.looked_at += 1
        if not tensor.is_floating_point() or not tensor.numel() or tensor.is_meta:
            return
        if tensor.element_size() == 1:  # 8-bit floats know no minimum
            tensor = tensor.float()
        low, high = (float(value) for value in tensor.aminmax())
        if not (abs(low) < float("inf") and abs(high) < float("inf")):
            self.not_finite.append(name)
        elif (
            tensor.ndim > 1 and not name.endswith("bias") and ((low == 0.0 and high == 0.0) or _ends_with_zeros(tensor))
        ):
            self.zero.append(name)
        elif max(-low, high) > FLOAT16_LARGEST:
            self.too_large.append(name)

    def look_over(self, entries: Sequence[TensorEntry]) -> Iterator[list[TensorEntry]]:
        """Looks at the tensors of one safetensors file; yields those side by side once they have been read.

        They are read and not mapped: to map a page takes longer than to copy it.
        """
        import torch

        file = entries[0].file
        room = torch.empty(PIECE_BYTES, dtype=torch.uint8)
        with file.open("rb") as source:
            for group in _groups(entries):
                kind = getattr(torch, DTYPE_NAMES.get(group[0].dtype, ""), None)
                suspects = group if kind is None else _suspects(source, group, room, kind)
                if suspects:
                    with safe_open(str(file), framework="pt") as tensors:
                        for entry in suspects:
                            self.look(entry.name, tensors.get_tensor(entry.name))
                self.looked_at += len(group) - len(suspects)
                yield group

    def refusal(self, tensors: int, precision: str, files: WeightFiles | None) -> CannotLoad | None:
        """Why this model is not loaded, or None. tensors: how many there are in all."""
        if self.not_finite:
            return CannotLoad(
                "Numbers that are not finite lie in {count} of {all} tensors, {name} first: the file is damaged.",
                "Download the model again.{checksum}",
                count=len(self.not_finite),
                all=tensors,
                name=self.not_finite[0],
                checksum=_checksum(self.not_finite[0], files),
            )
        if self.zero:
            return CannotLoad(
                "Nothing but zeros, or a last quarter of them, lies in {count} of {all} tensors, {name} first: "
                "the download is damaged.",
                "Download the model again.{checksum}",
                count=len(self.zero),
                all=tensors,
                name=self.zero[0],
                checksum=_checksum(self.zero[0], files),
            )
        if self.too_large and precision == "float16":
            return CannotLoad(
                "Numbers too large for float16 lie in {count} of {all} tensors, {name} first.",
                "Choose bfloat16 or float32.",
                count=len(self.too_large),
                all=tensors,
                name=self.too_large[0],
            )
        return None


def _groups(entries: Sequence[TensorEntry]) -> Iterator[list[TensorEntry]]:
    """Tensors of one type that lie side by side, in the file's order: as many as fit into a piece, or a larger one."""
    group: list[TensorEntry] = []
    for entry in sorted(entries, key=lambda entry: entry.begin):
        last = group[-1] if group else None
        fits = last and entry.dtype == last.dtype and entry.begin == last.begin + last.bytes
        if last and not (fits and entry.begin + entry.bytes - group[0].begin <= PIECE_BYTES):
            yield group
            group = []
        group.append(entry)
    if group:
        yield group


def _suspects(source: BufferedReader, group: list[TensorEntry], room: Any, kind: Any) -> list[TensorEntry]:
    """Which of a group must be looked at one by one: all where a number is none or too large, those that end in zeros.

    room: uint8 [PIECE_BYTES], where the file's numbers are read into. kind: their type.
    """
    source.seek(group[0].begin)
    numbers, view = room.view(kind), memoryview(room.numpy())
    left = sum(entry.bytes for entry in group)
    while left:
        count = min(left, len(view))
        if source.readinto(view[:count]) < count:
            return group  # the file was cut meanwhile: its reader has the words for that
        numbers = room[:count].view(kind)
        low, high = (float(value) for value in numbers.aminmax())
        if not max(-low, high) <= FLOAT16_LARGEST:  # also where one is no number
            return group
        left -= count
    # The last piece: the whole group, or the end of a tensor larger than that.
    suspects, end = [], len(numbers)
    for entry in reversed(group):
        few = min(4, prod(entry.shape))
        if not numbers[end - few : end].any():
            suspects.append(entry)
        end -= prod(entry.shape)
    return suspects[::-1]


def _ends_with_zeros(tensor: Any) -> bool:
    """Whether the last quarter of the numbers is zero, as a download leaves it that reserved its space first."""
    numbers = tensor.reshape(-1)
    return numbers.numel() >= 16 and not numbers[-4:].any() and not numbers[-(numbers.numel() // 4) :].any()


def _checksum(name: str, files: WeightFiles | None) -> str:
    entry: TensorEntry | None = files.tensors.get(name) if files else None
    verdict = checksum_verdict(entry.file) if entry else ""
    return f" {verdict}" if verdict else ""


def file_dtype_note(blueprint: Blueprint, asked: str | None, float_dtype: str) -> str:
    """A sentence where the loaded type differs from the files' (LOD-26), else "". asked: the person's wish."""
    in_files = [name for name in blueprint.dtype_files if name in DTYPE_NAMES.values()]
    if not in_files or in_files == [float_dtype]:
        return ""
    why = "as chosen"
    if asked != float_dtype:
        why = "as config.json says" if blueprint.dtype_config == float_dtype else "one type for all"
    return f"The files hold {' and '.join(in_files)}; the model was loaded in {float_dtype} ({why})."
