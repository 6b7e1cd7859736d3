"""Luck or setting: all runs are those of their settings and seeds, and equal settings are seldom told apart."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from engine.control import Control
from engine.errors import Cancelled, SettingsRefused
from engine.events import ExperimentProgress, RunEnd
from engine.experiments import TEXT_FIGURES, Asked, LuckQuestion
from engine.loading import load
from engine.loop import generate
from engine.luck import compared, luck
from engine.settings import LoadPlan, SamplingSettings
from tests.tiny_models import tiny_folder

ASKED = Asked("A hill.", raw=True, max_new_tokens=8)
WARM, COLD = SamplingSettings(temperature=1.0), SamplingSettings(temperature=0.3, top_p=0.5)


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    made = load(
        LoadPlan(str(tiny_folder(tmp_path_factory.mktemp("tiny") / "model")), device_map="cpu"),
        lambda event: None,
        Control(),
    )
    yield made
    made.close()


def nobody(event):
    pass


def test_each_side_runs_all_its_seeds_and_no_seed_twice():
    lanes = LuckQuestion(ASKED, (WARM, COLD), 4, 10).lanes
    assert [lane.seed for lane in lanes] == list(range(10, 18))
    assert [replace(lane, seed=0) for lane in lanes] == [WARM] * 4 + [COLD] * 4
    for seeds in (0, 1, 33):
        with pytest.raises(SettingsRefused):
            LuckQuestion(ASKED, (WARM, COLD), seeds)


def test_the_texts_are_those_of_the_same_runs_alone(session):
    told = []
    question = LuckQuestion(ASKED, (WARM, COLD), 3)
    found = luck(question, session, Control(), told.append)
    for lane, settings in enumerate(question.lanes):
        (end,) = [e for e in generate(session, ASKED.request([settings]), Control()) if isinstance(e, RunEnd)]
        assert found.texts[lane // 3][lane % 3] == end.text
        assert found.runs[lane // 3][lane % 3].tokens == end.new_tokens
    assert isinstance(told[-1], ExperimentProgress)
    assert (told[-1].done, told[-1].total, told[-1].runs) == (48, 48, 6)
    assert [figure.name for figure in found.figures] == list(TEXT_FIGURES)


def test_two_settings_that_differ_are_told_apart(session):
    found = luck(LuckQuestion(ASKED, (WARM, COLD), 16), session, Control(), nobody)
    surprise = found.figures[0]
    assert surprise.verdict == "setting"
    assert surprise.difference.high < 0  # colder: less surprise
    assert surprise.means[1].mean - surprise.means[0].mean == pytest.approx(surprise.difference.difference)
    assert surprise.p_holm >= surprise.difference.p


def test_equal_settings_hold_zero_in_ninety_of_a_hundred_tries(session):
    """The figures are those of 256 real runs; each try is 16 of them against 16 others."""
    runs = []
    for first in range(0, 256, 64):
        found = luck(
            LuckQuestion(replace(ASKED, max_new_tokens=10), (WARM, WARM), 32, first), session, Control(), nobody
        )
        runs += [*found.runs[0], *found.runs[1]]
    assert len({run.mean_surprise_nats for run in runs}) > 250  # other seeds, other texts
    draw = random.Random(3)
    held = dict.fromkeys(TEXT_FIGURES, 0)
    for _ in range(100):
        picked = draw.sample(runs, 32)
        for figure in compared(picked[:16], picked[16:]):
            held[figure.name] += not figure.difference.seen
    assert min(held.values()) >= 90, held


def test_greedy_has_no_spread_and_says_so(session):
    greedy = SamplingSettings(temperature=0.0)
    found = luck(LuckQuestion(ASKED, (greedy, greedy), 2), session, Control(), nobody)
    assert len(set(found.texts[0] + found.texts[1])) == 1
    for figure in found.figures:
        assert (figure.difference.low, figure.difference.high) == (0.0, 0.0)
        assert figure.verdict == "luck"
        assert figure.seeds_needed is None
    assert any("greedy" in note for note in found.notes)
    assert any("length" in note for note in found.notes)


def test_what_cannot_be_counted_is_not_compared(session):
    short = luck(LuckQuestion(replace(ASKED, max_new_tokens=2), (WARM, COLD), 3), session, Control(), nobody)
    distinct = next(figure for figure in short.figures if figure.name == "distinct")
    assert distinct.verdict == "none"  # two tokens are no 3-gram
    assert math.isnan(distinct.p_holm)
    surprise = short.figures[0]
    assert surprise.p_holm <= 1.0


def test_stopped_it_says_nothing(session):
    control = Control()

    def stop(event):
        if event.done:
            control.cancel()

    with pytest.raises(Cancelled):
        luck(LuckQuestion(replace(ASKED, max_new_tokens=400), (WARM, COLD), 2), session, control, stop)
