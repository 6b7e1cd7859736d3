"""The weights as a person looks at them: files with bytes and speed, tensors with marks, one tensor's numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import Cancelled, CannotLoad
from engine.files import DTYPE_NAMES, TensorEntry, WeightFiles, weight_files
from engine.inside import BINS, Histogram, HistogramQuestion, ShardRead, TensorRow, WeightsTable

if TYPE_CHECKING:
    from engine.blueprint import Blueprint
    from engine.session import Session

CHUNK = 4_000_000  # numbers looked at between two questions whether to go on
TELL_EVERY_S = 0.03
_NAMES = DTYPE_NAMES | {
    "F8_E4M3": "float8_e4m3", "F8_E5M2": "float8_e5m2", "I8": "int8", "U8": "uint8", "I16": "int16", "U16": "uint16",
    "I32": "int32", "U32": "uint32", "I64": "int64", "U64": "uint64", "BOOL": "bool",
}  # fmt: skip


# ---------------------------------------------------------------- files, while they are read


class ShardClock:
    """How far and how fast each file was read. A step's time counts for the file of its tensors."""

    def __init__(self, files: WeightFiles | None, gguf: Path | None, emit: Callable[[ShardRead], None]) -> None:
        """files, gguf: what is read, one of them None."""
        self._emit = emit
        whole: list[Path] = list(files.files) if files else [gguf] if gguf else []
        self._only = whole[0].name if len(whole) == 1 else ""  # steps without known tensors are its
        self._total: dict[str, int] = {file.name: 0 for file in whole}
        for entry in (files.tensors if files else {}).values():
            self._total[entry.file.name] += entry.bytes
        if self._only and not self._total[self._only]:
            self._total[self._only] = whole[0].stat().st_size
        self._known = bool(files and files.tensors)
        self._done: dict[str, int] = {}  # in the order of reading
        self._spent: dict[str, float] = {}
        self._name, self._bytes, self._began, self._told_at = "", 0, 0.0, 0.0

    def step(self, sources: list[TensorEntry], share_bytes: int = 0) -> None:
        """The next parameter begins. sources: its tensors; share_bytes: what to count where they are not known."""
        now = time.perf_counter()
        self._close(now)
        name = sources[0].file.name if sources else self._only
        if name != self._name and self._name:
            self._tell(self._name, now)
        self._name, self._began = name, now
        self._bytes = sum(entry.bytes for entry in sources) if sources else share_bytes
        if name and now - self._told_at > TELL_EVERY_S:
            self._tell(name, now)

    def end(self) -> None:
        """The last parameter has been read."""
        now = time.perf_counter()
        self._close(now)
        if self._only and not self._known:  # shares of a file whose tensors are not known round down
            self._done[self._only] = self._total[self._only]
        for name in self._done:
            self._tell(name, now)

    def _close(self, now: float) -> None:
        if self._name:
            done = self._done.get(self._name, 0) + self._bytes
            self._done[self._name] = min(done, self._total.get(self._name, done))
            self._spent[self._name] = self._spent.get(self._name, 0.0) + now - self._began

    def _tell(self, name: str, now: float) -> None:
        self._told_at = now
        self._emit(self._read(name))

    def _read(self, name: str) -> ShardRead:
        place = list(self._done).index(name) if name in self._done else len(self._done)
        return ShardRead(
            name, place, self._total.get(name, 0), self._done.get(name, 0), self._spent.get(name, 0.0) * 1e3
        )

    @property
    def shards(self) -> tuple[ShardRead, ...]:
        """What was read, in order, then the files of which nothing could be told apart."""
        unread = [ShardRead(name, len(self._done), size, 0, 0.0) for name, size in self._total.items()
                  if name not in self._done]  # fmt: skip
        return (*(self._read(name) for name in self._done), *unread)


# ---------------------------------------------------------------- tensors


def table_from_files(blueprint: Blueprint) -> WeightsTable:
    """The tensors by the files' headers, compared with the empty model by name. Raises CannotLoad for broken files.

    Where the files name most tensors otherwise than the model does, the loader renames them: then nothing is marked.
    """
    located = blueprint.located
    if located.gguf:
        rows = _model_rows(blueprint.skeleton.model, located.gguf, loaded=False)
        shard = ShardRead(located.gguf, 0, located.path.stat().st_size, 0, 0.0)
        return WeightsTable(str(located.path), "gguf", False, (shard,), rows)
    files = weight_files(located.folder, allow_pickle=True)
    shards = ShardClock(files, None, lambda read: None).shards
    if not files.tensors:
        rows = _model_rows(blueprint.skeleton.model, shards[0].file if len(shards) == 1 else "", loaded=False)
        return WeightsTable(str(located.path), files.kind, False, shards, rows)
    model = blueprint.skeleton.model
    names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    known = names | {name for name, _ in model.named_buffers()}
    held = {name if name in known else f"{model.base_model_prefix}.{name}": name for name in files.tensors}
    if blueprint.quantisation or sum(name in known for name in held) < len(held) * 0.5:
        note = "The files name their tensors in a way of their own; what is missing is known once it is loaded."
        rows = tuple(_row(entry) for entry in files.tensors.values())
        return WeightsTable(str(located.path), files.kind, False, shards, rows, (*files.notes, note))
    unexpected = {own for name, own in held.items() if name not in known}
    rows = _rows(files, model, unexpected, set(), {own: name for name, own in held.items()})
    return WeightsTable(str(located.path), files.kind, False, shards, rows, files.notes)


def table_after_load(
    blueprint: Blueprint,
    files: WeightFiles | None,
    model: Any,
    told: dict[str, Any],
    shards: tuple[ShardRead, ...],
) -> WeightsTable:
    """The tensors as the loader judged them. told: its missing_keys and unexpected_keys."""
    located = blueprint.located
    kind = files.kind if files else "gguf"
    if files is None or not files.tensors:
        rows = _model_rows(model, shards[0].file if len(shards) == 1 else "", loaded=True)
        return WeightsTable(str(located.path), kind, True, shards, rows, files.notes if files else ())
    unexpected, missing = set(told.get("unexpected_keys", ())), set(told.get("missing_keys", ()))
    names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    inside = {own: own if own in names else f"{model.base_model_prefix}.{own}" for own in files.tensors}
    rows = _rows(files, model, unexpected, missing, inside)
    return WeightsTable(str(located.path), kind, True, shards, rows, files.notes)


def _rows(
    files: WeightFiles, model: Any, unexpected: set[str], missing: set[str], inside: dict[str, str]
) -> tuple[TensorRow, ...]:
    """The files' tensors in their order, then those of the model that are in no file. inside: file's name → model's."""
    firsts, tied = _ties(model)
    held = set(inside.values())
    rows = []
    for own, entry in files.tensors.items():
        name = inside.get(own, own)
        if own in unexpected or name in unexpected:
            rows.append(_row(entry, "unexpected", "no part of the model takes it"))
        elif name in tied:
            rows.append(_row(entry, "tied", tied[name]))
        else:
            rows.append(_row(entry))
    renamed = sum(name not in firsts and name not in tied for name in held) > len(held) / 2
    for name, shape in firsts.items():
        if name in held or (renamed and name not in missing):
            continue
        if not any(other in held for other, first in tied.items() if first == name) or name in missing:
            rows.append(TensorRow(name, "", "", shape, 0, "missing", "no file holds it"))
    shapes = dict(model.named_parameters(remove_duplicate=False))
    rows += [
        TensorRow(name, "", "", tuple(shapes[name].shape), 0, "tied", first)
        for name, first in tied.items()
        if name not in held
    ]
    return tuple(rows)


def _ties(model: Any) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """({first name: shape}, {other name: first name}) of the model's parameters."""
    firsts: dict[str, tuple[int, ...]] = {}
    tied: dict[str, str] = {}
    seen: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if id(parameter) in seen:
            tied[name] = seen[id(parameter)]
        else:
            seen[id(parameter)] = name
            firsts[name] = tuple(parameter.shape)
    return firsts, tied


def _row(entry: TensorEntry, mark: str = "", note: str = "") -> TensorRow:
    dtype = _NAMES.get(entry.dtype, entry.dtype)
    return TensorRow(entry.name, entry.file.name, dtype, entry.shape, entry.bytes, mark, note)


def _model_rows(model: Any, file: str, loaded: bool) -> tuple[TensorRow, ...]:
    """For files whose content is known only by loading: the model's own tensors, sizes as they lie in memory."""
    _, tied = _ties(model)
    rows = []
    for name, parameter in model.named_parameters(remove_duplicate=False):
        size = parameter.numel() * parameter.element_size() if loaded and name not in tied else 0
        dtype = str(parameter.dtype).removeprefix("torch.") if loaded else ""
        mark = "tied" if name in tied else ""
        rows.append(TensorRow(name, file, dtype, tuple(parameter.shape), size, mark, tied.get(name, "")))
    return tuple(rows)


# ---------------------------------------------------------------- one tensor's numbers


def histogram(question: HistogramQuestion, session: Session | None, cancelled: Callable[[], bool]) -> Histogram:
    """All numbers of one tensor, counted: from the loaded model where it is that one, else from its safetensors file.

    Reads in pieces of 4 million numbers, twice. Raises Cancelled, and CannotLoad where the tensor is in neither.
    """
    began = time.perf_counter()
    tensor = _in_memory(question, session)
    if tensor is not None:
        shape, dtype = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
        figures = _counted(lambda: _pieces(tensor), cancelled)
        return _histogram(question.tensor, "memory", dtype, shape, figures, began)
    entry = _in_files(question)
    figures = _counted(lambda: _file_pieces(entry), cancelled)
    note = ""
    if not entry.dtype.startswith(("F", "BF")):
        note = "Packed numbers: these are the codes in the file, not the weights they stand for."
    elif session is not None and str(session.blueprint.located.path) == question.path:
        note = "In memory this tensor is packed, moved or on disk; these are the file's numbers."
    dtype = _NAMES.get(entry.dtype, entry.dtype)
    return _histogram(question.tensor, "file", dtype, entry.shape, figures, began, note)


def _in_memory(question: HistogramQuestion, session: Session | None) -> Any | None:
    """The loaded model's tensor, None where it is not there as plain numbers."""
    if session is None or session.model is None or str(session.blueprint.located.path) != question.path:
        return None
    model = session.model
    for name in (question.tensor, f"{model.base_model_prefix}.{question.tensor}"):
        for found in (dict(model.named_parameters(remove_duplicate=False)), dict(model.named_buffers())):
            tensor = found.get(name)
            if tensor is not None and tensor.is_floating_point() and not tensor.is_meta and tensor.numel():
                return tensor.detach()
    return None


def _in_files(question: HistogramQuestion) -> TensorEntry:
    path = Path(question.path)
    if path.is_dir():
        entry = weight_files(path, allow_pickle=True).tensors.get(question.tensor)
        if entry is not None:
            return entry
    raise CannotLoad(
        "The numbers of {name} can be read only while the model is loaded, as plain numbers.",
        "Load it in float32, bfloat16 or float16, then ask again.",
        name=question.tensor,
    )


def _pieces(tensor: Any) -> Iterator[Any]:
    flat = tensor.reshape(-1) if tensor.is_contiguous() else tensor.flatten()
    for begin in range(0, flat.numel(), CHUNK):
        yield flat[begin : begin + CHUNK]


def _file_pieces(entry: TensorEntry) -> Iterator[Any]:
    from safetensors import safe_open

    with safe_open(str(entry.file), framework="pt") as file:
        if len(entry.shape) < 2:
            yield from _pieces(file.get_tensor(entry.name))
            return
        rows = max(1, CHUNK // max(1, prod(entry.shape[1:])))
        part = file.get_slice(entry.name)
        for begin in range(0, entry.shape[0], rows):
            yield from _pieces(part[begin : begin + rows])


class _Figures:
    """What was counted; sums in float64."""

    def __init__(self) -> None:
        self.numel = self.zeros = self.nans = self.infinities = 0
        self.low, self.high = float("inf"), float("-inf")
        self.least = float("inf")  # smallest size that is not zero
        self.sum = self.squares = 0.0  # of the distance to the mean, in the second turn
        self.linear = [0] * BINS
        self.by_size = [0] * BINS

    @property
    def finite(self) -> int:
        return self.numel - self.nans - self.infinities


def _counted(pieces: Callable[[], Iterable[Any]], cancelled: Callable[[], bool]) -> _Figures:
    import numpy as np

    def numbers() -> Iterator[Any]:
        for piece in pieces():
            if cancelled():
                raise Cancelled
            yield piece.float().cpu().numpy() if piece.element_size() < 8 else piece.double().cpu().numpy()

    figures = _Figures()
    for piece in numbers():
        figures.numel += piece.size
        figures.nans += int(np.isnan(piece).sum())
        figures.infinities += int(np.isinf(piece).sum())
        fine = piece if np.isfinite(piece).all() else piece[np.isfinite(piece)]
        if fine.size:
            figures.low = min(figures.low, float(fine.min()))
            figures.high = max(figures.high, float(fine.max()))
            figures.sum += float(fine.sum(dtype=np.float64))
            sizes = np.abs(fine[fine != 0])
            figures.zeros += fine.size - sizes.size
            if sizes.size:
                figures.least = min(figures.least, float(sizes.min()))
    if not figures.finite:
        return figures
    mean, width = figures.sum / figures.finite, figures.high - figures.low
    range_linear = (figures.low, figures.high) if width > 0 else (figures.low - 0.5, figures.high + 0.5)
    exponents = size_range(figures.least, max(-figures.low, figures.high))
    linear, by_size = np.zeros(BINS, np.int64), np.zeros(BINS, np.int64)
    for piece in numbers():
        fine = piece if np.isfinite(piece).all() else piece[np.isfinite(piece)]
        linear += np.histogram(fine, BINS, range_linear)[0]
        figures.squares += float(np.square(fine.astype(np.float64) - mean).sum())
        if exponents:
            sizes = np.abs(fine[fine != 0])
            by_size += np.histogram(np.log2(sizes), BINS, exponents)[0]
    figures.linear, figures.by_size = linear.tolist(), by_size.tolist()
    return figures


def size_range(least: float, largest: float) -> tuple[float, float] | None:
    """The exponents of 2 between which the sizes of a tensor's numbers lie; None where all are zero."""
    from math import ceil, floor, isfinite, log2

    if not isfinite(least) or largest <= 0:
        return None
    low, high = floor(log2(least)), ceil(log2(largest))
    return float(low), float(max(high, low + 1))


def _histogram(
    name: str, source: str, dtype: str, shape: tuple[int, ...], figures: _Figures, began: float, note: str = ""
) -> Histogram:
    known = figures.finite > 0
    mean = figures.sum / figures.finite if known else None
    return Histogram(
        tensor=name,
        source=source,
        dtype=dtype,
        shape=shape,
        numel=figures.numel,
        low=figures.low if known else None,
        high=figures.high if known else None,
        mean=mean,
        std=(figures.squares / figures.finite) ** 0.5 if known else None,
        zeros=figures.zeros,
        nans=figures.nans,
        infinities=figures.infinities,
        linear=tuple(figures.linear),
        by_size=tuple(figures.by_size),
        exponents=size_range(figures.least, max(-figures.low, figures.high)) if known else None,
        elapsed_ms=(time.perf_counter() - began) * 1e3,
        note=note,
    )
