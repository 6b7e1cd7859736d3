"""A row of the tree of forks in words: what differs, how long it is, why it ended, what it wrote itself."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QCoreApplication

from engine.figures import Branch
from widgets.format import count_text, token_label
from widgets.reuse import reuse_text
from widgets.run import Run
from widgets.run_names import fork_words, given_text, run_name
from widgets.run_store import RunStore
from widgets.text_painter import end_word, one_line

Key = tuple[int, int]  # of a run: its number and lane
IN_ROW, IN_TIP = 400, 600  # characters of its text


def tr(text: str) -> str:
    return QCoreApplication.translate("ForkTree", text)


@dataclass(eq=False, slots=True)
class Row:
    """One run of the tree. begins, ends: in tokens. parent: the row that it hangs from, None for a beginning.

    above: the run of that row.
    """

    store: RunStore
    run: Run
    branch: Branch
    parent: int | None
    above: Run | None

    @property
    def begins(self) -> int:
        return self.branch.begins

    @property
    def ends(self) -> int:
        return self.run.lost + len(self.run.tokens)

    @property
    def name(self) -> str:
        return run_name(self.store, self.run)

    def about(self) -> list[str]:
        """What differs, how long it is, why it ended, what was reused."""
        run = self.run
        found = [fork_words(run, self.above)]
        count, own = count_text(self.ends), count_text(len(run.tokens) - run.begins)
        found.append(
            tr("length {count}, {own} of it its own").format(count=count, own=own)
            if self.begins
            else tr("length {count}").format(count=count)
        )
        if run.lost:
            found.append(tr("its beginning is not here"))
        if run.end is None:
            found.append(tr("is being written"))
        else:
            found.append(tr("ended: length") if run.end.reason == "length" else end_word(run.end))
            if run.end.reused_tokens:
                found.append(reuse_text(run.end, len(run.start.written)))
        return [words for words in found if words]

    def text(self) -> tuple[str, str]:
        """What it wrote itself, on one line: first what was given, then its own words."""
        given, words = given_text(self.run), ""
        for token in self.run.tokens[self.run.begins :]:
            if not token.forced:
                words += token.text
            if len(words) > IN_ROW:
                break
        if given:
            return one_line(given.removeprefix(" ")), one_line(words)
        return "", one_line(words.removeprefix(" "))

    def words(self, step: int | None = None) -> str:
        """All of it for a tool tip; step: with this token."""
        lines = [self.name, *self.about()]
        if self.above is not None:
            there = self.above.tokens[self.begins].token_text if self.begins < len(self.above.tokens) else ""
            place = tr("leaves {parent} at word {number}").format(
                parent=run_name(self.store, self.above), number=count_text(self.begins + 1)
            )
            lines.insert(1, f"{place} ({token_label(there)})" if there else place)
        run = self.run
        if step is not None and step < len(run.tokens):
            token = run.tokens[step]
            lines.append(
                tr("here: word {number}, {word}").format(
                    number=count_text(token.step + 1), word=token_label(token.token_text)
                )
            )
        text = run.text[run.starts[run.begins] if run.begins < len(run.starts) else 0 :]
        lines.append(text[:IN_TIP] + ("…" if len(text) > IN_TIP else ""))
        return "\n".join(lines)
