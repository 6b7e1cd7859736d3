"""The model browser in the window, and a download from a stand-in of the hub that goes on while a model runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from engine import hub_meter, hub_requests
from engine.hub_store import unfinished
from tests.engine.hub_stand_in import Repository, running_hub
from tests.tiny_models import tiny_folder

KEY = ("org/tiny", "safetensors")
CTRL = Qt.KeyboardModifier.ControlModifier


@pytest.fixture(scope="session")
def published(tmp_path_factory):
    """A tiny model's files, as a repository holds them."""
    folder = tiny_folder(tmp_path_factory.mktemp("published") / "tiny", "llama", seed=5)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("engine.default_model.default_model_path", lambda: tmp_path / "none")
    monkeypatch.setattr(hub_requests, "_token", lambda: "")
    monkeypatch.setattr(hub_meter, "TELL_EVERY_S", 0.0)
    monkeypatch.setattr(hub_meter, "TICK_S", 0.01)
    return tmp_path / "hub"


@pytest.fixture
def hub(monkeypatch, published):
    with running_hub() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.address)
        facts = {"downloads": 3, "pipeline_tag": "text-generation"}
        running.repositories["org/tiny"] = Repository(dict(published), facts=facts)
        running.size = len(published["model.safetensors"])
        running.half = running.size // 2
        yield running


@pytest.fixture
def opened(make_window, folder, until):
    """Builds a window with its browser open, by key."""

    def build(**preferences):
        window = make_window(**({"model_folders": [str(folder)]} | preferences))
        window.activateWindow()
        until(window.isActiveWindow)
        QTest.keyClick(window, Qt.Key.Key_B, CTRL)
        until(lambda: window.models.browser and window.models.browser.local.table.rows.things)
        return window

    return build


def find(window, until):
    """Searches and chooses the repository, until its files are known."""
    browser = window.models.browser
    browser.show_hub()
    browser.hub.search_field.setText("tiny")
    QTest.keyClick(browser.hub.search_field, Qt.Key.Key_Return)
    until(lambda: browser.hub.chosen_set() is not None)
    return browser.hub


def row_of(window):
    return window.models.browser.hub.downloads.rows[KEY]


def start_and_hold(window, hub, until, click):
    """A download that has come half way, its server silent."""
    hub.hold_at["model.safetensors"] = hub.half
    click(find(window, until).download_button)
    until(lambda: row_of(window).bar.value() > 300)


def test_ctrl_b_opens_it_and_enter_loads_what_is_chosen(opened, until, folder):
    window = opened()
    browser = window.models.browser
    assert not browser.isModal()
    (choice,) = browser.local.table.shown()
    assert (choice.name, choice.family, choice.problem) == ("tiny-llama", "llama", None)
    QTest.keyClick(browser.local.table, Qt.Key.Key_Return)
    until(lambda: window.store.facts is not None and not window.engine.busy)
    assert window.store.facts.model_path == str(folder)


def test_the_panel_has_a_button_for_it_and_lists_only_what_can_be_loaded(opened, until, click, folder, tmp_path):
    broken = tmp_path / "shelf" / "broken"
    broken.mkdir(parents=True)
    (broken / "model.safetensors").write_bytes(b"")
    window = opened(model_folders=[str(folder), str(tmp_path / "shelf")])
    until(lambda: len(window.models.browser.local.table.shown()) == 2)
    window.models.browser.close()
    window.show_model_panel()
    picker = window.model_panel.picker
    until(lambda: picker.count() == 1)
    assert picker.currentData() == str(folder)
    click(window.model_panel.browse_button)
    assert window.models.browser.isVisible()


def test_a_model_is_downloaded_while_another_runs_and_can_then_be_loaded(loaded, hub, until, click, cache):
    window = loaded(max_new_tokens=60_000, seconds_per_token=0.001, sampling={"temperature": 0})
    window.models.show_browser()
    page = find(window, until)
    window.running.start_run()
    until(lambda: window.store.current and window.store.current.tokens)
    click(page.download_button)
    until(lambda: row_of(window).state == "done")
    assert window.engine.busy == "run"
    window.running.stop()
    until(lambda: not window.engine.busy)
    browser = window.models.browser
    until(lambda: [choice.model for choice in browser.local.table.shown()] == ["org/tiny"])
    assert (browser.local.table.current().hub_id, browser.local.table.current().problem) == ("org/tiny", None)
    click(row_of(window).load)
    until(lambda: window.store.facts and window.store.facts.name == "tiny" and not window.engine.busy)
    assert str(cache) in window.store.facts.model_path


def test_a_cancelled_download_goes_on_where_it_stopped_also_after_a_restart(opened, hub, until, click):
    window = opened()
    start_and_hold(window, hub, until, click)
    click(row_of(window).cancel)
    until(lambda: row_of(window).state == "stopped" and row_of(window).bar.value() > 300)
    window.close()
    hub.hold_at.clear()
    asked = len(hub.asked)
    window = opened()
    until(lambda: KEY in window.models.browser.hub.downloads.rows)
    window.models.browser.show_hub()
    click(row_of(window).resume)
    until(lambda: row_of(window).state == "done")
    assert {request.range for request in hub.asked[asked:]} == {f"bytes={hub.half}-{hub.size - 1}"}


def test_closing_the_window_ends_a_download_in_order_and_keeps_what_has_arrived(opened, hub, until, click):
    window = opened()
    start_and_hold(window, hub, until, click)
    window.close()
    assert not any(thread.isRunning() for thread in window.models.hub._threads)
    (left,) = unfinished()
    assert left.done_bytes >= hub.half


def test_two_downloads_come_one_after_the_other_and_one_that_waits_can_be_cancelled(
    opened, hub, until, click, published
):
    hub.repositories["org/tiny-2"] = Repository(
        dict(published), facts={"downloads": 2, "pipeline_tag": "text-generation"}
    )
    window = opened()
    start_and_hold(window, hub, until, click)
    page = window.models.browser.hub
    page.table.choose("org/tiny-2")
    until(lambda: page.chosen_set() is not None and page.download_button.isEnabled())
    click(page.download_button)
    second = page.downloads.rows[("org/tiny-2", "safetensors")]
    assert second.state == "waiting"
    click(second.cancel)
    hub.go_on.set()
    until(lambda: row_of(window).state == "done" and ("org/tiny-2", "safetensors") not in page.downloads.rows)
    assert not [request for request in hub.asked if "tiny-2/resolve" in request.path]


def test_giving_up_deletes_what_has_arrived(opened, hub, until, click, cache):
    window = opened()
    start_and_hold(window, hub, until, click)
    click(row_of(window).cancel)
    until(lambda: row_of(window).state == "stopped")
    click(row_of(window).discard)
    until(lambda: KEY not in window.models.browser.hub.downloads.rows)
    assert not list(cache.rglob("*.incomplete"))


def test_a_gated_download_fails_with_its_sentence_and_can_be_tried_again(opened, hub, until, click):
    hub.repositories["org/tiny"].gated = True
    window = opened()
    page = find(window, until)
    assert "hf auth login" in page.note.text()
    click(page.download_button)
    until(lambda: row_of(window).state == "failed")
    assert "gated" in row_of(window).problem.text()
    hub.repositories["org/tiny"].gated = False
    click(row_of(window).resume)
    until(lambda: row_of(window).state == "done")


def test_a_hub_that_is_not_there_is_a_sentence_and_a_way_to_try_again(opened, hub, until, click):
    hub.refuse["/api"] = (503, {})
    window = opened()
    browser = window.models.browser
    browser.show_hub()
    click(browser.hub.search_button)
    until(browser.hub.again.isVisible)
    assert "problem of its own" in browser.hub.message.text()
    hub.refuse.clear()
    click(browser.hub.again)
    until(lambda: browser.hub.table.shown())


def test_a_newer_search_takes_the_place_of_one_that_hangs(opened, hub, until, monkeypatch):
    import socket

    window = opened()
    browser = window.models.browser
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        browser.show_hub()
        browser.hub.search()
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        browser.hub.search()
        until(lambda: browser.hub.table.shown())


def test_the_end_of_a_download_is_told_in_the_window_when_the_browser_is_closed(opened, hub, until, click):
    window = opened()
    start_and_hold(window, hub, until, click)
    window.models.browser.close()
    hub.go_on.set()
    until(window.banner.isVisible)
    assert "org/tiny is on this computer now" in window.banner.text


def test_a_folder_is_added_remembered_and_removed(opened, until, tmp_path, folder):
    tiny_folder(tmp_path / "shelf" / "maker" / "mine", "qwen3")
    window = opened()
    window.models.add_folder(str(tmp_path / "shelf"))
    table = window.models.browser.local.table
    until(lambda: [choice.name for choice in table.shown()] == ["mine", "tiny-llama"])
    assert window.preferences.model_folders == [str(folder), str(tmp_path / "shelf")]
    window.models.browser.local.folder_menu.actions()[0].trigger()
    until(lambda: [choice.name for choice in table.shown()] == ["mine"])
    assert window.preferences.model_folders == [str(tmp_path / "shelf")]
    assert Path(folder).is_dir()


def test_the_last_search_is_remembered_with_the_other_preferences(opened, hub, until, tmp_path):
    from app.preferences import read_preferences, write_preferences

    window = opened()
    find(window, until)
    window.models.remember()
    assert write_preferences(window.preferences, tmp_path / "settings.json")
    kept, note = read_preferences(tmp_path / "settings.json")
    assert note == ""
    assert kept.model_browser["search"] == "tiny"
    again = opened(model_browser=kept.model_browser)
    assert again.models.browser.hub.search_field.text() == "tiny"
