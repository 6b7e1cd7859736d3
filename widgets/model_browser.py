"""The model browser: what is on this computer, and what the hub has. A window of its own beside the run."""

from __future__ import annotations

import base64
import contextlib
from typing import Any

from PySide6.QtCore import QByteArray, QSize, Qt, Signal, Slot
from PySide6.QtWidgets import QDialog, QTabWidget, QVBoxLayout, QWidget

from engine.events import DownloadEnd, DownloadProgress, EngineError, HubOffer, ModelChoice, Unfinished
from widgets.hub_page import HubPage
from widgets.local_models import LocalModels


class ModelBrowser(QDialog):
    """Asks by signals; shows what it is given. `state` and `restore` carry what is remembered between starts."""

    load_requested = Signal(object)  # str: what LoadPlan.model takes
    folder_added = Signal(object)  # str
    folder_removed = Signal(object)  # str
    search_requested = Signal(object)  # (text, the hub's filter)
    offer_requested = Signal(object)  # str: hub id
    download_requested = Signal(object)  # (hub id, name of the file set)
    cancel_requested = Signal(object)
    discard_requested = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(self.tr("Models"))
        self.setModal(False)
        self.local = LocalModels()
        self.hub = HubPage()
        self.tabs = QTabWidget()
        self.tabs.setAccessibleName(self.tr("Where to look"))
        self.tabs.setDocumentMode(True)
        self.tabs.addTab(self.local, self.tr("on this computer"))
        self.tabs.addTab(self.hub, self.tr("on the hub"))
        self.tabs.tabBar().setAccessibleName(self.tr("Where to look"))
        self.tabs.tabBar().setDrawBase(False)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 8, 16, 16)
        column.addWidget(self.tabs)
        self.resize(QSize(1240, 700).boundedTo(self.screen().availableSize()))
        self.setMinimumSize(720, 440)

        self.local.load_requested.connect(self.load_requested)
        self.local.folder_added.connect(self.folder_added)
        self.local.folder_removed.connect(self.folder_removed)
        self.local.hub_wanted.connect(self.show_hub)
        self.hub.search_requested.connect(self.search_requested)
        self.hub.offer_requested.connect(self.offer_requested)
        self.hub.download_requested.connect(self.download_requested)
        downloads = self.hub.downloads
        downloads.cancel_requested.connect(self.cancel_requested)
        downloads.resume_requested.connect(self._resume)
        downloads.discard_requested.connect(self.discard_requested)
        downloads.load_requested.connect(self.load_requested)
        self.tabs.currentChanged.connect(self._focus_page)
        self._focus_page()

    # ---------------------------------------------------------------- showing

    def set_models(self, models: list[ModelChoice], folders: tuple[str, ...], cache: str) -> None:
        """The models on this computer, the chosen folders, and where the hub's cache lies."""
        self.local.set_models(models, folders, cache)

    def choose(self, model: str) -> None:
        """Shows this one of the models on this computer."""
        self.local.table.choose(model)

    @Slot(object)
    def show_results(self, answer: object) -> None:
        self.hub.show_results(answer)  # type: ignore[arg-type]

    def show_offer(self, hub_id: str, answer: HubOffer | EngineError) -> None:
        self.hub.show_offer(hub_id, answer)

    @Slot(object)
    def show_progress(self, progress: DownloadProgress) -> None:
        self.hub.downloads.show_progress(progress)

    @Slot(object)
    def show_end(self, end: DownloadEnd) -> None:
        self.hub.downloads.show_end(end)
        self.hub.forget_offers()

    @Slot(object)
    def set_unfinished(self, downloads: tuple[Unfinished, ...]) -> None:
        """Downloads that can go on."""
        self.hub.downloads.set_unfinished(downloads)
        self.hub.refresh_acts()

    # ---------------------------------------------------------------- acts

    @Slot()
    def show_hub(self) -> None:
        self.tabs.setCurrentWidget(self.hub)

    @Slot(object)
    def _resume(self, key: object) -> None:
        self.hub.downloads.row(key).show_waiting()  # type: ignore[arg-type]
        self.hub.refresh_acts()
        self.download_requested.emit(key)

    @Slot()
    def _focus_page(self) -> None:
        page = self.tabs.currentWidget()
        (self.hub.search_field if page is self.hub else self.local.table).setFocus()

    # ---------------------------------------------------------------- remembering

    def state(self) -> dict[str, Any]:
        """Size, columns, and the last search, as what JSON can hold."""
        return {
            "geometry": base64.b64encode(self.saveGeometry().data()).decode(),
            "local_columns": self.local.table.columns_state(),
            "hub_columns": self.hub.table.columns_state(),
            "local_split": self.local.split.sizes(),
            "hub_split": self.hub.split.sizes(),
            "search": self.hub.search_field.text(),
            "kind": self.hub.kind.currentData(),
            "page": self.tabs.currentIndex(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Takes what `state` gave; what is missing or makes no sense is passed over."""
        with contextlib.suppress(ValueError, TypeError, KeyError):
            self.restoreGeometry(QByteArray(base64.b64decode(state["geometry"])))
        for table, name in ((self.local.table, "local_columns"), (self.hub.table, "hub_columns")):
            if isinstance(state.get(name), str):
                table.restore_columns(state[name])
        for split, name in ((self.local.split, "local_split"), (self.hub.split, "hub_split")):
            sizes = state.get(name)
            if isinstance(sizes, list) and len(sizes) == 2 and all(type(n) is int and 0 < n < 10**5 for n in sizes):
                split.setSizes(sizes)
        if isinstance(state.get("search"), str):
            self.hub.search_field.setText(state["search"][:500])
        if (at := self.hub.kind.findData(state.get("kind"))) >= 0:
            self.hub.kind.setCurrentIndex(at)
        if state.get("page") in (0, 1):
            self.tabs.setCurrentIndex(state["page"])

    def bring_up(self) -> None:
        """Opens it, or brings it to the front."""
        self.show()
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.raise_()
        self.activateWindow()
