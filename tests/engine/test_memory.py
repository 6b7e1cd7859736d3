"""Predicted memory, from the config alone, equals what transformers and bitsandbytes keep."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine.blueprint import read_blueprint
from engine.errors import CannotLoad, SettingsRefused
from engine.events import DeviceLimit
from engine.memory import cache_layers, estimate, kv_bytes, kv_bytes_per_token, state_bytes
from engine.sizes import better_rough_bytes, rough_bytes

DATA = Path(__file__).parents[1] / "data"
CASES = [case for name in ("kv_bytes", "field_kv") for case in json.loads((DATA / f"{name}.json").read_text())]
LLAMA_7B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
    "max_position_embeddings": 4096,
    "dtype": "float16",
}


def config_of(settings: dict):
    from transformers import AutoConfig

    settings = dict(settings)
    return AutoConfig.for_model(settings.pop("model_type"), **settings)


def folder_of(tmp_path: Path, settings: dict) -> str:
    (tmp_path / "config.json").write_text(json.dumps(settings))
    return str(tmp_path)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_cache_bytes_equal_what_transformers_keeps(case):
    config = config_of(case["config"])
    assert kv_bytes(config, case["prompt_tokens"], 4) == case["kv_bytes_after_prefill"]
    assert kv_bytes(config, case["prompt_tokens"] + 1, 4) == case["kv_bytes_after_one_more"]
    assert kv_bytes(config, case["prompt_tokens"], 2, lanes=3) == case["kv_bytes_after_prefill"] // 2 * 3
    assert state_bytes(cache_layers(config), 4) == case.get("state_bytes", 0)


MORE = {
    "gemma 3, windows of 16 and full": {
        "model_type": "gemma3_text",
        "sliding_window": 16,
        "head_dim": 8,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    },
    "a window of one": {"model_type": "mistral", "sliding_window": 1},
    "qwen 3 with wide heads": {"model_type": "qwen3", "head_dim": 32},
    "experts": {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    "parallel blocks": {"model_type": "gpt_neox"},
    "big code, one head": {"model_type": "gpt_bigcode", "n_embd": 64, "n_layer": 4, "n_head": 8, "multi_query": True},
}


@pytest.mark.parametrize("name", MORE)
def test_cache_bytes_equal_a_real_forward(name):
    import torch
    from transformers import AutoModelForCausalLM, DynamicCache

    sizes = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
    }
    settings = {"vocab_size": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    config = config_of(settings | (MORE[name] if "n_embd" in MORE[name] else sizes | MORE[name]))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    cache = DynamicCache(config=config)
    held = []
    with torch.no_grad():
        for ids in (torch.zeros(1, 40, dtype=torch.long), torch.zeros(1, 1, dtype=torch.long)):
            model(input_ids=ids, cache=cache, use_cache=True)
            held.append(sum(t.numel() * t.element_size() for layer in cache.layers for t in (layer.keys, layer.values)))
    assert [kv_bytes(config, 40, 4), kv_bytes(config, 41, 4)] == held


@pytest.mark.parametrize(
    ("layers", "heads", "width", "per_token"),
    [(32, 32, 128, 524_288), (32, 8, 128, 131_072), (28, 4, 128, 57_344), (30, 3, 64, 23_040)],
)
def test_bytes_per_token_of_well_known_shapes(layers, heads, width, per_token):
    config = config_of(
        {
            "model_type": "llama",
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": heads,
            "head_dim": width,
            "hidden_size": heads * width,
            "vocab_size": 64,
        }
    )
    assert kv_bytes_per_token(config, 2) == per_token
    assert kv_bytes(config, 8192, 2) == per_token * 8192


def test_a_family_with_a_cache_of_its_own_is_not_predictable_and_never_a_guess():
    config = config_of({"model_type": "rwkv", "hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 64})
    assert kv_bytes(config, 10, 2) is None
    assert kv_bytes_per_token(config, 2) is None


def test_llama_2_7b_by_the_rough_formula_and_exactly(tmp_path):
    found = estimate(folder_of(tmp_path, LLAMA_7B), None, 8192)
    assert found.parameters == 6_738_415_616
    assert found.weights_bytes == 6_738_415_616 * 2
    assert found.kv_bytes == 4_294_967_296  # beyond a signed 32-bit number
    assert found.rough_total_bytes == pytest.approx(67.4e9, rel=1e-3)
    assert found.better_rough_total_bytes == pytest.approx(17.97e9, rel=1e-3)
    assert found.total_bytes == pytest.approx(17.8e9, rel=0.015)


LLAMA_3_8B = LLAMA_7B | {
    "intermediate_size": 14336,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "dtype": "bfloat16",
}


def test_llama_3_8b_four_figures_side_by_side_and_why_the_first_is_off(tmp_path):
    found = estimate(folder_of(tmp_path, LLAMA_3_8B), None, 8192)
    assert found.parameters == 8_030_261_248
    figures = (found.rough_total_bytes, found.better_rough_total_bytes, found.exact_bytes)
    assert [round(figure / 1e9, 2) for figure in figures] == [80.30, 17.40, 17.13]
    why = found.sizes.why_rough_is_off("bfloat16", 8192)
    assert "64.24 GB" in why
    assert "1.07 GB" in why
    assert "12 times" in why
    assert "8 of 32" in why
    assert why in found.notes


def test_gemma_3_4b_the_better_rough_figure_knows_no_windows(tmp_path):
    config = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    config |= {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208}
    config |= {"sliding_window": 1024, "max_position_embeddings": 131072, "dtype": "bfloat16"}
    found = estimate(folder_of(tmp_path, config), None, 8192)
    assert [round(figure / 1e9, 2) for figure in (found.better_rough_total_bytes, found.exact_bytes)] == [9.83, 8.05]


def test_windows_are_a_reason_why_the_rough_formula_is_off(tmp_path):
    config = {"model_type": "gemma3_text", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 6}
    config |= {"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16, "vocab_size": 64}
    config |= {"sliding_window": 16, "layer_types": ["sliding_attention"] * 5 + ["full_attention"]}
    sizes = estimate(folder_of(tmp_path, config), "bfloat16", 128).sizes
    assert "5 of 6 layers" in sizes.why_rough_is_off("bfloat16", 128)
    assert "5 of 6" not in sizes.why_rough_is_off("bfloat16", 8)  # no window is full yet
    assert "takes the cache in nf4 although it stays" in sizes.why_rough_is_off("nf4", 128)


def test_the_rough_formulas_by_hand():
    assert rough_bytes(100, 2, 50, 10) == 2200
    assert better_rough_bytes(100, 2, 60, 10, 0.5) == 300


def test_lanes_share_the_weights_and_each_has_a_text_of_its_own():
    one, four = rough_bytes(100, 2, 50, 10), rough_bytes(100, 2, 50, 10, lanes=4)
    assert four - 200 == 4 * (one - 200) == rough_bytes(100, 2, 200, 10) - 200
    one, four = better_rough_bytes(100, 2, 60, 10, 0.5), better_rough_bytes(100, 2, 60, 10, 0.5, lanes=4)
    assert four - 200 == 4 * (one - 200)


def test_seventy_billion_parameters_need_only_a_config(tmp_path):
    config = LLAMA_7B | {
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "dtype": "bfloat16",
    }
    found = estimate(folder_of(tmp_path, config), None, 8192)
    assert found.parameters == 70_553_706_496  # Llama 3 70B, as its maker counts
    assert found.kv_bytes_per_token == 327_680


def test_the_default_model_in_every_precision(default_model_path):
    blueprint = read_blueprint(str(default_model_path))
    sizes = {p: estimate(blueprint, p).weights_bytes for p in ("float32", "bfloat16", "float16", "int8", "nf4", "fp4")}
    assert sizes["float32"] == 538_060_032
    assert sizes["bfloat16"] == sizes["float16"] == 269_030_016
    assert sizes["int8"] == pytest.approx(163e6, rel=0.01)
    assert sizes["nf4"] == sizes["fp4"] == pytest.approx(110e6, rel=0.02)


def test_the_default_model_untied_would_have_a_head_more(default_model_path, tmp_path):
    config = json.loads((default_model_path / "config.json").read_text())
    tied, untied = (
        estimate(folder_of(tmp_path, config | {"tie_word_embeddings": flag}), "bfloat16") for flag in (True, False)
    )
    assert (tied.parameters, tied.weights_bytes) == (134_515_008, 269_030_016)
    assert untied.parameters == 162_826_560


def test_tied_weights_count_once_and_untied_twice(tmp_path):
    small = LLAMA_7B | {"num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4}
    small |= {"num_key_value_heads": 4, "vocab_size": 100}
    untied = estimate(folder_of(tmp_path, small))
    tied = estimate(folder_of(tmp_path, small | {"tie_word_embeddings": True}))
    assert untied.lm_head_bytes == untied.embedding_bytes == 100 * 64 * 2
    assert tied.lm_head_bytes == 0
    assert untied.weights_bytes - tied.weights_bytes == 100 * 64 * 2


def test_parts_add_up(default_model_path):
    for precision in ("bfloat16", "nf4"):
        found = estimate(str(default_model_path), precision, 1000, 4)
        assert sum(part.predicted_bytes for part in found.parts) == found.total_bytes
        assert found.embedding_bytes + found.layers_bytes + found.lm_head_bytes == found.weights_bytes
        assert found.kv_bytes == 1000 * 4 * found.kv_bytes_per_token


def test_only_the_last_row_of_logits_is_counted(default_model_path):
    found = estimate(str(default_model_path), "float32", 8192)
    logits = next(part for part in found.parts if part.name == "logits")
    assert logits.predicted_bytes < 2 * 49152 * 4 + 1  # a row per prompt token would be 1.6 GB


@pytest.mark.parametrize(("context", "lanes"), [(0, 1), (-5, 1), (2**60, 1), (10, 0), (10, 1000)])
def test_absurd_numbers_are_refused(context, lanes, tmp_path):
    with pytest.raises(SettingsRefused):
        estimate(folder_of(tmp_path, LLAMA_7B), None, context, lanes)


def test_a_config_that_cannot_be_built_is_a_sentence(tmp_path):
    with pytest.raises(CannotLoad):
        estimate(folder_of(tmp_path, LLAMA_7B | {"num_attention_heads": 0}))


def test_files_that_do_not_say_how_tightly_they_are_packed_are_said_to_be_counted_as_plain(tmp_path):
    config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    config |= {"num_attention_heads": 4, "vocab_size": 100, "quantization_config": {"quant_method": "aqlm"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert any("AQLM" in note and "as if they were not" in note for note in estimate(str(tmp_path)).notes)


# ---------------------------------------------------------------- sliders and what would make it fit


def test_what_a_slider_asks_for_is_what_an_estimate_would_say(default_model_path):
    blueprint = read_blueprint(str(default_model_path))
    here = estimate(blueprint, "bfloat16", 8192)
    for precision, context, lanes in (("nf4", 100, 3), ("float32", 4096, 1), ("int8", 1, 64)):
        there = estimate(blueprint, precision, context, lanes)
        moved = here.at(precision, context, lanes)
        for name in ("parts", "weights_bytes", "kv_bytes", "total_bytes", "rough_total_bytes", "notes", "exact_bytes"):
            assert getattr(moved, name) == getattr(there, name), name


def test_parts_by_layer_add_up_in_every_precision(default_model_path):
    sizes = estimate(str(default_model_path)).sizes
    for at, precision in enumerate(sizes.precisions):
        assert sum(part.weights_bytes[at] for part in sizes.parts) == precision.total_bytes
    assert [part.layer for part in sizes.parts if part.layer is not None] == list(range(30))


def test_what_does_not_fit_is_answered_with_changes_that_do(tmp_path):
    sizes = estimate(folder_of(tmp_path, LLAMA_3_8B), None, 8192).sizes
    need, limit = sizes.need("bfloat16", 65536, 8), 24_000_000_000
    assert need > limit
    answer = sizes.changes_that_fit("bfloat16", 65536, 8, limit)
    assert len(answer.changes) == 3
    for change in answer.changes:
        kept = sizes.need(change.precision, change.context_tokens, change.lanes)
        assert change.total_bytes <= limit
        assert change.total_bytes == kept or change.disk_bytes > 0
    kinds = [change.changed for change in answer.changes]
    assert ("context",) in kinds  # 16 GB of weights leave room for a shorter text
    shorter = next(change for change in answer.changes if change.changed == ("context",))
    assert sizes.need("bfloat16", shorter.context_tokens, 8) <= limit
    assert sizes.need("bfloat16", shorter.context_tokens + 256, 8) > limit  # and no shorter than it must be


def test_a_smaller_precision_is_the_largest_that_fits(tmp_path):
    sizes = estimate(folder_of(tmp_path, LLAMA_3_8B), None, 8192).sizes
    answer = sizes.changes_that_fit("bfloat16", 8192, 1, 13_000_000_000)
    assert answer.changes[0].changed == ("precision",)
    assert answer.changes[0].precision == "int8"
    disk = next(change for change in answer.changes if change.changed == ("disk",))
    assert disk.disk_bytes % 436_224_000 == 0  # whole layers: 218,112,000 parameters in 2 bytes
    assert disk.total_bytes <= 13_000_000_000 < disk.total_bytes + 436_224_000


def test_where_nothing_fits_the_nearest_is_named(tmp_path):
    sizes = estimate(folder_of(tmp_path, LLAMA_3_8B), None, 8192).sizes
    answer = sizes.changes_that_fit("bfloat16", 8192, 4, 1_000_000_000)
    assert answer.changes == ()
    near = answer.nearest  # embedding, head and one layer at a time in two bytes: 2.5 GB against nf4's 5.7
    assert (near.precision, near.context_tokens, near.lanes) == ("bfloat16", 256, 1)
    assert near.disk_bytes == 32 * 436_224_000
    assert near.total_bytes == sizes.need("bfloat16", 256, 1) - 31 * 436_224_000 > 1_000_000_000


def test_two_changes_at_once_where_none_alone_suffices(tmp_path):
    sizes = estimate(folder_of(tmp_path, LLAMA_3_8B), None, 8192).sizes
    limit = 7_500_000_000
    answer = sizes.changes_that_fit("bfloat16", 131072, 2, limit)
    assert answer.changes
    for change in answer.changes:
        assert len(change.changed) > 1
        assert change.total_bytes <= limit


def test_the_limit_is_the_chosen_devices_or_all_together(tmp_path):
    found = estimate(folder_of(tmp_path, LLAMA_7B))
    assert [limit.name for limit in found.limits][-1] == "cpu"
    two = replace(found, limits=(DeviceLimit("cuda:0", 20, 24), DeviceLimit("cpu", 50, 64)))
    assert (two.limit_of("cuda:0"), two.limit_of("cpu"), two.limit_of("auto")) == (20, 50, 70)
