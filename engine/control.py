"""How a person reaches a running loop or load: stop, pause, one token, pace, settings. Safe from any thread."""

from __future__ import annotations

import threading
import time

from engine.settings import SamplingSettings


class Control:
    """One for each load or run. A queued slot would wait behind the work (THR-5); these flags are seen at once."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._cancelled = False
        self._paused = False
        self._single_steps = 0
        self._seconds_per_token = 0.0
        self._settings: dict[int, SamplingSettings] = {}

    def cancel(self) -> None:
        """Ends the work within one token, chunk or tensor. Stays cancelled."""
        with self._changed:
            self._cancelled = True
            self._changed.notify_all()

    def cancelled(self) -> bool:
        return self._cancelled

    def pause(self) -> None:
        with self._changed:
            self._paused, self._single_steps = True, 0
            self._changed.notify_all()

    def resume(self) -> None:
        with self._changed:
            self._paused = False
            self._changed.notify_all()

    def step_once(self) -> None:
        """One more token, then paused again. Pauses a run that was not."""
        with self._changed:
            self._paused = True
            self._single_steps += 1
            self._changed.notify_all()

    @property
    def paused(self) -> bool:
        return self._paused

    def set_pace(self, seconds_per_token: float) -> None:
        """At least this long from one token to the next; 0 is as fast as it goes."""
        with self._changed:
            self._seconds_per_token = max(0.0, seconds_per_token)
            self._changed.notify_all()

    def set_settings(self, lane: int, settings: SamplingSettings) -> None:
        """From the next token on."""
        with self._changed:
            self._settings[lane] = settings

    def take_settings(self) -> dict[int, SamplingSettings]:
        """The settings that came in since the last call, by lane."""
        if not self._settings:
            return {}
        with self._changed:
            taken, self._settings = self._settings, {}
            return taken

    def wait_turn(self, last_token_s: float) -> float:
        """Waits until the next token may be made: not paused, and the pace is kept. Wakes at once on cancel.

        last_token_s: `time.perf_counter()` at the last token. Returns the seconds waited.
        """
        if not self._paused and not self._seconds_per_token:
            return 0.0
        began = time.perf_counter()
        with self._changed:
            while not self._cancelled:
                if self._paused:
                    if self._single_steps:
                        self._single_steps -= 1
                        break
                    self._changed.wait()
                    continue
                remaining = last_token_s + self._seconds_per_token - time.perf_counter()
                if remaining <= 0:
                    break
                self._changed.wait(remaining)
        return time.perf_counter() - began
