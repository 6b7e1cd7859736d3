"""A model before its weights are read: config.json as numbers, and the folded tree of the empty model."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from engine.answers import answer
from engine.blueprint import read_blueprint
from engine.control import Control
from engine.errors import CannotLoad
from engine.events import LoadProgress, Outline
from engine.inside import Leaf, Module, OutlineQuestion
from engine.loading import load
from engine.outline import outline
from engine.settings import LoadPlan
from tests.tiny_models import FAMILIES, tiny_folder, tiny_model

# Llama-3.1-8B as its config.json has it; 8,030,261,248 parameters by its model card.
LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu",
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 128000, "eos_token_id": 128001,
    "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
}  # fmt: skip


def of(folder, precision: str | None = None) -> Outline:
    found = answer(OutlineQuestion(str(folder), precision), None, Control())
    assert isinstance(found, Outline)
    return found


def everything(module: Module, times: int = 1) -> Iterator[tuple[Leaf, int]]:
    """Every leaf and how often it is there."""
    times *= max(1, len(module.numbers))
    for leaf in module.leaves:
        yield leaf, times
    for part in module.parts:
        yield from everything(part, times)


def test_a_config_alone_tells_all_of_an_8b_model(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    o = of(tmp_path)
    assert o.parameters == 8_030_261_248
    assert o.predicted_bytes == 2 * 8_030_261_248 + table_bytes(o)
    assert (o.layers, o.heads, o.kv_heads, o.head_size, o.hidden_size) == (32, 32, 8, 128, 4096)
    assert (o.feed_forward_size, o.vocab_size, o.context_tokens, o.tied) == (14336, 128256, 131072, False)
    assert (o.rope_base, o.rope_kind, o.rope_factor) == (500000.0, "llama3", 8.0)
    assert o.windows == ((None, 32),)
    assert dict(o.shares)["embedding"] == dict(o.shares)["lm_head"] == 128256 * 4096
    assert json.loads(o.raw) == LLAMA_8B
    layers = next(part for part in o.tree.parts[0].parts if part.name == "layers")
    (folded,) = layers.parts
    assert (folded.kind, folded.numbers) == ("LlamaDecoderLayer", tuple(range(32)))
    assert folded.path == "model.layers.{}"


def table_bytes(o: Outline) -> int:
    return sum(leaf.predicted_bytes * times for leaf, times in everything(o.tree) if leaf.role == "buffer")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_tree_holds_every_parameter_once_and_adds_up(family, tmp_path):
    model = tiny_model(family)
    model.config.save_pretrained(tmp_path)
    o = of(tmp_path, "float32")
    counted = sum(
        leaf.numel * times for leaf, times in everything(o.tree) if leaf.role != "buffer" and not leaf.tied_to
    )
    assert counted == sum(p.numel() for p in model.parameters()) == o.parameters == o.tree.parameters
    names = sum(times for leaf, times in everything(o.tree) if leaf.role != "buffer")
    assert names == len(list(model.named_parameters(remove_duplicate=False)))
    assert sum(count for _, count in o.shares) == o.parameters
    weights = sum(leaf.predicted_bytes * n for leaf, n in everything(o.tree) if leaf.role != "buffer")
    assert weights == sum(p.numel() * p.element_size() for p in model.parameters())
    assert o.tree.predicted_bytes == weights + table_bytes(o)


def test_layers_of_different_kinds_are_folded_apart_with_their_numbers(tmp_path):
    tiny_model("jamba").config.save_pretrained(tmp_path)
    o = of(tmp_path)
    layers = next(part for part in o.tree.parts[0].parts if part.name == "layers")
    numbers = sorted(n for part in layers.parts for n in (part.numbers or (int(part.name),)))
    assert numbers == [0, 1, 2, 3]
    assert len({part.kind for part in layers.parts}) == 2
    assert o.other_layers == 2
    assert o.windows == ((None, 2),)


def test_windows_and_ties_and_experts_are_told(tmp_path):
    tiny_model("gemma3_text").config.save_pretrained(tmp_path / "gemma")
    o = of(tmp_path / "gemma")
    assert o.windows == ((None, 1), (15, 3))  # a window of 16 keeps 15 tokens and sees the new one
    assert o.tied
    tied = [leaf for leaf, _ in everything(o.tree) if leaf.tied_to]
    assert [(leaf.tied_to, leaf.predicted_bytes) for leaf in tied] == [("model.embed_tokens.weight", 0)]
    tiny_model("mixtral").config.save_pretrained(tmp_path / "mixtral")
    o = of(tmp_path / "mixtral")
    assert (o.experts, o.experts_per_token) == (4, 2)
    assert o.parameters_per_token < o.parameters


def test_predicted_bytes_follow_the_precision(tmp_path):
    tiny_model("llama").config.save_pretrained(tmp_path)
    full, half, packed = (of(tmp_path, name) for name in ("float32", "bfloat16", "nf4"))
    assert full.predicted_bytes - table_bytes(full) == 2 * (half.predicted_bytes - table_bytes(half))
    assert packed.predicted_bytes < half.predicted_bytes
    assert packed.precision == "nf4"


def test_a_load_tells_its_outline_before_any_weight_is_read(tmp_path):
    events: list = []
    session = load(LoadPlan(str(tiny_folder(tmp_path / "模型"))), events.append, Control())
    at = next(i for i, event in enumerate(events) if isinstance(event, Outline))
    before = [event for event in events[:at] if isinstance(event, LoadProgress)]
    assert before[-1].stage == "skeleton"
    assert events[at].path == session.facts.model_path
    again = answer(OutlineQuestion(session.facts.model_path, None), session, Control())
    assert again == events[at]
    session.close()


def test_a_folder_without_a_config_is_a_sentence(tmp_path):
    with pytest.raises(CannotLoad, match=r"no config\.json"):
        of(tmp_path)


def test_a_gguf_header_stands_for_its_config(default_model_path):
    blueprint = read_blueprint(default_model_path)
    o = outline(blueprint, *blueprint.chosen(None))
    assert (o.layers, o.heads, o.kv_heads, o.hidden_size, o.vocab_size, o.tied) == (30, 9, 3, 576, 49_152, True)
    assert o.parameters == 134_515_008
    assert o.raw == (default_model_path / "config.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("family", ["gemma4_text", "dots3_note_text"])
def test_where_each_layer_has_its_own_heads_the_largest_is_told(family, tmp_path):
    """transformers answers no question about all layers of such a config, but raises."""
    from transformers import AutoConfig

    config = AutoConfig.for_model(family)
    config.save_pretrained(tmp_path)
    told = of(tmp_path)
    layers = config.per_layer_config
    assert told.heads == max(layer.num_attention_heads for layer in layers)
    assert told.kv_heads == max(layer.num_key_value_heads for layer in layers)
    assert told.head_size == max(layer.head_dim for layer in layers)
