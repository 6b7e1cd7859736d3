"""What the window's threads share: an exception as plain text, and how long a window that closes waits for them."""

from __future__ import annotations

import logging
import os
import traceback

from PySide6.QtCore import QThread

from engine.errors import WorkbenchError
from engine.events import EngineError

log = logging.getLogger(__name__)
WAIT_ON_CLOSE_MS = 1500


def told(error: Exception, during: str) -> EngineError:
    """An exception as plain text. Whoever keeps this keeps no frame and no tensor (MEM-22)."""
    trace = "".join(traceback.format_exception(error))
    log.error("%s failed\n%s", during, trace)
    if isinstance(error, WorkbenchError):
        fields = tuple((name, str(value)) for name, value in error.fields.items())
        return EngineError(
            error.what, error.fix, error.exit_code, during, error.what_template, error.fix_template, fields, trace
        )
    said = " ".join(str(error).split())[:300]
    what = f"Something unexpected happened: {type(error).__name__}: {said}"
    return EngineError(what, "What was written stands; try again. The log has the details.", 4, during, trace=trace)


def has_ended(thread: QThread) -> bool:
    """Waits for a thread that was told to quit, as long as a person may be kept waiting. False: it is still at work."""
    return thread.wait(WAIT_ON_CLOSE_MS)


def leave(why: str) -> None:
    """Ends the process although a thread of it is still at work, and says why in the log."""
    log.info(why)
    logging.shutdown()
    os._exit(0)
