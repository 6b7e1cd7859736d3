"""A run that begins with tokens whose keys and values were kept reads only what is new, and writes the same."""

from __future__ import annotations

import pytest

from engine.control import Control
from engine.errors import SettingsRefused
from engine.events import CacheKept, PrefillProgress, RunEnd, TokenEvent
from engine.forward import forward_of
from engine.loading import load
from engine.loop import generate
from engine.prefix import MOST_CACHES
from engine.settings import LoadPlan, Request, SamplingSettings
from tests.tiny_models import tiny_folder

DRAWN = SamplingSettings(temperature=0.9, repetition_penalty=1.1, seed=5)


@pytest.fixture(scope="module")
def sessions(tmp_path_factory):
    made = {}

    def session(family: str):
        if family not in made:
            folder = tiny_folder(tmp_path_factory.mktemp(family), family)
            made[family] = load(LoadPlan(str(folder), device_map="cpu"), lambda event: None, Control())
        made[family].kept.on = True
        made[family].kept.drop()
        return made[family]

    yield session
    for each in made.values():
        each.close()


def run(session, prompt="The river runs.", tokens=20, **changes):
    request = Request(1, prompt, raw=True, max_new_tokens=tokens, ignore_ends=True, **({"lanes": (DRAWN,)} | changes))
    events = list(generate(session, request, Control()))
    ends = [event for event in events if isinstance(event, RunEnd)]
    return events, ends


def reads(events) -> tuple[int, int]:
    """(reused, computed) tokens of the prefill."""
    last = [event for event in events if isinstance(event, PrefillProgress)][-1]
    return last.reused_tokens, last.done_tokens - last.reused_tokens


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "gemma3_text"])
def test_the_second_run_of_a_prompt_reads_nothing_and_writes_the_same(sessions, family):
    session, prompt, tokens = sessions(family), "A hill.", 6  # gemma3's small windows may not be full
    first, (end,) = run(session, prompt, tokens)
    assert reads(first) == (0, end.prompt_tokens)
    again, (second,) = run(session, prompt, tokens)
    assert reads(again) == (end.prompt_tokens, 0)
    assert second.token_ids == end.token_ids
    assert (second.reused_tokens, second.computed_tokens) == (end.prompt_tokens, tokens - 1)
    assert isinstance(again[-1], CacheKept)
    assert again[-1].bytes == session.kept.held_bytes > 0
    assert again[-1].tokens == end.prompt_tokens + tokens - 1  # the last token was never read


def test_in_16_bits_the_second_run_is_the_first_to_the_last_digit(default_session):
    """A prompt's last token alone goes through another kernel than with the others: it is not read again."""
    session, prompt = (
        default_session,
        "Describe how a river shapes the land that it crosses, from its source to the sea.",
    )
    session.kept.drop()
    runs = [run(session, prompt, 12)[0] for _ in range(2)]
    first, second = ([event for event in events if isinstance(event, TokenEvent)] for events in runs)
    assert [token.candidate_logits for token in first] == [token.candidate_logits for token in second]


def test_what_is_kept_after_prompts_is_bounded(sessions):
    session = sessions("llama")
    for number in range(MOST_CACHES + 4):
        run(session, f"Hill {number:02d}.", tokens=1)
    assert len(session.kept.ends) == MOST_CACHES
    session.kept.drop()
    assert session.kept.held_bytes == 0


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_another_prompt_reuses_what_it_shares_and_writes_what_it_would_alone(sessions, family):
    session = sessions(family)
    run(session, "The river runs to the sea.")
    events, (end,) = run(session, "The river runs to the hills.")
    reused, computed = reads(events)
    assert (reused, computed) == (len("The river runs to the "), end.prompt_tokens - reused)
    session.kept.drop()
    _, (alone,) = run(session, "The river runs to the hills.")
    assert end.token_ids == alone.token_ids
    events, _ = run(session, "X")
    assert reads(events)[0] == 0


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3_text"])
def test_a_fork_goes_on_as_the_run_did_without_reading_the_prompt_again(sessions, family):
    session = sessions(family)
    _, (whole,) = run(session, tokens=30)
    if family == "gemma3_text":  # its windows are full by then: all is read anew, and the text is the same
        assert not session.kept.caches[-1].forward.crop(5)
        session.kept.drop()
    events, (fork,) = run(session, tokens=30, written=whole.token_ids[:18])
    assert fork.token_ids == whole.token_ids
    assert fork.text == whole.text
    assert [event.step for event in events if isinstance(event, TokenEvent)] == list(range(18, 30))
    if family != "gemma3_text":
        assert reads(events) == (whole.prompt_tokens + 17, 1)


def test_a_fork_with_other_settings_differs_only_from_there(sessions):
    session = sessions("llama")
    _, (whole,) = run(session, tokens=30)
    greedy = SamplingSettings(temperature=0.0)
    _, ends = run(session, tokens=30, written=whole.token_ids[:10], lanes=(greedy, DRAWN))
    assert ends[0].token_ids[:10] == ends[1].token_ids[:10] == whole.token_ids[:10]
    by_lane = {end.lane: end.token_ids for end in ends}
    assert by_lane[1] == whole.token_ids
    assert by_lane[0] != whole.token_ids


def test_lanes_after_a_kept_cache_each_write_what_they_would_alone(sessions):
    session = sessions("llama")
    lanes = tuple(SamplingSettings(temperature=0.9, seed=seed) for seed in range(3))
    _, fresh = run(session, lanes=lanes)
    events, kept = run(session, lanes=lanes)
    assert reads(events)[1] == 0
    assert sorted((end.lane, end.token_ids) for end in kept) == sorted((end.lane, end.token_ids) for end in fresh)


def test_nothing_is_kept_when_that_is_switched_off(sessions):
    session = sessions("llama")
    run(session)
    session.kept.on = False
    session.kept.drop()
    events, _ = run(session)
    assert not any(isinstance(event, CacheKept) for event in events)
    events, (end,) = run(session)
    assert reads(events) == (0, end.prompt_tokens)
    assert session.kept.held_bytes == 0


@pytest.mark.parametrize("family", ["mamba", "jamba", "rwkv"])
def test_families_with_fixed_states_read_all_anew(sessions, family):
    session = sessions(family)
    _, (first,) = run(session)
    events, (second,) = run(session)
    assert reads(events) == (0, first.prompt_tokens)
    assert second.token_ids == first.token_ids


def test_a_stop_in_the_prefill_leaves_no_half_read_cache(sessions):
    session = sessions("llama")
    control = Control()
    request = Request(1, "A prompt. " * 12, raw=True)
    events = []
    for event in generate(session, request, control):
        events.append(event)
        control.cancel()
    assert events[-1].reason == "cancelled"
    assert not session.kept.caches
    _, (after,) = run(session)
    session.kept.drop()
    assert run(session)[1][0].token_ids == after.token_ids


def test_a_stopped_run_keeps_what_it_read(sessions):
    session = sessions("llama")
    control = Control()
    written = 0
    for event in generate(session, Request(1, "The river runs.", raw=True, lanes=(DRAWN,), ignore_ends=True), control):
        written += isinstance(event, TokenEvent)
        if written == 5:
            control.cancel()
    events, (end,) = run(session)
    assert reads(events) == (end.prompt_tokens, 0)
    session.kept.drop()
    assert run(session)[1][0].token_ids == end.token_ids


def test_a_fork_beyond_the_last_token_is_a_sentence():
    with pytest.raises(SettingsRefused, match="written already"):
        Request(1, "x", max_new_tokens=3, written=(1, 2, 3))


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2"])
def test_a_forked_cache_equals_a_fresh_prefill_up_to_there(sessions, family):
    """MEM-4. The logits after the fork's first token, within 1e-4 in float32."""
    session = sessions(family)
    _, (whole,) = run(session, tokens=30)
    ids = session.kept.caches[-1].ids[: whole.prompt_tokens + 10]
    forward, shared = session.kept.take([*ids, 77])
    assert shared == len(ids)
    fresh = forward_of(session, 100)
    fresh.read(ids)
    assert abs(forward.step([77]) - fresh.step([77])).max() < 1e-4
    assert forward.kv_bytes()[0][0] == fresh.kv_bytes()[0][0]
