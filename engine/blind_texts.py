"""The texts of one round of a blind test."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

from engine.control import Control
from engine.errors import Cancelled, RunFailed
from engine.events import Event, RunEnd
from engine.experiments import BlindQuestion, BlindTexts
from engine.gathering import Pace, events_of
from engine.session import Session


def blind_texts(
    question: BlindQuestion, session: Session, control: Control, emit: Callable[[Event], None]
) -> BlindTexts:
    """Each setting's text, all from one seed, as one batch. Progress tells how many tokens there are and no text.

    Raises Cancelled, PromptRefused, and RunFailed where one of the settings fails: a missing text is no round.
    """
    lanes = [replace(settings, seed=question.seed) for settings in question.settings]
    pace = Pace(question, len(lanes), question.asked.max_new_tokens, emit)
    pace.tell(now=True)
    ends: dict[int, RunEnd] = {}
    with closing(events_of(session, question.asked, lanes, control, pace)) as events:
        for event, figures in events:
            if isinstance(event, RunEnd) and figures is not None:
                if event.reason == "error":
                    raise RunFailed(event.sentence, event.fix)
                ends[event.lane] = event
    if len(ends) < len(lanes):
        raise Cancelled
    in_order = [ends[lane] for lane in range(len(lanes))]
    return BlindTexts(
        question,
        session.facts.name,
        session.facts.precision,
        tuple(end.text for end in in_order),
        tuple(end.reason for end in in_order),
    )
