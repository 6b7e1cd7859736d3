"""What a comparison of two settings says, in plain words first."""

from __future__ import annotations

import math

from PySide6.QtCore import QCoreApplication

from engine.events import Luck, LuckFigure
from widgets.format import count_text, number_text
from widgets.lab.figure_words import difference_text, difference_unit, figure_name


def tr(text: str) -> str:
    return QCoreApplication.translate("LuckPage", text)


def verdict_words(figure: LuckFigure) -> str:
    """A few words for a table."""
    if figure.difference.low == figure.difference.high == 0:
        return tr("no difference")
    return {
        "setting": tr("the setting's doing"),
        "perhaps": tr("perhaps"),
        "luck": tr("could be luck"),
        "none": tr("cannot be compared"),
    }[figure.verdict]


def interval_text(figure: LuckFigure) -> str:
    difference = figure.difference
    if math.isnan(difference.low):
        return ""
    return tr("{low} to {high}").format(
        low=difference_text(figure.name, difference.low), high=difference_text(figure.name, difference.high)
    )


def odds_text(p: float) -> str:
    """How often chance alone does as much."""
    if p < 0.0005:
        return tr("in fewer than 1 of 1,000 tries")
    if p < 0.01:
        return tr("in {count} of 1,000 tries").format(count=number_text(p * 1000, 0))
    return tr("in {count} of 100 tries").format(count=number_text(p * 100, 0))


def explanation(luck: Luck, figure: LuckFigure) -> str:
    """The verdict on one figure: what differs, how sure that is, and how many seeds would tell."""
    name, difference, seeds = figure_name(figure.name), figure.difference, luck.question.seeds
    if figure.verdict == "none":
        if min(mean.count for mean in figure.means) >= 2:
            return tr(
                "{name}: the texts of each setting agree, and the two settings differ. Among so few texts that happens "
                "by chance, too: take more seeds."
            ).format(name=name)
        return tr("{name}: fewer than two texts of a setting have it, so there is nothing to compare.").format(
            name=name
        )
    if difference.low == difference.high and figure.verdict != "perhaps":
        if not difference.difference:
            return tr("{name}: the same in every text of both settings.").format(name=name)
        return tr("{name}: every text of a setting has the same, so the difference is the setting's doing.").format(
            name=name
        )
    unit = difference_unit(figure.name)
    first = tr("{name}: B less A is {difference} {unit}; the 95% interval is {interval} ({seeds} seeds each).").format(
        name=name,
        difference=difference_text(figure.name, difference.difference),
        unit=unit,
        interval=interval_text(figure),
        seeds=count_text(seeds),
    )
    odds = odds_text(difference.p)
    if figure.verdict == "setting":
        return " ".join(
            [first, tr("That is the setting's doing: luck alone would do as much {odds}.").format(odds=odds)]
        )  # fmt: skip
    if figure.verdict == "perhaps":
        return " ".join(
            [
                first,
                tr(
                    "Taken alone it is more than luck would do (as much {odds}), but among so many figures one may "
                    "well stand out by chance: run it again with other seeds to be sure."
                ).format(odds=odds),
            ]
        )
    words = [first, tr("It could be luck: that alone does as much {odds}.").format(odds=odds)]
    if figure.seeds_needed is not None and figure.seeds_needed > seeds:
        words.append(
            tr(
                "If the difference is as large as it looks, about {count} seeds for each setting would show it in four "
                "of five tries (estimated)."
            ).format(count=count_text(figure.seeds_needed))
        )
    return " ".join(words)


def summary(luck: Luck) -> str:
    """One sentence over all figures."""
    by_verdict: dict[str, list[str]] = {}
    for figure in luck.figures:
        by_verdict.setdefault(figure.verdict, []).append(figure_name(figure.name))
    if seen := by_verdict.get("setting"):
        return tr("The setting's doing: {figures}.").format(figures=", ".join(seen))
    if by_verdict.get("perhaps"):
        return tr("Nothing is certain; {figures} may be the setting's doing.").format(
            figures=", ".join(by_verdict["perhaps"])
        )
    return tr("Nothing here is more than luck would do.")


METHOD = (
    "Welch's t interval of the difference of two means (95%), each seed one value; the verdict also asks Holm's "
    "correction over all figures. The two settings use different seeds: with the same ones two equal settings would "
    "write the same texts."
)
