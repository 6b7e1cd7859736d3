"""A view that is on the screen as a picture, as it stands: PNG or SVG, in the theme's colours."""

from __future__ import annotations

from PySide6.QtCore import QBuffer, QIODevice, QPoint, QRect, QRectF
from PySide6.QtGui import QImage, QPainter, QRegion
from PySide6.QtSvg import QSvgGenerator
from PySide6.QtWidgets import QAbstractScrollArea, QGraphicsView, QLabel, QWidget

from widgets import theme
from widgets.candidate_list import CandidateList

SCALE = 2  # of a PNG: sharp on a page
CSS_DPI = 96  # so that a pixel of the window is one of a page
_ALONE = QWidget.RenderFlag(0)
_ALL = QWidget.RenderFlag.DrawChildren


def png_of(view: QWidget) -> bytes:
    """The view as a PNG of SCALE times its size in pixels."""
    held = QBuffer()
    held.open(QIODevice.OpenModeFlag.WriteOnly)
    _image_of(view).save(held, "PNG")
    return held.data().data()


def _image_of(view: QWidget) -> QImage:
    image = QImage(view.size() * SCALE, QImage.Format.Format_RGB32)
    image.setDevicePixelRatio(SCALE)
    image.fill(theme.current().panel)
    view.render(image, QPoint(), QRegion(), _ALL)
    return image


def svg_of(view: QWidget, title: str) -> bytes:
    """The view as a drawing."""
    held = QBuffer()
    held.open(QIODevice.OpenModeFlag.WriteOnly)
    drawing = QSvgGenerator()
    drawing.setOutputDevice(held)
    drawing.setResolution(CSS_DPI)
    drawing.setTitle(title)
    whole = QRect(QPoint(), view.size())
    drawing.setSize(whole.size())
    drawing.setViewBox(whole)
    with QPainter(drawing) as painter:
        painter.fillRect(whole, theme.current().panel)
        _draw(painter, view, view)
    return held.data().data()


def _draw(painter: QPainter, view: QWidget, widget: QWidget) -> None:
    """One widget, then what is in it. A graph draws its scene: rendered as a widget it would be a picture in pixels."""
    place = widget.mapTo(view, QPoint()) if widget is not view else QPoint()
    if isinstance(widget, QGraphicsView):
        widget.render(painter, QRectF(QRect(place, widget.size())), widget.viewport().rect())
        parts = widget.findChildren(QLabel)
    elif isinstance(widget, CandidateList):  # paints whole rows only, so it can stay a drawing
        widget.render(painter, place, QRegion(), _ALL)
        return
    elif isinstance(widget, QAbstractScrollArea):
        # What it paints it clips, and Qt's SVG knows no clipping: in pixels, what is hidden stays hidden.
        painter.drawImage(QRect(place, widget.size()), _image_of(widget))
        return
    else:
        widget.render(painter, place, QRegion(), _ALONE)
        parts = [child for child in widget.children() if isinstance(child, QWidget)]
    for part in parts:
        if part.isVisibleTo(view):
            _draw(painter, view, part)
