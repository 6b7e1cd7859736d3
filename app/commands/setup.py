"""Fetches and converts the default model where it is not there yet. The last step of `make setup`."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(args: argparse.Namespace) -> int:
    from engine.default_model import is_ready, make_ready
    from engine.logs import start_logging

    if not is_ready():
        start_logging()
        make_ready(lambda sentence: print(sentence, flush=True))
    return 0
