"""Fixtures only. Whatever a test leaves behind (threads, windows, processes, connections) fails it."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import traceback
import weakref

# Before Qt, platformdirs or a hub library is imported: no display, no network, and nobody's own settings or logs.
os.environ["QT_QPA_PLATFORM"] = os.environ.get("QT_QPA_PLATFORM") or "offscreen"
os.environ["HF_HUB_OFFLINE"] = "1"
# One thread: the models are tiny, and parallel regions crawl when other processes use the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
_HOME = tempfile.TemporaryDirectory(prefix="glasswork-tests-", ignore_cleanup_errors=True)
for _name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
    os.environ[_name] = _HOME.name

import hypothesis  # noqa: E402
import psutil  # noqa: E402
import pytest  # noqa: E402

# Other people's work shares the processor, so no test fails for being slow. A suite tries the same examples each time,
# so that what passed here passes anywhere; `--hypothesis-profile search` tries others.
for _profile, _same in (("suite", True), ("search", False)):
    hypothesis.settings.register_profile(
        _profile, deadline=None, derandomize=_same, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
hypothesis.settings.load_profile("suite")

WAIT_S = 5.0  # for a thread that was told to end


def python_threads() -> set[threading.Thread]:
    # Dummies stand for threads of C++ that once ran Python; they are never taken off the list. tqdm keeps a monitor.
    return {
        thread
        for thread in threading.enumerate()
        if not isinstance(thread, threading._DummyThread) and type(thread).__name__ != "TMonitor"
    }


def waits_in_a_pool(thread: threading.Thread) -> bool:
    """A library keeps such a thread for its next work (ours has no pools); one that still works is left behind."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None and frame.f_code.co_filename.endswith(("queue.py", "threading.py")):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name == "_worker" and "concurrent" in frame.f_code.co_filename


def where_is(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)[-4:]) if frame is not None else "gone"


_qt_threads: weakref.WeakSet = weakref.WeakSet()  # all that were made: to look for them would take longer than tests


@pytest.fixture(autouse=True, scope="session")
def _qt_threads_are_known():
    from PySide6.QtCore import QThread

    before = QThread.__init__

    def begin(self, *args, **kwargs):
        before(self, *args, **kwargs)
        _qt_threads.add(self)

    QThread.__init__ = begin
    yield
    QThread.__init__ = before


@pytest.fixture(autouse=True)
def no_thread_or_window_is_left(request):
    before = python_threads()
    yield
    left = {thread for thread in python_threads() - before if not waits_in_a_pool(thread)}
    for thread in left:
        thread.join(WAIT_S)
    alive = [(thread.name, where_is(thread)) for thread in left if thread.is_alive()]
    assert not alive, f"threads left running: {alive}"
    if "qapp" in request.fixturenames:
        _no_qt_leftovers()


def _no_qt_leftovers() -> None:
    from PySide6.QtCore import QCoreApplication, QEvent
    from PySide6.QtWidgets import QApplication
    from shiboken6 import isValid

    running = [thread for thread in _qt_threads if isValid(thread) and thread.isRunning()]
    for thread in running:
        thread.quit()
        thread.wait(int(WAIT_S * 1000))
    shown = [type(widget).__name__ for widget in QApplication.topLevelWidgets() if widget.isVisible()]
    for widget in QApplication.topLevelWidgets():
        widget.close()
        widget.deleteLater()
    # No event loop runs between tests, and what is told to go would stay: every change of theme would restyle it.
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    assert not running, f"{len(running)} QThreads left running"
    assert not shown, f"windows left open: {shown}"


@pytest.fixture(autouse=True, scope="module")
def no_process_or_connection_is_left():
    me = psutil.Process()
    before = {child.pid for child in me.children(recursive=True)}
    sockets = {connection.laddr for connection in me.net_connections()}
    yield
    _, alive = psutil.wait_procs([c for c in me.children(recursive=True) if c.pid not in before], timeout=WAIT_S)
    names = [" ".join(child.cmdline())[:100] for child in alive]
    for child in alive:
        child.kill()
    assert not names, f"processes left running: {names}"
    opened = [c.laddr for c in me.net_connections() if c.laddr not in sockets and c.status != psutil.CONN_TIME_WAIT]
    assert not opened, f"connections left open: {opened}"


@pytest.fixture
def nobody_answers(monkeypatch):
    """transformers would ask on standard input."""

    class Closed:
        def readline(self, *_args):
            raise AssertionError("somebody read from standard input")

        read = __iter__ = readline

    monkeypatch.setattr(sys, "stdin", Closed())


@pytest.fixture(scope="session")
def default_model_path():
    """The folder of the small default model. `make setup` puts it there."""
    from engine.default_model import default_model_path, is_ready

    assert is_ready(), "the default model is not in the cache: run make setup"
    return default_model_path()


@pytest.fixture(scope="session")
def default_session(default_model_path):
    """The default model in float32 on the CPU, loaded once for all tests."""
    from engine.control import Control
    from engine.loading import load
    from engine.settings import LoadPlan

    session = load(LoadPlan(str(default_model_path), "float32", device_map="cpu"), lambda event: None, Control())
    yield session
    session.close()
