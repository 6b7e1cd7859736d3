"""A load that fails or is stopped before weights are read leaves the loaded model; the rest is asked in a dialog."""

from __future__ import annotations

import json

import pytest
import torch
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog

from app.trust import allowed
from engine.events import Answered, EngineError, Outline, OutlineQuestion, Unloaded
from engine.settings import LoadPlan
from engine.trust import code_question
from tests.app.test_window import Listener
from tests.engine.test_trust import CODE
from tests.tiny_models import pickled_folder, tiny_folder

# Models are made before a window loads: building one sets torch's default number type for the whole process a while.


def broken_config(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 9}))


def foreign_tokenizer(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 100}))


def truncated_file(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


@pytest.mark.parametrize("fault", [broken_config, foreign_tokenizer, truncated_file])
def test_what_is_found_before_weights_are_read_leaves_the_loaded_model(loaded, until, tmp_path, fault):
    other = tiny_folder(tmp_path / "other")
    fault(other)
    window = loaded()
    session, facts = window.engine.worker.session, window.store.facts
    ear = Listener(window)
    window.load(LoadPlan(str(other)))
    until(lambda: ear.heard(EngineError) and not window.engine.busy)
    assert not ear.heard(Unloaded)
    assert window.engine.worker.session is session
    assert window.store.facts is facts
    window.running.start_run()
    until(lambda: window.store.current is not None and not window.engine.busy)
    assert window.store.current.end.reason in ("length", "eos")


def test_a_device_that_is_not_there_leaves_the_loaded_model(loaded, until, folder):
    window = loaded()
    session = window.engine.worker.session
    ear = Listener(window)
    window.load(LoadPlan(str(folder), device_map="cuda:9"))
    until(lambda: ear.heard(EngineError) and not window.engine.busy)
    assert window.engine.worker.session is session


def test_what_is_found_only_in_the_numbers_comes_after_the_older_model_went(loaded, until, tmp_path):
    from safetensors.torch import load_file, save_file

    other = tiny_folder(tmp_path / "zeros")
    tensors = load_file(other / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"] = torch.zeros(128, 64)
    save_file(tensors, other / "model.safetensors", metadata={"format": "pt"})
    window = loaded()
    ear = Listener(window)
    window.load(LoadPlan(str(other)))
    until(lambda: ear.heard(EngineError) and not window.engine.busy)
    assert [type(event) for event in ear.events if isinstance(event, Outline | Unloaded | EngineError)] == [
        Outline,
        Unloaded,
        EngineError,
    ]
    assert window.store.facts is None
    assert window.engine.worker.session is None


def test_another_model_takes_the_place_of_the_loaded_one(loaded, until, tmp_path):
    other = tiny_folder(tmp_path / "模型", "gpt2")
    window = loaded()
    window.load(LoadPlan(str(other)))
    until(lambda: window.store.facts is not None and window.store.facts.family == "gpt2" and not window.engine.busy)
    assert window.store.facts.model_path == str(other)
    assert set(window.store.load_stages) == {"blueprint", "skeleton", "weights", "placement", "kernels"}
    assert window.store.inside.outlines[str(other)].family == "gpt2"


def test_a_stop_before_weights_are_read_leaves_the_loaded_model(loaded, until, tmp_path, monkeypatch):
    """LOD-11: the state is as before."""
    import engine.loading

    other = tiny_folder(tmp_path / "other")
    window = loaded()
    session = window.engine.worker.session
    place = engine.loading.place

    def stop_here(*arguments):
        window.engine.stop()
        return place(*arguments)

    monkeypatch.setattr(engine.loading, "place", stop_here)
    ear = Listener(window)
    window.load(LoadPlan(str(other)))
    until(lambda: not window.engine.busy)
    assert not ear.heard(Unloaded)
    assert not ear.heard(EngineError)
    assert window.engine.worker.session is session
    assert window.store.facts is session.facts
    assert window.store.activity == "idle"


def test_room_is_made_before_the_placement_counts(loaded, until, folder, monkeypatch):
    """The planner must not take the older model's memory for occupied."""
    import engine.loading

    window = loaded()
    place, seen = engine.loading.place, []

    def noted(*arguments):
        seen.append(window.engine.worker.session is not None)
        return place(*arguments)

    monkeypatch.setattr(engine.loading, "place", noted)
    window.load(LoadPlan(str(folder), "bfloat16"))
    until(lambda: len(seen) == 2 and window.store.facts is not None and not window.engine.busy)
    assert seen == [True, False]


# ---------------------------------------------------------------- views' questions


def test_a_question_is_answered_in_the_engines_thread_and_reaches_the_page(loaded, until, folder):
    window = loaded()
    window.show_box("weights")
    page = window.box_view.page("weights")
    until(lambda: page.body.isVisible())
    page.search.setText("embed_tokens")
    page.table.selectRow(0)
    page.ask_numbers()
    until(lambda: page.histogram.isVisible())
    figures = dict(page.histogram.rows())
    weights = window.engine.worker.session.model.model.embed_tokens.weight
    assert figures["zeros"] == str(int((weights == 0).sum()))
    assert float(figures["max"]) == pytest.approx(weights.max().item(), rel=1e-3)


def test_a_choice_is_shown_before_it_is_loaded(loaded, until, tmp_path):
    other = tiny_folder(tmp_path / "模型 二", "mixtral")
    window = loaded()
    window.show_box("skeleton")
    page = window.box_view.page("skeleton")
    until(lambda: window.store.inside.chosen is not None)
    window.model_panel.choose(str(other))
    until(lambda: page.subject_bar.name.text() == "模型 二" and page.body.isVisible())
    assert page.subject_bar.state.text() == "chosen, not loaded"
    assert page.tree.topLevelItem(0).text(0) == "MixtralForCausalLM"
    assert window.store.facts.family == "llama"


def test_a_question_never_holds_up_a_load(make_window, until, folder, monkeypatch):
    import threading

    import engine.answers
    from engine.errors import Cancelled

    entered = threading.Event()

    def slow(question, session, control, *_):
        entered.set()
        while not control.cancelled():
            threading.Event().wait(0.001)
        raise Cancelled

    monkeypatch.setattr(engine.answers, "answer", slow)
    window = make_window()
    ear = Listener(window)
    window.engine.ask("a question")
    window.engine.ask("another, which waits")
    until(entered.is_set)
    window.load(LoadPlan(str(folder)))
    until(lambda: window.store.facts is not None and not window.engine.busy)
    assert [(event.question, event.answer) for event in ear.heard(Answered)] == [
        ("a question", None),
        ("another, which waits", None),
    ]


def test_an_answer_that_fails_is_an_error_and_no_crash(make_window, until):
    window = make_window()
    ear = Listener(window)
    window.engine.ask(OutlineQuestion("no/such-model"))
    window.engine.ask("nobody knows this")
    until(lambda: len(ear.heard(Answered)) == 2)
    first, second = (event.answer for event in ear.heard(Answered))
    assert "is not on this computer" in first.what
    assert isinstance(second, EngineError)
    assert window.store.error is None  # no banner, no failed load: the page says it


# ---------------------------------------------------------------- what a person must allow


@pytest.fixture
def pickled(tmp_path):
    return pickled_folder(tmp_path / "pickled")


def test_a_pickle_is_asked_about_and_loads_after_a_yes(loaded, until, click, pickled):
    window = loaded()
    before = window.store.facts
    window.load(LoadPlan(str(pickled), "bfloat16"))
    until(lambda: window.trust.dialog is not None)
    dialog = window.trust.dialog
    assert dialog.isVisible()
    assert dialog.files.item(0, 0).text() == "pytorch_model.bin"
    assert "torch._utils._rebuild_tensor_v2" in dialog.viewer.toPlainText()
    assert window.store.facts is before
    until(lambda: not window.engine.busy)
    click(dialog.yes)
    until(lambda: window.store.facts is not None and window.store.facts.model_path == str(pickled))
    assert window.store.facts.precision == "bfloat16"
    assert window.preferences.trusted_code == []
    until(lambda: not window.engine.busy)


def test_a_head_that_is_not_there_can_be_tied(loaded, until, click, tmp_path):
    """LOD-25."""
    from safetensors.torch import load_file, save_file

    folder = tiny_folder(tmp_path / "headless", tie_word_embeddings=False)
    tensors = load_file(folder / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    window = loaded()
    session = window.engine.worker.session
    window.load(LoadPlan(str(folder)))
    until(lambda: window.trust.dialog is not None and not window.engine.busy)
    assert window.engine.worker.session is session
    until(lambda: "lm_head.weight is not in the files" in window.model_panel.error.text())  # with the next frame
    assert not window.trust.dialog.files.isVisible()
    click(window.trust.dialog.yes)
    until(lambda: window.store.facts is not None and window.store.facts.model_path == str(folder))
    until(lambda: not window.engine.busy)
    model = window.engine.worker.session.model
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_enter_and_escape_never_allow(loaded, until, qtbot, pickled):
    window = loaded()
    before = window.store.facts
    for key in (Qt.Key.Key_Return, Qt.Key.Key_Escape):
        window.load(LoadPlan(str(pickled)))
        until(lambda: window.trust.dialog is not None and not window.engine.busy)
        dialog = window.trust.dialog
        with qtbot.waitSignal(dialog.finished) as end:
            qtbot.keyClick(dialog, key)
        assert end.args == [QDialog.DialogCode.Rejected]
        assert window.trust.dialog is None
        assert window.store.facts is before
        until(lambda: "pickle" in window.model_panel.error.text())  # once: the banner does not say it too
        assert not window.banner.isVisible()


def test_a_models_code_is_shown_and_a_yes_is_remembered_for_these_files_only(loaded, until, click, tmp_path):
    folder = tiny_folder(tmp_path / "own")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "modeling_own.py").write_text(CODE.format(mark=str(tmp_path / "mark")))
    window = loaded()
    window.load(LoadPlan(str(folder)))
    until(lambda: window.trust.dialog is not None and not window.engine.busy)
    dialog = window.trust.dialog
    assert dialog.files.item(0, 2).text() == "AutoModelForCausalLM → OwnForCausalLM"
    assert dialog.viewer.toPlainText() == (folder / "modeling_own.py").read_text()
    assert dialog.question.files[0].sha256 in dialog.hash.text()
    plans = []
    window.load = plans.append  # what would be loaded; the code itself is run by the engine's tests
    click(dialog.yes)
    until(lambda: plans)
    digest = code_question(folder).digest
    assert plans == [LoadPlan(str(folder), trust_remote_code=True, code_digest=digest)]
    assert plans == [allowed(dialog.question)]
    assert window.preferences.trusted_code == [digest]
    assert not (tmp_path / "mark").exists()

    window.engine.load(LoadPlan(str(folder)))  # again: nobody is asked
    until(lambda: len(plans) == 2 and not window.engine.busy)
    assert plans[1] == plans[0]
    assert window.trust.dialog is None

    (folder / "modeling_own.py").write_text("# another one\n")
    window.engine.load(LoadPlan(str(folder)))
    until(lambda: window.trust.dialog is not None and not window.engine.busy)
    assert len(plans) == 2
    window.trust.dialog.reject()
