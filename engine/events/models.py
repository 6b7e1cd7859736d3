"""Models: here, on the hub, and on their way from there."""

from __future__ import annotations

from dataclasses import dataclass

from engine.events.answers import EngineError


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model that is on this computer."""

    name: str
    model: str  # what LoadPlan.model takes
    kind: str  # "default", "folder", "gguf", "cache"
    size_bytes: int
    family: str = ""
    parameters: int | None = None
    precision: str = ""
    context_tokens: int | None = None
    has_chat_template: bool | None = None
    pickle_only: bool = False
    weights: str = ""  # "safetensors", "pickle", "gguf"; "" where none were found
    licence: str = ""  # as the model's card, header or licence file names it
    path: str = ""  # where it lies
    hub_id: str = ""  # of a model in the hub's cache
    problem: EngineError | None = None  # why it cannot be loaded as it lies there


@dataclass(frozen=True, slots=True)
class HubModel:
    """One line of a search on the hub. None: the hub does not tell."""

    hub_id: str
    downloads: int | None = None  # of the last 30 days
    likes: int | None = None
    parameters: int | None = None
    size_bytes: int | None = None  # predicted from the tensors' types; the files' own sizes come with HubOffer
    licence: str = ""
    gated: bool = False
    updated: str = ""  # day, as 2026-01-31
    task: str = ""  # "text-generation", ...


@dataclass(frozen=True, slots=True)
class FileSet:
    """Files of a repository that make one model together. `here_bytes` of them are on this computer already."""

    name: str  # "safetensors", "pickle", or a GGUF file's name
    weights: str  # as in ModelChoice
    files: tuple[str, ...]
    total_bytes: int
    here_bytes: int = 0


@dataclass(frozen=True, slots=True)
class HubOffer:
    """What a repository holds that can be loaded here. Empty `sets`: nothing; `note` says why."""

    hub_id: str
    revision: str
    sets: tuple[FileSet, ...]
    licence: str = ""
    gated: bool = False
    note: str = ""
    page: str = ""  # address of its page, for a browser
    logged_in: bool = False  # whether a token of the hub is stored on this computer


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """Where a download stands. Speed is measured over the last seconds; None: not known yet."""

    hub_id: str
    name: str  # of the FileSet
    state: str  # "waiting", "listing", "checking", "downloading", "retrying"
    done_bytes: int = 0
    total_bytes: int = 0
    bytes_per_s: float | None = None
    remaining_s: float | None = None
    file: str = ""


@dataclass(frozen=True, slots=True)
class DownloadEnd:
    """A download is over. `model` is what LoadPlan.model takes, "" unless it is whole."""

    hub_id: str
    name: str
    reason: str  # "done", "cancelled", "error"
    model: str = ""
    error: EngineError | None = None


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A download that broke off and can go on."""

    hub_id: str
    name: str
    done_bytes: int
    total_bytes: int
