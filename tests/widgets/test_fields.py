import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QLocale, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QVBoxLayout, QWidget

from engine.settings import RANGES, Range
from widgets.fields import NumberField, QuietLine, number_shown, read_number

LOCALES = ["en_US", "de_DE", "de_CH", "fr_FR", "hi_IN", "ar_EG", "zh_CN"]


@pytest.fixture(params=LOCALES)
def any_locale(request):
    before = QLocale()
    QLocale.setDefault(QLocale(request.param))
    yield request.param
    QLocale.setDefault(before)


def field(qtbot, allowed=RANGES["temperature"], value=1.0, **how) -> NumberField:
    made = NumberField(allowed, value, **how)
    qtbot.addWidget(made)
    return made


def typed(made: NumberField, text: str) -> NumberField:
    made.selectAll()
    QTest.keyClicks(made, text)
    QTest.keyClick(made, Qt.Key.Key_Return)
    return made


@pytest.mark.parametrize(("text", "value"), [("0.8", 0.8), ("0,8", 0.8), ("1.5", 1.5), ("1e-6", 1e-6), (",5", 0.5)])
def test_point_and_comma_are_the_decimal_point_in_every_locale(qtbot, any_locale, text, value):
    assert typed(field(qtbot), text).value() == value  # THR-23


@pytest.mark.parametrize("text", ["abc", "", "1.2.3", "1,000.5", "nan", "inf", "0x1", "1_0", "--1", "1e999"])
def test_what_cannot_be_read_is_refused_and_never_zero(qtbot, text):
    made = field(qtbot, value=0.7)
    made.setText(text)
    made.setModified(True)
    assert not made.commit()
    assert made.value() == 0.7
    assert made.property("invalid") is True
    assert "0" in made.problem
    assert "100" in made.problem


@pytest.mark.parametrize("text", ["0", "-0.1", "1.01", "1e300"])
def test_a_number_outside_the_range_is_refused_with_the_range(qtbot, text):
    made = typed(field(qtbot, RANGES["top_p"], 0.9), text)
    assert made.value() == 0.9
    assert "more than 0" in made.problem
    assert "up to 1" in made.problem


def test_the_refusal_can_be_seen(qtbot):
    window = QWidget()
    qtbot.addWidget(window)
    column = QVBoxLayout(window)
    made = NumberField(RANGES["top_p"], 0.9)
    column.addWidget(made)
    column.addWidget(made.problem_label)
    window.show()
    typed(made, "7")
    assert made.problem_label.isVisible()
    typed(made, "0.5")
    assert not made.problem_label.isVisible()
    assert made.property("invalid") is False


@pytest.mark.parametrize("seed", [0, -1, 2**31, 2**63, 2**64 + 1, -(2**70), 10**60 + 7])
def test_a_seed_of_any_size_keeps_all_digits(qtbot, seed):
    made = field(qtbot, None, 0, integer=True)  # SAM-2
    with qtbot.waitSignal(made.value_changed) if seed else _nothing() as caught:
        typed(made, str(seed))
    assert made.value() == seed
    assert seed == 0 or caught.args == [seed]
    made.set_value(seed)
    assert made.text() == str(seed)


class _nothing:  # noqa: N801  stands for a context that does nothing
    def __enter__(self):
        return None

    def __exit__(self, *error):
        return False


def test_a_fraction_in_a_field_for_whole_numbers_is_refused(qtbot):
    made = typed(field(qtbot, RANGES["top_k"], 40), "4,5")
    assert made.value() == 40
    assert "whole number" in made.problem


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_that_is_shown_reads_back_bit_for_bit(value):
    read = read_number(number_shown(value))
    assert math.copysign(1.0, read) == math.copysign(1.0, value)
    assert float(read) == value


@pytest.mark.parametrize("value", [0.005, 1e-6, 0.1 + 0.2, 1e-300])
def test_small_values_that_are_set_are_neither_rounded_nor_greedy(qtbot, any_locale, value):
    made = field(qtbot)
    made.set_value(value)
    assert made.value() == value
    assert read_number(made.text()) == value
    made.commit()
    assert made.value() == value


def test_full_width_digits_from_an_input_method_are_read():
    assert read_number("０．８") == 0.8
    assert read_number("0。8") == 0.8


def test_escape_brings_the_last_number_back(qtbot):
    made = field(qtbot, value=0.7)
    made.setText("junk")
    made.setModified(True)
    made.commit()
    QTest.keyClick(made, Qt.Key.Key_Escape)
    assert read_number(made.text()) == 0.7
    assert made.problem == ""


def test_arrow_keys_step_in_decimal_and_stop_at_the_range(qtbot):
    made = field(qtbot, Range(0.0, 0.3, 0.0), 0.1, step=0.1)
    for _ in range(5):
        QTest.keyClick(made, Qt.Key.Key_Up)
    assert made.value() == 0.3
    QTest.keyClick(made, Qt.Key.Key_Down)
    assert made.value() == 0.2
    for _ in range(5):
        QTest.keyClick(made, Qt.Key.Key_Down)
    assert made.value() == 0.0


def test_stepping_down_from_an_open_end_stays_inside(qtbot):
    made = field(qtbot, RANGES["top_p"], 0.02, step=0.01)
    for _ in range(5):
        QTest.keyClick(made, Qt.Key.Key_Down)
    assert made.value() == 0.01


def test_off_is_a_word_that_can_be_read_and_typed(qtbot):
    made = field(qtbot, RANGES["min_p"], 0.05, off_word=True)
    typed(made, "off")
    assert made.value() == 0.0
    made.clearFocus()
    made.set_value(0.0)
    assert made.text() == "off"


def test_counts_are_grouped_until_they_are_written_and_seeds_never(qtbot):
    page = QWidget()
    qtbot.addWidget(page)
    column = QVBoxLayout(page)
    count, seed = NumberField(Range(1, 2**20, 1, integer=True), 8192), NumberField(None, 1234567)
    for made in (count, seed):
        column.addWidget(made)
    page.show()
    page.activateWindow()
    seed.setFocus()
    qtbot.waitUntil(seed.hasFocus)
    assert (count.text(), seed.text()) == ("8,192", "1234567")
    count.setFocus()
    assert count.text() == "8192"
    seed.setFocus()
    assert count.text() == "8,192"
    assert count.value() == 8192


@pytest.mark.parametrize("count", [7, 8192, 123_456, 1_048_576])
def test_a_count_is_taken_as_it_is_shown_and_without_its_groups(qtbot, any_locale, count):
    allowed = Range(1, 2**20, 1, integer=True)
    for text in (field(qtbot, allowed, count).text(), str(count)):
        made = field(qtbot, allowed, 1)
        made.setText(text)  # QTest has keys for ASCII alone
        made.setModified(True)
        assert made.commit()
        assert made.value() == count


@pytest.mark.parametrize("text", ["8,19", "81,92", "8,1920", ",8192", "8192,", "1,2,3", "8.192", "4,5"])
def test_a_comma_that_groups_nothing_is_refused_in_a_field_for_whole_numbers(text):
    assert read_number(text, integer=True) is None


def test_a_comma_stays_the_decimal_point_where_numbers_have_fractions(qtbot):
    made = field(qtbot, Range(0.0, 2**20, 0.0), 8192)
    assert read_number(made.text()) == 8192
    assert typed(made, "8,192").value() == 8.192


def test_a_number_below_zero_has_a_minus_that_can_be_typed(qtbot, any_locale):
    made = field(qtbot, RANGES["presence_penalty"], -0.5)
    assert made.text()[0] == "−"
    assert read_number(made.text()) == -0.5


def test_a_long_number_ends_in_an_ellipsis_while_nobody_writes(qtbot):
    made = field(qtbot, value=0.1 + 0.2)
    made.resize(90, 24)
    assert made.shown_text().endswith("…")


def test_a_name_that_finds_no_room_ends_in_an_ellipsis_while_nobody_writes(qtbot):
    line = QuietLine()
    qtbot.addWidget(line)
    line.setText("a much longer name for a lane")
    line.resize(90, 24)
    assert line.shown_text().startswith("a much")
    assert line.shown_text().endswith("…")
    cut = line.grab().toImage()
    line.resize(400, 24)
    assert line.shown_text() == line.text()
    line.resize(90, 24)
    line.setText("a much")
    assert cut != line.grab().toImage()
