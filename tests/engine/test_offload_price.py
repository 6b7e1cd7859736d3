"""The price of offload is measured with the loaded model, can be broken off, and is refused where it cannot be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.answers import answer
from engine.control import Control
from engine.errors import Cancelled, CannotLoad
from engine.events import OffloadPrice, OffloadRow
from engine.loading import load
from engine.settings import LoadPlan, OffloadQuestion
from tests.tiny_models import tiny_folder


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    folder = tiny_folder(tmp_path_factory.mktemp("tiny"), num_hidden_layers=8)
    made = load(LoadPlan(str(folder), "float32", device_map="cpu"), lambda event: None, Control())
    yield made
    made.close()


def test_nothing_moved_a_quarter_and_half_of_the_layers_are_timed(session):
    price = answer(OffloadQuestion(steps=3), session, Control())
    assert [(row.place, row.layers) for row in price.rows] == [("", 0), ("disk", 2), ("disk", 4)]
    layer = next(part for part in session.facts.places if part.layer == 3).weights_bytes
    assert [row.moved_bytes for row in price.rows] == [0, 2 * layer, 4 * layer]
    for row in price.rows:
        assert 0 < row.low_ms <= row.step_ms <= row.high_ms
    assert (price.steps, price.device, price.precision) == (3, "cpu", "float32")
    assert session.model is not None  # the loaded model stays


def test_it_can_be_broken_off(session):
    control = Control()
    control.cancel()
    with pytest.raises(Cancelled):
        answer(OffloadQuestion(), session, control)


def test_without_a_model_with_too_few_layers_or_without_memory_it_is_a_sentence(session, monkeypatch):
    with pytest.raises(CannotLoad, match="No model is loaded"):
        answer(OffloadQuestion(), None, Control())
    sizes = replace(session.facts.sizes, parts=session.facts.sizes.parts[:3])
    few = replace(session, facts=replace(session.facts, sizes=sizes))
    with pytest.raises(CannotLoad, match="too few"):
        answer(OffloadQuestion(), few, Control())
    large = replace(session.facts.sizes, buffer_bytes=2**60)
    with pytest.raises(CannotLoad, match="once more"):
        answer(OffloadQuestion(), replace(session, facts=replace(session.facts, sizes=large)), Control())


def test_the_price_per_gb_comes_from_runs_that_differ_in_nothing_else():
    def rows(*figures):
        return tuple(OffloadRow("disk" if moved else "", 0, moved, ms, ms, ms) for moved, ms in figures)

    price = OffloadPrice("m", "bfloat16", "cpu", 8, rows((0, 20), (10**9, 150), (3 * 10**9, 250)))
    assert price.ms_per_gb("disk") == 50  # 100 ms for 2 GB more; the first step also pays for another forward
    assert price.extra_ms(price.rows[1]) == 130
    assert price.ms_per_gb("cpu") is None
    noise = OffloadPrice("m", "bfloat16", "cpu", 8, rows((0, 20), (10**9, 150), (3 * 10**9, 149)))
    assert noise.ms_per_gb("disk") is None
