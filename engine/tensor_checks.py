"""Whether the tensors in the files are those that the model needs, and whether their numbers can be weights."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from safetensors import safe_open

from engine.blueprint import Blueprint
from engine.errors import CannotLoad
from engine.files import DTYPE_NAMES, TensorEntry, WeightFiles, checksum_verdict
from engine.readings import forget_pages, mapped_ranges
from engine.trust import tie_needed

_EXPERT = re.compile(r"^(.*\.experts\.)(\d+)\.(.+)$")
FLOAT16_LARGEST = 65504.0
STRETCH_BYTES = 32_000_000  # are looked at between two looks for a stop


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
        "{count} tensors that the model needs are not in the files: {names}.{layers}",
        "Config and weights do not belong together, or a file is missing: download the model again.",
        count=len(missing),
        names=", ".join(sorted(missing)[:3]) + (", …" if len(missing) > 3 else ""),
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
        """Looks at the tensors of one safetensors file where they lie; yields each stretch once it has been read.

        Tensors side by side are read as one: their numbers are looked at one by one only where something was found.
        """
        import torch

        file = entries[0].file
        whole = torch.from_file(str(file), shared=False, size=file.stat().st_size, dtype=torch.uint8)
        mapped = mapped_ranges()
        for stretch in _stretches(entries):
            kind = getattr(torch, DTYPE_NAMES.get(stretch[0].dtype, ""), None)
            begin, end = stretch[0].begin, stretch[-1].begin + stretch[-1].bytes
            if kind is None or begin % kind.itemsize or begin == end:
                with safe_open(str(file), framework="pt") as tensors:
                    for entry in stretch:
                        self.look(entry.name, tensors.get_tensor(entry.name))
                yield stretch
                continue
            numbers = whole[begin:end].view(kind)
            low, high = (float(value) for value in numbers.aminmax())
            sound = max(-low, high) <= FLOAT16_LARGEST  # False where one is no number
            at = 0
            for entry in stretch:
                tensor = numbers[at : at + prod(entry.shape)]
                at += len(tensor)
                if sound and tensor[-4:].any():
                    self.looked_at += 1
                else:
                    self.look(entry.name, tensor.view(entry.shape))
            forget_pages(numbers, mapped)
            yield stretch

    def refusal(self, tensors: int, precision: str, files: WeightFiles | None) -> CannotLoad | None:
        """Why this model is not loaded, or None. tensors: how many there are in all."""
        if self.not_finite:
            return CannotLoad(
                "{count} of {all} tensors hold numbers that are not finite, {name} first: the file is damaged.",
                "Download the model again.{checksum}",
                count=len(self.not_finite),
                all=tensors,
                name=self.not_finite[0],
                checksum=_checksum(self.not_finite[0], files),
            )
        if self.zero:
            return CannotLoad(
                "{count} of {all} tensors are all zero, wholly or in their last quarter, {name} first: "
                "the download is damaged.",
                "Download the model again.{checksum}",
                count=len(self.zero),
                all=tensors,
                name=self.zero[0],
                checksum=_checksum(self.zero[0], files),
            )
        if self.too_large and precision == "float16":
            return CannotLoad(
                "{count} of {all} tensors hold numbers too large for float16, {name} first.",
                "Choose bfloat16 or float32.",
                count=len(self.too_large),
                all=tensors,
                name=self.too_large[0],
            )
        return None


def _stretches(entries: Sequence[TensorEntry]) -> Iterator[list[TensorEntry]]:
    """Tensors of one type that lie side by side, in the file's order, some megabytes at once."""
    stretch: list[TensorEntry] = []
    for entry in sorted(entries, key=lambda entry: entry.begin):
        last = stretch[-1] if stretch else None
        fits = last and entry.dtype == last.dtype and entry.begin == last.begin + last.bytes
        if last and not (fits and entry.begin + entry.bytes - stretch[0].begin <= STRETCH_BYTES):
            yield stretch
            stretch = []
        stretch.append(entry)
    if stretch:
        yield stretch


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
