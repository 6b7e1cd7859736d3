"""The menus: every act of the window and its key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QCoreApplication
from PySide6.QtGui import QAction, QActionGroup, QKeySequence
from PySide6.QtWidgets import QMenu

from widgets.lab import PAGES

if TYPE_CHECKING:
    from app.main_window import MainWindow


def tr(text: str) -> str:
    return QCoreApplication.translate("Menus", text)


def build_menus(window: MainWindow) -> None:
    """Every act with its key; the keys are shown in the menus and listed under Help."""
    bar = window.menus
    file = bar.addMenu(tr("&File"))
    window.load_action = _action(file, tr("Choose a model…"), "Ctrl+L", window.show_model_panel)
    _action(file, tr("Models…"), "Ctrl+B", window.models.show_browser)
    _action(file, tr("Open a replay…"), "Ctrl+O", window.replays.open)
    _action(file, tr("Compare with another replay…"), "Ctrl+Shift+C", window.replays.open_to_compare)
    window.recent_menu = file.addMenu(tr("Recent runs"))
    window.save_action = _action(file, tr("Save replay…"), "Ctrl+S", window.replays.save)
    export = file.addMenu(tr("Export"))
    _action(export, tr("Export…"), "Ctrl+E", window.exports.show)
    export.addSeparator()
    copies = [
        _action(export, tr("Copy as a program for transformers"), "Ctrl+Shift+T", window.exports.copy_transformers),
        _action(export, tr("Copy as a request for OpenAI's API"), "Ctrl+Shift+O", window.exports.copy_openai),
        _action(export, tr("Copy as chat messages"), "Ctrl+Shift+M", window.exports.copy_chat),
    ]
    _action(file, tr("What fits on other GPUs…"), "Ctrl+G", window.model_panel.open_planner)
    file.addSeparator()
    window.unload_action = _action(file, tr("Unload the model"), "Ctrl+Shift+L", window.engine.unload)
    _action(file, tr("Quit"), "Ctrl+Q", window.close).setMenuRole(QAction.MenuRole.QuitRole)

    run = bar.addMenu(tr("&Run"))
    window.run_action = _action(run, tr("Run"), "Ctrl+Return", window.running.start_run)
    window.step_action = _action(run, tr("One token"), "Ctrl+T", window.running.one_token)
    window.pause_action = _action(run, tr("Pause or go on"), "Ctrl+P", window.running.toggle_pause)
    window.stop_action = _action(run, tr("Stop"), "Ctrl+.", window.running.stop)
    run.addSeparator()
    forks = window.forks
    acts = [
        _action(run, tr("Go on from here with the settings as they stand"), "Ctrl+Shift+Return", forks.go_on_here),
        _action(run, tr("Go on with another word…"), "Ctrl+Shift+A", forks.choose_word),
        _action(run, tr("Write something else here…"), "Ctrl+Shift+W", forks.write_here),
        _action(run, tr("A hundred futures from here…"), "Ctrl+Shift+F", window.futures.show),
    ]
    window.text_view.set_word_acts(acts)
    _action(run, tr("Go on where other settings would go elsewhere"), "Ctrl+Shift+E", forks.go_on_elsewhere)
    run.addActions([forks.undo_action, forks.redo_action])
    _action(run, tr("Previous run"), "Ctrl+PgUp", forks.previous_run)
    _action(run, tr("Next run"), "Ctrl+PgDown", forks.next_run)
    run.addSeparator()
    _action(run, tr("Precision x-ray…"), "Ctrl+Shift+X", window.xrays.show)
    run.addSeparator()
    window.keep_cache_action = run.addAction(tr("Keep the KV cache for the next run"))
    window.keep_cache_action.setCheckable(True)
    window.keep_cache_action.setChecked(True)
    window.keep_cache_action.setShortcut(QKeySequence("Ctrl+K"))

    _timeline_menu(window)

    laboratory = bar.addMenu(tr("&Laboratory"))
    _action(laboratory, tr("Text"), "Ctrl+Shift+0", window.laboratory.show_text)
    for page in PAGES:
        act = _action(laboratory, QCoreApplication.translate("Laboratory", page.title), page.key, window.show_lab_page)
        act.setData(page.name)
    window.laboratory_menu = laboratory

    window.text_view.word_menu.addSeparator()
    window.text_view.word_menu.addActions(copies)

    view = bar.addMenu(tr("&View"))
    for dock in window.docks.values():
        view.addAction(dock.toggleViewAction())
    _action(view, tr("Restore the layout"), "Ctrl+0", window.restore_layout)
    view.addSeparator()
    window.theme_actions = QActionGroup(window)
    for mode, text in (
        ("light", tr("Light")),
        ("dark", tr("Dark")),
        ("system", tr("As the system")),
    ):
        action = view.addAction(text)
        action.setCheckable(True)
        action.setData(mode)
        window.theme_actions.addAction(action)
    _action(view, tr("Switch light and dark"), "Ctrl+D", window.switch_theme)
    view.addSeparator()
    _action(view, tr("Larger text"), "Ctrl++", window.text_view.larger)
    _action(view, tr("Smaller text"), "Ctrl+-", window.text_view.smaller)
    window.motion_action = view.addAction(tr("Motion"))
    window.motion_action.setCheckable(True)
    window.motion_action.setShortcut(QKeySequence("Ctrl+M"))

    help_menu = bar.addMenu(tr("&Help"))
    _action(help_menu, tr("Keyboard"), "F1", window.show_keys)
    _action(help_menu, tr("Where the log is"), "Shift+F1", window.show_log)


def _timeline_menu(window: MainWindow) -> None:
    menu, player, marks = window.menus.addMenu(tr("&Timeline")), window.timeline.player, window.timeline.marks
    _action(menu, tr("Play back or pause"), "F8", player.toggle)
    _action(menu, tr("Slower"), "F7", player.slower)
    _action(menu, tr("Faster"), "F9", player.faster)
    menu.addSeparator()
    _action(menu, tr("Previous token"), "Alt+Left", window.previous_token)
    _action(menu, tr("Next token"), "Alt+Right", window.next_token)
    _action(menu, tr("Follow the newest token"), "Alt+End", window.follow)
    menu.addSeparator()
    acts = [
        _action(menu, tr("Set or take away a bookmark"), "Ctrl+Shift+B", marks.toggle_bookmark),
        _action(menu, tr("Name the bookmark"), "Ctrl+Shift+K", marks.rename_bookmark),
        _action(menu, tr("Note on this word"), "Ctrl+J", marks.write_note),
    ]
    _action(menu, tr("Note on the run"), "Ctrl+Shift+J", marks.write_run_note)
    _action(menu, tr("Previous bookmark"), "Alt+PgUp", marks.previous_bookmark)
    _action(menu, tr("Next bookmark"), "Alt+PgDown", marks.next_bookmark)
    menu.addActions([window.forks.undo_action, window.forks.redo_action])
    window.text_view.word_menu.addSeparator()
    window.text_view.word_menu.addActions([acts[0], acts[2]])


def _action(menu: QMenu, text: str, key: str, slot: Callable[[], object]) -> QAction:
    action = menu.addAction(text)
    if key:
        action.setShortcut(QKeySequence(key))
    action.triggered.connect(slot)
    return action
