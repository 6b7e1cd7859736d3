"""The ceiling of decode: how fast memory is read, and how much of it a token needs."""

from __future__ import annotations

import torch

from engine.bandwidth import bytes_read_per_token, read_bandwidth
from tests.tiny_models import tiny_model


def test_the_bandwidth_is_measured_once_for_a_device_and_its_threads():
    first = read_bandwidth(tiny_model("llama"))
    assert first > 0
    assert read_bandwidth(tiny_model("qwen2")) == first


def test_an_untied_embedding_is_read_by_one_row_and_a_tied_one_as_the_head():
    for tied in (True, False):
        model = tiny_model("llama", tie_word_embeddings=tied)
        weights = sum(p.numel() * p.element_size() for p in model.parameters())
        unread = 0 if tied else 300 * 64 * 4
        assert bytes_read_per_token(model, weights) == weights - unread


def test_weights_that_are_not_there_have_no_bandwidth():
    with torch.device("meta"):
        assert read_bandwidth(torch.nn.Linear(4, 4)) == 0.0
