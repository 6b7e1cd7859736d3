"""What was allocated is found and may lie in large pages; its numbers stay."""

from __future__ import annotations

import mmap
import sys

import pytest
import torch

from engine.errors import Cancelled
from engine.large_pages import allocated, enlarge, newly


def test_what_is_new_is_what_was_not_there_before():
    before = [(10, 20), (30, 40), (90, 95)]
    assert newly(before, [(10, 20), (30, 40)]) == []
    assert newly(before, [(5, 50), (60, 70)]) == [(5, 10), (20, 30), (40, 50), (60, 70)]
    assert newly(before, [(15, 35)]) == [(20, 30)]
    assert newly([], [(1, 2)]) == [(1, 2)]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells where memory lies")
def test_a_tensor_s_numbers_stay_as_they_are_and_a_stop_is_heard():
    # A mapping of its own: what the C library hands out may be a hole of its heap, which is no new memory.
    memory = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    tensor = torch.frombuffer(memory, dtype=torch.int32)
    tensor.copy_(torch.arange(len(tensor)))
    begin = tensor.data_ptr()
    assert any(first <= begin < last for first, last in allocated())
    # All but the tensor was there before: what another thread allocates meanwhile cannot disturb.
    before = newly([(begin, begin + tensor.nbytes)], allocated())
    expected = tensor.clone()
    told: list[int] = []
    done = enlarge(before, told.append)
    assert (tensor == expected).all()
    assert told
    assert done == told[-1]
    assert done >= 4 << 20

    def stop(done: int) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        enlarge(before, stop)
    assert (tensor == expected).all()


def test_where_no_system_tells_nothing_happens(monkeypatch):
    monkeypatch.setattr("engine.large_pages.c_library", lambda name: None)
    assert enlarge([]) == 0
