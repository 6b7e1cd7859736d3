"""The command line: what is asked for happens, and what fails is a sentence, a way out and an exit code."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.__main__ import COMMANDS, main
from app.commands import arguments
from engine.errors import CannotLoad, SettingsRefused
from engine.settings import SamplingSettings
from tests.tiny_models import tiny_folder, tiny_model


def said(capsys):
    """What a failure prints: (error sentence, fix). Nothing else is on stderr, and nothing on stdout."""
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert len(lines) == 2, err
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("fix: ")
    return lines[0].removeprefix("error: "), lines[1].removeprefix("fix: ")


def app(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "app", *arguments], stderr=subprocess.PIPE, text=True, check=False, **options
    )


# ---------------------------------------------------------------- the edge


@pytest.mark.parametrize("arguments", [["recrod"], ["no such file.jsonl"], ["--nonsense"], ["a.jsonl", "b.jsonl"]])
def test_what_is_neither_a_command_nor_a_file_is_refused(capsys, arguments):
    assert main(arguments) == 2
    said(capsys)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_explains_itself(capsys, name):
    assert main([name, "--help"]) == 0
    assert f"python -m app {name}" in capsys.readouterr().out


def test_an_argument_with_braces_is_repeated_as_written(capsys):
    assert main(["record", "--{x}"]) == 2
    said(capsys)


def fail_with(monkeypatch, error):
    def run(args):
        raise error

    monkeypatch.setattr(importlib.import_module("app.commands.setup"), "run", run)


def test_a_foreseen_failure_ends_with_its_sentence_and_its_code(monkeypatch, capsys):
    fail_with(monkeypatch, CannotLoad("{file} is broken.", "Fetch {file} again.", file="a{b}.gguf"))
    assert main(["setup"]) == 3
    assert said(capsys) == ("a{b}.gguf is broken.", "Fetch a{b}.gguf again.")


def test_an_unforeseen_failure_names_the_log_and_the_log_has_the_traceback(monkeypatch, capsys):
    fail_with(monkeypatch, ZeroDivisionError("on purpose\nwith a second line"))
    assert main(["setup"]) == 4
    what, fix = said(capsys)
    assert "ZeroDivisionError: on purpose" in what
    log = Path(fix.removeprefix("The details are in ").removesuffix("; please report them."))
    assert "Traceback" in log.read_text(encoding="utf-8")


def test_an_interrupt_is_no_traceback(monkeypatch, capsys):
    fail_with(monkeypatch, KeyboardInterrupt())
    assert main(["setup"]) == 130
    assert capsys.readouterr().err == "error: Stopped before it was done.\n"


def test_a_closed_pipe_is_no_traceback():
    reader, writer = os.pipe()
    os.close(reader)
    ended = app("--help", stdout=writer)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_output_that_cannot_be_written_is_a_sentence():
    code = "from app.__main__ import main; import app.commands.setup as s; s.run = lambda args: print('x') or 0"
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-c", f"{code}; raise SystemExit(main(['setup']))"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=buffered,
        )
    assert ended.returncode == 4
    assert ended.stderr.startswith("error: The output cannot be written: ")
    assert len(ended.stderr.splitlines()) == 2


def test_wrong_arguments_are_told_before_torch_or_qt_are_imported():
    code = (
        "import sys; from app.__main__ import main; "
        "code = main('record --model x --prompt x --out x --lane temperature=-1'.split()); "
        "print(code, [name for name in ('torch', 'transformers', 'PySide6') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "2 []\n"


# ---------------------------------------------------------------- record's arguments


@given(st.integers())
def test_a_seed_may_be_any_integer(seed):
    assert arguments.lane_from(f"seed={seed}", None).seed == seed
    assert arguments.lane_from("temperature=1", arguments.whole_number("--seed", str(seed))).seed == seed


@given(st.floats(0, 100), st.integers(0, 2**31 - 1))
def test_a_lane_says_what_its_numbers_say(temperature, top_k):
    lane = arguments.lane_from(f"temperature={temperature!r}, top_k={top_k}", 5)
    assert lane == SamplingSettings(temperature=temperature, top_k=top_k, seed=5)


def test_a_lane_that_names_its_seed_keeps_it():
    assert arguments.lane_from("seed=-3,no_repeat_ngram=2", 5) == SamplingSettings(seed=-3, no_repeat_ngram_size=2)


@pytest.mark.parametrize(
    "lane",
    [
        "temperature=-1",
        "temperature=nan",
        "temperature=inf",
        "temperature=0,8",
        "temperature=0_8",
        "temperature=٣",
        "temperature=1e999",
        "temperature=",
        "temperature",
        "temperature=1,temperature=1",
        "top_p=0",
        "top_p=-0.1",
        "top_p=1.1",
        "top_k=-1",
        "top_k=2.5",
        "top_k=" + "9" * 400,
        "min_p=2",
        "typical_p=0",
        "repetition_penalty=0",
        "presence_penalty=3",
        "seed=1.5",
        "seed=1e5",
        "seed=" + "1" * 5000,
        "temperatur=1",
        "=1",
    ],
)
def test_an_absurd_setting_is_refused_with_a_way_out(tmp_path, capsys, lane):
    assert main(["record", "--model", "x", "--prompt", "x", "--out", str(tmp_path / "o"), "--lane", lane]) == 2
    said(capsys)


def test_a_refused_setting_names_its_range():
    with pytest.raises(SettingsRefused) as refused:
        arguments.lane_from("top_p=1.1", None)
    assert "from" in refused.value.fix or "more than 0 up to 1" in refused.value.fix


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (["--precision", "bf17"], 2),
        (["--max-new-tokens", "0"], 2),
        (["--max-new-tokens", "-5"], 2),
        (["--max-new-tokens", "1.5"], 2),
        (["--seed", "soon"], 2),
        (["--stop", ""], 2),
        (["--device-map", "a=b=c"], 2),
        (["--out", "no such folder/x.jsonl"], 2),
        (["--out", "."], 2),
        (["--out", ""], 2),
        (["--out", "a\0b"], 2),
        (["--prompt", "half \ud83d a character"], 2),
        (["--lane", ""] * 65, 2),
        (["--engine", "http://localhost:1"], 5),
        (["--model", "no such model here"], 3),
    ],
)
def test_what_cannot_be_run_ends_with_its_code(tmp_path, monkeypatch, capsys, more, code):
    monkeypatch.chdir(tmp_path)
    assert main(["record", "--model", "x", "--prompt", "x", "--out", "o.jsonl", *more]) == code
    said(capsys)
    assert not (tmp_path / "o.jsonl").exists()


def test_a_device_map_may_be_a_table():
    assert arguments.device_map_from("model.layers.0=disk, lm_head=cpu") == (
        ("model.layers.0", "disk"),
        ("lm_head", "cpu"),
    )
    assert arguments.device_map_from("cuda:0") == "cuda:0"


# ---------------------------------------------------------------- record, for real


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("model"), "llama")


def recorded(folder, tmp_path, *more):
    out = tmp_path / "run.jsonl"
    arguments = ["record", "--model", str(folder), "--prompt", "The quick", "--max-new-tokens", "8", "--out", str(out)]
    code = main([*arguments, *more])
    return code, [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] if out.is_file() else []


def test_the_summary_has_the_shape_that_scripts_rely_on(tiny, tmp_path, capsys):
    code, lines = recorded(
        tiny, tmp_path, "--json", "--lane", "temperature=0", "--lane", "seed=3", "--precision", "fp32"
    )
    summary = json.loads(capsys.readouterr().out)
    assert code == 0
    assert set(summary) == {"runs", "model", "precision"}
    assert summary["precision"] == "float32"
    assert [run["lane"] for run in summary["runs"]] == [0, 1]
    for run in summary["runs"]:
        assert set(run) == {
            *("lane", "text", "token_ids", "end_reason", "prompt_tokens", "new_tokens"),
            *("ttft_ms", "decode_tokens_per_s", "kv_bytes"),
        }
        tokens = [line for line in lines if line["kind"] == "token" and line["lane"] == run["lane"]]
        assert [line["token_id"] for line in tokens] == run["token_ids"]
        assert run["new_tokens"] == len(run["token_ids"])
    header = lines[0]
    assert (header["kind"], header["schema"]) == ("header", 1)
    assert Path(header["model_path"]) == tiny
    assert [line["lane"] for line in lines if line["kind"] == "end"] == [0, 1]
    assert lines[-1]["kind"] == "end"
    (model,) = [line for line in lines if line["kind"] == "model"]  # a window shows the model's facts from it
    assert model["facts"]["layers"] == 4


def test_the_greedy_tokens_are_those_of_generate(tiny, tmp_path, capsys):
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    ids = torch.tensor([list(b"The quick")])  # the tokenizer's ids are the bytes
    expected = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=8)
    recorded(tiny, tmp_path, "--json", "--raw", "--lane", "temperature=0", "--precision", "float32")
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    bos = [256] * (run["prompt_tokens"] - ids.shape[1])
    assert bos == []
    assert run["token_ids"] == expected[0, ids.shape[1] :].tolist()


def test_without_a_lane_the_models_own_defaults_apply(tmp_path, capsys):
    folder = tiny_folder(tmp_path / "model", "llama")
    config = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(
        json.dumps(config | {"do_sample": True, "temperature": 0.5, "top_k": 7, "top_p": 0.9})
    )
    code, lines = recorded(folder, tmp_path, "--seed", "12345678901234567890")
    assert code == 0
    (lane,) = lines[0]["lanes"]
    assert (lane["temperature"], lane["top_k"], lane["top_p"]) == (0.5, 7, 0.9)
    assert lane["seed"] == lines[0]["seed"] == 12345678901234567890


def test_an_interrupt_ends_the_run_with_a_complete_file(tiny, tmp_path, capsys, monkeypatch):
    from engine.replay import Recorder

    take = Recorder.take

    def interrupted_at_the_third(self, event):
        take(self, event)
        if getattr(event, "step", None) == 2:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Recorder, "take", interrupted_at_the_third)
    before = signal.getsignal(signal.SIGINT)
    code, lines = recorded(tiny, tmp_path, "--json", "--lane", "temperature=0", "--max-new-tokens", "400")
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert code == 130
    assert (run["end_reason"], run["new_tokens"]) == ("cancelled", 3)
    assert (lines[-1]["kind"], lines[-1]["reason"]) == ("end", "cancelled")
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_does_not_end_the_run(tiny, tmp_path, capsys):
    code, _ = recorded(tiny, tmp_path, "--json", "--lane", "temperature=0", "--out", "/dev/full")
    out, err = capsys.readouterr()
    assert code == 4
    assert json.loads(out)["runs"][0]["new_tokens"] > 0
    assert "error: " in err
    assert "fix: " in err
    assert Path("/dev/full").is_char_device()


def test_a_run_that_breaks_off_ends_with_its_sentence_and_what_was_written(tmp_path, capsys):
    import torch

    folder = tiny_folder(tmp_path / "model", "llama")
    model = tiny_model("llama")
    with torch.no_grad():
        model.model.norm.weight.fill_(3e38)  # finite, so it loads; what comes of it is not
    model.save_pretrained(folder)
    capsys.readouterr()  # the saving talks
    code, lines = recorded(folder, tmp_path, "--json")
    out, err = capsys.readouterr()
    assert code == 4
    assert json.loads(out)["runs"][0]["end_reason"] == "error"
    assert lines[-1]["reason"] == "error"
    assert err.startswith("error: ")
    assert "Traceback" not in err


def test_a_prompt_that_is_refused_leaves_an_older_file_alone(tiny, tmp_path, capsys):
    out = tmp_path / "run.jsonl"
    out.write_text("older")
    assert main(["record", "--model", str(tiny), "--prompt", "x" * 600, "--raw", "--out", str(out)]) == 4
    said(capsys)
    assert out.read_text() == "older"


def test_an_older_recording_is_replaced_and_a_link_is_written_through(tiny, tmp_path, capsys):
    target = tmp_path / "elsewhere.jsonl"
    target.write_text("older and longer\n" * 10_000)
    (tmp_path / "run.jsonl").symlink_to(target)
    code, lines = recorded(tiny, tmp_path)
    assert code == 0
    assert lines[0]["kind"] == "header"
    assert (tmp_path / "run.jsonl").is_symlink()
    recorded(tiny, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere.jsonl", "run.jsonl"]
