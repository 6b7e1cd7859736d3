"""The precision x-ray in the window: its dialog, what is asked of the engine, and the work in the engine's thread."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, Slot
from PySide6.QtWidgets import QDialog, QVBoxLayout

from app.threads import told
from engine.errors import Cancelled
from engine.events import EngineError, Loaded, Xray, XrayProgress
from engine.settings import FLOATS, LoadPlan, XrayQuestion
from engine.xray import SAMPLES, sample_text, xray
from widgets.xray_view import XrayView, XrayWish

if TYPE_CHECKING:
    from app.engine_jobs import XrayJob
    from app.engine_worker import Worker
    from app.main_window import MainWindow


def compare(worker: Worker, job: XrayJob) -> None:
    """In the engine's thread: the loaded model goes, both are compared; the one that was loaded comes last and stays.

    Where neither is the one that was loaded, or the comparison breaks off, the window's handle loads it again.
    """
    try:
        plan = worker.loaded_plan
        worker.close_session()
        found, session = xray(job.question, worker.event.emit, job.control, plan)
        if session is not None:
            worker.take_session(session, plan)
            worker.event.emit(Loaded(session.facts))
        worker.event.emit(found)
    except Cancelled:
        pass
    except Exception as error:  # a thread's edge
        worker.event.emit(told(error, "xray"))


class Xrays(QObject):
    """The dialog is made when it is first asked for, and stays: the last result is there when it opens again."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self.window = window
        self.dialog: QDialog | None = None
        self.view: XrayView | None = None

    @Slot()
    def show(self) -> None:
        self.opened()

    def opened(self) -> tuple[QDialog, XrayView]:
        """Opens the dialog; the window behind it goes on."""
        if self.dialog is None or self.view is None:
            self.dialog, self.view = self._build()
        self.refresh()
        self.dialog.show()
        self.dialog.raise_()
        self.dialog.activateWindow()
        return self.dialog, self.view

    def close(self) -> None:
        """The window closes, and its dialog with it."""
        if self.dialog is not None:
            self.dialog.close()

    def _build(self) -> tuple[QDialog, XrayView]:
        window = self.window
        dialog = QDialog(window, Qt.WindowType.Window)
        dialog.setWindowTitle(self.tr("Precision x-ray"))
        dialog.resize(min(1000, window.width()), min(740, window.height()))
        view = XrayView({name: sample_text(name) for name in SAMPLES})
        column = QVBoxLayout(dialog)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(view)
        preferences = window.preferences
        first, second = (*preferences.xray_precisions, "", "")[:2]
        view.restore(first, second, preferences.xray_sample, preferences.xray_text)
        view.run_requested.connect(self.ask)
        view.cancel_requested.connect(window.engine.stop)
        window.store.frame.connect(self.refresh)
        return dialog, view

    @Slot(object)
    def ask(self, wish: XrayWish) -> None:
        """Starts the comparison of the loaded model with itself."""
        window, facts = self.window, self.window.store.facts
        plan = window.engine.loaded_plan
        if facts is None or plan is None or window.engine.busy:
            self.refresh()
            return
        self._remember(wish)
        plans = [self._plan(plan, facts.precision, precision) for precision in (wish.reference, wish.other)]
        window.engine.xray(XrayQuestion(plans[0], plans[1], wish.text, wish.sample))

    def _plan(self, loaded: LoadPlan, loaded_precision: str, precision: str | None) -> LoadPlan:
        """How one side is loaded: as the loaded model where that has this precision, so that it can stay."""
        if precision in FLOATS and precision == loaded_precision:
            return loaded
        plan = replace(loaded, precision=precision)
        chosen = self.window.model_panel.plan()
        if precision is None or precision in FLOATS or chosen is None:
            return plan
        return replace(
            plan,
            int8_threshold=chosen.int8_threshold,
            double_quantisation=chosen.double_quantisation,
            compute_dtype=chosen.compute_dtype,
        )

    def _remember(self, wish: XrayWish) -> None:
        assert self.view is not None
        preferences = self.window.preferences
        preferences.xray_precisions = [wish.reference or "", wish.other or ""]
        preferences.xray_sample = wish.sample or "own"
        preferences.xray_text = self.view.own_text()

    @Slot(object)
    def take(self, event: object) -> None:
        """What the engine says of an x-ray."""
        if self.view is None:
            return
        if isinstance(event, XrayProgress):
            self.view.show_progress(event)
        elif isinstance(event, Xray):
            self.view.show_xray(event)
        elif isinstance(event, EngineError) and event.during == "xray":
            self.view.show_error(event)

    @Slot(object)
    def busy_changed(self, busy: object) -> None:
        if self.view is not None:
            self.view.set_busy(busy == "xray", others=bool(busy) and busy != "xray")

    @Slot()
    def refresh(self) -> None:
        """Which model would be compared, and whether the engine is free."""
        if self.view is None or self.window.engine.busy == "xray":
            return
        facts = self.window.store.facts
        self.view.set_model("" if facts is None else facts.name)
        self.view.set_busy(False, others=bool(self.window.engine.busy))
