"""How far a download is, how fast, and how long it still takes."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from engine.events import DownloadProgress
from engine.hub_store import DownloadPlan, RemoteFile, file_bytes_here

TELL_EVERY_S, TICK_S = 0.1, 0.5
SPEED_OVER_S = 4.0
Emit = Callable[[DownloadProgress], None]


class Meter:
    """Counts what has arrived and says it, ten times a second at most."""

    def __init__(self, plan: DownloadPlan, emit: Emit) -> None:
        self._plan, self._emit = plan, emit
        self._here = {file.name: file_bytes_here(plan, file) for file in plan.files}
        self._seen: deque[tuple[float, int]] = deque()
        self._told_s = 0.0
        self._last = ("downloading", "")

    async def tick(self) -> None:
        """Says it also while nothing arrives: the last bytes before a silence, and a speed that falls to nothing."""
        while True:
            await asyncio.sleep(TICK_S)
            if time.monotonic() - self._told_s >= TICK_S:
                self.tell(*self._last)

    def arrived(self, file: RemoteFile, have: int, state: str = "downloading") -> None:
        self._last = (state, file.name)
        if state == "checking":
            self._seen.clear()  # these bytes came from the disk
        else:
            self._here[file.name] = have
        if time.monotonic() - self._told_s >= TELL_EVERY_S:
            self.tell(state, file.name)

    def file_done(self, file: RemoteFile) -> None:
        self._here[file.name] = file.size
        self.tell("downloading", file.name)

    def tell(self, state: str, file: str) -> None:
        now, done = time.monotonic(), sum(self._here.values())
        self._told_s, self._last = now, (state, file)
        seen = self._seen
        if seen and done < seen[-1][1]:  # begun again
            seen.clear()
        seen.append((now, done))
        while len(seen) > 2 and now - seen[0][0] > SPEED_OVER_S:
            seen.popleft()
        span, came = now - seen[0][0], done - seen[0][1]
        speed = came / span if state == "downloading" and span > 0.2 else None
        left = (self._plan.total_bytes - done) / speed if speed else None
        self._emit(
            DownloadProgress(self._plan.hub_id, self._plan.name, state, done, self._plan.total_bytes, speed, left, file)
        )
