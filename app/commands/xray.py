"""Two precisions of a model over the same text: how far apart they are at each token, and what each costs."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from app.commands.arguments import clean_text, device_map_from, finite
from app.commands.packing import add_packing_arguments, packing_from
from app.commands.record import INTERRUPTED, interrupts
from engine.control import Control
from engine.errors import DONE, Cancelled, FileRefused, SettingsRefused
from engine.events import Event, Xray, XrayProgress, XraySide
from engine.settings import LoadPlan, XrayQuestion, precision_named
from engine.xray import SAMPLES, sample_text, xray

AS_IN_FILES = "files"
WHY_SLOWER = {
    "unpacking": "{small} takes less memory and was slower here: its weights are unpacked again for each word.",
    "no kernels": "{small} takes less memory and was slower here: this processor has no products in its number type.",
    "unknown": "{small} takes less memory and was slower here.",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help='a folder, a cached hub id, a GGUF file, or "default"')
    parser.add_argument(
        "--precisions",
        required=True,
        metavar="A,B",
        help='the reference first: float32, bfloat16, float16, int8, nf4, fp4, or "files" for what the files say',
    )
    parser.add_argument(
        "--text", default="prose", metavar="FILE", help=f"a text file, or one of {', '.join(SAMPLES)} (default: prose)"
    )
    parser.add_argument("--device-map", default="auto", help="auto, one device, or module=device,module=device")
    add_packing_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    names = [name.strip() for name in args.precisions.split(",")]
    if len(names) != 2:
        raise SettingsRefused(
            "--precisions needs two, and {text} is {count}.",
            "Write float32,bfloat16: the reference first.",
            text=repr(args.precisions[:60]),
            count=len(names),
        )
    packing, device_map = packing_from(args), device_map_from(args.device_map)
    plans = [
        LoadPlan(args.model, None if name == AS_IN_FILES else precision_named(name), device_map, **packing)
        for name in names
    ]
    sample = args.text if args.text in SAMPLES else ""
    question = XrayQuestion(plans[0], plans[1], sample_text(sample) if sample else text_of(args.text), sample)
    from engine.logs import start_logging

    start_logging()
    control, line = Control(), _Line(sys.stderr is not None and sys.stderr.isatty())
    with interrupts(control.cancel):
        try:
            found, _ = xray(question, line.take, control)
        except Cancelled:
            print("Stopped before both had read the text.", file=sys.stderr)
            return INTERRUPTED
        finally:
            line.end()
    print(json.dumps(as_json(found), ensure_ascii=False, allow_nan=False) if args.json else as_text(found))
    return DONE


def text_of(name: str) -> str:
    """The text of a file. Raises FileRefused and SettingsRefused."""
    try:
        return clean_text("--text", Path(name).read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise SettingsRefused(
            "{name} is not text in UTF-8.", "Give a plain text file.", name=repr(name[:200])
        ) from None
    except (OSError, ValueError) as error:
        raise FileRefused(
            "{name} cannot be read: {reason}.",
            "Give a text file, or one of {samples}.",
            name=repr(name[:200]),
            reason=getattr(error, "strerror", None) or error,
            samples=", ".join(SAMPLES),
        ) from None


def as_json(found: Xray) -> dict:
    """Units are in the names; null for what cannot be said (the first token) and for what is not finite."""
    return {
        "model": found.model,
        "text": found.sample or "own",
        "tokens_compared": len(found.compared),
        "mean_kl_nats": finite(found.mean_kl_nats),
        "largest_kl_nats": finite(found.largest_kl_nats),
        "flips": len(found.flips),
        "same_first_choice": found.same_first_share,
        "smaller_is_slower_because": found.slower_because or None,
        "sides": [_side_json(side) for side in (found.reference, found.other)],
        "tokens": [
            {
                "id": token.token_id,
                "text": token.label,
                "kl_nats": None if token.kl_nats is None else finite(token.kl_nats),
                "logprobs": None if token.kl_nats is None else [token.reference_logprob, token.other_logprob],
                "first_choices": None if token.kl_nats is None else [token.reference_choice, token.other_choice],
                "flipped": token.flipped,
            }
            for token in found.tokens
        ],
        "notes": list(found.notes),
    }


def _side_json(side: XraySide) -> dict:
    return {
        "precision": side.precision,
        "quantised_layers": side.words or None,
        "perplexity": finite(side.perplexity),
        "weights_bytes": side.weights_bytes,
        "decode_tokens_per_s": side.decode_tokens_per_s,
        "load_ms": side.load_ms,
        "read_ms": side.read_ms,
        "decode_path": side.decode_path,
    }


def as_text(found: Xray) -> str:
    """A table for a person; all measured, both in this run."""
    one, two = found.reference, found.other
    rows = [
        ("", one.precision, two.precision),
        ("perplexity", f"{one.perplexity:.2f}", f"{two.perplexity:.2f}"),
        ("weights (MB)", f"{one.weights_bytes / 1e6:,.1f}", f"{two.weights_bytes / 1e6:,.1f}"),
        ("decode (tok/s)", f"{one.decode_tokens_per_s:.1f}", f"{two.decode_tokens_per_s:.1f}"),
        ("load (s)", f"{one.load_ms / 1e3:.2f}", f"{two.load_ms / 1e3:.2f}"),
    ]
    lines = [f"{found.model} over {len(found.compared)} tokens of {found.sample or 'your text'} (measured)", ""]
    lines += [f"  {name:<16}{first:>14}{second:>14}" for name, first, second in rows]
    lines += [
        "",
        f"  KL divergence, {one.precision} first: {found.mean_kl_nats:.6f} nats a token, "
        f"{found.largest_kl_nats:.4f} at most",
        f"  another first choice at {len(found.flips)} of {len(found.compared)} tokens",
    ]
    if found.slower_because:
        small = min(one, two, key=lambda side: side.weights_bytes)
        lines.append("  " + WHY_SLOWER[found.slower_because].format(small=small.precision))
    return "\n".join([*lines, *(f"  {note}" for note in found.notes)])


class _Line:
    """One line on the terminal that says where it stands; nothing where nobody looks."""

    def __init__(self, show: bool) -> None:
        self.show, self.width = show, 0

    def take(self, event: Event) -> None:
        if self.show and isinstance(event, XrayProgress):
            share = f" {100 * event.done // event.total:3} %" if event.total else ""
            text = f"{event.precision or 'as in the files'}: {event.stage}{share}"
            print("\r" + text.ljust(self.width), end="", file=sys.stderr, flush=True)
            self.width = len(text)

    def end(self) -> None:
        if self.width:
            print("\r" + " " * self.width, end="\r", file=sys.stderr, flush=True)
            self.width = 0
