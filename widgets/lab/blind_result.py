"""What a blind test found: votes, names, the verdict in plain words, and every round to read again."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication, Qt, Signal, Slot
from PySide6.QtWidgets import (
    QHBoxLayout,
    QHeaderView,
    QPlainTextEdit,
    QPushButton,
    QSplitter,
    QTreeWidget,
    QTreeWidgetItem,
    QVBoxLayout,
    QWidget,
)

from engine.events import NO_PREFERENCE, BlindTest, Pair
from widgets import theme
from widgets.format import count_text, number_text, plain_tooltip
from widgets.lab.figure_words import settings_text
from widgets.panel import Panel, scrolling
from widgets.small import SmallText, Verdict


def tr(text: str) -> str:
    return QCoreApplication.translate("BlindResult", text)


def p_text(p: float) -> str:
    words = tr("p < 0.001") if p < 0.001 else f"p = {number_text(p, 3)}"
    return words.replace(" ", "\u00a0")  # no line ends inside it


def verdict(test: BlindTest, pair: Pair) -> str:
    """One pair in plain words, with the votes and the exact test behind it."""
    first, second = test.name(pair.first), test.name(pair.second)
    if not pair.votes:
        return tr("{first} against {second}: no vote chose between them.").format(first=first, second=second)
    several = len(test.settings) > 2
    p = p_text(pair.p_holm)
    ahead = max(pair.first_votes, pair.second_votes)
    counts = tr("{ahead} of {votes} votes").format(ahead=count_text(ahead), votes=count_text(pair.votes))
    if pair.preferred is not None:
        other = pair.second if pair.preferred == pair.first else pair.first
        words = tr("{winner} is preferred to {other}: {counts}, {p}.").format(
            winner=test.name(pair.preferred), other=test.name(other), counts=counts, p=p
        )
    else:
        words = tr("{first} against {second}: no difference seen ({counts} for the one ahead, {p}).").format(
            first=first, second=second, counts=counts, p=p
        )
        if several and pair.p < 0.05:
            words += " " + tr("Alone it would be one ({p}), among so many comparisons it is not.").format(
                p=p_text(pair.p)
            )
    return words


def verdicts(test: BlindTest) -> list[str]:
    """All pairs: those with a preference first, then by their votes; pairs without a vote are counted."""
    pairs = sorted(test.pairs(), key=lambda pair: (pair.preferred is None, pair.p, -pair.votes))
    silent = [pair for pair in pairs if not pair.votes]
    if len(silent) <= 1:
        return [verdict(test, pair) for pair in pairs]
    told = [verdict(test, pair) for pair in pairs if pair.votes]
    return [*told, tr("Between {count} pairs no vote chose.").format(count=count_text(len(silent)))]


def notes(test: BlindTest) -> list[str]:
    """What belongs to an honest reading."""
    found = [
        tr(
            "Exact two-sided binomial test of the votes that chose: how often a coin would be as one-sided. Votes for "
            "no preference ({count}) are left out."
        ).format(count=count_text(test.undecided))
    ]
    if len(test.settings) > 2:
        found.append(
            tr(
                "{pairs} comparisons were made at once, so each p is corrected for them (Holm). A vote for one text "
                "counts for it against each other."
            ).format(pairs=count_text(len(test.pairs())))
        )
    if not test.complete:
        found.append(
            tr(
                "Ended after {votes} of {planned} votes that were planned: ending when the result pleases finds "
                "preferences that are not there."
            ).format(votes=count_text(len(test.voted)), planned=count_text(test.planned))
        )
    if test.equal:
        found.append(
            tr("Seeds that gave the same text for all settings, and no round: {count}.").format(
                count=count_text(test.equal)
            )
        )
    if not test.at_end:
        found.append(tr("The names were told after each vote, so a person may have learnt to tell the settings."))
    return found


class BlindResult(QWidget):
    """The names are told here."""

    new_test = Signal()
    more = Signal()
    exported = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._test: BlindTest | None = None
        self.panel = Panel(self.tr("Verdict"))
        self.words = Verdict()
        self.votes = self._table([self.tr("setting"), self.tr("votes"), self.tr("what it is")])
        self.notes = SmallText()
        self.new_button = QPushButton(self.tr("New test"))
        self.new_button.setProperty("primary", True)
        self.go_on = QPushButton(self.tr("Go on voting"))
        self.go_on.setToolTip(self.tr("The votes that were planned are not all there yet"))
        self.export = QPushButton(self.tr("Export…"))
        self.export.setToolTip(self.tr("As CSV for a spreadsheet, or as JSON with everything"))
        row = QHBoxLayout()
        for button, signal in (
            (self.new_button, self.new_test),
            (self.go_on, self.more),
            (self.export, self.exported),
        ):
            button.clicked.connect(signal)
            row.addWidget(button)
        row.addStretch(1)
        inside = QWidget()
        inside.setProperty("plain", True)
        inner = QVBoxLayout(inside)
        inner.setContentsMargins(0, 0, 4, 0)
        inner.setSpacing(8)
        for part in (self.words, self.votes, self.notes):
            inner.addWidget(part)
        inner.addStretch(1)
        area = scrolling(inside)
        self.panel.body.addWidget(area, 1)
        self.panel.body.addLayout(row)
        self.rounds_panel = Panel(self.tr("Rounds"))
        self.rounds = self._table([self.tr("round"), self.tr("shown"), self.tr("preferred"), self.tr("seed")])
        self.rounds.currentItemChanged.connect(self._round_chosen)
        self.text = QPlainTextEdit()
        self.text.setReadOnly(True)
        self.text.setAccessibleName(self.tr("Texts of the round"))
        self.rounds_panel.body.addWidget(self.rounds, 1)
        self.rounds_panel.body.addWidget(self.text, 2)
        split = QSplitter(Qt.Orientation.Horizontal)
        split.setChildrenCollapsible(False)
        split.addWidget(self.panel)
        split.addWidget(self.rounds_panel)
        split.setStretchFactor(0, 1)
        split.setStretchFactor(1, 1)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(split)

    def _table(self, heads: list[str]) -> QTreeWidget:
        table = QTreeWidget()
        table.setRootIsDecorated(False)
        table.setUniformRowHeights(True)
        table.setHeaderLabels(heads)
        table.setAccessibleName(", ".join(heads))
        table.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        for at in range(len(heads) - 1):
            table.header().setSectionResizeMode(at, QHeaderView.ResizeMode.ResizeToContents)
        return table

    def show_test(self, test: BlindTest) -> None:
        self._test = test
        self.panel.set_remark(test.model)
        self.words.setText("\n".join(verdicts(test)))
        self.notes.setText("\n".join(notes(test)))
        self.votes.clear()
        for setting, settings in enumerate(test.settings):
            item = QTreeWidgetItem([test.name(setting), count_text(test.wins(setting)), settings_text(settings)])
            item.setTextAlignment(1, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
            item.setToolTip(2, plain_tooltip(settings_text(settings)))
            self.votes.addTopLevelItem(item)
        rows = self.votes.topLevelItemCount()
        self.votes.setFixedHeight(
            max(self.votes.sizeHintForRow(0), theme.base_px()) * rows + self.votes.header().sizeHint().height() + 6
        )
        self.go_on.setVisible(not test.complete)
        self.rounds.clear()
        for number, each in enumerate(test.voted, start=1):
            shown = "  ".join(
                f"{place + 1} {'='.join(test.name(s).split()[0] for s in group)}"
                for place, group in enumerate(each.shown)
            )
            preferred = self.tr("none") if each.vote == NO_PREFERENCE else ", ".join(test.name(s) for s in each.chosen)
            item = QTreeWidgetItem([count_text(number), shown, preferred, str(each.seed)[:20]])
            self.rounds.addTopLevelItem(item)
        self.text.clear()
        if test.voted:
            self.rounds.setCurrentItem(self.rounds.topLevelItem(0))

    @Slot()
    def _round_chosen(self) -> None:
        if self._test is None or self.rounds.currentItem() is None:
            return
        each = self._test.voted[self.rounds.indexOfTopLevelItem(self.rounds.currentItem())]
        parts = [each.prompt]
        for place, group in enumerate(each.shown):
            names = ", ".join(self._test.name(setting) for setting in group)
            mark = f" · {self.tr('preferred')}" if each.vote == place else ""
            parts.append(f"— {place + 1} · {names}{mark} —\n{each.text_at(place)}")
        self.text.setPlainText("\n\n".join(parts))
