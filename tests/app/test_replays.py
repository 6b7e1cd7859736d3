"""Replay files in the window: opened, compared, dropped, saved, with the marks that a person sets in them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDragLeaveEvent, QDropEvent

import app.replays
from app.drops import recognised
from engine import notes
from engine.events import Mark, RunStart, TokenEvent
from engine.replay import Recorder, read_replay
from tests.widgets.events_factory import recorded

DATA = Path(__file__).parents[1] / "data"
V1 = DATA / "replay-v1.jsonl"


@pytest.fixture
def first(tmp_path):
    """A recording of two lanes, of the first format."""
    return Path(shutil.copy(V1, tmp_path / "first.jsonl"))


@pytest.fixture
def second(tmp_path, first):
    """The same with another prompt and by another model, written under the same run number."""
    lines = first.read_text("utf-8").split("\n")
    text = "\n".join(lines).replace("Translate “river” into Chinese.", "Say it again.")
    path = tmp_path / "second.jsonl"
    path.write_text(text.replace("SmolLM2-135M-Instruct", "Other-1B"), "utf-8")
    return path


@pytest.fixture
def in_the_thread(monkeypatch):
    """All files are worked on in their thread, as large ones are."""
    monkeypatch.setattr(app.replays, "SMALL_BYTES", -1)
    monkeypatch.setattr(app.replays, "SMALL_EVENTS", -1)
    monkeypatch.setattr(app.replays, "SLICE", 3)


def idle(window):
    return not window.replays.at_work


def marks_in(path):
    return [event for event in read_replay(path).events if isinstance(event, Mark)]


# ---------------------------------------------------------------- opening


def test_a_large_file_is_read_in_a_thread_and_shows_the_same(make_window, until, first, in_the_thread):
    window = make_window()
    assert window.replays.open_file(first)
    assert window.store.current is None  # the window goes on meanwhile
    until(lambda: idle(window))
    found = read_replay(first).events
    assert window.store.runs[0].tokens == [e for e in found if isinstance(e, TokenEvent) and e.lane == 0]
    assert window.store.activity == "idle"
    assert window.store.facts is None
    assert not window.replays.bar.isVisible()


def test_cancelled_it_leaves_what_was_there(make_window, until, first, second, in_the_thread, qtbot):
    window = make_window()
    window.replays.open_file(first)
    until(lambda: idle(window))
    shown = window.store.current
    window.replays.open_file(second)
    window.stop_action.trigger()
    assert idle(window)
    qtbot.wait(50)  # what it had read already may still arrive
    assert window.store.current is shown
    window.replays.open_file(second)  # the newest wish counts
    window.replays.open_file(first)
    until(lambda: idle(window))
    assert window.store.current.start.prompt == "Translate “river” into Chinese."


def test_progress_is_told_and_the_bar_goes(make_window, until, first, in_the_thread, monkeypatch):
    import engine.replay

    window = make_window()
    told = []
    read = engine.replay.read_replay

    def slow(path, progress):
        for done in (10, 20):
            progress(done, 40)
        return read(path, progress)

    monkeypatch.setattr(engine.replay, "read_replay", slow)
    window.replays.files.worker.progress.connect(told.append)
    window.replays.open_file(first)
    until(lambda: idle(window))
    assert (told[0].name, told[0].done, told[0].total) == ("first.jsonl", 10, 40)
    window.replays._job = told[0].job
    window.replays._show_progress(told[0])
    assert window.replays.bar.label.text() == "Opening first.jsonl: 10 B of 40 B"
    window.replays.cancel()


def test_a_file_that_fails_in_the_thread_is_told(make_window, until, tmp_path, in_the_thread):
    (tmp_path / "letter.jsonl").write_text("Dear all,\n")
    window = make_window()
    window.replays.open_file(tmp_path / "letter.jsonl")
    until(lambda: idle(window))
    assert "letter.jsonl is not a replay" in window.banner.text


def test_a_file_that_needs_more_memory_than_is_free_is_refused(make_window, until, first, in_the_thread, monkeypatch):
    import app.replay_thread

    monkeypatch.setattr(app.replay_thread, "LEAST_FREE_BYTES", 10**18)
    window = make_window()
    window.replays.open_file(first)
    until(lambda: idle(window))
    assert "more memory" in window.banner.text


def test_a_damaged_file_opens_up_to_the_damage_and_says_so(make_window, first):
    whole = first.read_bytes()
    at = whole.index(b'"step":3')
    first.write_bytes(whole[:at])
    window = make_window()
    assert window.replays.open_file(first)
    assert len(window.store.current.tokens) == 3
    assert "breaks off" in window.banner.text
    assert not window.grab().isNull()


# ---------------------------------------------------------------- comparing


def test_two_replays_stand_side_by_side_under_numbers_of_their_own(make_window, first, second):
    window = make_window()
    assert window.replays.compare([first, second])
    store = window.store
    assert store.compared == ((1, 0), (1, 1), (2, 0), (2, 1))
    assert [store.run(key).start.name for key in store.compared] == ["first", "first", "second", "second"]
    assert store.run((1, 0)).facts.name == "SmolLM2-135M-Instruct"
    assert store.run((2, 0)).facts.name == "Other-1B"
    assert window.laboratory.current == "lanes"
    assert store.current is store.run((1, 0))
    said = window.banner.text
    assert "other models (A SmolLM2-135M-Instruct, B SmolLM2-135M-Instruct, C Other-1B, D Other-1B)" in said
    assert "other prompts" in said
    assert window.engine.runs >= 2


def test_one_replay_stands_beside_the_run_that_is_shown(make_window, first, second):
    window = make_window()
    window.replays.open_file(first)
    shown = window.store.current
    assert window.replays.compare([second])
    assert window.store.current is shown
    assert window.store.compared[0] == shown.key
    assert len(window.store.compared) == 3
    assert len({run.key for run in window.store.runs}) == 4


def test_what_is_the_same_is_said_too(make_window, first, tmp_path):
    copy = Path(shutil.copy(first, tmp_path / "copy.jsonl"))
    window = make_window()
    window.replays.compare([first, copy])
    # The lanes of one file have two seeds, but one of them is greedy and draws nothing.
    assert "Model, prompt and the seed of those that draw are the same" in window.banner.text
    assert "other models" not in window.banner.text


def test_where_lanes_of_several_files_have_one_name_the_files_are_told(make_window, first, tmp_path):
    text = first.read_text("utf-8").replace('"kind":"start"', '"kind":"start","name":"plain"')
    assert '"name":"plain"' in text
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.jsonl").write_text(text, "utf-8")
    long = tmp_path / f"{'long ' * 12}copy.jsonl"
    long.write_text(text, "utf-8")
    window = make_window()
    window.replays.compare([tmp_path / "a" / "run.jsonl", tmp_path / "b" / "run.jsonl"])
    assert window.banner.text.startswith(
        "a/run.jsonl: A is plain, B is plain; b/run.jsonl: C is plain, D is plain. Model,"
    )
    window.replays.compare([long])  # beside what is shown
    assert window.banner.text.startswith("run.jsonl: A is plain; long")
    assert "copy.jsonl: C is plain, B is plain. " in window.banner.text
    window.replays.compare([first, long])  # no name twice
    assert window.banner.text.startswith("A is first, B is first, C is plain, D is plain. ")


def test_a_damaged_file_among_others_is_named_and_the_others_open(make_window, first, second, tmp_path):
    letter = tmp_path / "letter.jsonl"
    letter.write_text("Dear all,\n")
    (tmp_path / "empty.jsonl").write_text("")
    window = make_window()
    assert window.replays.compare([letter, first, tmp_path / "empty.jsonl", second])
    store = window.store
    assert [store.run(key).start.name for key in store.compared] == ["first", "first", "second", "second"]
    assert window.banner.text.startswith("letter.jsonl is not a replay. empty.jsonl is empty. Choose a file")
    assert "other models" in window.banner.text
    assert not window.replays.compare([letter, tmp_path / "empty.jsonl"])  # none of them: what was shown stays
    assert len(store.compared) == 4
    for name in ("letter.jsonl is not a replay.", "empty.jsonl is empty."):
        assert name in window.banner.text


def test_one_that_is_left_of_several_takes_the_place_of_what_is_shown(make_window, first, second, tmp_path):
    (tmp_path / "letter.jsonl").write_text("Dear all,\n")
    window = make_window()
    window.engine.number_after(7)
    window.replays.open_file(second)
    assert window.replays.compare([first, tmp_path / "letter.jsonl"])
    assert {run.facts.name for run in window.store.runs} == {"SmolLM2-135M-Instruct"}
    assert window.banner.text.startswith("Replay: first.jsonl. letter.jsonl is not a replay.")
    first.write_bytes(first.read_bytes()[:-40])
    window.replays.compare([first, tmp_path / "letter.jsonl"])
    assert "first.jsonl: " in window.banner.text  # whose damage it is


def test_numbers_of_runs_stay_small_however_often_files_are_compared(make_window, first, tmp_path):
    """A run is called by its number where it has no name."""
    late = tmp_path / "late.jsonl"
    late.write_text(first.read_text("utf-8").replace('"run_id":1,', '"run_id":900,'), "utf-8")
    window = make_window()
    window.replays.compare([late, late])
    assert [run.key for run in window.store.runs] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    window.replays.compare([late])
    assert {run.start.run_id for run in window.store.runs} == {1, 2, 3}
    window.timeline.marks.put("bookmark", 0, "mine")
    assert [mark.run_id for mark in marks_in(late)] == [900]


def test_marks_of_compared_replays_go_into_their_own_files(make_window, until, first, second):
    window = make_window()
    window.replays.compare([first, second])
    store = window.store
    store.show(store.run((2, 1)))
    window.timeline.marks.put("bookmark", 1, "here")
    until(lambda: marks_in(second))
    assert marks_in(second) == [Mark(1, 1, "bookmark", 1, "here")]  # by the number that the run has in its file
    assert marks_in(first) == []


# ---------------------------------------------------------------- bookmarks and notes


def test_marks_are_in_the_file_and_come_back_with_it(make_window, until, first):
    window = make_window()
    window.replays.open_file(first)
    marks = window.timeline.marks
    marks.put("bookmark", 2, "the bend")
    marks.put("note", None, "用于周四")
    marks.put("note", 4, "gone again")
    marks.put("note", 4, None)
    until(lambda: len(marks_in(first)) == 4)
    other = make_window()
    other.replays.open_file(first)
    assert [mark.text for mark in other.store.current.bookmarks] == ["the bend"]
    assert [mark.text for mark in other.store.current.notes] == ["用于周四"]
    assert read_replay(first).damage == ""


def test_undo_is_kept_in_the_file_too(make_window, until, first):
    window = make_window()
    window.replays.open_file(first)
    window.timeline.marks.put("bookmark", 2, "")
    window.forks.undo_action.trigger()
    until(lambda: len(marks_in(first)) == 2)
    other = make_window()
    other.replays.open_file(first)
    assert other.store.current.bookmarks == []
    window.replays.open_file(first)
    assert not window.forks.undo_action.isEnabled()  # other runs: nothing to undo in them


def active(window, qtbot):
    """Keys of acts reach only the active window."""
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow)


def test_undo_in_a_note_that_is_written_is_the_fields_own(make_window, first, qtbot):
    window = make_window()
    active(window, qtbot)
    window.replays.open_file(first)
    window.timeline.marks.put("bookmark", 2, "")
    window.timeline.marks.write_note()
    field = window.timeline.notes_bar.note
    qtbot.keyClicks(field, "a note")
    qtbot.keyClick(field, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert field.text() != "a note"
    assert len(window.store.current.bookmarks) == 1
    qtbot.keyClick(field, Qt.Key.Key_Escape)
    qtbot.keyClick(window.timeline.bars, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert window.store.current.bookmarks == []


def test_keys_of_playback_take_nothing_from_a_field(make_window, first, qtbot):
    window = make_window()
    active(window, qtbot)
    window.replays.open_file(first)
    edit = window.prompt_panel.edit
    edit.setFocus()
    edit.selectAll()
    qtbot.keyClicks(edit, "a b")
    assert edit.toPlainText() == "a b"
    assert not window.store.playing
    qtbot.keyClick(edit, Qt.Key.Key_F8)
    assert window.store.playing
    qtbot.keyClick(window.text_view.canvas, Qt.Key.Key_Space)
    assert not window.store.playing


def test_a_run_that_was_written_here_takes_marks_into_its_recording(loaded, click, until, tmp_path):
    window = loaded(visit=str(tmp_path))
    click(window.sampling_panel.controls.run_button)
    until(lambda: not window.engine.busy and window.store.current is not None)
    window.store.select(3)
    window.timeline.marks.toggle_bookmark()
    (path,) = tmp_path.glob("*.jsonl")
    until(lambda: marks_in(path))
    assert [json.loads(line)["kind"] for line in path.read_text("utf-8").split("\n")[-3:-1]] == ["end", "mark"]


def test_marks_of_a_file_that_cannot_be_written_stay_and_are_saved_elsewhere(make_window, until, first, tmp_path):
    window = make_window()
    window.replays.open_file(first)
    first.unlink()
    window.timeline.marks.put("note", 1, "kept")
    until(lambda: "cannot be written" in window.banner.text)
    assert [mark.text for mark in window.store.current.notes] == ["kept"]
    assert not first.exists()
    assert window.replays.save_to(tmp_path / "copy.jsonl")
    assert [mark.text for mark in marks_in(tmp_path / "copy.jsonl")] == ["kept"]
    window.timeline.marks.put("note", 2, "in the copy")  # from now on there
    until(lambda: len(marks_in(tmp_path / "copy.jsonl")) == 2)


def test_marks_of_runs_that_came_another_way_go_into_no_file_of_others(make_window, first, tmp_path):
    window = make_window()
    window.replays.open_file(first)
    before = first.read_bytes()
    window.store.take_runs(recorded(read_replay(first).events))  # as a sweep's cell is shown, under the same numbers
    window.timeline.marks.put("bookmark", 1, "")
    window.close()
    assert first.read_bytes() == before


def test_marks_that_wait_are_written_before_the_window_is_gone(make_window, first):
    window = make_window()
    window.replays.open_file(first)
    for step in range(5):
        window.timeline.marks.put("bookmark", step, "")
    window.close()
    assert len(marks_in(first)) == 5


# ---------------------------------------------------------------- saving


def test_lines_of_a_newer_version_are_in_the_saved_copy(make_window, first, tmp_path):
    strange = '{"kind":"attention","values":[1,{"deep":"词"}]}'
    notes.append(first, strange.encode() + b"\n")
    window = make_window()
    window.replays.open_file(first)
    assert window.replays.save_to(tmp_path / "copy.jsonl")
    assert [line for _, line in read_replay(tmp_path / "copy.jsonl").unknown] == [strange]


def test_a_long_run_is_saved_in_a_thread_whole_or_not_at_all(make_window, until, first, tmp_path, in_the_thread):
    window = make_window()
    window.replays.open_file(first)
    until(lambda: idle(window))
    target = tmp_path / "copy.jsonl"
    target.write_text("an older file")
    assert window.replays.save_to(target)
    window.replays.cancel()
    until(lambda: not list(tmp_path.glob(".glasswork*")))
    assert target.read_text() == "an older file" or read_replay(target).damage == ""
    assert window.replays.save_to(target)
    until(lambda: idle(window))
    assert read_replay(target).damage == ""
    assert "Saved in" in window.banner.text


def test_a_folder_that_is_not_there_is_told_with_a_way_out(make_window, first, tmp_path):
    window = make_window()
    window.replays.open_file(first)
    assert not window.replays.save_to(tmp_path / "nowhere" / "copy.jsonl")
    assert "cannot be written" in window.banner.text
    assert window.banner._button.isVisible()


def test_the_name_that_is_proposed_is_good_everywhere_and_gets_its_ending(make_window, first, tmp_path, monkeypatch):
    text = first.read_text("utf-8").replace("Translate “river” into Chinese.", "河" * 100 + ": a/b?")
    first.write_text(text, "utf-8")
    window = make_window()
    window.replays.open_file(first)
    asked = []

    def answer(_parent, _title, proposed, _filter):
        asked.append(Path(proposed).name)
        return str(tmp_path / "mine"), ""

    monkeypatch.setattr(app.replays.QFileDialog, "getSaveFileName", answer)
    window.save_action.trigger()
    assert asked == ["河" * 40 + ".jsonl"]  # 120 bytes, cut at a whole character (FIL-23)
    assert read_replay(tmp_path / "mine.jsonl").damage == ""


# ---------------------------------------------------------------- dropping


def mime(*paths):
    data = QMimeData()
    data.setUrls([QUrl(path) if "://" in str(path) else QUrl.fromLocalFile(str(path)) for path in paths])
    return data


def drag(window, data):
    centre = window.rect().center()
    event = QDragEnterEvent(
        centre, Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    )
    window.dragEnterEvent(event)
    return event.isAccepted()


def drop(window, data):
    centre = QPointF(window.rect().center())
    event = QDropEvent(
        centre, Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    )
    window.drops.hint.dropEvent(event)


def test_the_hint_says_what_would_happen(make_window, first, second, folder, tmp_path):
    (tmp_path / "photo.png").write_bytes(b"\x89PNG")
    (tmp_path / "mine.json").write_text("{}")
    (tmp_path / "plain.txt").write_bytes(first.read_bytes())  # named by somebody else
    window = make_window()
    hint = window.drops.hint
    for paths, words, refused in (
        ((first,), "Open the replay first.jsonl", False),
        ((first, second), "Compare these 2 replays", False),
        ((folder,), f"Load the model {folder.name}", False),
        ((tmp_path / "mine.json",), "Take in the presets of mine.json", False),
        ((tmp_path / "plain.txt",), "Open the replay plain.txt", False),
        ((tmp_path / "photo.png",), "photo.png cannot be opened here.", True),
        ((first, folder), "These files do not go together", True),
        ((tmp_path / "gone.bin",), "gone.bin cannot be opened here.", True),
        (("https://example.org/run.jsonl",), "Only files of this computer", True),
    ):
        assert drag(window, mime(*paths))
        assert hint.isVisible()
        assert hint.words.startswith(words)
        assert hint.refused is refused
        assert ".jsonl" in hint.more
        assert not hint.grab().isNull()
        hint.dragLeaveEvent(QDragLeaveEvent())
        assert not hint.isVisible()


def test_two_dropped_replays_are_compared(make_window, first, second):
    window = make_window()
    drag(window, mime(first, second))
    drop(window, mime(first, second))
    assert not window.drops.hint.isVisible()
    assert len(window.store.compared) == 4


def test_what_cannot_be_opened_is_refused_in_words_and_takes_nothing_away(make_window, first, tmp_path):
    (tmp_path / "photo.png").write_bytes(b"\x89PNG")
    window = make_window()
    window.replays.open_file(first)
    shown = window.store.current
    drop(window, mime(tmp_path / "photo.png"))
    assert "photo.png cannot be opened here" in window.banner.text
    assert window.store.current is shown


def test_what_is_no_replay_is_named_and_the_replays_beside_it_open(make_window, first, second, tmp_path):
    photo = tmp_path / "photo.png"
    photo.write_bytes(b"\x89PNG")
    window = make_window()
    drag(window, mime(photo, first))
    assert window.drops.hint.words == "Open the replay first.jsonl"
    assert window.drops.hint.more.startswith("photo.png cannot be opened here. ")
    drop(window, mime(photo, first))
    assert window.store.current.start.prompt == "Translate “river” into Chinese."
    assert window.banner.text == "Replay: first.jsonl. photo.png cannot be opened here."
    drop(window, mime(first, photo, second))
    assert len(window.store.compared) == 4
    assert window.banner.text.startswith("photo.png cannot be opened here. ")


def test_dragged_text_is_no_business_of_the_window(make_window):
    window = make_window()
    data = QMimeData()
    data.setText("a word")
    assert not drag(window, data)
    assert not window.drops.hint.isVisible()


def test_the_hint_goes_when_the_drag_leaves_without_reaching_it(make_window, first, until):
    window = make_window()
    drag(window, mime(first))
    window.dragLeaveEvent(QDragLeaveEvent())
    until(lambda: not window.drops.hint.isVisible())


def test_no_name_is_too_strange_to_be_recognised(tmp_path):
    assert recognised([QUrl.fromLocalFile("/x" * 400)]).act == "refuse"
    assert recognised([]).act == "refuse"


# ---------------------------------------------------------------- recent runs


def entries(window):
    window.replays.recents.fill()
    return [action for action in window.recent_menu.actions() if not action.isSeparator()]


def test_recent_runs_are_named_and_those_that_are_gone_are_marked(make_window, first, second, tmp_path):
    folder = tmp_path / "other"
    folder.mkdir()
    twin = Path(shutil.copy(first, folder / "first.jsonl"))
    window = make_window()
    for path in (first, second, twin):
        window.replays.open_file(path)
    second.unlink()
    shown = entries(window)
    assert shown[0].text() == f"first ({folder})" or shown[0].text().startswith("first (")
    assert shown[1].text() == "second: not there any more"
    assert not shown[1].isEnabled()
    assert shown[1].toolTip() == str(second)
    assert [action.text() for action in shown[3:]] == ["Forget those that are not there", "Clear this list"]
    shown[3].trigger()
    assert str(second) not in window.preferences.recent_files
    entries(window)[-1].trigger()
    assert window.preferences.recent_files == []
    assert [action.text() for action in entries(window)] == ["None yet"]


def test_a_run_that_was_recorded_is_a_recent_one(loaded, click, until, tmp_path):
    window = loaded(visit=str(tmp_path))
    click(window.sampling_panel.controls.run_button)
    until(lambda: not window.engine.busy and window.store.current is not None)
    (path,) = tmp_path.glob("*.jsonl")
    assert window.preferences.recent_files == [str(path)]


# ---------------------------------------------------------------- a long recording


def test_a_long_recording_is_played_and_gone_through(make_window, until, first, tmp_path, monkeypatch):
    """So many words that several turns of the event loop lay them out."""
    monkeypatch.setattr(app.replays, "SMALL_BYTES", 100_000)
    found = read_replay(first)
    start = replace(next(e for e in found.events if isinstance(e, RunStart)), lanes=1)
    tokens = [e for e in found.events if isinstance(e, TokenEvent) and e.lane == 0]
    path = tmp_path / "long.jsonl"
    recorder = Recorder(path, {"prompt": "x"})
    recorder.take(start)
    for step in range(2300):
        recorder.take(replace(tokens[step % 5], step=step, tail=None))
    recorder.close()
    window = make_window()
    window.replays.open_file(path)
    until(lambda: idle(window))
    canvas = window.text_view.canvas
    until(lambda: canvas._done == 2300)
    window.store.rewind(2100)
    assert canvas.place_of(2100) is not None
    window.timeline.player.play()
    until(lambda: window.store.selected_step > 2100)
    window.timeline.player.pause()
