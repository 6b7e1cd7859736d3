"""Names made from prompts are names on every system."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.file_names import NAME_BYTES, create_new, safe_name, told_apart


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Why is the sky blue?", "Why is the sky blue"),
        ("a/b", "a b"),
        ("C:\\x", "C x"),
        ("CON", "_CON"),
        ("nul.txt", "_nul.txt"),
        ("com1", "_com1"),
        ("COM¹.log", "_COM¹.log"),
        ("console", "console"),
        ("...hidden", "hidden"),
        ("--help", "help"),
        ("end. . .", "end"),
        ("a\0b\nc\td", "a b c d"),
        ("\u202egpj.exe", "gpj.exe"),
        ("half \ud83d pair", "half pair"),
        ("", "run"),
        ("///", "run"),
        ("天空为什么是蓝色的", "天空为什么是蓝色的"),
    ],
)
def test_names_are_cleaned_for_all_systems(text: str, name: str) -> None:
    assert safe_name(text, ".jsonl") == name + ".jsonl"


@pytest.mark.parametrize("text", ["x" * 300, "蓝" * 86, "🙂" * 64, "e\u0301" * 200, "👩\u200d🚀" * 40, "a" * 119 + "é"])
def test_names_are_cut_at_120_bytes_and_a_whole_character(text: str) -> None:
    name = safe_name(text)
    assert NAME_BYTES - 12 < len(name.encode()) <= NAME_BYTES
    assert unicodedata.normalize("NFC", text).startswith(name)
    assert not name.endswith("\u200d")
    assert len(safe_name(text, ".jsonl").encode()) == len(name.encode()) + 6


@given(st.text())
def test_any_text_makes_a_name_that_stays_the_same(text: str) -> None:
    name = safe_name(text)
    assert name
    assert len(name.encode()) <= NAME_BYTES
    assert not set(name) & set('<>:"/\\|?*\0\n\r')
    assert name[0] not in ". -"
    assert name[-1] not in ". "
    assert safe_name(name) == name


def test_a_taken_name_gets_a_number(tmp_path) -> None:
    names = []
    for _ in range(3):
        file, path = create_new(tmp_path / "run.jsonl")
        file.close()
        names.append(path.name)
    assert names == ["run.jsonl", "run 2.jsonl", "run 3.jsonl"]


def test_files_of_one_name_are_told_apart_by_their_folders():
    a, b, c = Path("/x/a/run.jsonl"), Path("/x/b/run.jsonl"), Path("/y/b/run.jsonl")
    assert told_apart([a, Path("/x/b/other.jsonl")]) == ["run.jsonl", "other.jsonl"]
    assert told_apart([a, b, a]) == ["a/run.jsonl", "b/run.jsonl", "a/run.jsonl"]
    assert told_apart([b, c]) == ["x/b/run.jsonl", "y/b/run.jsonl"]
    assert told_apart([Path("run.jsonl")] * 2) == ["run.jsonl"] * 2
    assert told_apart([]) == []
