"""Pictures of views: an SVG shows what the screen shows."""

from __future__ import annotations

from PySide6.QtCore import QByteArray, QSize, Qt
from PySide6.QtGui import QImage, QPainter
from PySide6.QtSvg import QSvgRenderer

from tests.widgets.events_factory import end, river, shown
from widgets.pictures import SCALE, png_of, svg_of
from widgets.plots.speed import SpeedPlot
from widgets.text_view import TextView
from widgets.word_view import WordView

_KEEP, _SMOOTH = Qt.AspectRatioMode.KeepAspectRatio, Qt.TransformationMode.SmoothTransformation


def rendered(data: bytes, size: QSize) -> QImage:
    image = QImage(size, QImage.Format.Format_RGB32)
    image.fill("white")
    with QPainter(image) as painter:
        QSvgRenderer(QByteArray(data)).render(painter)
    return image


def difference(one: QImage, other: QImage) -> float:
    """Mean difference of brightness, 0 to 255, in squares of eight pixels: edges may be smoothed otherwise."""
    small = [image.scaled(image.size() / 8, _KEEP, _SMOOTH) for image in (one, other)]
    grey = [image.convertToFormat(QImage.Format.Format_Grayscale8) for image in small]
    pairs = [(x, y) for x in range(grey[0].width()) for y in range(grey[0].height())]
    return sum(abs(grey[0].pixelColor(x, y).value() - grey[1].pixelColor(x, y).value()) for x, y in pairs) / len(pairs)


def _views(qtbot):
    for kind, size in ((SpeedPlot, (480, 300)), (WordView, (420, 420)), (TextView, (480, 300))):
        events = river()
        store, view = shown(qtbot, kind, events, size, end(events))
        store.select(12)  # painted in white on the accent: clipping
        store.frame.emit()
        qtbot.wait(0)
        yield view
        view.close()


def test_an_svg_shows_what_the_screen_shows(qtbot):
    for view in _views(qtbot):
        screen = QImage.fromData(png_of(view)).scaled(view.size(), _KEEP, _SMOOTH)
        assert difference(screen, rendered(svg_of(view, "x"), view.size())) < 1.5, type(view).__name__


def test_a_plot_is_a_drawing_with_words(qtbot):
    for view in _views(qtbot):
        data = svg_of(view, "Speed <&>")
        assert QSvgRenderer(QByteArray(data)).isValid()
        assert b"<text" in data
        assert b"Speed &lt;&amp;&gt;" in data
        if isinstance(view, SpeedPlot):
            assert b"<image" not in data


def test_a_png_has_more_pixels_than_the_screen(qtbot):
    for view in _views(qtbot):
        image = QImage.fromData(png_of(view))
        assert image.size() == view.size() * SCALE
