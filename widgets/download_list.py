"""Downloads: each with how far it is, how fast, and the way to stop it, go on, or give it up."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QHBoxLayout, QProgressBar, QPushButton, QVBoxLayout, QWidget

from engine.events import DownloadEnd, DownloadProgress, Unfinished
from widgets.banner import sentence_of
from widgets.format import bytes_text, duration_text
from widgets.panel import ElidedLabel, Panel
from widgets.small import SmallLabel, SmallText

Key = tuple[str, str]  # hub id, name of the file set


class DownloadRow(QWidget):
    """One download, in one of four states: waiting or running, stopped, failed, done."""

    cancel_requested = Signal(object)  # Key
    resume_requested = Signal(object)
    discard_requested = Signal(object)
    load_requested = Signal(object)  # str: what LoadPlan.model takes
    dismissed = Signal(object)

    def __init__(self, key: Key, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.key, self.model = key, ""
        self.state = "waiting"
        self.name = ElidedLabel(f"{key[0]} · {key[1]}")
        self.bar = QProgressBar()
        self.bar.setTextVisible(False)
        self.bar.setRange(0, 1000)  # per mille: bytes would pass 32 bits
        self.bar.setAccessibleName(self.tr("Download of {name}").format(name=key[0]))
        self.status = SmallLabel()
        self.problem = SmallText("", "warning")
        self.cancel = QPushButton(self.tr("Cancel"))
        self.cancel.setToolTip(self.tr("Stop it; what has arrived stays, and it can go on from there"))
        self.resume = QPushButton(self.tr("Resume"))
        self.resume.setToolTip(self.tr("Go on where it stopped"))
        self.discard = QPushButton(self.tr("Give up"))
        self.discard.setToolTip(self.tr("Delete what has arrived of it"))
        self.load = QPushButton(self.tr("Load"))
        self.dismiss = QPushButton(self.tr("Dismiss"))
        top = QHBoxLayout()
        top.setSpacing(8)
        text = QVBoxLayout()
        text.setSpacing(4)
        for part in (self.name, self.bar, self.status, self.problem):
            text.addWidget(part)
        top.addLayout(text, 1)
        for button in (self.cancel, self.resume, self.discard, self.load, self.dismiss):
            button.setAutoDefault(False)
            button.setAccessibleName(f"{button.text()}: {key[0]}")
            top.addWidget(button, 0, Qt.AlignmentFlag.AlignVCenter)
        self.cancel.clicked.connect(self._cancel)
        self.resume.clicked.connect(self._resume)
        self.discard.clicked.connect(self._discard)
        self.load.clicked.connect(self._load)
        self.dismiss.clicked.connect(self._dismiss)
        top.setContentsMargins(0, 2, 0, 2)
        self.setLayout(top)
        self.show_waiting()

    def show_waiting(self) -> None:
        self._become("waiting")
        self.status.setText(self.tr("waiting for its turn"))

    def show_progress(self, progress: DownloadProgress) -> None:
        self._become("running")
        known = progress.total_bytes > 0
        self.bar.setRange(0, 1000 if known else 0)
        if known:
            self.bar.setValue(min(1000, progress.done_bytes * 1000 // progress.total_bytes))
        self.status.setText(self._words(progress))
        self.status.setToolTip("")
        self.bar.setAccessibleDescription(self.status.text())

    def _words(self, progress: DownloadProgress) -> str:
        if progress.state == "listing":
            return self.tr("asking for its files")
        parts = [_of(progress.done_bytes, progress.total_bytes)]
        if progress.state == "checking":
            parts.append(self.tr("checking what is here"))
        elif progress.state == "retrying":
            parts.append(self.tr("the connection broke off; trying again"))
        elif progress.bytes_per_s == 0:
            parts.append(self.tr("nothing arrives at the moment"))
        elif progress.bytes_per_s:
            parts.append(self.tr("{speed} / s").format(speed=bytes_text(progress.bytes_per_s)))
            if progress.remaining_s is not None:
                parts.append(self.tr("{time} left").format(time=duration_text(progress.remaining_s * 1000)))
        parts.append(progress.file)
        return " · ".join(filter(None, parts))

    def show_stopped(self, done_bytes: int, total_bytes: int) -> None:
        """It broke off, now or in an earlier start of the program, and can go on."""
        self._become("stopped")
        self.bar.setRange(0, 1000)
        self.bar.setValue(min(1000, done_bytes * 1000 // total_bytes) if total_bytes else 0)
        self.status.setText(" · ".join(filter(None, (_of(done_bytes, total_bytes), self.tr("stopped")))))

    def show_end(self, end: DownloadEnd) -> None:
        """Done, or failed with its sentence. A cancelled one is told by what is unfinished."""
        if end.reason == "done":
            self.model = end.model
            self._become("done")
            self.bar.setRange(0, 1000)
            self.bar.setValue(1000)
            self.status.setText(self.tr("on this computer now, every file checked against its checksum"))
        elif end.error is not None:
            self._become("failed")
            self.bar.setRange(0, 1000)
            self.problem.setText(sentence_of(end.error))

    def _become(self, state: str) -> None:
        self.state = state
        going = state in ("waiting", "running")
        self.cancel.setVisible(going)
        self.resume.setVisible(state in ("stopped", "failed"))
        self.resume.setText(self.tr("Try again") if state == "failed" else self.tr("Resume"))
        self.discard.setVisible(state in ("stopped", "failed"))
        self.load.setVisible(state == "done")
        self.dismiss.setVisible(state == "done")
        self.problem.setVisible(state == "failed")
        self.status.setVisible(state != "failed")

    @Slot()
    def _cancel(self) -> None:
        self.cancel_requested.emit(self.key)

    @Slot()
    def _resume(self) -> None:
        self.resume_requested.emit(self.key)

    @Slot()
    def _discard(self) -> None:
        self.discard_requested.emit(self.key)

    @Slot()
    def _load(self) -> None:
        self.load_requested.emit(self.model)

    @Slot()
    def _dismiss(self) -> None:
        self.dismissed.emit(self.key)


class DownloadList(Panel):
    """All of them, the newest last. Hidden while there is none."""

    cancel_requested = Signal(object)  # Key
    resume_requested = Signal(object)
    discard_requested = Signal(object)
    load_requested = Signal(object)  # str

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("", parent)
        self.set_title(self.tr("Downloads"))
        self.rows: dict[Key, DownloadRow] = {}
        self.hide()

    def row(self, key: Key) -> DownloadRow:
        """The row of this download, made where there is none."""
        if key not in self.rows:
            row = DownloadRow(key)
            row.cancel_requested.connect(self.cancel_requested)
            row.resume_requested.connect(self.resume_requested)
            row.discard_requested.connect(self._give_up)
            row.load_requested.connect(self.load_requested)
            row.dismissed.connect(self._drop)
            self.rows[key] = row
            self.body.addWidget(row)
            self.show()
        return self.rows[key]

    def going(self) -> set[Key]:
        return {key for key, row in self.rows.items() if row.state in ("waiting", "running")}

    @Slot(object)
    def show_progress(self, progress: DownloadProgress) -> None:
        self.row((progress.hub_id, progress.name)).show_progress(progress)

    @Slot(object)
    def show_end(self, end: DownloadEnd) -> None:
        key = (end.hub_id, end.name)
        row = self.row(key)
        if end.reason == "cancelled":
            row.show_stopped(0, 0)  # how much has arrived comes with what is unfinished
        else:
            row.show_end(end)

    def set_unfinished(self, downloads: tuple[Unfinished, ...]) -> None:
        """What can go on. One that goes on now keeps its row; one that was given up loses it."""
        named = {(each.hub_id, each.name): each for each in downloads}
        for key, each in named.items():
            row = self.row(key) if key not in self.rows or self.rows[key].state == "stopped" else None
            if row is not None:
                row.show_stopped(each.done_bytes, each.total_bytes)
        for key, row in tuple(self.rows.items()):
            if row.state == "stopped" and key not in named:
                self._drop(key)

    @Slot(object)
    def _give_up(self, key: Key) -> None:
        self.rows[key].show_stopped(0, 0)  # it goes when it is no longer among what is unfinished
        self.discard_requested.emit(key)

    @Slot(object)
    def _drop(self, key: Key) -> None:
        row = self.rows.pop(key, None)
        if row is not None:
            row.hide()
            self.body.removeWidget(row)
            row.deleteLater()
        self.setVisible(bool(self.rows))


def _of(done: int, total: int) -> str:
    return f"{bytes_text(done)} / {bytes_text(total)}" if total else ""
