"""What the filters leave in another order: plain frozen data. engine/filter_order.py works it out."""

from __future__ import annotations

from dataclasses import dataclass

from engine.settings import SamplingSettings

ORDERED = ("temperature", "top_k", "top_p", "min_p", "typical_p")  # today's order: transformers'


@dataclass(frozen=True, slots=True)
class OrderQuestion:
    """What do these settings leave of a token of a run, in today's order and in this one?"""

    run_id: int
    lane: int
    step: int
    settings: SamplingSettings
    order: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OrderedStage:
    """How many tokens a stage left, at least and at most. The first is "all": what came in."""

    name: str
    least: int
    most: int

    @property
    def exact(self) -> bool:
        return self.least == self.most


@dataclass(frozen=True, slots=True)
class OrderedFilters:
    """One order's outcome. Of the token's listed alternatives, in their order: cuts and shares.

    cuts: "" for one that is left, the stage that cut it, or "?" where what was kept cannot tell. shares: bounds of the
    probability in the draw. surprise: bounds of the mean of -ln p (nats, raw odds) of what would be drawn.
    """

    order: tuple[str, ...]
    stages: tuple[OrderedStage, ...]
    cuts: tuple[str, ...]
    shares: tuple[tuple[float, float], ...]
    surprise_low_nats: float
    surprise_high_nats: float


@dataclass(frozen=True, slots=True)
class TwoOrders:
    """The same logits and settings in today's order and in another."""

    today: OrderedFilters
    other: OrderedFilters
