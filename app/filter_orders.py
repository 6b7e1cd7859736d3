"""The order of the filters in the window: what its page asks is worked out at once, from what was kept of the word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Slot

from engine.events import ORDERED, Answered, OrderQuestion, TwoOrders

if TYPE_CHECKING:
    from app.main_window import MainWindow


class FilterOrders(QObject):
    """Answers where it is asked: some milliseconds of arithmetic, no model."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self.window = window
        window.laboratory.route(OrderQuestion, self.answer)

    @Slot(object)
    def answer(self, question: OrderQuestion) -> None:
        from engine.filter_order import ordered_filters

        store = self.window.store
        run = store.run((question.run_id, question.lane))
        at = -1 if run is None else question.step - run.lost
        if run is None or not 0 <= at < len(run.tokens):
            return
        before = run.written_before(at)
        today, other = (
            ordered_filters(run.start, before, run.tokens[at], question.settings, order)
            for order in (ORDERED, question.order)
        )
        store.take(Answered(question, TwoOrders(today, other)))
