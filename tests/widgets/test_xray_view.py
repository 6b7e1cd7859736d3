"""The precision x-ray's view: asking, the shaded text, the table, taking it away."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication, QLabel

from engine.events import EngineError, XrayProgress
from tests.widgets.xray_factory import FLIPPED, INT8, PIECES, side, token, xray
from widgets import theme
from widgets.xray_figures import about_token, as_markdown, as_tsv, explanation, kl_shade, kl_share, kl_text
from widgets.xray_picture import WIDTH
from widgets.xray_text import Mark, marks_of
from widgets.xray_view import XrayView

SAMPLES = {"prose": "The sea lay flat.", "code": "print(1)"}


@pytest.fixture
def view(qtbot):
    theme.set_mode("light")
    made = XrayView(SAMPLES)
    qtbot.addWidget(made)
    made.resize(1000, 700)
    made.show()
    made.restore("bfloat16", "int8", "prose", "")
    yield made
    theme.set_mode("light")


@pytest.fixture
def asked(view):
    wishes = []
    view.run_requested.connect(wishes.append)
    return wishes


def labels(view):
    QApplication.processEvents()  # what was put into a layout is shown at the next turn
    return [label.text() for label in view.findChildren(QLabel) if label.isVisibleTo(view)]


# ---------------------------------------------------------------- asking


def test_an_empty_view_says_what_will_stand_there_and_what_to_press(view):
    assert "KL divergence" in view.empty.text()
    assert "Ctrl+Return" in view.empty.text()
    assert not view.run_button.isEnabled()
    assert "No model" in view.run_button.toolTip()


def test_what_is_chosen_is_what_is_asked_for(view, asked, qtbot):
    view.set_model("tiny")
    view.other.setCurrentIndex(view.other.findData("nf4"))
    qtbot.mouseClick(view.run_button, Qt.MouseButton.LeftButton)
    (wish,) = asked
    assert (wish.reference, wish.other, wish.text, wish.sample) == ("bfloat16", "nf4", SAMPLES["prose"], "prose")


def test_the_key_asks_too_and_only_when_it_can(view, asked, qtbot):
    view.activateWindow()
    view.editor.setFocus()
    qtbot.keyClick(view.editor, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    assert asked == []
    view.set_model("tiny")
    qtbot.keyClick(view.editor, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    assert len(asked) == 1
    view.set_busy(True)
    qtbot.keyClick(view.editor, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    assert len(asked) == 1


def test_a_changed_sample_is_the_persons_own_text_and_is_kept(view, asked, qtbot):
    view.set_model("tiny")
    view.editor.setPlainText("水很平静。")
    assert view.sample.currentData() == "own"
    view.sample.setCurrentIndex(view.sample.findData("code"))
    view.sample.activated.emit(view.sample.currentIndex())
    assert view.editor.toPlainText() == SAMPLES["code"]
    view.sample.setCurrentIndex(view.sample.findData("own"))
    view.sample.activated.emit(view.sample.currentIndex())
    qtbot.mouseClick(view.run_button, Qt.MouseButton.LeftButton)
    assert (asked[0].text, asked[0].sample) == ("水很平静。", "")
    assert view.own_text() == "水很平静。"


def test_without_a_text_or_while_the_engine_is_at_work_nothing_can_be_asked(view):
    view.set_model("tiny")
    assert view.run_button.isEnabled()
    view.editor.setPlainText("  ")
    assert not view.run_button.isEnabled()
    view.editor.setPlainText("a b")
    view.set_busy(False, others=True)
    assert not view.run_button.isEnabled()
    assert "at work" in view.run_button.toolTip()


def test_it_says_where_it_stands_and_can_be_cancelled(view, qtbot):
    view.set_model("tiny")
    view.set_busy(True)
    assert not view.run_button.isVisible()
    view.show_progress(XrayProgress(1, "int8", "weights", 120_000_000, 269_000_000, 100.0))
    assert view.stage.text() == "int8 · loading · 120 MB of 269 MB"
    assert view.progress.value() == 446
    view.show_progress(XrayProgress(1, "int8", "read", 15, 30, 100.0))
    assert view.stage.text() == "int8 · reading the text"
    with qtbot.waitSignal(view.cancel_requested, timeout=1000):
        qtbot.mouseClick(view.cancel_button, Qt.MouseButton.LeftButton)
    view.set_busy(False)
    assert not view.progress.isVisible()


def test_an_error_stands_where_it_was_asked(view):
    view.set_model("tiny")
    view.show_error(EngineError("In float16 it runs over.", "Choose bfloat16.", 4, "xray"))
    assert view.error.text() == "In float16 it runs over. Choose bfloat16."
    assert view.error.isVisible()


# ---------------------------------------------------------------- the text


def test_shades_follow_the_logarithm_and_ink_stays_readable():
    assert [kl_share(nats) for nats in (None, 0.0, 1e-4, 1e-2, 1.0, 50.0, float("inf"))] == [
        0.0, 0.0, 0.0, pytest.approx(0.5), 1.0, 1.0, 1.0,
    ]  # fmt: skip
    for look in (theme.LIGHT, theme.DARK):
        assert kl_shade(look, 0.0) is None
        assert theme.contrast(look.ink, kl_shade(look, 5.0)) >= theme.CONTRAST


@pytest.mark.parametrize(
    ("nats", "words"),
    [(0.0, "0.00 nats"), (0.00093, "0.00093 nats"), (0.0208, "0.021 nats"), (0.85, "0.85 nats"), (1.5, "1.50 nats")],
)
def test_small_divergences_keep_two_figures(nats, words):
    assert kl_text(nats) == words


def test_pointing_at_a_word_says_what_both_made_of_it(view, qtbot):
    found = xray()
    view.show_xray(found)
    place = view.text.place_of(3)
    qtbot.mouseMove(view.text, place.center().toPoint())
    assert "“·flat”" in view.about.text()
    assert "0.020 nats" in view.about.text()
    assert "bfloat16 takes “·boat” (31.0%; in int8 28.0%)" in view.about.text()
    assert "int8 takes “·ship” (32.0%; in bfloat16 30.0%)" in view.about.text()
    assert view.text.accessibleDescription() == view.about.text()


def test_the_keys_go_from_token_to_token_and_from_change_to_change(view, qtbot):
    view.show_xray(xray())
    view.text.setFocus()
    for key, at in (
        (Qt.Key.Key_Down, 3), (Qt.Key.Key_Down, 5), (Qt.Key.Key_Down, 5), (Qt.Key.Key_Left, 4), (Qt.Key.Key_Up, 3),
        (Qt.Key.Key_Right, 4), (Qt.Key.Key_Home, 0), (Qt.Key.Key_Left, 0), (Qt.Key.Key_End, 8), (Qt.Key.Key_Right, 8),
    ):  # fmt: skip
        qtbot.keyClick(view.text, key)
        assert view.text.marked == at
    assert FLIPPED == (3, 5)


def test_every_word_has_its_place_and_half_a_character_that_of_the_whole_one(view):
    view.show_xray(xray())
    assert all(view.text.place_of(at).isValid() for at in range(len(PIECES)))
    assert view.text.place_of(6) == view.text.place_of(7)
    assert view.text.place_of(5).top() > view.text.place_of(3).top()  # a line break lies between


def test_what_befell_half_a_character_is_shown_on_the_whole_one():
    tokens = (token(0, "a", None), token(1, "", 0.3, True), token(2, "水", 0.001), token(3, "b", 0.002))
    marks = marks_of(xray(tokens=tokens))
    assert marks == {0: Mark((0,), None, False), 2: Mark((1, 2), 0.3, True), 3: Mark((3,), 0.002, False)}


def test_the_first_token_is_said_to_have_nothing_before_it():
    assert "nothing comes before it" in about_token(xray(), 0)


def test_a_place_without_a_word_points_at_nothing(view, qtbot):
    view.show_xray(xray())
    view.text.select(3)
    qtbot.mouseClick(view.text, Qt.MouseButton.LeftButton, pos=QPointF(view.text.width() - 3, 3).toPoint())
    assert view.text.marked is None
    assert "arrow keys" in view.about.text()


def test_changed_first_choices_are_underlined_in_both_themes(view, qtbot):
    view.show_xray(xray())
    for mode in ("light", "dark"):
        theme.set_mode(mode)
        qtbot.wait(1)
        picture = view.text.grab().toImage()
        ratio = picture.devicePixelRatio()
        colours = {}
        for at in (3, 1):
            place = view.text.place_of(at)
            x, y = round(place.center().x() * ratio), round((place.bottom() - 3) * ratio)
            colours[at] = picture.pixelColor(x, y)
        assert colours[3] == theme.current().warning
        assert colours[1] != theme.current().warning


# ---------------------------------------------------------------- figures


def test_the_table_has_both_columns(view):
    view.set_model("tiny")
    view.show_xray(xray())
    shown = labels(view)
    for words in ("bfloat16", "int8", "29.97", "30.87", "269 MB", "163 MB", "20.0 tok/s", "8.0 tok/s"):
        assert words in shown
    assert "75.0% · 2 of 8 differ" in shown
    assert "2 of 8: another first choice" in shown


def test_a_new_result_takes_the_place_of_the_old_one(view):
    view.show_xray(xray())
    view.show_xray(xray(other=side("nf4", weights_bytes=112_000_000)))
    shown = labels(view)
    assert "nf4" in shown
    assert "163 MB" not in shown


def test_slower_is_said_only_where_it_was_and_why_where_it_is_known():
    slow = explanation(xray())
    assert "int8 takes 39% less memory than bfloat16, and needed 2.5 times as long" in slow
    assert "unpacked" in slow
    fast = explanation(xray(other=side("nf4", weights_bytes=112_000_000, decode_tokens_per_s=28.0, unpacks=True)))
    assert "1.4 times as fast" in fast
    assert "as long" not in fast
    near = explanation(xray(other=side("nf4", weights_bytes=112_000_000, decode_tokens_per_s=21.0, unpacks=True)))
    assert "fast" not in near  # within the noise
    half = xray(
        reference=side("float32", weights_bytes=538_000_000), other=side(decode_tokens_per_s=10.0, native=False)
    )
    assert "no products in its number type" in explanation(half)
    same = explanation(xray(other=side()))
    assert "fast" not in same
    assert "slow" not in same


def test_the_table_is_copied_for_a_spreadsheet_and_as_markdown(view, qtbot):
    view.show_xray(xray())
    view.copy_tsv()
    assert QApplication.clipboard().text() == as_tsv(xray())
    rows = [line.split("\t") for line in as_tsv(xray()).splitlines()]
    assert rows[0] == ["", "bfloat16", "int8"]
    assert rows[1] == ["perplexity", "29.97", "30.87"]
    assert {len(row) for row in rows} == {3}
    view.copy_markdown()
    lines = QApplication.clipboard().text().splitlines()
    assert lines == as_markdown(xray()).splitlines()
    assert lines[1] == "| --- | ---: | ---: |"
    assert "clipboard" in view.said.text()


def test_nothing_can_be_taken_away_before_there_is_a_result(view):
    assert not view.copy_button.isEnabled()
    assert not view.export_button.isEnabled()


def test_the_picture_is_written_as_png_and_as_svg(view, tmp_path):
    view.show_xray(xray())
    assert view.export_to(str(tmp_path / "x"))  # without an ending it is a PNG
    image = QImage(str(tmp_path / "x.png"))
    assert image.width() == 2 * WIDTH
    assert image.height() > 500
    found = {image.pixelColor(x, y).name() for x in range(0, image.width(), 7) for y in range(0, image.height(), 7)}
    assert len(found) > 5  # letters, shades, lines
    assert view.export_to(str(tmp_path / "x.svg"))
    drawing = (tmp_path / "x.svg").read_text(encoding="utf-8")
    assert drawing.startswith("<?xml")
    assert "SmolLM2" in drawing
    assert "Saved in" in view.said.text()


def test_a_picture_that_cannot_be_written_is_said(view, tmp_path):
    view.show_xray(xray())
    for name in ("x.png", "x.svg"):
        assert not view.export_to(str(tmp_path / "no folder" / name))
    assert "cannot be written" in view.said.text()


def test_what_looks_like_markup_stays_what_it_is(view):
    found = xray(model="<b>bold</b>", notes=("<i>note</i>",), other=INT8)
    view.set_model(found.model)
    view.show_xray(found)
    assert "<i>note</i>" in view.why.text()
    assert view.why.textFormat() == Qt.TextFormat.PlainText


def test_a_count_of_packed_layers_says_what_it_counts():
    assert "int8: quantised layers: 210 (bitsandbytes int8" in explanation(xray())
