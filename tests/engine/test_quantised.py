"""Packed weights: recognised from the files, loaded where their kernels are, refused with a sentence elsewhere."""

from __future__ import annotations

import json
import warnings
from itertools import pairwise
from math import ceil

import pytest
import torch

from engine.blueprint import read_blueprint
from engine.control import Control
from engine.errors import CannotLoad, SettingsRefused
from engine.events import TokenEvent
from engine.loading import load
from engine.loop import generate
from engine.memory import estimate
from engine.packed_layers import fit_cpu_kernels, plain_tensors
from engine.placement import module_sizes
from engine.quantised import (
    METHODS,
    Quantised,
    bitsandbytes_size,
    packed_size,
    read_quantisation,
    refuse_missing_kernels,
)
from engine.settings import LoadPlan, Request, SamplingSettings
from engine.skeleton import TensorPlan
from tests.tiny_models import byte_tokenizer, tiny_folder

GREEDY = SamplingSettings(temperature=0)
WIDE = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2}


def told(config: dict, **files: dict):
    """What is recognised; files: further files of the folder, by their names without the ending."""

    def read(folder):
        for name, content in files.items():
            (folder / f"{name}.json").write_text(json.dumps(content))
        return read_quantisation(folder, config)

    return read


# Settings as checkpoints on the hub carry them.
COMPRESSED = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 128},
        }
    },
}
TORCHAO = {
    "quant_method": "torchao",
    "quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "_version": 2, "_data": {"group_size": 128}}},
}
KNOWN = {
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True}, "GPTQ, 4 bits, groups of 128"),
    "gptq by row": ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "GPTQ, 8 bits, a scale for each row"),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}, "AWQ, 4 bits, groups of 128"),
    "compressed": (COMPRESSED, "compressed-tensors, pack-quantized, 4 bits, groups of 128"),
    "fp8": (
        {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
        "FP8, e4m3, 8 bits, groups of 128",
    ),
    "torchao": (TORCHAO, "torchao, Int4WeightOnlyConfig, 4 bits, groups of 128"),
    "mxfp4": ({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, "MXFP4, 4 bits, groups of 32"),
    "hqq": (
        {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}},
        "HQQ, 4 bits, groups of 64",
    ),
    "nf4": (
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
         "bnb_4bit_use_double_quant": True},
        "bitsandbytes, nf4, 4 bits, groups of 64, double quantisation",
    ),
    "int8": ({"load_in_8bit": True}, "bitsandbytes, int8, 8 bits, a scale for each row"),
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_a_packing_is_recognised_from_config_json(name, tmp_path):
    config, words = KNOWN[name]
    found = read_quantisation(tmp_path, {"quantization_config": config})
    assert found is not None
    assert found.words == words
    inner = read_quantisation(tmp_path, {"text_config": {"quantization_config": config}})
    assert inner == found  # a composite model says it in its text half


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("quantize_config", {"bits": 4, "group_size": 128, "desc_act": False}, "GPTQ, 4 bits, groups of 128"),
        ("quant_config", {"zero_point": True, "q_group_size": 128, "w_bit": 4}, "AWQ, 4 bits, groups of 128"),
        ("hf_quant_config", {"quantization": {"quant_algo": "FP8"}}, "ModelOpt"),
    ],
)
def test_a_packing_is_recognised_from_a_file_of_its_own(file, content, words, tmp_path):
    found = told({}, **{file: content})(tmp_path)
    assert found.words == words
    assert found.source == f"{file}.json"


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("quantize_config", {"bits": 4, "group_size": 128}, {"quant_method": "gptq", "bits": 4, "group_size": 128}),
        (
            "quant_config",
            {"zero_point": True, "q_group_size": 64, "w_bit": 4},
            {"quant_method": "awq", "zero_point": True, "group_size": 64, "bits": 4},
        ),
    ],
)
def test_what_only_a_file_beside_it_says_reaches_the_config(file, content, expected, tmp_path):
    """transformers looks into config.json alone, and would fill the packed layers with random numbers."""
    folder = tiny_config(tmp_path, None)
    (folder / f"{file}.json").write_text(json.dumps(content))
    assert read_blueprint(folder).config.quantization_config == expected


def test_plain_files_and_files_that_say_nonsense_are_told_apart(tmp_path):
    assert read_quantisation(tmp_path, {}) is None
    assert read_quantisation(tmp_path, {"quantization_config": None}) is None
    odd = read_quantisation(
        tmp_path, {"quantization_config": {"quant_method": "gptq", "bits": "four", "group_size": []}}
    )
    assert (odd.method, odd.bits, odd.group_size) == ("gptq", None, None)
    huge = read_quantisation(tmp_path, {"quantization_config": {"quant_method": "gptq", "bits": 10**4000}})
    assert huge.words.startswith("GPTQ")
    broken = {"quant_method": "compressed-tensors", "config_groups": ["what"]}
    assert read_quantisation(tmp_path, {"quantization_config": broken}).method == "compressed-tensors"
    (tmp_path / "quantize_config.json").write_text("[1, 2")
    assert read_quantisation(tmp_path, {}) is None


def test_apples_own_packing_is_refused_by_name(tmp_path):
    with pytest.raises(CannotLoad, match="MLX"):
        refuse_missing_kernels(read_quantisation(tmp_path, {"quantization": {"bits": 4, "group_size": 64}}))


@pytest.mark.parametrize(("method", "package"), [("gptq", "gptqmodel"), ("awq", "gptqmodel"), ("vptq", "vptq")])
def test_a_missing_package_is_one_sentence_that_names_it(method, package, tmp_path):
    config = tiny_config(tmp_path, {"quant_method": method, "bits": 4, "group_size": 128})
    assert read_blueprint(config).quantisation == method  # an estimate needs no kernels
    with pytest.raises(CannotLoad) as refused:
        refuse_missing_kernels(read_blueprint(config).quantised)
    assert package in refused.value.what
    assert f"pip install {package}" in refused.value.fix
    refuse_missing_kernels(None)


def test_hqq_is_refused_since_transformers_reads_none():
    from transformers.quantizers.quantizer_hqq import HqqHfQuantizer

    assert "get_quantize_ops" not in vars(HqqHfQuantizer), "transformers learned it: take HQQ into METHODS"
    with pytest.raises(CannotLoad, match="HQQ"):
        refuse_missing_kernels(Quantised("hqq", 4, 64))


def test_every_method_of_transformers_has_its_row():
    from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING

    from engine.quantised import NOT_HERE

    names = {name.split("_4bit")[0].split("_8bit")[0] for name in AUTO_QUANTIZER_MAPPING}
    assert names - set(METHODS) - set(NOT_HERE) <= {"gemma"}


def tiny_config(folder, quantization_config):
    config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    config |= {"num_attention_heads": 4, "vocab_size": 300, "quantization_config": quantization_config}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


# ---------------------------------------------------------------- bytes


def test_one_bit_is_told_as_one():
    assert Quantised("hqq", 1, 64).words.startswith("HQQ, 1 bit, groups")


def matrix(rows, columns):
    return TensorPlan(
        "model.layers.0.mlp.up_proj.weight", (rows, columns), rows * columns, "feed-forward", 0, True, rows
    )


@pytest.mark.parametrize(
    ("quantised", "numbers", "constants"),
    [
        # Llama-3-8B's up_proj [14336, 4096], by the shapes that GPTQModel and AutoAWQ write:
        # qweight int32 [512, 14336]; scales float16 [32, 14336], qzeros int32 [32, 1792], g_idx int32 [4096].
        (Quantised("gptq", 4, 128, zeros=True, in_order=True), 512 * 14336 * 4,
         32 * 14336 * 2 + 32 * 1792 * 4 + 4096 * 4),
        # qweight int32 [4096, 1792]; scales float16 [32, 14336], qzeros int32 [32, 1792].
        (Quantised("awq", 4, 128, zeros=True), 4096 * 1792 * 4, 32 * 14336 * 2 + 32 * 1792 * 4),
        # weight_packed int32 [14336, 512], weight_scale bfloat16 [14336, 32].
        (Quantised("compressed-tensors", 4, 128, "pack-quantized"), 14336 * 512 * 4, 14336 * 32 * 2),
        # weight float8 [14336, 4096], weight_scale_inv float32 [112, 32].
        (Quantised("fp8", 8, 128), 14336 * 4096, 112 * 32 * 4),
        (Quantised("mxfp4", 4, 32), 14336 * 4096 // 2, 14336 * 4096 // 32),
    ],
)  # fmt: skip
def test_a_packed_matrix_weighs_what_its_tensors_weigh(quantised, numbers, constants):
    assert packed_size(matrix(14336, 4096), quantised) == (numbers, constants)


def test_what_the_files_do_not_say_is_not_predicted():
    assert packed_size(matrix(64, 64), Quantised("gptq")) is None


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("precision", ["nf4", "fp4"])
def test_four_bits_are_predicted_with_and_without_double_quantisation(precision, double):
    from bitsandbytes.functional import quantize_4bit

    packed, state = quantize_4bit(torch.randn(256, 192), quant_type=precision, compress_statistics=double)
    constants = state.absmax.nbytes + state.code.nbytes
    if state.nested:
        constants += state.offset.nbytes + state.state2.absmax.nbytes + state.state2.code.nbytes
    assert bitsandbytes_size(256 * 192, 256, precision, double) == (packed.nbytes, constants)


# ---------------------------------------------------------------- really loaded


def written(session, tokens=4):
    request = Request(1, "ab", raw=True, lanes=(GREEDY,), max_new_tokens=tokens, ignore_ends=True)
    return [event.token_id for event in generate(session, request, Control()) if isinstance(event, TokenEvent)]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("plain"), "llama", **WIDE)


def saved(plain, folder, **settings):
    """A checkpoint that bitsandbytes packed and transformers saved."""
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AutoModelForCausalLM.from_pretrained(
            plain, quantization_config=BitsAndBytesConfig(**settings), dtype=torch.float32, device_map="cpu"
        )
        model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    with torch.inference_mode():
        return model(input_ids=torch.tensor([[97, 98]])).logits[0, -1].float()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"load_in_8bit": True}, "bitsandbytes int8, outliers from 6 on in 16 bits"),
        (
            {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
            "bitsandbytes nf4, blocks of 64, double quantisation, computes in float32",
        ),
        (
            {"load_in_4bit": True, "bnb_4bit_quant_type": "fp4"},
            "bitsandbytes fp4, blocks of 64, no double quantisation, computes in float32",
        ),
    ],
)
def test_a_checkpoint_that_bitsandbytes_packed_is_loaded_as_it_is(settings, words, plain, tmp_path):
    expected = saved(plain, tmp_path, **settings)
    session = load(LoadPlan(str(tmp_path), device_map="cpu"), lambda event: None, Control())
    facts = {fact.name: fact.value for fact in session.facts.facts}
    assert facts["Quantised layers"] == f"14 ({words})"  # two layers of seven matrices
    assert facts["Quantised with"].startswith("bitsandbytes, ")
    assert session.facts.precision == "bitsandbytes"
    with torch.inference_mode():
        logits = session.model(input_ids=torch.tensor([[97, 98]])).logits[0, -1].float()
    assert torch.equal(logits, expected)
    assert len(written(session)) == 4
    session.close()
    with pytest.raises(CannotLoad, match="already quantised"):
        load(LoadPlan(str(tmp_path), "int8"), lambda event: None, Control())


def fp8_folder(plain, folder):
    """A checkpoint in FP8 with a scale for each block of 128 by 128, written by hand as DeepSeek's are."""
    from safetensors.torch import load_file, save_file

    tensors, packed = load_file(plain / "model.safetensors"), {}
    for name, tensor in tensors.items():
        if ".layers." in name and name.endswith("proj.weight"):
            rows, columns = tensor.shape
            blocks = torch.zeros(-(-rows // 128), -(-columns // 128))
            stored = torch.empty(rows, columns, dtype=torch.float8_e4m3fn)
            for i in range(blocks.shape[0]):
                for j in range(blocks.shape[1]):
                    place = (slice(128 * i, 128 * i + 128), slice(128 * j, 128 * j + 128))
                    blocks[i, j] = tensor[place].abs().max() / 448.0
                    stored[place] = (tensor[place] / blocks[i, j]).to(torch.float8_e4m3fn)
            packed |= {name: stored, f"{name}_scale_inv": blocks}
        else:
            packed[name] = tensor.bfloat16()
    save_file(packed, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((plain / "config.json").read_text())
    quantisation = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128],
                    "activation_scheme": "dynamic"}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": quantisation, "dtype": "bfloat16"}))
    byte_tokenizer().save_pretrained(folder)
    return tensors


def test_a_checkpoint_in_fp8_is_unpacked_where_nothing_computes_with_it(plain, tmp_path, monkeypatch):

    if torch.cuda.is_available():
        pytest.skip("here it stays packed")
    tensors = fp8_folder(plain, tmp_path)
    session = load(LoadPlan(str(tmp_path), device_map="cpu"), lambda event: None, Control())
    name = "model.layers.1.mlp.up_proj.weight"
    loaded = dict(session.model.named_parameters())[name]
    assert loaded.dtype == torch.bfloat16
    # Three bits of mantissa: half a step is 1/16 of the value at most, and the smallest are rounded on a fixed grid.
    assert torch.allclose(
        loaded.float(), tensors[name], rtol=1 / 16 + 1 / 256, atol=float(tensors[name].abs().max()) / 448
    )
    assert any("unpacked" in note for note in session.facts.notes)
    assert len(written(session)) == 4
    session.close()


# ---------------------------------------------------------------- chosen here


def loaded_with(plain, precision, **settings):
    return load(LoadPlan(str(plain), precision, device_map="cpu", **settings), lambda event: None, Control())


def quantised_layers(session):
    return {fact.name: fact.value for fact in session.facts.facts}["Quantised layers"]


@pytest.mark.parametrize(
    ("precision", "settings", "words"),
    [
        ("int8", {"int8_threshold": 3.5}, "outliers from 3.5 on in 16 bits"),
        ("int8", {"int8_threshold": 0}, "no outliers kept apart"),
        ("nf4", {"double_quantisation": False}, "nf4, blocks of 64, no double quantisation, computes in float32"),
        ("fp4", {"compute_dtype": "bfloat16"}, "fp4, blocks of 64, double quantisation, computes in bfloat16"),
    ],
)
def test_what_was_chosen_for_packing_is_what_was_loaded(precision, settings, words, plain):
    session = loaded_with(plain, precision, **settings)
    assert words in quantised_layers(session)
    session.close()


def test_a_lower_outlier_threshold_changes_the_numbers(plain):
    ids = torch.tensor([[97, 98, 99, 100]])
    logits = []
    for threshold in (0.0, 0.5):
        session = loaded_with(plain, "int8", int8_threshold=threshold)
        with torch.inference_mode():
            logits.append(session.model(input_ids=ids).logits)
        session.close()
    exact = loaded_with(plain, "float32")
    with torch.inference_mode():
        right = exact.model(input_ids=ids).logits
    exact.close()
    far, near = ((found - right).abs().mean() for found in logits)
    assert near < far  # more is multiplied in 16 bits


@pytest.mark.parametrize("plan", [{"int8_threshold": -1}, {"int8_threshold": float("nan")}, {"compute_dtype": "int8"}])
def test_packing_settings_out_of_range_are_refused(plan):
    with pytest.raises(SettingsRefused):
        LoadPlan("default", "int8", **plan)


@pytest.mark.parametrize("precision", ["int8", "nf4"])
def test_a_family_that_cannot_run_packed_is_refused_at_load(precision, tmp_path):
    """mamba multiplies with dt_proj's matrix by hand; it loaded, and its first run ended with a library's error."""
    folder = tiny_folder(tmp_path, "mamba")
    with pytest.raises(CannotLoad) as refused:
        load(LoadPlan(str(folder), precision, device_map="cpu"), lambda event: None, Control())
    assert f"mamba model does not run in {precision}" in refused.value.what
    assert "bfloat16" in refused.value.fix


DEEPSEEK = {
    "hidden_size": 64, "intermediate_size": 128, "moe_intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 300, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "q_lora_rank": 32,
    "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
    "first_k_dense_replace": 1, "max_position_embeddings": 512, "bos_token_id": 256, "eos_token_id": 257,
    "pad_token_id": 258,
}  # fmt: skip


def test_int8_of_deepseek_is_refused_at_load_and_nf4_runs(tmp_path, monkeypatch):
    from tests import tiny_models

    monkeypatch.setitem(tiny_models.FAMILIES, "deepseek_v3", DEEPSEEK)
    folder = tiny_folder(tmp_path, "deepseek_v3")
    with pytest.raises(CannotLoad, match="does not run in int8"):
        load(LoadPlan(str(folder), "int8", device_map="cpu"), lambda event: None, Control())
    session = load(LoadPlan(str(folder), "nf4", device_map="cpu"), lambda event: None, Control())
    assert len(written(session)) == 4
    session.close()


@pytest.mark.parametrize("hidden", [33, 48])
def test_odd_sizes_run_in_four_bits_on_any_processor(hidden, tmp_path):
    """LOD-12. The kernel of processors with AVX-512 takes rows by 32 and columns by the block, and asserts it late."""
    heads = {"num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 16}
    folder = tiny_folder(tmp_path, "llama", hidden_size=hidden, intermediate_size=hidden + 7, **heads)
    for precision in ("nf4", "int8"):
        session = load(LoadPlan(str(folder), precision, device_map="cpu"), lambda event: None, Control())
        assert len(written(session)) == 4
        session.close()


def test_only_shapes_that_the_fast_kernel_takes_are_left_to_it(plain):
    session = loaded_with(plain, "nf4")
    layers = [module for module in session.model.modules() if type(module).__name__ == "Linear4bit"]
    for layer in layers:
        layer.support_avx512bf16_for_cpu = True
    layers[0].weight.quant_state.shape = torch.Size((96, 60))
    fit_cpu_kernels(session.model)
    assert [layer.support_avx512bf16_for_cpu for layer in layers[:2]] == [False, True]
    session.close()


class Pair(torch.Tensor):
    """A tensor class of a packing library in small: a wrapper around two plain tensors."""

    @staticmethod
    def __new__(cls, numbers, scale):
        made = torch.Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=torch.float32)
        made.numbers, made.scale = numbers, scale
        return made

    def __tensor_flatten__(self):
        return ["numbers", "scale"], None

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return cls(args[0].numbers, args[0].scale)
        raise NotImplementedError(func)


def test_a_packed_tensor_class_counts_as_what_it_stores():
    numbers, scale = torch.ones(4, 8, dtype=torch.int8), torch.ones(4)
    inner = plain_tensors(Pair(numbers, scale))
    assert [tensor.nbytes for tensor in inner] == [32, 16]
    assert all(a is not b for a, b in pairwise(inner))


@pytest.mark.parametrize("double", [True, False])
def test_four_bits_weigh_what_was_predicted_with_and_without_double_quantisation(double, plain):
    session = loaded_with(plain, "nf4", double_quantisation=double)
    constants = next(part for part in session.facts.ledger if part.name == "quantisation")
    assert constants.predicted_bytes == constants.measured_bytes
    session.close()


def test_the_estimate_follows_double_quantisation(plain):
    with_it, without = (estimate(str(plain), "nf4", double_quantisation=double) for double in (True, False))
    matrices = [tensor for tensor in read_blueprint(plain).skeleton.tensors if tensor.quantisable]
    each = [ceil(tensor.numel / 64) for tensor in matrices]
    # Each block's float32 becomes one byte; each 256 of those get a float32, and each matrix a table and an offset.
    nested = sum(4 * ceil(blocks / 256) + 256 * 4 + 4 for blocks in each)
    assert without.weights_bytes - with_it.weights_bytes == 3 * sum(each) - nested


def test_a_packed_checkpoint_is_predicted_as_it_is_packed_predicted_and_measured(plain, tmp_path):
    saved(plain, tmp_path, load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=False)
    session = load(LoadPlan(str(tmp_path), device_map="cpu"), lambda event: None, Control())
    for part in session.facts.ledger:
        if part.predicted_bytes is not None and part.measured_bytes is not None:
            assert part.predicted_bytes == part.measured_bytes, part
    session.close()


def test_gptq_is_predicted_by_bits_and_group_size(tmp_path):
    """From config.json alone: what the shapes that GPTQModel writes add up to."""
    config = tiny_config(tmp_path, {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False})
    found, skeleton = estimate(str(config)), read_blueprint(config).skeleton
    numbers = constants = 0
    for tensor in skeleton.tensors:
        if not tensor.quantisable:
            continue
        rows, columns = tensor.shape
        numbers += columns // 8 * rows * 4
        constants += columns // 32 * rows * 2 + columns // 32 * rows // 8 * 4 + columns * 4
    parts = {part.name: part.predicted_bytes for part in found.parts}
    assert parts["quantisation"] == constants
    assert parts["attention"] + parts["feed-forward"] == numbers
    assert any("GPTQ, 4 bits, groups of 32" in note for note in found.notes)


def test_placement_counts_packed_files_as_the_ledger_does(tmp_path):
    config = tiny_config(tmp_path, {"quant_method": "awq", "bits": 4, "group_size": 32})
    blueprint = read_blueprint(config)
    assert module_sizes(blueprint, "float16", "float16")[""] == estimate(blueprint, "float16").weights_bytes
    with_it, without = (module_sizes(blueprint, "nf4", "float16", double)[""] for double in (True, False))
    assert with_it != without
