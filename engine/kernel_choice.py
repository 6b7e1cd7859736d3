"""Which kernel computes a model's products fastest here: a short measurement, remembered per model and machine.

Some combinations of kernel, type and processor are a hundred times slower than others, so none is chosen unmeasured.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import platformdirs
import psutil
import torch

from engine.kernels import KERNELS, ONE_SCALE, multiplies, offered, torch_threads
from engine.replay_lines import DAMAGED, built

log = logging.getLogger(__name__)

ROUNDS = 8
LONGEST_MS = 1500  # of rounds, after which there is no further one: a busy machine, or a slow one
BATCH_ROWS, WIDE_ROWS = 8, 256
BUSY = 0.5  # cores that others take: what is measured then is not remembered
CLEARLY = 0.93  # another kernel than torch's own must be this much faster
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """Milliseconds of one pass through the sample: one row, a batch of 8, and many rows as in a prompt.

    The first two with as many threads as were fastest: one row is bound by memory, and waking threads costs more than
    a second one gives on some machines.
    """

    kernel: str
    one_ms: float
    batch_ms: float
    wide_ms: float
    one_threads: int
    batch_threads: int

    @property
    def score(self) -> float:
        """Geometric mean of what one lane and eight lanes cost."""
        return math.sqrt(self.one_ms * self.batch_ms)


@dataclass(frozen=True, slots=True)
class Choice:
    """The kernel to decode with, how rows of a prompt are computed, and what was measured (empty: nothing was)."""

    kernel: str = "plain"
    wide: str = "packed"
    times: tuple[KernelTimes, ...] = ()

    @property
    def threads(self) -> tuple[int, int]:
        """For one lane, and for several; 0: as many as torch has."""
        chosen = next((times for times in self.times if times.kernel == self.kernel), None)
        return (chosen.one_threads, chosen.batch_threads) if chosen else (0, 0)


# Packs the first layers with a kernel and gives a function that runs them for so many rows (the second: as a prompt's).
Trial = Callable[[str, str], Callable[[int], object]]


def choose(
    weight: torch.Tensor, trial: Trial, asked: str | None, key: Sequence[object], worthwhile: bool, tell: Tell
) -> Choice:
    """The best of the exact kernels for a model, or the one asked for, by trying them on a part of it.

    weight: one of its matrices. key: what tells this model from others. worthwhile: packing costs no second copy in
    memory and the model is large enough to gain. Raises RuntimeError when this processor does not offer what is asked.
    """
    if asked is None and not worthwhile:
        return Choice(wide="packed" if multiplies(weight.dtype) else "float32")
    names = offered(weight.dtype)
    if asked is not None and asked not in names:
        raise RuntimeError(asked)
    exact = [
        name for name in names if KERNELS[name].exact and not (name == "float16" and weight.dtype == torch.float32)
    ]
    wanted = list(dict.fromkeys((*exact, *([asked] if asked else ()))))
    place = _place(key)
    known = _remembered(place)
    if not all(name in known for name in (*wanted, "float32")):
        before = _processor_seconds()
        for name in wanted:
            tell(f"measuring {KERNELS[name].words}")
            known[name] = _measure(name, trial)
        with torch.inference_mode():
            known["float32"] = KernelTimes("float32", 0.0, 0.0, _time(trial("plain", "float32"), WIDE_ROWS, 2), 0, 0)
        wall, others = (after - then for then, after in zip(before, _processor_seconds(), strict=True))
        if others <= BUSY * wall:
            _remember(place, known)
        else:
            log.info("kernels are measured again next time: other programs took %.1f cores meanwhile", others / wall)
    times = tuple(known[name] for name in wanted)
    plain = known["plain"]
    kernel = asked or "plain"
    if asked is None:
        best = min((known[name] for name in exact), key=lambda found: found.score)
        kernel = best.kernel if best.score < plain.score * CLEARLY else "plain"
    wides = {"packed": known[kernel].wide_ms, "plain": plain.wide_ms, "float32": known["float32"].wide_ms}
    if kernel in ONE_SCALE:
        del wides["packed"]
    wide = min(wides, key=lambda way: wides[way])
    return Choice(kernel, "packed" if kernel == "plain" and wide == "plain" else wide, times)


def _processor_seconds() -> tuple[float, float]:
    """The time, and what all other programs of the machine have computed, in seconds."""
    times, mine = psutil.cpu_times(), time.process_time()
    busy = sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)
    return time.monotonic(), busy - mine


def _measure(kernel: str, trial: Trial) -> KernelTimes:
    with torch.inference_mode():
        run = trial(kernel, "packed")
        wide_ms = _time(run, WIDE_ROWS, 2)
        (one_ms, one), (batch_ms, batch) = (_fastest(run, rows) for rows in (1, BATCH_ROWS))
        return KernelTimes(kernel, one_ms, batch_ms, wide_ms, one, batch)


def _fastest(run: Callable[[int], object], rows: int) -> tuple[float, int]:
    """Milliseconds, and the number of threads: all, and fewer by halves as long as that is faster."""
    threads = torch.get_num_threads()
    best = (_time(run, rows, ROUNDS), threads)
    while threads > 1:
        threads //= 2
        with torch_threads(threads):
            found = (_time(run, rows, ROUNDS), threads)
        if found[0] > best[0] * CLEARLY:
            break
        best = found
    return best


def _time(run: Callable[[int], object], rows: int, rounds: int) -> float:
    """The shortest of some rounds after one that warms up, in milliseconds: what else runs only makes one longer."""
    times: list[float] = []
    while len(times) <= rounds and sum(times) < LONGEST_MS:
        began = time.perf_counter()
        run(rows)
        times.append((time.perf_counter() - began) * 1e3)
    return min(times[1:] or times)


# ---------------------------------------------------------------- remembering


def _file() -> Path:
    return Path(platformdirs.user_state_dir("glasswork")) / "kernels.json"


def _place(key: Sequence[object]) -> str:
    """Stands for a model, the processor, its threads and torch's version."""
    machine = (platform.machine(), platform.processor(), torch.backends.cpu.get_cpu_capability(), os.cpu_count())
    told = json.dumps([str(part) for part in (*key, *machine, torch.get_num_threads(), torch.__version__)])
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _all_remembered() -> dict[str, Any]:
    try:
        known = json.loads(_file().read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def _remembered(key: str) -> dict[str, KernelTimes]:
    """What makes no sense is measured again."""
    try:
        found = [built(KernelTimes, times) for times in _all_remembered().get(key, {}).values()]
    except DAMAGED:
        return {}
    return {times.kernel: times for times in found if _is_sane(times)}


def _is_sane(times: KernelTimes) -> bool:
    took = (times.one_ms, times.batch_ms, times.wide_ms)
    threads = (times.one_threads, times.batch_threads)
    return all(0.0 <= ms < math.inf for ms in took) and all(0 <= count <= (os.cpu_count() or 1) for count in threads)


def _remember(key: str, times: dict[str, KernelTimes]) -> None:
    _write(_all_remembered() | {key: {name: asdict(found) for name, found in times.items()}})


def _write(everything: dict[str, Any]) -> None:
    try:
        _file().parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=_file().parent, delete=False, encoding="utf-8") as written:
            json.dump(everything, written)
        os.replace(written.name, _file())
    except OSError as error:  # measured again next time
        log.info("what was measured of the kernels was not kept: %s", error)


def keep(key: Sequence[object], what: str, told: dict[str, Any]) -> None:
    """Remembers something else that was measured of this model on this machine."""
    _write(_all_remembered() | {f"{what} {_place(key)}": told})


def kept(key: Sequence[object], what: str) -> dict[str, Any] | None:
    """What `keep` was told, or None."""
    found = _all_remembered().get(f"{what} {_place(key)}")
    return found if isinstance(found, dict) else None


def forget() -> None:
    """The next load measures again."""
    _file().unlink(missing_ok=True)
