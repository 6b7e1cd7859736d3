"""Bias and bans in runs: from the first or the next token on, in each lane by itself, refused without sense."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.control import Control
from engine.errors import PromptRefused
from engine.events import RunEnd, SettingsChanged, TokenEvent
from engine.loading import load
from engine.loop import generate
from engine.penalties import penalised
from engine.sampling import History
from engine.settings import LoadPlan, Request, SamplingSettings
from tests.tiny_models import tiny_folder

GREEDY = SamplingSettings(temperature=0.0)


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    folder = tiny_folder(tmp_path_factory.mktemp("tiny"))
    made = load(LoadPlan(str(folder), "float32", device_map="cpu"), lambda event: None, Control())
    yield made
    made.close()


def run_of(session, *lanes: SamplingSettings, count: int = 8, control: Control | None = None):
    request = Request(1, "ab", raw=True, lanes=lanes, max_new_tokens=count, ignore_ends=True)
    events = list(generate(session, request, control or Control()))
    tokens = {n: [e for e in events if isinstance(e, TokenEvent) and e.lane == n] for n in range(len(lanes))}
    ends = {e.lane: e for e in events if isinstance(e, RunEnd)}
    return events, tokens, ends


def test_a_lane_with_everything_banned_ends_with_an_error_and_the_other_goes_on(session) -> None:
    everything = replace(GREEDY, banned=tuple(range(session.facts.vocab_size)))
    _, tokens, ends = run_of(session, GREEDY, everything)
    assert (ends[1].reason, ends[1].new_tokens, tokens[1]) == ("error", 0, [])
    assert "banned" in ends[1].sentence
    assert ends[1].fix
    assert ends[0].reason == "length"
    assert ends[0].token_ids == run_of(session, GREEDY)[2][0].token_ids


def test_what_stands_when_the_last_word_is_banned_is_kept(session) -> None:
    """Once two tokens are there, the sequences leave nobody."""
    first, second = run_of(session, GREEDY, count=2)[2][0].token_ids
    after = tuple((first, second, token_id) for token_id in range(session.facts.vocab_size))
    _, tokens, ends = run_of(session, replace(GREEDY, banned_sequences=after))
    assert ends[0].reason == "error"
    assert ends[0].token_ids == (first, second)
    assert ends[0].text == "".join(token.text for token in tokens[0]) + ends[0].tail_text


def test_a_boost_of_100_writes_the_token_and_a_ban_never_does(session) -> None:
    wanted = 7
    _, tokens, _ = run_of(session, replace(GREEDY, logit_bias=((wanted, 100.0),)))
    assert {token.token_id for token in tokens[0]} == {wanted}
    hot = SamplingSettings(temperature=3.0, seed=4)
    plain = {token.token_id for token in run_of(session, hot, count=30)[1][0]}
    banned = replace(hot, banned=tuple(sorted(plain)))
    assert not plain & {token.token_id for token in run_of(session, banned, count=30)[1][0]}


def test_a_ban_counts_from_the_next_token_and_is_in_the_record(session) -> None:
    control, request = Control(), Request(1, "ab", raw=True, lanes=(GREEDY,), max_new_tokens=6, ignore_ends=True)
    plain = run_of(session, GREEDY, count=6)[2][0].token_ids
    banned = replace(GREEDY, banned=(plain[3],))
    seen = []
    for event in generate(session, request, control):
        seen.append(event)
        if isinstance(event, TokenEvent) and event.step == 2:
            control.set_settings(0, banned)
    changed = next(event for event in seen if isinstance(event, SettingsChanged))
    tokens = [event for event in seen if isinstance(event, TokenEvent)]
    assert (changed.step, changed.settings) == (3, banned)
    assert tuple(token.token_id for token in tokens[:3]) == plain[:3]
    assert tokens[3].token_id != plain[3]
    cut = {c.token_id: c.cut_by for c in tokens[3].candidates}
    assert cut[plain[3]] == "banned"


def test_a_lane_with_constraints_alone_equals_itself_in_company(session) -> None:
    lanes = [
        SamplingSettings(temperature=1.5, seed=n, logit_bias=((n, 3.0), (n + 1, -3.0)), banned=(n + 5,),
                         banned_sequences=((n, 1), (2, n)), repetition_penalty=1.2)
        for n in range(4)
    ]  # fmt: skip
    together = run_of(session, *lanes, count=12)[2]
    for n, lane in enumerate(lanes):
        assert run_of(session, lane, count=12)[2][0].token_ids == together[n].token_ids


@pytest.mark.parametrize(
    "wrong", [{"banned": (10**6,)}, {"logit_bias": ((10**6, 1.0),)}, {"banned_sequences": ((1, 10**6),)}]
)
def test_a_token_that_the_model_has_not_is_refused(session, wrong) -> None:
    with pytest.raises(PromptRefused) as refused:
        run_of(session, replace(GREEDY, **wrong))
    assert "1000000" in refused.value.what


def test_padding_is_no_text_for_a_penalty() -> None:
    """SAM-25: alone the context is 0; in a batch that is padded with 2 it must be the same."""
    logits = np.array([1, -1, 2, 1.9], dtype=np.float32)
    found = penalised(logits, History([0]), SamplingSettings(repetition_penalty=1.5))
    np.testing.assert_allclose(found, [0.667, -1, 2, 1.9], atol=1e-3)
