"""A prompt as its tokens, special ones marked."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtGui import QTextCharFormat, QTextCursor
from PySide6.QtWidgets import QTextEdit, QWidget

from engine.events import PromptToken
from widgets import theme
from widgets.format import count_text, visible

MOST_SHOWN = 2_000  # tokens, from the beginning and the end: more would take seconds to lay out


class TokenList(QTextEdit):
    """The templated prompt, read only; every second token lies on a tint, special tokens are written in accent."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setReadOnly(True)
        self.setTabChangesFocus(True)
        self.setUndoRedoEnabled(False)
        self._tokens: Sequence[PromptToken] = ()
        self.setAccessibleName(self.tr("The prompt as the model reads it"))
        self.setToolTip(
            self.tr("Each token lies on its own ground; special tokens are in colour; ↵ stands for a line break.")
        )
        theme.changes.changed.connect(self._show)

    def set_tokens(self, tokens: Sequence[PromptToken]) -> None:
        if tokens != self._tokens:
            self._tokens = tokens
            self._show()

    def _show(self) -> None:
        look = theme.current()
        plain, tinted, special, muted = (QTextCharFormat() for _ in range(4))
        tinted.setBackground(look.track)
        ground, ink = look.chip(look.accent)
        special.setBackground(ground)
        special.setForeground(ink)
        muted.setForeground(look.muted)
        self.clear()
        cursor = QTextCursor(self.document())
        cursor.beginEditBlock()
        tokens = self._tokens
        half = MOST_SHOWN // 2
        left_out = len(tokens) - MOST_SHOWN
        for at, token in enumerate(tokens):
            if left_out > 0 and half <= at < len(tokens) - half:
                if at == half:
                    one, several = self.tr(" … 1 more token … "), self.tr(" … {count} more tokens … ")
                    text = (one if left_out == 1 else several).format(count=count_text(left_out))
                    cursor.insertText(text, muted)
                continue
            text = "".join("↵\n" if c == "\n" else visible(c) for c in token.text)
            cursor.insertText(text, special if token.special else tinted if at % 2 else plain)
        cursor.endEditBlock()
