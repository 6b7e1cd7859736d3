"""The model browser by mouse and key: what it shows, what it asks for, and what it remembers."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QDesktopServices
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QFileDialog, QWidget

from engine import events as ev
from widgets import theme
from widgets.model_browser import ModelBrowser
from widgets.rows import SORT

SMALL = ev.ModelChoice(
    "SmolLM2-135M", "default", "default", 269_000_000, "llama", 134_515_008, "bfloat16", 8192, True,
    weights="safetensors", licence="apache-2.0", path="/models/small",
)  # fmt: skip
CHINESE = ev.ModelChoice(
    "通义 <b>7B</b>", "/models/qwen", "folder", 15_000_000_000, "qwen2", 7_600_000_000, "GPTQ 4-bit", 131_072, True,
    weights="safetensors", path="/models/qwen",
)  # fmt: skip
PICKLE = ev.ModelChoice(
    "old", "/models/old", "folder", 500_000_000, "gpt2", None, "float32", 1024, False, True, weights="pickle"
)
BROKEN = ev.ModelChoice(
    "broken", "/models/broken", "folder", 10, "llama", weights="safetensors", path="/models/broken",
    problem=ev.EngineError(
        "x is truncated.", "Again.", 3, "catalog", "{name} is truncated.", "Get {name} again.", (("name", "a.bin"),)
    ),
)  # fmt: skip
MODELS = [SMALL, CHINESE, PICKLE, BROKEN]
RIVER = ev.HubModel("org/River-1B", 4_400_000, 1200, 1_235_814_400, 2_471_628_800, "apache-2.0", False, "2026-05-10")
GATED = ev.HubModel("org/Gated-8B", 90, 5300, None, None, "", True, "2026-01-02")
SAFE = ev.FileSet("safetensors", "safetensors", ("config.json", "model.safetensors"), 2_500_000_000, 1_000_000)
OFFER = ev.HubOffer("org/River-1B", "c" * 40, (SAFE,), page="https://127.0.0.1/org/River-1B")
QUANTS = (ev.FileSet("q4.gguf", "gguf", ("q4.gguf",), 800_000_000), ev.FileSet("q8.gguf", "gguf", ("q8.gguf",), 10**9))
LEFT, WAIT_MS = Qt.MouseButton.LeftButton, 10_000


@pytest.fixture
def browser(qtbot):
    made = ModelBrowser()
    qtbot.addWidget(made)
    made.set_models(MODELS, ("/models",), "/cache/hub")
    made.resize(1240, 700)  # the offscreen screen is smaller
    made.show()
    yield made
    made.close()


@pytest.fixture
def hub(browser):
    browser.show_hub()
    browser.hub.search_field.setText("riv")
    QTest.keyClick(browser.hub.search_field, Qt.Key.Key_Return)
    browser.show_results((GATED, RIVER))
    return browser.hub


def names(browser) -> list[str]:
    return [model.name for model in browser.local.table.shown()]


def click_header(table, title: str) -> None:
    header = table.horizontalHeader()
    at = next(i for i, column in enumerate(table.rows.columns) if column.title == title)
    place = QPoint(header.sectionViewportPosition(at) + header.sectionSize(at) // 2, header.height() // 2)
    QTest.mouseClick(header.viewport(), LEFT, pos=place)


def said(signal) -> list:
    heard: list = []
    signal.connect(heard.append)
    return heard


# ---------------------------------------------------------------- on this computer


def test_each_model_stands_in_a_row_with_its_facts(browser):
    table = browser.local.table
    row = names(browser).index("SmolLM2-135M")
    cells = [table.model().index(row, at).data() for at in range(len(table.rows.columns))]
    assert cells == [
        "SmolLM2-135M", "135M", "269 MB", "bfloat16", "8,192", "apache-2.0", "template", "safetensors", "llama",
        "default",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("title", "rising"),
    [
        ("parameters", ["SmolLM2-135M", "通义 <b>7B</b>"]),
        ("size", ["broken", "SmolLM2-135M", "old", "通义 <b>7B</b>"]),
        ("context", ["old", "SmolLM2-135M", "通义 <b>7B</b>"]),
    ],
)
def test_a_click_on_a_title_sorts_by_value_and_the_unknown_stays_last(browser, title, rising):
    click_header(browser.local.table, title)
    known = len(rising)
    first = names(browser)[:known]
    click_header(browser.local.table, title)
    second = names(browser)[:known]
    assert sorted([first, second]) == sorted([rising, rising[::-1]])


def test_the_filter_keeps_rows_that_hold_every_word(browser):
    QTest.keyClicks(browser.local.filter, "LLAMA apache")
    assert names(browser) == ["SmolLM2-135M"]
    browser.local.filter.clear()
    browser.local.filter.setText("通义")
    assert names(browser) == ["通义 <b>7B</b>"]


def test_a_filter_that_nothing_fits_says_so_and_can_be_cleared(browser):
    browser.local.filter.setText("no such model")
    assert "No model here fits “no such model”" in browser.local.empty_text.text()
    assert not browser.local.load_button.isEnabled()
    QTest.mouseClick(browser.local.empty_clear, LEFT)
    assert len(names(browser)) == 4


def test_a_broken_model_says_what_is_wrong_and_cannot_be_loaded(browser):
    heard = said(browser.load_requested)
    browser.choose("/models/broken")
    assert browser.local.details.problem.text() == "a.bin is truncated."
    assert browser.local.details.fix.text() == "Get a.bin again."
    assert not browser.local.load_button.isEnabled()
    QTest.keyClick(browser.local.table, Qt.Key.Key_Return)
    assert heard == []
    assert "1 cannot be loaded" in browser.local.count.text()


def test_a_whole_model_is_loaded_by_button_by_enter_and_by_double_click(browser):
    heard = said(browser.load_requested)
    browser.choose("/models/qwen")
    QTest.mouseClick(browser.local.load_button, LEFT)
    QTest.keyClick(browser.local.table, Qt.Key.Key_Return)
    table = browser.local.table
    place = table.visualRect(table.currentIndex()).center()
    QTest.mouseClick(table.viewport(), LEFT, pos=place)
    QTest.mouseDClick(table.viewport(), LEFT, pos=place)
    assert heard == ["/models/qwen"] * 3


def test_it_works_by_keys_alone(browser, qtbot):
    heard = said(browser.load_requested)
    browser.activateWindow()
    QTest.keyClick(browser.local.table, Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(browser.local.filter.hasFocus, timeout=WAIT_MS)
    QTest.keyClicks(browser.local.filter, "gpt2")
    QTest.keyClick(browser.local.filter, Qt.Key.Key_Return)
    qtbot.waitUntil(browser.local.table.hasFocus, timeout=WAIT_MS)
    QTest.keyClick(browser.local.table, Qt.Key.Key_Return)
    assert heard == ["/models/old"]
    QTest.keyClick(browser.local.table, Qt.Key.Key_Escape)
    assert not browser.isVisible()


def test_the_details_say_why_the_kind_of_file_matters(browser):
    browser.choose("/models/old")
    facts = browser.local.details.facts()
    assert "run a program" in facts["files"]
    assert facts["chat template"] == "none: it continues raw text"
    assert "parameters" not in facts  # not known: no line, never a 0
    browser.choose("default")
    assert browser.local.details.facts()["parameters"] == "134,515,008"


def test_model_names_are_never_markup(browser):
    browser.choose("/models/qwen")
    assert browser.local.details.name.text() == "通义 <b>7B</b>"
    assert browser.local.details.name.textFormat() == Qt.TextFormat.PlainText
    tip = browser.local.table.currentIndex().data(Qt.ItemDataRole.ToolTipRole)
    assert "&lt;b&gt;7B&lt;/b&gt;" in tip


def test_show_in_folder_opens_where_it_lies(browser, monkeypatch, tmp_path):
    opened = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: opened.append(url.toLocalFile()))
    file = tmp_path / "m.gguf"
    browser.set_models([ev.ModelChoice("m", str(file), "gguf", 1, path=str(file))], (), "")
    QTest.mouseClick(browser.local.show_button, LEFT)
    assert opened == [str(tmp_path)]


def test_folders_are_added_and_removed(browser, monkeypatch):
    added, removed = said(browser.folder_added), said(browser.folder_removed)
    monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *args: "/more")
    QTest.mouseClick(browser.local.add_button, LEFT)
    (action,) = browser.local.folder_menu.actions()
    action.trigger()
    assert (added, removed) == (["/more"], ["/models"])
    browser.set_models(MODELS, (), "")
    assert not browser.local.remove_button.isEnabled()


def test_without_any_model_it_teaches_where_they_come_from(qtbot, browser):
    browser.set_models([], (), "/cache/hub")
    text = browser.local.empty_text.text()
    assert "Add a folder" in text
    assert "/cache/hub" in text
    QTest.mouseClick(browser.local.empty_hub, LEFT)
    assert browser.tabs.currentWidget() is browser.hub


def test_what_was_chosen_stays_chosen_when_the_list_is_read_again(browser):
    browser.choose("/models/old")
    browser.set_models([BROKEN, *MODELS[:3]], (), "")
    assert browser.local.table.current() == PICKLE


def test_every_control_has_a_name(hub, browser):
    hub.downloads.row(("org/River-1B", "safetensors"))
    for page in (browser.local, browser.hub):
        browser.tabs.setCurrentWidget(page)
        for widget in page.findChildren(QWidget):
            internal = widget.objectName().startswith("qt_")
            if widget.focusPolicy() == Qt.FocusPolicy.NoFocus or internal or not widget.isVisibleTo(page):
                continue
            assert widget.accessibleName() or getattr(widget, "text", str)(), widget


# ---------------------------------------------------------------- on the hub


def test_nothing_is_asked_until_a_person_searches(browser, qtbot):
    searched, asked = said(browser.search_requested), said(browser.offer_requested)
    browser.show_hub()
    assert "Only a search or a download goes over the network" in browser.hub.message.text()
    QTest.keyClicks(browser.hub.search_field, "qwen")
    assert (searched, asked) == ([], [])
    browser.hub.kind.setCurrentIndex(1)
    QTest.mouseClick(browser.hub.search_button, LEFT)
    assert searched == [("qwen", "gguf")]
    assert "Asking the hub" in browser.hub.message.text()


def test_results_stand_most_downloaded_first_and_the_chosen_one_is_looked_at_once(qtbot, browser, hub):
    assert [model.hub_id for model in hub.table.shown()] == ["org/River-1B", "org/Gated-8B"]
    with qtbot.waitSignal(browser.offer_requested, timeout=WAIT_MS) as asked:
        hub.table.choose("org/Gated-8B")
        hub.table.choose("org/River-1B")
    assert asked.args == ["org/River-1B"]
    cells = [hub.table.model().index(0, at).data() for at in range(8)]
    assert cells == ["org/River-1B", "4.40M", "1.20k", "1.24B", "2.5 GB", "apache-2.0", "open", "2026-05-10"]


def test_a_search_without_a_result_and_one_without_a_network_are_sentences(browser, hub):
    browser.show_results(())
    assert "fits “riv”" in hub.message.text()
    browser.show_results(ev.EngineError("The hub cannot be reached.", "Check it.", 5, "search"))
    assert hub.message.text() == "The hub cannot be reached. Check it."
    again = said(browser.search_requested)
    QTest.mouseClick(hub.again, LEFT)
    assert again == [("riv", "text-generation")]


def test_download_asks_for_the_set_that_is_chosen(browser, hub):
    heard = said(browser.download_requested)
    hub.table.choose("org/River-1B")
    assert not hub.download_button.isEnabled()
    browser.show_offer("org/River-1B", OFFER)
    assert "2 files, 2.5 GB" in hub.takes.text()
    assert "1.0 MB of it are here already" in hub.takes.text()
    browser.show_offer("org/River-1B", ev.HubOffer("org/River-1B", "c" * 40, QUANTS))
    hub.sets.setCurrentIndex(1)
    QTest.mouseClick(hub.download_button, LEFT)
    assert heard == [("org/River-1B", "q8.gguf")]
    assert not hub.download_button.isEnabled()
    hub.sets.setCurrentIndex(0)
    assert hub.download_button.isEnabled()


def test_what_is_here_already_is_not_downloaded_again(browser, hub):
    hub.table.choose("org/River-1B")
    whole = ev.FileSet("safetensors", "safetensors", ("config.json",), 100, 100)
    browser.show_offer("org/River-1B", ev.HubOffer("org/River-1B", "c" * 40, (whole,)))
    assert "all of it is here already" in hub.takes.text()
    assert not hub.download_button.isEnabled()


def test_an_offer_of_another_model_is_not_shown(browser, hub):
    hub.table.choose("org/Gated-8B")
    browser.show_offer("org/River-1B", OFFER)
    assert hub.chosen_set() is None


@pytest.mark.parametrize(("logged_in", "words"), [(False, "hf auth login"), (True, "account that is logged in")])
def test_a_gated_model_says_what_to_do(browser, hub, logged_in, words):
    hub.table.choose("org/Gated-8B")
    browser.show_offer("org/Gated-8B", ev.HubOffer("org/Gated-8B", "c" * 40, (SAFE,), gated=True, logged_in=logged_in))
    assert words in hub.note.text()


def test_a_repository_without_a_model_and_one_that_fails_say_why(browser, hub):
    hub.table.choose("org/River-1B")
    browser.show_offer("org/River-1B", ev.HubOffer("org/River-1B", "c" * 40, (), note="This is an adapter."))
    assert hub.note.text() == "This is an adapter."
    assert not hub.download_button.isEnabled()
    browser.show_offer("org/River-1B", ev.EngineError("No such thing.", "Look again.", 5, "search"))
    assert hub.details.problem.text() == "No such thing. Look again."


def test_its_page_opens_in_the_browser(browser, hub, monkeypatch):
    opened = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: opened.append(url.toString()))
    hub.table.choose("org/River-1B")
    browser.show_offer("org/River-1B", OFFER)
    QTest.mouseClick(hub.page_button, LEFT)
    assert opened == ["https://127.0.0.1/org/River-1B"]


# ---------------------------------------------------------------- downloads

KEY = ("org/River-1B", "safetensors")


def progress(state="downloading", done=1_200_000_000, speed=12_000_000.0, left=108.0):
    return ev.DownloadProgress(*KEY, state, done, 2_500_000_000, speed, left, "model.safetensors")


def test_a_download_shows_bytes_speed_and_the_time_left(browser, hub):
    browser.show_progress(progress())
    row = hub.downloads.rows[KEY]
    assert row.status.text() == "1.2 GB / 2.5 GB · 12 MB / s · 1 min 48 s left · model.safetensors"
    assert row.bar.value() == 480
    browser.show_progress(progress(speed=0.0, left=None))
    assert "nothing arrives" in row.status.text()
    browser.show_progress(progress("retrying", speed=None, left=None))
    assert "trying again" in row.status.text()


def test_a_download_is_cancelled_and_goes_on_by_button(browser, hub):
    cancelled, asked = said(browser.cancel_requested), said(browser.download_requested)
    browser.show_progress(progress())
    row = hub.downloads.rows[KEY]
    QTest.mouseClick(row.cancel, LEFT)
    assert cancelled == [KEY]
    browser.show_end(ev.DownloadEnd(*KEY, "cancelled"))
    browser.set_unfinished((ev.Unfinished(*KEY, 1_250_000_000, 2_500_000_000),))
    assert row.status.text() == "1.3 GB / 2.5 GB · stopped"
    assert row.bar.value() == 500
    QTest.mouseClick(row.resume, LEFT)
    assert asked == [KEY]
    assert row.cancel.isVisible()


def test_what_an_earlier_start_left_can_go_on_or_be_given_up(browser, hub):
    discarded = said(browser.discard_requested)
    browser.set_unfinished((ev.Unfinished(*KEY, 10, 100),))
    QTest.mouseClick(hub.downloads.rows[KEY].discard, LEFT)
    assert discarded == [KEY]
    browser.set_unfinished(())
    assert hub.downloads.rows == {}
    assert not hub.downloads.isVisible()


def test_a_failed_download_keeps_its_sentence_until_it_goes_on(browser, hub):
    browser.show_end(
        ev.DownloadEnd(*KEY, "error", error=ev.EngineError("The disk is full.", "Free some.", 4, "download"))
    )
    row = hub.downloads.rows[KEY]
    browser.set_unfinished((ev.Unfinished(*KEY, 10, 100),))
    assert row.problem.text() == "The disk is full. Free some."
    assert row.resume.text() == "Try again"
    browser.show_progress(progress())
    assert not row.problem.isVisible()


def test_a_finished_download_can_be_loaded_and_dismissed(browser, hub):
    heard = said(browser.load_requested)
    browser.show_end(ev.DownloadEnd(*KEY, "done", "org/River-1B"))
    row = hub.downloads.rows[KEY]
    QTest.mouseClick(row.load, LEFT)
    assert heard == ["org/River-1B"]
    QTest.mouseClick(row.dismiss, LEFT)
    assert hub.downloads.rows == {}


# ---------------------------------------------------------------- remembering


def test_the_table_does_not_scroll_sideways_in_the_window_as_it_opens(qtbot, browser):
    browser.setStyleSheet(f"* {{ font-size: {theme.base_px()}px }}")
    browser.resize(1240, 700)
    browser.show()
    table = browser.local.table
    qtbot.waitUntil(lambda: table.viewport().width() > 880 and table.horizontalScrollBar().maximum() == 0)
    assert table.horizontalHeader().length() <= table.viewport().width()
    browser.resize(1700, 700)
    qtbot.waitUntil(lambda: table.columnWidth(0) == table._wanted[0])


@pytest.mark.parametrize("width", [1024, 900, 720])
@pytest.mark.parametrize("page", ["local", "hub"])
def test_in_a_narrow_window_the_last_columns_give_way_and_nothing_scrolls(qtbot, browser, hub, page, width):
    browser.setStyleSheet(f"* {{ font-size: {theme.base_px()}px }}")
    shown = getattr(browser, page)
    browser.tabs.setCurrentWidget(shown)
    table, last = shown.table, len(shown.table.rows.columns) - 1
    browser.resize(width, 600)
    qtbot.waitUntil(lambda: table.isColumnHidden(last) and table.horizontalScrollBar().maximum() == 0)
    assert table.horizontalHeader().length() <= table.viewport().width()
    assert not any(table.isColumnHidden(at) for at in range(3))
    browser.resize(1500, 600)
    qtbot.waitUntil(lambda: not table.isColumnHidden(last))


def test_size_columns_and_the_last_search_come_back(qtbot, browser, hub):
    hub.kind.setCurrentIndex(2)
    browser.local.table.horizontalHeader().moveSection(2, 0)
    browser.local.table.setColumnWidth(0, 333)
    click_header(browser.local.table, "context")
    browser.resize(760, 500)
    order = names(browser)
    other = ModelBrowser()
    qtbot.addWidget(other)
    other.set_models(MODELS, (), "")
    other.restore(browser.state())
    assert other.size() == browser.size()
    assert other.local.table.horizontalHeader().visualIndex(2) == 0
    assert other.local.table.columnWidth(0) == 333
    assert names(other) == order
    assert (other.hub.search_field.text(), other.hub.kind.currentData()) == ("riv", "")
    assert other.tabs.currentWidget() is other.hub


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"geometry": 3, "local_columns": "!!", "hub_columns": "AAAA", "local_split": [1], "page": 7, "search": None},
        {"geometry": "AAAA", "local_split": ["x", 2], "hub_split": [-1, 5], "kind": [], "page": "0"},
    ],
)
def test_a_state_that_makes_no_sense_changes_nothing(browser, state):
    browser.restore(state)
    assert len(names(browser)) == 4
    assert browser.local.table.model().index(0, 0).data(SORT) is not None
