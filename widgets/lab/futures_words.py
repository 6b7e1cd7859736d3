"""The boxes of futures in words: what stands in one, its share beside the exact odds, one whole continuation."""

from __future__ import annotations

import math
from collections.abc import Sequence

from PySide6.QtCore import QCoreApplication

from engine.events import Futures, Node, scatter, words_of
from widgets.format import count_text, percent_text
from widgets.lab.futures_layout import ENDED, OTHERS, WORDS, Box
from widgets.text_painter import one_line

LEAD = 160  # characters of what stands before that the first box shows
WHOLE = 700  # characters of a whole continuation that a tool tip shows


def tr(text: str) -> str:
    return QCoreApplication.translate("Futures", text)


class BoxWords:
    """written: the tokens with which the run itself went on there."""

    def __init__(self, found: Futures, written: Sequence[int] = ()) -> None:
        self.found, self.written = found, tuple(written)

    def words(self, box: Box) -> str:
        """What stands in a box."""
        count, ways = count_text(box.count), count_text(len(box.node.children))
        if box.kind == OTHERS:
            if box.parent is not None and len(box.parent.children) == 1:
                return tr("{count} of {all}, in {ways} ways").format(count=count, all=self._total, ways=ways)
            return tr("others: {count} of {all}, in {ways} ways").format(count=count, all=self._total, ways=ways)
        if box.kind == ENDED:
            reasons = {self.found.futures[place].reason for place in box.node.futures}
            said = (
                tr("being written: {count} of {all}")
                if "" in reasons
                else tr("stopped here: {count} of {all}")
                if "cancelled" in reasons
                else tr("end here: {count} of {all}")
            )
            return said.format(count=count, all=self._total)
        text = one_line(words_of(self.found.futures, box.node))
        if box.parent is None:
            future = self.found.futures[box.node.futures[0]]
            before = self.found.begins_with + "".join(future.texts[: box.node.begin])
            return (one_line(before)[-LEAD:] + text).strip() or tr("the beginning of the text")
        return text.strip() or text or "·"

    @property
    def _total(self) -> str:
        return count_text(len(self.found.futures))

    def share(self, box: Box) -> str:
        """Its share, and at the first word the exact odds beside it."""
        said = tr("{count} of {all}").format(count=count_text(box.count), all=self._total)
        if box.kind == OTHERS:  # its words have the count
            said = percent_text(box.count / len(self.found.futures))
        expected = self.expected(box)
        if expected is not None:
            said += " · " + tr("expected {share}").format(share=percent_text(expected))
        if box.kind == OTHERS:
            said += " · " + tr("Return opens them")
        return said

    def expected(self, box: Box) -> float | None:
        """The exact share of futures with this first word, of others with any that has no box of its own; None where it
        is no first word or is not known."""
        if box.kind == OTHERS:
            return self._expected_of_others(box)
        if box.kind != WORDS or box.node.begin != 0 or box.node.end == 0:
            return None
        return self.found.expected(self.found.futures[box.node.futures[0]].token_ids[0])

    def _expected_of_others(self, box: Box) -> float | None:
        """What the other boxes of first words leave of the whole."""
        above = box.parent
        if above is None or box.node.end != 0 or above.count != len(self.found.futures):
            return None
        beside = [self.expected(each) for each in above.children if each is not box]
        if None in beside:
            return None
        return max(0.0, 1.0 - math.fsum(share for share in beside if share is not None))

    def is_written(self, box: Box) -> bool:
        """The run itself went on with these words, or with those of one of the others."""
        if box.kind == OTHERS:
            return any(self._is_way_of(node) for node in box.node.children)
        return box.kind == WORDS and self._is_way_of(box.node)

    def _is_way_of(self, node: Node) -> bool:
        end = min(node.end, len(self.written))
        if end <= node.begin:
            return False
        return self.found.futures[node.futures[0]].token_ids[:end] == self.written[:end]

    def about(self, box: Box) -> str:
        """A box in words: its share, what was expected, one whole continuation."""
        total = len(self.found.futures)
        lines = [
            tr("{count} of {all} futures ({share})").format(
                count=count_text(box.count), all=count_text(total), share=percent_text(box.count / total)
            )
        ]
        expected = self.expected(box)
        if box.kind == OTHERS:
            lines.append(tr("Double click, or Return, opens them: each then has a line of its own."))
        if expected is not None and box.kind == OTHERS:
            lines.append(
                tr("Expected {share}: what the exact odds of the other first words leave; measured.").format(
                    share=percent_text(expected, 2)
                )
            )
        elif expected is not None:
            spread = percent_text(scatter(expected, total))
            lines.append(
                tr(
                    "Expected {share}: the exact odds of the first word after all settings; measured. The share of "
                    "{all} draws scatters around it by about {spread}."
                ).format(share=percent_text(expected, 2), all=count_text(total), spread=spread)
            )
        if self.is_written(box):
            lines.append(tr("The text itself went this way."))
        future = self.found.futures[box.node.futures[0]]
        text = future.text
        cut = text[:WHOLE] + ("…" if len(text) > WHOLE else "")
        if box.count > 1:
            lines.append(tr("One of them (seed {seed}):").format(seed=future.seed))
        else:
            lines.append(tr("Seed {seed}:").format(seed=future.seed))
        lines.append(cut)
        return "\n".join(lines)
