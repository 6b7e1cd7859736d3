"""`xray`: two precisions over one text, as an object for scripts and a table for a person."""

from __future__ import annotations

import json
import math
import signal

import pytest

from app.__main__ import main
from app.commands import xray as command
from engine.errors import Cancelled
from tests.tiny_models import tiny_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tiny_folder(tmp_path_factory.mktemp("tiny") / "tiny", "llama"))


def told(capsys):
    return json.loads(capsys.readouterr().out)


def test_json_has_every_token_and_both_sides(folder, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("水 and ice.", encoding="utf-8")
    arguments = ["xray", "--model", folder, "--precisions", "float32,bfloat16", "--text", str(text), "--json"]
    assert main(arguments) == 0
    found = told(capsys)
    assert [side["precision"] for side in found["sides"]] == ["float32", "bfloat16"]
    tables = 64  # bytes of buffers that stay float32
    one, two = (side["weights_bytes"] - tables for side in found["sides"])
    assert one == 2 * two
    assert len(found["tokens"]) == len("水 and ice.".encode())  # its tokenizer has a token for each byte
    assert found["tokens"][0]["kl_nats"] is None
    compared = [token["kl_nats"] for token in found["tokens"][1:]]
    assert math.isclose(found["mean_kl_nats"], sum(compared) / len(compared))
    assert found["flips"] == sum(token["flipped"] for token in found["tokens"])
    assert found["text"] == "own"


def test_a_shipped_text_is_the_default_and_equal_precisions_do_not_differ(folder, capsys):
    assert main(["xray", "--model", folder, "--precisions", "bf16,bf16", "--json"]) == 0
    found = told(capsys)
    assert found["text"] == "prose"
    assert (found["mean_kl_nats"], found["flips"], found["same_first_choice"]) == (0.0, 0, 1.0)
    assert any("the first 256 were compared" in note for note in found["notes"])


def test_the_table_names_what_it_shows(folder, capsys):
    assert main(["xray", "--model", folder, "--precisions", "float32,nf4", "--text", "code"]) == 0
    out = capsys.readouterr().out
    for words in ("perplexity", "weights (MB)", "decode (tok/s)", "KL divergence, float32 first", "measured"):
        assert words in out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--precisions", "float32"], "two"),
        (["--precisions", "float32,float7"], "float7"),
        (["--precisions", "float32,int8", "--int8-threshold", "much"], "much"),
        (["--precisions", "float32,int8", "--int8-threshold", "-1"], "-1"),
        (["--precisions", "float32,nf4", "--compute-dtype", "int8"], "int8"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_loaded(arguments, word, capsys):
    assert main(["xray", "--model", "no such model", *arguments]) == 2
    assert word in capsys.readouterr().err


def test_a_text_that_cannot_be_read_is_a_sentence(folder, tmp_path, capsys):
    arguments = ["xray", "--model", folder, "--precisions", "float32,bfloat16", "--text"]
    assert main([*arguments, str(tmp_path / "none.txt")]) == 4
    assert "none.txt" in capsys.readouterr().err
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00a")
    assert main([*arguments, str(tmp_path / "bytes.txt")]) == 2
    assert "UTF-8" in capsys.readouterr().err


def test_the_packing_that_was_asked_for_is_the_one_that_ran(folder, capsys):
    arguments = ["xray", "--model", folder, "--precisions", "int8,fp4", "--int8-threshold", "0"]
    assert main([*arguments, "--no-double-quantisation", "--compute-dtype", "fp32", "--json"]) == 0
    eight, four = (side["quantised_layers"] for side in told(capsys)["sides"])
    assert "no outliers kept apart" in eight
    assert "fp4, blocks of 64, no double quantisation, computes in float32" in four


def test_an_estimate_follows_double_quantisation(folder, capsys):
    sizes = []
    for more in ([], ["--no-double-quantisation"]):
        assert main(["estimate", "--model", folder, "--precision", "nf4", "--json", *more]) == 0
        sizes.append(told(capsys)["parts"]["quantisation"])
    assert sizes[0] != sizes[1]


def test_an_interrupt_cancels_it_and_is_told(monkeypatch, capsys):
    def interrupted(question, emit, control):
        signal.raise_signal(signal.SIGINT)
        assert control.cancelled()
        raise Cancelled

    monkeypatch.setattr(command, "xray", interrupted)
    assert main(["xray", "--model", "default", "--precisions", "float32,bfloat16"]) == 130
    found = capsys.readouterr()
    assert found.out == ""
    assert "Stopped" in found.err
