"""What is remembered: whatever the file holds, the window opens."""

from __future__ import annotations

import gc
import json
import os
import sys

import pytest

from app.preferences import Preferences, read_preferences, write_preferences


@pytest.fixture
def path(tmp_path):
    return tmp_path / "settings.json"


def test_what_is_written_is_read_back(path):
    wished = Preferences(
        theme="dark",
        prompt="用\u2028🌊\ud800",
        sampling={"seed": 12345678901234567890, "temperature": 0.1},
        stop=["\n\n", "</s>"],
        seconds_per_token=0.25,
    )
    assert write_preferences(wished, path)
    assert read_preferences(path) == (wished, "")


def test_no_file_is_no_news(path):
    assert read_preferences(path) == (Preferences(), "")


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"seed": ' + b"1" * 5000 + b"}",
        b"\x80\x04\x95 a pickle",
        b"null",
    ],
    ids=["empty", "cut", "list", "utf-16", "deep", "digits", "pickle", "null"],
)
def test_a_damaged_file_is_kept_aside_and_said(path, damage):
    path.write_bytes(damage)
    gc.collect()  # what an earlier test left must not be finalised at the bottom of the recursion
    preferences, note = read_preferences(path)
    assert preferences == Preferences()
    (aside,) = path.parent.iterdir()
    assert aside.read_bytes() == damage
    assert aside.name in note


def test_a_second_damaged_file_does_not_take_the_place_of_the_first(path):
    for content in (b"{1", b"{2"):
        path.write_bytes(content)
        read_preferences(path)
    assert {file.read_bytes() for file in path.parent.iterdir()} == {b"{1", b"{2"}


def test_a_file_with_a_byte_order_mark_is_read(path):
    path.write_bytes(b'\xef\xbb\xbf{"theme": "dark"}')
    assert read_preferences(path)[0].theme == "dark"


@pytest.mark.parametrize(
    "values",
    [
        {"theme": 5, "motion": "yes", "stop": [1, 2], "sampling": [], "text_size": True},
        {"seconds_per_token": 10**400},
        {"seconds_per_token": float("nan")},
        {"seconds_per_token": float("inf")},
        {"seconds_per_token": -1},
        {"text_size": 10**30},
        {"text_size": -(10**4000)},
        {"ledger_context": 10**4000, "ledger_lanes": 10**400},
        {"max_new_tokens": -(10**30)},
        {"prompt": None, "recent_files": {"a": 1}, "window": 3},
    ],
)
def test_a_value_of_a_wrong_kind_takes_its_default(path, values):
    path.write_text(json.dumps(values))
    preferences, _ = read_preferences(path)
    assert preferences == Preferences()


def test_a_newer_versions_file_is_used_as_far_as_it_is_known_and_kept_whole(path):
    newer = json.dumps({"schema": 99, "theme": "dark", "lanes": [{"x": 1}]})
    path.write_text(newer)
    preferences, note = read_preferences(path)
    assert preferences.theme == "dark"
    assert "newer" in note
    write_preferences(preferences, path)
    assert newer in {file.read_text() for file in path.parent.iterdir()}
    assert read_preferences(path) == (preferences, "")


def test_a_hostile_file_leaves_no_trace(path, tmp_path):
    """FIL-24: what Qt's own settings would unpickle and run when they are opened."""
    trace = tmp_path / "trace"
    code = f"cos\nsystem\n(S'touch {trace}'\ntR."
    path.write_text(f'[General]\nx="@Variant(\\0\\0\\0\\x7f\\0\\0\\0\\xePyQt_PyObject\\0\\0\\0\\0{code})"\n')
    assert read_preferences(path)[0] == Preferences()
    path.write_text(json.dumps({"theme": code, "sampling": {"__reduce__": code}}))
    read_preferences(path)
    assert not trace.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="folders there have no such rights")
def test_a_folder_that_takes_nothing_is_no_crash(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert not write_preferences(Preferences(), blocked / "settings.json")


def test_a_file_that_cannot_be_replaced_leaves_nothing_half_done(path, monkeypatch):
    write_preferences(Preferences(theme="dark"), path)

    def refuse(*_):
        raise PermissionError("read-only")

    monkeypatch.setattr(os, "replace", refuse)
    assert not write_preferences(Preferences(theme="light"), path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert read_preferences(path)[0].theme == "dark"


def test_two_windows_leave_one_whole_file(path):
    for theme in ("dark", "light") * 20:
        assert write_preferences(Preferences(theme=theme), path)
        assert read_preferences(path)[0].theme == theme
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "values",
    [
        {"window": "no base64 é", "layout": "AAAA", "theme": "purple", "sampling": {"temperature": "hot"}},
        {"window": "AAAA", "layout": "!", "sampling": {"nonsense": 1}, "stop": ["", "a"], "max_new_tokens": 0},
        {"sampling": {"temperature": -5}, "prompt": "\ud800", "model": "\x00", "device_map": "moon"},
        {"sampling": {"seed": 10**400, "top_k": 1e999}},
    ],
)
def test_a_window_opens_with_any_settings(make_window, values):
    window = make_window(**values)
    window.sampling_panel.prepare_run()
    window.running.request()
