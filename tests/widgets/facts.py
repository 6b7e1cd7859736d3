"""A loaded model's facts, for tests of widgets: those of the default model."""

from __future__ import annotations

from dataclasses import replace

from engine import events as ev
from engine.settings import SamplingSettings

FACTS = ev.SessionFacts(
    name="SmolLM2-135M-Instruct",
    model_path="models/SmolLM2-135M-Instruct",
    family="llama",
    precision="bfloat16",
    device_map="auto",
    devices=("cpu",),
    parameters=134_515_008,
    layers=30,
    heads=9,
    kv_heads=3,
    hidden_size=576,
    vocab_size=49_152,
    context_tokens=8192,
    attention="sdpa",
    decode_path="our loop",
    has_chat_template=True,
    weights_bytes=269_060_552,
    kv_bytes_per_token=23_040,
    ledger=(
        ev.LedgerPart("embedding", 56_623_104, 56_623_104),
        ev.LedgerPart("attention", 53_084_160, 53_084_160),
        ev.LedgerPart("feed-forward", 159_252_480, 159_252_480),
        ev.LedgerPart("norms", 70_272, 70_272),
        ev.LedgerPart("kv_cache", 188_743_680),
    ),
    facts=(ev.Fact("Layers", "30", "config.json"),),
    stage_ms=(("blueprint", 210.0), ("skeleton", 85.0), ("weights", 420.0), ("placement", 3.0), ("kernels", 33.0)),
    generation_defaults=SamplingSettings(temperature=0.2, top_p=0.9),
    memory_before_bytes=120_000_000,
    memory_after_bytes=400_000_000,
)


def facts(**changes: object) -> ev.SessionFacts:
    return replace(FACTS, **changes)
