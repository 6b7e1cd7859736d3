"""The lean forward's decode step for packed weights as one TorchScript function: all layers in one call.

Python leaves the thousand small operations of a step to torch at once, so that they follow each other faster, and a
window that paints in another thread need not hand Python's lock back and forth between them. The mathematics is that
of lean.py's layers. No postponed annotations here: TorchScript reads them.
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
    place: int,
    reduce_range: bool,
) -> Tensor:
    """[lanes, in] → [lanes, out]. packed: fbgemm's weights; tensors: for int8 each weight and its scales."""
    if kind == 0:
        return torch.ops.quantized.linear_dynamic_fp16(x, packed[place])
    if kind == 2:
        return torch.ops.quantized.linear_dynamic(x, packed[place], reduce_range)
    rows = x.to(torch.bfloat16).contiguous()
    return torch.ops.aten._weight_int8pack_mm(rows, tensors[2 * place], tensors[2 * place + 1]).to(x.dtype)


def rms_norm(x: Tensor, twice: Tensor, eps: float) -> Tensor:
    """x: [rows, width]. twice: the weight, two times side by side.

    F.rms_norm is six operations on the processor, layer_norm one, and of numbers and their negatives, whose mean is 0,
    both are the same.
    """
    width = x.shape[1]
    return F.layer_norm(torch.cat([x, x.neg()], 1), [2 * width], twice, None, eps).narrow(1, 0, width)


def step(
    kinds: list[int],
    places: list[int],
    embedding: Tensor,
    norms: list[Tensor],
    q_norms: list[Tensor],
    k_norms: list[Tensor],
    mlp_norms: list[Tensor],
    last_norm: Tensor,
    packed: list[torch.classes.quantized.LinearPackedParamsBase],  # pyright: ignore[reportInvalidTypeForm]
    tensors: list[Tensor],
    reduce_range: bool,
    ids: list[int],
    cos_table: Tensor,
    sin_table: Tensor,
    padding: list[int],
    caches: list[Tensor],
    begin: int,
    heads: int,
    kv_heads: int,
    eps: float,
) -> Tensor:
    """One token for each lane, through all layers, the last norm and the head; writes each layer's keys and values at
    `begin`. Returns logits, float32 [lanes, vocab]; the last norm [lanes, hidden] where `places` name no head.

    kinds, places: of each layer's four products, then of the head's parts. cos_table, sin_table: [positions, head_dim],
    the sines of the first half negative. padding: places before each lane's first token; empty: none in any. caches: as
    in LeanForward.
    """
    lanes, width = len(ids), cos_table.shape[1]
    rotated, rows = heads + kv_heads, 1
    mask: Optional[Tensor] = None  # noqa: UP045  TorchScript reads it
    if len(padding) > 0:  # lanes of different length look at different places
        before = torch.tensor(padding)
        cos, sin = cos_table.index_select(0, begin - before), sin_table.index_select(0, begin - before)
        mask = (torch.arange(begin + 1) >= before.unsqueeze(1)).view([lanes, 1, 1, begin + 1])
        rows = lanes
    else:
        cos, sin = cos_table.narrow(0, begin, 1), sin_table.narrow(0, begin, 1)
    # Values go through the rotation with the rest, by an angle of 0, so that keys and values are written as one.
    wide = [rows, rotated, width]
    cos = torch.cat([cos.float().unsqueeze(1).expand(wide), torch.ones(rows, kv_heads, width)], 1)
    sin = torch.cat([sin.float().unsqueeze(1).expand(wide), torch.zeros(rows, kv_heads, width)], 1)
    x = F.embedding(torch.tensor(ids), embedding).float()
    dtype = caches[0].dtype
    for i in range(len(norms)):
        qkv = product(kinds[4 * i], rms_norm(x, norms[i], eps), packed, tensors, places[4 * i], reduce_range)
        qkv = qkv.view([lanes, -1, width])
        if len(q_norms) > 0:
            q = rms_norm(qkv.narrow(1, 0, heads).reshape([-1, width]), q_norms[i], eps).reshape([lanes, heads, width])
            k = rms_norm(qkv.narrow(1, heads, kv_heads).reshape([-1, width]), k_norms[i], eps)
            qkv = torch.cat([q, k.reshape([lanes, kv_heads, width]), qkv.narrow(1, rotated, kv_heads)], 1)
        qkv = torch.addcmul(qkv * cos, qkv.roll([width // 2], [-1]), sin).to(dtype)
        caches[i].select(2, begin).copy_(qkv.narrow(1, heads, 2 * kv_heads))
        seen = caches[i].narrow(2, 0, begin + 1)
        # The heads of a group stand as rows of one query, so grouped heads need no copy of keys and values.
        query = qkv.narrow(1, 0, heads).reshape([lanes, kv_heads, heads // kv_heads, width])
        keys, values = seen.narrow(1, 0, kv_heads), seen.narrow(1, kv_heads, kv_heads)
        mixed = F.scaled_dot_product_attention(query, keys, values, mask).reshape([lanes, -1]).to(x.dtype)
        x = x + product(kinds[4 * i + 1], mixed, packed, tensors, places[4 * i + 1], reduce_range)
        normed = rms_norm(x, mlp_norms[i], eps)
        both = product(kinds[4 * i + 2], normed, packed, tensors, places[4 * i + 2], reduce_range)
        half = both.shape[1] // 2
        inner = F.silu(both.narrow(1, 0, half)) * both.narrow(1, half, half)
        x = x + product(kinds[4 * i + 3], inner, packed, tensors, places[4 * i + 3], reduce_range)
    x = rms_norm(x, last_norm, eps)
    parts: list[Tensor] = []
    for i in range(4 * len(norms), len(places)):
        parts.append(product(kinds[i], x, packed, tensors, places[i], reduce_range))
    return torch.cat(parts, 1) if len(parts) > 1 else parts[0] if len(parts) == 1 else x


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


Step = Callable[[list[int], Tensor, Tensor, list[int], list[Tensor], int, int, int, float], Tensor]


def scripted_step(embedding: Tensor, layers: list[Any], last_norm: Tensor, head: Any = None) -> Step | None:
    """A function of (ids, cos_table, sin_table, padding, caches, begin, heads, kv_heads, eps) for a model's embedding,
    these packed layers of lean.py, the norm behind them and the head; see `step`.

    None where a product is of another kernel, was packed in parts or has a bias beside it, or nothing can be scripted.
    """
    products = [product for layer in layers for product in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    every = [*products, head] if head is not None else products
    if any(getattr(each, "kernel", "") not in KINDS for each in every) or (script := _scripted()) is None:
        return None
    kinds, places = [], []
    packed: list[Any] = []
    tensors: list[Tensor] = []
    for each in every:
        parts = each.script_parts()
        if parts is None or (each is not head and len(parts[0]) > 1):
            return None
        for at in range(max(1, len(parts[0]))):
            kinds.append(KINDS[each.kernel])
            places.append(len(packed) + at if parts[0] else len(tensors) // 2)
        packed += parts[0]
        tensors += parts[1]

    def twice(norms: list[Tensor | None]) -> list[Tensor]:
        return [torch.cat((norm, norm)) for norm in norms if norm is not None]

    norms, mlp_norms = twice([layer.norm for layer in layers]), twice([layer.mlp_norm for layer in layers])
    q_norms, k_norms = twice([layer.q_norm for layer in layers]), twice([layer.k_norm for layer in layers])
    last = torch.cat((last_norm, last_norm))
    reduce_range = not torch.cpu._is_vnni_supported()

    def run(
        ids: list[int], cos_table: Tensor, sin_table: Tensor, padding: list[int], caches: list[Tensor],
        begin: int, heads: int, kv_heads: int, eps: float,
    ) -> Tensor:  # fmt: skip
        return script(
            kinds, places, embedding, norms, q_norms, k_norms, mlp_norms, last, packed, tensors, reduce_range,
            ids, cos_table, sin_table, padding, caches, begin, heads, kv_heads, eps,
        )  # fmt: skip

    return run
