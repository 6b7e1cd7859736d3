"""What offload costs per token on this machine: decode timed with nothing moved, a quarter and half of the layers away.

Measured as a person would run it, so that what else changes with offload (the lean path is lost) is in the figures;
the price per byte comes from the two offloaded runs, between which only the moved bytes differ.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from engine.control import Control
from engine.errors import Cancelled, CannotLoad
from engine.events import OffloadPrice, OffloadRow, SessionFacts
from engine.settings import LoadPlan, OffloadQuestion
from engine.sizes import ELEMENT_BYTES

SHARES = (0.25, 0.5)  # of the layers
PROMPT_TOKENS = 32


def measure_offload(question: OffloadQuestion, facts: SessionFacts, control: Control) -> OffloadPrice:
    """The price with the loaded model, of which further copies are loaded one after the other.

    Blocking: as long as three loads (five with a GPU) and `question.steps` tokens of each. Raises CannotLoad where
    memory does not suffice for a second copy, and Cancelled.
    """
    from engine.placement import devices_here
    from engine.readings import read_memory

    sizes = facts.sizes
    if sizes is None or len([part for part in sizes.parts if part.layer is not None]) < 4:
        raise CannotLoad(
            "Offload moves whole layers, and this model has too few of them.", "Load a model with four layers or more."
        )
    notes = []
    precision = facts.precision
    if precision not in ELEMENT_BYTES:
        precision = sizes.precisions[-1].float_dtype
        notes.append(f"Measured in {precision}: quantised weights cannot lie on disk.")
    need, free = sizes.need(precision, 1024), read_memory().available_bytes
    if need > free:
        raise CannotLoad(
            "Measuring loads the model once more: {need:.1f} GB, and {free:.1f} GB are free.",
            "Measure with a smaller model: the price per GB is the machine's, not the model's.",
            need=need / 1e9,
            free=free / 1e9,
        )
    here = devices_here()
    main = here[0]
    rows = [_row(question, facts.model_path, precision, "", main, (), 0, control)]
    layers = [part for part in sizes.parts if part.layer is not None]
    at = [each.precision for each in sizes.precisions].index(precision)
    for place in here[here.index("cpu") :]:
        if place == main:
            continue
        for share in SHARES:
            away = layers[len(layers) - max(1, round(len(layers) * share)) :]
            names, moved = tuple(part.name for part in away), sum(part.weights_bytes[at] for part in away)
            rows.append(_row(question, facts.model_path, precision, place, main, names, moved, control))
    if facts.decode_path.startswith("lean"):
        notes.append("With any offload the model takes transformers' forward and not the lean path: that is in it too.")
    if any(row.place == "disk" for row in rows):
        notes.append("The files were in the system's file cache; a first reading from the drive itself takes longer.")
    return OffloadPrice(facts.name, precision, main, question.steps, tuple(rows), tuple(notes))


def _row(
    question: OffloadQuestion,
    model: str,
    precision: str,
    place: str,
    main: str,
    away: tuple[str, ...],
    moved_bytes: int,
    control: Control,
) -> OffloadRow:
    from engine.forward import forward_of
    from engine.loading import load

    table = (("", main), *((name, place) for name in away)) if away else main
    session = load(LoadPlan(model, precision, device_map=table), _silent, control)
    forward: Any = None
    try:
        forward = forward_of(session, PROMPT_TOKENS + question.steps + 1)
        highest = session.facts.vocab_size - 1
        forward.read([min(token, highest) for token in range(1, PROMPT_TOKENS + 1)])
        times = _timed(partial(forward.step, [min(7, highest)]), question.steps, control)
        return OffloadRow(place, len(away), moved_bytes, statistics.median(times), min(times), max(times))
    finally:
        del forward  # it holds the weights
        session.close()


def _timed(step: Callable[[], object], steps: int, control: Control) -> list[float]:
    """Milliseconds of each step; the first, which brings weights into memory, is not among them."""
    times: list[float] = []
    for at in range(steps + 1):
        if control.cancelled():
            raise Cancelled
        began = time.perf_counter()
        step()
        if at:
            times.append((time.perf_counter() - began) * 1e3)
    return times


def _silent(_event: object) -> None:
    pass
