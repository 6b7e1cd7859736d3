"""What a replay holds, for other programs: tokens, reports, messages, code. Without a window, without a model."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from app.commands.arguments import output_path, whole_number
from app.commands.record import INTERRUPTED, interrupts
from engine.control import Control
from engine.errors import DONE, Cancelled, SettingsRefused
from engine.export import ALTERNATIVES, ExportRun, runs_of, title_of, token_count
from engine.export_file import write_whole
from engine.export_kinds import ENDINGS, SINGLE, pieces_of
from engine.figures import lane_letter
from engine.replay import read_replay

MOST_ALTERNATIVES = 128


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("replay", metavar="REPLAY", help="a replay file (.jsonl)")
    parser.add_argument("--as", dest="kind", required=True, choices=tuple(ENDINGS), help="what to make of it")
    parser.add_argument("--run", dest="number", metavar="N", help="only the run of this number (left out: all)")
    parser.add_argument("--lane", metavar="A", help="only the lane of this letter (left out: all)")
    parser.add_argument(
        "--reference", metavar="A", help="of a report, the lane that the others are compared with (left out: the first)"
    )
    parser.add_argument(
        "--alternatives",
        default=str(ALTERNATIVES),
        metavar="N",
        help=f"of each token in jsonl, the most probable first (default: {ALTERNATIVES})",
    )
    parser.add_argument("--out", metavar="FILE", help="the file; an older one is replaced (left out: standard output)")
    parser.add_argument("--json", action="store_true", help="print one JSON object; without --out it holds the text")


def run(args: argparse.Namespace) -> int:
    alternatives = whole_number("--alternatives", args.alternatives)
    if not 0 <= alternatives <= MOST_ALTERNATIVES:
        raise SettingsRefused(
            "--alternatives cannot be {count}.", "Give 0 to {most}.", count=alternatives, most=MOST_ALTERNATIVES
        )
    out = None if args.out is None else output_path(args.out)
    replay = read_replay(Path(args.replay))
    runs = chosen(runs_of(replay.events, replay.header, replay.facts), args.number, args.lane)
    if args.reference is not None:
        runs = compared_with(runs, args.reference)
    notes = [note for note in (replay.damage, *replay.notes) if note]
    if args.kind in SINGLE and len(runs) > 1:
        notes.append(f"This is of {title_of(runs[0])}; --run and --lane choose another.")
        runs = runs[:1]
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    pieces, control = pieces_of(args.kind, runs, alternatives=alternatives), Control()
    told = {"as": args.kind, "runs": len(runs), "tokens": token_count(runs), "notes": notes}
    with interrupts(control.cancel):
        try:
            if out is not None:
                told |= {"out": str(out), "bytes": write_whole(out, pieces, control)}
            elif args.json:
                told["text"] = "".join(pieces)
            else:
                for piece in pieces:
                    if control.cancelled():
                        raise Cancelled
                    write(piece)
        except Cancelled:
            print("Stopped before all was written.", file=sys.stderr)
            return INTERRUPTED
    if args.json:
        print(json.dumps(told, allow_nan=False))
    elif out is not None:
        print(f"{out}: runs {told['runs']}, tokens {told['tokens']}, bytes {told['bytes']:,}")
    return DONE


def chosen(runs: list[ExportRun], number: str | None, letter: str | None) -> list[ExportRun]:
    """The runs that were asked for. Raises SettingsRefused where there is none of them."""
    found = runs
    if number is not None:
        wanted = whole_number("--run", number)
        found = [run for run in found if run.start.run_id == wanted]
    if letter is not None:
        found = [run for run in found if lane_letter(run.start.lane) == letter.strip().upper()]
    if not found:
        here = ", ".join(title_of(run) for run in runs[:20])
        raise SettingsRefused("There is no such run in the file.", "It holds {runs}.", runs=here or "no run at all")
    return found


def compared_with(runs: list[ExportRun], letter: str) -> list[ExportRun]:
    """The same runs, the others compared with the first lane of this letter. Raises SettingsRefused without one."""
    (reference, *_) = chosen(runs, None, letter)
    return [replace(run, reference=run is reference) for run in runs]


def write(text: str) -> None:
    """To standard output as UTF-8, byte for byte: line ends and the CSV's mark must not be translated."""
    stream = getattr(sys.stdout, "buffer", None)
    if stream is None:
        sys.stdout.write(text)
    else:
        stream.write(text.encode("utf-8", "replace"))
