"""The pages of loading: what they show, what they ask for, and what they say where there is nothing."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest

from engine import events as ev
from engine.settings import LoadPlan
from tests.widgets import events_factory
from tests.widgets.boxes import made
from tests.widgets.facts import facts
from widgets import theme
from widgets.box_view import BoxView
from widgets.boxes.blueprint_rows import family_sentence, rows
from widgets.boxes.histogram_view import HistogramView
from widgets.boxes.skeleton_page import matches

PAGES = ("blueprint", "skeleton", "weights")


@pytest.fixture
def view(qtbot, store, asked):
    view = BoxView(store)
    qtbot.addWidget(view)
    view.asked.connect(asked.append)
    view.resize(330, 640)
    view.show()
    return view


def page(view, name):
    view.show_box(name)
    return view.page(name)


def load(store):
    for event in (made.outline(), made.table(), ev.Loaded(facts())):
        store.take(event)
    store.frame.emit()


def clipboard() -> str:
    return QGuiApplication.clipboard().text()


# ---------------------------------------------------------------- which model, and when


@pytest.mark.parametrize("name", PAGES)
def test_nothing_chosen_says_what_to_do(view, asked, name):
    shown = page(view, name)
    assert "Ctrl+L" in shown.message.text()
    assert not shown.body.isVisible()
    assert asked == []


@pytest.mark.parametrize(
    ("name", "question"),
    [
        ("blueprint", ev.OutlineQuestion("a/model", "nf4")),
        ("skeleton", ev.OutlineQuestion("a/model", "nf4")),
        ("weights", ev.WeightsQuestion("a/model")),
    ],
)
def test_a_chosen_model_is_asked_about_once_and_shown_before_it_is_loaded(view, store, asked, name, question):
    store.inside.choose(LoadPlan("a/model", "nf4"))
    shown = page(view, name)
    store.frame.emit()
    assert asked == [question]
    assert shown.message.text() == "reading…"
    answer = made.table(loaded=False) if name == "weights" else made.outline()
    store.take(ev.Answered(question, answer))
    store.frame.emit()
    assert shown.body.isVisible()
    assert shown.subject_bar.state.text() == "chosen, not loaded"
    assert len(asked) == 1


@pytest.mark.parametrize("name", PAGES)
def test_while_a_run_goes_on_nothing_is_asked_and_it_says_so(view, store, asked, name):
    store.inside.choose(LoadPlan("a/model"))
    store.take(events_factory.start())
    store.inside.at_choice = True
    shown = page(view, name)
    assert asked == []
    assert "The engine is at work" in shown.message.text()
    store.take(events_factory.end([]))
    store.frame.emit()
    assert len(asked) == 1


@pytest.mark.parametrize("name", PAGES)
def test_an_error_is_shown_with_its_way_out(view, store, asked, name):
    store.inside.choose(LoadPlan("a/model"))
    shown = page(view, name)
    error = ev.EngineError("config.json is not JSON.", "Download it again.", 3, "question")
    store.take(ev.Answered(asked[0], error))
    store.frame.emit()
    assert shown.message.text() == "config.json is not JSON. Download it again."
    assert shown.message.property("role") == "warning"


@pytest.mark.parametrize("name", PAGES)
def test_what_was_broken_off_is_asked_again(view, store, asked, name):
    store.inside.choose(LoadPlan("a/model"))
    page(view, name)
    store.take(ev.Answered(asked[0], None))
    store.frame.emit()
    assert len(asked) == 2


@pytest.mark.parametrize("name", PAGES)
def test_a_loaded_model_is_shown_without_a_question_and_another_choice_can_be_left_again(view, store, asked, name):
    store.inside.choose(LoadPlan("default"))
    load(store)
    shown = page(view, name)
    assert asked == []
    assert shown.body.isVisible()
    assert shown.subject_bar.state.text().startswith("loaded · ")
    store.inside.choose(LoadPlan("b/other"))
    store.frame.emit()
    assert len(asked) == 1
    assert shown.subject_bar.state.text() == "chosen, not loaded"
    QTest.mouseClick(shown.subject_bar.other, Qt.MouseButton.LeftButton)
    store.frame.emit()
    assert shown.body.isVisible()
    assert shown.subject_bar.state.text().startswith("loaded · ")


def test_the_outline_of_a_load_stands_there_before_its_weights_are_read(view, store):
    store.set_activity("loading")
    store.take(ev.LoadProgress("blueprint", 0, 0, 0.0))
    shown = page(view, "skeleton")
    assert "as soon as its blueprint has been read" in shown.message.text()
    store.take(made.outline())
    store.frame.emit()
    assert shown.body.isVisible()
    assert shown.subject_bar.state.text() == "is being loaded"


@pytest.mark.parametrize("name", PAGES)
def test_a_recording_shows_what_it_knows_without_asking_for_files(view, store, asked, name):
    events = [ev.Loaded(facts()), events_factory.start(), *events_factory.river()]
    store.take_runs(events_factory.recorded(events))
    view.show_box(name)
    names = {row.name for row in view.rows()}
    assert {"blueprint": "Family", "skeleton": "Parameters", "weights": "In memory"}[name] in names
    assert asked == []
    assert view._area.isVisible()
    store.inside.choose(LoadPlan("a/model"))
    store.inside.choose(LoadPlan("b/other"))
    store.frame.emit()
    assert view.page(name).isVisible()
    assert len(asked) == 1


# ---------------------------------------------------------------- blueprint


def test_the_blueprint_says_plain_words_first_and_the_term_in_the_tool_tip(view, store):
    load(store)
    shown = page(view, "blueprint")
    values = {row.name: row.value for row in rows(made.outline())}
    assert values["heads"] == "9, sharing 3"
    assert values["vocabulary"] == "49,152 tokens"
    assert values["embedding and head"] == "one table (tied)"
    assert values["positions"] == "rotary, base 100,000"
    assert values["ends with token"] == "2"
    tips = {row.name: row.tooltip for row in rows(made.outline())}
    assert "num_key_value_heads" in tips["heads"]
    assert "predicted" in tips["weights in memory"]
    shown.copy_facts.click()
    assert "vocabulary\t49,152 tokens" in clipboard().splitlines()
    assert "59.2%" in shown.shares.accessibleDescription()


def test_the_number_types_of_files_config_and_load_stand_side_by_side(qapp):
    """LOD-26."""
    told = made.outline(dtype_files=("float16", "bfloat16"), dtype_config="float32", precision="bfloat16")
    values = {row.name: row.value for row in rows(told)}
    assert values["type in the files"] == "float16 and bfloat16"
    assert values["type in the config"] == "float32"
    assert values["type when loaded"] == "bfloat16"


def test_the_raw_file_is_shown_as_written_and_copied(view, store):
    load(store)
    shown = page(view, "blueprint")
    shown.tabs.setCurrentIndex(1)
    assert shown.raw.toPlainText() == made.outline().raw
    shown.copy_raw.click()
    assert clipboard() == made.outline().raw


def test_the_family_sentence_tells_experts_windows_and_states(qapp):
    plain = family_sentence(made.outline())
    assert "Llama" in plain
    assert "30 layers" in plain
    windowed = family_sentence(made.outline(windows=((None, 6), (511, 24))))
    assert "24 of its 30 layers look back no further than 512 tokens" in windowed
    experts = family_sentence(made.outline(experts=8, experts_per_token=2))
    assert "2 of 8 experts" in experts
    assert "fixed size" in family_sentence(made.outline(windows=(), other_layers=30))
    assert "26 of its 30 layers keep a summary" in family_sentence(made.outline(windows=((None, 4),), other_layers=26))
    ones = made.outline(layers=1, experts=8, experts_per_token=1, windows=((511, 1),), other_layers=1)
    told = family_sentence(ones)
    assert all(words in told for words in ("1 layer,", "one of 8 experts works", "looks back", "keeps a summary"))
    assert "somebodys_own" in family_sentence(made.outline(family="somebodys_own"))


def test_facts_find_room_in_a_narrow_dock(view, store):
    load(store)
    shown = page(view, "blueprint")
    QGuiApplication.processEvents()
    area = shown.tabs.widget(0)
    assert area.widget().width() <= area.viewport().width()
    assert view.width() == 330


# ---------------------------------------------------------------- skeleton


def items(tree):
    found = []

    def walk(item):
        found.append(item)
        for at in range(item.childCount()):
            walk(item.child(at))

    walk(tree.topLevelItem(0))
    return found


def test_repeated_layers_are_one_row_with_their_count(view, store):
    load(store)
    shown = page(view, "skeleton")
    texts = [item.text(0) for item in items(shown.tree)]
    assert "30 × LlamaDecoderLayer" in texts
    assert "q_proj  576 × 576" in texts
    folded = items(shown.tree)[texts.index("30 × LlamaDecoderLayer")]
    assert "0–29" in folded.toolTip(0)
    assert folded.text(2) == "7.1 MB"
    head = items(shown.tree)[texts.index("lm_head  49,152 × 576")]
    assert head.text(2) == "tied"


def test_a_search_finds_a_layer_by_its_own_number(view, store):
    load(store)
    shown = page(view, "skeleton")
    QTest.keyClicks(shown.search, "layers.17.self_attn.K")
    left = [item.text(0) for item in items(shown.tree) if not item.isHidden()]
    assert left == ["LlamaForCausalLM", "model", "layers", "30 × LlamaDecoderLayer", "self_attn", "k_proj  192 × 576"]
    shown.search.setText("layers.30.")
    assert not shown.nothing.isHidden()
    shown.search.clear()
    assert shown.nothing.isHidden()
    assert not any(item.isHidden() for item in items(shown.tree))


def test_a_pattern_matches_with_any_of_its_numbers():
    assert matches("model.layers.{}.mlp.experts.{}.w1", ((0, 1, 2), (0, 1)), "layers.2.mlp.experts.1")
    assert not matches("model.layers.{}.mlp.experts.{}.w1", ((0, 1, 2), (0, 1)), "layers.1.mlp.experts.2")


def test_rows_are_copied_with_exact_figures(view, store):
    load(store)
    shown = page(view, "skeleton")
    shown.copy_rows()
    lines = clipboard().splitlines()
    assert lines[0].split("\t") == ["name", "class", "shape", "parameters", "predicted_bytes"]
    assert "model.layers.[0–29].self_attn.q_proj.weight\tLinear\t576 × 576\t331776\t663552" in lines
    shown.tree.setCurrentItem(items(shown.tree)[1])
    QTest.keyClick(shown.tree, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert len(clipboard().splitlines()) == 2


# ---------------------------------------------------------------- weights


def test_shards_move_while_they_are_read(view, store):
    store.set_activity("loading")
    store.take(ev.LoadProgress("blueprint", 0, 0, 0.0))
    store.take(made.outline())
    shown = page(view, "weights")
    store.take(ev.LoadProgress("weights", 50_000_000, 269_000_000, 20.0))
    store.take(ev.ShardRead("b.safetensors", 1, 69_000_000, 0, 0.0))
    store.take(ev.ShardRead("a.safetensors", 0, 200_000_000, 50_000_000, 20.0))
    store.frame.emit()
    assert shown.kind.text() == "50 MB of 269 MB read"
    lines = shown.shards.accessibleDescription().splitlines()
    assert lines == ["a.safetensors: 50 MB of 200 MB · 2.5 GB / s", "b.safetensors: 0 B of 69 MB"]
    assert not shown.tabs.isTabEnabled(1)
    load(store)
    assert shown.tabs.isTabEnabled(1)
    assert "Nothing in such a file can run" in shown.kind.text()
    assert "269 MB in 2 files, read in 123 ms, measured" in shown.kind.text()


def test_a_pickle_says_why_it_matters(view, store):
    for event in (made.outline(), made.table(kind="pickle"), ev.Loaded(facts())):
        store.take(event)
    assert "can run programs when it is read" in page(view, "weights").kind.text()


def test_marks_are_counted_named_and_searched(view, store):
    load(store)
    shown = page(view, "weights")
    shown.tabs.setCurrentIndex(1)
    assert shown.counted.text() == "1 unexpected, 1 tied, 1 missing"
    model = shown.table.tensors
    shown.marked.setChecked(True)
    assert [model.data(model.index(at, 0)) for at in range(model.rowCount())] == [
        "unexpected · extra",
        "tied · lm_head",
        "missing · norm",
    ]
    shown.marked.setChecked(False)
    QTest.keyClicks(shown.search, "00002-of")
    assert [row.name for row in model.rows] == ["model.layers.1.self_attn.q_proj.weight"]
    assert shown.counted.text().startswith("1 shown")
    assert "model.layers.1.self_attn.q_proj.weight" in model.data(model.index(0, 0), Qt.ItemDataRole.ToolTipRole)
    shown.table.copy_rows()
    assert clipboard().splitlines()[1].split("\t")[:4] == [
        "model.layers.1.self_attn.q_proj.weight",
        "model-00002-of-00002.safetensors",
        "bfloat16",
        "576×576",
    ]


def test_enter_on_a_tensor_asks_for_its_numbers_and_shows_them(view, store, asked):
    load(store)
    shown = page(view, "weights")
    shown.tabs.setCurrentIndex(1)
    assert "Choose a tensor" in shown.why_not.text()
    shown.table.selectRow(0)
    QTest.keyClick(shown.table, Qt.Key.Key_Return)
    question = ev.HistogramQuestion(made.PATH, "model.layers.0.self_attn.q_proj.weight")
    assert asked == [question]
    assert shown.why_not.text() == "counting…"
    store.take(ev.Answered(question, made.histogram()))
    store.frame.emit()
    assert shown.histogram.isVisible()
    assert dict(shown.histogram.rows())["NaN"] == "2"
    assert "measured from memory in 12.0 ms" in shown.histogram.source.text()
    shown.histogram.copy_figures()
    lines = clipboard().splitlines()
    assert "zeros\t4" in lines
    assert len(lines) == 12 + ev.BINS
    assert lines[12] == "-1.5\t-1.4375\t40"
    shown.histogram.bins.setCurrentIndex(1)
    shown.histogram.log_heights.setChecked(True)
    assert not shown.grab().isNull()
    shown.histogram.other_wanted.emit(1)
    assert asked[1] == ev.HistogramQuestion(made.PATH, "model.layers.1.self_attn.q_proj.weight")


def test_the_words_below_a_histogram_stand_together_in_a_high_window(qtbot):
    shown = HistogramView()
    qtbot.addWidget(shown)
    shown.show_histogram(made.histogram())
    shown.resize(330, 700)
    shown.show()
    for words in (shown.figures, shown.source):
        qtbot.waitUntil(lambda words=words: words.height() == words.heightForWidth(words.width()))


def test_a_tied_tensor_asks_for_the_one_it_is_and_a_missing_one_has_no_numbers(view, store, asked):
    load(store)
    shown = page(view, "weights")
    shown.tabs.setCurrentIndex(1)
    shown.table.selectRow(3)
    shown.ask_numbers()
    assert asked == [ev.HistogramQuestion(made.PATH, "model.embed_tokens.weight")]
    shown.table.selectRow(4)
    shown.ask_numbers()
    assert len(asked) == 1
    assert "no numbers" in shown.why_not.text()


def test_numbers_wait_for_a_run_that_goes_on(view, store, asked):
    load(store)
    store.take(events_factory.start())
    shown = page(view, "weights")
    shown.tabs.setCurrentIndex(1)
    shown.table.selectRow(0)
    shown.ask_numbers()
    assert asked == []
    assert "The engine is at work" in shown.why_not.text()
    store.take(events_factory.end([]))
    store.frame.emit()
    assert len(asked) == 1


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_pages_follow_the_theme(view, store, name, mode):
    load(store)
    shown = page(view, name)
    theme.set_mode(mode)
    picture = shown.grab().toImage()
    ground = picture.pixelColor(picture.width() - 2, picture.height() - 2)
    assert (ground.lightness() < 128) == (mode == "dark")
    theme.set_mode("light")


def test_a_model_loaded_after_the_shown_run_is_shown_until_a_run_is_chosen_again(view, store):
    load(store)
    store.take(events_factory.start())
    store.take(events_factory.end([]))
    before, run = store.facts, store.current
    load(store)
    shown = page(view, "blueprint")
    assert store.loading_facts is store.facts is not before
    assert shown.subject_bar.state.text().startswith("loaded · ")
    assert store.shown_facts is before  # the run's own figures stay the run's
    store.show(run)
    store.frame.emit()
    assert store.loading_facts is before
    assert not shown.isVisible()  # what the run knows of its model stands there
    store.take(events_factory.start(run_id=2))
    assert store.loading_facts is store.facts
