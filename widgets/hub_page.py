"""The hub: a search, what a repository offers, and the downloads. The network is asked only when a person asks."""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer, QUrl, Signal, Slot
from PySide6.QtGui import QDesktopServices, QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QComboBox,
    QHBoxLayout,
    QLineEdit,
    QPushButton,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from engine.events import EngineError, FileSet, HubModel, HubOffer
from widgets import theme
from widgets.banner import sentence_of
from widgets.details import Details, Line, beside, framed_page
from widgets.download_list import DownloadList, Key
from widgets.format import UNKNOWN, bytes_text, count_text, short_count
from widgets.panel import PlainLabel
from widgets.rows import Column, RowsView
from widgets.small import SmallLabel, SmallText

OFFER_AFTER_MS = 250  # walking down the rows with the arrow keys asks once


class HubPage(QWidget):
    """The second page of the model browser."""

    search_requested = Signal(object)  # (text, the hub's filter)
    offer_requested = Signal(object)  # str: hub id
    download_requested = Signal(object)  # Key

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._offers: dict[str, HubOffer] = {}
        self._problems: dict[str, EngineError] = {}
        self._busy = False
        self._searched: tuple[str, str] | None = None
        self._build_top()
        self._build_table()
        self._build_details()
        self.downloads = DownloadList()
        self.split = beside(self.left, self.details)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, theme.GAP, 0, 0)
        column.setSpacing(8)
        column.addLayout(self.top)
        column.addWidget(self.split, 1)
        column.addWidget(self.downloads)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(OFFER_AFTER_MS)
        self._timer.timeout.connect(self._ask_offer)
        QShortcut(QKeySequence.StandardKey.Find, self, self.focus_search, Qt.ShortcutContext.WindowShortcut)
        self._say_what_this_is()
        self._show_chosen(None)

    # ---------------------------------------------------------------- building

    def _build_top(self) -> None:
        self.search_field = QLineEdit()
        self.search_field.setPlaceholderText(self.tr("name of a model or its maker"))
        self.search_field.setAccessibleName(self.tr("Search on the hub"))
        self.search_field.setClearButtonEnabled(True)
        self.kind = QComboBox()
        self.kind.setAccessibleName(self.tr("Kind of models"))
        for words, task in (
            (self.tr("text generators"), "text-generation"),
            (self.tr("GGUF files"), "gguf"),
            (self.tr("everything"), ""),
        ):
            self.kind.addItem(words, task)
        self.search_button = QPushButton(self.tr("Search"))
        self.search_button.setToolTip(self.tr("Asks the hub over the network (Enter)"))
        self.search_button.setAutoDefault(False)
        theme.set_icon(self.search_button, "search")
        self.top = QHBoxLayout()
        self.top.setSpacing(8)
        self.top.addWidget(self.search_field, 1)
        self.top.addWidget(self.kind)
        self.top.addWidget(self.search_button)
        self.search_field.returnPressed.connect(self.search)
        self.search_button.clicked.connect(self.search)

    def _build_table(self) -> None:
        columns = [
            Column(self.tr("name"), lambda m: m.hub_id, lambda m: m.hub_id.casefold(), 30),
            Column(
                self.tr("downloads"), lambda m: short_count(m.downloads), lambda m: m.downloads, 10, True,
                self.tr("Of the last 30 days"),
            ),
            Column(self.tr("likes"), lambda m: short_count(m.likes), lambda m: m.likes, 6, True),
            Column(
                self.tr("parameters"), lambda m: short_count(m.parameters), lambda m: m.parameters, 10, True,
                self.tr("As the hub counts them; a dash where it does not tell"),
            ),
            Column(
                self.tr("size"), lambda m: bytes_text(m.size_bytes), lambda m: m.size_bytes, 7, True,
                self.tr("Estimated from the number types; what a download takes stands on the right"),
            ),
            Column(self.tr("licence"), lambda m: m.licence or UNKNOWN, lambda m: m.licence.casefold() or None, 10),
            Column(
                self.tr("access"), self._access_word, lambda m: m.gated, 6, False,
                self.tr("Gated: its makers let people in who have accepted their terms"),
            ),
            Column(self.tr("changed"), lambda m: m.updated or UNKNOWN, lambda m: m.updated or None, 10),
        ]  # fmt: skip
        self.table = RowsView(self.tr("Models on the hub"), columns, _identity, _tone)
        self.table.sortByColumn(1, Qt.SortOrder.DescendingOrder)
        self.table.chosen.connect(self._show_chosen)
        self.table.acted.connect(self._download)
        self.message = PlainLabel("", "muted")
        self.message.setWordWrap(True)
        self.message.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.again = QPushButton(self.tr("Try again"))
        self.again.setAutoDefault(False)
        self.again.clicked.connect(self.search)
        page = framed_page()
        column = QVBoxLayout(page)
        column.setContentsMargins(40, 0, 40, 0)
        column.setSpacing(12)
        column.addStretch(1)
        column.addWidget(self.message)
        column.addWidget(self.again, 0, Qt.AlignmentFlag.AlignCenter)
        column.addStretch(1)
        self.stack = QStackedWidget()
        self.stack.addWidget(self.table)
        self.stack.addWidget(page)
        self.count = SmallLabel()
        self.left = QWidget()
        column = QVBoxLayout(self.left)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(6)
        column.addWidget(self.stack, 1)
        column.addWidget(self.count)

    def _build_details(self) -> None:
        self.details = Details(self.tr("The chosen model"))
        self.details.setMinimumWidth(theme.base_px() * 19)
        self.note = SmallText("", "")
        self.sets = QComboBox()
        self.sets.setAccessibleName(self.tr("Which files"))
        self.sets.setToolTip(self.tr("Each line is one model that can be loaded here"))
        self.sets.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.sets.setMinimumContentsLength(8)
        self.takes = SmallText()
        self.download_button = QPushButton(self.tr("Download"))
        self.download_button.setProperty("primary", True)
        theme.set_icon(self.download_button, "save")
        self.page_button = QPushButton(self.tr("Open its page"))
        self.page_button.setToolTip(self.tr("In the browser: its card, and the terms of a gated model"))
        row = QHBoxLayout()
        row.setSpacing(8)
        for button in (self.download_button, self.page_button):
            button.setAutoDefault(False)
            row.addWidget(button, 1)
        for part in (self.note, self.sets, self.takes):
            self.details.acts.addWidget(part)
        self.details.acts.addLayout(row)
        self.sets.currentIndexChanged.connect(self._show_takes)
        self.download_button.clicked.connect(self._download)
        self.page_button.clicked.connect(self.open_page)

    def _access_word(self, model: HubModel) -> str:
        return self.tr("gated") if model.gated else self.tr("open")

    # ---------------------------------------------------------------- searching

    @Slot()
    def search(self) -> None:
        """Asks for what the field says."""
        self._busy = True
        self._searched = (self.search_field.text(), self.kind.currentData())
        self._say(self.tr("Asking the hub…"))
        self.search_requested.emit(self._searched)

    @Slot(object)
    def show_results(self, answer: tuple[HubModel, ...] | EngineError) -> None:
        """What the hub found, or why it could not be asked."""
        self._busy = False
        if isinstance(answer, EngineError):
            self.table.set_things(())
            self._say(sentence_of(answer), failed=True)
            return
        self.table.set_things(answer)
        if not answer:
            words = self._searched[0] if self._searched else ""
            self._say(self.tr("The hub has no model of this kind that fits “{words}”.").format(words=words))
            return
        self.stack.setCurrentIndex(0)
        self.count.setText(
            self.tr("the {count} most downloaded that fit").format(count=len(answer))
            if len(answer) > 1
            else self.tr("1 model fits")
        )
        self.table.setFocus()

    def _say_what_this_is(self) -> None:
        self._say(
            self.tr(
                "Models that others share stand here once you search for a name. Only a search or a download goes "
                "over the network; everything else in this program works without it."
            )
        )

    def _say(self, sentence: str, failed: bool = False) -> None:
        """A sentence where the table would stand."""
        self.message.setText(sentence)
        self.message.setProperty("role", "warning" if failed else "muted")
        self.message.style().unpolish(self.message)
        self.message.style().polish(self.message)
        self.again.setVisible(failed)
        self.count.setText("")
        self.stack.setCurrentIndex(1)

    @Slot()
    def focus_search(self) -> None:
        self.search_field.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.search_field.selectAll()

    # ---------------------------------------------------------------- one repository

    @Slot(object)
    def _show_chosen(self, model: HubModel | None) -> None:
        self._timer.stop()
        offer = self._offers.get(model.hub_id) if model else None
        problem = self._problems.get(model.hub_id) if model else None
        if model is not None and offer is None and problem is None:
            self._timer.start()
        self._show_details(model, offer, problem)

    @Slot()
    def _ask_offer(self) -> None:
        model = self.table.current()
        if model is not None:
            self.offer_requested.emit(model.hub_id)

    def show_offer(self, hub_id: str, answer: HubOffer | EngineError) -> None:
        """What a repository holds, or why that is not known."""
        self._problems.pop(hub_id, None)
        if isinstance(answer, HubOffer):
            self._offers[hub_id] = answer
        else:
            self._offers.pop(hub_id, None)
            self._problems[hub_id] = answer
        model = self.table.current()
        if model is not None and model.hub_id == hub_id:
            self._show_details(model, self._offers.get(hub_id), self._problems.get(hub_id))

    def forget_offers(self) -> None:
        """What is here has changed: offers are asked again when they are looked at."""
        self._offers.clear()
        self._problems.clear()
        self._show_chosen(self.table.current())

    def _show_details(self, model: HubModel | None, offer: HubOffer | None, problem: EngineError | None) -> None:
        if model is None:
            self.details.show_facts("", (), fix=self.tr("Choose a model: what it offers stands here."))
        else:
            self.details.show_facts(model.hub_id, self._lines(model, offer), sentence_of(problem) if problem else "")
        self.sets.clear()
        for each in offer.sets if offer else ():
            self.sets.addItem(f"{each.name} · {bytes_text(each.total_bytes)}", each)
        self.sets.setVisible(self.sets.count() > 1)
        if model is None or problem is not None:
            note = ""
        elif offer is None:
            note = self.tr("Looking at its files…")
        else:
            note = " ".join(part for part in (self._gate_words(offer), offer.note) if part)
        self.note.setText(note)
        self.note.setVisible(bool(note))
        self.page_button.setEnabled(offer is not None)
        self._show_takes()

    def _gate_words(self, offer: HubOffer) -> str:
        if not offer.gated:
            return ""
        if offer.logged_in:
            return self.tr("Gated: accept its terms on its page with the account that is logged in on this computer.")
        return self.tr(
            "Gated: accept its terms on its page, then log in on this computer: run “hf auth login” in a terminal. "
            "The token stays with the hub's own tool."
        )

    def _lines(self, model: HubModel, offer: HubOffer | None) -> list[Line]:
        told = self.tr("As the hub tells it")
        return [
            (self.tr("parameters"), count_text(model.parameters) if model.parameters else "", told),
            (self.tr("licence"), model.licence or self.tr("it names none"), told),
            (self.tr("access"), self._access_word(model), told),
            (self.tr("task"), model.task, told),
            (self.tr("downloads"), count_text(model.downloads) if model.downloads is not None else "", told),
            (self.tr("likes"), count_text(model.likes) if model.likes is not None else "", told),
            (self.tr("changed"), model.updated, told),
            (self.tr("version"), offer.revision[:10] if offer else "", self.tr("The commit that would be fetched")),
        ]

    def chosen_set(self) -> FileSet | None:
        return self.sets.currentData()

    @Slot()
    def _show_takes(self) -> None:
        chosen = self.chosen_set()
        self.takes.setVisible(chosen is not None)
        going = chosen is not None and self._key(chosen) in self.downloads.going()
        whole = chosen is not None and chosen.here_bytes >= chosen.total_bytes
        self.download_button.setEnabled(chosen is not None and not going and not whole)
        self.download_button.setText(self.tr("Downloading…") if going else self.tr("Download"))
        if chosen is None:
            return
        count = self.tr("1 file") if len(chosen.files) == 1 else self.tr("{count} files")
        text = count.format(count=len(chosen.files)) + f", {bytes_text(chosen.total_bytes)}"
        if chosen.weights == "safetensors":
            text += " · safetensors"
        if whole:
            text += " · " + self.tr("all of it is here already, under “on this computer”")
        elif chosen.here_bytes:
            text += " · " + self.tr("{size} of it are here already").format(size=bytes_text(chosen.here_bytes))
        if chosen.weights == "pickle":
            text += " · " + self.tr("pickle files: they can run a program when they are read")
        self.takes.setText(text)

    def _key(self, chosen: FileSet) -> Key:
        model = self.table.current()
        return (model.hub_id if model else "", chosen.name)

    # ---------------------------------------------------------------- acts

    @Slot()
    def _download(self) -> None:
        chosen = self.chosen_set()
        if chosen is None or not self.download_button.isEnabled():
            return
        key = self._key(chosen)
        self.downloads.row(key).show_waiting()
        self._show_takes()
        self.download_requested.emit(key)

    @Slot()
    def open_page(self) -> None:
        model = self.table.current()
        if model is not None and (offer := self._offers.get(model.hub_id)) is not None:
            QDesktopServices.openUrl(QUrl(offer.page))

    def refresh_acts(self) -> None:
        """A download began or ended."""
        self._show_takes()


def _identity(model: HubModel) -> object:
    return model.hub_id


def _tone(_model: HubModel) -> str:
    return ""
