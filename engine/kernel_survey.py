"""What each kernel and each attention does on this model and machine, measured: time of a step, of eight lanes, error.

Every choice continues the same text, token by token, so that the logits of one can be compared with those of the
unquantised model's own forward, and the steps are timed as a run takes them. Remembered per model and machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from engine import decode_path as paths
from engine import kernel_choice, lean
from engine.compiled import compile_step, why_not_compiled
from engine.control import Control
from engine.errors import Cancelled, CannotLoad, WorkbenchError
from engine.events import KernelProgress, KernelRow, KernelSurvey
from engine.forward import Forward, GeneralForward
from engine.kernels import KERNELS, LEAN_ONLY, offered
from engine.lean import LeanForward
from engine.readings import give_memory_back, read_memory, weights_apart
from engine.replay_lines import DAMAGED, built
from engine.xray import kl_divergence, sample_text

if TYPE_CHECKING:
    from engine.session import Session

PROMPT_TOKENS, STEPS, LANE_ROUNDS, LANES = 16, 32, 4, 8
KEPT_AS = "survey"


def survey(session: Session, control: Control, tell: Callable[[KernelProgress], None]) -> KernelSurvey:
    """Measures every choice with the loaded model. Blocking: some seconds each for a small model.

    Raises Cancelled, and CannotLoad where memory does not suffice for one more copy of the weights or where the
    model's weights are not plain numbers on the processor. The session runs on as it was.
    """
    model = session.model
    linears = [] if paths.is_apart(model) else paths.packable(model)
    if not linears:
        raise CannotLoad(
            "Kernels can be compared for plain weights on the processor only.",
            "Load the model in bfloat16, float16 or float32 on the CPU.",
        )
    size = paths.bytes_of(linears)
    if size * 1.2 > (free := read_memory().available_bytes):
        raise CannotLoad(
            "Comparing packs the weights once more: {need:.1f} GB, and {free:.1f} GB are free.",
            "Close other programs, or compare with a smaller model.",
            need=size / 1e9,
            free=free / 1e9,
        )
    reason = lean.why_not(model)
    names = offered(linears[0].weight.dtype)
    attention = model.config.get_text_config(decoder=True)._attn_implementation
    wanted = ["transformers", *(["transformers, eager attention"] if attention == "sdpa" else [])]
    # Without the lean path the first row is the plain one.
    wanted += [name for name in names if not (reason and name in ("plain", *LEAN_ONLY))]
    if not reason and not why_not_compiled():
        wanted.append("compiled")
    ids = session.tokenizer(sample_text("prose"), add_special_tokens=True)["input_ids"][: PROMPT_TOKENS + STEPS + 1]
    rows: list[KernelRow] = []
    reference: list[np.ndarray] = []
    with weights_apart(), _as_it_came(linears), _threads_put_back(session):
        for at, name in enumerate(wanted):
            tell(KernelProgress(name, at, len(wanted)))

            def say(words: str, name: str = name, at: int = at) -> None:
                if control.cancelled():
                    raise Cancelled
                tell(KernelProgress(f"{name}: {words}", at, len(wanted)))

            try:
                began = time.perf_counter()
                forward_of = _forwards(session, name, linears, reason, say, control)
                packing_s = time.perf_counter() - began
                row, logits = _measured(name, forward_of, ids, reference, packing_s, control)
            except Cancelled:
                raise
            except (WorkbenchError, RuntimeError) as error:  # this one cannot be had here; the others can
                said = error.what if isinstance(error, WorkbenchError) else str(error).splitlines()[0]
                rows.append(KernelRow(name, _words(name), error=said[:200]))
            else:
                reference = reference or logits
                rows.append(row)
            finally:
                _eager(model, attention)
    give_memory_back()
    found = KernelSurvey(
        session.facts.name, session.facts.precision, len(ids) - PROMPT_TOKENS, torch.get_num_threads(), tuple(rows)
    )
    kernel_choice.keep(_key(session), KEPT_AS, asdict(found))
    return found


def remembered(session: Session) -> KernelSurvey | None:
    """What was measured of this model on this machine before."""
    try:
        return built(KernelSurvey, kernel_choice.kept(_key(session), KEPT_AS))
    except DAMAGED:
        return None


def _key(session: Session) -> tuple[str, str]:
    return (session.model.config.to_json_string(), session.facts.precision)


def _words(name: str) -> str:
    return KERNELS[name].words if name in KERNELS else "transformers' own forward, attention written out (eager)"


def _forwards(
    session: Session, name: str, linears: list[Any], reason: str, say: Callable[[str], None], control: Control
) -> Callable[[], Forward]:
    """What makes a new forward of this choice."""
    model = session.model
    for module in linears:
        vars(module).pop("forward", None)  # transformers' own forward with plain products
    session.threads = (0, 0)
    if name.startswith("transformers"):
        if name != "transformers":
            _eager(model, "eager")
        return lambda: GeneralForward(session)
    kernel = "plain" if name == "compiled" else name
    choice = paths.choice_for(model, linears, kernel, reason, say)
    if reason:
        paths.pack_in_place(linears, choice, say)
        session.threads = choice.threads
        return lambda: GeneralForward(session)
    weights = lean.pack_model(model, kernel, choice.wide, lambda done, of: say(f"packing layer {done + 1} of {of}"))
    weights.threads = choice.threads
    if name == "compiled":
        compile_step(weights, say, control.cancelled)
    return lambda: LeanForward(weights, PROMPT_TOKENS + STEPS + LANE_ROUNDS)


def _measured(
    name: str,
    forward_of: Callable[[], Forward],
    ids: list[int],
    reference: list[np.ndarray],
    packing_s: float,
    control: Control,
) -> tuple[KernelRow, list[np.ndarray]]:
    forward = forward_of()
    forward.read(ids[:PROMPT_TOKENS], control.cancelled)
    logits, times, divergences, same = [], [], [], 0
    for at, token in enumerate(ids[PROMPT_TOKENS:]):
        if control.cancelled():
            raise Cancelled
        began = time.perf_counter()
        row = forward.step([token])[0]
        times.append((time.perf_counter() - began) * 1e3)
        if not reference:
            logits.append(row)
        else:
            divergences.append(divergence(reference[at], row))
            same += int(reference[at].argmax() == row.argmax())
    forward.share(LANES)
    lane_times = []
    for _ in range(LANE_ROUNDS):
        if control.cancelled():
            raise Cancelled
        began = time.perf_counter()
        forward.step([ids[-1]] * LANES)
        lane_times.append((time.perf_counter() - began) * 1e3)
    return KernelRow(
        name,
        _words(name),
        step_ms=statistics.median(times[1:]),
        lanes_ms=statistics.median(lane_times[1:]),
        packing_s=packing_s,
        kl_nats=float(np.mean(divergences)) if divergences else 0.0,
        same_first=same / len(divergences) if divergences else 1.0,
    ), logits


def divergence(reference: np.ndarray, other: np.ndarray) -> float:
    """KL divergence in nats of two distributions given by their logits, [vocab], the reference first."""
    p, q = (torch.log_softmax(torch.from_numpy(logits).double(), 0) for logits in (reference, other))
    return float(kl_divergence(p, q))


def _eager(model: Any, implementation: str) -> None:
    if model.config.get_text_config(decoder=True)._attn_implementation != implementation:
        model.set_attn_implementation(implementation)


@contextmanager
def _as_it_came(linears: list[Any]) -> Iterator[None]:
    """Puts back what the layers' products were."""
    before = [vars(module).get("forward") for module in linears]
    try:
        yield
    finally:
        for module, forward in zip(linears, before, strict=True):
            vars(module).pop("forward", None)
            if forward is not None:
                module.forward = forward


@contextmanager
def _threads_put_back(session: Session) -> Iterator[None]:
    threads = session.threads
    try:
        yield
    finally:
        session.threads = threads
