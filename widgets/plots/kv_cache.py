"""The KV cache over the tokens of a run: measured, and exact by the model's shape."""

from __future__ import annotations

from operator import attrgetter

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from engine.events import SessionFacts
from widgets.format import bytes_text, count_text, tokens_text
from widgets.plots.base import DOTTED, GROUND, THIN, Plot
from widgets.plots.columns import Columns
from widgets.run import Run
from widgets.run_store import RunStore


class KvCachePlot(Plot):
    """Bytes of one lane's keys and values in use."""

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(store, "", parent)
        self.set_title(self.tr("KV cache"))
        self.title_label.setToolTip(
            self.tr(
                "Keys and values of all tokens so far, kept so that they need not be computed again.\n"
                "Ground: measured, the entries in use. Dotted: exact, bytes per token × tokens in the cache; drawn "
                "where every layer keeps every token. Thin line: allocated, where that is more."
            )
        )
        self._columns = Columns(
            attrgetter("kv_bytes"), attrgetter("kv_allocated_bytes"), lambda token: token.context_used_tokens - 1
        )
        self.measured = self.curve("kv_cache", fill=0.32)
        self.allocated = self.curve("muted", width=1.0)
        self.exact = self.curve("ink", width=1.2, style=Qt.PenStyle.DotLine)
        self.begin()

    def redraw(self, run: Run | None) -> None:
        if run is None or not run.tokens:
            self.set_remark("")
            self.show_empty(self.tr("The cache's bytes, token by token. Press Run to fill it."))
            return
        self.show_empty("")
        used, allocated, cached = self._columns.of(run)
        steps = np.arange(len(used))
        self.measured.draw(steps, used)
        more = allocated > used
        self.allocated.draw(steps, np.where(more, allocated, np.nan) if more.any() else ())
        per_token = exact_per_token(run.facts, float(used[0]), float(cached[0]))
        exact = cached * per_token if per_token else np.empty(0)
        self.exact.draw(steps, exact)
        words = [("kv_cache", GROUND, self.tr("measured"))]
        if per_token:
            full = self.tr("exact: {count} B per token").format(count=count_text(per_token))
            words.append(("ink", DOTTED, self.tr("exact") if self.narrow() else full))
        if more.any():
            words.append(("muted", THIN, self.tr("allocated")))
        self.set_legend(*words)
        top = max(float(column.max()) for column in (used, allocated, exact) if len(column))
        self.set_ranges(0, max(1, len(used) - 1), top, x_unit=self.tr("tokens"))
        self.tell()

    def tell(self) -> None:
        token = self.store.shown_token
        if token is None:
            return
        size = bytes_text(token.kv_bytes)
        self.set_remark(
            f"{size} · {tokens_text(token.context_used_tokens - 1)}",
            self.tr("Measured at the shown token, one lane's entries in use. The shown token is not in it yet."),
            size,
        )


def exact_per_token(facts: SessionFacts | None, first_bytes: float, first_tokens: float) -> int | None:
    """Bytes per token where that is all there is to the cache, None where layers keep a window or a state instead.

    A window holds more per token until it is full, so that the rate beyond it does not explain the first token.
    """
    if facts is None or not facts.kv_bytes_per_token or first_tokens <= 0:
        return None
    part = next((part for part in facts.ledger if part.name == "kv_cache"), None)
    if part is not None and part.predicted_bytes and part.predicted_bytes % facts.kv_bytes_per_token == 0:
        tokens = part.predicted_bytes // facts.kv_bytes_per_token
        if facts.context_tokens and tokens > facts.context_tokens:
            return None
    windowed = first_bytes != facts.kv_bytes_per_token * first_tokens
    return None if windowed else facts.kv_bytes_per_token
