"""A file is there whole or as it was before, whatever happens while it is written."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from engine import export_file
from engine.control import Control
from engine.errors import Cancelled, FileRefused
from engine.export_file import LOOK_EVERY, write_whole
from engine.replay import Recorder


@pytest.fixture
def old(tmp_path) -> Path:
    path = tmp_path / "old.csv"
    path.write_text("before")
    return path


def only(path: Path) -> list[str]:
    return sorted(os.listdir(path.parent))


def test_pieces_become_the_file_and_progress_counts_them(tmp_path, monkeypatch):
    monkeypatch.setattr("engine.export_file.TELL_EVERY_S", 0.0)
    path, told = tmp_path / "河流.csv", []
    pieces = [f"line {i}\r\n" for i in range(1000)]
    size = write_whole(path, pieces, Control(), told.append)
    assert path.read_bytes() == "".join(pieces).encode()
    assert size == path.stat().st_size
    assert told == sorted(told)
    assert told[-1] > 900
    assert only(path) == ["河流.csv"]


def test_progress_is_told_no_faster_than_it_can_be_shown(tmp_path, monkeypatch):
    monkeypatch.setattr("engine.export_file.TELL_EVERY_S", 1e9)
    told = []
    write_whole(tmp_path / "a", ["x"] * 1000, Control(), told.append)
    assert told == [LOOK_EVERY]


def test_a_file_has_the_rights_of_any_new_file(tmp_path):
    other = tmp_path / "other"
    other.touch()
    write_whole(tmp_path / "new", ["a"])
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == stat.S_IMODE(other.stat().st_mode)


def test_a_cancelled_export_leaves_the_older_file(old):
    control = Control()

    def pieces():
        for i in range(10_000):
            if i == 500:
                control.cancel()
            yield "x" * 1000

    with pytest.raises(Cancelled):
        write_whole(old, pieces(), control)
    assert old.read_text() == "before"
    assert only(old) == ["old.csv"]


def test_a_full_disk_is_a_sentence_and_leaves_no_half_file(old, monkeypatch):
    def full(file, block):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(export_file, "_written", full)
    with pytest.raises(FileRefused) as refused:
        write_whole(old, ["a"] * 10)
    assert os.strerror(errno.ENOSPC) in refused.value.what
    assert "another place" in refused.value.fix
    assert old.read_text() == "before"
    assert only(old) == ["old.csv"]


def test_a_disk_that_is_full_only_when_asked_to_keep_it_is_told_too(old, monkeypatch):
    def full(descriptor):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileRefused):
        write_whole(old, ["a"])
    assert (old.read_text(), only(old)) == ("before", ["old.csv"])


@pytest.mark.parametrize("name", ["no/such/folder.csv", "", "\0.csv", "a" * 300])
def test_a_place_that_cannot_be_is_a_sentence(tmp_path, name):
    with pytest.raises(FileRefused):
        write_whole(tmp_path / name, ["a"])
    assert os.listdir(tmp_path) == []


def test_a_read_only_file_is_not_replaced(old, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may do all
    with pytest.raises(FileRefused):
        write_whole(old, ["a"])
    assert old.read_text() == "before"


def test_what_fails_in_the_middle_leaves_nothing_of_it(old):
    def pieces():
        yield "a" * 2**20
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_whole(old, pieces())
    assert (old.read_text(), only(old)) == ("before", ["old.csv"])


@pytest.mark.skipif(not os.path.exists("/dev/null"), reason="no such device here")
def test_a_device_is_written_through():
    write_whole("/dev/null", ["a"])
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_halves_of_characters_end_no_export(tmp_path):
    write_whole(tmp_path / "a", ["\ud83d"])
    assert (tmp_path / "a").read_bytes() == b"?"


def test_a_recording_is_never_replaced_by_an_export_of_it(tmp_path):
    path = tmp_path / "run.jsonl"
    recorder = Recorder(path, {"model": "tiny"})
    recorder.close()
    before = path.read_bytes()
    with pytest.raises(FileRefused, match="it is a recording, which would be lost"):
        write_whole(path, ['{"step":0}\n'])
    assert path.read_bytes() == before
    assert only(path) == ["run.jsonl"]
