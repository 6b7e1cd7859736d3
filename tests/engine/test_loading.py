"""Loading: every precision and placement, what loads silently wrong elsewhere is refused, a cancel leaves nothing."""

from __future__ import annotations

import gc
import json
import logging
import shutil
import weakref
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine import loading
from engine.control import Control
from engine.errors import Cancelled, CannotLoad, SettingsRefused, WorkbenchError
from engine.events import LOAD_STAGES, LoadProgress
from engine.loading import load
from engine.prompt import end_tokens
from engine.readings import give_memory_back, read_memory
from engine.settings import LoadPlan
from tests.tiny_models import byte_tokenizer, tiny_folder

IDS = torch.tensor([[1, 2, 3, 4]])


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("models") / "llama", tie_word_embeddings=False)


@pytest.fixture
def folder(original, tmp_path) -> Path:
    """A copy of a tiny llama that a test may break."""
    return Path(shutil.copytree(original, tmp_path / "model"))


def loaded(folder, emit=lambda event: None, control=None, **plan):
    return load(LoadPlan(str(folder), **plan), emit, control or Control())


def refused(folder, **plan) -> str:
    with pytest.raises(WorkbenchError) as caught:
        loaded(folder, **plan)
    error = caught.value
    assert isinstance(error, CannotLoad)
    assert error.fix
    assert error.__cause__ is None
    assert error.__context__ is None
    return error.what


def with_config(folder: Path, **changes) -> Path:
    file = folder / "config.json"
    config = {k: v for k, v in (json.loads(file.read_text()) | changes).items() if v != "left out"}
    file.write_text(json.dumps(config))
    return folder


def with_tensors(folder: Path, change) -> Path:
    file = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(file).items()}
    tensors = change(tensors) or tensors
    save_file(tensors, file, metadata={"format": "pt"})
    return folder


@torch.no_grad()
def logits(session) -> torch.Tensor:
    return session.model(input_ids=IDS).logits.float()


# ---------------------------------------------------------------- what loads


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16", "int8", "nf4", "fp4"])
def test_each_precision_loads_and_weighs_what_was_predicted(original, precision):
    session = loaded(original, precision=precision)
    try:
        assert session.facts.precision == precision
        assert logits(session).isfinite().all()
        for part in session.facts.ledger:
            if part.measured_bytes is not None and part.predicted_bytes is not None:
                assert part.measured_bytes == part.predicted_bytes, part
        predicted = sum(p.predicted_bytes for p in session.facts.ledger if p.measured_bytes and p.predicted_bytes)
        assert session.facts.weights_bytes == predicted
        assert not session.model.training
        assert not any(parameter.requires_grad for parameter in session.model.parameters())
    finally:
        session.close()


@pytest.mark.parametrize("family", ["gpt2", "gemma3_text"])
def test_families_weigh_what_was_predicted(family, tmp_path):
    folder = tiny_folder(tmp_path / family, family)
    for precision in ("float32", "bfloat16", "int8", "nf4"):
        session = loaded(folder, precision=precision)
        both = [(p.predicted_bytes, p.measured_bytes) for p in session.facts.ledger if p.measured_bytes is not None]
        session.close()
        assert all(predicted in (measured, None) for predicted, measured in both)


def test_sizes_that_no_block_divides_load_in_int8_and_nf4(tmp_path):
    folder = tiny_folder(tmp_path / "odd", hidden_size=48, intermediate_size=33)
    for precision in ("int8", "nf4"):
        session = loaded(folder, precision=precision)
        assert logits(session).isfinite().all()
        session.close()


def test_the_loaded_numbers_are_transformers_own(original):
    from transformers import AutoModelForCausalLM

    session = loaded(original)
    reference = AutoModelForCausalLM.from_pretrained(original, dtype=torch.float32).eval()
    with torch.no_grad():
        assert torch.equal(logits(session), reference(input_ids=IDS).logits)
    session.close()


TABLE = (
    ("model.embed_tokens", "cpu"),
    ("model.layers.0", "cpu"),
    ("model.layers.1", "disk"),
    ("model.layers.2", "disk"),
    ("model.layers.3", "cpu"),
    ("model.norm", "cpu"),
    ("lm_head", "cpu"),
)


@pytest.mark.parametrize(
    "device_map",
    ["cpu", "auto", "balanced", "balanced_low_0", "sequential", TABLE, (("", "cpu"), ("model.layers.1", "disk"))],
    ids=str,
)
def test_every_placement_gives_the_same_logits_to_the_bit(original, device_map):
    plain = loaded(original)
    right = logits(plain)
    plain.close()
    session = loaded(original, device_map=device_map)
    assert torch.equal(logits(session), right)
    if not isinstance(device_map, str):
        assert session.facts.devices == ("cpu", "disk")
        assert "disk" in session.facts.notes[0]
    session.close()


def test_a_memory_limit_offloads_and_the_offload_folder_goes_with_the_session(original, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    session = loaded(original, max_memory_bytes=(("cpu", 400_000),), precision="bfloat16")
    if session.facts.devices != ("cpu",):
        assert any("disk" in note for note in session.facts.notes)
    assert logits(session).isfinite().all()
    session.close()
    assert not list(tmp_path.glob("glasswork-offload-*"))


def test_the_default_model_loads_by_its_own_config(default_session):
    facts = default_session.facts
    assert facts.parameters == 134_515_008
    assert facts.weights_bytes == pytest.approx(538_060_032, abs=1000)
    assert (facts.layers, facts.heads, facts.kv_heads, facts.context_tokens) == (30, 9, 3, 8192)
    assert facts.kv_bytes_per_token == 46_080
    assert facts.has_chat_template
    assert facts.attention == default_session.model.config._attn_implementation
    assert [name for name, _ in facts.stage_ms] == list(LOAD_STAGES)
    assert all(ms > 0 for _, ms in facts.stage_ms)


def test_progress_passes_every_stage_in_order_and_ends_with_all_bytes(original):
    events: list = []
    loaded(original, events.append).close()
    events = [event for event in events if isinstance(event, LoadProgress)]
    stages = [event.stage for event in events]
    assert sorted(set(stages), key=stages.index) == list(LOAD_STAGES)
    assert stages == sorted(stages, key=LOAD_STAGES.index)
    weights = [event for event in events if event.stage == "weights"]
    assert [event.done_bytes for event in weights] == sorted(event.done_bytes for event in weights)
    size = sum(t.numel() * t.element_size() for t in load_file(original / "model.safetensors").values())
    assert weights[-1].done_bytes == weights[-1].total_bytes == size


@pytest.mark.parametrize("name", ["with spaces", "模型", "🦜 #1 %20", "n" * 200])
def test_a_folder_of_any_name_loads(original, name, tmp_path):
    folder = shutil.copytree(original, tmp_path / name)
    session = loaded(folder)
    assert session.facts.model_path == str(folder)
    session.close()


def test_links_and_a_read_only_folder_load(original, tmp_path):
    links = tmp_path / "links"
    links.mkdir()
    for file in original.iterdir():
        (links / file.name).symlink_to(file)
    links.chmod(0o555)
    try:
        loaded(links).close()
    finally:
        links.chmod(0o755)


@pytest.mark.parametrize("kind", [torch.int32, torch.int8, torch.uint8, torch.bool, torch.complex64], ids=str)
def test_weights_of_a_type_that_is_none_for_weights_are_refused(folder, kind):
    """The loader would cut every fraction off, and the model would write nonsense."""
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.mlp.up_proj.weight"] = tensors["model.layers.0.mlp.up_proj.weight"].to(kind)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert "model.layers.0.mlp.up_proj.weight holds numbers of the type" in refused(folder)


@pytest.mark.parametrize(
    "content", ["[]", "null", "{", '{"pad_token_id": "x", "eos_token_id": 7}', '{"max_new_tokens": -5}'], ids=range(5)
)
def test_a_generation_config_that_makes_no_sense_is_left_aside_with_a_note(folder, content):
    (folder / "generation_config.json").write_text(content, "utf-8")
    session = loaded(folder)
    assert sum(note.startswith("generation_config.json ") for note in session.facts.notes) == 1
    ends = {end.token_id for end in end_tokens(session, raw=True)}
    session.close()
    assert ends == ({7, 257} if "7" in content else {257})


def test_a_missing_generation_config_and_missing_metadata_are_fine(folder):
    (folder / "generation_config.json").unlink()
    save_file(load_file(folder / "model.safetensors"), folder / "model.safetensors")
    loaded(folder).close()


# ---------------------------------------------------------------- which number type


@pytest.mark.parametrize(
    ("in_file", "in_config", "right"),
    [
        ("float16", "float32", "float32"),
        ("float16", "left out", "float16"),
        ("mixed", "left out", "bfloat16"),
        ("float32", "bfloat16", "bfloat16"),
    ],
)
def test_the_type_that_is_loaded_is_the_one_predicted(folder, in_file, in_config, right):
    def cast(tensors):
        types = {"mixed": [torch.bfloat16, torch.float16]}.get(in_file) or [getattr(torch, in_file)] * 2
        return {name: tensor.to(types[i % 2]) for i, (name, tensor) in enumerate(tensors.items())}

    with_config(with_tensors(folder, cast), dtype=in_config)
    session = loaded(folder)
    assert session.model.dtype == getattr(torch, right)
    assert session.facts.precision == right
    assert all(
        p.measured_bytes == p.predicted_bytes for p in session.facts.ledger if p.measured_bytes and p.predicted_bytes
    )
    names = {fact.name: fact.value for fact in session.facts.facts}
    assert names["Number type without a wish"] == right
    session.close()


# ---------------------------------------------------------------- what is refused


def test_more_layers_than_the_files_hold_are_refused_with_the_count(folder):
    told = refused(with_config(folder, num_hidden_layers=5))
    assert "9 tensors" in told
    assert "model.layers.4" in told
    assert "5 layers" in told
    assert "4" in told


def test_fewer_layers_load_with_a_note(folder):
    session = loaded(with_config(folder, num_hidden_layers=3))
    assert "(9 in all)" in session.facts.notes[0]
    session.close()


def test_a_relative_of_the_family_is_refused(folder):
    assert "bias" in refused(with_config(folder, model_type="qwen2", architectures=["Qwen2ForCausalLM"]))


@pytest.mark.parametrize("precision", [None, "int8", "nf4"])
@pytest.mark.parametrize("changes", [{"vocab_size": 310}, {"num_key_value_heads": 4}])
def test_a_shape_that_disagrees_names_tensor_and_both_shapes(folder, changes, precision):
    told = refused(with_config(folder, **changes), precision=precision)
    assert "[300, 64]" in told or "[32, 64]" in told
    assert "[310, 64]" in told or "[64, 64]" in told
    assert ".weight" in told


def test_a_head_that_is_not_there_is_refused_until_a_person_ties_it(folder):
    with_tensors(folder, lambda tensors: {k: v for k, v in tensors.items() if k != "lm_head.weight"})
    assert "lm_head.weight" in refused(folder)
    session = loaded(folder, tie_lm_head=True)
    assert session.model.get_output_embeddings().weight is session.model.get_input_embeddings().weight
    session.close()


def test_a_tied_flag_over_two_different_tensors_loads_both_with_a_note(folder):
    session = loaded(with_config(folder, tie_word_embeddings=True))
    assert any("one tensor" in note for note in session.facts.notes)
    assert session.facts.weights_bytes > session.facts.parameters * 4
    session.close()


@pytest.mark.parametrize("precision", [None, "nf4"])
def test_zeros_that_a_download_left_are_named_with_their_share(folder, precision):
    def zero(tensors):
        for name, tensor in tensors.items():
            if "layers.3" in name:
                tensor.zero_()

    assert "lies in 7 of 39 tensors" in refused(with_tensors(folder, zero), precision=precision)


def test_a_matrix_whose_end_is_zero_is_noticed(folder):
    with_tensors(folder, lambda tensors: tensors["model.layers.1.mlp.up_proj.weight"][64:].zero_() is None)
    assert "model.layers.1.mlp.up_proj.weight" in refused(folder)


def test_norms_and_padded_rows_that_are_zero_raise_nothing(folder):
    def zero(tensors):
        tensors["model.norm.weight"].zero_()
        tensors["model.embed_tokens.weight"][-20:].zero_()

    loaded(with_tensors(folder, zero)).close()


@pytest.mark.parametrize("name", ["model.norm.weight", "model.layers.0.mlp.up_proj.weight"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_are_named(folder, name, value):
    with_tensors(folder, lambda tensors: tensors[name].view(-1)[3:5].fill_(value) is None)
    told = refused(folder)
    assert "not finite" in told
    assert name in told


def test_numbers_too_large_for_float16_are_said_before_they_become_infinite(folder):
    with_tensors(folder, lambda tensors: tensors["lm_head.weight"][0].fill_(1e6) is None)
    assert "float16" in refused(folder, precision="float16")
    loaded(folder, precision="bfloat16").close()


def test_a_pickle_loads_only_when_a_person_agrees_and_its_numbers_are_looked_at(folder):
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    assert "pickle" in refused(folder)
    loaded(folder, allow_pickle=True).close()
    torch.save(tensors | {"model.layers.0.mlp.up_proj.weight": torch.zeros(128, 64)}, folder / "pytorch_model.bin")
    assert "Nothing but zeros" in refused(folder, allow_pickle=True)


def test_a_pickle_that_would_run_a_program_runs_nothing(folder, tmp_path):
    class Hostile:
        def __reduce__(self):
            return open, (str(tmp_path / "ran"), "w")

    (folder / "model.safetensors").unlink()
    torch.save({"x": Hostile()}, folder / "pytorch_model.bin")
    assert refused(folder, allow_pickle=True)
    assert not (tmp_path / "ran").exists()


def test_a_missing_expert_is_named_as_in_the_file(tmp_path):
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = AutoConfig.for_model("mixtral", vocab_size=300, num_key_value_heads=2, num_local_experts=4, **sizes)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    loaded(tmp_path).close()
    lost = next(name for name in load_file(tmp_path / "model.safetensors") if ".experts.3." in name)
    with_tensors(tmp_path, lambda tensors: {k: v for k, v in tensors.items() if k != lost})
    assert lost in refused(tmp_path)


def test_a_model_that_could_see_loads_and_its_unused_part_is_in_the_ledger(tmp_path):
    """LOD-28: layers and cache are the text half's; what looks at pictures is counted apart."""
    from transformers import AutoConfig, AutoModelForImageTextToText

    text = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "intermediate_size": 64, "vocab_size": 300, "head_dim": 8, "model_type": "gemma3_text"}  # fmt: skip
    vision = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
              "image_size": 28, "patch_size": 14, "model_type": "siglip_vision_model"}  # fmt: skip
    config = AutoConfig.for_model("gemma3", text_config=text, vision_config=vision, mm_tokens_per_image=4)
    model = AutoModelForImageTextToText.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():  # a projection that begins as zeros would count as damaged
            if parameter.ndim > 1:
                parameter.normal_()
    model.save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    session = loaded(tmp_path)
    try:
        unused = sum(p.numel() for name, p in model.named_parameters() if "vision" in name or "projector" in name)
        part = next(part for part in session.facts.ledger if part.name == "not for text")
        assert part.predicted_bytes == part.measured_bytes == unused * 4 > 0
        assert session.facts.layers == 2
        assert logits(session).isfinite().all()
    finally:
        session.close()


def test_a_missing_or_foreign_tokenizer_is_found_at_load(folder):
    with_config(folder, vocab_size=250, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    with_tensors(folder, lambda t: {k: v[:250].clone() if "embed" in k or "head" in k else v for k, v in t.items()})
    assert "256" in refused(folder)
    for file in [*folder.glob("token*"), *folder.glob("chat*")]:
        file.unlink()
    assert "no tokenizer" in refused(folder)


def test_a_broken_tokenizer_is_a_sentence(folder):
    (folder / "tokenizer.json").write_text("{")
    assert "tokenizer" in refused(folder)


@pytest.mark.parametrize(
    "device_map", ["cpuu", "cuda:9", "disk", (("model.norm", "cpu"),), (("nothing", "cpu"),)], ids=str
)
def test_a_device_map_that_cannot_be_is_refused_before_weights_are_read(original, device_map):
    events = []
    with pytest.raises(CannotLoad):
        loaded(original, events.append, device_map=device_map)
    assert "weights" not in {event.stage for event in events if isinstance(event, LoadProgress)}


def test_an_unknown_precision_is_refused(original):
    with pytest.raises(SettingsRefused):
        loaded(original, precision="int3")


# ---------------------------------------------------------------- cancel, errors, memory


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_cancelled_load_leaves_no_tensor_and_the_next_load_is_the_same(original, share):
    before = load_file(original / "model.safetensors")
    control = Control()
    read = []

    def emit(event):
        read.append(event)
        if (
            isinstance(event, LoadProgress)
            and event.stage == "weights"
            and event.done_bytes >= share * event.total_bytes
        ):
            control.cancel()

    gc.collect()
    alive = live_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "EMIT_EVERY_S", -1)
        with pytest.raises(Cancelled):
            loaded(original, emit, control)
    assert read[-1].stage == "weights"
    assert live_bytes() <= alive
    again = loaded(original)
    assert all(torch.equal(tensor, before[name]) for name, tensor in again.model.state_dict().items())
    again.close()


def live_bytes() -> int:
    return sum(
        thing.numel() * thing.element_size()
        for thing in gc.get_objects()
        if type(thing) in TENSORS and not thing.is_meta
    )


TENSORS = (torch.Tensor, torch.nn.Parameter)


def test_a_load_cancelled_before_it_began_reads_nothing(original):
    control = Control()
    control.cancel()
    with pytest.raises(Cancelled):
        loaded(original, control=control)


def test_an_error_holds_no_tensor_of_the_frame_that_failed(original, monkeypatch):
    held = []

    def fails(*args, **kwargs):
        tensor = torch.ones(1000)
        held.append(weakref.ref(tensor))
        try:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        except RuntimeError as first:
            raise ValueError("out of memory") from first

    monkeypatch.setattr(loading, "_from_pretrained", fails)
    with pytest.raises(CannotLoad) as caught:
        loaded(original)
    assert "memory" in caught.value.what
    assert caught.value.__context__ is None
    assert held[0]() is None


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is measured on Linux")
def test_unloading_returns_the_memory(default_model_path):
    sizes = []
    for _ in range(3):
        session = loaded(default_model_path, precision="float32")
        logits(session)
        told = session.close()
        del session
        give_memory_back()
        sizes.append(read_memory().process_bytes)
    assert told.memory_after_bytes < told.memory_before_bytes * 1.05
    assert sizes[2] < sizes[1] * 1.03


def test_libraries_words_go_to_the_log_once_and_never_to_the_terminal(original, capfd, caplog):
    with caplog.at_level(logging.WARNING):
        loaded(original, precision="int8").close()
    out, err = capfd.readouterr()
    assert out == ""
    assert "Loading weights" not in err
    assert "LOAD REPORT" not in err
