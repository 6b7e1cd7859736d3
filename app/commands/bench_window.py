"""A process of its own for bench: the real window, offscreen, with the real model; prints what it measured."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace

from engine.machine import calm_threads


def main() -> None:
    model, precision, kernel, tokens, started = *sys.argv[1:4], int(sys.argv[4]), float(sys.argv[5])
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    calm_threads()

    from PySide6.QtCore import QElapsedTimer, QEventLoop, QObject, QTimer, Slot
    from PySide6.QtWidgets import QApplication

    from app.main_window import MainWindow
    from app.preferences import Preferences
    from widgets import theme

    app = QApplication(["glasswork"])
    theme.apply(app)
    window = MainWindow(Preferences(model=model, precision=precision, kernel=kernel, max_new_tokens=tokens), visit="")
    window.show()
    app.processEvents()
    figures: dict[str, float] = {"visible_ms": (time.time() - started) * 1e3}

    class Pulse(QObject):
        """A timer of 5 ms: how late it comes is how long the event loop stood still."""

        def __init__(self) -> None:
            super().__init__()
            self.longest_ms, self.frames = 0.0, 0
            self._since = QElapsedTimer()
            self._timer = QTimer(self)
            self._timer.setInterval(5)
            self._timer.timeout.connect(self.beat)
            window.store.frame.connect(self.frame)

        def start(self) -> None:
            self.longest_ms, self.frames = 0.0, 0
            self._since.start()
            self._timer.start()

        @Slot()
        def beat(self) -> None:
            self.longest_ms = max(self.longest_ms, self._since.nsecsElapsed() / 1e6 - 5)
            self._since.start()

        @Slot()
        def frame(self) -> None:
            self.frames += 1

    class Waiting(QObject):
        """The window's own event loop, as long as the engine is busy."""

        def __init__(self) -> None:
            super().__init__()
            self._loop = QEventLoop()
            window.engine.busy_changed.connect(self.changed)

        @Slot(object)
        def changed(self, busy: object) -> None:
            if not busy:
                self._loop.quit()

        def wait(self) -> None:
            if window.engine.busy:
                self._loop.exec()

    wait = Waiting().wait

    pulse = Pulse()
    window.start()
    wait()
    window.sampling_panel.restore(replace(window.sampling_panel.settings(), temperature=0.8), tokens, (), 0.0)
    window.running.start_run()  # the first run warms up
    wait()
    window.running.start_run()
    while not (window.store.current and window.store.current.tokens and window.store.current.running):
        app.processEvents()
    pulse.start()
    began = time.perf_counter()
    wait()
    elapsed = time.perf_counter() - began
    run = window.store.current
    assert run is not None
    assert run.end is not None
    figures |= {
        "decode_tokens_per_s": run.end.decode_tokens_per_s,
        "longest_stall_ms": pulse.longest_ms,
        "frames_per_s": pulse.frames / elapsed,
    }
    figures |= ten_thousand_tokens(window, app)
    print(json.dumps(figures), flush=True)
    window.engine.close()
    os._exit(0)


def ten_thousand_tokens(window, app) -> dict[str, float]:
    """Memory that the window grows by, and one repaint, with the run's own events repeated to 10,000 tokens."""
    import psutil

    run = window.store.current
    tokens = list(run.tokens)
    start = replace(run.start, run_id=10**6, max_new_tokens=10_000)
    app.processEvents()
    before = psutil.Process().memory_info().rss
    window.store.take(start)
    for step in range(10_000):
        token = tokens[step % len(tokens)]
        # Each event with arrays of its own, as the loop makes them.
        window.store.take(
            replace(
                token,
                run_id=10**6,
                step=step,
                candidate_ids=token.candidate_ids[:],
                candidate_logits=token.candidate_logits[:],
                candidate_adjusted=token.candidate_adjusted[:],
                candidate_cuts=bytes(bytearray(token.candidate_cuts)),
                candidate_texts=(*token.candidate_texts,),
                context_used_tokens=step + 50,
            )
        )
        if step % 20 == 0:
            app.processEvents()
    for _ in range(20):
        app.processEvents()
        time.sleep(0.01)
    grown = psutil.Process().memory_info().rss - before
    times = []
    for step in range(10):
        window.store.select(step * 900)
        app.processEvents()
        began = time.perf_counter()
        window.text_view.canvas.viewport().repaint()
        times.append((time.perf_counter() - began) * 1e3)
    return {"text_grown_bytes": grown, "repaint_ms": sorted(times)[len(times) // 2]}


if __name__ == "__main__":
    main()
