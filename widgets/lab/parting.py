"""Where a lane leaves another, why, and what each lane thought of the words that were chosen there.

Only what the events say: odds that were not kept are said not to be listed, with the most that they can be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.events import TokenEvent
from engine.figures import GrowingFigures
from engine.settings import SamplingSettings
from widgets.run import Run

# Why two lanes parted, in the order in which they are asked for: the first that holds.
MODEL, PRECISION, PROMPT, FORCED, ARITHMETIC, GREEDY, DRAW, ODDS = (
    "model", "precision", "prompt", "forced", "arithmetic", "greedy", "draw", "odds",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Parting:
    """A lane's first token that is not the reference's. why: one of those above; settings_differ: beside the seed."""

    step: int
    why: str
    mine: TokenEvent
    theirs: TokenEvent
    settings_differ: bool


def same_model(one: Run, other: Run) -> bool:
    """Whether token ids mean the same in both, as far as the recordings tell."""
    if one.tokens and other.tokens and one.tokens[0].vocab_size != other.tokens[0].vocab_size:
        return False
    mine, theirs = one.facts, other.facts
    return mine is None or theirs is None or (mine.name, mine.vocab_size) == (theirs.name, theirs.vocab_size)


def same_word(one: TokenEvent, other: TokenEvent, by_id: bool) -> bool:
    return one.token_id == other.token_id if by_id else one.token_text == other.token_text


def why_parted(run: Run, reference: Run, mine: TokenEvent, theirs: TokenEvent) -> str:
    """Why two lanes chose differently at a place before which all was the same.

    What came before is the same, so only the model, the prompt, these tokens' own settings and draws can be the
    reason; where none of them differs, it is the arithmetic (SAM-27).
    """
    if not same_model(run, reference):
        return MODEL
    if run.facts is not None and reference.facts is not None and run.facts.precision != reference.facts.precision:
        return PRECISION
    if run.start.prompt_tokens != reference.start.prompt_tokens:
        return PROMPT
    if mine.forced or theirs.forced:
        return FORCED
    matters = draw_matters(mine, theirs)
    same_seed = mine.settings.seed == theirs.settings.seed
    if _but_seed(mine) == _but_seed(theirs) and (same_seed or not matters):
        return ARITHMETIC
    if (mine.u is None) != (theirs.u is None):
        drawn = theirs if mine.u is None else mine
        return ODDS if takes_first(drawn) else GREEDY
    return DRAW if matters else ODDS


def nothing_to_draw(token: TokenEvent) -> bool:
    """Whether one word was left (greedy, top-k 1, a narrow top-p), which every draw would have taken."""
    return token.u is None or (bool(token.stages) and token.stages[-1].kept_tokens == 1)


def takes_first(token: TokenEvent) -> bool:
    """Whether the most probable word after all settings was chosen, as without a draw."""
    return nothing_to_draw(token) or token.draw_low <= 0.0


def draw_matters(mine: TokenEvent, theirs: TokenEvent) -> bool:
    """Whether one of the two would have chosen another word with the other's draw."""
    return _elsewhere(mine, theirs.u) or _elsewhere(theirs, mine.u)


def _elsewhere(token: TokenEvent, u: float | None) -> bool:
    return u is not None and not nothing_to_draw(token) and not token.draw_low <= u < token.draw_high


def _but_seed(token: TokenEvent) -> SamplingSettings:
    return replace(token.settings, seed=0)


class LaneWatch:
    """Follows one run beside a reference: figures and parting. Each token is looked at once."""

    def __init__(self, run: Run, reference: Run | None) -> None:
        self.run, self.reference = run, reference if reference is not run else None
        self.parting: Parting | None = None
        self._figures = GrowingFigures()
        self._agreed = 0
        self._by_id = reference is None or same_model(run, reference)
        self.figures = self._figures.figures()

    @property
    def agreed(self) -> int:
        """So many tokens at the beginning are the reference's."""
        return self._agreed

    def take_in(self) -> None:
        """Looks at what was written since the last call."""
        for token in self.run.tokens[self._figures.tokens :]:
            self._figures.add(token)
        if self.figures.tokens != self._figures.tokens:
            self.figures = self._figures.figures()
        if self.reference is None or self.parting is not None:
            return
        mine, theirs = self.run.tokens, self.reference.tokens
        for step in range(self._agreed, min(len(mine), len(theirs))):
            if not same_word(mine[step], theirs[step], self._by_id):
                why = why_parted(self.run, self.reference, mine[step], theirs[step])
                differ = _but_seed(mine[step]) != _but_seed(theirs[step])
                self.parting = Parting(step, why, mine[step], theirs[step], differ)
                return
            self._agreed = step + 1


# ---------------------------------------------------------------- odds


@dataclass(frozen=True, slots=True)
class Odds:
    """What a lane thought of a word at a place.

    final: after all settings; None: cut, or not listed. most: where it is not listed, it had less than this.
    elsewhere: the lane had left before, so its odds there are for another text.
    """

    final: float | None = None
    raw: float | None = None
    cut_by: str | None = None
    most: float | None = None
    chosen: bool = False
    elsewhere: bool = False


def odds_of(token: TokenEvent, word: TokenEvent, by_id: bool = True) -> Odds:
    """The odds of another lane's word in this lane's distribution."""
    if by_id:
        at = next((i for i, token_id in enumerate(token.candidate_ids) if token_id == word.token_id), None)
    else:
        at = next((i for i, text in enumerate(token.candidate_texts) if text == word.token_text), None)
    chosen = same_word(token, word, by_id)
    if at is None:
        return Odds(most=most_unlisted(token))
    found = token.candidate(at)
    return Odds(found.final, found.raw, found.cut_by, chosen=chosen)


def most_unlisted(token: TokenEvent) -> float:
    """The most that a word which is not listed can have had after all settings, 0 where those were all cut.

    What all of them share together is one bound. Where penalties only lower, none has a larger logit than the least
    of the listed ones, which is another.
    """
    kept = token.stages[-1].kept_tokens if token.stages else token.vocab_size
    if token.u is None or kept <= sum(not code for code in token.candidate_cuts):
        return 0.0
    bound = token.others()[1]
    settings = token.settings
    lowers = (
        settings.repetition_penalty >= 1.0
        and settings.presence_penalty >= 0.0
        and settings.frequency_penalty >= 0.0
        and all(bias <= 0.0 for _, bias in settings.logit_bias)
    )
    largest = list(token.candidate_logits)
    if token.rank >= len(largest) - 1:
        largest = largest[:-1]  # the chosen token, listed whatever its place
    if lowers and largest:
        least = min(largest) / token.temperature
        bound = min(bound, math.exp(min(0.0, least - token.stages[-1].logsumexp)))
    return bound


@dataclass(frozen=True, slots=True)
class PartingRow:
    """One word that was chosen where lanes part. odds: by lane; None: the lane has written nothing there."""

    step: int
    word: TokenEvent
    choosers: tuple[int, ...]  # places of the lanes that chose it
    draws: tuple[float | None, ...]  # of each of those; None: greedy
    odds: tuple[Odds | None, ...]
    first_of_step: bool


def parting_rows(watches: Sequence[LaneWatch | None], reference: int) -> tuple[PartingRow, ...]:
    """The words at which lanes leave the reference, place by place; at each place the reference's word first.

    A lane without a run is None. Its odds, and those of a lane that had left before, are left out.
    """
    steps = sorted({watch.parting.step for watch in watches if watch is not None and watch.parting is not None})
    theirs = watches[reference]
    rows: list[PartingRow] = []
    if theirs is None:
        return ()
    for step in steps:
        words: list[tuple[TokenEvent, list[int]]] = []
        order = [reference, *(place for place in range(len(watches)) if place != reference)]
        for place in order:
            watch = watches[place]
            if watch is None or _left_before(watch, step) or step >= len(watch.run.tokens):
                continue
            token = watch.run.tokens[step]
            by_id = same_model(watch.run, theirs.run)
            known = next((who for word, who in words if same_word(word, token, by_id)), None)
            if known is None:
                words.append((token, [place]))
            else:
                known.append(place)
        for number, (word, who) in enumerate(words):
            odds = tuple(_odds_at(watch, step, word, theirs.run) for watch in watches)
            draws = tuple(_token(watches[place], step).u for place in sorted(who))
            rows.append(PartingRow(step, word, tuple(sorted(who)), draws, odds, number == 0))
    return tuple(rows)


def _token(watch: LaneWatch | None, step: int) -> TokenEvent:
    assert watch is not None
    return watch.run.tokens[step]


def _left_before(watch: LaneWatch, step: int) -> bool:
    return watch.parting is not None and watch.parting.step < step


def _odds_at(watch: LaneWatch | None, step: int, word: TokenEvent, reference: Run) -> Odds | None:
    if watch is None or step >= len(watch.run.tokens):
        return None
    if _left_before(watch, step):
        return Odds(elsewhere=True)
    return odds_of(watch.run.tokens[step], word, same_model(watch.run, reference))
