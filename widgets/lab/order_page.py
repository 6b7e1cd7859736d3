"""The page on the order of the filters: chips to move, and what each order leaves of the selected word's choices."""

from __future__ import annotations

import math
from dataclasses import replace

from PySide6.QtCore import QCoreApplication, Qt, Signal, Slot
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from engine.events import ORDERED, OrderedFilters, OrderQuestion, TokenEvent, TwoOrders
from engine.settings import RANGES, SamplingSettings
from widgets import theme
from widgets.fields import NumberField, number_shown
from widgets.format import count_text, number_text, token_label
from widgets.lab.order_chips import OrderChips
from widgets.lab.order_picture import Funnel, OrderList, kept_text
from widgets.panel import ElidedLabel, Panel, PlainLabel, scrolling
from widgets.run import Run
from widgets.run_store import RunStore
from widgets.sampling_rows import knobs

LAST = (*ORDERED[1:], ORDERED[0])  # temperature last
HOT = 100.0  # the temperature that people wonder about
SMALL = SamplingSettings(temperature=HOT, top_p=0.9)


class OrderPage(QWidget):
    """Asks for OrderQuestion. Works on what was kept of a word, so in a replay without a model, too."""

    asked = Signal(object)

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.store = store
        self.settings = SamplingSettings()  # the five that are looked at; the rest is the word's own
        self._own: SamplingSettings | None = None  # of the word, as last taken over
        self._touched = False
        self._shown: object = None
        self._question: OrderQuestion | None = None
        inside = QWidget()
        inside.setProperty("plain", True)
        column = QVBoxLayout(inside)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(theme.GAP)
        column.addWidget(self._build_top())
        row = QHBoxLayout()
        row.setSpacing(theme.GAP)
        self.today, self.other = Funnel(), Funnel()
        self.today_panel, self.other_panel = self._panel(self.today), self._panel(self.other)
        self.today_panel.set_title(self.tr("Today's order: temperature first"), self.tr("Today's order"))
        self.other_panel.set_title(self.tr("Your order"))
        row.addWidget(self.today_panel, 1)
        row.addWidget(self.other_panel, 1)
        column.addLayout(row)
        column.addWidget(self._build_list(), 1)
        outside = QVBoxLayout(self)
        outside.setContentsMargins(0, 0, 0, 0)
        outside.addWidget(scrolling(inside))
        self.setFocusProxy(self.chips)
        store.selection_changed.connect(self._selection_changed)
        theme.changes.changed.connect(self._head_columns)
        self.refresh()

    # ---------------------------------------------------------------- building

    def _build_top(self) -> Panel:
        panel = Panel("")
        panel.set_title(self.tr("The order of the filters, for a look"), self.tr("Order of the filters"))
        self.chips = OrderChips()
        self.chips.set_order(LAST)
        self.chips.order_changed.connect(self._order_changed)
        panel.show_focus_of(self.chips)
        panel.body.addWidget(self.chips)
        first, more = knobs()
        labels = {knob.name: knob for knob in (*first, *more)}
        fields = QHBoxLayout()
        fields.setSpacing(6)
        self.fields: dict[str, NumberField] = {}
        for name in ORDERED:
            knob = labels[name]
            label = PlainLabel(knob.label, "muted")
            field = NumberField(RANGES[name], RANGES[name].off, step=knob.step, off_word=name != "temperature")
            field.setFixedWidth(theme.base_px() * 4)
            field.setAlignment(Qt.AlignmentFlag.AlignLeft)  # beside its own name
            field.setAccessibleName(knob.label)
            for part in (label, field):
                part.setToolTip(knob.tip)
            label.setBuddy(field)
            field.value_changed.connect(self._field_changed)
            fields.addWidget(label)
            fields.addWidget(field)
            fields.addSpacing(6)
            self.fields[name] = field
        fields.addStretch()
        panel.body.addLayout(fields)
        for field in self.fields.values():
            panel.body.addWidget(field.problem_label)
        buttons = QHBoxLayout()
        buttons.setSpacing(6)
        for text, tip, slot in (
            (self.tr("Temperature first"), self.tr("Today's order, transformers' own"), self.first),
            (self.tr("Temperature last"), self.tr("As some other programs have it"), self.last),
            (self.tr("Try temperature 100"),
             self.tr("Temperature 100 with top-p 0.9: nonsense in one order, sense in the other"), self.hot),
            (self.tr("As written"), self.tr("The settings that this word was written with"), self.as_written),
        ):  # fmt: skip
            button = QPushButton(text)
            button.setToolTip(tip)
            button.clicked.connect(slot)
            buttons.addWidget(button)
        buttons.addStretch()
        panel.body.addLayout(buttons)
        self.top_panel = panel
        return panel

    def _panel(self, funnel: Funnel) -> Panel:
        panel = Panel("")
        panel.set_remark(
            self.tr("words left, bars by their logarithm"),
            self.tr("How many words are left, by its logarithm: a bar half as long is the square root."),
            self.tr("log scale"),
        )
        panel.body.addWidget(funnel)
        surprise = ElidedLabel()
        surprise.setToolTip(
            self.tr(
                "Mean of −ln p over what would be drawn, p the model's own odds (raw, before all settings), in nats: "
                "how far a drawn word would lie from what the model expects. Worked out, not measured."
            )
        )
        panel.body.addWidget(surprise)
        panel.body.addStretch()
        panel.surprise = surprise  # type: ignore[attr-defined]
        return panel

    def _build_list(self) -> Panel:
        panel = Panel(self.tr("The same logits in both orders"))
        self.why = PlainLabel()
        self.why.setWordWrap(True)
        panel.body.addWidget(self.why)
        self.heads = [ElidedLabel(text, "muted") for text in (
            self.tr("by the model"), self.tr("today's order"), self.tr("your order"))]  # fmt: skip
        self._head_row = QGridLayout()
        self._head_row.setContentsMargins(0, 0, 0, 0)
        self._head_row.setHorizontalSpacing(0)
        for at, head in enumerate(self.heads):
            head.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
            self._head_row.addWidget(head, 0, at + 1)
        panel.body.addLayout(self._head_row)
        self.list = OrderList()
        self.list.columns_moved.connect(self._head_columns)
        panel.show_focus_of(self.list)
        panel.body.addWidget(self.list, 1)
        self.list_panel = panel
        return panel

    # ---------------------------------------------------------------- what is looked at

    @Slot()
    def first(self) -> None:
        self._take_order(ORDERED)

    @Slot()
    def last(self) -> None:
        self._take_order(LAST)

    @Slot()
    def hot(self) -> None:
        """The case that people wonder about."""
        if self.chips.order == ORDERED:
            self.chips.set_order(LAST)
        values = {name: getattr(SMALL, name) for name in ORDERED}
        self._take(replace(self.settings, **values), touched=True)

    @Slot()
    def as_written(self) -> None:
        self._touched = False
        self.refresh()

    def _take_order(self, order: tuple[str, ...]) -> None:
        self.chips.set_order(order)
        self.refresh()

    def _order_changed(self, _order: object) -> None:
        self.refresh()

    def _field_changed(self, _value: object) -> None:
        values = {name: field.value() for name, field in self.fields.items()}
        self._take(replace(self.settings, **values), touched=True)  # type: ignore[arg-type]

    def _take(self, settings: SamplingSettings, touched: bool) -> None:
        self.settings, self._touched = settings, touched
        for name, field in self.fields.items():
            if field.value() != getattr(settings, name):
                field.set_value(getattr(settings, name))
        self.chips.set_settings(settings)
        self.refresh()

    def _selection_changed(self) -> None:
        if self.isVisible():
            self.refresh()

    # ---------------------------------------------------------------- what is shown

    def word(self) -> tuple[Run, TokenEvent] | None:
        """The word that is looked at."""
        run, step = self.store.current, self.store.selected_step
        return (run, run.tokens[step]) if run is not None and step is not None else None

    @Slot()
    def refresh(self) -> None:
        """Takes the selected word, asks, and shows what was answered."""
        found = self.word()
        if found is None:
            self._show_empty()
            return
        run, token = found
        if not self._touched and token.settings != self._own:
            self._own = token.settings
            self._take(token.settings, touched=False)
            return
        if not self._touched and self.settings != token.settings:
            self._take(token.settings, touched=False)
            return
        # Bias, penalties and bans are the word's own: only the five that move are looked at.
        values = {name: getattr(self.settings, name) for name in ORDERED}
        settings = replace(token.settings, **values)
        question = OrderQuestion(*run.key, token.step, settings, self.chips.order)
        inside = self.store.inside
        if question not in inside.answers:
            self.asked.emit(question)
        answer = inside.answers.get(question)
        self._show_word(run, token)
        if isinstance(answer, TwoOrders) and (question, answer) != self._shown:
            self._shown = question, answer
            self._show(token, answer)

    def _show_word(self, run: Run, token: TokenEvent) -> None:
        word = token_label(token.token_text)
        place = self.tr("word {at} of {count}: “{word}”").format(
            at=count_text(token.step + 1), count=count_text(len(run.tokens) + run.lost), word=word
        )
        rest = self.tr("Alt+Left and Alt+Right go through the text.")
        self.top_panel.set_remark(place, rest)

    def _show_empty(self) -> None:
        self._shown = None
        self.top_panel.set_remark(
            self.tr("No word yet: write a text, or open a recorded one."), "", self.tr("no word yet")
        )
        self.today.show_order(None)
        self.other.show_order(None)
        for panel in (self.today_panel, self.other_panel):
            panel.surprise.setText("")  # type: ignore[attr-defined]
        self.why.setText(
            self.tr(
                "Each filter is applied to what the one before it left. Here the same word's odds go through them in "
                "two orders, side by side: how many words are left, and which filter cut each of the others."
            )
        )
        for head in self.heads:
            head.hide()
        self.list.show_orders(None, None)

    def _show(self, token: TokenEvent, found: TwoOrders) -> None:
        self.today.show_order(found.today)
        self.other.show_order(found.other)
        for panel, order in ((self.today_panel, found.today), (self.other_panel, found.other)):
            panel.surprise.setText(surprise_words(order))  # type: ignore[attr-defined]
        self.why.setText(why_words(found, self.settings))
        for head in self.heads:
            head.show()
        self.list.show_orders(token, found)
        self._head_columns()

    def _head_columns(self) -> None:
        """The heads stand over their columns."""
        ends = self.list.columns()
        each = ends[1] - ends[0]
        self._head_row.setContentsMargins(0, 0, self.list.width() - self.list.viewport().width(), 0)
        for at, width in enumerate((ends[0] - each + 12, each, each, each - 12)):
            self._head_row.setColumnStretch(at, max(1, round(width)))

    def showEvent(self, event: object) -> None:
        super().showEvent(event)  # type: ignore[arg-type]
        self.refresh()


def surprise_of(order: OrderedFilters) -> str:
    """The mean surprise of what is drawn, or its bounds."""
    low, high = number_text(order.surprise_low_nats, 1), number_text(order.surprise_high_nats, 1)
    return low if low == high else f"{low} … {high}"


def surprise_words(order: OrderedFilters) -> str:
    if not math.isfinite(order.surprise_low_nats):
        return ""
    return QCoreApplication.translate("order", "A drawn word's mean surprise: {nats} nats").format(
        nats=surprise_of(order)
    )


def _words(order: OrderedFilters) -> str:
    translate, left = QCoreApplication.translate, order.stages[-1]
    words = translate("order", "1 word") if left.most == 1 else translate("order", "{count} words")
    return words.format(count=kept_text(left.least, left.most))


def why_words(found: TwoOrders, settings: SamplingSettings) -> str:
    """What the difference comes from, in a sentence or two."""
    translate = QCoreApplication.translate
    one, two = _words(found.today), _words(found.other)
    if found.today.order == found.other.order or (settings.temperature == 1.0 and one == two):
        return translate("order", "Both orders leave {words}.").format(words=one)
    early, late = found.today.order.index("temperature"), found.other.order.index("temperature")
    if settings.temperature != 1.0 and late > early and one != two:
        text = translate(
            "order",
            "With temperature first the filters see odds that are divided by {t} already, and leave {one}. In "
            "your order filters see the model's own odds and leave {two}; temperature then only shares the chance "
            "among these. That is why even a temperature of 100 can stay coherent.",
        ) if settings.temperature > 1.0 else translate(
            "order",
            "With temperature first the filters see odds that are sharpened by {t} already, and leave {one}. In "
            "your order filters see the model's own odds and leave {two}.",
        )  # fmt: skip
        return text.format(t=number_shown(settings.temperature), one=one, two=two)
    return translate("order", "Today's order leaves {one}, yours {two}.").format(one=one, two=two)
