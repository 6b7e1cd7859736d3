"""Sweeps in the window: asked on the page, run by the engine, kept, offered again, their runs opened."""

from __future__ import annotations

import json
import re
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
    until(lambda: window.store.current is not None and not window.replays.at_work)
    run = window.store.current
    number = sweep.question.numbers((1, 0))[1]
    assert run.start.settings == sweep.question.run(number).settings
    assert len(run.tokens) == sweep.runs[number].tokens
    window.laboratory.show("sweep")
    page.map.go((0, 0))
    for cell in ((0, 0), (0, 1), (1, 1)):
        page.map.toggle(cell)
    page.cell.compare_button.click()
    until(lambda: window.store.compared and not window.replays.at_work)
    lanes = [window.store.run(key) for key in window.store.compared]
    assert window.laboratory.current == "lanes"
    assert [lane.start.settings.top_p for lane in lanes] == [0.5, 1.0, 1.0]
    assert all(lane.end is not None for lane in lanes)
    assert lanes[0].start.name == "temperature 0, top_p 0.5, seed 2"  # the seed that was chosen


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
    second.engine.stop()
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
    assert "experiment goes on" in window.banner.text
    window.laboratory.show_text()
    window.running.start_run()
    assert "experiment goes on" in window.banner.text
    window.running.stop()
    until(lambda: not window.engine.busy)
    assert not window.banner.isVisible()  # it is true no longer
    window.laboratory.show("sweep")
    until(lambda: not page.bar.working)  # the page follows a frame later


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


# ---------------------------------------------------------------- luck or setting


def test_luck_compares_two_settings_of_the_windows_prompt(loaded, until, click):
    window = loaded()
    window.laboratory.show("luck")
    page = window.laboratory.page("luck")
    assert page.list.sources[0].settings == window.sampling_panel.settings()
    page.restore({"seeds": 4, "tokens": 5})
    click(page.bar.start)
    until(lambda: page.luck is not None and not window.engine.busy)
    found = page.luck
    assert found.question.asked.prompt == window.prompt_panel.prompt()
    assert [len(side) for side in found.runs] == [4, 4]
    assert page.table.topLevelItemCount() == 6
    page.plot.choose((1, 2))
    assert page.text.toPlainText() == found.texts[1][2]
    assert not window.store.runs
    window.experiments.close()
    assert window.preferences.luck_form["seeds"] == 4


def test_luck_that_is_stopped_leaves_what_was_there(loaded, until, click):
    window = loaded()
    window.laboratory.show("luck")
    page = window.laboratory.page("luck")
    page.restore({"seeds": 8, "tokens": 5000})
    window.running.start_run()  # Run means what is seen
    assert window.engine.busy == "experiment"
    until(lambda: page.bar.cancel.isVisible())
    click(page.bar.cancel)
    until(lambda: not window.engine.busy)
    window.store.frame.emit()
    assert page.luck is None
    assert page.bar.start.isVisible()
    page.list.undo()  # nothing to undo is harmless


# ---------------------------------------------------------------- blind


def begin_blind(window, click, **values):
    window.laboratory.show("blind")
    page = window.laboratory.page("blind")
    page.restore({"tokens": 8, "planned": 3, "at_end": True} | values)
    click(page.bar.start)
    return page


def test_a_blind_test_from_the_first_round_to_the_verdict(loaded, until, click, qtbot, tmp_path):
    from PySide6.QtCore import Qt

    from engine.blind_files import read_test

    window = loaded(visit=str(tmp_path))
    page = begin_blind(window, click)
    for votes in range(3):
        until(lambda votes=votes: page.test.open_round is not None and len(page.test.voted) == votes)
        shown = page.test.open_round
        texts = [edit.toPlainText() for edit in page.round._texts]
        # A text field shows each kind of line end as a new line.
        assert texts == ["\n".join(re.split("\r\n|\r", shown.text_at(place))) for place in range(2)]
        assert [panel.title_label.text() for panel in page.round._panels] == ["1", "2"]
        assert not window.store.runs
        qtbot.keyClick(page.round, [Qt.Key.Key_1, Qt.Key.Key_2, Qt.Key.Key_0][votes])
    assert page.test.finished
    assert [each.vote for each in page.test.rounds] == [0, 1, -1]
    assert page._stack.currentWidget() is page.result
    assert "no difference seen" in page.result.words.text()
    until(lambda: not window.engine.busy)
    (file,) = (tmp_path / "blind").glob("*.json")
    assert read_test(file) == page.test
    assert window.experiments.blind.export_to(tmp_path / "votes.csv", page.test)
    assert (tmp_path / "votes.csv").read_text(encoding="utf-8").startswith("\ufeff")
    assert window.experiments.blind.export_to(tmp_path / "votes.json", page.test)
    assert len(json.loads((tmp_path / "votes.json").read_text(encoding="utf-8"))["rounds"]) == 3
    assert not window.experiments.blind.export_to(tmp_path / "no folder" / "votes.csv", page.test)
    assert window.banner.text


def test_a_vote_is_taken_back_and_a_test_goes_on_at_the_next_start(loaded, until, click, qtbot, tmp_path):
    first = loaded(visit=str(tmp_path))
    page = begin_blind(first, click, planned=9)
    until(lambda: page.test.open_round is not None)
    before = page.test.open_round
    page.round.vote(0)
    until(lambda: page.test.open_round is not None and len(page.test.voted) == 1)
    page.take_back()
    assert page.test.open_round == before
    assert not page.test.voted
    page.round.vote(1)
    until(lambda: page.test.open_round is not None and not first.engine.busy)
    kept = page.test
    first.close()
    second = loaded(visit=str(tmp_path))
    second.laboratory.show("blind")
    again = second.laboratory.page("blind")
    assert again.test == kept
    assert [edit.toPlainText() for edit in again.round._texts] == [kept.open_round.text_at(p) for p in range(2)]
    again.round.vote(-1)
    assert len(again.test.voted) == 2
    until(lambda: again.resume.isVisible() or again.test.open_round is not None)
    if again.test.open_round is None:
        click(again.resume)
    until(lambda: again.test.open_round is not None)
    again.finish()
    assert again.result.go_on.isVisibleTo(again)
    assert "Ended after 2 of 9" in again.result.notes.text()
    until(lambda: not second.engine.busy)


def test_names_are_told_after_each_vote_where_that_was_chosen(loaded, until, click, qtbot):
    window = loaded()
    page = begin_blind(window, click, at_end=False, planned=2)
    until(lambda: page.test.open_round is not None)
    shown = page.test.open_round
    page.round.vote(0)
    names = [f"{place + 1} · {page.test.name(shown.shown[place][0])}" for place in range(2)]
    until(lambda: [panel.title_label.text() for panel in page.round._panels] == names)  # once there is room
    page.take_back()  # its names were seen: the round is gone
    assert page.test.rounds == () or page.test.rounds[0].seed != shown.seed
    until(lambda: page.test.open_round is not None)
    page.round.vote(0)
    page.next_round()
    until(lambda: page.test.open_round is not None)
    page.round.vote(0)
    page.next_round()
    assert page.test.finished
    until(lambda: not window.engine.busy)


def test_settings_that_write_the_same_are_told_and_not_shown(loaded, until, click):
    from engine.settings import SamplingSettings
    from widgets.lab.settings_list import Named, as_dicts

    window = loaded()
    greedy = [Named(SamplingSettings(temperature=0.0)), Named(SamplingSettings(temperature=0.0, top_p=0.5))]
    page = begin_blind(window, click, settings=as_dicts(greedy))
    until(lambda: page.test is not None and page.test.equal == 10 and not window.engine.busy)
    assert page.test.rounds == ()
    assert "make no difference" in page.bar.error.text()
    page.setup.list.restore([greedy[0], greedy[0]])
    page.set_up()
    assert not page.bar.start.isEnabled()
    assert "same" in page.bar.start.toolTip()


def test_a_blind_test_begins_with_the_lanes_that_were_set_up(make_window):
    window = make_window()
    window.laboratory.show("lanes")
    lanes = window.laboratory.page("lanes").lanes.lanes
    window.laboratory.show("blind")
    page = window.laboratory.page("blind")
    assert page.setup.list.settings() == tuple(lane.settings for lane in lanes)
    assert [source.settings for source in page.setup.list.sources[1:]] == [lane.settings for lane in lanes]
