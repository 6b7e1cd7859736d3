"""8-bit activations without their outliers, after SmoothQuant (Xiao and others, 2023), at no cost in a step.

A few channels of what goes into a layer's products are many times larger than the rest, and one 8-bit scale for all
then leaves the others a few steps. Each channel is divided by a number by which its weights are multiplied, so that
both come out equally uneven: the product stays the same, and the norm before it takes the division.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from engine.kernels import Linear
from engine.readings import forget_pages

TOKENS = 128  # drawn evenly: which channels are large hardly depends on the text, and no text is then preferred
STRENGTH = 0.5  # how much of the unevenness goes to the weights; SmoothQuant's own


def largest_inputs(model: Any, mapped: list[tuple[int, int]], tell: Callable[[], None]) -> list[tuple[Tensor, Tensor]]:
    """For each layer, how large each channel becomes before query-key-value and before gate-up: [hidden], float32.

    One forward of the model itself. mapped: as for `forget_pages`. tell: called before each layer; may raise Cancelled.
    """
    found: list[list[Tensor]] = []

    def look(module: Any, arguments: tuple[Tensor, ...]) -> None:
        found[-1].append(arguments[0].abs().flatten(0, -2).amax(0).float())

    def begin(module: Any, arguments: Any) -> None:
        tell()
        found.append([])

    def end(module: Any, arguments: Any, result: Any) -> None:
        for parameter in module.parameters():
            forget_pages(parameter, mapped)

    hooks = []
    for layer in model.model.layers:
        hooks += [layer.register_forward_pre_hook(begin), layer.register_forward_hook(end)]
        hooks += [each.register_forward_pre_hook(look) for each in (layer.self_attn.q_proj, layer.mlp.gate_proj)]
    chance = torch.Generator().manual_seed(0)
    ids = torch.randint(0, model.config.vocab_size, (1, TOKENS), generator=chance)
    try:
        with torch.inference_mode():
            model.model(input_ids=ids, use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return [(attention, mlp) for attention, mlp in found]


def smoothed(norm: Tensor, group: list[Linear], largest: Tensor) -> tuple[Tensor, list[Linear]]:
    """The norm's weight and the linear layers that read it, in float32, with the unevenness shared between them."""
    weights = torch.cat([weight.float() for weight, _ in group]).abs().amax(0).clamp_(min=1e-6)
    scale = largest.clamp(min=1e-6) ** STRENGTH / weights ** (1 - STRENGTH)
    return norm.float() / scale, [(weight.float() * scale, bias) for weight, bias in group]
