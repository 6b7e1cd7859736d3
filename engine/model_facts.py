"""What a model is, as far as its files tell without loading it: size, parameters, number types, licence, what is wrong.

Reads config.json and the headers of the weight files, a few kilobytes of each. Imports neither torch nor transformers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

from engine.catalog import WEIGHT_ENDINGS, Located, read_json_quietly
from engine.config_checks import architectures_of, raw_dtype, read_config_json
from engine.errors import CANNOT_LOAD, CannotLoad, WorkbenchError
from engine.events import EngineError, ModelChoice
from engine.files import DTYPE_NAMES, TensorEntry, weight_files
from engine.gguf_header import GgufHeader, read_gguf_header
from engine.licences import licence_of
from engine.quantised import Quantised, read_quantisation

_OTHER_JOBS = ("Classification", "QuestionAnswering", "ForMaskedLM", "RewardModel", "ForMultipleChoice")
# What quantised files hold beside the weights themselves: scales, zero points, tables.
_CONSTANTS = (
    ".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map", ".SCB", ".scales", ".qzeros", ".g_idx", "_scale",
    "_scale_inv", "_zero_point", "_shape", "_scales", "_global_scale",
)  # fmt: skip
_NO_LIMIT = 2**31
_SHORT = {"F8_E4M3": "float8", "F8_E5M2": "float8", "I8": "int8", "U8": "int8", "I32": "int32"}


def told_error(error: WorkbenchError, during: str) -> EngineError:
    """An expected error as plain text with its template, for an event."""
    fields = tuple((name, str(value)) for name, value in error.fields.items())
    return EngineError(error.what, error.fix, error.exit_code, during, error.what_template, error.fix_template, fields)


def describe(located: Located, model: str) -> ModelChoice:
    """The facts of what lies at a place. A model that is broken has them too, as far as they go, and a `problem`.

    model: what LoadPlan.model takes. Read again only when a file has changed. Raises OSError where the folder cannot
    be listed.
    """
    files = [located.path] if located.gguf else sorted(located.folder.iterdir())
    return _described(located, model, tuple(map(_stamp, files)))


def _stamp(file: Path) -> tuple[str, int, int]:
    try:
        status = file.stat()
    except OSError:  # a link to nothing
        return file.name, -1, 0
    return file.name, status.st_size, status.st_mtime_ns


@lru_cache(maxsize=4096)
def _described(located: Located, model: str, _stamps: tuple[tuple[str, int, int], ...]) -> ModelChoice:
    return _gguf(located, model) if located.gguf else _folder(located, model)


# ---------------------------------------------------------------- a folder


def _folder(located: Located, model: str) -> ModelChoice:
    folder = located.folder
    config: dict[str, Any] = {}
    tensors: dict[str, TensorEntry] = {}
    files: Iterable[Path] = ()
    weights, problem = "", None
    try:
        config = read_config_json(folder)
    except CannotLoad as error:
        problem = error
    try:
        found = weight_files(folder, allow_pickle=True)
        weights, files, tensors = found.kind, found.files, found.tensors
    except (CannotLoad, OSError) as error:
        files = [file for file in folder.iterdir() if file.suffix in WEIGHT_ENDINGS]
        weights = _kind_by_name(files)
        problem = problem or (error if isinstance(error, CannotLoad) else _unreadable(error))
    problem = problem or _not_a_writer(config) or _without_tokenizer(folder)
    inner = config.get("text_config")
    text: dict[str, Any] = inner if isinstance(inner, dict) else {}
    quantised = read_quantisation(folder, config)
    return ModelChoice(
        name=located.name,
        model=model,
        kind=located.kind,
        size_bytes=sum(max(0, _stamp(file)[1]) for file in files),
        family=str(config.get("model_type") or "")[:80],
        parameters=parameters_in(tensors.values(), quantised) if tensors else None,
        precision=_precision(tensors.values(), config, quantised),
        context_tokens=_context(config, text),
        has_chat_template=_has_template(folder),
        pickle_only=weights == "pickle",
        weights=weights,
        licence=licence_of(folder),
        path=str(folder),
        problem=told_error(problem, "catalog") if problem else None,
    )


def _kind_by_name(files: Iterable[Path]) -> str:
    endings = {file.suffix for file in files}
    return "safetensors" if ".safetensors" in endings else "pickle" if endings - {".gguf"} else ""


def _unreadable(error: OSError) -> CannotLoad:
    return CannotLoad(
        "The folder cannot be read: {reason}.", "Check its permissions.", reason=error.strerror or str(error)
    )


def _not_a_writer(config: dict[str, Any]) -> CannotLoad | None:
    """What plainly is no text generator; the rest is known only when the config is built (LOD-2)."""
    if not isinstance(config.get("model_type"), str) or not config["model_type"]:
        return CannotLoad(
            "config.json names no model_type, so the family of the model is not known.",
            "Take the original config.json of this model, which names it.",
        )
    first = next(iter(architectures_of(config)), "")
    if config.get("is_encoder_decoder") is True:
        return CannotLoad(
            "A {family} model reads and writes with two halves (encoder and decoder): not a plain text generator.",
            "Choose a decoder-only model.",
            family=config["model_type"],
        )
    if any(job in first for job in _OTHER_JOBS):
        return CannotLoad(
            "This is not a text generator: {reason}.",
            "Choose a model made to write text (its architecture ends with ForCausalLM).",
            reason=f"config.json names {first}",
        )
    return None


def _without_tokenizer(folder: Path) -> CannotLoad | None:
    from engine.tokenizers import FILES

    if any((folder / name).is_file() for name in FILES):
        return None
    return CannotLoad(
        "The folder {folder} has no tokenizer.",
        "Download the tokenizer's files too: tokenizer.json and tokenizer_config.json.",
        folder=folder,
    )


def _has_template(folder: Path) -> bool:
    if any((folder / name).is_file() for name in ("chat_template.jinja", "chat_template.json")):
        return True
    return bool(read_json_quietly(folder / "tokenizer_config.json").get("chat_template"))


def _context(*places: dict[str, Any]) -> int | None:
    for place in places:
        for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx"):
            value = place.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _NO_LIMIT:
                return value
    return None


# ---------------------------------------------------------------- counting


def parameters_in(tensors: Iterable[TensorEntry], quantised: Quantised | None) -> int | None:
    """How many parameters the tensors hold. Packed ones are unpacked in thought; None where the packing is not known.

    bitsandbytes puts two 4-bit values into a byte, GPTQ, AWQ and compressed-tensors 32 / bits into an int32.
    """
    count = 0
    for tensor in tensors:
        numel = prod(tensor.shape)
        if quantised is None:
            count += numel
        elif tensor.name.endswith(_CONSTANTS) or ".quant_state." in tensor.name:
            continue
        elif quantised.method == "bitsandbytes" and tensor.dtype == "U8":
            count += numel * 2
        elif tensor.dtype == "I32" and quantised.bits:
            count += int(numel * 32 / quantised.bits)
        elif tensor.dtype in ("I32", "U8"):
            return None
        else:
            count += numel
    return count


def _precision(tensors: Iterable[TensorEntry], config: dict[str, Any], quantised: Quantised | None) -> str:
    """The number type on disk: the quantisation, else the type that holds most bytes, with "mixed" if others do too."""
    if quantised is not None and quantised.method == "bitsandbytes":
        return quantised.kind
    if quantised is not None:
        return f"{quantised.title} {quantised.bits:g}-bit" if quantised.bits else quantised.title[:40]
    held: Counter[str] = Counter()
    for tensor in tensors:
        held[DTYPE_NAMES.get(tensor.dtype) or _SHORT.get(tensor.dtype) or tensor.dtype] += tensor.bytes
    if not held:
        return raw_dtype(config)[:40]
    (most, most_bytes), total = held.most_common(1)[0], sum(held.values())
    return most if most_bytes >= 0.99 * total else f"{most}, mixed"


# ---------------------------------------------------------------- a GGUF file


def _gguf(located: Located, model: str) -> ModelChoice:
    size = max(0, _stamp(located.path)[1])
    plain = ModelChoice(located.name, model, located.kind, size, weights="gguf", path=str(located.path))
    try:
        header = read_gguf_header(located.path)
    except CannotLoad as error:
        return replace(plain, problem=told_error(error, "catalog"))
    values = header.values
    family = str(values.get("general.architecture") or "")
    context = values.get(f"{family}.context_length")
    return replace(
        plain,
        family=family[:80],
        parameters=header.parameters or None,
        precision=gguf_precision(header),
        context_tokens=context if isinstance(context, int) and 0 < context < _NO_LIMIT else None,
        has_chat_template=bool(values.get("tokenizer.chat_template") or "tokenizer.chat_templates" in header.lists),
        licence=_gguf_licence(values) or licence_of(located.folder),
        problem=None if header.tensor_types else _empty(located.path),
    )


def _gguf_licence(values: dict[str, Any]) -> str:
    told = str(values.get("general.license") or "")
    name = str(values.get("general.license.name") or "")
    return (name if told in ("", "other") else told)[:80]


def gguf_precision(header: GgufHeader) -> str:
    """The file's own word for its mixture of number types (Q4_K_M), else the type of most of its tensors."""
    from gguf import LlamaFileType

    try:
        return LlamaFileType(int(header.values["general.file_type"])).name.removeprefix("MOSTLY_").removeprefix("ALL_")
    except (KeyError, ValueError, TypeError):
        matrices = {name: header.tensor_types[name] for name in header.matrix_types} or header.tensor_types
        return max(matrices, key=lambda name: matrices[name]) if matrices else ""


def _empty(file: Path) -> EngineError:
    error = CannotLoad("{name} holds no tensors.", "Download this file again.", name=file.name)
    return told_error(error, "catalog")


def broken(name: str, model: str, kind: str, path: Path, error: CannotLoad, hub_id: str = "") -> ModelChoice:
    """An entry for what cannot be described at all."""
    assert error.exit_code == CANNOT_LOAD
    return ModelChoice(name, model, kind, 0, path=str(path), hub_id=hub_id, problem=told_error(error, "catalog"))
