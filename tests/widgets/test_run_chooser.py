from tests.widgets import events_factory as make
from widgets import theme
from widgets.run_chooser import LEAST, WIDEST, RunChooser
from widgets.run_store import RunStore


def chooser(qtbot, *names):
    theme.set_mode("light")
    store = RunStore()
    made = RunChooser(store)
    qtbot.addWidget(made)
    for number, name in enumerate(names, start=1):
        store.take(make.start(number, name=name))
    made.refresh()
    return made


def test_a_choice_among_no_runs_or_one_is_not_shown(qtbot):
    assert chooser(qtbot).isHidden()
    assert chooser(qtbot, "").isHidden()
    assert not chooser(qtbot, "", "").isHidden()


def test_long_names_take_no_room_from_a_small_window(qtbot):
    made = chooser(qtbot, "", "a name that is much longer than any place for it would be")
    assert made.minimumWidth() == LEAST
    assert made.sizeHint().width() == made.maximumWidth() == WIDEST
