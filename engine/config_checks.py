"""config.json read strictly: what is broken, unknown, or does not write text is refused with a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.errors import CannotLoad
from engine.trust import code_needed


def read_config_json(folder: Path) -> dict[str, Any]:
    """config.json as a dict. Raises CannotLoad: missing, unreadable, not JSON, not a table (LOD-8)."""
    again = "Download config.json again."
    try:
        text = (folder / "config.json").read_text(encoding="utf-8")
    except FileNotFoundError:
        if (folder / "adapter_config.json").is_file():
            raise CannotLoad(
                "The folder {folder} holds an adapter (LoRA), not a model.",
                "Merge it into its base model first, or load the base model.",
                folder=folder,
            ) from None
        raise CannotLoad(
            "The folder {folder} has no config.json.", "Give the folder that holds config.json.", folder=folder
        ) from None
    except UnicodeDecodeError:
        raise CannotLoad("config.json is not text (UTF-8).", again) from None
    except OSError as error:
        raise CannotLoad(
            "config.json cannot be read: {reason}.", "Check its permissions.", reason=error.strerror
        ) from None
    if text.startswith("version https://git-lfs"):
        raise CannotLoad(
            "config.json is only a pointer to the file, not the file.", "Fetch the real file: git lfs pull."
        )
    try:
        config = json.loads(text)
    except RecursionError:
        raise CannotLoad("config.json is not JSON: it is nested too deeply.", again) from None
    except ValueError as error:
        place = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise CannotLoad("config.json is not JSON{place}.", again, place=place) from None
    if not isinstance(config, dict):
        raise CannotLoad("config.json holds no table of settings.", again)
    return config


def refuse_by_raw(folder: Path, raw: dict[str, Any], trust_remote_code: bool) -> None:
    """What is wrong before transformers looks at it."""
    family = raw.get("model_type")
    if not isinstance(family, str) or not family:
        raise CannotLoad(
            "config.json names no model_type, so the family of the model is not known.",
            "Take the original config.json of this model, which names it.",
        )
    import torch
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if family not in CONFIG_MAPPING and not (raw.get("auto_map") and trust_remote_code):
        if raw.get("auto_map"):
            raise code_needed(folder)
        raise _unknown_family(family, raw.get("transformers_version"))
    dtype = raw_dtype(raw)
    named = getattr(torch, dtype, None) if dtype else torch.float32
    if not isinstance(named, torch.dtype) or not named.is_floating_point:
        raise CannotLoad(
            "config.json asks for the number type {dtype}, which does not exist or is none for weights.",
            'Write "float32", "bfloat16" or "float16" for dtype in config.json.',
            dtype=repr(dtype)[:60],
        )


def _unknown_family(family: str, made_with: object) -> CannotLoad:
    import transformers
    from packaging.version import InvalidVersion, Version

    try:
        newer = Version(str(made_with)) > Version(transformers.__version__)
    except InvalidVersion:
        newer = False
    if newer:
        return CannotLoad(
            "The model family {family} needs a newer transformers: the file was made with {made}, here is {here}.",
            "Install a newer transformers (pip install -U transformers).",
            family=repr(family)[:80],
            made=made_with,
            here=transformers.__version__,
        )
    return CannotLoad(
        "The model family {family} is not known to transformers {here}.",
        "Check model_type in config.json; a newer transformers may know it.",
        family=repr(family)[:80],
        here=transformers.__version__,
    )


def architectures_of(raw: dict[str, Any]) -> list[str]:
    """The classes that config.json names, the first one counts; empty where it names none."""
    named = raw.get("architectures")
    return [name[:120] for name in named if isinstance(name, str)] if isinstance(named, list) else []


def refuse_other_kinds(config: Any, raw: dict[str, Any]) -> None:
    """Encoders, models with two halves, and models that want pictures (LOD-2, LOD-28)."""
    from transformers.models.auto import modeling_auto as auto

    family = config.model_type
    causal = family in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES or "AutoModelForCausalLM" in (raw.get("auto_map") or {})
    if getattr(config, "is_encoder_decoder", False):
        raise CannotLoad(
            "A {family} model reads and writes with two halves (encoder and decoder): not a plain text generator.",
            "Choose a decoder-only model.",
            family=family,
        )
    architectures = architectures_of(raw)
    masked = family in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if causal and masked and getattr(config, "is_decoder", None) is False:  # an encoder that could be made a decoder
        causal = False
    other_job = ("Classification", "QuestionAnswering", "ForMaskedLM", "RewardModel", "ForMultipleChoice")
    if causal and not any(job in name for name in architectures[:1] for job in other_job):
        _refuse_another_family(family, architectures)
        return
    pictures = family in getattr(auto, "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES", {})
    if not causal and pictures:
        raise CannotLoad(
            "A {family} model needs a picture loader; this is not a plain text generator.",
            "Choose a model that reads text only.",
            family=family,
        )
    reason = f"{family} models read text, they write none"
    if architectures and "ForMaskedLM" not in architectures[0]:
        reason = f"config.json names {architectures[0]}"
    raise CannotLoad(
        "This is not a text generator: {reason}.",
        "Choose a model made to write text (its architecture ends with ForCausalLM).",
        reason=reason,
    )


def code_files(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.glob("*.py"))


def raw_dtype(raw: dict[str, Any]) -> str:
    """The config's dtype by torch's name; the old key still counts, and a composite's text half (LOD-26)."""
    inner = raw.get("text_config")
    for place in (raw, inner if isinstance(inner, dict) else {}):
        for key in ("dtype", "torch_dtype"):
            if place.get(key) not in (None, "auto"):
                return str(place[key])
    return ""


def _refuse_another_family(family: str, architectures: list[str]) -> None:
    """Relatives can share every tensor's name and shape and compute otherwise, such as llama and gemma (LOD-2)."""
    from transformers.models.auto import modeling_auto as auto

    told = architectures[0] if architectures else ""
    others = [name for name, cls in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items() if cls == told]
    if others and not any(name.startswith(family) or family.startswith(name) for name in others):
        raise CannotLoad(
            "config.json contradicts itself: model_type is {family}, and the architecture is {told}.",
            "Take the original config.json of this model.",
            family=family,
            told=told,
        )
