"""What is remembered of the window between two starts, and put back."""

from __future__ import annotations

import base64
import contextlib
from typing import TYPE_CHECKING

from PySide6.QtCore import QByteArray

from app.preferences import Preferences, write_preferences
from engine.errors import SettingsRefused
from engine.events import TokenNames
from engine.settings import LoadPlan, SamplingSettings
from widgets import theme

if TYPE_CHECKING:
    from app.main_window import MainWindow


def restore(window: MainWindow) -> None:
    """The window as it was left; what cannot be is as at the first start."""
    p = window.preferences
    for action in window.theme_actions.actions():
        action.setChecked(action.data() == p.theme)
    theme.motion = p.motion
    window.motion_action.setChecked(p.motion)
    window.keep_cache_action.setChecked(p.keep_cache)
    window.resize(1440, 900)
    window.restore_layout()
    for stored, restore in ((p.window, window.restoreGeometry), (p.layout, window.restoreState)):
        if stored:
            with contextlib.suppress(ValueError):
                restore(QByteArray(base64.b64decode(stored)))
    window.model_panel.options.packing.restore(p.int8_threshold, p.double_quantisation, p.compute_dtype)
    window.model_panel.options.windows.setChecked(p.keep_windows)
    window.model_panel.ledger.set_wish(p.ledger_context, p.ledger_lanes)
    window.store.described_machine = (p.planned_gpus, p.planned_cpu_gb)
    window.prompt_panel.restore(p.prompt, p.system or None, p.raw)
    window.sampling_panel.constraints.restore(p.words)
    window.sampling_panel.constraints.set_begin(p.begin_with)
    with contextlib.suppress(SettingsRefused, TypeError):
        window.sampling_panel.restore(
            SamplingSettings.from_dict(p.sampling),
            p.max_new_tokens,
            tuple(p.stop),
            p.seconds_per_token,
            TokenNames.from_dict(p.sampling_tokens),
        )
    window.engine.set_pace(p.seconds_per_token)
    window.text_view.set_size_step(p.text_size)


def remember(window: MainWindow) -> None:
    """Writes down how the window stands."""
    p = window.preferences
    window.laboratory.show_text()  # the docks that a page has hidden are part of the layout
    p.window = base64.b64encode(window.saveGeometry().data()).decode()
    p.layout = base64.b64encode(window.saveState().data()).decode()
    p.prompt, p.system = window.prompt_panel.prompt(), window.prompt_panel.system() or ""
    p.raw = window.prompt_panel.raw()
    p.sampling = window.sampling_panel.settings().as_dict()
    names = window.sampling_panel.token_names()
    p.sampling_tokens = names.as_dict() if names is not None else {}
    p.max_new_tokens = window.sampling_panel.max_new_tokens()
    p.stop = list(window.sampling_panel.stop_strings())
    p.begin_with, p.words = window.sampling_panel.forced_text(), window.sampling_panel.constraints.state()
    p.seconds_per_token = window.sampling_panel.pace()
    p.text_size = window.text_view.size_step()
    p.ledger_context, p.ledger_lanes = window.model_panel.ledger.kept_wish()
    p.planned_gpus, p.planned_cpu_gb = window.store.described_machine
    window.models.remember()
    window.lanes.remember()
    window.futures.remember()
    write_preferences(p)


def remember_plan(preferences: Preferences, plan: LoadPlan) -> None:
    """The model that was loaded is the next start's."""
    preferences.model = plan.model
    preferences.precision = plan.precision or ""
    preferences.kernel, preferences.attention = plan.kernel or "", plan.attention or ""
    preferences.int8_threshold = plan.int8_threshold
    preferences.double_quantisation = plan.double_quantisation
    preferences.compute_dtype = plan.compute_dtype or ""
    preferences.keep_windows = plan.keep_windows
    if isinstance(plan.device_map, str):
        preferences.device_map = plan.device_map
