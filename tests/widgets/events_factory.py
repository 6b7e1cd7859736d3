"""Real events from a few numbers, for tests of widgets: the waterfall is worked out by the engine's own sampling."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from engine import events as ev
from engine.sampling import History, decide, final_probabilities
from engine.settings import SamplingSettings
from widgets import theme
from widgets.run_store import RunStore

VOCAB = 49_152
RIVER = (
    "The river begins as meltwater high in the mountains, thin and cold. By the time it reaches the plain it has "
    "gathered a dozen streams and slowed to a walk. People built their towns where it bends, because a bend is where a"
)
OTHERS = [
    " river",
    " boat",
    " ferry",
    " bridge",
    " road",
    " stream",
    " town",
    " path",
    " current",
    " walk",
    " man",
    " child",
]
SHARES = [0.46, 0.26, 0.14, 0.09, 0.05, 0.04, 0.03, 0.025, 0.02, 0.018, 0.011, 0.008]


def start(run_id: int = 1, lane: int = 0, **changes: object) -> ev.RunStart:
    values: dict = {
        "run_id": run_id,
        "lane": lane,
        "lanes": 1,
        "settings": SamplingSettings(),
        "prompt": "Describe how a river shapes the land it crosses.",
        "prompt_text": "<|im_start|>user\nDescribe how a river shapes the land it crosses.<|im_end|>\n",
        "prompt_tokens": tuple(ev.PromptToken(i, f" p{i}", False) for i in range(38)),
        "ends": (ev.EndToken(2, "<|im_end|>", "generation_config.json"),),
        "stop": (),
        "max_new_tokens": 256,
        "context_tokens": 8192,
        "tokenise_ms": 1.2,
    }
    return ev.RunStart(**(values | changes))


def token(
    step: int,
    text: str,
    *,
    prob: float = 0.46,
    others: list[tuple[str, float]] | None = None,
    settings: SamplingSettings | None = None,
    u: float | None = None,
    token_text: str | None = None,
    history: list[int] | None = None,
    vocab: int = VOCAB,
    run_id: int = 1,
    lane: int = 0,
    **changes: object,
) -> ev.TokenEvent:
    """One token that was drawn with this raw probability among these others; all further words share the rest.

    The chosen word has id 10, the others 11, 12, ...; `u` is where the draw fell, by default in the middle of the
    chosen word's interval. With an explicit `u` another word may be chosen, as in life.
    """
    settings = settings or SamplingSettings()
    if others is None:
        scale = (1.0 - prob) / 1.16
        others = [(t, s * scale) for t, s in zip(OTHERS, SHARES, strict=True) if t != text]
    listed = [(text if token_text is None else token_text, prob), *others]
    rest = max(1e-9, 1.0 - math.fsum(p for _, p in listed)) / (vocab - len(listed))
    logits = np.full(vocab, math.log(rest), dtype=np.float32)
    for i, (_, share) in enumerate(listed):
        logits[10 + i] = math.log(share)
    past = History(history or [])
    if u is None and not settings.greedy:
        final = final_probabilities(logits, past, settings)
        order = np.lexsort((np.arange(vocab), -final))
        at = int(np.flatnonzero(order == 10)[0])
        u = min(float(final[order[:at]].sum() + final[10] / 2), 1.0 - 2**-53)
    decision = decide(logits, past, settings, None if settings.greedy else u, step)
    names = {10 + i: t for i, (t, _) in enumerate(listed)}
    raw = array("d", decision.candidate_logits.tolist())
    adjusted = decision.candidate_adjusted
    label = names.get(decision.token_id, f"w{decision.token_id}")
    values: dict = {
        "run_id": run_id,
        "lane": lane,
        "step": step,
        "token_id": decision.token_id,
        "text": text if decision.token_id == 10 else label,
        "token_text": label,
        "special": False,
        "candidate_ids": array("i", decision.candidate_ids.tolist()),
        "candidate_logits": raw,
        "candidate_adjusted": raw if adjusted is None else array("d", adjusted.tolist()),
        "candidate_cuts": decision.candidate_cuts,
        "candidate_texts": tuple(names.get(i, f" w{i}") for i in decision.candidate_ids.tolist()),
        "logsumexp": decision.logsumexp,
        "entropy_nats": decision.entropy_nats,
        "final_entropy_nats": decision.final_entropy_nats,
        "stages": decision.stages,
        "vocab_size": vocab,
        "rank": decision.rank,
        "logprob": decision.logprob,
        "final_logprob": decision.final_logprob,
        "u": None if settings.greedy else u,
        "draw_low": decision.draw_low,
        "draw_high": decision.draw_high,
        "temperature": settings.temperature,
        "settings": settings,
        "forward_ms": 22.8 + step % 7 * 0.2,
        "sampling_ms": 0.6,
        "kv_bytes": 23_040 * (38 + step),
        "kv_allocated_bytes": 23_040 * (38 + step),
        "context_used_tokens": 38 + step + 1,
    }
    return ev.TokenEvent(**(values | changes))


def special(step: int, name: str = "<|im_end|>", **changes: object) -> ev.TokenEvent:
    return token(step, "", token_text=name, special=True, **changes)


def tokens(texts: list[str], *, first: int = 0, vocab: int = VOCAB, **changes: object) -> list[ev.TokenEvent]:
    """Many tokens with these texts; probabilities run through a few values, so that ten thousand are quickly made."""
    probs = (0.46, 0.92, 0.08, 0.99, 0.3, 0.015, 0.7)
    kinds = [token(0, "x", prob=p, vocab=vocab) for p in probs]
    made = []
    for i, text in enumerate(texts):
        kind, step = kinds[i % len(kinds)], first + i
        here = {
            "step": step,
            "text": text,
            "token_text": text,
            "candidate_texts": tuple(text if t == "x" else t for t in kind.candidate_texts),
            "kv_bytes": 23_040 * (38 + step),
            "kv_allocated_bytes": 23_040 * (38 + step),
            "context_used_tokens": 38 + step + 1,
        }
        made.append(replace(kind, **(here | changes)))
    return made


def words(text: str) -> list[str]:
    """Cut before each space, as byte-level tokenizers do."""
    pieces = text.split(" ")
    return [pieces[0], *(" " + piece for piece in pieces[1:])]


def end(events: list[ev.TokenEvent], reason: str = "length", tail_text: str = "", **changes: object) -> ev.RunEnd:
    text = "".join(e.text for e in events) + tail_text
    values: dict = {
        "run_id": events[0].run_id if events else 1,
        "lane": events[0].lane if events else 0,
        "reason": reason,
        "text": text,
        "tail_text": tail_text,
        "token_ids": tuple(e.token_id for e in events),
        "prompt_tokens": 38,
        "new_tokens": len(events),
        "prefill_ms": 290.0,
        "ttft_ms": 310.0,
        "decode_ms": 23.6 * max(0, len(events) - 1),
        "decode_tokens_per_s": 42.4,
        "kv_bytes": 23_040 * (38 + len(events)),
        "kv_allocated_bytes": 23_040 * (38 + len(events)),
    }
    return ev.RunEnd(**(values | changes))


def river(settings: SamplingSettings | None = None) -> list[ev.TokenEvent]:
    """The sentence of the drawings, its last word with the full waterfall."""
    settings = settings or SamplingSettings(temperature=0.8, top_k=40, top_p=0.9, repetition_penalty=1.1, seed=7)
    made = tokens(words(RIVER))
    scale = 0.898 / sum(SHARES)
    others = [(t, s * scale) for t, s in zip(OTHERS[1:], SHARES[1:], strict=True)]
    made.append(
        token(len(made), " river", prob=0.46 * scale, others=others, settings=settings, u=0.231, history=[12, 19])
    )
    return made


def recorded(events: Iterable[ev.Event]) -> RunStore:
    """What the store of a recording holds that says these events."""
    store = RunStore()
    for event in events:
        store.take(event)
    return store


def shown(qtbot, kind, events, size, end=None):
    """A store and a view of it on the screen, with a run's start and events taken in; None for an empty store."""
    theme.set_mode("light")
    store = RunStore()
    view = kind(store)
    qtbot.addWidget(view)
    view.resize(*size)
    view.show()
    if events is not None:
        for event in (start(), *events, *([end] if end is not None else [])):
            store.take(event)
    store.frame.emit()
    return store, view
