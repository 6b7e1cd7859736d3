"""Colour roles, fonts and icons: the one place that knows how Glasswork looks.

Widgets and plots ask for a role (`theme.current().accent`), never for a number, and repaint on
`theme.changes.changed`. The frame around a panel is in panel.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from PySide6.QtCore import QByteArray, QEvent, QObject, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QAction,
    QColor,
    QFont,
    QFontDatabase,
    QFontInfo,
    QIcon,
    QIconEngine,
    QPainter,
    QPalette,
    QPixmap,
)
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QAbstractButton, QApplication, QWidget

from widgets.stylesheet import stylesheet

ICONS = Path(__file__).resolve().parent.parent / "resources" / "icons"
CONTRAST = 4.5  # WCAG AA for text
GAP = 12  # between panels
CORNER = 8
MOTION_MS = 160

motion = True  # False: nothing moves, everything is at its end at once


@dataclass(frozen=True, slots=True)
class Theme:
    """Named colour roles. Each is a QColor; treat them as constants."""

    dark: bool
    ground: QColor  # behind panels
    panel: QColor
    line: QColor  # borders, grids
    track: QColor  # the empty part of bars and sliders
    ink: QColor
    muted: QColor
    accent: QColor  # what is active now
    on_accent: QColor  # text on accent
    probability: QColor
    surprise: QColor
    weights: QColor
    kv_cache: QColor
    top_k: QColor
    top_p: QColor
    min_p: QColor
    typical_p: QColor
    penalty: QColor
    warning: QColor
    lanes: tuple[QColor, ...]  # of A to H, told apart with any kind of colour blindness, readable as text on a panel

    def cut(self, stage: str) -> QColor:
        """The colour of a stage of the waterfall, by its name in events.STAGES."""
        own = {"top_k": self.top_k, "top_p": self.top_p, "min_p": self.min_p, "typical_p": self.typical_p}
        return own.get(stage, self.penalty)

    def lane(self, index: int) -> QColor:
        """The colour of a lane; its letter must stand beside it."""
        return self.lanes[index % len(self.lanes)]

    def lane_ground(self, index: int) -> QColor:
        """What lies behind a lane's words where it has left the others; ink stays readable on it."""
        return mixed(self.panel, self.lane(index), 0.20 if self.dark else 0.12)

    def shade(self, nats: float) -> QColor | None:
        """What lies behind a word of this surprise, or None for none; text in ink stays readable on it.

        The scale is 1 - exp(-nats / 2.5), so that 0.1 nats show nothing and beyond 8 nats all looks alike.
        """
        if not nats > 0.12:  # also NaN
            return None
        most = 0.42 if self.dark else 0.62
        return mixed(self.panel, self.surprise, most * (1.0 - math.exp(-nats / 2.5)))

    def chip(self, role: QColor) -> tuple[QColor, QColor]:
        """(ground, text) of a small label in this role's colour: a tint of it, and it made readable on that."""
        tint = mixed(self.panel, role, 0.20 if self.dark else 0.13)
        return tint, readable(role, tint)


def _theme(dark: bool, lanes: str, **roles: str) -> Theme:
    own = tuple(QColor("#" + value) for value in lanes.split())
    return Theme(dark=dark, lanes=own, **{name: QColor("#" + value) for name, value in roles.items()})


LIGHT = _theme(
    False, ground="F6F7F8", panel="FFFFFF", line="E1E4E8", track="EDF0F3", ink="1A1D21", muted="646C76",
    accent="2F5BD7", on_accent="FFFFFF", probability="0B7A75", surprise="C9A227", weights="6B7A99", kv_cache="0B8F6A",
    top_k="C77700", top_p="2E86C1", min_p="B0558F", typical_p="6F5BC4", penalty="C8471B", warning="C8471B",
    lanes="2F5BD7 A96508 C9189F 357872 640507 4F08AB 687B4D 133845",
)  # fmt: skip
DARK = _theme(
    True, ground="15171A", panel="1C1F23", line="2C3137", track="262A30", ink="E8EAED", muted="98A1AB",
    accent="7FA2FF", on_accent="111318", probability="45C2BA", surprise="E0BE4B", weights="8A9BBE", kv_cache="3CCB9B",
    top_k="E9A13B", top_p="62B4EA", min_p="D987B9", typical_p="A797F0", penalty="EE7B52", warning="EE7B52",
    lanes="7FA2FF E89012 B47594 2FE6BE ED5359 AA67FD CFE888 9DD1F6",
)  # fmt: skip


# ---------------------------------------------------------------- colours


def mixed(ground: QColor, over: QColor, share: float) -> QColor:
    """`over` laid on `ground` with this share (0 to 1), as an opaque colour."""
    keep = 1.0 - share
    return QColor(
        round(ground.red() * keep + over.red() * share),
        round(ground.green() * keep + over.green() * share),
        round(ground.blue() * keep + over.blue() * share),
    )


def contrast(one: QColor, other: QColor) -> float:
    """Contrast of two opaque colours, 1 to 21. Source: WCAG 2.2, relative luminance."""

    def luminance(colour: QColor) -> float:
        parts = (colour.redF(), colour.greenF(), colour.blueF())
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dim, bright = sorted((luminance(one), luminance(other)))
    return (bright + 0.05) / (dim + 0.05)


def readable(colour: QColor, ground: QColor) -> QColor:
    """The colour, moved towards black or white just as far as text on this ground needs."""
    return _readable(colour.rgb(), ground.rgb())


@cache  # a handful of roles on a handful of grounds, asked for in every row of every repaint
def _readable(colour_rgb: int, ground_rgb: int) -> QColor:
    colour, ground = QColor(colour_rgb), QColor(ground_rgb)
    end = QColor("black") if contrast(QColor("black"), ground) > contrast(QColor("white"), ground) else QColor("white")
    for step in range(21):
        moved = mixed(colour, end, step / 20)
        if contrast(moved, ground) >= CONTRAST:
            return moved
    return end


# ---------------------------------------------------------------- which theme


class _Changes(QObject):
    """`changed` goes out after colours or fonts have changed."""

    changed = Signal()

    def system_changed(self, _scheme: Qt.ColorScheme) -> None:
        if _mode == "system":
            _use(_system_theme())


class _FontWatch(QWidget):
    """Never shown. Told, like every widget, when the system's font changes while running (THR-10).

    A filter on the application would see every event of every widget, a third of a second of them at the start.
    """

    def event(self, event: QEvent) -> bool:
        # Our own setFont comes through here too, hence the check.
        if event.type() == QEvent.Type.ApplicationFontChange and _applied_px not in (0, base_px()):
            _restyle()
        return super().event(event)


changes = _Changes()
_font_watch: _FontWatch | None = None
_mode = "system"
_current = LIGHT
_applied_px = 0


def current() -> Theme:
    return _current


def mode() -> str:
    """ "light", "dark" or "system", as last asked for."""
    return _mode


def set_mode(mode: str) -> None:
    """ "light", "dark", or "system" to follow the desktop. Everything repaints at once."""
    global _mode
    if mode not in ("light", "dark", "system"):
        raise ValueError(f"no theme is called {mode!r}")
    _mode = mode
    _use({"light": LIGHT, "dark": DARK}.get(mode) or _system_theme())


def _system_theme() -> Theme:
    app = QApplication.instance()
    if not isinstance(app, QApplication):
        return LIGHT
    return DARK if app.styleHints().colorScheme() == Qt.ColorScheme.Dark else LIGHT


def _use(new: Theme) -> None:
    global _current
    if new is not _current:
        _current = new
        _restyle()


def apply(app: QApplication) -> None:
    """Gives the application this look, and keeps it so while the theme or the system's font changes."""
    global _current, _font_watch
    app.setStyle("Fusion")  # the one style that takes every colour from the palette, on every platform
    app.styleHints().colorSchemeChanged.connect(changes.system_changed, Qt.ConnectionType.UniqueConnection)
    _font_watch = _FontWatch()
    if _mode == "system":
        _current = _system_theme()
    _restyle()


def _restyle() -> None:
    global _applied_px
    app = QApplication.instance()
    if isinstance(app, QApplication):
        icon.cache_clear()
        _sized.cache_clear()
        _applied_px = base_px()
        app.setFont(font())
        app.setPalette(_palette(_current))
        app.setStyleSheet(stylesheet(_current, ICONS))
        for widget in app.allWidgets():
            for owner in (widget, *widget.actions()):
                if name := owner.property("theme_icon"):
                    set_icon(owner, name)
    changes.changed.emit()


def _palette(theme: Theme) -> QPalette:
    palette = QPalette()
    roles = QPalette.ColorRole
    for role, colour in {
        roles.Window: theme.ground,
        roles.Base: theme.panel,
        roles.AlternateBase: theme.ground,
        roles.Button: theme.panel,
        roles.ToolTipBase: theme.panel,
        roles.WindowText: theme.ink,
        roles.Text: theme.ink,
        roles.ButtonText: theme.ink,
        roles.ToolTipText: theme.ink,
        roles.BrightText: theme.warning,
        roles.PlaceholderText: theme.muted,
        roles.Highlight: theme.accent,
        roles.HighlightedText: theme.on_accent,
        roles.Accent: theme.accent,
        roles.Link: theme.accent,
        roles.LinkVisited: theme.accent,
        roles.Light: theme.panel,
        roles.Midlight: theme.line,
        roles.Mid: theme.line,
        roles.Dark: theme.muted,
        roles.Shadow: theme.line,
    }.items():
        palette.setColor(role, colour)
    for role in (roles.WindowText, roles.Text, roles.ButtonText, roles.HighlightedText):
        palette.setColor(QPalette.ColorGroup.Disabled, role, theme.muted)
    palette.setColor(QPalette.ColorGroup.Disabled, roles.Highlight, theme.line)
    return palette


# ---------------------------------------------------------------- fonts


def base_px() -> int:
    """The size of ordinary text in pixels: 13, or the system's where that is larger."""
    return max(13, QFontInfo(QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont)).pixelSize())


def font(step: int = 0, bold: bool = False) -> QFont:
    """The system's font, `step` pixels off the base size, figures of equal width where the font has them."""
    return QFont(_sized(QFontDatabase.SystemFont.GeneralFont, step, bold))


def mono(step: int = 0, bold: bool = False) -> QFont:
    """The system's fixed-width font, for tokens."""
    return QFont(_sized(QFontDatabase.SystemFont.FixedFont, step, bold))


@cache
def _sized(kind: QFontDatabase.SystemFont, step: int, bold: bool) -> QFont:
    base = QFontDatabase.systemFont(kind)
    base.setPixelSize(base_px() + step)
    base.setWeight(QFont.Weight.DemiBold if bold else QFont.Weight.Normal)
    if kind == QFontDatabase.SystemFont.FixedFont:
        base.setStyleHint(QFont.StyleHint.Monospace)
    if hasattr(base, "setFeature"):  # Qt 6.7
        base.setFeature(QFont.Tag("tnum"), 1)
    return base


# ---------------------------------------------------------------- icons


@cache
def icon(name: str, on_accent: bool = False) -> QIcon:
    """An icon of our family in the ink colour, sharp at any pixel ratio up to 3. Raises KeyError for unknown names."""
    if not (ICONS / f"{name}.svg").is_file():
        raise KeyError(name)
    return QIcon(_IconEngine(name, on_accent))


class _IconEngine(QIconEngine):
    """Draws an icon when it is asked for, at the size and pixel ratio asked for, in the theme of that moment."""

    def __init__(self, name: str, on_accent: bool) -> None:
        super().__init__()
        self.name, self.on_accent = name, on_accent

    def clone(self) -> QIconEngine:
        return _IconEngine(self.name, self.on_accent)

    def paint(self, painter: QPainter, rect: QRect, mode: QIcon.Mode, _state: QIcon.State) -> None:
        size, ratio = min(rect.width(), rect.height()), painter.device().devicePixelRatioF()
        painter.drawPixmap(
            rect.x() + (rect.width() - size) // 2,
            rect.y() + (rect.height() - size) // 2,
            _drawn(self.name, size, self.colour(mode).rgb(), ratio),
        )

    def pixmap(self, size: QSize, mode: QIcon.Mode, _state: QIcon.State) -> QPixmap:
        return _drawn(self.name, min(size.width(), size.height()), self.colour(mode).rgb(), 1.0)

    def scaledPixmap(self, size: QSize, mode: QIcon.Mode, _state: QIcon.State, scale: float) -> QPixmap:
        # The size is in device pixels here.
        return _drawn(self.name, min(size.width(), size.height()) / scale, self.colour(mode).rgb(), scale)

    def colour(self, mode: QIcon.Mode) -> QColor:
        if mode == QIcon.Mode.Disabled:
            return mixed(_current.panel, _current.muted, 0.55)
        if mode == QIcon.Mode.Selected or self.on_accent:
            return _current.on_accent
        return _current.ink


@cache
def _drawn(name: str, size: float, rgb: int, ratio: float) -> QPixmap:
    return icon_pixmap(name, size, QColor(rgb), ratio)


def icon_pixmap(name: str, size: float, colour: QColor, ratio: float = 1.0) -> QPixmap:
    """One icon as a pixmap of `size` logical pixels, in this colour."""
    path = ICONS / f"{name}.svg"
    if not path.is_file():
        raise KeyError(name)
    drawing = path.read_text(encoding="utf-8").replace("currentColor", colour.name())
    pixmap = QPixmap(round(size * ratio), round(size * ratio))
    pixmap.fill(Qt.GlobalColor.transparent)
    with QPainter(pixmap) as painter:  # an exception must not leave it open: that ends the process
        QSvgRenderer(QByteArray(drawing.encode())).render(painter, QRectF(0, 0, pixmap.width(), pixmap.height()))
    pixmap.setDevicePixelRatio(ratio)
    return pixmap


def set_icon(owner: QAbstractButton | QAction, name: str) -> None:
    """Gives a button or an action an icon that follows the theme. Set a button's "primary" property before."""
    owner.setProperty("theme_icon", name)
    owner.setIcon(icon(name, on_accent=bool(owner.property("primary"))))
