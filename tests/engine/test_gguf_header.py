"""GGUF files: the header agrees with the writer, and a file that is cut or no GGUF is a sentence."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import torch

from engine.blueprint import read_blueprint
from engine.catalog import resolve
from engine.control import Control
from engine.errors import CannotLoad
from engine.gguf_header import read_gguf_header
from engine.loading import load
from engine.memory import estimate
from engine.settings import LoadPlan


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A tiny llama as GGUF with a tokenizer of bytes, written by the format's own library."""
    from gguf import GGUFWriter, TokenType

    from tests.tiny_models import tiny_model

    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    model = tiny_model("llama", tie_word_embeddings=False)
    config = model.config
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(512)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(config.vocab_size)
    words = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), *(f"w{i}" for i in range(41))]
    types = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL, *[TokenType.BYTE] * 256, *[TokenType.NORMAL] * 41]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(words)
    writer.add_token_scores([0.0] * len(words))
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    parts = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    for name, tensor in model.state_dict().items():
        owner = name.removesuffix(".weight")
        if owner.startswith("model.layers."):
            _, _, layer, part = owner.split(".", 3)
            owner = f"blk.{layer}.{parts[part]}"
        else:
            owner = names[owner]
        writer.add_tensor(f"{owner}.weight", tensor.numpy().astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_the_header_agrees_with_the_library(file):
    from gguf import GGUFReader

    header, reader = read_gguf_header(file), GGUFReader(file)
    assert header.values["general.architecture"] == "llama"
    assert header.lists["tokenizer.ggml.tokens"] == 300
    assert header.parameters == sum(int(np.prod(tensor.shape)) for tensor in reader.tensors)
    assert header.data_bytes == sum(-(-tensor.n_bytes // 32) * 32 for tensor in reader.tensors)
    assert header.float_dtypes == ("float32",)


@pytest.mark.parametrize("share", [0.0, 0.0001, 0.01, 0.5, 0.999])
def test_a_file_cut_anywhere_is_a_sentence(file, share, tmp_path):
    cut = tmp_path / "cut.gguf"
    content = file.read_bytes()
    cut.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(CannotLoad) as caught:
        read_gguf_header(cut)
    assert "cut.gguf" in caught.value.what


def pair(name: bytes, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(name)) + name + struct.pack("<I", kind) + value


@pytest.mark.parametrize(
    "pairs",
    [
        pair(b"general.alignment", 8, struct.pack("<Q", 3) + b"abc"),
        pair(b"general.alignment", 6, struct.pack("<f", float("nan"))),
        pair(b"general.alignment", 4, struct.pack("<I", 0)),
        pair(b"deep", 9, struct.pack("<IQ", 9, 1) * 100_000),
    ],
    ids=["text", "nan", "zero", "deep"],
)
def test_a_header_of_nonsense_is_a_sentence(pairs, tmp_path):
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + pairs)
    with pytest.raises(CannotLoad, match="damaged"):
        read_gguf_header(file)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"<!DOCTYPE html>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\nsize 12", "pointer"),
        (b"GGUF" + (99).to_bytes(4, "little") + bytes(64), "version 99"),
        (b"GGUF" + (3).to_bytes(4, "little") + b"\xff" * 64, "damaged"),
        (b"PK\3\4" + bytes(64), "not a GGUF file"),
    ],
)
def test_what_is_no_gguf_is_told_apart(content, word, tmp_path):
    file = tmp_path / "m.gguf"
    file.write_bytes(content)
    with pytest.raises(CannotLoad) as caught:
        read_gguf_header(file)
    assert word in caught.value.what


def test_a_gguf_loads_and_weighs_what_was_predicted(file):
    assert resolve(str(file)).kind == "gguf"
    predicted = estimate(str(file))
    session = load(LoadPlan(str(file)), lambda event: None, Control())
    try:
        assert session.facts.parameters == read_gguf_header(file).parameters
        assert session.facts.precision == predicted.precision == "float32"
        with torch.no_grad():
            assert session.model(input_ids=torch.tensor([[1, 5, 6]])).logits.isfinite().all()
        parts = [part for part in session.facts.ledger if part.measured_bytes and part.predicted_bytes]
        assert all(part.measured_bytes == part.predicted_bytes for part in parts)
    finally:
        session.close()


def test_a_family_that_is_not_known_is_named(tmp_path):
    def text(word):
        return struct.pack("<Q", len(word)) + word.encode()

    file = tmp_path / "strange.gguf"
    pair = text("general.architecture") + struct.pack("<I", 8) + text("zork")
    file.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + pair)
    with pytest.raises(CannotLoad) as refused:
        read_blueprint(str(file))
    assert "zork" in refused.value.what


def test_its_outline_tensors_and_numbers_are_told_like_a_folders(file):
    """Before a load from the header, after it from memory."""
    from engine.answers import answer
    from engine.events import HistogramQuestion, Outline, OutlineQuestion, ShardRead, WeightsQuestion, WeightsTable

    outline = answer(OutlineQuestion(str(file)), None, Control())
    assert (outline.source, outline.layers, outline.heads, outline.vocab_size) == ("tiny.gguf", 4, 4, 300)
    assert '"llama.block_count": 4' in outline.raw
    before = answer(WeightsQuestion(str(file)), None, Control())
    assert (before.kind, [shard.file for shard in before.shards]) == ("gguf", ["tiny.gguf"])
    events = []
    session = load(LoadPlan(str(file)), events.append, Control())
    (table,) = (event for event in events if isinstance(event, WeightsTable))
    assert next(event for event in events if isinstance(event, Outline)).layers == 4
    (shard,) = table.shards
    assert shard == [event for event in events if isinstance(event, ShardRead)][-1]
    assert shard.done_bytes == shard.total_bytes == file.stat().st_size
    assert {row.name for row in table.tensors} == {row.name for row in before.tensors}
    weights = session.model.model.norm.weight
    numbers = answer(HistogramQuestion(table.path, "model.norm.weight"), session, Control())
    assert (numbers.source, numbers.numel, numbers.high) == ("memory", 64, weights.max().item())
    session.close()
    with pytest.raises(CannotLoad, match="only while the model is loaded"):
        answer(HistogramQuestion(table.path, "model.norm.weight"), None, Control())
