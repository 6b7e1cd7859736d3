"""A hundred futures in the window: what the page wishes for becomes a question about the shown text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Slot

from engine.errors import SettingsRefused
from engine.events import EngineError
from engine.settings import ForkWish, FuturesQuestion, FuturesWish

if TYPE_CHECKING:
    from app.main_window import MainWindow


class FuturesOfText(QObject):
    """Between the page and the engine."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self.window = window
        self._number = 0  # asking again writes anew
        window.laboratory.route(FuturesWish, self.ask)
        window.laboratory.page_made.connect(self._page_made)

    @Slot(object, object)
    def _page_made(self, name: object, page: Any) -> None:
        if name == "futures":
            page.restore(self.window.preferences.futures_form)

    @property
    def page(self) -> Any:
        return self.window.laboratory.page("futures")

    @Slot()
    def show(self) -> None:
        """The page, for the selected word."""
        self.window.laboratory.show("futures")

    @Slot(object)
    def ask(self, wish: FuturesWish) -> None:
        """Asks the engine, or says why not."""
        window, forks = self.window, self.window.forks
        run = window.store.run((wish.parent.run_id, wish.parent.lane))
        if run is None or not forks.may_go_on(run):
            return
        step = wish.parent.step - run.lost
        own = run.tokens[min(step, len(run.tokens) - 1)].settings if run.tokens else run.start.settings
        try:
            request = forks.request(ForkWish(wish.parent, settings=own if wish.own else None), run)
        except SettingsRefused as error:
            window.banner.show_error(EngineError(error.what, error.fix, error.exit_code, "run"))
            return
        self._number += 1
        question = FuturesQuestion(request, wish.count, wish.tokens, self._number)
        if window.experiments.begin(question):
            self.page.begun(question)

    def remember(self) -> None:
        """What the page's fields say, for the next start."""
        if "futures" in self.window.laboratory.pages:
            self.window.preferences.futures_form = self.page.state()
