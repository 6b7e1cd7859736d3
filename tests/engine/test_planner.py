"""Plans for devices that are not there: accelerate's own map, each byte counted once, and what spills is said."""

from __future__ import annotations

import json

import pytest

from engine.blueprint import read_blueprint
from engine.errors import CannotLoad, SettingsRefused
from engine.planner import plan
from engine.settings import PlanWish, gpus_named

LLAMA = {
    "model_type": "llama",
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
    "num_key_value_heads": 8,
}
SHAPES = {  # Llama 3.1, as its maker publishes them
    "70B": {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64},
    "405B": {"hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126, "num_attention_heads": 128},
}
PARAMETERS = {"70B": 70_553_706_496, "405B": 405_853_388_800}
KV_PER_TOKEN = {"70B": 327_680, "405B": 516_096}


@pytest.fixture(scope="module")
def blueprints(tmp_path_factory):
    made = {}
    for name, shape in SHAPES.items():
        folder = tmp_path_factory.mktemp(name)
        (folder / "config.json").write_text(json.dumps(LLAMA | shape))
        made[name] = read_blueprint(str(folder))
    return made


@pytest.fixture(scope="module")
def empty(blueprints):
    """transformers' own model of a shape, without weights."""
    import torch
    from accelerate import init_empty_weights
    from transformers import AutoModelForCausalLM

    made = {}

    def get(name):
        if name not in made:
            with init_empty_weights():
                made[name] = AutoModelForCausalLM.from_config(blueprints[name].config, dtype=torch.bfloat16)
        return made[name]

    return get


def machine(*gigabytes: float, cpu: float = 64) -> tuple[tuple[str, int], ...]:
    return (*((f"cuda:{at}", round(size * 1e9)) for at, size in enumerate(gigabytes)), ("cpu", round(cpu * 1e9)))


def wish(devices, **changes) -> PlanWish:
    return PlanWish("", **({"context_tokens": 8192, "devices": devices} | changes))


@pytest.mark.parametrize("device_map", ["auto", "balanced", "balanced_low_0", "sequential"])
@pytest.mark.parametrize(("name", "gpus"), [("70B", [24] * 2), ("405B", [80] * 8), ("70B", [80, 48, 24])])
def test_the_plan_is_accelerates_own(name, gpus, device_map, blueprints, empty):
    """As a person would ask accelerate, on a model of transformers under its own context of empty weights."""
    import torch
    from accelerate import infer_auto_device_map
    from accelerate.utils import get_balanced_memory

    model = empty(name)
    memory = {at: round(size * 1e9) for at, size in enumerate(gpus)} | {"cpu": 64 * 10**9}
    options = {"no_split_module_classes": ["LlamaDecoderLayer"], "dtype": torch.bfloat16}
    if device_map != "sequential":
        memory = get_balanced_memory(model, dict(memory), low_zero=device_map == "balanced_low_0", **options)
    asked = infer_auto_device_map(model, memory, **options)
    found = plan(wish(machine(*gpus), device_map=device_map, room_for_text=False), blueprints[name])
    where = {part.name: part.device for part in found.parts}
    for module, device in asked.items():
        if module in where:
            assert where[module] == (f"cuda:{device}" if isinstance(device, int) else device), module
    assert sum(1 for module in asked if module in where) >= SHAPES[name]["num_hidden_layers"]


@pytest.mark.parametrize(("name", "gpus"), [("70B", [24] * 2), ("405B", [80] * 8), ("70B", [80] * 2)])
def test_each_byte_of_weights_and_cache_is_counted_once(name, gpus, blueprints):
    found = plan(wish(machine(*gpus), lanes=2), blueprints[name])
    assert sum(device.weights_bytes for device in found.devices) == PARAMETERS[name] * 2
    assert sum(device.kv_bytes for device in found.devices) == KV_PER_TOKEN[name] * 8192 * 2
    assert sorted(part.layer for part in found.parts if part.layer is not None) == list(
        range(SHAPES[name]["num_hidden_layers"])
    )


def test_seventy_billion_on_two_cards_of_24_gb_spill_to_cpu_and_disk(blueprints):
    found = plan(wish(machine(24, 24)), blueprints["70B"])
    assert not found.fits
    spilled = found.spilled_bytes("cpu") + found.spilled_bytes("disk")
    assert found.moved_bytes_per_token == spilled > 90e9
    assert found.main_device == "cuda:0"
    assert any("travel to GPU 0 again for every token" in note for note in found.notes)
    for device in found.devices[:2]:
        assert 0 <= device.free_bytes < device.memory_bytes
    order = {device.name: at for at, device in enumerate(found.devices)}
    layers = sorted((part for part in found.parts if part.layer is not None), key=lambda part: order[part.device])
    assert [part.layer for part in layers] == list(range(80))  # the first on the first card, and so on


def test_the_cache_of_what_spills_lies_where_it_is_computed(blueprints):
    found = plan(wish(machine(24, 24)), blueprints["70B"])
    by_name = {device.name: device for device in found.devices}
    assert by_name["cpu"].kv_bytes == by_name["disk"].kv_bytes == 0
    own = sum(part.kv_bytes for part in found.parts if part.device in ("cuda:0", "cpu", "disk"))
    assert by_name["cuda:0"].kv_bytes == own


def test_eight_cards_of_80_gb_hold_405_billion_parameters_in_4_bits_and_not_in_16(blueprints):
    assert plan(wish(machine(*[80] * 8), precision="nf4"), blueprints["405B"]).fits
    plain = plan(wish(machine(*[80] * 8)), blueprints["405B"])
    assert not plain.fits
    assert plain.spilled_bytes("disk") > 0


def test_room_for_the_text_is_left_and_without_it_the_lack_is_said(blueprints):
    devices = machine(80, 80, cpu=200)
    with_room = plan(wish(devices, context_tokens=32768), blueprints["70B"])
    assert all(device.free_bytes >= 0 for device in with_room.devices if device.memory_bytes)
    without = plan(wish(devices, context_tokens=32768, device_map="sequential", room_for_text=False), blueprints["70B"])
    assert without.devices[0].free_bytes < 0
    assert not without.fits
    assert any("GPU 0 is" in note and "too small" in note for note in without.notes)


def test_quantised_weights_on_disk_are_said_to_be_impossible(blueprints):
    found = plan(wish(machine(24, cpu=0), precision="nf4"), blueprints["70B"])
    assert found.spilled_bytes("disk") > 0
    assert any("cannot lie on disk" in note for note in found.notes)


def test_a_table_for_devices_that_are_not_there_is_checked_against_them(blueprints):
    table = (("", "cuda:1"), ("model.layers.3", "cpu"))
    found = plan(wish(machine(24, 500), device_map=table), blueprints["70B"])
    assert {part.name for part in found.parts if part.device == "cpu"} == {"model.layers.3"}
    with pytest.raises(CannotLoad) as caught:
        plan(wish(machine(24, 24), device_map=(("", "cuda:2"),)), blueprints["70B"])
    assert "cuda:2" in caught.value.what


def test_one_device_takes_all(blueprints):
    found = plan(wish(machine(24, 24), device_map="cuda:1"), blueprints["70B"])
    assert found.devices[1].weights_bytes == PARAMETERS["70B"] * 2
    assert not found.fits


def test_without_a_wish_for_devices_it_is_this_machine(default_model_path):
    found = plan(PlanWish(str(default_model_path), "bfloat16", 100, device_map="cpu"))
    assert [device.name for device in found.devices if device.weights_bytes] == ["cpu"]
    assert found.devices[-1].weights_bytes == 269_030_016
    assert found.devices[-1].kv_bytes == 2_304_000


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("2x24", [24 * 10**9] * 2),
        ("8 × 80 GB", [80 * 10**9] * 8),
        ("24", [24 * 10**9]),
        ("1x80, 2x24GiB", [80 * 10**9, 24 * 2**30, 24 * 2**30]),
        ("1x0.5", [500_000_000]),
        ("2x24564MiB", [24_564 * 2**20] * 2),
    ],
)
def test_gpus_are_named_by_count_and_memory(text, sizes):
    assert list(gpus_named(text)) == sizes


@pytest.mark.parametrize(
    "text", ["", "x", "two", "2x", "2x-1", "0x24", "100x24", "40x24,40x24", "2x0", "1e5x3", "2x24TB"]
)
def test_gpus_that_cannot_be_read_are_refused(text):
    with pytest.raises(SettingsRefused) as caught:
        gpus_named(text)
    assert caught.value.fix


def test_files_that_are_packed_already_are_planned_as_small_as_they_are(tmp_path):
    packed = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False}
    plans = []
    for name, more in (("plain", {}), ("packed", {"quantization_config": packed})):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(LLAMA | SHAPES["70B"] | more))
        plans.append(plan(wish(machine(48), device_map="auto"), read_blueprint(str(folder))))
    assert not plans[0].fits
    assert plans[1].fits
    assert plans[1].devices[0].weights_bytes < 45e9
