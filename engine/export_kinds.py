"""Every kind of export that is text, by its name: which function makes it, and how its file ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.export import ALTERNATIVES, ExportRun, as_chat, as_csv, as_json_lines
from engine.export_code import as_openai, as_transformers
from engine.export_report import Picture, as_html, as_markdown
from engine.export_told import Say, as_is

ENDINGS = {
    "csv": ".csv",
    "jsonl": ".jsonl",
    "markdown": ".md",
    "html": ".html",
    "chat": ".json",
    "transformers": ".py",
    "openai": ".sh",
}
SINGLE = ("transformers", "openai")  # of one run


def pieces_of(
    kind: str,
    runs: list[ExportRun],
    pictures: Sequence[Picture] = (),
    alternatives: int = ALTERNATIVES,
    say: Say = as_is,
    language: str = "en",
) -> Iterator[str]:
    """The text of an export, in pieces: about one a token. Of several runs, the SINGLE kinds take the first."""
    match kind:
        case "csv":
            return as_csv(runs)
        case "jsonl":
            return as_json_lines(runs, alternatives)
        case "markdown":
            return as_markdown(runs, list(pictures), say)
        case "html":
            return as_html(runs, list(pictures), say, language)
        case "chat":
            return as_chat(runs)
        case "transformers":
            return iter([as_transformers(runs[0])])
        case "openai":
            return iter([as_openai(runs[0])])
    raise KeyError(kind)
