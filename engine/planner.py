"""Where accelerate would put a model's parts, on devices that need not be there: from the blueprint alone.

accelerate plans weights only. The cache and the working space are laid beside them here, where dispatch would put
them: a layer that waits on the CPU or on disk computes on the first GPU, and keeps its cache there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from engine.errors import CannotLoad
from engine.events import PlacedPart, Plan, PlannedDevice
from engine.memory import checked_wish, model_sizes, packing_for, part_of, tensor_bytes
from engine.placement import PLANNED, check_table, checked_device, plan_for
from engine.readings import device_limits
from engine.settings import PlanWish
from engine.sizes import ELEMENT_BYTES, ModelSizes

if TYPE_CHECKING:
    from engine.blueprint import Blueprint

FURTHER_ROUNDS = 3
_GPU = re.compile(r"cuda:\d+")


def plan(wish: PlanWish, blueprint: Blueprint | None = None) -> Plan:
    """The plan for a wish. Raises CannotLoad, SettingsRefused.

    blueprint: of the wish's model, if it was read already.
    """
    from engine.blueprint import read_blueprint

    blueprint = blueprint or read_blueprint(wish.model)
    precision, float_dtype, context = checked_wish(blueprint, wish.precision, wish.context_tokens, wish.lanes)
    sizes = model_sizes(blueprint)
    here = wish.devices is None
    memory = {limit.name: limit.free_bytes for limit in device_limits()} if here else dict(wish.devices or ())
    limits = _limits(wish, sizes, precision, context, memory)
    found = _plan(wish, blueprint, sizes, precision, float_dtype, context, memory, limits)
    for _ in range(FURTHER_ROUNDS):  # the layers that spill keep their cache on the first GPU, which is known only now
        short = {device.name: -device.free_bytes for device in found.devices if device.memory_bytes}
        short = {name: size for name, size in short.items() if size > 0 and limits.get(name, 0) > 0}
        if not short or not wish.room_for_text or wish.device_map not in PLANNED:
            break
        limits |= {name: max(0, limits[name] - size) for name, size in short.items()}
        found = _plan(wish, blueprint, sizes, precision, float_dtype, context, memory, limits)
    return found


def _plan(
    wish: PlanWish,
    blueprint: Blueprint,
    sizes: ModelSizes,
    precision: str,
    float_dtype: str,
    context: int,
    memory: dict[str, int],
    limits: dict[str, int],
) -> Plan:
    """One plan within these limits, with the cache and the working space laid beside the weights."""
    gpus = [name for name in memory if _GPU.fullmatch(name)]
    working = sizes.working_bytes(precision, context, wish.lanes) + sizes.logits_bytes(precision, wish.lanes)
    device_map = _device_map(wish, blueprint, precision, float_dtype, limits)
    used = list(dict.fromkeys(device_map.values()))
    main = next((device for device in used if device not in ("cpu", "disk")), "cpu")
    parts = _parts(blueprint, sizes, device_map, main, precision, float_dtype, context, wish.lanes)
    moving = [part.weights_bytes for part in parts if part.device != _computes_on(part.device, main)]
    devices = []
    for name in [*gpus, "cpu", "disk"]:
        weights = sum(part.weights_bytes for part in parts if part.device == name)
        cache = sum(part.kv_bytes for part in parts if _computes_on(part.device, main) == name)
        computes = any(_computes_on(part.device, main) == name for part in parts)
        if memory.get(name) or weights:
            busy = working if computes else 0
            busy += max(moving, default=0) if name == main else 0  # what comes must have a place while it works
            devices.append(PlannedDevice(name, memory.get(name, 0), weights, cache, busy))
    return Plan(
        wish=wish,
        model=blueprint.located.name,
        precision=precision,
        context_tokens=context,
        lanes=wish.lanes,
        devices=tuple(devices),
        parts=tuple(parts),
        main_device=main,
        moved_bytes_per_token=sum(moving),
        notes=tuple(_notes(parts, devices, sizes, precision, main, sum(moving))),
    )


def _computes_on(device: str, main: str) -> str:
    return main if device in ("cpu", "disk") else device


def _limits(wish: PlanWish, sizes: ModelSizes, precision: str, context: int, memory: dict[str, int]) -> dict[str, int]:
    """What the planner may fill of each device: all of it, or what the text leaves free.

    The cache is shared out by the GPUs' memory, as the layers will be; the working space is each device's own.
    """
    gpus = [name for name in memory if _GPU.fullmatch(name)]
    if not wish.room_for_text:
        return memory
    text = (sizes.kv_bytes(precision, context, wish.lanes) or 0) + sizes.state_bytes(precision, wish.lanes)
    working = sizes.working_bytes(precision, context, wish.lanes) + sizes.logits_bytes(precision, wish.lanes)
    computing = gpus or [name for name in memory if name != "disk"]
    together = sum(memory[name] for name in computing) or 1
    limits = dict(memory)
    for name in computing:
        limits[name] = max(0, memory[name] - text * memory[name] // together - working)
    return limits


def _device_map(
    wish: PlanWish, blueprint: Blueprint, precision: str, float_dtype: str, limits: dict[str, int]
) -> dict[str, str]:
    asked = wish.device_map
    there = None if wish.devices is None else [*limits, "disk"]
    if not isinstance(asked, str):
        return check_table(asked, blueprint, there)
    if asked not in PLANNED:
        return {"": checked_device(asked, there)}
    keyed = {int(name[5:]) if _GPU.fullmatch(name) else name: size for name, size in limits.items()}
    try:
        return plan_for(blueprint, asked, keyed, precision, float_dtype)
    except (ValueError, ZeroDivisionError) as error:  # accelerate's own refusals, such as no room for a single layer
        raise CannotLoad(
            "accelerate finds no plan for these devices: {said}.",
            "Give the devices more memory, or choose a smaller precision.",
            said=str(error).splitlines()[0].rstrip(". ")[:200] if str(error) else type(error).__name__,
        ) from None


def _parts(
    blueprint: Blueprint,
    sizes: ModelSizes,
    device_map: dict[str, str],
    main: str,
    precision: str,
    float_dtype: str,
    context: int,
    lanes: int,
) -> list[PlacedPart]:
    """Each part with its device, in the model's order; one that is split stands once for each device."""
    skeleton, each = blueprint.skeleton, ELEMENT_BYTES[float_dtype]
    packing = packing_for(blueprint, precision)
    found: dict[tuple[str, str], tuple[int, int | None]] = {}
    for tensor in skeleton.tensors:
        inside = [name for name in device_map if not name or f"{tensor.name}.".startswith(f"{name}.")]
        device = device_map[max(inside, key=len)] if inside else main
        key = (part_of(tensor.name), device)
        size = tensor_bytes(skeleton, tensor, precision, float_dtype, packing)
        layer = tensor.layer if tensor.role != "not for text" else None
        found[key] = (found.get(key, (0, None))[0] + size, layer)
    parts, cached = [], set()
    for (name, device), (size, layer) in found.items():
        cache = 0
        if layer is not None and layer not in cached and sizes.cache is not None and layer < len(sizes.cache):
            cached.add(layer)
            kept = sizes.cache[layer]
            cache = (kept.held(context) * each + kept.state_bytes(each)) * lanes
        parts.append(PlacedPart(name, device, size, layer, cache))
    return parts


def _notes(
    parts: list[PlacedPart],
    devices: list[PlannedDevice],
    sizes: ModelSizes,
    precision: str,
    main: str,
    moved: int,
) -> list[str]:
    notes = []
    on_disk = [part for part in parts if part.device == "disk"]
    if on_disk and sizes.weights(precision).packed:
        notes.append("Quantised weights cannot lie on disk, so this plan cannot be loaded: give it more memory.")
    elif on_disk and len(on_disk) == len(parts):
        notes.append("Everything would lie on disk, and something has to compute: give a device more memory.")
    if main == "cpu" and any(device.name not in ("cpu", "disk") for device in devices):
        notes.append("No GPU has room for a layer beside the cache and the working space: the CPU computes everything.")
    if moved:
        where = "the CPU" if main == "cpu" else _words(main)
        notes.append(f"{moved / 1e9:,.1f} GB of weights travel to {where} again for every token.")
    for device in devices:
        if device.memory_bytes and device.free_bytes < 0:
            short = -device.free_bytes / 1e9
            notes.append(
                f"{_words(device.name)} is {short:,.1f} GB too small for its weights, the cache and the working space."
            )
    if sizes.cache is None:
        notes.append("The cache of this family is not predictable, so no room is counted for it.")
    return notes


def _words(device: str) -> str:
    return f"GPU {device[5:]}" if _GPU.fullmatch(device) else device
