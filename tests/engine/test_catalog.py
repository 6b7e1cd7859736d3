"""Where a model lies: each way of naming one, and a sentence where nothing is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from engine.catalog import find_models, resolve
from engine.errors import CannotLoad


@pytest.fixture(autouse=True)
def own_caches(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("engine.default_model.default_model_path", lambda: tmp_path / "default-model")


def model_folder(folder: Path, **config) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "max_position_embeddings": 64} | config))
    (folder / "model.safetensors").write_bytes(bytes(10))
    return folder


def cached(tmp_path: Path, hub_id: str, revision: str = "abc") -> Path:
    repository = tmp_path / "hub" / ("models--" + hub_id.replace("/", "--"))
    (repository / "refs").mkdir(parents=True, exist_ok=True)
    (repository / "refs" / "main").write_text(revision)
    return model_folder(repository / "snapshots" / revision)


def told(model: str) -> str:
    with pytest.raises(CannotLoad) as caught:
        resolve(model)
    return f"{caught.value.what} {caught.value.fix}"


@pytest.mark.parametrize("name", ["plain", "with spaces", "模型", "🦜", "a#b%20c", "q?&=", "n" * 200])
def test_a_folder_of_any_name_is_found(name, tmp_path):
    folder = model_folder(tmp_path / name)
    located = resolve(str(folder))
    assert (located.path, located.kind, located.name) == (folder, "folder", name)


def test_default_is_the_fetched_model_and_says_how_to_fetch_it(tmp_path):
    assert "make setup" in told("default")
    model_folder(tmp_path / "default-model")
    assert resolve("default").folder == tmp_path / "default-model"


def test_a_cached_hub_id_is_found_by_its_main_branch(tmp_path):
    cached(tmp_path, "org/name", "older")
    newer = cached(tmp_path, "org/name", "newer")
    located = resolve("org/name")
    assert (located.folder, located.kind, located.name) == (newer, "cache", "name")


def test_a_hub_id_that_is_not_cached_fails_at_once(tmp_path, monkeypatch):
    import socket

    def no_network(*args, **kwargs):
        raise AssertionError("asked the network")

    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    assert "not on this computer" in told("org/other")
    assert "not on this computer" in told("gpt2")


def test_a_gguf_file_and_a_folder_with_one(tmp_path):
    file = tmp_path / "m-q4.gguf"
    file.write_bytes(b"GGUF")
    (tmp_path / "mmproj-m.gguf").write_bytes(b"GGUF")
    assert resolve(str(file)).path == file
    assert resolve(str(tmp_path)).gguf == "m-q4.gguf"


def test_a_folder_with_several_gguf_files_asks_which(tmp_path):
    for name in ("a.gguf", "b.GGUF"):
        (tmp_path / name).write_bytes(b"GGUF")
    assert "a.gguf" in told(str(tmp_path))
    assert "b.GGUF" in told(str(tmp_path))


@pytest.mark.parametrize(
    "model", ["", "  ", "\0", "x" * 5000, "/no/such/folder", "./nothing", "~nobody-here/x", "a/b/c"]
)
def test_nonsense_is_a_sentence(model):
    assert told(model)


def test_a_file_that_is_no_model_names_its_folder(tmp_path):
    file = model_folder(tmp_path / "m") / "config.json"
    assert "is a file" in told(str(file))
    assert str(tmp_path / "m") in told(str(file))


def test_a_part_of_a_split_gguf_is_refused(tmp_path):
    file = tmp_path / "m-00001-of-00003.gguf"
    file.write_bytes(b"GGUF")
    assert "3 parts" in told(str(file))


def test_the_list_holds_every_kind_once_and_survives_broken_folders(tmp_path):
    model_folder(tmp_path / "default-model")
    cached(tmp_path, "org/name")
    mine = tmp_path / "mine"
    model_folder(mine / "one")
    broken = model_folder(mine / "broken")
    (broken / "config.json").write_text("{")
    (mine / "g").mkdir()
    (mine / "g" / "x.gguf").write_bytes(b"GGUF")
    found = find_models([mine, mine, tmp_path / "not there"])
    assert [(choice.kind, choice.name) for choice in found] == [
        ("default", "default-model"),
        ("cache", "name"),
        ("folder", "broken"),
        ("gguf", "x"),
        ("folder", "one"),
    ]
    for choice in found:
        assert resolve(choice.model).path.exists()
    one = found[-1]
    assert (one.family, one.context_tokens, one.size_bytes) == ("llama", 64, 10)


def test_listing_imports_no_torch():
    code = "import sys; from engine.catalog import find_models; find_models(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
