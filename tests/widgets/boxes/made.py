"""An outline and a table of weights with the default model's figures, for tests of pages."""

from __future__ import annotations

from engine import events as ev

PATH = "models/SmolLM2-135M-Instruct"


def linear(name: str, path: str, rows: int, columns: int, role: str) -> ev.Module:
    leaf = ev.Leaf("weight", (rows, columns), rows * columns, 2 * rows * columns, role)
    return ev.Module(name, f"{path}.{name}", "Linear", leaf.numel, leaf.predicted_bytes, (), (leaf,))


def module(name: str, path: str, kind: str, parts: tuple, numbers: tuple = (), leaves: tuple = ()) -> ev.Module:
    times = [max(1, len(part.numbers)) for part in parts]
    parameters = sum(p.parameters * n for p, n in zip(parts, times, strict=True)) + sum(
        leaf.numel for leaf in leaves if not leaf.tied_to
    )
    return ev.Module(name, path, kind, parameters, 2 * parameters, numbers, leaves, parts)


def tree() -> ev.Module:
    inside = "model.layers.{}"
    attention = module(
        "self_attn",
        f"{inside}.self_attn",
        "LlamaAttention",
        tuple(
            linear(name, f"{inside}.self_attn", rows, 576, "attention")
            for name, rows in (("q_proj", 576), ("k_proj", 192), ("v_proj", 192), ("o_proj", 576))
        ),
    )
    mlp = module(
        "mlp",
        f"{inside}.mlp",
        "LlamaMLP",
        (
            linear("gate_proj", f"{inside}.mlp", 1536, 576, "feed-forward"),
            linear("up_proj", f"{inside}.mlp", 1536, 576, "feed-forward"),
            linear("down_proj", f"{inside}.mlp", 576, 1536, "feed-forward"),
        ),
    )
    layer = module("{}", inside, "LlamaDecoderLayer", (attention, mlp), tuple(range(30)))
    layers = module("layers", "model.layers", "ModuleList", (layer,))
    embedding = linear("embed_tokens", "model", 49_152, 576, "embedding")
    model = module("model", "model", "LlamaModel", (embedding, layers))
    tied = ev.Leaf("weight", (49_152, 576), 49_152 * 576, 0, "", "model.embed_tokens.weight")
    head = module("lm_head", "lm_head", "Linear", (), leaves=(tied,))
    return module("", "", "LlamaForCausalLM", (model, head))


def outline(**changes: object) -> ev.Outline:
    values: dict = {
        "name": "SmolLM2-135M-Instruct", "path": PATH, "source": "config.json",
        "raw": '{"model_type": "llama",\n "模型": "🦜"}', "family": "llama", "architecture": "LlamaForCausalLM",
        "precision": "bfloat16", "layers": 30, "heads": 9, "kv_heads": 3, "head_size": 64, "hidden_size": 576,
        "feed_forward_size": 1536, "vocab_size": 49_152, "context_tokens": 8192, "tied": True,
        "parameters": 134_515_008, "parameters_per_token": 134_515_008, "experts": 0, "experts_per_token": 0,
        "rope_base": 100_000.0, "rope_kind": "default", "rope_factor": 0.0, "activation": "silu",
        "windows": ((None, 30),), "other_layers": 0, "dtype_files": ("bfloat16",), "dtype_config": "bfloat16",
        "quantisation": "", "shares": (("feed-forward", 79_626_240), ("embedding", 28_311_552),
                                       ("attention", 26_542_080), ("norms", 35_136)),
        "ends": (("config.json", (2,)), ("generation_config.json", (2,))), "licence": "apache-2.0",
        "predicted_bytes": 269_030_272, "tree": tree(),
    }  # fmt: skip
    return ev.Outline(**(values | changes))


def row(name: str, mark: str = "", note: str = "", file: str = "model-00001-of-00002.safetensors") -> ev.TensorRow:
    return ev.TensorRow(name, file, "bfloat16", (576, 576), 663_552, mark, note)


def table(**changes: object) -> ev.WeightsTable:
    values: dict = {
        "path": PATH,
        "kind": "safetensors",
        "loaded": True,
        "shards": (
            ev.ShardRead("model-00001-of-00002.safetensors", 0, 200_000_000, 200_000_000, 100.0),
            ev.ShardRead("model-00002-of-00002.safetensors", 1, 69_000_000, 69_000_000, 23.0),
        ),
        "tensors": (
            row("model.layers.0.self_attn.q_proj.weight"),
            row("model.layers.1.self_attn.q_proj.weight", file="model-00002-of-00002.safetensors"),
            row("model.extra.weight", "unexpected", "no part of the model takes it"),
            ev.TensorRow("lm_head.weight", "", "", (49_152, 576), 0, "tied", "model.embed_tokens.weight"),
            ev.TensorRow("model.norm.weight", "", "", (576,), 0, "missing", "no file holds it"),
        ),
    }
    return ev.WeightsTable(**(values | changes))


def histogram(**changes: object) -> ev.Histogram:
    linear_counts = [0] * ev.BINS
    linear_counts[31], linear_counts[0], linear_counts[63] = 900, 40, 56
    sizes = [0] * ev.BINS
    sizes[10] = 996
    values: dict = {
        "tensor": "model.layers.0.self_attn.q_proj.weight", "source": "memory", "dtype": "bfloat16",
        "shape": (576, 576), "numel": 1003, "low": -1.5, "high": 2.5, "mean": -0.0005, "std": 0.1356, "zeros": 4,
        "nans": 2, "infinities": 1, "linear": tuple(linear_counts), "by_size": tuple(sizes),
        "exponents": (-20.0, 2.0), "elapsed_ms": 12.0,
    }  # fmt: skip
    return ev.Histogram(**(values | changes))
