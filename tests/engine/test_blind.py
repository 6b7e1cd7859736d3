"""Blind: even shuffles, equal texts are no round, the votes are counted as the textbook counts them."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from dataclasses import replace

import pytest

from engine.blind import NO_PREFERENCE, BlindRound, BlindTest, new_seed, shuffled
from engine.blind_files import as_csv, as_json, read_test, write_test
from engine.blind_texts import blind_texts
from engine.control import Control
from engine.errors import Cancelled, FileRefused, SettingsRefused
from engine.events import RunEnd
from engine.experiments import Asked, BlindQuestion
from engine.loading import load
from engine.loop import generate
from engine.settings import LoadPlan, SamplingSettings
from tests.tiny_models import tiny_folder

ASKED = Asked("", raw=True, max_new_tokens=6)
A, B, C = (SamplingSettings(temperature=t) for t in (0.5, 1.0, 1.5))
TEST = BlindTest(ASKED, ("One.", "Two."), (A, B))


def voted(test: BlindTest, *preferred: int | None) -> BlindTest:
    """Rounds in which these settings were preferred; None: none was."""
    for number, setting in enumerate(preferred):
        texts = [f"text {number} of {at}" for at in range(len(test.settings))]
        test = test.with_texts(number, test.next_prompt, texts)
        places = test.rounds[-1].shown
        test = test.with_vote(NO_PREFERENCE if setting is None else places.index((setting,)))
    return test


def test_every_order_comes_equally_often():
    counts = Counter(shuffled(("a", "b", "c")) for _ in range(6000))
    assert len(counts) == 6
    assert all(abs(count - 1000) < 180 for count in counts.values()), counts  # six deviations of 29
    assert {len(each) for order in counts for each in order} == {1}


def test_equal_texts_stand_once_and_all_equal_is_no_round():
    assert sorted(shuffled(("a", "b", "a"))) == [(0, 2), (1,)]
    same = TEST.with_texts(1, "One.", ("x", "x"))
    assert same.rounds == ()
    assert same.equal == 1
    assert same.next_prompt == "One."


def test_prompts_come_in_turn_and_votes_are_for_what_stood_there():
    test = voted(TEST, 0, 1, None)
    assert [each.prompt for each in test.rounds] == ["One.", "Two.", "One."]
    assert [each.chosen for each in test.rounds] == [(0,), (1,), ()]
    assert (test.wins(0), test.wins(1), test.undecided) == (1, 1, 1)
    waiting = test.with_texts(9, "Two.", ("x", "y"))
    assert waiting.open_round is not None
    for vote in (2, -2):
        with pytest.raises(ValueError, match="no vote"):
            waiting.with_vote(vote)
    with pytest.raises(ValueError, match="no vote"):
        test.with_vote(0)


def test_the_last_vote_can_be_taken_back_while_no_name_was_told():
    test = voted(replace(TEST, at_end=True), 0, 1)
    waiting = test.with_texts(9, "One.", ("x", "y"))
    back = waiting.without_last_vote()
    assert len(back.rounds) == 2
    assert back.open_round == replace(test.rounds[-1], vote=None)
    assert back.with_vote(test.rounds[-1].vote) == test
    assert TEST.without_last_vote() == TEST
    told = voted(TEST, 0, 1)
    assert told.without_last_vote().rounds == told.rounds[:1]  # the names were seen: the round goes


@pytest.mark.parametrize(
    ("first", "second", "none", "p", "preferred"),
    [
        (15, 5, 0, 0.0414, 0),
        (5, 15, 7, 0.0414, 1),
        (11, 9, 0, 0.8238, None),
        (0, 0, 3, 1.0, None),
        (5, 0, 0, 0.0625, None),
    ],
)
def test_two_settings_are_judged_by_the_exact_binomial_test(first, second, none, p, preferred):
    (pair,) = voted(TEST, *[0] * first, *[1] * second, *[None] * none).pairs()
    assert (pair.first_votes, pair.second_votes) == (first, second)
    assert pair.p == pytest.approx(p, abs=5e-5)
    assert pair.p_holm == pair.p  # one comparison
    assert pair.preferred == preferred


def test_of_three_every_two_are_compared_and_corrected():
    test = voted(replace(TEST, settings=(A, B, C)), *[0] * 12, *[1] * 3, *[2] * 3)
    pairs = {(pair.first, pair.second): pair for pair in test.pairs()}
    assert (pairs[0, 1].first_votes, pairs[0, 1].second_votes) == (12, 3)
    assert pairs[0, 1].p == pytest.approx(2 * (455 + 105 + 15 + 1) / 2**15)
    assert pairs[0, 1].p_holm == pytest.approx(3 * pairs[0, 1].p)
    assert pairs[0, 1].preferred is None  # 0.035 alone, 0.105 among three
    assert pairs[1, 2].p == 1.0


def test_a_vote_for_a_shared_text_decides_nothing_between_those_that_wrote_it():
    test = replace(TEST, settings=(A, B, C)).with_texts(1, "One.", ("x", "x", "y"))
    place = test.rounds[0].shown.index((0, 1))
    test = test.with_vote(place)
    votes = {(pair.first, pair.second): (pair.first_votes, pair.second_votes) for pair in test.pairs()}
    assert votes == {(0, 1): (0, 0), (0, 2): (1, 0), (1, 2): (1, 0)}


def test_a_test_that_makes_no_sense_is_refused():
    for change in ({"settings": (A,)}, {"settings": (A, A)}, {"prompts": ()}, {"names": ("one",)}, {"planned": 0}):
        with pytest.raises(SettingsRefused):
            replace(TEST, **change)


def test_it_is_kept_and_comes_back(tmp_path):
    test = replace(voted(TEST, 0, None, 1), names=("wärmer", "冷"), equal=2, model="m", begun="2026-01-31T10:00:00")
    test = test.with_texts(2**90, "一", ("=1+1", 'a "quoted"\r\nline \ud800'))
    path = tmp_path / "new" / "test.json"
    write_test(path, test)
    write_test(path, test)  # at every vote, over the old one
    assert read_test(path) == test
    assert [file.name for file in path.parent.iterdir()] == ["test.json"]


def test_a_damaged_or_a_foreign_file_is_refused(tmp_path):
    path = tmp_path / "test.json"
    good = voted(TEST, 0)
    write_test(path, good)
    values = json.loads(path.read_text(encoding="utf-8"))
    values["test"]["rounds"][0]["vote"] = 5
    for text in ("", "{}", "[1]", '{"schema":99}', json.dumps(values)):
        path.write_text(text)
        with pytest.raises(FileRefused):
            read_test(path)
    with pytest.raises(FileRefused):
        read_test(tmp_path / "none.json")


def test_csv_is_whole_and_runs_no_formula():
    test = voted(TEST, 0, None)
    test = replace(test, rounds=(*test.rounds, BlindRound(2**70, "=SUM(A1)", ("+1", 'a "b",\n水'), ((1,), (0,)), 0)))
    text = "".join(as_csv(test))
    assert text.startswith("\ufeff")
    rows = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline="")))
    assert [row["preferred"] for row in rows] == ["A", "", "B"]
    assert rows[1]["vote"] == "no preference"
    assert rows[2]["vote"] == "1"
    assert (rows[2]["place_1"], rows[2]["place_2"]) == ("B", "A")
    assert rows[2]["prompt"] == "'=SUM(A1)"
    assert (rows[2]["text_A"], rows[2]["text_B"]) == ("'+1", 'a "b",\n水')
    assert rows[2]["seed"] == str(2**70)
    whole = json.loads("".join(as_json(test)))["settings"]
    assert all(json.loads(row[f"setting_{letter}"]) == whole[letter] for row in rows for letter in "AB")


def test_a_seed_too_long_for_decimal_digits_is_exported_as_the_files_have_it():
    test = voted(TEST, 0)
    long = replace(test, rounds=(replace(test.rounds[0], seed=2**20_000),))
    assert json.loads("".join(as_json(long)))["rounds"][0]["seed"] == hex(2**20_000)
    assert hex(2**20_000) in "".join(as_csv(long))


def test_json_says_what_stood_where_and_the_verdict():
    found = json.loads("".join(as_json(voted(TEST, *[0] * 15, *[1] * 5))))
    assert found["pairs"][0]["preferred"] == "A"
    assert round(found["pairs"][0]["p"], 3) == 0.041
    first = found["rounds"][0]
    assert first["preferred"] == ["A"]
    assert first["shown"][first["vote"] - 1] == ["A"]
    assert found["settings"]["B"]["temperature"] == 1.0
    assert len(found["rounds"]) == 20


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    folder = tiny_folder(tmp_path_factory.mktemp("tiny") / "model")
    made = load(LoadPlan(str(folder), device_map="cpu"), lambda event: None, Control())
    yield made
    made.close()


def test_a_rounds_texts_are_those_of_the_settings_with_one_seed_and_progress_tells_no_text(session):
    told = []
    question = BlindQuestion(replace(ASKED, prompt="A hill."), (A, B, C), 77)
    found = blind_texts(question, session, Control(), told.append)
    for settings, text in zip((A, B, C), found.texts, strict=True):
        request = question.asked.request([replace(settings, seed=77)])
        (end,) = [event for event in generate(session, request, Control()) if isinstance(event, RunEnd)]
        assert text == end.text
    assert all(event.partial is None and not event.sentence for event in told)
    control = Control()
    control.cancel()
    with pytest.raises(Cancelled):
        blind_texts(question, session, control, told.append)


def test_seeds_are_new():
    assert len({new_seed() for _ in range(50)}) == 50
