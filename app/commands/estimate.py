"""The predicted memory ledger of a model. Reads its config and no weights: config.json alone is enough."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from app.commands.packing import add_packing_arguments, packing_from
from engine.errors import DONE, SettingsRefused
from engine.logs import start_logging
from engine.settings import PlanWish, gpus_named, precision_named

if TYPE_CHECKING:
    from engine.events import Estimate, Plan

CPU_GB = "64"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help='a folder, a cached hub id, a GGUF file, or "default"')
    parser.add_argument("--precision", help="float32, bfloat16, float16, int8, nf4, fp4 (left out: as the files say)")
    parser.add_argument("--context", metavar="N", help="tokens per lane (left out: the model's context, at most 8192)")
    parser.add_argument("--lanes", metavar="K", default="1", help="how many texts at once")
    parser.add_argument("--gpus", metavar="NxGB", help="GPUs that need not be there: 2x24, or 1x80,2x24GiB")
    parser.add_argument("--cpu-memory", metavar="GB", default=CPU_GB, help="beside the GPUs (default: %(default)s)")
    parser.add_argument(
        "--device-map", default="auto", help="auto, balanced, balanced_low_0, sequential, or a device (with --gpus)"
    )
    add_packing_arguments(parser)
    parser.add_argument(
        "--trust-remote-code",
        action="store_true",
        help="run the Python files that come with the model (read them first)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    precision = precision_named(args.precision)
    context = None if args.context is None else _whole("--context", args.context)
    lanes = _whole("--lanes", args.lanes)
    gpus = gpus_named(args.gpus) if args.gpus is not None else ()
    cpu = gpus_named(args.cpu_memory) if args.cpu_memory.strip() != "0" else (0,)
    start_logging()
    from engine.blueprint import read_blueprint
    from engine.memory import estimate

    blueprint = read_blueprint(args.model, args.trust_remote_code)
    double = packing_from(args)["double_quantisation"]
    found = estimate(blueprint, precision, context, lanes, double_quantisation=double)
    plan = None
    if gpus:
        from engine import planner

        devices = (*((f"cuda:{at}", size) for at, size in enumerate(gpus)), ("cpu", cpu[0]))
        wish = PlanWish(args.model, precision, found.context_tokens, lanes, args.device_map, devices)
        plan = planner.plan(wish, blueprint)
    if args.json:
        print(json.dumps(as_json(found) | ({"plan": plan_json(plan)} if plan else {}), ensure_ascii=False))
    else:
        print(as_text(found) + (f"\n\n{plan_text(plan)}" if plan else ""))
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
        "exact_bytes": found.exact_bytes,
        "libraries_bytes": found.libraries_bytes,
        "parameters": found.parameters,
        "model": found.model,
        "precision": found.precision,
        "context_tokens": found.context_tokens,
        "lanes": found.lanes,
        "parts": {part.name: part.predicted_bytes for part in found.parts},
        "notes": list(found.notes),
    }


def plan_json(plan: Plan) -> dict:
    """accelerate's plan for devices that need not be there. Bytes, all predicted; null: no limit (disk)."""
    return {
        "fits": plan.fits,
        "device_map": plan.wish.device_map,
        "devices": [
            {
                "name": device.name,
                "memory_bytes": device.memory_bytes or (None if device.name == "disk" else 0),
                "weights_bytes": device.weights_bytes,
                "kv_bytes": device.kv_bytes,
                "working_bytes": device.working_bytes,
                "free_bytes": None if device.name == "disk" else device.free_bytes,
                "parts": [part.name for part in plan.parts if part.device == device.name],
            }
            for device in plan.devices
        ],
        "cpu_bytes": plan.spilled_bytes("cpu"),
        "disk_bytes": plan.spilled_bytes("disk"),
        "moved_bytes_per_token": plan.moved_bytes_per_token,
        "notes": list(plan.notes),
    }


def plan_text(plan: Plan) -> str:
    """The plan for a person."""
    lines = [f"Plan {plan.wish.device_map} (predicted)" + (": fits" if plan.fits else ": does not fit as it is"), ""]
    lines.append(f"  {'':<8}{'memory':>11}{'weights':>11}{'cache':>11}{'working':>11}{'free':>11}   what lies there")
    for device in plan.devices:
        limit, free = (_size(device.memory_bytes), _size(device.free_bytes)) if device.name != "disk" else ("", "")
        figures = (limit, *map(_size, (device.weights_bytes, device.kv_bytes, device.working_bytes)), free)
        there = _spans([part for part in plan.parts if part.device == device.name])
        lines.append(f"  {device.name:<8}" + "".join(f"{figure:>11}" for figure in figures) + f"   {there}")
    lines += ["", *(f"  {note}" for note in plan.notes)] if plan.notes else []
    return "\n".join(lines)


def _spans(parts: list) -> str:
    """ "embed_tokens, layers 0–43, norm": neighbouring layers as one span."""
    words: list[str] = []
    first = last = None
    for part in [*parts, None]:
        layer = part.layer if part is not None else None
        if layer is not None and last is not None and layer == last + 1:
            last = layer
            continue
        if last is not None:
            words.append(f"layer {first}" if first == last else f"layers {first}–{last}")
        first = last = layer
        if part is not None and layer is None:
            words.append(part.name.rpartition(".")[2])
    return ", ".join(words)


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
        f"  {'exact':<16}{_size(found.exact_bytes):>16}   weights and KV cache",
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
    if size < 0:
        return f"-{_size(-size)}"
    if size < 1000:
        return f"{size} bytes"
    value = float(size)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 999.95 or unit == "TB":
            break
    return f"{value:,.1f} {unit}"
