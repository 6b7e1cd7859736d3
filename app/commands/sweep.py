"""A grid over one or two settings without a window: each run's replay and figures in a folder, gone on with later.

An interrupt ends it after what was running is dropped: the finished runs stand, the exit code is 130, and the same
command goes on from there.
"""

from __future__ import annotations

import argparse
import json
import math
import sys

from app.commands.arguments import (
    add_model_arguments,
    add_text_arguments,
    clean_text,
    finite,
    lane_from,
    plan_from,
    whole_number,
)
from app.commands.record import INTERRUPTED, Progress, interrupts, loaded
from engine.control import Control
from engine.errors import DONE, SettingsRefused
from engine.events import Event, ExperimentProgress
from engine.experiments import FIGURES, USUAL_BATCH, Asked, Sweep, SweepAxis, SweepQuestion, values_named
from engine.settings import SamplingSettings

MOST_SEEDS = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    add_text_arguments(parser, prompt_required=True)
    parser.add_argument(
        "--vary",
        action="append",
        required=True,
        metavar="NAME=VALUES",
        help="a setting and its values: top_p=0.5,0.9,1 or temperature=0..1.4:0.2; give it once or twice",
    )
    parser.add_argument(
        "--lane", metavar="K=V,K=V", help="the settings that are not varied (left out: the model's own defaults)"
    )
    parser.add_argument("--seeds", default="1", metavar="N", help="runs in each cell (default: 1)")
    parser.add_argument("--seed", default="0", metavar="N", help="the first of the seeds (default: 0)")
    parser.add_argument(
        "--batch", default=str(USUAL_BATCH), metavar="N", help="runs that are computed together (default: %(default)s)"
    )
    parser.add_argument("--out", required=True, metavar="FOLDER", help="a new folder, or that of a sweep to go on with")
    parser.add_argument("--json", action="store_true", help="print all figures as one JSON object")


def run(args: argparse.Namespace) -> int:
    # Everything that can be refused is refused before torch is imported and a model is loaded.
    plan = plan_from(args)
    question = question_from(args)
    from engine.logs import start_logging

    start_logging()
    control, progress = Control(), SweepProgress(show=sys.stderr is not None and sys.stderr.isatty())
    with interrupts(control.cancel):
        session = loaded(plan, progress, control)
        if session is None:
            return INTERRUPTED
        try:
            if args.lane is None:
                from dataclasses import replace

                question = replace(question, base=session.facts.generation_defaults)
            from engine.sweep import sweep

            found = sweep(question, session, control, progress.take)
        finally:
            progress.end()
            session.close()
    print(json.dumps(as_json(found), ensure_ascii=False, allow_nan=False) if args.json else as_text(found))
    if found.complete:
        return DONE
    print(
        f"Stopped with {found.done} of {len(found.runs)} runs done: the same command goes on from there.",
        file=sys.stderr,
    )
    return INTERRUPTED


def question_from(args: argparse.Namespace) -> SweepQuestion:
    """Raises SettingsRefused."""
    seeds, first = whole_number("--seeds", args.seeds), whole_number("--seed", args.seed)
    if not 1 <= seeds <= MOST_SEEDS:
        raise SettingsRefused("--seeds cannot be {value}.", "Give 1 to {most}.", value=seeds, most=MOST_SEEDS)
    if not args.out or "\0" in args.out:
        raise SettingsRefused("The --out folder {text} cannot be.", "Name a folder.", text=repr(args.out[:200]))
    asked = Asked(
        prompt=clean_text("--prompt", args.prompt),
        system=None if args.system is None else clean_text("--system", args.system),
        raw=args.raw,
        max_new_tokens=whole_number("--max-new-tokens", args.max_new_tokens),
        stop=tuple(clean_text("--stop", text) for text in args.stop),
    )
    base = SamplingSettings() if args.lane is None else lane_from(args.lane, None)
    asked.request([base])  # refuses what no run could be asked
    axes = tuple(axis_from(text) for text in args.vary)
    batch = whole_number("--batch", args.batch)
    return SweepQuestion(args.out, asked, base, axes, tuple(range(first, first + seeds)), batch)


def axis_from(text: str) -> SweepAxis:
    """The axis of "temperature=0..1.4:0.2"."""
    name, equals, values = text.partition("=")
    if not equals:
        raise SettingsRefused(
            "--vary {text} cannot be read.", "Write temperature=0..1.4:0.2 or top_p=0.5,0.9,1.", text=repr(text[:60])
        )
    return values_named(name.strip(), values)


# ---------------------------------------------------------------- what is printed


def as_json(found: Sweep) -> dict:
    """Units are in the names; null for what cannot be counted. A cell's figures are means over its seeds."""
    question = found.question
    names = [axis.name for axis in question.axes]
    runs = []
    for number, figures in enumerate(found.runs):
        run = question.run(number)
        runs.append(
            {"number": number, "seed": run.settings.seed}
            | {name: getattr(run.settings, name) for name in names}
            | {"replay": run.file if figures is not None else None}
            | {"end_reason": figures.reason if figures is not None else None}
            | {name: finite(figures.figure(name)) if figures is not None else None for name in FIGURES}
        )
    cells = []
    for cell in question.cells:
        values = {axis.name: axis.exact(axis.values[at]) for axis, at in zip(question.axes, cell, strict=False)}
        means = {name: found.mean(name, cell) for name in FIGURES}
        cells.append(
            values
            | {"runs": len(found.of_cell(cell))}
            | {name: {"mean": finite(mean.mean), "deviation": finite(mean.deviation)} for name, mean in means.items()}
        )
    return {
        "folder": question.folder,
        "model": found.model,
        "precision": found.precision,
        "complete": found.complete,
        "runs": runs,
        "cells": cells,
        "batches": [
            {
                "runs": batch.runs,
                "tokens": batch.tokens,
                "elapsed_s": batch.elapsed_s,
                "process_bytes": batch.process_bytes,
                "reused_tokens": batch.reused_tokens,
                "kernel": batch.kernel,
            }
            for batch in found.batches
        ],
        "notes": list(found.notes),
    }


def as_text(found: Sweep) -> str:
    """A table with a line for each cell; means over its seeds, all measured."""
    question = found.question
    heads = ("surprise", "entropy", "distinct", "repetition", "tokens", "eos", "tok/s")
    names = [axis.name for axis in question.axes]
    width = [max(len(name), 6) for name in names]
    lines = [
        f"{found.model}: {found.done} of {len(found.runs)} runs, in {question.folder}",
        "",
        "  ".join(
            [*(name.rjust(w) for name, w in zip(names, width, strict=True)), *(head.rjust(10) for head in heads)]
        ),
    ]
    for cell in question.cells:
        values = [f"{axis.values[at]:g}" for axis, at in zip(question.axes, cell, strict=False)]
        figures = [found.mean(name, cell).mean for name in FIGURES]
        lines.append(
            "  ".join(
                [
                    *(value.rjust(w) for value, w in zip(values, width, strict=True)),
                    *(("–" if math.isnan(value) else f"{value:.3g}").rjust(10) for value in figures),
                ]
            )
        )
    return "\n".join([*lines, *found.notes])


class SweepProgress(Progress):
    """The line on the terminal, with the time that is left."""

    def take(self, event: Event) -> None:
        if isinstance(event, ExperimentProgress) and self.show:
            left = "" if event.remaining_s is None else f", about {_duration(event.remaining_s)} left"
            self._line(f"sweep: {event.runs_done} of {event.runs} runs, {event.tokens_per_s:.1f} tok/s{left}")
        else:
            super().take(event)


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
