"""The two commands' own work: what is missing is named, what is done is not done again."""

from __future__ import annotations

import ctypes.util
import subprocess
import sys
from pathlib import Path

import pytest

import make


def test_missing_libraries_are_named_with_the_package_that_brings_them():
    libraries = {"libEGL.so.1": "libegl1", "libGL.so.1": "libgl1"}
    assert make.missing_packages(libraries, lambda name: name == "libGL.so.1", fonts=False) == {
        "libEGL.so.1": "libegl1",
        "any font": "fonts-dejavu-core",
    }
    assert make.missing_packages(libraries, lambda name: True, fonts=True) == {}


def test_a_library_that_is_not_there_cannot_be_loaded():
    assert not make.can_load("libnobody-has-this.so.7")


@pytest.mark.skipif(not ctypes.util.find_library("c"), reason="no C library is found by name")
def test_a_library_that_is_there_can_be_loaded():
    assert make.can_load(ctypes.util.find_library("c"))


def test_who_is_not_root_is_given_the_command(monkeypatch):
    monkeypatch.setattr(make.shutil, "which", lambda name: "/usr/bin/" + name)
    monkeypatch.setattr(make.os, "geteuid", lambda: 1000, raising=False)
    monkeypatch.setattr(make.subprocess, "run", lambda *a, **k: pytest.fail("nothing may be installed"))
    with pytest.raises(make.Failed) as failed:
        make.install_packages({"libGL.so.1": "libgl1", "libEGL.so.1": "libegl1"}, "Two are missing.")
    assert failed.value.fix == "sudo apt-get install -y --no-install-recommends libegl1 libgl1"


def test_root_installs_without_questions(monkeypatch):
    calls = []

    def run(command, env, stdin, **options):
        calls.append((command, env["DEBIAN_FRONTEND"], stdin))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(make.shutil, "which", lambda name: "/usr/bin/" + name)
    monkeypatch.setattr(make.os, "geteuid", lambda: 0, raising=False)
    monkeypatch.setattr(make.subprocess, "run", run)
    make.install_packages({"libGL.so.1": "libgl1"}, "One is missing.")
    assert [command[:2] for command, _, _ in calls] == [["apt-get", "update"], ["apt-get", "install"]]
    assert {(frontend, stdin) for _, frontend, stdin in calls} == {("noninteractive", subprocess.DEVNULL)}
    assert "-y" in calls[1][0]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere there is always a display")
@pytest.mark.parametrize(
    ("environment", "answer"),
    [
        ({}, False),
        ({"QT_QPA_PLATFORM": "offscreen", "DISPLAY": ":0", "WAYLAND_DISPLAY": "wayland-0"}, False),
        ({"QT_QPA_PLATFORM": "offscreen:size=800x600"}, False),
        ({"WAYLAND_DISPLAY": "wayland-0"}, True),
        ({"QT_QPA_PLATFORM": "vnc"}, True),
        ({"DISPLAY": "127.0.0.1:6543"}, False),  # left over from another login: nobody answers there
    ],
)
def test_a_display_counts_only_where_somebody_can_look(monkeypatch, environment, answer):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert make.display_answers() is answer


@pytest.fixture
def venv(tmp_path, monkeypatch):
    """A stamped .venv that would be an error to touch."""
    for name in ("constraints.txt", "pyproject.toml"):
        (tmp_path / name).write_text(name)
    python = tmp_path / "python"
    python.touch()
    monkeypatch.setattr(make, "ROOT", tmp_path)
    monkeypatch.setattr(make, "VENV_PYTHON", python)
    monkeypatch.setattr(make, "STAMP", tmp_path / "stamp")
    make.STAMP.write_text(make.wanted_stamp() + "\n")
    ran = []
    monkeypatch.setattr(make, "run", lambda command, **options: ran.append([str(word) for word in command]) or 0)
    return ran


def test_a_second_start_installs_nothing(venv):
    make.prepare_venv()
    assert venv == []


@pytest.mark.parametrize("name", ["constraints.txt", "pyproject.toml"])
def test_a_moved_pin_is_installed_once(venv, name):
    (make.ROOT / name).write_text("another")
    make.prepare_venv()
    assert any("install" in command and "constraints.txt" in command for command in venv)
    venv.clear()
    make.prepare_venv()
    assert venv == []


def test_an_installation_that_failed_is_tried_again(venv, monkeypatch):
    make.STAMP.unlink()
    monkeypatch.setattr(make, "run", lambda command, **options: int("install" in command))
    with pytest.raises(make.Failed):
        make.prepare_venv()
    assert not make.STAMP.exists()


def test_every_target_of_the_makefile_is_known_here_and_explained():
    makefile = Path(make.__file__).with_name("Makefile").read_text()
    (line,) = [line for line in makefile.splitlines() if line.startswith("TARGETS")]
    targets = line.partition(":=")[2].split()
    assert sorted(targets) == sorted(make.TARGETS)
    for target in targets:
        assert f"\n{target} " in make.__doc__


def test_an_unknown_target_is_a_sentence(capsys):
    assert make.main(["rnu"]) == 2
    assert "fix: " in capsys.readouterr().err
