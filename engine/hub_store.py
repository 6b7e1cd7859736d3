"""Where a repository's files lie in the hub's cache, and what is remembered of a download until it is whole.

The layout is the one that huggingface_hub reads and writes: blobs named by their checksum, snapshots of links to them,
refs that name the newest snapshot. Two things are ours. A file on its way is `blobs/CHECKSUM.incomplete`, which
stays when a download stops: the library (2.x) deletes its own. And links and refs are made when every file is there,
so that nobody ever finds half a model; until then a small JSON file beside them says what was asked for.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from engine.catalog import HUB_ID, hub_cache, repository_name
from engine.events import Unfinished

_COMMIT = re.compile(r"[0-9a-f]{40}")
_CHECKSUM = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_PLAN_FILES = "glasswork-download-*.json"


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository. `checksum` names its blob: SHA-256 of a large file, else git's SHA-1."""

    name: str  # with / between folders
    size: int
    checksum: str

    @property
    def is_sha256(self) -> bool:
        return len(self.checksum) == 64

    def is_sane(self) -> bool:
        """Whether the name stays inside the snapshot, on every system, and the checksum can name a file."""
        path = PurePosixPath(self.name)
        inside = bool(path.parts) and not path.is_absolute() and not set(path.parts) & {"..", "."}
        return inside and not set(self.name) & set('\\:*?"<>|\0') and self.size >= 0 and _is_checksum(self.checksum)


def _is_checksum(text: str) -> bool:
    return _CHECKSUM.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class DownloadPlan:
    """What one download fetches: these files of a repository at one commit."""

    hub_id: str
    revision: str
    name: str  # of the FileSet
    weights: str
    files: tuple[RemoteFile, ...]

    @property
    def folder(self) -> Path:
        return hub_cache() / repository_name(self.hub_id)

    @property
    def snapshot(self) -> Path:
        return self.folder / "snapshots" / self.revision

    @property
    def total_bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def model(self) -> str:
        """What LoadPlan.model takes once it is whole."""
        if self.weights != "gguf":
            return self.hub_id
        gguf = next(file.name for file in self.files if file.name.lower().endswith(".gguf"))
        return str(self.snapshot.joinpath(*gguf.split("/")))

    def blob(self, file: RemoteFile) -> Path:
        return self.folder / "blobs" / file.checksum

    def partial(self, file: RemoteFile) -> Path:
        return self.folder / "blobs" / f"{file.checksum}.incomplete"

    def lock(self, file: RemoteFile) -> Path:
        """The library's own lock for this blob, so that two programs do not write one file."""
        return hub_cache() / ".locks" / repository_name(self.hub_id) / f"{file.checksum}.lock"

    def here_bytes(self) -> int:
        """Bytes of its files that have arrived."""
        return sum(file_bytes_here(self, file) for file in self.files)


def file_bytes_here(plan: DownloadPlan, file: RemoteFile) -> int:
    for path in (plan.blob(file), plan.snapshot.joinpath(*file.name.split("/")), plan.partial(file)):
        with contextlib.suppress(OSError):
            return min(path.stat().st_size, file.size)
    return 0


def is_whole(plan: DownloadPlan, file: RemoteFile) -> bool:
    """Whether a file is there under its checksum (or, without links on this system, in the snapshot itself)."""
    for path in (plan.blob(file), plan.snapshot.joinpath(*file.name.split("/"))):
        with contextlib.suppress(OSError):
            if path.stat().st_size == file.size:
                return True
    return False


# ---------------------------------------------------------------- remembering


def _plan_path(plan: DownloadPlan) -> Path:
    short = hashlib.sha256(plan.name.encode()).hexdigest()[:12]
    return plan.folder / _PLAN_FILES.replace("*", short)


def remember(plan: DownloadPlan) -> None:
    """Writes down what was asked for, so that it can go on after a restart. Raises OSError."""
    (plan.folder / "blobs").mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=plan.folder, prefix="glasswork-", suffix=".tmp")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            json.dump(asdict(plan), file, indent=1)
        os.replace(name, _plan_path(plan))
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def forget(plan: DownloadPlan) -> None:
    with contextlib.suppress(OSError):
        _plan_path(plan).unlink()


def remembered() -> list[DownloadPlan]:
    """The downloads that are not whole, by name. A file that is damaged or not ours is passed over."""
    try:
        paths = sorted(hub_cache().glob(f"models--*/{_PLAN_FILES}"))
    except OSError:
        return []
    plans = (_read_plan(path) for path in paths)
    return [plan for plan in plans if plan is not None]


def remembered_plan(hub_id: str, name: str) -> DownloadPlan | None:
    return next((plan for plan in remembered() if (plan.hub_id, plan.name) == (hub_id, name)), None)


def unfinished() -> list[Unfinished]:
    """What can go on, with how much of it has arrived."""
    return [Unfinished(plan.hub_id, plan.name, plan.here_bytes(), plan.total_bytes) for plan in remembered()]


def _read_plan(path: Path) -> DownloadPlan | None:
    try:
        told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        files = tuple(RemoteFile(str(f["name"]), int(f["size"]), str(f["checksum"])) for f in told.pop("files"))
        plan = DownloadPlan(**{name: str(value) for name, value in told.items()}, files=files)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    sane = HUB_ID.fullmatch(plan.hub_id) and _COMMIT.fullmatch(plan.revision) and plan.files
    return plan if sane and plan.folder == path.parent and all(file.is_sane() for file in plan.files) else None


# ---------------------------------------------------------------- ending


def finish(plan: DownloadPlan) -> None:
    """Makes the snapshot and points the main branch to it; from now on loaders find it. Raises OSError."""
    for file in plan.files:
        pointer = plan.snapshot.joinpath(*file.name.split("/"))
        if pointer.exists():
            continue
        pointer.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            pointer.unlink()  # a link to nothing
        blob = plan.blob(file)
        try:
            os.symlink(os.path.relpath(blob, pointer.parent), pointer)
        except OSError:  # a system or disk without links: the file itself, as the library does it
            shutil.copyfile(blob, pointer) if _others_use(plan, blob) else os.replace(blob, pointer)
    refs = plan.folder / "refs"
    refs.mkdir(parents=True, exist_ok=True)
    (refs / "main").write_text(plan.revision, encoding="utf-8")
    forget(plan)


def _others_use(plan: DownloadPlan, blob: Path) -> bool:
    return sum(plan.blob(file) == blob for file in plan.files) > 1


def discard(plan: DownloadPlan) -> int:
    """Gives up a download: deletes what has arrived of it and no finished snapshot uses. Returns the bytes freed."""
    used = set()
    for pointer in (plan.folder / "snapshots").rglob("*"):
        if pointer.is_symlink():
            used.add(Path(os.readlink(pointer)).name)  # one link: a blob may itself be one, into the library's store
    wanted = {f.checksum for other in remembered() if other.name != plan.name for f in other.files}
    freed = 0
    for file in plan.files:
        for path in (plan.partial(file), plan.blob(file)):
            if path.name.removesuffix(".incomplete") in wanted or path.name in used:
                continue
            with contextlib.suppress(OSError):
                size = path.stat().st_size
                path.unlink()
                freed += size
    forget(plan)
    for folder in (plan.folder / "blobs", plan.folder / "refs", plan.folder / "snapshots", plan.folder):
        with contextlib.suppress(OSError):
            folder.rmdir()  # only where it is empty
    return freed


def is_commit(text: object) -> bool:
    return isinstance(text, str) and _COMMIT.fullmatch(text) is not None
