"""The precision x-ray: what a smaller precision changes, token by token, over one text.

Both precisions read the same tokens in one pass of transformers' own forward, one model after the other, so that only
one lies in memory at a time. The first one's logits wait in memory as float32 (tokens × vocabulary × 4 bytes, at most
`MOST_BYTES`: a longer text is cut, with a note); the second's are compared with them a few rows at a time in float64.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.control import Control
from engine.errors import Cancelled, PromptRefused, RunFailed
from engine.events import Event, LoadProgress, RunEnd, TokenEvent, Xray, XrayProgress, XraySide, XrayToken
from engine.readings import give_memory_back
from engine.settings import LoadPlan, Request, SamplingSettings, XrayQuestion
from engine.text import encode

if TYPE_CHECKING:
    import torch

    from engine.session import Session

SAMPLES = ("prose", "arithmetic", "code")
MOST_TOKENS = 256
MOST_BYTES = 512_000_000  # of logits that wait: 256 tokens of a vocabulary of 500,000
ROWS = 16  # compared at once
DECODE_TOKENS = 24  # written to measure the speed ...
DECODE_S = 4.0  # ... or as many as come in so many seconds, but at least
DECODE_LEAST = 6
PROMPT_TOKENS = 32
_FOLDER = Path(__file__).resolve().parent.parent / "resources" / "samples"


def sample_text(name: str) -> str:
    """A shipped text, one of SAMPLES."""
    return (_FOLDER / f"{name}.txt").read_text(encoding="utf-8").strip()


def kl_divergence(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Kullback-Leibler divergence in nats, [...]. p, q: log-probabilities, [..., vocab], the reference first."""
    import torch

    # What the reference rules out adds nothing: 0 · ln 0 is 0. Rounding may leave a little less than nothing.
    return torch.where(p > -math.inf, p.exp() * (p - q), 0.0).sum(dim=-1).clamp_(min=0.0)


@dataclass(eq=False)
class _Read:
    """What one precision made of the text. logits: [tokens - 1, vocab] float32 on the CPU."""

    side: XraySide
    logits: torch.Tensor
    ids: list[int]
    notes: tuple[str, ...]


def xray(
    question: XrayQuestion, emit: Callable[[Event], None], control: Control, keep: LoadPlan | None = None
) -> tuple[Xray, Session | None]:
    """Compares two precisions of a model over a text; emits XrayProgress.

    keep: the side that is equal to this plan comes last and is handed back loaded; without one nothing stays in memory.
    Raises CannotLoad, PromptRefused, RunFailed and Cancelled, after the memory was given back.
    """
    if not question.text.strip():
        raise PromptRefused("There is no text to compare over.", "Write one, or choose one of the three that are here.")
    plans = (question.reference, question.other)
    first = 1 if keep is not None and keep == plans[0] and keep != plans[1] else 0
    session: Session | None = None
    vocabulary: Any = None
    reads: dict[int, _Read] = {}
    try:
        _warm_up(plans[first])
        for side in (first, 1 - first):
            if session is not None:
                session.close()
                session = None
            session = _load(side, plans[side], emit, control)
            stage = _Stage(side, session.facts.precision, emit)
            reads[side] = _read(session, question.text, stage, control)
            vocabulary = session.vocabulary
        _refuse_different_ids(reads)
        tokens = _compare(reads[0], reads[1], vocabulary, control)
    except BaseException:
        if session is not None:
            session.close()
        raise
    finally:
        sides = {side: (read.side, read.notes) for side, read in reads.items()}
        reads.clear()  # hundreds of megabytes of logits
    assert session is not None
    found = Xray(
        model=session.facts.name,
        sample=question.sample,
        reference=_with_perplexity(sides[0][0], [token.reference_logprob for token in tokens[1:]]),
        other=_with_perplexity(sides[1][0], [token.other_logprob for token in tokens[1:]]),
        tokens=tokens,
        notes=tuple(dict.fromkeys((*sides[0][1], *sides[1][1]))),
    )
    if keep is None or keep != plans[1 - first]:
        session.close()
        session = None
    give_memory_back()
    return found, session


def _warm_up(plan: LoadPlan) -> None:
    """Imports the family's own code, so that the first of the two loads is not the slower one for that."""
    from engine.blueprint import read_blueprint

    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    _ = read_blueprint(plan.model, plan.trust_remote_code, tie_lm_head=plan.tie_lm_head).skeleton


class _Stage:
    """Says where one side stands."""

    def __init__(self, side: int, precision: str, emit: Callable[[Event], None]) -> None:
        self.side, self.precision, self.emit = side, precision, emit
        self.began = time.perf_counter()

    def tell(self, stage: str, done: int, total: int) -> None:
        if not done:
            self.began = time.perf_counter()
        elapsed = (time.perf_counter() - self.began) * 1e3
        self.emit(XrayProgress(self.side, self.precision, stage, done, total, elapsed))


def _load(side: int, plan: LoadPlan, emit: Callable[[Event], None], control: Control) -> Session:
    from engine.loading import load

    def tell(event: Event) -> None:
        if isinstance(event, LoadProgress):
            emit(
                XrayProgress(
                    side, plan.precision or "", event.stage, event.done_bytes, event.total_bytes, event.elapsed_ms
                )
            )

    return load(plan, tell, control)


def _read(session: Session, text: str, stage: _Stage, control: Control) -> _Read:
    """Reads the text and writes a few tokens with one precision."""
    ids, notes = _ids(session, text)
    began = time.perf_counter()
    logits = _logits(session, ids, stage, control)
    read_ms = (time.perf_counter() - began) * 1e3
    facts = session.facts
    words = {fact.name: fact.value for fact in facts.facts}.get("Quantised layers", "none")
    speed, written = _decode_speed(session, ids, stage, control)
    side = XraySide(
        precision=facts.precision,
        words="" if words == "none" else words,
        device=", ".join(facts.devices),
        weights_bytes=facts.weights_bytes,
        load_ms=sum(time_ms for _, time_ms in facts.stage_ms),
        read_ms=read_ms,
        decode_tokens_per_s=speed,
        decode_tokens=written,
        decode_path=facts.decode_path,
        perplexity=math.nan,
        unpacks=words != "none" and "unpacked to" not in words,
        native=_multiplies_natively(session),
    )
    return _Read(side, logits, ids, notes)


def _ids(session: Session, text: str) -> tuple[list[int], tuple[str, ...]]:
    """The text's tokens, with the model's own beginning where it has one, cut to what can be compared."""
    text = text.encode("utf-8", "replace").decode("utf-8")  # half a surrogate pair is no text
    ids = encode(session.tokenizer, text, add_special_tokens=True)
    vocab, context = session.facts.vocab_size, session.facts.context_tokens
    if ids and max(ids) >= vocab:
        raise PromptRefused(
            "The tokenizer gives the id {largest}, and the model knows only {size} tokens.",
            "This tokenizer does not belong to this model; load the folder that both came in.",
            largest=max(ids),
            size=vocab,
        )
    most = min(MOST_TOKENS, MOST_BYTES // (4 * vocab) + 1, context or MOST_TOKENS)
    if len(ids) < 2:
        raise PromptRefused("The text is too short: one token predicts the next.", "Write at least two words.")
    if len(ids) <= most:
        return ids, ()
    return ids[:most], (f"The text is {len(ids):,} tokens long; the first {most} were compared.",)


@contextmanager
def _watched(model: Any, look: Callable[[], None]):
    """Calls `look` before each layer."""
    import torch

    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    layers = max(lists, key=len, default=())  # the decoder's: the longest list that a model has
    hooks = [layer.register_forward_pre_hook(lambda *_: look()) for layer in layers]
    try:
        yield len(hooks)
    finally:
        for hook in hooks:
            hook.remove()


def _logits(session: Session, ids: list[int], stage: _Stage, control: Control) -> torch.Tensor:
    """The logits after each token but the last: [tokens - 1, vocab] float32 on the CPU. Raises Cancelled, RunFailed."""
    import torch

    model = session.model
    device = torch.device("cpu") if model.device.type == "meta" else model.device
    done = 0

    def look() -> None:
        nonlocal done
        if control.cancelled():
            raise Cancelled
        done += 1
        stage.tell("read", done, total)

    with _watched(model, look) as total, torch.inference_mode():
        stage.tell("read", 0, total)
        found = model(input_ids=torch.tensor([ids], device=device), use_cache=False).logits[0, :-1]
        logits = found.float().cpu()
    if not bool(torch.isfinite(logits.amax())) or bool(torch.isnan(logits).any()):
        raise RunFailed(
            "In {precision} this model's numbers are not finite over this text.",
            "Choose bfloat16 or float32; float16 is too narrow for some models.",
            precision=session.facts.precision,
        )
    return logits


class _Enough(Control):
    """Ends a run when enough was written, and when the person cancels the whole."""

    def __init__(self, whole: Control) -> None:
        super().__init__()
        self.whole = whole

    def cancelled(self) -> bool:
        return super().cancelled() or self.whole.cancelled()


def _decode_speed(session: Session, ids: list[int], stage: _Stage, control: Control) -> tuple[float, int]:
    """(tokens per second by the median step, how many tokens) of our loop, going on from the text's beginning."""
    from engine.loop import generate

    start = session.tokenizer.decode(ids[:PROMPT_TOKENS], skip_special_tokens=True, clean_up_tokenization_spaces=False)
    greedy = SamplingSettings(temperature=0.0)
    request = Request(0, start, raw=True, lanes=(greedy,), max_new_tokens=DECODE_TOKENS, ignore_ends=True)
    stage.tell("decode", 0, DECODE_TOKENS)
    own = _Enough(control)
    stamps: list[float] = []
    for event in generate(session, request, own):
        if isinstance(event, TokenEvent):
            stamps.append(time.perf_counter())
            stage.tell("decode", len(stamps), DECODE_TOKENS)
            if len(stamps) >= DECODE_LEAST and stamps[-1] - stamps[0] > DECODE_S:
                own.cancel()
        elif isinstance(event, RunEnd) and event.reason == "error":
            raise RunFailed(event.sentence, event.fix)
    if control.cancelled():
        raise Cancelled
    steps = [after - before for before, after in pairwise(stamps)]
    usual = statistics.median(steps) if steps else 0.0  # other work on the machine delays single steps
    return (1.0 / usual if usual > 0 else 0.0), len(stamps)


def _multiplies_natively(session: Session) -> bool | None:
    """Whether the processor has products in the type that is computed with; None where that is not known (a GPU)."""
    import torch

    embedding = session.model.get_input_embeddings().weight
    if session.facts.devices != ("cpu",):
        return None
    if embedding.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    if embedding.dtype == torch.float16:
        return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    return True if embedding.dtype == torch.float32 else None


# ---------------------------------------------------------------- comparing


def _refuse_different_ids(reads: dict[int, _Read]) -> None:
    if reads[0].ids != reads[1].ids or reads[0].logits.shape != reads[1].logits.shape:
        raise RunFailed(
            "The two did not read the same tokens, so there is nothing to compare.",
            "Compare two precisions of one model.",
        )


def _compare(reference: _Read, other: _Read, vocabulary: Any, control: Control) -> tuple[XrayToken, ...]:
    """One XrayToken for each token of the text. KL divergence of natural logarithms, sums in float64."""
    import torch

    from engine.text import TokenText

    ids, text = reference.ids, TokenText(vocabulary)
    pieces = [text.add(token_id) for token_id in ids]
    pieces[-1] += text.finish()
    blank = [
        XrayToken(token_id, vocabulary.label(token_id), piece, token_id in vocabulary.special)
        for token_id, piece in zip(ids, pieces, strict=True)
    ]
    found = blank[:1]
    for begin in range(0, len(ids) - 1, ROWS):
        if control.cancelled():
            raise Cancelled
        rows = slice(begin, begin + ROWS)
        p, q = (torch.log_softmax(read.logits[rows].double(), dim=-1) for read in (reference, other))
        kl = kl_divergence(p, q).tolist()
        best_p, best_q = p.argmax(dim=-1).tolist(), q.argmax(dim=-1).tolist()
        for row, (first, second) in enumerate(zip(best_p, best_q, strict=True)):
            at = begin + row + 1
            found.append(
                replace(
                    blank[at],
                    kl_nats=kl[row],
                    reference_logprob=float(p[row, ids[at]]),
                    other_logprob=float(q[row, ids[at]]),
                    reference_choice=vocabulary.label(first),
                    reference_choice_probs=(math.exp(p[row, first]), math.exp(q[row, first])),
                    other_choice=vocabulary.label(second),
                    other_choice_probs=(math.exp(p[row, second]), math.exp(q[row, second])),
                    flipped=first != second,
                )
            )
    return tuple(found)


def _with_perplexity(side: XraySide, logprobs: list[float]) -> XraySide:
    """exp of the mean surprise in nats."""
    mean = -math.fsum(logprobs) / max(1, len(logprobs))
    return replace(side, perplexity=math.exp(mean) if mean < 700 else math.inf)
