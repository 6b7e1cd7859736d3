"""Answers to views' questions about a model's inside, given in the engine's thread while nothing else goes on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from engine.control import Control
from engine.errors import CannotLoad
from engine.experiments import BlindQuestion, LuckQuestion, SweepQuestion, SweepsQuestion
from engine.inside import HistogramQuestion, OutlineQuestion, WeightsQuestion
from engine.settings import EstimateQuestion, FuturesQuestion, KernelQuestion, OffloadQuestion, PlanWish
from engine.words import WordsQuestion

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.blueprint import Blueprint
    from engine.events import Event
    from engine.session import Session


def answer(
    question: object, session: Session | None, control: Control, emit: Callable[[Event], None] = lambda event: None
) -> object:
    """The answer to a question of engine/inside.py. Raises CannotLoad, and Cancelled once the control says so.

    emit: told how far a long one is. session: the loaded model, which answers from memory where it is asked about.
    """
    match question:
        case OutlineQuestion():
            from engine.outline import outline
            from engine.settings import precision_named

            blueprint = _blueprint(question.model, session)
            return outline(blueprint, *blueprint.chosen(precision_named(question.precision)))
        case WeightsQuestion():
            from engine.weights_view import table_from_files

            return table_from_files(_blueprint(question.model, session))
        case HistogramQuestion():
            from engine.weights_view import histogram

            return histogram(question, session, control.cancelled)
        case EstimateQuestion():
            from engine.memory import estimate

            before = session.facts.memory_before_bytes if session is not None else None
            return estimate(_blueprint(question.model, session), question.precision, libraries_bytes=before)
        case PlanWish():
            from engine.planner import plan

            return plan(question, _blueprint(question.model, session))
        case OffloadQuestion():
            from engine.offload_price import measure_offload

            if session is None:
                raise CannotLoad("No model is loaded.", "Load one first; offload is measured with it.")
            return measure_offload(question, session.facts, control)
        case KernelQuestion():
            from engine.kernel_survey import remembered, survey

            if session is None:
                raise CannotLoad("No model is loaded.", "Load one first; kernels are compared with it.")
            return survey(session, control, emit) if question.measure else remembered(session) or ()
        case FuturesQuestion():
            from engine.continuations import continuations

            if session is None:
                raise CannotLoad("No model is loaded.", "Load one first; it writes the continuations.")
            return continuations(question, session, control, emit)
        case SweepsQuestion():
            from engine.sweep_folder import sweeps_under

            return sweeps_under(Path(question.folder))
        case SweepQuestion():
            from engine.sweep import sweep

            return sweep(question, _there(session), control, emit)
        case LuckQuestion():
            from engine.luck import luck

            return luck(question, _there(session), control, emit)
        case BlindQuestion():
            from engine.blind_texts import blind_texts

            return blind_texts(question, _there(session), control, emit)
        case WordsQuestion():
            from engine.prompt import word_tokens

            return word_tokens(_there(session), question)
    raise TypeError(f"nobody answers {type(question).__name__}")


def _there(session: Session | None) -> Session:
    if session is None:
        raise CannotLoad("No model is loaded.", "Load one first; it writes the texts.")
    return session


def _blueprint(model: str, session: Session | None) -> Blueprint:
    from engine.blueprint import read_blueprint
    from engine.catalog import resolve

    located = resolve(model)
    if session is not None and session.model is not None and session.blueprint.located.path == located.path:
        return session.blueprint
    return read_blueprint(located)
