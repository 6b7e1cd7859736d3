"""A comparison of runs to read and to pass on: Markdown, or HTML in one file. Events in, text out.

The first run is the one that the others are held against. Texts come from models and people: in either format they
stay text, whatever is in them.
"""

from __future__ import annotations

import base64
import html
import math
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

from engine.events import TokenEvent
from engine.export import ExportRun, lane_letter, title_of, without_halves
from engine.figures import NGRAM, figures_of, first_difference
from engine.replay_lines import seed_value
from engine.settings import RANGES, SamplingSettings

Say = Callable[[str], str]  # our own words in the reader's language
UNKNOWN = "–"
SHADES = 6  # of surprise
_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u061c\u200e\u200f")


@dataclass(frozen=True, slots=True)
class Picture:
    """A view as it stood. kind: "png" or "svg". width: on a page, in its pixels; 0: as the picture has it."""

    title: str
    kind: str
    data: bytes
    width: int = 0

    @property
    def address(self) -> str:
        """All of it as a data: address."""
        kind = {"png": "image/png", "svg": "image/svg+xml"}[self.kind]
        return f"data:{kind};base64,{base64.b64encode(self.data).decode()}"


@dataclass(frozen=True, slots=True)
class Parting:
    """Where a run first wrote another token than the first run. step None: it never did."""

    step: int | None
    sentence: str


def as_is(text: str) -> str:
    return text


def shown(text: str) -> str:
    """Text whose controls and turners of direction are seen instead of acting; lines and tabs stay."""
    return "".join(c if c in "\n\t" or not _acts(c) else f"<U+{ord(c):04X}>" for c in without_halves(text))


def _acts(character: str) -> bool:
    return character in _BIDI or unicodedata.category(character) == "Cc"


# ---------------------------------------------------------------- what is told


def report_title(runs: list[ExportRun], say: Say = as_is) -> str:
    if len(runs) == 1:
        return say("{run} of {model}").format(run=title_of(runs[0]).capitalize(), model=runs[0].model_name or UNKNOWN)
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
    return [(name, value) for name, value in found if value]


def names_of(runs: list[ExportRun]) -> list[str]:
    """What each run is called beside the others: its letter, where all belong to one run its letter alone."""
    several = len({run.start.run_id for run in runs}) > 1
    return [title_of(run, several) or lane_letter(run.start.lane) for run in runs]


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
        row = [name, str(figures.tokens), end.reason if end is not None else say("still running")]
        row += [_number(figures.mean_surprise_nats, 2), _number(figures.mean_entropy_nats, 2)]
        row += [_percent(figures.distinct), _percent(figures.repetition)]
        if end is not None:
            row += [_number(end.ttft_ms, 0), _number(end.decode_tokens_per_s, 1), _number(end.kv_bytes / 1e6, 1)]
        else:
            row += [UNKNOWN] * 3
        rows.append(row)
    return rows


def _number(value: float, decimals: int) -> str:
    return f"{value:.{decimals}f}" if math.isfinite(value) else UNKNOWN


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if math.isfinite(share) else UNKNOWN


def partings(runs: list[ExportRun], say: Say = as_is) -> list[Parting]:
    """For each run where it parts from the first, with the draws and the odds of both. Of the first itself: nothing."""
    names = names_of(runs)
    first = runs[0].ids
    found = [Parting(None, "")]
    for run in runs[1:]:
        own = run.ids
        at = first_difference(first, own)
        if at is not None and at < max(run.lost, runs[0].lost):
            sentence = say("Parts from {first} at token {number}, which is not in this recording.").format(
                first=names[0], number=at + 1
            )
        elif at is not None:
            words = [_token_words(each.tokens[at - each.lost], say) for each in (runs[0], run)]
            sentence = say("Parts from {first} at token {number}: {theirs}; here {own}.").format(
                first=names[0], number=at + 1, theirs=words[0], own=words[1]
            )
            if run.start.settings == runs[0].start.settings and run.precision in ("bfloat16", "float16"):
                sentence += " " + say(
                    "Both have the same settings: in {precision} the rounding of the arithmetic can part them."
                ).format(precision=run.precision)
        elif len(first) == len(own):
            sentence = say("The same tokens as {first}.").format(first=names[0])
        else:
            sentence = say("The same tokens as {first} as far as both go.").format(first=names[0])
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
    return notes


# ---------------------------------------------------------------- Markdown


def as_markdown(runs: list[ExportRun], pictures: list[Picture], say: Say = as_is) -> Iterator[str]:
    """The report as Markdown; pictures are inside as data. Raises ValueError where there is no run."""
    if not runs:
        raise ValueError("a report needs a run")
    yield f"# {_md(report_title(runs, say))}\n\n"
    yield "".join(f"- {_md(name)}: {_md(value)}\n" for name, value in facts_lines(runs, say)) + "\n"
    for heading, text in prompts_of(runs, say):
        yield f"**{_md(heading)}**\n\n{_fenced(text)}\n"
    yield f"## {_md(say('Settings'))}\n\n{_md_table(settings_table(runs, say))}\n"
    if len(runs) > 1:
        yield f"{_md(say('A star marks what differs.'))}\n\n"
    yield f"## {_md(say('Figures'))}\n\n{_md_table(figures_table(runs, say))}\n"
    yield "".join(f"{_md(note)}\n\n" for note in notes_of(runs, say))
    yield f"## {_md(say('Texts'))}\n\n"
    for name, run, parting in zip(names_of(runs), runs, partings(runs, say), strict=True):
        yield f"### {_md(name)}\n\n"
        if parting.sentence:
            yield f"{_md(parting.sentence)}\n\n"
        place = (parting.step or 0) - run.lost
        if place <= 0:  # none, the very first, or one that is not here
            yield _fenced(run.text) + "\n"
            continue
        begin = sum(len(token.text) for token in run.tokens[:place])
        yield _fenced(run.text[:begin]) + "\n"
        yield f"**{_md(say('from here on otherwise:'))}**\n\n{_fenced(run.text[begin:])}\n"
    if pictures:
        yield f"## {_md(say('Pictures'))}\n\n"
    for picture in pictures:
        yield f"![{_md(picture.title)}]({picture.address})\n\n"


def _fenced(text: str) -> str:
    """A code block, whose fence is longer than any in the text."""
    text = shown(text)
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}\n"


# What marks words up, and what makes a link of an address.
_MD_ACTS = re.compile(r"([\\`*_\[\]#|~$@]|:(?=//)|(?<=www)\.)", re.IGNORECASE)


def _md(text: str) -> str:
    """Words in a line or cell of Markdown: nothing in them acts."""
    plain = " ".join(shown(text).split()).replace("&", "&amp;").replace("<", "&lt;")
    return _MD_ACTS.sub(r"\\\1", plain)


def _md_table(rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(map(_md, row))} |" for row in rows]
    lines.insert(1, "|" + " --- |" + " ---: |" * (len(rows[0]) - 1))
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------- HTML

_STYLE = """
:root { color-scheme: light dark; --ground: #F6F7F8; --panel: #FFFFFF; --line: #E1E4E8; --ink: #1A1D21;
  --muted: #646C76; --accent: #2F5BD7; --shade: 201 162 39; }
@media (prefers-color-scheme: dark) { :root { --ground: #15171A; --panel: #1C1F23; --line: #2C3137; --ink: #E8EAED;
  --muted: #98A1AB; --accent: #7FA2FF; --shade: 224 190 75; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 32px 20px; background: var(--ground); color: var(--ink);
  font: 15px/1.55 system-ui, sans-serif; }
main { max-width: 1100px; margin: 0 auto; }
h1 { font-size: 24px; margin: 0 0 12px; } h2 { font-size: 17px; margin: 32px 0 8px; } h3 { font-size: 15px; margin: 0; }
p, dl, dd { margin: 0; } .muted, dt, figcaption, th { color: var(--muted); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; } dd { overflow-wrap: anywhere; }
.table { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th { font-weight: 600; white-space: normal; vertical-align: bottom; max-width: 9em; }
th:first-child, td:first-child { text-align: left; white-space: normal; overflow-wrap: anywhere; min-width: 8em; }
.lanes { display: grid; grid-template-columns: repeat(auto-fit, minmax(320px, 1fr)); gap: 12px; }
.pictures { display: flex; flex-wrap: wrap; gap: 12px; } figure { margin: 0; }
section.lane, .prompt { background: var(--panel); border: 1px solid var(--line); border-radius: 8px;
  padding: 12px 14px; margin: 0 0 12px; min-width: 0; }
.lanes > section.lane { margin: 0; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: plaintext; margin-top: 8px; }
.prompt .text { margin-top: 0; }
.parting { margin-top: 4px; color: var(--muted); font-size: 13px; }
mark { background: none; color: inherit; outline: 2px solid var(--accent); outline-offset: 1px; border-radius: 3px; }
mark::before { content: attr(data-mark); color: var(--accent); font-size: 11px; font-weight: 600; padding: 0 2px; }
figure img { max-width: 100%; height: auto; display: block; } figcaption { font-size: 13px; margin-top: 6px; }
"""


def as_html(runs: list[ExportRun], pictures: list[Picture], say: Say = as_is, language: str = "en") -> Iterator[str]:
    """The report as one HTML file: no script, nothing fetched, light or dark as the reader's system. Pieces: about one
    a token. Raises ValueError where there is no run."""
    if not runs:
        raise ValueError("a report needs a run")
    title = _html(report_title(runs, say))
    shades = "".join(
        f".s{n} {{ background: rgb(var(--shade) / {0.62 * n / SHADES:.2f}); }}\n" for n in range(1, SHADES + 1)
    )
    # The policy is a second lock: even a mistake in escaping could neither run a script nor fetch anything.
    yield (
        f'<!DOCTYPE html>\n<html lang="{_html(language)}">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}{shades}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
    )
    pairs = "".join(f"<dt>{_html(name)}</dt><dd>{_html(value)}</dd>\n" for name, value in facts_lines(runs, say))
    yield f"<dl>\n{pairs}</dl>\n"
    for heading, text in prompts_of(runs, say):
        yield f'<h2>{_html(heading)}</h2>\n<div class="prompt"><div class="text">{_html(text)}</div></div>\n'
    yield f"<h2>{_html(say('Settings'))}</h2>\n{_html_table(settings_table(runs, say))}"
    if len(runs) > 1:
        yield f'<p class="muted">{_html(say("A star marks what differs."))}</p>\n'
    yield f"<h2>{_html(say('Figures'))}</h2>\n{_html_table(figures_table(runs, say))}"
    yield "".join(f'<p class="muted">{_html(note)}</p>\n' for note in notes_of(runs, say))
    yield f'<h2>{_html(say("Texts, shaded by surprise"))}</h2>\n<div class="lanes">\n'
    told = partings(runs, say)
    names = names_of(runs)
    for at, (name, run) in enumerate(zip(names, runs, strict=True)):
        yield f'<section class="lane">\n<h3>{_html(name)}</h3>\n'
        if told[at].sentence:
            yield f'<p class="parting">{_html(told[at].sentence)}</p>\n'
        marks: dict[int, str] = {}
        if at:
            if (step := told[at].step) is not None:
                marks[step] = run.letter
        else:  # in the first run each place where another one leaves it
            for other, parting in zip(runs, told, strict=True):
                if parting.step is not None:
                    marks[parting.step] = marks.get(parting.step, "") + other.letter
        yield '<div class="text">'
        yield from _shaded(run, marks)
        yield "</div>\n</section>\n"
    yield "</div>\n"
    if pictures:
        yield f"<h2>{_html(say('Pictures'))}</h2>\n"
        yield '<div class="pictures">\n'
    for picture in pictures:
        caption, width = _html(picture.title), f' width="{picture.width}"' if picture.width else ""
        yield (
            f'<figure><img src="{picture.address}" alt="{caption}"{width}><figcaption>{caption}</figcaption></figure>\n'
        )
    if pictures:
        yield "</div>\n"
    yield "</main>\n</body>\n</html>\n"


def _shaded(run: ExportRun, marks: dict[int, str]) -> Iterator[str]:
    """The text's tokens: as shaded as they were surprising, in a frame where lanes part."""
    for at, token in enumerate(run.tokens, start=run.lost):
        text, level = _html(token.text), _shade(token.surprise_nats)
        if text and level:
            text = f'<span class="s{level}">{text}</span>'
        if at in marks:
            text = f'<mark data-mark="{_html(marks[at])}">{text}</mark>'
        yield text
    if run.end is not None:
        yield _html(run.end.tail_text)


def _shade(nats: float) -> int:
    """The window's scale of surprise, 1 - exp(-nats / 2.5), in a few steps; 0 for none."""
    if not nats > 0.12:  # also NaN
        return 0
    return max(1, round(SHADES * (1.0 - math.exp(-nats / 2.5))))


def _html(text: str) -> str:
    return html.escape(shown(text))


def _html_table(rows: list[list[str]]) -> str:
    head = "".join(f'<th scope="col">{_html(cell)}</th>' for cell in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{_html(cell)}</td>" for cell in row) + "</tr>\n" for row in rows[1:])
    return f'<div class="table"><table>\n<tr>{head}</tr>\n{body}</table></div>\n'
