"""What a recording knows of a model that need not be on this computer: facts for boxes whose page reads its files."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication

from engine.events import Fact, SessionFacts
from widgets.format import bytes_text, count_text, duration_text

BOXES = ("blueprint", "skeleton", "weights")
MEASURED = "measured"
translate = QCoreApplication.translate


def recorded_rows(box: str, facts: SessionFacts) -> list[Fact]:
    """The rows of one of BOXES."""
    times = dict(facts.stage_ms)
    rows = [Fact(translate("BoxView", "Time"), duration_text(times[box]), MEASURED)] if box in times else []
    if box == "blueprint":
        return [*rows, Fact(translate("BoxView", "Family"), facts.family, "config.json"), *facts.facts]
    if box == "skeleton":
        rows.append(Fact(translate("BoxView", "Parameters"), count_text(facts.parameters), MEASURED))
        return [*rows, *(Fact(part.name, bytes_text(part.predicted_bytes), "predicted")
                         for part in facts.ledger if part.predicted_bytes)]  # fmt: skip
    rows.append(Fact(translate("BoxView", "In memory"), bytes_text(facts.weights_bytes), MEASURED))
    if facts.memory_after_bytes > 0:
        grown = facts.memory_after_bytes - facts.memory_before_bytes
        rows.append(Fact(translate("BoxView", "Process grew by"), bytes_text(grown), MEASURED))
    rows += [
        Fact(translate("BoxView", "Precision"), facts.precision, translate("BoxView", "as loaded")),
        Fact(translate("BoxView", "From"), facts.model_path, ""),
    ]
    return [*rows, *(Fact(part.name, bytes_text(part.measured_bytes), MEASURED)
                     for part in facts.ledger if part.measured_bytes)]  # fmt: skip
