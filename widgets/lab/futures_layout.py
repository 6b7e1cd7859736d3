"""Where the boxes of a tree of futures lie: columns to the right, heights by share. Plain arithmetic over the tree."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.events import Node

WORDS, OTHERS, ENDED = "words", "others", "ended"


@dataclass(eq=False, slots=True)
class Box:
    """One box. top and height: shares of the picture's height, 0 to 1. node: what it stands for.

    kind: WORDS; OTHERS: several rare ways in one, whose node holds them as children; ENDED: those that end here.
    """

    node: Node
    kind: str
    column: int
    top: float
    height: float
    parent: Box | None = None
    children: list[Box] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.node.futures)


def lay_out(root: Node, least: float) -> list[Box]:
    """The boxes of a tree, each before what hangs on it; the first is the root's, over the whole height.

    least: the share of the height below which a way is put among the others. Heights are exact shares of the root's
    count, so that what is seen can be trusted.
    """
    if not root.futures:
        return []
    found: list[Box] = []
    waiting = [Box(root, WORDS, 0, 0.0, 1.0)]
    unit = 1.0 / root.count
    while waiting:
        box = waiting.pop(0)
        found.append(box)
        if box.kind == WORDS:
            _hang(box, unit, least)
            waiting += box.children
    return found


def _hang(box: Box, unit: float, least: float) -> None:
    """Makes the boxes of what a box's words go on with."""
    node, top = box.node, box.top
    seen = [child for child in node.children if child.count * unit >= least]
    rare = node.children[len(seen) :]  # the most common come first
    if len(rare) == 1:
        seen, rare = [*seen, *rare], ()
    for child in seen:
        box.children.append(Box(child, WORDS, box.column + 1, top, child.count * unit, box))
        top += child.count * unit
    if rare:
        members = tuple(sorted(place for child in rare for place in child.futures))
        others = Node(node.end, node.end, members, tuple(rare))
        box.children.append(Box(others, OTHERS, box.column + 1, top, len(members) * unit, box))
        top += len(members) * unit
    if node.ended and node.children:
        inside = {place for child in node.children for place in child.futures}
        ended = tuple(place for place in node.futures if place not in inside)
        box.children.append(Box(Node(node.end, node.end, ended), ENDED, box.column + 1, top, len(ended) * unit, box))


def columns(boxes: list[Box]) -> int:
    return max((box.column for box in boxes), default=-1) + 1
