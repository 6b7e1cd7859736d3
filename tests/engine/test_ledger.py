"""The ledger's two sides: what was predicted from the config alone is what the loaded model holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.control import Control
from engine.events import GpuReading, LedgerPart, MemoryReading, PlacedPart
from engine.forward import GeneralForward
from engine.loading import load
from engine.readings import read_memory
from engine.settings import PRECISIONS, LoadPlan
from engine.sizes import ELEMENT_BYTES, NOT_WEIGHTS
from tests.tiny_models import tiny_folder

MAMBA = "mamba, states alone"
TIED = {"tie_word_embeddings": True}
FAMILIES = {
    "llama, grouped heads, untied": ("llama", {"tie_word_embeddings": False}),
    "qwen2, biases, tied": ("qwen2", TIED),
    "qwen3, norms of query and key": ("qwen3", {}),
    "gemma3, windows and full layers, tied": ("gemma3_text", {}),
    "mistral, a window in every layer": ("mistral", {}),
    "gpt2, all heads, tied": ("gpt2", {}),
    "gpt_bigcode, one head for all": ("gpt_bigcode", {}),
    "mixtral, experts": ("mixtral", {}),
    "gpt_oss, experts with biases and windows": ("gpt_oss", {}),
    "jamba, hybrid of states and attention": ("jamba", {}),
    MAMBA: ("mamba", {}),
    "bloom, all heads, norms with biases": ("bloom", {}),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Each family's folder, made when it is first asked for."""
    made: dict = {}

    def folder(case: str) -> str:
        if case not in made:
            family, changes = FAMILIES[case]
            made[case] = str(tiny_folder(tmp_path_factory.mktemp("family"), family, **changes))
        return made[case]

    return folder


def loaded(model: str, precision: str):
    return load(LoadPlan(model, precision, device_map="cpu"), lambda event: None, Control())


def weights(parts) -> dict[str, LedgerPart]:
    return {part.name: part for part in parts if part.name not in NOT_WEIGHTS}


def check(session, precision: str) -> None:
    parts = weights(session.facts.ledger)
    predicted = sum(part.predicted_bytes or 0 for part in parts.values())
    measured = sum(part.measured_bytes or 0 for part in parts.values())
    assert measured == session.facts.weights_bytes
    assert predicted == pytest.approx(measured, rel=0.03)
    for part in parts.values():
        assert part.measured_bytes is not None, part.name
        assert part.predicted_bytes == pytest.approx(part.measured_bytes, rel=0.03), part.name


# transformers itself multiplies one of mamba's matrices in a way that bitsandbytes' packed ones cannot take.
WEIGHTS = [(case, p) for case in FAMILIES for p in PRECISIONS if case != MAMBA or p in ELEMENT_BYTES]


@pytest.mark.parametrize(("case", "precision"), WEIGHTS)
def test_weights_of_a_family_are_as_predicted_part_by_part(case, precision, folders):
    session = loaded(folders(case), precision)
    check(session, precision)
    session.close()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_weights_of_the_default_model_are_as_predicted_part_by_part(precision, default_model_path):
    session = loaded(str(default_model_path), precision)
    check(session, precision)
    session.close()


@pytest.mark.parametrize(("case", "precision"), [run for run in WEIGHTS if run[1] in ("float32", "bfloat16", "int8")])
def test_the_cache_is_as_predicted_to_the_byte(case, precision, folders):
    session = loaded(folders(case), precision)
    sizes = session.facts.sizes
    forward = GeneralForward(session)
    forward.read(list(range(40)))
    forward.share(3)
    forward.step([7, 8, 9])
    in_use, allocated = forward.kv_bytes()  # of one lane
    assert in_use == sizes.kv_bytes(precision, 41)
    assert in_use * 3 == sizes.kv_bytes(precision, 41, 3)
    assert allocated >= in_use + sizes.state_bytes(precision)
    session.close()


# ---------------------------------------------------------------- the process's total


def test_the_measured_parts_add_up_to_the_processs_memory(default_session):
    facts, now = default_session.facts, read_memory()
    parts = facts.process_ledger(now, 5_000_000)
    assert sum(part.measured_bytes or 0 for part in parts) == now.process_bytes
    assert {part.name: part.measured_bytes for part in parts}["kv_cache"] == 5_000_000
    assert parts[-1].name == "unexplained"
    assert parts[-1].note


def test_before_the_first_word_what_is_mapped_counts_below_zero_and_says_so(default_model_path):
    session = loaded(str(default_model_path), "bfloat16")
    facts = session.facts
    less = MemoryReading(0.0, facts.memory_before_bytes + 1_000_000, 0, 0)
    last = facts.process_ledger(less)[-1]
    assert last.measured_bytes == 1_000_000 - facts.weights_bytes
    assert "mapped from the file" in last.note
    session.close()


def test_what_lies_on_disk_is_no_memory_of_the_process(default_model_path):
    table = (("", "cpu"), *((f"model.layers.{at}", "disk") for at in range(20, 30)))
    session = load(LoadPlan(str(default_model_path), "bfloat16", device_map=table), lambda event: None, Control())
    facts = session.facts
    layer = (884_736 + 2_654_208 + 1_152) * 2  # attention, feed-forward and norms of one layer
    assert facts.on_device("disk") == 10 * layer
    assert facts.on_device("cpu") + facts.on_device("disk") == facts.weights_bytes
    on_disk = [part.layer for part in facts.places if part.device == "disk"]
    assert on_disk == list(range(20, 30))
    parts = facts.process_ledger(None)
    assert sum(part.measured_bytes or 0 for part in parts) == facts.memory_after_bytes
    measured = sum(part.measured_bytes or 0 for part in weights(parts).values())
    assert measured == facts.on_device("cpu")
    session.close()


def test_a_gpus_parts_add_up_to_the_drivers_figure(default_session):
    facts = replace(default_session.facts, devices=("cuda:0",), places=(PlacedPart("model", "cuda:0", 700),))
    gpu = GpuReading("a card", allocated_bytes=1000, reserved_bytes=1500, driver_used_bytes=2100, total_bytes=9000)
    parts = facts.gpu_ledger(MemoryReading(0.0, 0, 0, 0, (gpu,)), 0, 200)
    assert [(part.name, part.measured_bytes) for part in parts] == [
        ("weights", 700),
        ("kv_cache", 200),
        ("unexplained", 100),
        ("kept by the allocator", 500),
        ("driver and others", 600),
    ]
    assert facts.process_ledger(None, 200)[0].measured_bytes == 0  # the weights and the cache are the GPU's
    assert sum(part.measured_bytes or 0 for part in facts.process_ledger(None, 200)) == facts.memory_after_bytes
