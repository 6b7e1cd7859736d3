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
    """act: "open", "compare", "load", "presets" or "refuse". words: what will happen, or why nothing will.

    left_out: a sentence for each file that was dropped together with replays and is nothing that can be opened.
    """

    act: str
    paths: tuple[Path, ...]
    words: str
    left_out: tuple[str, ...] = ()


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
        more = " ".join([*found.left_out, _what_can()])
        self.hint.show_words(found.words, more, found.act == "refuse")
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
                window.replays.open_file(found.paths[0], found.left_out)
            case "compare":
                window.replays.compare(found.paths, found.left_out)
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
    kinds, first = [_kind(path) for path in paths], paths[0]
    left_out = tuple([_cannot(path) for path, kind in zip(paths, kinds, strict=True) if not kind])
    if set(kinds) - {""} == {"replay"}:
        replays = tuple([path for path, kind in zip(paths, kinds, strict=True) if kind])
        if len(replays) == 1:
            return Dropped("open", replays, _tr("Open the replay {name}").format(name=_short(replays[0])), left_out)
        words = _tr("Compare these {count} replays").format(count=count_text(len(replays)))
        return Dropped("compare", replays, words, left_out)
    if left_out:
        return Dropped("refuse", paths, left_out[0])
    if len(paths) > 1:
        return Dropped(
            "refuse", paths, _tr("These files do not go together: drop replays, or one file of another kind.")
        )
    if kinds[0] == "model":
        return Dropped("load", paths, _tr("Load the model {name}").format(name=_short(first)))
    return Dropped("presets", paths, _tr("Take in the presets of {name}").format(name=_short(first)))


def _short(path: Path) -> str:
    return path.name if len(path.name) <= LONGEST_NAME else path.name[:LONGEST_NAME] + "…"


def _cannot(path: Path) -> str:
    return _tr("{name} cannot be opened here.").format(name=_short(path))


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
