"""The tree of forks, painted: time runs to the right in tokens, and each fork hangs below the text that it left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QLineF, QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QPainter, QPen

from widgets import theme
from widgets.format import count_text
from widgets.lab.fork_places import AXIS, INDENT, LEFT, Places
from widgets.lab.fork_rows import Key, Row, tr

BAR = 4.0
TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)


@dataclass(frozen=True, slots=True)
class Fonts:
    """name and small stand in a row's first line, plain and given in its text. line, name_height: pixels."""

    name: QFont
    small: QFont
    plain: QFont
    given: QFont
    line: float
    name_height: float

    @classmethod
    def now(cls) -> Fonts:
        """As the theme has them."""
        name, plain = theme.font(bold=True), theme.font(1)
        heights = QFontMetricsF(plain).height(), QFontMetricsF(name).height()
        return cls(name, theme.font(-1), plain, theme.font(1, bold=True), *heights)

    @property
    def row_height(self) -> int:
        return round(self.name_height + self.line + BAR + 26.0)


@dataclass(frozen=True, slots=True)
class ForkPicture:
    """All that is drawn. cursor: None where it is not shown. current: the shown run, and `selected` its token, from
    the beginning of its text. naming: the run whose name is being typed."""

    rows: Sequence[Row]
    places: Places
    fonts: Fonts
    marked: tuple[Key, ...]
    cursor: Key | None
    current: Key | None
    selected: int | None
    naming: Key | None

    def paint(self, painter: QPainter) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if not self.rows:
            self._paint_empty(painter)
            return
        self._paint_axis(painter)
        painter.setClipRect(QRectF(0, AXIS, self.places.width, self.places.height - AXIS))
        seen = self.places.seen()
        for at in seen:
            self._paint_ground(painter, at)
        for at in range(len(self.rows)):  # a line may pass rows of which neither end is seen
            self._paint_stem(painter, at)
        for at in seen:
            self._paint_row(painter, at)
        self._paint_selected(painter)
        if len(self.rows) == 1:
            self._paint_hint(painter)

    def _paint_axis(self, painter: QPainter) -> None:
        look = theme.current()
        painter.setFont(theme.font(-2))
        metrics = QFontMetricsF(painter.font())
        widest = metrics.horizontalAdvance(count_text(self.places.longest)) + 28.0
        step = next((tick for tick in TICKS if tick * self.places.scale >= widest), TICKS[-1])
        painter.setPen(look.muted)
        words = tr("tokens")
        right = self.places.width - metrics.horizontalAdvance(words) - 6.0
        for token in range(0, self.places.longest + 1, step):
            x = self.places.x_of(token)
            if -40.0 < x < right - 30.0:
                painter.drawText(QRectF(x - 30, 2, 60, AXIS - 8), int(Qt.AlignmentFlag.AlignCenter), count_text(token))
        painter.drawText(QRectF(right, 2, 200, AXIS - 8), int(Qt.AlignmentFlag.AlignVCenter), words)
        painter.setPen(QPen(look.line, 1.0))
        painter.drawLine(QLineF(0, AXIS - 2.5, self.places.width, AXIS - 2.5))

    def _paint_ground(self, painter: QPainter, at: int) -> None:
        look, key = theme.current(), self.rows[at].run.key
        box = QRectF(2.0, self.places.top_of(at) + 2.0, self.places.width - 4.0, self.places.row_height - 4.0)
        if key in self.marked:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self._tint())
            painter.drawRoundedRect(box, 5.0, 5.0)
        if key == self.cursor:
            painter.setPen(QPen(look.accent, 1.0))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(box.adjusted(0.5, 0.5, -0.5, -0.5), 5.0, 5.0)

    @staticmethod
    def _tint() -> QColor:
        look = theme.current()
        return theme.mixed(look.panel, look.accent, 0.10)

    def _paint_stem(self, painter: QPainter, at: int) -> None:
        """The line from where a fork left its parent down to its bar."""
        row, look = self.rows[at], theme.current()
        x = self.places.x_of(row.begins)
        pen = QPen(theme.mixed(look.panel, look.muted, 0.75), 1.5)
        if row.parent is not None:
            painter.setPen(pen)
            painter.drawLine(QLineF(x, self.places.bar_of(row.parent), x, self.places.bar_of(at)))
        elif row.begins:  # what it began in is not here
            pen.setStyle(Qt.PenStyle.DotLine)
            painter.setPen(pen)
            painter.drawLine(QLineF(self.places.x_of(0), self.places.bar_of(at), x, self.places.bar_of(at)))

    def _paint_row(self, painter: QPainter, at: int) -> None:
        row, look = self.rows[at], theme.current()
        run, y = row.run, self.places.bar_of(at)
        current = run.key == self.current
        ground = self._tint() if run.key in self.marked else look.panel
        x0, x1 = self.places.x_of(row.begins), self.places.x_of(max(row.ends, row.begins))
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(look.accent if current else theme.mixed(look.panel, look.weights, 0.8))
        painter.drawRoundedRect(QRectF(x0, y - BAR / 2, max(BAR, x1 - x0), BAR), BAR / 2, BAR / 2)
        if row.parent is not None:
            for middle in (self.places.bar_of(row.parent), y):
                painter.drawEllipse(QPointF(x0, middle), 4.0, 4.0)
        left = max(LEFT, x0 + INDENT)
        width = self.places.width - left - 10.0
        if width < 40.0:
            return
        top = self.places.top_of(at) + 7.0
        height = self.fonts.name_height
        if self.naming != run.key:
            self._paint_words(painter, QRectF(left, top, width, height), self._head(row, ground))
        self._paint_words(painter, QRectF(left, top + height + 1.0, width, self.fonts.line), self._text(row, ground))

    def _paint_selected(self, painter: QPainter) -> None:
        """The selected token, on the bar of the run that wrote it."""
        token = self.selected
        at = next((at for at, row in enumerate(self.rows) if row.run.key == self.current), None)
        if token is None or at is None:
            return
        while (parent := self.rows[at].parent) is not None and token < self.rows[at].begins:
            at = parent
        x, y = self.places.x_of(token + 0.5), self.places.bar_of(at)
        painter.fillRect(QRectF(x - 1.0, y - 7.0, 2.0, 14.0), theme.current().accent)

    def _head(self, row: Row, ground: QColor) -> list[tuple[str, object, QColor]]:
        look = theme.current()
        name = theme.readable(look.accent, ground) if row.run.key == self.current else look.ink
        rest = theme.readable(look.muted, ground)
        return [(row.name, self.fonts.name, name), ("   " + " · ".join(row.about()), self.fonts.small, rest)]

    def _text(self, row: Row, ground: QColor) -> list[tuple[str, object, QColor]]:
        look = theme.current()
        given, words = row.text()
        return [(given, self.fonts.given, theme.readable(look.accent, ground)), (words, self.fonts.plain, look.ink)]

    @staticmethod
    def _paint_words(painter: QPainter, box: QRectF, parts: list) -> None:
        flags = int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft | Qt.TextFlag.TextSingleLine)
        x, right = box.left(), box.right()
        for text, font, colour in parts:
            if not text or right - x < 12.0:
                continue
            metrics = QFontMetricsF(font)
            shown = metrics.elidedText(text, Qt.TextElideMode.ElideRight, right - x)
            painter.setFont(font)
            painter.setPen(colour)
            painter.drawText(QRectF(x, box.top(), right - x, box.height()), flags, shown)
            x += metrics.horizontalAdvance(shown)
            if shown != text:
                break

    def _paint_empty(self, painter: QPainter) -> None:
        painter.setPen(theme.current().muted)
        painter.setFont(theme.font(1))
        painter.drawText(
            QRect(0, 0, self.places.width, self.places.height).adjusted(24, 12, -24, -12),
            int(Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap),
            "\n".join(
                (
                    tr("Texts that grew out of one another are drawn here as a tree."),
                    tr("Press Run (Ctrl+Return) for the first one."),
                    self._how(),
                )
            ),
        )

    def _how(self) -> str:
        return tr(
            "At any word you can then go on another way: with other settings (Ctrl+Shift+Return), with another word of "
            "“Why this word” (Ctrl+Shift+A), or with what you write (Ctrl+Shift+W)."
        )

    def _paint_hint(self, painter: QPainter) -> None:
        painter.setPen(theme.current().muted)
        painter.setFont(theme.font())
        top = self.places.top_of(1) + 12.0
        box = QRectF(LEFT + INDENT, top, min(560.0, self.places.width - 2 * LEFT - INDENT), 200.0)
        painter.drawText(box, int(Qt.TextFlag.TextWordWrap), self._how())
