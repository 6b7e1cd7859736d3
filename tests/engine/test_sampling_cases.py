"""The waterfall ends in the probabilities that transformers' processors give, and the draw lands where it should."""

from __future__ import annotations

import json
import math
import warnings
from array import array
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers import (
    GenerationConfig,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)
from transformers.generation.utils import GenerationMixin

from engine.draw import draw
from engine.errors import RunFailed, SettingsRefused
from engine.events import FILTERS, STAGES, TokenEvent
from engine.sampling import CANDIDATES_KEPT, History, decide, final_probabilities
from engine.settings import RANGES, SamplingSettings

CASES = json.loads((Path(__file__).parents[1] / "data" / "sampling.json").read_text("utf-8"))


def logits_of(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def history_of(prompt: list[int], written: list[int] = ()) -> History:
    history = History(list(prompt))
    for token_id in written:
        history.add(token_id)
    return history


def event_of(logits: np.ndarray, history: History, used: SamplingSettings, u: float | None) -> TokenEvent:
    """The event that a run would make of a decision."""
    d = decide(logits, history, used, u)
    ids, raw = array("i", d.candidate_ids.tobytes()), array("d", d.candidate_logits.tobytes())
    adjusted = raw if d.candidate_adjusted is None else array("d", d.candidate_adjusted.tobytes())
    return TokenEvent(
        1, 0, 0, d.token_id, "", "", False, ids, raw, adjusted, d.candidate_cuts, tuple(map(str, ids)), d.logsumexp,
        d.entropy_nats, d.final_entropy_nats, d.stages, logits.size, d.rank, d.logprob, d.final_logprob, u, d.draw_low,
        d.draw_high, used.temperature, used, 0.0, 0.0, 0, 0, 0,
    )  # fmt: skip


# ---------------------------------------------------------------- the values of transformers


@pytest.mark.parametrize("case", CASES, ids=[case["name"][:40] for case in CASES])
def test_final_probabilities_are_the_given_ones(case) -> None:
    used = SamplingSettings.from_dict(case["settings"])
    final = final_probabilities(logits_of(*case["logits"]), history_of(case["context"]), used)
    expected = np.array(case["final"])
    if case["name"] == "equal logits":  # which of equals survive is an accident there (SAM-21)
        final, expected = np.sort(final), np.sort(expected)
    np.testing.assert_allclose(final, expected, atol=1e-6)
    assert np.count_nonzero(final > 1e-9) == np.count_nonzero(expected) or case["name"] == "temperature"


def by_transformers(logits: np.ndarray, context: list[int], used: SamplingSettings) -> np.ndarray:
    """transformers' own processors, in its order, each asked for in so many words (SAM-23)."""
    ids = torch.tensor([context])
    scores = torch.from_numpy(logits.copy())[None]
    steps = []
    if used.logit_bias:
        steps.append(SequenceBiasLogitsProcessor([[[token_id], bias] for token_id, bias in used.logit_bias]))
    if used.repetition_penalty != 1.0:
        steps.append(RepetitionPenaltyLogitsProcessor(used.repetition_penalty))
    if used.no_repeat_ngram_size:
        steps.append(NoRepeatNGramLogitsProcessor(used.no_repeat_ngram_size))
    if used.banned or used.banned_sequences:
        steps.append(NoBadWordsLogitsProcessor([*([i] for i in used.banned), *map(list, used.banned_sequences)]))
    if used.temperature != 1.0:
        steps.append(TemperatureLogitsWarper(used.temperature))
    if used.top_k:
        steps.append(TopKLogitsWarper(used.top_k))
    if used.top_p < 1.0:
        steps.append(TopPLogitsWarper(used.top_p))
    if used.min_p:
        steps.append(MinPLogitsWarper(used.min_p))
    if used.typical_p < 1.0:
        steps.append(TypicalLogitsWarper(used.typical_p))
    for step in steps:
        scores = step(ids, scores)
    # In float64: the last softmax is not what is compared.
    return torch.softmax(scores.double(), -1)[0].numpy()


any_settings = st.builds(
    SamplingSettings,
    temperature=st.sampled_from([1.0, 1.0, 0.2, 0.7, 1.3, 3.0]) | st.floats(0.05, 5.0),
    top_k=st.sampled_from([0, 0, 1, 2, 5, 50, 10_000]),
    top_p=st.just(1.0) | st.floats(0.01, 1.0 - 1e-6),  # nearer to 1, rounding decides which tail is cut
    min_p=st.just(0.0) | st.floats(0.001, 1.0),
    typical_p=st.just(1.0) | st.floats(0.05, 1.0 - 1e-6),
    repetition_penalty=st.just(1.0) | st.floats(0.5, 2.0),
    no_repeat_ngram_size=st.sampled_from([0, 0, 1, 2, 3]),
)


def constrained(used: SamplingSettings, size: int, context: list[int], random: np.random.Generator) -> SamplingSettings:
    """The same with some tokens biased, some banned, and a sequence that the context may have begun."""
    biased = random.choice(size, min(size, 4), replace=False)
    bans = random.choice(size, size // 4, replace=False)
    last = int(random.integers(0, size))
    return replace(
        used,
        logit_bias=tuple((int(i), float(random.choice([-100, 100, 0, random.normal() * 5]))) for i in biased),
        banned=tuple(int(i) for i in bans),
        banned_sequences=((context[-1], last), (last, *context[-1:], last), (*context[-2:], 0)),
    )


def close_call(final: np.ndarray, other: np.ndarray) -> bool:
    """Float32 sums of transformers and exact sums may disagree on one token that sits on the border itself."""
    return np.count_nonzero((final > 0) != (other > 0)) == 1


@settings(max_examples=300)
@given(any_settings, st.integers(2, 60), st.integers(0, 2**32 - 1), st.floats(0.1, 8.0))
def test_any_settings_end_in_transformers_probabilities(used, size, seed, spread) -> None:
    random = np.random.default_rng(seed)
    logits = (random.normal(size=size) * spread).astype(np.float32)
    context = [int(i) for i in random.integers(0, size, random.integers(1, 12))]
    ours = final_probabilities(logits, history_of(context), used)
    theirs = by_transformers(logits, context, used)
    if np.isnan(theirs).any():  # every token is a repetition: there nobody is left, here the most probable one is
        penalised = by_transformers(logits, context, replace(used, no_repeat_ngram_size=0, top_k=1, temperature=1.0))
        theirs = np.where(penalised == penalised.max(), 1.0, 0.0)
    assume(not close_call(ours, theirs))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


@settings(max_examples=25)
@given(any_settings, st.integers(0, 2**32 - 1), st.floats(0.5, 4.0))
def test_a_large_vocabulary_ends_in_transformers_probabilities(used, seed, spread) -> None:
    random = np.random.default_rng(seed)
    logits = (random.normal(size=50_000) * spread).astype(np.float32)
    context = [int(i) for i in random.integers(0, 50_000, 40)]
    ours = final_probabilities(logits, history_of(context), used)
    theirs = by_transformers(logits, context, used)
    # Its float32 sums over 50,000 tokens end a token or two beside the exact ones: rare tokens at the very border.
    border = np.flatnonzero((ours > 0) != (theirs > 0))
    assert border.size <= 3
    share = float((ours + theirs)[border].sum())
    assert share < max(2e-4, 2.0 * border.size * float(np.median(ours[ours > 0])))  # in flat ones none is rarer
    np.testing.assert_allclose(np.sort(ours), np.sort(theirs), atol=1e-5 + share)


@settings(max_examples=150)
@given(any_settings, st.integers(4, 60), st.integers(0, 2**32 - 1), st.floats(0.1, 8.0))
def test_bias_and_bans_end_in_transformers_probabilities(used, size, seed, spread) -> None:
    random = np.random.default_rng(seed)
    logits = (random.normal(size=size) * spread).astype(np.float32)
    context = [int(i) for i in random.integers(0, size, 6)]
    used = constrained(used, size, context, random)
    theirs = by_transformers(logits, context, used)
    assume(not np.isnan(theirs).any())  # repetitions and bans together leave nobody there
    ours = final_probabilities(logits, history_of(context), used)
    assume(not close_call(ours, theirs))
    # Its float32 division by the temperature rounds a logit of 100 and more at the fifth digit.
    np.testing.assert_allclose(ours, theirs, atol=1e-4 if used.temperature < 1.0 else 1e-5)


def test_bias_and_bans_alone_are_transformers_within_a_millionth() -> None:
    random = np.random.default_rng(3)
    for size in (5, 60, 50_000):
        logits = (random.normal(size=size) * 3).astype(np.float32)
        context = [1, 2, 3, 1, 2]
        for _ in range(5):
            used = constrained(SamplingSettings(), size, context, random)
            ours = final_probabilities(logits, history_of(context), used)
            np.testing.assert_allclose(ours, by_transformers(logits, context, used), atol=1e-6)


def test_a_banned_token_is_shown_as_cut_and_a_biased_one_shows_its_bias() -> None:
    used = SamplingSettings(logit_bias=((0, -2.5), (2, 40.0)), banned=(1,), repetition_penalty=2.0)
    event = event_of(logits_of(3, 9, -8, 1), history_of([0, 1]), used, 0.5)
    by_id = {c.token_id: c for c in event.candidates}
    assert (by_id[1].cut_by, by_id[1].final, by_id[1].bias) == ("banned", None, 0.0)
    assert (by_id[0].bias, by_id[2].bias) == (-2.5, 40.0)
    assert by_id[0].penalty == pytest.approx(-0.25)  # (3 - 2.5) / 2 - (3 - 2.5)
    assert by_id[2].penalty == by_id[3].penalty == 0.0
    assert event.token_id == 2
    assert [(f.name, f.kept_tokens) for f in event.stages] == [
        ("raw", 4), ("bias", 4), ("penalties", 4), ("banned", 3),
    ]  # fmt: skip
    assert math.fsum(c.final or 0.0 for c in event.candidates) == pytest.approx(1.0)
    for name in ("bias", "penalties"):
        assert math.fsum(c.probs[name] for c in event.candidates) == pytest.approx(1.0, abs=1e-6)


def test_of_a_banned_sequence_only_the_last_token_goes_and_only_where_the_others_stand() -> None:
    used = SamplingSettings(temperature=0.0, banned_sequences=((5, 6, 2),))
    for context, expected in (([5, 6], 1), ([6], 2), ([5, 6, 0], 2), ([], 2)):
        assert decide(logits_of(1, 2, 3, 0, 0, 0, 0), history_of(context), used, None).token_id == expected, context
    assert SamplingSettings(banned_sequences=((4,),)) == SamplingSettings(banned=(4,))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_where_everything_is_banned_the_run_ends_and_picks_nobody(temperature: float) -> None:
    used = SamplingSettings(temperature, banned=(0, 1, 2))
    with pytest.raises(RunFailed) as failed:
        decide(logits_of(1, 2, 3), history_of([]), used, None if used.greedy else 0.5, step=4)
    assert "step 4" in failed.value.what
    assert "banned" in failed.value.what
    # What the model itself calls impossible is no way out either.
    with pytest.raises(RunFailed):
        decide(logits_of(1, 2, -math.inf), history_of([]), replace(used, banned=(0, 1)), 0.5)


def test_repeated_ngrams_leave_the_most_probable_that_is_not_banned() -> None:
    used = SamplingSettings(no_repeat_ngram_size=1, banned=(2,))
    event = event_of(logits_of(1, 2, 3), history_of([0, 1, 2]), used, 0.5)
    assert event.token_id == 1
    assert {c.token_id: c.cut_by for c in event.candidates} == {0: "no_repeat_ngram", 1: None, 2: "no_repeat_ngram"}


def test_parity_is_nearly_never_excused_as_a_close_call() -> None:
    """`close_call` above must not hide a difference: over many draws it hardly ever applies."""
    random = np.random.default_rng(0)
    excused = 0
    for _ in range(300):
        logits = (random.normal(size=40) * 2).astype(np.float32)
        used = SamplingSettings(top_p=random.uniform(0.05, 0.99), min_p=random.uniform(0, 0.3), temperature=0.8)
        ours, theirs = final_probabilities(logits, history_of([1]), used), by_transformers(logits, [1], used)
        excused += close_call(ours, theirs)
    assert excused <= 1


@settings(max_examples=60)
@given(st.lists(st.integers(0, 3), min_size=2, max_size=30), st.floats(0.05, 0.95), st.sampled_from(["top_p", "min_p"]))
def test_among_equals_as_many_are_kept_as_in_transformers_and_the_smaller_ids(values, border, name) -> None:
    logits = np.array(values, dtype=np.float32)
    used = SamplingSettings(**{name: border})
    ours, theirs = final_probabilities(logits, history_of([0]), used), by_transformers(logits, [0], used)
    assume(not close_call(np.sort(ours), np.sort(theirs)))
    np.testing.assert_allclose(np.sort(ours), np.sort(theirs), atol=1e-6)
    for value in set(values):
        kept = [i for i in np.flatnonzero(logits == value) if ours[i] > 0]
        assert kept == list(np.flatnonzero(logits == value)[: len(kept)])


def test_equal_logits_at_the_border_of_top_p_keep_the_smaller_ids() -> None:
    used = SamplingSettings(top_p=0.6)
    final = final_probabilities(logits_of(2, 1, 1, 1), history_of([]), used)
    np.testing.assert_allclose(final, [0.7310586, 0.2689414, 0, 0], atol=1e-6)
    four = final_probabilities(logits_of(1, 1, 1, 1), history_of([]), SamplingSettings(top_p=0.5))
    np.testing.assert_allclose(four, [0.5, 0.5, 0, 0])
    twenty = final_probabilities(logits_of(*[1] * 20), history_of([]), SamplingSettings(top_p=0.5))
    np.testing.assert_allclose(twenty, [0.1] * 10 + [0] * 10)


def test_the_stages_run_in_the_order_of_transformers() -> None:
    """An upgrade that reorders its list must be noticed (SAM-26)."""
    everything = {"do_sample": True, "temperature": 0.7, "top_k": 5, "top_p": 0.9, "min_p": 0.1, "typical_p": 0.9}
    more = {"repetition_penalty": 1.2, "no_repeat_ngram_size": 2, "bad_words_ids": [[3]], "sequence_bias": [[[4], 2.0]]}
    config = GenerationConfig(**everything, **more)
    config._eos_token_tensor = None  # as generate() sets it
    mixin = GenerationMixin()
    mixin.config = SimpleNamespace(is_encoder_decoder=False)  # type: ignore[attr-defined]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = mixin._get_logits_processor(config, input_ids_seq_length=3)
    names = {
        "SequenceBiasLogitsProcessor": "bias",
        "RepetitionPenaltyLogitsProcessor": "penalties",
        "NoRepeatNGramLogitsProcessor": "no_repeat_ngram",
        "NoBadWordsLogitsProcessor": "banned",
        "TemperatureLogitsWarper": "temperature",
        "TopKLogitsWarper": "top_k",
        "TopPLogitsWarper": "top_p",
        "MinPLogitsWarper": "min_p",
        "TypicalLogitsWarper": "typical_p",
    }
    order = [names[type(step).__name__] for step in theirs]
    used = SamplingSettings(0.7, 5, 0.9, 0.1, 0.9, 1.2, no_repeat_ngram_size=2, logit_bias=((4, 2.0),), banned=(3,))
    ours = decide(logits_of(*range(9)), history_of([1, 2, 1]), used, 0.5).stages
    assert ["raw", *order] == [figures.name for figures in ours] == list(STAGES)


def test_nothing_is_on_unless_it_was_asked_for() -> None:
    """transformers' sampling without a word means top-k 50 (SAM-23); ours means nothing."""
    decision = decide(logits_of(*range(200)), history_of([1]), SamplingSettings(), 0.5)
    assert [figures.name for figures in decision.stages] == ["raw"]
    assert SamplingSettings(temperature=1) == SamplingSettings(temperature=1.0)
    assert type(SamplingSettings(temperature=1).temperature) is float


# ---------------------------------------------------------------- penalties


def test_repetition_counts_each_token_once_and_the_prompt_too() -> None:
    used = SamplingSettings(repetition_penalty=1.5)
    event = event_of(logits_of(1, -1, 2, 1.9), history_of([0, 0], [0, 1]), used, 0.5)
    by_id = {c.token_id: c for c in event.candidates}
    assert by_id[0].penalty == pytest.approx(1 / 1.5 - 1, abs=1e-6)
    assert by_id[1].penalty == pytest.approx(-0.5, abs=1e-6)
    assert by_id[2].penalty == by_id[3].penalty == 0.0


def test_presence_and_frequency_count_what_was_written_and_not_the_prompt() -> None:
    used = SamplingSettings(presence_penalty=0.5, frequency_penalty=0.25)
    event = event_of(logits_of(1, 1, 1, 1), history_of([0, 0, 0, 1], [1, 2, 2, 2]), used, 0.5)
    penalties = {c.token_id: c.penalty for c in event.candidates}
    # OpenAI API: logit - count * frequency - (count > 0) * presence
    assert penalties == {0: 0.0, 1: -0.75, 2: -1.25, 3: 0.0}


def test_no_repeat_ngram_bans_are_shown_as_such() -> None:
    event = event_of(logits_of(1, 5, 4, 3), history_of([2, 1, 3, 2]), SamplingSettings(no_repeat_ngram_size=2), 0.0)
    by_id = {c.token_id: c for c in event.candidates}
    assert by_id[1].cut_by == "no_repeat_ngram"  # "2 1" was there
    assert by_id[1].final is None
    assert event.token_id == 2


# ---------------------------------------------------------------- greedy, ties, extremes


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=50))
def test_greedy_takes_the_largest_and_among_equals_the_smaller_id(values) -> None:
    event = event_of(np.array(values, dtype=np.float32), history_of([]), SamplingSettings(temperature=0.0), None)
    assert event.token_id == values.index(max(values))
    assert event.u is None
    assert [c.final for c in event.candidates if c.chosen] == [1.0]
    assert math.fsum(c.final or 0.0 for c in event.candidates) == 1.0


def test_greedy_applies_what_stands_before_the_temperature() -> None:
    used = SamplingSettings(temperature=0.0, repetition_penalty=2.0, top_k=1)
    assert decide(logits_of(3, 2), history_of([0]), used, None).token_id == 1
    banned = SamplingSettings(temperature=0.0, no_repeat_ngram_size=1)
    assert decide(logits_of(3, 2), history_of([0]), banned, None).token_id == 1


@pytest.mark.parametrize("temperature", [1e-6, 1e-30, 1e-300, 5e-324, 100.0])
def test_extreme_temperatures_stay_finite(temperature: float) -> None:
    event = event_of(logits_of(3, 2.9999, -50, 88), history_of([]), SamplingSettings(temperature=temperature), 0.3)
    finals = [c.final for c in event.candidates]
    assert all(final is not None and 0.0 <= final <= 1.0 for final in finals)
    assert math.fsum(finals) == pytest.approx(1.0, abs=1e-6)
    assert math.isfinite(event.final_logprob)
    assert math.isfinite(event.final_entropy_nats)
    if temperature < 1:
        assert event.token_id == 3


OFFERED = [
    {"temperature": -1}, {"temperature": math.nan}, {"temperature": math.inf}, {"top_p": 0}, {"top_p": -0.1},
    {"top_p": 1.1}, {"top_p": math.nan}, {"top_k": -1}, {"top_k": 2.5}, {"min_p": -0.1}, {"min_p": 1.5},
    {"typical_p": 0}, {"repetition_penalty": 0}, {"repetition_penalty": -1}, {"no_repeat_ngram_size": -1},
    {"temperature": "hot"}, {"temperature": True}, {"seed": 1.5}, {"seed": "x"}, {"top_k": 10**400},
    {"temperature": 10**400}, {"colour": 1}, {"logit_bias": [[1, 101]]}, {"logit_bias": [[1, math.nan]]},
    {"logit_bias": [[-1, 1]]}, {"logit_bias": [[1]]}, {"logit_bias": 5}, {"logit_bias": [[1, True]]}, {"banned": [1.5]},
    {"banned": [2**31]}, {"banned": "12"}, {"banned_sequences": [3]}, {"banned_sequences": [[1, -2]]},
]  # fmt: skip


@pytest.mark.parametrize("wrong", OFFERED, ids=range(len(OFFERED)))
def test_absurd_settings_are_refused_with_the_allowed_range(wrong: dict) -> None:
    with pytest.raises(SettingsRefused) as refused:
        SamplingSettings.from_dict(wrong)
    assert refused.value.fix
    name = next(iter(wrong))
    if name in RANGES:
        assert name in refused.value.what
        high = RANGES[name].high
        assert (f"up to {high}." if RANGES[name].integer else f"{high:g}") in refused.value.fix
    assert refused.value.exit_code == 2


@settings(max_examples=200)
@given(any_settings, st.integers(1, 30), st.integers(0, 2**32 - 1), st.floats(0, 1, exclude_max=True))
def test_somebody_is_always_left_and_nobody_impossible_is_chosen(used, size, seed, u) -> None:
    random = np.random.default_rng(seed)
    logits = (random.normal(size=size) * 4).astype(np.float32)
    logits[random.random(size) < 0.3] = -np.inf  # models call tokens impossible themselves
    assume(np.isfinite(logits).any())
    context = [int(i) for i in random.integers(0, size, 5)]
    for point in (u, 0.0, math.nextafter(1.0, 0.0)):
        event = event_of(logits, history_of(context), used, point)
        chosen = next(c for c in event.candidates if c.chosen)
        final = final_probabilities(logits, history_of(context), used)
        assert final[event.token_id] > 0.0
        assert chosen.final == pytest.approx(final[event.token_id], abs=1e-6)
        assert event.final_logprob == pytest.approx(math.log(final[event.token_id]), abs=1e-5)
        assert event.draw_low - 1e-6 <= point <= event.draw_high + 1e-6


def test_rounding_never_lets_the_draw_fall_off_the_end() -> None:
    logits = np.zeros(50_000, dtype=np.float32)
    logits[-1] = -200.0  # probability 0 beside the others
    last = math.nextafter(1.0, 0.0)
    assert decide(logits, history_of([]), SamplingSettings(), last).token_id == 49_998


@settings(max_examples=150)
@given(any_settings, st.integers(0, 2**32 - 1), st.sampled_from([5, 41, 400]))
def test_the_alternatives_and_all_others_share_one(used, seed, size) -> None:
    random = np.random.default_rng(seed)
    logits = (random.normal(size=size) * 3).astype(np.float32)
    event = event_of(logits, history_of([1, 2, 1]), used, draw(seed, 0))
    raw, final = event.others()
    listed_raw = math.fsum(c.raw for c in event.candidates)
    listed_final = math.fsum(c.final or 0.0 for c in event.candidates)
    assert raw + listed_raw == pytest.approx(1.0, abs=1e-6)
    assert final + listed_final == pytest.approx(1.0, abs=1e-6)
    # By transformers' numbers, not ours: the others' share is what the processors leave to those not listed.
    theirs = by_transformers(logits, [1, 2, 1], used)
    ours = final_probabilities(logits, history_of([1, 2, 1]), used)
    if not close_call(ours, theirs):
        listed = list(event.candidate_ids)
        assert final == pytest.approx(1.0 - theirs[listed].sum(), abs=2e-5)
        for candidate in event.candidates:
            assert (candidate.final or 0.0) == pytest.approx(theirs[candidate.token_id], abs=1e-5)


@settings(max_examples=150)
@given(any_settings, st.integers(0, 2**32 - 1))
def test_a_cut_alternative_names_the_first_filter_that_cut_it(used, seed) -> None:
    random = np.random.default_rng(seed)
    logits = (random.normal(size=30) * 3).astype(np.float32)
    context = [3, 4, 3]
    event = event_of(logits, history_of(context), used, 0.5)
    # One filter more at a time: the first after which transformers leaves it nothing is the one that cut it.
    partial = SamplingSettings(repetition_penalty=used.repetition_penalty)
    gone: dict[int, str] = {}
    fields = ("no_repeat_ngram_size", "temperature", "top_k", "top_p", "min_p", "typical_p")
    for name, field in zip(("no_repeat_ngram", "temperature", *FILTERS[1:5]), fields, strict=True):
        partial = replace(partial, **{field: getattr(used, field)})
        ours, theirs = (
            final_probabilities(logits, history_of(context), partial),
            by_transformers(logits, context, partial),
        )
        assume(not close_call(ours, theirs))
        for token_id in np.flatnonzero(theirs == 0.0):
            gone.setdefault(int(token_id), name)
    for candidate in event.candidates:
        assert candidate.cut_by == gone.get(candidate.token_id)
    for figures in event.stages[1:]:
        later = STAGES.index(figures.name)
        assert figures.kept_tokens == 30 - sum(STAGES.index(name) <= later for name in gone.values())


def test_typical_p_can_cut_the_favourite() -> None:
    event = event_of(logits_of(2, 1, 1, 1, 1, 0), history_of([]), SamplingSettings(typical_p=0.2), 0.9)
    favourite = event.candidates[0]
    assert (favourite.token_id, favourite.cut_by, favourite.final) == (0, "typical_p", None)
    assert [c.final for c in event.candidates] == [None, *[pytest.approx(0.25)] * 4, None]
    assert event.stages[-1].kept_tokens == 4
    assert event.rank == 4  # beyond the number kept


def test_the_chosen_token_is_listed_however_rare_it_was() -> None:
    logits = np.zeros(1000, dtype=np.float32)
    event = event_of(logits, history_of([]), SamplingSettings(), 0.9995)
    assert event.token_id == 999
    assert event.rank == 999
    assert len(event.candidates) == CANDIDATES_KEPT + 1
    assert event.candidates[-1].chosen
    assert event.candidates[-1].rank == 999


# ---------------------------------------------------------------- broken numbers


@pytest.mark.parametrize(
    "values",
    [
        (1, math.nan, 3, 0),
        (-math.inf,) * 4,
        (1, math.inf, 3),
        (math.nan,) * 3,
        (math.inf, -math.inf),
        (math.nan, math.inf),
    ],
    ids=range(6),
)
@pytest.mark.parametrize("used", [SamplingSettings(0.0), SamplingSettings(), SamplingSettings(top_k=2, top_p=0.9)])
def test_broken_logits_end_the_run_and_pick_nobody(values, used) -> None:
    with pytest.raises(RunFailed) as failed:
        decide(logits_of(*values), history_of([]), used, None if used.greedy else 0.5, step=17)
    assert "17" in failed.value.what
    assert failed.value.fix == "float16 overflow is the usual cause; try bfloat16 or float32."


def test_impossible_tokens_are_no_broken_logits() -> None:
    event = event_of(logits_of(1, -math.inf, 2), history_of([]), SamplingSettings(0.7, repetition_penalty=1.2), 0.5)
    assert event.token_id in (0, 2)
    assert all(math.isfinite(p) for c in event.candidates for p in c.probs.values())


def test_logits_are_not_changed() -> None:
    logits = logits_of(3, 1, 2)
    decide(logits, history_of([0, 1]), SamplingSettings(0.5, 2, repetition_penalty=2.0, no_repeat_ngram_size=1), 0.5)
    np.testing.assert_array_equal(logits, [3, 1, 2])


@pytest.mark.parametrize("penalty", [1e-300, 1e-40, 1e-10, 100.0])
@pytest.mark.parametrize("values", [(5, -5, 1), (0, 0, 1), (3e38, 1, -3e38), (5, -math.inf, -math.inf)], ids=range(4))
@pytest.mark.parametrize("temperature", [0.0, 0.1, 1.0])
def test_absurd_penalties_and_logits_stay_finite(penalty: float, values, temperature: float) -> None:
    used = SamplingSettings(temperature, repetition_penalty=penalty, top_p=0.9, min_p=0.01)
    event = event_of(logits_of(*values), history_of([0, 1], [1]), used, None if used.greedy else 0.5)
    assert math.isfinite(values[event.token_id])
    figures = [f.logsumexp for f in event.stages] + [event.entropy_nats, event.final_entropy_nats, event.final_logprob]
    assert all(map(math.isfinite, figures))
    assert math.fsum(c.final or 0.0 for c in event.candidates) == pytest.approx(1.0, abs=1e-6)
