"""torch.compile for the lean forward's step: what lies before attention and after it, each as one compiled function.

All layers share the two functions. Compiling takes ten seconds to a minute, once per process; its results stay in
torch's own cache on disk. It needs a C++ compiler, and cannot be had in a frozen build.
"""

from __future__ import annotations

import logging
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

import psutil
import torch

from engine.errors import Cancelled, CannotLoad

if TYPE_CHECKING:
    from engine.lean import LeanWeights

log = logging.getLogger(__name__)
COMPILERS = ("g++", "c++", "clang++", "cl")
COMPILER_MODULES = ("torch._dynamo", "torch._inductor", "torch.fx")
LOOK_EVERY_S = 0.1


def why_not_compiled() -> str:
    """Why torch.compile cannot be had here, or ""."""
    if getattr(sys, "frozen", False):
        return "a packaged program cannot compile"
    if not any(shutil.which(name) for name in COMPILERS):
        return "it needs a C++ compiler, and none is installed"
    return ""


def compile_step(weights: LeanWeights, say: Callable[[str], None], cancelled: Callable[[], bool]) -> float:
    """Compiles the step of one lane and runs it once. Returns the seconds it took.

    say: told how long it has taken, ten times a second, from another thread. A stop ends the C++ compiler at once and
    is seen by torch between its own steps. Raises Cancelled, and CannotLoad where compiling fails.
    """
    from engine.lean import LeanForward, after_attention, before_attention

    if reason := why_not_compiled():
        raise CannotLoad("torch.compile cannot be used: {reason}.", "Choose another kernel.", reason=reason)
    import torch._inductor.config as inductor

    torch._logging.set_logs(all=logging.CRITICAL)  # what stops it would be told on the terminal, with traces  # pyright: ignore[reportPrivateImportUsage]

    began = time.perf_counter()
    functions = tuple(
        torch.compile(each, dynamic=False, fullgraph=True) for each in (before_attention, after_attention)
    )
    weights.compiled = (functions[0], functions[1])
    try:
        # In this process: worker processes of the compiler's own would outlive a stop.
        with inductor.patch(compile_threads=1), _stoppable(say, cancelled):
            LeanForward(weights, 1).step([0])
    except Exception as error:  # torch wraps what stopped it, in many ways
        weights.compiled = None
        if cancelled():
            raise Cancelled from None
        log.warning("torch.compile failed: %s", error)
        said = " ".join(str(error).split())[:300]
        raise CannotLoad("torch.compile failed: {said}", "Choose another kernel.", said=said) from None
    if cancelled():
        weights.compiled = None
        raise Cancelled
    return time.perf_counter() - began


@contextmanager
def _stoppable(say: Callable[[str], None], cancelled: Callable[[], bool]) -> Iterator[None]:
    """While inside, a thread tells the time, and ends the compiler's processes when a stop is wanted."""
    over = threading.Event()
    began = time.perf_counter()
    me = psutil.Process()
    before = {child.pid for child in me.children(recursive=True)}

    def watch() -> None:
        while not over.wait(LOOK_EVERY_S):
            if cancelled():
                for child in me.children(recursive=True):
                    if child.pid not in before:
                        _kill(child)
            else:
                with suppress(Cancelled):  # the other thread is told by torch
                    say(f"torch.compile: {time.perf_counter() - began:.0f} s, usually 10 to 60")

    def look(frame: FrameType, event: str, _: object) -> None:
        # Only where a function of the compiler's own begins: what a collector or a destructor calls would swallow it,
        # and a file that was opened just now would stay open.
        if event == "call" and cancelled() and frame.f_globals.get("__name__", "").startswith(COMPILER_MODULES):
            raise Cancelled

    thread = threading.Thread(target=watch, name="compile-watch", daemon=True)
    thread.start()
    sys.setprofile(look)  # called at each call in Python: between the compiler's runs torch works for seconds in it
    try:
        yield
    finally:
        sys.setprofile(None)
        over.set()
        thread.join()


def _kill(process: psutil.Process) -> None:
    with suppress(psutil.Error):  # it has ended by itself
        process.kill()
