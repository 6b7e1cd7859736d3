"""A precision x-ray from a few numbers, for tests of its view."""

from __future__ import annotations

import math
from typing import Any

from engine.events import Xray, XraySide, XrayToken

PIECES = ("The", " sea", " lay", " flat", "\n", "水", "", "🌊", ".")
KL = (None, 0.0, 0.00005, 0.02, 0.3, 1.5, 0.001, math.inf, 0.0004)
FLIPPED = (3, 5)


def side(precision: str = "bfloat16", **changes: Any) -> XraySide:
    values: dict[str, Any] = {
        "words": "",
        "device": "cpu",
        "weights_bytes": 269_000_000,
        "load_ms": 480.0,
        "read_ms": 390.0,
        "decode_tokens_per_s": 20.0,
        "decode_tokens": 24,
        "decode_path": "lean",
        "perplexity": 29.97,
        "unpacks": False,
        "native": True,
    }
    return XraySide(precision=precision, **(values | changes))


INT8 = side(
    "int8",
    words="210 (bitsandbytes int8, outliers from 6 on in 16 bits)",
    weights_bytes=163_000_000,
    decode_tokens_per_s=8.0,
    perplexity=30.87,
    unpacks=True,
)


def token(at: int, text: str, kl: float | None, flipped: bool = False) -> XrayToken:
    if kl is None:
        return XrayToken(at, text, text)
    return XrayToken(
        token_id=at,
        label=text or "<F0 9F>",
        text=text,
        kl_nats=kl,
        reference_logprob=math.log(0.25),
        other_logprob=math.log(0.2),
        reference_choice=" boat",
        reference_choice_probs=(0.31, 0.28),
        other_choice=" ship" if flipped else " boat",
        other_choice_probs=(0.3, 0.32) if flipped else (0.31, 0.28),
        flipped=flipped,
    )


def xray(**changes: Any) -> Xray:
    tokens = tuple(token(at, text, kl, at in FLIPPED) for at, (text, kl) in enumerate(zip(PIECES, KL, strict=True)))
    values: dict[str, Any] = {
        "model": "SmolLM2-135M-Instruct", "sample": "prose", "reference": side(), "other": INT8, "tokens": tokens,
    }  # fmt: skip
    return Xray(**(values | changes))
