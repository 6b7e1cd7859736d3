"""Our loop beside generate(), in one run, as ratios with median, smallest and largest of several rounds."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from engine.errors import RunFailed, SettingsRefused
from engine.settings import LoadPlan, precision_named

if TYPE_CHECKING:
    from engine.measure import Spread

CHILD_WAIT_S = 900


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="default")
    parser.add_argument("--precision", default=None, help="as in record; default: what the files say")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of each round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each measurement (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=None, help="torch's threads (default: all cores)")
    parser.add_argument("--no-window", action="store_true", help="leave out what is measured with the window")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")


def run(args: argparse.Namespace) -> int:
    if args.tokens < 4 or args.rounds < 1:
        raise SettingsRefused("A round needs at least 4 tokens, and there is at least one.", "Give larger numbers.")
    from engine import measure
    from engine.bandwidth import read_bandwidth
    from engine.control import Control
    from engine.loading import load

    plan = LoadPlan(args.model, precision_named(args.precision), device_map="cpu")
    figures: dict[str, Any] = {}
    peak = _child(["app.commands.bench_peak", plan.model, plan.precision or ""])
    session = load(plan, lambda event: None, Control(), leave_one_core=False)
    import torch

    if args.threads:
        torch.set_num_threads(args.threads)
    table = _Table(args)
    table.say(
        f"{session.facts.name}, {session.facts.precision}, {torch.get_num_threads()} threads, "
        f"{args.rounds} rounds of {args.tokens} tokens; median (smallest to largest)"
    )
    generated, ours, bare, shares = [], [], [], []
    kv_bytes = 0
    for _ in range(args.rounds):
        generated.append(measure.generate_with_streamer(session, args.tokens))
        bare.append(measure.bare_loop(session, args.tokens))
        mine = measure.our_loop(session, args.tokens)
        ours.append(mine.tokens_per_s)
        shares.append(mine.share)
        kv_bytes = mine.kv_bytes
    spread = measure.Spread.of
    base = spread(generated).median
    table.row("generate() with a streamer", spread(generated), "tokens/s")
    table.row("our loop, forward and argmax alone", spread([b / base for b in bare]), "× generate()")
    table.row("our loop, all events on", spread([o / base for o in ours]), "× generate()")
    table.row("waterfall, events and text: share of a step", spread([s * 100 for s in shares]), "%")
    figures["decode_vs_generate"] = spread(ours).median / base
    figures["telemetry_share"] = spread(shares).median
    figures["decode_tokens_per_s"] = spread(ours).median

    for lanes in (2, 4, 8, 16):
        together = [measure.our_loop(session, max(8, args.tokens // 4), lanes).tokens_per_s for _ in range(2)]
        ratio = spread([t / spread(ours).median for t in together])
        table.row(f"{lanes} lanes as one batch", ratio, "× one after another")
        if lanes == 8:
            figures["lanes8_vs_sequential"] = ratio.median
    reads = [measure.prefill(session, 512) for _ in range(max(2, args.rounds // 2))]
    table.row("prefill of 512 tokens", spread([theirs / mine for mine, theirs in reads]), "× one forward in one piece")
    figures["prefill_vs_forward"] = spread([theirs / mine for mine, theirs in reads]).median
    bandwidth = read_bandwidth(session.model)
    ceiling = bandwidth / (session.facts.read_bytes_per_token + kv_bytes)
    figures["bandwidth_share"] = spread(ours).median / ceiling
    table.say(f"  memory read at {bandwidth / 1e9:.1f} GB/s: at most {ceiling:.0f} tokens/s")
    table.row("share of that bandwidth reached", spread([o / ceiling * 100 for o in ours]), "%")
    session.close()

    loads = _load_times(plan, max(2, args.rounds // 2))
    ratio = spread([mine / theirs for mine, theirs in loads])
    table.row("load", ratio, "× from_pretrained")
    figures["load_vs_from_pretrained"] = ratio.median
    figures["peak_rss_vs_weights"] = peak["peak_bytes"] / peak["weights_bytes"]
    table.say(f"  peak memory of a load and one forward: {figures['peak_rss_vs_weights']:.2f} × the weights")

    if not args.no_window:
        window = _child(["app.commands.bench_window", plan.model, plan.precision or "", str(args.tokens)])
        figures["window"] = window
        table.say(
            f"  window visible after {window['visible_ms']:.0f} ms; while the model runs "
            f"{window['decode_tokens_per_s']:.1f} tokens/s, longest stall of the window "
            f"{window['longest_stall_ms']:.0f} ms, {window['frames_per_s']:.0f} frames/s"
        )
        table.say(
            f"  10,000 tokens in the window: {window['text_grown_bytes'] / 1e6:.0f} MB, "
            f"a repaint {window['repaint_ms']:.1f} ms"
        )
    if args.json:
        print(json.dumps(figures))
    return 0


class _Table:
    def __init__(self, args: argparse.Namespace) -> None:
        self._to = sys.stderr if args.json else sys.stdout

    def say(self, line: str) -> None:
        print(line, file=self._to, flush=True)

    def row(self, name: str, values: Spread, unit: str) -> None:
        self.say(f"  {name:<46} {values.median:7.2f}  ({values.low:.2f} to {values.high:.2f}) {unit}")


def _load_times(plan: LoadPlan, rounds: int) -> list[tuple[float, float]]:
    """Seconds: our load, and from_pretrained of model and tokenizer, in turn."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from engine.catalog import resolve
    from engine.control import Control
    from engine.loading import load

    folder = str(resolve(plan.model).folder)
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        session = load(plan, lambda event: None, Control())
        mine = time.perf_counter() - began
        precision = session.facts.precision
        session.close()
        dtype = getattr(torch, precision, None)
        began = time.perf_counter()
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype or "auto", local_files_only=True)
        AutoTokenizer.from_pretrained(folder, local_files_only=True)
        times.append((mine, time.perf_counter() - began))
        del model
    return times


def _child(command: list[str]) -> dict[str, Any]:
    """Runs a measurement in a process of its own and returns what it printed."""
    started = repr(time.time())
    done = subprocess.run(
        [sys.executable, "-m", *command, started], capture_output=True, text=True, timeout=CHILD_WAIT_S, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise RunFailed("A measurement failed: {said}", "See the log.", said=last[:300])
    return json.loads(done.stdout.strip().splitlines()[-1])
