"""Numbers and tokens as a person reads them. One place, so that a figure looks the same everywhere.

Thousands and decimals follow the system's locale; units stay as the field writes them.
"""

from __future__ import annotations

import html
import math
import unicodedata
from functools import lru_cache

from PySide6.QtCore import QCoreApplication, QLocale

UNKNOWN = "–"
_FITS_QT = 2**63


_ENGLISH = QLocale(QLocale.Language.English)


def locale() -> QLocale:
    """The system's locale; English where there is none, since the C locale groups no thousands."""
    own = QLocale()
    return own if own.language() != QLocale.Language.C else _ENGLISH


def number_text(value: float | None, decimals: int = 1) -> str:
    """A number with a fixed count of decimals; a dash for None, NaN and infinities."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return with_minus(locale().toString(float(value), "f", decimals))


def with_minus(number: str) -> str:
    """A number's text with the sign that is as wide as a plus, which many locales write as a hyphen."""
    return number.replace("-", "−")


def count_text(count: int | None) -> str:
    """A whole number of any size with thousands separators."""
    if count is None:
        return UNKNOWN
    if abs(count) < _FITS_QT:
        return with_minus(locale().toString(count))
    return with_minus(f"{count:,}").replace(",", locale().groupSeparator())  # Qt's integers end at 64 bits


def tokens_text(count: int | None) -> str:
    """So many tokens, with the word."""
    translate = QCoreApplication.translate
    words = translate("format", "1 token") if count == 1 else translate("format", "{count} tokens")
    return words.format(count=count_text(count))


def layers_text(count: int) -> str:
    """So many layers, with the word."""
    translate = QCoreApplication.translate
    words = translate("format", "1 layer") if count == 1 else translate("format", "{count} layers")
    return words.format(count=count_text(count))


def short_count(count: int | None) -> str:
    """A count of three figures: 134M, 7.62B, 950."""
    if count is None:
        return UNKNOWN
    for unit, scale in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= scale * 0.9995:
            value = count / scale
            return f"{number_text(value, 0 if value >= 99.95 else 1 if value >= 9.995 else 2)}{unit}"
    return count_text(count)


def bytes_text(count: float | None) -> str:
    """Bytes in decimal units: 487 MB, 1.9 MB, 12 kB."""
    if count is None or not math.isfinite(count):
        return UNKNOWN
    size = abs(float(count))
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale * 0.9995:
            value = count / scale
            fine = abs(value) < (99.95 if scale >= 1e9 else 9.95)
            return f"{number_text(value, 1 if fine else 0)} {unit}"
    return f"{count_text(round(count))} B"


def duration_text(ms: float | None) -> str:
    """A time given in milliseconds: 0.60 ms, 23.6 ms, 310 ms, 2.4 s, 3 min 5 s."""
    if ms is None or not math.isfinite(ms):
        return UNKNOWN
    if ms < 0.995:
        return f"{number_text(ms, 2)} ms"
    if ms < 99.95:
        return f"{number_text(ms, 1)} ms"
    if ms < 999.5:
        return f"{number_text(ms, 0)} ms"
    if ms < 59_950:
        return f"{number_text(ms / 1000, 1)} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    if minutes < 60:
        return f"{count_text(minutes)} min {seconds} s"
    hours, minutes = divmod(minutes, 60)
    return f"{count_text(hours)} h {minutes} min"


def rate_text(per_second: float | None) -> str:
    """42.4 / s"""
    if per_second is None or not math.isfinite(per_second):
        return UNKNOWN
    return f"{number_text(per_second, 1 if abs(per_second) < 99.95 else 0)} / s"


def percent_text(share: float | None, decimals: int = 1) -> str:
    """A share of 1 as per cent. Never rounds a possible thing to 0 nor an uncertain one to 100: <0.1%, >99.9%."""
    if share is None or not math.isfinite(share):
        return UNKNOWN
    if share <= 0.0:
        return "0%"
    if share >= 1.0:
        return "100%"
    least = 10.0**-decimals
    if share * 100 < least / 2:
        return f"<{number_text(least, decimals)}%"
    if share * 100 >= 100 - least / 2:
        return f">{number_text(100 - least, decimals)}%"
    return f"{number_text(share * 100, decimals)}%"


def nats_text(nats: float | None) -> str:
    """1.46 nats"""
    return f"{number_text(nats, 2)} {QCoreApplication.translate('format', 'nats')}"


def bits(nats: float) -> float:
    return nats / math.log(2.0)


# ---------------------------------------------------------------- tokens

_MARKS = {"\n": "↵", "\t": "⇥", "\u00a0": "<U+00A0>"}
_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u061c")


def visible(character: str) -> str:
    """A character as it is shown where it would otherwise act or vanish: controls, overrides, halves of pairs."""
    if character < " " or character in _BIDI or "\ud800" <= character <= "\udfff" or "\x7f" <= character < "\xa0":
        return f"<U+{ord(character):04X}>"  # not the control pictures of Unicode: few fonts have them
    return character


@lru_cache(maxsize=1 << 14)
def token_label(text: str) -> str:
    """A token by itself on one line: · for leading and trailing spaces, marks for line breaks and controls.

    Two tokens may share a label; whoever tells them apart does it by id (TXT-27).
    """
    inner = text.strip(" ")
    lead = len(text) - len(text.lstrip(" "))
    trail = len(text) - lead - len(inner)
    joined = inner.strip("\u200c\u200d")  # joiners inside hold an emoji together; at an end they would vanish
    left = len(inner) - len(inner.lstrip("\u200c\u200d"))
    label = "".join(
        c if c in "\u200c\u200d" and left <= at < left + len(joined) else _label_character(c)
        for at, c in enumerate(inner)
    )
    if inner and unicodedata.combining(inner[0]):
        label = "◌" + label
    return "·" * lead + label + "·" * trail


def _label_character(character: str) -> str:
    if character in _MARKS:
        return _MARKS[character]
    if unicodedata.category(character) in ("Cf", "Zl", "Zp") and ord(character) < 0xE0000:
        return f"<U+{ord(character):04X}>"
    return visible(character)


def plain_tooltip(text: str) -> str:
    """Text for a tool tip that shows it letter by letter, whatever it looks like (THR-26)."""
    safe = "".join(c if c == "\n" else visible(c) for c in text)
    return f'<p style="white-space:pre-wrap">{html.escape(safe)}</p>'
