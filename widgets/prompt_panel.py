"""What the model is asked: the prompt, the system text, and what both become before they are run."""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QAction, QActionGroup, QKeySequence, QShortcut
from PySide6.QtWidgets import QHBoxLayout, QMenu, QSizePolicy, QToolButton, QWidget

from engine.events import PromptPreview
from widgets import theme
from widgets.format import count_text
from widgets.panel import Panel
from widgets.prompt_edit import SHOWN, PromptEdit
from widgets.run_store import RunStore
from widgets.small import SmallLabel, SmallText
from widgets.token_list import TokenList

PREVIEW_AFTER_MS = 250
KEPT = 100
TITLE_LENGTH = 60


class PromptPanel(Panel):
    """The prompt and how it is wrapped."""

    prompt_changed = Signal()
    preview_requested = Signal()  # some time after the last key
    run_requested = Signal()

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__("", parent)
        self.set_title(self.tr("Prompt"))
        self.store = store
        self._raw = False
        self._preview: PromptPreview | None = None
        self._had_facts: object = ()
        self.history: list[str] = []
        self._at = 0  # in the history; its length is what is being written

        self.system_edit = PromptEdit()
        self.system_edit.setAccessibleName(self.tr("System text"))
        self.system_edit.setPlaceholderText(self.tr("System text: how the model should behave"))
        self.system_edit.hide()
        self.edit = PromptEdit()
        self.edit.setAccessibleName(self.tr("Prompt"))
        self.setFocusProxy(self.edit)
        self.held_row = QWidget()
        self.held_label = SmallText()
        clear = QToolButton()
        clear.setText(self.tr("clear"))
        clear.clicked.connect(self.edit_clear)
        row = QHBoxLayout(self.held_row)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self.held_label, 1)
        row.addWidget(clear)
        self.held_row.hide()

        self.count_label = SmallLabel()
        self.show_button = QToolButton()
        self.show_button.setCheckable(True)
        self.show_button.setText(self.tr("show"))
        self.show_button.setToolTip(self.tr("The prompt as the model reads it, special tokens visible"))
        self.count_row = QHBoxLayout()
        self.count_row.setSpacing(2)
        self.count_row.addWidget(self.count_label, 1)
        self.count_row.addWidget(self.show_button)
        self.tokens = TokenList()
        self.tokens.hide()
        self.problem_label = SmallText("", "warning")
        self.problem_label.hide()
        self.notes_label = SmallText()
        self.notes_label.hide()
        for part in (self.system_edit, self.edit, self.held_row):
            self.body.addWidget(part)
        self.body.addLayout(self.count_row)
        for part in (self.problem_label, self.notes_label, self.tokens):
            self.body.addWidget(part)
        self.body.setSpacing(4)

        self._build_menu()
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(PREVIEW_AFTER_MS)
        self._timer.timeout.connect(self.preview_requested)
        self.edit.written_changed.connect(self._written)
        self.system_edit.written_changed.connect(self._written)
        self.edit.run_requested.connect(self.run_requested)
        self.system_edit.run_requested.connect(self.run_requested)
        self.show_button.toggled.connect(self._show_tokens)
        for key, slot in (("Alt+Up", self.earlier), ("Alt+Down", self.later)):
            shortcut = QShortcut(QKeySequence(key), self)
            shortcut.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
            shortcut.activated.connect(slot)
        store.frame.connect(self.refresh)
        theme.changes.changed.connect(self._size)
        self._size()
        self.refresh()

    def _build_menu(self) -> None:
        self.mode_button = self.add_button(self.tr("chat"), "", self.tr("Chat or raw text, system text, samples"))
        self.mode_button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        menu = QMenu(self.mode_button)
        menu.setToolTipsVisible(True)
        modes = QActionGroup(self)
        self.chat_action = menu.addAction(self.tr("Chat message, in the model's template"))
        self.raw_action = menu.addAction(self.tr("Raw text, to be continued as it stands"))
        for action in (self.chat_action, self.raw_action):
            action.setCheckable(True)
            modes.addAction(action)
        self.chat_action.setChecked(True)
        modes.triggered.connect(self._choose_mode)
        menu.addSeparator()
        self.system_action = menu.addAction(self.tr("System text"))
        self.system_action.setCheckable(True)
        self.system_action.toggled.connect(self._show_system)
        self.markers_action = menu.addAction(self.tr("Typed markers such as <|im_end|> are text"))
        self.markers_action.setCheckable(True)
        self.markers_action.setChecked(True)
        self.markers_action.setToolTip(
            self.tr(
                "On: such text typed by a person stays text and ends no turn. Off: it becomes the special token itself."
            )
        )
        self.markers_action.toggled.connect(self._written)
        menu.addSeparator()
        samples = menu.addMenu(self.tr("Sample prompts"))
        for text in self.sample_prompts():
            samples.addAction(_on_one_line(text)).setData(text)
        samples.triggered.connect(self._use_action)
        self.history_menu = menu.addMenu(self.tr("Earlier prompts"))
        self.history_menu.aboutToShow.connect(self._fill_history)
        self.history_menu.triggered.connect(self._use_action)
        self.mode_button.setMenu(menu)

    def sample_prompts(self) -> tuple[str, ...]:
        return (
            self.tr("Describe how a river shapes the land it crosses."),
            self.tr("Explain to a ten-year-old why the sky is blue."),
            self.tr("Write four lines about the sea in winter."),
            "用两句话介绍一下长江。",
            "List three prime numbers and say why each is prime.",
        )

    # ---------------------------------------------------------------- what is asked

    def prompt(self) -> str:
        """The prompt as the person wrote it."""
        return self.edit.written()

    def set_prompt(self, text: str) -> None:
        self.edit.write(text)

    def system(self) -> str | None:
        """The system text, or None where the template's own is wanted."""
        return self.system_edit.written() if self.system_action.isChecked() and not self.raw() else None

    def raw(self) -> bool:
        """True where the prompt goes in without a template: as chosen, or since the model has none."""
        facts = self.store.facts
        return self._raw or (facts is not None and not facts.has_chat_template)

    def markers_as_text(self) -> bool:
        return self.markers_action.isChecked()

    def restore(self, prompt: str, system: str | None, raw: bool) -> None:
        """What was there when the window was last closed."""
        self.edit.write(prompt or self.sample_prompts()[0])
        self._raw = raw
        (self.raw_action if raw else self.chat_action).setChecked(True)
        if system is not None:
            self.system_edit.write(system)
        self.system_action.setChecked(system is not None)
        self._had_facts = ()
        self.refresh()

    def remember(self) -> None:
        """Puts the prompt into the history, as it is run."""
        text = self.prompt()
        if text and (not self.history or self.history[-1] != text):
            self.history = [*(old for old in self.history if old != text), text][-KEPT:]
        self._at = len(self.history)

    def earlier(self) -> None:
        self._go(self._at - 1)

    def later(self) -> None:
        self._go(self._at + 1)

    def _go(self, at: int) -> None:
        if at == len(self.history) - 1 and self._at == len(self.history) and self.history[at:] == [self.prompt()]:
            at -= 1  # what was just run stands there already
        if 0 <= at < len(self.history):
            self._at = at
            self.edit.write(self.history[at])

    # ---------------------------------------------------------------- what it becomes

    def set_preview(self, preview: PromptPreview) -> None:
        """What the engine makes of the prompt."""
        self._preview = preview
        self._show_preview()

    def refresh(self) -> None:
        """The model may have changed, and with it whether there is a template."""
        facts = self.store.facts
        if facts is self._had_facts:
            return
        self._had_facts = facts
        no_template = facts is not None and not facts.has_chat_template
        self.chat_action.setEnabled(not no_template)
        self.chat_action.setToolTip(
            self.tr("This model has no chat template: it continues raw text.") if no_template else ""
        )
        (self.raw_action if self.raw() else self.chat_action).setChecked(True)
        self._preview = None
        self._show_mode()
        self._show_preview()

    def _show_mode(self) -> None:
        raw = self.raw()
        self.mode_button.setText((self.tr("raw text") if raw else self.tr("chat")) + " ▾")
        self.system_action.setEnabled(not raw)
        self.system_edit.setVisible(self.system_action.isChecked() and not raw)
        self.edit.setPlaceholderText(
            self.tr("Text for the model to continue. Ctrl+Return runs.")
            if raw
            else self.tr("Ask something. Ctrl+Return runs.")
        )

    def _show_preview(self) -> None:
        preview, facts = self._preview, self.store.facts
        self.show_button.setEnabled(preview is not None and bool(preview.tokens))
        if preview is None:
            no_model = self.tr("no model yet: not counted")
            self.count_label.setText(no_model if facts is None else self.tr("counting tokens…"))
            self.problem_label.hide()
            self.notes_label.hide()
            self.tokens.set_tokens(())
            return
        count = len(preview.tokens)
        if preview.problem and not count:
            text = ""
        elif count == 1:
            text = self.tr("1 token, raw") if self.raw() else self.tr("1 token, chat template")
        elif self.raw():
            text = self.tr("{count} tokens, raw").format(count=count_text(count))
        else:
            text = self.tr("{count} tokens, chat template").format(count=count_text(count))
        self.count_label.setText(text)
        self.count_label.setToolTip(self.tr("Measured by the model's own tokenizer."))
        notes = list(preview.notes)
        if facts is not None and not facts.has_chat_template:
            notes.insert(0, self.tr("This model has no chat template: it continues raw text."))
        for label, words in ((self.problem_label, preview.problem), (self.notes_label, "\n".join(notes))):
            label.setText(words)
            label.setVisible(bool(words))
        if self.show_button.isChecked():
            self.tokens.set_tokens(preview.tokens)

    def _show_tokens(self, shown: bool) -> None:
        self.show_button.setText(self.tr("hide") if shown else self.tr("show"))
        self.tokens.setVisible(shown)
        if shown and self._preview is not None:
            self.tokens.set_tokens(self._preview.tokens)

    # ---------------------------------------------------------------- hands

    def _written(self) -> None:
        held = self.edit.held
        self.held_row.setVisible(held)
        if held:
            self.held_label.setText(
                self.tr("{count} characters, kept whole; too long to edit here, the first {shown} are shown.").format(
                    count=count_text(len(self.prompt())), shown=count_text(SHOWN)
                )
            )
        self.prompt_changed.emit()
        self._timer.start()

    def edit_clear(self) -> None:
        self.edit.write("")
        self.edit.setFocus()

    def _choose_mode(self, action: QAction) -> None:
        self._raw = action is self.raw_action
        self._show_mode()
        self._written()

    def _show_system(self, shown: bool) -> None:
        self._show_mode()
        if shown:
            self.system_edit.setFocus()
        self._written()

    def _fill_history(self) -> None:
        self.history_menu.clear()
        for text in reversed(self.history):
            self.history_menu.addAction(_on_one_line(text)).setData(text)
        if not self.history:
            self.history_menu.addAction(self.tr("None yet: a prompt is kept when it is run")).setEnabled(False)

    def _use_action(self, action: QAction) -> None:
        if action.data():
            self.edit.write(action.data())
            self.edit.setFocus()

    def _size(self) -> None:
        line = self.fontMetrics().lineSpacing()
        self.edit.setFixedHeight(line * 3 + 22)
        self.system_edit.setFixedHeight(line * 2 + 20)
        self.tokens.setFixedHeight(line * 7 + 20)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)


def _on_one_line(text: str) -> str:
    text = " ".join(text[: TITLE_LENGTH * 2].split())
    text = text if len(text) <= TITLE_LENGTH else text[: TITLE_LENGTH - 1] + "…"
    return text.replace("&", "&&")  # a menu would take it for a key
