"""Where a load stands: a bar, the stage in words with its bytes, and the tensor that is being read."""

from __future__ import annotations

from PySide6.QtWidgets import QProgressBar, QVBoxLayout, QWidget

from widgets.format import bytes_text
from widgets.run_store import RunStore
from widgets.small import SmallLabel


class LoadProgressView(QWidget):
    """Seen only while a model is being loaded."""

    def __init__(self, store: RunStore, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._store = store
        self.bar = QProgressBar()
        self.bar.setTextVisible(False)
        self.bar.setRange(0, 1000)  # per mille: bytes would pass 32 bits
        self.bar.setAccessibleName(self.tr("Loading"))
        self.label = SmallLabel("", "")
        self.detail = SmallLabel()
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        for part in (self.bar, self.label, self.detail):
            column.addWidget(part)

    def refresh(self) -> None:
        progress, loading = self._store.load_progress, self._store.activity == "loading"
        self.setVisible(loading)
        if not loading:
            return
        if progress is None:
            self.bar.setRange(0, 0)
            self.label.setText(self.tr("starting…"))
            self.detail.setText("")
            return
        names = {
            "blueprint": self.tr("reading the blueprint"),
            "skeleton": self.tr("building the empty skeleton"),
            "weights": self.tr("reading weights"),
            "placement": self.tr("placing layers on devices"),
            "kernels": self.tr("choosing kernels"),
        }
        known = progress.total_bytes > 0
        self.bar.setRange(0, 1000 if known else 0)
        text = names.get(progress.stage, progress.stage)
        if known:
            self.bar.setValue(min(1000, progress.done_bytes * 1000 // progress.total_bytes))
            done, total = bytes_text(progress.done_bytes), bytes_text(progress.total_bytes)
            text += " · " + self.tr("{done} of {total}").format(done=done, total=total)
        self.label.setText(text)
        self.bar.setAccessibleDescription(text)
        self.detail.setText(progress.detail)
