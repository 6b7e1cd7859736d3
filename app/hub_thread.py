"""The disk and the hub in threads of their own, so that a download goes on while a model runs. Never imports torch.

Three threads, because one must not wait for another: the disk is looked through, the hub is asked, a model is fetched.
As in engine_thread.py, work crosses as frozen objects, and a cancel reaches it through its Control.
"""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QObject, QThread, Signal, Slot

from app.threads import has_ended, leave, told
from engine.control import Control
from engine.errors import Cancelled
from engine.events import DownloadEnd

Key = tuple[str, str]  # hub id, name of the file set


@dataclass(frozen=True, slots=True)
class SearchJob:
    text: str
    task: str
    control: Control


@dataclass(frozen=True, slots=True)
class OfferJob:
    hub_id: str
    control: Control


@dataclass(frozen=True, slots=True)
class DownloadJob:
    key: Key
    control: Control


@dataclass(frozen=True, slots=True)
class Found:
    """What lies on this computer."""

    models: tuple  # of ModelChoice
    unfinished: tuple  # of Unfinished
    cache: str  # where the hub's cache is


class DiskWorker(QObject):
    found = Signal(object)  # Found, or EngineError

    @Slot(object)
    def find(self, folders: tuple[str, ...]) -> None:
        try:
            from engine.catalog import find_models, hub_cache
            from engine.hub_store import unfinished

            self.found.emit(Found(tuple(find_models(folders)), tuple(unfinished()), str(hub_cache())))
        except Exception as error:  # a thread's edge
            self.found.emit(told(error, "catalog"))

    @Slot(object)
    def discard(self, key: Key) -> None:
        try:
            from engine.hub_store import discard, remembered_plan

            if (plan := remembered_plan(*key)) is not None:
                discard(plan)
        except Exception as error:  # a thread's edge
            self.found.emit(told(error, "catalog"))


class AskWorker(QObject):
    results = Signal(object)  # tuple of HubModel, or EngineError
    offered = Signal(object)  # (hub id, HubOffer or EngineError)

    @Slot(object)
    def search(self, job: SearchJob) -> None:
        try:
            from engine.hub import search

            if not job.control.cancelled():
                self.results.emit(search(job.text, job.control, job.task))
        except Cancelled:
            pass
        except Exception as error:  # a thread's edge
            self.results.emit(told(error, "search"))

    @Slot(object)
    def offer(self, job: OfferJob) -> None:
        try:
            from engine.hub import offer

            if not job.control.cancelled():
                self.offered.emit((job.hub_id, offer(job.hub_id, job.control)))
        except Cancelled:
            pass
        except Exception as error:  # a thread's edge
            self.offered.emit((job.hub_id, told(error, "search")))


class DownloadWorker(QObject):
    progress = Signal(object)  # DownloadProgress
    ended = Signal(object)  # DownloadEnd

    @Slot(object)
    def download(self, job: DownloadJob) -> None:
        try:
            from engine.hub import download

            if job.control.cancelled():
                raise Cancelled
            model = download(*job.key, self.progress.emit, job.control)
            self.ended.emit(DownloadEnd(*job.key, "done", model))
        except Cancelled:
            self.ended.emit(DownloadEnd(*job.key, "cancelled"))
        except Exception as error:  # a thread's edge
            self.ended.emit(DownloadEnd(*job.key, "error", error=told(error, "download")))


class Hub(QObject):
    """The window's handle. A newer search or look at a repository takes the place of the one that goes on."""

    _find = Signal(object)
    _discard = Signal(object)
    _search = Signal(object)
    _offer = Signal(object)
    _download = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.disk, self.ask, self.fetch = DiskWorker(), AskWorker(), DownloadWorker()
        self._threads = []
        for name, worker in (("disk", self.disk), ("hub", self.ask), ("download", self.fetch)):
            thread = QThread(self)
            thread.setObjectName(name)
            worker.moveToThread(thread)
            self._threads.append(thread)
            thread.start()
        self._find.connect(self.disk.find)
        self._discard.connect(self.disk.discard)
        self._search.connect(self.ask.search)
        self._offer.connect(self.ask.offer)
        self._download.connect(self.fetch.download)
        self.fetch.ended.connect(self._over)
        self._asking = Control()
        self._looking = Control()
        self._downloads: dict[Key, Control] = {}
        self._closed = False

    def find_models(self, folders: tuple[str, ...]) -> None:
        if not self._closed:
            self._find.emit(folders)

    def search(self, text: str, task: str) -> None:
        self._asking.cancel()
        self._looking.cancel()
        self._asking = Control()
        self._search.emit(SearchJob(text, task, self._asking))

    def look_at(self, hub_id: str) -> None:
        self._looking.cancel()
        self._looking = Control()
        self._offer.emit(OfferJob(hub_id, self._looking))

    def download(self, key: Key) -> None:
        """Fetches it when those that were asked for before are over. Asked twice, it comes once."""
        if key not in self._downloads and not self._closed:
            self._downloads[key] = Control()
            self._download.emit(DownloadJob(key, self._downloads[key]))

    def cancel(self, key: Key) -> None:
        """Stops it; what has arrived stays."""
        if key in self._downloads:
            self._downloads[key].cancel()

    def discard(self, key: Key) -> None:
        """Deletes what has arrived of a download that does not go on."""
        if key not in self._downloads:
            self._discard.emit(key)

    @property
    def downloading(self) -> tuple[Key, ...]:
        """Those that go on or wait."""
        return tuple(self._downloads)

    def stop(self) -> None:
        """Ends all that goes on, without waiting for it."""
        self._closed = True
        for control in (self._asking, self._looking, *self._downloads.values()):
            control.cancel()
        for thread in self._threads:
            thread.quit()

    def close(self) -> None:
        """Cancel, quit, wait. Leaves the process where a disk does not answer: nothing is lost then."""
        self.stop()
        if not all(has_ended(thread) for thread in self._threads):
            leave("a disk did not answer on close")

    @Slot(object)
    def _over(self, end: DownloadEnd) -> None:
        self._downloads.pop((end.hub_id, end.name), None)
