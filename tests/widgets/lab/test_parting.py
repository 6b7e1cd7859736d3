"""Where lanes part, why, and the odds that are told: right values worked out by hand from the written probabilities."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from engine.figures import GrowingFigures, figures_of
from engine.settings import SamplingSettings
from tests.widgets import events_factory as made
from tests.widgets.facts import facts
from tests.widgets.lanes_factory import (
    COMMON,
    CONTROL,
    GREEDY,
    HOTTER,
    SAME_U,
    fork_token,
    lane_events,
    store_with,
)
from widgets.lab.lane_words import odds_words, parting_words, settings_words
from widgets.lab.parting import (
    ARITHMETIC,
    DRAW,
    FORCED,
    MODEL,
    ODDS,
    PRECISION,
    PROMPT,
    LaneWatch,
    most_unlisted,
    odds_of,
    parting_rows,
)
from widgets.lab.parting import GREEDY as TAKES_BEST

pytestmark = pytest.mark.usefixtures("qapp")
AT = len(COMMON)


def watched(*lanes, **kinds):
    store = store_with(*lanes, **kinds)
    reference = store.run((1, 0))
    watches = [LaneWatch(store.run((1, number)), reference) for number in range(len(lanes))]
    for watch in watches:
        watch.take_in()
    return store, watches


def test_a_lane_parts_at_its_first_word_that_is_not_the_references():
    _store, (control, hotter) = watched(lane_events(0, CONTROL, SAME_U), lane_events(1, HOTTER, SAME_U, (" later",)))
    assert control.parting is None  # the reference leaves nobody
    assert hotter.parting.step == AT
    assert hotter.agreed == AT
    assert (hotter.parting.mine.token_text, hotter.parting.theirs.token_text) == (" sea", " plain")


def test_the_parting_is_found_when_the_later_of_the_two_has_written_its_word():
    store, (_, hotter) = watched(lane_events(0, CONTROL, SAME_U)[:-1], lane_events(1, HOTTER, SAME_U))
    assert hotter.parting is None
    store.take(fork_token(0, CONTROL, SAME_U))
    hotter.take_in()
    assert hotter.parting.step == AT


OTHER_PROMPT = {"prompt_tokens": made.start().prompt_tokens[:-1]}


@pytest.mark.parametrize(
    ("settings", "u", "start", "why", "words"),
    [
        (HOTTER, SAME_U, {}, ODDS, "leaves A at word 5: same draw u = 0.400, different odds"),
        (
            replace(CONTROL, seed=8),
            0.7,
            {},
            DRAW,
            "leaves A at word 5: different draw (u = 0.700 here, u = 0.400 there)",
        ),
        (
            replace(HOTTER, seed=8),
            0.6,
            {},
            DRAW,
            "leaves A at word 5: different draw and different odds (u = 0.600 here, u = 0.400 there)",
        ),
        (HOTTER, SAME_U, OTHER_PROMPT, PROMPT, "leaves A at word 5: different prompt"),
        (
            CONTROL,
            0.7,  # no seed gives two draws; here it stands for logits that were rounded differently
            {},
            ARITHMETIC,
            "leaves A at word 5: prompt, settings and seed are the same: the arithmetic, not the setting, parted them "
            "(bfloat16, a batch of 3)",
        ),
    ],
)
def test_why_lanes_part(settings, u, start, why, words):
    _store, (_, lane) = watched(lane_events(0, CONTROL, SAME_U), lane_events(1, settings, u, **start))
    assert lane.parting.why == why
    assert parting_words(lane, "A") == words


ONE, ONE_HOT = replace(CONTROL, top_k=1), replace(HOTTER, top_k=1, logit_bias=((11, 9.0),), seed=8)
BIASED = replace(CONTROL, logit_bias=((11, 9.0),), seed=8)  # " sea" before all others


@pytest.mark.parametrize(
    ("theirs", "their_u", "mine", "u", "why", "words"),
    [
        (ONE, 0.4, ONE_HOT, 0.7, ODDS, "one word is left in each, so that no draw matters: different odds"),
        (GREEDY, None, replace(BIASED, temperature=0.0), None, ODDS, "no draw, different odds"),
        (GREEDY, None, ONE_HOT, 0.7, ODDS, "one word is left in each, so that no draw matters: different odds"),
        (GREEDY, None, BIASED, 0.3, ODDS, "different odds: each takes its most probable word"),
        # 0.3 and 0.4 both lie on " plain" in the one and on " sea" in the other.
        (CONTROL, 0.4, BIASED, 0.3, ODDS, "different odds, with either draw (u = 0.300 here, u = 0.400 there)"),
        # Without a choice here, but there 0.9 would have taken another word.
        (CONTROL, 0.4, ONE_HOT, 0.9, DRAW, "different draw and different odds (u = 0.900 here, u = 0.400 there)"),
    ],
)
def test_a_different_draw_is_told_only_where_it_matters(theirs, their_u, mine, u, why, words):
    _store, (_, lane) = watched(lane_events(0, theirs, their_u), lane_events(1, mine, u))
    assert lane.parting.why == why
    assert parting_words(lane, "A") == f"leaves A at word 5: {words}"


@pytest.mark.parametrize(("settings", "u"), [(ONE, 0.4), (GREEDY, None)])
def test_seeds_that_draw_nothing_leave_the_arithmetic_as_the_reason(settings, u):
    other = lane_events(1, replace(settings, seed=9), u)
    other[-1] = replace(other[-1], token_id=11, token_text=" sea", text=" sea")  # as logits that were rounded otherwise
    _store, (_, lane) = watched(lane_events(0, settings, u), other)
    assert lane.parting.why == ARITHMETIC
    assert "prompt and settings are the same and no draw matters" in parting_words(lane, "A")


def test_equal_lanes_each_alone_name_no_batch():
    alone = {"lockstep": False}
    _store, (_, lane) = watched(lane_events(0, CONTROL, SAME_U, **alone), lane_events(1, CONTROL, 0.7, **alone))
    assert parting_words(lane, "A").endswith("parted them (bfloat16)")


def test_a_greedy_lane_parts_without_a_draw():
    _store, (_, lane) = watched(lane_events(0, CONTROL, 0.7), lane_events(1, GREEDY, None))
    assert lane.parting.why == TAKES_BEST
    assert parting_words(lane, "A") == (
        "leaves A at word 5: takes the most probable word, without a draw; u = 0.700 there"
    )


def test_a_given_word_is_nobodys_choice():
    given = lane_events(1, CONTROL, 0.7)
    given[-1] = replace(given[-1], forced=True)
    _store, (_, lane) = watched(lane_events(0, CONTROL, SAME_U), given)
    assert lane.parting.why == FORCED


def test_runs_of_two_models_or_precisions_say_so_first():
    store = store_with(lane_events(0, CONTROL, SAME_U))
    reference = store.run((1, 0))
    for changes, why in (({"name": "another", "vocab_size": 300}, MODEL), ({"precision": "float32"}, PRECISION)):
        other = store_with(lane_events(0, HOTTER, SAME_U), loaded=facts(**changes)).run((1, 0))
        watch = LaneWatch(other, reference)
        watch.take_in()
        assert watch.parting.why == why


def test_recordings_that_name_no_model_are_told_apart_by_their_vocabularies():
    store = store_with(lane_events(0, CONTROL, SAME_U))
    larger = store_with([replace(e, vocab_size=99) if hasattr(e, "u") else e for e in lane_events(0, HOTTER, SAME_U)])
    one, other = store.run((1, 0)), larger.run((1, 0))
    one.facts = other.facts = None
    watch = LaneWatch(other, one)
    watch.take_in()
    assert watch.parting.why == MODEL


def test_words_of_two_models_are_compared_by_their_text():
    store = store_with(lane_events(0, CONTROL, SAME_U))
    events = [
        replace(e, token_id=e.token_id + 1) if hasattr(e, "token_id") else e for e in lane_events(0, CONTROL, SAME_U)
    ]
    other = store_with(events, loaded=facts(name="another")).run((1, 0))
    watch = LaneWatch(other, store.run((1, 0)))
    watch.take_in()
    assert watch.parting is None
    assert watch.agreed == AT + 1


def test_lanes_that_agree_say_how_far():
    store, (_, lane) = watched(lane_events(0, CONTROL, SAME_U), lane_events(1, CONTROL, SAME_U))
    assert parting_words(lane, "A") == "the same 5 words as A so far"
    for number in (0, 1):
        store.take(made.end(store.run((1, number)).tokens, lane=number))
    assert parting_words(lane, "A") == "the same words as A to the end"
    _, (_, lane) = watched(lane_events(0, CONTROL, SAME_U)[:2], lane_events(1, CONTROL, SAME_U))
    assert parting_words(lane, "A") == "the same first word as A so far"


# ---------------------------------------------------------------- odds


def test_the_odds_of_a_word_are_those_of_each_lane_at_the_same_place():
    # Temperature 2 takes the square root of each probability; 28 other words of 32 share 0.05.
    roots = [math.sqrt(p) for p in (0.6, 0.2, 0.1, 0.05)]
    total = sum(roots) + 28 * math.sqrt(0.05 / 28)
    control, hotter = fork_token(0, CONTROL, SAME_U), fork_token(1, HOTTER, SAME_U)
    assert (control.token_text, hotter.token_text) == (" plain", " sea")
    assert odds_of(control, hotter).final == pytest.approx(0.2, abs=1e-6)
    assert odds_of(hotter, hotter).final == pytest.approx(roots[1] / total, rel=1e-6)
    assert odds_of(hotter, hotter).chosen
    assert odds_of(hotter, control).final == pytest.approx(roots[0] / total, rel=1e-6)
    assert not odds_of(hotter, control).chosen


def test_a_greedy_lane_gives_all_to_its_word():
    greedy, control = fork_token(0, GREEDY, None), fork_token(1, CONTROL, 0.7)
    assert odds_words(odds_of(greedy, greedy)) == "100%"
    assert odds_words(odds_of(greedy, control)) == "0%"


def test_a_cut_word_names_the_filter():
    narrow = fork_token(0, SamplingSettings(top_k=1, seed=7), SAME_U)
    assert odds_words(odds_of(narrow, fork_token(1, CONTROL, 0.7))) == "cut by top-k"


def unlisted_from(token):
    """A word that none of the listed ones is."""
    return replace(token, token_id=49_000, token_text=" w49000")


def test_an_unlisted_word_is_never_given_odds_of_its_own():
    token = fork_token(0, CONTROL, SAME_U, vocab=made.VOCAB)
    word = unlisted_from(token)
    assert word.token_id not in token.candidate_ids
    odds = odds_of(token, word)
    assert odds.final is None
    # All words beyond the four have the same: an unlisted one has no more than the least that is listed.
    assert odds.most == pytest.approx(0.05 / 49_148, rel=1e-3)
    assert odds_words(odds) == "not listed (< 0.1%)"


def test_the_bound_of_an_unlisted_word_is_what_all_of_them_share_where_some_may_be_raised():
    raised = fork_token(0, SamplingSettings(presence_penalty=-1.0, seed=7), SAME_U, vocab=made.VOCAB)
    assert most_unlisted(raised) == pytest.approx(raised.others()[1])
    assert most_unlisted(raised) > 0.05 / 49_148


def test_an_unlisted_word_that_was_cut_had_no_chance():
    narrow = fork_token(0, SamplingSettings(top_k=2, seed=7), SAME_U, vocab=made.VOCAB)
    assert odds_words(odds_of(narrow, unlisted_from(narrow))) == "0%"


def test_the_table_has_a_row_for_each_word_that_was_chosen_where_lanes_part():
    store, watches = watched(
        lane_events(0, CONTROL, SAME_U),
        lane_events(1, HOTTER, SAME_U),
        lane_events(2, CONTROL, SAME_U),
        lane_events(3, GREEDY, None),
    )
    rows = parting_rows(watches, 0)
    assert [(row.step, row.word.token_text, row.choosers) for row in rows] == [
        (AT, " plain", (0, 2, 3)),
        (AT, " sea", (1,)),
    ]
    assert rows[0].draws == (SAME_U, SAME_U, None)
    assert [odds.final for odds in rows[0].odds] == pytest.approx(
        [0.6, odds_of(watches[1].run.tokens[AT], rows[0].word).final, 0.6, 1.0], rel=1e-6
    )
    assert store.run((1, 0)) is watches[0].run


def test_a_lane_that_had_left_before_has_no_odds_for_a_later_parting():
    early = [made.start(lane=1, lanes=3), *made.tokens(["Old"], lane=1), *made.tokens([" x"] * 6, first=1, lane=1)]
    early[1] = replace(early[1], token_id=99)
    _store, watches = watched(lane_events(0, CONTROL, SAME_U), early, lane_events(2, HOTTER, SAME_U))
    rows = parting_rows(watches, 0)
    assert [row.step for row in rows] == [0, 0, AT, AT]
    assert [row.odds[1].elsewhere for row in rows] == [False, False, True, True]
    assert odds_words(rows[2].odds[1]) == "—"
    assert rows[2].choosers == (0,)


# ---------------------------------------------------------------- settings in short


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (SamplingSettings(), "T 1"),
        (SamplingSettings(temperature=0.8, top_p=0.9), "T 0.8 · p 0.90"),
        (SamplingSettings(temperature=0.8, top_p=0.955, top_k=40), "T 0.8 · p 0.955 · k 40"),
        (SamplingSettings(temperature=0.0, top_p=0.9, repetition_penalty=1.1), "T 0 · rep. 1.1"),
        (SamplingSettings(logit_bias=((5, 1.0),), banned=(7, 8)), "T 1 · 1 bias · 2 banned"),
    ],
)
def test_settings_in_short_words(settings, words):
    assert settings_words(settings) == words


def test_figures_that_grow_are_those_of_the_whole_text():
    # "a b c a b c d": groups of three abc bca cab abc bcd: 4 of 5 differ, 1 of 7 tokens ends one that stood before.
    made_of = [replace(token, token_id=ord(token.text)) for token in made.tokens(list("abcabcd"))]
    growing = GrowingFigures()
    for count, token in enumerate(made_of, start=1):
        growing.add(token)
        whole, grown = figures_of(made_of[:count]), growing.figures()
        for name in ("tokens", "mean_surprise_nats", "distinct", "repetition", "mean_entropy_nats"):
            assert getattr(grown, name) == pytest.approx(getattr(whole, name), rel=1e-12, nan_ok=True)
    assert (growing.figures().distinct, growing.figures().repetition) == (4 / 5, 1 / 7)


def test_a_given_word_is_no_surprise_of_the_model():
    growing = GrowingFigures()
    for token in made.tokens(["a", " b"]):
        growing.add(replace(token, forced=token.step == 1))
    assert growing.figures().mean_surprise_nats == made.tokens(["a"])[0].surprise_nats
