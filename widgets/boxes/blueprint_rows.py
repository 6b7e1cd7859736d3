"""An outline as rows that a person reads: plain words, the field's term and its source in the tool tip."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QCoreApplication

from engine.events import Outline
from widgets.format import bytes_text, count_text, layers_text, number_text, tokens_text

FAMILIES = {
    "llama": "Llama", "mistral": "Mistral", "mixtral": "Mixtral", "qwen2": "Qwen 2", "qwen3": "Qwen 3",
    "qwen2_moe": "Qwen 2 MoE", "qwen3_moe": "Qwen 3 MoE", "gemma": "Gemma", "gemma2": "Gemma 2", "gemma3": "Gemma 3",
    "gemma3_text": "Gemma 3", "gpt2": "GPT-2", "gpt_neox": "GPT-NeoX", "gpt_oss": "gpt-oss", "phi": "Phi",
    "phi3": "Phi 3", "falcon": "Falcon", "bloom": "BLOOM", "opt": "OPT", "mamba": "Mamba", "mamba2": "Mamba 2",
    "jamba": "Jamba", "deepseek_v2": "DeepSeek V2", "deepseek_v3": "DeepSeek V3", "olmo2": "OLMo 2",
    "smollm3": "SmolLM3", "granite": "Granite", "cohere": "Command R", "starcoder2": "StarCoder2", "rwkv": "RWKV",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    value: str
    tooltip: str


translate = QCoreApplication.translate


def share_name(role: str) -> str:
    """A part of the parameters as a person reads it."""
    known = {
        "embedding": translate("BlueprintPage", "embedding"),
        "attention": translate("BlueprintPage", "attention"),
        "feed-forward": translate("BlueprintPage", "feed-forward"),
        "norms": translate("BlueprintPage", "norms"),
        "lm_head": translate("BlueprintPage", "output head"),
        "other": translate("BlueprintPage", "other"),
        "not for text": translate("BlueprintPage", "not used for text"),
    }
    return known.get(role, role)


def family_sentence(outline: Outline) -> str:
    """What kind of model this is, in one or two plain sentences."""
    family = FAMILIES.get(outline.family, outline.family)
    text = translate(
        "BlueprintPage",
        "A model of the {family} family that writes one token after another: each token becomes {hidden} numbers, "
        "passes through {layers}, and the next one is chosen from a vocabulary of {vocabulary}.",
    ).format(
        family=family,
        hidden=count_text(outline.hidden_size),
        layers=layers_text(outline.layers),
        vocabulary=count_text(outline.vocab_size),
    )
    if 0 < outline.experts_per_token < outline.experts:
        working = (
            translate(
                "BlueprintPage", "In each layer one of {all} experts works on a token, chosen anew for every token."
            )
            if outline.experts_per_token == 1
            else translate(
                "BlueprintPage", "In each layer {chosen} of {all} experts work on a token, chosen anew for every token."
            )
        )
        text += " " + working.format(chosen=count_text(outline.experts_per_token), all=count_text(outline.experts))
    windowed = [(tokens, layers) for tokens, layers in outline.windows if tokens is not None]
    if windowed:
        tokens, layers = windowed[0]
        looking = (
            translate("BlueprintPage", "One of its {all} layers looks back no further than {tokens} tokens.")
            if layers == 1
            else translate("BlueprintPage", "{layers} of its {all} layers look back no further than {tokens} tokens.")
        )
        text += " " + looking.format(layers=layers, all=outline.layers, tokens=count_text((tokens or 0) + 1))
    if outline.other_layers and not outline.windows:
        text += " " + translate("BlueprintPage", "It keeps a summary of fixed size instead of every word it has read.")
    elif outline.other_layers:
        keeping = (
            translate("BlueprintPage", "One of its {all} layers keeps a summary of fixed size instead of every word.")
            if outline.other_layers == 1
            else translate(
                "BlueprintPage", "{layers} of its {all} layers keep a summary of fixed size instead of every word."
            )
        )
        text += " " + keeping.format(layers=outline.other_layers, all=outline.layers)
    return text


def rows(outline: Outline) -> list[Row]:
    """The facts, most asked for first. What the config does not say is left out."""
    source = outline.source
    made: list[Row] = []

    def row(name: str, value: str, term: str, where: str = source) -> None:
        if value:
            made.append(Row(name, value, f"{name}: {value}\n{term}\n{where}"))

    row(
        translate("BlueprintPage", "parameters"),
        count_text(outline.parameters),
        translate("BlueprintPage", "All numbers that were learned; tied ones count once."),
        translate("BlueprintPage", "counted on the empty model"),
    )
    if outline.parameters_per_token != outline.parameters:
        row(
            translate("BlueprintPage", "at work per token"),
            count_text(outline.parameters_per_token),
            translate("BlueprintPage", "Active parameters: of the experts only those that are chosen."),
            translate("BlueprintPage", "counted on the empty model"),
        )
    row(
        translate("BlueprintPage", "weights in memory"),
        bytes_text(outline.predicted_bytes),
        translate("BlueprintPage", "In {precision}, with its tables; without the KV cache.").format(
            precision=outline.precision
        ),
        translate("BlueprintPage", "predicted"),
    )
    row(translate("BlueprintPage", "layers"), count_text(outline.layers), "num_hidden_layers")
    if outline.heads:
        heads = count_text(outline.heads)
        if outline.kv_heads == 1 and outline.heads > 1:
            heads = translate("BlueprintPage", "{heads}, all sharing 1").format(heads=heads)
        elif outline.kv_heads != outline.heads:
            heads = translate("BlueprintPage", "{heads}, sharing {kv}").format(
                heads=heads, kv=count_text(outline.kv_heads)
            )
        term = translate(
            "BlueprintPage",
            "Attention heads (num_attention_heads), and key-value heads (num_key_value_heads): fewer of the latter "
            "(grouped-query attention) make the KV cache smaller.",
        )
        row(translate("BlueprintPage", "heads"), heads, term)
        row(translate("BlueprintPage", "numbers per head"), count_text(outline.head_size), "head_dim")
    row(
        translate("BlueprintPage", "numbers per token"),
        count_text(outline.hidden_size),
        translate("BlueprintPage", "Hidden size (hidden_size)."),
    )
    if outline.feed_forward_size:
        row(
            translate("BlueprintPage", "feed-forward width"), count_text(outline.feed_forward_size), "intermediate_size"
        )
    if outline.experts:
        chosen = translate("BlueprintPage", "{all}, {chosen} at work").format(
            all=outline.experts, chosen=outline.experts_per_token
        )
        row(
            translate("BlueprintPage", "experts per layer"),
            chosen,
            translate("BlueprintPage", "Mixture of experts: num_experts, num_experts_per_tok."),
        )
    row(
        translate("BlueprintPage", "vocabulary"),
        tokens_text(outline.vocab_size),
        "vocab_size",
    )
    row(
        translate("BlueprintPage", "embedding and head"),
        translate("BlueprintPage", "one table (tied)")
        if outline.tied
        else translate("BlueprintPage", "two tables (untied)"),
        translate(
            "BlueprintPage",
            "tie_word_embeddings: whether the output head is the embedding itself, so that its memory counts once.",
        ),
    )
    context = outline.context_tokens
    row(
        translate("BlueprintPage", "context"),
        tokens_text(context) if context else translate("BlueprintPage", "no limit named"),
        translate("BlueprintPage", "max_position_embeddings: how much text the model was made for."),
    )
    for tokens, layers in outline.windows:
        if tokens is not None:
            value = f"{tokens_text(tokens + 1)}, {layers_text(layers)}"
            row(
                translate("BlueprintPage", "window"),
                value,
                translate("BlueprintPage", "sliding_window: these layers see only the newest tokens."),
            )
    if outline.rope_base:
        positions = translate("BlueprintPage", "rotary, base {base}").format(base=_number(outline.rope_base))
        if outline.rope_kind not in ("", "default"):
            positions += f", {outline.rope_kind}"
        if outline.rope_factor > 1:
            positions += f" × {_number(outline.rope_factor)}"
        row(
            translate("BlueprintPage", "positions"),
            positions,
            translate("BlueprintPage", "RoPE (rope_theta): a larger base reaches further back."),
        )
    row(translate("BlueprintPage", "activation"), outline.activation, "hidden_act")
    types = translate("BlueprintPage", " and ").join(outline.dtype_files)
    row(
        translate("BlueprintPage", "type in the files"),
        types,
        translate("BlueprintPage", "Number type, as the headers of the weight files say."),
        translate("BlueprintPage", "files"),
    )
    row(
        translate("BlueprintPage", "type in the config"),
        outline.dtype_config,
        translate("BlueprintPage", "Number type (dtype): what a load takes where nobody chooses."),
    )
    row(
        translate("BlueprintPage", "type when loaded"),
        outline.precision,
        translate("BlueprintPage", "Number type with the precision that is chosen."),
        translate("BlueprintPage", "predicted"),
    )
    row(translate("BlueprintPage", "quantised with"), outline.quantisation, "quantization_config")
    ends: dict[str, list[str]] = {}
    for file, ids in outline.ends:
        ends.setdefault(", ".join(map(str, ids)), []).append(file)
    for ids, files in ends.items():  # files that disagree have a row each
        row(translate("BlueprintPage", "ends with token"), ids, "eos_token_id", ", ".join(files))
    row(
        translate("BlueprintPage", "made as"),
        outline.architecture,
        translate("BlueprintPage", "architectures: the class that config.json names."),
    )
    row(
        translate("BlueprintPage", "licence"),
        outline.licence,
        translate("BlueprintPage", "As the model card names it."),
        "README.md",
    )
    return made


def _number(value: float) -> str:
    return count_text(int(value)) if value == int(value) else number_text(value, 2)
