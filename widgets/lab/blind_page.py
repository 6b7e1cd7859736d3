"""The blind test page: it is set up, texts come shuffled and unnamed, votes are counted, then the names are told.

While a vote is awaited the next round's texts are written already. Nothing of a round reaches the run store or another
panel: its texts come inside the answer to a question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from PySide6.QtCore import Signal, Slot
from PySide6.QtWidgets import QPushButton, QStackedWidget, QVBoxLayout, QWidget

from engine.events import BlindQuestion, BlindTest, BlindTexts, EngineError, new_seed
from widgets import theme
from widgets.banner import sentence_of
from widgets.format import count_text
from widgets.lab.blind_result import BlindResult
from widgets.lab.blind_round import BlindRoundView
from widgets.lab.blind_setup import PACED, BlindSetup
from widgets.lab.experiment_bar import ExperimentBar
from widgets.lab.experiment_wishes import AskRound, ExportBlind, KeepBlind, StopExperiment
from widgets.lab.settings_list import Named
from widgets.panel import Panel
from widgets.run_store import BUSY, RunStore
from widgets.small import Verdict

MOST_EQUAL = 10  # seeds in a row with equal texts, after which the test says so and stops asking


class BlindPage(QWidget):
    """`asked`: BeginBlind, AskRound, KeepBlind, ExportBlind, StopExperiment, WordsQuestion."""

    asked = Signal(object)

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.store = store
        self.test: BlindTest | None = None
        self._question: BlindQuestion | None = None  # whose texts are being written
        self._ready: tuple[BlindQuestion, tuple[str, ...]] | None = None  # the next round's, written ahead
        self._numbers = 0
        self._equal = 0  # in a row
        self._told = False  # the names of the newest round stand there
        self._later = False  # texts are wanted as soon as the engine is free
        self._halted = False  # stopped by hand, or by an error: texts are asked for by the button only
        self.setup = BlindSetup(store)
        self.setup.list.asked.connect(self.asked)
        self.round = BlindRoundView()
        self.result = BlindResult()
        self.bar = ExperimentBar(store, self.tr("Begin the test"))
        self.resume = QPushButton(self.tr("Go on with the test"))
        self.resume.clicked.connect(self.go_on)
        self.bar.row.insertWidget(2, self.resume)
        self.state_words = Verdict()
        self._stack = QStackedWidget()
        for part in (self.setup, self.round, self.result):
            self._stack.addWidget(part)
        self._panel = Panel(self.tr("Blind test"))
        self._panel.body.addWidget(self.bar)
        self._panel.body.addWidget(self.state_words)
        self._panel.body.addWidget(self.round.prompt)
        self._panel.body.addWidget(self.setup.about)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(theme.GAP)
        column.addWidget(self._panel)
        column.addWidget(self._stack, 1)
        self.bar.started.connect(self.begin)
        self.bar.stopped.connect(self.stop)
        self.setup.changed.connect(self.refresh)
        self.round.voted.connect(self.vote)
        self.round.went_on.connect(self.next_round)
        self.round.undone.connect(self.take_back)
        self.round.ended.connect(self.finish)
        self.result.new_test.connect(self.set_up)
        self.result.more.connect(self.vote_more)
        self.result.exported.connect(self.export)
        self.refresh()

    # ---------------------------------------------------------------- from the window

    def set_sources(self, sources: Sequence[Named]) -> None:
        self.setup.set_sources(sources)

    def set_prompt(self, prompt: str) -> None:
        self.setup.set_prompt(prompt)

    def state(self) -> dict[str, Any]:
        return self.setup.state()

    def restore(self, values: dict[str, Any]) -> None:
        self.setup.restore(values)

    def restore_test(self, test: BlindTest) -> None:
        """The newest test that was kept: gone on with where it was left."""
        if self.test is None:
            self._show_test(test)

    def begin_test(self, test: BlindTest) -> None:
        """A new one, as the window completed it, of the model that is loaded: its settings may name tokens."""
        self._ready, self._question, self._equal = None, None, 0
        facts = self.store.facts
        self._show_test(replace(test, model=facts.name, precision=facts.precision) if facts is not None else test)
        self.next_round()

    def begun(self, question: BlindQuestion) -> None:
        """The window has asked the engine."""
        self._question, self.bar.asked = question, True
        self.refresh()

    def run_page(self, one_token: bool) -> None:
        """The window's Run, while this page is seen."""
        if not one_token and self._stack.currentWidget() is self.setup:
            self.begin()

    # ---------------------------------------------------------------- the course of a test

    @Slot()
    def begin(self) -> None:
        self.refresh()  # what came since the last frame
        if not self.bar.ready:
            return
        wish = self.setup.wish()
        if wish is None:
            self.bar.show_error(self.setup.problem or self.tr("A value cannot be used: it is marked red."))
            return
        self.asked.emit(wish)

    @Slot()
    def go_on(self) -> None:
        """After a stop, an error, or another start of the program."""
        self.bar.show_error("")
        self._equal, self._halted = 0, False
        if self.test is not None and self.test.open_round is not None:
            self._write_ahead()
        else:
            self.next_round()

    @Slot()
    def next_round(self) -> None:
        """Shows the texts that were written ahead, or asks for some."""
        test = self.test
        if test is None or test.finished:
            return
        self._told = False
        if test.complete:
            self.finish()
            return
        if test.open_round is None and self._ready is not None:
            (question, texts), self._ready = self._ready, None
            self._take_texts(question, texts)
            return
        self.round.show_round(test, test.open_round, self._paced)
        if test.open_round is None:
            self._ask()
        else:
            self._write_ahead()
        self.refresh()

    def _ask(self) -> None:
        """Asks for the next texts unless they are being written or something else keeps the engine."""
        test = self.test
        if test is None or self._question is not None or self._ready is not None or self._halted:
            return
        self._later = self.store.activity in BUSY  # an answer may be here before its work has ended
        if self._later or self.store.facts is None:
            return
        self._numbers += 1
        asked = replace(test.asked, prompt=test.next_prompt)
        self.asked.emit(AskRound(BlindQuestion(asked, test.settings, new_seed(), self._numbers)))

    def _write_ahead(self) -> None:
        test = self.test
        if test is not None and len(test.voted) + 1 < test.planned:
            self._ask()

    def _take_texts(self, question: BlindQuestion, texts: tuple[str, ...]) -> None:
        assert self.test is not None
        before = self.test
        self.test = before.with_texts(question.seed, question.asked.prompt, texts)
        self._keep()
        if self.test.open_round is None:
            self._equal += 1
            if self._equal >= MOST_EQUAL:
                self._halted = True
                self.bar.show_error(
                    self.tr(
                        "{count} seeds in a row gave the same text for all settings: on this prompt they make no "
                        "difference, and there is nothing to vote on. Change the settings, or end the test."
                    ).format(count=count_text(self._equal))
                )
            else:
                self._ask()
            self.refresh()
            return
        self._equal = 0
        self.round.show_round(self.test, self.test.open_round, self._paced)
        self._write_ahead()
        self.refresh()

    @Slot(object)
    def vote(self, place: object) -> None:
        if self.test is None or self.test.open_round is None:
            return
        self.test = self.test.with_vote(int(place))  # type: ignore[call-overload]
        self._keep()
        if self.test.at_end:
            self.next_round()
        else:
            self._told = True
            self.round.show_names(self.test, self.test.rounds[-1])
            self.refresh()

    @Slot()
    def take_back(self) -> None:
        """The last vote; where its names were told, its whole round."""
        if self.test is None:
            return
        waiting = self.test.open_round
        self.test = self.test.without_last_vote()
        if waiting is not None and self._ready is None:
            # Nobody has judged it: it comes again, in another order.
            question = BlindQuestion(replace(self.test.asked, prompt=waiting.prompt), self.test.settings, waiting.seed)
            self._ready = question, waiting.texts
        self._keep()
        self.next_round()

    @Slot()
    def finish(self) -> None:
        """The names are told; where nobody has voted, there is nothing to tell, and another test can be set up."""
        if self.test is None:
            return
        rounds = self.test.voted  # one that waits for its vote is no round
        self.test = replace(self.test, rounds=rounds, finished=True)
        self._ready = None
        if self._question is not None:
            self.stop()
        self._keep()
        if rounds:
            self._show_test(self.test)
        else:
            self.set_up()

    @Slot()
    def vote_more(self) -> None:
        """Back to voting; the names are known now, and the verdict says that it was looked at before its end."""
        if self.test is not None and not self.test.complete:
            self.test = replace(self.test, finished=False, at_end=False)
            self._halted = False
            self._show_test(self.test)
            self.next_round()

    @Slot()
    def set_up(self) -> None:
        self.test, self._later = None, False
        self._stack.setCurrentWidget(self.setup)
        self.bar.show_error("")
        self.refresh()

    @Slot()
    def export(self) -> None:
        if self.test is not None:
            self.asked.emit(ExportBlind(self.test))

    @Slot()
    def stop(self) -> None:
        self._halted = True
        self.asked.emit(StopExperiment())

    def _keep(self) -> None:
        assert self.test is not None
        self.asked.emit(KeepBlind(self.test))

    @property
    def _paced(self) -> bool:
        return self.setup.pace.currentData() == PACED

    # ---------------------------------------------------------------- showing

    def _show_test(self, test: BlindTest) -> None:
        self.test = test
        if test.finished:
            self.result.show_test(test)
            self._stack.setCurrentWidget(self.result)
        else:
            self.round.show_round(test, test.open_round, self._paced)
            self._stack.setCurrentWidget(self.round)
        self.refresh()

    @Slot()
    def refresh(self) -> None:
        answers = self.store.inside.answers
        if self._question is not None and self._question in answers:
            answer, question = answers.pop(self._question), self._question
            self._question, self.bar.asked = None, False
            if isinstance(answer, EngineError):
                self._halted = True
                self.bar.show_error(sentence_of(answer))
            elif isinstance(answer, BlindTexts) and self.test is not None and not self.test.finished:
                self._take_answer(question, answer)
        if self._question is not None and self.store.activity not in BUSY and not self.bar.asked:
            self._question = None  # it was broken off, and has no answer
        if self._later and self.store.activity not in BUSY:
            self._later = False
            if self.test is not None and not self.test.finished:
                self._ask() if self.test.open_round is None else self._write_ahead()
        voting = self._stack.currentWidget() is self.round
        if self._stack.currentWidget() is self.setup:
            self.setup.list.refresh()
        self.bar.refresh(BlindQuestion, self.setup.problem if not voting else "")
        waits = voting and self.test is not None and self.test.open_round is None and not self._told
        at_work = self._question is not None or self._ready is not None or self._later
        self.bar.start.setVisible(self._stack.currentWidget() is self.setup)
        ahead = voting and not waits  # texts that are written while another round is read are no news
        for part in (self.bar.bar, self.bar.words, self.bar.cancel):
            part.setVisible(part.isVisibleTo(self.bar) and not ahead)
        self.resume.setVisible(waits and not at_work)
        shown = self._stack.currentWidget() is self.setup or waits or bool(self.bar.error.text())
        self.bar.setVisible(shown)
        self.resume.setEnabled(self.store.activity not in BUSY and self.store.facts is not None)
        self.round.prompt.setVisible(voting and bool(self.round.prompt.text()))
        self.setup.about.setVisible(self._stack.currentWidget() is self.setup)
        self._panel.setVisible(self._stack.currentWidget() is not self.result)
        self._say(voting, waits, at_work)

    def _take_answer(self, question: BlindQuestion, answer: BlindTexts) -> None:
        assert self.test is not None
        if not self.test.model:
            self.test = replace(self.test, model=answer.model, precision=answer.precision)
        elif (answer.model, answer.precision) != (self.test.model, self.test.precision):
            self._halted = True
            self.bar.show_error(
                self.tr(
                    "This test was begun with {then}, and {now} is loaded: votes on two models cannot be counted "
                    "together. Load the first again, or end the test."
                ).format(then=f"{self.test.model} {self.test.precision}", now=f"{answer.model} {answer.precision}")
            )
            return
        if self.test.open_round is None and not self._told:
            self._take_texts(question, answer.texts)
        else:
            self._ready = question, answer.texts

    def _say(self, voting: bool, waits: bool, at_work: bool) -> None:
        test = self.test
        words = ""
        if voting and test is not None:
            votes = self.tr("{votes} of {planned} votes").format(
                votes=count_text(len(test.voted)), planned=count_text(test.planned)
            )
            if waits and self._later and self.store.activity != "experiment":
                words = self.tr("The engine is at work: the texts of the next round come as soon as it is free.")
            elif waits and at_work:
                words = self.tr("The texts of the next round are being written.")
            elif waits:
                words = self.tr("The test waits: go on, or end it.")
            elif self._told:
                words = self.tr("Return for the next round.")
            else:
                words = self.tr("Which text is better? Keys 1, 2, … vote, 0 for no preference.")
            words = f"{votes}. {words}"
            if test.equal:
                words += " " + self.tr("Seeds that gave equal texts, and no round: {count}.").format(
                    count=count_text(test.equal)
                )
        self.state_words.setText(words)
        self.state_words.setVisible(bool(words))
