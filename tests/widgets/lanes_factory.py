"""Lanes for tests of widgets: a store with runs side by side whose words and odds are written down."""

from __future__ import annotations

from dataclasses import replace

from engine import events as ev
from engine.settings import SamplingSettings
from tests.widgets import events_factory as made
from tests.widgets.facts import facts
from widgets.run_store import RunStore

COMMON = ["The", " river", " reaches", " the"]
# A place where four words are likely: the word and its raw probability.
PLAIN, SEA, VALLEY, TOWN = (" plain", 0.6), (" sea", 0.2), (" valley", 0.1), (" town", 0.05)
CONTROL, HOTTER, GREEDY = (
    SamplingSettings(temperature=1.0, seed=7),
    SamplingSettings(temperature=2.0, seed=7),
    SamplingSettings(temperature=0.0, seed=7),
)


VOCAB = 32  # the other words share 0.05
SAME_U = 0.4  # with it a lane at temperature 1 chooses " plain", at 2 " sea"


def fork_token(lane: int, settings: SamplingSettings, u: float | None, vocab: int = VOCAB) -> ev.TokenEvent:
    """What a lane chooses where the words are likely, with its draw: " plain" below 0.6 at temperature 1, and so on."""
    others = [SEA, VALLEY, TOWN]
    return made.token(
        len(COMMON), PLAIN[0], prob=PLAIN[1], others=others, settings=settings, u=u, lane=lane, vocab=vocab
    )


def lane_events(
    lane: int, settings: SamplingSettings, u: float | None, after: tuple[str, ...] = (), lanes: int = 3, **start: object
) -> list[ev.Event]:
    """A lane that writes what all write, then its own word, then these."""
    begun = made.start(lane=lane, lanes=lanes, settings=settings, **start)
    common = [replace(token, settings=settings) for token in made.tokens(COMMON, lane=lane)]
    own = fork_token(lane, settings, u)
    rest = [
        replace(token, settings=settings, token_id=1000 + sum(map(ord, token.text)))
        for token in made.tokens(list(after), first=len(COMMON) + 1, lane=lane)
    ]
    return [begun, *common, own, *rest]


def store_with(*lanes: list[ev.Event], loaded: ev.SessionFacts | None = None) -> RunStore:
    """A store in which these lanes were written."""
    store = RunStore()
    store.take(ev.Loaded(loaded or facts()))
    for events in lanes:
        for event in events:
            store.take(event)
    return store


def ends(*lanes: list[ev.Event]) -> list[ev.RunEnd]:
    return [made.end([event for event in events if isinstance(event, ev.TokenEvent)]) for events in lanes]
