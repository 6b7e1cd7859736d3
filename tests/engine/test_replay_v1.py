"""A replay of the first format opens for ever, with what it held. Nobody writes this file anew."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from engine import events as ev
from engine.redecide import FinishedRun
from engine.replay import Replay, read_replay
from engine.settings import SamplingSettings

FILE = Path(__file__).parents[1] / "data" / "replay-v1.jsonl"


@pytest.fixture(scope="module")
def replay() -> Replay:
    return read_replay(FILE)


def of(replay: Replay, kind: type, lane: int = 0) -> list:
    return [event for event in replay.events if isinstance(event, kind) and getattr(event, "lane", lane) == lane]


def test_it_opens_whole(replay: Replay) -> None:
    assert (replay.damage, replay.notes, replay.unknown) == ("", (), ())
    assert replay.header["prompt"] == "Translate “river” into Chinese."
    assert replay.header["model"] == "SmolLM2-135M-Instruct"
    kinds = [type(event) for event in replay.events]
    assert kinds.count(ev.TokenEvent) == 10
    assert kinds.count(ev.RunStart) == kinds.count(ev.RunEnd) == 2
    assert kinds.count(ev.Loaded) == kinds.count(ev.MemoryReading) == kinds.count(ev.SettingsChanged) == 1


def test_texts_and_half_characters_are_as_they_were(replay: Replay) -> None:
    first, second = of(replay, ev.RunEnd, 0)[0], of(replay, ev.RunEnd, 1)[0]
    assert (first.text, first.token_ids) == ("Zhongshi", (74, 88, 516, 1595, 89))
    assert (second.text, second.tail_text) == ("水\ufffd", "\ufffd")
    assert [token.token_text for token in of(replay, ev.TokenEvent, 1)][:3] == ["<E6>", "<B0>", "<B4>"]


def test_figures_are_to_the_last_digit(replay: Replay) -> None:
    token = of(replay, ev.TokenEvent)[0]
    assert token.u == 0.8720734548204873
    assert token.draw_low <= token.u < token.draw_high
    assert token.vocab_size == 49152
    assert token.logprob == pytest.approx(token.candidates[token.rank].logit - token.logsumexp, abs=1e-9)
    assert all(math.isfinite(candidate.logit) for candidate in token.candidates)
    assert [stage.name for stage in token.stages] == ["raw", "penalties", "temperature", "top_k", "top_p"]


def test_settings_that_were_moved_are_told(replay: Replay) -> None:
    moved = of(replay, ev.SettingsChanged)[0]
    assert moved.settings == SamplingSettings(temperature=1.2, top_k=20, min_p=0.02, seed=7)
    tokens = of(replay, ev.TokenEvent)
    assert tokens[moved.step].settings == moved.settings
    assert tokens[moved.step - 1].settings.top_p == 0.9


def test_what_came_later_takes_its_default(replay: Replay) -> None:
    start = of(replay, ev.RunStart)[0]
    assert start.parent is None
    assert start.forced_tokens == 0
    assert not of(replay, ev.TokenEvent)[0].forced


def test_its_sliders_still_answer(replay: Replay) -> None:
    """The greedy lane under its own settings writes itself; what was kept answers without a model."""
    start, tokens = of(replay, ev.RunStart, 1)[0], of(replay, ev.TokenEvent, 1)
    same = FinishedRun(start, tokens).redecide(tokens[0].settings)
    assert (same.first, same.open_count) == (None, 0)
    start, tokens = of(replay, ev.RunStart, 0)[0], of(replay, ev.TokenEvent, 0)
    greedy = FinishedRun(start, tokens).redecide(replace(tokens[0].settings, temperature=0.0, repetition_penalty=1.0))
    assert greedy.first == next(token.step for token in tokens if token.rank > 0)
