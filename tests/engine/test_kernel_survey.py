"""Each choice of kernel and attention is measured over one text, leaves the session as it was, and is remembered."""

from __future__ import annotations

import pytest
import torch

from engine import kernel_choice
from engine.compiled import why_not_compiled
from engine.control import Control
from engine.errors import Cancelled, CannotLoad
from engine.forward import forward_of
from engine.kernel_survey import divergence, remembered, survey
from engine.loading import load
from engine.settings import LoadPlan
from tests.tiny_models import tiny_folder

IDS = list(range(20))


@pytest.fixture(autouse=True)
def own_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_choice, "_file", lambda: tmp_path / "kernels.json")
    # Compiling takes half a minute; it has a test of its own.
    monkeypatch.setattr("engine.kernel_survey.why_not_compiled", lambda: "not in this test")


def loaded(folder, family, **plan):
    path = tiny_folder(folder / family, family)
    return load(LoadPlan(str(path), "bfloat16", device_map="cpu", **plan), lambda event: None, Control())


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_every_choice_is_measured_against_transformers_own_forward(tmp_path, family):
    session = loaded(tmp_path, family)
    before = forward_of(session).read(IDS)
    told = []
    found = survey(session, Control(), told.append)
    names = [row.name for row in found.rows]
    assert names[:2] == ["transformers", "transformers, eager attention"]
    assert ("plain" in names) == (family == "llama")  # elsewhere the first row is that
    assert {"float16", "int8"} <= set(names)
    assert all(row.step_ms > 0 and row.lanes_ms > 0 for row in found.rows if not row.error)
    assert found.rows[0].kl_nats == 0.0
    by_name = {row.name: row for row in found.rows}
    assert 0 < by_name["int8"].kl_nats < 0.2
    assert by_name["float16"].kl_nats < by_name["int8"].kl_nats
    assert [step.done for step in told] == sorted(step.done for step in told)
    assert (forward_of(session).read(IDS) == before).all()
    assert session.model.config._attn_implementation == "sdpa"
    assert remembered(session) == found
    session.close()


def test_a_packed_general_model_keeps_its_products(tmp_path):
    session = loaded(tmp_path, "gemma3_text", kernel="float16")
    forwards = [vars(module).get("forward") for module in session.model.modules()]
    assert any(forwards)
    threads = session.threads
    survey(session, Control(), lambda step: None)
    assert [vars(module).get("forward") for module in session.model.modules()] == forwards
    assert session.threads == threads
    session.close()


def test_a_stop_ends_it_and_leaves_the_session_as_it_was(tmp_path):
    session = loaded(tmp_path, "llama")
    before = forward_of(session).read(IDS)
    control = Control()
    seen = []

    def tell(step):
        seen.append(step)
        if step.done == 1:
            control.cancel()

    with pytest.raises(Cancelled):
        survey(session, control, tell)
    assert max(step.done for step in seen) == 1
    assert session.model.config._attn_implementation == "sdpa"
    assert (forward_of(session).read(IDS) == before).all()
    assert remembered(session) is None
    session.close()


def test_quantised_weights_are_not_compared_and_that_is_said(tmp_path):
    session = load(LoadPlan(str(tiny_folder(tmp_path / "m")), "nf4"), lambda event: None, Control())
    with pytest.raises(CannotLoad, match="plain weights"):
        survey(session, Control(), lambda step: None)
    session.close()


def test_the_divergence_is_that_of_the_two_distributions():
    import numpy as np

    p, q = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.5, 0.25])
    assert divergence(np.log(p), np.log(q)) == pytest.approx(0.25 * np.log(2))
    assert divergence(np.log(p), np.log(p) + 3.0) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.skipif(bool(why_not_compiled()), reason="torch.compile cannot be had here")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # what torch leaves behind when stopped
def test_a_compiled_step_gives_the_plain_one_s_logits_and_a_stop_ends_compiling(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    torch._dynamo.reset()
    path = str(tiny_folder(tmp_path / "m", "llama", num_hidden_layers=2))
    control = Control()

    def stop_when_it_compiles(event):
        if "torch.compile" in getattr(event, "detail", ""):
            control.cancel()

    with pytest.raises(Cancelled):
        load(LoadPlan(path, kernel="compiled"), stop_when_it_compiles, control)
    plain, compiled = (
        load(LoadPlan(path, kernel=kernel), lambda event: None, Control()) for kernel in ("plain", "compiled")
    )
    assert compiled.facts.kernel == "compiled"
    assert "compiled in" in compiled.facts.kernel_words
    one, other = forward_of(plain), forward_of(compiled)
    assert abs(one.read(IDS) - other.read(IDS)).max() < 1e-4
    for token in (3, 5):
        assert abs(one.step([token]) - other.step([token])).max() < 1e-4
    for session in (plain, compiled):
        session.close()


def test_compiling_needs_the_lean_path_and_transformers_forward_can_be_asked_for(tmp_path):
    with pytest.raises(CannotLoad, match="lean path only"):
        loaded(tmp_path, "gpt2", kernel="compiled")
    session = loaded(tmp_path, "llama", kernel="transformers")
    assert session.lean is None
    assert session.facts.decode_path.startswith("general")
    assert session.facts.kernel == "transformers"
    session.close()
