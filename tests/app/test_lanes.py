"""Lanes through the whole window on a tiny model: what parts them is found where their token ids first differ."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from app.laboratory import TEXT
from engine.events import RunStart, SettingsChanged, TokenEvent, TokenNames
from engine.figures import lane_letter
from engine.replay import read_replay
from engine.settings import LanePrompt, LoadPlan, Preset, SamplingSettings
from tests.app.test_window import Listener, over
from widgets.lab.lane_set import Lane, LaneSet
from widgets.lab.vary_dialog import Variation

# A tiny model's odds are flat, so that a little temperature parts lanes soon, and not at once.
COOL, HOT, NARROW = (
    SamplingSettings(temperature=0.3, seed=5),
    SamplingSettings(temperature=0.6, seed=5),
    SamplingSettings(temperature=0.3, top_k=2, seed=5),
)


def page_with(window, *settings, **changes):
    window.laboratory.show("lanes")
    page = window.laboratory.pages["lanes"]
    lanes = tuple(Lane(key, each) for key, each in enumerate(settings))
    page.restore(replace(LaneSet(lanes, 0, max_new_tokens=40), **changes))
    return page


def columns(page):
    return [page.texts.columns[lane.key] for lane in page.lanes.lanes]


def texts(page):
    return [[token.token_id for token in column.source.run.tokens] for column in columns(page)]


def first_difference(one, other):
    return next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)


def written(window, page, until):
    until(lambda: page.store.compared and over(window) and all(not c.source.run.running for c in columns(page)))
    page.look()


def test_lanes_part_where_their_token_ids_first_differ(loaded, until):
    window = loaded()
    page = page_with(window, COOL, HOT, NARROW)
    window.run_action.trigger()  # Ctrl+Return means what is seen
    written(window, page, until)
    ids = texts(page)
    assert [len(each) for each in ids] == [40, 40, 40]
    for column, mine in zip(columns(page)[1:], ids[1:], strict=True):
        parting = column.watch.parting
        assert (parting.step if parting else None) == first_difference(ids[0], mine)
    assert columns(page)[1].watch.parting is not None
    assert columns(page)[1].watch.parting.mine.u == columns(page)[1].watch.parting.theirs.u
    table = page.texts.table.view.rows.rows
    assert {row.step for row in table} == {c.watch.parting.step for c in columns(page)[1:] if c.watch.parting}


def test_equal_lanes_write_the_same(loaded, until):
    window = loaded()
    page = page_with(window, HOT, HOT)
    window.run_action.trigger()
    written(window, page, until)
    assert texts(page)[0] == texts(page)[1]
    page.texts.write_words()
    assert columns(page)[1].parting_label.text() == "the same words as A to the end"


@pytest.mark.parametrize("lockstep", [True, False])
def test_a_lane_that_is_edited_while_it_writes_changes_alone_from_its_next_token(loaded, until, lockstep):
    window = loaded(seconds_per_token=0.02)
    heard = Listener(window)
    page = page_with(window, COOL, COOL, max_new_tokens=60, lockstep=lockstep)
    window.run_action.trigger()
    until(lambda: len(window.store.runs) == 2 and len(window.store.runs[1].tokens) >= 5)
    page._edited_lane(replace(page.lanes.lanes[1], settings=HOT), False)
    until(lambda: any(isinstance(event, SettingsChanged) for event in heard.events))
    window.engine.set_pace(0.0)
    written(window, page, until)
    changes = [event for event in heard.events if isinstance(event, SettingsChanged)]
    assert [(change.lane, change.settings) for change in changes] == [(1, HOT)]
    step = changes[0].step
    assert step >= 5
    for lane, before, after in ((0, COOL, COOL), (1, COOL, HOT)):
        used = [e.settings for e in heard.events if isinstance(e, TokenEvent) and e.lane == lane]
        assert used == [before] * step + [after] * (len(used) - step)
    assert columns(page)[1].canvas.changed_at.keys() == {step}
    assert texts(page)[0][:step] == texts(page)[1][:step]


def test_the_windows_sliders_change_the_lane_that_is_shown(loaded, until):
    window = loaded(seconds_per_token=0.02)
    heard = Listener(window)
    page_with(window, COOL, COOL, max_new_tokens=10_000)
    window.run_action.trigger()
    until(lambda: len(window.store.runs) == 2 and window.store.runs[1].tokens)
    window.store.show(window.store.runs[1])
    window.sampling_panel.take_settings(HOT)
    until(lambda: any(isinstance(event, SettingsChanged) for event in heard.events))
    assert {event.lane for event in heard.events if isinstance(event, SettingsChanged)} == {1}


def test_all_lanes_lie_in_one_recording_with_their_names(loaded, until, tmp_path):
    window = loaded(visit=str(tmp_path))
    page = page_with(window, COOL, HOT)
    page.take(page.lanes.with_lane(replace(page.lanes.lanes[1], name="hot")))
    window.run_action.trigger()
    written(window, page, until)
    (path,) = tmp_path.glob("*.jsonl")
    replay = read_replay(path)
    assert [run.start.name for run in window.store.runs] == ["", "hot"]
    told = [[e.token_id for e in replay.events if isinstance(e, TokenEvent) and e.lane == lane] for lane in (0, 1)]
    assert told == texts(page)


def test_a_lane_that_was_moved_before_the_run_has_its_letter_in_the_recording_too(loaded, until, tmp_path):
    window = loaded(visit=str(tmp_path))
    page = page_with(window, COOL, HOT, NARROW)
    columns(page)[0].remove_action.trigger()
    columns(page)[1].left_action.trigger()
    window.run_action.trigger()
    written(window, page, until)
    assert [(lane.letter, lane.settings) for lane in page.lanes.lanes] == [("B", NARROW), ("A", HOT)]
    assert [column.source.run.start.settings for column in columns(page)] == [NARROW, HOT]
    (path,) = tmp_path.glob("*.jsonl")
    starts = [event for event in read_replay(path).events if isinstance(event, RunStart)]
    assert [(lane_letter(start.lane), start.settings) for start in starts] == [("A", HOT), ("B", NARROW)]
    assert [(run.letter, run.start.settings) for run in window.exports.taken("lanes")] == [("B", NARROW), ("A", HOT)]


def test_a_recording_of_lanes_opens_as_lanes(loaded, make_window, until, tmp_path):
    window = loaded(visit=str(tmp_path))
    page = page_with(window, COOL, HOT)
    window.run_action.trigger()
    written(window, page, until)
    (path,) = tmp_path.glob("*.jsonl")
    other = make_window()
    other.laboratory.show("lanes")
    other.replays.open_file(path)
    again = other.laboratory.pages["lanes"]
    until(lambda: other.store.compared)
    again.look()
    assert [lane.settings for lane in again.lanes.lanes] == [COOL, HOT]
    assert texts(again) == texts(page)


def test_a_prompt_of_its_own_and_the_windows_for_the_rest(loaded, until):
    window = loaded()
    page = page_with(window, COOL, COOL)
    page.bar.prompt_edit.write("written on the page")
    assert window.prompt_panel.prompt() == "written on the page"
    window.prompt_panel.set_prompt("written beside it")
    assert page.bar.prompt_edit.written() == "written beside it"
    page.take(page.lanes.with_lane(replace(page.lanes.lanes[1], own=LanePrompt("mine"))))
    window.run_action.trigger()
    written(window, page, until)
    assert [run.start.prompt for run in window.store.runs] == ["written beside it", "mine"]
    parting = columns(page)[1].watch.parting
    assert parting is None or parting.why == "prompt"


def test_what_every_run_begins_with_begins_every_lane(loaded, until):
    window = loaded()
    page = page_with(window, COOL, HOT, max_new_tokens=6)
    page.take(page.lanes.with_lane(replace(page.lanes.lanes[1], own=LanePrompt("mine"))))
    window.sampling_panel.constraints.set_begin("xyz")
    window.run_action.trigger()
    written(window, page, until)
    for column in columns(page):
        assert column.source.run.text.startswith("xyz")
        assert [token.forced for token in column.source.run.tokens] == [True] * 3 + [False] * 3


def test_one_token_pause_and_stop_on_the_page(loaded, until, click):
    window = loaded()
    page = page_with(window, COOL, HOT, max_new_tokens=10_000)
    window.step_action.trigger()
    until(lambda: len(window.store.runs) == 2 and all(len(run.tokens) == 1 for run in window.store.runs))
    until(lambda: window.store.activity == "paused")
    click(page.bar.controls.step_button)
    until(lambda: all(len(run.tokens) == 2 for run in window.store.runs))
    click(page.bar.controls.pause_button)  # goes on
    until(lambda: all(len(run.tokens) > 5 for run in window.store.runs))
    window.run_action.trigger()  # a run goes on already: nothing
    click(page.bar.controls.stop_button)
    until(lambda: over(window))
    assert [run.end.reason for run in window.store.runs] == ["cancelled", "cancelled"]


def test_run_without_a_model_says_what_to_do(make_window):
    window = make_window()
    page_with(window, COOL, HOT)
    window.run_action.trigger()
    assert window.banner.isVisible()
    assert window.store.runs == []


def test_lanes_are_set_up_again_when_the_window_is_opened_again(make_window):
    window = make_window()
    page = page_with(window, COOL, HOT)
    page._varied(Variation((COOL, HOT, NARROW), ("a", "b", "c")))
    window.lanes.remember()
    again = make_window(lanes=window.preferences.lanes)
    again.laboratory.show("lanes")
    lanes = again.laboratory.pages["lanes"].lanes.lanes
    assert [(lane.settings, lane.name) for lane in lanes] == [(COOL, "a"), (HOT, "b"), (NARROW, "c")]


def test_damaged_lanes_in_the_settings_give_way_to_the_first_ones(make_window):
    window = make_window(lanes={"lanes": [{"name": 3}]}, sampling={"temperature": 0.7})
    window.laboratory.show("lanes")
    lanes = window.laboratory.pages["lanes"].lanes.lanes
    assert [lane.settings.temperature for lane in lanes] == [0.7, 1.3]


def test_another_page_another_model_and_the_end_in_the_middle_of_it(loaded, until, folder):
    window = loaded()
    page = page_with(window, COOL, HOT, max_new_tokens=10_000)
    window.run_action.trigger()
    until(lambda: len(window.store.runs) == 2 and window.store.runs[1].tokens)
    page.edit(page.lanes.lanes[0].key)
    window.laboratory.show(TEXT)
    assert not page.editor.isVisible()
    assert window.store.current in window.store.runs
    window.laboratory.show("lanes")
    for column in columns(page)[1:]:
        column.remove_action.trigger()  # at least two stay
    window.load(LoadPlan(str(folder)))  # stops the run
    until(lambda: all(run.end for run in window.store.runs) and not window.engine.busy)
    window.run_action.trigger()
    until(lambda: len(window.store.runs) == 4 and window.store.runs[3].tokens)
    window.close()


BANNED = replace(COOL, banned=(97,), logit_bias=((98, 5.0),))
SHIFTED = replace(COOL, banned=(96,), logit_bias=((97, 5.0),))  # the same texts there


def with_bans(window):
    """Lanes of which the second one names tokens of the model that is loaded now."""
    page, facts = page_with(window, COOL, COOL), window.store.facts
    tokens = TokenNames(facts.name, facts.vocab_size)
    page.take(page.lanes.with_lane(replace(page.lanes.lanes[1], settings=BANNED, tokens=tokens)))
    return page


def load(window, folder, until):
    window.load(LoadPlan(str(folder)))
    until(lambda: window.store.facts is not None and window.store.facts.name == folder.name and not window.engine.busy)


def test_banned_tokens_of_another_model_are_never_taken_for_this_ones(loaded, until, shifted, folder):
    window = loaded()
    page = with_bans(window)
    until(lambda: page.lanes.lanes[1].tokens.texts)  # what they are called, for another model
    load(window, shifted, until)
    until(lambda: page.bar.tokens_note.text() == "B: 2 tokens of tiny-llama are taken over by their text.")
    window.run_action.trigger()
    written(window, page, until)
    assert [run.start.settings for run in window.store.runs] == [COOL, SHIFTED]
    page.texts.write_words()
    assert "written with" not in columns(page)[1].figures_label.text()
    load(window, folder, until)
    until(lambda: page.bar.tokens_note.isHidden())
    window.run_action.trigger()
    written(window, page, until)
    assert [run.start.settings for run in window.store.runs[2:]] == [COOL, BANNED]


def test_a_preset_of_the_loaded_model_is_no_foreign_one_in_a_lane_that_another_model_wrote(loaded, until, shifted):
    window = loaded()
    page = with_bans(window)
    window.run_action.trigger()
    written(window, page, until)
    load(window, shifted, until)
    facts = window.store.facts
    page.edit(1)
    page.editor.presets.chosen.emit(Preset("mine", BANNED, tokens=TokenNames(facts.name, facts.vocab_size)))
    assert page.bar.tokens_note.isHidden()
    window.run_action.trigger()
    written(window, page, until)
    assert window.store.runs[3].start.settings == BANNED


def test_a_word_that_is_banned_in_a_lane_is_not_written_there(loaded, until, shifted):
    window = loaded()
    page = page_with(window, COOL, COOL)
    window.run_action.trigger()
    written(window, page, until)
    word = next(token.text for token in window.store.runs[1].tokens if token.text.isalnum())
    page.edit(1)
    words = page.editor.constraints
    words.line.setText(word)
    words.add_typed()
    until(lambda: page.lanes.lanes[1].settings.names_tokens)
    window.run_action.trigger()
    written(window, page, until)
    assert [word in run.text for run in window.store.runs[2:]] == [True, False]
    load(window, shifted, until)
    until(lambda: "taken over" in page.editor.tokens_note.text())
    assert words.count() == len(page.lanes.lanes[1].settings.token_ids)  # by their tokens: who cut the word is gone
    for key in tuple(words._rows):
        words._removed(key)
    assert page.lanes.lanes[1].settings == COOL
    page.undo()
    assert page.editor.tokens_note.isHidden()
    page.editor.close()


def test_banned_tokens_of_another_model_in_a_recording_are_not_run_on_this_one(loaded, until, tmp_path, shifted):
    window = loaded(visit=str(tmp_path))
    page = with_bans(window)
    window.run_action.trigger()
    written(window, page, until)
    (path,) = tmp_path.glob("*.jsonl")
    load(window, shifted, until)
    page.restore(LaneSet((Lane(0, COOL), Lane(1, COOL)), 0, max_new_tokens=8))
    mine = window.store.runs[0]
    window.replays.open_file(path)
    until(lambda: window.store.compared and window.store.runs[0] is not mine)
    page.look()
    lane = page.lanes.lanes[1]
    assert (lane.settings, lane.tokens.model) == (BANNED, "tiny-llama")
    window.run_action.trigger()
    until(lambda: len(window.store.runs) == 4)
    assert not window.store.runs[3].start.settings.token_ids & BANNED.token_ids - SHIFTED.token_ids
    written(window, page, until)


def test_lanes_that_come_back_know_whose_tokens_they_ban(loaded, until, shifted, make_window):
    window = loaded()
    page = with_bans(window)
    until(lambda: page.lanes.lanes[1].tokens.texts)
    window.lanes.remember()
    again = make_window(model=str(shifted), lanes=json.loads(json.dumps(window.preferences.lanes)))
    again.start()
    again.laboratory.show("lanes")
    page = again.laboratory.pages["lanes"]
    until(lambda: "2 tokens of tiny-llama" in page.bar.tokens_note.text())
    assert page.lanes.lanes[1].settings == BANNED
