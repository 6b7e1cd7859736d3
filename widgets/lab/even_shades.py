"""Shades whose steps look even, between a tint of the ground and one role's colour."""

from __future__ import annotations

from PySide6.QtGui import QColor

from widgets import theme


def shade(place: float) -> QColor:
    """From a tint of the ground to the probability's colour, in steps that look even: straight through OKLab.

    Source: Ottosson 2020, "A perceptual color space for image processing".
    """
    look = theme.current()
    low, high = theme.mixed(look.panel, look.probability, 0.10), look.probability
    one, other = _oklab(low), _oklab(high)
    place = max(0.0, min(1.0, place))
    return _from_oklab([a + (b - a) * place for a, b in zip(one, other, strict=True)])


def _oklab(colour: QColor) -> list[float]:
    r, g, b = (_linear(part) for part in (colour.redF(), colour.greenF(), colour.blueF()))
    l = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)  # noqa: E741
    m = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    s = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return [
        0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s,
        1.9779984951 * l - 2.4285922050 * m + 0.4505937099 * s,
        0.0259040371 * l + 0.7827717662 * m - 0.8086757660 * s,
    ]


def _from_oklab(lab: list[float]) -> QColor:
    lightness, a, b = lab
    l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3  # noqa: E741
    m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    s = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    parts = (
        4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
        -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
        -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s,
    )
    return QColor(*(round(255 * max(0.0, min(1.0, _gamma(part)))) for part in parts))


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4


def _gamma(part: float) -> float:
    return part * 12.92 if part <= 0.0031308 else 1.055 * part ** (1 / 2.4) - 0.055
