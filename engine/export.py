"""Runs → what other programs read: CSV and JSON Lines of tokens, chat messages. Events in, text out.

The texts come in pieces, one a token, so that whoever writes them can say how far it is and can stop.
docs/export.md describes the columns.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

from engine.events import Event, Loaded, RunEnd, RunStart, SessionFacts, SettingsChanged, TokenEvent
from engine.figures import lane_letter, letters_beside
from engine.replay_lines import json_line, settings_values
from engine.settings import SamplingSettings

BOM = "\ufeff"
ALTERNATIVES = 5  # per token in JSON Lines, where nobody says otherwise


@dataclass(frozen=True, eq=False)
class ExportRun:
    """One lane's run as it stood when it was taken. A fork's tokens begin with its parent's, where those are known.

    header: what the first line of the run's replay file says, see docs/replay-format.md; may be empty.
    beside: its letter among those that stand side by side; "": that of its lane. mark: in a report, a letter that no
    other run of it has. reference: the others are compared with it; where no run is, with the first.
    """

    start: RunStart
    tokens: tuple[TokenEvent, ...]
    end: RunEnd | None = None
    facts: SessionFacts | None = None
    changes: tuple[SettingsChanged, ...] = ()
    header: dict[str, Any] = field(default_factory=dict)
    beside: str = ""
    mark: str = ""
    reference: bool = False

    @property
    def letter(self) -> str:
        return self.beside or lane_letter(self.start.lane)

    @property
    def lost(self) -> int:
        """So many tokens at the beginning are known by their ids alone: a fork whose parent is not here."""
        return self.tokens[0].step if self.tokens else 0

    @property
    def ids(self) -> list[int]:
        """The written token ids, from step 0 on."""
        return [*self.start.written[: self.lost], *(token.token_id for token in self.tokens)]

    @property
    def text(self) -> str:
        if self.end is not None and not self.lost:
            return self.end.text
        return "".join(token.text for token in self.tokens) + (self.end.tail_text if self.end is not None else "")

    @property
    def raw(self) -> bool:
        """The prompt was no chat message but text to go on with."""
        said = self.header.get("raw")
        return said if isinstance(said, bool) else self.start.prompt_text.endswith(self.start.prompt)

    @property
    def system(self) -> str | None:
        """The chat's system text; an older recording has it in its header alone."""
        said = self.header.get("system")
        old = said if isinstance(said, str) and "prompts" not in self.header else None
        return self.start.system if self.start.system is not None else old

    @property
    def model_path(self) -> str:
        return self.facts.model_path if self.facts is not None else _text(self.header.get("model_path"))

    @property
    def model_name(self) -> str:
        return self.facts.name if self.facts is not None else _text(self.header.get("model"))

    @property
    def precision(self) -> str:
        return self.facts.precision if self.facts is not None else _text(self.header.get("precision"))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def title_of(run: ExportRun, several: bool = True) -> str:
    """What a run is called: by the person, or by its number and letter. several: runs of other numbers stand beside."""
    lane = f"lane {run.letter}" if run.start.lanes > 1 else ""
    number = f"run {run.start.run_id}" if several or not lane else ""
    plain = ", ".join(part for part in (number, lane) if part)
    return f"{run.start.name} ({plain})" if run.start.name else plain


def lettered(runs: list[ExportRun]) -> list[ExportRun]:
    """The same runs, each with a mark that no other has."""
    letters = letters_beside([run.start for run in runs], [run.beside for run in runs])
    return [replace(run, mark=letter) for run, letter in zip(runs, letters, strict=True)]


def reference_place(runs: list[ExportRun]) -> int:
    """Which of them the others are compared with: the first where nobody chose one."""
    return next((at for at, run in enumerate(runs) if run.reference), 0)


def runs_of(events: Iterable[Event], header: dict[str, Any], facts: SessionFacts | None = None) -> list[ExportRun]:
    """The runs of a replay as they began. A fork begins with its parent's tokens where they are there."""
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for event in events:
        match event:
            case Loaded():
                facts = event.facts
            case RunStart():
                tokens: list[TokenEvent] = []
                if event.parent is not None:
                    before = found.get((event.parent.run_id, event.parent.lane))
                    tokens += before["tokens"][: event.parent.step] if before else []
                found[event.run_id, event.lane] = {"start": event, "tokens": tokens, "changes": [], "facts": facts}
            case TokenEvent() | SettingsChanged() | RunEnd():
                if (run := found.get((event.run_id, event.lane))) is None:
                    continue
                if isinstance(event, TokenEvent):
                    run["tokens"].append(event)
                elif isinstance(event, SettingsChanged):
                    run["changes"].append(event)
                else:
                    run["end"] = event
    return [
        ExportRun(
            **{**run, "tokens": tuple(run["tokens"]), "changes": tuple(run["changes"])},
            header=header,
        )
        for run in found.values()
    ]


def token_count(runs: Iterable[ExportRun]) -> int:
    return sum(len(run.tokens) for run in runs)


# ---------------------------------------------------------------- tokens as rows


def token_row(run: ExportRun, token: TokenEvent) -> dict[str, Any]:
    """One token's figures by their names; units are in the names. The settings are apart."""
    return {
        "run": run.start.run_id,
        "lane": run.letter,
        "name": run.start.name,
        "step": token.step,
        "token_id": token.token_id,
        "text": token.text,
        "token_text": token.token_text,
        "special": token.special,
        "forced": token.forced,
        "written_by_run": token.run_id,
        "probability": math.exp(token.logprob),
        "final_probability": math.exp(token.final_logprob),
        "logprob": token.logprob,
        "final_logprob": token.final_logprob,
        "rank": token.rank,
        "surprise_nats": token.surprise_nats,
        "entropy_nats": token.entropy_nats,
        "final_entropy_nats": token.final_entropy_nats,
        "kept_tokens": token.stages[-1].kept_tokens if token.stages else token.vocab_size,
        "u": token.u,
        "draw_low": token.draw_low,
        "draw_high": token.draw_high,
        "forward_ms": token.forward_ms,
        "sampling_ms": token.sampling_ms,
        "kv_bytes": token.kv_bytes,
        "context_used_tokens": token.context_used_tokens,
    }


def as_csv(runs: Iterable[ExportRun]) -> Iterator[str]:
    """A table for spreadsheets: UTF-8 with its mark, RFC 4180, a row a token. Pieces: the head, then one a token.

    Texts that a spreadsheet would take for a formula begin with an apostrophe (FIL-6).
    """
    settings_names = [each.name for each in fields(SamplingSettings)]
    head: list[str] | None = None
    for run in runs:
        shown: dict[SamplingSettings, str] = {}
        for token in run.tokens:
            row = token_row(run, token)
            if head is None:
                head = [*row, *settings_names]
                yield BOM + ",".join(head) + "\r\n"
            if token.settings not in shown:
                values = settings_values(token.settings)
                shown[token.settings] = ",".join(csv_cell(values.get(name)) for name in settings_names)
            yield ",".join(map(csv_cell, row.values())) + "," + shown[token.settings] + "\r\n"
    if head is None:
        yield BOM + "run,lane,step,token_id,text\r\n"


def csv_cell(value: Any) -> str:
    """A value as a field of RFC 4180. Text is always quoted; what is not known, or not finite, is empty."""
    if value is None or value == [] or value == ():
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return float.__repr__(float(value)) if math.isfinite(value) else ""
    if isinstance(value, int):
        return str(value)
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), allow_nan=False)
    return '"' + harmless(without_halves(text).replace("\0", "<U+0000>")).replace('"', '""') + '"'


# With what spreadsheets begin a formula, wide forms of East Asian keyboards too. Source: OWASP, "CSV Injection".
_FORMULA = re.compile(r"'*(?:[\t\r\n]|\s*[=+\-@＝＋－＠])")
_UNDONE = re.compile(r"'+(?:[\t\r\n]|\s*[=+\-@＝＋－＠])")


def harmless(text: str) -> str:
    """Text that no spreadsheet takes for a formula: an apostrophe goes before one. `as_it_was` takes it off."""
    return "'" + text if _FORMULA.match(text) else text


def as_it_was(cell: str) -> str:
    """The text that `harmless` was given."""
    return cell[1:] if _UNDONE.match(cell) else cell


def without_halves(text: str) -> str:
    """Halves of characters are no UTF-8: each becomes U+FFFD."""
    return text if text.isascii() else re.sub("[\ud800-\udfff]", "\ufffd", text)


def as_json_lines(runs: Iterable[ExportRun], alternatives: int = ALTERNATIVES) -> Iterator[str]:
    """One JSON object a line and token, the most probable alternatives beside it. Strict: not finite is null."""
    for run in runs:
        for token in run.tokens:
            row = token_row(run, token)
            row["settings"] = settings_values(token.settings)
            row["alternatives"] = [
                {
                    "rank": each.rank,
                    "token_id": each.token_id,
                    "text": each.text,
                    "logit": each.logit,
                    "probability": each.raw,
                    "final_probability": each.final,
                    "cut_by": each.cut_by,
                }
                for each in (token.candidate(i) for i in range(min(alternatives, len(token.candidate_ids))))
            ]
            yield json_line(row).decode()


# ---------------------------------------------------------------- messages


def messages_of(run: ExportRun, answer: bool = True) -> list[dict[str, str]]:
    """The chat as OpenAI's API has it: roles and contents, the written answer last."""
    messages = [{"role": "system", "content": run.system}] if run.system else []
    messages.append({"role": "user", "content": run.start.prompt})
    if answer:
        messages.append({"role": "assistant", "content": run.text})
    return messages


def chat_of(run: ExportRun) -> dict[str, Any]:
    """{"messages": […]}; for text that was no chat {"prompt": …, "completion": …}, as its API calls them."""
    if run.raw:
        return {"prompt": run.start.prompt, "completion": run.text}
    return {"messages": messages_of(run)}


def as_chat(runs: list[ExportRun]) -> Iterator[str]:
    """One run as a JSON object, several as a list of them."""
    chats = [chat_of(run) for run in runs]
    yield json_text(chats[0] if len(chats) == 1 else chats) + "\n"


def json_text(value: Any) -> str:
    """Strict JSON over several lines, for people to read; halves of characters are escaped."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2)
    return text if text.isascii() else re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)
