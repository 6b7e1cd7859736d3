"""Where a model lies: each way of naming one, and a sentence where nothing is."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from engine.catalog import find_models, resolve
from engine.errors import CannotLoad
from engine.files import BITS
from engine.licences import licence_of
from tests.tiny_models import TEMPLATE


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


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"a\0b", b"x" * 5000])
def test_a_damaged_branch_of_a_cached_model_hides_neither_it_nor_others(content, tmp_path):
    folder = cached(tmp_path, "org/name")
    (tmp_path / "hub" / "models--org--name" / "refs" / "main").write_bytes(content)
    assert resolve("org/name").folder == folder
    assert [choice.hub_id for choice in find_models()] == ["org/name"]


def test_what_can_be_no_path_is_a_short_sentence():
    assert len(told("x" * 5000)) < 400


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


def test_the_list_holds_every_kind_once_and_broken_ones_say_why(tmp_path):
    model_folder(tmp_path / "default-model")
    cached(tmp_path, "org/name")
    mine = tmp_path / "mine"
    model_folder(mine / "one")
    broken = model_folder(mine / "broken")
    (broken / "config.json").write_text("{")
    (mine / "g").mkdir()
    (mine / "g" / "x.gguf").write_bytes(b"GGUF")
    (mine / "not a model").mkdir()
    (mine / "not a model" / "config.json").write_text('{"name": "of another program"}')
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
        assert choice.problem is not None  # ten zero bytes are no weights
    assert "config.json is not JSON" in found[2].problem.what
    assert "begins with zeros" in found[4].problem.what
    one = found[-1]
    assert (one.family, one.context_tokens, one.size_bytes, one.weights) == ("llama", 64, 10, "safetensors")


def test_listing_imports_no_torch():
    code = "import sys; from engine.catalog import find_models; find_models(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---------------------------------------------------------------- facts


def only(folder: Path):
    (choice,) = find_models([folder])
    return choice


def problem_of(folder: Path) -> str:
    problem = only(folder).problem
    return f"{problem.what} {problem.fix}" if problem else ""


def safetensors(path: Path, **tensors: tuple[str, list[int]]) -> None:
    """A file of zeros with this header, written by hand as the format says."""
    header, end = {}, 0
    for name, (dtype, shape) in tensors.items():
        size = BITS[dtype] // 8 * math.prod(shape)
        header[name.replace("__", ".")] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    raw = json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(end))


@pytest.mark.parametrize(
    ("family", "template"), [("llama", True), ("gpt2", False), ("gemma3_text", True), ("mixtral", True)]
)
def test_the_facts_of_a_saved_model_are_those_of_the_model(tmp_path, family, template):
    import torch

    from tests.tiny_models import byte_tokenizer, tiny_model

    model = tiny_model(family).to(torch.bfloat16 if template else torch.float32)
    model.save_pretrained(tmp_path / "m")
    byte_tokenizer(TEMPLATE if template else None).save_pretrained(tmp_path / "m")
    choice = only(tmp_path / "m")
    assert choice.problem is None
    assert choice.parameters == model.num_parameters()
    assert choice.precision == ("bfloat16" if template else "float32")
    assert choice.family == family
    assert choice.context_tokens == model.config.max_position_embeddings
    assert choice.has_chat_template is template
    assert choice.size_bytes == (tmp_path / "m" / "model.safetensors").stat().st_size
    assert (choice.weights, choice.pickle_only, choice.path) == ("safetensors", False, str(tmp_path / "m"))


def test_shards_count_together_and_a_missing_one_is_named(tmp_path):
    from tests.tiny_models import byte_tokenizer, tiny_model

    model = tiny_model("llama")
    model.save_pretrained(tmp_path / "m", max_shard_size="100KB")
    byte_tokenizer().save_pretrained(tmp_path / "m")
    shards = sorted((tmp_path / "m").glob("*.safetensors"))
    assert len(shards) > 2
    choice = only(tmp_path / "m")
    assert (choice.parameters, choice.problem) == (model.num_parameters(), None)
    assert choice.size_bytes == sum(shard.stat().st_size for shard in shards)
    shards[1].unlink()
    assert shards[1].name in problem_of(tmp_path / "m")


@pytest.mark.parametrize(
    ("quantised", "tensors", "parameters", "precision"),
    [
        # 64 × 64 weights each; constants do not count.
        (
            {"quant_method": "gptq", "bits": 4},
            {"q__qweight": ("I32", [8, 64]), "q__scales": ("F16", [1, 64]), "q__qzeros": ("I32", [1, 8])},
            4096,
            "GPTQ 4-bit",
        ),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
            {"q__weight": ("U8", [2048, 1]), "q__weight__absmax": ("F32", [64]), "n__weight": ("F32", [64])},
            4096 + 64,
            "nf4",
        ),
        (
            {"quant_method": "bitsandbytes", "load_in_8bit": True},
            {"q__weight": ("I8", [64, 64]), "q__SCB": ("F32", [64])},
            4096,
            "int8",
        ),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4}}}},
            {
                "q__weight_packed": ("I32", [64, 8]),
                "q__weight_scale": ("BF16", [64, 1]),
                "q__weight_shape": ("I64", [2]),
            },
            4096,
            "compressed-tensors 4-bit",
        ),
        (
            {"quant_method": "fp8"},
            {"q__weight": ("F8_E4M3", [64, 64]), "q__weight_scale_inv": ("F32", [1, 1])},
            4096,
            "FP8 8-bit",
        ),
        ({"quant_method": "hqq"}, {"q__W_q": ("U8", [2048])}, None, "HQQ"),
    ],
)
def test_packed_weights_are_counted_as_what_they_stand_for(tmp_path, quantised, tensors, parameters, precision):
    folder = model_folder(tmp_path / "m", quantization_config=quantised)
    safetensors(folder / "model.safetensors", **tensors)
    choice = only(folder)
    assert (choice.parameters, choice.precision) == (parameters, precision)


def test_mixed_number_types_are_said(tmp_path):
    folder = model_folder(tmp_path / "m", dtype="float16")
    safetensors(folder / "model.safetensors", a=("BF16", [90]), b=("F32", [20]))
    assert only(folder).precision == "bfloat16, mixed"


@pytest.mark.parametrize(
    ("files", "word"),
    [
        ({}, "no tokenizer"),
        ({"config.json": None}, "has no config.json"),
        ({"config.json": '{"architectures": ["LlamaForCausalLM"]}'}, "model_type"),
        ({"config.json": '{"model_type": "bert", "architectures": ["BertForMaskedLM"]}'}, "not a text generator"),
        ({"config.json": '{"model_type": "t5", "is_encoder_decoder": true}'}, "two halves"),
        ({"model.safetensors": "version https://git-lfs.github.com/spec/v1\nsize 99"}, "only a pointer"),
        ({"model.safetensors": "<!doctype html>"}, "web page"),
        ({"model.safetensors": None, "adapter_model.safetensors": "", "config.json": None,
          "adapter_config.json": "{}"}, "adapter"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_a_sentence(tmp_path, files, word):
    folder = model_folder(tmp_path / "m")
    safetensors(folder / "model.safetensors", a=("F32", [4]))
    for name, content in files.items():
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_text(content)
    assert word in problem_of(folder)


def test_only_pickles_is_said_and_is_no_fault(tmp_path):
    import torch

    from tests.tiny_models import byte_tokenizer

    folder = model_folder(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    torch.save({"a": torch.zeros(4)}, folder / "pytorch_model.bin")
    byte_tokenizer().save_pretrained(folder)
    choice = only(folder)
    assert (choice.weights, choice.pickle_only, choice.parameters, choice.problem) == ("pickle", True, None, None)


def test_the_facts_of_a_gguf_file_come_from_its_header(tmp_path):
    import numpy as np
    from gguf import GGUFWriter

    path = tmp_path / "m-Q8_0.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(4096)
    writer.add_license("apache-2.0")
    writer.add_chat_template("{{ messages }}")
    writer.add_file_type(7)
    writer.add_tensor("token_embd.weight", np.zeros((10, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    choice = only(tmp_path)
    assert (choice.family, choice.context_tokens, choice.licence) == ("llama", 4096, "apache-2.0")
    assert (choice.parameters, choice.precision, choice.has_chat_template) == (320, "Q8_0", True)
    assert (choice.weights, choice.kind, choice.problem) == ("gguf", "gguf", None)
    path.write_bytes(path.read_bytes()[:-8])
    assert "truncated" in problem_of(tmp_path)


def test_a_split_gguf_is_listed_once_and_says_what_to_do(tmp_path):
    for part in (1, 2, 3):
        (tmp_path / f"m-0000{part}-of-00003.gguf").write_bytes(b"GGUF")
    assert "Join the parts" in problem_of(tmp_path)


def test_a_file_that_changes_is_read_again(tmp_path):
    folder = model_folder(tmp_path / "m")
    safetensors(folder / "model.safetensors", a=("F32", [4]))
    assert only(folder).parameters == 4
    safetensors(folder / "model.safetensors", a=("F32", [400]))
    assert only(folder).parameters == 400


def test_models_are_found_three_folders_down_and_links_in_circles_end(tmp_path):
    model_folder(tmp_path / "shelf" / "maker" / "model" / "v1")
    model_folder(tmp_path / "shelf" / ".hidden" / "m")
    model_folder(tmp_path / "shelf" / "a" / "b" / "c" / "d")
    (tmp_path / "shelf" / "maker" / "circle").symlink_to(tmp_path / "shelf")
    assert [choice.name for choice in find_models([tmp_path / "shelf"])] == ["v1"]


def test_another_hub_cache_may_be_a_chosen_folder(tmp_path, monkeypatch):
    snapshot = cached(tmp_path, "org/name")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "empty"))
    choice = only(tmp_path / "hub")
    assert (choice.name, choice.hub_id, choice.model) == ("name", "org/name", str(snapshot))


@pytest.mark.parametrize(
    ("files", "licence"),
    [
        ({"README.md": "---\nlanguage:\n- en\nlicense: apache-2.0\n---\n"}, "apache-2.0"),
        ({"README.md": "---\nlicense:\n  - mit\n---\n"}, "mit"),
        ({"README.md": "---\nlicense: other\nlicense_name: llama3.1\n---\n"}, "llama3.1"),
        ({"README.md": "# no head\nlicense: mit"}, ""),
        ({"README.md": "", "LICENSE": "   Apache License\n   Version 2.0"}, "apache-2.0"),
        ({"LICENSE.txt": "Permission of the house\nfor all"}, "Permission of the house"),
        ({}, ""),
    ],
)
def test_the_licence_is_what_the_files_name(tmp_path, files, licence):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    assert licence_of(tmp_path) == licence


def test_the_default_model_is_listed_with_its_facts(default_model_path, monkeypatch):
    monkeypatch.setattr("engine.default_model.default_model_path", lambda: default_model_path)
    (choice,) = find_models()
    assert (choice.parameters, choice.precision, choice.context_tokens) == (134_515_008, "bfloat16", 8192)
    assert (choice.has_chat_template, choice.licence, choice.problem) == (True, "apache-2.0", None)
