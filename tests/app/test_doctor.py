"""`doctor`: each finding says what is wrong and the way out; 0 unless no model can run."""

from __future__ import annotations

import json

import psutil
import pytest

from app.__main__ import main
from engine import machine
from engine.machine import can_run, examine


@pytest.fixture
def idle(monkeypatch):
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: 1.0)
    monkeypatch.setattr(psutil, "getloadavg", lambda: (0.1, 0.1, 0.1))


def found(about: str):
    return next(finding for finding in examine() if finding.about == about)


def test_json_tells_of_this_machine(idle, capsys):
    assert main(["doctor", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["can_run"] is True
    about = {finding["about"] for finding in told["findings"]}
    assert {"processor", "memory", "torch", "transformers", "PySide6-Essentials", "default model", "load"} <= about
    assert all(finding["fix"] for finding in told["findings"] if finding["level"] in ("problem", "stop"))


def test_the_text_names_the_log(idle, capsys):
    assert main(["doctor"]) == 0
    assert "The log is" in capsys.readouterr().out


def test_a_busy_machine_is_a_finding(idle, monkeypatch):
    assert found("load").level == "fine"
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: 90.0)
    assert found("load").level == "problem"


@pytest.mark.parametrize("version", ["6.11.0", "6.11.1", "6.12.0"])
def test_a_pyside_that_breaks_signals_is_flagged(idle, monkeypatch, version):
    real = machine.version_of
    monkeypatch.setattr(machine, "version_of", lambda name: version if name.startswith("PySide6") else real(name))
    finding = found("PySide6-Essentials")
    assert (finding.level, version in finding.what) == ("problem", True)


def test_without_torch_no_model_can_run_and_the_exit_code_says_so(idle, monkeypatch, capsys):
    real = machine.version_of
    monkeypatch.setattr(machine, "version_of", lambda name: "" if name == "torch" else real(name))
    assert not can_run(examine())
    assert main(["doctor"]) == 3


def test_a_missing_default_model_names_the_command(idle, monkeypatch, tmp_path):
    monkeypatch.setattr("engine.default_model.default_model_path", lambda: tmp_path / "none")
    assert "make setup" in found("default model").fix
