"""An exception that nobody foresaw, in a slot or a paint event: to the log and to the person, and the window lives on.

Python prints such an exception to a terminal that nobody sees (THR-7).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal, Slot

from app.threads import told

if TYPE_CHECKING:
    from app.main_window import MainWindow

log = logging.getLogger(__name__)


class Surprises(QObject):
    """Called as `sys.excepthook`, from whichever thread; the banner is written in the window's own."""

    happened = Signal(object)  # EngineError

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        self._last = ""  # a paint event that fails, fails again with the next frame
        self.happened.connect(self.show_banner)

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, Exception):  # an interrupt, an exit
            sys.__excepthook__(kind, error, trace)
            return
        said = f"{kind.__name__}: {error}"
        if said == self._last:
            return
        self._last = said
        self.happened.emit(told(error, "window"))
        error.__traceback__ = error.__cause__ = error.__context__ = None  # its frames may hold tensors (MEM-22)

    @Slot(object)
    def show_banner(self, error: object) -> None:
        self._window.banner.show_error(error)  # type: ignore[arg-type]


@contextmanager
def surprises_are_told(window: MainWindow) -> Iterator[None]:
    """While this lasts, unforeseen exceptions go to the window's banner and the log."""
    before, sys.excepthook = sys.excepthook, Surprises(window)
    try:
        yield
    finally:
        sys.excepthook = before
