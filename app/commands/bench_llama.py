"""A process of its own for bench: llama.cpp's decode of the same prompt, in 16 bits and in 8, a round whenever asked.

Needs llama-cpp-python. The GGUF file is quantised anew to each kind into a temporary folder. Says READY, then reads a
kind from each line that comes in and answers with tokens per second.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

KINDS = ("BF16", "F16", "Q8_0")
READY = "ready"


def main() -> None:
    gguf, tokens, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with tempfile.TemporaryDirectory(prefix="glasswork-llama-", ignore_cleanup_errors=True) as folder:
        models = {kind: _model(gguf, kind, Path(folder) / f"{kind}.gguf", threads) for kind in KINDS}
        for model in models.values():
            rate(model, tokens)  # the first warms up
        print(READY, flush=True)
        for line in sys.stdin:
            print(rate(models[line.strip()], tokens), flush=True)
        for model in models.values():
            model.close()


def _model(gguf: str, kind: str, path: Path, threads: int) -> Any:
    import llama_cpp

    wish = llama_cpp.llama_model_quantize_default_params()
    wish.ftype, wish.allow_requantize = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}"), True
    if llama_cpp.llama_model_quantize(gguf.encode(), str(path).encode(), wish):
        raise SystemExit(f"llama.cpp could not make {kind} of {gguf}")
    return llama_cpp.Llama(str(path), n_ctx=512, n_threads=threads, n_threads_batch=threads, verbose=False)


def rate(model: Any, tokens: int) -> float:
    """Tokens per second of greedy decode."""
    from engine.measure import PROMPT

    model.reset()
    model.eval(model.tokenize(PROMPT.encode()))
    token = model.sample(temp=0.0)
    began = time.perf_counter()
    for _ in range(tokens - 1):
        model.eval([token])
        token = model.sample(temp=0.0)
    return (tokens - 1) / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
