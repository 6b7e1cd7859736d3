"""A lean forward of the Llama family (llama, mistral without a window, qwen2, qwen3), equal to transformers' own.

What it leaves out is overhead: the cache is allocated once and written in place instead of grown by concatenation,
masks and rotary tables are made once, query, key and value (and gate and up) are one product. The mathematics is that
of transformers' modelling files. Nothing is copied: the fused weights are the storage, and the model's own modules
become views of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  the field's name for it

FAMILIES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
SENTENCE = "lean: our forward of the Llama family, with fused products and a cache that is allocated ahead"
STATIC_ROPE = ("default", "linear", "llama3", "yarn")  # those whose frequencies do not change with the length
SPARE_TOKENS = 64


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


@dataclass(eq=False)
class Layer:
    """One layer's weights. qkv: [(heads + 2 kv_heads) * head_dim, hidden]; gate_up: [2 * intermediate, hidden]."""

    norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    mlp_norm: Tensor
    gate_up: Tensor
    gate_up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None


@dataclass(eq=False)
class LeanModel:
    """What a lean forward reads. Made once per session; shares its storage with the model."""

    layers: list[Layer]
    embedding: Tensor
    norm: Tensor
    head: Tensor
    head_bias: Tensor | None
    eps: float
    heads: int
    kv_heads: int
    head_dim: int
    rotary: Any  # the model's own rotary module

    @classmethod
    def of(cls, model: Any) -> LeanModel:
        """Fuses the model's weights in place, layer by layer, so that at most one layer lies in memory twice."""
        config, body = model.config, model.model
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        with torch.no_grad():
            layers = [_layer(layer) for layer in body.layers]
        head = model.get_output_embeddings()
        return cls(
            layers=layers,
            embedding=body.embed_tokens.weight,
            norm=body.norm.weight,
            head=head.weight,
            head_bias=head.bias,
            eps=config.rms_norm_eps,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=head_dim,
            rotary=body.rotary_emb,
        )


def _layer(layer: Any) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    qkv, qkv_bias = _fused(attention.q_proj, attention.k_proj, attention.v_proj)
    gate_up, gate_up_bias = _fused(mlp.gate_proj, mlp.up_proj)
    return Layer(
        norm=layer.input_layernorm.weight,
        qkv=qkv,
        qkv_bias=qkv_bias,
        q_norm=attention.q_norm.weight if hasattr(attention, "q_norm") else None,
        k_norm=attention.k_norm.weight if hasattr(attention, "k_norm") else None,
        out=attention.o_proj.weight,
        out_bias=attention.o_proj.bias,
        mlp_norm=layer.post_attention_layernorm.weight,
        gate_up=gate_up,
        gate_up_bias=gate_up_bias,
        down=mlp.down_proj.weight,
        down_bias=mlp.down_proj.bias,
    )


def _fused(*linears: torch.nn.Linear) -> tuple[Tensor, Tensor | None]:
    """One weight over several linear layers, which become views of it."""
    weight = torch.cat([linear.weight for linear in linears])
    biased = linears[0].bias is not None
    bias = torch.cat([linear.bias for linear in linears]) if biased else None
    at = 0
    for linear in linears:
        rows = linear.weight.shape[0]
        linear.weight.data = weight[at : at + rows]
        if bias is not None:
            linear.bias.data = bias[at : at + rows]
        at += rows
    return weight, bias


class LeanForward:
    """One run's forward and its KV cache. Same promises as GeneralForward."""

    def __init__(self, weights: LeanModel, expected_tokens: int = 0) -> None:
        w = self.weights = weights
        self.device, self.dtype = w.embedding.device, w.embedding.dtype
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

    def read(self, ids: list[int]) -> np.ndarray:
        """Prefill: reads more of the prompt. Returns the logits after its last token, float32 [vocab]."""
        with torch.inference_mode():
            return self._run(torch.tensor([ids], device=self.device))[0].numpy()

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
        w = self.weights
        per_token = 2 * len(w.layers) * w.kv_heads * w.head_dim * self.dtype.itemsize
        return per_token * self.used, per_token * self.capacity

    def _run(self, ids: Tensor) -> Tensor:
        """ids: [lanes, tokens]. Returns the last token's logits, float32 [lanes, vocab] on the CPU."""
        w = self.weights
        lanes, count = ids.shape
        begin, end = self.used, self.used + count
        if end > self.capacity:
            self._reserve(max(end + SPARE_TOKENS, 2 * self.capacity))
        groups = w.heads // w.kv_heads
        rotated, width = w.heads + w.kv_heads, w.head_dim
        half = width // 2
        cos, sin = self._cos[begin:end, None], self._sin[begin:end, None]  # [tokens, 1, head_dim]
        # A later chunk of a prompt sees all that came before it and itself as a triangle.
        mask = None
        if count > 1 and begin:
            mask = torch.ones(count, end, dtype=torch.bool, device=self.device).tril(begin)
        x = F.embedding(ids, w.embedding)  # [lanes, tokens, hidden]
        hidden = (x.shape[-1],)
        for layer, keys, values in zip(w.layers, self._keys, self._values, strict=True):
            qkv = F.linear(F.rms_norm(x, hidden, layer.norm, w.eps), layer.qkv, layer.qkv_bias)
            qkv = qkv.view(lanes, count, rotated + w.kv_heads, width)
            qk = qkv[:, :, :rotated]
            if layer.q_norm is not None and layer.k_norm is not None:
                q = F.rms_norm(qk[:, :, : w.heads], (width,), layer.q_norm, w.eps)
                qk = torch.cat((q, F.rms_norm(qk[:, :, w.heads :], (width,), layer.k_norm, w.eps)), dim=2)
            qk = qk * cos + torch.cat((-qk[..., half:], qk[..., :half]), dim=-1) * sin
            keys[:, :, begin:end] = qk[:, :, w.heads :].transpose(1, 2)
            values[:, :, begin:end] = qkv[:, :, rotated:].transpose(1, 2)
            seen, seen_values = keys[:, :, :end], values[:, :, :end]
            if count == 1:
                # The heads of a group stand as rows of one query, so grouped heads need no copy of keys and values.
                query = qk[:, 0, : w.heads].view(lanes, w.kv_heads, groups, width)
                mixed = F.scaled_dot_product_attention(query, seen, seen_values).reshape(lanes, 1, -1)
            else:
                query = qk[:, :, : w.heads].transpose(1, 2)
                mixed = F.scaled_dot_product_attention(
                    query, seen, seen_values, attn_mask=mask, is_causal=mask is None, enable_gqa=groups > 1
                )
                mixed = mixed.transpose(1, 2).reshape(lanes, count, -1)
            x = x + F.linear(mixed, layer.out, layer.out_bias)
            gate, up = F.linear(F.rms_norm(x, hidden, layer.mlp_norm, w.eps), layer.gate_up, layer.gate_up_bias).chunk(
                2, dim=-1
            )
            x = x + F.linear(F.silu(gate) * up, layer.down, layer.down_bias)
        self.used = end
        last = F.rms_norm(x[:, -1], hidden, w.norm, w.eps)
        return F.linear(last, w.head, w.head_bias).float().cpu()

    def _reserve(self, capacity: int) -> None:
        """Room for so many tokens; what is there is kept."""
        w = self.weights
        if not self._keys:
            empty = torch.empty(self.lanes, w.kv_heads, 0, w.head_dim, dtype=self.dtype, device=self.device)
            self._keys, self._values = [empty] * len(w.layers), [empty] * len(w.layers)
        self._rebuild(self.lanes, capacity, lambda old: old)
        with torch.inference_mode():
            positions = torch.arange(capacity, device=self.device).unsqueeze(0)
            cos, sin = w.rotary(torch.empty(0, dtype=self.dtype, device=self.device), positions)
            self._cos, self._sin = cos[0], sin[0]

    def _rebuild(self, lanes: int, capacity: int, rows: Any) -> None:
        """New tensors layer by layer, so that at most one layer's entries lie in memory twice."""
        w, used = self.weights, self.used
        with torch.inference_mode():
            for tensors in (self._keys, self._values):
                for at, old in enumerate(tensors):
                    new = torch.empty(lanes, w.kv_heads, capacity, w.head_dim, dtype=self.dtype, device=self.device)
                    new[:, :, :used] = rows(old[:, :, :used])
                    tensors[at] = new
        self.capacity = capacity
