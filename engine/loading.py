"""Files → session. Blocking; says where it stands, can be cancelled at each tensor, gives memory back when it fails."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from engine.blueprint import read_blueprint
from engine.catalog import resolve
from engine.control import Control
from engine.errors import Cancelled, CannotLoad
from engine.events import Event, LoadProgress, SessionFacts
from engine.readings import give_memory_back, read_memory
from engine.session import Session
from engine.settings import LoadPlan, precision_named


def load(plan: LoadPlan, emit: Callable[[Event], None], control: Control) -> Session:
    """The loaded model. Emits LoadProgress. Raises CannotLoad (plain text only, holding no tensors) and Cancelled."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    before = read_memory().process_bytes
    try:
        return _load(plan, emit, control, before)
    finally:
        give_memory_back()


def _load(plan: LoadPlan, emit: Callable[[Event], None], control: Control, before: int) -> Session:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging as transformers_logging

    precision = precision_named(plan.precision)
    located = resolve(plan.model)
    blueprint = read_blueprint(located)
    total = sum(f.stat().st_size for f in located.folder.iterdir() if f.suffix == ".safetensors")
    began = time.perf_counter()

    def hook(_factory, args, kwargs):
        return watched(args[0]) if args else _factory(*args, **kwargs)

    def watched(items):
        for done, item in enumerate(items):
            if control.cancelled():
                raise Cancelled
            emit(
                LoadProgress("weights", total * done // max(1, len(items)), total, (time.perf_counter() - began) * 1e3)
            )
            yield item

    options: dict = {"dtype": getattr(torch, precision) if precision in ("float32", "bfloat16", "float16") else "auto"}
    if precision in ("int8", "nf4", "fp4"):
        from transformers import BitsAndBytesConfig

        if precision == "int8":
            options["quantization_config"] = BitsAndBytesConfig(load_in_8bit=True)
        else:
            options["quantization_config"] = BitsAndBytesConfig(
                load_in_4bit=True, bnb_4bit_quant_type=precision, bnb_4bit_use_double_quant=True
            )
        options["device_map"] = {"": "cpu"}
    if located.gguf:
        options["gguf_file"] = located.gguf
    tokens = {"gguf_file": located.gguf} if located.gguf else {}
    previous = transformers_logging.set_tqdm_hook(hook)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            str(located.folder), local_files_only=True, trust_remote_code=False, **options
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise CannotLoad("{reason}", "Check the model's files.", reason=str(error).splitlines()[0][:300]) from None
    finally:
        transformers_logging.set_tqdm_hook(previous)
    model.eval().requires_grad_(False)
    tokenizer = AutoTokenizer.from_pretrained(str(located.folder), local_files_only=True, **tokens)
    emit(LoadProgress("weights", total, total, (time.perf_counter() - began) * 1e3))
    parameters = list(model.parameters())
    facts = SessionFacts(
        name=located.name,
        model_path=str(located.path),
        family=blueprint.family,
        precision=precision or str(model.dtype).removeprefix("torch."),
        device_map=str(plan.device_map),
        devices=tuple(sorted({str(p.device) for p in parameters})),
        parameters=sum(p.numel() for p in parameters),
        layers=blueprint.layers,
        heads=blueprint.heads,
        kv_heads=blueprint.kv_heads,
        hidden_size=blueprint.hidden_size,
        vocab_size=blueprint.vocab_size,
        context_tokens=blueprint.context_tokens,
        attention=model.config._attn_implementation,
        decode_path="general: transformers' forward with a dynamic cache",
        has_chat_template=bool(tokenizer.chat_template),
        weights_bytes=sum(p.numel() * p.element_size() for p in parameters),
        kv_bytes_per_token=None,
        memory_before_bytes=before,
        memory_after_bytes=read_memory().process_bytes,
    )
    return Session(model, tokenizer, facts, model.generation_config, blueprint)
