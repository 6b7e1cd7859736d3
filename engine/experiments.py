"""What the laboratory's long experiments are asked and what they find: a sweep, luck or setting, a blind round.

Plain frozen data, no torch. The questions go to the engine's thread, progress comes as `events.ExperimentProgress`,
the result inside `events.Answered`. The runs themselves are in no run store.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation

from engine.errors import SettingsRefused
from engine.settings import MAX_LANES, RANGES, Request, SamplingSettings, refusal
from engine.statistics import Difference, Mean, mean_of

# The figures of a run that are compared, in the order in which they are shown.
FIGURES = (
    "mean_surprise_nats", "mean_entropy_nats", "distinct", "repetition", "tokens", "ended_by_eos", "tokens_per_s",
)  # fmt: skip
TEXT_FIGURES = FIGURES[:-1]  # those that the settings decide; speed hangs on the machine and on the batch
MOST_VALUES = 101  # of one setting in a sweep
MOST_RUNS = 10_000
USUAL_BATCH = 16


@dataclass(frozen=True, slots=True)
class Asked:
    """What every run of an experiment is asked: a request without its lanes. The names are those of Request."""

    prompt: str
    system: str | None = None
    raw: bool = False
    max_new_tokens: int = 256
    stop: tuple[str, ...] = ()
    markers_as_text: bool = True
    forced_text: str = ""

    @classmethod
    def of(cls, request: Request) -> Asked:
        return cls(
            request.prompt, request.system, request.raw, request.max_new_tokens, request.stop,
            request.markers_as_text, request.forced_text,
        )  # fmt: skip

    def request(self, lanes: Sequence[SamplingSettings], run_id: int = 1) -> Request:
        """These lanes as one batch."""
        return Request(
            run_id=run_id,
            prompt=self.prompt,
            system=self.system,
            raw=self.raw,
            lanes=tuple(lanes),
            max_new_tokens=self.max_new_tokens,
            stop=self.stop,
            markers_as_text=self.markers_as_text,
            forced_text=self.forced_text,
        )


@dataclass(frozen=True, slots=True)
class RunFigures:
    """The figures of one run, as in figures.TextFigures; NaN where there is nothing to count or measure.

    ended_by_eos: 1.0 or 0.0. tokens_per_s: of this lane in its batch. sentence: why it failed, for reason "error".
    """

    tokens: int
    mean_surprise_nats: float
    mean_entropy_nats: float
    distinct: float
    repetition: float
    ended_by_eos: float
    tokens_per_s: float
    reason: str
    sentence: str = ""

    def figure(self, name: str) -> float:
        """One of FIGURES. A run that failed has none."""
        return math.nan if self.reason == "error" else float(getattr(self, name))


# ---------------------------------------------------------------- sweep


@dataclass(frozen=True, slots=True)
class SweepAxis:
    """A setting that a sweep varies, by its name in SamplingSettings, and its values in the order of the grid."""

    name: str
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.name not in RANGES:
            raise SettingsRefused(
                "{name} cannot be varied.", "Choose from {known}.", name=repr(self.name[:40]), known=", ".join(RANGES)
            )
        if not 1 <= len(self.values) <= MOST_VALUES:
            raise SettingsRefused(
                "{name} has {count} values.",
                "Give 1 to {most}.",
                name=self.name,
                count=len(self.values),
                most=MOST_VALUES,
            )
        for value in self.values:
            if error := refusal(self.name, self.exact(value)):
                raise error
        if len(set(self.values)) != len(self.values):
            raise SettingsRefused("{name} names a value twice.", "Give each once.", name=self.name)

    def exact(self, value: float) -> float | int:
        """A value as the setting takes it: a whole number where it must be one."""
        return int(value) if RANGES[self.name].integer and float(value).is_integer() else value


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One run of a grid. cell: the places of its values on the axes (the second is 0 where there is one axis)."""

    number: int
    cell: tuple[int, int]
    settings: SamplingSettings

    @property
    def file(self) -> str:
        """The name of its replay in the sweep's folder."""
        return f"run-{self.number:05}.jsonl"


@dataclass(frozen=True, slots=True)
class SweepQuestion:
    """A grid over one or two settings and seeds; all else is fixed.

    folder: where it is kept, and whether it goes on there. base: the settings that are not varied. seeds: each cell
    draws with all of them, so that cells differ through their settings only. batch: lanes that run together at most.
    """

    folder: str
    asked: Asked
    base: SamplingSettings
    axes: tuple[SweepAxis, ...]
    seeds: tuple[int, ...] = (0,)
    batch: int = USUAL_BATCH

    def __post_init__(self) -> None:
        if not 1 <= len(self.axes) <= 2 or len({axis.name for axis in self.axes}) != len(self.axes):
            raise SettingsRefused("A sweep varies one setting or two different ones.", "Name one or two to vary.")
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise SettingsRefused("A sweep needs seeds that differ.", "Give at least one.")
        if not 1 <= self.batch <= MAX_LANES:
            raise SettingsRefused(
                "{count} lanes cannot run together.", "Give 1 to {most}.", count=self.batch, most=MAX_LANES
            )
        if self.count > MOST_RUNS:
            raise SettingsRefused(
                "These are {count} runs.", "Give fewer values or seeds: up to {most}.", count=self.count, most=MOST_RUNS
            )

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.axes[0].values), len(self.axes[1].values) if len(self.axes) > 1 else 1

    @property
    def cells(self) -> list[tuple[int, int]]:
        """Row by row: the first axis goes down, the second across."""
        return [(row, column) for row in range(self.shape[0]) for column in range(self.shape[1])]

    @property
    def count(self) -> int:
        """How many runs these are."""
        return math.prod(self.shape) * len(self.seeds)

    def numbers(self, cell: tuple[int, int]) -> range:
        """The numbers of a cell's runs, in the order of the seeds."""
        first = (cell[0] * self.shape[1] + cell[1]) * len(self.seeds)
        return range(first, first + len(self.seeds))

    def run(self, number: int) -> SweepRun:
        place, seed = divmod(number, len(self.seeds))
        cell = divmod(place, self.shape[1])
        values = {axis.name: axis.exact(axis.values[at]) for axis, at in zip(self.axes, cell, strict=False)}
        return SweepRun(number, cell, replace(self.base, seed=self.seeds[seed], **values))


@dataclass(frozen=True, slots=True)
class SweepBatch:
    """What one batch of a sweep took, measured. process_bytes: after it, as readings.own_bytes. reused_tokens: of the
    prompt."""

    runs: int
    tokens: int
    elapsed_s: float
    process_bytes: int
    reused_tokens: int
    kernel: str = ""


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep as far as it is. runs[i]: the figures of question.run(i), None where it is still to be done."""

    question: SweepQuestion
    model: str
    precision: str
    runs: tuple[RunFigures | None, ...]
    batches: tuple[SweepBatch, ...] = ()
    notes: tuple[str, ...] = ()
    begun: str = ""  # the day and time, ISO 8601

    @property
    def done(self) -> int:
        return sum(run is not None for run in self.runs)

    @property
    def complete(self) -> bool:
        return self.done == len(self.runs)

    def of_cell(self, cell: tuple[int, int]) -> tuple[RunFigures, ...]:
        """The finished runs of a cell."""
        return tuple(run for number in self.question.numbers(cell) if (run := self.runs[number]) is not None)

    def mean(self, figure: str, cell: tuple[int, int]) -> Mean:
        """A figure over a cell's seeds."""
        return mean_of([run.figure(figure) for run in self.of_cell(cell)])


@dataclass(frozen=True, slots=True)
class SweepsQuestion:
    """Which sweeps lie in the folders under this one, or in it? Answered by a tuple of Sweep, the newest first."""

    folder: str
    number: int = 0  # another one is another question: files may have changed


_SPAN = re.compile(
    r"(?P<low>[^\s:]+?)\s*(?:\.\.|…)\s*(?P<high>[^\s:]+)\s*(?:(?::|step)\s*(?P<step>\S+))?", re.IGNORECASE
)


def values_named(name: str, text: str) -> SweepAxis:
    """The axis of "0, 0.5, 1", "0..1.5 step 0.1" or "0..1.4:0.2"; several such parts with commas between them.

    Where semicolons stand between the parts, a comma is a decimal point. Steps are decimal, so that three times 0.1 is
    0.3, and the end belongs to the range where a step meets it. Raises SettingsRefused.
    """
    by_semicolon = ";" in text
    parts = [part.strip() for part in text.split(";" if by_semicolon else ",")]
    values: list[Decimal] = []
    for part in filter(None, parts):
        if found := _SPAN.fullmatch(part):
            low, high = _decimal(name, found["low"], by_semicolon), _decimal(name, found["high"], by_semicolon)
            step = _decimal(name, found["step"] or "1", by_semicolon)
            if step <= 0 or high < low:
                raise SettingsRefused(
                    "{name} cannot be {part}.",
                    "Write a range from the smaller to the larger value: 0..1.5 step 0.1.",
                    name=name,
                    part=repr(part[:40]),
                )
            if (high - low) / step >= MOST_VALUES:
                raise SettingsRefused(
                    "{name} has too many values in {part}.",
                    "Take a larger step: up to {most} values.",
                    name=name,
                    part=repr(part[:40]),
                    most=MOST_VALUES,
                )
            values += [low + step * at for at in range(int((high - low) / step) + 1)]
        else:
            values.append(_decimal(name, part, by_semicolon))
    return SweepAxis(name, tuple(dict.fromkeys(map(float, values))))


def _decimal(name: str, text: str, comma: bool) -> Decimal:
    text = text.strip().replace("−", "-")
    try:
        value = Decimal(text.replace(",", ".") if comma else text)
    except InvalidOperation:
        value = Decimal("nan")
    if not value.is_finite() or value.adjusted() > 9 or value.as_tuple().exponent < -30:  # type: ignore[operator]
        raise SettingsRefused(
            "{name} cannot be {value}.",
            "Write numbers with commas between them (0.5, 0.9, 1), or a range (0..1.5 step 0.1).",
            name=name,
            value=repr(text[:40]),
        )
    return value


# ---------------------------------------------------------------- luck or setting


@dataclass(frozen=True, slots=True)
class LuckQuestion:
    """Is it the setting or the seed? Each of two settings runs with as many seeds, all of them different.

    The seeds of the two differ too: with the same ones two equal settings would write the same texts, and the
    difference would say nothing about luck.
    """

    asked: Asked
    settings: tuple[SamplingSettings, SamplingSettings]
    seeds: int = 16
    first_seed: int = 0

    def __post_init__(self) -> None:
        if not 2 <= self.seeds <= MAX_LANES // 2:
            raise SettingsRefused(
                "The seeds for each setting cannot be {count}.",
                "Give 2 to {most}.",
                count=self.seeds,
                most=MAX_LANES // 2,
            )

    @property
    def lanes(self) -> tuple[SamplingSettings, ...]:
        """All lanes: the first setting's, then the second's."""
        return tuple(
            replace(settings, seed=self.first_seed + side * self.seeds + at)
            for side, settings in enumerate(self.settings)
            for at in range(self.seeds)
        )


@dataclass(frozen=True, slots=True)
class LuckFigure:
    """One figure of the two settings. p_holm: corrected for all the figures that were compared.

    seeds_needed: estimated, for each setting, to see a difference like this one; None: not to be told.
    """

    name: str
    means: tuple[Mean, Mean]
    difference: Difference
    p_holm: float
    seeds_needed: int | None

    @property
    def verdict(self) -> str:
        """ "setting", "perhaps" (it stands alone, but not among so many figures), "luck", "none" (not comparable)."""
        if math.isnan(self.difference.low):
            return "none"
        if not self.difference.seen:
            return "luck"
        return "setting" if self.p_holm < 0.05 else "perhaps"


@dataclass(frozen=True, slots=True)
class Luck:
    """The answer: the runs of both settings with their texts, and each of TEXT_FIGURES compared."""

    question: LuckQuestion
    model: str
    precision: str
    runs: tuple[tuple[RunFigures, ...], tuple[RunFigures, ...]]
    texts: tuple[tuple[str, ...], tuple[str, ...]]
    figures: tuple[LuckFigure, ...]
    notes: tuple[str, ...] = ()


# ---------------------------------------------------------------- blind


@dataclass(frozen=True, slots=True)
class BlindQuestion:
    """One round's texts: each setting once, all with this seed. number: another one is another question."""

    asked: Asked
    settings: tuple[SamplingSettings, ...]
    seed: int
    number: int = 0


@dataclass(frozen=True, slots=True)
class BlindTexts:
    """What the settings wrote, in their order."""

    question: BlindQuestion
    model: str
    precision: str
    texts: tuple[str, ...]
    reasons: tuple[str, ...]
