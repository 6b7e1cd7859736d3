"""Families outside the lean path: each lane writes what generate() writes, and the cache is what was predicted."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.control import Control
from engine.events import RunEnd, RunStart
from engine.forward import GeneralForward
from engine.loading import load
from engine.loop import generate
from engine.memory import kv_bytes, state_bytes
from engine.settings import LoadPlan, Request, SamplingSettings
from tests.tiny_models import tiny_folder

PROMPT = "The quick brown fox jumps over the lazy dog."  # 44 tokens: longer than the first chunk of a prompt
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 8,
    "long_factor": [2.0] * 8,
}
CASES = {
    "bloom": ("bloom", {}),
    "gpt2, whose padding token is in the vocabulary": ("gpt2", {}),
    "mixtral": ("mixtral", {}),
    "gpt_oss, whose biases stand in tables that are zero": ("gpt_oss", {}),
    "mamba": ("mamba", {}),
    "jamba": ("jamba", {}),
    "bamba": ("bamba", {}),
    "rwkv": ("rwkv", {}),
    "openai-gpt": ("openai-gpt", {}),
    "phi3, past its first context while it writes": (
        "phi3",
        {"original_max_position_embeddings": 48, "rope_parameters": LONGROPE},
    ),
    "phi3, past its first context within the prompt": (
        "phi3",
        {"original_max_position_embeddings": 40, "rope_parameters": LONGROPE},
    ),
    "llama with frequencies that follow the length": (
        "llama",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_two_lanes_equal_generate_and_the_cache_is_as_predicted(case, tmp_path):
    family, changes = CASES[case]
    session = load(LoadPlan(str(tiny_folder(tmp_path, family, **changes)), "float32"), lambda event: None, Control())
    penalties = (1.0, 1.3)
    lanes = tuple(SamplingSettings(temperature=0, repetition_penalty=penalty) for penalty in penalties)
    request = Request(1, PROMPT, raw=True, lanes=lanes, max_new_tokens=24, ignore_ends=True)
    events = list(generate(session, request, Control()))
    ids = torch.tensor(
        [[t.token_id for e in events if isinstance(e, RunStart) and e.lane == 0 for t in e.prompt_tokens]]
    )
    for end, penalty in zip((e for e in events if isinstance(e, RunEnd)), penalties, strict=True):
        out = session.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=24,
            do_sample=False,
            repetition_penalty=penalty,
            eos_token_id=None,
        )
        assert list(end.token_ids) == out[0, ids.shape[1] :].tolist()
        cache = session.blueprint.skeleton.cache
        predicted = kv_bytes(cache, ids.shape[1] + 23, 4)
        assert (predicted is None) == (family in ("rwkv", "openai-gpt")) == ("again" in session.facts.decode_path)
        assert end.kv_bytes == (predicted or 0)
        if predicted is not None:
            assert end.kv_allocated_bytes >= predicted + state_bytes(cache, 4)
    session.close()


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_what_stays_float32_depends_on_the_type_asked_for(precision, tmp_path):
    """gpt_oss keeps its norms in float32 for float16 only."""
    session = load(LoadPlan(str(tiny_folder(tmp_path, "gpt_oss")), precision), lambda event: None, Control())
    weights = [part for part in session.facts.ledger if None not in (part.predicted_bytes, part.measured_bytes)]
    assert [p.predicted_bytes for p in weights] == [p.measured_bytes for p in weights]
    assert len(weights) >= 4
    session.close()


@pytest.mark.parametrize("family", ["jamba", "rwkv", "phi3"])
def test_a_lane_that_goes_on_alone_keeps_its_own_past(family, tmp_path):
    """The lane that ends first takes no other's entries or states away (SAM-3)."""
    session = load(LoadPlan(str(tiny_folder(tmp_path, family)), "float32"), lambda event: None, Control())
    prompt = list(range(40))
    alone, pair = GeneralForward(session), GeneralForward(session)
    for forward in (alone, pair):
        forward.read(prompt)
    pair.share(2)
    pair.step([7, 9])
    pair.keep([1])
    alone.step([9])
    np.testing.assert_allclose(pair.step([11]), alone.step([11]), atol=1e-4)
    session.close()
