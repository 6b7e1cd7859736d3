"""A comparison of runs to read and to pass on: Markdown, or HTML in one file. Events in, text out.

The reference is the run that the others are held against, the first where nobody chose one. Texts come from models and
people: in either format they stay text, whatever is in them.
"""

from __future__ import annotations

import base64
import html
import math
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from engine.export import ExportRun, lettered, reference_place, without_halves
from engine.export_told import (
    Say,
    as_is,
    facts_lines,
    figures_table,
    names_of,
    notes_of,
    partings,
    prompts_of,
    report_title,
    settings_table,
)

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


def shown(text: str) -> str:
    """Text whose controls and turners of direction are seen instead of acting; lines and tabs stay."""
    return "".join(c if c in "\n\t" or not _acts(c) else f"<U+{ord(c):04X}>" for c in without_halves(text))


def _acts(character: str) -> bool:
    return character in _BIDI or unicodedata.category(character) == "Cc"


# ---------------------------------------------------------------- Markdown


def as_markdown(runs: list[ExportRun], pictures: list[Picture], say: Say = as_is) -> Iterator[str]:
    """The report as Markdown; pictures are inside as data. Raises ValueError where there is no run."""
    if not runs:
        raise ValueError("a report needs a run")
    runs = lettered(runs)
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
    runs = lettered(runs)
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
    names, reference = names_of(runs), reference_place(runs)
    for at, (name, run) in enumerate(zip(names, runs, strict=True)):
        yield f'<section class="lane">\n<h3>{_html(name)}</h3>\n'
        if told[at].sentence:
            yield f'<p class="parting">{_html(told[at].sentence)}</p>\n'
        marks: dict[int, str] = {}
        if at != reference:
            if (step := told[at].step) is not None:
                marks[step] = run.mark
        else:  # in the reference each place where another one leaves it
            for other, parting in zip(runs, told, strict=True):
                if parting.step is not None:
                    marks[parting.step] = marks.get(parting.step, "") + other.mark
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
