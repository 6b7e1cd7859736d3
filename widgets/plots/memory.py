"""Memory while loading and writing: the process as measured, weights and KV cache, the prediction, the limit."""

from __future__ import annotations

from operator import attrgetter

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from engine.events import MemoryReading, SessionFacts
from widgets.format import bytes_text
from widgets.ledger_view import PARTS_OF_RUN
from widgets.plots.base import DASHED, DOTTED, GROUND, LINE, Plot
from widgets.plots.columns import Columns
from widgets.plots.kv_cache import exact_per_token
from widgets.run import Run
from widgets.run_store import RunStore

LIMIT_WITHIN = 3.0  # a limit further away than this many times the top would flatten everything: it is told in words
LAST_S = 120.0  # shown by time while nothing is written


class MemoryPlot(Plot):
    """Over the tokens of a run; before one, over the last two minutes.

    Readings come twice a second and tokens carry no clock, so a reading stands at the token that was newest when it
    came. A replay brings no readings: its weights and cache are drawn.
    """

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(store, "", parent)
        self.set_title(self.tr("Memory"))
        self.title_label.setToolTip(
            self.tr(
                "Grounds: weights, and the KV cache on top of them, both measured. Line: the memory of this process, "
                "measured twice a second; it also holds the libraries. Dotted: predicted weights and cache. Dashed: "
                "the limit, what this process has and what the machine could still give. On a GPU also what the "
                "allocator holds (line) and what the driver counts for all programs (dashed).\n"
                "By token while a run is shown, before that by time."
            )
        )
        self._columns = Columns(attrgetter("kv_bytes"), lambda token: token.context_used_tokens - 1)
        self.cache = self.curve("kv_cache", fill=0.45)
        self.weights = self.curve("weights", fill=0.45)
        self.predicted = self.curve("ink", width=1.2, style=Qt.PenStyle.DotLine)
        self.process = self.curve("accent", width=1.6)
        self.gpu = self.curve("probability", width=1.6)
        self.driver = self.curve("probability", width=1.2, style=Qt.PenStyle.DashLine)
        self.cap = self.limit()
        self.begin()

    def state(self) -> tuple:
        return (*super().state(), self.store.readings[-1] if self.store.readings else None)

    def redraw(self, run: Run | None) -> None:
        if run is not None and run.tokens:
            self._draw_run(run)
        else:
            self._draw_time()

    def _draw_run(self, run: Run) -> None:
        self.by_token = True
        self.show_empty("")
        used, cached = self._columns.of(run)
        steps = np.arange(len(used))
        weights = float(run.facts.weights_bytes) if run.facts is not None else 0.0
        self.weights.draw(steps, np.full(len(used), weights) if weights else ())
        self.cache.draw(steps, used + weights)
        tops = [weights + float(used.max())]
        predicted = predicted_weights(run.facts)
        per_token = exact_per_token(run.facts, float(used[0]), float(cached[0]))
        if predicted is not None and per_token:
            line = predicted + cached * per_token
            self.predicted.draw(steps, line)
            tops.append(float(line.max()))
        else:
            self.predicted.draw((), ())
        self.set_legend(
            ("weights", GROUND, self.tr("weights")),
            ("kv_cache", GROUND, self.tr("cache")),
            ("ink", DOTTED, self.tr("predicted")),
            *(self._reading_words() if run.readings else ()),
        )
        places = [place for place, _ in run.readings]
        tops.append(self._draw_readings(places, [reading for _, reading in run.readings]))
        self._finish(0, max(1, len(used) - 1), max(tops), self.tr("tokens"))
        self.tell()

    def _draw_time(self) -> None:
        self.by_token = False
        readings = self.store.readings
        if len(readings) < 2:
            self.set_remark("")
            self.show_empty(self.tr("The memory of weights, cache and process. Load a model, then press Run."))
            return
        self.show_empty("")
        now = readings[-1].time_s
        shown = [reading for reading in readings if now - reading.time_s <= LAST_S]
        self.set_legend(*self._reading_words())
        for curve in (self.weights, self.cache, self.predicted):
            curve.draw((), ())
        start = shown[0].time_s
        top = self._draw_readings([reading.time_s - start for reading in shown], shown)
        self._finish(0, max(10.0, now - start), top, self.tr("s"))
        size = bytes_text(readings[-1].process_bytes)
        self.set_remark(
            self.tr("process {size}, measured").format(size=size), "", self.tr("process {size}").format(size=size), size
        )

    def _reading_words(self) -> list[tuple[str, str, str]]:
        words = [("accent", LINE, self.tr("process"))]
        if self.store.readings and self.store.readings[-1].gpus:
            words += [("probability", LINE, self.tr("GPU")), ("probability", DASHED, self.tr("driver"))]
        return words

    def _draw_readings(self, places: list, readings: list[MemoryReading]) -> float:
        """Draws process and GPU; returns the largest figure."""
        process = [reading.process_bytes for reading in readings]
        allocated = [sum(g.allocated_bytes for g in r.gpus) if r.gpus else None for r in readings]
        driver = [
            sum(g.driver_used_bytes or 0 for g in r.gpus) if any(g.driver_used_bytes for g in r.gpus) else None
            for r in readings
        ]
        for curve, figures in ((self.process, process), (self.gpu, allocated), (self.driver, driver)):
            curve.draw(places, figures)
        return float(max((value for value in (*process, *allocated, *driver) if value is not None), default=0))

    def _finish(self, x_from: float, x_to: float, top: float, unit: str) -> None:
        reading = self.store.readings[-1] if self.store.readings else None
        run = self.store.current
        live = reading is not None and (run is None or bool(run.readings))
        limit = float(reading.process_bytes + reading.available_bytes) if reading is not None and live else 0.0
        near = 0.0 < limit <= top * LIMIT_WITHIN
        self.set_ranges(x_from, x_to, max(top, limit) if near else top, x_unit=unit)
        if near and reading is not None:
            words = self.tr("limit: {size} free").format(size=bytes_text(reading.available_bytes))
            self.cap.show(limit, words, x_to)
        else:
            self.cap.hide()

    def tell(self) -> None:
        token, run = self.store.shown_token, self.store.current
        if token is None or run is None:
            return
        parts = []
        if run.facts is not None:
            size = bytes_text(run.facts.weights_bytes + token.kv_bytes)
            parts.append(self.tr("model {size}").format(size=size))
        if reading := run.reading_at(token.step):
            parts.append(self.tr("process {size}").format(size=bytes_text(reading.process_bytes)))
        self.set_remark(
            " · ".join(parts),
            self.tr("Measured at the shown token. Model: weights and KV cache. Process: all of this program."),
            *parts[:1],
        )


def predicted_weights(facts: SessionFacts | None) -> int | None:
    """What was predicted for the weights, from the ledger; None where there is no prediction."""
    if facts is None:
        return None
    parts = [part.predicted_bytes for part in facts.ledger if part.name not in PARTS_OF_RUN]
    known = [size for size in parts if size is not None]
    return sum(known) if known else None
