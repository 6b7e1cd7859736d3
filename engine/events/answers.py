"""What comes of a question or an experiment, and what went wrong."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineError:
    """Something failed in the engine. Plain text only: keeping the exception would keep its tensors (MEM-22)."""

    what: str
    fix: str
    exit_code: int
    during: str  # "load", "run", "prompt", "unload"
    what_template: str = ""  # untranslated, with its fields, for the window's language
    fix_template: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    trace: str = ""  # for the log


@dataclass(frozen=True, slots=True)
class KernelProgress:
    """Where a comparison of kernels stands."""

    words: str
    done: int
    of: int


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One choice, measured. The error is against the first row, transformers' own forward on the same weights."""

    name: str
    words: str
    step_ms: float = 0.0  # of one lane, median
    lanes_ms: float = 0.0  # of eight lanes at once
    packing_s: float = 0.0  # packing and compiling
    kl_nats: float = 0.0  # per token, mean
    same_first: float = 1.0  # share of tokens with the same first choice
    error: str = ""  # why it cannot be had


@dataclass(frozen=True, slots=True)
class KernelSurvey:
    """Every kernel and attention over the same text, with the loaded model on this machine."""

    model: str
    precision: str
    tokens: int
    threads: int
    rows: tuple[KernelRow, ...]


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a view's question: Outline, WeightsTable, Histogram, …, or why there is none."""

    question: object
    answer: object


@dataclass(frozen=True, slots=True)
class ExperimentProgress:
    """How far a long experiment is: a sweep, luck or setting, a hundred futures."""

    question: object
    done: int
    total: int
    sentence: str = ""
    tokens_per_s: float = 0.0  # of all its lanes together, measured since it began; 0: not known yet
    remaining_s: float | None = None  # estimated from what was measured since it began
    runs_done: int = 0  # where done and total count smaller steps
    runs: int = 0
    partial: object = None  # the result so far, where views show it while it grows
