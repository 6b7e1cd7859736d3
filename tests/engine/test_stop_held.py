"""While half a stop string is held back the events say so, and the end says which one was written."""

from __future__ import annotations

import json

from engine.control import Control
from engine.events import RunEnd, TokenEvent
from engine.loop import generate
from engine.replay_lines import Reader, line_of
from engine.settings import Request, SamplingSettings

GREEDY = SamplingSettings(temperature=0.0)


def run_of(session, stop: tuple[str, ...], count: int = 24) -> tuple[list[TokenEvent], RunEnd]:
    request = Request(1, "Name three colours.", lanes=(GREEDY,), max_new_tokens=count, stop=stop)
    events = list(generate(session, request, Control()))
    return [e for e in events if isinstance(e, TokenEvent)], next(e for e in events if isinstance(e, RunEnd))


def test_what_is_held_is_said_and_what_was_matched(default_session) -> None:
    plain, whole = run_of(default_session, ())
    cut = "".join(token.text for token in plain[4:7])  # a stop string over three tokens
    tokens, end = run_of(default_session, ("never", cut))
    assert (end.reason, end.stop_string) == ("stop string", cut)
    assert end.text == whole.text[: whole.text.index(cut)]
    assert tokens[-1].stop_cut
    assert tokens[-1].held == ""
    assert tokens[-2].held
    assert cut.startswith(tokens[-2].held)
    for at in range(len(tokens) - 1):
        shown = "".join(token.text for token in tokens[: at + 1])
        assert shown + tokens[at].held == "".join(token.text for token in plain[: at + 1])


def test_a_run_without_stop_strings_holds_nothing(default_session) -> None:
    tokens, end = run_of(default_session, (), 6)
    assert not any(token.held for token in tokens)
    assert end.stop_string == ""


def test_what_was_held_survives_the_file(default_session) -> None:
    tokens, end = run_of(default_session, ("Here are\x00\u2028", "a", "\n\n\n\n"))
    for event in (*tokens, end):
        assert Reader().event(json.loads(line_of(event))) == event
