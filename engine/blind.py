"""A blind test as plain data: its rounds, the order in which texts stood, the votes, and what may be said of them.

No torch; a view keeps one and makes the next of it. The texts come from engine/blind_texts.py, files from
engine/blind_files.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from secrets import SystemRandom

from engine.errors import SettingsRefused
from engine.experiments import Asked
from engine.settings import SamplingSettings
from engine.statistics import binomial_two_sided, holm

LETTERS = "ABCDEFGH"
MOST_SETTINGS = len(LETTERS)
MOST_ROUNDS = 1000
SEEN = 0.05  # below it a preference is called seen
NO_PREFERENCE = -1
_random = SystemRandom()


@dataclass(frozen=True, slots=True)
class BlindRound:
    """One round. texts: of each setting, in their order. shown: what stood at "1", "2", …: the settings that wrote the
    text there (several where they wrote the same). vote: a place in `shown`, NO_PREFERENCE, or None before it.
    """

    seed: int
    prompt: str
    texts: tuple[str, ...]
    shown: tuple[tuple[int, ...], ...]
    vote: int | None = None

    def text_at(self, place: int) -> str:
        return self.texts[self.shown[place][0]]

    @property
    def chosen(self) -> tuple[int, ...]:
        """The settings whose text was preferred; empty without a preference."""
        return () if self.vote is None or self.vote == NO_PREFERENCE else self.shown[self.vote]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two settings against each other, over the rounds in which one of the two was preferred and the other was not.

    p: exact two-sided binomial test against one half. p_holm: corrected for all pairs of the test.
    """

    first: int
    second: int
    first_votes: int
    second_votes: int
    p: float
    p_holm: float

    @property
    def votes(self) -> int:
        return self.first_votes + self.second_votes

    @property
    def preferred(self) -> int | None:
        """The setting for which a preference is seen, or None."""
        if self.p_holm >= SEEN or self.first_votes == self.second_votes:
            return None
        return self.first if self.first_votes > self.second_votes else self.second


@dataclass(frozen=True, slots=True)
class BlindTest:
    """The settings in their order (A, B, …), the rounds so far, and how many seeds gave equal texts and no round.

    asked: what every round is asked but the prompt, which the prompts give in turn. at_end: the names are told at the
    end and not after each vote. planned: so many votes, decided before the first: who looks and goes on until it
    pleases finds what is not there. finished: the verdict was told.
    """

    asked: Asked
    prompts: tuple[str, ...]
    settings: tuple[SamplingSettings, ...]
    names: tuple[str, ...] = ()
    at_end: bool = False
    planned: int = 20
    model: str = ""
    precision: str = ""
    begun: str = ""
    rounds: tuple[BlindRound, ...] = ()
    equal: int = 0
    finished: bool = False

    def __post_init__(self) -> None:
        if not 2 <= len(self.settings) <= MOST_SETTINGS:
            raise SettingsRefused("A blind test has 2 to {most} settings.", "Give two at least.", most=MOST_SETTINGS)
        if len(set(self.settings)) != len(self.settings):
            raise SettingsRefused(
                "Two of the settings are the same.", "Change one: equal settings write equal texts from one seed."
            )
        if not self.prompts:
            raise SettingsRefused("There is no prompt.", "Write one.")
        if not 1 <= self.planned <= MOST_ROUNDS:
            raise SettingsRefused(
                "{count} votes cannot be planned.", "Give 1 to {most}.", count=self.planned, most=MOST_ROUNDS
            )
        if self.names and len(self.names) != len(self.settings):
            raise SettingsRefused("Give each setting a name, or none.", "")

    def name(self, setting: int) -> str:
        """Its letter, and what the person calls it."""
        name = self.names[setting] if self.names else ""
        return f"{LETTERS[setting]} {name}".strip()

    @property
    def next_prompt(self) -> str:
        return self.prompts[len(self.rounds) % len(self.prompts)]

    @property
    def open_round(self) -> BlindRound | None:
        """The round that waits for a vote."""
        return self.rounds[-1] if self.rounds and self.rounds[-1].vote is None else None

    @property
    def voted(self) -> tuple[BlindRound, ...]:
        return tuple(each for each in self.rounds if each.vote is not None)

    @property
    def complete(self) -> bool:
        """Whether all votes that were planned are there."""
        return len(self.voted) >= self.planned

    @property
    def undecided(self) -> int:
        """Votes for no preference."""
        return sum(each.vote == NO_PREFERENCE for each in self.voted)

    # ---------------------------------------------------------------- the next test of it

    def with_texts(self, seed: int, prompt: str, texts: Sequence[str]) -> BlindTest:
        """A new round with these texts, shuffled; or the same test with one more seed that gave equal texts."""
        shown = shuffled(texts)
        if len(shown) < 2:
            return replace(self, equal=self.equal + 1)
        return replace(self, rounds=(*self.rounds, BlindRound(seed, prompt, tuple(texts), shown)))

    def with_vote(self, vote: int) -> BlindTest:
        """The open round's vote. Raises ValueError without one, or for a place that is not there."""
        waiting = self.open_round
        if waiting is None or not NO_PREFERENCE <= vote < len(waiting.shown):
            raise ValueError(f"no vote {vote} here")
        return replace(self, rounds=(*self.rounds[:-1], replace(waiting, vote=vote)))

    def without_last_vote(self) -> BlindTest:
        """The newest vote taken back, and a round behind it that waits for its vote goes.

        Its round is open again; where its names were told, it goes altogether: a vote after them would not be blind.
        """
        rounds = list(self.rounds)
        if rounds and rounds[-1].vote is None:
            rounds.pop()
        if rounds:
            last = rounds.pop()
            if self.at_end and not self.finished:
                rounds.append(replace(last, vote=None))
        return replace(self, rounds=tuple(rounds), finished=False)

    # ---------------------------------------------------------------- what may be said

    def wins(self, setting: int) -> int:
        """Votes for its text, shared ones too."""
        return sum(setting in each.chosen for each in self.voted)

    def pairs(self) -> tuple[Pair, ...]:
        """Every two settings; corrected over all of them by Holm."""
        counts: list[tuple[int, int, int, int]] = []
        for first in range(len(self.settings)):
            for second in range(first + 1, len(self.settings)):
                mine = sum(first in each.chosen and second not in each.chosen for each in self.voted)
                theirs = sum(second in each.chosen and first not in each.chosen for each in self.voted)
                counts.append((first, second, mine, theirs))
        p_values = [binomial_two_sided(mine, mine + theirs) for _, _, mine, theirs in counts]
        return tuple(
            Pair(*count, p, corrected) for count, p, corrected in zip(counts, p_values, holm(p_values), strict=True)
        )


def shuffled(
    texts: Sequence[str], shuffle: Callable[[list[tuple[int, ...]]], None] = _random.shuffle
) -> tuple[tuple[int, ...], ...]:
    """Which settings' text stands at each place: every order equally likely, by the system's own randomness.

    Equal texts stand once, for all that wrote them.
    """
    groups: dict[str, list[int]] = {}
    for setting, text in enumerate(texts):
        groups.setdefault(text, []).append(setting)
    places = [tuple(group) for group in groups.values()]
    shuffle(places)
    return tuple(places)


def new_seed() -> int:
    """One that nobody has chosen: 32 bits of the system's randomness."""
    return _random.getrandbits(32)
