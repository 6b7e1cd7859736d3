"""The table by layer: several rows at once, undo, and nothing is loaded from a table that cannot be used."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from engine import events as ev
from engine.sizes import ModelPart, PrecisionSizes
from widgets.placement_dialog import DEVICE, PlacementDialog

PARTS = ("model.embed_tokens", *(f"model.layers.{at}" for at in range(4)), "model.norm", "lm_head")
SIZES = ev.ModelSizes(
    parameters=700, hidden_size=8, heads=2, kv_heads=2, vocab_size=16, widest_layer=16, context_tokens=64,
    buffer_bytes=0,
    precisions=tuple(PrecisionSizes(name, "bfloat16", (("all", 1400),), name == "nf4") for name in ("bfloat16", "nf4")),
    cache=None,
    parts=tuple(ModelPart(n, int(n[-1]) if n[-1].isdigit() else None, (200_000_000, 60_000_000)) for n in PARTS),
)  # fmt: skip
LIMITS = (
    ev.DeviceLimit("cuda:0", 500_000_000, 600_000_000),
    ev.DeviceLimit("cpu", 8_000_000_000, 16_000_000_000),
)


@pytest.fixture
def dialog(qtbot):
    made = PlacementDialog((("", "cpu"), ("model.layers.3", "disk")), None, SIZES, "bfloat16", LIMITS)
    made.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose, False)  # the fixture closes it
    qtbot.addWidget(made)
    made.show()
    return made


def devices(dialog) -> list[str]:
    return [device for _, device in dialog.pairs()]


def test_each_part_has_a_row_with_its_size_on_the_device_that_the_map_gives_it(dialog):
    assert [name for name, _ in dialog.pairs()] == list(PARTS)
    assert devices(dialog) == ["cpu"] * 4 + ["disk"] + ["cpu"] * 2
    assert dialog.table.item(1, 1).text() == "200 MB"
    assert dialog.totals.text() == "CPU 1.2 GB of 8.0 GB free · disk 200 MB, read again for every token"
    assert dialog.problem_label.isHidden()


def test_several_rows_are_set_at_once_and_one_undo_takes_it_back(dialog):
    before = dialog.pairs()
    dialog.choose_rows([1, 2])
    dialog.device.choose("cuda:0")
    dialog.set_button.click()
    assert devices(dialog)[1:3] == ["cuda:0", "cuda:0"]
    assert dialog.chosen_rows() == [1, 2]  # and can be set again
    assert "GPU 0 400 MB of 500 MB free" in dialog.totals.text()
    dialog.undo_button.click()
    assert dialog.pairs() == before
    assert not dialog.undo_button.isEnabled()
    dialog.redo_button.click()
    assert devices(dialog)[1:3] == ["cuda:0", "cuda:0"]


def test_typing_a_device_is_a_step_too(dialog):
    dialog.table.item(0, DEVICE).setText("cuda:0")
    assert devices(dialog)[0] == "cuda:0"
    QTest.keyClick(dialog, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert devices(dialog)[0] == "cpu"


def test_shift_and_the_arrows_choose_rows_and_a_key_sets_them(dialog):
    dialog.table.setFocus()
    dialog.table.setCurrentCell(1, 0)
    for _ in range(2):
        QTest.keyClick(dialog.table, Qt.Key.Key_Down, Qt.KeyboardModifier.ShiftModifier)
    assert dialog.chosen_rows() == [1, 2, 3]
    dialog.device.choose("disk")
    QTest.keyClick(dialog.table, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    assert devices(dialog)[1:5] == ["disk"] * 4
    assert dialog.isVisible()  # Ctrl+Return sets, it does not close


def test_removed_rows_come_back_and_what_is_missing_is_named(dialog):
    dialog.choose_rows([0, 6])
    dialog.remove_button.click()
    assert len(dialog.pairs()) == 5
    assert "model.embed_tokens, lm_head" in dialog.problem_label.text()
    dialog.accept()
    assert dialog.isVisible()
    dialog.undo_button.click()
    assert dialog.problem_label.isHidden()


def test_a_row_of_its_own_may_name_what_lies_inside_a_part(dialog):
    dialog.add_button.click()
    row = dialog.table.rowCount() - 1
    dialog.table.item(row, 0).setText("model.layers.2.mlp")
    dialog.table.item(row, DEVICE).setText("disk")
    assert dialog.problem() == ""
    assert dialog.pairs()[-1] == ("model.layers.2.mlp", "disk")


@pytest.mark.parametrize(
    ("row", "column", "text", "told"),
    [
        (0, DEVICE, "", "names no device"),
        (0, DEVICE, "cuda:7", "no device “cuda:7”"),
        (0, DEVICE, "cpuu", "no device “cpuu”"),
        (0, 0, "model.layers.1", "two rows"),
        (0, 0, "model.layers.9", "no part of this model"),
    ],
)
def test_what_cannot_be_used_is_said_before_loading(dialog, row, column, text, told):
    dialog.table.item(row, column).setText(text)
    assert told in dialog.problem_label.text()
    dialog.accept()
    assert dialog.isVisible()


def test_everything_on_disk_and_quantised_weights_on_disk_are_refused(qtbot, dialog):
    dialog.choose_rows(range(len(PARTS)))
    dialog.device.choose("disk")
    dialog.set_device()
    assert "something has to compute" in dialog.problem()
    packed = PlacementDialog((("", "cpu"), ("model.layers.3", "disk")), None, SIZES, "nf4", LIMITS)
    qtbot.addWidget(packed)
    assert "Quantised weights cannot lie on disk" in packed.problem()


def test_more_than_a_device_has_is_a_warning_and_no_refusal(dialog):
    dialog.choose_rows([1, 2, 3])
    dialog.device.choose("cuda:0")
    dialog.set_device()
    assert "GPU 0 600 MB of 500 MB free" in dialog.totals.text()
    assert dialog.totals.property("role") == "warning"
    assert dialog.problem() == ""
    dialog.accept()
    assert dialog.result() == 1


def test_without_a_known_model_rows_are_typed(qtbot):
    made = PlacementDialog((), None)
    qtbot.addWidget(made)
    assert made.pairs() == (("", "cpu"),)
    assert made.table.isColumnHidden(1)
    assert made.problem() == ""
