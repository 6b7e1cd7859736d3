"""Runs a prompt without a window, writes the replay file, prints what came out.

An interrupt ends the run as "cancelled": the file is complete, the summary is printed, the exit code is 130. A second
interrupt ends the program at once.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.commands.arguments import (
    add_model_arguments,
    add_text_arguments,
    clean_text,
    finite,
    lane_from,
    output_path,
    plan_from,
    whole_number,
)
from app.commands.lanes_file import read_lanes
from engine.control import Control
from engine.errors import DONE, RUN_FAILED, Cancelled, RemoteFailed, SettingsRefused
from engine.events import Event, Loaded, LoadProgress, PrefillProgress, RunEnd, TokenEvent
from engine.settings import LoadPlan, Request, SamplingSettings

if TYPE_CHECKING:
    from engine.replay import Recorder
    from engine.session import Session

INTERRUPTED = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    add_text_arguments(parser)
    parser.add_argument(
        "--lane",
        action="append",
        metavar="K=V,K=V",
        help="sampling settings, such as temperature=0.8,top_p=0.9; token ids with what is added to their logits, "
        "bias=12:5+15:-3; token ids that are banned, ban=12+15+7-8-9 (7-8-9 is a sequence); each --lane is one more "
        "lane with the same prompt (left out: one lane with the model's own defaults)",
    )
    parser.add_argument(
        "--lanes",
        metavar="FILE",
        help="lanes with prompts of their own: a JSON list of objects with name, prompt, system and settings, each of "
        "which may be left out",
    )
    parser.add_argument(
        "--free",
        action="store_true",
        help="compute each lane alone, in turn, and not as one batch: slower, and in 16 bits, too, as a run alone",
    )
    parser.add_argument("--seed", help="any whole number, for lanes that name none themselves")
    parser.add_argument(
        "--trust-remote-code",
        action="store_true",
        help="run the Python files that come with the model (read them first)",
    )
    parser.add_argument(
        "--allow-pickle", action="store_true", help="read pickle files, with weights_only, where there are no others"
    )
    parser.add_argument(
        "--tie-lm-head", action="store_true", help="use the embedding as output head where the files hold none"
    )
    parser.add_argument("--engine", metavar="URL", help="a server instead of this computer")
    parser.add_argument("--out", required=True, metavar="FILE", help="the replay file; an older one is replaced")
    parser.add_argument("--json", action="store_true", help="print the summary as one JSON object")


def run(args: argparse.Namespace) -> int:
    # Everything that can be refused is refused before torch is imported and a model is loaded.
    plan = plan_from(
        args,
        allow_pickle=args.allow_pickle,
        trust_remote_code=args.trust_remote_code,
        tie_lm_head=args.tie_lm_head,
    )
    seed = None if args.seed is None else whole_number("--seed", args.seed)
    prompt = None if args.prompt is None else clean_text("--prompt", args.prompt)
    system = None if args.system is None else clean_text("--system", args.system)
    lanes = tuple(lane_from(text, seed) for text in args.lane or ())
    asked: dict[str, Any] = {}
    if args.lanes is not None:
        if lanes:
            raise SettingsRefused("--lane and --lanes do not go together.", "Put all lanes into the file.")
        from_file = read_lanes(args.lanes, prompt, system, seed)
        lanes, asked = from_file.settings, {"prompts": from_file.prompts, "names": from_file.names}
        prompt = from_file.prompts[0].prompt if prompt is None else prompt
    if prompt is None:
        raise SettingsRefused("There is no prompt.", "Give one by --prompt, or one for each lane by --lanes.")
    request = Request(
        run_id=1,
        prompt=prompt,
        system=system,
        raw=args.raw,
        lanes=lanes or (SamplingSettings(),),
        lockstep=not args.free,
        **asked,
        max_new_tokens=whole_number("--max-new-tokens", args.max_new_tokens),
        stop=tuple(clean_text("--stop", text) for text in args.stop),
    )
    out = output_path(args.out)
    if args.engine is not None:
        raise RemoteFailed(
            "This version runs models on this computer only, so {url} cannot be used.",
            "Leave --engine away.",
            url=args.engine[:200],
        )

    from engine.logs import start_logging

    start_logging()
    control = Control()
    progress = Progress(show=sys.stderr is not None and sys.stderr.isatty())
    with interrupts(control.cancel):
        session = loaded(plan, progress, control)
        if session is None:
            return INTERRUPTED
        try:
            if not lanes:
                request = defaults_request(request, session.facts.generation_defaults, seed)
            return record(session, request, control, progress, out, args.json)
        finally:
            session.close()


def loaded(plan: LoadPlan, progress: Progress, control: Control) -> Session | None:
    """The loaded model; None, with a word, where a person stopped it."""
    from engine.loading import load

    try:
        return load(plan, progress.take, control)
    except Cancelled:
        progress.end()
        print("Stopped while the model was loading; nothing was written.", file=sys.stderr)
        return None


def record(session: Session, request: Request, control: Control, progress: Progress, out: Path, as_json: bool) -> int:
    """Runs and records one request; the exit code. A recording that fails does not end the run."""
    from engine.loop import generate
    from engine.replay import Recorder, header_of

    recorder: Recorder | None = None
    ends: list[RunEnd] = []
    try:
        for event in generate(session, request, control):
            if recorder is None:  # only now: a prompt that is refused leaves an older file alone
                recorder = Recorder(out, header_of(session.facts, request), replace=True)
                recorder.take(Loaded(session.facts))  # what a window shows of the model
            recorder.take(event)
            progress.take(event)
            if isinstance(event, RunEnd):
                ends.append(event)
    finally:
        progress.end()
        if recorder is not None:
            recorder.close()
    ends.sort(key=lambda end: end.lane)
    if as_json:
        print(json.dumps(summary(session, ends), allow_nan=False))
    else:
        print_texts(ends)
    failed = [(end.sentence, end.fix) for end in ends if end.reason == "error"]
    if recorder is not None and recorder.problem is not None:
        failed.append((recorder.problem.what, "Free some space or give another --out, then run this again."))
    for sentence, fix in failed:
        print(f"error: {sentence}\nfix: {fix}" if fix else f"error: {sentence}", file=sys.stderr)
    if failed:
        return RUN_FAILED
    return INTERRUPTED if control.cancelled() else DONE


def summary(session: Session, ends: list[RunEnd]) -> dict:
    runs = [
        {
            "lane": end.lane,
            "text": end.text,
            "token_ids": list(end.token_ids),
            "end_reason": end.reason,
            "prompt_tokens": end.prompt_tokens,
            "new_tokens": end.new_tokens,
            "ttft_ms": finite(end.ttft_ms),
            "decode_tokens_per_s": finite(end.decode_tokens_per_s),
            "kv_bytes": end.kv_bytes,
        }
        for end in ends
    ]
    return {"runs": runs, "model": session.facts.name, "precision": session.facts.precision}


def print_texts(ends: list[RunEnd]) -> None:
    for end in ends:
        if len(ends) > 1:
            print(f"--- lane {end.lane}")
        print(end.text)
        print(
            f"[{end.reason}: {end.prompt_tokens} prompt tokens, {end.new_tokens} new tokens, "
            f"TTFT {end.ttft_ms:.0f} ms, {end.decode_tokens_per_s:.1f} tok/s]",
            file=sys.stderr,
        )


def defaults_request(request: Request, defaults: SamplingSettings, seed: int | None) -> Request:
    from dataclasses import replace

    return replace(request, lanes=(defaults if seed is None else replace(defaults, seed=seed),))


# ---------------------------------------------------------------- while it runs


class Progress:
    """One line on the terminal that says where the work stands; nothing where nobody looks."""

    def __init__(self, show: bool) -> None:
        self.show = show
        self._tokens = 0
        self._width = 0

    def take(self, event: Event) -> None:
        if not self.show:
            return
        if isinstance(event, LoadProgress):
            share = f" {100 * event.done_bytes / event.total_bytes:3.0f} %" if event.total_bytes else ""
            self._line(f"load: {event.stage}{share}")
        elif isinstance(event, PrefillProgress):
            self._line(f"prefill: {event.done_tokens} of {event.total_tokens} tokens")
        elif isinstance(event, TokenEvent):
            self._tokens += 1
            self._line(f"decode: {self._tokens} tokens")

    def end(self) -> None:
        if self._width:
            self._line("")
            print(end="\r", file=sys.stderr, flush=True)
            self._width = 0

    def _line(self, text: str) -> None:
        print("\r" + text.ljust(self._width), end="", file=sys.stderr, flush=True)
        self._width = len(text)


@contextmanager
def interrupts(act: Callable[[], None]) -> Iterator[None]:
    """The first interrupt (Ctrl-C) calls `act`, the second is Python's own."""

    def first(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        act()

    try:
        before = signal.signal(signal.SIGINT, first)
    except ValueError:  # not the main thread: nothing arrives here
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
