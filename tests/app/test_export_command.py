"""`python -m app export`: what is printed and written, and how it fails."""

from __future__ import annotations

import csv
import io
import json

import pytest

from app.__main__ import main
from engine.replay import Recorder
from engine.settings import SamplingSettings
from tests.widgets.events_factory import end, start, tokens


@pytest.fixture
def replay(tmp_path):
    """Two lanes of one run."""
    path = tmp_path / "run.jsonl"
    recorder = Recorder(path, {"model": "tiny", "model_path": "/m", "precision": "float32", "raw": False})
    for lane in (0, 1):
        recorder.take(start(1, lane, lanes=2, settings=SamplingSettings(top_k=lane, seed=12345678901234567890)))
    for lane in (0, 1):
        made = tokens(["=1", " 河", "\n"], lane=lane)
        for event in (*made, end(made)):
            recorder.take(event)
    recorder.close()
    return path


def failed(capsys, code: int, *arguments: str) -> str:
    assert main(["export", *arguments]) == code
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said


@pytest.mark.parametrize("kind", ["csv", "jsonl", "markdown", "html", "chat", "transformers", "openai"])
def test_every_kind_is_written_to_a_file(replay, tmp_path, capsys, kind):
    out = tmp_path / "out"
    assert main(["export", str(replay), "--as", kind, "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["bytes"] == out.stat().st_size > 0
    assert told["as"] == kind
    assert told["runs"] == (1 if kind in ("transformers", "openai") else 2)


def test_a_table_comes_to_standard_output_byte_for_byte(replay, capsysbinary):
    assert main(["export", str(replay), "--as", "csv", "--lane", "b"]) == 0
    data = capsysbinary.readouterr().out
    assert data.startswith(b"\xef\xbb\xbf")
    assert data.count(b"\r\n") == 4
    rows = list(csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline="")))
    assert [row["text"] for row in rows] == ["'=1", " 河", "'\n"]
    assert {row["lane"] for row in rows} == {"B"}


def test_json_without_a_file_holds_the_text(replay, capsys):
    assert main(["export", str(replay), "--as", "transformers", "--lane", "B", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert "AutoModelForCausalLM" in told["text"]
    assert "lane B" in told["text"]
    assert told["notes"] == []


def test_of_several_lanes_the_first_is_taken_for_code_and_that_is_said(replay, capsys):
    assert main(["export", str(replay), "--as", "openai"]) == 0
    assert "--lane" in capsys.readouterr().err


def test_a_report_is_held_against_the_lane_that_is_named(replay, capsys):
    assert main(["export", str(replay), "--as", "markdown", "--reference", "b"]) == 0
    assert "compared with: lane B" in capsys.readouterr().out
    assert "lane D" not in failed(capsys, 2, str(replay), "--as", "markdown", "--reference", "D")


def test_alternatives_are_as_many_as_asked(replay, capsysbinary):
    assert main(["export", str(replay), "--as", "jsonl", "--alternatives", "2"]) == 0
    lines = capsysbinary.readouterr().out.decode().split("\n")[:-1]
    assert {len(json.loads(line)["alternatives"]) for line in lines} == {2}


def test_a_damaged_replay_gives_what_is_whole_and_says_so(replay, capsys, tmp_path):
    replay.write_bytes(replay.read_bytes()[:-200])
    assert main(["export", str(replay), "--as", "chat", "--out", str(tmp_path / "a.json")]) == 0
    assert "note: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--as", "pdf"], 2),
        ([], 2),
        (["--as", "csv", "--lane", "Z"], 2),
        (["--as", "csv", "--run", "7"], 2),
        (["--as", "csv", "--run", "x"], 2),
        (["--as", "jsonl", "--alternatives", "-1"], 2),
        (["--as", "csv", "--out", "/no/such/folder/a.csv"], 2),
    ],
)
def test_what_cannot_be_is_refused(replay, capsys, arguments, code):
    said = failed(capsys, code, str(replay), *arguments)
    assert said.startswith("error: ")
    assert "fix: " in said


def test_what_is_no_replay_is_refused(tmp_path, capsys):
    (tmp_path / "a").write_text("x\n")
    assert failed(capsys, 4, str(tmp_path / "a"), "--as", "csv")
    assert failed(capsys, 4, str(tmp_path / "b"), "--as", "csv")


def test_a_full_disk_is_a_sentence(replay, capsys, monkeypatch, tmp_path):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("engine.export_file._written", full)
    said = failed(capsys, 4, str(replay), "--as", "csv", "--out", str(tmp_path / "a.csv"))
    assert "No space left" in said
    assert not (tmp_path / "a.csv").exists()


def test_no_torch_is_needed(replay, tmp_path):
    import subprocess
    import sys

    code = (
        "import sys; from app.__main__ import main\n"
        f"assert main(['export', {str(replay)!r}, '--as', 'html', '--out', {str(tmp_path / 'a.html')!r}]) == 0\n"
        "assert not {'torch', 'transformers', 'PySide6'} & set(sys.modules), 'a heavy library was imported'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_each_lane_is_a_chat_of_its_own(replay, capsysbinary):
    assert main(["export", str(replay), "--as", "chat"]) == 0
    chats = json.loads(capsysbinary.readouterr().out)
    assert [chat["messages"][-1]["content"] for chat in chats] == ["=1 河\n"] * 2
