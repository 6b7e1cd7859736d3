"""The heat map answers keys and mouse, its colours go evenly, the form says what a sweep would be."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from PySide6.QtCore import QPointF, Qt
from PySide6.QtTest import QTest

from engine import events as ev
from engine.settings import SamplingSettings
from widgets import theme
from widgets.lab.even_shades import _oklab, shade
from widgets.lab.experiment_wishes import GoOn, OpenRuns, RunSweep
from widgets.lab.figure_words import figure_text, settings_text
from widgets.lab.heat_map import HeatMap, HeatMapData
from widgets.lab.sweep_map import heat_map, table
from widgets.lab.sweep_page import SweepPage

AXES = (ev.SweepAxis("temperature", (0.0, 0.5, 1.0)), ev.SweepAxis("top_p", (0.5, 1.0)))


def run(surprise: float, **changes) -> ev.RunFigures:
    values = {
        "tokens": 8, "mean_surprise_nats": surprise, "mean_entropy_nats": 2.0, "distinct": 1.0, "repetition": 0.0,
        "ended_by_eos": 0.0, "tokens_per_s": 5.0, "reason": "length",
    }  # fmt: skip
    return ev.RunFigures(**(values | changes))


def sweep(done: int = 12, axes=AXES) -> ev.Sweep:
    """Surprise is the run's number."""
    question = ev.SweepQuestion("/somewhere", ev.Asked("水 & fire"), SamplingSettings(), axes, (7, 8))
    runs = tuple(run(float(n)) if n < done else None for n in range(question.count))
    return ev.Sweep(question, "model", "float32", runs, begun="2026-01-31T10:00:00")


@pytest.fixture
def page(shown):
    return shown(SweepPage)


def test_a_map_shows_means_over_seeds_with_their_spread_in_the_tooltip():
    data = heat_map(sweep(), "mean_surprise_nats")
    assert data.values == ((0.5, 2.5), (4.5, 6.5), (8.5, 10.5))
    assert (data.rows, data.columns) == (("0", "0.5", "1"), ("0.5", "1"))
    assert data.span == (0.5, 10.5)
    assert data.place((1, 0)) == pytest.approx(0.4)
    assert "± 0.71" in data.tips[1][0]  # of 4 and 5
    assert "seed 8: 5.00" in data.tips[1][0]
    assert data.words == ("0.50", "10.50")


def test_values_that_are_written_alike_have_one_shade():
    """What rounding left of equal runs in two batches would look like the setting's doing."""
    kept = sweep()
    equal = tuple(run(1.14 + 1e-9 * number) for number in range(12))
    data = heat_map(replace(kept, runs=equal), "mean_surprise_nats")
    assert data.words == ("1.14", "1.14")
    assert {data.place((row, column)) for row in range(3) for column in range(2)} == {0.5}


def test_settings_in_words_tell_of_every_ban_and_of_biases_either_way():
    settings = SamplingSettings(top_k=3, logit_bias=((1, -5.0),), banned=(2,), banned_sequences=((3, 4),))
    assert settings_text(settings) == "temperature 1 · top-k 3 · 1 bias · 2 banned"
    assert figure_text("tokens", 1.0, unit=True) == "1 token"


def test_one_setting_alone_lies_across():
    data = heat_map(sweep(axes=AXES[:1]), "tokens")
    assert (len(data.rows), data.columns) == (1, ("0", "0.5", "1"))


def test_cells_that_are_still_to_be_run_are_empty_and_not_zero():
    data = heat_map(sweep(done=3), "mean_surprise_nats")
    assert math.isnan(data.values[2][1])
    assert data.texts[2][1] == ""
    assert (0, 0) not in data.waiting
    assert {(0, 1), (2, 1)} <= data.waiting
    failed = ev.Sweep(sweep().question, "m", "p", (run(1.0, reason="error"), *[None] * 11))
    assert math.isnan(heat_map(failed, "tokens").values[0][0])


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_shades_go_in_even_steps_of_lightness(qapp, mode):
    theme.set_mode(mode)
    try:
        lightness = [_oklab(shade(step / 10))[0] for step in range(11)]
        steps = [b - a for a, b in pairwise(lightness)]
        assert all(abs(step - steps[0]) < 0.006 for step in steps)  # rounded to 8 bits a channel
        ground = theme.current()
        for step in range(11):
            assert theme.contrast(theme.readable(ground.ink, shade(step / 10)), shade(step / 10)) >= 4.5
    finally:
        theme.set_mode("light")


def test_keys_go_from_cell_to_cell_and_choose(page):
    page.show_sweep(sweep())
    map_ = page.map
    map_.setFocus()
    QTest.keyClick(map_, Qt.Key.Key_Down)
    QTest.keyClick(map_, Qt.Key.Key_Right)
    QTest.keyClick(map_, Qt.Key.Key_Right)  # the edge holds
    assert map_.current == (1, 1)
    assert page.cell.words.text() == "temperature 0.5 · top-p 1"
    QTest.keyClick(map_, Qt.Key.Key_Up, Qt.KeyboardModifier.ShiftModifier)
    assert set(map_.chosen) == {(0, 1), (1, 1)}
    QTest.keyClick(map_, Qt.Key.Key_Escape)
    assert map_.chosen == ()
    QTest.keyClick(map_, Qt.Key.Key_Space)
    QTest.keyClick(map_, Qt.Key.Key_End)
    QTest.keyClick(map_, Qt.Key.Key_Down)
    QTest.keyClick(map_, Qt.Key.Key_Down)
    QTest.keyClick(map_, Qt.Key.Key_Space)
    assert map_.chosen == ((0, 1), (2, 1))  # also cells that are not neighbours
    QTest.keyClick(map_, Qt.Key.Key_Up)
    QTest.keyClick(map_, Qt.Key.Key_Up)
    QTest.keyClick(map_, Qt.Key.Key_Home)
    assert map_.current == (0, 0)
    QTest.keyClick(map_, Qt.Key.Key_Return)
    assert page.wishes == [OpenRuns(("/somewhere/run-00000.jsonl",))]
    assert "temperature 0" in map_.accessibleDescription()


def test_the_mouse_chooses_and_a_double_click_opens(page):
    page.show_sweep(sweep())
    place = page.map.cell_rect((2, 1)).center().toPoint()
    QTest.mouseClick(page.map, Qt.MouseButton.LeftButton, pos=place)
    assert page.map.current == (2, 1)
    QTest.mouseDClick(page.map, Qt.MouseButton.LeftButton, pos=place)
    assert page.wishes[-1] == OpenRuns(("/somewhere/run-00010.jsonl",))
    assert page.map.cell_at(QPointF(1, 1)) is None


def test_chosen_cells_are_compared_with_one_seed_and_a_cell_alone_with_all(page):
    page.show_sweep(sweep())
    page.map.go((0, 0))
    page.compare()
    assert page.wishes[-1].files == ("/somewhere/run-00000.jsonl", "/somewhere/run-00001.jsonl")
    page.map.toggle((0, 1))
    page.map.toggle((2, 0))
    page.cell.runs.setCurrentRow(1)
    page.compare()
    assert page.wishes[-1].files == ("/somewhere/run-00003.jsonl", "/somewhere/run-00009.jsonl")


def test_a_sweep_that_stopped_is_offered_and_a_whole_one_is_not(page):
    question = ev.SweepsQuestion("/folder", 1)
    page.finding(question)
    page.store.take(ev.Answered(question, (sweep(done=5),)))
    page.refresh()
    assert page.sweep is not None
    assert page.go_on.isVisible()
    assert "7 left" in page.go_on.text()
    page.go_on.click()
    assert page.wishes == [GoOn(sweep().question)]
    page.show_sweep(sweep())
    page.refresh()
    assert not page.go_on.isVisible()


def test_what_went_on_while_another_page_was_seen_is_read_from_its_folder(page):
    page.show_sweep(sweep(done=5))
    question = ev.SweepsQuestion("/folder", 2)
    page.finding(question)
    page.store.take(ev.Answered(question, (sweep(done=12),)))
    page.refresh()
    assert page.sweep.complete


def test_nothing_goes_on_while_the_engine_is_at_work(page):
    page.show_sweep(sweep(done=5))
    page.store.set_activity("experiment")  # another page's
    page.refresh()
    assert not page.bar.cancel.isVisible()
    page.continue_shown()
    page.ask()
    assert page.wishes == []


def test_a_kept_sweep_is_not_to_be_chosen_while_one_is_run(page):
    page.kept = (sweep(),)
    page.kept_menu.aboutToShow.emit()
    assert page.kept_menu.actions()[0].isEnabled()
    page.store.set_activity("experiment")
    page.begun(sweep(done=5).question)
    page.kept_menu.aboutToShow.emit()
    assert not page.kept_menu.actions()[0].isEnabled()


def test_why_nothing_can_be_run_stands_there_until_it_can(page):
    known = page.store.facts
    page.store.take(ev.Unloaded(known.name, 0, 0))
    page.refresh()
    page.run_page(one_token=False)
    assert "No model is loaded" in page.bar.error.text()
    assert page.wishes == []
    page.store.take(ev.Loaded(known))
    page.refresh()
    assert page.bar.error.text() == ""


def test_a_wish_carries_what_the_form_says(page):
    page.form.first_values.setText("0, 1")
    page.form._edited()
    page.form.second.choose("")
    page.form._chosen()
    page.bar.start.click()
    (wish,) = page.wishes
    assert wish == RunSweep((ev.SweepAxis("temperature", (0.0, 1.0)),), (0, 1, 2), 64, 16)
    assert "runs: 6" in page.form.sum_label.text()


@pytest.mark.parametrize("values", ["", "hot", "0..1 step 0", "200"])
def test_values_that_cannot_be_are_told_and_nothing_can_be_run(page, values):
    page.form.first_values.setText(values)
    page.form._edited()
    assert page.form.problem_label.isVisible()
    assert not page.bar.start.isEnabled()
    page.ask()
    assert page.wishes == []


def test_progress_fills_the_map_while_it_grows(page):
    question = sweep().question
    page.store.set_activity("experiment")
    page.begun(question)
    event = ev.ExperimentProgress(question, 30, 96, "", 12.5, 61.0, 3, 12, sweep(done=3))
    page.store.take(event)
    page.refresh()
    assert page.map.data.values[0][0] == 0.5
    assert page.bar.cancel.isVisible()
    for words in ("31% done", "3 of 12 runs ended", "12.5 tok/s", "1 min 1 s left"):
        assert words in page.bar.words.text()
    page.store.set_activity("idle")
    page.store.take(ev.Answered(question, sweep()))
    page.refresh()
    assert page.sweep.complete
    assert not page.bar.cancel.isVisible()


def test_the_table_has_every_cell_and_every_figure():
    lines = table(sweep(done=3)).splitlines()
    assert len(lines) == 7
    assert lines[0].split("\t")[:5] == [
        "temperature",
        "top_p",
        "runs",
        "mean_surprise_nats",
        "mean_surprise_nats_deviation",
    ]
    assert lines[1].split("\t")[:4] == ["0", "0.5", "2", "0.5"]
    assert lines[6].split("\t")[2:5] == ["0", "", ""]


def test_a_low_window_takes_from_the_list_of_runs_and_not_from_the_figures(page):
    with_list = page.cell.minimumSizeHint().height()
    page.cell.runs.hide()
    page.cell.layout().activate()
    assert with_list - page.cell.minimumSizeHint().height() <= 3 * page.cell.fontMetrics().lineSpacing()


def test_names_of_figures_are_read_whole_in_a_small_window(qtbot, page):
    page.setStyleSheet(f"* {{ font-size: {theme.base_px()}px }}")
    page.resize(718, 560)  # as in a window 1024 wide
    runs = tuple(run(float(n), tokens=1000 + 300 * n, tokens_per_s=100.0 + 30 * n) for n in range(12))
    page.show_sweep(replace(sweep(), runs=runs))
    qtbot.waitUntil(lambda: page.figure.geometry().right() < page.copy.x())
    grid, metrics = page.cell.grid, page.map.fontMetrics()
    spread = grid.itemAtPosition(0, 2).widget()
    qtbot.waitUntil(lambda: page.cell.geometry().right() < page.width() and spread.width() >= spread.sizeHint().width())
    for row in range(len(ev.FIGURES)):
        name = grid.itemAtPosition(row, 0).widget()
        assert name.width() >= name.sizeHint().width()
    for name in ev.FIGURES:
        data = heat_map(sweep(), name)
        page.map.set_data(data)
        words = f"{data.words[1]} {data.title}"
        assert (
            page.map.legend_bar(data.words[0], words).right() + 8 + metrics.horizontalAdvance(words) <= page.map.width()
        )


def test_a_map_of_thousands_of_cells_finds_its_span_once(qtbot, monkeypatch):
    """Looked for again at each cell it would make each key press of such a map take seconds."""
    size = 60
    rows = tuple(str(n) for n in range(size))
    values = tuple(tuple(float(r * size + c) for c in range(size)) for r in range(size))
    empty = ((("",) * size),) * size
    shown = HeatMap()
    qtbot.addWidget(shown)
    shown.set_data(HeatMapData(rows, rows, "down", "across", values, empty, empty))
    asked = []
    span = HeatMapData.span
    monkeypatch.setattr(HeatMapData, "span", property(lambda data: asked.append(1) or span.fget(data)))
    shown.resize(700, 700)
    shown.grab()
    assert 1 <= len(asked) <= 6
