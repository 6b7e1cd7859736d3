"""Exports of tokens and chats: other programs read them, and nothing in a text becomes more than text."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.export import (
    as_chat,
    as_csv,
    as_it_was,
    as_json_lines,
    harmless,
    runs_of,
    title_of,
    token_count,
)
from engine.figures import lane_letter
from engine.settings import Parent, SamplingSettings
from tests.engine.export_runs import run_with, written_run
from tests.widgets.events_factory import end, start, token, tokens

FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1+1", "＝1", "'=1", '=cmd|"/c calc"!A1']


def table(runs) -> list[dict[str, str]]:
    """As a spreadsheet reads it: bytes first, then RFC 4180."""
    data = "".join(as_csv(runs)).encode("utf-8")
    assert data.startswith(b"\xef\xbb\xbf")
    return list(csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True))


def test_texts_survive_quotes_commas_and_newlines():
    texts = ['say "so"', "a,b", "one\ntwo", "one\r\ntwo", "河流", "", " ", "\u2028", "👩‍🚀", ";"]
    rows = table([written_run(texts)])
    assert [row["text"] for row in rows] == texts
    assert [int(row["step"]) for row in rows] == list(range(len(texts)))


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_text_that_is_a_formula_is_made_harmless_and_can_be_read_back(formula):
    (row,) = table([written_run([formula])])
    assert row["text"].startswith("'")
    assert as_it_was(row["text"]) == formula
    (name_row,) = table([written_run(["a"], name=formula)])
    assert name_row["name"] == "'" + formula


@given(st.text())
def test_making_harmless_loses_nothing(text):
    cell = harmless(text)
    assert as_it_was(cell) == text
    assert not cell.strip().startswith(("=", "+", "-", "@"))


def test_figures_are_numbers_with_a_point_and_equal_what_was_measured():
    run = run_with(SamplingSettings(temperature=0.7, top_k=40, seed=7))
    rows = table([run])
    for row, event in zip(rows, run.tokens, strict=True):
        assert float(row["logprob"]) == event.logprob
        assert float(row["u"]) == event.u
        assert float(row["temperature"]) == 0.7
        assert row["top_k"] == "40"
        assert float(row["probability"]) == pytest.approx(math.exp(event.logprob))


def test_a_figure_that_is_not_finite_is_empty_in_the_table_and_null_in_json():
    run = written_run(["a"])
    run = replace(run, tokens=(replace(run.tokens[0], forward_ms=math.nan, final_logprob=-math.inf),))
    (row,) = table([run])
    assert (row["forward_ms"], row["final_logprob"], row["final_probability"]) == ("", "", "0.0")

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    (line,) = as_json_lines([run])
    found = json.loads(line, parse_constant=refuse)
    assert found["forward_ms"] is None
    assert found["final_logprob"] is None


@pytest.mark.parametrize("seed", [12345678901234567890, -5, 10**80, 7])
def test_a_seed_of_any_size_is_there_digit_for_digit(seed):
    run = run_with(SamplingSettings(seed=seed))
    assert table([run])[0]["seed"] == str(seed)
    assert json.loads(next(as_json_lines([run])))["settings"]["seed"] == seed


def test_a_seed_too_long_for_decimal_digits_is_hexadecimal():
    seed = 7**9000
    run = run_with(SamplingSettings(seed=seed))
    assert int(table([run])[0]["seed"], 16) == seed
    assert int(json.loads(next(as_json_lines([run])))["settings"]["seed"], 16) == seed


def test_constraints_stand_beside_the_other_settings():
    run = run_with(SamplingSettings(logit_bias=((5, 1.5),), banned=(7, 9)))
    row = table([run])[0]
    assert json.loads(row["logit_bias"]) == [[5, 1.5]]
    assert json.loads(row["banned"]) == [7, 9]
    assert json.loads(next(as_json_lines([run])))["settings"]["banned"] == [7, 9]


def test_halves_of_characters_and_zero_bytes_spoil_no_file():
    run = written_run(["\ud83d", "\0"])
    assert [row["text"] for row in table([run])] == ["\ufffd", "<U+0000>"]
    lines = "".join(as_json_lines([run])).encode("utf-8")
    assert [json.loads(line)["text"] for line in lines.split(b"\n")[:-1]] == ["\ud83d", "\0"]


def test_only_line_feeds_end_a_line_of_json_lines():
    data = "".join(as_json_lines([written_run(["a\n\r\u2028\u2029\x85b"] * 3)]))
    assert len(data.splitlines()) == 3


def test_alternatives_are_as_many_as_asked_and_the_most_probable():
    run = run_with(SamplingSettings(top_k=3))
    (first, *_) = (json.loads(line) for line in as_json_lines([run], alternatives=4))
    assert [each["rank"] for each in first["alternatives"]] == [0, 1, 2, 3]
    assert first["alternatives"][3]["cut_by"] == "top_k"
    assert first["alternatives"][3]["final_probability"] is None
    assert json.loads(next(as_json_lines([run], alternatives=0)))["alternatives"] == []


def test_a_piece_is_a_token_so_that_progress_can_be_told():
    runs = [written_run(["a", "b"]), written_run(["c"])]
    assert len(list(as_csv(runs))) == token_count(runs) + 1
    assert len(list(as_json_lines(runs))) == token_count(runs)


def test_no_tokens_still_make_a_table_with_a_head():
    assert table([]) == []


def test_a_chat_has_the_roles_and_the_written_answer():
    run = written_run(["Yes", "."], system="Be brief.")
    (text,) = as_chat([run])
    assert json.loads(text) == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": run.start.prompt},
            {"role": "assistant", "content": "Yes."},
        ]
    }
    assert isinstance(json.loads(next(as_chat([run, run]))), list)


def test_text_that_was_no_chat_is_not_called_one():
    run = replace(written_run([" on"]), header={"raw": True})
    assert json.loads(next(as_chat([run]))) == {"prompt": run.start.prompt, "completion": " on"}


def test_a_fork_read_from_a_replay_begins_with_its_parents_tokens():
    parent = tokens(["a", "b", "c"])
    own = tokens(["x"], first=2, run_id=2)
    begun = replace(start(2), written=(10, 10), parent=Parent(1, 0, 2))
    runs = runs_of([start(1), *parent, end(parent), begun, *own, end(own)], {"raw": False})
    assert [[t.text for t in run.tokens] for run in runs] == [["a", "b", "c"], ["a", "b", "x"]]
    assert [row["written_by_run"] for row in table(runs[1:])] == ["1", "1", "2"]


def test_lanes_are_lettered_as_spreadsheets_count():
    assert [lane_letter(i) for i in (0, 1, 25, 26, 27, 63)] == ["A", "B", "Z", "AA", "AB", "BL"]


def test_a_title_says_run_and_lane_where_there_are_several():
    lane = replace(written_run(["a"]), start=replace(start(3, 1), lanes=2))
    assert title_of(lane) == "run 3, lane B"
    assert title_of(lane, several=False) == "lane B"
    assert title_of(replace(lane, start=replace(lane.start, name="warm"))) == "warm (run 3, lane B)"


def test_greedy_tokens_have_no_draw():
    run = run_with(SamplingSettings(temperature=0.0))
    assert table([run])[0]["u"] == ""
    assert json.loads(next(as_json_lines([run])))["u"] is None
    assert token(0, " a", settings=SamplingSettings(temperature=0.0)).u is None
