"""What bench says of sliders on finished text is counted over every word of every run and value."""

from __future__ import annotations

from engine.control import Control
from engine.loading import load
from engine.measure_sliders import MOVED, WITH_TYPICAL, WRITTEN, positions_ms, undecided
from engine.settings import LoadPlan
from tests.tiny_models import tiny_folder


def test_every_word_is_asked_about_and_a_small_vocabulary_is_decided(tmp_path):
    folder = tiny_folder(tmp_path, "llama")
    session = load(LoadPlan(str(folder), "float32", device_map="cpu"), lambda event: None, Control())
    try:
        found = undecided(session, 12)
    finally:
        session.close()
    assert [row.moved for row in found] == list(MOVED)
    for row in found:
        assert row.words == 12 * len(WRITTEN) * len(MOVED[row.moved])
        assert 0 <= row.undecided <= row.words // 4
        assert row.ms > 0.0


def test_each_move_is_timed_but_for_its_first_position(default_session) -> None:
    found = positions_ms(default_session, 12)
    assert set(found) == {*MOVED, *WITH_TYPICAL}
    assert {name: len(times) for name, times in found.items()} == {
        name: 2 * len(changes) - 1 for name, changes in (MOVED | WITH_TYPICAL).items()
    }
    assert all(ms > 0.0 for times in found.values() for ms in times)
