"""What this machine says about memory, now. Imports no torch: a window reads memory before a model is there."""

from __future__ import annotations

import ctypes
import gc
import logging
import mmap
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from engine.events import GpuReading, MemoryReading
from engine.sizes import DeviceLimit

log = logging.getLogger(__name__)

_M_MMAP_THRESHOLD = -3  # malloc.h
_LARGE_BYTES = 256 * 1024
_LARGEST_THRESHOLD = 32 * 1024 * 1024  # where glibc's own adjusting ends on 64-bit machines


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


def own_bytes() -> int:
    """Measured now: what of this process's memory is not mapped from files; all of it where the system does not tell.

    Mapped weights come into memory page by page, as words are used for the first time: that is no growth.
    """
    info = psutil.Process().memory_info()
    return info.rss - getattr(info, "shared", 0)


def device_limits() -> tuple[DeviceLimit, ...]:
    """What each device of this machine could still give, the fastest first. GPUs need torch imported; none is woken."""
    machine = psutil.virtual_memory()
    limits = [*_gpu_limits(), DeviceLimit("cpu", machine.available, machine.total)]
    return tuple(limits)


def _gpu_limits() -> list[DeviceLimit]:
    """By torch where CUDA is in use already, else by the driver alone: asking torch would set a context up (0.5 GB)."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_available():
        return []
    found = []
    # With CUDA_VISIBLE_DEVICES torch may number them in another way than the driver, so only torch can be asked.
    if torch.cuda.is_initialized() or os.environ.get("CUDA_VISIBLE_DEVICES") is not None:
        for index in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(index)
            found.append(DeviceLimit(f"cuda:{index}", free, total, torch.cuda.get_device_name(index)))
        return found
    nvml = _nvml()
    if nvml is None:
        return found
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            found.append(
                DeviceLimit(f"cuda:{index}", int(memory.free), int(memory.total), str(nvml.nvmlDeviceGetName(handle)))
            )
    except nvml.NVMLError as error:
        log.info("the driver does not tell its memory: %s", error)
        return []
    return found


def give_memory_back(collect: bool = True) -> None:
    """Collects what nobody holds and asks the allocators to return it: CUDA's cache, and the C library's free lists.

    collect: False where nothing was dropped in a cycle; a collection takes a third of a second with torch loaded.
    Without malloc_trim a process kept up to 420 MB with no live tensor after cancelled loads (LOD-30).
    """
    if collect:
        gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    if trim := c_library("malloc_trim"):
        trim(0)


@contextmanager
def weights_apart() -> Iterator[None]:
    """While inside, the C library puts every large block into a mapping of its own, which goes back when it is freed.

    glibc otherwise learns from the first freed tensor to keep the next ones on its heap, where a hole between two
    small blocks cannot be returned: after unloading float32 weights 20 % of them stayed. Nothing happens elsewhere.
    """
    mallopt = c_library("mallopt")
    if mallopt is None:
        yield
        return
    mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
    try:
        yield
    finally:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_THRESHOLD)


def mapped_ranges() -> list[tuple[int, int]]:
    """The addresses at which weight files are mapped into this process, (begin, end); empty where no system tells."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    spans = [line.split(maxsplit=5) for line in lines if line.endswith(".safetensors")]
    return [(int(begin, 16), int(end, 16)) for begin, _, end in (fields[0].partition("-") for fields in spans)]


def forget_pages(tensor: Any, mapped: list[tuple[int, int]]) -> None:
    """Lets go of the memory behind a tensor that is mapped from a file; what is read of it again comes from the file.

    mapped: from `mapped_ranges`; nothing happens to a tensor outside. Elsewhere the system takes such pages back when
    it needs them. The tensor must never have been written to.
    """
    first, last = tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size()
    advise = c_library("madvise")
    if advise is None or not any(begin <= first and last <= end for begin, end in mapped):
        return
    begin = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE  # whole pages only: the others hold its neighbours
    size = (last - begin) // mmap.PAGESIZE * mmap.PAGESIZE
    if size > 0:
        advise(ctypes.c_void_p(begin), ctypes.c_size_t(size), mmap.MADV_DONTNEED)


@cache
def c_library(name: str):
    """A function of the C library that only glibc has, or None."""
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018  raises where the C library is another
        return getattr(library, name)
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
