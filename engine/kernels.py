"""How a linear layer's product is computed: torch's plain product, or weights packed once for this processor.

A decode step is mostly products of one row, and those run far below the memory's speed in the plain path. Packed
weights are read in the order in which the processor wants them. All kernels are torch's own (oneDNN, fbgemm, ATen).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  the field's name for it

Linear = tuple[Tensor, Tensor | None]  # weight [out, in] and bias [out]
LARGEST_FLOAT16 = 65504.0
PACKED_AT_ONCE = 8_000_000  # numbers


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """torch computes with so many threads inside; 0 changes nothing."""
    before = torch.get_num_threads()
    if count in (0, before):
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True, slots=True)
class Kernel:
    """One way to compute products. exact: its weights are as exact as those that were loaded in 16 bits."""

    name: str  # as LoadPlan.kernel names it
    words: str
    exact: bool


KERNELS = {
    kernel.name: kernel
    for kernel in (
        Kernel("transformers", "transformers' own forward, torch's plain products", True),
        Kernel("plain", "torch's plain products", True),
        Kernel("compiled", "torch's plain products, all else of a step by torch.compile", True),
        Kernel("onednn", "weights packed by oneDNN", True),
        Kernel("float16", "16-bit weights packed by fbgemm, sums in float32", True),
        Kernel("int8", "8-bit weights, one scale a row, activations in bfloat16", False),
        Kernel("int8-dynamic", "8-bit weights and 8-bit activations by fbgemm", False),
        Kernel(
            "int8-smoothed",
            "8-bit weights and activations, outliers moved into the weights; head and down projections in 16 bits",
            False,
        ),
    )
}

LEAN_ONLY = ("compiled", "int8-smoothed")  # those that need to know which layer is which
ONE_SCALE = ("int8-dynamic", "int8-smoothed")  # one scale for the activations of all rows: less exact the more rows


def part_of(kernel: str, part: str) -> str:
    """The kernel that computes a part of the model ("qkv", "out", "gate_up", "down", "head")."""
    if kernel != "int8-smoothed":
        return kernel
    return "float16" if part in ("down", "head") else "int8-dynamic"


@cache
def offered(dtype: torch.dtype) -> tuple[str, ...]:
    """The kernels that this processor and this build of torch have for weights of this type, found by trying."""
    found = []
    for name in KERNELS:
        if name in ("transformers", *LEAN_ONLY):
            continue  # their products are plain, or those of others
        weight = torch.linspace(-1, 1, 64 * 64, dtype=torch.float32).view(64, 64).to(dtype)
        try:
            with torch.inference_mode():
                product = pack(name, [(weight, None)])
                product(torch.ones(1, 1, 64, dtype=stream_dtype(name, dtype)))
        except (RuntimeError, NotImplementedError):
            continue
        found.append(name)
    if {"float16", "int8-dynamic"} <= set(found):
        found.append("int8-smoothed")
    return tuple(found)


def multiplies(dtype: torch.dtype) -> bool:
    """Whether this processor multiplies matrices of this type; torch otherwise emulates it, several times slower."""
    if dtype == torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    if dtype == torch.float16:
        return torch.ops.mkldnn._is_mkldnn_fp16_supported()
    return True


def stream_dtype(kernel: str, dtype: torch.dtype) -> torch.dtype:
    """The type of the activations between the products of a kernel, for weights loaded in `dtype`."""
    return dtype if kernel in ("plain", "compiled", "onednn") else torch.float32


class Product(Protocol):
    """[..., in] → [..., sum of out], in the stream's type."""

    nbytes: int  # of memory that packing holds
    read_bytes: int  # of it that a step reads

    def __call__(self, x: Tensor, /) -> Tensor: ...


def pack(kernel: str, linears: Sequence[Linear]) -> Product:
    """One product for linear layers that read the same input; their outputs stand side by side.

    "plain" copies nothing. The others hold a packed copy of the weights, and the originals can go: `nbytes` of memory,
    `read_bytes` of them read by a step. Raises RuntimeError where this processor or build has no such kernel, or the
    weights do not fit its type.
    """
    if kernel in ("plain", "compiled"):
        return _Plain(tuple(linears))
    weight = torch.cat([w.detach() for w, _ in linears]) if len(linears) > 1 else linears[0][0].detach()
    bias = _joined_bias(linears)
    return _PACKED[kernel](weight, bias)


def _joined_bias(linears: Sequence[Linear]) -> Tensor | None:
    if all(bias is None for _, bias in linears):
        return None
    return torch.cat([b.detach() if b is not None else w.new_zeros(w.shape[0]) for w, b in linears])


class _Plain:
    """torch's product for each, as the model has them."""

    def __init__(self, linears: tuple[Linear, ...]) -> None:
        self.linears, self.nbytes, self.read_bytes = linears, 0, 0

    def __call__(self, x: Tensor) -> Tensor:
        if len(self.linears) == 1:
            return F.linear(x, *self.linears[0])
        return torch.cat([F.linear(x, *linear) for linear in self.linears], dim=-1)


class _OneDnn:
    """oneDNN's blocked layout: what inductor's freezing uses. Activations in the weights' own type."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        if weight.dtype == torch.float16:
            raise RuntimeError("packed float16 is not faster on any processor seen so far")
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 1)
        self.bias, self.nbytes = bias, weight.numel() * weight.element_size()
        self.read_bytes = self.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")


class _Float16:
    """fbgemm's packed float16: exact for numbers that bfloat16 weights hold in practice, sums in float32.

    A row's result does not depend on the rows beside it, so a lane writes the same alone and in company.
    """

    kernel = "float16"

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        if max(abs(float(edge)) for edge in weight.aminmax()) > LARGEST_FLOAT16:
            raise RuntimeError("a weight is larger than float16 can hold")
        rows, width = weight.shape
        # A large matrix in parts, since each is widened to float32 on its way.
        step = max(1, PACKED_AT_ONCE // width)
        self.packed = [
            torch.ops.quantized.linear_prepack_fp16(
                weight[at : at + step].float(), None if bias is None else bias[at : at + step].float()
            )
            for at in range(0, rows, step)
        ]
        # fbgemm fills up to 512 numbers in one direction and 16 in the other; what it adds is never read.
        self.nbytes = -(-width // 512) * 512 * -(-rows // 16) * 16 * 2
        self.read_bytes = 2 * weight.numel()

    def __call__(self, x: Tensor) -> Tensor:
        if len(self.packed) == 1:
            return torch.ops.quantized.linear_dynamic_fp16(x, self.packed[0])
        return torch.cat([torch.ops.quantized.linear_dynamic_fp16(x, part) for part in self.packed], dim=-1)

    def script_parts(self) -> tuple[list[Any], list[Tensor]] | None:
        """What lean_step.py needs of it: packed weights, and plain tensors. None: it has to be called."""
        return self.packed, []


class _Int8:
    """8-bit weights with one scale for each row, read as they are; activations in bfloat16: `_weight_int8pack_mm`."""

    kernel = "int8"

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        wide = weight.float()
        scale = (wide.abs().amax(1, keepdim=True) / 127).clamp_(min=1e-12)
        self.weight = (wide / scale).round_().to(torch.int8)
        self.scale = scale.squeeze(1).to(torch.bfloat16)
        self.bias = None if bias is None else bias.float()
        self.nbytes = self.read_bytes = weight.numel() + 2 * len(scale)

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1]).to(torch.bfloat16)
        y = torch.ops.aten._weight_int8pack_mm(rows, self.weight, self.scale).to(x.dtype)
        y = y.view(*x.shape[:-1], -1)
        return y if self.bias is None else y + self.bias

    def script_parts(self) -> tuple[list[Any], list[Tensor]] | None:
        return ([], [self.weight, self.scale]) if self.bias is None else None


class _Int8Dynamic:
    """8-bit weights and activations, the latter scaled anew at each product: fastest, and visibly less exact."""

    kernel = "int8-dynamic"

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        wide = weight.float()
        scale = (wide.abs().amax(1) / 127).clamp_(min=1e-12).double()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "will be removed": the program then no longer offers it
            zeros = torch.zeros(len(scale), dtype=torch.long)
            quantised = torch.quantize_per_channel(wide, scale, zeros, 0, torch.qint8)
            self.packed = torch.ops.quantized.linear_prepack(quantised, None if bias is None else bias.float())
        self.nbytes = self.read_bytes = weight.numel() + 8 * len(scale)
        # Without VNNI two products are added in 16 bits, and 8-bit activations could overflow them: 7 bits then.
        self.reduce_range = not torch.cpu._is_vnni_supported()

    def __call__(self, x: Tensor) -> Tensor:
        return torch.ops.quantized.linear_dynamic(x, self.packed, self.reduce_range)

    def script_parts(self) -> tuple[list[Any], list[Tensor]] | None:
        return [self.packed], []


_PACKED: dict[str, Callable[[Tensor, Tensor | None], Product]] = {
    "onednn": _OneDnn,
    "float16": _Float16,
    "int8": _Int8,
    "int8-dynamic": _Int8Dynamic,
}
