"""The filters in any order leave what transformers' processors leave in that order, or bounds of it."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from engine.events import TokenEvent
from engine.filter_order import ordered_filters
from engine.ordered import ORDERED, OrderedFilters
from engine.sampling import BORDER, History
from engine.settings import SamplingSettings
from tests.engine.test_redecide import event_of, start_of

WARPERS = {
    "temperature": lambda s: TemperatureLogitsWarper(s.temperature) if s.temperature != 1.0 else None,
    "top_k": lambda s: TopKLogitsWarper(s.top_k) if s.top_k else None,
    "top_p": lambda s: TopPLogitsWarper(s.top_p) if s.top_p < 1.0 else None,
    "min_p": lambda s: MinPLogitsWarper(s.min_p) if s.min_p else None,
    "typical_p": lambda s: TypicalLogitsWarper(s.typical_p) if s.typical_p < 1.0 else None,
}


def by_transformers(logits: np.ndarray, used: SamplingSettings, order: tuple[str, ...]):
    """The scores after each stage that is on, in float64 so that a border is not decided by rounding."""
    scores, steps = torch.from_numpy(logits.astype(np.float64))[None], []
    for name in order:
        if (warper := WARPERS[name](used)) is not None:
            scores = warper(torch.zeros((1, 1), dtype=torch.long), scores)
            steps.append((name, scores[0].numpy().copy()))
    return steps


def asked(logits: np.ndarray, used: SamplingSettings, order: tuple[str, ...], bare: bool = False) -> OrderedFilters:
    event = event_of(logits, History([0]), SamplingSettings(seed=1), 0, bare)
    return ordered_filters(start_of([0], used), (), event, used, order)


def check(logits: np.ndarray, used: SamplingSettings, order: tuple[str, ...], bare: bool = False) -> OrderedFilters:
    found = asked(logits, used, order, bare)
    event = event_of(logits, History([0]), SamplingSettings(seed=1), 0, bare)
    steps = by_transformers(logits, used, order)
    assert [stage.name for stage in found.stages] == ["all", *(name for name, _ in steps)]
    ids = list(event.candidate_ids)
    alive, culprits = np.ones(logits.size, dtype=bool), np.full(logits.size, "", dtype=object)
    for stage, (name, scores) in zip(found.stages[1:], steps, strict=True):
        left = np.isfinite(scores)
        culprits[alive & ~left] = name
        alive = left
        where = f"{stage} of {order} with {used}, truly {left.sum()}"
        assert stage.least <= left.sum() <= stage.most, where
    final = torch.softmax(torch.from_numpy(steps[-1][1] if steps else logits.astype(np.float64)), -1).numpy()
    for token_id, cut, (low, high) in zip(ids, found.cuts, found.shares, strict=True):
        equals = logits == logits[token_id]  # which of them stays is an accident there (SAM-21)
        if cut != "?":
            assert cut in set(culprits[equals]), (token_id, order, used)
        assert low - 1e-6 <= final[equals].max(), (token_id, cut)
        assert final[equals].min() <= high + 1e-6, (token_id, cut)
    raw = torch.log_softmax(torch.from_numpy(logits.astype(np.float64)), -1).numpy()
    surprise = float(-(final * np.where(final > 0, raw, 0.0)).sum())
    assert found.surprise_low_nats - 1e-4 <= surprise <= found.surprise_high_nats + 1e-4
    return found


any_settings = st.builds(
    SamplingSettings,
    temperature=st.sampled_from([1.0, 0.5, 1.7, 100.0]) | st.floats(0.1, 5.0),
    top_k=st.sampled_from([0, 1, 3, 20, 150, 700]),
    top_p=st.just(1.0) | st.floats(0.05, 0.999),
    min_p=st.just(0.0) | st.floats(0.001, 0.9),
    typical_p=st.just(1.0) | st.floats(0.05, 0.999),
)


def on_a_border(logits: np.ndarray, used: SamplingSettings, order: tuple[str, ...]) -> bool:
    """Whether a sum lies so near to a border that a millionth decides: ours are nudged there on purpose (BORDER)."""
    nudged = replace(
        used,
        top_p=min(1.0, max(1e-6, used.top_p - 2 * BORDER)),
        typical_p=min(1.0, max(1e-6, used.typical_p - 2 * BORDER)),
        min_p=used.min_p * (1 - 2 * BORDER),
    )
    ours, theirs = by_transformers(logits, used, order), by_transformers(logits, nudged, order)
    return any((np.isfinite(a) != np.isfinite(b)).any() for (_, a), (_, b) in zip(ours, theirs, strict=False))


@settings(max_examples=80)
@given(
    any_settings, st.permutations(ORDERED), st.sampled_from([3, 20, 100]), st.integers(0, 2**32 - 1), st.floats(0.2, 5)
)
def test_where_all_logits_are_kept_every_order_is_transformers(used, order, size, seed, spread) -> None:
    logits = (np.random.default_rng(seed).normal(size=size) * spread).astype(np.float32)
    if on_a_border(logits, used, tuple(order)):
        return
    found = check(logits, used, tuple(order))
    assert all(stage.exact for stage in found.stages)
    assert "?" not in found.cuts


@settings(max_examples=80)
@given(
    any_settings, st.permutations(ORDERED), st.sampled_from([300, 1000, 5000]), st.integers(0, 2**32 - 1),
    st.floats(0.2, 5), st.booleans(), st.booleans(),
)  # fmt: skip
def test_where_some_are_only_counted_the_truth_lies_within_the_bounds(
    used, order, size, seed, spread, bare, rough
) -> None:
    logits = (np.random.default_rng(seed).normal(size=size) * spread).astype(np.float32)
    if rough:
        logits = (np.round(logits * 2) / 2).astype(np.float32)
    if on_a_border(logits, used, tuple(order)):
        return
    check(logits, used, tuple(order), bare)


def test_the_order_decides_what_a_temperature_of_100_does() -> None:
    """First, it makes all words nearly alike and top-p keeps nearly all; last, it flattens only among the few."""
    logits = (np.random.default_rng(0).normal(size=50_000) * 2).astype(np.float32)
    logits[:5] = [24, 23, 22, 21, 20]
    used = SamplingSettings(temperature=100.0, top_p=0.9)
    first = check(logits, used, ORDERED)
    last = check(logits, used, (*ORDERED[1:], "temperature"))
    assert first.stages[-1].least > 40_000
    assert last.stages[-1].exact
    assert last.stages[-1].most <= 5
    assert first.surprise_low_nats > last.surprise_high_nats + 5
    assert last.cuts[10] == "top_p"
    assert first.cuts[10] == ""


def test_what_was_banned_and_penalised_counts_in_both_orders() -> None:
    logits = np.array([5, 4, 3, 2, 1, 0], dtype=np.float32)
    used = SamplingSettings(top_k=2, banned=(1,), repetition_penalty=5.0)
    event = event_of(logits, History([0]), SamplingSettings(seed=1), 0)
    found = ordered_filters(start_of([0], used), (), event, used, ORDERED)
    by_id = dict(zip(event.candidate_ids, found.cuts, strict=True))
    assert by_id == {0: "top_k", 1: "banned", 2: "", 3: "", 4: "top_k", 5: "top_k"}  # 5 / 5 = 1 is the fourth now
    assert [(stage.name, stage.least, stage.most) for stage in found.stages] == [("all", 5, 5), ("top_k", 2, 2)]


def test_an_order_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="no order"):
        asked(np.zeros(3, dtype=np.float32), SamplingSettings(), ("top_k", "top_k", "top_p", "min_p", "typical_p"))


def test_bounds_are_narrow_where_the_default_filters_cut() -> None:
    """On logits like a model's, nearly every usual setting is exact in both orders."""
    random_ = random.Random(3)
    exact, asked_for = 0, 0
    for seed in range(40):
        generator = np.random.default_rng(seed)
        logits = (generator.gumbel(size=20_000) * 1.5).astype(np.float32)
        used = SamplingSettings(
            temperature=random_.uniform(0.5, 1.5), top_k=random_.choice([0, 40, 100]),
            top_p=random_.uniform(0.5, 0.95), min_p=random_.choice([0.0, 0.05]),
        )  # fmt: skip
        for order in (ORDERED, (*ORDERED[1:], "temperature")):
            found = asked(logits, used, order)
            asked_for += 1
            exact += found.stages[-1].most - found.stages[-1].least <= 0.02 * found.stages[-1].most
    assert exact >= 0.9 * asked_for


def test_the_events_of_a_run_answer(default_session) -> None:
    from engine.control import Control
    from engine.loop import generate
    from engine.settings import Request

    request = Request(1, "A river.", lanes=(SamplingSettings(temperature=0.9, seed=4),), max_new_tokens=8)
    events = list(generate(default_session, request, Control()))
    start, tokens = events[0], [event for event in events if isinstance(event, TokenEvent)]
    used = SamplingSettings(temperature=100.0, top_p=0.9, repetition_penalty=1.1)
    for token in tokens:
        before = [each.token_id for each in tokens[: token.step]]
        last = ordered_filters(start, before, token, used, (*ORDERED[1:], "temperature"))
        first = ordered_filters(start, before, token, used, ORDERED)
        assert last.stages[-1].most < first.stages[-1].least
