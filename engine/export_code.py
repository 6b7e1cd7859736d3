"""A run's settings in other programs' words: a `transformers` snippet, an OpenAI request. Text in, text out.

What the other program has no word for is named in a comment, never left out in silence.
"""

from __future__ import annotations

import json
import re
from pathlib import PurePath
from typing import Any

from engine.export import ExportRun, json_text, messages_of, title_of
from engine.settings import FLOATS, RANGES, SamplingSettings

LINE = 110  # characters of a comment's or list's line

# ---------------------------------------------------------------- transformers

DRAW = (
    "Glasswork draws its own random numbers, so generate() writes other words than the run did, from the same odds "
    "at each place. Only greedy runs can be written again word by word."
)
GREEDY = "Greedy: the words are the run's, as long as the arithmetic is the same (precision, attention, kernels)."
CHANGED = "The settings were changed while the run went on; these are the ones that it began with."
_MARKER = re.compile(r"<[^<>\s]{1,60}>|\[/?[A-Z_]{2,40}\]")


def as_transformers(run: ExportRun) -> str:
    """A Python program that does with `transformers` what the run did, everything said in so many words.

    Greedy settings give the run's tokens; sampled ones the run's odds. It prints the text and leaves `new_ids`, the
    written token ids.
    """
    settings, loading = run.start.settings, _loading(run)
    lines = [*_comment(f"{title_of(run)} of Glasswork, with transformers."), *_comment(_how_true(run))]
    for note in _notes(run):
        lines += _comment(note)
    lines += ["import torch", f"from transformers import {', '.join(sorted(loading.names))}", ""]
    lines += loading.lines
    lines += _comment("Nothing is taken from the model's generation_config.json: all that counts is said below.")
    lines += ["model.generation_config = GenerationConfig()", ""]
    lines += _inputs(run)
    lines += ["with torch.inference_mode():", "    output = model.generate(", "        **inputs,"]
    lines += [f"        {name}={value}," for name, value in _arguments(run).items()]
    lines += ["    )"]
    begun = "written + " if _begun_with(run) else ""
    lines += ['new_ids = output[0, inputs["input_ids"].shape[1] :].tolist()']
    lines += [f"text = tokenizer.decode({begun}new_ids, skip_special_tokens=True)"]
    if run.start.stop:
        lines += _comment("generate() leaves a stop string in the text; the run cut it off.")
        lines += ["for stop in stop_strings:", "    text = text.split(stop, 1)[0]"]
    if not settings.greedy and not -(2**63) <= settings.seed < 2**63:
        at = next(i for i, line in enumerate(lines) if line.startswith("with torch.inference_mode"))
        lines[at:at] = _comment("The run's seed is longer than torch takes; this is its remainder.")
    return "\n".join([*lines, "print(text)", ""])


def _how_true(run: ExportRun) -> str:
    return GREEDY if run.start.settings.greedy else DRAW


def _notes(run: ExportRun) -> list[str]:
    """What the snippet cannot say, one sentence each."""
    settings, notes = run.start.settings, []
    lacking = [name for name in ("presence_penalty", "frequency_penalty") if getattr(settings, name)]
    if lacking:
        told = " and ".join(f"{name}={getattr(settings, name)!r}" for name in lacking)
        notes.append(f"Not here: {told}. transformers has no counterpart, so the words differ where it counted.")
    if _changed(run):
        notes.append(CHANGED)
    kernel = run.facts.kernel if run.facts is not None else "plain"
    if kernel != "plain":
        notes.append(f"The run computed its products with the kernel {kernel!r}, which may round in another way.")
    return notes


def _changed(run: ExportRun) -> bool:
    """Whether it went on with other settings; those of the run that a fork began in do not count."""
    settings, begin = run.start.settings, len(run.start.written)
    return bool(run.changes) or any(
        token.settings is not settings and token.settings != settings for token in run.tokens if token.step >= begin
    )


def _begun_with(run: ExportRun) -> list[int]:
    """The tokens behind the prompt that no model chose for this run: what a fork began with, then what was given."""
    begin = len(run.start.written)
    given = [token.token_id for token in run.tokens if token.step >= begin]
    return [*run.start.written, *given[: run.start.forced_tokens]]


class _Loading:
    """Lines that load tokenizer and model, and the names that they import."""

    def __init__(self) -> None:
        self.names = {"AutoModelForCausalLM", "AutoTokenizer", "GenerationConfig"}
        self.lines: list[str] = []


def _loading(run: ExportRun) -> _Loading:
    loading, facts = _Loading(), run.facts
    path, gguf = run.model_path, ""
    if path.lower().endswith(".gguf"):
        gguf = PurePath(path.replace("\\", "/")).name
        path = path[: -len(gguf)].rstrip("/\\") or "."
    if not path:
        loading.lines += _comment("The recording does not say where the model lies: write its folder or hub id here.")
    named = f", gguf_file={gguf!r}" if gguf else ""
    loading.lines += [f"path = {path!r}", f"tokenizer = AutoTokenizer.from_pretrained(path{named})"]
    options: dict[str, str] = {}
    if gguf:
        loading.names.add("GgufConfig")
        options |= {"gguf_file": repr(gguf), "quantization_config": "GgufConfig(dequantize=True)"}
    precision = run.precision
    if precision in FLOATS:
        options["dtype"] = f"torch.{precision}"
    elif precision == "int8":
        loading.names.add("BitsAndBytesConfig")
        options["quantization_config"] = "BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=6.0)"
        loading.lines += _comment("The outlier threshold is bitsandbytes' usual one: write the run's here.")
    elif precision in ("nf4", "fp4"):
        loading.names.add("BitsAndBytesConfig")
        options["quantization_config"] = (
            f"BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type={precision!r}, "
            "bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16)"
        )
        loading.lines += _comment("Packed as usual: write the run's double quantisation and type if they were others.")
    else:  # the files' own packing
        options["dtype"] = '"auto"'
    options["device_map"] = _device_map(run)
    if facts is not None:
        options["attn_implementation"] = repr(facts.attention)
    loading.lines += ["model = AutoModelForCausalLM.from_pretrained(", "    path,"]
    loading.lines += [f"    {name}={value}," for name, value in options.items()]
    loading.lines += [").eval()"]
    return loading


def _device_map(run: ExportRun) -> str:
    said = run.header.get("device_map")
    asked = run.facts.device_map if run.facts is not None else said if isinstance(said, str) else "auto"
    if asked == "table" and run.facts is not None:
        return repr({part.name: part.device for part in run.facts.places})
    return repr(asked if asked != "table" else "auto")


def _inputs(run: ExportRun) -> list[str]:
    """Lines that make `inputs`: from the prompt's text where that gives the run's tokens, else from their ids."""
    start, ids = run.start, [token.token_id for token in run.start.prompt_tokens]
    if run.raw:
        lines = [f"prompt = {start.prompt!r}", 'inputs = tokenizer(prompt, return_tensors="pt").to(model.device)']
    else:
        lines = ["messages = [", *(f"    {message!r}," for message in messages_of(run, answer=False)), "]"]
        lines += ["prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)"]
        lines += ['inputs = tokenizer(prompt, add_special_tokens=False, return_tensors="pt").to(model.device)']
    if ids and _only_by_ids(run):
        lines += _comment("The prompt holds marks that the tokenizer would read as special tokens, so its ids count.")
        lines += [*_wrapped("prompt_ids", ids), "ids = torch.tensor([prompt_ids], device=model.device)"]
        lines += ['inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}']
    elif ids:
        lines += [f'assert inputs["input_ids"].shape[1] == {len(ids)}, "tokens of the run\'s prompt: {len(ids)}"']
        lines += ['inputs = {"input_ids": inputs["input_ids"], "attention_mask": inputs["attention_mask"]}']
    if written := _begun_with(run):
        fork, given = "A fork: these tokens were written before it began", "These tokens were given by hand"
        both = f"{fork}, the last {start.forced_tokens} of them given by hand"
        lines += _comment(f"{(both if start.forced_tokens else fork) if start.written else given}.")
        lines += [*_wrapped("written", written)]
        lines += ['ids = torch.cat([inputs["input_ids"], torch.tensor([written], device=model.device)], dim=1)']
        lines += ['inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}']
    if start.stop:
        lines += [f"stop_strings = {list(start.stop)!r}"]
    if not start.settings.greedy:
        seed = start.settings.seed
        lines += [f"torch.manual_seed({seed if -(2**63) <= seed < 2**63 else seed % 2**63})"]
    return [*lines, ""]


def _only_by_ids(run: ExportRun) -> bool:
    """The text alone would not give the run's tokens: typed marks that were read as text, a system text that went
    into the message, half a character."""
    texts = run.start.prompt + (run.system or "")
    moved = any("put before your message" in note for note in run.start.notes)
    return not texts or moved or bool(_MARKER.search(texts)) or any("\ud800" <= c <= "\udfff" for c in texts)


def _arguments(run: ExportRun) -> dict[str, str]:
    """generate()'s arguments, in the order in which they act. Off is said, too: generate() has wishes of its own."""
    start, settings = run.start, run.start.settings
    most = start.max_new_tokens
    if start.context_tokens and start.prompt_tokens:
        most = min(most, start.context_tokens - len(start.prompt_tokens))
    found: dict[str, Any] = {"max_new_tokens": max(1, most - len(_begun_with(run))), "do_sample": not settings.greedy}
    if settings.logit_bias:
        found["sequence_bias"] = {(token_id,): bias for token_id, bias in settings.logit_bias}
    found["repetition_penalty"] = settings.repetition_penalty
    found["no_repeat_ngram_size"] = settings.no_repeat_ngram_size
    if settings.banned:
        found["suppress_tokens"] = list(settings.banned)
    if settings.banned_sequences:
        found["bad_words_ids"] = [list(ids) for ids in settings.banned_sequences]
    if not settings.greedy:
        found |= {name: getattr(settings, name) for name in ("temperature", "top_k", "top_p", "min_p", "typical_p")}
    ends = [end.token_id for end in start.ends]
    found["eos_token_id"] = ends or None
    texts = {name: repr(value) for name, value in found.items()}
    texts["pad_token_id"] = repr(ends[0]) if ends else "tokenizer.pad_token_id"
    if start.stop:
        texts |= {"stop_strings": "stop_strings", "tokenizer": "tokenizer"}
    return texts


def _wrapped(name: str, ids: list[int]) -> list[str]:
    """A list of numbers over as many lines as it needs."""
    lines, line = [f"{name} = ["], "   "
    for number in ids:
        if len(line) > LINE - 12:
            lines.append(line)
            line = "   "
        line += f" {number},"
    return [*lines, line, "]"]


def _comment(text: str) -> list[str]:
    """Text as comments; whatever stands in it, it stays one."""
    words, lines, line = _plain(text).split(), [], "#"
    for word in words:
        if len(line) + 1 + len(word) > LINE and line != "#":
            lines.append(line)
            line = "#"
        line += " " + word
    return [*lines, line]


def _plain(text: str) -> str:
    """Without what ends a line, turns the direction of writing, or is half a character."""
    return "".join(c if c.isprintable() else " " for c in text)


# ---------------------------------------------------------------- OpenAI

SERVER = "http://localhost:8000/v1"  # vLLM's; a person puts their own here
MOST_STOPS = 4
VLLM = ("top_k", "min_p", "repetition_penalty")


def openai_request(run: ExportRun) -> tuple[str, dict[str, Any], list[str], dict[str, Any]]:
    """(path, body, notes, extra): a request with only what OpenAI's API knows, and what was left out.

    notes: a sentence for each thing that is not in the body. extra: what vLLM takes besides (`extra_body` of the Python
    client).
    Source: platform.openai.com/docs/api-reference/chat/create, docs.vllm.ai on extra parameters.
    """
    start, settings = run.start, run.start.settings
    body: dict[str, Any] = {"model": run.model_name}
    if run.raw:
        body["prompt"] = start.prompt
    else:
        body["messages"] = messages_of(run, answer=False)
    body["max_tokens"] = start.max_new_tokens
    notes: list[str] = []
    body["temperature"] = 0.0 if settings.greedy else min(2.0, settings.temperature)
    if body["temperature"] < settings.temperature:
        notes.append(f"The API takes a temperature up to 2; the run's was {settings.temperature!r}.")
    body["top_p"] = settings.top_p
    body["presence_penalty"] = settings.presence_penalty
    body["frequency_penalty"] = settings.frequency_penalty
    if bias := _bias(settings):
        body["logit_bias"] = bias
    if settings.banned:
        notes.append("Banned tokens have a logit bias of -100, which is the least that the API takes.")
    if settings.banned_sequences:
        notes.append("Banned sequences of tokens are left out: the API can ban single tokens only.")
    if -(2**63) <= settings.seed < 2**63:
        body["seed"] = settings.seed
        if not settings.greedy:  # nothing is drawn then
            notes.append("A server draws its own random numbers, so the seed gives other words there.")
    elif not settings.greedy:
        notes.append(f"The seed is longer than the API takes (64 bits): {_short(settings.seed)}.")
    if start.stop:
        body["stop"] = list(start.stop[:MOST_STOPS])
    if len(start.stop) > MOST_STOPS:
        left = ", ".join(json.dumps(text) for text in start.stop[MOST_STOPS:])
        notes.append(f"The API takes {MOST_STOPS} stop strings; left out: {left}.")
    body |= {"logprobs": 5} if run.raw else {"logprobs": True, "top_logprobs": 5}
    off = SamplingSettings()
    told = [n for n in RANGES if n not in body and getattr(settings, n) != getattr(off, n)]
    if told:
        notes.append(
            f"Left out, the API has no word for it: {', '.join(f'{n}={getattr(settings, n)!r}' for n in told)}."
        )
    extra = {name: getattr(settings, name) for name in VLLM if name in told}
    if start.written:
        notes.append(f"The run is a fork, and the API begins anew. Tokens before the fork: {len(start.written)}.")
    if start.forced_tokens:
        notes.append(f"{_given(run)}; a server chooses.")
    if _changed(run):
        notes.append(CHANGED)
    return ("/completions" if run.raw else "/chat/completions"), body, notes, extra


def _given(run: ExportRun) -> str:
    count = run.start.forced_tokens
    return f"The first {f'{count} new tokens were' if count > 1 else 'new token was'} given by hand"


def _bias(settings: SamplingSettings) -> dict[str, float]:
    return {str(i): bias for i, bias in settings.logit_bias} | {str(i): -100.0 for i in settings.banned}


def _short(seed: int) -> str:
    return str(seed) if seed.bit_length() < 200 else f"{seed.bit_length()} bits"


def as_openai(run: ExportRun) -> str:
    """The request as a curl command for a POSIX shell, with what was left out in comments."""
    path, body, notes, extra = openai_request(run)
    lines = _comment(f"{title_of(run)} of Glasswork, as a request to a server with OpenAI's API. Put your server here.")
    for note in notes:
        lines += _comment(note)
    if extra:
        lines += [
            *_comment("vLLM takes these besides, in the body or as extra_body of the client:"),
            f"# {json.dumps(extra)}",
        ]
    # The quoted word keeps the shell from reading anything in between; JSON has no line of that word alone.
    lines += [f"curl {SERVER}{path} -H 'Content-Type: application/json' --data-binary @- <<'JSON'"]
    return "\n".join([*lines, json_text(body), "JSON", ""])
