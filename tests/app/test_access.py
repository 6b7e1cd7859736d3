"""Every act by key, a name for every control, and model text that stays text wherever it is shown (THR-26)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from PySide6 import QtGui
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QKeySequence, QTextDocument
from PySide6.QtWidgets import QLabel, QMessageBox, QWidget

from engine import events as ev
from engine.errors import RunFailed
from engine.replay import Recorder
from tests.widgets import events_factory as made
from tests.widgets.facts import facts
from widgets.pipeline_boxes import BOXES
from widgets.placement_dialog import PlacementDialog
from widgets.planner_view import PlannerDialog

MARKS = ("<s>", "<b>x</b>", "a<b>c", "<|im_end|>", "&lt;", "<think>…")


# ---------------------------------------------------------------- keys and names


def shown(tooltip: str) -> str:
    """What Qt writes on the screen for a tool tip."""
    if not QtGui.Qt.mightBeRichText(tooltip):
        return tooltip
    document = QTextDocument()
    document.setHtml(tooltip)
    return document.toPlainText()


def nameless(window: QWidget) -> list[str]:
    found = []
    for widget in window.findChildren(QWidget):
        internal = widget.objectName().startswith("qt_") or type(widget).__module__.startswith("pyqtgraph")
        if widget.focusPolicy() == Qt.FocusPolicy.NoFocus or internal or not widget.isVisibleTo(window):
            continue
        if not any((widget.accessibleName(), getattr(widget, "text", str)())):
            parent = widget.parentWidget()
            found.append(f"{type(widget).__name__} in {type(parent).__name__}")
    return found


@pytest.fixture
def written(make_window, tmp_path):
    """A window that shows a run whose every text looks like markup, its model's name and prompt too."""
    window = make_window()
    window.build_plots()
    model = facts(name="<s>", facts=(ev.Fact("Layers", "<s>", "<s>"),), model_path="<s>", attention="<s>")
    tokens = made.tokens([*MARKS, "<s>"])
    start = made.start(
        prompt="<s>",
        prompt_text="<s>",
        stop=("<s>",),
        notes=("<s>",),
        prompt_tokens=(ev.PromptToken(1, "<s>", True), ev.PromptToken(2, "<b>x</b>", False)),
        ends=(ev.EndToken(2, "<s>", "<s>"),),
    )
    recorder = Recorder(tmp_path / "marks.jsonl", {"model": "<s>"})
    for event in (ev.Loaded(model), start, *tokens, made.end(tokens)):
        recorder.take(event)
        window.store.take(event)
    recorder.close()
    window.prompt_panel.set_prompt("<s>")
    window.prompt_panel.set_preview(ev.PromptPreview("<s>", start.prompt_tokens, notes=("<s>",), problem="<s>"))
    window.prompt_panel.show_button.setChecked(True)
    window.sampling_panel.stop_list.set_strings(MARKS)
    window.sampling_panel.more_button.setChecked(True)
    window.store.select(2)
    return window


def test_every_control_has_a_name(written, qtbot):
    for index in (0, 1):
        written.left.setCurrentIndex(index)
    for box in BOXES:
        written.show_box(box)
        qtbot.wait(0)
        left = nameless(written)
        assert "\n".join(left) == ""
    assert nameless(PlacementDialog((("model", "cpu"),), written)) == []
    assert nameless(PlannerDialog(written.store, written)) == []


def of_the_window(action):
    """Undo and redo have their keys in each part of the window for itself."""
    return action.shortcutContext() != Qt.ShortcutContext.WidgetWithChildrenShortcut


def test_every_act_in_the_menus_has_a_key_of_its_own(make_window):
    window = make_window()
    acts = [
        action
        for menu in window.menus.actions()
        for action in menu.menu().actions()
        if action.text() and not action.menu() and not action.isSeparator()
    ]
    modes = set(window.theme_actions.actions())  # one key goes from one to the other
    assert [action.text() for action in acts if action.shortcut().isEmpty() and action not in modes] == []
    keys = Counter(action.shortcut().toString() for action in window.findChildren(QAction) if of_the_window(action))
    assert [key for key, count in keys.items() if key and count > 1] == []


def test_no_act_takes_a_key_from_a_text_field(make_window):
    """What a person types or edits with must reach the field."""
    window = make_window()
    typing = [
        QKeySequence(key).toString()
        for name in ("Copy", "Cut", "Paste", "Undo", "Redo", "SelectAll", "MoveToNextWord", "MoveToPreviousWord")
        for key in QKeySequence.keyBindings(getattr(QKeySequence.StandardKey, name))
    ]
    acts = [act for menu in window.menus.actions() for act in menu.menu().actions()]
    menus = {act.shortcut().toString() for act in acts if of_the_window(act)}
    assert menus & set(typing) == set()


def test_tab_goes_through_the_window_and_comes_back(make_window, qtbot):
    window = make_window()
    window.prompt_panel.edit.setFocus()
    seen = []
    for _ in range(120):
        widget = window.focusWidget()
        if widget in seen:
            break
        seen.append(widget)
        qtbot.keyClick(widget, Qt.Key.Key_Tab)
    names = {type(widget).__name__ for widget in seen}
    assert window.focusWidget() in seen[:3]
    assert window.sampling_panel.controls.pace_slider in seen
    assert {"PromptEdit", "TextCanvas", "ModelChip"} <= names, names
    assert len(seen) > 20


# ---------------------------------------------------------------- text that looks like markup


def test_markup_is_shown_letter_by_letter(written, qtbot):
    window = written
    window.banner.show_error(ev.EngineError("<s>", "<b>x</b>", 4, "run"))
    labels, tips = 0, 0
    for index in (0, 1):
        window.left.setCurrentIndex(index)
        for box in BOXES:
            window.show_box(box)
            for step in range(len(MARKS)):
                window.store.select(step)
            qtbot.wait(0)
            for widget in window.findChildren(QWidget):
                if isinstance(widget, QLabel) and any(mark in widget.text() for mark in MARKS):
                    labels += 1
                    assert widget.textFormat() == Qt.TextFormat.PlainText, widget.text()
                tip = widget.toolTip()
                if "<s>" in tip or "&lt;s&gt;" in tip:
                    tips += 1
                    assert "<s>" in shown(tip), tip
    assert labels > 10
    assert tips > 1


def test_the_banner_shows_a_failures_marks_and_braces(make_window):
    window = make_window()
    for said in (*MARKS, "{name} {0} {"):
        error = RunFailed("The model failed: {said}", "Try {again}.", said=said, again=said)
        fields = tuple((name, str(value)) for name, value in error.fields.items())
        window.banner.show_error(
            ev.EngineError(error.what, error.fix, 4, "run", error.what_template, error.fix_template, fields)
        )
        assert said in window.banner.text
        window.banner.show_error(ev.EngineError(said, said, 4, "run"))
        assert said in window.banner.text
        window.banner.show_note(said)
        assert window.banner.text == said


def test_a_message_box_shows_marks(make_window):
    window = make_window()
    window._message("<s>", "<b>x</b>")
    (box,) = window.findChildren(QMessageBox)
    assert box.textFormat() == Qt.TextFormat.PlainText
    box.close()


def test_a_recent_file_keeps_its_name(make_window, tmp_path):
    window = make_window()
    window.preferences.recent_files = [str(tmp_path / "a&b <s>.jsonl")]
    window.replays.recents.fill()
    assert window.recent_menu.actions()[0].text() == "a&&b <s>: not there any more"


def test_lanes_of_a_replay_are_saved_again_with_all_that_was_in_them(make_window, tmp_path):
    from engine.replay import read_replay

    tokens = [made.tokens(["a", "b", "c"]), made.tokens(["d", "e"], lane=1)]
    recorder = Recorder(tmp_path / "lanes.jsonl", {"model": "m"})
    starts = [made.start(lanes=2), made.start(lane=1, lanes=2)]
    ends = [made.end(tokens[0]), replace(made.end(tokens[1]), lane=1)]
    for event in (*starts, tokens[0][0], tokens[1][0], tokens[0][1], tokens[1][1], ends[1], tokens[0][2], ends[0]):
        recorder.take(event)
    recorder.close()
    window = make_window()
    assert window.replays.open_file(tmp_path / "lanes.jsonl")
    assert window.replays.save_to(tmp_path / "again.jsonl")
    before, after = read_replay(tmp_path / "lanes.jsonl"), read_replay(tmp_path / "again.jsonl")
    assert not after.damage
    assert sorted(map(repr, after.events)) == sorted(map(repr, before.events))
