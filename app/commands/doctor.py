"""This machine, the libraries, the devices, and what is wrong with them. Exit code 0 unless no model can run at all."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from engine.errors import CANNOT_LOAD, DONE
from engine.logs import log_path, start_logging

MARKS = {"fine": "ok", "note": "note", "problem": "PROBLEM", "stop": "STOP"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    start_logging()
    from engine.machine import can_run, examine

    findings = examine()
    runs = can_run(findings)
    if args.json:
        found = {"can_run": runs, "log": str(log_path()), "findings": [asdict(finding) for finding in findings]}
        print(json.dumps(found, ensure_ascii=False))
        return DONE if runs else CANNOT_LOAD
    for finding in findings:
        print(f"{MARKS[finding.level]:<8}{finding.about:<22}{finding.what}")
        if finding.fix:
            print(f"{'':<8}{'':<22}{finding.fix}")
    wrong = sum(finding.level in ("problem", "stop") for finding in findings)
    print(f"\n{wrong} of {len(findings)} need attention." if wrong else "\nNothing is wrong.")
    print(f"The log is {log_path()}.")
    return DONE if runs else CANNOT_LOAD
