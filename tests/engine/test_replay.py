"""A replay gives back the events that were recorded, and damage costs no more than the damaged lines."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import subprocess
import sys
import threading
from array import array
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import events as ev
from engine import replay as replay_module
from engine.errors import FileRefused
from engine.replay import Recorder, read_replay
from engine.replay_lines import line_of
from engine.settings import SamplingSettings

ROOT = Path(__file__).resolve().parents[2]
HEADER = {"model_path": "m", "precision": "float32", "device_map": "auto", "prompt": "Hi", "seed": 7, "lanes": []}
SETTINGS = SamplingSettings(temperature=0.8, top_k=2, seed=7)
START = ev.RunStart(
    run_id=1,
    lane=0,
    lanes=1,
    settings=SETTINGS,
    prompt="Hi",
    prompt_text="<s>Hi",
    prompt_tokens=(ev.PromptToken(1, "<s>", True), ev.PromptToken(5, "Hi", False)),
    ends=(ev.EndToken(2, "</s>", "config.json"),),
    stop=("\n",),
    max_new_tokens=9,
    context_tokens=128,
    tokenise_ms=0.125,
)
PREFILL = ev.PrefillProgress(1, 2, 2, 1.5, 64)


def token(step: int = 0, text: str = " a", **changes: object) -> ev.TokenEvent:
    """Three alternatives worked out by hand: logits 2, 1, 0, temperature 0.8, top-k 2."""
    lse_raw = math.log(math.exp(2) + math.exp(1) + math.exp(0))
    lse_heated = math.log(math.exp(2 / 0.8) + math.exp(1 / 0.8) + math.exp(0))
    lse_cut = math.log(math.exp(2 / 0.8) + math.exp(1 / 0.8))
    logits = array("d", [2.0, 1.0, 0.0])
    values: dict = {
        "run_id": 1,
        "lane": 0,
        "step": step,
        "token_id": 11,
        "text": text,
        "token_text": text,
        "special": False,
        "candidate_ids": array("i", [11, 12, 13]),
        "candidate_logits": logits,
        "candidate_adjusted": logits,
        "candidate_cuts": bytes([0, 0, 1 + ev.FILTERS.index("top_k")]),
        "candidate_texts": (text, "b", "c"),
        "logsumexp": lse_raw,
        "entropy_nats": 0.83,
        "final_entropy_nats": 0.5,
        "stages": (
            ev.StageFigures("raw", 3, lse_raw),
            ev.StageFigures("temperature", 3, lse_heated),
            ev.StageFigures("top_k", 2, lse_cut),
        ),
        "vocab_size": 3,
        "rank": 0,
        "logprob": 2.0 - lse_raw,
        "final_logprob": 2.5 - lse_cut,
        "u": 0.25,
        "draw_low": 0.0,
        "draw_high": math.exp(2.5 - lse_cut),
        "temperature": 0.8,
        "settings": SETTINGS,
        "forward_ms": 12.5,
        "sampling_ms": 0.3,
        "kv_bytes": 96,
        "kv_allocated_bytes": 128,
        "context_used_tokens": 3 + step,
    }
    return ev.TokenEvent(**(values | changes))


def end(lane: int = 0, text: str = " a b") -> ev.RunEnd:
    return ev.RunEnd(1, lane, "length", text, "", (11, 11), 2, 2, 3.0, 4.0, 12.5, 80.0, 96, 128)


EVENTS = (START, PREFILL, token(0, " a"), token(1, " b"), end())


def record(path: Path, events=EVENTS, header=HEADER) -> Path:
    recorder = Recorder(path, header)
    for event in events:
        recorder.take(event)
    recorder.close()
    assert recorder.problem is None
    return recorder.path


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    return record(tmp_path / "run.jsonl")


# ---------------------------------------------------------------- shapes and round trips


def test_every_line_is_strict_json_in_the_documented_shape(recorded: Path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    lines = [json.loads(line, parse_constant=refuse) for line in recorded.read_text("utf-8").split("\n")[:-1]]
    assert [line["kind"] for line in lines] == ["header", "start", "prefill", "token", "token", "end"]
    assert lines[0]["schema"] == 1
    assert lines[0].items() >= HEADER.items()
    first = lines[3]
    assert first["text"] == " a"
    assert first["u"] == 0.25
    assert first["kv_bytes"] == 96
    assert first["kv_allocated_bytes"] == 128
    best, _, worst = first["top"]
    # exp(2)/(exp(2)+exp(1)+exp(0)) and exp(2.5)/(exp(2.5)+exp(1.25)), by hand
    assert best["probs"]["raw"] == pytest.approx(0.665241, abs=1e-6)
    assert best["probs"]["final"] == pytest.approx(0.777300, abs=1e-6)
    assert best["cut_by"] is None
    assert worst["cut_by"] == "top_k"
    assert worst["probs"]["final"] is None
    assert worst["probs"]["raw"] == pytest.approx(0.090031, abs=1e-6)
    assert set(worst["probs"]) == {"raw", "temperature", "final"}


def test_a_replay_gives_back_equal_events(recorded: Path) -> None:
    replay = read_replay(recorded)
    assert replay.events == EVENTS
    assert replay.damage == ""
    assert replay.header["prompt"] == "Hi"


def test_without_penalties_both_logit_columns_are_one_object_again(recorded: Path) -> None:
    back = read_replay(recorded).events[2]
    assert back.candidate_adjusted is back.candidate_logits


GPU = ev.GpuReading("H", 1, 2, None, 4)
OTHERS = (
    ev.LoadProgress("weights", 5, 10, 1.5, "model.layers.0"),
    ev.Loaded(ev.SessionFacts("m", "/m", "llama", "float32", "auto", ("cpu",), 1, 2, 3, 3, 4, 5, 6, "sdpa", "plain",
              True, 7, None, ledger=(ev.LedgerPart("embedding", None, 3),), stage_ms=(("weights", 1.5),))),
    START,
    PREFILL,
    token(0),
    ev.SettingsChanged(1, 0, 1, replace(SETTINGS, temperature=0.0)),
    ev.MemoryReading(1.25, 10, 20, 30, (GPU,)),
    token(1, u=None, settings=replace(SETTINGS, temperature=0.0), temperature=0.0, candidate_cuts=bytes(3),
          stages=(ev.StageFigures("raw", 3, 2.4),)),
    ev.EngineError("broke", "mend", 4, "run", "{a}", "", (("a", "b"),), "trace"),
    end(),
)  # fmt: skip


def test_events_of_every_kind_come_back(tmp_path: Path) -> None:
    assert read_replay(record(tmp_path / "all.jsonl", OTHERS)).events == OTHERS


finite = st.floats(-1e30, 1e30)
texts = st.text(st.characters(codec="utf-8"), max_size=12)
ids = st.integers(0, 2**31 - 1)


@st.composite
def tokens(draw: st.DrawFn) -> ev.TokenEvent:
    count = draw(st.integers(0, 45))
    candidate_ids = array("i", draw(st.lists(ids, min_size=count, max_size=count, unique=True)))
    # A logit of -inf is a token that the model itself calls impossible.
    column = st.lists(finite | st.just(-math.inf), min_size=count, max_size=count).map(lambda v: array("d", v))
    logits = draw(column)
    seeds = st.integers() | st.just(12345678901234567890) | st.just(-(10**5000))
    used = SamplingSettings(temperature=draw(st.floats(0.01, 100)), top_p=draw(st.floats(0.01, 1)), seed=draw(seeds))
    switched = draw(st.lists(st.sampled_from(ev.STAGES[1:]), unique=True).map(lambda s: sorted(s, key=ev.STAGES.index)))
    filters = [0] + [1 + ev.FILTERS.index(name) for name in switched if name in ev.FILTERS]
    return token(
        step=draw(st.integers(0, 9)),
        text=draw(texts),
        token_id=draw(st.sampled_from([*candidate_ids, 3])),
        special=draw(st.booleans()),
        candidate_ids=candidate_ids,
        candidate_logits=logits,
        candidate_adjusted=draw(column) if draw(st.booleans()) else logits,
        candidate_cuts=bytes(draw(st.lists(st.sampled_from(filters), min_size=count, max_size=count))),
        candidate_texts=tuple(draw(st.lists(texts, min_size=count, max_size=count))),
        logsumexp=draw(finite),
        stages=tuple(ev.StageFigures(name, draw(st.integers(1, 9)), draw(finite)) for name in ["raw", *switched]),
        u=draw(st.none() | st.floats(0, 1, exclude_max=True)),
        logprob=draw(st.floats(-1e30, 0)),
        forward_ms=draw(finite),
        kv_bytes=draw(st.integers(0, 2**62)),
        temperature=used.temperature,
        settings=used,
    )


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(tokens(), min_size=1, max_size=3), texts)
def test_any_token_survives_bit_for_bit(tmp_path: Path, some: list[ev.TokenEvent], prompt: str) -> None:
    some = [replace(event, step=step) for step, event in enumerate(some)]
    events = (replace(START, prompt=prompt, stop=(prompt,)), *some, end())
    path = record(tmp_path / "any.jsonl", events)
    back = read_replay(path).events
    assert back == events
    for event, copy in zip(some, back[1:], strict=False):
        assert copy.candidate_logits.tobytes() == event.candidate_logits.tobytes()
        assert copy.candidate_adjusted.tobytes() == event.candidate_adjusted.tobytes()
        if len(event.candidate_ids) > 20 and event.token_id in event.candidate_ids:
            written = json.loads(line_of(event))["top"]
            assert event.token_id in [alternative["id"] for alternative in written]


@settings(deadline=None, max_examples=50)
@given(tokens())
def test_written_probabilities_are_those_that_the_views_show(event: ev.TokenEvent) -> None:
    by_id = {candidate.token_id: candidate for candidate in event.candidates}
    for written in json.loads(line_of(event))["top"]:
        shown = by_id[written["id"]]
        assert written["cut_by"] == shown.cut_by
        expected = shown.probs | {"final": shown.final}
        assert set(written["probs"]) == set(expected)
        for stage, value in expected.items():
            assert written["probs"][stage] == (None if value is None else pytest.approx(value, rel=1e-5)), stage


BREAKING = ["\ud83d", "a\udc00b", "\u2028\u2029\x85\x0b\x0c\x1c", "\r\n\r", "\0\x7f", "词🙂", '"\\']


@pytest.mark.parametrize("text", BREAKING, ids=range(len(BREAKING)))
def test_texts_that_break_lines_or_encodings_survive(tmp_path: Path, text: str) -> None:
    events = (replace(START, prompt=text, prompt_text=text), token(0, text), end(text=text))
    path = record(tmp_path / "t.jsonl", events, HEADER | {"prompt": text})
    assert read_replay(path).events == events
    assert read_replay(path).header["prompt"] == text
    # Tools that break lines at every Unicode line end see the same lines.
    assert len(path.read_text("utf-8").splitlines()) == len(events) + 1


@pytest.mark.parametrize("ending", ["\r\n", "\r", "\n"])
def test_lines_end_with_cr_or_lf_or_both(recorded: Path, ending: str) -> None:
    recorded.write_bytes(recorded.read_bytes().replace(b"\n", ending.encode()))
    replay = read_replay(recorded)
    assert replay.events == EVENTS
    assert replay.damage == ""


@pytest.mark.parametrize("seed", [12345678901234567890, -(2**200), 2**63, 10**5000, -(10**5000)], ids=range(5))
def test_seeds_of_any_size_survive(tmp_path: Path, seed: int) -> None:
    lane = replace(SETTINGS, seed=seed)
    events = (replace(START, settings=lane), token(0, settings=lane), end())
    replay = read_replay(record(tmp_path / "s.jsonl", events, HEADER | {"seed": seed, "lanes": [lane]}))
    assert replay.events == events
    if seed.bit_length() < 10_000:
        assert replay.header["seed"] == seed


def test_numbers_that_are_not_finite_are_null_in_the_file_and_unknown_again(tmp_path: Path) -> None:
    path = record(tmp_path / "n.jsonl", (START, token(0, forward_ms=math.inf, entropy_nats=math.nan), end()))
    line = json.loads(path.read_text("utf-8").split("\n")[2])
    assert line["forward_ms"] is None
    assert line["entropy_nats"] is None
    back = read_replay(path).events[1]
    assert math.isnan(back.forward_ms)
    assert math.isnan(back.entropy_nats)


def test_a_replay_opens_without_torch_or_qt(recorded: Path) -> None:
    code = (
        "import sys; from engine.replay import read_replay; r = read_replay(sys.argv[1]); assert len(r.events) == 5;"
        "bad = {'torch', 'transformers', 'PySide6'} & set(sys.modules); assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code, str(recorded)], cwd=ROOT, check=True, timeout=60)


# ---------------------------------------------------------------- damage


def test_a_replay_cut_at_any_byte_opens_with_every_complete_token(recorded: Path) -> None:
    whole = recorded.read_bytes()
    lines = whole.split(b"\n")
    for cut in range(1, len(whole)):
        recorded.write_bytes(whole[:cut])
        replay = read_replay(recorded)
        # A line is complete with its last byte; its line end adds nothing.
        complete = sum(
            1 for n, line in enumerate(lines) if b'"kind":"token"' in line and cut >= len(b"\n".join(lines[: n + 1]))
        )
        found = [event for event in replay.events if isinstance(event, ev.TokenEvent)]
        assert found == list(EVENTS[2 : 2 + complete]), cut
        if cut < len(whole) - 1:
            assert replay.damage, cut


def test_a_lane_that_breaks_off_gets_an_end_that_says_so(recorded: Path) -> None:
    lines = recorded.read_bytes().split(b"\n")
    recorded.write_bytes(b"\n".join(lines[:-2]) + b"\n")
    last = read_replay(recorded).events[-1]
    assert isinstance(last, ev.RunEnd)
    assert (last.reason, last.text, last.token_ids) == ("error", " a b", (11, 11))
    assert "ends before" in last.sentence
    assert math.isnan(last.ttft_ms)  # not measured, so not shown as a figure


HOSTILE = [
    b'{"kind":"token","seed":' + b"9" * 5000 + b"}",
    b"[" * 100_000,
    b'{"kind":"token","lane":0}',
    b'{"kind":"settings","run_id":1,"lane":0,"step":0,"settings":{"temperature":-1}}',
    b'{"kind":"end","run_id":"x"}',
    line_of(end(-1)).rstrip(),
    line_of(token(lane=-1)).rstrip(),
    line_of(replace(START, lane=-(2**40))).rstrip(),
    line_of(end()).rstrip().replace(b'"kv_bytes":96', b'"kv_bytes":' + b"9" * 4000),
    line_of(token()).rstrip().replace(b'"kv_bytes":96', b'"kv_bytes":' + b"9" * 20),
    b'{"kind":null}',
    b"\xff\xfe\x00{}",
    b"null",
    b'{"kind":"header","schema":1}',
    b"{",
]


@pytest.mark.parametrize("bad", HOSTILE, ids=range(len(HOSTILE)))
def test_a_damaged_line_is_named_by_number_and_the_rest_opens(recorded: Path, bad: bytes) -> None:
    lines = recorded.read_bytes().split(b"\n")
    lines.insert(3, bad)
    recorded.write_bytes(b"\n".join(lines))
    replay = read_replay(recorded)
    assert replay.events == EVENTS
    assert "Line 4 " in replay.damage


@pytest.mark.parametrize("position", range(6))
def test_the_rest_opens_whichever_line_is_damaged(recorded: Path, position: int) -> None:
    lines = recorded.read_bytes().split(b"\n")
    lines[position] = lines[position].replace(b'"kind"', b'"kin', 1)
    recorded.write_bytes(b"\n".join(lines))
    replay = read_replay(recorded)
    assert f"Line {position + 1} " in replay.damage
    kept = [event for n, event in enumerate(EVENTS, 1) if n != position]
    assert [event for event in replay.events if event in EVENTS] == kept
    assert isinstance(replay.events[-1], ev.RunEnd)
    beginnings = [event for event in replay.events if isinstance(event, (ev.RunStart, ev.TokenEvent))]
    assert isinstance(beginnings[0], ev.RunStart)


def test_numbers_beyond_a_double_and_nan_are_unknown_in_the_view(recorded: Path) -> None:
    text = recorded.read_text("utf-8").replace('"forward_ms":12.5', '"forward_ms":1e999', 1)
    text = text.replace('"entropy_nats":0.83', '"entropy_nats":NaN', 1).replace('"logit":1.0', '"logit":1e999', 1)
    recorded.write_text(text, "utf-8")
    first = read_replay(recorded).events[2]
    assert math.isnan(first.forward_ms)
    assert math.isnan(first.entropy_nats)
    assert all(math.isfinite(p) for candidate in first.candidates for p in candidate.probs.values())


@pytest.mark.parametrize("name", ["logprob", "final_logprob"])
def test_a_probability_above_1_is_damage(recorded: Path, name: str) -> None:
    lines = recorded.read_text("utf-8").split("\n")
    at = next(n for n, line in enumerate(lines) if '"kind":"token"' in line)
    lines[at] = re.sub(f'"{name}":[^,]+', f'"{name}":1e308', lines[at], count=1)
    recorded.write_text("\n".join(lines), "utf-8")
    assert f"Line {at + 1} damaged" in read_replay(recorded).damage


@pytest.mark.parametrize(
    ("kind", "pattern", "bad"),
    [
        ("start", r'"token_id":\d+', f'"token_id":{2**63}'),
        ("token", r'"token_id":\d+', '"token_id":-1'),
        ("token", r'"token_id":\d+', f'"token_id":{2**64}'),
        ("token", r'"vocab_size":\d+', f'"vocab_size":{2**64}'),
        ("token", r'"temperature":[\d.]+', '"temperature":0'),
    ],
    ids=range(5),
)
def test_numbers_that_no_token_can_have_are_damage(recorded: Path, kind: str, pattern: str, bad: str) -> None:
    """They would stop whoever decides the run anew or lists its alternatives."""
    lines = recorded.read_text("utf-8").split("\n")
    at = next(n for n, line in enumerate(lines) if f'"kind":"{kind}"' in line and re.search(pattern, line))
    lines[at] = re.sub(pattern, bad, lines[at], count=1)
    recorded.write_text("\n".join(lines), "utf-8")
    assert f"Line {at + 1} damaged" in read_replay(recorded).damage


def test_a_byte_order_mark_is_no_damage(recorded: Path) -> None:
    recorded.write_bytes(b"\xef\xbb\xbf" + recorded.read_bytes())
    assert read_replay(recorded).events == EVENTS
    assert read_replay(recorded).damage == ""


def test_lines_that_stand_there_twice_double_no_word(recorded: Path) -> None:
    lines = recorded.read_bytes().splitlines(keepends=True)
    kinds = (ev.RunStart, ev.TokenEvent, ev.RunEnd)
    for content, damage in (
        ([*lines[:4], *lines[1:]], "Lines 5, 7 damaged and left out."),
        (lines + lines, "Lines 7, 8, 10, 11, 12 damaged and left out."),
    ):
        recorded.write_bytes(b"".join(content))
        replay = read_replay(recorded)
        assert [e for e in replay.events if isinstance(e, kinds)] == [e for e in EVENTS if isinstance(e, kinds)]
        assert replay.damage == damage


def test_missing_tokens_in_the_middle_are_told(recorded: Path) -> None:
    lines = recorded.read_bytes().split(b"\n")
    del lines[3]
    recorded.write_bytes(b"\n".join(lines))
    assert "Before token 2 of lane A, tokens are missing: 1." in read_replay(recorded).damage


def test_many_lanes_that_break_off_are_told_in_few_words(recorded: Path) -> None:
    start, token = EVENTS[0], EVENTS[2]
    assert isinstance(start, ev.RunStart)
    assert isinstance(token, ev.TokenEvent)
    with open(recorded, "ab") as file:
        for lane in range(1, 8):
            for event in (replace(start, lane=lane), replace(token, lane=lane)):
                file.write(line_of(event))
    damage = read_replay(recorded).damage
    assert damage.endswith("The file ends before lane C did; tokens of it are here: 1. The same holds for 5 more.")
    assert damage.count("ends before") == 2


@pytest.mark.parametrize(
    "content",
    [b"", b"\xef\xbb\xbf", b"\n\n", b"hello\nworld\n", b"\x7fELF" + bytes(range(256)) * 40, b"[1,2]\n", b'{"a":1}\n',
     b'{"kind":"dog"}\n', "{\n}\n".encode("utf-16")],
    ids=range(9),
)  # fmt: skip
def test_what_is_no_replay_is_refused_with_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises(FileRefused) as refused:
        read_replay(path)
    assert "x.jsonl" in refused.value.what
    assert refused.value.fix


def test_a_missing_file_a_folder_and_an_impossible_name_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.jsonl", tmp_path, "a\0b"):
        with pytest.raises(FileRefused):
            read_replay(path)


def with_header(path: Path, **changes: object) -> None:
    first, rest = path.read_text("utf-8").split("\n", 1)
    path.write_text(json.dumps(json.loads(first) | changes) + "\n" + rest, "utf-8")


def test_a_newer_file_opens_if_it_says_that_this_version_can_read_it(recorded: Path) -> None:
    with_header(recorded, schema=2, reads_with=1)
    assert read_replay(recorded).events == EVENTS
    assert "newer version" in read_replay(recorded).notes[0]


@pytest.mark.parametrize("needed", [2, None, "1", True])
def test_a_newer_file_that_needs_a_newer_reader_is_refused(recorded: Path, needed: object) -> None:
    with_header(recorded, schema=2, reads_with=needed)
    with pytest.raises(FileRefused, match="newer version"):
        read_replay(recorded)


def test_unknown_kinds_and_fields_are_skipped_and_kept(recorded: Path) -> None:
    strange = '{"kind":"attention","values":[1,2,{"deep":"词"}]}'
    lines = recorded.read_text("utf-8").split("\n")
    lines[2] = lines[2].replace("{", '{"new_field":[1],', 1)
    lines.insert(3, strange)
    recorded.write_text("\n".join(lines), "utf-8")
    replay = read_replay(recorded)
    assert replay.events == EVENTS
    assert replay.unknown == ((4, strange),)
    assert replay.damage == ""


def test_a_line_that_never_ends_is_left_out_without_being_held(recorded: Path, monkeypatch) -> None:
    monkeypatch.setattr(replay_module, "LONGEST_LINE", 10_000)
    lines = recorded.read_bytes().split(b"\n")
    lines.insert(3, b'{"kind":"token","x":"' + b"y" * 35_000 + b'"}')
    recorded.write_bytes(b"\n".join(lines))
    replay = read_replay(recorded)
    assert replay.events == EVENTS
    assert "Line 4 " in replay.damage


def test_a_large_file_of_something_else_is_given_up_at_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "big.csv"
    with open(path, "wb") as file:
        file.write(b"1,2,3\n" * 1000)
        file.truncate(2**30)  # a gigabyte, sparse
    with pytest.raises(FileRefused, match="not a replay"):
        read_replay(path)


# ---------------------------------------------------------------- recording


def test_each_finished_word_is_on_the_disk_before_the_run_ends(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.jsonl", HEADER)
    for count, event in enumerate(EVENTS, 1):
        recorder.take(event)
        assert [e for e in read_replay(recorder.path).events if e in EVENTS] == list(EVENTS[:count])
    recorder.close()


class FullDisk:
    """A file on a disk that takes so many bytes and then fails, as the kernel does: first a part, then the error."""

    def __init__(self, file, room: int) -> None:
        self.file, self.room = file, room

    def write(self, data) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = self.file.write(data[: self.room])
        self.room -= taken
        return taken

    def fileno(self) -> int:
        return self.file.fileno()

    def close(self) -> None:
        self.file.close()


@pytest.mark.parametrize("room", [0, 10, 400, 1500])
def test_a_full_disk_stops_no_run_and_loses_nothing(tmp_path: Path, monkeypatch, room: int) -> None:
    create = replay_module.create_new

    def full(path: Path):
        file, path = create(path)
        return FullDisk(file, room), path

    with monkeypatch.context() as patched:
        patched.setattr(replay_module, "create_new", full)
        recorder = Recorder(tmp_path / "full.jsonl", HEADER)
        for event in EVENTS[:3]:
            recorder.take(event)
    assert recorder.problem is not None
    assert os.strerror(errno.ENOSPC) in recorder.problem.what
    assert recorder.problem.fix
    assert recorder.move_to(tmp_path / "other.jsonl")
    assert recorder.problem is None
    for event in EVENTS[3:]:
        recorder.take(event)
    recorder.close()
    assert read_replay(recorder.path).events == EVENTS


def test_a_partial_write_is_completed(tmp_path: Path, monkeypatch) -> None:
    create = replay_module.create_new

    class Slow(FullDisk):
        def write(self, data) -> int:
            return self.file.write(data[:7])

    monkeypatch.setattr(replay_module, "create_new", lambda path: (Slow(*(lambda f: (f[0], 0))(create(path))), path))
    assert read_replay(record(tmp_path / "slow.jsonl")).events == EVENTS


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps a folder whose file is open")
def test_a_folder_that_goes_away_is_noticed_and_nothing_is_lost(tmp_path: Path) -> None:
    folder = tmp_path / "usb"
    folder.mkdir()
    recorder = Recorder(folder / "run.jsonl", HEADER)
    recorder.take(START)
    (folder / "run.jsonl").unlink()
    folder.rmdir()
    for event in EVENTS[1:]:
        recorder.take(event)
    recorder.close()
    assert recorder.problem is not None
    assert recorder.move_to(tmp_path / "saved.jsonl")
    recorder.close()
    assert read_replay(recorder.path).events == EVENTS


@pytest.mark.parametrize("name", ["no/such/folder/run.jsonl", "nul\0.jsonl", "x" * 300], ids=range(3))
def test_a_place_that_cannot_be_written_is_a_problem_and_no_exception(tmp_path: Path, name: str) -> None:
    recorder = Recorder(tmp_path / name, HEADER)
    recorder.take(START)
    assert recorder.problem is not None
    assert not recorder.move_to(tmp_path / name)
    assert recorder.move_to(tmp_path / "run.jsonl")
    recorder.close()
    assert START in read_replay(recorder.path).events


def test_two_recorders_never_share_a_file(tmp_path: Path) -> None:
    recorders: list[Recorder] = []
    barrier = threading.Barrier(8)

    def start() -> None:
        barrier.wait()
        recorders.append(Recorder(tmp_path / "run.jsonl", HEADER))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, recorder in enumerate(recorders):
        for event in (replace(START, prompt=str(number)), *EVENTS[1:]):
            recorder.take(event)
        recorder.close()
    assert len({recorder.path for recorder in recorders}) == 8
    assert sorted(read_replay(recorder.path).events[0].prompt for recorder in recorders) == list("01234567")


def test_the_ends_of_the_lanes_are_the_last_lines(tmp_path: Path) -> None:
    reading = ev.MemoryReading(1.0, 1, 2, 3)
    path = record(tmp_path / "m.jsonl", (*EVENTS[:2], reading, *EVENTS[2:], reading, ev.Unloaded("m", 1, 2)))
    assert json.loads(path.read_bytes().split(b"\n")[-2])["kind"] == "end"
    assert reading in read_replay(path).events
