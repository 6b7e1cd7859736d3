"""The order of the filters in the whole window: on a fresh text, and in a replay without a model."""

from __future__ import annotations

from engine.events import ORDERED
from widgets.lab.order_page import LAST


def test_the_page_answers_for_a_text_and_for_its_replay(loaded, make_window, until, tmp_path):
    settings = {"temperature": 0.9, "top_p": 0.8, "repetition_penalty": 1.2, "seed": 5}
    window = loaded(str(tmp_path), sampling=settings, max_new_tokens=6)
    window.running.start_run()
    until(lambda: window.store.current is not None and window.store.current.end is not None and not window.engine.busy)
    window.laboratory.show("order")
    page = window.laboratory.page("order")
    until(lambda: page.list.lines())
    assert page.chips.order == LAST
    shown = {}
    for step in range(len(window.store.current.tokens)):
        window.store.select(step)
        page.refresh()
        shown[step] = page.list.lines(), page.why.text()
        today = page.list._found.today
        token = window.store.current.tokens[step]
        assert today.order == ORDERED
        assert today.stages[-1].least <= token.stages[-1].kept_tokens <= today.stages[-1].most
    again = make_window(model="")
    (file,) = tmp_path.glob("*.jsonl")
    again.replays.open_file(file)
    until(lambda: again.store.current is not None)
    again.laboratory.show("order")
    copy = again.laboratory.page("order")
    for step, lines in shown.items():
        again.store.select(step)
        copy.refresh()
        assert (copy.list.lines(), copy.why.text()) == lines
