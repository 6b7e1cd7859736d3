"""The ceiling of decode is measured over the model's own weights."""

from __future__ import annotations

import pytest
import torch

from engine.bandwidth import bytes_read_per_token, read_bandwidth
from tests.tiny_models import tiny_model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_weight_is_read(dtype):
    assert read_bandwidth(tiny_model("llama").to(dtype)) > 0


def test_an_untied_embedding_is_read_by_one_row_and_a_tied_one_as_the_head():
    for tied in (True, False):
        model = tiny_model("llama", tie_word_embeddings=tied)
        weights = sum(p.numel() * p.element_size() for p in model.parameters())
        unread = 0 if tied else 300 * 64 * 4
        assert bytes_read_per_token(model, weights) == weights - unread


def test_weights_that_are_not_there_have_no_bandwidth():
    with torch.device("meta"):
        assert read_bandwidth(torch.nn.Linear(4, 4)) == 0.0
