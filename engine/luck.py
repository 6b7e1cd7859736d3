"""Luck or setting? Two settings, the same prompt, several seeds each, all in one batch; and what may be said of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

from engine.control import Control
from engine.errors import Cancelled
from engine.events import Event, RunEnd
from engine.experiments import TEXT_FIGURES, Luck, LuckFigure, LuckQuestion, RunFigures
from engine.gathering import Pace, events_of
from engine.session import Session
from engine.statistics import holm, mean_of, seeds_needed, welch


def luck(question: LuckQuestion, session: Session, control: Control, emit: Callable[[Event], None]) -> Luck:
    """Runs both settings. Raises Cancelled where it is stopped: half of the seeds would be a choice among them.

    Raises PromptRefused, and RunFailed where the model fails in all lanes at once.
    """
    lanes = question.lanes
    pace = Pace(question, len(lanes), question.asked.max_new_tokens, emit)
    pace.tell(now=True)
    figures: dict[int, RunFigures] = {}
    texts: dict[int, str] = {}
    with closing(events_of(session, question.asked, list(lanes), control, pace)) as events:
        for event, found in events:
            if isinstance(event, RunEnd) and found is not None:
                figures[event.lane], texts[event.lane] = found, event.text
    if len(figures) < len(lanes):
        raise Cancelled
    pace.tell(now=True)
    sides = [range(side * question.seeds, (side + 1) * question.seeds) for side in (0, 1)]
    runs = tuple(tuple(figures[lane] for lane in side) for side in sides)
    written = tuple(tuple(texts[lane] for lane in side) for side in sides)
    facts = session.facts
    return Luck(
        question, facts.name, facts.precision, (runs[0], runs[1]), (written[0], written[1]),
        compared(runs[0], runs[1], all(settings.greedy for settings in question.settings)), _notes(question, runs),
    )  # fmt: skip


def compared(
    first: Sequence[RunFigures], second: Sequence[RunFigures], certain: bool = False
) -> tuple[LuckFigure, ...]:
    """Each of TEXT_FIGURES of the two, with the interval of the difference (Welch) and Holm's correction over them.

    certain: both are greedy, so that every seed writes the same.
    A figure that cannot be compared (NaN: fewer than two texts have it) has no part in the correction.
    """
    samples = [([run.figure(name) for run in first], [run.figure(name) for run in second]) for name in TEXT_FIGURES]
    differences = [welch(*pair, certain) for pair in samples]
    means = [(mean_of(one), mean_of(other)) for one, other in samples]
    known = [at for at, difference in enumerate(differences) if difference.p == difference.p]
    corrected = dict(zip(known, holm([differences[at].p for at in known]), strict=True))
    return tuple(
        LuckFigure(name, means[at], differences[at], corrected.get(at, float("nan")), seeds_needed(*means[at]))
        for at, name in enumerate(TEXT_FIGURES)
    )


def _notes(question: LuckQuestion, runs: Sequence[Sequence[RunFigures]]) -> tuple[str, ...]:
    notes: list[str] = []
    letters = "AB"
    for letter, settings, side in zip(letters, question.settings, runs, strict=True):
        if settings.greedy:
            notes.append(f"Setting {letter} is greedy: every seed writes the same text, so it has no spread.")
        failed = sum(run.reason == "error" for run in side)
        if failed:
            notes.append(f"Runs of setting {letter} that failed and are left out: {failed}.")
    if all(run.reason == "length" for side in runs for run in side):
        notes.append("Every text was cut at its length, so length says nothing here.")
    return tuple(notes)
