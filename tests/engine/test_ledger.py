"""The ledger's two sides: what was predicted from the config alone is what the loaded model holds."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from engine.control import Control
from engine.events import GpuReading, LedgerPart, MemoryReading, PlacedPart
from engine.forward import GeneralForward
from engine.loading import load
from engine.readings import read_memory
from engine.settings import PRECISIONS, LoadPlan
from engine.sizes import ELEMENT_BYTES, NOT_WEIGHTS
from tests.tiny_models import tiny_folder

ROOT = Path(__file__).parents[2]
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


# fp4 lies in memory as nf4 does, and packing a whole model takes seconds; the families are packed in both.
@pytest.mark.parametrize("precision", [each for each in PRECISIONS if each != "fp4"])
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
    in_use, allocated = forward.kv_bytes()[0]
    assert in_use == sizes.kv_bytes(precision, 41)
    assert in_use * 3 == sizes.kv_bytes(precision, 41, 3)
    assert allocated >= in_use + sizes.state_bytes(precision)
    session.close()


def test_weights_that_the_files_hold_twice_count_twice_though_the_config_says_once(tmp_path):
    """The flag says tied, the files hold two tensors that differ: both are loaded (MEM-9, LOD-25)."""
    folder = tiny_folder(tmp_path, "llama", tie_word_embeddings=False)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    session = loaded(str(folder), "float32")
    parts = {part.name: part for part in session.facts.ledger}
    assert parts["embedding"].predicted_bytes == parts["embedding"].measured_bytes == 300 * 64 * 4
    assert parts["lm_head"].predicted_bytes is None  # from the config alone it is one
    assert parts["lm_head"].measured_bytes == 300 * 64 * 4
    assert session.facts.weights_bytes == sum(part.measured_bytes or 0 for part in parts.values())
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
    plan = LoadPlan(str(default_model_path), "bfloat16", kernel="plain")  # the others pack, and so read the weights
    session = load(plan, lambda event: None, Control())
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


PREFILL = """
import sys
import psutil, torch
import transformers.models.auto.modeling_auto
from app.commands.bench_peak import _peak
from engine.control import Control
from engine.forward import forward_of
from engine.loading import load
from engine.settings import LoadPlan

session = load(LoadPlan(sys.argv[1], "float32", device_map="cpu"), lambda event: None, Control())
forward = forward_of(session, 8000)
forward.read([1, 2, 3])  # what libraries set up at their first call is no part of it
forward = forward_of(session, 8000)
before = _peak()
for start in range(0, 8000, 500):
    forward.read(list(range(start, start + 500)))
sizes = session.facts.sizes
cache = sizes.kv_bytes("float32", 8000)
print(_peak() - before, cache, sizes.working_bytes("float32", 8000) + sizes.logits_bytes("float32"))
"""


def test_reading_eight_thousand_tokens_stays_within_the_prediction(tmp_path):
    """A row of logits for each of them would take 1.6 GB (MEM-21). In a process of its own, whose peak is its own."""
    folder = tiny_folder(tmp_path, "llama", vocab_size=49152, max_position_embeddings=8192, num_hidden_layers=1)
    done = subprocess.run(
        [sys.executable, "-c", PREFILL, str(folder)], capture_output=True, text=True, cwd=ROOT, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    grown, cache, working = map(int, done.stdout.split()[-3:])
    assert cache == 8000 * 2 * 2 * 16 * 4  # tokens, keys and values, KV heads, their width, bytes
    assert grown < (cache + working) * 1.1 + 20_000_000  # what the C library keeps for itself
    assert grown < 8000 * 49152 * 4 / 10


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is measured on Linux")
def test_ten_loads_leave_the_process_as_the_second_left_it(tmp_path):
    """MEM-7, with weights that are large against the noise of a process."""
    sizes = {"hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 8}
    folder = tiny_folder(tmp_path, "llama", **sizes)
    left, weights_bytes = [], 0
    for _ in range(10):
        session = loaded(str(folder), "float32")
        weights_bytes = session.facts.weights_bytes
        GeneralForward(session).read([1, 2, 3])
        session.close()
        left.append(read_memory().process_bytes)
    assert weights_bytes > 40_000_000
    assert left[-1] - left[1] < 0.2 * weights_bytes


def test_packed_copies_are_in_the_sum_less_what_stays_on_disk(default_model_path):
    plan = LoadPlan(str(default_model_path), "bfloat16", kernel="int8")
    session = load(plan, lambda event: None, Control())
    facts = session.facts
    linear = facts.packed_bytes - facts.packing_bytes  # of the model's own weights that are read no more
    assert linear / 2 < facts.packed_bytes < linear * 0.51
    parts = facts.process_ledger(None)
    packed = next(part for part in parts if part.name == "packed weights")
    assert packed.measured_bytes == facts.packing_bytes < 0
    assert sum(part.measured_bytes or 0 for part in parts) == facts.memory_after_bytes
    session.close()
