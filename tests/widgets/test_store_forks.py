"""Forks in the store: they begin with their parent's tokens, and runs can be taken out and put back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.events import SettingsChanged
from engine.settings import Parent, SamplingSettings
from tests.widgets import events_factory as make
from widgets import theme
from widgets.run_store import RunStore
from widgets.text_view import TextView

WORDS = make.words("The river begins as meltwater high in the mountains.")


def parent_events(run_id: int = 1, **changes) -> list:
    tokens = make.tokens(WORDS, run_id=run_id)
    return [make.start(run_id, **changes), *tokens, make.end(tokens, run_id=run_id)]


def fork_events(parent: list, step: int, run_id: int = 2, texts=(" a", " glacier"), **changes) -> list:
    shared = [event for event in parent if hasattr(event, "token_id")][:step]
    start = make.start(
        run_id, written=tuple(t.token_id for t in shared), parent=Parent(parent[0].run_id, 0, step), **changes
    )
    tokens = make.tokens(list(texts), first=step, run_id=run_id)
    end = make.end([*shared, *tokens], run_id=run_id, lane=0)
    return [start, *tokens, end]


@pytest.fixture
def store(qapp):
    store = RunStore()
    for event in (*parent_events(), *fork_events(parent_events(), 4)):
        store.take(event)
    return store


def test_a_fork_begins_with_its_parents_tokens(store):
    parent, fork = store.runs
    assert all(mine is theirs for mine, theirs in zip(fork.tokens[:4], parent.tokens, strict=False))
    assert [token.step for token in fork.tokens] == list(range(6))
    assert fork.text == "The river begins as a glacier" == fork.end.text
    assert [fork.text[slice(*fork.span(step))] for step in (0, 3, 5)] == ["The", " as", " glacier"]
    assert fork.step_at(5) == 1
    assert not fork.lost


def test_changes_of_settings_before_the_fork_are_its_own_too(qapp):
    store = RunStore()
    start, *rest = parent_events()
    for event in (start, *(SettingsChanged(1, 0, step, SamplingSettings(seed=step)) for step in (2, 4)), *rest):
        store.take(event)
    for event in fork_events(parent_events(), 4):
        store.take(event)
    assert [change.step for change in store.runs[1].changes] == [2]


def test_a_fork_that_stops_at_other_strings_shows_what_was_certain_for_it(qapp):
    """The parent held " as" back for a stop string, the fork has none; and the other way round."""
    for held, written_text in ((True, "The river begins as"), (False, "The river be")):
        parent = parent_events()
        if held:
            parent[4] = replace(parent[4], text="")
            parent[5] = replace(parent[5], text=" as" + parent[5].text)
        store = RunStore()
        rest = ("", " a") if held else ("gins as", " a")
        for event in (*parent, *fork_events(parent, 4, texts=rest, written_text=written_text)):
            store.take(event)
        fork = store.runs[1]
        assert fork.text == "".join(token.text for token in fork.tokens) == written_text + "".join(rest)
        assert store.runs[0].text == "".join(WORDS)


@pytest.mark.parametrize("how", ["gone", "another text"])
def test_without_its_parent_a_fork_shows_what_is_there(qtbot, how):
    events = fork_events(parent_events(), 4)
    store = RunStore()
    if how == "another text":
        start, first, *rest = parent_events()
        for event in (start, replace(first, token_id=77), *rest):
            store.take(event)
    view = TextView(store)
    qtbot.addWidget(view)
    view.resize(400, 300)
    view.show()
    for event in events:
        store.take(event)
    fork = store.runs[-1]
    assert (fork.lost, fork.text) == (4, " a glacier")
    assert [token.step for token in fork.tokens] == [4, 5]  # the true ones: the draws hang on them
    store.frame.emit()
    store.select(1)
    assert view.canvas.place_of(1) is not None
    view.grab()


def test_a_fork_of_a_fork_holds_both(store):
    for event in fork_events([store.runs[0].start, *store.runs[1].tokens], 5, run_id=3, texts=(" lake",)):
        store.take(replace(event, parent=Parent(2, 0, 5)) if hasattr(event, "parent") else event)
    assert store.runs[2].text == "The river begins as a lake"
    assert store.runs[2].tokens[4] is store.runs[1].tokens[4]


def test_opened_runs_keep_their_parents_and_show_the_newest(store, qapp):
    events = [event for run in ((1, parent_events()), (2, fork_events(parent_events(), 4))) for event in run[1]]
    other = RunStore()
    other.take_runs(make.recorded(events))
    assert [run.text for run in other.runs] == [run.text for run in store.runs]
    assert other.runs[1].tokens[0] is other.runs[0].tokens[0]
    assert other.current is other.runs[1]


def test_a_run_taken_out_comes_back_where_it_was(store):
    parent, fork = store.runs
    store.compared = (parent.key, fork.key)
    taken = store.take_out([fork.key])
    assert store.runs == [parent]
    assert store.current is parent
    assert store.compared == (parent.key,)
    assert store.run(fork.key) is None
    store.put_back(taken)
    assert store.runs == [parent, fork]
    assert store.current is fork
    everything = store.take_out([parent.key, fork.key])
    assert store.current is None
    store.put_back(everything)
    assert store.runs == [parent, fork]


def test_the_text_shows_where_it_left_its_parent(qtbot, store):
    view = TextView(store)
    qtbot.addWidget(view)
    view.resize(500, 200)
    view.show()
    store.frame.emit()
    place = view.canvas.place_of(4)
    look = theme.current()
    image = view.canvas.viewport().grab().toImage()
    store.select(0)
    row = [image.pixelColor(round(place.left()) + x, round(place.center().y())) for x in (-2, -1, 0, 1)]
    assert look.accent in row
    store.select(4)
    assert "Here this text left run 1." in view.canvas.accessibleDescription()
    store.select(3)
    assert "left run" not in view.canvas.accessibleDescription()


def test_a_name_is_the_runs_own(store):
    store.name_run((2, 0), "glacier")
    assert store.runs[1].start.name == "glacier"
    assert store.runs[1].tokens[0] is store.runs[0].tokens[0]
