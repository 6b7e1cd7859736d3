"""One place for what libraries say: a file, each sentence once. The terminal is for the person's own output."""

from __future__ import annotations

import logging
import logging.handlers
import sys
from pathlib import Path

_STATE: dict[str, Path] = {}


class OncePerText(logging.Filter):
    """Lets a warning of one logger through once: a quantised model warns once per layer otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[tuple[str, int, str]] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or record.exc_info:
            return True
        key = (record.name, record.levelno, record.getMessage()[:500])
        if key in self._seen:
            return False
        if len(self._seen) < 10_000:
            self._seen.add(key)
        return True


def log_path() -> Path:
    """The file the log goes to (the platform's folder for logs)."""
    if "path" in _STATE:
        return _STATE["path"]
    import platformdirs

    return Path(platformdirs.user_log_dir("glasswork")) / "glasswork.log"


def start_logging(path: Path | None = None) -> Path | None:
    """Sends logging and warnings to a file, each warning once. Returns the file; None if it cannot be written.

    Safe to call again: the first call counts.
    """
    if "path" in _STATE:
        return _STATE["path"]
    path = path or log_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler: logging.Handler = logging.handlers.RotatingFileHandler(
            path, maxBytes=2_000_000, backupCount=2, encoding="utf-8", delay=True
        )
        path.open("a").close()
    except OSError:
        handler, written = logging.NullHandler(), None
    else:
        written = path
        _STATE["path"] = path
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(OncePerText())
    root = logging.getLogger()
    root.addHandler(handler)
    if root.level > logging.INFO or root.level == logging.NOTSET:
        root.setLevel(logging.INFO)
    logging.captureWarnings(True)
    quiet_libraries()
    return written


def quiet_libraries() -> None:
    """Takes away the handlers by which libraries write to the terminal, and their progress bars.

    Called again after transformers was imported, which adds its own handler then.
    """
    for name in ("transformers", "huggingface_hub"):
        module = sys.modules.get(f"{name}.utils.logging")
        if module is not None:
            module.disable_default_handler() if hasattr(module, "disable_default_handler") else None
            module.enable_propagation()
        if name == "transformers" and module is not None:
            module.disable_progress_bar()
    for name in ("transformers", "huggingface_hub", "accelerate", "bitsandbytes", "torch"):
        logger = logging.getLogger(name)
        for handler in list(logger.handlers):
            if isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler):
                logger.removeHandler(handler)
        logger.propagate = True
