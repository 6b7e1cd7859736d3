"""How a loaded model will decode: the lean forward or transformers' own, and with which kernel. Said in words, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812  the field's name for it

from engine import lean
from engine.compiled import compile_step
from engine.errors import CannotLoad
from engine.events import KernelFigure
from engine.forward import general_path
from engine.kernel_choice import BATCH_ROWS, Choice, choose
from engine.kernels import KERNELS, LEAN_ONLY, Product, offered, pack, stream_dtype
from engine.large_pages import allocated, enlarge
from engine.readings import forget_pages, give_memory_back, mapped_ranges, weights_apart

Tell = Callable[[str], None]
SAMPLE_BYTES = 96_000_000  # of weights are tried: more than a processor's cache keeps, little beside most models
WORTH_BYTES = 20_000_000  # smaller models are bound by other things than their products


@dataclass(frozen=True, slots=True, eq=False)
class DecodePath:
    """lean: the packed weights of the lean forward, None for the general path. packed_bytes: what packing holds."""

    lean: lean.LeanWeights | None
    sentence: str
    kernel: str
    words: str  # of the kernel: what ran, not what was asked for
    packed_bytes: int
    replaced_bytes: int  # of the model's own weights that are read no more when decoding
    read_bytes: int = 0  # of the packed ones in a step, without what only fills up
    threads: tuple[int, int] = (0, 0)  # torch's, for one lane and for several; 0: as many as it has
    figures: tuple[KernelFigure, ...] = ()


def decode_path(
    model: Any, asked: str | None, mapped: bool, tell: Tell, cancelled: Callable[[], bool] = lean.never
) -> DecodePath:
    """Chooses the path and the kernel, and packs the weights where that is faster.

    asked: a kernel's name, or None for the best of the exact ones. mapped: the weights are mapped from their files.
    tell: what goes on, in words; may raise Cancelled, which `cancelled` foretells. Raises CannotLoad when the kernel
    asked for cannot be had.
    """
    with weights_apart():  # what was tried for the choice goes back to the system
        return _decode_path(model, asked, mapped, tell, cancelled)


def _decode_path(model: Any, asked: str | None, mapped: bool, tell: Tell, cancelled: Callable[[], bool]) -> DecodePath:
    reason = lean.why_not(model)
    if asked == "transformers":
        reason = reason or "transformers' own forward was asked for"
        return DecodePath(None, f"general: {general_path(model)}, since {reason}", asked, KERNELS[asked].words, 0, 0)
    if asked in LEAN_ONLY and reason:
        raise CannotLoad(
            "The kernel {kernel} is offered for the lean path only, and {reason}.",
            "Choose another kernel, or leave the choice open.",
            kernel=asked,
            reason=reason,
        )
    compiled = asked == "compiled"
    if compiled:
        asked = "plain"
    linears = [] if is_apart(model) else packable(model)
    if asked not in (None, "plain") and not linears:
        raise CannotLoad(
            "The kernel {kernel} needs plain weights on the processor, and this model's are not.",
            "Load it without choosing a kernel, in a plain precision on one device.",
            kernel=asked,
        )
    choice = Choice()
    if linears:
        choice = choice_for(model, linears, asked, reason, tell, mapped and bytes_of(linears) > WORTH_BYTES)
        give_memory_back(collect=False)  # what trying the kernels took, before the packed weights come
    words = KERNELS[choice.kernel].words
    if choice.kernel != "plain":
        words += ", chosen by measuring" if asked is None else ", as asked"
    if not reason:
        weights = lean.pack_model(
            model, choice.kernel, choice.wide, lambda done, of: tell(f"packing layer {done + 1} of {of}")
        )
        weights.threads = choice.threads
        if compiled:
            seconds = compile_step(weights, tell, cancelled)
            choice = replace(choice, kernel="compiled")
            words = f"{KERNELS['compiled'].words}; compiled in {seconds:.0f} s"
        packed, read, sentence = weights.packed_bytes, weights.read_bytes, lean.SENTENCE
    else:
        weights, sentence = None, f"general: {general_path(model)}, since {reason}"
        packed, read = pack_in_place(linears, choice, tell) if choice.kernel != "plain" else (0, 0)
    replaced, read = (bytes_of(linears), read) if packed else (0, 0)
    return DecodePath(weights, sentence, choice.kernel, words, packed, replaced, read, choice.threads, _figures(choice))


def choice_for(
    model: Any, linears: list[torch.nn.Linear], asked: str | None, reason: str, tell: Tell, worthwhile: bool = True
) -> Choice:
    """The kernel with its threads, measured here or remembered. reason: why the model takes the general path, or ""."""
    weight = linears[0].weight
    trial = lean.trial_of(model, SAMPLE_BYTES) if not reason else _trial_of(linears)
    key = (model.config.to_json_string(), str(weight.dtype), bool(reason))
    try:
        return choose(weight, trial, asked, key, worthwhile, tell)
    except RuntimeError as error:
        raise CannotLoad(
            "This processor or this build of torch has no kernel {kernel} for {precision} weights.",
            "Choose one of {kernels}, or leave the choice open.",
            kernel=asked,
            precision=str(weight.dtype).removeprefix("torch."),
            kernels=", ".join(offered(weight.dtype)),
            said=str(error),
        ) from None


def _figures(choice: Choice) -> tuple[KernelFigure, ...]:
    plain = next((times for times in choice.times if times.kernel == "plain"), None)
    if plain is None:
        return ()
    return tuple(
        KernelFigure(
            times.kernel,
            KERNELS[times.kernel].words,
            times.kernel == choice.kernel,
            plain.one_ms / times.one_ms,
            BATCH_ROWS * plain.one_ms / times.batch_ms,
        )
        for times in choice.times
    )


def is_apart(model: Any) -> bool:
    """Whether layers lie on several devices, are moved between them, or lie on none yet."""
    devices = {parameter.device.type for parameter in model.parameters()}
    return devices != {"cpu"} or any(hasattr(module, "_hf_hook") for module in model.modules())


def packable(model: Any) -> list[torch.nn.Linear]:
    """The plain linear layers of more than a handful of numbers; none where the files were quantised."""
    if getattr(model.config, "quantization_config", None):
        return []
    modules = [m for m in model.modules() if isinstance(m, torch.nn.Linear)]
    if any(type(m) is not torch.nn.Linear for m in modules):
        return []
    return [m for m in modules if m.weight.numel() >= 1024 and m.weight.is_floating_point()]


def bytes_of(linears: list[torch.nn.Linear]) -> int:
    """Of their weights as they were loaded."""
    return sum(module.weight.numel() * module.weight.element_size() for module in linears)


def _trial_of(linears: list[torch.nn.Linear]) -> Callable[[str, str], Callable[[int], object]]:
    """For trying kernels on the first linear layers of transformers' forward, one after another."""
    sample: list[torch.nn.Linear] = []
    for module in linears:
        if bytes_of(sample) >= SAMPLE_BYTES:
            break
        sample.append(module)

    def trial(kernel: str, wide: str) -> Callable[[int], object]:
        packed = [_PackedLinear(m, pack(kernel, [(m.weight, m.bias)]), Choice(kernel, wide), []) for m in sample]

        def run(rows: int) -> object:
            inputs = {m.in_features: torch.ones(rows, m.in_features, dtype=m.weight.dtype) for m in sample}
            return [product(inputs[m.in_features]) for product, m in zip(packed, sample, strict=True)]

        return run

    return trial


def pack_in_place(linears: list[torch.nn.Linear], choice: Choice, tell: Tell) -> tuple[int, int]:
    """Gives each linear layer of transformers' model a packed product; its own weight stays. Returns bytes: of memory,
    and of what a step reads."""
    packed, read, mapped, before = 0, 0, mapped_ranges(), allocated()
    with torch.inference_mode():
        for number, module in enumerate(linears):
            tell(f"packing matrix {number + 1} of {len(linears)}")
            try:
                product = pack(choice.kernel, [(module.weight, module.bias)])
            except RuntimeError:  # this one's numbers do not fit the kernel's type: it stays plain
                read += bytes_of([module])
                continue
            packed, read = packed + product.nbytes, read + product.read_bytes
            module.forward = _PackedLinear(module, product, choice, mapped)  # pyright: ignore[reportAttributeAccessIssue]
            forget_pages(module.weight, mapped)
    enlarge(before, lambda done: tell(f"packing matrix {len(linears)} of {len(linears)}"))
    return packed, read


class _PackedLinear:
    """What a linear layer does instead: few rows through the packed product, many by the choice that was measured."""

    def __init__(
        self, module: torch.nn.Linear, product: Product, choice: Choice, mapped: list[tuple[int, int]]
    ) -> None:
        self.weight, self.bias, self.product, self.mapped = module.weight, module.bias, product, mapped
        self.wide = choice.wide
        self.stream = stream_dtype(choice.kernel, module.weight.dtype)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self.wide == "packed" or x.numel() // x.shape[-1] < lean.WIDE_ROWS:
            return self.product(x.to(self.stream)).to(x.dtype)
        if self.wide == "plain":
            result = F.linear(x, self.weight, self.bias)
        else:
            bias = None if self.bias is None else self.bias.float()
            result = F.linear(x.float(), self.weight.float(), bias).to(x.dtype)
        forget_pages(self.weight, self.mapped)
        return result
