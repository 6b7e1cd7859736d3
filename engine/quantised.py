"""Weights that are packed already: which method the files name, what it needs to run, and what it weighs.

Everything here is read from the files that lie beside the weights, and from their headers; no package of any method is
imported. What a packed checkpoint needs is one row of `METHODS`.
"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import CannotLoad

if TYPE_CHECKING:
    from engine.skeleton import TensorPlan

BLOCK, NESTED_BLOCK = 64, 256  # bitsandbytes' 4-bit constants, and the constants of those constants
_TABLE_BYTES, _NESTED_BYTES = 16 * 4, 256 * 4 + 4  # per matrix: the codes' table; the second table and an offset


@dataclass(frozen=True, slots=True)
class Method:
    """How a method is called, and what runs it here.

    modules: what must be importable; packages: what brings it; extra: ours that names them, "" for none.
    gpu: "needed", "unpacked" (without one the weights become plain numbers while they are read), or "".
    unpacks: the weights become plain numbers with the first forward, on any device.
    """

    title: str
    modules: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    extra: str = ""
    gpu: str = ""
    unpacks: bool = False


# Source: the quantizers of transformers 5.24, each one's validate_environment.
METHODS = {
    "bitsandbytes": Method("bitsandbytes", ("bitsandbytes",), ("bitsandbytes",)),
    "gptq": Method("GPTQ", ("gptqmodel", "optimum"), ("gptqmodel", "optimum"), "gptq"),
    "awq": Method("AWQ", ("gptqmodel",), ("gptqmodel",), "gptq"),
    "compressed-tensors": Method(
        "compressed-tensors", ("compressed_tensors",), ("compressed-tensors",), "compressed-tensors", unpacks=True
    ),
    "torchao": Method("torchao", ("torchao",), ("torchao",), "torchao"),
    "fp8": Method("FP8", gpu="unpacked"),
    "mxfp8": Method("MXFP8", gpu="unpacked"),
    "mxfp4": Method("MXFP4", gpu="unpacked"),
    "fbgemm_fp8": Method("FP8 by fbgemm", ("fbgemm_gpu",), ("fbgemm-gpu",), gpu="needed"),
    "nvfp4": Method("NVFP4", ("kernels",), ("kernels",), gpu="needed"),
    "eetq": Method("EETQ", ("kernels",), ("kernels",), gpu="needed"),
    "aqlm": Method("AQLM", ("aqlm",), ("aqlm[cpu,gpu]",)),
    "quanto": Method("quanto", ("optimum.quanto",), ("optimum-quanto",)),
    "vptq": Method("VPTQ", ("vptq",), ("vptq",), gpu="needed"),
    "spqr": Method("SpQR", ("spqr_quant",), ("spqr-quant[gpu]",), gpu="needed"),
    "higgs": Method("HIGGS", ("flute",), ("flute-kernel",), gpu="needed"),
    "fp_quant": Method("FP-Quant", ("fp_quant",), ("fp-quant",), gpu="needed"),
    "quark": Method("Quark", ("quark",), ("amd-quark",)),
    "auto-round": Method("AutoRound", ("auto_round",), ("auto-round",)),
    "sinq": Method("SINQ", ("sinq",), ("sinq",)),
    "fouroversix": Method("Four over Six", ("fouroversix",), ("fouroversix",), gpu="needed"),
    "bitnet": Method("BitNet"),
    "gguf": Method("GGUF", ("gguf",), ("gguf",)),
}
# Known, and not loadable by anything that could be installed beside this transformers.
NOT_HERE = {
    "hqq": ("HQQ", "transformers {here} reads no HQQ files"),
    "metal": ("Metal", "it runs on Apple's GPUs only"),
    "mlx": ("MLX", "it is packed for Apple's MLX and runs there only"),
    "modelopt": ("ModelOpt", "transformers {here} reads no ModelOpt files; vLLM and TensorRT do"),
    "exl2": ("EXL2", "it runs in ExLlamaV2 only"),
    "exl3": ("EXL3", "it runs in ExLlamaV3 only"),
}


@dataclass(frozen=True, slots=True)
class Quantised:
    """What the files say of their packing. None: not said, or not of one size.

    group_size: how many numbers share a scale; 0: a row does. kept: names of modules that stayed plain.
    """

    method: str
    bits: float | None = None
    group_size: int | None = None
    kind: str = ""  # "nf4", "pack-quantized", "int8 weights", ...
    zeros: bool = False  # each group has a zero point of its own
    double: bool = False  # the constants are packed once more
    in_order: bool = False  # GPTQ keeps for each input which group it belongs to
    kept: tuple[str, ...] = ()
    source: str = "config.json"

    @property
    def title(self) -> str:
        return METHODS[self.method].title if self.method in METHODS else NOT_HERE.get(self.method, (self.method,))[0]

    @property
    def words(self) -> str:
        """One line for a person: "GPTQ, 4 bits, groups of 128"."""
        parts = [self.title]
        if self.kind and self.kind != self.method:
            parts.append(self.kind)
        if self.bits is not None:
            parts.append("1 bit" if self.bits == 1 else f"{self.bits:g} bits")
        if self.group_size:
            parts.append(f"groups of {self.group_size}")
        elif self.group_size == 0:
            parts.append("a scale for each row")
        if self.double:
            parts.append("double quantisation")
        return ", ".join(parts)

    def packs(self, tensor: TensorPlan) -> bool:
        """Whether a matrix of the empty model is one that this method packs."""
        owner = tensor.name.rpartition(".")[0]
        return tensor.quantisable and not any(_names(name, owner) for name in self.kept)


def _names(pattern: str, module: str) -> bool:
    """Whether a list of what was left out names this module: by its whole name, its end, or a part of the path."""
    if pattern.startswith("re:"):
        import re

        try:
            return re.match(pattern[3:], module) is not None
        except re.error:
            return False
    return f".{pattern}." in f".{module}."


# ---------------------------------------------------------------- recognising


def read_quantisation(folder: Path, raw: dict[str, Any]) -> Quantised | None:
    """What the folder's files say of their packing, None for plain weights. raw: config.json as read.

    Recent checkpoints say it in config.json; older GPTQ and AWQ ones, HQQ's and ModelOpt's in a file of their own.
    """
    told, source = _told(raw), "config.json"
    if told is None:
        told, source = _beside(folder)
    if told is None:
        return None
    if "group_size" in told and "bits" in told and "quant_method" not in told and source == "config.json":
        told = {"quant_method": "mlx", **told}
    method = str(told.get("quant_method") or told.get("quant_algo") or "without a name")
    if told.get("load_in_8bit") or told.get("load_in_4bit"):
        method = "bitsandbytes"
    read = _READERS.get(method, _plain_numbers)
    try:
        return read(method, told, source)
    except (TypeError, ValueError, AttributeError, KeyError):  # a file may say anything
        return Quantised(method, source=source)


def _told(raw: dict[str, Any]) -> dict[str, Any] | None:
    inner = raw.get("text_config")
    for place in (raw, inner if isinstance(inner, dict) else {}):
        for key in ("quantization_config", "compression_config"):
            if isinstance(told := place.get(key), dict) and told:
                return {"quant_method": "compressed-tensors", **told} if key == "compression_config" else told
    told = raw.get("quantization")  # MLX writes its own word
    return told if isinstance(told, dict) and "bits" in told else None


def _beside(folder: Path) -> tuple[dict[str, Any] | None, str]:
    """The packing by a file of the method's own."""
    if (told := _json(folder / "quantize_config.json")) and "bits" in told:
        return {"quant_method": "gptq", **told}, "quantize_config.json"
    if (told := _json(folder / "quant_config.json")) and ("w_bit" in told or "zero_point" in told):
        return {"quant_method": "awq", **told}, "quant_config.json"
    if told := _json(folder / "hf_quant_config.json"):
        inner = told.get("quantization")
        return {**(inner if isinstance(inner, dict) else {}), "quant_method": "modelopt"}, "hf_quant_config.json"
    if (folder / "qmodel.pt").is_file():
        return {"quant_method": "hqq"}, "qmodel.pt"
    return None, ""


def _json(path: Path) -> dict[str, Any] | None:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31 else None


def _group(value: Any) -> int | None:
    """-1 stands for one scale a row."""
    size = _whole(value)
    return size if size is None else max(0, size)


def _listed(value: Any) -> tuple[str, ...]:
    return tuple(str(name) for name in value) if isinstance(value, (list, tuple)) else ()


def _plain_numbers(method: str, told: dict[str, Any], source: str) -> Quantised:
    return Quantised(
        method,
        _whole(told.get("bits") or told.get("w_bit") or told.get("nbits")),
        _group(told.get("group_size", told.get("q_group_size"))),
        kept=_listed(told.get("modules_to_not_convert")),
        source=source,
    )


def _bitsandbytes(method: str, told: dict[str, Any], source: str) -> Quantised:
    kept = _listed(told.get("llm_int8_skip_modules"))
    if told.get("load_in_8bit") or told.get("_load_in_8bit"):
        return Quantised(method, 8, 0, "int8", kept=kept, source=source)
    kind = str(told.get("bnb_4bit_quant_type") or "fp4")
    return Quantised(
        method, 4, BLOCK, kind, double=bool(told.get("bnb_4bit_use_double_quant")), kept=kept, source=source
    )


def _gptq(method: str, told: dict[str, Any], source: str) -> Quantised:
    return Quantised(
        method, _whole(told.get("bits")), _group(told.get("group_size")), zeros=True, in_order=True, source=source
    )


def _awq(method: str, told: dict[str, Any], source: str) -> Quantised:
    return Quantised(
        method,
        _whole(told.get("bits", told.get("w_bit", 4))),
        _group(told.get("group_size", told.get("q_group_size", 128))),
        zeros=True,
        kept=_listed(told.get("modules_to_not_convert")),
        source=source,
    )


def _compressed(method: str, told: dict[str, Any], source: str) -> Quantised:
    groups = [group for group in (told.get("config_groups") or {}).values() if isinstance(group, dict)]
    weights = [group["weights"] for group in groups if isinstance(group.get("weights"), dict)]
    kept, kind = _listed(told.get("ignore")), str(told.get("format") or "")
    if len({(w.get("num_bits"), w.get("group_size"), w.get("strategy")) for w in weights}) != 1:
        return Quantised(method, kind=kind, kept=kept, source=source)
    first = weights[0]
    size = _whole(first.get("group_size")) or 0
    zeros = first.get("symmetric") is False
    return Quantised(method, _whole(first.get("num_bits")), size, kind, zeros=zeros, kept=kept, source=source)


def _fp8(method: str, told: dict[str, Any], source: str) -> Quantised:
    block = told.get("weight_block_size")
    size = _whole(block[0]) if isinstance(block, (list, tuple)) and block else 0
    kept = _listed(told.get("modules_to_not_convert") or told.get("ignored_layers")) or ("lm_head",)
    return Quantised(method, 8, size, str(told.get("fmt") or "e4m3"), kept=kept, source=source)


def _torchao(method: str, told: dict[str, Any], source: str) -> Quantised:
    inner = (told.get("quant_type") or {}).get("default") or {}
    kind = str(inner.get("_type") or told.get("quant_type"))
    size = _group((inner.get("_data") or {}).get("group_size"))
    eight = "Int8" in kind or "Float8" in kind
    bits = 8 if eight else 4 if "Int4" in kind else None
    row = 0 if eight and size is None else size
    return Quantised(method, bits, row, kind, kept=_listed(told.get("modules_to_not_convert")), source=source)


def _mxfp4(method: str, told: dict[str, Any], source: str) -> Quantised:
    return Quantised(method, 4, 32, kept=_listed(told.get("modules_to_not_convert")), source=source)


def _hqq(method: str, told: dict[str, Any], source: str) -> Quantised:
    inner = (told.get("quant_config") or {}).get("weight_quant_params") or told
    return Quantised(method, _whole(inner.get("nbits")), _group(inner.get("group_size")), zeros=True, source=source)


_READERS = {
    "bitsandbytes": _bitsandbytes, "gptq": _gptq, "awq": _awq, "compressed-tensors": _compressed, "fp8": _fp8,
    "fbgemm_fp8": _fp8, "mxfp8": _fp8, "torchao": _torchao, "mxfp4": _mxfp4, "hqq": _hqq,
}  # fmt: skip


def complete_config(config: Any, folder: Path, quantised: Quantised | None) -> None:
    """Writes into transformers' config what a file of the method's own says, where transformers would not look."""
    if quantised is not None and quantised.source in ("quantize_config.json", "quant_config.json"):
        told, _ = _beside(folder)
        names = {"w_bit": "bits", "q_group_size": "group_size"}  # AWQ's old words
        config.quantization_config = {names.get(name, name): value for name, value in (told or {}).items()}


# ---------------------------------------------------------------- refusing


def refuse_unknown(quantised: Quantised | None) -> None:
    """A method that neither transformers nor this table knows would be ignored without a word. Raises CannotLoad."""
    if quantised is None or quantised.method in NOT_HERE:
        return
    from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING

    known = {name.split("_4bit")[0].split("_8bit")[0] for name in AUTO_QUANTIZATION_CONFIG_MAPPING}
    if quantised.method not in known:
        raise CannotLoad(
            "The weights are quantised by a method that is not known here: {method}.",
            "A newer transformers may know it; otherwise take another version of this model.",
            method=quantised.method[:80],
        )


def refuse_missing_kernels(quantised: Quantised | None) -> None:
    """Whether this machine has what runs the packing; an estimate needs none of it. Raises CannotLoad (LOD-5)."""
    if quantised is None:
        return
    if quantised.method in NOT_HERE:
        import transformers

        title, why = NOT_HERE[quantised.method]
        raise CannotLoad(
            "The weights are quantised with {method}, which cannot be loaded here: {why}.",
            "Take a version of this model that is not quantised, and choose int8 or nf4 here.",
            method=title,
            why=why.format(here=transformers.__version__),
        )
    method = METHODS.get(quantised.method, Method(quantised.method))
    missing = [package for name, package in zip(method.modules, method.packages, strict=True) if not _is_here(name)]
    if missing:
        extra = f" (all of them: the extra “{method.extra}” of this program)" if method.extra else ""
        raise CannotLoad(
            "The weights are quantised with {method}, for which {packages} {is_missing} missing.",
            "Install it: pip install {install}{extra}.",
            method=method.title,
            packages=" and ".join(f"the package {package}" for package in missing),
            is_missing="are" if len(missing) > 1 else "is",
            install=" ".join(missing),
            extra=extra,
        )
    if method.gpu == "needed" and not _has_gpu():
        raise CannotLoad(
            "The weights are quantised with {method}, which runs on a GPU only, and this machine has none.",
            "Take a version of this model that is not quantised, and choose int8 or nf4 here.",
            method=method.title,
        )


def is_unpacked_here(quantised: Quantised | None) -> bool:
    """Whether these weights become plain numbers in memory, since nothing here computes with them packed."""
    method = METHODS.get(quantised.method) if quantised is not None else None
    return method is not None and (method.unpacks or (method.gpu == "unpacked" and not _has_gpu()))


def packing_notes(quantised: Quantised | None) -> tuple[str, ...]:
    """What a person should know of how these files are loaded here, one sentence each."""
    if quantised is None or not is_unpacked_here(quantised):
        return ()
    return (
        f"{quantised.title} is not computed with as it is packed: the weights were unpacked, so they take as much "
        "memory as plain ones.",
    )


def _is_here(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a package's inner part, where the package itself is missing
        return False


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


# ---------------------------------------------------------------- bytes


def packing_named(precision: str, double_quantisation: bool = True) -> Quantised | None:
    """What bitsandbytes makes of plain weights in this precision; None for a floating type."""
    if precision == "int8":
        return Quantised("bitsandbytes", 8, 0, "int8")
    if precision in ("nf4", "fp4"):
        return Quantised("bitsandbytes", 4, BLOCK, precision, double=double_quantisation)
    return None


def packed_size(tensor: TensorPlan, quantised: Quantised) -> tuple[int, int] | None:
    """Bytes of a packed matrix: (numbers, constants). None where the files do not say enough.

    bitsandbytes int8: one byte each, a float32 per row. 4 bits: blocks of 64 with a float32 each; with double
    quantisation a byte each, and those in blocks of 256 with a float32; and small tables.
    GPTQ: 32-bit words of packed numbers, per group a float16 scale and a packed zero point for each output, and for
    each input the group's number (int32). AWQ: the same without the last. compressed-tensors: words, 16-bit scales.
    FP8: one byte each and a float32 per block.
    """
    rows = max(1, tensor.rows)
    columns = tensor.numel // rows
    bits, group = quantised.bits, quantised.group_size
    if quantised.method == "bitsandbytes":
        return bitsandbytes_size(tensor.numel, rows, quantised.kind, quantised.double)
    if bits is None or group is None:
        return None
    groups = ceil(columns / group) if group else 1
    if quantised.method in ("fp8", "mxfp8", "fbgemm_fp8"):
        blocks = ceil(rows / group) * ceil(columns / group) if group else rows
        return tensor.numel, blocks * 4
    if quantised.method in ("gptq", "awq"):
        scales = groups * rows * 2
        zeros = groups * ceil(rows * bits / 32) * 4
        order = columns * 4 if quantised.in_order else 0
        return ceil(columns * bits / 32) * 4 * rows, scales + zeros + order
    if quantised.method == "mxfp4":
        return ceil(tensor.numel / 2), rows * groups
    numbers = ceil(columns * bits / 32) * 4 * rows if bits < 8 else tensor.numel
    scale = 4 if quantised.method == "torchao" else 2
    zeros = groups * ceil(rows * bits / 8) if quantised.zeros or quantised.method == "torchao" else 0
    return numbers, groups * rows * scale + zeros


def bitsandbytes_size(numel: int, rows: int, precision: str, double: bool = True) -> tuple[int, int]:
    """Bytes of a matrix that bitsandbytes packs: (numbers, constants). precision: "int8", "nf4" or "fp4"."""
    if precision == "int8":
        return numel, rows * 4
    blocks = ceil(numel / BLOCK)
    if not double:
        return (numel + 1) // 2, blocks * 4 + _TABLE_BYTES
    return (numel + 1) // 2, blocks + 4 * ceil(blocks / NESTED_BLOCK) + _TABLE_BYTES + _NESTED_BYTES
