"""A hundred futures in the whole window on a tiny model: asked, stopped, opened as forks, closed in the middle."""

from __future__ import annotations

import pytest

from app.remembering import remember
from engine.settings import SamplingSettings

SETTINGS = {"temperature": 0.9, "top_k": 40, "seed": 5}


@pytest.fixture
def ran(loaded, until):
    """A window whose first run is over, at the page of futures of its fifth word."""

    def build(**changes):
        window = loaded(**({"sampling": SETTINGS, "max_new_tokens": 12} | changes))
        window.sampling_panel.lock_button.setChecked(True)
        window.running.start_run()
        until(lambda: not window.engine.busy and window.store.runs)
        window.store.select(4)
        window.futures.show()
        page = window.laboratory.page("futures")
        page.tokens.setValue(5)
        return window, page

    return build


def done(window, page, until):
    until(lambda: not window.engine.busy and page.found is not None and page.found.whole)
    return page.found


def test_the_windows_run_writes_futures_while_their_page_is_seen(ran, until):
    window, page = ran()
    run = window.store.current
    assert page.word.value() == 5
    window.run_action.trigger()
    found = done(window, page, until)
    assert len(found.futures) == 100
    assert found.batches == 2
    assert found.read_tokens == 1
    assert found.reused_tokens == 2 * (run.end.prompt_tokens + 4) - 1
    # The seed that the text was written with writes the text itself again, in a batch of 64 as it did alone (float32).
    assert found.futures[0].seed == 5
    assert found.futures[0].token_ids == tuple(token.token_id for token in run.tokens[4:9])
    assert any(map(page.picture.said.is_written, page.picture.boxes))
    assert window.store.runs == [run]  # they are no runs of the store
    pressed = []

    def press(busy):
        if not busy and not pressed:
            pressed.append(True)
            window.run_action.trigger()  # before the frame in which the page shows that it is done

    window.engine.busy_changed.connect(press)  # in the same thread: a plain function will do in a test
    window.run_action.trigger()  # once more: anew
    until(lambda: pressed and page.found is not found and page.found is not None)
    assert done(window, page, until).futures == found.futures
    assert page.found.question.number == found.question.number + 2


def test_one_of_them_goes_on_as_a_fork(ran, until):
    window, page = ran()
    page.ask()
    found = done(window, page, until)
    future = found.futures[7]
    page.go_on_with(7)
    until(lambda: len(window.store.runs) == 2 and not window.engine.busy)
    fork = window.store.runs[1]
    assert tuple(token.token_id for token in fork.tokens[4:9]) == future.token_ids
    assert all(token.forced for token in fork.tokens[4:9])
    assert len(fork.tokens) == 4 + 12
    assert fork.start.settings.seed == 12
    window.forks.undo_action.trigger()
    assert len(window.store.runs) == 1


def test_a_stop_in_the_middle_keeps_what_is_there(ran, until):
    window, page = ran()
    page.tokens.setValue(200)
    page.count.setValue(256)
    page.ask()
    until(lambda: page.found is not None and page.found.futures)
    page.bar.cancel.click()
    found = done(window, page, until)
    assert found.stopped
    assert 0 < len(found.futures) < 256
    assert window.store.activity == "idle"
    window.running.start_run()  # and the engine is free: on this page Run asks again
    until(lambda: window.engine.busy == "experiment")
    window.running.stop()
    until(lambda: not window.engine.busy)


def test_the_settings_of_the_text_or_those_that_stand(ran, until):
    window, page = ran()
    page.count.setValue(10)
    window.sampling_panel.take_settings(SamplingSettings(temperature=0.0))
    page.ask()
    assert len(done(window, page, until).futures) == 1
    page.whose.setCurrentIndex(1)
    page.ask()
    until(lambda: page.found is not None and page.found.whole and len(page.found.futures) == 10)
    assert page.found.question.request.lanes[0].temperature == 0.9


def test_closing_in_the_middle_ends_it(ran, until):
    window, page = ran()
    page.tokens.setValue(256)
    page.ask()
    until(lambda: window.engine.busy == "experiment" and window.store.experiment is not None)
    window.close()
    assert not window.engine._thread.isRunning()


def test_without_a_model_the_page_says_so_and_what_was_found_stays(ran, until):
    window, page = ran()
    page.count.setValue(8)
    page.ask()
    found = done(window, page, until)
    window.engine.unload()
    until(lambda: window.store.facts is None and not window.engine.busy)
    page.refresh()
    assert page.found is found
    assert not page.bar.start.isEnabled()
    page.go_on_with(0)
    assert "No model is loaded" in window.banner.text


def test_the_fields_come_back_at_the_next_start(ran):
    window, page = ran()
    page.count.setValue(8)
    page.picture.zoom_text(6)
    remember(window)
    assert window.preferences.futures_form == {"count": 8, "tokens": 5, "own": False, "text_size": 7}


def test_the_tabs_and_keys_lead_there_and_back(ran):
    window, _ = ran()
    assert window.laboratory.current == "futures"
    window.laboratory.show("forks")
    assert window.laboratory.page("forks").tree.rows
    window.laboratory.show_text()
    assert window.text_view.isVisible()
    assert any(act.text().startswith("A hundred futures") for act in window.text_view.word_menu.actions())


def test_the_text_comes_back_with_its_panels_as_they_were(make_window, qtbot):
    window = make_window()
    window.resize(1440, 900)
    window.restore_layout()
    qtbot.waitUntil(lambda: window.docks["write"].width() > 200)
    before = {name: (dock.width(), dock.height()) for name, dock in window.docks.items()}
    window.laboratory.show("futures")
    assert not window.docks["write"].isVisible()
    for size in ((920, 620), (1440, 900)):
        window.resize(*size)
        window.grab()
    window.laboratory.show_text()
    qtbot.waitUntil(lambda: {name: (dock.width(), dock.height()) for name, dock in window.docks.items()} == before)
    assert all(dock.isVisible() for dock in window.docks.values())
    window.laboratory.show("futures")
    remember(window)  # as on closing: what a page has hidden is there at the next start
    again = make_window(layout=window.preferences.layout)
    assert all(dock.isVisible() for dock in again.docks.values())
