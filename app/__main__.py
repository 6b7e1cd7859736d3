"""The command line: the window, or one of the commands. `python -m app --help` lists them.

Neither Qt nor torch is imported here: a wrong argument is told at once, and the window shows before torch is there.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import multiprocessing
import os
import sys
from pathlib import Path
from typing import NoReturn

from engine.errors import DONE, RUN_FAILED, FileRefused, SettingsRefused, WorkbenchError
from engine.machine import calm_threads

COMMANDS = {
    "record": "run a prompt without a window and write a replay file",
    "estimate": "the memory that a model will need, without reading its weights",
    "bench": "our loop beside generate(), in one run, as ratios",
    "xray": "two precisions of a model over one text: what differs at each token, and what each costs",
    "sweep": "a grid over one or two settings, each run recorded; goes on where it stopped",
    "export": "what a replay holds, for other programs: tokens, reports, messages, code",
    "doctor": "this machine, the libraries, the devices, and what is wrong with them",
    "screenshots": "every view rendered offscreen from real data",
    "setup": "fetch and convert the default model",
}
INTERRUPTED = 130  # as a shell counts an interrupt


class Parser(argparse.ArgumentParser):
    """Refuses arguments like everything else that is refused: a sentence and a way out."""

    def __init__(self, **options) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        sentence = message[:1].upper() + message[1:].rstrip(".") + "."
        raise SettingsRefused(sentence.replace("{", "{{").replace("}", "}}"), "See {help}.", help=f"{self.prog} --help")


def parse(argv: list[str]) -> argparse.Namespace:
    """What was asked for: `args.run(args)` does it. Raises SettingsRefused."""
    if argv and argv[0] in COMMANDS:
        name = argv[0]
        module = importlib.import_module(f"app.commands.{name}")
        parser = Parser(prog=f"python -m app {name}", description=COMMANDS[name].capitalize() + ".")
        module.add_arguments(parser)
        parser.set_defaults(run=module.run)
        return parser.parse_args(argv[1:])
    lines = "\n".join(f"  {name:<12} {what}" for name, what in COMMANDS.items())
    parser = Parser(
        prog="python -m app",
        usage="python -m app [REPLAY] | COMMAND ...",
        description="Opens the window; with a replay file, that replay.",
        epilog=f"commands (each has its own --help):\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("replay", nargs="?", metavar="REPLAY", help="a replay file (.jsonl)")
    parser.set_defaults(run=open_window)
    args = parser.parse_args(argv)
    if args.replay is not None and not Path(args.replay).is_file():
        raise SettingsRefused(
            "{name} is neither a command nor a replay file.",
            "Commands are {commands}; see python -m app --help.",
            name=repr(args.replay[:200]),
            commands=", ".join(COMMANDS),
        )
    return args


def open_window(args: argparse.Namespace) -> int:
    from PySide6.QtWidgets import QApplication

    from app.interrupts import interrupts_close_windows
    from app.main_window import run_window

    application = QApplication.instance() or QApplication(sys.argv[:1])
    with interrupts_close_windows():
        code = run_window(args.replay)
    del application
    return code


def main(argv: list[str] | None = None) -> int:
    """Does what the arguments ask and returns the exit code. A failure is a sentence on stderr, never a traceback."""
    multiprocessing.freeze_support()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read at import; without it a local folder waits for the network
    calm_threads()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a character that the terminal lacks must not end a run
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            args = parse(sys.argv[1:] if argv is None else argv)
            code = args.run(args)
        except SystemExit as ended:  # --help
            code = ended.code or DONE
        flush_stdout()
        return code
    except WorkbenchError as error:
        tell(error.what, error.fix)
        return error.exit_code
    except KeyboardInterrupt:
        tell("Stopped before it was done.")
        return INTERRUPTED
    except BrokenPipeError:  # whoever reads our output has seen enough
        _forget_stdout()
        return DONE
    except Exception as error:  # the edge: the person gets a sentence, the log gets the traceback
        where = log_traceback(error)
        tell(
            f"Something went wrong that was not foreseen: {type(error).__name__}: {first_line(error)}",
            f"The details are in {where}; please report them." if where else "",
        )
        return RUN_FAILED


def flush_stdout() -> None:
    """Python flushes at exit too, but then a failure is a traceback."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _forget_stdout()
        raise FileRefused(
            "The output cannot be written: {reason}.", "Send it somewhere else.", reason=error.strerror or error
        ) from None


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no reason given"])[0][:300]


def tell(what: str, fix: str = "") -> None:
    """The two lines that a failure consists of, on stderr."""
    if sys.stderr is None:
        return
    with contextlib.suppress(OSError):
        print(f"error: {what}", file=sys.stderr)
        if fix:
            print(f"fix: {fix}", file=sys.stderr)
        sys.stderr.flush()


def log_traceback(error: BaseException) -> Path | None:
    """Writes the traceback to the log and returns the log's path; None where no log can be written."""
    from engine.logs import start_logging

    path = start_logging()
    logging.getLogger("app").error("unforeseen", exc_info=error)
    return path


def _forget_stdout() -> None:
    """What could not be written must not be tried again at exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
