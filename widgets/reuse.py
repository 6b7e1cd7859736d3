"""The counter of reuse: what of a run was found in the KV cache, and what was computed."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication

from engine.events import RunEnd
from widgets.format import count_text


def _tr(text: str) -> str:
    return QCoreApplication.translate("Reuse", text)


def reuse_parts(end: RunEnd, written: int) -> tuple[str, str]:
    """("prompt + 399 reused", "1 + 63 computed"), or two empty ones where it was not counted (an older file).

    written: tokens that a fork began with. The first figure of what was computed is what was read of prompt and
    beginning, the second what was written: the last word goes through the model no more.
    """
    if not end.computed_tokens:
        return "", ""
    read = max(0, end.prompt_tokens + written - end.reused_tokens)
    stepped = max(0, end.computed_tokens - read)
    of_text = end.reused_tokens - end.prompt_tokens
    if not end.reused_tokens:
        reused = _tr("nothing reused")
    elif of_text > 0:
        reused = _tr("prompt + {count} reused").format(count=count_text(of_text))
    elif of_text == 0:
        reused = _tr("prompt reused")
    else:
        reused = _tr("{count} of the prompt reused").format(count=count_text(end.reused_tokens))
    return reused, _tr("{read} + {written} computed").format(read=count_text(read), written=count_text(stepped))


def reuse_text(end: RunEnd, written: int) -> str:
    """Both in one: "prompt + 399 reused, 1 + 63 computed"."""
    return ", ".join(part for part in reuse_parts(end, written) if part)


def reuse_tooltip() -> str:
    return _tr(
        "Tokens of prompt and text whose keys and values were kept from an earlier run and not computed again; then "
        "the tokens that were read + those that went through the model as they were written (the last one goes "
        "through it no more). Counted by the loop; measured."
    )
