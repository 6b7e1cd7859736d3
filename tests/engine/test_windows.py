"""CAC-2: sliding windows can be rolled back, at a price that is predicted and said."""

from __future__ import annotations

import pytest

from engine.control import Control
from engine.events import RunEnd, TokenEvent
from engine.loading import load
from engine.loop import generate
from engine.memory import estimate
from engine.settings import LoadPlan, Request, SamplingSettings
from tests.tiny_models import tiny_folder

PROMPT = "The river runs to the sea, and the sea is far."  # more than a window
DRAWN = SamplingSettings(temperature=0.9, seed=5)


@pytest.fixture(scope="module", params=["gemma3_text", "mistral", "gpt_oss"])
def folder(request, tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module", params=[True, False], ids=["kept", "let go"])
def session(request, folder):
    plan = LoadPlan(str(folder), "float32", device_map="cpu", keep_windows=request.param)
    session = load(plan, lambda event: None, Control())
    yield session
    session.close()


def run(session, **changes):
    changes = {"max_new_tokens": 30, "lanes": (DRAWN,), "ignore_ends": True} | changes
    request = Request(1, PROMPT, raw=True, **changes)
    return list(generate(session, request, Control()))


def end_of(events):
    return next(event for event in events if isinstance(event, RunEnd))


def test_a_fork_reads_nothing_again_where_windows_keep_all_and_writes_the_same_either_way(session):
    session.kept.drop()
    whole = end_of(run(session))
    for at in (20, 4, 25):  # back and forth
        events = run(session, written=whole.token_ids[:at])
        fork = end_of(events)
        assert fork.token_ids == whole.token_ids
        expected = len(PROMPT) + at - 1 if session.keep_windows else 0
        assert fork.reused_tokens == expected
    session.kept.drop()
    fresh = [event for event in run(session, written=whole.token_ids[:20]) if isinstance(event, TokenEvent)]
    run(session)
    again = [event for event in run(session, written=whole.token_ids[:20]) if isinstance(event, TokenEvent)]
    assert [event.logsumexp for event in again] == pytest.approx([e.logsumexp for e in fresh], abs=1e-4)


def test_the_cache_is_predicted_with_the_choice(session, folder):
    session.kept.drop()
    token = [event for event in run(session) if isinstance(event, TokenEvent)][-1]
    cached = token.context_used_tokens - 1
    found = estimate(str(folder), "float32", context_tokens=cached, keep_windows=session.keep_windows)
    assert token.kv_bytes == found.kv_bytes
    assert session.facts.sizes is not None
    assert session.facts.sizes.cache == found.sizes.cache


def test_it_is_said_which_was_chosen(session):
    said = next(fact for fact in session.facts.facts if fact.name == "Sliding windows keep")
    assert said.value.startswith("all tokens" if session.keep_windows else "the window's tokens")


def test_lanes_with_kept_windows_write_what_each_writes_alone(session):
    lanes = tuple(SamplingSettings(temperature=0.9, seed=n) for n in range(3))
    together = {e.lane: e.token_ids for e in run(session, lanes=lanes) if isinstance(e, RunEnd)}
    for lane, settings in enumerate(lanes):
        session.kept.drop()
        assert end_of(run(session, lanes=(settings,))).token_ids == together[lane]
