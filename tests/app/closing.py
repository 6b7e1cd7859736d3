"""A window in a process of its own, shown as the program shows it, brought to a state and closed.

python -m tests.app.closing STATE MODEL FOLDER: see test_engine_thread.py. For the state "replay" MODEL is one.
It says what it found on stdout.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PySide6.QtCore import QEvent, QObject, QTimer, Slot
from PySide6.QtWidgets import QApplication

from app import main_window, running
from app.preferences import Preferences, preferences_path, write_preferences

LOOK_EVERY_MS = 5


class Closer(QObject):
    """Runs when the window stands, and closes it once the state is there."""

    def __init__(self, state: str) -> None:
        super().__init__()
        self.state, self.window, self.told = state, None, False
        self.timer = QTimer(self)
        self.timer.timeout.connect(self.look)
        self.timer.start(LOOK_EVERY_MS)

    def eventFilter(self, watched, event):
        """At the first painting of the window."""
        if event.type() == QEvent.Type.Paint and isinstance(watched, main_window.MainWindow) and not self.told:
            self.told, self.window = True, watched
            heavy = sorted({"torch", "transformers", "pyqtgraph"} & set(sys.modules))
            print("painted with", heavy, flush=True)
        return False

    @Slot()
    def look(self) -> None:
        window = self.window
        if window is None or not self.there(window):
            return
        self.timer.stop()
        print("closing", window.engine.busy, flush=True)
        window.close()

    def there(self, window: main_window.MainWindow) -> bool:
        if self.state == "replay":
            run = window.store.current
            if run is None or not window.plots or window.plots[0].grab().isNull():
                return False
            heavy = sorted({"torch", "transformers"} & set(sys.modules))
            print("replayed with", heavy, len(run.tokens), repr(run.text), flush=True)
            return True
        if self.state == "load":
            return window.store.load_progress is not None
        run = window.store.current
        if run is None:
            if window.store.facts is not None and not window.engine.busy:
                window.running.start_run()
            return False
        if len(run.tokens) < 3:
            return False
        window.show_keys()  # a dialog is no reason to stay
        return True


def main(state: str, model: str, folder: str) -> int:
    preferences = Preferences(model=model, raw=True, prompt="ab", max_new_tokens=100_000, seconds_per_token=0.01)
    preferences.sampling = {"temperature": 0}
    write_preferences(preferences, preferences_path())
    running.runs_folder = lambda: Path(folder)
    application = QApplication(["glasswork"])
    closer = Closer(state)
    application.installEventFilter(closer)
    code = main_window.run_window(model if state == "replay" else None)
    application.removeEventFilter(closer)
    del closer, application
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
