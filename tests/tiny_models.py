"""Tiny random models of many families, saved as folders that load like real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "max_position_embeddings": 512,
    "bos_token_id": 256,
    "eos_token_id": 257,
    "pad_token_id": 258,
}
TOKENS = {name: SIZES[name] for name in ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id")}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": SIZES,
    "qwen2": SIZES,
    "gemma3_text": SIZES
    | {"head_dim": 16, "sliding_window": 16, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]},
    "gpt2": {"n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 512} | TOKENS,
    "gpt_bigcode": {"n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 512, "multi_query": True} | TOKENS,
    "mistral": SIZES | {"sliding_window": 24},
    "qwen3": SIZES | {"head_dim": 16},
    "smollm3": SIZES,
    # Families that the general path must treat each in its own way: positions, fixed states, no cache of transformers'.
    "bloom": {"hidden_size": 64, "n_layer": 3, "n_head": 4} | TOKENS,
    "phi3": SIZES,
    "mamba": {"hidden_size": 64, "num_hidden_layers": 3, "state_size": 8} | TOKENS,
    "jamba": SIZES | {"num_experts": 2, "num_experts_per_tok": 1, "attn_layer_period": 2, "attn_layer_offset": 1},
    "bamba": SIZES | {"attn_layer_indices": [1, 3], "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 8},
    "rwkv": {"hidden_size": 64, "num_hidden_layers": 3} | TOKENS,
    "openai-gpt": {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 512} | TOKENS,
    "mixtral": SIZES | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "gpt_oss": SIZES | {"head_dim": 16, "sliding_window": 16, "num_local_experts": 4, "num_experts_per_tok": 2},
}
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_tokenizer(template: str | None = TEMPLATE) -> Any:
    """A byte-level tokenizer without merges: ids 0 to 255 are the bytes, then the special tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from engine.text import byte_level_alphabet

    raw = Tokenizer(models.BPE(vocab=byte_level_alphabet(), merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    special = ("<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>")
    raw.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, bos_token="<s>", eos_token="</s>", pad_token="<pad>", model_max_length=10**30
    )
    tokenizer.chat_template = template
    return tokenizer


def tiny_model(family: str, seed: int = 0, **changes: Any) -> Any:
    """A random model in float32, its weights wide enough that the logits differ."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(seed)
    config = AutoConfig.for_model(family, **({"initializer_range": 0.3} | FAMILIES[family] | changes))
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


def tiny_folder(folder: Path, family: str = "llama", seed: int = 0, **changes: Any) -> Path:
    """Saves a tiny model with its tokenizer; returns the folder."""
    tiny_model(family, seed, **changes).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


def pickled_folder(folder: Path) -> Path:
    """Saves a tiny Llama whose weights are a pickle file; returns the folder."""
    import torch

    model = tiny_model("llama")
    model.config.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    return folder
