"""A precision x-ray as a picture to keep: heading, shaded text, its scale, the table. PNG or SVG."""

from __future__ import annotations

import math
from pathlib import Path

from PySide6.QtCore import QBuffer, QIODevice, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QFont, QFontMetricsF, QImage, QPainter, QPen
from PySide6.QtSvg import QSvgGenerator

from engine.events import Xray
from widgets import theme
from widgets.format import number_text
from widgets.xray_figures import KL_MARKS, as_rows, explanation, kl_shade, title, tr
from widgets.xray_text import flow_of, paint_xray

WIDTH, MARGIN = 900, 28
SCALE = 2  # of a PNG: sharp on a page


def paint_scale(painter: QPainter, left: float, top: float, font: QFont, width: float = WIDTH) -> float:
    """What the shades and the underline mean; in two lines where one is too narrow. Returns the height."""
    look, metrics = theme.current(), QFontMetricsF(font)
    painter.setFont(font)
    height, x = metrics.height(), left
    words = tr("KL divergence in nats")
    painter.setPen(look.muted)
    painter.drawText(QPointF(x, top + metrics.ascent()), words)
    x += metrics.horizontalAdvance(words) + 10
    for nats in KL_MARKS:
        text = number_text(nats, max(0, -round(math.log10(nats))))
        painter.setPen(QPen(look.line, 1.0))
        painter.setBrush(kl_shade(look, nats) or look.panel)
        painter.drawRoundedRect(QRectF(x, top + 1, height - 2, height - 2), 3, 3)
        painter.setPen(look.muted)
        painter.drawText(QPointF(x + height + 2, top + metrics.ascent()), text)
        x += height + 2 + metrics.horizontalAdvance(text) + 10
    words, bottom = tr("another first choice"), top
    if x + 28 + metrics.horizontalAdvance(words) > left + width:
        x, bottom = left, top + height + 4
    painter.setPen(QPen(look.warning, 2.0))
    painter.drawLine(QPointF(x, bottom + height - 3), QPointF(x + 22, bottom + height - 3))
    painter.setPen(look.muted)
    painter.drawText(QPointF(x + 28, bottom + metrics.ascent()), words)
    return bottom + height - top


def paint_picture(painter: QPainter, found: Xray) -> int:
    """Paints all of it from the origin on, WIDTH wide; returns its height."""
    look = theme.current()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    inside, y = float(WIDTH - 2 * MARGIN), float(MARGIN)
    heading, small, plain = theme.font(4, bold=True), theme.font(-2), theme.font()
    painter.setFont(heading)
    painter.setPen(look.ink)
    painter.drawText(QPointF(MARGIN, y + QFontMetricsF(heading).ascent()), title(found))
    y += QFontMetricsF(heading).height() + 10
    y += paint_scale(painter, MARGIN, y, small, inside) + 8
    flow = flow_of(found, theme.font(1), inside)
    painter.save()
    painter.translate(MARGIN, y)
    painter.setFont(theme.font(1))
    paint_xray(painter, found, flow, list(flow.pieces(0, flow.lines)))
    painter.restore()
    y += flow.lines * flow.line_height + 16
    y = _paint_table(painter, found, y, plain)
    painter.setFont(small)
    painter.setPen(look.muted)
    box = QRectF(MARGIN, y + 8, inside, 10_000)
    flags = int(Qt.TextFlag.TextWordWrap)
    words = tr("All measured, both precisions in one run.") + "\n" + explanation(found)
    painter.drawText(box, flags, words)
    return math.ceil(y + 8 + QFontMetricsF(small).boundingRect(box, flags, words).height() + MARGIN)


def _paint_table(painter: QPainter, found: Xray, y: float, font: QFont) -> float:
    look, metrics = theme.current(), QFontMetricsF(font)
    row_height = metrics.height() + 8
    rows = as_rows(found)
    names = max(metrics.horizontalAdvance(row[0]) for row in rows) + 32
    column = max(metrics.horizontalAdvance(cell) for row in rows if row[2] for cell in row[1:]) + 24
    column = max(column, max(metrics.horizontalAdvance(row[1]) for row in rows if not row[2]) / 2 + 12)
    painter.setFont(font)
    for number, (name, one, two) in enumerate(rows):
        base = y + 4 + metrics.ascent()
        painter.setPen(look.muted)
        painter.drawText(QPointF(MARGIN, base), name)
        painter.setPen(look.muted if number == 0 else look.ink)
        if two:
            for at, cell in enumerate((one, two), start=1):
                right = MARGIN + names + column * at
                painter.drawText(QPointF(right - metrics.horizontalAdvance(cell), base), cell)
        else:
            right = MARGIN + names + 2 * column
            painter.drawText(QPointF(right - metrics.horizontalAdvance(one), base), one)
        y += row_height
        painter.setPen(QPen(look.line, 1.0))
        painter.drawLine(QPointF(MARGIN, y), QPointF(MARGIN + names + 2 * column, y))
    return y


def save_picture(found: Xray, path: str | Path) -> bool:
    """Writes a PNG, or an SVG where the name ends so. False where it cannot be written."""
    path = Path(path)
    held = QBuffer()
    held.open(QIODevice.OpenModeFlag.WriteOnly)
    if path.suffix.lower() == ".svg":
        _draw(held, found)
    else:
        _render(found).save(held, "PNG")
    try:
        path.write_bytes(held.data().data())
    except (OSError, ValueError):
        return False
    return True


def _draw(held: QBuffer, found: Xray) -> None:
    height = _height(found)
    drawing = QSvgGenerator()
    drawing.setOutputDevice(held)
    drawing.setSize(QSize(WIDTH, height))
    drawing.setViewBox(QRectF(0, 0, WIDTH, height))
    drawing.setTitle(title(found))
    with QPainter(drawing) as painter:
        painter.fillRect(QRectF(0, 0, WIDTH, height), theme.current().panel)
        paint_picture(painter, found)


def _render(found: Xray) -> QImage:
    height = _height(found)
    image = QImage(WIDTH * SCALE, height * SCALE, QImage.Format.Format_RGB32)
    image.setDevicePixelRatio(SCALE)
    image.fill(theme.current().panel)
    with QPainter(image) as painter:
        paint_picture(painter, found)
    return image


def _height(found: Xray) -> int:
    probe = QImage(8, 8, QImage.Format.Format_RGB32)
    with QPainter(probe) as painter:
        return paint_picture(painter, found)
