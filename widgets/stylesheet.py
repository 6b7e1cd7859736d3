"""The style sheet of standard widgets, written from the theme's roles."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from widgets.theme import Theme

_SHEET = """
* { outline: none; }
QMainWindow, QDialog, QMessageBox { background: $ground; }
QFrame[panel="true"] { background: $panel; border: 1px solid $line; border-radius: 8px; }
QFrame[panel="true"][focused="true"] { border-color: $accent; }
QLabel { background: transparent; }
QLabel[role="title"] { color: $muted; font-weight: 600; }
QLabel[role="muted"] { color: $muted; }
QLabel[role="warning"] { color: $warning; }
QLabel[role="value"] { font-weight: 600; }

QPushButton { background: $panel; color: $ink; border: 1px solid $line; border-radius: 6px; padding: 5px 12px; }
QPushButton:hover { border-color: $edge; background: $hover; }
QPushButton:pressed { background: $track; }
QPushButton:checked { background: $track; border-color: $edge; }
QPushButton:focus { border-color: $accent; }
QPushButton:disabled { color: $muted; background: $ground; }
QPushButton[primary="true"] { background: $accent; color: $on_accent; border-color: $accent; font-weight: 600; }
QPushButton[primary="true"]:hover { background: $accent_hover; }
QPushButton[primary="true"]:focus { border: 2px solid $ink; padding: 4px 11px; }
QPushButton[primary="true"]:disabled { background: $track; color: $muted; border-color: $line; }
QToolButton { background: transparent; color: $muted; border: 1px solid transparent; border-radius: 6px;
  padding: 2px 5px; }
QToolButton:hover { color: $ink; background: $hover; border-color: $line; }
QToolButton:pressed, QToolButton:checked { color: $ink; background: $track; }
QToolButton:focus { border-color: $accent; }
QToolButton:disabled { color: $muted; }
QToolButton::menu-indicator { image: none; }

QLineEdit, QPlainTextEdit, QTextEdit, QSpinBox, QDoubleSpinBox, QComboBox { background: $panel; color: $ink;
  border: 1px solid $line; border-radius: 6px; padding: 4px 7px; selection-background-color: $accent;
  selection-color: $on_accent; }
QLineEdit:hover, QPlainTextEdit:hover, QSpinBox:hover, QDoubleSpinBox:hover, QComboBox:hover { border-color: $edge; }
QLineEdit:focus, QPlainTextEdit:focus, QTextEdit:focus, QSpinBox:focus, QDoubleSpinBox:focus, QComboBox:focus {
  border-color: $accent; }
QLineEdit:disabled, QPlainTextEdit:disabled, QSpinBox:disabled, QDoubleSpinBox:disabled, QComboBox:disabled {
  color: $muted; background: $ground; }
QLineEdit[quiet="true"] { background: transparent; border-color: transparent; padding: 1px 0 1px 5px;
  font-weight: 600; }
QLineEdit[quiet="true"]:hover { border-color: $edge; }
QLineEdit[quiet="true"]:focus { border-color: $accent; background: $panel; }
QLineEdit[invalid="true"], QLineEdit[invalid="true"]:focus, QSpinBox[invalid="true"] { border-color: $warning; }
QSpinBox, QDoubleSpinBox { padding: 4px 20px 4px 7px; }
QComboBox { padding-right: 4px; }
QComboBox::drop-down { border: none; width: 22px; }
QComboBox::down-arrow { image: url($icons/chevron-down.svg); width: 12px; height: 12px; }
QComboBox QAbstractItemView { background: $panel; color: $ink; border: 1px solid $line; padding: 4px;
  selection-background-color: $accent; selection-color: $on_accent; }
QSpinBox::up-button, QDoubleSpinBox::up-button, QSpinBox::down-button, QDoubleSpinBox::down-button {
  border: none; width: 18px; background: transparent; }
QSpinBox::up-arrow, QDoubleSpinBox::up-arrow { image: url($icons/chevron-up.svg); width: 10px; height: 10px; }
QSpinBox::down-arrow, QDoubleSpinBox::down-arrow { image: url($icons/chevron-down.svg);
  width: 10px; height: 10px; }

QSlider { min-height: 22px; background: transparent; }
QSlider::groove:horizontal { height: 4px; border-radius: 2px; background: $track; }
QSlider::sub-page:horizontal { height: 4px; border-radius: 2px; background: $accent; }
QSlider::handle:horizontal { width: 12px; height: 12px; margin: -6px 0; border-radius: 8px; background: $panel;
  border: 2px solid $accent; }
QSlider::handle:horizontal:hover { background: $hover; }
QSlider::handle:horizontal:focus { background: $accent; }
QSlider::sub-page:horizontal:disabled { background: $edge; }
QSlider::handle:horizontal:disabled { border-color: $edge; }

QProgressBar { background: $track; border: none; border-radius: 3px; min-height: 6px; max-height: 6px;
  text-align: center; color: transparent; }
QProgressBar::chunk { background: $accent; border-radius: 3px; }

QCheckBox, QRadioButton { background: transparent; spacing: 6px; }
QCheckBox:disabled, QRadioButton:disabled { color: $muted; }
QCheckBox::indicator { width: 14px; height: 14px; border: 1px solid $edge; border-radius: 4px; background: $panel; }
QCheckBox::indicator:checked { background: $accent; border-color: $accent;
  image: url($icons/check-$tone.svg); }
QCheckBox::indicator:focus { border-color: $accent; }

QMenuBar { background: $ground; color: $ink; }
QMenuBar::item { padding: 4px 9px; background: transparent; border-radius: 5px; }
QMenuBar::item:selected { background: $track; }
QMenu { background: $panel; color: $ink; border: 1px solid $line; padding: 5px; }
QMenu::item { padding: 5px 22px 5px 10px; border-radius: 5px; }
QMenu::item:selected { background: $accent; color: $on_accent; }
QMenu::item:disabled { color: $muted; background: transparent; }
QMenu::separator { height: 1px; background: $line; margin: 5px 8px; }
QMenu::icon { padding-left: 8px; }
QToolTip { background: $panel; color: $ink; border: 1px solid $edge; padding: 5px 7px; }

QScrollArea, QScrollArea > QWidget > QWidget[plain="true"] { background: transparent; border: none; }
QScrollBar { background: transparent; border: none; margin: 0; }
QAbstractScrollArea::corner { background: transparent; border: none; }
QScrollBar:vertical { width: 10px; }
QScrollBar:horizontal { height: 10px; }
QScrollBar::handle { background: $edge; border-radius: 3px; margin: 2px; }
QScrollBar::handle:vertical { min-height: 28px; }
QScrollBar::handle:horizontal { min-width: 28px; }
QScrollBar::handle:hover { background: $muted; }
QScrollBar::add-line, QScrollBar::sub-line { width: 0; height: 0; }
QScrollBar::add-page, QScrollBar::sub-page { background: transparent; }

QSplitter::handle { background: transparent; }
QSplitter::handle:horizontal { width: 12px; }
QSplitter::handle:vertical { height: 12px; }
QMainWindow::separator { background: transparent; width: 12px; height: 12px; }
QMainWindow::separator:hover { background: $track; }
QDockWidget { color: $muted; font-weight: 600; titlebar-close-icon: url($icons/close.svg);
  titlebar-normal-icon: url($icons/float.svg); }
QDockWidget::title { background: transparent; padding: 6px 4px; text-align: left; }
QDockWidget::close-button, QDockWidget::float-button { border: none; background: transparent; padding: 1px; }
QDockWidget::close-button:hover, QDockWidget::float-button:hover { background: $track; border-radius: 4px; }
QTabBar::tab { background: transparent; color: $muted; padding: 5px 10px; border: none;
  border-bottom: 2px solid transparent; }
QTabBar::tab:selected { color: $ink; border-bottom-color: $accent; }
QStatusBar { background: $ground; color: $muted; }
QStatusBar::item { border: none; }
QHeaderView::section { background: $panel; color: $muted; border: none; border-bottom: 1px solid $line;
  padding: 4px 6px; font-weight: 600; }
QTableView, QTreeView, QListView { background: $panel; color: $ink; border: 1px solid $line; border-radius: 6px;
  gridline-color: $line; selection-background-color: $accent; selection-color: $on_accent; }
QListView::item { padding: 0 4px; }
"""


def stylesheet(theme: Theme, icons: Path) -> str:
    """The whole application's style sheet. Arrows are drawn from files in a grey that both themes carry."""
    from widgets.theme import mixed

    colours = {
        "ground": theme.ground,
        "panel": theme.panel,
        "line": theme.line,
        "track": theme.track,
        "ink": theme.ink,
        "muted": theme.muted,
        "accent": theme.accent,
        "on_accent": theme.on_accent,
        "warning": theme.warning,
        "edge": mixed(theme.line, theme.muted, 0.35),
        "hover": mixed(theme.panel, theme.track, 0.6),
        "accent_hover": mixed(theme.accent, theme.ink, 0.12),
    }
    names = {name: colour.name() for name, colour in colours.items()}
    return Template(_SHEET).substitute(
        names, icons=(icons / "style").as_posix(), tone="dark" if theme.dark else "light"
    )
