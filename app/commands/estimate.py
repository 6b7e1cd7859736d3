"""The predicted memory ledger of a model. Reads its config and no weights: config.json alone is enough."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from engine.errors import DONE, SettingsRefused
from engine.logs import start_logging
from engine.settings import precision_named

if TYPE_CHECKING:
    from engine.events import Estimate


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help='a folder, a cached hub id, a GGUF file, or "default"')
    parser.add_argument("--precision", help="float32, bfloat16, float16, int8, nf4, fp4 (left out: as the files say)")
    parser.add_argument("--context", metavar="N", help="tokens per lane (left out: the model's context, at most 8192)")
    parser.add_argument("--lanes", metavar="K", default="1", help="how many texts at once")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    precision = precision_named(args.precision)
    context = None if args.context is None else _whole("--context", args.context)
    lanes = _whole("--lanes", args.lanes)
    start_logging()
    from engine.memory import estimate

    found = estimate(args.model, precision, context, lanes)
    print(json.dumps(as_json(found), ensure_ascii=False) if args.json else as_text(found))
    return DONE


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise SettingsRefused(
            "{name} is not a whole number: {text}.", "Give a whole number of at least 1.", name=name, text=text[:40]
        ) from None


def as_json(found: Estimate) -> dict:
    """The shape that scripts rely on, with a few keys more. Bytes; null where it is not predictable."""
    return {
        "weights_bytes": {
            "embedding": found.embedding_bytes,
            "layers": found.layers_bytes,
            "lm_head": found.lm_head_bytes,
            "total": found.weights_bytes,
        },
        "kv_bytes": found.kv_bytes,
        "kv_bytes_per_token": found.kv_bytes_per_token,
        "rough_total_bytes": found.rough_total_bytes,
        "better_rough_total_bytes": found.better_rough_total_bytes,
        "total_bytes": found.total_bytes,
        "parameters": found.parameters,
        "model": found.model,
        "precision": found.precision,
        "context_tokens": found.context_tokens,
        "lanes": found.lanes,
        "parts": {part.name: part.predicted_bytes for part in found.parts},
        "notes": list(found.notes),
    }


def as_text(found: Estimate) -> str:
    """The ledger for a person."""
    lanes = "one lane" if found.lanes == 1 else f"{found.lanes} lanes"
    lines = [f"{found.model} in {found.precision}, {found.context_tokens:,} tokens, {lanes} (predicted)", ""]
    for part in found.parts:
        note = f"   {part.note}" if part.note else ""
        lines.append(f"  {part.name:<16}{_size(part.predicted_bytes):>16}{note}")
    lines += [
        f"  {'total':<16}{_size(found.total_bytes):>16}",
        "",
        f"  {'rough formula':<16}{_size(found.rough_total_bytes):>16}   parameters × bytes × (1 + 2·sequence/hidden)",
        f"  {'better rough':<16}{_size(found.better_rough_total_bytes):>16}   "
        "parameters × bytes × (1 + sequence/(6·hidden) × KV heads/heads)",
        f"  {'this machine':<16}{_size(found.available_bytes):>16}   available now",
        "",
        f"  {found.parameters:,} parameters"
        + (f", {found.kv_bytes_per_token:,} bytes of cache per token" if found.kv_bytes_per_token is not None else ""),
    ]
    if found.total_bytes is not None and found.total_bytes > found.available_bytes:
        lines.append("  It does not fit into this machine's memory now.")
    lines += [f"  {note}" for note in found.notes]
    return "\n".join(lines)


def _size(size: int | None) -> str:
    """Bytes for a person, in decimal units; "not predictable" for None."""
    if size is None:
        return "not predictable"
    if size < 1000:
        return f"{size} bytes"
    value = float(size)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 999.95 or unit == "TB":
            break
    return f"{value:,.1f} {unit}"
