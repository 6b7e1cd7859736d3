from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QLocale
from PySide6.QtGui import QTextDocument

from widgets import format as fmt
from widgets.boxes.histogram_view import exact


@pytest.fixture(autouse=True)
def english():
    before = QLocale()
    QLocale.setDefault(QLocale(QLocale.Language.English))
    yield
    QLocale.setDefault(before)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1_900_000, "1.9 MB"),
        (487_000_000, "487 MB"),
        (999_960_000, "1.0 GB"),
        (15_600_000_000, "15.6 GB"),
        (2.5e12, "2.5 TB"),
        (-2_000_000, "−2.0 MB"),
        (None, "–"),
        (math.nan, "–"),
    ],
)
def test_bytes_are_decimal(count, text):
    assert fmt.bytes_text(count) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0.6, "0.60 ms"),
        (23.64, "23.6 ms"),
        (99.96, "100 ms"),
        (310.2, "310 ms"),
        (999.7, "1.0 s"),
        (2400, "2.4 s"),
        (59_960, "1 min 0 s"),
        (185_000, "3 min 5 s"),
        (3_720_000, "1 h 2 min"),
        (None, "–"),
        (math.inf, "–"),
    ],
)
def test_times_change_their_unit_where_they_should(ms, text):
    assert fmt.duration_text(ms) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0%"),
        (1e-9, "<0.1%"),
        (0.46, "46.0%"),
        (0.9999, ">99.9%"),
        (1.0, "100%"),
        (math.nan, "–"),
        (None, "–"),
    ],
)
def test_a_share_is_never_rounded_to_never_or_always(share, text):
    assert fmt.percent_text(share) == text


def test_counts_of_any_size_are_grouped():
    assert fmt.count_text(49_140) == "49,140"
    assert fmt.count_text(2**64) == "18,446,744,073,709,551,616"


def test_one_is_told_as_one():
    assert [fmt.tokens_text(count) for count in (0, 1, 2)] == ["0 tokens", "1 token", "2 tokens"]
    assert [fmt.layers_text(count) for count in (1, 30)] == ["1 layer", "30 layers"]


def test_a_number_below_zero_has_a_minus_and_no_hyphen():
    assert fmt.number_text(-1.961, 3) == "−1.961"
    assert fmt.count_text(-49_140) == "−49,140"
    assert fmt.count_text(-(2**64)) == "−18,446,744,073,709,551,616"
    assert [exact(value) for value in (-1.961, -3.2e-7, 1.5e6)] == ["−1.961", "−3.2e−07", "1.5e+06"]


def test_numbers_follow_the_locale():
    QLocale.setDefault(QLocale(QLocale.Language.German, QLocale.Country.Germany))
    assert fmt.count_text(49_140) == "49.140"
    assert fmt.percent_text(0.5) == "50,0%"
    assert fmt.bytes_text(1_900_000) == "1,9 MB"
    assert exact(-3.2e-7) == "−3,2e−07"


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (" river", "·river"),
        ("  ", "··"),
        ("a b", "a b"),
        ("\n", "↵"),
        (" \n\n", "·↵↵"),
        ("\t", "⇥"),
        ("\x00", "<U+0000>"),
        ("\x1b[31m", "<U+001B>[31m"),
        ("\u2028", "<U+2028>"),
        ("\u202eabc", "<U+202E>abc"),
        ("\u200d", "<U+200D>"),
        ("\U0001f469\u200d", "\U0001f469<U+200D>"),
        ("\U0001f469\u200d\U0001f467", "\U0001f469\u200d\U0001f467"),
        ("\u0301", "◌\u0301"),
        ("\ud83c", "<U+D83C>"),
        ("<s>", "<s>"),
        ("", ""),
    ],
)
def test_a_label_shows_what_would_vanish(text, label):
    assert fmt.token_label(text) == label


@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=20))
def test_a_tool_tip_shows_its_text_letter_by_letter(text):
    document = QTextDocument()
    document.setHtml(fmt.plain_tooltip("x" + text + "x"))
    shown = document.toPlainText().replace("\u00a0", " ")
    assert shown == "x" + "".join(map(fmt.visible, text)).replace("\u00a0", " ") + "x"
