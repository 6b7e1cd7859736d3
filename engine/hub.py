"""The hub: searching, looking into a repository, downloading its model.

Only asked for by a person's act. A download is ours and not huggingface_hub's: since version 2 that deletes what has
arrived when it stops, so that nothing could go on from there.

The API is described in the hub's own documentation ("Hub API Endpoints").
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import logging
import os
import shutil
from typing import TYPE_CHECKING, Any

from engine.catalog import HUB_ID, hub_cache
from engine.control import Control
from engine.errors import Cancelled, FileRefused, RemoteFailed
from engine.events import DownloadProgress, FileSet, HubModel, HubOffer
from engine.hub_files import choices_in
from engine.hub_meter import Emit, Meter
from engine.hub_requests import Busy, endpoint, get_json, has_token, no_hub, raise_for, run
from engine.hub_store import (
    DownloadPlan,
    RemoteFile,
    finish,
    is_commit,
    is_whole,
    remember,
    remembered_plan,
)

if TYPE_CHECKING:
    import httpx2

log = logging.getLogger(__name__)

RETRY_AFTER_S = (1.0, 2.0, 4.0, 8.0)  # a connection that broke is tried again; counted anew whenever bytes arrive
PIECE = 4 * 1024 * 1024
LARGEST_ANSWER = 40_000_000_000  # the networks behind hubs send no more than 50 GB in one answer
SPARE_BYTES = 50_000_000  # left on the disk
BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2}  # others have one
RESULTS = 50


# ---------------------------------------------------------------- asking


def search(text: str, control: Control, task: str = "", limit: int = RESULTS) -> tuple[HubModel, ...]:
    """The models whose names fit, most downloaded first. task: the hub's filter, "text-generation", "gguf" or "".

    Raises RemoteFailed, Cancelled.
    """
    wanted = ("downloads", "likes", "gated", "safetensors", "gguf", "tags", "lastModified", "pipeline_tag")
    parameters: list[tuple[str, Any]] = [("sort", "downloads"), ("limit", limit), *(("expand", w) for w in wanted)]
    if text.strip():
        parameters.append(("search", text.strip()))
    if task:
        parameters.append(("filter", task))

    async def ask(client: httpx2.AsyncClient) -> object:
        return await get_json(client, f"{endpoint()}/api/models", parameters)

    found = run(ask, control)
    if not isinstance(found, list):
        raise no_hub()
    return tuple(_model(each) for each in found if isinstance(each, dict) and HUB_ID.fullmatch(_id(each)))


def offer(hub_id: str, control: Control) -> HubOffer:
    """What a repository holds that can be loaded here. Raises RemoteFailed, Cancelled."""
    told, files = run(lambda client: _listing(client, hub_id), control)
    choices, note = choices_in(files)
    sets = []
    for choice in choices:
        plan = DownloadPlan(hub_id, told["sha"], choice.name, choice.weights, choice.files)
        names = tuple(file.name for file in choice.files)
        sets.append(FileSet(choice.name, choice.weights, names, plan.total_bytes, plan.here_bytes()))
    gated, page = bool(told.get("gated")), f"{endpoint()}/{hub_id}"
    return HubOffer(hub_id, told["sha"], tuple(sets), _licence(told), gated, note, page, has_token())


async def _listing(client: httpx2.AsyncClient, hub_id: str) -> tuple[dict[str, Any], list[RemoteFile]]:
    """(the repository's facts, its files with sizes and checksums) at the newest commit."""
    if not HUB_ID.fullmatch(hub_id):
        raise RemoteFailed("{id} is no name of a repository.", "Names are like maker/model.", id=hub_id[:100])
    told = await get_json(client, f"{endpoint()}/api/models/{hub_id}", [("blobs", "true")], hub_id)
    if not isinstance(told, dict) or not is_commit(told.get("sha")):
        raise no_hub()
    files = []
    for each in told.get("siblings") or ():
        large = each.get("lfs") or {}
        size, checksum = large.get("size", each.get("size")), large.get("sha256") or each.get("blobId")
        if not isinstance(size, int) or not isinstance(checksum, str):
            raise RemoteFailed(
                "The hub at {host} does not tell the sizes and checksums of its files.",
                "Without them a download cannot be checked; use another HF_ENDPOINT.",
                host=endpoint(),
            )
        files.append(RemoteFile(str(each.get("rfilename")), size, checksum))
    return told, files


def _id(told: dict[str, Any]) -> str:
    return str(told.get("id") or told.get("modelId") or "")


def _model(told: dict[str, Any]) -> HubModel:
    tensors = told.get("safetensors")
    counts = tensors.get("parameters") if isinstance(tensors, dict) else None
    gguf = told.get("gguf")
    parameters = _whole(tensors.get("total")) if isinstance(tensors, dict) else None
    if parameters is None and isinstance(gguf, dict):
        parameters = _whole(gguf.get("total"))
    size = None
    if isinstance(counts, dict):
        size = sum(_whole(count) or 0 for count in counts.values())
        size += sum((BYTES.get(str(name), 1) - 1) * (_whole(count) or 0) for name, count in counts.items())
    return HubModel(
        hub_id=_id(told),
        downloads=_whole(told.get("downloads")),
        likes=_whole(told.get("likes")),
        parameters=parameters,
        size_bytes=size,
        licence=_licence(told),
        gated=bool(told.get("gated")),
        updated=str(told.get("lastModified") or "")[:10],
        task=str(told.get("pipeline_tag") or ""),
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _licence(told: dict[str, Any]) -> str:
    tags = told.get("tags")
    names = [str(tag).removeprefix("license:") for tag in tags or () if str(tag).startswith("license:")]
    return names[0][:80] if names else ""


# ---------------------------------------------------------------- downloading


def download(hub_id: str, name: str, emit: Emit, control: Control) -> str:
    """Fetches one FileSet into the hub's cache; returns what LoadPlan.model takes. Blocks.

    Goes on where an earlier download of it stopped, also one of an earlier start of the program. Every file is checked
    against its checksum. Raises RemoteFailed, FileRefused (disk), Cancelled; what has arrived stays.
    """
    emit(DownloadProgress(hub_id, name, "listing"))
    plan = remembered_plan(hub_id, name)
    if plan is None:
        plan = _new_plan(hub_id, name, control)
    with _disk_errors(plan):
        remember(plan)
        _refuse_small_disk(plan)
    meter = Meter(plan, emit)

    async def fetch_all(client: httpx2.AsyncClient) -> None:
        ticking = asyncio.ensure_future(meter.tick())
        try:
            await fetch_each(client)
        finally:
            ticking.cancel()

    async def fetch_each(client: httpx2.AsyncClient) -> None:
        for file in sorted(plan.files, key=lambda file: file.size):  # small ones first: a refusal shows at once
            if not is_whole(plan, file):
                with _locked(plan, file), _disk_errors(plan):
                    await _fetch(client, plan, file, meter, control)
            meter.file_done(file)

    run(fetch_all, control)
    with _disk_errors(plan):
        finish(plan)
    meter.tell("downloading", plan.files[-1].name)
    return plan.model


def _new_plan(hub_id: str, name: str, control: Control) -> DownloadPlan:
    told, files = run(lambda client: _listing(client, hub_id), control)
    choices, _ = choices_in(files)
    choice = next((choice for choice in choices if choice.name == name), None)
    if choice is None:
        raise RemoteFailed("{id} no longer holds {name}.", "Look at its files again.", id=hub_id, name=name)
    return DownloadPlan(hub_id, told["sha"], choice.name, choice.weights, choice.files)


class _Incoming:
    """One file on its way: how much of it is here, and the checksum of that much."""

    def __init__(self, plan: DownloadPlan, file: RemoteFile) -> None:
        self.file, self.part = file, plan.partial(file)
        self.have, self.digest = 0, _digest(file)

    def restart(self) -> None:
        self.have, self.digest = 0, _digest(self.file)

    def take_up(self, meter: Meter, control: Control) -> None:
        """Goes on from the bytes that are on the disk, which must be read once for the checksum."""
        size = self.part.stat().st_size if self.part.exists() else 0
        if size == self.have:
            return
        self.restart()
        if size > self.file.size:  # longer than it can be: not ours
            self.part.unlink()
            return
        with self.part.open("rb") as part:
            while piece := part.read(PIECE):
                if control.cancelled():
                    raise Cancelled
                self.digest.update(piece)
                self.have += len(piece)
                meter.arrived(self.file, self.have, "checking")


async def _fetch(
    client: httpx2.AsyncClient, plan: DownloadPlan, file: RemoteFile, meter: Meter, control: Control
) -> None:
    """One file, from where it stopped. A connection that breaks is taken up again."""
    import httpx2

    passing = (Busy, httpx2.NetworkError, httpx2.TimeoutException, httpx2.RemoteProtocolError)
    incoming = _Incoming(plan, file)
    incoming.take_up(meter, control)
    tries = 0
    while incoming.have < file.size or not incoming.part.exists():
        before = incoming.have
        try:
            until = await _stream(client, plan, incoming, meter)
            if incoming.have < until:
                raise httpx2.RemoteProtocolError("it ended early")
        except passing as error:
            log.warning("%s of %s broke off at %s: %s", file.name, plan.hub_id, incoming.have, error)
            tries = 1 if incoming.have > before else tries + 1
            if tries > len(RETRY_AFTER_S):
                raise
            meter.tell("retrying", file.name)
            await asyncio.sleep(RETRY_AFTER_S[tries - 1])
            incoming.take_up(meter, control)
    if incoming.digest.hexdigest() != file.checksum:
        incoming.part.unlink(missing_ok=True)  # going on from it would only end here again
        raise RemoteFailed(
            "{file} arrived with another checksum than the hub names: it is damaged or not what it should be.",
            "Download it again; if it happens twice, something on the way changes files.",
            file=file.name,
        )
    os.replace(incoming.part, plan.blob(file))


async def _stream(client: httpx2.AsyncClient, plan: DownloadPlan, incoming: _Incoming, meter: Meter) -> int:
    """Appends what the hub sends from the first missing byte on; returns how many should be here then."""
    from urllib.parse import quote

    file = incoming.file
    url = f"{endpoint()}/{plan.hub_id}/resolve/{plan.revision}/{quote(file.name)}"
    headers = {"accept-encoding": "identity"}  # the real size, and bytes that can be counted
    until = min(file.size, incoming.have + LARGEST_ANSWER)
    if incoming.have or until < file.size:
        headers["range"] = f"bytes={incoming.have}-{until - 1}"
    async with client.stream("GET", url, headers=headers) as response:
        raise_for(response, plan.hub_id, file.name)
        if "range" in headers and response.status_code != 206:  # it does not know ranges
            incoming.restart()
            until = file.size
        _refuse_other_size(response, file, incoming.have)
        plan.blob(file).parent.mkdir(parents=True, exist_ok=True)
        with incoming.part.open("ab" if incoming.have else "wb") as out:
            async for piece in response.aiter_bytes():
                if incoming.have + len(piece) > file.size:
                    raise _other_size(file, incoming.have + len(piece))
                out.write(piece)
                incoming.digest.update(piece)
                incoming.have += len(piece)
                meter.arrived(file, incoming.have)
    return until


def _digest(file: RemoteFile) -> Any:
    if file.is_sha256:
        return hashlib.sha256()
    digest = hashlib.sha1(usedforsecurity=False)  # git's name for a file
    digest.update(f"blob {file.size}\0".encode())
    return digest


def _refuse_other_size(response: httpx2.Response, file: RemoteFile, have: int) -> None:
    whole = response.headers.get("content-range", "").rpartition("/")[2]
    length = response.headers.get("content-length", "")
    if "content-encoding" in response.headers:
        return
    if whole.isdigit() and int(whole) != file.size:
        raise _other_size(file, int(whole))
    if not whole and length.isdigit() and have + int(length) != file.size:
        raise _other_size(file, have + int(length))


def _other_size(file: RemoteFile, size: int) -> RemoteFailed:
    return RemoteFailed(
        "{file} has {size} bytes where the hub named {expected}: it was changed, or something on the way changes it.",
        "Give this download up and start it again.",
        file=file.name,
        size=f"{size:,}",
        expected=f"{file.size:,}",
    )


@contextlib.contextmanager
def _locked(plan: DownloadPlan, file: RemoteFile):
    from filelock import FileLock, Timeout

    path = plan.lock(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise RemoteFailed(
            "Another program is downloading {file} at this moment.",
            "Wait until it is done, then let this download go on.",
            file=file.name,
        ) from None
    try:
        yield
    finally:
        lock.release()


# ---------------------------------------------------------------- the disk


def _refuse_small_disk(plan: DownloadPlan) -> None:
    missing = plan.total_bytes - plan.here_bytes()
    free = shutil.disk_usage(plan.folder).free
    if missing + SPARE_BYTES > free:
        raise _disk_full(plan, missing, free)


def _disk_full(plan: DownloadPlan, missing: int, free: int) -> FileRefused:
    return FileRefused(
        "The disk is too full: {missing} MB are still to come and {free} MB are free in {folder}.",
        "Free some space and let it go on, or set HF_HUB_CACHE to a folder on another disk. What has arrived stays.",
        missing=f"{missing / 1e6:,.0f}",
        free=f"{free / 1e6:,.0f}",
        folder=hub_cache(),
    )


@contextlib.contextmanager
def _disk_errors(plan: DownloadPlan):
    try:
        yield
    except OSError as error:
        if isinstance(error, TimeoutError | ConnectionError):
            raise
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = shutil.disk_usage(hub_cache()).free
            raise _disk_full(plan, plan.total_bytes - plan.here_bytes(), free) from None
        raise FileRefused(
            "The hub's cache in {folder} cannot be written: {reason}.",
            "Check its permissions, or set HF_HUB_CACHE to another folder.",
            folder=hub_cache(),
            reason=error.strerror or str(error),
        ) from None
