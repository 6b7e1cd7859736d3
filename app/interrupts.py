"""Ctrl-C in the terminal, or a polite kill, closes the window as its close button does: nothing is lost."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from PySide6.QtCore import QObject, QSocketNotifier, Slot
from PySide6.QtWidgets import QApplication


class _Closer(QObject):
    """Python runs signal handlers between two of its own instructions, and an idle window executes none. The number
    of the signal also arrives at a socket, and that wakes Qt."""

    def __init__(self, reader: socket.socket) -> None:
        super().__init__()
        self._reader = reader
        self.notifier = QSocketNotifier(reader.fileno(), QSocketNotifier.Type.Read, self)
        self.notifier.activated.connect(self.close_windows)

    @Slot()
    def close_windows(self) -> None:
        try:
            self._reader.recv(4096)
        except BlockingIOError:
            return
        QApplication.closeAllWindows()


def _nothing(number: int, frame: object) -> None:
    """Instead of KeyboardInterrupt, which would come up in whatever slot happens to run."""


@contextmanager
def interrupts_close_windows() -> Iterator[None]:
    """While this lasts, SIGINT and SIGTERM close all windows. Needs a QApplication and the main thread."""
    reader, writer = socket.socketpair()
    for end in (reader, writer):
        end.setblocking(False)
    closer = _Closer(reader)
    before = {number: signal.signal(number, _nothing) for number in (signal.SIGINT, signal.SIGTERM)}
    woken_before = signal.set_wakeup_fd(writer.fileno())
    try:
        yield
    finally:
        signal.set_wakeup_fd(woken_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        closer.notifier.setEnabled(False)
        reader.close()
        writer.close()
