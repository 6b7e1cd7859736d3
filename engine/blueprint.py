"""config.json as facts a person can read, without reading weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.catalog import Located, resolve
from engine.events import Fact


@dataclass(frozen=True, slots=True)
class Blueprint:
    """What the config says. `config` is transformers' object, `text_config` its language half."""

    located: Located
    config: Any
    text_config: Any
    family: str
    layers: int
    heads: int
    kv_heads: int
    hidden_size: int
    vocab_size: int
    tied: bool
    context_tokens: int
    facts: tuple[Fact, ...] = ()
    notes: tuple[str, ...] = ()


def read_blueprint(model: str | Path | Located) -> Blueprint:
    """Facts of a model's config. Raises CannotLoad."""
    from transformers import AutoConfig

    located = model if isinstance(model, Located) else resolve(str(model))
    gguf = {"gguf_file": located.gguf} if located.gguf else {}
    config = AutoConfig.from_pretrained(str(located.folder), local_files_only=True, trust_remote_code=False, **gguf)
    text = config.get_text_config(decoder=True)
    heads = text.num_attention_heads
    return Blueprint(
        located=located,
        config=config,
        text_config=text,
        family=config.model_type,
        layers=text.num_hidden_layers,
        heads=heads,
        kv_heads=getattr(text, "num_key_value_heads", None) or heads,
        hidden_size=text.hidden_size,
        vocab_size=text.vocab_size,
        tied=bool(config.tie_word_embeddings),
        context_tokens=getattr(text, "max_position_embeddings", None) or 0,
    )
