"""The line at the bottom: what is going on, and the figures of the current run. From the left the most important."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QEvent, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QHelpEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from engine.events import TokenEvent
from widgets import theme
from widgets.format import bytes_text, count_text, duration_text, percent_text, plain_tooltip, rate_text, tokens_text
from widgets.reuse import reuse_parts, reuse_tooltip
from widgets.run import Run
from widgets.run_store import RunStore

SPACE = 20.0  # between figures
RECENT = 32  # tokens that the running speed is taken from


@dataclass(frozen=True, slots=True)
class Figure:
    """A name, its value, and in the tool tip what it is: measured, predicted or estimated."""

    name: str
    value: str
    rest: str = ""  # muted, after the value
    tooltip: str = ""


@dataclass(frozen=True, slots=True)
class Pace:
    """Times of a run, in milliseconds; None: not yet known."""

    ttft_ms: float | None
    per_token_ms: float | None
    tokens_per_s: float | None
    ended: bool


def pace(run: Run, moment: int | None = None) -> Pace:
    """The engine's own figures once a run has ended; until then from its events, waiting for a person not counted.

    moment: as it was when so many tokens were written.
    """
    count = len(run.tokens) if moment is None else moment
    if run.end is not None and count == len(run.tokens):
        rate, fresh = run.end.decode_tokens_per_s, run.end.new_tokens - len(run.start.written)
        per_token = run.end.decode_ms / (fresh - 1) if fresh > 1 else None
        if rate > 0.0:
            per_token = 1000.0 / rate
        ttft = run.end.ttft_ms if fresh > 0 else None
        return Pace(ttft, per_token, rate if rate > 0.0 else None, True)
    begins = run.begins  # what a fork began with, another run was timed for
    if count <= begins:
        return Pace(None, None, None, False)
    prefill = run.prefill[-1].elapsed_ms if run.prefill else 0.0
    first = run.tokens[begins]
    # The first token's logits come out of the prefill: only what is not in it is added.
    ttft = run.start.tokenise_ms + max(prefill, first.forward_ms) + first.sampling_ms
    recent = run.tokens[max(begins + 1, count - RECENT) : count]
    if not recent:
        return Pace(ttft, None, None, False)
    per_token = sum(step_ms(token) for token in recent) / len(recent)
    return Pace(ttft, per_token, 1000.0 / per_token if per_token > 0.0 else None, False)


def step_ms(token: TokenEvent) -> float:
    return token.forward_ms + token.sampling_ms


class StatusLine(QWidget):
    """Painted, so that what does not fit is left out from the right instead of pushing the window wider."""

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.store = store
        self.state, self.figures, self.forecast = "", [], None
        self._places: list[tuple[QRectF, Figure]] = []
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(self.tr("State and figures of the run"))
        store.frame.connect(self.refresh)
        store.selection_changed.connect(self.refresh)
        theme.changes.changed.connect(self._restyle)
        self.refresh()

    def _restyle(self) -> None:
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(480, round(QFontMetricsF(theme.font(-1)).height() + 8))

    def minimumSizeHint(self) -> QSize:
        return QSize(60, self.sizeHint().height())

    def refresh(self) -> None:
        """Reads the store again."""
        self.state = self._state()
        self.figures = self._figures()
        self.forecast = self._forecast()
        shown = [*self.figures, *([self.forecast] if self.forecast else [])]
        words = ", ".join([self.state, *(" ".join(f"{f.name} {f.value}{f.rest}".split()) for f in shown)])
        if words != self.accessibleDescription():
            self.setAccessibleDescription(words)
            self.update()

    def _state(self) -> str:
        run, activity = self.store.current, self.store.activity
        words = {
            "loading": self.tr("Loading the model"),
            "prefill": self.tr("Reading the prompt"),
            "decode": self.tr("Writing"),
            "paused": self.tr("Paused"),
            "x-ray": self.tr("Precision x-ray runs"),
            "experiment": self._experiment(),
        }
        if activity in words:
            return words[activity]
        if self.store.rewound and run is not None and self.store.moment < len(run.tokens):
            playing, back = self.tr("Playing back: {number} of {count}"), self.tr("Back at token {number} of {count}")
            number, count = count_text(self.store.moment), count_text(len(run.tokens))
            return (playing if self.store.playing else back).format(number=number, count=count)
        if run is not None and run.end is not None:
            if run.end.breaks_off:
                return self.tr("Recording damaged")
            ends = {
                "cancelled": self.tr("Stopped"),
                "error": self.tr("Failed"),
                "context full": self.tr("Context full"),
            }
            return ends.get(run.end.reason, self.tr("Done"))
        return self.tr("Ready") if self.store.facts is not None else self.tr("No model loaded")

    def _experiment(self) -> str:
        progress = self.store.experiment
        if progress is None or not progress.total:
            return self.tr("An experiment runs")
        return self.tr("An experiment runs: {share}").format(share=percent_text(progress.done / progress.total, 0))

    def _figures(self) -> list[Figure]:
        found: list[Figure] = []
        run = self.store.current
        if run is not None:
            found += self._pace_figures(run)
            moment = self.store.moment
            used = run.tokens[moment - 1].context_used_tokens if moment else len(run.start.prompt_tokens)
            limit = run.start.context_tokens
            found.append(
                Figure(
                    self.tr("Context"),
                    count_text(used),
                    f" / {count_text(limit)}" if limit else "",
                    self.tr(
                        "Tokens of the prompt and of the text in the KV cache, of what the model can hold; measured."
                    ),
                )
            )
        if run is not None and run.end is not None and run.end.reused_tokens:
            reused, computed = reuse_parts(run.end, len(run.start.written))
            found.append(Figure("", reused, f", {computed}" if computed else "", reuse_tooltip()))
        reading = self.store.readings[-1] if self.store.readings else None
        if self.store.rewound and run is not None:
            reading = run.reading_at(self.store.moment - 1)
        if reading is not None:
            found.append(
                Figure(
                    self.tr("Memory"),
                    bytes_text(reading.process_bytes),
                    "",
                    self.tr(
                        "Resident memory of this process; measured. {free} of {total} are free on this machine."
                    ).format(free=bytes_text(reading.available_bytes), total=bytes_text(reading.total_bytes)),
                )
            )
        return found

    def _pace_figures(self, run: Run) -> list[Figure]:
        times, found = pace(run, self.store.moment), []
        if times.ttft_ms is not None:
            how = (
                self.tr("Time to first token (TTFT): from the request to the first token; measured.")
                if times.ended
                else self.tr(
                    "Time to first token (TTFT): tokenising + prefill + first draw; measured, waiting not counted."
                )
            )
            found.append(Figure(self.tr("First token"), duration_text(times.ttft_ms), "", how))
        if times.per_token_ms is not None:
            over = self.tr("the whole run") if times.ended else self.tr("the last {count} tokens").format(count=RECENT)
            found.append(
                Figure(
                    self.tr("Per token"),
                    duration_text(times.per_token_ms),
                    "",
                    self.tr(
                        "Time per output token after the first (TPOT), mean over {over}; measured, pauses left out."
                    ).format(over=over),
                )
            )
            found.append(
                Figure(
                    self.tr("Speed"),
                    rate_text(times.tokens_per_s),
                    "",
                    self.tr("Tokens per second while decoding, 1 / time per token, over {over}; measured.").format(
                        over=over
                    ),
                )
            )
        return found

    def _forecast(self) -> Figure | None:
        run = self.store.current
        moment = self.store.moment
        if run is None or not moment or not run.start.context_tokens:
            return None
        if not run.running and moment == len(run.tokens):
            return None
        used = run.tokens[moment - 1].context_used_tokens
        left = run.start.context_tokens - used
        return Figure(
            "",
            "",
            self.tr("context full in {tokens} (forecast)").format(tokens=tokens_text(max(0, left))),
            self.tr(
                "The model's limit minus the tokens in use: {share} are used. Predicted; a run may end before."
            ).format(share=percent_text(used / run.start.context_tokens)),
        )

    def paintEvent(self, event: QPaintEvent) -> None:
        with QPainter(self) as painter:  # an exception must not leave it open: that ends the process
            self._paint(painter)

    def _paint(self, painter: QPainter) -> None:
        look = theme.current()
        plain, bold = theme.font(-1), theme.font(-1, bold=True)
        self._places = []
        limit = float(self.width())
        if self.forecast is not None:
            width = QFontMetricsF(plain).horizontalAdvance(self.forecast.rest)
            needed = sum(self._width(f, plain, bold) + SPACE for f in self.figures)
            if QFontMetricsF(plain).horizontalAdvance(self.state) + needed + width + SPACE * 1.5 < limit:
                box = QRectF(limit - width, 0.0, width + 1, self.height())
                self._text(painter, box, self.forecast.rest, plain, look.muted)
                self._places.append((box, self.forecast))
                limit = box.left() - SPACE
        metrics = QFontMetricsF(plain)
        state = metrics.elidedText(self.state, Qt.TextElideMode.ElideRight, limit)
        x = metrics.horizontalAdvance(state)
        self._text(painter, QRectF(0.0, 0.0, x + 1, self.height()), state, plain, look.muted)
        for figure in self.figures:
            x += SPACE
            width = self._width(figure, plain, bold)
            if x + width > limit:
                if x + metrics.horizontalAdvance("…") <= limit:
                    self._text(painter, QRectF(x, 0.0, 20.0, self.height()), "…", plain, look.muted)
                break
            self._places.append((QRectF(x, 0.0, width, self.height()), figure))
            for text, font, colour in (
                (figure.name + " ", plain, look.muted),
                (figure.value, bold, look.ink),
                (figure.rest, plain, look.muted),
            ):
                advance = QFontMetricsF(font).horizontalAdvance(text)
                self._text(painter, QRectF(x, 0.0, advance + 2, self.height()), text, font, colour)
                x += advance

    @staticmethod
    def _width(figure: Figure, plain: object, bold: object) -> float:
        metrics = QFontMetricsF(plain)
        words = metrics.horizontalAdvance(figure.name + " ") + metrics.horizontalAdvance(figure.rest)
        return words + QFontMetricsF(bold).horizontalAdvance(figure.value)

    @staticmethod
    def _text(painter: QPainter, box: QRectF, text: str, font: object, colour: object) -> None:
        painter.setFont(font)
        painter.setPen(colour)
        painter.drawText(box, int(Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine), text)

    def figure_at(self, x: float, y: float) -> Figure | None:
        """The figure painted at a place."""
        return next((figure for box, figure in self._places if box.contains(x, y)), None)

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            figure = self.figure_at(event.pos().x(), event.pos().y())
            if figure is not None:
                QToolTip.showText(event.globalPos(), plain_tooltip(figure.tooltip), self)
            else:
                QToolTip.hideText()
            return True
        return super().event(event)
