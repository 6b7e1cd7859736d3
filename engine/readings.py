"""What this machine says about memory, now. Imports no torch: a window reads memory before a model is there."""

from __future__ import annotations

import ctypes
import gc
import logging
import sys
import time
from functools import cache

import psutil

from engine.events import GpuReading, MemoryReading

log = logging.getLogger(__name__)


def read_memory() -> MemoryReading:
    """Measured now: this process, the machine, each GPU by the allocator (torch) and by the driver (NVML). Bytes."""
    machine = psutil.virtual_memory()
    return MemoryReading(
        time_s=time.monotonic(),
        process_bytes=psutil.Process().memory_info().rss,
        available_bytes=machine.available,
        total_bytes=machine.total,
        gpus=_read_gpus(),
    )


def give_memory_back() -> None:
    """Collects what nobody holds and asks the allocators to return it: CUDA's cache, and the C library's free lists.

    Without malloc_trim a process kept up to 420 MB with no live tensor after cancelled loads (LOD-30).
    """
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    if trim := _malloc_trim():
        trim(0)


@cache
def _malloc_trim():
    """glibc's malloc_trim, or None on platforms whose C library has none."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None


def _read_gpus() -> tuple[GpuReading, ...]:
    """One reading per CUDA device, empty until torch has used CUDA in this process."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return ()
    readings = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        readings.append(
            GpuReading(
                name=properties.name,
                allocated_bytes=torch.cuda.memory_allocated(index),
                reserved_bytes=torch.cuda.memory_reserved(index),
                driver_used_bytes=_driver_used(str(getattr(properties, "uuid", "")), index),
                total_bytes=properties.total_memory,
            )
        )
    return tuple(readings)


@cache
def _nvml():
    """The initialised NVML binding, or None where there is no NVIDIA driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:  # the binding raises its own class, or OSError where the library is missing
        log.info("NVML is not available: %s", error)
        return None
    return pynvml


def _driver_used(uuid: str, index: int) -> int | None:
    """Bytes that all processes use on a GPU, by the driver. None: it does not tell.

    torch and NVML may number the devices differently (CUDA_VISIBLE_DEVICES), so the device is found by its UUID.
    """
    nvml = _nvml()
    if nvml is None:
        return None
    try:
        if uuid:
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
        else:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
    except nvml.NVMLError as error:
        log.info("the driver does not tell its memory: %s", error)
        return None
