"""Bias and bans on the command line: `--lane bias=12:5+15:-3,ban=12+7-8-9`."""

from __future__ import annotations

import pytest

from app.commands.arguments import lane_from
from engine.errors import SettingsRefused


def test_a_lane_names_bias_and_bans() -> None:
    lane = lane_from("bias=12:5+15:-3+7:+2.5,ban=12+15+7-8-9,temperature=0.5", seed=3)
    assert lane.logit_bias == ((7, 2.5), (12, 5.0), (15, -3.0))
    assert (lane.banned, lane.banned_sequences) == ((12, 15), ((7, 8, 9),))
    assert (lane.temperature, lane.seed) == (0.5, 3)
    assert lane_from("bias=3:1e+1", None).logit_bias == ((3, 10.0),)


@pytest.mark.parametrize(
    "wrong",
    [
        "bias=12", "bias=12:", "bias=x:1", "bias=1:101", "bias=1:nan", "ban=", "ban=x", "ban=-1", "ban=1+",
        "bias=1:1,bias=2:2",
    ],
)  # fmt: skip
def test_a_bias_or_ban_that_cannot_be_read_is_refused(wrong: str) -> None:
    with pytest.raises(SettingsRefused) as refused:
        lane_from(wrong, None)
    assert refused.value.fix
