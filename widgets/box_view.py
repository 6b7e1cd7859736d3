"""What a box of the pipeline strip knows now: facts with their source, and the newest token's figures."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QGridLayout, QSizePolicy, QStackedWidget, QVBoxLayout, QWidget

from engine.events import Fact, PromptToken, TokenEvent
from widgets import theme
from widgets.boxes import PAGES, recorded
from widgets.format import (
    bytes_text,
    count_text,
    duration_text,
    nats_text,
    number_text,
    percent_text,
    plain_tooltip,
    rate_text,
    token_label,
    tokens_text,
)
from widgets.panel import Panel, PlainLabel, scrolling
from widgets.pipeline_boxes import BOXES, LOAD, is_chat, title, tooltip
from widgets.run_store import RunStore
from widgets.small import SmallLabel, SmallText
from widgets.status_line import pace

MEASURED, TAKEN = "measured", "events"
MOST_TOKENS = 400  # of a prompt, listed with their ids


class BoxView(Panel):
    """One box at a time; `show_box` chooses it. Boxes in `PAGES` have a page of their own, others a table of facts."""

    asked = Signal(object)  # a page's question to the engine, frozen

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__("", parent)
        self.store = store
        self.box = "tokenise"
        self._shown: tuple = ()
        self._names: list[str] = []
        self._labels: list[tuple[PlainLabel, PlainLabel]] = []  # value and source of each row
        self.about = SmallText()
        self._area = scrolling(None, self.tr("What this step of the pipeline knows"))
        self._stack = QStackedWidget()
        # A new page asks for more room at first than it needs: the panel would stay so wide, and the text narrower.
        self._stack.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Expanding)
        self._stack.addWidget(self._area)
        self._pages: dict[str, QWidget] = {}
        self.body.addWidget(self.about)
        self.body.addWidget(self._stack, 1)
        self._rows = {
            "tokenise": self._tokenise,
            "embed": self._embed,
            "layers": self._layers,
            "probabilities": self._probabilities,
            "sample": self._sample,
            "detokenise": self._detokenise,
            "format": self._format,
            "stream": self._stream,
        }
        store.frame.connect(self.refresh)
        store.selection_changed.connect(self.refresh)
        store.hover_changed.connect(self.refresh)
        self.show_box(self.box)

    def show_box(self, name: str) -> None:
        """Shows a box, one of pipeline_boxes.BOXES; other names change nothing."""
        if name in BOXES:
            self.box = name
            self._shown = ()
            self.refresh()

    def page(self, name: str) -> QWidget | None:
        """The page of a box, made when first asked for; None where the box has the table of facts."""
        if name in PAGES and name not in self._pages:
            page = self._pages[name] = PAGES[name](self.store)  # type: ignore[call-arg]
            self._stack.addWidget(page)
            if hasattr(page, "asked"):
                page.asked.connect(self.asked)
        return self._pages.get(name)

    def rows(self) -> list[Fact]:
        """What the shown box knows: name, value, and where the value comes from. A box with a page has none here."""
        facts, run = self.store.shown_facts, self.store.current
        if self.box in recorded.BOXES and facts is not None and not self._has_page():
            return recorded.recorded_rows(self.box, facts)
        if self.box not in self._rows or (facts if self.box in LOAD else run) is None:
            return []
        return self._rows[self.box]()

    def _has_page(self) -> bool:
        """Pages that read a model's files stand back for a recording, whose model may be on another computer."""
        return self.box in PAGES and not (self.box in recorded.BOXES and self.store.subject.state == "recorded")

    def refresh(self) -> None:
        if self._has_page():
            self._refresh_page()
            return
        if not self.isVisible() and self._shown:
            return  # showing it reads again
        self._stack.setCurrentWidget(self._area)
        rows = self.rows()
        tokens = self._prompt_tokens()
        state = (self.box, tuple(rows), tokens, title(self.box, self.store))
        if state == self._shown:
            return
        same_box = bool(self._shown) and self._shown[0] == self.box
        names = [fact.name for fact in rows]
        in_place = same_box and names == self._names and tokens == self._shown[2]
        self._shown, self._names = state, names
        self.set_title(title(self.box, self.store))
        self.about.setText(tooltip(self.box))
        if in_place:  # a table that is made anew at each token would lose its place and what is selected
            for labels, fact in zip(self._labels, rows, strict=True):
                self._write(labels, fact)
            return
        place = self._area.verticalScrollBar().value() if same_box else 0
        self._area.setWidget(self._table(rows, tokens))
        self._area.verticalScrollBar().setValue(place)

    def _refresh_page(self) -> None:
        self._shown = ()
        self.set_title(title(self.box, self.store))
        self.about.setText(tooltip(self.box))
        if self.isVisible():
            page = self.page(self.box)
            assert page is not None
            self._stack.setCurrentWidget(page)
            page.refresh()  # type: ignore[attr-defined]

    def showEvent(self, event) -> None:
        super().showEvent(event)
        self.refresh()

    def _table(self, rows: list[Fact], tokens: tuple[PromptToken, ...]) -> QWidget:
        table = QWidget()
        table.setProperty("plain", True)
        column = QVBoxLayout(table)
        column.setContentsMargins(0, 4, 6, 0)
        column.setSpacing(8)
        if not rows:
            column.addWidget(SmallText(self._what_to_press()))
        grid = QGridLayout()
        grid.setHorizontalSpacing(10)
        grid.setVerticalSpacing(6)
        grid.setColumnStretch(0, 2)
        grid.setColumnStretch(1, 3)
        self._labels = []
        for at, fact in enumerate(rows):
            name, value, source = PlainLabel(fact.name, "muted"), PlainLabel(), SmallLabel()
            name.setAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop)
            name.setWordWrap(True)
            value.setAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop)
            value.setWordWrap(True)
            value.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            source.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignTop)
            self._labels.append((value, source))
            self._write((value, source), fact)
            for place, label in enumerate((name, value, source)):
                grid.addWidget(label, at, place)
            source.setVisible(not self._narrow())
        column.addLayout(grid)
        shown = tokens[:MOST_TOKENS]
        places = len(str(len(shown) - 1))
        digits = max((len(str(token.token_id)) for token in shown), default=0)
        for at, token in enumerate(shown):
            kind = self.tr(" · special") if token.special else ""
            numbers = f"{at:>{places}}   {token.token_id:>{digits}}".replace(" ", "\u2007")  # as wide as a figure
            column.addWidget(PlainLabel(f"{numbers}   {token_label(token.text)}{kind}"))
        if len(tokens) > MOST_TOKENS:
            left = count_text(len(tokens) - MOST_TOKENS)
            column.addWidget(SmallText(self.tr("and {count} more").format(count=left)))
        column.addStretch(1)
        return table

    def _narrow(self) -> bool:
        """True where a third column would leave the values no room: the tool tips have the sources, too."""
        return self.width() < theme.base_px() * 26

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        for _, source in self._labels:
            source.setVisible(not self._narrow())

    @staticmethod
    def _write(labels: tuple[PlainLabel, PlainLabel], fact: Fact) -> None:
        value, source = labels
        value.setText(fact.value)
        value.setToolTip(plain_tooltip(f"{fact.value}\n{fact.source}".strip()))
        source.setText(fact.source)

    def _what_to_press(self) -> str:
        if self.box in LOAD:
            return self.tr("Nothing is loaded yet. Choose a model (Ctrl+L), press Load: its figures stand here then.")
        return self.tr("Nothing was written yet. Press Run (Ctrl+Return): this box then shows what passes through it.")

    # ---------------------------------------------------------------- the boxes

    def _prompt_tokens(self) -> tuple[PromptToken, ...]:
        run = self.store.current
        return run.start.prompt_tokens if run is not None and self.box == "tokenise" else ()

    def _time(self, stage: str) -> list[Fact]:
        facts = self.store.shown_facts
        times = dict(facts.stage_ms) if facts is not None else {}
        return [Fact(self.tr("Time"), duration_text(times[stage]), MEASURED)] if stage in times else []

    def _tokenise(self) -> list[Fact]:
        start = self.store.current.start  # type: ignore[union-attr]
        ends = ", ".join(f"{end.text} ({end.token_id}, {end.source})" for end in start.ends)
        return [
            Fact(self.tr("Time"), duration_text(start.tokenise_ms), MEASURED),
            Fact(self.tr("Tokens"), count_text(len(start.prompt_tokens)), MEASURED),
            Fact(self.tr("Context"), count_text(start.context_tokens) if start.context_tokens else "–", "config.json"),
            Fact(self.tr("Ends at"), ends or self.tr("no end token is known"), ""),
            *(Fact(self.tr("Note"), note, "") for note in start.notes),
        ]

    def _token_rows(self, rows: Callable[[TokenEvent], list[Fact]]) -> list[Fact]:
        token = self.store.shown_token
        return [] if token is None else [Fact(self.tr("Token"), _named(token), TAKEN), *rows(token)]

    def _embed(self) -> list[Fact]:
        facts = self.store.shown_facts
        rows = [] if facts is None else [
            Fact(self.tr("Table"), f"[{count_text(facts.vocab_size)}, {count_text(facts.hidden_size)}]", "config.json"),
            Fact(self.tr("A token becomes"), self.tr("{count} numbers").format(count=count_text(facts.hidden_size)),
                 "config.json"),
        ]  # fmt: skip
        return [*rows, *self._token_rows(lambda token: [Fact(self.tr("Row"), count_text(token.token_id), TAKEN)])]

    def _layers(self) -> list[Fact]:
        run, facts = self.store.current, self.store.shown_facts
        rows = []
        if facts is not None:
            heads = self.tr("{heads}, {kv} for keys and values").format(heads=facts.heads, kv=facts.kv_heads)
            rows += [
                Fact(self.tr("Heads"), heads, "config.json"),
                Fact(self.tr("Attention"), facts.attention, MEASURED),
            ]
        if run is not None and run.prefill:
            last = run.prefill[-1]
            text = self.tr("{done} of {tokens} in {time}").format(
                done=count_text(last.done_tokens),
                tokens=tokens_text(last.total_tokens),
                time=duration_text(last.elapsed_ms),
            )
            rows.append(Fact(self.tr("Prefill"), text, MEASURED))
            if last.reused_tokens:
                reused = self.tr("{reused} kept from the last run, {computed} computed").format(
                    reused=tokens_text(last.reused_tokens), computed=count_text(last.done_tokens - last.reused_tokens)
                )
                rows.append(Fact(self.tr("Of these"), reused, MEASURED))
        if (kept := self.store.cache_kept) is not None:
            held = self.tr("{size} for {tokens}").format(size=bytes_text(kept.bytes), tokens=tokens_text(kept.tokens))
            rows.append(Fact(self.tr("Kept for the next run"), held, MEASURED))
        return [*rows, *self._token_rows(self._layers_of)]

    def _layers_of(self, token: TokenEvent) -> list[Fact]:
        rows = [
            Fact(self.tr("Forward"), duration_text(token.forward_ms), MEASURED),
            Fact(self.tr("KV cache"), bytes_text(token.kv_bytes), MEASURED),
            Fact(self.tr("Context used"), count_text(token.context_used_tokens), MEASURED),
        ]
        if token.kv_allocated_bytes > token.kv_bytes:
            rows.insert(2, Fact(self.tr("Cache allocated"), bytes_text(token.kv_allocated_bytes), MEASURED))
        return rows

    def _probabilities(self) -> list[Fact]:
        return self._token_rows(
            lambda token: [
                Fact(self.tr("Time"), duration_text(token.sampling_ms), MEASURED),
                Fact(self.tr("Entropy"), nats_text(token.entropy_nats), MEASURED),
                *(
                    Fact(stage.name, self.tr("{count} left").format(count=count_text(stage.kept_tokens)), MEASURED)
                    for stage in token.stages
                ),
            ]
        )

    def _sample(self) -> list[Fact]:
        def drawn(token: TokenEvent) -> list[Fact]:
            greedy = self.tr("greedy: no draw")
            interval = f"{number_text(token.draw_low, 4)} … {number_text(token.draw_high, 4)}"
            return [
                Fact("u", greedy if token.u is None else number_text(token.u, 6), MEASURED),
                *([] if token.u is None else [Fact(self.tr("Its interval"), interval, MEASURED)]),
                Fact(self.tr("Seed"), str(token.settings.seed), self.tr("as set")),
                Fact(self.tr("Rank"), count_text(token.rank + 1), MEASURED),
                Fact(self.tr("Probability"), percent_text(_exp(token.logprob), 2), MEASURED),
                Fact(self.tr("After settings"), percent_text(_exp(token.final_logprob), 2), MEASURED),
            ]

        return self._token_rows(drawn)

    def _detokenise(self) -> list[Fact]:
        return self._token_rows(
            lambda token: [
                Fact(self.tr("Id"), count_text(token.token_id), TAKEN),
                Fact(self.tr("Text now certain"), token_label(token.text) or self.tr("none: it waits"), TAKEN),
            ]
        )

    def _format(self) -> list[Fact]:
        run = self.store.current
        assert run is not None
        shape = self.tr("chat message") if is_chat(self.store) else self.tr("raw text")
        rows = [Fact(self.tr("Prompt went in as"), shape, TAKEN)]
        stops = ", ".join(token_label(text) for text in run.start.stop)
        rows.append(Fact(self.tr("Stop strings"), stops or self.tr("none"), self.tr("as set")))
        if run.end is not None:
            reason = self.tr("the end of the recording") if run.end.breaks_off else run.end.reason
            rows.append(Fact(self.tr("Ended by"), reason, TAKEN))
            if run.end.tail_text:
                rows.append(Fact(self.tr("Held back to the end"), token_label(run.end.tail_text), TAKEN))
        return rows

    def _stream(self) -> list[Fact]:
        run = self.store.current
        assert run is not None
        moment = self.store.moment
        times = pace(run, moment)
        return [
            Fact(self.tr("First token"), duration_text(times.ttft_ms), MEASURED),
            Fact(self.tr("Per token"), duration_text(times.per_token_ms), MEASURED),
            Fact(self.tr("Tokens per second"), rate_text(times.tokens_per_s), MEASURED),
            Fact(self.tr("Written"), tokens_text(moment), MEASURED),
        ]


def _named(token: TokenEvent) -> str:
    return f"{token_label(token.token_text)}  ({token.token_id})"


def _exp(logprob: float) -> float:
    from math import exp

    return exp(min(0.0, logprob))
