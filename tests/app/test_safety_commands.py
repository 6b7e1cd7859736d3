"""What could run is refused on the command line until its switch is given; nobody is asked."""

from __future__ import annotations

import json

import pytest

from app.__main__ import main
from tests.engine.test_trust import CODE
from tests.tiny_models import pickled_folder, tiny_folder

pytestmark = pytest.mark.usefixtures("nobody_answers")


def record(folder, tmp_path, *more: str) -> int:
    return main(
        ["record", "--model", str(folder), "--prompt", "ab", "--raw", "--max-new-tokens", "2",
         "--out", str(tmp_path / "run.jsonl"), *more]
    )  # fmt: skip


def test_pickles_need_their_switch(tmp_path, capsys):
    folder = pickled_folder(tmp_path / "pickled")
    assert record(folder, tmp_path) == 3
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("error: The weights are pickle files (pytorch_model.bin)")
    assert "--allow-pickle" in said[1]
    assert not (tmp_path / "run.jsonl").exists()
    assert record(folder, tmp_path, "--allow-pickle") == 0
    assert (tmp_path / "run.jsonl").exists()


@pytest.mark.parametrize("command", ["record", "estimate"])
def test_a_models_own_code_needs_its_switch(command, tmp_path, capsys):
    folder = tiny_folder(tmp_path / "own")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "modeling_own.OwnConfig"}}
    (folder / "config.json").write_text(json.dumps(config))
    mark = tmp_path / "the code ran"
    (folder / "modeling_own.py").write_text(CODE.format(mark=str(mark)))
    code = record(folder, tmp_path) if command == "record" else main(["estimate", "--model", str(folder)])
    assert code == 3
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "error: This model needs program code that comes with it (modeling_own.py)."
    assert "--trust-remote-code" in said[1]
    assert not mark.exists()
    for name in ("record", "estimate"):
        assert main([name, "--help"]) == 0
        assert "--trust-remote-code" in capsys.readouterr().out
