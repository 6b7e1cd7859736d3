"""Sweeps in the window: asked on the page, run by the engine, kept, offered again, their runs opened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.events import Sweep, SweepAxis
from widgets.lab.experiment_wishes import GoOn, RunSweep

WISH = RunSweep((SweepAxis("temperature", (0.0, 1.0)), SweepAxis("top_p", (0.5, 1.0))), (1, 2), 4, 3)


@pytest.fixture
def ready(loaded, tmp_path):
    """A loaded window whose sweeps go below tmp_path, its page in the centre."""
    window = loaded(visit=str(tmp_path))
    window.laboratory.show("sweep")
    return window, window.laboratory.page("sweep")


def swept(window, page, until, wish=WISH) -> Sweep:
    window.laboratory.asked(wish)
    until(lambda: not window.engine.busy and page.sweep is not None and page.sweep.complete)
    return page.sweep


def test_a_sweep_of_the_windows_prompt_fills_the_map(ready, until, click):
    window, page = ready
    page.form.show_axes(WISH.axes, WISH.seeds, WISH.max_new_tokens, WISH.batch)
    click(page.bar.start)
    assert window.engine.busy == "experiment"
    until(lambda: page.sweep is not None and page.sweep.complete and not window.engine.busy)
    sweep = page.sweep
    assert sweep.question.asked.prompt == window.prompt_panel.prompt()
    assert sweep.question.asked.raw
    assert sweep.question.base == window.sampling_panel.settings()
    assert page.map.data is not None
    assert page.map.data.columns == ("0.5", "1")
    folder = Path(sweep.question.folder)
    assert folder.parent.name == "sweeps"
    assert len(list(folder.glob("run-*.jsonl"))) == 8
    assert not window.store.runs  # an experiment's runs are in no view
    until(lambda: page.kept and page.kept[0] == sweep)


def test_cancelled_it_is_offered_to_go_on_and_does(ready, until, click):
    window, page = ready
    wish = RunSweep(WISH.axes, tuple(range(6)), 40, 2)
    window.laboratory.asked(wish)
    until(lambda: page.sweep is not None and page.sweep.done >= 2)
    click(page.bar.cancel)
    until(lambda: not window.engine.busy)
    window.store.frame.emit()
    assert 2 <= page.sweep.done < 24
    assert page.go_on.isVisible()
    assert str(24 - page.sweep.done) in page.go_on.text()
    click(page.go_on)
    until(lambda: page.sweep.complete and not window.engine.busy)
    window.store.frame.emit()
    assert not page.go_on.isVisible()


def test_a_cell_opens_its_run_and_several_open_as_lanes(ready, until):
    window, page = ready
    sweep = swept(window, page, until)
    page.map.go((1, 0))
    page.cell.runs.setCurrentRow(1)
    page.map.opened.emit()
    assert window.laboratory.current == "text"
    run = window.store.current
    number = sweep.question.numbers((1, 0))[1]
    assert run.start.settings == sweep.question.run(number).settings
    assert len(run.tokens) == sweep.runs[number].tokens
    window.laboratory.show("sweep")
    page.map.go((0, 0))
    for cell in ((0, 0), (0, 1), (1, 1)):
        page.map.toggle(cell)
    page.cell.compare_button.click()
    lanes = window.store.runs
    assert [lane.start.settings.top_p for lane in lanes] == [0.5, 1.0, 1.0]
    assert [lane.start.lane for lane in lanes] == [0, 1, 2]
    assert len({lane.start.run_id for lane in lanes}) == 1
    assert all(lane.end is not None for lane in lanes)
    assert window.store.compared == tuple(lane.key for lane in lanes)
    assert lanes[0].start.name


def test_a_changed_model_is_refused_on_the_page_with_a_way_out(ready, until):
    window, page = ready
    sweep = swept(window, page, until)
    folder = Path(sweep.question.folder)
    (folder / sweep.question.run(0).file).unlink()
    values = json.loads((folder / "sweep.json").read_text())
    values["model"]["digest"] = "of other files"
    (folder / "sweep.json").write_text(json.dumps(values))
    window.laboratory.asked(GoOn(sweep.question))
    until(lambda: not window.engine.busy)
    window.store.frame.emit()
    assert "files differ" in page.bar.error.text()
    assert "another folder" in page.bar.error.text()


def test_a_sweep_that_went_on_at_the_close_is_offered_at_the_next_start(
    make_window, loaded, until, tmp_path, monkeypatch
):
    from app import experiments as module

    monkeypatch.setattr(module, "sweeps_folder", lambda: tmp_path / "sweeps")
    first = loaded(visit=None)
    first.laboratory.show("sweep")
    page = first.laboratory.page("sweep")
    first.laboratory.asked(RunSweep(WISH.axes, tuple(range(20)), 40, 2))
    until(lambda: page.sweep is not None and page.sweep.done >= 2)
    first.close()
    folder = first.preferences.going_sweep
    assert (Path(folder) / "sweep.json").is_file()
    second = loaded(visit=None, going_sweep=folder)
    until(lambda: "of 80 runs are done" in second.banner.text)
    second.banner._do()
    again = second.laboratory.page("sweep")
    assert second.laboratory.current == "sweep"
    assert again.sweep.question.folder == folder
    again.continue_shown()
    assert second.engine.busy == "experiment"
    until(lambda: again.sweep.done > page.sweep.done)
    second.stop()
    until(lambda: not second.engine.busy)
    assert second.preferences.going_sweep == ""  # stopped by hand is not broken off


def test_without_a_model_or_while_another_works_nothing_is_begun(make_window, ready, until):
    empty = make_window()
    empty.laboratory.show("sweep")
    empty.laboratory.asked(WISH)
    assert "No model" in empty.banner.text
    assert not empty.laboratory.page("sweep").bar.start.isEnabled()
    window, page = ready
    window.laboratory.asked(RunSweep(WISH.axes, tuple(range(20)), 40, 2))
    window.laboratory.asked(WISH)
    assert "at work" in window.banner.text
    window.stop()
    until(lambda: not window.engine.busy)
    assert not page.bar.working


def test_the_form_is_remembered(ready, make_window, until):
    window, page = ready
    page.form.first.choose("top_k")
    page.form._chosen()
    page.form.first_values.setText("5, 50")
    page.form._edited()
    page.form.seeds.set_value(9)
    window.experiments.close()
    kept = json.loads(json.dumps(window.preferences.sweep_form))
    other = make_window(sweep_form=kept)
    other.laboratory.show("sweep")
    form = other.laboratory.page("sweep").form
    assert form.first.currentData() == "top_k"
    assert form.first_values.text() == "5, 50"
    assert form.seeds.value() == 9
    broken = make_window(sweep_form={"names": 7})
    broken.laboratory.show("sweep")
    assert broken.laboratory.page("sweep").form.first.currentData() == "temperature"
