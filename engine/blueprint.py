"""config.json as facts a person can read, without reading weights. What cannot be a text model is refused here."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from engine.catalog import Located, resolve
from engine.config_checks import (
    code_files,
    raw_dtype,
    read_config_json,
    refuse_by_raw,
    refuse_other_kinds,
)
from engine.errors import CannotLoad
from engine.events import Fact
from engine.files import WeightFiles, weight_files
from engine.gguf_header import GgufHeader, read_gguf_header
from engine.licences import licence_of
from engine.quantised import Quantised, complete_config, is_unpacked_here, read_quantisation, refuse_unknown
from engine.settings import FLOATS as FLOATS
from engine.skeleton import Skeleton, build_skeleton, first_line

log = logging.getLogger(__name__)

MOST_LAYERS = 10_000  # no model has a tenth of it; building an empty one of millions would take for ever
NO_LIMIT = 2**31  # a context beyond this is a tokenizer's way to say that it has none (PRM-24)


@dataclass(frozen=True)
class Blueprint:
    """What the config says. `config` is transformers' object, `text_config` the half of it that writes."""

    located: Located
    config: Any
    text_config: Any
    raw: dict[str, Any]  # config.json as written; empty for a GGUF file
    family: str
    heads: int
    kv_heads: int
    hidden_size: int
    vocab_size: int
    context_tokens: int  # 0: no limit known
    quantised: Quantised | None  # how the files are packed; None: plain
    dtype_config: str  # what config.json says, "" if nothing
    dtype_files: tuple[str, ...]  # the floating types in the files; empty if no weights lie there
    gguf: GgufHeader | None
    trust_remote_code: bool = False
    notes: tuple[str, ...] = ()

    @cached_property
    def skeleton(self) -> Skeleton:
        """The empty model. Raises CannotLoad where the config cannot be built."""
        return build_skeleton(self.config, self.trust_remote_code)

    @property
    def layers(self) -> int:
        return int(config_value(self.text_config, "num_hidden_layers") or self.skeleton.layers)

    @property
    def quantisation(self) -> str:
        """The method's name, "" if the files are plain."""
        return self.quantised.method if self.quantised else ""

    @property
    def packing(self) -> Quantised | None:
        """How the files' matrices lie in memory when they are loaded as they are; None: as plain numbers."""
        return None if is_unpacked_here(self.quantised) else self.quantised

    @property
    def tied(self) -> bool:
        return self.skeleton.tied

    @property
    def widest_layer(self) -> int:
        """The widest vector between a layer's matrices (most often intermediate_size)."""
        widths = [
            max(t.shape[-2:])
            for t in self.skeleton.tensors
            if t.role in ("attention", "feed-forward", "other") and len(t.shape) > 1
        ]
        return max(widths, default=self.hidden_size)

    def chosen(self, precision: str | None) -> tuple[str, str]:
        """(precision, the floating type of what is not quantised) that a load takes; precision None is no wish.

        As transformers 5 decides: the wish, else the config's dtype, else the files' first floating type (LOD-26).
        """
        if precision in FLOATS:
            return precision, precision
        plain = self.dtype_config
        if plain not in FLOATS:
            found = [name for name in self.dtype_files if name in FLOATS]
            mixed = "bfloat16" in found and "float16" in found
            plain = "bfloat16" if mixed else (found[0] if found else ("bfloat16" if self.gguf else "float32"))
        return (precision or plain), plain

    @cached_property
    def facts(self) -> tuple[Fact, ...]:
        return _facts(self)


def read_blueprint(
    model: str | Path | Located,
    trust_remote_code: bool = False,
    files: WeightFiles | None = None,
    tie_lm_head: bool = False,
) -> Blueprint:
    """The blueprint of "default", a folder (config.json alone is enough), a GGUF file or a cached hub id.

    files: the folder's weights if they were looked at already. tie_lm_head: the head is the embedding, whatever the
    config says. Raises CannotLoad with a sentence for every way in
    which a config is broken or describes something that does not write text (LOD-2, LOD-5, LOD-8, LOD-28).
    """
    located = model if isinstance(model, Located) else resolve(str(model))
    gguf = read_gguf_header(located.path) if located.gguf else None
    raw = {} if gguf else read_config_json(located.folder)
    if not gguf:
        refuse_by_raw(located.folder, raw, trust_remote_code)
    quantised = None if gguf else read_quantisation(located.folder, raw)
    refuse_unknown(quantised)
    config = _transformers_config(located, raw, trust_remote_code)
    refuse_other_kinds(config, raw)
    complete_config(config, located.folder, quantised)
    text = config.get_text_config(decoder=True)
    if tie_lm_head:
        config.tie_word_embeddings = text.tie_word_embeddings = True
    heads = config_count(text, "num_attention_heads", "n_head")
    layers = config_count(text, "num_hidden_layers", "n_layer") if hasattr(text, "num_hidden_layers") else 1
    if not 1 <= layers <= MOST_LAYERS:
        raise CannotLoad(
            "config.json says that the model has {layers} layers.",
            "Take the original config.json of this model.",
            layers="no" if layers == 0 else f"{layers:,}" if layers < 10**12 else "endless",
        )
    notes = []
    inner: Any = raw.get("text_config") if isinstance(raw.get("text_config"), dict) else {}
    if raw.get("use_cache") is False or inner.get("use_cache") is False:
        notes.append("config.json switches the cache off (use_cache: false); it is used all the same.")
    if raw.get("auto_map"):
        how = "runs, as you allowed" if trust_remote_code else "is not used"
        notes.append(f"The folder brings program code of its own ({', '.join(code_files(located.folder))}); it {how}.")
    return Blueprint(
        located=located,
        config=config,
        text_config=text,
        raw=raw,
        family=str(config.model_type),
        heads=heads,
        kv_heads=_kv_heads(text, heads),
        hidden_size=config_count(text, "hidden_size", "n_embd", "d_model") or 1,
        vocab_size=config_count(text, "vocab_size"),
        context_tokens=_context(text),
        quantised=quantised,
        dtype_config=raw_dtype(raw) if not gguf else "",
        dtype_files=gguf.float_dtypes if gguf else _dtypes_in(located.folder, files),
        gguf=gguf,
        trust_remote_code=trust_remote_code,
        notes=tuple(notes),
    )


# ---------------------------------------------------------------- reading


def _transformers_config(located: Located, raw: dict[str, Any], trust_remote_code: bool) -> Any:
    from transformers import AutoConfig

    options: dict[str, Any] = {"gguf_file": located.gguf} if located.gguf else {}
    try:
        return AutoConfig.from_pretrained(
            str(located.folder), local_files_only=True, trust_remote_code=trust_remote_code, **options
        )
    except Exception as error:  # each family validates in its own way
        reason = first_line(error)
    if located.gguf:
        raise CannotLoad(
            "{name} cannot be loaded from GGUF: {reason}.",
            "Load the safetensors version of this model instead.",
            name=located.gguf,
            reason=reason,
        )
    raise CannotLoad(
        "config.json does not describe a {family} model: {reason}.",
        "Compare it with the original config.json of this model.",
        family=str(raw.get("model_type"))[:80],
        reason=reason,
    )


def _dtypes_in(folder: Path, files: WeightFiles | None) -> tuple[str, ...]:
    if files is None:
        try:
            files = weight_files(folder, allow_pickle=True)
        except (CannotLoad, OSError):  # an estimate needs no weights, and a load looks at them itself
            return ()
    return files.float_dtypes()


def config_value(config: Any, name: str) -> Any:
    """What a config says, None where it says nothing; the largest where each layer has its own."""
    try:
        return getattr(config, name, None)
    except RuntimeError:  # transformers answers no question about all layers then
        own = [getattr(layer, name, None) for layer in config.per_layer_config]
        return max((value for value in own if isinstance(value, int)), default=None)


def config_count(config: Any, *names: str) -> int:
    """The first whole number above 0 that a config has under one of these names; 0 where it has none."""
    for name in names:
        value = config_value(config, name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0


def _kv_heads(text: Any, heads: int) -> int:
    if getattr(text, "multi_query", False) and not getattr(text, "new_decoder_architecture", False):
        return 1
    return config_count(text, "num_key_value_heads", "num_kv_heads") or heads


def _context(text: Any) -> int:
    context = config_count(text, "max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
    return context if context < NO_LIMIT else 0


# ---------------------------------------------------------------- for people


def _facts(blueprint: Blueprint) -> tuple[Fact, ...]:
    source = blueprint.located.gguf or "config.json"
    skeleton = blueprint.skeleton
    shared = "1 key-value head" if blueprint.kv_heads == 1 else f"{blueprint.kv_heads} key-value heads"
    grouped = "" if blueprint.kv_heads == blueprint.heads else f" (shared by {shared})"
    precision, plain = blueprint.chosen(None)
    context, counted = blueprint.context_tokens, "counted on the empty model"
    facts = [
        Fact("Family", blueprint.family, source),
        Fact("Layers", f"{blueprint.layers:,}", source),
        Fact("Heads", f"{blueprint.heads}{grouped}", source),
        Fact("Hidden size", f"{blueprint.hidden_size:,}", source),
        Fact("Vocabulary", f"{blueprint.vocab_size:,}", source),
        Fact("Context", f"{context:,} tokens" if context else "no limit named", source),
        Fact("Embedding and head", "one tensor (tied)" if skeleton.tied else "two tensors (untied)", source),
        Fact("Number type in the files", " and ".join(blueprint.dtype_files) or "not looked at", "files"),
        Fact("Number type in the config", blueprint.dtype_config or "not named", source),
        Fact("Number type without a wish", precision if precision == plain else f"{precision}, {plain}", "predicted"),
        Fact("Parameters", f"{skeleton.parameters:,}", counted),
    ]
    working = parameters_per_token(blueprint)
    if working != skeleton.parameters:
        facts.append(Fact("Parameters used per token", f"{working:,}", counted))
    by_role: dict[str, int] = {}
    for tensor in skeleton.tensors:
        by_role[tensor.role] = by_role.get(tensor.role, 0) + tensor.numel
    facts += [Fact(f"Parameters: {role}", f"{count:,}", counted) for role, count in by_role.items()]
    if blueprint.quantised:
        facts.append(Fact("Quantised with", blueprint.quantised.words, blueprint.quantised.source))
    if blueprint.raw.get("use_cache") is False:
        facts.append(Fact("Cache", "switched off in the file; used all the same", source))
    for place, told in end_sources(blueprint).items():
        facts.append(Fact("Ends with token", ", ".join(map(str, told)) or "none", place))
    if licence := licence_of(blueprint.located.folder):
        facts.append(Fact("Licence", licence, "the files beside it"))
    return tuple(facts)


def parameters_per_token(blueprint: Blueprint) -> int:
    """How many parameters work on one token: of the experts only those that are chosen (LOD-27)."""
    text = blueprint.text_config
    experts = config_count(text, "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    chosen = config_count(text, "num_experts_per_tok", "moe_top_k", "num_experts_per_token", "moe_k")
    total = blueprint.skeleton.parameters
    if not 0 < chosen < experts:
        return total
    routed = sum(
        tensor.numel
        for tensor in blueprint.skeleton.tensors
        if ".experts." in tensor.name and len(tensor.shape) >= 2 and "shared" not in tensor.name
    )
    return total - routed + routed * chosen // experts


def end_sources(blueprint: Blueprint) -> dict[str, tuple[int, ...]]:
    """Which token ids end a text, by the file that says so (PRM-25). A file that names none gives an empty tuple."""
    found: dict[str, tuple[int, ...]] = {}
    generation = blueprint.located.folder / "generation_config.json"
    places: dict[str, Any] = {"config.json": getattr(blueprint.text_config, "eos_token_id", None)}
    if not blueprint.located.gguf and generation.is_file():
        try:
            told = json.loads(generation.read_text(encoding="utf-8"))
            places["generation_config.json"] = told.get("eos_token_id") if isinstance(told, dict) else None
        except (OSError, ValueError, RecursionError):
            log.warning("generation_config.json cannot be read")
    for place, told in places.items():
        several = told if isinstance(told, list) else [told]
        found[place] = tuple(i for i in several if isinstance(i, int) and not isinstance(i, bool))
    return found
