"""What this machine is, and what is wrong with it: each finding with its way out."""

from __future__ import annotations

import ctypes.util
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

from engine.catalog import hub_cache

LIBRARIES = (
    "torch", "transformers", "accelerate", "bitsandbytes", "safetensors", "tokenizers", "gguf", "numpy",
    "PySide6-Essentials", "pyqtgraph", "psutil", "nvidia-ml-py", "platformdirs",
)  # fmt: skip
NEEDED = ("torch", "transformers", "safetensors", "tokenizers", "accelerate", "numpy")
BAD_PYSIDE = ("6.11.0", "6.11.1", "6.12.0")  # they lose references of True and None with each signal (THR-1)
LOW_MEMORY_BYTES, LOW_DISK_BYTES = 1_000_000_000, 2_000_000_000
BUSY_SHARE = 0.5  # of the cores used by others: torch's parallel regions then run many times slower
# Names that the loader finds, Debian's package; what Qt's xcb plugin needs beyond a desktop's own.
QT_LIBRARIES = {
    "EGL": "libegl1", "GL": "libgl1", "xkbcommon": "libxkbcommon0", "fontconfig": "libfontconfig1",
    "dbus-1": "libdbus-1-3",
    "xcb-cursor": "libxcb-cursor0", "xcb-icccm": "libxcb-icccm4", "xcb-keysyms": "libxcb-keysyms1",
    "xkbcommon-x11": "libxkbcommon-x11-0", "xcb-image": "libxcb-image0", "xcb-render-util": "libxcb-render-util0",
}  # fmt: skip


SWITCH_S = 1e-4  # how long one Python thread lets another wait for Python's lock; Python's own is fifty times that


def calm_threads() -> None:
    """Lets threads live side by side: torch's sleep soon instead of spinning, Python's take turns often. To be called
    before torch is imported.

    Threads that spin for ever take the cores from all others; those that sleep at once must be woken at each of a
    step's hundred products (8 lanes: 33 ms for what takes 24). Where the library knows it (libgomp), they spin for
    some milliseconds, as long as a step, and then sleep. Shorter spinning is worst: with another busy process on the
    machine a step takes 100 ms at a few hundred microseconds, and 30 at none or at milliseconds.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "300000")
    # A decode step asks for Python's lock again after each of some fifty NumPy and torch calls, and a window that
    # paints holds it: sampling took 6.1 ms of a step beside the window, and takes 4 with short turns (alone 1.3).
    sys.setswitchinterval(SWITCH_S)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor. `level`: "fine", "note", "problem" (something works less well), "stop" (nothing runs)."""

    level: str
    about: str
    what: str
    fix: str = ""


def examine() -> list[Finding]:
    """All findings, in the order in which a person would look: machine, libraries, devices, model, disk, window."""
    return [*_machine(), *_libraries(), *_devices(), *_default_model(), *_disk(), *_window()]


def can_run(findings: list[Finding]) -> bool:
    """Whether this machine can run a model at all."""
    return not any(finding.level == "stop" for finding in findings)


def _gb(size: float) -> str:
    return f"{size / 1e9:,.1f} GB"


def _machine() -> list[Finding]:
    memory = psutil.virtual_memory()
    cores, logical = psutil.cpu_count(logical=False) or 0, os.cpu_count() or 1
    findings = [
        Finding("fine", "system", f"{platform.system()} {platform.release()}, Python {platform.python_version()}"),
        Finding("fine", "processor", f"{_processor_name()}, cores: {cores or logical}, threads: {logical}"),
    ]
    told = f"{_gb(memory.total)}, {_gb(memory.available)} available"
    if memory.available < LOW_MEMORY_BYTES:
        findings.append(
            Finding("problem", "memory", f"{told}: little is left.", "Close other programs, or choose a small model.")
        )
    else:
        findings.append(Finding("fine", "memory", told))
    findings.append(_load(logical))
    return findings


def _processor_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown processor"


def _load(cores: int) -> Finding:
    """How busy others keep the machine. This process is nearly idle here, so what is measured is theirs."""
    try:
        average = psutil.getloadavg()[0]
    except (OSError, AttributeError):
        average = 0.0
    used = psutil.cpu_percent(interval=0.3) / 100 * cores
    told = f"{used:.1f} of {cores} cores in use now, {average:.1f} on average over a minute"
    if used > cores * BUSY_SHARE or average > cores:
        return Finding(
            "problem",
            "load",
            f"The machine is busy: {told}. Times measured now are too long.",
            "Close what uses the processor; torch is many times slower when it must share its cores.",
        )
    return Finding("fine", "load", told)


def version_of(name: str) -> str:
    """The installed version of a package, "" if it is missing."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _libraries() -> list[Finding]:
    findings = []
    for name in LIBRARIES:
        version = version_of(name) or (version_of("PySide6") if name.startswith("PySide6") else "")
        if not version:
            level = "stop" if name in NEEDED else "problem"
            findings.append(Finding(level, name, f"{name} is not installed.", f"Install it: pip install {name}."))
        elif name.startswith("PySide6") and version in BAD_PYSIDE:
            findings.append(
                Finding(
                    "problem",
                    name,
                    f"{name} {version} damages memory when signals are sent often, and can end the window.",
                    "Install another version: pip install 'PySide6-Essentials==6.11.3'.",
                )
            )
        else:
            findings.append(Finding("fine", name, version))
    return findings


def _devices() -> list[Finding]:
    if importlib.util.find_spec("torch") is None:
        return []
    try:
        import torch
    except Exception as error:  # a build for another processor, a missing library of the system
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        return [Finding("stop", "torch", f"torch cannot be imported: {reason}.", "Install it again: make setup.")]
    findings = []
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            findings.append(
                Finding("fine", f"cuda:{index}", f"{properties.name}, {_gb(properties.total_memory)}, "
                        f"compute capability {properties.major}.{properties.minor}")
            )  # fmt: skip
    elif torch.version.cuda is not None and shutil.which("nvidia-smi"):
        findings.append(
            Finding(
                "problem",
                "cuda",
                "There is an NVIDIA driver, but torch cannot use the GPU.",
                "Update the driver, or install the torch that fits it.",
            )
        )
    if torch.backends.mps.is_available():
        findings.append(Finding("fine", "mps", "Apple GPU"))
    if not findings:
        findings.append(Finding("note", "gpu", "No GPU that torch can use: models run on the processor."))
    threads = torch.get_num_threads()
    findings.append(
        Finding("fine", "processor kernels", f"{torch.backends.cpu.get_cpu_capability()}, threads: {threads}")
    )
    findings.append(_quantisation())
    return findings


def _quantisation() -> Finding:
    if importlib.util.find_spec("bitsandbytes") is None:
        return Finding("problem", "int8, nf4, fp4", "bitsandbytes is missing.", "Install it: pip install bitsandbytes.")
    try:
        import torch
        from bitsandbytes.functional import dequantize_4bit, quantize_4bit

        packed, state = quantize_4bit(torch.ones(64), quant_type="nf4")
        exact = bool(torch.allclose(dequantize_4bit(packed, state), torch.ones(64), atol=0.01))
    except Exception as error:  # its native library fails in many ways
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        return Finding(
            "problem", "int8, nf4, fp4", f"bitsandbytes does not work here: {reason}.", "Choose bfloat16 or float32."
        )
    if not exact:
        return Finding(
            "problem", "int8, nf4, fp4", "bitsandbytes computes wrongly here.", "Choose bfloat16 or float32."
        )
    return Finding("fine", "int8, nf4, fp4", "bitsandbytes packs and unpacks a block of numbers rightly")


def _default_model() -> list[Finding]:
    from engine.default_model import default_model_path, is_ready

    folder = default_model_path()
    if is_ready(folder):
        return [Finding("fine", "default model", str(folder))]
    what = "The default model is damaged or half made." if folder.exists() else "The default model is not here yet."
    return [Finding("problem", "default model", what, "Run make setup, which fetches it once.")]


def _disk() -> list[Finding]:
    from engine.default_model import default_model_path

    findings = []
    for about, folder in (("cache of this program", default_model_path().parent), ("hub cache", hub_cache())):
        place = folder
        while not place.exists() and place != place.parent:
            place = place.parent
        try:
            free = shutil.disk_usage(place).free
        except OSError as error:
            findings.append(
                Finding("problem", about, f"{folder} cannot be looked at: {error.strerror}.", "Check the disk.")
            )
            continue
        told = f"{folder}, {_gb(free)} free"
        if free < LOW_DISK_BYTES:
            findings.append(
                Finding("problem", about, f"{told}: little is left.", "Free some space before fetching models.")
            )
        elif not os.access(place, os.W_OK):
            findings.append(Finding("problem", about, f"{told}, but it cannot be written.", "Check its permissions."))
        else:
            findings.append(Finding("fine", about, told))
    return findings


def _window() -> list[Finding]:
    """Fonts, system libraries and a display; on Linux only, where they may be missing."""
    if not sys.platform.startswith("linux"):
        return []
    findings = []
    missing = {name: package for name, package in QT_LIBRARIES.items() if ctypes.util.find_library(name) is None}
    if missing:
        findings.append(
            Finding(
                "problem",
                "system libraries",
                f"The window needs system libraries that are missing: {', '.join(missing)}.",
                f"On Debian or Ubuntu: apt-get install {' '.join(missing.values())}.",
            )
        )
    else:
        findings.append(Finding("fine", "system libraries", "what the window needs is there"))
    findings.append(_fonts())
    if not os.environ.get("DISPLAY") and not os.environ.get("WAYLAND_DISPLAY"):
        findings.append(
            Finding("note", "display", "There is no display: the window cannot show, everything else works.",
                    "Use the commands, or start it where there is a display.")
        )  # fmt: skip
    return findings


def _fonts() -> Finding:
    places = [Path("/usr/share/fonts"), Path("/usr/local/share/fonts"), Path.home() / ".local/share/fonts"]
    names = [
        file.name
        for place in places
        if place.is_dir()
        for file in place.rglob("*")
        if file.suffix[:3] in (".tt", ".ot")
    ]
    if not names:
        return Finding("problem", "fonts", "No fonts are installed, so texts would be empty boxes.",
                       "On Debian or Ubuntu: apt-get install fonts-dejavu-core fonts-noto-cjk.")  # fmt: skip
    if not any("cjk" in name.lower() or "hei" in name.lower() or "ming" in name.lower() for name in names):
        return Finding("note", "fonts", f"None of the fonts ({len(names)}) has Chinese characters.",
                       "On Debian or Ubuntu: apt-get install fonts-noto-cjk.")  # fmt: skip
    return Finding("fine", "fonts", f"{len(names)}, Chinese among them")
