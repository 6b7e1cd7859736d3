"""A process of its own for bench: llama.cpp's decode of the same prompt, in 16 bits and in 8; prints tokens per second.

Needs llama-cpp-python. The GGUF file is quantised anew to each kind into a temporary folder.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

KINDS = ("BF16", "F16", "Q8_0")


def main() -> None:
    gguf, tokens, rounds, threads = sys.argv[1], *map(int, sys.argv[2:5])
    print(json.dumps({kind: rates(gguf, kind, tokens, rounds, threads) for kind in KINDS}))


def rates(gguf: str, kind: str, tokens: int, rounds: int, threads: int) -> list[float]:
    """Tokens per second of greedy decode, one for each round."""
    import llama_cpp

    from engine.measure import PROMPT

    with tempfile.TemporaryDirectory(prefix="glasswork-llama-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / f"{kind}.gguf"
        wish = llama_cpp.llama_model_quantize_default_params()
        wish.ftype, wish.allow_requantize = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}"), True
        if llama_cpp.llama_model_quantize(gguf.encode(), str(path).encode(), wish):
            raise SystemExit(f"llama.cpp could not make {kind} of {gguf}")
        model = llama_cpp.Llama(str(path), n_ctx=512, n_threads=threads, n_threads_batch=threads, verbose=False)
        found = []
        for _ in range(rounds + 1):
            model.reset()
            model.eval(model.tokenize(PROMPT.encode()))
            token = model.sample(temp=0.0)
            began = time.perf_counter()
            for _ in range(tokens - 1):
                model.eval([token])
                token = model.sample(temp=0.0)
            found.append((tokens - 1) / (time.perf_counter() - began))
        model.close()
        return found[1:]  # the first warms up


if __name__ == "__main__":
    main()
