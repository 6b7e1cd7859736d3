"""Run, one token, pause, stop, and the pace: what starts and steers a run."""

from __future__ import annotations

from PySide6.QtCore import QSize, Signal
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from widgets import theme
from widgets.format import number_text
from widgets.panel import PlainLabel
from widgets.run_store import BUSY, RUNNING, RunStore
from widgets.sampling_rows import POSITIONS, SettingSlider

SLOWEST_S = 2.0
FASTEST_S = 0.02  # beyond it the slider is at full speed
FULL_FROM = 960  # positions at the right that mean full speed


def pace_of(position: int) -> float:
    """Seconds per token at a slider position; 0 is full speed. Logarithmic."""
    if position >= FULL_FROM:
        return 0.0
    seconds = SLOWEST_S * (FASTEST_S / SLOWEST_S) ** (position / FULL_FROM)
    return float(f"{seconds:.2g}")


def position_of(seconds: float) -> int:
    """The slider position nearest to a pace."""
    if not seconds > 0.0:
        return POSITIONS
    nearest = range(FULL_FROM)
    return min(nearest, key=lambda position: abs(pace_of(position) - seconds))


class RunControls(QWidget):
    """Buttons and pace. What is enabled follows the store; a disabled button says why."""

    run_requested = Signal()
    step_requested = Signal()
    pause_toggled = Signal()
    stop_requested = Signal()
    pace_changed = Signal(object)  # float: seconds per token, 0 for full speed

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.store = store
        self._seconds = 0.0
        self.run_button = QPushButton(self.tr("Run"))
        self.run_button.setProperty("primary", True)
        self.step_button = QPushButton(self.tr("One token"))
        self.pause_button = QPushButton()
        self.stop_button = QPushButton()
        self.stop_button.setAccessibleName(self.tr("Stop"))
        theme.set_icon(self.run_button, "run")
        theme.set_icon(self.stop_button, "stop")
        row = QHBoxLayout()
        row.setSpacing(6)
        for button, wide in (
            (self.run_button, True),
            (self.step_button, True),
            (self.pause_button, False),
            (self.stop_button, False),
        ):
            button.setIconSize(QSize(16, 16))
            button.setSizePolicy(
                QSizePolicy.Policy.Expanding if wide else QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed
            )
            row.addWidget(button, 1 if wide else 0)
        for button in (self.pause_button, self.stop_button):
            button.setFixedWidth(theme.base_px() + 19)
            button.setStyleSheet("padding-left: 0; padding-right: 0;")
        for button in (self.run_button, self.step_button):
            button.setStyleSheet("padding-left: 7px; padding-right: 7px;")
        self.pace_label = PlainLabel(self.tr("Pace"))
        self.pace_value = PlainLabel("", "muted")
        self.pace_slider = SettingSlider()
        self.pace_slider.setAccessibleName(self.tr("Pace"))
        tip = self.tr(
            "How long a token waits for its turn, from one token in 2 seconds to as fast as the model goes. "
            "Works while a run goes on; the wait is not counted in the speed."
        )
        self.pace_slider.setToolTip(tip)
        self.pace_label.setToolTip(tip)
        pace = QHBoxLayout()
        pace.setSpacing(8)
        pace.addWidget(self.pace_label)
        pace.addWidget(self.pace_slider, 1)
        pace.addWidget(self.pace_value)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addLayout(row)
        column.addLayout(pace)

        self.run_button.clicked.connect(self.run_requested)
        self.step_button.clicked.connect(self.step_requested)
        self.pause_button.clicked.connect(self.pause_toggled)
        self.stop_button.clicked.connect(self.stop_requested)
        self.pace_slider.valueChanged.connect(self._pace_slid)
        self.pace_slider.stepped.connect(self._pace_stepped)
        self.pace_slider.reset_requested.connect(self._full_speed)
        store.frame.connect(self.refresh)
        theme.changes.changed.connect(self._size_pace)
        self.set_pace(0.0)
        self._size_pace()
        self.refresh()

    def pace(self) -> float:
        return self._seconds

    def set_pace(self, seconds: float) -> None:
        """Shows a pace from elsewhere; says nothing."""
        self._seconds = max(0.0, float(seconds))
        self.pace_slider.blockSignals(True)
        self.pace_slider.setValue(position_of(self._seconds))
        self.pace_slider.blockSignals(False)
        self._write_pace()

    def pace_text(self) -> str:
        seconds = self._seconds
        if seconds == 0.0:
            return self.tr("full speed")
        if seconds > 1.0:
            return self.tr("{seconds} s / token").format(seconds=number_text(seconds, 1))
        rate = 1.0 / seconds
        return self.tr("{rate} tokens / s").format(rate=number_text(rate, 1 if rate < 9.95 else 0))

    def refresh(self) -> None:
        """Buttons as the store's activity allows."""
        activity, loaded = self.store.activity, self.store.facts is not None
        running = activity in RUNNING
        paused = activity == "paused"
        no_model = self.tr("No model is loaded yet.")
        if activity == "loading":
            no_model = self.tr("The model is still loading.")
        elif activity == "x-ray":
            no_model = self.tr("A precision x-ray goes on.")
        elif activity == "experiment":
            no_model = self.tr("An experiment goes on.")
        going = self.tr("A run goes on already.")
        may_start = loaded and activity == "idle"
        nothing = self.tr("Nothing is running.")
        self._set(
            self.run_button,
            may_start,
            self.tr("Write with these settings (Ctrl+Return)"),
            going if running else no_model,
        )
        self._set(
            self.step_button,
            may_start or activity in ("decode", "paused"),
            self.tr("Write one token, then pause (Ctrl+T)"),
            self.tr("The prompt is being read.") if running else no_model,
        )
        self._set(
            self.pause_button,
            running,
            self.tr("Go on (Ctrl+P)") if paused else self.tr("Pause between tokens (Ctrl+P)"),
            nothing,
        )
        icon = "run" if paused else "pause"
        if self.pause_button.property("theme_icon") != icon:
            theme.set_icon(self.pause_button, icon)
        self.pause_button.setAccessibleName(self.tr("Go on") if paused else self.tr("Pause"))
        self._set(
            self.stop_button,
            activity in BUSY,
            self.tr("Stop within one token; what is written stays (Ctrl+.)"),
            nothing,
        )

    def _set(self, button: QPushButton, enabled: bool, does: str, why_not: str) -> None:
        button.setEnabled(enabled)
        tip = does if enabled else f"{does}\n{why_not}"
        if button.toolTip() != tip:
            button.setToolTip(tip)
            button.setAccessibleDescription(tip)

    def _pace_slid(self, position: int) -> None:
        self._take_pace(pace_of(position))

    def _pace_stepped(self, steps: object) -> None:
        self.pace_slider.setValue(self.pace_slider.value() + int(steps) * 20)  # type: ignore[call-overload]

    def _full_speed(self) -> None:
        self.pace_slider.setValue(POSITIONS)

    def _take_pace(self, seconds: float) -> None:
        if seconds != self._seconds:
            self._seconds = seconds
            self._write_pace()
            self.pace_changed.emit(seconds)

    def _write_pace(self) -> None:
        self.pace_value.setText(self.pace_text())
        self.pace_slider.setAccessibleDescription(self.pace_text())

    def _size_pace(self) -> None:
        metrics = self.pace_value.fontMetrics()
        self.pace_value.setFixedWidth(metrics.horizontalAdvance(self.tr("{rate} tokens / s").format(rate="50")) + 4)
