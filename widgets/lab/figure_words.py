"""How the figures of a run are called and written, the same on every page of the laboratory."""

from __future__ import annotations

import math

from PySide6.QtCore import QCoreApplication

from engine.settings import RANGES, SamplingSettings
from widgets.format import UNKNOWN, count_text, locale, number_text, percent_text

SHARES = ("distinct", "repetition", "ended_by_eos")  # 0 to 1, shown as per cent


def tr(text: str) -> str:
    return QCoreApplication.translate("Figures", text)


def figure_name(figure: str) -> str:
    """In plain words, lower case."""
    return {
        "mean_surprise_nats": tr("mean surprise"),
        "mean_entropy_nats": tr("mean entropy"),
        "distinct": tr("distinct 3-grams"),
        "repetition": tr("repetition"),
        "tokens": tr("length"),
        "ended_by_eos": tr("ended by itself"),
        "tokens_per_s": tr("speed of a lane"),
    }[figure]


def figure_unit(figure: str) -> str:
    return {
        "mean_surprise_nats": tr("nats"),
        "mean_entropy_nats": tr("nats"),
        "tokens": tr("tokens"),
        "tokens_per_s": tr("tok/s"),
    }.get(figure, "")


def figure_tip(figure: str) -> str:
    """The term, the formula, and that it is measured."""
    return {
        "mean_surprise_nats": tr(
            "Mean of −ln p over the words that were written, p by the model's raw odds. Measured, in nats."
        ),
        "mean_entropy_nats": tr(
            "Mean entropy of the model's raw odds at each word: how open the choice was. Measured, in nats."
        ),
        "distinct": tr(
            "Distinct 3-grams of tokens over all 3-grams (distinct-3, Li et al. 2016): 100% repeats nothing. Measured."
        ),
        "repetition": tr("Share of tokens that end a 3-gram which stood before in the text. Measured."),
        "tokens": tr("Tokens that were written. Measured."),
        "ended_by_eos": tr("Share of runs that the model ended by its end token, before the length did. Measured."),
        "tokens_per_s": tr(
            "Decode speed of one lane while others run in the same batch: a run alone is faster. Measured."
        ),
    }[figure]


def figure_text(figure: str, value: float, unit: bool = False) -> str:
    """A figure with the decimals that tell something."""
    if not math.isfinite(value):
        return UNKNOWN
    if figure in SHARES:
        return percent_text(value, 0 if value in (0.0, 1.0) else 1)
    text = number_text(value, 2 if figure.endswith("_nats") else 1)
    if figure == "tokens" and float(value).is_integer():
        text = number_text(value, 0)
        if unit and value == 1:
            return tr("1 token")
    return f"{text} {figure_unit(figure)}" if unit and figure_unit(figure) else text


def difference_text(figure: str, value: float) -> str:
    """A difference with its sign; shares in points of a hundred."""
    if not math.isfinite(value):
        return UNKNOWN
    if not value:
        return "0"
    sign = "+" if value > 0 else "−"
    if figure in SHARES:
        return f"{sign}{number_text(abs(value) * 100, 1)}"
    return f"{sign}{number_text(abs(value), 2 if figure.endswith('_nats') else 1)}"


def difference_unit(figure: str) -> str:
    return tr("points of 100") if figure in SHARES else figure_unit(figure)


def setting_name(name: str) -> str:
    return {
        "temperature": tr("temperature"),
        "top_k": tr("top-k"),
        "top_p": tr("top-p"),
        "min_p": tr("min-p"),
        "typical_p": tr("typical-p"),
        "repetition_penalty": tr("repetition penalty"),
        "presence_penalty": tr("presence penalty"),
        "frequency_penalty": tr("frequency penalty"),
        "no_repeat_ngram_size": tr("no-repeat n-gram"),
    }[name]


def value_text(value: float) -> str:
    """A setting's value as short as can be, with the system's decimal point."""
    text = f"{value:.10g}"
    return text.replace(".", ",") if locale().decimalPoint() == "," else text


def settings_text(settings: SamplingSettings) -> str:
    """What is switched on, in words: "temperature 0.8 · top-p 0.9"; the seed is not said."""
    temperature = f"{setting_name('temperature')} {value_text(settings.temperature)}"
    parts = [tr("greedy") if settings.greedy else temperature]
    parts += [
        f"{setting_name(name)} {value_text(getattr(settings, name))}"
        for name, allowed in RANGES.items()
        if name != "temperature" and getattr(settings, name) != allowed.off
    ]
    return " · ".join([*parts, *constraint_words(settings)])


def constraint_words(settings: SamplingSettings) -> list[str]:
    """How many tokens have a bias, and how many words are banned; nothing for none."""
    biases, banned = len(settings.logit_bias), len(settings.banned) + len(settings.banned_sequences)
    told = [tr("1 bias") if biases == 1 else tr("{count} biases").format(count=count_text(biases))] if biases else []
    return [*told, tr("{count} banned").format(count=count_text(banned))] if banned else told
