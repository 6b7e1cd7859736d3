"""What a report of runs says, before it is Markdown or HTML. Events in, words and tables out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

from engine.events import TokenEvent
from engine.export import ExportRun, reference_place, title_of
from engine.figures import NGRAM, figures_of, first_difference
from engine.replay_lines import seed_value
from engine.settings import RANGES, SamplingSettings

Say = Callable[[str], str]  # our own words in the reader's language
UNKNOWN = "–"


@dataclass(frozen=True, slots=True)
class Parting:
    """Where a run first wrote another token than the reference. step None: it never did."""

    step: int | None
    sentence: str


def as_is(text: str) -> str:
    return text


def report_title(runs: list[ExportRun], say: Say = as_is) -> str:
    if len(runs) == 1:
        name = title_of(runs[0])
        return say("{run} of {model}").format(run=name[:1].upper() + name[1:], model=runs[0].model_name or UNKNOWN)
    models = list(dict.fromkeys(run.model_name or UNKNOWN for run in runs))
    return say("{count} runs of {model} compared").format(count=len(runs), model=", ".join(models))


def facts_lines(runs: list[ExportRun], say: Say = as_is) -> list[tuple[str, str]]:
    """What all runs share of the machine and the model: names and values."""
    first = runs[0]
    found = [(say("model"), first.model_name)]  # not its path: a report is passed on
    found.append((say("precision"), ", ".join(dict.fromkeys(run.precision or UNKNOWN for run in runs))))
    devices = first.facts.devices if first.facts is not None else first.header.get("devices")
    if isinstance(devices, (tuple, list)):
        found.append((say("device"), ", ".join(map(str, devices))))
    if first.facts is not None:
        found.append((say("attention, kernel"), f"{first.facts.attention}, {first.facts.kernel}"))
    versions = first.header.get("versions")
    if isinstance(versions, dict):
        told = ", ".join(f"{name} {version}" for name, version in versions.items() if isinstance(version, str))
        found.append((say("versions"), told))
    if len(runs) > 1:
        found.append((say("compared with"), names_of(runs)[reference_place(runs)]))
    return [(name, value) for name, value in found if value]


def names_of(runs: list[ExportRun]) -> list[str]:
    """What each run is called beside the others: where all belong to one run by its letter, else that comes first."""
    if len({run.start.run_id for run in runs}) > 1:
        return [f"{run.mark or run.letter}: {title_of(run)}" for run in runs]
    return [title_of(run, several=False) for run in runs]


def prompts_of(runs: list[ExportRun], say: Say = as_is) -> list[tuple[str, str]]:
    """(heading, text) of the prompts: once where all runs were asked the same."""
    asked = [(run.system or "", run.start.prompt) for run in runs]
    if len(set(asked)) == 1:
        system, prompt = asked[0]
        return [*([(say("System text"), system)] if system else []), (say("Prompt"), prompt)]
    found = []
    for name, (system, prompt) in zip(names_of(runs), asked, strict=True):
        if system:
            found.append((say("System text of {run}").format(run=name), system))
        found.append((say("Prompt of {run}").format(run=name), prompt))
    return found


def settings_table(runs: list[ExportRun], say: Say = as_is) -> list[list[str]]:
    """Head and a row a run: every setting that is on somewhere, and the seed. What differs has a star in the head."""
    off = SamplingSettings()
    names = [each.name for each in fields(SamplingSettings)]
    values = [[getattr(run.start.settings, name) for name in names] for run in runs]
    on = [
        at
        for at, name in enumerate(names)
        if name in ("temperature", "seed") or any(row[at] != getattr(off, name) for row in values)
    ]
    differs = {at for at in on if any(row[at] != values[0][at] for row in values)}
    head = ["", *(_term(names[at]) + (" *" if at in differs else "") for at in on)]
    rows = [
        [name, *(_setting(names[at], row[at], say) for at in on)]
        for name, row in zip(names_of(runs), values, strict=True)
    ]
    return [head, *rows]


def _term(name: str) -> str:
    """A setting's name as people write it: top-k, repetition penalty."""
    return name.replace("_k", "-k").replace("_p", "-p") if len(name.split("_")[-1]) == 1 else name.replace("_", " ")


def _setting(name: str, value: object, say: Say) -> str:
    if name == "temperature" and value == 0:
        return say("0 (greedy)")
    if name in RANGES and value == RANGES[name].off and name != "temperature":
        return say("off")
    if name == "seed":
        return str(seed_value(value))  # type: ignore[arg-type]
    if name == "logit_bias":
        return ", ".join(f"{token_id}: {bias:+g}" for token_id, bias in value) or say("off")  # type: ignore[attr-defined]
    if name == "banned_sequences":
        return ", ".join(" ".join(map(str, ids)) for ids in value) or say("off")  # type: ignore[attr-defined]
    if name == "banned":
        return ", ".join(map(str, value)) or say("off")  # type: ignore[call-overload]
    return f"{value:g}" if isinstance(value, float) else str(value)


def figures_table(runs: list[ExportRun], say: Say = as_is) -> list[list[str]]:
    head = ["", say("tokens"), say("ended by"), say("mean surprise (nats)"), say("mean entropy (nats)")]
    head += [
        say("distinct {n}-grams").format(n=NGRAM),
        say("repetition"),
        say("TTFT (ms)"),
        say("tokens / s").replace(" ", "\u00a0"),
    ]
    head += [say("KV cache (MB)")]
    rows = [head]
    for name, run in zip(names_of(runs), runs, strict=True):
        figures, end = figures_of(run.tokens), run.end
        row = [name, str(figures.tokens), _ended_by(run, say)]
        row += [_number(figures.mean_surprise_nats, 2), _number(figures.mean_entropy_nats, 2)]
        row += [_percent(figures.distinct), _percent(figures.repetition)]
        if end is not None:
            first, speed = end.ttft_ms or math.nan, end.decode_tokens_per_s or math.nan  # 0: there is none to measure
            row += [_number(first, 0), _number(speed, 1), _number(end.kv_bytes / 1e6, 1)]
        else:
            row += [UNKNOWN] * 3
        rows.append(row)
    return rows


def _ended_by(run: ExportRun, say: Say) -> str:
    if run.end is None:
        return say("still running")
    return say("end of the recording") if run.end.breaks_off else run.end.reason


def _number(value: float, decimals: int) -> str:
    return f"{value:.{decimals}f}" if math.isfinite(value) else UNKNOWN


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if math.isfinite(share) else UNKNOWN


def partings(runs: list[ExportRun], say: Say = as_is) -> list[Parting]:
    """For each run where it parts from the reference, with the draws and the odds of both."""
    names, at_reference = names_of(runs), reference_place(runs)
    reference, name = runs[at_reference], names[at_reference]
    first = reference.ids
    found = []
    for place, run in enumerate(runs):
        if place == at_reference:
            found.append(Parting(None, say("The reference: the others are compared with it.") if len(runs) > 1 else ""))
            continue
        own = run.ids
        at = first_difference(first, own)
        if at is not None and at < max(run.lost, reference.lost):
            sentence = say("Parts from {first} at token {number}, which is not in this recording.").format(
                first=name, number=at + 1
            )
        elif at is not None:
            words = [_token_words(each.tokens[at - each.lost], say) for each in (reference, run)]
            sentence = say("Parts from {first} at token {number}: {theirs}; here {own}.").format(
                first=name, number=at + 1, theirs=words[0], own=words[1]
            )
            if run.start.settings == reference.start.settings and run.precision in ("bfloat16", "float16"):
                sentence += " " + say(
                    "Both have the same settings: in {precision} the rounding of the arithmetic can part them."
                ).format(precision=run.precision)
        elif len(first) == len(own):
            sentence = say("The same tokens as {first}.").format(first=name)
        else:
            sentence = say("The same tokens as {first} as far as both go.").format(first=name)
        found.append(Parting(at, sentence))
    return found


def _token_words(token: TokenEvent, say: Say) -> str:
    drawn = say("no draw") if token.u is None else f"u\u00a0=\u00a0{token.u:.4f}"
    odds = say("{raw} by the model, {final} after the settings").format(
        raw=_percent(math.exp(token.logprob)), final=_percent(math.exp(token.final_logprob))
    )
    label = token.token_text.replace("\n", "↵").replace("\t", "⇥")
    return f"“{label}” ({odds}, {drawn})"


def notes_of(runs: list[ExportRun], say: Say = as_is) -> list[str]:
    """What a reader must know to trust the figures."""
    notes = [say("Figures are measured. Surprise and odds are by the model's own probabilities, before all settings.")]
    if any(run.changes for run in runs):
        notes.append(say("Settings are those at the beginning; some were changed while the run went on."))
    if any(run.start.forced_tokens for run in runs):
        notes.append(say("Some tokens were given by hand; they count in no mean."))
    if any(run.start.parent is not None for run in runs):
        notes.append(say("A fork begins with the tokens of the run that it began in."))
    if any(run.end is not None and run.end.breaks_off for run in runs):
        notes.append(say("A recording that ends before its run did holds the text up to there."))
    return notes
