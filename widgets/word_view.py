"""Why this word: the alternatives, what the settings did to them, and the draw."""

from __future__ import annotations

import math
from collections.abc import Sequence

from PySide6.QtCore import (
    QCoreApplication,
    QEasingCurve,
    QElapsedTimer,
    QRectF,
    QSize,
    Qt,
    QTimer,
    QVariantAnimation,
    Signal,
)
from PySide6.QtGui import QIcon, QPainter, QPen, QPixmap, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QToolButton, QWidget

from engine.events import Candidate, TokenEvent
from engine.settings import ForkWish
from widgets import theme
from widgets.candidate_list import CandidateList
from widgets.draw_bar import DrawBar
from widgets.format import (
    bits,
    count_text,
    nats_text,
    number_text,
    percent_text,
    plain_tooltip,
    token_label,
)
from widgets.panel import ElidedLabel, FittingLabel, Panel, PlainLabel
from widgets.run_store import RunStore

QUICK_MS = 250  # tokens that follow faster than this are shown without motion


class WordView(Panel):
    """Shows the hovered, else the selected token of a store's current run."""

    asked = Signal(object)  # a ForkWish: the text goes on with another word

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__("", parent)
        self.set_title(self.tr("Why this word"))
        self.store = store
        self._shown: TokenEvent | None = None
        self.word_label = ElidedLabel()
        self.word_label.setTextInteractionFlags(Qt.TextInteractionFlag.NoTextInteraction)
        left = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignAbsolute  # also words that are read from the right
        self.word_label.setAlignment(left | Qt.AlignmentFlag.AlignVCenter)
        self.facts_label = FittingLabel("muted")
        self.rank_label = PlainLabel("", "muted")
        self.others_label = FittingLabel("muted")
        self.rows = CandidateList(self)
        self.rows.go_on_asked.connect(self._go_on_with)
        self.draw = DrawBar(self)
        self.setFocusProxy(self.rows)
        self.show_focus_of(self.rows)
        self.before_button = self._legend(
            self.tr("before"),
            self.tr("Outline: the probability before all settings, as the model gave it"),
            self.rows.set_before,
        )
        self.after_button = self._legend(
            self.tr("after"),
            self.tr("Solid: the probability after all settings, what is drawn from"),
            self.rows.set_after,
        )
        head = QHBoxLayout()
        head.addWidget(self.word_label, 1)
        head.addWidget(self.rank_label)
        self.body.setSpacing(4)
        self.body.addLayout(head)
        self.body.addWidget(self.facts_label)
        self.body.addWidget(self.rows, 1)
        self.others_label.setToolTip(
            self.tr(
                "What all words that are not listed share: 1 minus the sum of the listed ones, from an exact "
                "log-sum-exp over the whole vocabulary; measured."
            )
        )
        self.body.addWidget(self.others_label)
        self.body.addWidget(self.draw)
        self._since = QElapsedTimer()
        self._motion = QVariantAnimation(self)
        self._motion.setStartValue(0.0)
        self._motion.setEndValue(1.0)
        self._motion.setDuration(theme.MOTION_MS)
        self._motion.setEasingCurve(QEasingCurve.Type.OutCubic)
        self._motion.valueChanged.connect(self._move)
        self._settled = QTimer(self)
        self._settled.setSingleShot(True)
        self._settled.setInterval(QUICK_MS)
        self._settled.timeout.connect(self._describe)
        store.frame.connect(self.refresh)
        store.selection_changed.connect(self.refresh)
        store.hover_changed.connect(self.refresh)
        theme.changes.changed.connect(self._restyle)
        self._restyle()
        self._write(None, ())

    def _legend(self, text: str, tooltip: str, slot: object) -> QToolButton:
        button = self.add_button(text, tooltip=tooltip)
        button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        button.setCheckable(True)
        button.setChecked(True)
        button.toggled.connect(slot)
        return button

    def _restyle(self) -> None:
        self.word_label.setFont(theme.mono(2, bold=True))
        for label in (self.facts_label, self.rank_label, self.others_label):
            label.setFont(theme.font(-1))
        for button, solid in ((self.before_button, False), (self.after_button, True)):
            button.setFont(theme.font(-2))
            button.setIcon(swatch(solid))

    def sizeHint(self) -> QSize:
        return QSize(theme.base_px() * 26, theme.base_px() * 36)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()

    def refresh(self) -> None:
        """Shows the store's token; with a little motion where it is not one of many in quick succession."""
        token = self.store.shown_token
        if token is self._shown or not self.isVisible():
            return
        self._shown = token
        quick = self._since.isValid() and self._since.elapsed() < QUICK_MS
        self._since.start()
        candidates = token.candidates if token is not None else ()
        self.rows.set_token(token, candidates)
        self.draw.set_token(token, candidates)
        self._write(token, candidates)
        self._motion.stop()
        self._settled.start()
        if token is None or quick or not theme.motion:
            self._move(1.0)
        else:
            self._motion.start()

    def _describe(self) -> None:
        """What takes time and is only read by a resting eye: tool tips, and words for screen readers."""
        token = self._shown
        self.rows.describe()
        self.draw.describe()
        if token is not None:
            self._write_tooltips(token)

    def _go_on_with(self, token_id: object) -> None:
        run, step = self.store.current, self.store.selected_step
        if run is not None and step is not None and run.tokens[step] is self._shown:
            self.asked.emit(ForkWish(run.place(step), forced=(int(token_id),)))  # type: ignore[call-overload]

    def _move(self, progress: float) -> None:
        self.rows.set_progress(progress)
        self.draw.set_progress(progress)

    def _write(self, token: TokenEvent | None, candidates: Sequence[Candidate]) -> None:
        for widget in (self.word_label, self.facts_label, self.rank_label, self.others_label, self.draw):
            widget.setVisible(token is not None)
        self.before_button.setEnabled(token is not None)
        self.after_button.setEnabled(token is not None)
        if token is None:
            return
        self.word_label.setText(token_label(token.token_text))
        self.rank_label.setText(self.tr("rank {rank}").format(rank=count_text(token.rank + 1)))
        surprise, entropy = nats_text(token.surprise_nats), nats_text(token.entropy_nats)
        in_bits = number_text(bits(token.surprise_nats), 2)
        self.facts_label.set_wordings(
            self.tr("surprise {nats} ({bits} bits) · entropy {entropy}").format(
                nats=surprise, bits=in_bits, entropy=entropy
            ),
            self.tr("surprise {nats} · entropy {entropy}").format(nats=surprise, entropy=entropy),
        )
        self.others_label.set_wordings(*others_texts(token, candidates))

    def _write_tooltips(self, token: TokenEvent) -> None:
        place = self.tr("token {id}, number {step} of the run")
        self.word_label.setToolTip(place.format(id=token.token_id, step=count_text(token.step + 1)))
        self.rank_label.setToolTip(
            self.tr("Place by the model's own probability, among {vocabulary} words; measured.").format(
                vocabulary=count_text(token.vocab_size)
            )
        )
        self.facts_label.setToolTip(
            plain_tooltip(
                self.tr(
                    "Surprise is −ln p of the chosen word before the settings, p = {p}.\n"
                    "Entropy is −Σ p ln p over the whole vocabulary: {before} before the settings, {after} after; "
                    "as uncertain as a fair choice among {choices} words.\nMeasured."
                ).format(
                    p=percent_text(math.exp(token.logprob), 3),
                    before=nats_text(token.entropy_nats),
                    after=nats_text(token.final_entropy_nats),
                    choices=number_text(math.exp(min(token.entropy_nats, 50.0)), 1),
                )
            )
        )


def others_texts(token: TokenEvent, candidates: Sequence[Candidate]) -> tuple[str, str]:
    """How many words are not listed and what they share, in a longer and a shorter wording."""
    raw = max(0.0, 1.0 - math.fsum(c.raw for c in candidates))
    final = max(0.0, 1.0 - math.fsum(c.final or 0.0 for c in candidates))
    count = max(0, token.vocab_size - len(token.candidate_ids))
    if token.u is None or token.kept_after("typical_p") <= sum(not code for code in token.candidate_cuts):
        final = 0.0  # all that were kept are listed: what is left is rounding
    figures = {"count": count_text(count), "raw": percent_text(raw), "final": percent_text(final)}
    translate = QCoreApplication.translate
    return (
        translate("WordView", "{count} more words share {raw} before the settings, {final} after").format(**figures),
        translate("WordView", "{count} more words: {raw} before, {final} after").format(**figures),
    )


def swatch(solid: bool) -> QIcon:
    """The legend's small bar: outline or solid, as in the rows."""
    look, ratio = theme.current(), 3
    pixmap = QPixmap(14 * ratio, 14 * ratio)
    pixmap.setDevicePixelRatio(ratio)
    pixmap.fill(Qt.GlobalColor.transparent)
    with QPainter(pixmap) as painter:  # an exception must not leave it open: that ends the process
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(look.probability, 1.2))
        painter.setBrush(look.probability if solid else Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(QRectF(1.5, 3.0, 11.0, 8.0), 2.0, 2.0)
    return QIcon(pixmap)
