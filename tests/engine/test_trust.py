"""What could run is shown first, and nothing runs by being shown (LOD-3, LOD-4)."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from engine.control import Control
from engine.errors import CannotLoad
from engine.loading import load
from engine.settings import LoadPlan
from engine.trust import NeedsAnswer, code_question, pickle_names, pickle_needed
from tests.tiny_models import pickled_folder, tiny_folder

pytestmark = pytest.mark.usefixtures("nobody_answers")

CODE = """\
from pathlib import Path

from transformers import LlamaConfig, LlamaForCausalLM

Path(__file__).with_name("ran").touch()
Path({mark!r}).touch()


class OwnConfig(LlamaConfig):
    model_type = "own"


class OwnForCausalLM(LlamaForCausalLM):
    config_class = OwnConfig
"""


class Runs:
    """A pickle that would make a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.fixture
def mark(tmp_path):
    return tmp_path / "the code ran"


@pytest.fixture
def own(tmp_path, mark):
    """A folder whose family only its own Python file knows."""
    folder = tiny_folder(tmp_path / "own 模型")
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "model_type": "own",
        "architectures": ["OwnForCausalLM"],
        "auto_map": {"AutoConfig": "modeling_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnForCausalLM"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "modeling_own.py").write_text(CODE.format(mark=str(mark)))
    return folder


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Where transformers copies a model's code before it imports it."""
    from transformers import dynamic_module_utils

    place = tmp_path / "modules"
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(place))
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in [name for name in sys.modules if name.startswith("transformers_modules")]:
        del sys.modules[name]


def asked(plan: LoadPlan) -> NeedsAnswer:
    with pytest.raises(NeedsAnswer) as caught:
        load(plan, lambda event: None, Control())
    return caught.value


def test_code_is_shown_with_size_hash_and_what_begins_in_it_and_does_not_run(own, mark):
    (own / "parts").mkdir()
    (own / "parts" / "helper.py").write_text("raise SystemExit  # 注释\n", encoding="utf-8")
    error = asked(LoadPlan(str(own)))
    assert "modeling_own.py" in error.what
    assert "--trust-remote-code" in error.fix
    files = {file.name: file for file in error.question.files}
    assert set(files) == {"modeling_own.py", "parts/helper.py"}
    data = (own / "modeling_own.py").read_bytes()
    main = files["modeling_own.py"]
    assert (main.bytes, main.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert main.named_by == ("AutoConfig → OwnConfig", "AutoModelForCausalLM → OwnForCausalLM")
    assert main.text == data.decode()
    assert files["parts/helper.py"].named_by == ()
    assert "注释" in files["parts/helper.py"].text
    assert not mark.exists()


def test_allowed_code_runs_and_its_note_says_so(own, mark, modules):
    question = code_question(own)
    plan = LoadPlan(str(own), trust_remote_code=True, code_digest=question.digest)
    session = load(plan, lambda event: None, Control())
    assert mark.exists()
    assert type(session.model).__name__ == "OwnForCausalLM"
    assert any("it runs, as you allowed" in note for note in session.facts.notes)
    session.close()


@pytest.mark.parametrize("change", ["text", "another file", "auto_map"])
def test_a_yes_holds_only_for_the_files_that_were_read(own, mark, change):
    digest = code_question(own).digest
    if change == "text":
        (own / "modeling_own.py").write_text((own / "modeling_own.py").read_text() + "\n# and more\n")
    elif change == "another file":
        (own / "other.py").write_text("")
    else:
        config = json.loads((own / "config.json").read_text())
        config["auto_map"]["AutoModel"] = "modeling_own.OwnForCausalLM"
        (own / "config.json").write_text(json.dumps(config))
    error = asked(LoadPlan(str(own), trust_remote_code=True, code_digest=digest))
    assert "changed since" in error.what
    assert error.question.digest != digest
    assert not mark.exists()


def test_code_of_another_repository_and_code_that_is_missing_are_told(own):
    config = json.loads((own / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "somebody/other--conf.Config", "AutoModelForCausalLM": "gone.Model"}
    (own / "config.json").write_text(json.dumps(config))
    assert code_question(own).elsewhere == (
        "AutoConfig: conf.Config of somebody/other",
        "AutoModelForCausalLM → Model: gone.py, which is not in the folder",
    )


def test_code_beside_a_family_that_is_known_is_not_used_and_said(tmp_path, mark):
    folder = tiny_folder(tmp_path / "known")
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "modeling_own.py").write_text(CODE.format(mark=str(mark)))
    session = load(LoadPlan(str(folder)), lambda event: None, Control())
    assert any("modeling_own.py" in note and "is not used" in note for note in session.facts.notes)
    assert type(session.model).__name__ == "LlamaForCausalLM"
    assert not mark.exists()
    session.close()


def test_a_tokenizer_with_code_of_its_own_is_asked_about_too(tmp_path, mark):
    folder = tiny_folder(tmp_path / "own tokenizer")
    (folder / "tokenizer.json").unlink()
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings |= {
        "tokenizer_class": "OwnTokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_own.OwnTokenizer", None]},
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "tokenization_own.py").write_text(CODE.format(mark=str(mark)))
    question = asked(LoadPlan(str(folder))).question
    assert question.files[0].named_by == ("AutoTokenizer → OwnTokenizer",)
    assert not mark.exists()


# ---------------------------------------------------------------- pickles


@pytest.fixture
def pickled(tmp_path):
    return pickled_folder(tmp_path / "pickled")


def test_a_pickle_is_a_question_with_its_files_and_loads_after_a_yes(pickled):
    error = asked(LoadPlan(str(pickled)))
    assert error.question.kind == "pickle"
    (file,) = error.question.files
    assert file.name == "pytorch_model.bin"
    assert file.bytes == (pickled / "pytorch_model.bin").stat().st_size
    assert "torch._utils._rebuild_tensor_v2" in file.text.splitlines()
    assert "--allow-pickle" in error.fix
    session = load(LoadPlan(str(pickled), allow_pickle=True), lambda event: None, Control())
    assert any("weights_only" in note for note in session.facts.notes)
    session.close()


@pytest.mark.parametrize("kind", ["zip", "older"])
def test_what_a_pickle_would_call_is_listed_first_and_not_called(tmp_path, kind):
    import torch

    made = tmp_path / "made"
    file = tmp_path / "pytorch_model.bin"
    torch.save({"a": torch.ones(3), "b": Runs(made)}, file, _use_new_zipfile_serialization=kind == "zip")
    names, whole = pickle_names(file)
    assert names[0] == f"{os.mkdir.__module__}.mkdir"
    assert whole
    question = pickle_needed((file,)).question
    assert question.files[0].text.splitlines()[0] == names[0]
    assert not made.exists()


def test_a_pickle_that_would_run_a_program_is_refused_even_after_a_yes(pickled, tmp_path):
    import torch

    made = tmp_path / "made"
    torch.save({"a": torch.ones(3), "b": Runs(made)}, pickled / "pytorch_model.bin")
    with pytest.raises(CannotLoad):
        load(replace(LoadPlan(str(pickled)), allow_pickle=True), lambda event: None, Control())
    assert not made.exists()


@pytest.mark.parametrize("data", [b"", b"\x80\x02", b"not a pickle at all", b"\x80\x04\x95" + b"\xff" * 40])
def test_a_broken_pickle_cannot_be_looked_through(tmp_path, data):
    file = tmp_path / "pytorch_model.bin"
    file.write_bytes(data)
    assert pickle_names(file) == ((), False)
