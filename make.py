"""Everything that can be done with this checkout, with nothing but Python: `python3 make.py run`.

run          prepare what is missing, then open the window (without a display: the same job offscreen)
setup        create .venv, install the pinned libraries, fetch and convert the small default model
test         the whole suite, offscreen; further arguments go to pytest
lint         ruff, import contracts, type check of engine/
bench        our loop beside generate(), as ratios
screenshots  every view rendered offscreen from real data, into screenshots/ or the folder named
clean        remove what was generated here; .venv and the models in the cache stay
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  before anything that an older Python cannot read
    import os
    import subprocess

    for newer in ("python3.13", "python3.12", "python3.11", "python3.14"):
        try:
            subprocess.check_output([newer, "--version"], stderr=subprocess.STDOUT)
        except (OSError, subprocess.CalledProcessError):
            continue
        os.execvp(newer, [newer] + sys.argv)  # noqa: RUF005
    sys.exit(
        "error: Python 3.11 or newer is needed, and this is %s.\n"  # noqa: UP031
        "fix: Install a newer Python, or name one: make PYTHON=/path/to/python3.11" % sys.version.split()[0]
    )

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STAMP = VENV / "installed.sha256"
MOST_TEST_WORKERS = 4  # each holds a model and torch of its own, about 2 GB

# What Qt's libraries and its offscreen and xcb plugins ask of a Linux system, with Debian's package for each.
QT_LIBRARIES = {
    "libEGL.so.1": "libegl1",
    "libGL.so.1": "libgl1",
    "libX11.so.6": "libx11-6",
    "libdbus-1.so.3": "libdbus-1-3",
    "libfontconfig.so.1": "libfontconfig1",
    "libfreetype.so.6": "libfreetype6",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libgssapi_krb5.so.2": "libgssapi-krb5-2",
    "libxkbcommon.so.0": "libxkbcommon0",
    "libbrotlidec.so.1": "libbrotli1",
    "libzstd.so.1": "libzstd1",
}
X11_LIBRARIES = {
    "libX11-xcb.so.1": "libx11-xcb1",
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libxcb-glx.so.0": "libxcb-glx0",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-image.so.0": "libxcb-image0",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxcb-randr.so.0": "libxcb-randr0",
    "libxcb-render-util.so.0": "libxcb-render-util0",
    "libxcb-render.so.0": "libxcb-render0",
    "libxcb-shape.so.0": "libxcb-shape0",
    "libxcb-shm.so.0": "libxcb-shm0",
    "libxcb-sync.so.1": "libxcb-sync1",
    "libxcb-util.so.1": "libxcb-util1",
    "libxcb-xfixes.so.0": "libxcb-xfixes0",
    "libxcb-xkb.so.1": "libxcb-xkb1",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
}
WAYLAND_LIBRARIES = {"libwayland-client.so.0": "libwayland-client0", "libwayland-cursor.so.0": "libwayland-cursor0"}
FONT_FOLDERS = ("/usr/share/fonts", "/usr/local/share/fonts", "~/.fonts", "~/.local/share/fonts")


class Failed(Exception):
    """A step failed: one sentence, and a way out."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.what, self.fix = what, fix


def say(sentence: str) -> None:
    print(sentence, flush=True)


# ---------------------------------------------------------------- the system


def can_load(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def has_fonts() -> bool:
    endings = (".ttf", ".otf", ".ttc", ".pfb")
    for folder in FONT_FOLDERS:
        for _, _, names in os.walk(os.path.expanduser(folder)):
            if any(name.lower().endswith(endings) for name in names):
                return True
    return False


def missing_packages(libraries: dict[str, str], present: Callable[[str], bool], fonts: bool) -> dict[str, str]:
    """What the system lacks, by library, with the Debian package that brings it."""
    missing = {library: package for library, package in libraries.items() if not present(library)}
    if not fonts:
        missing["any font"] = "fonts-dejavu-core"
    return missing


def display_answers() -> bool:
    """Whether a window can be seen. A DISPLAY left over from another login names a server that does not answer."""
    if os.environ.get("QT_QPA_PLATFORM", "").split(":")[0] in ("offscreen", "minimal"):
        return False
    if not sys.platform.startswith("linux") or os.environ.get("WAYLAND_DISPLAY"):
        return True
    if os.environ.get("QT_QPA_PLATFORM"):
        return True
    if not os.environ.get("DISPLAY"):
        return False
    try:
        xlib = ctypes.CDLL("libX11.so.6")
    except OSError:
        return True  # it will be installed, and Qt will tell
    xlib.XOpenDisplay.restype = ctypes.c_void_p
    connection = xlib.XOpenDisplay(None)
    if connection:
        xlib.XCloseDisplay(ctypes.c_void_p(connection))
    return bool(connection)


def prepare_system(window: bool) -> None:
    """Names the system libraries that are missing; as root on Debian and its relatives installs them."""
    if not sys.platform.startswith("linux"):
        return
    libraries = dict(QT_LIBRARIES)
    if window and os.environ.get("WAYLAND_DISPLAY"):
        libraries |= WAYLAND_LIBRARIES
    elif window:
        libraries |= X11_LIBRARIES
    missing = missing_packages(libraries, can_load, has_fonts())
    if missing:
        install_packages(missing, f"Qt needs system libraries that are missing: {', '.join(missing)}.")
        still = missing_packages(libraries, can_load, has_fonts())
        if still:
            raise Failed(f"These are still missing: {', '.join(still)}.", "Install them, then run this again.")


def install_packages(missing: dict[str, str], what: str) -> None:
    if not shutil.which("apt-get"):
        raise Failed(what, "Install them with this system's package manager, then run this again.")
    command = ["apt-get", "install", "-y", "--no-install-recommends", *sorted(set(missing.values()))]
    if os.geteuid() != 0:
        raise Failed(what, f"sudo {shlex.join(command)}")
    say(f"{what} Installing: {shlex.join(command)}")
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for step in (["apt-get", "update"], command):
        ended = subprocess.run(step, env=quiet, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if ended.returncode:
            print((ended.stdout + ended.stderr)[-2000:], file=sys.stderr)
    if ended.returncode:
        raise Failed("The system packages could not be installed.", f"Run it by hand: {shlex.join(command)}")


# ---------------------------------------------------------------- .venv and the model


def wanted_stamp() -> str:
    digest = hashlib.sha256(sys.version.encode())
    for name in ("constraints.txt", "pyproject.toml"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def prepare_venv() -> None:
    """.venv with the pinned libraries. Nothing is done where the stamp says that it was done for these pins."""
    wanted = wanted_stamp()
    if VENV_PYTHON.exists() and STAMP.exists() and STAMP.read_text().strip() == wanted:
        return
    if not VENV_PYTHON.exists() or run([VENV_PYTHON, "-m", "pip", "--version"], quiet=True):
        say(f"Creating .venv with Python {sys.version.split()[0]}")
        create = [sys.executable, "-m", "venv", "--clear", VENV]
        if run(create, quiet=True):
            if sys.platform.startswith("linux"):
                version = f"{sys.version_info.major}.{sys.version_info.minor}"
                install_packages({"venv": f"python{version}-venv"}, "This Python cannot create a virtual environment.")
            if run(create):
                raise Failed("The virtual environment could not be created.", "Install Python's venv and ensurepip.")
    say("Installing the pinned libraries into .venv (about 1 GB; some minutes the first time)")
    pip = [VENV_PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    if not sys.stdout.isatty():
        pip.append("--quiet")
    if os.name != "nt" and os.geteuid() == 0:
        pip += ["--root-user-action", "ignore"]
    if run([*pip, "--constraint", "constraints.txt", "--editable", ".[dev]"]):
        raise Failed(
            "The libraries could not be installed; pip says why above.",
            "Check the network and the free space on the disk, then run this again: it goes on where it stopped.",
        )
    STAMP.write_text(wanted + "\n")


def prepare(window: bool = False) -> None:
    prepare_system(window)
    prepare_venv()
    step([VENV_PYTHON, "-m", "app", "setup"])


def run(command: Iterable[object], quiet: bool = False, **environment: str) -> int:
    """The exit status of a command in this checkout. `quiet` hides what it prints."""
    words = [str(word) for word in command]
    sink = subprocess.DEVNULL if quiet else None
    environment = os.environ | {"PYTHONUTF8": "1"} | environment
    return subprocess.run(words, cwd=ROOT, env=environment, stdout=sink, stderr=sink, check=False).returncode


def step(command: Iterable[object], **environment: str) -> None:
    """Runs a command that explains its own failure; ends with its exit status when it fails."""
    if status := run(command, **environment):
        sys.exit(status)


# ---------------------------------------------------------------- targets


def target_setup(arguments: list[str]) -> None:
    prepare()
    say("Ready. `make run` opens the window.")


def target_run(arguments: list[str]) -> None:
    window = display_answers()
    prepare(window)
    if window:
        step([VENV_PYTHON, "-m", "app", *arguments])
        return
    folder = ROOT / "tour"
    say("There is no display here, so the same job runs offscreen: a real run of the default prompt.")
    step([VENV_PYTHON, "-m", "app", "screenshots", folder], QT_QPA_PLATFORM="offscreen")
    say(f"Screenshots and a replay file (tour.jsonl) are in {folder}")
    say("On a computer with a display, open that run with: .venv/bin/python -m app tour/tour.jsonl")


def target_test(arguments: list[str]) -> None:
    prepare()
    if not arguments and (workers := min(MOST_TEST_WORKERS, os.cpu_count() or 1)) > 1:
        # A file's tests stay together, since they share their loaded models; each worker computes on one core.
        arguments = ["-n", str(workers), "--dist", "loadfile"]
    step([VENV_PYTHON, "-m", "pytest", *arguments], QT_QPA_PLATFORM="offscreen", HF_HUB_OFFLINE="1")


def target_lint(arguments: list[str]) -> None:
    prepare_venv()
    lint_imports = VENV_PYTHON.parent / ("lint-imports.exe" if os.name == "nt" else "lint-imports")
    checks = (
        [VENV_PYTHON, "-m", "ruff", "check", "."],
        [VENV_PYTHON, "-m", "ruff", "format", "--check", "."],
        [lint_imports],
        [VENV_PYTHON, "-m", "basedpyright"],
    )
    statuses = [run(check) for check in checks]  # all of them, so that one round shows everything
    if any(statuses):
        sys.exit(1)


def target_bench(arguments: list[str]) -> None:
    prepare()
    step([VENV_PYTHON, "-m", "app", "bench", *arguments])


def target_screenshots(arguments: list[str]) -> None:
    prepare()
    step([VENV_PYTHON, "-m", "app", "screenshots", *(arguments or ["screenshots"])], QT_QPA_PLATFORM="offscreen")


def target_clean(arguments: list[str]) -> None:
    generated = ["build", "dist", "tour", "screenshots", ".pytest_cache", ".ruff_cache", ".hypothesis"]
    generated += [".import_linter_cache", "glasswork.egg-info"]
    for folder in [ROOT / name for name in generated]:
        shutil.rmtree(folder, ignore_errors=True)
    for room in ("app", "engine", "widgets", "tests"):
        for cache in (ROOT / room).rglob("__pycache__"):
            shutil.rmtree(cache, ignore_errors=True)


TARGETS = {name.removeprefix("target_"): act for name, act in list(globals().items()) if name.startswith("target_")}


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(__doc__.strip())
        return 0
    if arguments[0] not in TARGETS:
        known = ", ".join(TARGETS)
        print(f"error: There is no target called {arguments[0]}.\nfix: Choose one of {known}.", file=sys.stderr)
        return 2
    os.chdir(ROOT)
    try:
        TARGETS[arguments[0]](arguments[1:])
    except Failed as failure:
        print(f"error: {failure.what}\nfix: {failure.fix}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
