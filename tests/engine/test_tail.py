"""What is kept beyond the listed tokens counts and weighs every other token, once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.redecided import BINS_OF_TAIL
from engine.sampling import CANDIDATES_KEPT, History, decide
from engine.settings import SamplingSettings
from engine.tail import NAMED_KEPT, bin_edges, binned, bins_of, weighed


@settings(max_examples=60)
@given(st.integers(1, 40_000), st.integers(0, 2**32 - 1), st.floats(0.1, 30.0), st.booleans())
def test_bins_hold_every_logit_and_its_weight(size, seed, spread, impossible) -> None:
    random = np.random.default_rng(seed)
    values = (random.normal(size=size) * spread).astype(np.float32)
    if impossible:
        values[1:][random.random(size - 1) < 0.2] = -np.inf
    top = np.float32(values.max())
    all_of = weighed(values, float(top))
    counts, masses = binned(values, all_of, np.empty(0, dtype=np.int64))
    depth = (top - values).astype(np.float64)
    where = bins_of(top - values)
    np.testing.assert_array_equal(counts, np.bincount(where, minlength=BINS_OF_TAIL))
    np.testing.assert_allclose(
        masses, np.bincount(where, np.exp(-depth), minlength=BINS_OF_TAIL), rtol=4e-6, atol=1e-40
    )
    odds = np.exp(-depth) / np.exp(-depth).sum()
    assert all_of.entropy_nats == pytest.approx(
        -(odds * np.log(odds, where=odds > 0, out=np.zeros(size))).sum(), abs=2e-5
    )
    without = random.permutation(size)[: size // 3]
    left = np.delete(where, without)
    np.testing.assert_array_equal(binned(values, all_of, without)[0], np.bincount(left, minlength=BINS_OF_TAIL))
    edges = bin_edges()
    finite = np.isfinite(depth)
    assert (depth[finite] >= edges[where[finite]] * (1 - 1e-6)).all()
    assert (depth[finite] <= edges[where[finite] + 1] * (1 + 1e-6)).all()


def test_named_and_counted_tokens_are_the_whole_vocabulary() -> None:
    random = np.random.default_rng(0)
    logits = (random.normal(size=5000) * 3).astype(np.float32)
    used = SamplingSettings(logit_bias=((4000, 1.0), (9999, 1.0)), banned=(17,), banned_sequences=((3, 18),))
    found = decide(logits, History([1, 2, 3, 2]), used, 0.999999)
    tail = found.tail
    named = {*found.candidate_ids.tolist(), *tail.ids}
    assert len(named) + sum(tail.counts) + tail.seen_count == 5000
    assert {4000, 17, 18} <= named  # whatever is biased or banned is kept by name, however far down
    assert 9999 not in named
    assert set(np.argsort(-logits)[:NAMED_KEPT].tolist()) <= named
    assert len(tail.ids) >= NAMED_KEPT - CANDIDATES_KEPT
    weight = np.exp(logits.astype(np.float64) - logits.max())
    kept = sum(weight[i] for i in named) + sum(tail.masses) + tail.seen_mass
    assert kept == pytest.approx(weight.sum(), rel=4e-6)
