"""What can go wrong: a sentence for the person, a way out, an exit code.

Both sentences are templates with named fields, so that a translation can replace the words and keep the figures.
"""

from __future__ import annotations

DONE, BAD_ARGUMENTS, CANNOT_LOAD, RUN_FAILED, REMOTE_FAILED = 0, 2, 3, 4, 5


class WorkbenchError(Exception):
    """An expected failure. `what` and `fix` are one sentence each; `fields` fills their `{names}`.

    `exit_code` is what a command ends with (0 done, 2 bad arguments, 3 the model cannot be loaded, 4 the run
    failed, 5 the remote engine failed).
    """

    exit_code = RUN_FAILED

    def __init__(self, what: str, fix: str = "", **fields: object) -> None:
        self.what_template, self.fix_template, self.fields = what, fix, fields
        super().__init__(self.what)

    @property
    def what(self) -> str:
        return self.what_template.format(**self.fields) if self.fields else self.what_template

    @property
    def fix(self) -> str:
        return self.fix_template.format(**self.fields) if self.fields else self.fix_template


class SettingsRefused(WorkbenchError):
    """A setting is outside its range, or the arguments of a command do not fit together."""

    exit_code = BAD_ARGUMENTS


class CannotLoad(WorkbenchError):
    """The model cannot be loaded: files broken, device missing, library missing, not a text generator."""

    exit_code = CANNOT_LOAD


class PromptRefused(WorkbenchError):
    """The prompt cannot be run: empty without a BOS, longer than the context, refused by the chat template."""

    exit_code = RUN_FAILED


class RunFailed(WorkbenchError):
    """The run broke off; what was written stands."""

    exit_code = RUN_FAILED


class FileRefused(WorkbenchError):
    """A replay or settings file cannot be read or written."""

    exit_code = RUN_FAILED


class RemoteFailed(WorkbenchError):
    """The server at the other end failed; what it wrote stands."""

    exit_code = REMOTE_FAILED


class Cancelled(Exception):  # an outcome, not an error
    """The person asked to stop. Raised inside blocking work (a load) and caught at its edge."""
