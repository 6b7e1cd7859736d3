"""How int8, nf4 and fp4 are packed: the same arguments for every command that loads or estimates a model."""

from __future__ import annotations

import argparse
from typing import Any

from engine.errors import SettingsRefused
from engine.settings import LoadPlan, precision_named


def add_packing_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--int8-threshold",
        metavar="X",
        default="6",
        help="inputs as large as this are multiplied in 16 bits with int8; 0: none are (default: %(default)s)",
    )
    parser.add_argument(
        "--no-double-quantisation",
        action="store_true",
        help="nf4 and fp4: leave the block constants as float32 numbers",
    )
    parser.add_argument(
        "--compute-dtype", metavar="TYPE", help="nf4 and fp4: the type to compute in (left out: the model's own)"
    )


def packing_from(args: argparse.Namespace) -> dict[str, Any]:
    """The packing's fields of a LoadPlan. Raises SettingsRefused."""
    try:
        threshold = float(args.int8_threshold)
    except ValueError:
        raise SettingsRefused(
            "--int8-threshold is not a number: {text}.", "Give a number such as 6.", text=args.int8_threshold[:40]
        ) from None
    found = {
        "int8_threshold": threshold,
        "double_quantisation": not args.no_double_quantisation,
        "compute_dtype": precision_named(args.compute_dtype),
    }
    LoadPlan("", **found)  # refuses what cannot be, before anything is loaded
    return found
