from __future__ import annotations

import math
from itertools import combinations

import pytest
from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QColor, QFocusEvent, QFont, QFontDatabase, QFontInfo, QFontMetricsF, QPalette
from PySide6.QtWidgets import QPushButton

from engine.events import STAGES
from widgets import theme
from widgets.panel import ElidedLabel, Panel, PlainLabel
from widgets.theme import DARK, LIGHT, contrast

BOTH = pytest.mark.parametrize("look", [LIGHT, DARK], ids=["light", "dark"])


@pytest.fixture
def styled(qapp):
    theme.set_mode("light")
    theme.apply(qapp)
    yield qapp
    theme.set_mode("light")


def test_contrast_is_that_of_the_standard():
    # Known pairs: black on white is 21, #767676 on white is the lightest grey that passes.
    assert contrast(QColor("black"), QColor("white")) == pytest.approx(21.0)
    assert contrast(QColor("#767676"), QColor("white")) == pytest.approx(4.54, abs=0.01)


@BOTH
def test_words_can_be_read_on_every_ground(look):
    for ground in (look.panel, look.ground, look.track):
        assert contrast(look.ink, ground) >= 4.5
    for ground in (look.panel, look.ground):
        assert contrast(look.muted, ground) >= 4.5
    assert contrast(look.on_accent, look.accent) >= 4.5
    for role in (look.warning, look.accent):
        assert contrast(theme.readable(role, look.panel), look.panel) >= 4.5


@BOTH
@pytest.mark.parametrize("nats", [0.0, 0.2, 1.0, 2.5, 8.0, 30.0, float("inf"), float("nan")])
def test_words_can_be_read_on_every_shade_of_surprise(look, nats):
    shade = look.shade(nats) or look.panel
    assert contrast(look.ink, shade) >= 4.5


@BOTH
def test_more_surprise_is_a_stronger_shade(look):
    assert look.shade(0.05) is None
    strength = [contrast(look.shade(nats), look.panel) for nats in (0.3, 1.0, 3.0, 8.0)]
    assert strength == sorted(strength)


@BOTH
@pytest.mark.parametrize("stage", STAGES)
def test_chips_can_be_read(look, stage):
    ground, text = look.chip(look.cut(stage))
    assert contrast(text, ground) >= 4.5


# What eyes without one kind of cone see of linear RGB. Source: Machado, Oliveira and Fernandes 2009, severity 1.
EYES = {
    "all three": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}


def seen(colour: QColor, eye: str) -> tuple[float, float, float]:
    """CIELAB under D65 of what this eye sees."""

    def times(matrix, values):
        return [sum(m * v for m, v in zip(row, values, strict=True)) for row in matrix]

    srgb = (colour.redF(), colour.greenF(), colour.blueF())
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in srgb]
    linear = [min(1.0, max(0.0, c)) for c in times(EYES[eye], linear)]
    to_xyz = ((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.072175), (0.0193339, 0.119192, 0.9503041))
    white = times(to_xyz, (1.0, 1.0, 1.0))
    xyz = [v / w for v, w in zip(times(to_xyz, linear), white, strict=True)]
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@BOTH
@pytest.mark.parametrize("eye", EYES)
def test_the_colours_of_eight_lanes_are_told_apart_by_every_eye(look, eye):
    # 2.3 in CIELAB is a difference that is just seen side by side; five times that is seen across a screen.
    places = [seen(look.lane(index), eye) for index in range(8)]
    assert min(math.dist(one, other) for one, other in combinations(places, 2)) > 11.5


@BOTH
def test_the_letters_of_lanes_and_the_words_of_lanes_can_be_read(look):
    for index in range(8):
        assert contrast(look.lane(index), look.panel) >= 4.5
        assert contrast(look.ink, look.lane_ground(index)) >= 4.5


def test_the_four_filters_with_sliders_have_colours_of_their_own():
    for look in (LIGHT, DARK):
        assert len({look.cut(stage).name() for stage in ("top_k", "top_p", "min_p", "typical_p", "penalties")}) == 5


def test_a_change_of_theme_reaches_palette_icons_and_views(styled, qtbot):
    button = QPushButton("Run")
    qtbot.addWidget(button)
    theme.set_icon(button, "run")
    light = button.icon().pixmap(16, 16).toImage()
    with qtbot.waitSignal(theme.changes.changed):
        theme.set_mode("dark")
    assert theme.current() is DARK
    assert styled.palette().color(QPalette.ColorRole.Window) == DARK.ground
    assert styled.palette().color(QPalette.ColorRole.Text) == DARK.ink
    dark = button.icon().pixmap(16, 16).toImage()
    assert light != dark
    assert dark.pixelColor(8, 8).name() == DARK.ink.name()


def test_the_systems_theme_is_followed_while_asked_for(styled, monkeypatch):
    theme.set_mode("system")
    monkeypatch.setattr(theme, "_system_theme", lambda: DARK)
    theme.changes.system_changed(Qt.ColorScheme.Dark)
    assert theme.current() is DARK
    theme.set_mode("light")
    theme.changes.system_changed(Qt.ColorScheme.Dark)
    assert theme.current() is LIGHT


def test_an_unknown_theme_or_icon_is_refused(styled):
    with pytest.raises(ValueError, match="sepia"):
        theme.set_mode("sepia")
    with pytest.raises(KeyError):
        theme.icon("no such icon")


@pytest.mark.parametrize("path", sorted(theme.ICONS.glob("*.svg")), ids=lambda path: path.stem)
def test_every_icon_draws_in_the_asked_colour_at_any_pixel_ratio(qapp, path):
    for ratio in (1.0, 1.5, 2.0):
        image = theme.icon_pixmap(path.stem, 20, QColor("#123456"), ratio).toImage()
        assert image.width() == round(20 * ratio)
        pixels = [image.pixelColor(x, y) for x in range(image.width()) for y in range(image.height())]
        strongest = max(pixels, key=QColor.alpha)
        assert strongest.alpha() > 120
        for got, asked in zip(strongest.getRgb()[:3], (0x12, 0x34, 0x56), strict=True):
            assert got == pytest.approx(asked, abs=3)


def test_figures_have_equal_widths(qapp):
    metrics = QFontMetricsF(theme.font())
    assert len({round(metrics.horizontalAdvance(digit * 10), 3) for digit in "0123456789"}) == 1


def test_text_is_13_pixels_or_as_large_as_the_system_says(qapp, monkeypatch):
    class Database:
        SystemFont = QFontDatabase.SystemFont
        pixels = 9

        @classmethod
        def systemFont(cls, _kind):
            font = QFont()
            font.setPixelSize(cls.pixels)
            return font

    monkeypatch.setattr(theme, "QFontDatabase", Database)
    theme._sized.cache_clear()
    assert QFontInfo(theme.font()).pixelSize() == 13
    Database.pixels = 20
    theme._sized.cache_clear()
    assert QFontInfo(theme.font()).pixelSize() == 20
    assert QFontInfo(theme.font(3)).pixelSize() == 23
    theme._sized.cache_clear()


@pytest.mark.parametrize("text", ["<s>", "<b>x</b>", "a<b>c", "if a<b and c>d", "<|im_end|>", "&lt;"])
def test_labels_show_markup_letter_by_letter(qtbot, text):
    for label in (PlainLabel(text), ElidedLabel(text)):
        qtbot.addWidget(label)
        assert label.sizeHint().width() >= QFontMetricsF(label.font()).horizontalAdvance(text) - 1


def test_the_focus_can_be_seen_on_the_panels_line(styled, qtbot):
    panel = Panel("Text")
    qtbot.addWidget(panel)
    inside = QPushButton("x")
    panel.body.addWidget(inside)
    panel.show_focus_of(inside)
    panel.resize(200, 100)
    panel.show()
    middle = 100, 0
    styled.sendEvent(inside, QFocusEvent(QEvent.Type.FocusOut))
    assert panel.grab().toImage().pixelColor(*middle) == LIGHT.line
    styled.sendEvent(inside, QFocusEvent(QEvent.Type.FocusIn))
    assert panel.grab().toImage().pixelColor(*middle) == LIGHT.accent


def test_a_panel_shows_title_remark_and_buttons(styled, qtbot):
    panel = Panel("Memory")
    qtbot.addWidget(panel)
    panel.set_remark("<s>weights, measured")
    button = panel.add_button("Copy", "copy", "Copy the text (Ctrl+C)")
    assert panel.title_label.text() == panel.accessibleName() == "Memory"
    assert panel.remark_label.textFormat() == Qt.TextFormat.PlainText
    assert button.accessibleName() == "Copy"
    assert not button.icon().isNull()
