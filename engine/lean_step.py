"""The lean forward's decode step for packed weights as one TorchScript function: all layers in one call.

Python leaves the thousand small operations of a step to torch at once, so that they follow each other faster, and a
window that paints in another thread need not hand Python's lock back and forth between them. The mathematics is that
of lean.py's layers, to the last bit. No postponed annotations here: TorchScript reads them.
"""

import logging
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, Optional

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  the field's name for it

log = logging.getLogger(__name__)
FLOAT16, INT8, INT8_DYNAMIC = 0, 1, 2
KINDS = {"float16": FLOAT16, "int8": INT8, "int8-dynamic": INT8_DYNAMIC}


def product(
    kind: int,
    x: Tensor,
    packed: list[torch.classes.quantized.LinearPackedParamsBase],  # pyright: ignore[reportInvalidTypeForm]
    tensors: list[Tensor],
    at: int,
    reduce_range: bool,
) -> Tensor:
    """The product of the given number. packed: fbgemm's weights; tensors: for int8 each weight and its scales."""
    if kind == 0:
        return torch.ops.quantized.linear_dynamic_fp16(x, packed[at])
    if kind == 2:
        return torch.ops.quantized.linear_dynamic(x, packed[at], reduce_range)
    rows = x.reshape([-1, x.shape[-1]]).to(torch.bfloat16)
    y = torch.ops.aten._weight_int8pack_mm(rows, tensors[2 * at], tensors[2 * at + 1]).to(x.dtype)
    return y.view([x.shape[0], x.shape[1], -1])


def step(
    kind: int,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    mask: Optional[Tensor],  # noqa: UP045  TorchScript reads it
    norms: list[Tensor],
    q_norms: list[Tensor],
    k_norms: list[Tensor],
    mlp_norms: list[Tensor],
    packed: list[torch.classes.quantized.LinearPackedParamsBase],  # pyright: ignore[reportInvalidTypeForm]
    tensors: list[Tensor],
    reduce_range: bool,
    keys: list[Tensor],
    values: list[Tensor],
    begin: int,
    heads: int,
    kv_heads: int,
    eps: float,
) -> Tensor:
    """x: [lanes, 1, hidden] float32, through all layers; writes each layer's keys and values at `begin`.

    mask: [lanes, 1, 1, begin + 1] bool where lanes look at different places, else None."""
    lanes, _, hidden = x.shape
    width = cos.shape[-1]
    rotated = heads + kv_heads
    for i in range(len(norms)):
        normed = F.rms_norm(x, [hidden], norms[i], eps)
        qkv = product(kind, normed, packed, tensors, 4 * i, reduce_range).view([lanes, 1, -1, width])
        qk = qkv[:, :, :rotated]
        if len(q_norms) > 0:
            q = F.rms_norm(qk[:, :, :heads], [width], q_norms[i], eps)
            qk = torch.cat([q, F.rms_norm(qk[:, :, heads:], [width], k_norms[i], eps)], dim=2)
        qk = qk * cos + qk.roll([width // 2], [-1]) * sin
        keys[i][:, :, begin : begin + 1].copy_(qk[:, :, heads:].transpose(1, 2))
        values[i][:, :, begin : begin + 1].copy_(qkv[:, :, rotated:].transpose(1, 2))
        query = qk[:, 0, :heads].reshape([lanes, kv_heads, heads // kv_heads, width]).to(keys[i].dtype)
        mixed = F.scaled_dot_product_attention(query, keys[i][:, :, : begin + 1], values[i][:, :, : begin + 1], mask)
        mixed = mixed.reshape([lanes, 1, -1]).to(x.dtype)
        x = x + product(kind, mixed, packed, tensors, 4 * i + 1, reduce_range)
        normed = F.rms_norm(x, [hidden], mlp_norms[i], eps)
        both = product(kind, normed, packed, tensors, 4 * i + 2, reduce_range)
        half = both.shape[-1] // 2
        inner = F.silu(both[:, :, :half]) * both[:, :, half:]
        x = x + product(kind, inner, packed, tensors, 4 * i + 3, reduce_range)
    return x


@cache
def _scripted() -> Any:
    """The step as TorchScript, or None where it cannot be made (a frozen program has no sources)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "deprecated": the plain path stays for the day it is gone
            return torch.jit.script(step)
    except Exception as error:  # torch raises many kinds here; the step then runs layer by layer
        log.info("the decode step is not scripted: %s", error)
        return None


Step = Callable[[Tensor, Tensor, Tensor, Tensor | None, list[Tensor], list[Tensor], int, int, int, float], Tensor]


def scripted_step(kernel: str, layers: list[Any]) -> Step | None:
    """A function of (x, cos, sin, mask, keys, values, begin, heads, kv_heads, eps) for these packed layers of lean.py.

    None where the kernel is another, a matrix was packed in parts or has a bias beside it, or nothing can be scripted.
    """
    script = _scripted() if kernel in KINDS else None
    if script is None:
        return None
    products = [product for layer in layers for product in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    packed: list[Any] = []
    tensors: list[Tensor] = []
    for each in products:
        parts = each.script_parts()
        if parts is None:
            return None
        packed += parts[0]
        tensors += parts[1]
    kind, norms, mlp_norms = KINDS[kernel], [layer.norm for layer in layers], [layer.mlp_norm for layer in layers]
    q_norms = [layer.q_norm for layer in layers if layer.q_norm is not None]
    k_norms = [layer.k_norm for layer in layers if layer.k_norm is not None]
    reduce_range = not torch.cpu._is_vnni_supported()

    def run(
        x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, keys: list[Tensor], values: list[Tensor],
        begin: int, heads: int, kv_heads: int, eps: float,
    ) -> Tensor:  # fmt: skip
        return script(
            kind, x, cos, sin, mask, norms, q_norms, k_norms, mlp_norms, packed, tensors, reduce_range, keys, values,
            begin, heads, kv_heads, eps,
        )  # fmt: skip

    return run
