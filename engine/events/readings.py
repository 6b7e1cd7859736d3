"""The memory of this process, this machine and its GPUs at one moment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuReading:
    name: str
    allocated_bytes: int  # by tensors (the allocator)
    reserved_bytes: int  # by the allocator from the driver
    driver_used_bytes: int | None  # all processes (NVML); None: the driver does not tell
    total_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """Measured now."""

    time_s: float  # monotonic
    process_bytes: int  # resident
    available_bytes: int  # what the machine could still give
    total_bytes: int
    gpus: tuple[GpuReading, ...] = ()
