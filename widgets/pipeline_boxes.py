"""What stands in each box of the pipeline strip: its name, and its newest measured figure."""

from __future__ import annotations

from PySide6.QtCore import QT_TRANSLATE_NOOP, QCoreApplication

from engine.events import LOAD_STAGES
from widgets.format import (
    bytes_text,
    count_text,
    duration_text,
    layers_text,
    number_text,
    rate_text,
    token_label,
    tokens_text,
)
from widgets.model_chip import device_words
from widgets.run_store import RunStore
from widgets.status_line import pace

LOAD = LOAD_STAGES
COMPUTE = ("tokenise", "embed", "layers", "probabilities", "sample")
OUTPUT = ("detokenise", "format", "stream")
BOXES = (*LOAD, *COMPUTE, *OUTPUT)
PER_TOKEN = ("probabilities", "sample", "detokenise", "format", "stream")  # follow each forward pass at once


_TITLES = {
    "blueprint": QT_TRANSLATE_NOOP("PipelineStrip", "blueprint"),
    "skeleton": QT_TRANSLATE_NOOP("PipelineStrip", "skeleton"),
    "weights": QT_TRANSLATE_NOOP("PipelineStrip", "weights"),
    "placement": QT_TRANSLATE_NOOP("PipelineStrip", "placement"),
    "kernels": QT_TRANSLATE_NOOP("PipelineStrip", "kernels"),
    "tokenise": QT_TRANSLATE_NOOP("PipelineStrip", "tokenise"),
    "embed": QT_TRANSLATE_NOOP("PipelineStrip", "embed"),
    "probabilities": QT_TRANSLATE_NOOP("PipelineStrip", "probabilities"),
    "sample": QT_TRANSLATE_NOOP("PipelineStrip", "sample"),
    "detokenise": QT_TRANSLATE_NOOP("PipelineStrip", "detokenise"),
    "format": QT_TRANSLATE_NOOP("PipelineStrip", "format"),
    "stream": QT_TRANSLATE_NOOP("PipelineStrip", "stream"),
}


def title(box: str, store: RunStore) -> str:
    """The box's name as shown."""
    facts = store.shown_facts
    if box == "layers":
        if facts is None:
            return QCoreApplication.translate("PipelineStrip", "layers")
        return layers_text(facts.layers)
    return QCoreApplication.translate("PipelineStrip", _TITLES[box])


def is_chat(store: RunStore) -> bool:
    """True where the current run's prompt went through a chat template."""
    return store.current is not None and store.current.start.prompt_text != store.current.start.prompt


def figure(box: str, store: RunStore) -> str:
    """The box's newest figure, measured or taken from the events; "" where nothing is known yet."""
    return _load_figure(box, store) if box in LOAD else _run_figure(box, store)


def _load_figure(box: str, store: RunStore) -> str:
    if store.activity == "loading":
        progress = store.load_stages.get(box)
        if progress is None:
            return ""
        if box == "weights" and progress.total_bytes:
            return f"{min(100, progress.done_bytes * 100 // progress.total_bytes)}%"
        return duration_text(progress.elapsed_ms) if progress.elapsed_ms else ""
    facts = store.loading_facts
    if facts is None:
        return ""
    if box == "weights":
        return bytes_text(facts.weights_bytes)
    if box == "placement":
        return " + ".join(map(device_words, facts.devices))
    if box == "kernels":
        return facts.attention
    time_ms = dict(facts.stage_ms).get(box)
    return "" if time_ms is None else duration_text(time_ms)


def _run_figure(box: str, store: RunStore) -> str:
    run, token, facts = store.current, store.shown_token, store.shown_facts
    if run is None:
        return ""
    if box == "tokenise":
        return tokens_text(len(run.start.prompt_tokens))
    if box == "format":
        return (
            QCoreApplication.translate("PipelineStrip", "chat")
            if is_chat(store)
            else QCoreApplication.translate("PipelineStrip", "plain")
        )
    if box == "stream":
        return "" if (rate := pace(run, store.moment).tokens_per_s) is None else rate_text(rate)
    if token is None:
        if box == "layers" and run.prefill:
            done, total = run.prefill[-1].done_tokens, run.prefill[-1].total_tokens
            return f"{count_text(done)} / {count_text(total)}"
        return ""
    if box in ("embed", "layers") and token.step == 0 and run.prefill:
        last = run.prefill[-1]
        if last.reused_tokens >= last.total_tokens > 0:  # the logits after a prompt are kept, too: nothing goes in
            return QCoreApplication.translate("PipelineStrip", "reused")
    if box == "embed":
        # The shape that goes in: the whole prompt for the first token, then one token at a time.
        tokens = len(run.start.prompt_tokens) if token.step == 0 else 1
        return "" if facts is None else f"[{run.start.lanes},{tokens},{facts.hidden_size}]"
    if box == "layers":
        return duration_text(token.forward_ms)
    if box == "probabilities":
        return duration_text(token.sampling_ms)
    if box == "sample":
        greedy = QCoreApplication.translate("PipelineStrip", "greedy")
        return greedy if token.u is None else f"u {number_text(token.u, 3)}"
    return f"“{token_label(token.token_text)}”"


def tooltip(box: str) -> str:
    """What the box does, in plain words, and what its figure is."""
    texts = {
        "blueprint": QCoreApplication.translate(
            "PipelineStrip", "config.json is read: what the model is made of. Time measured."
        ),
        "skeleton": QCoreApplication.translate(
            "PipelineStrip", "The model is built empty, without any memory for its weights. Time measured."
        ),
        "weights": QCoreApplication.translate(
            "PipelineStrip", "Weights are read from the files. Bytes in memory, measured, tied weights once."
        ),
        "placement": QCoreApplication.translate("PipelineStrip", "Layers lie on their devices, by the device map."),
        "kernels": QCoreApplication.translate(
            "PipelineStrip", "What computes, chosen by measuring, and what each other choice would do here."
        ),
        "tokenise": QCoreApplication.translate(
            "PipelineStrip", "The prompt is cut into tokens; their count, measured."
        ),
        "embed": QCoreApplication.translate(
            "PipelineStrip", "Each token id becomes a vector. Shape: [lanes, tokens, hidden size]."
        ),
        "layers": QCoreApplication.translate(
            "PipelineStrip",
            "Each layer mixes what the tokens know (attention), then works on it. Time measured.",
        ),
        "probabilities": QCoreApplication.translate(
            "PipelineStrip", "Logits become probabilities and the settings cut. Time with draw and text, measured."
        ),
        "sample": QCoreApplication.translate("PipelineStrip", "One number u between 0 and 1 picks the token."),
        "detokenise": QCoreApplication.translate("PipelineStrip", "The token's bytes become text again."),
        "format": QCoreApplication.translate("PipelineStrip", "Prompt and special tokens are left out of the answer."),
        "stream": QCoreApplication.translate(
            "PipelineStrip", "Text goes out word by word. Tokens per second, measured."
        ),
    }
    return texts[box]
