"""Sliders on finished text: while no run goes on, other settings re-decide the run that is shown. Without the model.

The arithmetic takes some tens of milliseconds for a thousand tokens, so it is done where it is asked, at most once a
frame.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Slot

from widgets.foreign_tokens import names_in

if TYPE_CHECKING:
    from app.main_window import MainWindow
    from engine.redecide import FinishedRun
    from engine.settings import SamplingSettings
    from widgets.run import Run

FRAME_MS = 16


def _used(run: Run) -> set[SamplingSettings]:
    """The settings that its words were written with: they may have changed on the way, or at a fork."""
    return set({id(token.settings): token.settings for token in run.tokens}.values())  # words share theirs


class Redecisions(QObject):
    """Listens to the sampling panel and the store, and tells the text view what would have been."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self.window = window
        self._known: tuple[Run, FinishedRun] | None = None
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(FRAME_MS)
        self._timer.timeout.connect(self.work)
        window.sampling_panel.settings_changed.connect(self.ask)
        window.store.run_started.connect(self.forget)
        window.store.selection_changed.connect(self.look)
        window.text_view.as_written_requested.connect(self.back)

    @Slot()
    def ask(self) -> None:
        """A setting moved: decides at the next frame."""
        if not self._timer.isActive():
            self._timer.start()

    @Slot()
    def forget(self) -> None:
        self.window.text_view.show_redecided(None)
        self._known = None

    @Slot()
    def look(self) -> None:
        """Another run may be shown: what was said of the last one goes."""
        if self._known is not None and self.window.store.current is not self._known[0]:
            self.forget()

    @Slot()
    def back(self) -> None:
        """As it was written: the settings go back to those that the run ended with."""
        run = self.window.store.current
        if run is not None and run.tokens:
            settings = run.tokens[-1].settings
            self.window.sampling_panel.take_settings(settings, names_in(run, settings))
            self._timer.stop()  # where they changed on the way, these are not those of every word
        self.window.text_view.show_redecided(None)

    def _with_its_tokens(self, run: Run, settings: SamplingSettings) -> SamplingSettings:
        """A text of another model than the one whose tokens the panel means keeps its own bans and biases."""
        loaded, names, wrote = self.window.store.facts, self.window.sampling_panel.token_names(), run.facts
        whose = (loaded.name, loaded.vocab_size) if loaded else (names.model, names.vocab_size) if names else None
        if wrote is None or whose is None or whose == (wrote.name, wrote.vocab_size):
            return settings
        own = run.tokens[-1].settings
        return replace(settings, logit_bias=own.logit_bias, banned=own.banned, banned_sequences=own.banned_sequences)

    @Slot()
    def work(self) -> None:
        """A recording that has lost words decides nothing: penalties depend on all of them."""
        run, settings = self.window.store.current, self.window.sampling_panel.settings()
        if run is not None and run.tokens:
            settings = self._with_its_tokens(run, settings)
        if run is None or run.running or run.gaps or not run.tokens or _used(run) == {settings}:
            self.window.text_view.show_redecided(None)
            return
        from engine.redecide import FinishedRun

        if self._known is None or self._known[0] is not run:
            self._known = run, FinishedRun(run.start, run.tokens)
        self.window.text_view.show_redecided(self._known[1].redecide(settings), *self._differs(run, settings))

    def _differs(self, run: Run, settings: SamplingSettings) -> tuple[str, str]:
        """That these settings differ from those that the run was written with, and in what; "" where in one alone."""
        from widgets.lab.lane_words import changed_list

        used = _used(run)
        if len(used) > 1:
            return self.tr("Its own settings changed on the way."), ""
        changed = changed_list(used.pop(), settings)
        if len(changed) < 2:
            return "", ""
        return self.tr("{count} settings differ.").format(count=len(changed)), ", ".join(changed)
