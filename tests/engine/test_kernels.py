"""Packed products give what torch's plain ones give; what is chosen was measured, is remembered, and is said."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812  the field's name for it

from engine import decode_path as paths
from engine import kernel_choice
from engine.control import Control
from engine.errors import Cancelled, CannotLoad
from engine.forward import GeneralForward
from engine.kernel_survey import divergence
from engine.kernels import KERNELS, LEAN_ONLY, offered, pack, stream_dtype, torch_threads
from engine.lean import LeanForward, groups, pack_model
from engine.loading import load
from engine.session import Session
from engine.settings import LoadPlan
from engine.smoothing import largest_inputs, smoothed
from tests.tiny_models import tiny_folder, tiny_model

PACKED = [name for name in offered(torch.bfloat16) if name != "plain"]
SINGLE = [name for name in PACKED if name not in LEAN_ONLY]
CLOSE = {"onednn": 0.02, "float16": 0.01, "int8": 0.03, "int8-dynamic": 0.06}  # of the largest logit


@pytest.fixture(autouse=True)
def nothing_is_remembered(tmp_path, monkeypatch, request):
    if "default_model_path" in request.fixturenames:
        return  # measuring it takes seconds, and what it does is tested with others
    monkeypatch.setattr(kernel_choice, "_processor_seconds", lambda: (0.0, 0.0))  # nothing else runs
    monkeypatch.setattr(kernel_choice, "_file", lambda: tmp_path / "kernels.json")


def half_model(family: str = "llama", **changes):
    return tiny_model(family, initializer_range=0.06, **changes).to(torch.bfloat16).eval().requires_grad_(False)


@pytest.mark.parametrize("kernel", SINGLE)
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_a_packed_product_is_the_plain_one_with_biases_and_several_matrices_side_by_side(kernel, rows):
    torch.manual_seed(0)
    linears = [
        (torch.randn(96, 64).mul(0.1).bfloat16(), torch.randn(96).bfloat16()),
        (torch.randn(32, 64).mul(0.1).bfloat16(), None),
    ]
    x = torch.randn(2, rows, 64, dtype=torch.bfloat16)
    with torch.inference_mode():
        exact = torch.cat([x.float() @ w.float().T + (0 if b is None else b.float()) for w, b in linears], dim=-1)
        ours = pack(kernel, linears)(x.to(stream_dtype(kernel, torch.bfloat16))).float()
    assert ours.shape == exact.shape
    assert (ours - exact).abs().max() < CLOSE[kernel] * exact.abs().max()


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("wide", ["packed", "plain", "float32"])
@pytest.mark.parametrize("kernel", PACKED)
def test_every_kernel_s_lean_forward_stays_near_the_same_weights_in_float32(kernel, wide, family):
    model = half_model(family)
    exact = GeneralForward(Session(copy.deepcopy(model).float(), None, None, None, None))  # type: ignore[arg-type]
    lean = LeanForward(pack_model(model, kernel, wide), 8)
    ids = list(range(50))
    near(lean.read(ids), exact.read(ids), kernel)
    for forward in (lean, exact):
        forward.share(2)
    for step in range(5):
        near(lean.step([step, 9]), exact.step([step, 9]), kernel)


def near(ours: np.ndarray, exact: np.ndarray, kernel: str) -> None:
    assert (
        np.abs(ours - exact).mean()
        < {"int8": 0.08, "int8-dynamic": 0.2, "int8-smoothed": 0.15}.get(kernel, 0.05) * exact.std()
    )


@pytest.mark.parametrize("kernel", [name for name in SINGLE if name != "int8-dynamic"])
@pytest.mark.parametrize("family", ["gemma3_text", "phi3"])
def test_other_families_keep_transformers_forward_with_packed_products(kernel, family):
    model, packed_model = half_model(family), half_model(family)
    packed_model.load_state_dict(model.state_dict())
    path = paths.decode_path(packed_model, kernel, mapped=False, tell=lambda what: None)
    assert path.lean is None
    assert path.packed_bytes > 0
    plain, packed = (
        GeneralForward(Session(each, None, None, None, None))  # type: ignore[arg-type]
        for each in (model, packed_model)
    )
    ids = list(range(20))
    expected = plain.read(ids)
    near(packed.read(ids), expected, kernel)
    expected, ours = plain.step([3]), packed.step([3])
    near(ours, expected, kernel)
    assert any(isinstance(vars(module).get("forward"), paths._PackedLinear) for module in packed_model.modules())


@pytest.mark.skipif("float16" not in PACKED, reason="this processor packs no float16")
def test_in_packed_float16_a_lane_gets_the_same_logits_alone_and_in_company():
    """With products as wide as the default model's: libraries choose their ways by the shape."""
    wide = {"hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3}
    model = half_model(**wide, num_hidden_layers=2, vocab_size=49_152)
    packed = paths.decode_path(model, "float16", mapped=False, tell=lambda what: None).lean
    ids = list(range(100, 130))
    alone, company = LeanForward(packed, 60), LeanForward(packed, 60)
    assert (alone.read(ids) == company.read(ids)).all()
    company.share(5)
    for token in (5, 900, 41):
        assert (alone.step([token])[0] == company.step([token, 7, 1, token + 1, 30])[0]).all()


@pytest.mark.parametrize("kernel", [name for name in ("int8", "int8-smoothed") if name in PACKED])
def test_8_bits_stay_within_a_kl_divergence_of_a_hundredth(default_model_path, default_session, kernel):
    """Per token, against the float32 model over a text that it continued greedily."""
    session = load(LoadPlan(str(default_model_path), kernel=kernel), lambda event: None, Control())
    assert session.facts.kernel == kernel
    ids = default_session.tokenizer("The river begins in the hills, where rain and snow gather in")["input_ids"]
    exact, small = LeanForward(default_session.lean, 100), LeanForward(session.lean, 100)
    logits, ours = exact.read(ids), small.read(ids)
    divergences = []
    for _ in range(24):
        divergences.append(divergence(logits, ours))
        token = int(logits.argmax())
        logits, ours = exact.step([token])[0], small.step([token])[0]
    assert 0 < np.mean(divergences) <= 0.01
    session.close()


@pytest.mark.skipif("int8-smoothed" not in PACKED, reason="this processor has no such products")
def test_outliers_go_from_the_activations_into_the_weights_and_the_product_stays_the_same():
    """Channels that are a hundred times the others, as trained models have them: 8 bits for all leave little."""
    torch.manual_seed(0)
    model = half_model("llama", hidden_size=64)
    for layer in model.model.layers:
        layer.input_layernorm.weight.data[::16] *= 100
        layer.post_attention_layernorm.weight.data[::16] *= 100
    layer = model.model.layers[0]
    inputs = largest_inputs(model, [], lambda: None)
    assert len(inputs) == len(model.model.layers)
    assert inputs[0][0][::16].min() > inputs[0][0][1::16].max()
    x = torch.randn(5, 64)
    (plain, group), norm = (layer.input_layernorm.weight.float(), groups(layer)[0]), F.rms_norm(x, (64,))
    even, scaled = smoothed(plain, group, inputs[0][0])
    for (before, _), (after, _) in zip(group, scaled, strict=True):
        assert torch.allclose((norm * even) @ after.T, (norm * plain) @ before.float().T, rtol=1e-3, atol=1e-3)
    exact = GeneralForward(Session(copy.deepcopy(model).float(), None, None, None, None))  # type: ignore[arg-type]
    exact.read([1, 2, 3])
    logits = exact.step([7])[0]
    off = {}
    for kernel in ("int8-dynamic", "int8-smoothed"):
        forward = LeanForward(pack_model(model, kernel, "plain"), 8)
        forward.read([1, 2, 3])
        off[kernel] = divergence(logits, forward.step([7])[0])
    assert off["int8-smoothed"] < off["int8-dynamic"] / 2


def test_a_stop_ends_the_look_at_the_activations_and_leaves_no_hook(tmp_path):
    model = half_model()

    def stop(done: int, of: int) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        pack_model(model, "int8-smoothed", "plain", stop)
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())


@pytest.mark.parametrize("kernel", ["int8-smoothed", "compiled"])
def test_what_needs_the_lean_path_says_so_elsewhere(kernel):
    with pytest.raises(CannotLoad, match="lean path only"):
        paths.decode_path(half_model("gpt2"), kernel, mapped=False, tell=lambda what: None)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_a_step_in_one_call_is_the_step_layer_by_layer(family):
    """The same packed products, float32 between them: what differs is rounding. Lanes of different length, too."""
    weights = pack_model(half_model(family).float(), "int8" if family != "qwen2" else "int8-dynamic", "plain")
    assert weights.step is not None
    one, other = LeanForward(weights, 40), LeanForward(weights, 40)
    later, other_later = LeanForward(weights, 40), LeanForward(weights, 40)
    for each, ids in ((one, [1, 2, 3]), (other, [1, 2, 3]), (later, [4, 5, 6, 7, 8]), (other_later, [4, 5, 6, 7, 8])):
        each.read(ids)
    one.join(later)
    other.join(other_later)
    assert one.padding == [2, 0]
    ours = [one.step([9, 3 + at]) for at in range(3)]
    weights.step = None
    for at, logits in enumerate(ours):
        assert np.abs(logits - other.step([9, 3 + at])).max() < 0.02 * logits.std()


@pytest.mark.parametrize("kernel", [name for name in PACKED if name != "onednn"])
def test_packed_sums_do_not_depend_on_the_number_of_threads(kernel):
    """So the number may change while a run goes on, and the same seed writes the same text."""
    weights = pack_model(half_model(), kernel, "plain")
    weights.threads = (1, 1)
    found = []
    for threads in (1, 2, 3):
        forward = LeanForward(weights, 40)
        forward.read([1, 2, 3])
        forward.share(3)
        with torch_threads(threads):
            weights.paces.clear()
            weights.threads = (threads, threads)
            found.append([forward.step([5, 6, at]) for at in range(3)])
    assert all((a == b).all() for each in found[1:] for a, b in zip(found[0], each, strict=True))


def test_a_weight_beyond_float16_is_refused_and_not_rounded_to_infinity():
    with pytest.raises(RuntimeError, match="larger than float16"):
        pack("float16", [(torch.full((8, 8), 70_000.0).bfloat16(), None)])


def test_what_was_measured_beside_another_busy_program_is_not_remembered(monkeypatch):
    trial, clock = trial_with({"plain": 4.0, "onednn": 1.0, "float16": 5.0, "float32": 9.0})
    monkeypatch.setattr(kernel_choice.time, "perf_counter", clock)
    monkeypatch.setattr(kernel_choice, "offered", lambda dtype: ("plain", "onednn", "float16"))
    for busy in (1.0, 0.1):  # cores
        seconds = iter([(0.0, 0.0), (10.0, 10.0 * busy)])
        monkeypatch.setattr(kernel_choice, "_processor_seconds", lambda seconds=seconds: next(seconds))
        choice = kernel_choice.choose(torch.zeros(2, 2), trial, None, [1], True, lambda what: None)
        assert choice.kernel == "onednn"
        assert kernel_choice._file().exists() == (busy < 0.5)


def trial_with(times: dict[str, float]):
    """A stand-in whose runs take a set time on a clock of its own."""
    clock = [0.0]

    def trial(kernel: str, wide: str):
        def run(rows: int) -> None:
            clock[0] += times["float32" if wide == "float32" else kernel] * (1 + rows / 100)

        return run

    return trial, lambda: clock[0]


def test_the_fastest_exact_kernel_is_chosen_and_remembered_and_8_bits_never_by_themselves(monkeypatch):
    times = {"plain": 4.0, "onednn": 3.0, "float16": 1.0, "int8": 0.5, "int8-dynamic": 0.1, "float32": 2.0}
    trial, clock = trial_with(times)
    monkeypatch.setattr(kernel_choice.time, "perf_counter", clock)
    monkeypatch.setattr(kernel_choice, "offered", lambda dtype: ("plain", "onednn", "float16", "int8", "int8-dynamic"))
    said: list[str] = []
    weight = torch.zeros(2, 2, dtype=torch.bfloat16)
    choice = kernel_choice.choose(weight, trial, None, ["model"], True, said.append)
    assert (choice.kernel, choice.wide) == ("float16", "packed")
    assert [t.kernel for t in choice.times] == ["plain", "onednn", "float16"]
    assert len(said) == 3
    again = kernel_choice.choose(weight, trial, None, ["model"], True, said.append)
    assert again == choice
    assert len(said) == 3
    assert len(json.loads(kernel_choice._file().read_text())) == 1
    asked = kernel_choice.choose(weight, trial, "int8", ["model"], False, said.append)
    assert asked.kernel == "int8"
    kernel_choice.choose(weight, trial, None, ["another model"], True, said.append)
    assert len(json.loads(kernel_choice._file().read_text())) == 2


TIMES = {"kernel": "plain", "one_ms": 1.0, "batch_ms": 1.0, "wide_ms": 1.0, "one_threads": 1, "batch_threads": 1}
DAMAGED_TIMES = ({}, 3, {"plain": {"kernel": "plain"}}, {"plain": TIMES}, {"plain": TIMES | {"one_ms": "1"}},
                 {"plain": TIMES | {"one_ms": -1.0}, "float32": TIMES | {"kernel": "float32"}})  # fmt: skip


@pytest.mark.parametrize("damage", ["[" * 100_000, "", "\0", '"float16"', *({"KEY": each} for each in DAMAGED_TIMES)])
def test_what_was_remembered_and_is_damaged_is_measured_again(monkeypatch, damage):
    trial, clock = trial_with({"plain": 4.0, "float32": 5.0})
    monkeypatch.setattr(kernel_choice.time, "perf_counter", clock)
    monkeypatch.setattr(kernel_choice, "offered", lambda dtype: ("plain",))
    weight, said = torch.zeros(2, 2, dtype=torch.bfloat16), []
    kernel_choice._file().write_text(
        (damage if isinstance(damage, str) else json.dumps(damage)).replace("KEY", kernel_choice._place(["model"]))
    )
    for _ in range(2):
        assert kernel_choice.choose(weight, trial, None, ["model"], True, said.append).kernel == "plain"
    assert len(said) == 1


def test_a_kernel_that_is_hardly_faster_is_not_taken_and_many_rows_go_the_fastest_way(monkeypatch):
    times = {"plain": 4.0, "onednn": 3.9, "float16": 5.0, "float32": 1.0}
    trial, clock = trial_with(times)
    monkeypatch.setattr(kernel_choice.time, "perf_counter", clock)
    monkeypatch.setattr(kernel_choice, "offered", lambda dtype: ("plain", "onednn", "float16"))
    choice = kernel_choice.choose(torch.zeros(2, 2, dtype=torch.bfloat16), trial, None, [1], True, lambda what: None)
    assert (choice.kernel, choice.wide) == ("plain", "float32")


@pytest.mark.parametrize(("has_them", "wide"), [(True, "packed"), (False, "float32")])
def test_what_is_not_measured_reads_prompts_in_float32_where_the_processor_lacks_16_bit_products(
    monkeypatch, has_them, wide
):
    monkeypatch.setattr(kernel_choice, "multiplies", lambda dtype: has_them)
    model = half_model()
    path = paths.decode_path(model, None, mapped=False, tell=lambda what: None)
    assert path.lean is not None
    assert (path.lean.kernel, path.lean.wide) == ("plain", wide)
    exact = GeneralForward(Session(copy.deepcopy(model).float(), None, None, None, None))  # type: ignore[arg-type]
    lean, ids = LeanForward(path.lean, 8), list(range(50))
    near(lean.read(ids), exact.read(ids), "plain")
    near(lean.step([3]), exact.step([3]), "plain")


def test_float32_weights_are_never_halved_unasked(monkeypatch):
    trial, clock = trial_with({"plain": 4.0, "onednn": 3.9, "float16": 1.0, "float32": 4.0})
    monkeypatch.setattr(kernel_choice.time, "perf_counter", clock)
    monkeypatch.setattr(kernel_choice, "offered", lambda dtype: ("plain", "onednn", "float16"))
    choice = kernel_choice.choose(torch.zeros(2, 2), trial, None, [1], True, lambda what: None)
    assert choice.kernel == "plain"


def test_a_damaged_memory_of_what_was_measured_is_measured_again(monkeypatch):
    trial, clock = trial_with({"plain": 4.0, "onednn": 1.0, "float16": 5.0, "float32": 9.0})
    monkeypatch.setattr(kernel_choice.time, "perf_counter", clock)
    monkeypatch.setattr(kernel_choice, "offered", lambda dtype: ("plain", "onednn", "float16"))
    for broken in ("{", "[1]", '{"a": 3}'):
        kernel_choice._file().write_text(broken)
        choice = kernel_choice.choose(torch.zeros(2, 2), trial, None, [1], True, lambda what: None)
        assert choice.kernel == "onednn"


def test_a_kernel_that_cannot_be_had_is_one_sentence_with_a_way_out(tmp_path):
    folder = tiny_folder(tmp_path / "m", "llama")
    with pytest.raises(CannotLoad) as error:
        load(LoadPlan(str(folder), kernel="nonsense"), lambda event: None, Control())
    assert "no kernel nonsense" in error.value.what
    assert "plain" in error.value.fix


def test_a_small_model_is_not_packed_unasked_and_the_kernel_is_said(tmp_path):
    folder = tiny_folder(tmp_path / "m", "llama")
    session = load(LoadPlan(str(folder)), lambda event: None, Control())
    assert session.facts.kernel == "plain"
    assert session.facts.kernel_words == KERNELS["plain"].words
    assert session.facts.packed_bytes == 0
    session.close()


def test_the_number_of_threads_is_put_back():
    before = torch.get_num_threads()
    with torch_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
    with torch_threads(0):
        assert torch.get_num_threads() == before
    assert torch.get_num_threads() == before
