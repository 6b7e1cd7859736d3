"""A whole window on a tiny model. It writes nothing into anybody's folders."""

from __future__ import annotations

import json

import pytest
from PySide6.QtCore import Qt

from app import threads
from app.preferences import Preferences
from tests.tiny_models import tiny_folder
from widgets import theme

WAIT_MS = 90_000  # for what takes a moment; the cores may be shared


@pytest.fixture(autouse=True)
def no_test_leaves_the_process(monkeypatch):
    """A window that is closed leaves it after two seconds of waiting for a thread, which a busy machine takes."""

    def refuse(code):
        pytest.fail("the process was to be left because a thread did not end")

    monkeypatch.setattr(threads, "WAIT_ON_CLOSE_MS", WAIT_MS)
    monkeypatch.setattr("os._exit", refuse)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A model whose context is long enough for a long prompt."""
    return tiny_folder(tmp_path_factory.mktemp("tiny") / "tiny-llama", seed=3, max_position_embeddings=65536)


@pytest.fixture(scope="session")
def shifted(tmp_path_factory):
    """A model of another name whose tokenizer has every byte under another number, and no capital letters alone."""
    folder = tiny_folder(tmp_path_factory.mktemp("shifted") / "tiny-shifted", seed=5)
    file = folder / "tokenizer.json"
    made = json.loads(file.read_text("utf-8"))
    vocabulary = made["model"]["vocab"]
    bytes_only = [token for token, token_id in sorted(vocabulary.items(), key=lambda pair: pair[1])]
    made["model"]["vocab"] = {token: vocabulary[bytes_only[at - 1]] for at, token in enumerate(bytes_only)}
    file.write_text(json.dumps(made), "utf-8")
    return folder


@pytest.fixture
def make_window(qtbot, folder, monkeypatch):
    """Builds windows; `visit` as in MainWindow. Nothing is loaded yet."""
    from app.main_window import MainWindow

    monkeypatch.setattr(theme, "motion", False)

    windows = []  # qtbot holds them weakly, and a window that is collected takes its running thread with it

    def build(visit: str = "", **preferences):
        values = {"model": str(folder), "prompt": "ab", "max_new_tokens": 8, "motion": False, "raw": True}
        window = MainWindow(Preferences(**(values | preferences)), visit=visit)
        qtbot.addWidget(window)
        windows.append(window)
        window.show()
        return window

    yield build
    for window in windows:
        window.close()
    theme.set_mode("light")


@pytest.fixture
def loaded(make_window, qtbot):
    """Builds a window with its model loaded."""

    def build(visit: str = "", **preferences):
        window = make_window(visit, **preferences)
        window.start()
        qtbot.waitUntil(lambda: window.store.facts is not None and not window.engine.busy, timeout=WAIT_MS)
        return window

    return build


@pytest.fixture
def click(qtbot):
    def left(widget):
        qtbot.waitUntil(widget.isEnabled, timeout=WAIT_MS)  # buttons follow the store once a frame
        qtbot.mouseClick(widget, Qt.MouseButton.LeftButton)

    return left


@pytest.fixture
def until(qtbot):
    return lambda condition: qtbot.waitUntil(lambda: bool(condition()), timeout=WAIT_MS)
