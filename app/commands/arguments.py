"""What several commands take and how it is read: model, text, settings, numbers. Wrong ones raise SettingsRefused."""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path
from typing import Any

from app.commands.packing import add_packing_arguments, packing_from
from engine.errors import SettingsRefused
from engine.settings import LoadPlan, SamplingSettings, precision_named

MOST_DIGITS = 4000  # Python itself reads and writes integers of up to 4,300


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help='a folder, a cached hub id, a GGUF file, or "default"')
    parser.add_argument("--precision", help="float32, bfloat16, float16, int8, nf4, fp4 (left out: as the files say)")
    parser.add_argument("--device-map", default="auto", help="auto, one device, or module=device,module=device")
    parser.add_argument("--kernel", help="how products are computed, as the kernels box names it (default: measured)")
    add_packing_arguments(parser)


def plan_from(args: argparse.Namespace, **more: Any) -> LoadPlan:
    """more: further fields of the plan."""
    return LoadPlan(
        args.model,
        precision_named(args.precision),
        device_map=device_map_from(args.device_map),
        kernel=args.kernel,
        **packing_from(args),
        **more,
    )


def add_text_arguments(parser: argparse.ArgumentParser, prompt_required: bool = False) -> None:
    parser.add_argument("--prompt", required=prompt_required, help="a chat message where the model has a chat template")
    parser.add_argument("--system", help="the chat's system text (left out: the template's own)")
    parser.add_argument("--raw", action="store_true", help="the prompt is plain text to go on with, no chat")
    parser.add_argument("--max-new-tokens", default="256", metavar="N")
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end before this text; repeatable")


def lane_from(text: str, seed: int | None) -> SamplingSettings:
    """Sampling settings from "temperature=0.8,top_p=0.9". `seed` counts where the text names none."""
    values: dict[str, object] = {} if seed is None else {"seed": seed}
    named: set[str] = set()
    for part in text.split(",") if text.strip() else ():
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise SettingsRefused(
                "--lane {lane} cannot be read at {part}.",
                "Write name=number pairs with commas between them and points in the numbers: temperature=0.8,top_k=40.",
                lane=repr(text[:200]),
                part=repr(part[:40]),
            )
        if name in named:
            raise SettingsRefused("--lane names {name} twice.", "Give it once.", name=repr(name[:40]))
        named.add(name)
        if name == "bias":
            values["logit_bias"] = biases_from(value)
        elif name == "ban":
            sequences = [tuple(whole_number("ban", i) for i in ids.split("-")) for ids in value.split("+")]
            values["banned_sequences"] = tuple(sequences)
        else:
            values[name] = whole_number(name, value) if name == "seed" else number(value)
    return SamplingSettings.from_dict(values)


def biases_from(text: str) -> tuple[tuple[int, object], ...]:
    """Pairs of token id and bias from "12:5+15:-3". A plus before a number belongs to it: "12:+5"."""
    pairs = []
    for part in re.split(r"(?<=[0-9.])\+", text):
        token_id, colon, bias = part.partition(":")
        if not colon:
            raise SettingsRefused(
                "The bias {text} cannot be read.", "Write id:number pairs with + between them.", text=repr(text[:60])
            )
        pairs.append((whole_number("bias", token_id), number(bias.strip())))
    return tuple(pairs)


def number(text: str) -> int | float | str:
    """A number as written, decimal point only. Anything else stays text, which the settings refuse with their range."""
    if re.fullmatch(r"[+-]?[0-9]{1,300}", text):
        return int(text)
    if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(nan|inf|infinity)", text, re.IGNORECASE):
        return float(text)
    return text


def whole_number(name: str, text: str) -> int:
    """An integer of any size that Python reads and writes."""
    if not re.fullmatch(rf"\s*[+-]?[0-9]{{1,{MOST_DIGITS}}}\s*", text):
        raise SettingsRefused(
            "{name} cannot be {value}.", "Give a whole number, in digits only.", name=name, value=repr(text[:40])
        )
    return int(text)


def clean_text(name: str, text: str) -> str:
    """The text, if it is text: bytes that are no UTF-8 arrive as halves of characters and no tokenizer takes them."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise SettingsRefused("{name} is not valid UTF-8.", "Give the text in UTF-8.", name=name)
    return text


def device_map_from(text: str) -> str | tuple[tuple[str, str], ...]:
    """ "auto", a device, or a table: "model.embed_tokens=cpu,model.layers.0=disk"."""
    if "=" not in text:
        return text.strip()
    pairs = [tuple(piece.strip() for piece in part.split("=")) for part in text.split(",")]
    for pair in pairs:
        if len(pair) != 2 or not pair[1]:
            raise SettingsRefused(
                "--device-map {text} cannot be read.", "Write module=device,module=device.", text=repr(text[:200])
            )
    return tuple((pair[0], pair[1]) for pair in pairs)


def output_path(text: str) -> Path:
    path = Path(text)
    problem = ""
    if "\0" in text:
        problem = "cannot be a file's name"
    elif path.is_dir():
        problem = "is a folder"
    elif not path.parent.is_dir():
        problem = "lies in a folder that is not there"
    if problem or not text:
        raise SettingsRefused(
            "The --out file {text} {problem}.",
            "Give a file name in a folder that exists.",
            text=repr(text[:200]),
            problem=problem or "is empty",
        )
    return path


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
