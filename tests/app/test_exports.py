"""Exports in the window: whole files, nothing frozen, a way out where a place cannot be written."""

from __future__ import annotations

import csv
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QMessageBox

from engine.settings import SamplingSettings
from tests.widgets.events_factory import end, start, tokens
from widgets.export_dialog import ExportWish, picture_path


@pytest.fixture
def window(make_window, qtbot):
    """A window in which three runs are finished: a run of two lanes, and one after it."""
    window = make_window()
    window.build_plots()
    for run_id, lanes in ((1, 2), (2, 1)):
        for lane in range(lanes):
            window.store.take(start(run_id, lane, lanes=lanes, settings=SamplingSettings(seed=lane)))
        for lane in range(lanes):
            made = tokens(["One", f" {'two' if lane else 'three'}", "="], run_id=run_id, lane=lane)
            for event in (*made, end(made)):
                window.store.take(event)
    window.store.frame.emit()
    return window


def written(window, until, wish: ExportWish) -> bool:
    """Exports; whether a file came of it."""
    window.exports.ask(wish)
    until(lambda: not window.exports._going)
    return Path(wish.path).exists()


KINDS = ["html", "markdown", "csv", "jsonl", "chat", "transformers", "openai"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_written_from_the_dialog(window, until, qtbot, tmp_path, kind):
    dialog = window.exports.show()
    dialog.choose(kind, str(tmp_path))
    assert dialog.kind.name == kind
    path = Path(dialog.path())
    assert path.parent == tmp_path
    assert path.suffix == dialog.kind.ending
    qtbot.mouseClick(dialog.export_button, Qt.MouseButton.LeftButton)
    until(lambda: not window.exports._going)
    assert path.stat().st_size > 100
    assert not dialog.isVisible()
    assert str(path) in window.banner.text
    assert os.listdir(tmp_path) == [path.name]


def test_the_scopes_are_this_run_those_beside_it_and_all(window, until, tmp_path):
    window.store.show(window.store.runs[0])
    found = {}
    for scope in ("run", "lanes", "all"):
        assert written(window, until, ExportWish("csv", scope, str(tmp_path / f"{scope}.csv")))
        with open(tmp_path / f"{scope}.csv", encoding="utf-8-sig", newline="") as file:
            found[scope] = [(row["run"], row["lane"], row["step"]) for row in csv.DictReader(file)]
    assert {row[:2] for row in found["run"]} == {("1", "A")}
    assert {row[:2] for row in found["lanes"]} == {("1", "A"), ("1", "B")}
    assert {row[:2] for row in found["all"]} == {("1", "A"), ("1", "B"), ("2", "A")}
    assert len(found["all"]) == 9


def test_what_stands_side_by_side_is_what_a_report_compares(window, until, tmp_path):
    window.store.compared = ((1, 1), (2, 0))
    assert written(window, until, ExportWish("html", "lanes", str(tmp_path / "r.html")))
    page = (tmp_path / "r.html").read_text("utf-8")
    assert "run 1, lane B" in page
    assert "lane A" not in page.split("Texts")[1]


def test_exports_have_the_reference_the_letters_and_the_order_of_the_lanes_page(window, until, tmp_path):
    store = window.store
    other = store.runs[1].tokens
    other[1] = replace(other[1], token_id=99)
    window.laboratory.show("lanes")
    page = window.laboratory.page("lanes")
    store.compare(store.runs[:2])
    page.look()
    columns = page.texts.columns
    first, second = (columns[lane.key] for lane in page.lanes.lanes)
    second.left_action.trigger()
    second.reference_action.trigger()
    assert [columns[lane.key].chip.letter for lane in page.lanes.lanes] == ["B", "A"]
    for kind in ("html", "markdown", "csv", "jsonl"):
        assert written(window, until, ExportWish(kind, "lanes", str(tmp_path / kind)))
    report = (tmp_path / "html").read_text("utf-8")
    assert "<dt>compared with</dt><dd>lane B</dd>" in report
    assert "Parts from lane B at token 2" in report
    assert report.index("<h3>lane B</h3>") < report.index("<h3>lane A</h3>")
    assert re.findall('data-mark="(.)"', report) == ["A", "A"]
    assert "compared with: lane B" in (tmp_path / "markdown").read_text("utf-8")
    with open(tmp_path / "csv", encoding="utf-8-sig", newline="") as file:
        assert [(row["lane"], row["text"]) for row in csv.DictReader(file)][1::3] == [("B", " two"), ("A", " three")]
    rows = [json.loads(line) for line in (tmp_path / "jsonl").read_text("utf-8").splitlines()]
    assert [row["lane"] for row in rows] == ["B"] * 3 + ["A"] * 3
    first.reference_action.trigger()
    assert written(window, until, ExportWish("html", "lanes", str(tmp_path / "html")))
    assert "Parts from lane A at token 2" in (tmp_path / "html").read_text("utf-8")


@pytest.mark.parametrize("scope", ["run", "lanes", "all"])
def test_a_lane_that_has_another_letter_on_the_page_has_it_in_every_export(window, until, tmp_path, scope):
    store = window.store
    for lane in range(2):
        store.take(start(3, lane, lanes=2))
    for lane in range(2):
        store.take(end(tokens(["One"], run_id=3, lane=lane), run_id=3, lane=lane))
    first, lane = store.run((1, 0)), store.run((3, 0))
    store.compare([first, lane])
    store.show(lane)
    assert store.letter(lane) == "C"
    assert written(window, until, ExportWish("html", scope, str(tmp_path / "r.html")))
    report = (tmp_path / "r.html").read_text("utf-8")
    assert "un 3, lane C" in report
    assert "un 3, lane A" not in report
    if scope == "all":
        assert all(f"<h3>{name}</h3>" in report for name in ("A: run 1, lane A", "C: run 3, lane C"))
        assert "run 3, lane B</h3>" in report


def test_pictures_are_in_the_report_as_they_stand(window, until, tmp_path):
    wish = ExportWish("html", "run", str(tmp_path / "r.html"), pictures=("memory", "timeline"))
    assert written(window, until, wish)
    assert (tmp_path / "r.html").read_text("utf-8").count("data:image/png;base64,") == 2


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_each_view_is_a_picture_of_its_own(window, until, tmp_path, kind):
    names = ("memory", "kv_cache", "speed", "timeline", "word")
    wish = ExportWish(kind, "run", str(tmp_path / f"p.{kind}"), pictures=names)
    written(window, until, wish)
    assert sorted(os.listdir(tmp_path)) == sorted(f"p-{name}.{kind}" for name in names)
    for name in names:
        data = (tmp_path / f"p-{name}.{kind}").read_bytes()
        if kind == "png":
            assert data.startswith(b"\x89PNG")
        else:
            assert QSvgRenderer(data).isValid()
            assert b"<text" in data  # words stay words
    if kind == "svg":
        assert b"<image" not in (tmp_path / "p-speed.svg").read_bytes()  # a plot is drawn, not photographed


def test_a_hidden_view_is_not_offered(window, tmp_path):
    window.docks["speed"].hide()
    dialog = window.exports.show()
    dialog.choose("svg", str(tmp_path))
    assert "speed" not in dialog.chosen_pictures()
    assert "memory" in dialog.chosen_pictures()
    assert picture_path(dialog.path(), "speed") not in dialog.files()
    dialog.reject()


def test_a_place_that_cannot_be_written_is_told_where_it_was_asked(window, until, tmp_path):
    dialog = window.exports.show()
    dialog.choose("csv", str(tmp_path))
    dialog.file.setText(str(tmp_path / "no such folder" / "a.csv"))
    dialog.ask()
    until(lambda: not window.exports._going)
    assert dialog.isVisible()
    assert "another place" in dialog.state.text()
    dialog.file.setText(str(tmp_path / "a.csv"))
    dialog.ask()
    until(lambda: not window.exports._going)
    assert (tmp_path / "a.csv").exists()


def test_a_long_export_is_stopped_and_leaves_the_older_file(window, until, qtbot, tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_text("before")

    def endless(*args):
        while True:
            yield "x"

    monkeypatch.setattr("app.exports.pieces_of", endless)
    dialog = window.exports.show()
    dialog.choose("csv", str(tmp_path))
    dialog.file.setText(str(path))
    assert dialog.export_button.text() == "Replace"
    told = []
    window.exports.worker.progress.connect(told.append)
    dialog.ask()
    until(lambda: told)
    assert dialog.progress.isVisible()
    assert dialog.close_button.text() == "Stop"
    qtbot.mouseClick(dialog.close_button, Qt.MouseButton.LeftButton)
    until(lambda: not window.exports._going)
    assert (path.read_text(), os.listdir(tmp_path)) == ("before", ["a.csv"])
    assert "nothing was written" in dialog.state.text()
    dialog.reject()
    assert not dialog.isVisible()


def test_the_window_closes_while_an_export_goes_on(window, until, tmp_path, monkeypatch):
    def endless(*args):
        while True:
            yield "x"

    monkeypatch.setattr("app.exports.pieces_of", endless)
    window.exports.ask(ExportWish("csv", "run", str(tmp_path / "a.csv")))
    until(lambda: os.listdir(tmp_path))
    window.close()
    assert os.listdir(tmp_path) == []


def test_a_running_run_goes_out_as_it_stands(window, until, tmp_path):
    window.store.take(start(3))
    window.store.take(tokens(["begun"], run_id=3)[0])
    assert written(window, until, ExportWish("chat", "run", str(tmp_path / "a.json")))
    assert json.loads((tmp_path / "a.json").read_text("utf-8"))["messages"][-1]["content"] == "begun"


def test_kind_and_folder_are_remembered(window, until, tmp_path):
    assert written(window, until, ExportWish("markdown", "run", str(tmp_path / "a.md")))
    assert window.preferences.export_kind == "markdown"
    assert window.preferences.export_folder == str(tmp_path)
    dialog = window.exports.show()
    assert dialog.kind.name == "markdown"
    assert Path(dialog.path()).parent == tmp_path
    dialog.reject()


def test_without_a_run_the_dialog_says_what_to_press(make_window):
    window = make_window()
    dialog = window.exports.show()
    assert not dialog.export_button.isEnabled()
    assert "press Run" in dialog.state.text()
    dialog.reject()
    window.exports.copy_openai()
    assert "press Run" in window.banner.text


def test_a_name_of_ones_own_stays_when_the_kind_changes(window, tmp_path):
    dialog = window.exports.show()
    dialog.choose("csv", str(tmp_path))
    dialog.file.setText(str(tmp_path / "mine.csv"))
    dialog.list.setCurrentRow(0)
    assert dialog.path() == str(tmp_path / "mine.html")
    dialog.file.setText("bare")
    assert dialog.path() == str(tmp_path / "bare.html")
    dialog.reject()


def test_a_prompt_makes_a_name_that_every_system_takes(window):
    run = window.store.current
    run.start = replace(run.start, prompt='CON: a/b\0"河流' * 30)
    name = Path(window.exports.show().path()).name
    assert len(name.encode()) < 200
    assert not set(name) & set('/\\:*?"<>|\0')
    window.exports.dialog.reject()


def test_copies_are_what_the_files_hold(window):
    window.exports.copy_transformers()
    assert "AutoModelForCausalLM" in QGuiApplication.clipboard().text()
    window.exports.copy_openai()
    assert "curl" in QGuiApplication.clipboard().text()
    window.exports.copy_chat()
    assert json.loads(QGuiApplication.clipboard().text())["messages"][-1]["content"] == "One three="


def test_every_act_has_a_key_and_is_in_the_list_of_keys(window):
    window.show_keys()
    box = window.findChild(QMessageBox)
    lines = box.text().split("\n")
    for act in ("Export…", "Copy as a program for transformers", "Copy as a request for OpenAI's API"):
        assert any(line.split("\t")[0] and line.endswith(act) for line in lines)
    box.close()


def test_what_fails_without_the_dialog_is_told_above_the_text_and_the_dialog_is_free_again(window, until, tmp_path):
    window.exports.show().reject()
    assert not written(window, until, ExportWish("csv", "run", str(tmp_path / "none" / "a.csv")))
    assert "another place" in window.banner.text
    dialog = window.exports.show()
    assert not dialog.busy
    assert dialog.export_button.isEnabled()
    dialog.reject()
