"""`estimate`: the shape that scripts rely on, from a config alone, and a sentence where there is none."""

from __future__ import annotations

import json

import pytest

from app.__main__ import main


@pytest.fixture
def folder(tmp_path):
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "vocab_size": 128,
        "tie_word_embeddings": False,
        "dtype": "float32",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    return str(tmp_path)


def test_json_has_the_agreed_keys_and_exact_numbers(folder, capsys):
    assert main(["estimate", "--model", folder, "--context", "20", "--lanes", "3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    layer = 64 * 64 * 2 + 64 * 16 * 2 + 3 * 64 * 128 + 2 * 64
    assert told["weights_bytes"] == {
        "embedding": 128 * 64 * 4,
        "layers": (4 * layer + 64) * 4,
        "lm_head": 128 * 64 * 4,
        "total": (2 * 128 * 64 + 4 * layer + 64) * 4,
    }
    assert told["parameters"] == 2 * 128 * 64 + 4 * layer + 64
    assert told["kv_bytes"] == 10_240 * 3
    assert told["kv_bytes_per_token"] == 512
    assert told["total_bytes"] >= told["weights_bytes"]["total"] + told["kv_bytes"]
    assert told["rough_total_bytes"] == round(told["parameters"] * 4 * (1 + 2 * 60 / 64))


def test_a_person_gets_a_ledger(folder, capsys):
    assert main(["estimate", "--model", folder, "--precision", "bf16"]) == 0
    out = capsys.readouterr().out
    for word in ("bfloat16", "embedding", "kv_cache", "rough formula", "total"):
        assert word in out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--model", "no/such-model"], 3),
        (["--model", "FOLDER", "--precision", "int3"], 2),
        (["--model", "FOLDER", "--context", "0"], 2),
        (["--model", "FOLDER", "--context", "many"], 2),
        (["--model", "FOLDER", "--lanes", "0"], 2),
        ([], 2),
    ],
)
def test_what_cannot_be_estimated_is_two_lines_and_an_exit_code(folder, arguments, code, capsys):
    assert main(["estimate", *(folder if a == "FOLDER" else a for a in arguments)]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split(":")[0] for line in err.splitlines()] == ["error", "fix"]


def test_a_plan_for_gpus_that_are_not_there_says_what_lies_where(folder, capsys):
    asked = ["estimate", "--model", folder, "--context", "20", "--gpus", "2x0.0002", "--cpu-memory", "1", "--json"]
    assert main(asked) == 0
    told = json.loads(capsys.readouterr().out)
    plan = told["plan"]
    assert [device["name"] for device in plan["devices"]][:2] == ["cuda:0", "cuda:1"]
    assert sum(device["weights_bytes"] for device in plan["devices"]) == told["weights_bytes"]["total"]
    assert sum(device["kv_bytes"] for device in plan["devices"]) == told["kv_bytes"]
    parts = [part for device in plan["devices"] for part in device["parts"]]
    assert sorted(parts) == sorted(
        ["model.embed_tokens", "model.norm", "lm_head", *(f"model.layers.{at}" for at in range(4))]
    )
    assert plan["fits"] is False  # the GPUs are too small for a layer beside the working space
    assert any("No GPU has room" in note for note in plan["notes"])
    assert main([*asked[:-1], "--device-map", "balanced"]) == 0
    assert "Plan balanced" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [["--gpus", "many"], ["--gpus", "2x24", "--cpu-memory", "much"], ["--gpus", "2x24", "--lanes", "0"]]
)
def test_gpus_that_cannot_be_read_are_a_sentence(folder, arguments, capsys):
    assert main(["estimate", "--model", folder, *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split(":")[0] for line in err.splitlines()] == ["error", "fix"]
