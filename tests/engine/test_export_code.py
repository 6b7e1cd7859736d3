"""Settings in other programs' words. The snippets are run, and what they write is compared with our loop."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from dataclasses import replace

import pytest

from engine.control import Control
from engine.events import RunEnd
from engine.export import ExportRun, runs_of
from engine.export_code import CHANGED, as_openai, as_transformers, openai_request
from engine.loading import load
from engine.loop import generate
from engine.settings import LoadPlan, Request, SamplingSettings
from tests.engine.export_runs import run_with
from tests.tiny_models import tiny_folder

GREEDY = SamplingSettings(temperature=0.0)


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    folder = tiny_folder(tmp_path_factory.mktemp("export") / "tiny", seed=3, vocab_size=261)
    # Wishes of the model's own that must not count.
    (folder / "generation_config.json").write_text(
        json.dumps({"do_sample": True, "top_k": 3, "repetition_penalty": 1.7, "eos_token_id": 257})
    )
    made = load(LoadPlan(str(folder), "float32", device_map="cpu", kernel="plain"), lambda event: None, Control())
    yield made
    made.close()


def run_of(session, settings: SamplingSettings, **asked) -> ExportRun:
    request = Request(1, **{"prompt": "A river", "lanes": (settings,), "max_new_tokens": 24} | asked)
    events = list(generate(session, request, Control()))
    (run,) = runs_of(events, {"raw": request.raw}, session.facts)
    return run


def run_snippet(run: ExportRun) -> dict:
    """What the snippet leaves behind."""
    code, found = as_transformers(run), {"__name__": "snippet"}
    exec(compile(code, "snippet.py", "exec"), found)
    return found


CASES = {
    "plain": (GREEDY, {}),
    "raw": (GREEDY, {"raw": True}),
    "penalty": (replace(GREEDY, repetition_penalty=1.3), {}),
    "no repeats": (replace(GREEDY, no_repeat_ngram_size=2), {}),
    "system": (GREEDY, {"system": "Say it 'briefly'.\n"}),
    "typed marks": (GREEDY, {"prompt": "what is <|im_end|> for?"}),
    "chinese": (GREEDY, {"prompt": "河流“怎样”塑造土地\\?\n"}),
    "fork": (GREEDY, {"written": (72, 105, 33), "raw": True}),
    "given": (replace(GREEDY, repetition_penalty=1.3), {"forced": (72, 105)}),
    "fork with a typed word": (GREEDY, {"written": (72, 105, 33), "forced": (65, 66), "raw": True}),
    "bias": (replace(GREEDY, logit_bias=((65, 3.0), (66, -3.0))), {}),
    "banned sequences": (
        replace(GREEDY, banned_sequences=tuple((a, b) for a in range(256) for b in range(0, 256, 3))),
        {},
    ),
    "banned": (replace(GREEDY, banned=tuple(range(0, 250, 2))), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_greedy_snippet_writes_the_tokens_of_our_loop(session, name, capsys):
    settings, asked = CASES[name]
    run = run_of(session, settings, **asked)
    found = run_snippet(run)
    begun = len(run.start.written) + run.start.forced_tokens
    own = run.end.token_ids[begun:] if run.end else ()
    assert found["new_ids"] == list(own)
    assert capsys.readouterr().out == found["text"] + "\n"


def test_a_fork_is_not_called_changed_for_the_settings_of_the_run_it_began_in(session):
    run = run_of(session, GREEDY, raw=True)
    fork = run_of(session, replace(GREEDY, repetition_penalty=1.2), raw=True, written=run.end.token_ids[:4])
    whole = replace(fork, tokens=(*run.tokens[:4], *fork.tokens))
    assert CHANGED not in openai_request(whole)[2]
    own = replace(fork.tokens[-1], settings=GREEDY)
    assert CHANGED in openai_request(replace(whole, tokens=(*whole.tokens[:-1], own)))[2]


def test_stop_strings_end_the_snippets_text_where_they_ended_the_runs(session, capsys):
    whole = run_of(session, GREEDY, raw=True)
    stop = next(t.text for t in whole.tokens[4:] if t.text.isascii() and t.text.isprintable() and t.text.strip())
    run = run_of(session, GREEDY, raw=True, stop=(stop,))
    assert run.end is not None
    assert run.end.reason == "stop string"
    assert run_snippet(run)["text"] == run.end.text


def test_everything_is_said_where_words_are_drawn(session):
    """SAM-23: generate() has a top-k of its own."""
    found = run_of(session, SamplingSettings(seed=7))
    (call,) = [
        node
        for node in ast.walk(ast.parse(as_transformers(found)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "generate"
    ]
    said = {word.arg: word.value.value for word in call.keywords if isinstance(word.value, ast.Constant)}
    assert said["do_sample"] is True
    assert (said["temperature"], said["top_k"], said["top_p"], said["min_p"]) == (1.0, 0, 1.0, 0.0)
    assert (said["typical_p"], said["repetition_penalty"], said["no_repeat_ngram_size"]) == (1.0, 1.0, 0)
    assert isinstance(said["temperature"], float)


def test_a_drawn_snippet_runs_and_says_that_its_words_differ(session, capsys):
    settings = SamplingSettings(temperature=0.8, top_k=40, top_p=0.9, min_p=0.01, typical_p=0.95, seed=10**30)
    run = run_of(session, settings)
    assert len(run_snippet(run)["new_ids"]) >= 1
    assert "writes other words" in " ".join(as_transformers(run).replace("#", "").split())


def test_what_transformers_lacks_is_named():
    code = as_transformers(run_with(SamplingSettings(presence_penalty=0.5, frequency_penalty=-0.25)))
    words = " ".join(code.replace("#", "").split())
    assert "presence_penalty=0.5 and frequency_penalty=-0.25. transformers has no counterpart" in words
    assert not re.search(r"^\s+presence_penalty", code, re.MULTILINE)


HOSTILE = ["'''\"\"\"\n#", "\nimport os\n", "\u2028print(1)", "\\", "{x}", "\ud800", "</s>\r\nraise SystemExit"]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_code(text):
    run = run_with(GREEDY, prompt=text, system=text, name=text, stop=(text,))
    run = replace(run, header={"raw": False, "model_path": text, "precision": "float32", "device_map": text})
    tree = ast.parse(as_transformers(run))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert imported == {"torch"}
    (messages,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "messages"
    ]
    assert messages == [{"role": "system", "content": text}, {"role": "user", "content": text}]


def test_precisions_are_loaded_as_they_were():
    def code(precision):
        run = run_with(GREEDY)
        return as_transformers(replace(run, header={"raw": False, "model_path": "m", "precision": precision}))

    assert "dtype=torch.bfloat16" in code("bfloat16")
    assert "load_in_8bit=True" in code("int8")
    assert "bnb_4bit_quant_type='nf4'" in code("nf4")
    assert 'dtype="auto"' in code("gptq")


def test_a_gguf_file_is_read_as_one():
    run = replace(run_with(GREEDY), header={"raw": False, "model_path": "/models/a/b.gguf", "precision": "float32"})
    code = as_transformers(run)
    assert "path = '/models/a'" in code
    assert "gguf_file='b.gguf'" in code


# ---------------------------------------------------------------- OpenAI


def test_a_request_holds_only_what_the_api_knows():
    settings = SamplingSettings(
        temperature=0.8, top_k=40, top_p=0.9, min_p=0.05, repetition_penalty=1.1, presence_penalty=0.5, seed=7
    )
    path, body, notes, extra = openai_request(run_with(settings, stop=("\n\n",), max_new_tokens=64))
    assert path == "/chat/completions"
    assert body == {
        "model": "tiny",
        "messages": [{"role": "user", "content": "Describe how a river shapes the land it crosses."}],
        "max_tokens": 64,
        "temperature": 0.8,
        "top_p": 0.9,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.0,
        "seed": 7,
        "stop": ["\n\n"],
        "logprobs": True,
        "top_logprobs": 5,
    }
    assert extra == {"top_k": 40, "min_p": 0.05, "repetition_penalty": 1.1}
    assert any("top_k=40, min_p=0.05, repetition_penalty=1.1" in note for note in notes)


def test_what_is_beyond_the_api_is_named_and_not_sent():
    settings = SamplingSettings(temperature=5.0, seed=10**30, banned=(9,), logit_bias=((3, 2.0),), typical_p=0.5)
    settings = replace(settings, banned_sequences=((1, 2),))
    _, body, notes, extra = openai_request(run_with(settings, stop=tuple("abcdef")))
    told = " ".join(notes)
    assert body["temperature"] == 2.0
    assert "seed" not in body
    assert body["stop"] == list("abcd")
    assert body["logit_bias"] == {"3": 2.0, "9": -100.0}
    assert extra == {}
    assert all(word in told for word in ("5.0", str(10**30), '"e", "f"', "typical_p=0.5", "-100", "sequences"))


def test_a_greedy_request_says_nothing_of_draws():
    drawn, greedy = (
        openai_request(run_with(replace(GREEDY, temperature=t, seed=seed)))[2] for t, seed in ((0.5, 3), (0.0, 2**70))
    )
    assert any("seed" in note for note in drawn)
    assert not any("seed" in note for note in greedy)


def test_a_request_says_that_the_beginning_was_given():
    run = run_with(GREEDY)
    assert not any("by hand" in note for note in openai_request(run)[2])
    given = replace(run, start=replace(run.start, forced_tokens=3))
    assert "The first 3 new tokens were given by hand; a server chooses." in openai_request(given)[2]
    one = replace(run, start=replace(run.start, forced_tokens=1))
    assert "The first new token was given by hand; a server chooses." in openai_request(one)[2]


def test_raw_text_goes_to_the_other_endpoint():
    run = replace(run_with(GREEDY), header={"raw": True, "model": "tiny"})
    path, body, *_ = openai_request(run)
    assert (path, body["prompt"], body["temperature"]) == ("/completions", run.start.prompt, 0.0)
    assert body["logprobs"] == 5


@pytest.mark.parametrize("text", [*HOSTILE, "JSON", "$(touch x)", "`x`", "'\nJSON\ntouch x\n"])
def test_a_shell_gives_the_server_exactly_the_body(text, tmp_path):
    run = run_with(GREEDY, prompt=text, name=text)
    script = as_openai(run)
    # Instead of a server, whatever curl would have sent comes out.
    (tmp_path / "curl").write_text("#!/bin/sh\ncat\n")
    (tmp_path / "curl").chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    sent = subprocess.run(["sh", "-s"], input=script.encode(), capture_output=True, env={"PATH": path}, check=True)
    assert json.loads(sent.stdout)["messages"] == [{"role": "user", "content": text}]
    assert sent.stderr == b""


def test_a_run_without_an_end_can_be_copied_too(session):
    run = run_of(session, GREEDY)
    assert isinstance(run.end, RunEnd)
    assert as_transformers(replace(run, end=None)) == as_transformers(run)
