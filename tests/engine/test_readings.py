"""Memory is measured, and a reading costs no torch."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest

from engine import readings
from engine.readings import give_memory_back, read_memory


def test_a_reading_is_this_process_and_this_machine():
    reading = read_memory()
    assert reading.process_bytes == pytest.approx(psutil.Process().memory_info().rss, rel=0.1)
    assert reading.total_bytes == psutil.virtual_memory().total
    assert 0 < reading.available_bytes <= reading.total_bytes
    assert reading.gpus == ()


def test_a_reading_imports_no_torch():
    code = (
        "import sys; from engine.readings import read_memory, give_memory_back; read_memory(); give_memory_back();"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
def test_freed_memory_goes_back_to_the_system():
    blocks = [bytearray(100_000) for _ in range(1000)]
    kept = bytearray(100_000)
    full = read_memory().process_bytes
    del blocks
    give_memory_back()
    assert read_memory().process_bytes < full - 80_000_000
    assert kept is not None


def recorded_gpu(monkeypatch, used):
    """What torch and the driver said on a machine with one GPU."""
    cuda = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        device_count=lambda: 1,
        get_device_properties=lambda i: SimpleNamespace(name="H200", uuid="abc", total_memory=150_000_000_000),
        memory_allocated=lambda i: 269_030_016,
        memory_reserved=lambda i: 287_309_824,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))

    class NVMLError(Exception):
        pass

    def info(handle):
        if used is None:
            raise NVMLError("not supported")
        return SimpleNamespace(used=used)

    nvml = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlDeviceGetHandleByUUID=lambda uuid: {"GPU-abc": "handle"}[uuid],
        nvmlDeviceGetMemoryInfo=info,
    )
    monkeypatch.setattr(readings, "_nvml", lambda: nvml)


def test_a_gpu_is_read_from_its_allocator_and_its_driver(monkeypatch):
    recorded_gpu(monkeypatch, used=900_000_000)
    gpu = read_memory().gpus[0]
    assert (gpu.name, gpu.allocated_bytes, gpu.reserved_bytes) == ("H200", 269_030_016, 287_309_824)
    assert (gpu.driver_used_bytes, gpu.total_bytes) == (900_000_000, 150_000_000_000)


def test_a_driver_that_does_not_tell_is_none_and_no_guess(monkeypatch):
    recorded_gpu(monkeypatch, used=None)
    assert read_memory().gpus[0].driver_used_bytes is None
