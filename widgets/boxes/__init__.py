"""Pages of their own for boxes of the pipeline strip. A box without one shows the table of facts in `box_view`.

A page is a widget made by `Page(store)`, when its box is first shown. It has `refresh()`, called when it comes into
view and at the store's frames while it is seen, never otherwise. A page that asks the engine for something has a
signal `asked` of one frozen question; the answer comes back through the store, as an event.
"""

from __future__ import annotations

from PySide6.QtWidgets import QWidget

from widgets.boxes.blueprint_page import BlueprintPage
from widgets.boxes.kernels_page import KernelsPage
from widgets.boxes.placement_page import PlacementPage
from widgets.boxes.skeleton_page import SkeletonPage
from widgets.boxes.weights_page import WeightsPage

PAGES: dict[str, type[QWidget]] = {
    "blueprint": BlueprintPage,
    "skeleton": SkeletonPage,
    "weights": WeightsPage,
    "placement": PlacementPage,
    "kernels": KernelsPage,
}
