"""A blueprint as the frozen `Outline` that views read: the config's numbers, and the tree of the empty model."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from engine.blueprint import Blueprint, config_count, end_sources, licence_of, parameters_per_token
from engine.config_checks import architectures_of
from engine.inside import Leaf, Module, Outline
from engine.memory import packing_for, tensor_bytes
from engine.quantised import Quantised
from engine.skeleton import Skeleton

MOST_RAW = 400_000  # characters of a config.json that a view shows; a real one has a hundredth


def outline(blueprint: Blueprint, precision: str, float_dtype: str) -> Outline:
    """What a view shows of a model before its weights are read. Bytes are predicted for the precision.

    precision, float_dtype: as `Blueprint.chosen` gives them. Raises CannotLoad where the config cannot be built.
    """
    skeleton, text = blueprint.skeleton, blueprint.text_config
    shares: Counter[str] = Counter()
    for tensor in skeleton.tensors:
        shares[tensor.role] += tensor.numel
    kept: Counter[int | None] = Counter()
    others = 0
    for layer in skeleton.cache or ():
        if layer.kind in ("full", "window"):
            kept[layer.window_tokens] += 1
        else:
            others += 1
    rope_base, rope_kind, rope_factor = _rope(text)
    tree = _tree(skeleton, precision, float_dtype, packing_for(blueprint, precision))
    return Outline(
        name=blueprint.located.name,
        path=str(blueprint.located.path),
        source=blueprint.located.gguf or "config.json",
        raw=_raw(blueprint),
        family=blueprint.family,
        architecture=next(iter(architectures_of(blueprint.raw)), ""),
        precision=blueprint.quantisation or precision,
        layers=blueprint.layers,
        heads=blueprint.heads,
        kv_heads=blueprint.kv_heads,
        head_size=config_count(text, "head_dim")
        or (blueprint.hidden_size // blueprint.heads if blueprint.heads else 0),
        hidden_size=blueprint.hidden_size,
        feed_forward_size=config_count(text, "intermediate_size", "n_inner", "ffn_dim"),
        vocab_size=blueprint.vocab_size,
        context_tokens=blueprint.context_tokens,
        tied=skeleton.tied,
        parameters=skeleton.parameters,
        parameters_per_token=parameters_per_token(blueprint),
        experts=config_count(text, "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"),
        experts_per_token=config_count(text, "num_experts_per_tok", "moe_top_k", "num_experts_per_token", "moe_k"),
        rope_base=rope_base,
        rope_kind=rope_kind,
        rope_factor=rope_factor,
        activation=str(getattr(text, "hidden_act", None) or getattr(text, "hidden_activation", None) or "")[:60],
        windows=tuple(sorted(kept.items(), key=lambda item: item[0] or 0)),
        other_layers=others,
        dtype_files=blueprint.dtype_files,
        dtype_config=blueprint.dtype_config,
        quantisation=blueprint.quantisation,
        shares=tuple((role, count) for role, count in shares.most_common()),
        ends=tuple(end_sources(blueprint).items()),
        licence=licence_of(blueprint.located.folder),
        predicted_bytes=tree.predicted_bytes,
        tree=tree,
        notes=blueprint.notes,
    )


def _raw(blueprint: Blueprint) -> str:
    if blueprint.gguf is not None:
        values = {name: value if len(str(value)) < 400 else f"{str(value)[:400]}…"
                  for name, value in blueprint.gguf.values.items()}  # fmt: skip
        return json.dumps(values, indent=2, ensure_ascii=False, default=str)[:MOST_RAW]
    try:
        return (blueprint.located.folder / "config.json").read_text(encoding="utf-8")[:MOST_RAW]
    except (OSError, UnicodeDecodeError):  # it was there a moment ago
        return json.dumps(blueprint.raw, indent=2, ensure_ascii=False, default=str)[:MOST_RAW]


def _rope(text: Any) -> tuple[float, str, float]:
    """(base, kind, factor) of the rotary positions; zeros and "" where the family has none."""
    told = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    if told and not any(key in told for key in ("rope_theta", "rope_type", "type", "factor")):
        told = told.get("full_attention") or next((each for each in told.values() if isinstance(each, dict)), {})
    base = told.get("rope_theta") or getattr(text, "rope_theta", None)
    kind = told.get("rope_type") or told.get("type") or ("default" if base else "")
    factor = told.get("factor")
    number = float(base) if isinstance(base, int | float) else 0.0
    return number, str(kind)[:40], float(factor) if isinstance(factor, int | float) else 0.0


# ---------------------------------------------------------------- the tree


def _tree(skeleton: Skeleton, precision: str, float_dtype: str, packing: Quantised | None) -> Module:
    """The module tree; equal siblings whose names are numbers are folded into one that says which they are."""
    plans = {tensor.name: tensor for tensor in skeleton.tensors}
    firsts: dict[int, str] = {}  # a parameter's first name; another module that has it too is tied to that

    def leaves(module: Any, path: str) -> tuple[Leaf, ...]:
        found = []
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            whole = f"{path}.{name}" if path else name
            first = firsts.setdefault(id(parameter), whole)
            plan = plans.get(whole) if first == whole else None
            size = tensor_bytes(skeleton, plan, precision, float_dtype, packing) if plan else 0
            tied = "" if first == whole else first
            role = plan.role if plan else ""
            found.append(Leaf(name, tuple(parameter.shape), parameter.numel(), size, role, tied))
        for name, buffer in module.named_buffers(recurse=False):
            if buffer is not None:
                size = buffer.numel() * buffer.element_size()
                found.append(Leaf(name, tuple(buffer.shape), buffer.numel(), size, "buffer"))
        return tuple(found)

    def walk(module: Any, name: str, path: str) -> Module:
        own = leaves(module, path)
        parts = [walk(child, called, f"{path}.{called}" if path else called)
                 for called, child in module.named_children()]  # fmt: skip
        parameters = sum(leaf.numel for leaf in own if leaf.role != "buffer" and not leaf.tied_to)
        size = sum(leaf.predicted_bytes for leaf in own)
        return Module(
            name,
            path,
            type(module).__name__,
            parameters + sum(part.parameters for part in parts),
            size + sum(part.predicted_bytes for part in parts),
            (),
            own,
            tuple(parts),
        )

    whole = walk(skeleton.model, "", "")
    return _folded(whole, "")


def _folded(module: Module, path: str) -> Module:
    """The same tree, equal numbered siblings as one. Nodes below a folded one carry "{}" for its number."""
    groups: dict[object, list[Module]] = {}
    for part in module.parts:
        numbered = part.name.isascii() and part.name.isdigit()
        groups.setdefault(_signature(part) if numbered else part.name, []).append(part)
    parts = []
    for group in groups.values():
        first = group[0]
        numbers = tuple(int(part.name) for part in group) if len(group) > 1 else ()
        name = "{}" if numbers else first.name
        below = _folded(first, f"{path}.{name}" if path else name)
        parts.append(
            Module(name, below.path, first.kind, first.parameters, first.predicted_bytes, numbers, first.leaves,
                   below.parts)
        )  # fmt: skip
    return Module(
        module.name, path, module.kind, module.parameters, module.predicted_bytes, module.numbers, module.leaves,
        tuple(parts),
    )  # fmt: skip


def _signature(module: Module) -> tuple:
    leaves = tuple((leaf.name, leaf.shape, leaf.predicted_bytes, leaf.role, leaf.tied_to) for leaf in module.leaves)
    return (module.kind, leaves, tuple((part.name, _signature(part)) for part in module.parts))
