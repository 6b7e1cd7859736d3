"""A lean forward of the Llama family (llama, mistral without a window, qwen2, qwen3), equal to transformers' own.

What it leaves out is overhead: the cache is allocated once and written in place instead of grown by concatenation,
masks and rotary tables are made once, grouped heads are not repeated. The mathematics is that of transformers'
modelling files, and the weights are the model's own tensors. Fusing query, key and value (and gate and up) into one
product was tried: no gain on one thread here, and it copied two thirds of the weights that otherwise stay mapped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  the field's name for it

from engine.errors import Cancelled

FAMILIES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
SENTENCE = "lean: our forward of the Llama family, with a cache that is allocated ahead"
STATIC_ROPE = ("default", "linear", "llama3", "yarn")  # those whose frequencies do not change with the length
SPARE_TOKENS = 64
# From so many rows on, products of 16-bit weights on a processor that has none are made in float32, layer by layer:
# reading 512 tokens in bfloat16 took 12.3 s of processor time on AVX2 that way, and 2.4 s in float32.
WIDE_TOKENS = 24


def why_not(model: Any) -> str:
    """Why this model takes the general path, or "" when the lean one applies."""
    config = model.config
    if type(model).__name__ not in FAMILIES:
        return f"the lean path does not know {config.model_type}"
    if getattr(config, "sliding_window", None) and "sliding_attention" in (getattr(config, "layer_types", None) or ()):
        return "some layers look through a sliding window"
    if type(model).__name__ == "MistralForCausalLM" and getattr(config, "sliding_window", None):
        return "its layers look through a sliding window"
    if config._attn_implementation != "sdpa":
        return f"{config._attn_implementation} attention was asked for"
    if config.hidden_act != "silu":
        return f"its activation is {config.hidden_act}"
    if config.rope_parameters.get("rope_type", "default") not in STATIC_ROPE:
        return "its rotary frequencies change with the length"
    devices = {parameter.device for parameter in model.parameters()}
    if len(devices) != 1 or next(iter(devices)).type == "meta":
        return "its layers lie on several devices"
    if any(hasattr(module, "_hf_hook") for module in model.modules()):
        return "its layers are moved between devices"
    linears = [m for m in model.modules() if isinstance(m, torch.nn.Linear)]
    if any(type(m) is not torch.nn.Linear for m in linears) or getattr(config, "quantization_config", None):
        return "its layers are quantised"
    return ""


Linear = tuple[Tensor, Tensor | None]  # weight [out, in] and bias [out]


@dataclass(eq=False, slots=True)
class Layer:
    """One layer's weights, the model's own tensors. Norms of query and key: qwen3."""

    norm: Tensor
    q: Linear
    k: Linear
    v: Linear
    q_norm: Tensor | None
    k_norm: Tensor | None
    out: Linear
    mlp_norm: Tensor
    gate: Linear
    up: Linear
    down: Linear

    @classmethod
    def of(cls, layer: Any) -> Layer:
        attention, mlp = layer.self_attn, layer.mlp
        return cls(
            norm=layer.input_layernorm.weight,
            q=_linear(attention.q_proj),
            k=_linear(attention.k_proj),
            v=_linear(attention.v_proj),
            q_norm=attention.q_norm.weight if hasattr(attention, "q_norm") else None,
            k_norm=attention.k_norm.weight if hasattr(attention, "k_norm") else None,
            out=_linear(attention.o_proj),
            mlp_norm=layer.post_attention_layernorm.weight,
            gate=_linear(mlp.gate_proj),
            up=_linear(mlp.up_proj),
            down=_linear(mlp.down_proj),
        )

    def widened(self) -> Layer:
        """The same in float32."""
        return Layer(*(_floats(getattr(self, name)) for name in self.__slots__))


def _floats(part: Any) -> Any:
    if isinstance(part, tuple):
        return tuple(_floats(tensor) for tensor in part)
    return part if part is None else part.float()


def _has_products_in(dtype: torch.dtype) -> bool:
    """Whether this processor multiplies matrices in this type; otherwise torch emulates, several times slower."""
    if dtype == torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    if dtype == torch.float16:
        return torch.ops.mkldnn._is_mkldnn_fp16_supported()
    return True


def never() -> bool:
    return False


def _linear(module: torch.nn.Linear) -> Linear:
    return module.weight, module.bias


class LeanForward:
    """One run's forward and its KV cache. Same promises as GeneralForward."""

    def __init__(self, model: Any, expected_tokens: int = 0) -> None:
        config, body, head = model.config, model.model, model.get_output_embeddings()
        self.layers = [Layer.of(layer) for layer in body.layers]
        self.embedding, self.norm, self.head = body.embed_tokens.weight, body.norm.weight, _linear(head)
        self.rotary, self.eps = body.rotary_emb, config.rms_norm_eps
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.device, self.dtype = self.embedding.device, self.embedding.dtype
        self._wide = self.device.type == "cpu" and not _has_products_in(self.dtype)
        self.lanes = 1
        self.used = 0  # tokens in the cache
        self.capacity = 0
        self._keys: list[Tensor] = []  # per layer [lanes, kv_heads, capacity, head_dim]
        self._values: list[Tensor] = []
        self._cos = self._sin = torch.empty(0)
        self._reserve(max(expected_tokens, SPARE_TOKENS))

    def in_one_piece(self, prompt_tokens: int) -> bool:
        """A prompt may be read in pieces, whatever its length."""
        return False

    def read(self, ids: list[int], cancelled: Callable[[], bool] = never) -> np.ndarray:
        """Prefill: reads more of the prompt. Returns the logits after its last token, float32 [vocab].

        cancelled is asked before each layer; raises Cancelled when it says so, and the cache is then of no use.
        """
        with torch.inference_mode():
            return self._run(torch.tensor([ids], device=self.device), cancelled)[0].numpy()

    def step(self, ids: list[int]) -> np.ndarray:
        """Decode: one token for each lane. Returns float32 [lanes, vocab]."""
        with torch.inference_mode():
            return self._run(torch.tensor(ids, device=self.device).unsqueeze(1)).numpy()

    def share(self, lanes: int) -> None:
        """After the prefill: as many lanes go on from it, each with entries of its own (CAC-3)."""
        if lanes > 1:
            self._rebuild(lanes, self.capacity, lambda old: old.expand(lanes, -1, -1, -1))
        self.lanes = lanes

    def keep(self, rows: list[int]) -> None:
        """Drops the lanes that are over."""
        if len(rows) != self.lanes:
            index = torch.tensor(rows, device=self.device)
            self._rebuild(len(rows), self.capacity, lambda old: old[index])
            self.lanes = len(rows)

    def kv_bytes(self) -> tuple[int, int]:
        """One lane's bytes: in use, and allocated."""
        per_token = 2 * len(self.layers) * self.kv_heads * self.head_dim * self.dtype.itemsize
        return per_token * self.used, per_token * self.capacity

    def _run(self, ids: Tensor, cancelled: Callable[[], bool] = never) -> Tensor:
        """ids: [lanes, tokens]. Returns the last token's logits, float32 [lanes, vocab] on the CPU."""
        lanes, count = ids.shape
        begin, end = self.used, self.used + count
        if end > self.capacity:
            self._reserve(max(end + SPARE_TOKENS, 2 * self.capacity))
        groups = self.heads // self.kv_heads
        width, half = self.head_dim, self.head_dim // 2
        cos, sin = self._cos[begin:end, None], self._sin[begin:end, None]  # [tokens, 1, head_dim]
        # A later chunk of a prompt sees all that came before it and itself as a triangle.
        mask = None
        if count > 1 and begin:
            mask = torch.ones(count, end, dtype=torch.bool, device=self.device).tril(begin)
        x = F.embedding(ids, self.embedding)  # [lanes, tokens, hidden]
        hidden = (x.shape[-1],)
        wide = self._wide and lanes * count >= WIDE_TOKENS
        if wide:
            x, cos, sin = x.float(), cos.float(), sin.float()
        for layer, keys, values in zip(self.layers, self._keys, self._values, strict=True):
            if cancelled():
                raise Cancelled
            if wide:
                layer = layer.widened()
            normed = F.rms_norm(x, hidden, layer.norm, self.eps)
            q = F.linear(normed, *layer.q).view(lanes, count, self.heads, width)
            k = F.linear(normed, *layer.k).view(lanes, count, self.kv_heads, width)
            v = F.linear(normed, *layer.v).view(lanes, count, self.kv_heads, width)
            if layer.q_norm is not None and layer.k_norm is not None:
                q = F.rms_norm(q, (width,), layer.q_norm, self.eps)
                k = F.rms_norm(k, (width,), layer.k_norm, self.eps)
            qk = torch.cat((q, k), dim=2)  # rotated together
            qk = qk * cos + torch.cat((-qk[..., half:], qk[..., :half]), dim=-1) * sin
            keys[:, :, begin:end] = qk[:, :, self.heads :].transpose(1, 2)
            values[:, :, begin:end] = v.transpose(1, 2)
            seen, seen_values = keys[:, :, :end].to(x.dtype), values[:, :, :end].to(x.dtype)
            if count == 1:
                # The heads of a group stand as rows of one query, so grouped heads need no copy of keys and values.
                query = qk[:, 0, : self.heads].view(lanes, self.kv_heads, groups, width)
                mixed = F.scaled_dot_product_attention(query, seen, seen_values).reshape(lanes, 1, -1)
            else:
                query = qk[:, :, : self.heads].transpose(1, 2)
                mixed = F.scaled_dot_product_attention(
                    query, seen, seen_values, attn_mask=mask, is_causal=mask is None, enable_gqa=groups > 1
                )
                mixed = mixed.transpose(1, 2).reshape(lanes, count, -1)
            x = x + F.linear(mixed, *layer.out)
            normed = F.rms_norm(x, hidden, layer.mlp_norm, self.eps)
            x = x + F.linear(F.silu(F.linear(normed, *layer.gate)) * F.linear(normed, *layer.up), *layer.down)
        self.used = end
        last = F.rms_norm(x[:, -1].to(self.dtype), hidden, self.norm, self.eps)
        return F.linear(last, *self.head).float().cpu()

    def _reserve(self, capacity: int) -> None:
        """Room for so many tokens; what is there is kept."""
        if not self._keys:
            empty = torch.empty(self.lanes, self.kv_heads, 0, self.head_dim, dtype=self.dtype, device=self.device)
            self._keys, self._values = [empty] * len(self.layers), [empty] * len(self.layers)
        self._rebuild(self.lanes, capacity, lambda old: old)
        with torch.inference_mode():
            positions = torch.arange(capacity, device=self.device).unsqueeze(0)
            cos, sin = self.rotary(torch.empty(0, dtype=self.dtype, device=self.device), positions)
            self._cos, self._sin = cos[0], sin[0]

    def _rebuild(self, lanes: int, capacity: int, rows: Any) -> None:
        """New tensors layer by layer, so that at most one layer's entries lie in memory twice."""
        used = self.used
        with torch.inference_mode():
            for tensors in (self._keys, self._values):
                for at, old in enumerate(tensors):
                    new = torch.empty(
                        lanes, self.kv_heads, capacity, self.head_dim, dtype=self.dtype, device=self.device
                    )
                    new[:, :, :used] = rows(old[:, :, :used])
                    tensors[at] = new
        self.capacity = capacity
