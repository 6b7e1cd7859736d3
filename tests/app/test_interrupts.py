"""Ctrl-C closes the window in order, also when nothing happens in it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from PySide6.QtWidgets import QWidget

from app.interrupts import interrupts_close_windows


class Window(QWidget):
    closes = 0

    def closeEvent(self, event):
        self.closes += 1
        super().closeEvent(event)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_closes_the_window_and_the_handlers_come_back(qtbot, number):
    before = signal.getsignal(number)
    window = Window()
    qtbot.addWidget(window)
    window.show()
    with interrupts_close_windows():
        signal.raise_signal(number)
        qtbot.waitUntil(lambda: not window.isVisible())
    assert window.closes == 1
    assert signal.getsignal(number) is before


@pytest.mark.skipif(sys.platform == "win32", reason="a process there cannot be sent an interrupt alone")
def test_an_idle_event_loop_wakes_for_it():
    """In a process of its own: nothing there runs Python until the signal does."""

    code = (
        "import os, signal, sys\n"
        "from PySide6.QtWidgets import QApplication, QWidget\n"
        "from app.interrupts import interrupts_close_windows\n"
        "app = QApplication([]); window = QWidget(); window.show()\n"
        "with interrupts_close_windows():\n"
        "    print('ready', flush=True)\n"
        "    sys.exit(app.exec())\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
