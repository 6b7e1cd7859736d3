"""Files dragged onto the window: one recording opens, several are compared, a model loads, presets are taken in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QCoreApplication, QObject, QUrl, Slot
from PySide6.QtGui import QDragEnterEvent, QDropEvent

from engine.settings import LoadPlan
from widgets.drop_hint import DropHint
from widgets.format import count_text

if TYPE_CHECKING:
    from app.main_window import MainWindow

BEGINNINGS = (b'{"kind":"header"', b'{"kind": "header"')
LONGEST_NAME = 60


@dataclass(frozen=True, slots=True)
class Dropped:
    """act: "open", "compare", "load", "presets" or "refuse". words: what will happen, or why nothing will."""

    act: str
    paths: tuple[Path, ...]
    words: str


class Drops(QObject):
    """Says what would happen while files are dragged, and does it when they are dropped."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self.window = window
        self.hint = DropHint(window)
        self.hint.dropped.connect(self.drop)

    def enter(self, event: QDragEnterEvent) -> None:
        if not event.mimeData().hasUrls():
            return
        found = recognised(event.mimeData().urls())
        self.hint.show_words(found.words, _what_can(), found.act == "refuse")
        event.acceptProposedAction()  # a refused one too: its sentence is read where it is dropped

    @Slot(object)
    def drop(self, event: QDropEvent) -> None:
        self.hint.end()
        urls = event.mimeData().urls()
        if not urls:
            return
        event.acceptProposedAction()
        self.take(recognised(urls))

    def take(self, found: Dropped) -> None:
        window = self.window
        match found.act:
            case "open":
                window.replays.open_file(found.paths[0])
            case "compare":
                window.replays.compare(found.paths)
            case "load":
                window.load(LoadPlan(str(found.paths[0])))
            case "presets":
                window.presets.take_file(found.paths[0])
            case _:
                window.banner.show_note(f"{found.words} {_what_can()}")


def recognised(urls: Sequence[QUrl]) -> Dropped:
    """What these files are, by their names and, where those say nothing, by how they begin."""
    paths = tuple([Path(url.toLocalFile()) for url in urls if url.isLocalFile()])
    if not paths or len(paths) < len(urls):
        return Dropped("refuse", (), _tr("Only files of this computer can be opened."))
    kinds = [_kind(path) for path in paths]
    name = paths[0].name if len(paths[0].name) <= LONGEST_NAME else paths[0].name[:LONGEST_NAME] + "…"
    for path, kind in zip(paths, kinds, strict=True):
        if not kind:
            return Dropped("refuse", paths, _tr("{name} cannot be opened here.").format(name=path.name[:LONGEST_NAME]))
    if len(paths) == 1:
        words = {
            "replay": _tr("Open the replay {name}"),
            "model": _tr("Load the model {name}"),
            "presets": _tr("Take in the presets of {name}"),
        }
        act = {"replay": "open", "model": "load", "presets": "presets"}[kinds[0]]
        return Dropped(act, paths, words[kinds[0]].format(name=name))
    if set(kinds) == {"replay"}:
        return Dropped("compare", paths, _tr("Compare these {count} replays").format(count=count_text(len(paths))))
    return Dropped("refuse", paths, _tr("These files do not go together: drop replays, or one file of another kind."))


def _kind(path: Path) -> str:
    """ "replay", "model", "presets", or "" for what is none of them."""
    ending = path.suffix.lower()
    if path.is_dir() or ending == ".gguf":
        return "model"
    if ending == ".jsonl":
        return "replay"
    try:
        with open(path, "rb") as file:
            beginning = file.read(64).removeprefix(b"\xef\xbb\xbf")
    except OSError:
        return ""
    if beginning.startswith(BEGINNINGS):
        return "replay"
    return "presets" if ending == ".json" else ""


def _what_can() -> str:
    return _tr("Replays (.jsonl, several to compare them), a model's folder or GGUF file, presets (.json).")


def _tr(text: str) -> str:
    return QCoreApplication.translate("Drops", text)
