"""A lean forward of the Llama family (llama, mistral without a window, qwen2, qwen3), equal to transformers' own.

What it leaves out is overhead: the cache is allocated once and written in place instead of grown by concatenation,
masks and rotary tables are made once, grouped heads are not repeated, and products that read the same input are one.
The mathematics is that of transformers' modelling files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  the field's name for it

from engine.errors import Cancelled
from engine.kernels import Linear, Product, pack, part_of, stream_dtype, torch_threads
from engine.large_pages import allocated, enlarge
from engine.lean_step import Step, scripted_step
from engine.pace import Pace
from engine.readings import forget_pages, mapped_ranges
from engine.smoothing import largest_inputs, smoothed

FAMILIES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
SENTENCE = "lean: our forward of the Llama family, with a cache that is allocated ahead"
STATIC_ROPE = ("default", "linear", "llama3", "yarn")  # those whose frequencies do not change with the length
SPARE_TOKENS = 64
WIDE_ROWS = 32  # from so many rows on, products are bound by arithmetic and no longer by reading the weights


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


def groups(layer: Any) -> list[list[Linear]]:
    """A layer's linear layers, those together that read the same input: query-key-value, out, gate-up, down."""
    attention, mlp = layer.self_attn, layer.mlp
    return [
        [_linear(attention.q_proj), _linear(attention.k_proj), _linear(attention.v_proj)],
        [_linear(attention.o_proj)],
        [_linear(mlp.gate_proj), _linear(mlp.up_proj)],
        [_linear(mlp.down_proj)],
    ]


def _linear(module: torch.nn.Linear) -> Linear:
    return module.weight, module.bias


@dataclass(eq=False, slots=True)
class Layer:
    """One layer as the forward runs it. Norms of query and key: qwen3."""

    norm: Tensor
    qkv: Product
    q_norm: Tensor | None
    k_norm: Tensor | None
    out: Product
    mlp_norm: Tensor
    gate_up: Product
    down: Product

    @classmethod
    def of(
        cls, layer: Any, kernel: str, dtype: torch.dtype, widen: bool = False,
        inputs: tuple[Tensor, Tensor] | None = None,
    ) -> Layer:  # fmt: skip
        """dtype: of the activations between the products. widen: the weights in float32, for one use. inputs: how large
        the channels before query-key-value and gate-up become, where that is to be evened out."""
        attention, parts = layer.self_attn, groups(layer)
        norm, mlp_norm = layer.input_layernorm.weight, layer.post_attention_layernorm.weight
        if widen:
            parts = [[(w.float(), None if b is None else b.float()) for w, b in group] for group in parts]
        if inputs is not None:
            norm, parts[0] = smoothed(norm, parts[0], inputs[0])
            mlp_norm, parts[2] = smoothed(mlp_norm, parts[2], inputs[1])
        names = ("qkv", "out", "gate_up", "down")
        qkv, out, gate_up, down = (pack(part_of(kernel, name), group) for name, group in zip(names, parts, strict=True))
        return cls(
            norm=norm.to(dtype),
            qkv=qkv,
            q_norm=attention.q_norm.weight.to(dtype) if hasattr(attention, "q_norm") else None,
            k_norm=attention.k_norm.weight.to(dtype) if hasattr(attention, "k_norm") else None,
            out=out,
            mlp_norm=mlp_norm.to(dtype),
            gate_up=gate_up,
            down=down,
        )


@dataclass(eq=False)
class LeanWeights:
    """What the lean forward reads: packed once per session, shared by its runs.

    Packed weights stand beside the model's own, which stay mapped from their file and cost no memory until they are
    read. wide: how many rows at once are computed, "packed" as one row, "plain" or "float32" from the model's own.
    """

    model: Any
    kernel: str
    layers: list[Layer]
    head: Product
    final_norm: Tensor
    stream: torch.dtype  # of the activations between products
    wide: str = "packed"
    compiled: tuple[Any, Any] | None = None  # before_attention and after_attention for one row, by torch.compile
    step: Step | None = None  # a whole step in one call; None: layer by layer
    threads: tuple[int, int] = (0, 0)  # torch's, for one lane and for several; 0: as many as it has
    mapped: list[tuple[int, int]] = field(default_factory=list)  # where the weight files are in memory
    paces: dict[bool, Pace] = field(default_factory=dict)  # by whether several lanes are computed

    @property
    def packed_bytes(self) -> int:
        """Memory of the packed copies; 0 where the model's own weights are used."""
        return sum(product.nbytes for product in self._products())

    @property
    def read_bytes(self) -> int:
        """Of the packed copies in a step, without what only fills up."""
        return sum(product.read_bytes for product in self._products())

    def _products(self) -> list[Any]:
        of_layers = [each for layer in self.layers for each in (layer.qkv, layer.out, layer.gate_up, layer.down)]
        return [*of_layers, self.head]

    def pace(self, rows: int) -> AbstractContextManager[None]:
        """Around a step of so many rows: as many threads as were measured, or as are found to be faster since.

        A kernel whose sums depend on the number of threads keeps it, so that the same seed writes the same text.
        """
        several = rows > 1
        if self.step is None:
            return torch_threads(self.threads[several])
        if several not in self.paces:
            self.paces[several] = Pace(self.threads[several])
        return self.paces[several].step(rows)

    def wide_layers(self) -> Iterator[Layer]:
        """The layers for many rows, one after another; the file's pages that a layer touched are let go after it."""
        widen = self.wide == "float32"
        dtype = torch.float32 if widen else self.model.get_input_embeddings().weight.dtype
        for layer in self.model.model.layers[: len(self.layers)]:
            yield Layer.of(layer, "plain", dtype, widen)
            if self.kernel != "plain":
                for parameter in layer.parameters():
                    forget_pages(parameter, self.mapped)


def pack_model(
    model: Any, kernel: str = "plain", wide: str = "packed", tell: Callable[[int, int], None] = lambda done, of: None
) -> LeanWeights:
    """The model's weights as the kernel wants them, layer by layer: one layer's originals lie in memory.

    tell: called before each layer with (layers done, layers); may raise Cancelled.
    """
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings()
    dtype = stream_dtype(kernel, embedding.dtype)
    mapped, before = ([], []) if kernel == "plain" else (mapped_ranges(), allocated())
    layers, count = [], len(model.model.layers)
    inputs = largest_inputs(model, mapped, lambda: tell(0, count)) if kernel == "int8-smoothed" else None
    with torch.inference_mode():
        for number, layer in enumerate(model.model.layers):
            tell(number, count)
            layers.append(Layer.of(layer, kernel, dtype, inputs=inputs[number] if inputs else None))
            for parameter in layer.parameters():
                forget_pages(parameter, mapped)
        packed_head = pack(part_of(kernel, "head"), [_linear(head)])
        forget_pages(head.weight, mapped)
        if kernel != "plain":
            enlarge(before, lambda done: tell(count - 1, count))
        norm = model.model.norm.weight.to(dtype)
        step = scripted_step(embedding, layers, norm, packed_head)
        return LeanWeights(model, kernel, layers, packed_head, norm, dtype, wide, step=step, mapped=mapped)


def trial_of(model: Any, sample_bytes: int) -> Callable[[str, str], Callable[[int], object]]:
    """For trying kernels: packs the first layers, and runs them without a head for a number of rows.

    Few rows are one token of as many lanes, many are a prompt.
    """
    layers = model.model.layers
    each = sum(parameter.numel() * parameter.element_size() for parameter in layers[0].parameters())
    count = min(len(layers), max(1, sample_bytes // max(1, each)))

    def trial(kernel: str, wide: str) -> Callable[[int], object]:
        embedding = model.get_input_embeddings().weight
        dtype = stream_dtype(kernel, embedding.dtype)
        packed = [Layer.of(layer, kernel, dtype) for layer in layers[:count]]
        norm = model.model.norm.weight.to(dtype)
        step = scripted_step(embedding, packed, norm)
        no_head: Any = lambda x: x  # noqa: E731
        weights = LeanWeights(model, kernel, packed, no_head, norm, dtype, wide, step=step)

        def run(rows: int) -> object:
            forward = LeanForward(weights, 1)
            if rows >= WIDE_ROWS:
                return forward.read([0] * rows)
            forward.share(rows)
            return forward.step([0] * rows)

        return run

    return trial


def before_attention(
    x: Tensor, layer: Layer, cos: Tensor, sin: Tensor, heads: int, kv_heads: int, eps: float
) -> tuple[Tensor, Tensor]:
    """Queries and keys, rotated, side by side: [lanes, tokens, heads + kv_heads, head_dim]; and the values.

    x: [lanes, tokens, hidden]. cos, sin: [tokens, 1, head_dim], the sines of the first half negative.
    """
    lanes, count, hidden = x.shape
    width = cos.shape[-1]
    qkv = layer.qkv(F.rms_norm(x, (hidden,), layer.norm, eps)).view(lanes, count, -1, width)
    qk = qkv[:, :, : heads + kv_heads]
    if layer.q_norm is not None and layer.k_norm is not None:
        q = F.rms_norm(qk[:, :, :heads], (width,), layer.q_norm, eps)
        qk = torch.cat((q, F.rms_norm(qk[:, :, heads:], (width,), layer.k_norm, eps)), dim=2)
    return qk * cos + qk.roll(width // 2, -1) * sin, qkv[:, :, heads + kv_heads :]


def after_attention(x: Tensor, mixed: Tensor, layer: Layer, eps: float) -> Tensor:
    """What attention gave goes into the stream, then the feed-forward part's share. mixed: [lanes, tokens, …]."""
    x = x + layer.out(mixed)
    gate, up = layer.gate_up(F.rms_norm(x, x.shape[-1:], layer.mlp_norm, eps)).chunk(2, dim=-1)
    return x + layer.down(F.silu(gate) * up)


def never() -> bool:
    return False


class LeanForward:
    """One run's forward and its KV cache. Same promises as GeneralForward."""

    def __init__(self, weights: LeanWeights, expected_tokens: int = 0) -> None:
        model = weights.model
        config = model.config
        self.weights = weights
        self.embedding = model.get_input_embeddings().weight
        self.rotary, self.eps = model.model.rotary_emb, config.rms_norm_eps
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.device, self.dtype = self.embedding.device, self.embedding.dtype
        self.lanes = 1
        self.used = 0  # places of the cache that are taken
        self.padding: list[int] = []  # places before each lane's first token; empty: none in any
        self.capacity = 0
        self._caches: list[Tensor] = []  # per layer [lanes, 2 · kv_heads, capacity, head_dim]: keys, then values
        self._cos = self._sin = torch.empty(0)
        self.reserve(max(expected_tokens, SPARE_TOKENS))

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
        weights = self.weights
        with torch.inference_mode(), weights.pace(len(ids)):
            if weights.step is None:
                return self._run(torch.tensor(ids, device=self.device).unsqueeze(1)).numpy()
            begin = self.used
            self._make_room(begin + 1)
            logits = weights.step(
                ids, self._cos, self._sin, self.padding, self._caches, begin, self.heads, self.kv_heads, self.eps
            )
            self.used = begin + 1
            return logits.numpy()

    def share(self, lanes: int) -> None:
        """After the prefill: as many lanes go on from it, each with entries of its own (CAC-3)."""
        if lanes > 1:
            self._rebuild(lanes, self.capacity, lambda old: old.expand(lanes, -1, -1, -1))
            self.padding = self.padding * lanes
        self.lanes = lanes

    def join(self, other: LeanForward) -> bool:
        """Takes another forward's lanes behind its own. The shorter ones are padded on the left, by zeros that no lane
        looks at, and keep their own positions (CAC-6)."""
        used = max(self.used, other.used)
        padding = [used - mine for each in (self, other) for mine in each.lane_tokens()]
        capacity = max(self.capacity, other.capacity, used + SPARE_TOKENS)
        with torch.inference_mode():
            for at, (old, theirs) in enumerate(zip(self._caches, other._caches, strict=True)):
                new = self._empty(self.lanes + other.lanes, capacity)
                new[:, :, :used] = 0
                new[: self.lanes, :, used - self.used : used] = old[:, :, : self.used]
                new[self.lanes :, :, used - other.used : used] = theirs[:, :, : other.used]
                self._caches[at] = new
        self.lanes, self.used, self.capacity = self.lanes + other.lanes, used, capacity
        self.padding = padding if any(padding) else []
        self._tables(capacity)
        return True

    def copy(self, row: int, tokens: int) -> LeanForward:
        """One lane's first `tokens` tokens, in a cache of its own."""
        mine = LeanForward(self.weights, tokens)
        begin = self.padding[row] if self.padding else 0
        with torch.inference_mode():
            for old, new in zip(self._caches, mine._caches, strict=True):
                new[0, :, :tokens] = old[row, :, begin : begin + tokens]
        mine.used = tokens
        return mine

    def lane_tokens(self) -> list[int]:
        """How many tokens each lane's cache holds."""
        return [self.used - padding for padding in self.padding or [0] * self.lanes]

    def keep(self, rows: list[int]) -> None:
        """Drops the lanes that are over."""
        if len(rows) != self.lanes:
            index = torch.tensor(rows, device=self.device)
            padding = [self.padding[row] for row in rows] if self.padding else [0] * len(rows)
            spare = min(padding)  # the longest lane went: all move to the left
            self._rebuild(len(rows), self.capacity, lambda old: old[index], spare)
            self.lanes = len(rows)
            self.padding = [each - spare for each in padding] if max(padding) > spare else []

    @property
    def tokens(self) -> int:
        """How many tokens the longest lane's cache holds."""
        return self.used

    def crop(self, tokens: int) -> bool:
        """Forgets all after the first `tokens` tokens. Always possible here."""
        self.used = min(self.used, tokens)
        return True

    def kv_bytes(self) -> list[tuple[int, int]]:
        """Each lane's bytes: in use, and allocated."""
        per_token = 2 * len(self._caches) * self.kv_heads * self.head_dim * self.dtype.itemsize
        return [(per_token * tokens, per_token * self.capacity) for tokens in self.lane_tokens()]

    def _run(self, ids: Tensor, cancelled: Callable[[], bool] = never) -> Tensor:
        """ids: [lanes, tokens]. Returns the last token's logits, float32 [lanes, vocab] on the CPU."""
        lanes, count = ids.shape
        begin, end = self.used, self.used + count
        self._make_room(end)
        weights = self.weights
        stream, layers = weights.stream, iter(weights.layers)
        if lanes * count >= WIDE_ROWS and weights.wide != "packed":
            stream, layers = (torch.float32 if weights.wide == "float32" else self.dtype), weights.wide_layers()
        # [tokens, 1, head_dim]
        cos, sin = self._cos[begin:end, None].to(stream), self._sin[begin:end, None].to(stream)
        mask = None
        if self.padding:  # lanes of different length, one token each: [lanes, 1, 1, head_dim] and [lanes, 1, 1, places]
            padding = torch.tensor(self.padding, device=self.device)
            cos, sin = (table[begin - padding][:, None, None].to(stream) for table in (self._cos, self._sin))
            mask = (torch.arange(end, device=self.device) >= padding[:, None])[:, None, None]
        # A later chunk of a prompt sees all that came before it and itself as a triangle.
        if count > 1 and begin:
            mask = torch.ones(count, end, dtype=torch.bool, device=self.device).tril(begin)
        x = F.embedding(ids, self.embedding).to(stream)  # [lanes, tokens, hidden]
        x = self._through(layers, x, cos, sin, mask, begin, cancelled)
        last = F.rms_norm(x[:, -1].to(weights.stream), x.shape[-1:], weights.final_norm, self.eps)
        self.used = end
        return weights.head(last).float().cpu()

    def _through(
        self,
        layers: Iterator[Layer],
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        mask: Tensor | None,
        begin: int,
        cancelled: Callable[[], bool],
    ) -> Tensor:
        """Layer by layer. x: [lanes, tokens, hidden]."""
        weights, stream = self.weights, x.dtype
        lanes, count, _ = x.shape
        end, groups, width = begin + count, self.heads // self.kv_heads, self.head_dim
        before, after = weights.compiled or (before_attention, after_attention)
        if lanes * count > 1:
            before, after = before_attention, after_attention
        for layer, cache in zip(layers, self._caches, strict=True):
            if cancelled():
                raise Cancelled
            qk, v = before(x, layer, cos, sin, self.heads, self.kv_heads, self.eps)
            cache[:, : self.kv_heads, begin:end] = qk[:, :, self.heads :].transpose(1, 2)
            cache[:, self.kv_heads :, begin:end] = v.transpose(1, 2)
            seen, seen_values = cache[:, :, :end].chunk(2, dim=1)
            if count == 1:
                # The heads of a group stand as rows of one query, so grouped heads need no copy of keys and values.
                query = qk[:, 0, : self.heads].view(lanes, self.kv_heads, groups, width).to(self.dtype)
                mixed = F.scaled_dot_product_attention(query, seen, seen_values, attn_mask=mask)
                mixed = mixed.reshape(lanes, 1, -1).to(stream)
            else:
                query = qk[:, :, : self.heads].transpose(1, 2)
                mixed = F.scaled_dot_product_attention(
                    query, seen.to(stream), seen_values.to(stream),
                    attn_mask=mask, is_causal=mask is None, enable_gqa=groups > 1,
                )  # fmt: skip
                mixed = mixed.transpose(1, 2).reshape(lanes, count, -1)
            x = after(x, mixed, layer, self.eps)
        return x

    def _make_room(self, tokens: int) -> None:
        if tokens > self.capacity:
            self.reserve(max(tokens + SPARE_TOKENS, 2 * self.capacity))

    def reserve(self, capacity: int) -> None:
        """Room for so many tokens; what is there is kept."""
        if not self._caches:
            self._caches = [self._empty(self.lanes, 0)] * len(self.weights.layers)
        if capacity != self.capacity:
            self._rebuild(self.lanes, capacity, lambda old: old)
        self._tables(capacity)

    def _tables(self, capacity: int) -> None:
        """The rotary tables for so many positions."""
        if len(self._cos) < capacity:
            with torch.inference_mode():
                positions = torch.arange(capacity, device=self.device).unsqueeze(0)
                table_dtype = torch.float32 if self.weights.stream == torch.float32 else self.dtype
                cos, sin = self.rotary(torch.empty(0, dtype=table_dtype, device=self.device), positions)
                sin[..., : self.head_dim // 2].neg_()
                self._cos, self._sin = cos[0], sin[0]

    def _rebuild(self, lanes: int, capacity: int, rows: Callable[[Tensor], Tensor], spare: int = 0) -> None:
        """New tensors layer by layer, so that at most one layer's entries lie in memory twice. spare: places at the
        beginning that are left out."""
        used = self.used - spare
        with torch.inference_mode():
            for at, old in enumerate(self._caches):
                new = self._empty(lanes, capacity)
                new[:, :, :used] = rows(old[:, :, spare : self.used])
                self._caches[at] = new
        self.capacity, self.used = capacity, used

    def _empty(self, lanes: int, capacity: int) -> Tensor:
        """Room for one layer's keys and values."""
        return torch.empty(lanes, 2 * self.kv_heads, capacity, self.head_dim, dtype=self.dtype, device=self.device)
