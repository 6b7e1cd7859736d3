"""What a run is called, where it began, and how it differs from what it began in: words for several views."""

from __future__ import annotations

from itertools import takewhile

from PySide6.QtCore import QCoreApplication

from widgets.format import count_text
from widgets.lab.lane_words import changed_words
from widgets.run import Run
from widgets.run_store import RunStore

MOST_GIVEN = 400  # tokens that are told of what was given


def _tr(text: str) -> str:
    return QCoreApplication.translate("RunNames", text)


def run_name(store: RunStore, run: Run) -> str:
    """What the person calls it; its number, and its lane's letter where it is one of several, where it has no name or
    another run has the same."""
    number = f"{_tr('run {number}').format(number=count_text(run.start.run_id))} {store.letter(run)}".strip()
    name = run.start.name
    if name and any(each.start.name == name for each in store.runs if each is not run):
        return f"{name} ({number})"
    return name or number


def run_words(store: RunStore, run: Run) -> str:
    """One line for a list: its name, where it began, what differs."""
    parts = [run_name(store, run)]
    parent, above = run.start.parent, store.above(run)
    if parent is not None:
        at = count_text(parent.step + 1)
        parts.append(
            _tr("from {parent} at word {at}").format(parent=run_name(store, above), at=at)
            if above is not None
            else _tr("from word {at} of a run that is not here").format(at=at)
        )
    parts += [words for words in (fork_words(run, above),) if words]
    return " · ".join(parts)


def fork_words(run: Run, parent: Run | None) -> str:
    """The settings in which a fork differs from what it left, "" where in none."""
    if parent is None:
        return ""
    step = len(run.start.written)
    there = parent.tokens[min(step, len(parent.tokens) - 1)].settings if parent.tokens else parent.start.settings
    return changed_words(there, run.start.settings)


def given_text(run: Run) -> str:
    """The words that a person gave at its beginning, "" for none."""
    given = list(takewhile(lambda token: token.forced, run.tokens[run.begins :][:MOST_GIVEN]))
    # Half a character has no text yet: its label is shown where there is nothing else.
    return "".join(token.text for token in given) or "".join(token.token_text for token in given)
