"""Choosing, loading and unloading a model, with what it will need and what it took."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QSize, Qt, QTimer, Signal, Slot
from PySide6.QtWidgets import (
    QFileDialog,
    QHBoxLayout,
    QMenu,
    QPushButton,
    QSizePolicy,
    QToolButton,
    QWidget,
)

from engine.events import LOAD_STAGES, EngineError, Estimate, ModelChoice, SessionFacts
from engine.settings import LoadPlan
from widgets import theme
from widgets.banner import sentence_of, translated
from widgets.choice import Choice
from widgets.format import bytes_text, duration_text, plain_tooltip, short_count
from widgets.ledger_panel import LedgerPanel
from widgets.load_options import LoadOptions
from widgets.load_progress import LoadProgressView
from widgets.model_chip import ModelChip, device_words
from widgets.panel import ElidedLabel, Panel, icon_button
from widgets.placement_dialog import PlacementDialog
from widgets.planner_view import PlannerDialog
from widgets.run_store import RUNNING, RunStore
from widgets.small import SmallText

__all__ = ["ModelChip", "ModelPanel"]

ESTIMATE_AFTER_MS = 150


class ModelPanel(Panel):
    """The model panel. All it asks for goes out as signals; all it shows comes from the store and from estimates."""

    load_requested = Signal(object)  # LoadPlan
    unload_requested = Signal()
    cancel_requested = Signal()
    estimate_requested = Signal(object)  # LoadPlan
    folder_chosen = Signal(object)  # str: a folder with models, to be remembered
    browse_requested = Signal()  # the model browser is wanted
    asked = Signal(object)  # a question to the engine

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__("", parent)
        self.set_title(self.tr("Model"))
        self.store = store
        self._choices: list[ModelChoice] = []
        self._opened: list[ModelChoice] = []  # by hand; the list of what was found does not know them
        self._estimate: Estimate | None = None
        self._estimate_problem = ""
        self._estimate_of = ""  # the model that the estimate is about, as LoadPlan takes it
        self._shown: tuple = ()
        self._followed: SessionFacts | None = None  # the loaded model that the picker was set to
        self._by_hand = False  # somebody chose since: a list of models that comes in moves the picker no more
        self._failed: tuple[EngineError | None, str] = (None, "")  # and the model that was chosen then

        self._build_choice()
        self._build_acts()
        self._build_figures()
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(ESTIMATE_AFTER_MS)
        self._timer.timeout.connect(self._ask_estimate)
        store.frame.connect(self.refresh)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Preferred)
        self.refresh()

    # ---------------------------------------------------------------- building

    def _build_choice(self) -> None:
        self.picker = Choice(self.tr("Model"))
        self.setFocusProxy(self.picker)
        open_button = icon_button("open", self.tr("Open a folder or a GGUF file…"))
        open_button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        menu = QMenu(open_button)
        menu.addAction(self.tr("Open a folder…")).triggered.connect(self.open_folder)
        menu.addAction(self.tr("Open a GGUF file…")).triggered.connect(self.open_gguf)
        open_button.setMenu(menu)
        tip = self.tr("All models: what each one is, and more from the hub (Ctrl+B)")
        self.browse_button = icon_button("search", self.tr("All models"), tip)
        self.browse_button.clicked.connect(self.browse_requested)
        row = QHBoxLayout()
        row.setSpacing(4)
        row.addWidget(self.picker, 1)
        row.addWidget(self.browse_button)
        row.addWidget(open_button)
        self.body.addLayout(row)
        self.about = SmallText()
        self.body.addWidget(self.about)

        self.options = LoadOptions()
        self.body.addWidget(self.options)

        self.picker.activated.connect(self._picked)
        self.options.changed.connect(self._choice_changed)
        self.options.packing_changed.connect(self._packing_changed)
        self.options.table_wanted.connect(self.open_table)

    def _build_acts(self) -> None:
        self.load_button = QPushButton(self.tr("Load"))
        self.load_button.setProperty("primary", True)
        theme.set_icon(self.load_button, "load")
        self.unload_button = QPushButton(self.tr("Unload"))
        theme.set_icon(self.unload_button, "unload")
        self.cancel_button = QPushButton(self.tr("Cancel"))
        for button in (self.load_button, self.unload_button, self.cancel_button):
            button.setIconSize(QSize(16, 16))
        row = QHBoxLayout()
        row.addWidget(self.load_button, 1)
        row.addWidget(self.unload_button, 1)
        row.addWidget(self.cancel_button, 1)
        self.body.addLayout(row)
        self.progress = LoadProgressView(self.store)
        self.body.addWidget(self.progress)
        self.error = SmallText("", "warning")
        self.fix = SmallText()
        self.retry_button = QPushButton(self.tr("Try again"))
        self.body.addWidget(self.error)
        self.body.addWidget(self.fix)
        self.body.addWidget(self.retry_button)
        self.load_button.clicked.connect(self.load)
        self.retry_button.clicked.connect(self.load)
        self.unload_button.clicked.connect(self.unload_requested)
        self.cancel_button.clicked.connect(self.cancel_requested)

    def _build_figures(self) -> None:
        self.ledger_title = ElidedLabel("", "title")
        self.ledger = LedgerPanel(precision_row=False)
        self.ledger.wished.connect(self._wished)
        self.planner_button = QPushButton(self.tr("What fits on other GPUs…"))
        self.planner_button.setToolTip(self.tr("accelerate's plan for GPUs that need not be there (Ctrl+G)"))
        self.planner_button.clicked.connect(self.open_planner)
        self.fits = SmallText()
        self.stages = SmallText()
        self.notes = SmallText()
        for part in (self.ledger_title, self.fits, self.ledger, self.planner_button, self.stages, self.notes):
            self.body.addWidget(part)
        self.body.addStretch(1)

    # ---------------------------------------------------------------- choosing

    def set_choices(self, choices: list[ModelChoice]) -> None:
        """The models that are on this computer."""
        self._choices = list(choices)
        self._fill_picker(self._chosen_model())
        if not self._by_hand:
            self._followed = None
        self.refresh()

    def choose(self, model: str) -> None:
        """Selects a model by what LoadPlan.model takes; one that is not in the list is added to it."""
        if model not in [choice.model for choice in self._all()]:
            kind = "gguf" if model.lower().endswith(".gguf") else "folder"
            self._opened.append(ModelChoice(Path(model).name or model, model, kind, 0))
        self._by_hand = True
        self._fill_picker(model)

    def plan(self) -> LoadPlan | None:
        """What is chosen, or None where there is no model to choose."""
        model = self._chosen_model()
        return self.options.plan(model) if model else None

    def load(self) -> None:
        plan = self.plan()
        if self.options.commit() and plan is not None:
            self.load_requested.emit(plan)

    def open_folder(self) -> None:
        folder = QFileDialog.getExistingDirectory(self, self.tr("A folder with a model"), str(Path.home()))
        if folder:
            self.choose(folder)
            self.folder_chosen.emit(folder)

    def open_gguf(self) -> None:
        path, _ = QFileDialog.getOpenFileName(
            self, self.tr("A GGUF file"), str(Path.home()), self.tr("GGUF files (*.gguf);;All files (*)")
        )
        if path:
            self.choose(path)

    def open_table(self) -> None:
        shown = self._estimate
        limits = shown.limits if shown is not None else ()
        sizes, precision = (shown.sizes, shown.precision) if shown is not None else (None, "")
        if shown is None and self.store.facts is not None:  # the loaded one
            sizes, precision = self.store.facts.sizes, self.store.facts.precision
        dialog = PlacementDialog(self.options.pairs, self, sizes, precision, limits)
        dialog.accepted.connect(self._table_edited)
        dialog.rejected.connect(self.options.no_table)
        dialog.open()

    def _table_edited(self) -> None:
        dialog = self.sender()
        assert isinstance(dialog, PlacementDialog)
        self.options.set_pairs(dialog.pairs())

    def _packing_changed(self) -> None:
        """Double quantisation is no mere sum over sizes that are known: the engine is asked."""
        self._estimate_of = ""
        self._choice_changed()

    def open_planner(self) -> None:
        """The planner for the chosen model."""
        dialog = PlannerDialog(self.store, self)
        dialog.planner.asked.connect(self.asked)
        _, context, lanes = self.ledger.wish()
        dialog.planner.set_model(self._chosen_model(), self.picker.currentText(), self.options.precision.currentData())
        dialog.planner.set_context(context, lanes)
        dialog.open()

    @Slot(object)
    def _wished(self, wish: tuple[str, int, int]) -> None:
        """A change that makes it fit may ask for another precision."""
        shown = self._estimate.precision if self._estimate is not None else wish[0]
        if wish[0] != shown and self.options.precision.choose(wish[0]):
            self._choice_changed()

    def _picked(self) -> None:
        self._by_hand = True
        self._choice_changed()

    def _choice_changed(self) -> None:
        known = self._estimate if self._estimate_of == self._chosen_model() else None
        # At once, by arithmetic; what the engine says a moment later knows the devices as they are then.
        self._estimate = known.as_planned(self.options.precision.currentData()) if known is not None else None
        self._estimate_problem = ""
        self.ledger.set_device_map(self.options.one_device())
        self._timer.start()
        self.refresh()

    def _ask_estimate(self) -> None:
        plan = self.plan()
        if plan is not None:
            self._estimate_of = plan.model
            self.estimate_requested.emit(plan)

    def _all(self) -> list[ModelChoice]:
        known = [choice.model for choice in self._choices]
        return [*self._choices, *(choice for choice in self._opened if choice.model not in known)]

    def _chosen_model(self) -> str:
        return self.picker.currentData() or ""

    def _fill_picker(self, model: str) -> None:
        self.picker.clear()
        for choice in self._all():
            self.picker.addItem(choice.name, choice.model)
            self.picker.setItemData(self.picker.count() - 1, plain_tooltip(choice.model), Qt.ItemDataRole.ToolTipRole)
        at = self.picker.findData(model)
        self.picker.setCurrentIndex(at if at >= 0 else 0 if self.picker.count() else -1)
        self._choice_changed()

    # ---------------------------------------------------------------- showing

    def set_estimate(self, answer: Estimate | EngineError) -> None:
        """What the chosen model will need, or why that is not known."""
        if isinstance(answer, Estimate):
            self._estimate, self._estimate_problem = answer, ""
        else:
            self._estimate, self._estimate_problem = None, sentence_of(answer)
        self._shown = ()
        self.refresh()

    def refresh(self) -> None:
        """Reads the store; costs nothing when what is shown here has not changed."""
        store = self.store
        if store.facts is not self._followed:
            self._follow(store.facts)
        state = (store.facts, store.activity, store.error, self._estimate, self._chosen_model(), len(self._all()))
        if store.activity == "loading" or state != self._shown:
            self.progress.refresh()
        if state == self._shown:
            return
        self._shown = state
        loading, running = store.activity == "loading", store.activity in RUNNING
        self.cancel_button.setVisible(loading)
        self.load_button.setVisible(not loading)
        self.unload_button.setVisible(store.facts is not None and not loading)
        self.load_button.setEnabled(bool(self._chosen_model()))
        self.load_button.setToolTip(
            self.tr("Load this model; the run that goes on is stopped, its text stays.")
            if running
            else self.tr("Load this model; the precision x-ray that goes on is broken off.")
            if store.activity == "x-ray"
            else self.tr("Load this model as chosen above")
        )
        self.unload_button.setEnabled(not running)
        self.unload_button.setToolTip(
            self.tr("A run goes on: stop it first.") if running else self.tr("Drop the weights, give the memory back")
        )
        self._show_about()
        self._show_error()
        self._show_ledger()

    def _follow(self, facts: SessionFacts | None) -> None:
        """The picker stands on the model that was just loaded."""
        self._followed = facts
        if facts is None:
            return
        self._by_hand = False
        for at, choice in enumerate(self._all()):
            if _is_of(choice, facts):
                self.picker.setCurrentIndex(at)
                self._estimate = None
                return

    def _show_about(self) -> None:
        choice = next((c for c in self._all() if c.model == self._chosen_model()), None)
        if choice is None:
            self.about.setText(
                self.tr("No model was found on this computer yet. Open a folder with config.json, or a GGUF file.")
            )
            return
        parts = []
        if choice.parameters:
            parts.append(self.tr("{count} parameters").format(count=short_count(choice.parameters)))
        if choice.precision:
            parts.append(choice.precision)
        if choice.size_bytes:
            parts.append(self.tr("{size} in files").format(size=bytes_text(choice.size_bytes)))
        if choice.family:
            parts.append(choice.family)
        if choice.has_chat_template is False:
            parts.append(self.tr("no chat template"))
        if choice.pickle_only:
            parts.append(self.tr("only pickle files, which can run code when read"))
        self.about.setText("\u00a0· ".join(parts) if parts else choice.model)  # no line begins with a dot

    def _show_error(self) -> None:
        error, chosen = self.store.error, self._chosen_model()
        if error is not self._failed[0]:
            self._failed = (error, chosen)
        shown = error is not None and error.during == "load" and chosen == self._failed[1]
        for part in (self.error, self.fix, self.retry_button):
            part.setVisible(shown)
        if error is not None and shown:
            self.error.setText(translated(error.what_template, error.fields) or error.what)
            self.fix.setText(translated(error.fix_template, error.fields) or error.fix)
            self.retry_button.setEnabled(bool(self._chosen_model()))

    def _is_loaded(self, facts: SessionFacts) -> bool:
        """True where the figures on show are the loaded model's: nothing else was chosen since."""
        if self._estimate is not None:
            return self._estimate.model in (facts.name, facts.model_path)
        chosen = [choice for choice in self._all() if choice.model == self._chosen_model()]
        return not self._estimate_problem or any(_is_of(choice, facts) for choice in chosen)

    def _show_ledger(self) -> None:
        facts, estimate = self.store.facts, self._estimate
        same = facts is not None and self._is_loaded(facts)
        if same and estimate is not None and facts is not None and estimate.precision != facts.precision:
            same = False
        if facts is not None and same:
            self._show_measured(facts)
        elif estimate is not None:
            self._show_predicted(estimate)
        else:
            self.ledger_title.setText("")
            self.ledger.show_nothing()
            self.fits.setText(self._estimate_problem or self.tr("Choose a model: what it will need stands here."))
            self.notes.setText("")
            self.stages.setText("")
        self._hide_empty()

    def _show_measured(self, facts: SessionFacts) -> None:
        self.ledger_title.setText(self.tr("Memory"))
        self.ledger.show_loaded(facts, self.store.readings[-1] if self.store.readings else None)
        grown = facts.memory_after_bytes - facts.memory_before_bytes
        text = self.tr("loaded on {devices}").format(devices=", ".join(map(device_words, facts.devices)))
        if grown > 0:
            text += " · " + self.tr("the process grew by {size}, measured").format(size=bytes_text(grown))
        self.fits.setText(text)
        times = dict(facts.stage_ms)
        shown = [f"{stage} {duration_text(times[stage])}" for stage in LOAD_STAGES if stage in times]
        self.stages.setText(" · ".join(shown))
        self.notes.setText("\n".join(facts.notes))

    def _show_predicted(self, estimate: Estimate) -> None:
        self.ledger_title.setText(self.tr("Memory, predicted"))
        self.options.limits.set_devices(estimate.limits)
        layers = estimate.sizes.cache if estimate.sizes is not None else None
        self.options.windows.setVisible(any(layer.kind == "window" for layer in layers or ()))
        self.ledger.show_estimate(estimate, self.options.one_device())
        self.fits.setText("")
        self.stages.setText("")
        static = estimate.sizes.notes if estimate.sizes is not None else estimate.notes
        self.notes.setText("\n".join(static))  # why the rough formula is off stands beside its figure

    def _hide_empty(self) -> None:
        for label in (self.ledger_title, self.fits, self.stages, self.notes):
            label.setVisible(bool(label.text()))


def _is_of(choice: ModelChoice, facts: SessionFacts) -> bool:
    """Whether a loaded model is the one that a row of the picker stands for."""
    return facts.model_path == choice.model or (choice.name == facts.name and choice.kind != "folder")
