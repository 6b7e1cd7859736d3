"""Models in the window: which are here, the model browser, downloads, and the chosen folders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Slot

from app.hub_thread import Found, Hub
from engine.events import DownloadEnd, EngineError

if TYPE_CHECKING:
    from app.main_window import MainWindow
    from widgets.model_browser import ModelBrowser


class Models(QObject):
    """hub: the threads that look through the disk and ask the hub. browser: made when it is first opened."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self.window = window
        self.hub = Hub(self)
        self.browser: ModelBrowser | None = None
        self._found: Found | None = None
        self.hub.disk.found.connect(self._models_found)
        self.hub.fetch.ended.connect(self._download_ended)

    @property
    def folders(self) -> tuple[str, ...]:
        return tuple(self.window.preferences.model_folders)

    @Slot()
    def refresh(self) -> None:
        """Looks again at what is on this computer."""
        self.hub.find_models(self.folders)

    @Slot()
    def show_browser(self) -> ModelBrowser:
        if self.browser is None:
            self.browser = self._build()
            self.browser.restore(self.window.preferences.model_browser)
            if self._found is not None:
                self._show_found(self._found)
        self.refresh()
        self.browser.bring_up()
        return self.browser

    def _build(self) -> ModelBrowser:
        from widgets.model_browser import ModelBrowser

        browser = ModelBrowser(self.window)
        hub = self.hub
        browser.load_requested.connect(self.load)
        browser.folder_added.connect(self.add_folder)
        browser.folder_removed.connect(self.remove_folder)
        browser.search_requested.connect(self._search)
        browser.offer_requested.connect(self._look_at)
        browser.download_requested.connect(self._download)
        browser.cancel_requested.connect(self._cancel)
        browser.discard_requested.connect(self._discard)
        hub.ask.results.connect(browser.show_results)
        hub.ask.offered.connect(self._offered)
        hub.fetch.progress.connect(browser.show_progress)
        hub.fetch.ended.connect(browser.show_end)
        return browser

    # ---------------------------------------------------------------- what is here

    @Slot(object)
    def _models_found(self, found: Found | EngineError) -> None:
        if isinstance(found, EngineError):
            self.window.banner.show_error(found)
            return
        self._found = found
        self.window.model_panel.set_choices([choice for choice in found.models if choice.problem is None])
        if self.browser is not None:
            self._show_found(found)

    def _show_found(self, found: Found) -> None:
        assert self.browser is not None
        first = not self.browser.local.table.rows.things
        self.browser.set_models(list(found.models), self.folders, found.cache)
        if first:
            self.browser.choose(self.window.preferences.model)
        going = self.hub.downloading
        self.browser.set_unfinished(tuple(each for each in found.unfinished if (each.hub_id, each.name) not in going))

    @Slot(object)
    def add_folder(self, folder: object) -> None:
        if str(folder) not in self.window.preferences.model_folders:
            self.window.preferences.model_folders.append(str(folder))
        self.refresh()

    @Slot(object)
    def remove_folder(self, folder: object) -> None:
        if str(folder) in self.window.preferences.model_folders:
            self.window.preferences.model_folders.remove(str(folder))
        self.refresh()

    @Slot(object)
    def load(self, model: object) -> None:
        """Hands it to the model panel, which loads it as it is set there."""
        self.window.show_model_panel()
        self.window.model_panel.choose(str(model))
        self.window.model_panel.load()

    # ---------------------------------------------------------------- the hub

    @Slot(object)
    def _search(self, asked: object) -> None:
        text, task = asked  # type: ignore[misc]
        self.hub.search(text, task)

    @Slot(object)
    def _look_at(self, hub_id: object) -> None:
        self.hub.look_at(str(hub_id))

    @Slot(object)
    def _offered(self, answer: object) -> None:
        if self.browser is not None:
            self.browser.show_offer(*answer)  # type: ignore[misc]

    @Slot(object)
    def _download(self, key: object) -> None:
        self.hub.download(key)  # type: ignore[arg-type]

    @Slot(object)
    def _cancel(self, key: object) -> None:
        self.hub.cancel(key)  # type: ignore[arg-type]

    @Slot(object)
    def _discard(self, key: object) -> None:
        self.hub.discard(key)  # type: ignore[arg-type]
        self.refresh()

    @Slot(object)
    def _download_ended(self, end: DownloadEnd) -> None:
        self.refresh()
        browser_is_seen = self.browser is not None and self.browser.isVisible()
        if end.reason == "done" and not browser_is_seen:
            self.window.banner.show_note(
                self.tr("{name} is on this computer now.").format(name=end.hub_id),
                self.tr("Show it"),
                self.show_browser,
            )
        elif end.error is not None and not browser_is_seen:
            self.window.banner.show_error(end.error, self.tr("Show the download"), self.show_browser)

    # ---------------------------------------------------------------- closing

    def remember(self) -> None:
        if self.browser is not None:
            self.window.preferences.model_browser = self.browser.state()

    def stop(self) -> None:
        """Ends searches and downloads without waiting; what has arrived of a download stays."""
        if self.browser is not None:
            self.browser.close()
        self.hub.stop()

    def close(self) -> None:
        self.hub.close()
