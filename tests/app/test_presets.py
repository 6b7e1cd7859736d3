"""Presets in the window and in their file: nothing is lost, and no file stops the window."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace

import pytest
from PySide6.QtWidgets import QWidget

from app.preferences import Preferences
from app.presets import Presets
from engine.presets import BUILT_IN, presets_text, read_presets
from engine.settings import Preset, SamplingSettings
from widgets.banner import Banner
from widgets.presets_chooser import PresetChooser
from widgets.run_store import RunStore
from widgets.sampling_panel import SamplingPanel

MINE = Preset("mine", SamplingSettings(top_k=7))
OTHER = Preset("other", SamplingSettings(top_p=0.3))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "config" / "presets.json"


class Host(QWidget):
    """What of the window presets touch."""

    def __init__(self) -> None:
        super().__init__()
        self.store, self.banner, self.preferences = RunStore(self), Banner(self), Preferences()
        self.sampling_panel = SamplingPanel(self.store, self)


@pytest.fixture
def window(qtbot):
    host = Host()
    qtbot.addWidget(host)
    return host


@pytest.fixture
def opened(qtbot, window, path):
    """Opens the presets of another window over the same file."""
    made = []

    def build() -> Presets:
        chooser = PresetChooser()
        qtbot.addWidget(chooser)
        made.append(chooser)
        return Presets(window, chooser, path)

    return build


def in_file(path) -> list[str]:
    return [preset.name for preset in read_presets(path.read_text("utf-8")).presets]


def test_saved_presets_are_there_when_the_window_opens_again(window, opened, path):
    presets = opened()
    window.sampling_panel.take_settings(SamplingSettings(temperature=0.3, seed=10**40))
    presets.save("  warm\n", True)
    assert presets.chooser.current == Preset("warm", SamplingSettings(temperature=0.3, seed=10**40), True)
    again = opened()
    assert again.own == (Preset("warm", SamplingSettings(temperature=0.3, seed=10**40), True),)
    assert again.all[: len(BUILT_IN)] == BUILT_IN


def test_two_windows_keep_each_others_presets(window, opened, path):
    one, two = opened(), opened()
    one.save("from one", False)
    two.save("from two", False)
    assert in_file(path) == ["from one", "from two"]
    one.look_again()
    assert [p.name for p in one.own] == ["from one", "from two"]
    two.delete(two.own[0])
    one.save("more", False)
    assert in_file(path) == ["from two", "more"]


def test_every_change_is_undone_step_by_step(window, opened, path):
    presets = opened()
    window.sampling_panel.take_settings(MINE.settings)
    presets.save("mine", False)
    presets.rename(presets.own[0], "ours")
    assert in_file(path) == ["ours"]
    window.sampling_panel.take_settings(OTHER.settings)
    presets.save("OURS", False)  # replaces
    assert presets.own[0].settings == OTHER.settings
    presets.delete(presets.own[0])
    assert in_file(path) == []
    assert presets.chooser.undo_button.isVisibleTo(presets.chooser)
    seen = []
    for _ in range(4):
        presets.undo()
        seen.append([(p.name, p.settings.top_k) for p in presets.own])
    assert seen == [[("OURS", 0)], [("ours", 7)], [("mine", 7)], []]
    assert in_file(path) == []
    presets.undo()  # nothing is left to undo
    assert not presets.chooser.undo_action.isEnabled()


@pytest.mark.parametrize("name", ["", "  \n", "greedy", "GREEDY", "the model's own"])
def test_a_name_that_cannot_be_is_refused_where_it_is_typed(opened, path, name):
    presets = opened()
    presets.chooser.ask_name()
    presets.save(name, False)
    assert presets.chooser.name_problem.text().endswith((".", "another."))
    assert not path.exists()


def test_renaming_to_anothers_name_is_refused(window, opened, path):
    presets = opened()
    presets.save("one", False)
    presets.save("two", False)
    presets.rename(presets.own[1], "One")
    assert in_file(path) == ["one", "two"]
    assert presets.chooser.name_problem.text()


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}", b"\0"])
def test_a_damaged_file_is_kept_aside_and_the_window_goes_on(opened, path, content):
    path.parent.mkdir()
    path.write_bytes(content)
    presets = opened()
    assert presets.own == ()
    assert "presets.damaged.json" in presets.chooser.note.text()
    assert path.with_name("presets.damaged.json").read_bytes() == content
    presets.save("new", False)
    assert in_file(path) == ["new"]


def test_a_hostile_file_runs_nothing(opened, path, tmp_path):
    """FIL-24: Qt's own settings would unpickle this when they are opened."""
    path.parent.mkdir()
    trace = tmp_path / "trace"
    path.write_text(
        f"[General]\npresets=\"@Variant(\\0\\0\\0\\x7f\\0\\0\\0\\x0ecos\\nsystem\\n(S'touch {trace}'\\ntR.)\"\n"
    )
    assert opened().own == ()
    assert not trace.exists()


def test_a_newer_file_gives_what_is_known_and_is_kept_aside(opened, path):
    path.parent.mkdir()
    text = presets_text([MINE]).replace('"schema": 1', '"schema": 5')
    path.write_text(text)
    presets = opened()
    assert presets.own == (MINE,)
    assert "newer version" in presets.chooser.note.text()
    assert path.with_name("presets.newer.json").read_text() == text
    presets.save("more", False)
    assert in_file(path) == ["mine", "more"]


def test_where_nothing_can_be_written_presets_last_as_long_as_the_window(window, opened, path, monkeypatch):
    presets = opened()
    presets.save("one", False)

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr("engine.export_file.create_new", refuse)
        presets.save("two", False)
    assert [p.name for p in presets.own] == ["one", "two"]
    assert "Permission denied" in window.banner.text
    assert in_file(path) == ["one"]
    presets.look_again()
    assert [p.name for p in presets.own] == ["one", "two"]
    presets.save("three", False)  # it can be written again
    assert in_file(path) == ["one", "two", "three"]


def test_files_that_people_exchange(window, opened, path, tmp_path):
    presets = opened()
    window.sampling_panel.take_settings(MINE.settings)
    presets.save("mine", False)
    presets.write_to(tmp_path / "out.json")
    assert in_file(tmp_path / "out.json") == ["mine"]
    assert presets.take_file(tmp_path / "out.json")  # all are here already
    assert in_file(path) == ["mine"]
    (tmp_path / "in.json").write_text(presets_text([Preset("Mine", OTHER.settings), OTHER, BUILT_IN[0]]))
    assert presets.take_file(tmp_path / "in.json")
    assert in_file(path) == ["mine", "Mine 2", "other", "greedy 2"]
    assert presets.take_file(tmp_path / "in.json")  # the same once more, now under other names
    assert in_file(path) == ["mine", "Mine 2", "other", "greedy 2"]
    presets.undo()
    assert in_file(path) == ["mine"]


def test_equal_settings_under_another_name_are_another_preset(opened, path, tmp_path):
    presets = opened()
    (tmp_path / "in.json").write_text(presets_text([replace(MINE, name="7")]))
    presets.take_file(tmp_path / "in.json")
    (tmp_path / "more.json").write_text(presets_text([replace(MINE, name="x"), replace(MINE, name="x 7")]))
    presets.take_file(tmp_path / "more.json")
    assert in_file(path) == ["7", "x", "x 7"]


def test_a_file_that_cannot_be_imported_is_a_sentence(opened, tmp_path, path):
    presets = opened()
    for name, content in (("no.json", None), ("bad.json", b"\xff"), ("other.json", b"{}"), ("deep.json", b"[" * 10**5)):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        assert not presets.take_file(tmp_path / name)
        assert presets.chooser.note.text().endswith(".")
    assert not presets.take_file(tmp_path)
    assert presets.own == ()


def test_a_visit_writes_no_presets(make_window):
    window = make_window()
    assert window.presets.path is None
    window.presets.save("here", False)
    assert window.sampling_panel.presets.current.name == "here"


def test_the_models_own_preset_appears_with_the_model(loaded, qtbot):
    window = loaded()
    qtbot.waitUntil(lambda: window.presets.all[0].source == "model")
    model = window.presets.all[0]
    assert model.settings == window.store.facts.generation_defaults
    window.engine.unload()
    qtbot.waitUntil(lambda: all(preset.source != "model" for preset in window.presets.all))


def test_the_file_is_plain_json_with_a_version(window, opened, path):
    opened().save("河流", True)
    found = json.loads(path.read_text("utf-8"))
    assert (found["kind"], found["schema"]) == ("glasswork presets", 1)
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) & 0o600 == 0o600
