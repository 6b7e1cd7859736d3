import pytest
from PySide6.QtCore import QMimeData, Qt
from PySide6.QtTest import QTest

from engine import events as ev
from tests.widgets.facts import facts
from widgets.prompt_edit import EDITABLE, PromptEdit
from widgets.prompt_panel import PromptPanel
from widgets.run_store import RunStore


@pytest.fixture
def store(qapp):
    return RunStore()


@pytest.fixture
def panel(qtbot, store):
    made = PromptPanel(store)
    qtbot.addWidget(made)
    return made


def pasted(edit: PromptEdit, text: str) -> None:
    data = QMimeData()
    data.setText(text)
    edit.insertFromMimeData(data)


@pytest.mark.parametrize(
    "text",
    ["a\u00a0b", "a\u2028b", "用两句话介绍一下长江。", "𠮷野家 🌊👩‍👩‍👧", "a\n\nb ", "<|im_end|>", "a\tb"],
)
def test_a_prompt_is_read_as_it_was_written(panel, text):
    pasted(panel.edit, text)
    assert panel.prompt() == text  # THR-25


def test_line_ends_of_other_systems_become_line_breaks(panel):
    pasted(panel.edit, "c\r\nd\u2029e")
    assert panel.prompt() == "c\nd\ne"


def test_shift_return_writes_a_line_break(panel):
    QTest.keyClicks(panel.edit, "a")
    QTest.keyClick(panel.edit, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    QTest.keyClicks(panel.edit, "b")
    assert panel.prompt() == "a\nb"


def test_a_pasted_megabyte_is_kept_whole_and_not_laid_out(panel):
    pasted(panel.edit, "先🌊")
    cursor = panel.edit.textCursor()
    cursor.setPosition(1)
    panel.edit.setTextCursor(cursor)
    text = "河 " * 500_000
    pasted(panel.edit, text)
    assert panel.prompt() == "先" + text + "🌊"
    assert panel.edit.document().characterCount() < EDITABLE
    assert "1,000,002" in panel.held_label.text()
    panel.edit_clear()
    assert panel.prompt() == ""
    assert not panel.edit.isReadOnly()


def test_control_return_asks_for_a_run(qtbot, panel):
    QTest.keyClicks(panel.edit, "hi")
    with qtbot.waitSignal(panel.run_requested):
        QTest.keyClick(panel.edit, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    assert panel.prompt() == "hi"


def test_a_preview_is_asked_for_after_the_last_key(qtbot, panel):
    with qtbot.waitSignal(panel.preview_requested):
        QTest.keyClicks(panel.edit, "hi")


def test_the_preview_counts_tokens_and_shows_special_ones(qtbot, store, panel):
    store.take(ev.Loaded(facts()))
    store.frame.emit()
    tokens = (ev.PromptToken(1, "<|im_start|>", True), ev.PromptToken(4093, "user", False))
    panel.set_preview(ev.PromptPreview("<|im_start|>user", tokens, ("A note.",)))
    assert panel.count_label.text() == "2 tokens, chat template"
    panel.show_button.click()
    assert panel.tokens.toPlainText() == "<|im_start|>user"
    assert panel.notes_label.text() == "A note."


def test_the_count_is_read_whole_in_the_smallest_window(qtbot, store, panel):
    store.take(ev.Loaded(facts()))
    store.frame.emit()
    panel.set_preview(ev.PromptPreview("", (ev.PromptToken(7, "a", False),) * 12_345))
    panel.resize(260, 150)  # as at a window 1024 wide
    panel.show()
    qtbot.waitUntil(lambda: 0 < panel.show_button.geometry().right() < panel.width())
    assert panel.count_label.text() == "12,345 tokens, chat template"
    assert panel.count_label.sizeHint().width() <= panel.count_label.width()


def test_a_problem_is_said(panel):
    panel.set_preview(ev.PromptPreview("", (), (), "The prompt has 9,000 tokens; the context holds 8,192."))
    assert not panel.problem_label.isHidden()
    assert panel.problem_label.text() == "The prompt has 9,000 tokens; the context holds 8,192."


def test_a_model_without_a_template_takes_raw_text_and_says_why(store, panel):
    assert not panel.raw()
    store.take(ev.Loaded(facts(has_chat_template=False)))
    store.frame.emit()
    assert panel.raw()
    assert not panel.chat_action.isEnabled()
    assert "no chat template" in panel.chat_action.toolTip()
    store.take(ev.Loaded(facts()))
    store.frame.emit()
    assert not panel.raw()  # what was chosen comes back


def test_the_system_text_is_none_until_it_is_wanted(panel):
    assert panel.system() is None
    panel.system_action.setChecked(True)
    assert panel.system() == ""
    QTest.keyClicks(panel.system_edit, "Be brief.")
    assert panel.system() == "Be brief."
    panel.raw_action.trigger()
    assert panel.system() is None


def test_markers_are_text_until_switched(panel):
    assert panel.markers_as_text()
    panel.markers_action.setChecked(False)
    assert not panel.markers_as_text()


def test_alt_up_and_down_walk_through_prompts_that_were_run(qtbot, panel):
    panel.show()
    for text in ("one", "two", "three"):
        panel.set_prompt(text)
        panel.remember()
    panel.earlier()
    assert panel.prompt() == "two"
    panel.earlier()
    panel.earlier()
    assert panel.prompt() == "one"
    panel.later()
    assert panel.prompt() == "two"


def test_what_was_there_is_restored(panel):
    panel.restore("河流", "Be kind.", True)
    assert (panel.prompt(), panel.raw()) == ("河流", True)
    panel.chat_action.trigger()
    assert panel.system() == "Be kind."
