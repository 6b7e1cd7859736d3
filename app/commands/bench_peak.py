"""A process of its own for bench: loads a model, runs one forward, prints its peak memory above that before."""

from __future__ import annotations

import json
import os
import sys

from engine.machine import calm_threads


def main() -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    calm_threads()
    import psutil
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM  # noqa: F401  no part of the load

    import engine.decode_path
    import engine.placement  # noqa: F401
    from engine.control import Control
    from engine.loading import load
    from engine.measure import our_loop
    from engine.settings import LoadPlan

    torch.zeros(1)
    before = psutil.Process().memory_info().rss
    plan = LoadPlan(sys.argv[1], sys.argv[2] or None, device_map="cpu", kernel=sys.argv[3] or None)
    session = load(plan, lambda event: None, Control())
    our_loop(session, 4)
    held = session.facts.weights_bytes + session.facts.packing_bytes  # as they lie in memory in the end
    print(json.dumps({"peak_bytes": _peak() - before, "weights_bytes": held}))


def _peak() -> int:
    """The largest resident size of this process so far, bytes."""
    try:
        import resource
    except ImportError:  # Windows
        import psutil

        return psutil.Process().memory_info().peak_wset
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    main()
