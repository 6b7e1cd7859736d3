"""Device maps are checked against this machine and the model's own parts before anything is read."""

from __future__ import annotations

import json

import pytest

from engine.blueprint import read_blueprint
from engine.errors import CannotLoad
from engine.placement import check_table, checked_device, module_sizes, place, plan_for
from engine.settings import LoadPlan
from engine.sizes import DeviceLimit

PARTS = ["model.embed_tokens", "model.layers.0", "model.layers.1", "model.norm", "lm_head"]


@pytest.fixture
def blueprint(tmp_path):
    settings = {
        "model_type": "llama",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 100,
        "tie_word_embeddings": False,
    }
    (tmp_path / "config.json").write_text(json.dumps(settings))
    return read_blueprint(str(tmp_path))


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)


def refusal(call, *args) -> str:
    with pytest.raises(CannotLoad) as caught:
        call(*args)
    assert caught.value.fix
    return caught.value.what


@pytest.mark.parametrize("name", ["cuda:0", "cuda", "0", "7", "mps"])
def test_a_device_that_is_not_there_is_refused(name, no_gpu):
    assert "There is no device" in refusal(checked_device, name)


@pytest.mark.parametrize("name", ["cpuu", "", "cuda:", "cuda:x", "gpu", "-1", "meta"])
def test_a_name_that_is_no_device_is_refused(name, no_gpu):
    assert "not the name of a device" in refusal(checked_device, name)


def test_short_names_become_full_ones(two_gpus):
    assert [checked_device(name) for name in ("cuda", "1", "CPU", "disk")] == ["cuda:0", "cuda:1", "cpu", "disk"]
    assert "cuda:2" in refusal(checked_device, "cuda:2")


def test_a_table_that_names_every_part_stands_and_the_rotary_table_comes_along(blueprint, no_gpu):
    table = check_table(tuple((part, "cpu") for part in PARTS), blueprint)
    assert {part: table[part] for part in PARTS} == dict.fromkeys(PARTS, "cpu")
    assert table["model.rotary_emb"] == "cpu"


def test_a_tied_head_lies_where_the_embedding_does(tmp_path, no_gpu):
    settings = {"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 4, "vocab_size": 100}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    parts = {"transformer.wte": "disk", "transformer.wpe": "cpu", "transformer.h.0": "cpu", "transformer.ln_f": "cpu"}
    table = check_table(tuple(parts.items()), read_blueprint(str(tmp_path)))
    assert table == parts | {"lm_head": "disk"}


def test_a_table_that_forgets_a_part_names_it(blueprint, no_gpu):
    told = refusal(check_table, (("model.embed_tokens", "cpu"), ("model.layers", "cpu")), blueprint)
    assert "leaves out model.norm, lm_head." in told


def test_a_table_that_names_a_layer_too_many_says_how_many_there_are(blueprint, no_gpu):
    with pytest.raises(CannotLoad) as caught:
        check_table((("", "cpu"), ("model.layers.9", "cpu")), blueprint)
    assert "model.layers.9" in caught.value.what
    assert "layers: 2" in caught.value.fix


def test_a_rule_for_the_rest_and_one_exception_cover_each_part_once(blueprint, no_gpu):
    table = check_table((("", "cpu"), ("model.layers.1", "disk")), blueprint)
    assert table["model.layers.1"] == "disk"
    assert {device for name, device in table.items() if name != "model.layers.1"} == {"cpu"}
    assert "" not in table


def test_auto_without_a_gpu_is_the_processor(blueprint, no_gpu):
    placement = place(LoadPlan("m"), blueprint, "float32", "float32")
    assert placement.device_map == {"": "cpu"}
    assert placement.disk_bytes == 0


def test_what_will_lie_on_disk_is_said_in_bytes(blueprint, no_gpu):
    table = tuple((part, "disk" if part == "model.layers.1" else "cpu") for part in PARTS)
    placement = place(LoadPlan("m", device_map=table), blueprint, "float32", "float32")
    layer = 4 * 32 * 32 + 3 * 32 * 64 + 2 * 32
    assert placement.disk_bytes == layer * 4
    assert f"{layer * 4:,} bytes" in placement.notes[0]


def test_a_memory_limit_sends_the_rest_to_disk_and_says_so(blueprint, no_gpu):
    whole = module_sizes(blueprint, "float32", "float32")[""]
    placement = place(LoadPlan("m", max_memory_bytes=(("cpu", int(whole * 0.8)),)), blueprint, "float32", "float32")
    assert 0 < placement.disk_bytes < whole
    assert "disk" in placement.devices


def test_a_limit_for_one_gpu_takes_neither_the_other_nor_the_processor_away(blueprint, two_gpus, monkeypatch):
    whole = module_sizes(blueprint, "float32", "float32")[""]
    free = [
        DeviceLimit("cuda:0", whole * 9, whole * 9),
        DeviceLimit("cuda:1", whole // 2, whole),
        DeviceLimit("cpu", whole * 9, whole * 9),
    ]
    monkeypatch.setattr("engine.placement.device_limits", lambda: tuple(free))
    plan = LoadPlan("m", device_map="sequential", max_memory_bytes=(("cuda:0", int(whole * 0.7)),))
    placement = place(plan, blueprint, "float32", "float32")
    assert set(placement.devices) >= {"cuda:0", "cuda:1"}
    assert placement.disk_bytes == 0


def test_a_limit_that_cannot_be_applied_says_so(blueprint, no_gpu):
    plan = LoadPlan("m", device_map="cpu", max_memory_bytes=(("cpu", 10),))
    assert any("none was applied" in note for note in place(plan, blueprint, "float32", "float32").notes)


def test_all_on_disk_is_refused(blueprint, no_gpu):
    assert "compute" in refusal(place, LoadPlan("m", device_map="disk"), blueprint, "float32", "float32")
    tight = LoadPlan("m", max_memory_bytes=(("cpu", 10),))
    assert "compute" in refusal(place, tight, blueprint, "float32", "float32")


def test_quantised_weights_on_disk_are_refused(blueprint, no_gpu):
    table = (("", "cpu"), ("model.layers.1", "disk"))
    assert "disk" in refusal(place, LoadPlan("m", device_map=table), blueprint, "nf4", "bfloat16")


def test_an_offload_folder_that_cannot_be_made_is_refused(blueprint, no_gpu, tmp_path):
    file = tmp_path / "a file"
    file.write_text("")
    plan = LoadPlan("m", device_map=(("", "cpu"), ("lm_head", "disk")), offload_folder=str(file / "below"))
    assert "offload folder" in refusal(place, plan, blueprint, "float32", "float32")


def test_a_limit_for_a_device_that_is_not_there_is_refused(blueprint, no_gpu):
    plan = LoadPlan("m", max_memory_bytes=(("cuda:0", 10**9),))
    assert "cuda:0" in refusal(place, plan, blueprint, "float32", "float32")


@pytest.mark.parametrize("wish", ["auto", "balanced", "balanced_low_0", "sequential"])
def test_the_planner_plans_for_gpus_that_are_not_there(blueprint, wish):
    whole = module_sizes(blueprint, "float32", "float32")[""]
    memory = {0: int(whole * 0.7), 1: int(whole * 0.7), "cpu": whole}
    plan = plan_for(blueprint, wish, memory, "float32", "float32")
    assert set(plan.values()) <= {"cuda:0", "cuda:1", "cpu"}
    assert len(set(plan.values())) > 1
    check_names = {name for name, _ in blueprint.skeleton.model.named_modules()}
    assert set(plan) <= check_names


def test_sizes_by_module_add_up(blueprint):
    sizes = module_sizes(blueprint, "nf4", "bfloat16")
    assert sizes["model"] + sizes["lm_head"] == sizes[""]
    assert sizes["model.layers.0"] + sizes["model.layers.1"] == sizes["model.layers"]


def test_what_a_device_does_badly_is_said_before_loading(blueprint, no_gpu):
    """LOD-12: nothing is refused on a processor, and what is slow there is told."""
    told = {p: place(LoadPlan("m", device_map="cpu"), blueprint, p, "float16").notes for p in ("float16", "nf4")}
    assert any("float16 is slow on a processor" in note for note in told["float16"])
    assert any("nf4 saves memory on a processor" in note for note in told["nf4"])
    assert place(LoadPlan("m", device_map="cpu"), blueprint, "bfloat16", "bfloat16").notes == ()


@pytest.mark.parametrize(("major", "told"), [(7, True), (8, False)])
def test_an_old_gpu_without_bfloat16_is_named(blueprint, two_gpus, monkeypatch, major, told):
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (major, 0))
    notes = place(LoadPlan("m", device_map="cuda:1"), blueprint, "bfloat16", "bfloat16").notes
    assert any("cuda:1 has no bfloat16 units" in note for note in notes) is told
