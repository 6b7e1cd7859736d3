"""What libraries say goes to a file, each warning once, and nothing of it to the terminal."""

from __future__ import annotations

import logging
import subprocess
import sys
import warnings

import pytest

from engine import logs


@pytest.fixture
def log_file(tmp_path, monkeypatch):
    """Starts the log in an empty folder, and takes it away again."""
    monkeypatch.setattr(logs, "_STATE", {})
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    path = tmp_path / "deep" / "glasswork.log"
    assert logs.start_logging(path) == path
    yield path
    for handler in set(root.handlers) - set(handlers):
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)
    logging.captureWarnings(False)


def test_a_hundred_equal_warnings_are_one_line(log_file):
    for _ in range(100):
        logging.getLogger("bitsandbytes").warning("inputs will be cast")
        logging.getLogger("other").warning("inputs will be cast")
    assert log_file.read_text().count("inputs will be cast") == 2


def test_python_warnings_go_to_the_log(log_file):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("this is deprecated", FutureWarning, stacklevel=1)
    assert "this is deprecated" in log_file.read_text()


def test_a_second_start_changes_nothing(log_file, tmp_path):
    assert logs.start_logging(tmp_path / "other.log") == log_file
    assert logs.log_path() == log_file


def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "_STATE", {})
    (tmp_path / "file").write_text("")
    before = list(logging.getLogger().handlers)
    assert logs.start_logging(tmp_path / "file" / "x.log") is None
    for handler in set(logging.getLogger().handlers) - set(before):
        logging.getLogger().removeHandler(handler)
    logging.captureWarnings(False)


def test_transformers_says_nothing_on_the_terminal(tmp_path):
    code = (
        "import sys, pathlib; from engine.logs import start_logging, quiet_libraries\n"
        f"start_logging(pathlib.Path({str(tmp_path / 'x.log')!r}))\n"
        "import transformers; quiet_libraries()\n"
        "transformers.utils.logging.get_logger('transformers.models').warning('a report')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""
    assert (tmp_path / "x.log").read_text().count("a report") == 1
