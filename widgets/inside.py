"""What is known of models' insides: outlines, weight files, answers to views' questions. A part of the run store."""

from __future__ import annotations

from dataclasses import dataclass

from engine import events as ev
from engine.settings import LoadPlan

MOST_ANSWERS = 64


@dataclass(frozen=True, slots=True)
class Subject:
    """The model whose inside is shown. state: "loading", "loaded", "recorded" (of the shown run), "chosen", "none"."""

    state: str
    model: str = ""  # as LoadPlan.model takes it
    precision: str | None = None


class Inside:
    """Filled by `take`; `subject` says which model the pages of loading show."""

    def __init__(self) -> None:
        self.chosen: LoadPlan | None = None  # what stands in the model panel
        self.at_choice = False  # the choice is newer than what is loaded and shown
        self.at_loaded = False  # the loaded model is newer than the shown run
        self.answers: dict[object, object] = {}
        self.pending: set[object] = set()
        self.kernel_progress: ev.KernelProgress | None = None
        self.outlines: dict[str, ev.Outline] = {}  # of models that were loaded or are loading, by path
        self.tables: dict[str, ev.WeightsTable] = {}
        self.loading: ev.Outline | None = None  # of the load that goes on
        self.shards: dict[str, ev.ShardRead] = {}  # of the newest load, in the order of reading

    def choose(self, plan: LoadPlan) -> None:
        """Another model or precision stands in the model panel: that is what the pages show then."""
        before, self.chosen = self.chosen, plan
        if before is not None and (before.model, before.precision) != (plan.model, plan.precision):
            self.at_choice = True

    def take(self, event: ev.Event) -> None:
        match event:
            case ev.LoadProgress(stage="blueprint"):  # the first of a load
                self.loading, self.shards = None, {}
            case ev.Outline():
                self.loading = event
                self.outlines[event.path] = event
            case ev.ShardRead():
                self.shards[event.file] = event
            case ev.WeightsTable():
                self.tables[event.path] = event
            case ev.Loaded():
                self.at_choice, self.at_loaded, self.loading = False, True, None
                self.forget()
                path = event.facts.model_path  # only the newest load's are kept; others are asked for again
                self.outlines = {path: self.outlines[path]} if path in self.outlines else {}
                self.tables = {path: self.tables[path]} if path in self.tables else {}
            case ev.RunStart():
                self.at_choice = self.at_loaded = False
            case ev.Unloaded():
                self.forget()
            case ev.EngineError():
                self.loading = None
            case ev.KernelProgress():
                self.kernel_progress = event
            case ev.Answered():
                self.pending.discard(event.question)
                if event.answer is not None:  # None: it was broken off, and may be asked again
                    self.answers[event.question] = event.answer
                    for old in list(self.answers)[:-MOST_ANSWERS]:
                        del self.answers[old]

    def forget(self) -> None:
        """What was answered before is asked anew: files may have changed, a model may be in memory now, or no more."""
        self.answers.clear()
        self.pending.clear()

    def subject(self, activity: str, shown: ev.SessionFacts | None, loaded: ev.SessionFacts | None) -> Subject:
        """Which model the pages show: the one that loads, the newer of choice and loaded model, the recorded one."""
        if activity == "loading" and self.loading is not None:
            return Subject("loading", self.loading.path, self.loading.precision)
        if self.chosen is not None and (self.at_choice or shown is None):
            return Subject("chosen", self.chosen.model, self.chosen.precision)
        if shown is None:
            return Subject("none")
        return Subject("loaded" if shown is loaded else "recorded", shown.model_path, shown.precision)
