"""What tests of the sampling panel share."""

from __future__ import annotations

import pytest

from engine import events as ev
from tests.widgets.facts import facts
from widgets.run_store import RunStore
from widgets.sampling_panel import SamplingPanel


@pytest.fixture
def store(qapp):
    """Of a model with the name "ours" that is loaded and free."""
    made = RunStore()
    made.take(ev.Loaded(facts(name="ours")))
    made.set_activity("idle")
    return made


@pytest.fixture
def panel(qtbot, store):
    """The sampling panel; what it asks the model is in `panel.questions`."""
    made = SamplingPanel(store)
    qtbot.addWidget(made)
    made.more_button.setChecked(True)
    made.resize(300, 700)
    made.show()
    made.questions = []
    made.asked.connect(made.questions.append)
    return made
