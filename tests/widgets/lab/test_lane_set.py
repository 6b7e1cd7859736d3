"""What is set up: lanes as plain data, and one setting in several values."""

from __future__ import annotations

import json

import pytest
from PySide6.QtCore import QLocale

from engine.errors import SettingsRefused
from engine.settings import LanePrompt, SamplingSettings
from widgets.lab.lane_set import Lane, LaneSet
from widgets.lab.vary_dialog import VaryDialog, values_read

COOL, HOT = SamplingSettings(temperature=0.3, seed=10**30), SamplingSettings(logit_bias=((5, -1.0),), banned=(7,))
LANES = LaneSet((Lane(0, COOL, "calm"), Lane(1, HOT, "热", LanePrompt("p", None))), 1, False, 12)


def test_lanes_survive_a_file():
    assert LaneSet.from_dict(json.loads(json.dumps(LANES.as_dict()))) == LANES


@pytest.mark.parametrize(
    "change",
    [
        {"lanes": []},
        {"lanes": LANES.as_dict()["lanes"] * 5},
        {"lanes": [{"name": "x"}] * 2},
        {"lanes": None},
        {"reference": "0"},
        {"reference": -1},
        {"lockstep": 1},
        {"max_new_tokens": 0},
        {"max_new_tokens": True},
    ],
)
def test_damaged_lanes_are_refused(change):
    with pytest.raises(SettingsRefused):
        LaneSet.from_dict(LANES.as_dict() | change)
    with pytest.raises(SettingsRefused):
        LaneSet.from_dict({})


def letters(lanes: LaneSet) -> str:
    return "".join(lane.letter for lane in lanes.lanes)


def test_a_letter_stays_with_its_lane():
    three = LANES.with_copy(0, 2)
    assert letters(three) == "ACB"
    assert letters(three.moved(2, 1)) == "ABC"
    assert [three.letter(key) for key in (0, 1, 2)] == ["A", "B", "C"]
    assert letters(three.without(0).with_copy(1, 3)) == "CBA"
    assert letters(three.without(0).dealt()) == "BA"
    assert [lane.key for lane in three.by_letter] == [0, 1, 2]


def test_seeds_of_lanes_that_draw_nothing_are_no_different_draws():
    def lanes(*settings: SamplingSettings) -> LaneSet:
        return LaneSet(tuple(Lane(key, each) for key, each in enumerate(settings)), 0)

    greedy, one = SamplingSettings(temperature=0.0, seed=1), SamplingSettings(top_k=1, seed=2)
    assert not lanes(greedy, one).seeds
    assert not lanes(greedy, one, SamplingSettings(seed=3)).seeds_differ
    assert lanes(SamplingSettings(seed=4), SamplingSettings(seed=3)).seeds_differ


def test_where_the_reference_is_removed_the_first_lane_takes_its_place():
    three = LANES.with_copy(1, 2)
    assert [lane.key for lane in three.lanes] == [0, 1, 2]
    assert three.without(1).reference == 0


def test_a_lane_moves_no_further_than_an_end():
    assert [lane.key for lane in LANES.moved(0, 5).lanes] == [1, 0]
    assert LANES.moved(0, -1) == LANES


@pytest.mark.parametrize(
    ("text", "integer", "values"),
    [
        ("0, 0.7, 1.0", False, [0, 0.7, 1.0]),
        ("0;0.7 ; 1", False, [0, 0.7, 1]),
        ("0 0.7", False, [0, 0.7]),
        ("1,2,3", True, [1, 2, 3]),
        ("1..4", True, [1, 2, 3, 4]),
        ("-2…1", True, [-2, -1, 0, 1]),
        ("5..2", True, []),
        ("0.5, x, ", False, [0.5, "x"]),
        ("1.5", True, ["1.5"]),
        ("nan, inf", False, ["nan", "inf"]),
        ("", False, []),
    ],
)
def test_a_line_of_values_is_read_and_nothing_is_guessed(text, integer, values):
    assert values_read(text, integer) == values


def test_a_comma_between_digits_is_the_decimal_point_where_the_system_writes_it_so():
    before = QLocale()
    try:
        QLocale.setDefault(QLocale(QLocale.Language.German))
        assert values_read("0,5; 1,2", False) == [0.5, 1.2]
        assert values_read("0,5, 1,2", False) == [0.5, 1.2]
        assert values_read("1,2", True) == [1, 2]
    finally:
        QLocale.setDefault(before)


@pytest.mark.parametrize(
    ("setting", "text", "words"),
    [
        ("temperature", "0.5", "at least two values"),
        ("temperature", "1 2 3 4 5 6 7 8 9", "at most 8"),
        ("temperature", "0.5, -1", "temperature cannot be -1"),
        ("top_p", "0, 0.5", "top_p cannot be 0"),
        ("top_k", "1, many", "“many” is not a number"),
    ],
)
def test_values_that_cannot_be_used_are_refused_where_they_stand(qtbot, setting, text, words):
    dialog = VaryDialog(COOL)
    qtbot.addWidget(dialog)
    dialog.choose(setting)
    dialog.values_edit.setText(text)
    assert words in dialog.said.text()
    assert dialog.variation() is None
    dialog.values_edit.setText("0.5, 1" if setting != "top_k" else "1, 2")
    assert [getattr(each, setting) for each in dialog.variation().settings] == (
        [1, 2] if setting == "top_k" else [0.5, 1]
    )
