"""What is banned or biased stays the tokens of the model that it was said of: presets, replays, another start."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.preferences import Preferences
from app.remembering import remember
from engine.presets import read_presets
from engine.settings import SamplingSettings

SETTINGS = {"temperature": 0.9, "seed": 5}


def typed(window, until, word):
    panel = window.sampling_panel
    panel.more_button.setChecked(True)
    panel.constraints.line.setText(word)
    QTest.keyClick(panel.constraints.line, Qt.Key.Key_Return)
    until(lambda: panel.settings().names_tokens)


def with_other(make_window, until, shifted, **changes):
    window = make_window(**({"model": str(shifted)} | changes))
    window.start()
    until(lambda: window.store.facts is not None and not window.engine.busy)
    return window


def test_a_preset_goes_to_another_model_by_its_texts(loaded, make_window, until, shifted, tmp_path):
    window = loaded(sampling=SETTINGS)
    typed(window, until, "a")
    banned = window.sampling_panel.settings().banned
    assert len(banned) == 1
    window.presets.save("no a", False)
    (preset,) = window.presets.own
    assert preset.tokens.model == "tiny-llama"
    assert (banned[0], "a") in preset.tokens.texts
    file = tmp_path / "mine.json"
    assert window.presets.write_to(file)
    (read,) = read_presets(file.read_text("utf-8")).presets
    assert (read.settings.banned, read.tokens) == (preset.settings.banned, preset.tokens)
    other = with_other(make_window, until, shifted)
    assert other.presets.take_file(file)
    other.sampling_panel.choose_preset(other.presets.own[0])
    assert other.sampling_panel.settings().banned == ()
    until(lambda: other.sampling_panel.settings().banned)
    (there,) = other.sampling_panel.settings().banned
    assert there != banned[0]
    until(lambda: other.sampling_panel.constraints._labels.get(there) == "a")
    assert (
        other.sampling_panel.left_out_note.text() == "2 tokens of tiny-llama are taken over by their text."
    )  # a, space


def test_as_written_of_a_replay_of_another_model_keeps_its_tokens_to_the_text(
    loaded, make_window, until, shifted, tmp_path
):
    window = loaded(str(tmp_path), sampling=SETTINGS)
    typed(window, until, "ab")
    window.sampling_panel.lock_button.setChecked(True)
    window.running.start_run()
    until(lambda: window.store.runs and not window.engine.busy)
    written = window.store.current.tokens[-1].settings
    assert written.names_tokens
    (path,) = tmp_path.glob("*.jsonl")
    other = with_other(make_window, until, shifted)
    other.replays.open_file(path)
    other.sampling_panel.take_settings(SamplingSettings(temperature=0.2, seed=5))
    until(lambda: other.text_view.canvas.redecided is not None)
    other.redecisions.back()
    assert other.sampling_panel.settings() == written.without_tokens
    assert "those of tiny-llama, and tiny-shifted is loaded" in other.sampling_panel.left_out_note.text()
    other.redecisions.work()
    assert other.text_view.canvas.redecided is None  # it is as it was written, its bans are its own


def test_what_was_banned_when_the_window_closed_is_not_another_models_at_the_next_start(
    loaded, make_window, until, shifted, monkeypatch
):
    window = loaded(sampling=SETTINGS)
    window.sampling_panel.take_settings(SamplingSettings(banned=(70, 71)))
    until(lambda: len(window.sampling_panel.constraints.texts()) == 2)
    kept: list[Preferences] = []
    monkeypatch.setattr("app.remembering.write_preferences", kept.append)
    remember(window)
    said = kept[0]
    assert said.sampling_tokens["model"] == "tiny-llama"
    again = with_other(make_window, until, shifted, sampling=said.sampling, sampling_tokens=said.sampling_tokens)
    until(lambda: again.sampling_panel.settings().names_tokens)
    (one, two) = again.sampling_panel.settings().banned
    assert {one, two} != {70, 71}
    same = loaded(sampling=said.sampling, sampling_tokens=said.sampling_tokens)
    assert same.sampling_panel.settings().banned == (70, 71)


@pytest.mark.parametrize("name", ["luck", "blind"])
def test_settings_copied_onto_a_page_remember_whose_tokens_they_name(loaded, make_window, until, shifted, name):
    window = loaded(sampling=SETTINGS)
    window.sampling_panel.take_settings(SamplingSettings(banned=(70, 71), seed=5))
    window.laboratory.show("lanes")  # its lanes begin with the sliders' settings
    window.laboratory.show(name)
    page = window.laboratory.page(name)
    cards = page.list if name == "luck" else page.setup.list
    cards.take([cards.sources[0], replace(cards.sources[2], name="")])
    assert [card.settings.banned for card in cards.cards()] == [(70, 71), (70, 71)]
    until(lambda: all(card.tokens is not None and len(card.tokens.texts) == 2 for card in cards.cards()))
    window.experiments.close()
    kept = json.loads(json.dumps(getattr(window.preferences, f"{name}_form")))
    other = with_other(make_window, until, shifted, **{f"{name}_form": kept})
    other.laboratory.show(name)
    page = other.laboratory.page(name)
    cards = page.list if name == "luck" else page.setup.list
    until(lambda: all(settings.names_tokens for settings in cards.settings()))
    assert [settings.banned for settings in cards.settings()] == [(69, 70), (69, 70)]  # one number lower there
    until(lambda: cards.note.text() == "A, B: 2 tokens of tiny-llama are taken over by their text.")
    same = loaded(**{f"{name}_form": kept})
    same.laboratory.show(name)
    page = same.laboratory.page(name)
    cards = page.list if name == "luck" else page.setup.list
    assert [settings.banned for settings in cards.settings()] == [(70, 71), (70, 71)]
    assert cards.note.text() == ""


def test_a_blind_test_that_begins_with_the_lanes_knows_whose_tokens_those_name(loaded, make_window, until, shifted):
    lanes = [{"name": "", "settings": {"banned": [70], "seed": n}, "prompt": None, "system": None} for n in (1, 2)]
    lanes = [lane | {"tokens": {"model": "tiny-llama", "vocab_size": 1}} for lane in lanes]
    kept = {"lanes": lanes, "reference": 0, "lockstep": True, "max_new_tokens": 8}
    other = with_other(make_window, until, shifted, lanes=kept)
    other.laboratory.show("blind")
    cards = other.laboratory.page("blind").setup.list
    assert [card.tokens.model for card in cards.cards()] == ["tiny-llama"] * 2
    assert [settings.banned for settings in cards.settings()] == [(), ()]
