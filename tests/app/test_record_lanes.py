"""`record --lanes FILE`: lanes with prompts, system texts and settings of their own."""

from __future__ import annotations

import json

import pytest

from app.__main__ import main
from app.commands.lanes_file import read_lanes
from engine.errors import SettingsRefused
from engine.replay import read_replay
from engine.settings import LanePrompt, SamplingSettings
from tests.tiny_models import tiny_folder


def test_each_lane_is_asked_its_own_and_named_in_the_file(tmp_path, capsys):
    folder, lanes, out = tiny_folder(tmp_path, "llama"), tmp_path / "lanes.json", tmp_path / "run.jsonl"
    asked = [
        {"name": "warm", "prompt": "The river", "settings": {"temperature": 1.2}},
        {"system": "Be brief.", "settings": {"temperature": 0, "seed": 2**70}},
    ]
    lanes.write_text(json.dumps(asked), encoding="utf-8")
    arguments = ["--model", str(folder), "--prompt", "A hill", "--seed", "4", "--lanes", str(lanes), "--free"]
    assert main(["record", *arguments, "--max-new-tokens", "5", "--out", str(out), "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [run["lane"] for run in runs] == [0, 1]
    starts = [event for event in read_replay(out).events if type(event).__name__ == "RunStart"]
    assert [(start.name, start.prompt, start.system) for start in starts] == [
        ("warm", "The river", None),
        ("", "A hill", "Be brief."),
    ]
    assert [start.settings.seed for start in starts] == [4, 2**70]
    assert not starts[0].lockstep
    assert runs[0]["prompt_tokens"] != runs[1]["prompt_tokens"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[", "cannot be read"),
        ("{}", "holds no list of lanes"),
        ("[]", "holds no list of lanes"),
        ('[{"colour": 1}]', "Lane 1 of the file knows no 'colour'"),
        ('[{"prompt": "a"}, {"prompt": 3}]', "Lane 2 of the file has a prompt that is no text"),
        ('[{"name": "a"}]', "Lane 1 of the file has no prompt"),
        ('[{"prompt": "a", "settings": {"top_p": 2}}]', "top_p cannot be 2"),
        ("[" * 100_000, "cannot be read"),
    ],
)
def test_a_file_that_asks_for_nothing_sensible_is_refused(tmp_path, content, words):
    path = tmp_path / "lanes.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(SettingsRefused, match=words) as refused:
        read_lanes(str(path), None, None, None)
    assert refused.value.fix


def test_what_a_lane_leaves_out_is_that_of_all(tmp_path):
    path = tmp_path / "lanes.json"
    path.write_text('[{}, {"settings": {"seed": 9}}]', encoding="utf-8")
    found = read_lanes(str(path), "a", "b", 5)
    assert found.prompts == (LanePrompt("a", "b"),) * 2
    assert found.settings == (SamplingSettings(seed=5), SamplingSettings(seed=9))


def test_no_prompt_at_all_is_refused(tmp_path, capsys):
    assert main(["record", "--model", "default", "--out", str(tmp_path / "x.jsonl")]) == 2
    assert "There is no prompt." in capsys.readouterr().err
