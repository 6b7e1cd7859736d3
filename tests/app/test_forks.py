"""Forks in the whole window on a tiny model: at any word, with any hand, recorded with what came before, undone."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt

from app.laboratory import TEXT
from engine.events import Loaded, RunStart
from engine.replay import read_replay
from engine.settings import (
    CompareWish,
    ForkWish,
    FuturesWish,
    LoadPlan,
    Parent,
    PruneWish,
    RenameWish,
    SamplingSettings,
)
from tests.tiny_models import tiny_folder

SETTINGS = {"temperature": 0.9, "top_k": 40, "seed": 5}


@pytest.fixture
def ran(loaded, until):
    """Builds a window whose first run is over."""

    def build(visit="", tokens=12, **changes):
        window = loaded(visit, **({"sampling": SETTINGS, "max_new_tokens": tokens} | changes))
        window.sampling_panel.lock_button.setChecked(True)
        window.running.start_run()
        until(lambda: over(window) and window.store.runs)
        return window

    return build


def over(window):
    return not window.engine.busy and window.store.activity == "idle"


def forked(window, until, count=2):
    until(lambda: len(window.store.runs) == count and over(window))
    return window.store.runs[-1]


def alternative(window, step):
    """A row of the list that is not the chosen word."""
    window.store.select(step)
    rows = window.word_view.rows
    return next(row for row, candidate in enumerate(rows._candidates) if not candidate.chosen)


# ---------------------------------------------------------------- by hand


def test_return_on_an_alternative_goes_on_with_it(ran, qtbot, until):
    window = ran()
    parent = window.store.current
    row = alternative(window, 4)
    token_id = window.word_view.rows._candidates[row].token_id
    window.forks.choose_word()
    for _ in range(row + 1):
        qtbot.keyClick(window.word_view.rows, Qt.Key.Key_Down)
    qtbot.keyClick(window.word_view.rows, Qt.Key.Key_Return)
    fork = forked(window, until)
    assert window.store.current is fork
    assert fork.start.parent == Parent(1, 0, 4)
    assert fork.tokens[:4] == parent.tokens[:4]
    given = fork.tokens[4]
    assert (given.token_id, given.forced) == (token_id, True)
    # Its odds are the model's own: the same as stood in the list.
    candidate = next(c for c in parent.tokens[4].candidates if c.token_id == token_id)
    assert next(c for c in given.candidates if c.chosen).raw == pytest.approx(candidate.raw, rel=1e-4)
    assert not any(token.forced for token in fork.tokens[5:])
    assert len(fork.tokens) == 4 + 12


def test_the_words_on_a_pointed_row_are_a_button(ran, qtbot, until):
    window = ran()
    row = alternative(window, 3)
    rows = window.word_view.rows
    y = round((row + 0.5) * rows._rows.height)
    qtbot.mouseMove(rows.viewport(), rows.viewport().rect().center())
    from PySide6.QtCore import QPoint

    qtbot.mouseMove(rows.viewport(), QPoint(60, y))
    rows._point(row)  # offscreen, no mouse moves by itself
    rows.viewport().grab()
    assert not rows._offer.isEmpty()
    qtbot.mouseClick(rows.viewport(), Qt.MouseButton.LeftButton, pos=rows._offer.center().toPoint())
    assert forked(window, until).tokens[3].forced


def test_text_is_written_at_a_word_as_it_is_typed(ran, qtbot, until):
    window = ran()
    window.store.select(5)
    window.forks.write_here()
    field = window.text_view.write_field
    assert field.isVisible()
    field.field.selectAll()
    qtbot.keyClicks(field.field, "xyz 1")
    qtbot.keyClick(field.field, Qt.Key.Key_Return)
    fork = forked(window, until)
    assert not field.isVisible()
    assert [token.forced for token in fork.tokens] == [False] * 5 + [True] * 5 + [False] * 7
    assert "".join(token.text for token in fork.tokens[5:10]).endswith("xyz 1")  # half a character before it breaks


def test_escape_closes_the_field_and_nothing_runs(ran, qtbot):
    window = ran()
    qtbot.keyClick(window.text_view.canvas, Qt.Key.Key_Left)
    qtbot.keyClick(window.text_view.canvas, Qt.Key.Key_Return)
    field = window.text_view.write_field
    assert field.isVisible()
    qtbot.keyClick(field.field, Qt.Key.Key_Escape)
    assert not field.isVisible()
    assert len(window.store.runs) == 1


@pytest.mark.parametrize(("page", "seen"), [("lanes", TEXT), ("futures", TEXT), ("order", TEXT), ("forks", "forks")])
def test_a_fork_is_seen_while_it_is_written(ran, until, page, seen):
    window = ran()
    parent = window.store.current
    window.laboratory.show(page)
    window.forks.fork(ForkWish(parent.place(4), forced=(98,)))
    assert window.laboratory.current == seen
    forked(window, until)


def test_other_settings_go_on_from_the_selected_word(ran, until):
    window = ran()
    window.store.select(6)
    window.sampling_panel.take_settings(SamplingSettings(temperature=1.5, seed=8))
    window.forks.go_on_here()
    fork = forked(window, until)
    assert [token.settings.temperature for token in fork.tokens] == [0.9] * 6 + [1.5] * 12
    assert fork.start.settings.seed == 8


def test_from_the_end_a_text_is_made_longer(ran, until):
    window = ran()
    if window.store.current.end.reason != "length":
        pytest.fail("the tiny model is to write to its length")
    window.forks.go_on_here()
    fork = forked(window, until)
    assert fork.start.parent.step == 12
    assert len(fork.tokens) == 24


def test_the_same_settings_would_write_the_same_and_that_is_said(ran, until, click):
    window = ran()
    window.store.select(6)
    window.forks.go_on_here()
    assert "same text" in window.banner.text
    assert len(window.store.runs) == 1
    window.forks.with_another_seed()
    fork = forked(window, until)
    assert fork.start.settings.seed != 5
    window.sampling_panel.lock_button.setChecked(False)
    window.store.select(9)
    window.forks.go_on_here()
    assert forked(window, until, 3).start.settings.seed != fork.start.settings.seed


def test_the_slider_view_goes_on_from_where_the_text_would_go_elsewhere(ran, until, click):
    """And it does go elsewhere there, to the word that the bar named."""
    window = ran(tokens=24)
    run = window.store.current
    window.sampling_panel.take_settings(SamplingSettings(temperature=0.9, top_k=2, seed=5))
    until(lambda: window.text_view.canvas.redecided is not None)
    found = window.text_view.canvas.redecided
    assert found.first is not None
    assert found.open_at is None
    click(window.text_view.redecided_bar.go_on)
    fork = forked(window, until)
    assert fork.start.parent.step == found.first
    assert fork.tokens[found.first].token_id != run.tokens[found.first].token_id
    assert fork.tokens[found.first].token_id == found.others[found.first]


def test_a_fork_of_a_running_text_stops_it_first(loaded, until):
    window = loaded(seconds_per_token=0.02, max_new_tokens=5000, sampling={"temperature": 0})
    window.running.start_run()
    until(lambda: window.store.current is not None and len(window.store.current.tokens) > 4)
    run = window.store.current
    window.store.select(2)
    token_id = next(c.token_id for c in run.tokens[2].candidates if not c.chosen)
    window.word_view.asked.emit(ForkWish(run.place(2), forced=(token_id,)))
    until(lambda: len(window.store.runs) == 2 and len(window.store.runs[1].tokens) > 5)
    assert run.end.reason == "cancelled"
    assert window.store.runs[1].tokens[2].forced
    window.running.stop()
    until(lambda: over(window))


# ---------------------------------------------------------------- what was reused


def test_a_fork_reads_one_token_and_writes_what_a_fresh_run_with_that_beginning_would(ran, until):
    """The counter: prompt + 399 reused, 1 + n computed; and SAM-3, after a fork, in float32."""
    window = ran(tokens=440, prompt="abcdefgh", sampling={"temperature": 0})
    run = window.store.current
    other = SamplingSettings(temperature=1.3, seed=9, banned=(257, 260))  # its two ends
    window.sampling_panel.take_settings(other)
    window.sampling_panel.limit_field.set_value(64)
    window.store.select(400)
    window.forks.go_on_here()
    fork = forked(window, until)
    prompt = run.end.prompt_tokens
    assert fork.end.reused_tokens == prompt + 399
    assert fork.end.computed_tokens == 1 + 63  # the last word goes through the model no more
    assert len(fork.tokens) == 464
    from widgets.reuse import reuse_text

    assert reuse_text(fork.end, 400) == "prompt + 399 reused, 1 + 63 computed"
    until(lambda: any("1 + 63 computed" in f.value + f.rest for f in window.status_line.figures))
    window.keep_cache(False)
    window.forks.undo_action.trigger()
    window.store.show(run)
    window.store.select(400)
    window.forks.go_on_here()
    fresh = forked(window, until)
    assert fresh.end.reused_tokens == 0
    assert fresh.end.computed_tokens == prompt + 400 + 63
    assert fresh.end.token_ids == fork.end.token_ids


# ---------------------------------------------------------------- files


def test_a_forks_file_holds_what_it_began_in_once_each_and_opens_as_the_same_tree(ran, until, tmp_path):
    window = ran(str(tmp_path))
    for count, (step, text) in enumerate(((4, "xy"), (9, "z")), start=2):
        run = window.store.current
        window.store.select(step)
        window.text_view.asked.emit(ForkWish(run.place(step), text=text))
        forked(window, until, count)
    path = max(tmp_path.glob("*.jsonl"), key=lambda p: p.stat().st_size)
    replay = read_replay(path)
    assert not replay.damage
    starts = [event for event in replay.events if isinstance(event, RunStart)]
    assert [start.run_id for start in starts] == [1, 2, 3]
    assert starts[2].parent == Parent(2, 0, 9)
    assert sum(isinstance(event, Loaded) for event in replay.events) >= 1
    texts = [run.text for run in window.store.runs]
    runs = list(window.store.runs)
    window.engine.unload()
    until(lambda: window.store.facts is None and not window.engine.busy)
    window.replays.open_file(path)
    assert [run.text for run in window.store.runs] == texts
    assert [run.start.parent for run in window.store.runs] == [run.start.parent for run in runs]
    assert [run.tokens for run in window.store.runs] == [run.tokens for run in runs]
    assert window.store.current is window.store.runs[-1]
    # Saved again, it is the same; an ancestor is saved without what came later.
    assert window.replays.save_to(tmp_path / "again.jsonl")
    assert [e for e in read_replay(tmp_path / "again.jsonl").events if not isinstance(e, Loaded)] == [
        e for e in replay.events if type(e).__name__ not in ("Loaded", "MemoryReading")
    ]
    window.store.show(window.store.runs[0])
    assert window.replays.save_to(tmp_path / "first.jsonl")
    first = read_replay(tmp_path / "first.jsonl")
    assert [e.run_id for e in first.events if isinstance(e, RunStart)] == [1]
    assert first.header["prompt"] == "ab"


def test_a_forks_file_holds_the_notes_of_what_it_began_in(ran, until, make_window, tmp_path):
    window = ran(str(tmp_path))
    window.timeline.marks.put("note", 2, "here")
    window.timeline.marks.put("bookmark", 7, "behind the fork")
    parent = window.store.current
    window.forks.fork(ForkWish(parent.place(4), text="xy"))
    forked(window, until)
    other = make_window()
    other.replays.open_file(max(tmp_path.glob("*.jsonl"), key=lambda p: p.stat().st_size))
    until(lambda: len(other.store.runs) == 2)
    assert other.store.runs[0].marks == parent.marks


def test_a_fork_of_an_opened_run_reads_the_same_prompt(ran, until, tmp_path):
    window = ran(str(tmp_path))
    (path,) = tmp_path.glob("*.jsonl")
    text = window.store.current.text
    window.prompt_panel.set_prompt("something else")
    window.replays.open_file(path)
    run = window.store.current
    assert run.text == text
    window.store.select(4)
    window.sampling_panel.take_settings(SamplingSettings(temperature=1.2, seed=3))
    window.forks.go_on_here()
    fork = forked(window, until)
    assert fork.start.prompt_tokens == run.start.prompt_tokens
    assert fork.start.prompt == "ab"
    assert fork.tokens[:4] == run.tokens[:4]
    newest = max(tmp_path.glob("*.jsonl"), key=lambda p: p.stat().st_mtime_ns)
    assert [e.run_id for e in read_replay(newest).events if isinstance(e, RunStart)] == [1, fork.start.run_id]


def test_a_fork_whose_parent_is_lost_still_opens(ran, until, tmp_path):
    window = ran(str(tmp_path))
    window.store.select(4)
    window.text_view.asked.emit(ForkWish(window.store.current.place(4), text="xy"))
    fork = forked(window, until)
    path = max(tmp_path.glob("*.jsonl"), key=lambda p: p.stat().st_size)
    lines = path.read_text("utf-8").splitlines(keepends=True)
    damaged = [line for line in lines if '"run_id":1,' not in line[:60]]
    broken = tmp_path / "broken.jsonl"
    broken.write_text("".join(damaged), "utf-8")
    window.replays.open_file(broken)
    (run,) = window.store.runs
    assert run.lost == 4
    assert run.text == fork.text[len("".join(t.text for t in fork.tokens[:4])) :]
    window.store.select(2)
    window.grab()
    window.text_view.asked.emit(ForkWish(run.place(3), text="q"))
    deeper = forked(window, until)
    assert deeper.start.written == (*fork.start.written, *(t.token_id for t in run.tokens[:3]))


# ---------------------------------------------------------------- undo, names, pruning


def test_a_fork_can_be_undone_and_done_again(ran, until):
    window = ran()
    window.store.select(4)
    window.text_view.asked.emit(ForkWish(window.store.current.place(4), text="xy"))
    fork = forked(window, until)
    window.forks.undo_action.trigger()
    assert window.store.runs == [window.store.current]
    assert not window.forks.undo_action.isEnabled()
    window.forks.redo_action.trigger()
    assert window.store.runs[-1] is fork is window.store.current


def test_undone_while_it_is_written_it_stops_and_goes(loaded, until):
    window = loaded(seconds_per_token=0.02, max_new_tokens=5000, sampling={"temperature": 0})
    window.running.one_token()
    until(lambda: window.store.current is not None and window.store.activity == "paused")
    run = window.store.current
    window.text_view.asked.emit(ForkWish(run.place(0), text="x"))
    until(lambda: len(window.store.runs) == 2)
    window.forks.undo_action.trigger()  # perhaps before its first word
    until(lambda: over(window))
    assert window.store.runs == [run]
    window.forks.redo_action.trigger()
    assert [each.key for each in window.store.runs] == [(1, 0), (2, 0)]


def test_a_fork_within_a_fork_that_is_undone_while_it_is_written_comes_back_when_it_is_done_again(loaded, until):
    window = loaded(sampling={"temperature": 0})
    window.running.start_run()
    until(lambda: over(window) and window.store.runs)
    window.text_view.asked.emit(ForkWish(window.store.current.place(2), text="x"))
    fork = forked(window, until)
    window.engine.set_pace(0.02)
    window.sampling_panel.limit_field.set_value(5000)
    window.text_view.asked.emit(ForkWish(fork.place(5), text="y"))
    until(lambda: len(window.store.runs) == 3 and len(window.store.runs[2].tokens) > 7)
    for _ in range(2):
        window.forks.undo_action.trigger()
    until(lambda: over(window))
    assert [run.key for run in window.store.runs] == [(1, 0)]
    window.forks.redo_action.trigger()
    assert [run.key for run in window.store.runs] == [(1, 0), (2, 0)]
    window.forks.redo_action.trigger()
    assert [run.key for run in window.store.runs] == [(1, 0), (2, 0), (3, 0)]
    assert window.store.current.end.reason == "cancelled"


def test_what_is_given_is_written_whole_whatever_the_limit(ran, until):
    window = ran()
    window.sampling_panel.limit_field.set_value(2)
    window.text_view.asked.emit(ForkWish(window.store.current.place(3), text="abcdef"))
    fork = forked(window, until)
    assert "".join(token.text for token in fork.tokens).endswith("abcdef")
    assert (len(fork.tokens), fork.end.reason) == (9, "length")


def test_pruning_takes_what_began_there_too_and_comes_back(ran, until, tmp_path):
    window = ran(str(tmp_path))
    for count, step in ((2, 4), (3, 8)):
        run = window.store.current
        window.text_view.asked.emit(ForkWish(run.place(step), text="x"))
        forked(window, until, count)
    before = list(window.store.runs)
    window.forks.prune(PruneWish(((2, 0),)))
    assert [run.key for run in window.store.runs] == [(1, 0)]
    assert window.store.current is before[0]
    assert len(list(tmp_path.glob("*.jsonl"))) == 3
    window.forks.undo_action.trigger()
    assert window.store.runs == before


def test_undoing_a_pruning_brings_back_what_was_shown_and_compared(ran, until):
    window = ran()
    store = window.store
    for step in (4, 8):
        window.text_view.asked.emit(ForkWish(store.runs[0].place(step), text="x"))
        forked(window, until, 2 if step == 4 else 3)
    store.compare(store.runs)
    store.put_beside(store.compared, store.letters, (3, 0))
    store.show(store.runs[2])
    window.forks.prune(PruneWish(((2, 0), (3, 0))))
    assert store.compared == ((1, 0),)
    window.forks.undo_action.trigger()
    assert store.compared == ((1, 0), (2, 0), (3, 0))
    assert store.reference == (3, 0)
    assert store.current is store.runs[2]


def test_a_fork_that_is_done_again_stands_beside_the_others_again(ran, until):
    window = ran()
    window.forks.fork(ForkWish(Parent(1, 0, 3), text="xy"))
    forked(window, until)
    window.forks.compare(CompareWish(((1, 0), (2, 0))))
    window.forks.undo_action.trigger()
    assert window.store.compared == ((1, 0),)
    window.forks.redo_action.trigger()
    assert window.store.compared == ((1, 0), (2, 0))
    assert len(window.exports.taken("lanes")) == 2


def test_a_name_is_kept_and_can_be_taken_back(ran, until, tmp_path):
    window = ran(str(tmp_path))
    window.forks.rename(RenameWish((1, 0), "  calm\nriver "))
    assert window.store.current.start.name == "calm river"
    assert window.replays.save_to(tmp_path / "named.jsonl")
    assert next(e for e in read_replay(tmp_path / "named.jsonl").events if isinstance(e, RunStart)).name == "calm river"
    (path,) = (path for path in tmp_path.glob("*.jsonl") if path.name != "named.jsonl")
    until(lambda: b'"what":"name"' in path.read_bytes())  # a line behind what was recorded
    assert read_replay(path).damage == ""
    window.forks.undo_action.trigger()
    assert window.store.current.start.name == ""
    window.forks.redo_action.trigger()
    until(lambda: path.read_bytes().count(b'"what":"name"') == 3)
    window.replays.open_file(path)
    until(lambda: window.store.current is not None and window.store.current.start.name == "calm river")


def test_another_file_clears_what_can_be_undone(ran, until, tmp_path):
    window = ran(str(tmp_path))
    window.forks.rename(RenameWish((1, 0), "a"))
    window.replays.open_file(next(Path(tmp_path).glob("*.jsonl")))
    assert not window.forks.undo_action.isEnabled()


def test_a_text_that_is_being_written_is_not_pruned(loaded, until):
    window = loaded(seconds_per_token=0.02, max_new_tokens=5000, sampling={"temperature": 0})
    window.running.start_run()
    until(lambda: window.store.current is not None and window.store.current.tokens)
    window.forks.prune(PruneWish(((1, 0),)))
    assert window.store.runs
    assert "stop it first" in window.banner.text
    window.running.stop()
    until(lambda: over(window))


# ---------------------------------------------------------------- refusals


def test_without_a_model_or_a_text_there_is_a_sentence(make_window, ran, until):
    window = make_window()
    window.forks.go_on_here()
    assert "press Run first" in window.banner.text
    window = ran()
    window.engine.unload()
    until(lambda: window.store.facts is None and not window.engine.busy)
    window.text_view.asked.emit(ForkWish(window.store.current.place(2), text="x"))
    assert "No model is loaded" in window.banner.text
    window.laboratory.show("futures")
    window.laboratory.page("futures").asked.emit(FuturesWish(window.store.current.place(2)))
    assert "No model is loaded" in window.banner.text


def test_a_fork_without_a_model_offers_the_one_that_wrote_the_text(ran, make_window, until, click, tmp_path):
    """A replay is opened in a window where nothing is loaded; from there on all goes by hand."""
    ran(str(tmp_path))
    (path,) = tmp_path.glob("*.jsonl")
    window = make_window(str(tmp_path))
    window.replays.open_file(path)
    run = window.store.current
    window.store.select(4)
    window.text_view.asked.emit(ForkWish(run.place(4), text="xy"))
    assert window.banner.text == "No model is loaded; tiny-llama wrote this text."
    click(window.banner._button)
    until(lambda: window.store.facts is not None and over(window))
    assert window.store.current is run
    assert window.store.selected_step == 4
    window.text_view.asked.emit(ForkWish(run.place(4), text="xy"))
    fork = forked(window, until)
    assert fork.tokens[:4] == run.tokens[:4]
    assert "".join(token.text for token in fork.tokens[4:6]) == "xy"


def test_while_another_model_loads_the_last_one_is_not_told_of(ran, until, tmp_path):
    """Neither is the model that was there before, nor that there is none."""
    window = ran()
    run = window.store.current
    other = tiny_folder(tmp_path / "tiny-other", seed=5)
    window.load(LoadPlan(str(other)))
    until(lambda: over(window) and window.store.facts.name == "tiny-other")
    window.text_view.asked.emit(ForkWish(run.place(2), text="x"))
    assert "tiny-other is loaded" in window.banner.text  # it wrote no word of this
    window.load(LoadPlan(str(other)))
    assert window.engine.busy == "load"
    said = "The model is still loading: the run can start once it is there."
    window.text_view.asked.emit(ForkWish(run.place(2), text="x"))
    assert window.banner.text == said
    window.banner.dismiss()
    window.laboratory.show("futures")
    page = window.laboratory.page("futures")
    page.asked.emit(FuturesWish(run.place(2)))
    assert window.banner.text == said
    until(lambda: window.store.activity == "loading")
    page.refresh()
    assert "still loading" in page.bar.start.toolTip()
    until(lambda: over(window) and window.store.facts is not None)
    assert not window.banner.isVisible()  # true only as long as it loaded
    assert len(window.store.runs) == 1


def test_a_fork_that_is_refused_leaves_nothing_to_undo(ran, until):
    window = ran()
    run = window.store.current
    window.text_view.asked.emit(ForkWish(run.place(2), forced=(10**6,)))
    until(lambda: "knows no such token" in window.banner.text)
    assert not window.forks.undo_action.isEnabled()
    assert window.store.runs == [run]


def test_a_stop_string_over_two_tokens_ends_a_fork_that_begins_in_it_and_none_that_begins_after_it(ran, until):
    window = ran(sampling={"temperature": 0})
    text = [token.text for token in window.store.current.tokens]
    at = next(
        at for at in range(3, 10) if all(text[at : at + 2]) and "".join(text[:at]).find(text[at] + text[at + 1]) < 0
    )
    stop = text[at] + text[at + 1]
    window.sampling_panel.stop_list.set_strings((stop,))
    window.running.start_run()
    run = forked(window, until)
    assert (run.end.reason, len(run.tokens)) == ("stop string", at + 2)
    window.forks.go_on_here()
    assert "came to its end by itself" in window.banner.text
    window.text_view.asked.emit(ForkWish(run.place(at + 1), forced=(run.tokens[at + 1].token_id,)))
    within = forked(window, until, 3)
    assert (within.end.reason, within.text) == ("stop string", run.text)
    window.text_view.asked.emit(ForkWish(run.place(at), text="#"))
    before = forked(window, until, 4)
    assert before.start.stop == (stop,)
    assert before.text.startswith("".join(text[:at]))  # then perhaps half a character, which the "#" ends
    assert "#" in before.text
    window.text_view.asked.emit(ForkWish(run.place(at + 2), text="#"))
    after = forked(window, until, 5)
    assert after.start.stop == ()
    assert after.end.reason != "stop string"
    assert after.text.startswith("".join(text[: at + 2]))


def test_a_stop_string_that_stands_before_the_fork_does_not_end_it(ran, until):
    window = ran()
    run = window.store.current
    letter = next(token.text for token in run.tokens[:4] if token.text.strip())
    window.sampling_panel.stop_list.set_strings((letter, "never there"))
    window.store.select(5)
    window.sampling_panel.take_settings(SamplingSettings(temperature=1.2, seed=3))
    window.forks.go_on_here()
    fork = forked(window, until)
    assert fork.start.stop == ("never there",)
    assert fork.end.reason == "length"


def test_the_chooser_shows_another_run(ran, qtbot, until):
    window = ran()
    assert not window.text_view.chooser.isVisible()
    window.text_view.asked.emit(ForkWish(window.store.current.place(4), text="x"))
    forked(window, until)
    until(window.text_view.chooser.isVisible)
    window.forks.previous_run()
    assert window.store.current is window.store.runs[0]
    window.forks.previous_run()
    assert window.store.current is window.store.runs[0]
    window.forks.next_run()
    assert window.store.current is window.store.runs[1]
    assert window.text_view.chooser.currentIndex() == 1
