"""What a view may know of a loaded model: the ledger with its measured side, the devices, the model's own defaults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine.blueprint import Blueprint, end_sources
from engine.catalog import Located, read_json_quietly
from engine.errors import SettingsRefused
from engine.events import Fact, LedgerPart, PlacedPart, SessionFacts
from engine.memory import estimate, kept_layers, kv_bytes_per_token, part_of
from engine.packed_layers import loaded_words, plain_tensors
from engine.placement import Placement
from engine.settings import RANGES, LoadPlan, SamplingSettings
from engine.sizes import ELEMENT_BYTES
from engine.skeleton import first_line


def session_facts(
    model: Any,
    tokenizer: Any,
    blueprint: Blueprint,
    plan: LoadPlan,
    placement: Placement,
    precision: str,
    float_dtype: str,
    notes: tuple[str, ...],
    defaults: SamplingSettings,
    decode_path: str,
) -> SessionFacts:
    """The facts of a loaded model, measured where they can be. Stage times and process memory are the caller's."""
    measured = measured_by_part(model, blueprint)
    predicted = estimate(
        blueprint, precision, double_quantisation=plan.double_quantisation, keep_windows=plan.keep_windows
    )
    cache = kept_layers(blueprint.skeleton.cache, plan.keep_windows)
    quantised = precision not in ELEMENT_BYTES
    method = blueprint.quantisation or ("bitsandbytes" if quantised else "")
    attention = str(model.config.get_text_config(decoder=True)._attn_implementation or "eager")
    facts = [
        Fact("Attention", attention, "measured"),
        Fact("Quantised layers", loaded_words(model, method), "measured"),
    ]
    if any(layer.kind == "window" for layer in blueprint.skeleton.cache or ()):
        kept = "all tokens, for forks" if plan.keep_windows else "the window's tokens; a fork reads the text again"
        facts.append(Fact("Sliding windows keep", kept, "as chosen"))
    return SessionFacts(
        name=blueprint.located.name,
        model_path=str(blueprint.located.path),
        family=blueprint.family,
        precision=blueprint.quantisation or precision,
        device_map=plan.device_map if isinstance(plan.device_map, str) else "table",
        devices=devices_of(model, placement),
        parameters=blueprint.skeleton.parameters,
        layers=blueprint.layers,
        heads=blueprint.heads,
        kv_heads=blueprint.kv_heads,
        hidden_size=blueprint.hidden_size,
        vocab_size=blueprint.vocab_size,
        context_tokens=blueprint.context_tokens,
        attention=attention,
        decode_path=decode_path,
        has_chat_template=bool(getattr(tokenizer, "chat_template", None)),
        weights_bytes=sum(measured.values()),
        kv_bytes_per_token=kv_bytes_per_token(cache, ELEMENT_BYTES[float_dtype]),
        ledger=_ledger(predicted.parts, measured),
        facts=(*blueprint.facts, *facts),
        notes=tuple(dict.fromkeys(notes)),
        generation_defaults=defaults,
        sizes=predicted.sizes,
        places=measured_places(model, placement),
    )


def measured_by_part(model: Any, blueprint: Blueprint) -> dict[str, int]:
    """Bytes of the loaded model's storage by part, each storage once (tied weights share one), "buffers" among them.

    Weights that lie on disk are counted by their shape, as they come into memory one layer at a time.
    """
    roles = {tensor.name: tensor.role for tensor in blueprint.skeleton.tensors}
    parts: dict[str, int] = {}
    for kind, name, tensor in stored_tensors(model):
        part = roles.get(name, "lm_head" if "head" in name else "other") if kind == "weights" else kind
        if tensor.is_meta:
            part = "on disk"
        parts[part] = parts.get(part, 0) + tensor.numel() * tensor.element_size()
    return parts


def measured_places(model: Any, placement: Placement) -> tuple[PlacedPart, ...]:
    """Each part of the loaded model and the bytes it has on each device, in the model's order.

    A part that lies on several devices stands there once for each. What is offloaded is empty between two forwards,
    so its device comes from the placement.
    """
    sizes: dict[tuple[str, str], int] = {}
    for _, name, tensor in stored_tensors(model):
        device = str(tensor.device)
        if tensor.is_meta:
            inside = [part for part in placement.device_map if not part or f"{name}.".startswith(f"{part}.")]
            device = placement.device_map[max(inside, key=len)] if inside else "cpu"
        key = (part_of(name), device)
        sizes[key] = sizes.get(key, 0) + tensor.numel() * tensor.element_size()
    places = []
    for (name, device), size in sizes.items():
        layer = name.rpartition(".")[2]
        places.append(PlacedPart(name, device, size, int(layer) if layer.isdigit() else None))
    return tuple(places)


def stored_tensors(model: Any) -> Iterator[tuple[str, str, Any]]:
    """(kind, name, tensor) of all that a model stores, each storage once (tied weights share one).

    kind: "weights", "quantisation" for the constants beside a packed matrix, "buffers". Offloaded tensors are meta.
    """
    seen: set[int] = set()
    found: list[tuple[str, str, Any]] = []
    for name, parameter in model.named_parameters():
        found += [("weights", name, tensor) for tensor in plain_tensors(parameter)]
        found += [("quantisation", name, constants) for constants in quantisation_tensors(parameter)]
    found += [("buffers", name, buffer) for name, buffer in model.named_buffers()]
    for kind, name, tensor in found:
        if not hasattr(tensor, "untyped_storage") or not tensor.numel():
            continue
        if not tensor.is_meta:
            if tensor.data_ptr() in seen:
                continue
            seen.add(tensor.data_ptr())
        yield kind, name, tensor


def quantisation_tensors(parameter: Any) -> list[Any]:
    """The block constants that bitsandbytes keeps beside a packed matrix."""
    found = [getattr(parameter, "SCB", None)]
    state = getattr(parameter, "quant_state", None)
    while state is not None:
        found += [getattr(state, name, None) for name in ("absmax", "code", "offset")]
        state = getattr(state, "state2", None)
    return [tensor for tensor in found if tensor is not None]


def _ledger(predicted: tuple[LedgerPart, ...], measured: dict[str, int]) -> tuple[LedgerPart, ...]:
    left = dict(measured)
    parts = [LedgerPart(part.name, part.predicted_bytes, left.pop(part.name, None), part.note) for part in predicted]
    parts += [LedgerPart(name, None, size) for name, size in left.items()]
    return tuple(parts)


def devices_of(model: Any, placement: Placement) -> tuple[str, ...]:
    """Where the layers lie, the fastest first; "disk" for those that are read again at each forward."""
    found = {str(parameter.device) for parameter in model.parameters() if not parameter.is_meta}
    if any(parameter.is_meta for parameter in model.parameters()):
        found |= {"disk"} if "disk" in placement.devices else {"cpu"}  # offloaded parameters are empty between forwards
    return tuple(sorted(found, key=lambda device: ("disk" in device, "cpu" in device, device)))


def generation_defaults(located: Located) -> tuple[SamplingSettings, list[str]]:
    """(the model's own sampling, notes), from what generation_config.json says and nothing else (SAM-23).

    A file without a word on sampling leaves everything off, temperature 1. `do_sample: false` in so many words is
    greedy. What the file says outside our ranges is left off, with a note.
    """
    told = {} if located.gguf else read_json_quietly(located.folder / "generation_config.json")
    values: dict[str, Any] = {}
    notes = []
    for name in RANGES:
        value = told.get(name)
        if value is None or isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        try:
            SamplingSettings.from_dict({name: value})
        except (SettingsRefused, OverflowError, ValueError):
            notes.append(f"generation_config.json asks for {name} {str(value)[:20]}, which is left off.")
        else:
            values[name] = value
    if told.get("do_sample") is False:
        values["temperature"] = 0.0
    return SamplingSettings(**values), notes


def broken_generation_config(blueprint: Blueprint) -> tuple[Any, list[str]]:
    """(what stands in for a generation_config.json that transformers cannot take, notes); (None, []) where it can.

    The loader would end over it, and it is a matter of defaults only (LOD-14). What it says of ends still counts.
    """
    from transformers import GenerationConfig

    file = blueprint.located.folder / "generation_config.json"
    if blueprint.located.gguf or not file.is_file():
        return None, []
    try:
        GenerationConfig.from_pretrained(str(file.parent), local_files_only=True)
    except OSError:  # the loader goes on by itself
        return None, ["generation_config.json cannot be read, so its defaults are left aside."]
    except Exception as error:  # it validates in many ways
        instead = GenerationConfig.from_model_config(blueprint.config)
        if ends := end_sources(blueprint)[file.name]:
            instead.eos_token_id = list(ends)
        return instead, [f"generation_config.json is left aside: {first_line(error)}."]
    return None, []
