"""Tokens per second while a run decodes; prefill is told apart, since it reads many tokens at once."""

from __future__ import annotations

import math
from operator import attrgetter

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from widgets.format import rate_text
from widgets.plots.base import DASHED, LINE, THIN, Plot, rate_ticks
from widgets.plots.columns import Columns
from widgets.run import Run
from widgets.run_store import RunStore
from widgets.status_line import step_ms

CEILING_WITHIN = 4.0  # a ceiling further away than this many times the speed would flatten it: the share is told
WINDOW = 16  # tokens of which the smoothed line is the mean


def rolling_rate(times_ms: np.ndarray, window: int = WINDOW) -> np.ndarray:
    """Tokens per second at each token: 1000 over the mean time of it and the window - 1 tokens before it."""
    if not len(times_ms):
        return np.empty(0)
    sums = np.cumsum(np.nan_to_num(times_ms, nan=0.0, posinf=0.0, neginf=0.0))
    before = np.concatenate([np.zeros(min(window, len(sums))), sums[:-window]])
    counts = np.minimum(np.arange(1, len(sums) + 1), window)
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = 1000.0 * counts / (sums - before)
    return np.where(np.isfinite(rates), rates, np.nan)


def nearly_all(rates: np.ndarray) -> float:
    """What 99 of 100 do not exceed: one token that came from a cache in no time must not flatten all others."""
    return float(np.sort(rates)[(len(rates) - 1) * 99 // 100]) if len(rates) else 0.0


def ceilings(run: Run, cached_bytes: np.ndarray) -> np.ndarray:
    """Tokens per second that memory allows at each token: bandwidth over the bytes read, weights and KV cache.

    Empty where the bandwidth was not measured. Sinks as the cache grows.
    """
    facts = run.facts
    if facts is None or not facts.read_bytes_per_s > 0 or facts.read_bytes_per_token <= 0:
        return np.empty(0)
    return facts.read_bytes_per_s / (facts.read_bytes_per_token + cached_bytes)


class SpeedPlot(Plot):
    """Decode speed by token, measured."""

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(store, "", parent)
        self.set_title(self.tr("Speed"))
        self.title_label.setToolTip(
            self.tr(
                "Line: decode, the mean of the last {window} tokens' forward and sampling time; measured. Pale line: "
                "each token by itself. Dashed: the ceiling, this process's measured memory bandwidth over the bytes "
                "that a token reads (weights and KV cache). The first token comes out of the prefill and is not drawn. "
                "Prefill stands in the header. Waiting for a pace or a pause is not counted."
            ).format(window=WINDOW)
        )
        self._columns = Columns(step_ms, attrgetter("kv_bytes"))
        self.single = self.curve("muted", width=0.6)
        self.smooth = self.curve("accent", width=1.8)
        self.ceiling = self.curve("warning", width=1.2, style=Qt.PenStyle.DashLine)
        self._rates = np.empty(0)
        self._ceilings = np.empty(0)
        self.begin()

    def redraw(self, run: Run | None) -> None:
        if run is None or len(run.tokens) < 2:
            self._rates = np.empty(0)
            self.set_remark(self._prefill_text(run))
            self.show_empty(
                self.tr("Tokens per second while the model writes; it needs two tokens. Press Run, or One token again.")
                if run is not None and run.tokens
                else self.tr("Tokens per second, measured while the model writes. Press Run.")
            )
            return
        self.show_empty("")
        times, cached = (column[1:] for column in self._columns.of(run))
        steps = np.arange(1, len(times) + 1)
        self._rates = rolling_rate(times)
        each = rolling_rate(times, 1)
        self.single.draw(steps, each)
        self.smooth.draw(steps, self._rates)
        smooth = self._rates[np.isfinite(self._rates)]
        top = max(nearly_all(each[np.isfinite(each)]), nearly_all(smooth))
        self._ceilings = ceilings(run, cached)
        near = bool(len(self._ceilings) and len(smooth)) and self._ceilings.max() <= smooth.max() * CEILING_WITHIN
        self.ceiling.draw(steps, self._ceilings if near else ())
        if near:
            top = max(top, float(self._ceilings.max()))
        self.set_ranges(0, max(1, len(times)), top * 1.1, rate_ticks, self.tr("tokens"))
        self.tell()

    def tell(self) -> None:
        step = self.store.hovered_step if self.store.hovered_step is not None else self.store.selected_step
        run = self.store.current
        parts = []
        if step is not None and 1 <= step <= len(self._rates):
            parts.append(self.tr("decode {rate}").format(rate=rate_text(self._rates[step - 1])))
        self._tell_legend(step)
        parts.append(self._prefill_text(run))
        parts = [part for part in parts if part]
        self.set_remark(
            " · ".join(parts),
            self.tr("Prefill: prompt tokens read, by the time it took. Decode: at the shown token. Both measured."),
            *parts[:1],
        )

    def _tell_legend(self, step: int | None) -> None:
        """The marks, and the share of the ceiling that was reached at the shown token."""
        if not len(self._rates):
            return
        words = [("accent", LINE, self.tr("mean of {window}").format(window=WINDOW)), ("muted", THIN, self.tr("each"))]
        if step is not None and 1 <= step <= len(self._ceilings):
            share = self._rates[step - 1] / self._ceilings[step - 1] * 100
            if math.isfinite(share):
                full, short = self.tr("memory's ceiling: {percent}% reached"), self.tr("ceiling: {percent}% reached")
                text = (short if self.narrow() else full).format(percent=f"{share:.0f}")
                words.append(("warning", DASHED, text))
        self.set_legend(*words)

    def _prefill_text(self, run: Run | None) -> str:
        if run is None or not run.prefill or not run.prefill[-1].elapsed_ms > 0.0:
            return ""
        last = run.prefill[-1]
        read = last.done_tokens - last.reused_tokens
        if not read:
            return self.tr("prompt reused")
        rate = read / last.elapsed_ms * 1000.0
        return self.tr("prefill {rate}").format(rate=rate_text(rate)) if math.isfinite(rate) else ""
