"""What waits for a stop string is seen while it waits, and the string that ended a run is seen where it did."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine import events as ev
from tests.widgets import events_factory as make
from widgets import theme
from widgets.run_store import RunStore
from widgets.stop_painter import given_words, waiting_height, waiting_text
from widgets.text_view import TextView


@pytest.fixture
def shown(qtbot):
    views = []  # qtbot holds them weakly

    def build(tokens: list[ev.TokenEvent], stop: tuple[str, ...] = (), end: ev.RunEnd | None = None):
        store = RunStore()
        view = TextView(store)
        views.append(view)
        qtbot.addWidget(view)
        view.resize(560, 300)
        view.show()
        for event in (make.start(stop=stop), *tokens, *((end,) if end else ())):
            store.take(event)
        store.frame.emit()
        return view

    return build


def has(view: TextView, colour) -> bool:
    """Whether anything on the canvas is painted in this colour."""
    image = view.canvas.viewport().grab().toImage()
    return any(
        abs(c.red() - colour.red()) + abs(c.green() - colour.green()) + abs(c.blue() - colour.blue()) < 4
        for c in (image.pixelColor(x, y) for x in range(0, image.width(), 2) for y in range(0, image.height(), 2))
    )


def test_held_text_is_said_with_the_stop_string_that_it_could_become(shown) -> None:
    tokens = make.tokens(make.words("calm words here"))
    assert waiting_text("\n", ("\n\nUser:", "END")) == "waiting: “\\n” could become the stop “\\n\\nUser:”"
    assert waiting_text(" ", (" \n ", "END")) == "waiting: “·” could become the stop “·\\n·”"  # spaces are seen
    warning = theme.current().warning
    assert not has(shown(tokens, ("\n\nUser:",)), warning)
    tokens[-1] = replace(tokens[-1], held="\n")
    view = shown(tokens, ("\n\nUser:",))
    assert has(view, theme.current().chip(warning)[0])
    run = view.store.current
    assert waiting_height(view.canvas._flow, run) > 0  # so that the text does not jump when something waits
    view.store.take(make.end(tokens))
    view.store.frame.emit()
    assert waiting_height(view.canvas._flow, run) == 0
    chip = theme.current().chip(warning)[0]
    assert not has(view, chip)  # a text that is over waits for nothing
    tokens[1] = replace(tokens[1], held=" ")
    view = shown(tokens, (" END",), make.end(tokens))
    assert not has(view, chip)
    view.store.rewind(1)  # as it was at that word
    view.store.frame.emit()
    assert has(view, chip)


def test_the_stop_string_that_ended_the_run_is_marked(shown) -> None:
    tokens, struck = make.tokens(make.words("calm words here")), theme.current().chip(theme.current().warning)[0]
    assert not has(shown(tokens, ("zz",), make.end(tokens, "stop string")), struck)
    assert has(shown(tokens, ("zz",), make.end(tokens, "stop string", stop_string="zz")), struck)
    long = make.end(tokens, "stop string", stop_string="z" * 5000)
    assert has(shown(tokens, ("zz",), long), struck)
    empty = make.end(tokens[:1], "stop string", stop_string="zz")
    assert has(shown([replace(tokens[0], text="")], ("zz",), empty), struck)


def test_a_given_word_tells_the_models_own_odds(shown) -> None:
    tokens = make.tokens(make.words("calm words here"))
    assert given_words(tokens[0]) == ""
    given = replace(tokens[1], forced=True)
    assert "92.0%" in given_words(given)
    view = shown([tokens[0], given, tokens[2]])
    assert "Given" in view.canvas._what_of(1)
    assert "Given" not in view.canvas._what_of(0)
