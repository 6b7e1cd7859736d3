"""config.json becomes facts, and what cannot be a text model is refused with a sentence."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from engine.blueprint import config_count, end_sources, parameters_per_token, read_blueprint
from engine.errors import CannotLoad
from engine.memory import estimate
from engine.outline import outline

LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@pytest.fixture
def folder(tmp_path):
    def write(settings=LLAMA, **changes):
        text = settings if isinstance(settings, str) else json.dumps(settings | changes)
        (tmp_path / "config.json").write_text(text)
        return str(tmp_path)

    return write


def told(path: str) -> str:
    with pytest.raises(CannotLoad) as caught:
        estimate(path)
    assert caught.value.fix
    assert caught.value.exit_code == 3
    return caught.value.what


def test_the_default_models_facts(default_model_path):
    blueprint = read_blueprint(str(default_model_path))
    assert (blueprint.layers, blueprint.heads, blueprint.kv_heads) == (30, 9, 3)
    assert (blueprint.hidden_size, blueprint.vocab_size, blueprint.context_tokens) == (576, 49152, 8192)
    assert blueprint.tied
    assert blueprint.skeleton.parameters == 134_515_008
    assert blueprint.chosen(None) == ("bfloat16", "bfloat16")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{", "not JSON"),
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "no table"),
        ("{}", "model_type"),
        ('{"model_type": null}', "model_type"),
        ('{"model_type": "no-such"}', "'no-such' is not known"),
        ('{"model_type": "no-such", "transformers_version": "99.0"}', "newer transformers"),
        ('{"model_type": "no-such", "transformers_version": "nonsense"}', "not known"),
        ("version https://git-lfs.github.com/spec/v1", "pointer"),
    ],
)
def test_a_broken_config_is_a_sentence(text, word, folder):
    assert word in told(folder(text))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"dtype": "float17"}, "'float17'"),
        ({"dtype": 3}, "'3'"),
        ({"dtype": "torch.float16"}, "'torch.float16'"),
        ({"torch_dtype": "nonsense"}, "'nonsense'"),
        ({"dtype": "int8"}, "'int8'"),
        ({"num_hidden_layers": 10**7}, "10,000,000 layers"),
        ({"model_type": "gemma", "architectures": ["LlamaForCausalLM"]}, "contradicts itself"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"hidden_size": 33}, "llama"),
        ({"num_attention_heads": 0}, "llama"),
        ({"num_hidden_layers": 0}, "no layers"),
        ({"num_hidden_layers": 10**4000}, "endless layers"),
        ({"num_hidden_layers": -1}, "no layers"),
        ({"quantization_config": {"quant_method": "magic"}}, "magic"),
        ({"quantization_config": {"bits": 4}}, "without a name"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
    ],
)
def test_a_wrong_value_is_a_sentence(changes, word, folder):
    assert word in told(folder(**changes))


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"model_type": "bert"}, "not a text generator"),
        ({"model_type": "roberta", "architectures": ["RobertaForMaskedLM"]}, "not a text generator"),
        ({"model_type": "t5"}, "two halves"),
        ({"model_type": "bart"}, "two halves"),
        ({"model_type": "llava"}, "picture loader"),
        ({"model_type": "clip"}, "not a text generator"),
        ({"model_type": "mine", "auto_map": {"AutoConfig": "code.Mine"}}, "program code"),
    ],
)
def test_what_writes_no_text_is_refused(settings, word, folder):
    assert word in told(folder(settings))


def test_code_that_comes_with_a_model_is_named_and_never_run(folder, tmp_path):
    (tmp_path / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert "code.py" in told(folder({"model_type": "mine", "auto_map": {"AutoConfig": "code.Mine"}}))
    blueprint = read_blueprint(folder(auto_map={"AutoConfig": "code.Mine"}))
    assert "code.py" in blueprint.notes[0]
    assert not (tmp_path / "ran").exists()


def test_missing_config_and_adapters_are_told_apart(tmp_path):
    assert "no config.json" in told(str(tmp_path))
    (tmp_path / "adapter_config.json").write_text("{}")
    assert "adapter" in told(str(tmp_path))


@pytest.mark.parametrize(
    ("changes", "wish", "loaded"),
    [
        ({"dtype": "bfloat16"}, None, ("bfloat16", "bfloat16")),
        ({"torch_dtype": "float16"}, None, ("float16", "float16")),
        ({"dtype": "bfloat16"}, "float32", ("float32", "float32")),
        ({"dtype": "bfloat16"}, "nf4", ("nf4", "bfloat16")),
        ({}, None, ("float32", "float32")),
    ],
)
def test_the_configs_number_type_decides_unless_a_person_does(changes, wish, loaded, folder):
    assert read_blueprint(folder(**changes)).chosen(wish) == loaded


def test_one_key_value_head_is_told_as_one(folder):
    facts = {fact.name: fact.value for fact in read_blueprint(folder(num_key_value_heads=1)).facts}
    assert facts["Heads"].endswith(" (shared by 1 key-value head)")


@pytest.mark.parametrize("named", [True, 3, {"a": 1}, "LlamaForCausalLM", [], [None]])
def test_a_config_whose_architectures_are_no_list_is_read_all_the_same(named, folder):
    path = folder(architectures=named)
    blueprint = read_blueprint(path)
    assert blueprint.layers == 2
    assert outline(blueprint, "float32", "float32").architecture == ""


def test_a_switched_off_cache_is_a_note(folder):
    assert "use_cache" in read_blueprint(folder(use_cache=False)).notes[0]


def test_a_context_of_ten_to_the_thirty_is_no_limit(folder):
    assert read_blueprint(folder(max_position_embeddings=10**30)).context_tokens == 0


def test_ends_come_with_their_file_and_absent_is_not_zero(folder, tmp_path):
    path = folder(eos_token_id=[2, 0])
    assert end_sources(read_blueprint(path)) == {"config.json": (2, 0)}
    (tmp_path / "generation_config.json").write_text("{}")
    assert end_sources(read_blueprint(path)) == {"config.json": (2, 0), "generation_config.json": ()}


def test_experts_count_in_total_and_per_token(folder):
    settings = LLAMA | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    blueprint = read_blueprint(folder(settings))
    each = 3 * 32 * 64 * 2  # gate, up and down in both layers
    assert blueprint.skeleton.parameters - parameters_per_token(blueprint) == 6 * each


def test_a_name_that_says_no_count_yields_to_another():
    config = SimpleNamespace(num_local_experts=0, num_experts=-1, n_routed_experts=8, moe_num_experts=4, flag=True)
    assert config_count(config, "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts") == 8
    assert config_count(config, "num_experts", "flag", "nothing") == 0


def test_a_picture_tower_is_counted_apart(folder):
    from transformers import AutoConfig

    vision = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = AutoConfig.for_model(
        "gemma3",
        text_config=LLAMA | {"model_type": "gemma3_text", "head_dim": 8},
        vision_config=vision | {"image_size": 28, "patch_size": 14, "model_type": "siglip_vision_model"},
    )
    blueprint = read_blueprint(folder(config.to_dict()))
    roles = {tensor.role for tensor in blueprint.skeleton.tensors}
    assert blueprint.layers == 2
    assert "not for text" in roles
    unused = [tensor.name for tensor in blueprint.skeleton.tensors if tensor.role == "not for text"]
    assert all("vision" in name or "projector" in name for name in unused)
    assert {part.name: part.predicted_bytes for part in estimate(blueprint).parts}["not for text"] > 0
