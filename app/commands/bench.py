"""Our loop beside generate(), in one run, as ratios with median, smallest and largest of several rounds."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

from engine.errors import RunFailed, SettingsRefused
from engine.settings import LoadPlan, precision_named

if TYPE_CHECKING:
    from engine.measure import Spread
    from engine.session import Session

CHILD_WAIT_S = 900


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="default")
    parser.add_argument("--precision", default=None, help="as in record; default: what the files say")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of each round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each measurement (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=None, help="torch's threads (default: all cores)")
    parser.add_argument("--kernel", default=None, help="as the kernels box names it; default: the fastest exact one")
    parser.add_argument("--long", type=int, default=1000, help="tokens of the one long run (default: %(default)s)")
    parser.add_argument("--gguf", default="", help="a GGUF file of the same model, for llama.cpp's figure")
    parser.add_argument("--no-window", action="store_true", help="leave out what is measured with the window")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")


def run(args: argparse.Namespace) -> int:
    if args.tokens < 4 or args.rounds < 1:
        raise SettingsRefused("A round needs at least 4 tokens, and there is at least one.", "Give larger numbers.")
    from engine import measure
    from engine.bandwidth import read_bandwidth
    from engine.control import Control
    from engine.loading import load

    plan = LoadPlan(args.model, precision_named(args.precision), device_map="cpu", kernel=args.kernel)
    figures: dict[str, Any] = {}
    table = _Table(args)
    peak = _child(["app.commands.bench_peak", plan.model, plan.precision or "", plan.kernel or ""])
    plain = load(replace(plan, kernel="plain"), lambda event: None, Control(), leave_one_core=False)
    session = load(plan, lambda event: None, Control(), leave_one_core=False)
    import torch

    if args.threads:
        torch.set_num_threads(args.threads)
    table.say(
        f"{session.facts.name}, {session.facts.precision}, {torch.get_num_threads()} threads, "
        f"{args.rounds} rounds of {args.tokens} tokens; median (smallest to largest)"
    )
    table.say(f"  kernel: {session.facts.kernel_words}")
    small = _eight_bits(plan, session)
    own = _decode(args, table, figures, plain, session, small)
    plain.close()
    _llama(args, table, figures, session, small)
    if small is not None:
        small.close()
    _lanes(args, table, figures, session)
    _prompts(args, table, figures, session, own)
    _long_run(args, table, figures, session)
    _sliders(args, table, figures, session)
    bandwidth = read_bandwidth(session.model)
    kv_bytes = session.facts.kv_bytes_per_token or 0
    ceiling = bandwidth / (session.facts.read_bytes_per_token + kv_bytes * args.tokens)
    figures["bandwidth_share"] = own / ceiling
    table.say(
        f"  memory read at {bandwidth / 1e9:.1f} GB/s: at most {ceiling:.0f} tokens/s; {own / ceiling:.0%} reached"
    )
    session.close()

    loads = _load_times(replace(plan, kernel="plain"), max(3, args.rounds))
    ratio = measure.Spread.of([mine / theirs for mine, theirs in loads])
    table.row("load, before packing", ratio, "× from_pretrained")
    figures["load_vs_from_pretrained"] = ratio.median
    figures["peak_rss_vs_weights"] = peak["peak_bytes"] / peak["weights_bytes"]
    table.say(f"  peak memory of load, packing and a run: {figures['peak_rss_vs_weights']:.2f} × the weights")
    if not args.no_window:
        _window(args, table, figures, plan, own)
    if args.json:
        print(json.dumps(figures))
    return 0


def _eight_bits(plan: LoadPlan, session: Session) -> Session | None:
    """The model in 8 bits by the fastest kernel that stays exact, where this processor has one for this model."""
    from engine.control import Control
    from engine.errors import CannotLoad
    from engine.loading import load

    if session.facts.precision not in ("bfloat16", "float16", "float32"):
        return None
    for kernel in ("int8-smoothed", "int8"):
        try:
            return load(replace(plan, kernel=kernel), lambda event: None, Control(), leave_one_core=False)
        except CannotLoad:
            continue
    return None


def _decode(
    args: argparse.Namespace, table: _Table, figures: dict[str, Any], plain: Session, session: Session,
    small: Session | None,
) -> float:  # fmt: skip
    """Tokens per second of our loop with all events on."""
    from engine import measure

    generated, ours, bare, shares, eight = [], [], [], [], []
    for _ in range(args.rounds):
        generated.append(measure.generate_with_streamer(plain, args.tokens))
        bare.append(measure.bare_loop(session, args.tokens))
        mine = measure.our_loop(session, args.tokens)
        ours.append(mine.tokens_per_s)
        shares.append(mine.share)
        if small is not None:
            eight.append(measure.our_loop(small, args.tokens).tokens_per_s)
    spread = measure.Spread.of
    base, own = spread(generated).median, spread(ours).median
    table.row("generate() with a streamer", spread(generated), "tokens/s")
    table.row("our loop, forward and argmax alone", spread([b / base for b in bare]), "× generate()")
    table.row("our loop, all events on", spread([o / base for o in ours]), "× generate()")
    table.row("  the same", spread(ours), "tokens/s")
    table.row("waterfall, events and text: share of a step", spread([s * 100 for s in shares]), "%")
    if eight:
        table.row("our loop in 8 bits, all events on", spread([e / base for e in eight]), "× generate()")
        figures["eight_bit_tokens_per_s"] = spread(eight).median
    figures |= {
        "decode_vs_generate": own / base,
        "telemetry_share": spread(shares).median,
        "decode_tokens_per_s": own,
        "generate_tokens_per_s": base,
    }
    return own


def _lanes(args: argparse.Namespace, table: _Table, figures: dict[str, Any], session: Session) -> None:
    from engine import measure

    for lanes in (2, 4, 8, 16):
        tokens, ratios = max(8, args.tokens // 4), []
        for _ in range(max(2, args.rounds // 2)):
            alone = measure.our_loop(session, tokens).tokens_per_s
            ratios.append(measure.our_loop(session, tokens, lanes).tokens_per_s / alone)
        ratio = measure.Spread.of(ratios)
        table.row(f"{lanes} lanes as one batch", ratio, "× one after another")
        if lanes == 8:
            figures["lanes8_vs_sequential"] = ratio.median


def _prompts(
    args: argparse.Namespace, table: _Table, figures: dict[str, Any], session: Session, own: float
) -> None:  # fmt: skip
    from engine import measure

    reads = [measure.prefill(session, 512) for _ in range(max(2, args.rounds // 2))]
    ratio = measure.Spread.of([theirs / mine for mine, theirs in reads])
    table.row("prefill of 512 tokens", ratio, "× one forward in one piece")
    figures["prefill_vs_forward"] = ratio.median
    again = [measure.second_run(session) for _ in range(max(2, args.rounds // 2))]
    table.row("first token, the prompt read anew", measure.Spread.of([first for first, _, _ in again]), "ms")
    steps = measure.Spread.of([ms * own / 1e3 for _, ms, _ in again])
    table.row("first token, the prompt's cache kept", steps, "steps")
    table.say(f"  a fork at token {again[0][2][0]}: {again[0][2][1]} tokens reused, {again[0][2][2]} read")
    figures["second_run_steps"] = steps.median


def _long_run(args: argparse.Namespace, table: _Table, figures: dict[str, Any], session: Session) -> None:
    from engine import measure

    tokens = min(args.long, session.facts.context_tokens - 100) if session.facts.context_tokens else args.long
    if tokens < 100:
        return
    steps = measure.long_run(session, tokens)
    table.say(
        f"  one run of {tokens} tokens: step {steps.median:.1f} ms, slowest {steps.high / steps.median:.2f} times it; "
        f"first hundred {steps.first:.1f} ms, last hundred {steps.last:.1f} ms"
    )
    figures["slowest_step_vs_median"] = steps.high / steps.median
    figures["last_steps_vs_first"] = steps.last / steps.first


def _sliders(args: argparse.Namespace, table: _Table, figures: dict[str, Any], session: Session) -> None:
    """How rare a word of a finished text is undecided when one setting moves."""
    from engine.measure import Spread
    from engine.measure_sliders import positions_ms, undecided

    tokens = min(200, session.facts.context_tokens // 2) if session.facts.context_tokens else 200
    table.say(f"  sliders on finished text, three runs of {tokens} words: undecided, and time for one position")
    found = undecided(session, tokens)
    for row in found:
        table.say(f"    {row.moved:<20} {row.undecided:5d} of {row.words:,}   {row.ms:.1f} ms")
    figures["undecided_share"] = sum(row.undecided for row in found) / sum(row.words for row in found)
    tokens = min(args.long, session.facts.context_tokens - 100) if session.facts.context_tokens else args.long
    if tokens < 100:
        return
    table.say(f"  one position on a finished run of {tokens} words")
    figures["sliders_ms"] = {}
    for name, times in positions_ms(session, tokens).items():
        spread = Spread.of(times)
        figures["sliders_ms"][name] = spread.median
        table.say(f"    {name:<28} {spread.median:5.1f} ms ({spread.low:.1f} to {spread.high:.1f})")


def _window(args: argparse.Namespace, table: _Table, figures: dict[str, Any], plan: LoadPlan, own: float) -> None:
    window = _child(
        ["app.commands.bench_window", plan.model, plan.precision or "", plan.kernel or "", str(args.tokens)]
    )
    alone, threads = _loop_that_leaves_a_core(args, plan)
    rate = window["decode_tokens_per_s"]
    figures["window"] = window
    figures["window_vs_loop"], figures["window_vs_loop_on_all_cores"] = rate / alone.median, rate / own
    table.say(
        f"  window visible after {window['visible_ms']:.0f} ms; while the model runs longest stall of the window "
        f"{window['longest_stall_ms']:.0f} ms, {window['frames_per_s']:.0f} frames/s"
    )
    table.say(
        f"  decode in the window, which leaves it a core: {rate:.1f} tokens/s, {rate / alone.median:.2f} × the loop "
        f"alone on as many threads ({threads}; {alone.low:.1f} to {alone.high:.1f} tokens/s), {rate / own:.2f} × on all"
    )
    table.say(
        f"  10,000 tokens in the window: {window['text_grown_bytes'] / 1e6:.0f} MB, "
        f"a repaint {window['repaint_ms']:.1f} ms"
    )


def _loop_that_leaves_a_core(args: argparse.Namespace, plan: LoadPlan) -> tuple[Spread, int]:
    """Tokens per second of the loop with all events, on the threads that it has beside a window; and how many."""
    import torch

    from engine import measure
    from engine.control import Control
    from engine.loading import load
    from engine.settings import SamplingSettings

    session = load(plan, lambda event: None, Control())
    try:
        settings = SamplingSettings(temperature=0.8)  # as the window's run
        rates = [measure.our_loop(session, args.tokens, settings=settings).tokens_per_s for _ in range(args.rounds + 1)]
        return measure.Spread.of(rates[1:]), torch.get_num_threads()
    finally:
        session.close()


def _llama(
    args: argparse.Namespace, table: _Table, figures: dict[str, Any], session: Session, small: Session | None
) -> None:
    """llama.cpp and our loop with all events in turn, where its Python package and a GGUF file of the model are there.

    A machine's speed drifts by more than the two differ.
    """
    import importlib.util

    from app.commands.bench_llama import KINDS, READY
    from engine import measure

    if importlib.util.find_spec("llama_cpp") is None:
        table.say("  llama.cpp: llama-cpp-python is not installed, so there is no figure to compare with")
        return
    if not args.gguf:
        table.say("  llama.cpp: give a GGUF file of the same model with --gguf to compare")
        return
    import torch

    command = ["app.commands.bench_llama", args.gguf, str(args.tokens), str(torch.get_num_threads())]
    own = {kind: small if kind == "Q8_0" else session for kind in KINDS}
    theirs: dict[str, list[float]] = {kind: [] for kind in KINDS}
    ours: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(
            [sys.executable, "-m", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True
        ) as child,
    ):
        while _answer(child, said) != READY:
            pass  # what the library says while it quantises
        for _ in range(args.rounds):
            for kind in KINDS:
                if mine := own[kind]:
                    ours[kind].append(measure.our_loop(mine, args.tokens).tokens_per_s)
                theirs[kind].append(float(_answer(child, said, kind)))
    figures["llama_cpp"] = theirs
    for kind in KINDS:
        table.row(f"llama.cpp, {kind}", measure.Spread.of(theirs[kind]), "tokens/s")
        if ours[kind]:
            ratio = measure.Spread.of([mine / its for mine, its in zip(ours[kind], theirs[kind], strict=True)])
            table.row("  our loop in turn, all events on", ratio, "× that")
            figures[f"vs_llama_cpp_{kind}"] = ratio.median


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
        raise RunFailed("A measurement failed: {said}", "See the log.", said=_last_line(done.stderr))
    return json.loads(done.stdout.strip().splitlines()[-1])


def _answer(child: subprocess.Popen[str], said: IO[str], question: str = "") -> str:
    """The next line of a process that measures, after it was asked. said: what it writes of its errors."""
    assert child.stdin is not None
    assert child.stdout is not None
    with suppress(BrokenPipeError):  # it is over: its errors say why
        if question:
            print(question, file=child.stdin, flush=True)
    if line := child.stdout.readline():
        return line.strip()
    said.seek(0)
    raise RunFailed("A measurement failed: {said}", "See the log.", said=_last_line(said.read()))


def _last_line(said: str) -> str:
    return (said.strip().splitlines() or ["no reason given"])[-1][:300]
