"""Lanes in words: settings in short, where a lane leaves another and why, and its figures."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QCoreApplication

from engine.events import TokenEvent
from engine.settings import SamplingSettings
from widgets.candidate_rows import cut_word
from widgets.fields import number_shown
from widgets.format import count_text, nats_text, number_text, percent_text, rate_text, token_label, tokens_text
from widgets.lab.figure_words import constraint_words
from widgets.lab.lane_set import Lane
from widgets.lab.parting import (
    ARITHMETIC,
    DRAW,
    FORCED,
    GREEDY,
    MODEL,
    ODDS,
    PRECISION,
    PROMPT,
    LaneWatch,
    Odds,
    Parting,
    nothing_to_draw,
)
from widgets.run import Run
from widgets.status_line import pace
from widgets.text_painter import end_word

OFF = SamplingSettings()


def tr(text: str) -> str:
    return QCoreApplication.translate("Lanes", text)


# What stands before a setting's value, in the order in which they are told. Short forms that the field uses.
SHORT = {
    "temperature": "T",
    "top_p": "p",
    "top_k": "k",
    "min_p": "min-p",
    "typical_p": "typical",
    "repetition_penalty": "rep.",
    "presence_penalty": "presence",
    "frequency_penalty": "frequency",
    "no_repeat_ngram_size": "no-repeat",
    "seed": "seed",
}


def setting_text(name: str, settings: SamplingSettings) -> str:
    """One setting in short: "T 0.8", "p 0.90"."""
    value = getattr(settings, name)
    shown = number_text(value, 2) if name == "top_p" and round(value, 2) == value else number_shown(value)
    return f"{SHORT[name]} {shown}"


def settings_words(settings: SamplingSettings, with_seed: bool = False) -> str:
    """What is switched on, in short: "T 0.8 · p 0.90 · k 40". Greedy needs only what moves logits."""
    names = [name for name in SHORT if name not in ("temperature", "seed")]
    if settings.greedy:
        names = [name for name in names if name not in ("top_p", "top_k", "min_p", "typical_p")]
    told = [setting_text("temperature", settings)]
    told += [setting_text(name, settings) for name in names if getattr(settings, name) != getattr(OFF, name)]
    told += constraint_words(settings)
    if with_seed and settings.draws:
        told.append(setting_text("seed", settings))
    return " · ".join(told)


def changed_words(before: SamplingSettings, after: SamplingSettings) -> str:
    """What became of the settings: "T 0.8 → 1.4, p 0.90 → off"; "" where nothing did."""
    return ", ".join(changed_list(before, after))


def changed_list(before: SamplingSettings, after: SamplingSettings) -> list[str]:
    """The same, one by one."""
    told = []
    for name in SHORT:
        if getattr(before, name) != getattr(after, name):
            value = setting_text(name, after).removeprefix(SHORT[name] + " ")
            told.append(f"{setting_text(name, before)} → {value}")
    constraints = ("logit_bias", "banned", "banned_sequences")
    if any(getattr(before, name) != getattr(after, name) for name in constraints):
        told.append(tr("other words banned or boosted"))
    return told


def difference_words(lane: Lane, reference: Lane, letter: str) -> str:
    """How a lane is asked differently than the reference, a sentence without a full stop."""
    parts = []
    if lane.own != reference.own:
        parts.append(tr("another prompt"))
    if changed := changed_words(reference.settings, lane.settings):
        parts.append(changed)
    if not parts:
        return tr("set up as {letter}: it will write the same words").format(letter=letter)
    return tr("against {letter}: {difference}").format(letter=letter, difference=", ".join(parts))


def place_words(step: int) -> str:
    return tr("word {number}").format(number=count_text(step + 1))


def draw_words(u: float | None) -> str:
    return tr("no draw") if u is None else f"u = {number_text(u, 3)}"


def parting_words(watch: LaneWatch, letter: str) -> str:
    """Where a lane leaves the reference and why; how far both agree while it does not."""
    parting = watch.parting
    if parting is None:
        return _agreeing_words(watch, letter)
    left = tr("leaves {letter} at {place}").format(letter=letter, place=place_words(parting.step))
    return f"{left}: {reason_words(parting, watch)}"


def _agreeing_words(watch: LaneWatch, letter: str) -> str:
    reference = watch.reference
    if reference is None or not watch.agreed:
        return ""
    over = watch.run.end is not None and reference.end is not None
    if over and len(watch.run.tokens) == len(reference.tokens):
        return tr("the same words as {letter} to the end").format(letter=letter)
    words = tr("the same first word") if watch.agreed == 1 else tr("the same {count} words")
    words = words.format(count=count_text(watch.agreed))
    said = tr("{words} as {letter}, where one of the two ends") if over else tr("{words} as {letter} so far")
    return said.format(words=words, letter=letter)


def reason_words(parting: Parting, watch: LaneWatch) -> str:
    """Why a lane parted, without a full stop."""
    mine, theirs = parting.mine, parting.theirs
    draws = tr("{mine} here, {theirs} there").format(mine=draw_words(mine.u), theirs=draw_words(theirs.u))
    if parting.why == ARITHMETIC:
        return _arithmetic_words(watch, parting)
    if parting.why == GREEDY:
        greedy, drawn = tr("takes the most probable word, without a draw"), draw_words(mine.u or theirs.u)
        if mine.u is None:
            return tr("{greedy}; {draw} there").format(greedy=greedy, draw=drawn)
        return tr("{draw}; the other {greedy}").format(greedy=greedy, draw=drawn)
    if parting.why == DRAW:
        said = tr("different draw and different odds") if parting.settings_differ else tr("different draw")
        return f"{said} ({draws})"
    if parting.why == ODDS:
        return _odds_reason(mine, theirs, draws)
    return {
        MODEL: tr("another model"),
        PRECISION: tr("another precision"),
        PROMPT: tr("different prompt"),
        FORCED: tr("a word was given, not chosen"),
    }[parting.why]


def _odds_reason(mine: TokenEvent, theirs: TokenEvent, draws: str) -> str:
    """The odds alone parted them: how little the draw had to do with it."""
    if mine.u is None and theirs.u is None:
        return tr("no draw, different odds")
    if nothing_to_draw(mine) and nothing_to_draw(theirs):
        return tr("one word is left in each, so that no draw matters: different odds")
    if mine.u is None or theirs.u is None:
        return tr("different odds: each takes its most probable word")
    if mine.u == theirs.u:
        return tr("same draw {draw}, different odds").format(draw=draw_words(mine.u))
    return tr("different odds, with either draw ({draws})").format(draws=draws)


def _arithmetic_words(watch: LaneWatch, parting: Parting) -> str:
    """Prompt and settings are equal, and the draw too or it decides nothing, and still they part (SAM-27)."""
    facts = watch.run.facts
    lanes = watch.run.start.lanes
    precision = facts.precision if facts is not None else ""
    where = ", ".join(
        part
        for part in (
            precision,
            tr("a batch of {lanes}").format(lanes=count_text(lanes)) if lanes > 1 and watch.run.start.lockstep else "",
        )
        if part
    )
    if parting.mine.settings.seed == parting.theirs.settings.seed:
        said = tr("prompt, settings and seed are the same: the arithmetic, not the setting, parted them")
    else:
        said = tr("prompt and settings are the same and no draw matters: the arithmetic, not the setting, parted them")
    return f"{said} ({where})" if where else said


# ---------------------------------------------------------------- figures


@dataclass(frozen=True, slots=True)
class LaneFigure:
    text: str
    tooltip: str


def figure_list(watch: LaneWatch) -> list[LaneFigure]:
    """What is counted of a lane's text, in few words each."""
    figures, run = watch.figures, watch.run
    found: list[LaneFigure] = []
    if figures.tokens:
        found = [
            LaneFigure(
                tr("mean surprise {nats}").format(nats=nats_text(figures.mean_surprise_nats)),
                tr("Mean surprise: mean of −ln p of the chosen words, p before all settings; measured."),
            ),
            LaneFigure(
                tr("distinct {share}").format(share=percent_text(figures.distinct, 0)),
                tr("Distinct: groups of three tokens that differ, over all groups of three (distinct-3); counted."),
            ),
            LaneFigure(
                tr("repeated {share}").format(share=percent_text(figures.repetition, 0)),
                tr("Repeated: share of tokens that end a group of three which stood before; counted."),
            ),
            LaneFigure(
                tokens_text(figures.tokens),
                tr("Length of this lane's text; counted."),
            ),
        ]
    if (rate := pace(run).tokens_per_s) is not None:
        found.append(
            LaneFigure(rate_text(rate), tr("Tokens per second of this lane while decoding, pauses left out; measured."))
        )
    if run.end is not None:
        found.append(LaneFigure(_end_words(run), tr("Why this lane ended.")))
    return found


def _end_words(run: Run) -> str:
    assert run.end is not None
    return tr("ended: length") if run.end.reason == "length" else end_word(run.end)


# ---------------------------------------------------------------- odds


def odds_words(odds: Odds | None) -> str:
    """One cell of the table: how probable a word was for a lane."""
    if odds is None or odds.elsewhere:
        return "—"
    if odds.most is not None:
        if odds.most <= 0.0:
            return percent_text(0.0)
        return tr("not listed (< {share})").format(share=percent_text(odds.most).removeprefix("<"))
    if odds.final is None:
        return tr("cut by {stage}").format(stage=cut_word(odds.cut_by or ""))
    return percent_text(odds.final)


def odds_tooltip(odds: Odds | None, letter: str) -> str:
    if odds is None:
        return tr("{letter} has written no word at this place.").format(letter=letter)
    if odds.elsewhere:
        return tr("{letter} had left before: its odds here are for another text.").format(letter=letter)
    if odds.most is not None:
        if odds.most <= 0.0:
            return tr("Not among the words that {letter} kept: it could not be chosen.").format(letter=letter)
        return tr(
            "Not among the words of {letter} whose odds were kept. It had less than this: what all unlisted words "
            "shared, or the odds of the least listed one. Worked out from what was measured."
        ).format(letter=letter)
    before = percent_text(odds.raw, 2)
    if odds.final is None:
        return tr("{share} before the settings of {letter}, which cut it.").format(share=before, letter=letter)
    return tr("{after} after the settings of {letter}, {before} before; measured.").format(
        after=percent_text(odds.final, 2), before=before, letter=letter
    )


def word_text(token: TokenEvent) -> str:
    return token_label(token.token_text)
