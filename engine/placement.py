"""Which part of a model lies on which device: a wish checked against the skeleton, or a plan by accelerate."""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import CannotLoad
from engine.memory import packing_for, part_of, tensor_bytes, weights_by_part
from engine.quantised import packed_size
from engine.readings import device_limits, read_memory
from engine.sizes import ELEMENT_BYTES

if TYPE_CHECKING:
    from engine.blueprint import Blueprint
    from engine.settings import LoadPlan

log = logging.getLogger(__name__)

PLANNED = ("auto", "balanced", "balanced_low_0", "sequential")
_DEVICE = re.compile(r"cpu|disk|mps|(cuda|xpu)(:(\d+))?|\d+")
CPU_SHARE = 0.9  # of what the machine could still give; the rest is for the cache and the window


@dataclass(frozen=True, slots=True)
class Placement:
    """`device_map` for the loader: module name → device ("" is the whole model)."""

    device_map: dict[str, str]
    devices: tuple[str, ...]
    disk_bytes: int
    notes: tuple[str, ...] = ()


def devices_here() -> list[str]:
    """The devices of this machine on which layers can lie, the fastest first."""
    import torch

    devices = [f"cuda:{i}" for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    if torch.backends.mps.is_available():
        devices.append("mps")
    return [*devices, "cpu", "disk"]


def checked_device(name: str, here: list[str] | None = None) -> str:
    """A device's full name ("cuda" and "0" are "cuda:0"). Raises CannotLoad if there is no such device.

    here: the devices to choose from, None for this machine's.
    """
    here = devices_here() if here is None else here
    text = str(name).strip().lower()
    if not _DEVICE.fullmatch(text):
        raise CannotLoad(
            "{name} is not the name of a device.",
            "Devices of this machine: {here}; or auto, balanced, sequential.",
            name=repr(str(name)[:60]),
            here=", ".join(here),
        )
    if text.isdigit():
        text = f"cuda:{text}"
    elif text in ("cuda", "xpu"):
        text += ":0"
    if text not in here:
        raise CannotLoad(
            "There is no device {name} on this machine.",
            "Choose one of {here}, or auto.",
            name=text,
            here=", ".join(here),
        )
    return text


def place(plan: LoadPlan, blueprint: Blueprint, precision: str, float_dtype: str) -> Placement:
    """Where each part will lie, and what that means. Raises CannotLoad before anything is read (LOD-10, LOD-29)."""
    sizes = module_sizes(blueprint, precision, float_dtype, plan.double_quantisation)
    limits = {checked_device(device): int(size) for device, size in plan.max_memory_bytes}
    asked = plan.device_map
    if not isinstance(asked, str):
        device_map = check_table(asked, blueprint)
    elif asked in PLANNED:
        device_map = _planned(asked, limits, blueprint, precision, float_dtype, sizes[""])
    else:
        device_map = {"": checked_device(asked)}
    devices = tuple(dict.fromkeys(device_map.values()))
    disk = sum(sizes.get(name, 0) for name, device in device_map.items() if device == "disk")
    if "disk" in devices:
        if precision not in ELEMENT_BYTES or blueprint.quantisation:
            raise CannotLoad(
                "Quantised weights cannot lie on disk, and {size} MB of them would.",
                "Choose a plain number type, or give the model more memory.",
                size=f"{disk / 1e6:,.0f}",
            )
        if set(devices) == {"disk"} and "" in device_map:
            raise CannotLoad(
                "The whole model would lie on disk, and something has to compute.",
                "Allow more memory, or put at least the embedding and the norm on a device that computes.",
            )
        _check_offload_folder(plan.offload_folder)
    notes = []
    if limits and (not isinstance(asked, str) or asked not in PLANNED):
        notes.append(
            "Memory limits are for a placement that is planned (auto, balanced, sequential): none was applied."
        )
    if disk:
        notes.append(f"{disk:,} bytes of the weights lie on disk and are read again for every word: slow.")
    return Placement(device_map, devices, disk, (*notes, *_precision_notes(devices, precision, float_dtype)))


def check_table(
    table: tuple[tuple[str, str], ...], blueprint: Blueprint, here: list[str] | None = None
) -> dict[str, str]:
    """A table of (module, device) as a device map. Raises CannotLoad if it names what is not there or forgets."""
    names = {name for name, _ in blueprint.skeleton.model.named_modules()}
    tensors = [name for name, _ in blueprint.skeleton.model.named_parameters(remove_duplicate=False)]
    buffers = [name for name, _ in blueprint.skeleton.model.named_buffers()]
    device_map: dict[str, str] = {}
    for name, device in table:
        if name not in names and name not in tensors and name not in buffers:
            raise CannotLoad(
                "The device map names {name}, which this model does not have.",
                "Its layers: {count}; its parts are called {parts}.",
                name=repr(name[:80]),
                count=blueprint.layers,
                parts=", ".join(_parts(blueprint)[:6]),
            )
        device_map[name] = checked_device(device, here)
    for tied, source in (getattr(blueprint.skeleton.model, "all_tied_weights_keys", None) or {}).items():
        places = [name for name in device_map if _inside(source, name)]
        if places and not any(_inside(tied, name) for name in device_map):  # lies where its other name is
            device_map[tied.rpartition(".")[0]] = device_map[max(places, key=len)]
    forgotten = [t for t in tensors if not any(_inside(t, name) for name in device_map)]
    if forgotten:
        parts = list(dict.fromkeys(part_of(tensor) for tensor in forgotten))
        raise CannotLoad(
            "The device map leaves out {parts}.",
            "Add what is missing, or give the name {empty} for all that is left.",
            parts=", ".join(parts[:6]) + (f", … ({len(parts)} parts)" if len(parts) > 6 else ""),
            empty='""',
        )
    main = next((device for device in device_map.values() if device != "disk"), "cpu")
    for buffer in buffers:  # such as the rotary table, of which nobody thinks
        if not any(_inside(buffer, name) for name in device_map):
            device_map[buffer.rpartition(".")[0] or buffer] = main
    return _without_nesting(device_map, [*tensors, *buffers])


def _without_nesting(device_map: dict[str, str], tensors: list[str]) -> dict[str, str]:
    """The same placement with no name inside another: accelerate loads such a map only in part."""
    if not any(a != b and _inside(a, b) for a in device_map for b in device_map):
        return device_map
    flat: dict[str, dict[str, str]] = {}
    for tensor in tensors:
        name = max((name for name in device_map if _inside(tensor, name)), key=len)
        flat.setdefault(part_of(tensor), {})[tensor] = device_map[name]
    result: dict[str, str] = {}
    for part, held in flat.items():
        if len(set(held.values())) == 1:
            result[part] = next(iter(held.values()))
        else:
            result |= {tensor.rpartition(".")[0]: device for tensor, device in held.items()}
    return result


def _inside(tensor: str, module: str) -> bool:
    return not module or tensor == module or tensor.startswith(f"{module}.")


def _parts(blueprint: Blueprint) -> list[str]:
    return list(dict.fromkeys(part_of(tensor.name) for tensor in blueprint.skeleton.tensors))


def module_sizes(
    blueprint: Blueprint, precision: str, float_dtype: str, double_quantisation: bool = True
) -> dict[str, int]:
    """Predicted bytes of every module by name; "" is the whole model. Tied tensors count once."""
    packing = packing_for(blueprint, precision, double_quantisation)
    sizes = {"": sum(weights_by_part(blueprint.skeleton, precision, float_dtype, packing).values())}
    for tensor in blueprint.skeleton.tensors:
        size = tensor_bytes(blueprint.skeleton, tensor, precision, float_dtype, packing)
        name = tensor.name
        while name:
            sizes[name] = sizes.get(name, 0) + size
            name = name.rpartition(".")[0]
    return sizes


def _planned(
    wish: str, limits: dict[str, int], blueprint: Blueprint, precision: str, float_dtype: str, total: int
) -> dict[str, str]:
    """accelerate's plan. Without a GPU and with enough memory that is the CPU, without hooks around each layer."""
    here = devices_here()
    if here == ["cpu", "disk"]:
        budget = limits.get("cpu", int(read_memory().available_bytes * CPU_SHARE))
        if total <= budget:
            return {"": "cpu"}
        limits = {"cpu": budget}
    elif here[0] == "mps" and not limits:
        return {"": "mps"}
    if limits:  # the planner uses the devices that it is told of and no other, and a limit takes none away
        limits = {limit.name: limit.free_bytes for limit in device_limits() if limit.name in here} | limits
    keyed = {_accelerate_key(device): size for device, size in limits.items()}
    return plan_for(blueprint, wish, keyed or None, precision, float_dtype)


def plan_for(
    blueprint: Blueprint, wish: str, max_memory: dict[Any, Any] | None, precision: str, float_dtype: str
) -> dict[str, str]:
    """A device map by accelerate's planner on the empty model; works for GPUs that are not there."""
    import torch
    from accelerate import infer_auto_device_map
    from accelerate.utils import CustomDtype, get_balanced_memory, get_max_memory

    model = blueprint.skeleton.model
    plain = getattr(torch, precision if precision in ELEMENT_BYTES else float_dtype)
    packing = packing_for(blueprint, precision)
    packed: dict[str, tuple[int, int]] = {}  # name: bytes and numbers
    for tensor in blueprint.skeleton.tensors:
        if packing is not None and packing.packs(tensor) and (size := packed_size(tensor, packing)):
            packed[tensor.name] = (sum(size), tensor.numel)
    each = sum(size for size, _ in packed.values()) / max(1, sum(count for _, count in packed.values()))
    dtype = plain
    if packed and each < 1.5:  # what the planner knows between four bits and two bytes
        dtype = CustomDtype.INT4 if each < 0.75 else torch.int8
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    sizes: dict[str, Any] = {
        "no_split_module_classes": sorted(model._no_split_modules or ()),
        "dtype": dtype,
        # Named one by one: the planner takes the smaller of its dtype and the empty model's own.
        "special_dtypes": {name: plain for name in names if name not in packed},
    }
    own = dict(max_memory) if max_memory else None  # it is written into
    library = logging.getLogger("accelerate.utils.modeling")
    level = library.level
    library.setLevel(logging.ERROR)  # it warns of each GPU that is not there, which is known
    try:
        if wish == "sequential":
            memory = get_max_memory(own)
        else:
            memory = get_balanced_memory(model, max_memory=own, low_zero=wish == "balanced_low_0", **sizes)
        device_map = infer_auto_device_map(model, max_memory=memory, **sizes)
    finally:
        library.setLevel(level)
    return {name: f"cuda:{device}" if isinstance(device, int) else str(device) for name, device in device_map.items()}


def _accelerate_key(device: str) -> str | int:
    return int(device.rpartition(":")[2]) if device.startswith(("cuda:", "xpu:")) else device


def _check_offload_folder(folder: str | None) -> None:
    if folder is None:
        return
    path = Path(folder).expanduser()
    try:
        path.mkdir(parents=True, exist_ok=True)
        writable = os.access(path, os.W_OK)
        probe = path / ".glasswork-probe"
        probe.touch()
        probe.unlink()
    except OSError:
        writable = False
    if not writable:
        raise CannotLoad(
            "The offload folder {folder} cannot be written.", "Choose another folder for it.", folder=folder
        )


def _precision_notes(devices: tuple[str, ...], precision: str, float_dtype: str) -> list[str]:
    """What a device does badly in this precision (LOD-12)."""
    import torch

    notes = []
    plain = precision if precision in ELEMENT_BYTES else float_dtype
    if "cpu" in devices and plain == "float16":
        notes.append("float16 is slow on a processor; bfloat16 is as small and faster on most.")
    if "cpu" in devices and precision not in ELEMENT_BYTES:
        notes.append(f"{precision} saves memory on a processor, and costs speed: it is unpacked for every word.")
    for device in devices:
        if device.startswith("cuda") and plain == "bfloat16":
            major, _ = torch.cuda.get_device_capability(device)
            if major < 8:
                notes.append(f"{device} has no bfloat16 units of its own; float16 is faster there.")
    return notes
