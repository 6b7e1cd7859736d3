"""The weights as a person looks at them: files with speed, tensors with marks, a tensor's numbers as NumPy counts."""

from __future__ import annotations

import json

import numpy as np
import pytest

from engine import weights_view
from engine.answers import answer
from engine.control import Control
from engine.errors import Cancelled, CannotLoad
from engine.events import LoadProgress, ShardRead, WeightsTable
from engine.inside import BINS, HistogramQuestion, WeightsQuestion
from engine.loading import load
from engine.settings import LoadPlan
from engine.weights_view import histogram
from tests.tiny_models import byte_tokenizer, pickled_folder, tiny_folder, tiny_model


def opened(folder, **plan):
    events: list = []
    session = load(LoadPlan(str(folder), **plan), events.append, Control())
    (table,) = (event for event in events if isinstance(event, WeightsTable))
    return session, table, events


def by_files(folder) -> WeightsTable:
    found = answer(WeightsQuestion(str(folder)), None, Control())
    assert isinstance(found, WeightsTable)
    return found


@pytest.fixture
def sharded(tmp_path):
    folder = tmp_path / "分片"
    tiny_model("llama").save_pretrained(folder, max_shard_size="100KB")
    byte_tokenizer().save_pretrained(folder)
    return folder


def test_each_shard_is_told_in_the_order_of_reading_with_all_its_bytes(sharded):
    session, table, events = opened(sharded)
    index = json.loads((sharded / "model.safetensors.index.json").read_text())
    files = set(index["weight_map"].values())
    assert len(files) > 3
    assert {shard.file for shard in table.shards} == files
    assert [shard.place for shard in table.shards] == list(range(len(files)))
    assert sum(shard.total_bytes for shard in table.shards) == index["metadata"]["total_size"]
    assert all(shard.done_bytes == shard.total_bytes and shard.bytes_per_s > 0 for shard in table.shards)
    told = [event for event in events if isinstance(event, ShardRead)]
    assert list(table.shards) == [next(e for e in reversed(told) if e.file == s.file) for s in table.shards]
    stage = next(e for e in reversed(events) if isinstance(e, LoadProgress) and e.stage == "weights")
    assert sum(shard.elapsed_ms for shard in table.shards) <= stage.elapsed_ms
    session.close()


def test_done_bytes_of_a_shard_never_fall(sharded):
    session, _, events = opened(sharded)
    done: dict[str, int] = {}
    for event in events:
        if isinstance(event, ShardRead):
            assert done.get(event.file, 0) <= event.done_bytes <= event.total_bytes
            done[event.file] = event.done_bytes
    session.close()


def test_the_table_names_every_tensor_of_the_files_with_its_shard(sharded):
    session, table, _ = opened(sharded)
    index = json.loads((sharded / "model.safetensors.index.json").read_text())["weight_map"]
    assert {row.name: row.file for row in table.tensors} == index
    assert all(row.dtype == "float32" and not row.mark for row in table.tensors)
    q = next(row for row in table.tensors if row.name.endswith("layers.2.self_attn.k_proj.weight"))
    assert (q.shape, q.bytes) == ((32, 64), 32 * 64 * 4)
    assert (table.kind, table.loaded) == ("safetensors", True)
    before = by_files(sharded)
    assert (before.loaded, before.tensors) == (False, table.tensors)
    session.close()


def test_tied_unexpected_and_missing_tensors_are_marked(tmp_path):
    from safetensors.torch import load_file, save_file

    folder = tiny_folder(tmp_path / "tied", tie_word_embeddings=True)
    session, table, _ = opened(folder)
    assert [(r.name, r.mark, r.note) for r in table.tensors if r.mark] == [
        ("lm_head.weight", "tied", "model.embed_tokens.weight")
    ]
    assert [r for r in by_files(folder).tensors if r.mark] == [r for r in table.tensors if r.mark]
    session.close()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    session, table, _ = opened(folder)
    unexpected = {r.name for r in table.tensors if r.mark == "unexpected"}
    assert len(unexpected) == 9
    assert all(".layers.3." in name for name in unexpected)
    assert {r.name for r in by_files(folder).tensors if r.mark == "unexpected"} == unexpected
    session.close()
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    missing = [r for r in by_files(folder).tensors if r.mark == "missing"]
    assert [(r.name, r.file, r.shape) for r in missing] == [("model.norm.weight", "", (64,))]


def test_files_that_name_their_tensors_otherwise_are_not_judged_before_the_load(tmp_path):
    folder = tiny_folder(tmp_path / "mixtral", "mixtral")
    table = by_files(folder)
    assert not [row for row in table.tensors if row.mark == "missing"]
    session, loaded, _ = opened(folder)
    assert not [row for row in loaded.tensors if row.mark]
    session.close()


def test_a_pickle_is_told_as_one(tmp_path):
    folder = pickled_folder(tmp_path / "pickle")
    session, table, _ = opened(folder, allow_pickle=True)
    assert table.kind == "pickle"
    assert [shard.file for shard in table.shards] == ["pytorch_model.bin"]
    assert {row.name for row in table.tensors} == {name for name, _ in tiny_model("llama").named_parameters()}
    assert by_files(folder).kind == "pickle"
    session.close()


# ---------------------------------------------------------------- numbers


def folder_with(tmp_path, name: str, values):
    """A folder whose file holds this tensor beside the model's own."""
    from safetensors.torch import load_file, save_file

    folder = tiny_folder(tmp_path / "numbers")
    tensors = load_file(folder / "model.safetensors")
    tensors[name] = values
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_the_figures_of_a_files_tensor_are_numpys(tmp_path, dtype, monkeypatch):
    import torch

    monkeypatch.setattr(weights_view, "CHUNK", 1000)  # several pieces
    torch.manual_seed(1)
    values = (torch.randn(37, 211, dtype=torch.float64) * 3 + 1).to(getattr(torch, dtype))
    values[3, 5:9] = 0
    folder = folder_with(tmp_path, "own.weight", values)
    h = histogram(HistogramQuestion(str(folder), "own.weight"), None, lambda: False)
    exact = values.double().numpy()
    assert (h.source, h.dtype, h.shape, h.numel) == ("file", dtype, (37, 211), 37 * 211)
    assert (h.low, h.high, h.zeros) == (exact.min(), exact.max(), (exact == 0).sum())
    assert h.mean == pytest.approx(exact.mean(), rel=1e-6)
    assert h.std == pytest.approx(exact.std(), rel=1e-6)
    seen = values.float().numpy() if dtype != "float64" else exact
    assert list(h.linear) == np.histogram(seen, BINS)[0].tolist()
    sizes = np.log2(np.abs(seen[seen != 0]))
    assert list(h.by_size) == np.histogram(sizes, BINS, h.exponents)[0].tolist()
    assert h.exponents == (np.floor(sizes.min()), np.ceil(sizes.max()))


def test_numbers_that_are_not_finite_are_counted_apart(tmp_path):
    import torch

    values = torch.tensor([[1.0, float("nan"), float("inf")], [-float("inf"), 0.0, 3.0]])
    folder = folder_with(tmp_path, "own.weight", values)
    h = histogram(HistogramQuestion(str(folder), "own.weight"), None, lambda: False)
    assert (h.numel, h.nans, h.infinities, h.zeros) == (6, 1, 2, 1)
    assert (h.low, h.high, sum(h.linear), sum(h.by_size)) == (0.0, 3.0, 3, 2)
    assert h.mean == pytest.approx(4 / 3)


@pytest.mark.parametrize(("values", "low", "linear", "by_size"), [([0.0] * 5, 0.0, 5, 0), ([2.0] * 5, 2.0, 5, 5)])
def test_a_tensor_of_one_number_has_one_bar(tmp_path, values, low, linear, by_size):
    import torch

    folder = folder_with(tmp_path, "own.bias", torch.tensor(values))
    h = histogram(HistogramQuestion(str(folder), "own.bias"), None, lambda: False)
    assert (h.low, h.high, h.std) == (low, low, 0.0)
    assert (max(h.linear), max(h.by_size)) == (linear, by_size)


def test_nothing_finite_leaves_no_figures(tmp_path):
    import torch

    folder = folder_with(tmp_path, "own.bias", torch.full((4,), float("nan")))
    h = histogram(HistogramQuestion(str(folder), "own.bias"), None, lambda: False)
    assert (h.low, h.high, h.mean, h.std, h.exponents, h.nans) == (None, None, None, None, None, 4)


def test_a_loaded_models_numbers_come_from_memory_and_agree_with_the_file(tmp_path):
    folder = tiny_folder(tmp_path / "loaded")
    session, table, _ = opened(folder)
    name = "model.layers.1.mlp.up_proj.weight"
    inside = histogram(HistogramQuestion(table.path, name), session, lambda: False)
    outside = histogram(HistogramQuestion(table.path, name), None, lambda: False)
    assert (inside.source, outside.source) == ("memory", "file")
    assert (inside.linear, inside.mean, inside.std) == (outside.linear, outside.mean, outside.std)
    session.close()


def test_packed_weights_show_the_files_numbers_and_say_so(tmp_path):
    folder = tiny_folder(tmp_path / "packed")
    session, table, _ = opened(folder, precision="int8")
    h = histogram(HistogramQuestion(table.path, "model.layers.1.mlp.up_proj.weight"), session, lambda: False)
    assert (h.source, h.dtype) == ("file", "float32")
    assert "these are the file's numbers" in h.note
    session.close()


def test_counting_can_be_broken_off_and_what_is_nowhere_is_a_sentence(tmp_path):
    folder = tiny_folder(tmp_path / "here")
    question = HistogramQuestion(str(folder), "model.embed_tokens.weight")
    with pytest.raises(Cancelled):
        histogram(question, None, lambda: True)
    with pytest.raises(CannotLoad, match=r"own\.weight"):
        histogram(HistogramQuestion(str(folder), "own.weight"), None, lambda: False)
