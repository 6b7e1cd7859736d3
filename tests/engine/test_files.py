"""Weight files are judged by their headers, each way to be broken in a sentence of its own."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.errors import CannotLoad
from engine.files import checksum_verdict, read_header, weight_files

CASES = json.loads((Path(__file__).parents[1] / "data" / "field_safetensors.json").read_text())


def tensor_file(path: Path, **tensors: torch.Tensor) -> Path:
    save_file(tensors or {"a": torch.ones(2)}, path)
    return path


def sharded(folder: Path, **index) -> Path:
    tensor_file(folder / "model-00001-of-00002.safetensors", a=torch.ones(2))
    tensor_file(folder / "model-00002-of-00002.safetensors", b=torch.ones(3))
    whole = {
        "metadata": {"total_size": 20},
        "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"},
    } | index
    (folder / "model.safetensors.index.json").write_text(json.dumps({k: v for k, v in whole.items() if v is not None}))
    return folder


def refusal(folder: Path, **options) -> CannotLoad:
    with pytest.raises(CannotLoad) as caught:
        weight_files(folder, **options)
    assert caught.value.exit_code == 3
    assert caught.value.fix
    return caught.value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_file_that_is_not_what_it_is_called_is_told_apart(case, tmp_path):
    file = tmp_path / "model.safetensors"
    file.write_bytes(bytes.fromhex(case["hex"]))
    if case["must_say"] is None:
        assert weight_files(tmp_path).files == (file,)
        return
    told = refusal(tmp_path).what
    assert case["must_say"] in told
    assert "model.safetensors" in told


@pytest.mark.parametrize("size", [0, 3, 8, 20, 64])
def test_a_truncated_file_never_passes_and_names_both_sizes(size, tmp_path):
    file = tensor_file(tmp_path / "model.safetensors", a=torch.arange(1.0, 9.0))
    whole = file.read_bytes()
    file.write_bytes(whole[:size])
    told = refusal(tmp_path).what
    assert "model.safetensors" in told
    if size >= 8:
        assert str(size) in told


def test_an_absurd_header_length_and_reserved_space_are_sentences(tmp_path):
    file = tmp_path / "model.safetensors"
    file.write_bytes((2**60).to_bytes(8, "little") + b"\1" * 64)
    assert "header of" in refusal(tmp_path).what
    file.write_bytes(bytes(4096))
    assert "zeros" in refusal(tmp_path).what


def header(file: Path, **table) -> None:
    raw = json.dumps(table).encode()
    file.write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(8))


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
        {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]},
        {"dtype": "F32", "shape": 2, "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2.5], "data_offsets": [0, 8]},
        {"shape": [2], "data_offsets": [0, 8]},
        {"dtype": ["F32"], "shape": [2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [10**300] * 40, "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 10**4000]},
        "text",
        None,
    ],
)
def test_a_header_that_contradicts_itself_is_damaged(entry, tmp_path):
    header(tmp_path / "model.safetensors", a=entry)
    told = refusal(tmp_path).what
    assert "damaged" in told
    assert len(told) < 300


def test_the_header_agrees_with_the_library(tmp_path):
    tensors = {"w": torch.ones(3, 5), "b": torch.ones(4, dtype=torch.bfloat16), "n": torch.ones(2, dtype=torch.int64)}
    file = tensor_file(tmp_path / "model.safetensors", **tensors)
    found = {entry.name: entry for entry in read_header(file)}
    assert {name: entry.shape for name, entry in found.items()} == {n: tuple(t.shape) for n, t in tensors.items()}
    assert {n: e.bytes for n, e in found.items()} == {n: t.numel() * t.element_size() for n, t in tensors.items()}
    assert set(weight_files(tmp_path).float_dtypes()) == {"float32", "bfloat16"}


def test_shards_with_an_honest_index_are_whole(tmp_path):
    files = weight_files(sharded(tmp_path))
    assert [file.name[:11] for file in files.files] == ["model-00001", "model-00002"]
    assert files.total_bytes == 20
    assert files.notes == ()


def test_a_wrong_total_size_is_a_note(tmp_path):
    assert "99" in weight_files(sharded(tmp_path, metadata={"total_size": 99})).notes[0]


def test_a_tensor_that_the_index_leaves_out_is_a_note(tmp_path):
    sharded(tmp_path)
    tensor_file(tmp_path / "model-00002-of-00002.safetensors", b=torch.ones(3), c=torch.ones(1))
    assert "The shards hold tensors that the index leaves out: 1." in weight_files(tmp_path).notes


@pytest.mark.parametrize(
    ("index", "word"),
    [
        ({"metadata": None}, "metadata"),
        ({"weight_map": None}, "which file holds which tensor"),
        ({"weight_map": {"a": 3}}, "which file holds which tensor"),
        ({"weight_map": {"a": ""}}, "which file holds which tensor"),
        ({"weight_map": {"a": "../../x.safetensors"}}, "outside"),
        ({"weight_map": {"a": "/etc/x.safetensors"}}, "outside"),
        ({"weight_map": {"a": "..\\x.safetensors"}}, "outside"),
        ({"weight_map": {"a": "model-00009-of-00002.safetensors"}}, "model-00009-of-00002.safetensors"),
        ({"weight_map": {"a": "x" * 5000}}, "lacks 1 of 1 shards: xxx"),
        ({"weight_map": {"a": "a\0b"}}, "lacks 1 of 1 shards"),
        ({"weight_map": {"z": "model-00001-of-00002.safetensors"}}, "z lies in"),
    ],
)
def test_an_index_that_lies_is_a_sentence(index, word, tmp_path):
    assert word in refusal(sharded(tmp_path, **index)).what


@pytest.mark.parametrize("text", ["{", "", "[]", "[" * 100_000])
def test_an_index_that_is_no_table_is_a_sentence(text, tmp_path):
    sharded(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(text)
    assert "index" in refusal(tmp_path).what


@pytest.mark.parametrize("name", ["model.safetensors", "model.safetensors.index.json"])
def test_a_folder_or_a_pipe_in_place_of_a_file_is_a_sentence(name, tmp_path):
    file = tmp_path / name
    file.mkdir()
    assert refusal(tmp_path).what == f"{name} is no file."
    file.rmdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(file)
        assert refusal(tmp_path).what == f"{name} is no file."


def test_a_missing_shard_is_named_and_counted(tmp_path):
    sharded(tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    told = refusal(tmp_path).what
    assert "1 of 2 shards" in told
    assert "model-00002-of-00002.safetensors" in told


def test_a_truncated_shard_is_named(tmp_path):
    file = sharded(tmp_path) / "model-00002-of-00002.safetensors"
    file.write_bytes(file.read_bytes()[:-4])
    told = refusal(tmp_path).what
    assert "model-00002-of-00002.safetensors is truncated" in told


def test_shards_without_an_index_and_other_names_are_sentences(tmp_path):
    sharded(tmp_path)
    (tmp_path / "model.safetensors.index.json").unlink()
    assert "holds model-00001-of-00002.safetensors and 1 more shard, and no index" in refusal(tmp_path).what
    for file in tmp_path.iterdir():
        file.unlink()
    tensor_file(tmp_path / "model.fp16.safetensors")
    assert "model.fp16.safetensors" in refusal(tmp_path).what


def test_two_sets_of_weights_are_refused_naming_both_with_size(tmp_path):
    sharded(tmp_path)
    old = tensor_file(tmp_path / "model.safetensors", a=torch.zeros(2))
    os.utime(old, (1_000_000_000, 1_000_000_000))
    told = refusal(tmp_path).what
    assert "model.safetensors (2001-09-" in told
    assert "model-00001-of-00002.safetensors (20" in told
    assert told.endswith(" and 1 more shard.")
    assert f"{old.stat().st_size:,} bytes" in told


def test_gguf_beside_safetensors_is_refused(tmp_path):
    tensor_file(tmp_path / "model.safetensors")
    (tmp_path / "model-q4.gguf").write_bytes(b"GGUF")
    assert "model-q4.gguf" in refusal(tmp_path).what


def test_a_pickle_is_refused_until_a_person_agrees(tmp_path):
    torch.save({"a": torch.ones(2)}, tmp_path / "pytorch_model.bin")
    assert "pickle" in refusal(tmp_path).what
    assert weight_files(tmp_path, allow_pickle=True).kind == "pickle"


def test_a_truncated_pickle_and_an_empty_folder_are_sentences(tmp_path):
    assert "no weights" in refusal(tmp_path, allow_pickle=True).what
    file = tmp_path / "pytorch_model.bin"
    torch.save({"a": torch.ones(200)}, file)
    file.write_bytes(file.read_bytes()[:300])
    assert "truncated" in refusal(tmp_path, allow_pickle=True).what


def test_links_as_the_hub_cache_makes_them_are_followed_and_broken_ones_named(tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots"
    blobs.mkdir(), snapshot.mkdir()
    content = tensor_file(tmp_path / "x.safetensors").read_bytes()
    import hashlib

    blob = blobs / hashlib.sha256(content).hexdigest()
    blob.write_bytes(content)
    (snapshot / "model.safetensors").symlink_to(blob)
    assert weight_files(snapshot).total_bytes == 8
    assert "agrees" in checksum_verdict(snapshot / "model.safetensors")
    shared = tmp_path / ("e" * 64)  # huggingface_hub 2 keeps one file for several repositories, under another hash
    blob.rename(shared)
    blob.symlink_to(shared)
    assert "agrees" in checksum_verdict(snapshot / "model.safetensors")
    blob.write_bytes(content[:-4] + bytes(4))
    assert "differs" in checksum_verdict(snapshot / "model.safetensors")
    blob.unlink()
    assert "not there" in refusal(snapshot).what


@pytest.mark.parametrize(("damage", "verdict"), [(False, "agrees"), (True, "differs")])
def test_a_file_of_the_hubs_cache_is_compared_with_the_checksum_in_its_name(damage, verdict, tmp_path):
    """LOD-24: the name of a blob is its SHA-256; the folder that is loaded holds links to blobs."""
    import hashlib

    from engine.files import checksum_verdict

    made = tmp_path / "made.safetensors"
    tensor_file(made, a=torch.ones(4))
    data = made.read_bytes()
    blob = tmp_path / hashlib.sha256(data).hexdigest()
    blob.write_bytes(data[:-4] + b"\0\0\0\0" if damage else data)
    link = tmp_path / "model.safetensors"
    try:
        link.symlink_to(blob)
    except OSError:
        pytest.skip("this system makes no links")
    assert verdict in checksum_verdict(link)
    assert checksum_verdict(made) == ""  # elsewhere a name says nothing
