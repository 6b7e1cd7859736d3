"""The precision x-ray says what an independent computation says, and leaves nothing behind."""

from __future__ import annotations

import gc
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from engine import xray as module
from engine.control import Control
from engine.errors import Cancelled, PromptRefused, RunFailed
from engine.events import LOAD_STAGES, XrayProgress, XraySide
from engine.settings import LoadPlan, XrayQuestion
from engine.xray import SAMPLES, sample_text, xray
from tests.tiny_models import tiny_folder, tiny_model

TEXT = "The sea lay flat and grey. 水很平静。🌊"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("tiny") / "tiny", "llama")


def asked(model, reference="float32", other="bfloat16", text=TEXT, **changes):
    plans = (LoadPlan(str(model), precision, device_map="cpu", **changes) for precision in (reference, other))
    return XrayQuestion(*plans, text)


def taken(question, **more):
    found, session = xray(question, lambda event: None, Control(), **more)
    if session is not None:
        session.close()
    return found


def forward_of_transformers(model, precision, text):
    """(ids, log-probabilities [tokens - 1, vocab] in float64) by from_pretrained and its own forward."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    ids = AutoTokenizer.from_pretrained(model)(text)["input_ids"]
    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, precision)).eval()
    with torch.inference_mode():
        logits = loaded(torch.tensor([ids])).logits[0, :-1].float().numpy().astype(np.float64)
    top = logits.max(axis=1, keepdims=True)
    return ids, logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))


def test_the_default_models_figures_are_those_of_transformers(default_model_path):
    text = sample_text("prose")
    found = taken(asked(default_model_path, text=text))
    ids, p = forward_of_transformers(default_model_path, "float32", text)
    _, q = forward_of_transformers(default_model_path, "bfloat16", text)
    kl = (np.exp(p) * (p - q)).sum(axis=1)
    assert [token.token_id for token in found.tokens] == ids
    assert found.tokens[0].kl_nats is None
    assert np.allclose([token.kl_nats for token in found.tokens[1:]], kl, rtol=0, atol=1e-5)
    assert math.isclose(found.mean_kl_nats, kl.mean(), abs_tol=1e-5)
    assert found.flips == tuple(np.flatnonzero(p.argmax(axis=1) != q.argmax(axis=1)) + 1)
    surprise = [-logprobs[np.arange(len(ids) - 1), ids[1:]].mean() for logprobs in (p, q)]
    assert math.isclose(found.reference.perplexity, math.exp(surprise[0]), rel_tol=1e-6)
    assert math.isclose(found.other.perplexity, math.exp(surprise[1]), rel_tol=1e-6)
    assert 1e-4 < found.mean_kl_nats < 1e-2  # what bfloat16 is known to cost here
    assert (found.reference.weights_bytes, found.other.weights_bytes) == (538_060_288, 269_030_272)
    assert found.reference.decode_tokens_per_s > 0


def test_one_precision_against_itself_changes_nothing(folder):
    found = taken(asked(folder, "bfloat16", "bfloat16"))
    assert all(token.kl_nats == 0.0 for token in found.tokens[1:])
    assert found.flips == ()
    assert (found.mean_kl_nats, found.same_first_share) == (0.0, 1.0)
    assert found.reference.perplexity == found.other.perplexity


def test_the_texts_pieces_are_the_text(folder):
    found = taken(asked(folder))
    assert "".join(token.text for token in found.tokens) == TEXT


def side(precision="float32", **changes) -> XraySide:
    values: dict[str, Any] = {
        "words": "", "device": "cpu", "weights_bytes": 100, "load_ms": 1.0, "read_ms": 1.0,
        "decode_tokens_per_s": 10.0, "decode_tokens": 8, "decode_path": "", "perplexity": 2.0, "unpacks": False,
        "native": True,
    }  # fmt: skip
    return XraySide(precision=precision, **(values | changes))


class Letters:
    """A vocabulary of three letters."""

    special = frozenset()

    def label(self, token_id):
        return "abc"[token_id]


@pytest.fixture
def compare(monkeypatch):
    class Text:
        def __init__(self, vocabulary):
            self.vocabulary = vocabulary

        def add(self, token_id):
            return self.vocabulary.label(token_id)

        def finish(self):
            return ""

    monkeypatch.setattr("engine.text.TokenText", Text)

    def act(reference, other, ids):
        reads = [module._Read(side(), torch.tensor(rows).log(), ids, ()) for rows in (reference, other)]
        return module._compare(reads[0], reads[1], Letters(), Control())

    return act


def test_divergence_is_worked_out_as_by_hand(compare):
    tokens = compare([[0.5, 0.5, 0.0], [0.2, 0.2, 0.6]], [[0.9, 0.1, 0.0], [0.2, 0.7, 0.1]], [0, 1, 2])
    # ½ ln(0.5/0.9) + ½ ln(0.5/0.1), reference first: the other way round it would be 0.368.
    assert math.isclose(tokens[1].kl_nats, 0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(5), rel_tol=1e-6)
    assert math.isclose(tokens[2].kl_nats, 0.2 * math.log(2 / 7) + 0.6 * math.log(6), rel_tol=1e-6)
    assert not tokens[1].flipped  # between equals the smaller id is first
    assert tokens[2].flipped
    assert (tokens[2].reference_choice, tokens[2].other_choice) == ("c", "b")
    assert tokens[2].reference_choice_probs == pytest.approx((0.6, 0.1))
    assert tokens[2].other_choice_probs == pytest.approx((0.2, 0.7))
    assert tokens[2].reference_logprob == pytest.approx(math.log(0.6))


def test_what_only_the_other_rules_out_is_infinitely_far(compare):
    tokens = compare([[0.5, 0.5, 0.0]], [[1.0, 0.0, 0.0]], [0, 1])
    assert tokens[1].kl_nats == math.inf


def test_why_the_smaller_one_was_slower_is_said_only_where_it_was(folder):
    found = taken(asked(folder))
    reason = {
        "slower packed": (side("int8", weights_bytes=50, decode_tokens_per_s=5.0, unpacks=True), "unpacking"),
        "faster packed": (side("int8", weights_bytes=50, decode_tokens_per_s=20.0, unpacks=True), ""),
        "no products": (side("bfloat16", weights_bytes=50, decode_tokens_per_s=5.0, native=False), "no kernels"),
        "who knows": (side("bfloat16", weights_bytes=50, decode_tokens_per_s=5.0), "unknown"),
        "within the noise": (side("int8", weights_bytes=50, decode_tokens_per_s=9.5, unpacks=True), ""),
        "of one size": (side(decode_tokens_per_s=5.0), ""),
    }
    for other, expected in reason.values():
        assert replace(found, reference=side(), other=other).slower_because == expected
        assert replace(found, reference=other, other=side()).slower_because == expected


# ---------------------------------------------------------------- texts


@pytest.mark.parametrize("name", SAMPLES)
def test_shipped_texts_are_short_enough_to_be_compared_whole(name, default_session):
    ids = default_session.tokenizer(sample_text(name))["input_ids"]
    assert 150 <= len(ids) <= module.MOST_TOKENS


def test_a_long_text_is_cut_with_a_note(folder):
    found = taken(asked(folder, text="word " * 200))
    assert len(found.tokens) == module.MOST_TOKENS
    assert found.notes == ("The text is 1,000 tokens long; the first 256 were compared.",)


def test_logits_that_would_not_fit_cut_the_text_too(folder, monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 10 * 4 * 300)
    found = taken(asked(folder))
    assert len(found.tokens) == 11  # ten rows of logits predict ten tokens


@pytest.mark.parametrize("text", ["", "  \n", "a"])
def test_a_text_without_a_next_token_is_refused(text, folder):
    with pytest.raises(PromptRefused):
        taken(asked(folder, text=text))


def test_numbers_that_run_over_are_told(tmp_path):
    model = tiny_model("llama")
    with torch.no_grad():
        model.lm_head.weight.fill_(60000.0)
    from tests.tiny_models import byte_tokenizer

    model.save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(RunFailed, match="float16"):
        taken(asked(tmp_path, "float32", "float16"))


# ---------------------------------------------------------------- memory and stopping


def test_the_side_that_was_loaded_before_comes_last_and_stays(folder):
    question = asked(folder)
    for keep, order in ((question.reference, [1, 0]), (question.other, [0, 1])):
        events = []
        found, session = xray(question, events.append, Control(), keep)
        assert session is not None
        assert session.facts.precision == keep.precision
        assert session.model is not None
        session.close()
        assert list(dict.fromkeys(event.side for event in events)) == order
        assert (found.reference.precision, found.other.precision) == ("float32", "bfloat16")
        assert found.mean_kl_nats > 0.0


def test_without_one_to_keep_nothing_stays_loaded(folder):
    _, session = xray(asked(folder), lambda event: None, Control(), LoadPlan(str(folder), "float16"))
    assert session is None


def tensors_left() -> int:
    gc.collect()
    return sum(torch.is_tensor(thing) and thing.numel() > 1000 for thing in gc.get_objects())


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("stage", ["weights", "read", "decode"])
def test_cancel_ends_it_at_once_and_leaves_nothing(side, stage, folder):
    question, control = asked(folder), Control()
    taken(question)  # what the libraries keep once is there now
    before, later = tensors_left(), 0

    def emit(event):
        nonlocal later
        assert isinstance(event, XrayProgress)
        later += control.cancelled()
        if event.side == side and event.stage == stage:
            control.cancel()

    with pytest.raises(Cancelled):
        xray(question, emit, control)
    assert later <= 2
    assert tensors_left() <= before


def test_progress_names_both_sides_and_every_stage(folder):
    events = []
    xray(asked(folder), events.append, Control())
    for number in (0, 1):
        stages = list(dict.fromkeys(event.stage for event in events if event.side == number))
        assert stages == [*LOAD_STAGES, "read", "decode"]
    assert all(0 <= event.done <= event.total for event in events)
    assert {event.precision for event in events} == {"float32", "bfloat16"}


@pytest.mark.parametrize("family", ["mamba", "gpt2", "gemma3_text", "rwkv", "mixtral"])
def test_families_of_other_kinds_can_be_compared(family, tmp_path):
    found = taken(asked(tiny_folder(tmp_path, family)))
    assert 0.0 < found.mean_kl_nats < 1.0


def test_packed_weights_are_compared_and_said_to_be_unpacked(folder):
    found = taken(asked(folder, "float32", "nf4"))
    assert found.other.unpacks
    assert "nf4" in found.other.words
    assert not found.reference.unpacks
    assert found.mean_kl_nats > 0.0
