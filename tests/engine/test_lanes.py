"""Lanes that are asked different things, in one batch or each by itself, write what each would write alone."""

from __future__ import annotations

import math

import pytest

from engine.control import Control
from engine.errors import PromptRefused, SettingsRefused
from engine.events import PrefillProgress, RunEnd, RunStart, TokenEvent
from engine.loading import load
from engine.loop import generate
from engine.sampling import decide
from engine.settings import LanePrompt, LoadPlan, Request, SamplingSettings
from tests.tiny_models import tiny_folder

DRAWN = SamplingSettings(temperature=0.9, repetition_penalty=1.2, seed=5)
PROMPTS = ("The river runs to the sea.", "The river ran dry", "The river runs to the hills and stays", "X")
# lean, lean with norms of queries, absolute positions, windows, fixed states, no cache at all
FAMILIES = ("llama", "qwen3", "gpt2", "gemma3_text", "mamba", "rwkv")


@pytest.fixture(scope="module")
def sessions(tmp_path_factory):
    made = {}

    def session(family: str):
        if family not in made:
            folder = tiny_folder(tmp_path_factory.mktemp(family), family)
            made[family] = load(LoadPlan(str(folder), "float32", device_map="cpu"), lambda event: None, Control())
        made[family].kept.drop()
        made[family].kept.on = True
        return made[family]

    yield session
    for each in made.values():
        each.close()


def asked(prompts, **changes):
    lanes = changes.pop("lanes", None) or tuple(SamplingSettings(temperature=0.9, seed=n) for n in range(len(prompts)))
    prompts = tuple(LanePrompt(prompt) for prompt in prompts)
    return Request(
        1, "", raw=True, lanes=lanes, prompts=prompts, ignore_ends=True, **({"max_new_tokens": 12} | changes)
    )


def ends_of(events):
    return sorted((event for event in events if isinstance(event, RunEnd)), key=lambda end: end.lane)


def run(session, request):
    return list(generate(session, request, Control()))


def alone(session, request, lane):
    session.kept.drop()
    mine = asked([request.prompts[lane].prompt], lanes=(request.lanes[lane],), max_new_tokens=request.max_new_tokens)
    return ends_of(run(session, mine))[0]


@pytest.mark.parametrize("lockstep", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_lanes_of_different_prompts_write_what_each_writes_alone(sessions, family, lockstep):
    session, request = sessions(family), asked(PROMPTS, lockstep=lockstep)
    events = run(session, request)
    together = ends_of(events)
    for lane in range(len(PROMPTS)):
        mine = alone(session, request, lane)
        assert together[lane].token_ids == mine.token_ids
        assert together[lane].prompt_tokens == mine.prompt_tokens == len(PROMPTS[lane])
        assert together[lane].kv_bytes == mine.kv_bytes
    starts = [event for event in events if isinstance(event, RunStart)]
    assert [start.prompt for start in starts] == list(PROMPTS)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3_text"])
def test_the_odds_in_company_are_those_alone(sessions, family):
    session, request = sessions(family), asked(PROMPTS)
    together = [event for event in run(session, request) if isinstance(event, TokenEvent)]
    for lane in range(len(PROMPTS)):
        session.kept.drop()
        mine = asked([PROMPTS[lane]], lanes=(request.lanes[lane],))
        events = [event for event in run(session, mine) if isinstance(event, TokenEvent)]
        theirs = [event for event in together if event.lane == lane]
        assert [event.logsumexp for event in theirs] == pytest.approx([e.logsumexp for e in events], abs=2e-5)
        assert [event.logprob for event in theirs] == pytest.approx([e.logprob for e in events], abs=2e-5)


def test_lanes_that_end_early_leave_the_others_as_they_are(sessions):
    session = sessions("llama")
    request = asked(PROMPTS, max_new_tokens=40)
    whole = [alone(session, request, lane) for lane in range(len(PROMPTS))]
    session.kept.drop()
    stop = whole[2].text[2:8]  # the longest goes, so that the others move to the left
    stopped = ends_of(run(session, asked(PROMPTS, max_new_tokens=40, stop=(stop,))))
    assert stopped[2].reason == "stop string"
    for lane, end in enumerate(stopped):
        assert end.token_ids == whole[lane].token_ids[: end.new_tokens]
    assert any(end.reason == "length" for end in stopped)


@pytest.mark.parametrize(("family", "shares"), [("llama", True), ("gpt2", True), ("mamba", False)])
def test_what_prompts_have_in_common_is_read_once(sessions, family, shares):
    session = sessions(family)
    events = run(session, asked(PROMPTS[:3]))
    common = len("The river r")
    reads = [(end.reused_tokens, end.computed_tokens - (end.new_tokens - 1)) for end in ends_of(events)]
    lengths = [len(prompt) for prompt in PROMPTS[:3]]
    third = len("The river runs to the ")  # as the first begins, which is still there
    if shares:
        assert reads[:2] == [(0, lengths[0]), (common, lengths[1] - common)]
        assert reads[2] == (third, lengths[2] - third)
    else:
        assert reads == [(0, length) for length in lengths]
    progress = [event for event in events if isinstance(event, PrefillProgress)]
    assert progress[-1].done_tokens == progress[-1].total_tokens == sum(lengths)
    done = [event.done_tokens for event in progress]
    assert done == sorted(done)


def test_lanes_of_one_prompt_are_read_once_and_alike(sessions):
    session = sessions("llama")
    events = run(session, asked([PROMPTS[0]] * 3 + [PROMPTS[1]], lanes=(DRAWN,) * 4))
    ends = ends_of(events)
    assert ends[0].token_ids == ends[1].token_ids == ends[2].token_ids
    assert [event for event in events if isinstance(event, PrefillProgress)][-1].total_tokens == len(
        PROMPTS[0] + PROMPTS[1]
    )


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_any_lane_can_be_forked_without_reading_it_again(sessions, family):
    session, request = sessions(family), asked(PROMPTS[:3], max_new_tokens=30)
    ends = ends_of(run(session, request))
    for lane, end in enumerate(ends):
        fork = asked([PROMPTS[lane]], lanes=(request.lanes[lane],), max_new_tokens=30, written=end.token_ids[:20])
        (forked,) = ends_of(run(session, fork))
        assert forked.token_ids == end.token_ids
        assert forked.reused_tokens == len(PROMPTS[lane]) + 19
        assert forked.computed_tokens == 1 + 9  # the last token that was written, and all new ones but the last


def test_a_fork_of_an_older_run_is_not_read_again_either(sessions):
    session = sessions("llama")
    first = ends_of(run(session, asked([PROMPTS[0]], lanes=(DRAWN,), max_new_tokens=30)))[0]
    for seed in range(3):
        run(session, asked([PROMPTS[0]], lanes=(SamplingSettings(seed=50 + seed),), max_new_tokens=30))
    for at in (25, 10, 20):
        fork = asked([PROMPTS[0]], lanes=(DRAWN,), max_new_tokens=30, written=first.token_ids[:at])
        (forked,) = ends_of(run(session, fork))
        assert forked.reused_tokens == len(PROMPTS[0]) + at - 1
        assert forked.token_ids == first.token_ids


def test_kept_caches_stay_within_their_number_and_bytes(sessions, monkeypatch):
    monkeypatch.setattr("engine.prefix.MOST_CACHES", 3)
    session = sessions("llama")
    for seed in range(5):
        run(session, asked([PROMPTS[0]], lanes=(SamplingSettings(seed=seed),), max_new_tokens=5))
    assert len(session.kept.caches) == 3
    monkeypatch.setattr("engine.prefix.MOST_BYTES", 1)
    run(session, asked([PROMPTS[0]], lanes=(SamplingSettings(seed=9),), max_new_tokens=5))
    assert len(session.kept.caches) == 1


def test_given_tokens_are_written_and_keep_the_models_odds(sessions):
    session = sessions("llama")
    free = [event for event in run(session, asked([PROMPTS[0]], lanes=(DRAWN,))) if isinstance(event, TokenEvent)]
    other = next(i for i in free[0].candidate_ids if i != free[0].token_id)
    request = asked([PROMPTS[0]], lanes=(DRAWN,), forced=(other,), forced_text="é")
    events = run(session, request)
    tokens = [event for event in events if isinstance(event, TokenEvent)]
    start = next(event for event in events if isinstance(event, RunStart))
    assert start.forced_tokens == 3  # é is two bytes, and each byte a token here
    assert [event.token_id for event in tokens[:3]] == [other, *"é".encode()]
    assert [event.forced for event in tokens] == [True] * 3 + [False] * (len(tokens) - 3)
    known = list(free[0].candidate_ids).index(other)
    assert tokens[0].logprob == pytest.approx(free[0].candidate_logits[known] - free[0].logsumexp)
    assert tokens[0].u == free[0].u  # what would have been drawn
    assert "é" in ends_of(events)[0].text


def test_a_given_token_that_the_settings_cut_has_no_chance_left(sessions):
    session = sessions("llama")
    settings = SamplingSettings(temperature=0.9, top_k=1, seed=3)
    free = [event for event in run(session, asked([PROMPTS[0]], lanes=(settings,))) if isinstance(event, TokenEvent)]
    last = free[0].candidate_ids[-1]
    (token, *_) = [
        event
        for event in run(session, asked([PROMPTS[0]], lanes=(settings,), forced=(last,)))
        if isinstance(event, TokenEvent)
    ]
    assert token.token_id == last
    assert token.final_logprob == -math.inf
    assert (token.draw_low, token.draw_high) == (0.0, 0.0)


def test_the_interval_of_a_given_token_is_where_a_draw_would_have_picked_it(sessions):
    import numpy as np

    from engine.sampling import History

    logits = np.array([2.0, 1.0, 0.5, 0.0, -1.0], dtype=np.float32)
    settings = SamplingSettings(temperature=0.7, top_k=4)
    for token in range(4):
        given = decide(logits, History([]), settings, 0.0, forced=token)
        drawn = decide(logits, History([]), settings, (given.draw_low + given.draw_high) / 2)
        assert drawn.token_id == token
        assert (drawn.draw_low, drawn.draw_high) == pytest.approx((given.draw_low, given.draw_high))
        assert drawn.final_logprob == pytest.approx(given.final_logprob)


def test_prompts_and_names_belong_to_lanes(sessions):
    with pytest.raises(SettingsRefused, match="names given: 2; lanes: 1"):
        asked(PROMPTS[:2], lanes=(DRAWN,))
    session = sessions("llama")
    with pytest.raises(PromptRefused, match="Lane cold: The prompt is"):
        run(session, asked(["a", "b" * 600], names=("warm", "cold")))


def test_a_token_of_another_model_is_refused(sessions):
    with pytest.raises(PromptRefused, match="no such token"):
        run(sessions("llama"), asked(["a"], forced=(5000,)))
