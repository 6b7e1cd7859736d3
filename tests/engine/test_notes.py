"""Bookmarks and notes lie in the replay file itself, and cost nothing that was recorded."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from engine import events as ev
from engine import notes
from engine.errors import FileRefused
from engine.events import Mark
from engine.replay import Recorder, read_replay
from engine.replay_lines import line_of
from tests.engine.test_replay import EVENTS, HEADER, START, record, token

END = EVENTS[-1]

BOOKMARK = Mark(1, 0, "bookmark", 1, "the bend")
NOTE = Mark(1, 0, "note", 0, "它为什么这么写？")
ABOUT = Mark(1, 0, "note", None, "The run that went wrong.")


def marks(path: Path) -> list[Mark]:
    return [event for event in read_replay(path).events if isinstance(event, Mark)]


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    return record(tmp_path / "run.jsonl")


def test_marks_stand_behind_what_was_recorded_and_change_none_of_it(recorded: Path) -> None:
    before = recorded.read_bytes()
    for mark in (BOOKMARK, NOTE, ABOUT):
        notes.append(recorded, line_of(mark))
    assert recorded.read_bytes().startswith(before)
    replay = read_replay(recorded)
    assert replay.events == (*EVENTS, BOOKMARK, NOTE, ABOUT)
    assert replay.damage == ""


def test_a_mark_is_one_strict_line_in_the_documented_shape() -> None:
    assert json.loads(line_of(BOOKMARK)) == {
        "kind": "mark", "run_id": 1, "lane": 0, "what": "bookmark", "step": 1, "text": "the bend", "removed": False,
        "version": 1,
    }  # fmt: skip


def test_a_run_that_goes_on_takes_marks_between_its_words(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.jsonl", HEADER)
    for event in (START, token(0), BOOKMARK, token(1, " b"), END):
        recorder.take(event)
    recorder.close()
    recorder.take(NOTE)
    assert recorder.problem is None
    assert read_replay(recorder.path).events == (START, token(0), BOOKMARK, token(1, " b"), END, NOTE)


def test_a_file_that_broke_off_keeps_its_words_when_a_note_is_added(recorded: Path) -> None:
    whole = recorded.read_bytes()
    recorded.write_bytes(whole[: whole.index(b'"kind":"end"') + 20])
    kept = [event for event in read_replay(recorded).events if isinstance(event, ev.TokenEvent)]
    notes.append(recorded, line_of(NOTE))
    replay = read_replay(recorded)
    assert [event for event in replay.events if isinstance(event, ev.TokenEvent)] == kept
    assert NOTE in replay.events
    assert "damaged" in replay.damage


def test_a_file_that_was_moved_is_not_made_anew(recorded: Path) -> None:
    recorded.rename(recorded.with_name("elsewhere.jsonl"))
    with pytest.raises(FileRefused, match=r"run\.jsonl cannot be written"):
        notes.append(recorded, line_of(NOTE))
    assert not recorded.exists()
    notes.append(recorded.with_name("elsewhere.jsonl"), line_of(NOTE))
    assert marks(recorded.with_name("elsewhere.jsonl")) == [NOTE]


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_may_not_be_written_is_refused_with_a_way_out(recorded: Path) -> None:
    recorded.chmod(0o444)
    with pytest.raises(FileRefused) as refused:
        notes.append(recorded, line_of(NOTE))
    assert "elsewhere" in refused.value.fix


def test_a_recording_whose_file_went_away_writes_marks_to_another_place(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.jsonl", HEADER)
    for event in EVENTS:
        recorder.take(event)
    recorder.close()
    recorder.path.unlink()
    recorder.take(BOOKMARK)
    assert recorder.problem is not None
    recorder.take(NOTE)
    assert recorder.move_to(tmp_path / "other.jsonl")
    assert read_replay(recorder.path).events == (*EVENTS, BOOKMARK, NOTE)


def test_marks_of_a_newer_version_are_kept_as_they_stand(recorded: Path) -> None:
    newer = '{"kind":"mark","version":2,"run_id":1,"lane":0,"what":"drawing","points":[1,2]}'
    notes.append(recorded, newer.encode() + b"\n")
    replay = read_replay(recorded)
    assert replay.events == EVENTS
    assert replay.unknown == ((len(EVENTS) + 2, newer),)
    assert replay.damage == ""


@pytest.mark.parametrize("what", ["dog", "", None, 3])
def test_a_mark_of_no_known_kind_is_a_damaged_line(recorded: Path, what: object) -> None:
    values = json.loads(line_of(NOTE)) | {"what": what}
    notes.append(recorded, json.dumps(values).encode() + b"\n")
    assert read_replay(recorded).events == EVENTS
    assert "damaged" in read_replay(recorded).damage


def test_a_bookmark_needs_a_word() -> None:
    with pytest.raises(ValueError, match="no mark"):
        Mark(1, 0, "bookmark", None)


def test_an_annotated_file_cut_anywhere_opens_with_all_that_is_whole(recorded: Path) -> None:
    for mark in (BOOKMARK, NOTE, ABOUT):
        notes.append(recorded, line_of(mark))
    whole = recorded.read_bytes()
    lines = whole.split(b"\n")
    ends = [len(b"\n".join(lines[: n + 1])) for n in range(len(lines))]
    for cut in range(ends[len(EVENTS)] - 5, len(whole)):
        recorded.write_bytes(whole[:cut])
        found = [event for event in read_replay(recorded).events if isinstance(event, (ev.TokenEvent, Mark))]
        complete = sum(cut >= end and b'"kind":"mark"' in line for line, end in zip(lines, ends, strict=True))
        assert found == [*EVENTS[2:4], *(BOOKMARK, NOTE, ABOUT)[:complete]], cut
