"""Frames follow tokens: while a model writes a frame begins right after one, and rests in between."""

from __future__ import annotations

import pytest

from tests.widgets import events_factory as make
from widgets.run_store import DECODE_FRAME_MS, FRAME_MS, RunStore


class Clock:
    """Stands in for Qt's elapsed timers: as much has passed as the test says."""

    def __init__(self) -> None:
        self.passed: int | None = None

    def isValid(self) -> bool:
        return self.passed is not None

    def start(self) -> None:
        self.passed = 0

    def elapsed(self) -> int:
        assert self.passed is not None
        return self.passed

    def restart(self) -> int:
        passed, self.passed = self.elapsed(), 0
        return passed


@pytest.fixture
def store(qapp):
    store = RunStore()
    store._since_frame, store._since_token = Clock(), Clock()
    return store


def wait_ms(store: RunStore) -> int:
    """How long the next frame was told to wait; it then goes out."""
    assert store._timer.isActive()
    found = store._timer.interval()
    store._timer.stop()
    store._tell()
    return found


def test_the_first_change_is_told_at_once_and_the_next_a_frame_later(store):
    store.mark()
    assert wait_ms(store) == 0
    store._since_frame.passed = 5
    store.mark()
    assert wait_ms(store) == FRAME_MS - 5
    store._since_frame.passed = 500
    store.mark()
    assert wait_ms(store) == 0


@pytest.mark.parametrize(("token_ms", "told_at"), [(20, [60]), (33, [33]), (100, [100]), (5, [65])])
def test_while_a_model_writes_frames_begin_with_a_token(store, token_ms, told_at):
    first, *others = make.tokens([" a"] * 40)
    store.take(make.start())
    store.take(first)
    store._since_frame.start()
    store._timer.stop()
    found, passed = [], 0
    for token in others:
        passed += token_ms
        store._since_frame.passed, store._since_token.passed = passed, token_ms
        store.take(token)
        if store._timer.interval() == 0:
            store._timer.stop()
            found.append(passed)
            break
        assert store._timer.isActive()  # were it the last one, it would be told all the same
        assert store._timer.interval() <= DECODE_FRAME_MS - token_ms
    assert found == told_at
