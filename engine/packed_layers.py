"""Layers that are packed, once they are loaded: what each really is, which kernel it can take, whether it runs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from engine.errors import Cancelled, CannotLoad

if TYPE_CHECKING:
    from engine.control import Control

log = logging.getLogger(__name__)


def plain_tensors(parameter: Any) -> list[Any]:
    """The plain tensors that a parameter consists of: itself, or what a packed tensor class holds inside."""
    data = parameter.detach() if hasattr(parameter, "detach") else parameter
    if not hasattr(data, "__tensor_flatten__"):
        return [data]
    names = data.__tensor_flatten__()[0]
    return [inner for name in names for inner in plain_tensors(getattr(data, name))]


def loaded_words(model: Any, method: str) -> str:
    """What the loaded model's layers really are, in one line: "210 layers (bitsandbytes nf4, blocks of 64, ...)"."""
    counts: dict[str, int] = {}
    for module in model.modules():
        if words := _layer_words(module, method):
            counts[words] = counts.get(words, 0) + 1
    return "; ".join(f"{count:,} ({words})" for words, count in counts.items()) or "none"


def _layer_words(module: Any, method: str) -> str:
    kind = type(module).__name__
    if kind == "Linear8bitLt":
        threshold = float(getattr(module.state, "threshold", 0.0))
        rest = f"outliers from {threshold:g} on in 16 bits" if threshold else "no outliers kept apart"
        return f"bitsandbytes int8, {rest}"
    if kind == "Linear4bit":
        state = getattr(module.weight, "quant_state", None)
        if state is None:
            return "bitsandbytes, 4 bits"
        double = "double quantisation" if state.nested else "no double quantisation"
        compute = str(module.compute_dtype or state.dtype).removeprefix("torch.")
        return f"bitsandbytes {state.quant_type}, blocks of {state.blocksize}, {double}, computes in {compute}"
    weight = getattr(module, "weight", None)
    if hasattr(weight, "__tensor_flatten__"):
        return f"{method} {type(getattr(weight, 'data', weight)).__name__}"
    own = ("qweight", "weight_packed", "weight_scale", "weight_scale_inv", "codes")
    if not any(getattr(module, name, None) is not None for name in own):
        return ""
    if weight is not None and weight.is_floating_point() and weight.element_size() > 1:
        return f"{method}, unpacked to {str(weight.dtype).removeprefix('torch.')}"
    return f"{method} {kind}"


def fit_cpu_kernels(model: Any) -> None:
    """Lets 4-bit layers whose shape bitsandbytes' AVX-512 kernel cannot take go the plain way.

    The kernel packs rows by 32 and columns by the block; its own check comes too late, as an assertion in the first
    forward (bitsandbytes 0.50), and only on processors that have the kernel.
    """
    for module in model.modules():
        state = getattr(getattr(module, "weight", None), "quant_state", None)
        if type(module).__name__ != "Linear4bit" or state is None:
            continue
        rows, columns = state.shape
        if rows % 32 or columns % state.blocksize:
            module.support_avx512bf16_for_cpu = False


def refuse_what_does_not_run(model: Any, precision: str, control: Control) -> None:
    """Reads two tokens and writes one with a packed model. Raises CannotLoad where that fails, and Cancelled.

    Some families use a matrix in another way than a layer does (mamba multiplies with dt_proj's weight by hand), and
    some kernels lack a shape (bitsandbytes' int8 on the CPU fails on deepseek_v3's four-dimensional inputs): such a
    model loads, and would end its first run with a library's error.
    """
    from engine.forward import GeneralForward
    from engine.session import Session
    from engine.skeleton import first_line

    try:
        unknown: Any = None  # facts and blueprint are of no use to a forward
        forward = GeneralForward(Session(model, None, unknown, None, unknown))
        forward.read([0, 0], control.cancelled)
        forward.step([0])
    except Cancelled:
        raise
    except Exception as error:  # whatever a kernel raises
        log.warning("a packed model does not run", exc_info=True)
        said = first_line(error)
        error.__traceback__ = error.__cause__ = error.__context__ = None  # its frames hold tensors (MEM-22)
    else:
        return
    raise CannotLoad(
        "A {family} model does not run in {precision} here: its first step failed ({said}).",
        "Choose bfloat16 or float32.",
        family=model.config.model_type,
        precision=precision,
        said=said,
    )
