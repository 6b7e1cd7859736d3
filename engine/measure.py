"""Measuring: our loop beside transformers' generate() in one run, and what the machine's memory could do.

Rounds alternate between what is compared, since a machine's speed drifts. Ratios are of medians.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from dataclasses import dataclass, replace
from typing import Any

import torch

from engine.control import Control
from engine.events import PrefillProgress, RunEnd, TokenEvent
from engine.forward import forward_of
from engine.loop import generate
from engine.prompt import prepare
from engine.session import Session
from engine.settings import Request, SamplingSettings

PROMPT = "Describe how a river shapes the land it crosses."
GREEDY = SamplingSettings(temperature=0.0)


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, smallest and largest of several rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class LoopRound:
    """One run of our loop. share: the part of a step that is not the model's forward."""

    tokens_per_s: float
    share: float
    kv_bytes: int


def our_loop(session: Session, tokens: int, lanes: int = 1, settings: SamplingSettings = GREEDY) -> LoopRound:
    """Decodes with all events on; tokens per second of all lanes together."""
    raw = not session.facts.has_chat_template
    request = Request(1, PROMPT, raw=raw, lanes=(settings,) * lanes, max_new_tokens=tokens, ignore_ends=True)
    stamps: list[float] = []
    forward_ms: list[float] = []
    kv_bytes = 0
    for event in generate(session, request, Control()):
        if isinstance(event, TokenEvent) and event.lane == lanes - 1:
            stamps.append(time.perf_counter())
            forward_ms.append(event.forward_ms)
            kv_bytes = event.kv_bytes
    elapsed = stamps[-1] - stamps[0]
    return LoopRound(lanes * (len(stamps) - 1) / elapsed, 1.0 - sum(forward_ms[1:]) / (elapsed * 1e3), kv_bytes)


def generate_with_streamer(session: Session, tokens: int) -> float:
    """Tokens per second of model.generate() with a TextIteratorStreamer read by another thread."""
    from transformers import TextIteratorStreamer

    stamps: list[float] = []

    class Timed(TextIteratorStreamer):
        def put(self, value: Any) -> None:
            stamps.append(time.perf_counter())
            super().put(value)

    streamer = Timed(session.tokenizer, skip_prompt=True)
    ids = prompt_ids(session)
    arguments = {
        "attention_mask": torch.ones_like(ids),
        "max_new_tokens": tokens,
        "do_sample": False,
        "eos_token_id": None,
        "streamer": streamer,
    }
    thread = threading.Thread(target=session.model.generate, args=(ids,), kwargs=arguments)
    thread.start()
    for _ in streamer:
        pass
    thread.join()
    written = stamps[1:]  # the first put is the prompt
    return (len(written) - 1) / (written[-1] - written[0])


def bare_loop(session: Session, tokens: int) -> float:
    """Tokens per second of the forward and an argmax alone: no waterfall, no events, no text."""
    forward = forward_of(session, tokens + 100)
    token = int(forward.read(prompt_ids(session)[0].tolist()).argmax())
    began = time.perf_counter()
    for _ in range(tokens - 1):
        token = int(forward.step([token])[0].argmax())
    return (tokens - 1) / (time.perf_counter() - began)


def prefill(session: Session, tokens: int) -> tuple[float, float]:
    """Seconds to read a prompt: in our chunks, and by transformers' own forward in one piece."""
    text = "The river runs on. " * tokens
    ids = session.tokenizer(text, add_special_tokens=False)["input_ids"][:tokens]
    prompt = session.tokenizer.decode(ids, clean_up_tokenization_spaces=False)
    request = Request(1, prompt, raw=True, lanes=(GREEDY,), max_new_tokens=1)
    control, ours, read = Control(), 0.0, tokens
    session.kept.drop()  # nothing of it is read already
    for event in generate(session, request, control):
        if isinstance(event, PrefillProgress):
            ours, read = event.elapsed_ms / 1e3, event.total_tokens
    began = time.perf_counter()
    with torch.inference_mode():
        session.model(input_ids=torch.tensor([ids[:read]]), use_cache=True, logits_to_keep=1)
    return ours, time.perf_counter() - began


def second_run(session: Session) -> tuple[float, float, tuple[int, int, int]]:
    """Milliseconds to the first token of a prompt that is read anew, and of the same again with its cache kept; and a
    fork in the middle of it: (token at which it begins, tokens reused, tokens read)."""
    raw = not session.facts.has_chat_template
    session.kept.drop()
    asked = Request(1, PROMPT, raw=raw, lanes=(GREEDY,), max_new_tokens=60, ignore_ends=True)
    (first, _), (second, _) = _first_token(session, asked), _first_token(session, asked)
    whole = _first_token(session, asked)[1]
    fork = replace(asked, written=whole.token_ids[:50])
    end = _first_token(session, fork)[1]
    return first, second, (50, end.reused_tokens, end.prompt_tokens + 50 - end.reused_tokens)


def _first_token(session: Session, request: Request) -> tuple[float, RunEnd]:
    (end,) = [event for event in generate(session, request, Control()) if isinstance(event, RunEnd)]
    return end.ttft_ms, end


@dataclass(frozen=True, slots=True)
class LongRun:
    """Milliseconds of a step over one long run: median and largest after warm-up, the first and last hundred."""

    median: float
    high: float
    first: float
    last: float


def long_run(session: Session, tokens: int) -> LongRun:
    """All events on, one lane."""
    raw = not session.facts.has_chat_template
    request = Request(1, PROMPT, raw=raw, lanes=(GREEDY,), max_new_tokens=tokens, ignore_ends=True)
    stamps = [time.perf_counter() for event in generate(session, request, Control()) if isinstance(event, TokenEvent)]
    steps = [(after - before) * 1e3 for before, after in itertools.pairwise(stamps[10:])]
    median = statistics.median
    return LongRun(median(steps), max(steps), median(steps[:100]), median(steps[-100:]))


def prompt_ids(session: Session) -> torch.Tensor:
    """The benchmark's prompt as [1, tokens]."""
    prepared = prepare(session, Request(1, PROMPT, raw=not session.facts.has_chat_template))
    return torch.tensor([prepared.ids])
