"""Preset files: what is kept comes back exactly, and no file does harm."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import FileRefused
from engine.presets import (
    BUILT_IN,
    KIND,
    PresetChange,
    changed,
    clean_name,
    presets_text,
    read_presets,
    same_name,
    with_new,
)
from engine.settings import Preset, SamplingSettings
from engine.words import TokenNames

SEEDS = [0, 7, -5, 12345678901234567890, 2**63, 10**4000, 7**9000]


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"{seed.bit_length()} bits")
def test_a_seed_of_any_size_survives_exactly(seed):
    preset = Preset("mine", SamplingSettings(temperature=0.1 + 0.2, seed=seed), with_seed=True)
    assert read_presets(presets_text([preset])).presets == (preset,)


def test_a_preset_without_a_seed_leaves_the_seed_as_it_is():
    preset = Preset("mine", SamplingSettings(temperature=0.5, seed=3))
    assert "seed" not in presets_text([preset])
    (back,) = read_presets(presets_text([preset])).presets
    assert back.applied(SamplingSettings(seed=99)) == SamplingSettings(temperature=0.5, seed=99)
    assert back.fits(SamplingSettings(temperature=0.5, seed=12))
    assert not back.fits(SamplingSettings(temperature=0.5, top_k=4, seed=12))


def test_constraints_belong_to_a_preset():
    preset = Preset("no dashes", SamplingSettings(logit_bias=((9, -1.5),), banned=(4, 5)))
    assert read_presets(presets_text([preset])).presets == (preset,)


@given(st.text(max_size=40), st.floats(0, 100), st.floats(0, 1))
def test_any_name_and_number_comes_back(name, temperature, min_p):
    preset = Preset(clean_name(name) or "x", SamplingSettings(temperature=temperature, min_p=min_p))
    assert read_presets(presets_text([preset])).presets == (preset,)


HOSTILE = {
    "nothing": "",
    "no object": "[1]",
    "another file": '{"kind":"header","schema":1}',
    "presets that are none": '{"kind":"glasswork presets","presets":7}',
    "a number of 5,000 digits": '{"kind":"glasswork presets","schema":' + "9" * 5000 + ',"presets":[]}',
    "brackets without end": "[" * 100_000,
    "an INI file with a pickle": "[General]\npresets=@Variant(\\0\\0\\0\\x7f)",
    "too long": "{" + " " * (5 * 2**20) + "}",
    "surrogates": "\ud800",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_file_of_presets_is_refused_with_a_sentence(name):
    with pytest.raises(FileRefused) as refused:
        read_presets(HOSTILE[name])
    assert refused.value.what.endswith(".")
    assert refused.value.fix.endswith(".")


DAMAGED = [
    7,
    None,
    [],
    {},
    {"name": "a"},
    {"name": 5, "settings": {}},
    {"name": "", "settings": {}},
    {"name": "\u202e\0", "settings": {}},
    {"name": "a", "settings": 5},
    {"name": "a", "settings": [["temperature", 1, 2]]},
    {"name": "a", "settings": {"temperature": "hot"}},
    {"name": "a", "settings": {"temperature": True}},
    {"name": "a", "settings": {"temperature": -1}},
    {"name": "a", "settings": {"seed": "123"}},
    {"name": "a", "settings": {"seed": 1.5}},
    {"name": "a", "settings": {"seed": "0xzz"}},
    {"name": "a", "settings": {"unknown": 1}},
    {"name": "a", "settings": {"logit_bias": [[1]]}},
    {"name": "a", "settings": {"banned": ["x"]}},
    {"name": "a", "settings": {"__class__": "x"}},
    {"name": "a", "settings": {}, "words": 5},
]


@pytest.mark.parametrize("each", DAMAGED)
def test_a_damaged_preset_is_left_out_and_the_others_are_read(each):
    good = {"name": "good", "settings": {"top_k": 3}}
    found = read_presets(json.dumps({"kind": "glasswork presets", "schema": 1, "presets": [each, good]}))
    assert found.presets == (Preset("good", SamplingSettings(top_k=3)),)
    assert found.left_out == 1


@pytest.mark.parametrize("number", ["1e999", "NaN", "-Infinity", "1e309"])
def test_a_number_that_is_not_finite_is_no_setting(number):
    text = '{"kind":"glasswork presets","schema":1,"presets":[{"name":"a","settings":{"temperature":NUMBER}}]}'
    assert read_presets(text.replace("NUMBER", number)).presets == ()


def test_a_file_of_a_newer_version_gives_what_is_known_of_it():
    text = presets_text([Preset("mine", SamplingSettings(top_k=3))]).replace('"schema": 1', '"schema": 9')
    found = read_presets(text)
    assert found.newer
    assert [each.name for each in found.presets] == ["mine"]


def test_a_byte_order_mark_is_no_damage():
    assert read_presets("\ufeff" + presets_text(BUILT_IN[:1])).presets[0].settings == BUILT_IN[0].settings


def test_of_two_presets_with_one_name_the_first_counts():
    text = presets_text([Preset("A", SamplingSettings(top_k=1)), Preset("a", SamplingSettings(top_k=2))])
    found = read_presets(text)
    assert [each.settings.top_k for each in found.presets] == [1]
    assert found.left_out == 1


def test_names_are_one_line_and_seen():
    assert clean_name("  my\n preset\t\u202e ") == "my preset"
    assert clean_name("河流 " * 60) == ("河流 " * 27)[:80].strip()
    assert same_name("Café", "cafe\u0301")
    assert same_name("ＡＢ", "ab")


A, B, C = (Preset(name, SamplingSettings(top_k=k)) for k, name in enumerate("abc", start=1))


def test_each_change_can_be_undone():
    presets = (A, B, C)
    other = Preset("z", B.settings)
    for change in (
        PresetChange(B, None, 1),
        PresetChange(B, other, 1),
        with_new(presets, Preset("new", SamplingSettings())),
        with_new(presets, Preset("B", SamplingSettings(top_k=9))),
    ):
        after = changed(presets, [change])
        assert after != presets
        assert changed(after, [change.undone]) == presets


def test_undoing_leaves_what_another_window_did():
    deleted = PresetChange(B, None, 1)
    other_window = (A, C, Preset("theirs", SamplingSettings()))
    assert [each.name for each in changed(other_window, [deleted.undone])] == ["a", "b", "c", "theirs"]


def test_the_built_in_ones_are_what_they_say():
    greedy, careful, playful = (preset.settings for preset in BUILT_IN)
    assert greedy.greedy
    assert str(careful.temperature) in BUILT_IN[1].words
    assert str(careful.top_p) in BUILT_IN[1].words
    assert str(playful.temperature) in BUILT_IN[2].words
    assert 1 / playful.min_p == pytest.approx(20)


def test_a_preset_says_whose_tokens_it_names_and_older_files_are_read():
    names = TokenNames("SmolLM2", 49152, ((5, "cat"), (7, " 河")))
    preset = Preset("words", SamplingSettings(banned=(5, 7)), tokens=names)
    text = presets_text([preset, Preset("plain", SamplingSettings(top_k=3), tokens=names)])
    assert read_presets(text).presets[0] == preset
    assert read_presets(text).presets[1].tokens is None  # it names none
    (made, _) = json.loads(text)["presets"]
    assert made["tokens"] == {"model": "SmolLM2", "vocab_size": 49152, "texts": {"5": "cat", "7": " 河"}}
    for broken in (None, 3, {"model": 4, "vocab_size": 1}, {"model": "a"}, {"model": "a", "vocab_size": 1, "texts": []},
                   {"model": "a", "vocab_size": 1, "texts": {"x": "y"}}):  # fmt: skip
        made["tokens"] = broken
        (read,) = read_presets(json.dumps({"kind": KIND, "schema": 1, "presets": [made]})).presets
        assert (read.settings.banned, read.tokens) == ((5, 7), None)
    del made["tokens"]  # as older versions wrote it
    (read,) = read_presets(json.dumps({"kind": KIND, "schema": 1, "presets": [made]})).presets
    assert (read.settings.banned, read.tokens) == ((5, 7), None)
