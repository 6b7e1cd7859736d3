"""`sweep`: a grid without a window, gone on with by the same command; refusals are sentences before anything loads."""

from __future__ import annotations

import json
import signal

import pytest

from app.__main__ import main
from tests.tiny_models import tiny_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tiny_folder(tmp_path_factory.mktemp("tiny") / "tiny", "llama"))


def arguments(folder, out, *more):
    grid = ["--vary", "temperature=0..1:0.5", "--vary", "top_p=0.5,1", "--seeds", "2", "--max-new-tokens", "5"]
    return ["sweep", "--model", folder, "--prompt", "A hill.", "--raw", *grid, "--out", str(out), *more]


def test_json_has_every_run_and_every_cell(folder, tmp_path, capsys):
    out = tmp_path / "sweep"
    assert main(arguments(folder, out, "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["complete"]
    assert len(found["runs"]) == 12
    assert {(cell["temperature"], cell["top_p"]) for cell in found["cells"]} == {
        (t, p) for t in (0.0, 0.5, 1.0) for p in (0.5, 1.0)
    }
    first = found["cells"][0]
    runs = [run for run in found["runs"] if (run["temperature"], run["top_p"]) == (0.0, 0.5)]
    assert first["runs"] == len(runs) == 2
    expected = sum(run["mean_surprise_nats"] for run in runs) / 2
    assert first["mean_surprise_nats"]["mean"] == pytest.approx(expected)
    assert all((out / run["replay"]).is_file() for run in found["runs"])
    assert sum(batch["runs"] for batch in found["batches"]) == 12


def test_an_interrupted_sweep_goes_on_with_the_same_command(folder, tmp_path, capsys, monkeypatch):
    from app.commands import sweep as command

    out, taken = tmp_path / "sweep", []

    def interrupt_once(self, event):
        if getattr(event, "runs_done", 0) >= 4 and not taken:
            taken.append(event)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(command.SweepProgress, "take", interrupt_once)
    more = ["--batch", "4", "--json"]
    assert main(arguments(folder, out, *more)) == 130
    told = capsys.readouterr()
    part = json.loads(told.out)
    assert not part["complete"]
    assert "goes on from there" in told.err
    assert main(arguments(folder, out, *more)) == 0
    whole = json.loads(capsys.readouterr().out)
    assert whole["complete"]
    done = [run for run in part["runs"] if run["replay"]]
    assert 4 <= len(done) < 12
    assert [run for run in whole["runs"] if run["number"] in {r["number"] for r in done}] == done


def test_the_table_names_its_columns(folder, tmp_path, capsys):
    assert main(arguments(folder, tmp_path / "sweep", "--lane", "min_p=0.1")) == 0
    out = capsys.readouterr().out
    for words in ("temperature", "top_p", "surprise", "repetition", "12 of 12 runs"):
        assert words in out


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (["--vary", "min_p=0.1"], "one setting or two"),
        (["--seeds", "0"], "--seeds"),
        (["--seeds", "many"], "--seeds"),
        (["--batch", "65"], "65"),
        (["--max-new-tokens", "0"], "at least 1"),
        (["--lane", "warmth=1"], "warmth"),
        (["--stop", ""], "stop string"),
        (["--out", ""], "--out"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_loaded(more, word, tmp_path, capsys):
    assert main(arguments("no such model", tmp_path / "sweep", *more)) == 2
    told = capsys.readouterr().err
    assert word in told
    assert "fix:" in told
    assert not (tmp_path / "sweep").exists()


@pytest.mark.parametrize("vary", ["temperature", "temperature=", "temperature=hot", "colour=1", "top_p=0..2"])
def test_values_that_cannot_be_are_refused(vary, tmp_path, capsys):
    command = ["sweep", "--model", "none", "--prompt", "a", "--vary", vary, "--out", str(tmp_path / "sweep")]
    assert main(command) == 2
    assert "fix:" in capsys.readouterr().err


def test_another_question_in_the_folder_is_refused(folder, tmp_path, capsys):
    assert main(arguments(folder, tmp_path / "sweep")) == 0
    assert main(arguments(folder, tmp_path / "sweep", "--prompt", "Another.")) == 2
    assert "prompt was 'A hill.'" in capsys.readouterr().err
