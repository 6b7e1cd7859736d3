import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QTextDocument

from engine import events as ev
from tests.widgets import events_factory as make
from tests.widgets.facts import facts
from widgets import theme
from widgets.plots.base import bytes_ticks, series, thinned, ticks, with_room
from widgets.plots.kv_cache import KvCachePlot, exact_per_token
from widgets.plots.memory import MemoryPlot, predicted_weights
from widgets.plots.speed import SpeedPlot, rolling_rate
from widgets.run_store import RunStore

KINDS = (MemoryPlot, KvCachePlot, SpeedPlot)


@pytest.fixture
def store(qapp):
    theme.set_mode("light")
    return RunStore()


def shown(qtbot, kind, store):
    plot = kind(store)
    qtbot.addWidget(plot)
    store.kept = plot  # qtbot keeps no hold on it, and a plot that is collected while it paints ends the process
    store.frame.connect(plot.refresh)  # at once, and not in the plot's next turn
    plot.resize(420, 200)
    plot.show()
    return plot


def write(store, events, loaded=None):
    store.take(ev.Loaded(loaded or facts()))
    store.take(make.start())
    store.take(ev.PrefillProgress(1, 38, 38, 290.0, 38 * 23_040))
    for event in events:
        store.take(event)
    store.frame.emit()


def reading(time_s, process=487_000_000, available=212_000_000, gpus=()):
    return ev.MemoryReading(time_s, process, available, 2_000_000_000, gpus)


# ---------------------------------------------------------------- what reaches a plot


@given(
    st.lists(st.one_of(st.none(), st.integers(), st.floats(), st.just(10**400), st.just(-(2**70)))),
    st.lists(st.one_of(st.none(), st.integers(), st.floats())),
)
def test_a_series_is_two_float_arrays_of_one_length_without_infinities(x, y):
    xs, ys = series(x, y)
    assert xs.dtype == ys.dtype == np.float64
    assert len(xs) == len(ys) == min(len(x), len(y))
    assert not np.isinf(xs).any()
    for given_value, drawn in zip(x, xs, strict=False):
        if given_value is not None and abs(given_value) < 1e300:
            assert drawn == float(given_value)
        else:
            assert math.isnan(drawn)


@pytest.mark.parametrize(
    "values",
    [
        [],
        [None],
        [1],
        [1, 1, 1],
        [math.nan, math.inf, -math.inf],
        [None, 2**70, -(10**400)],
        [1e308, -1e308],
        [0, None, 3],
    ],
)
def test_a_plot_stays_calm_whatever_it_is_given(qtbot, store, values):
    plot = shown(qtbot, KvCachePlot, store)  # THR-27, MEM-10
    write(store, make.tokens([" a", " b"]))
    plot.measured.draw(range(len(values)), values)
    for top in (0.0, -1.0, 3.0, 1e308, math.nan, math.inf):
        plot.set_ranges(0, 2, top)
        plot.grab()
    assert not plot.grab().isNull()


def test_thinning_keeps_peaks_and_ends():
    y = np.ones(10_000)
    y[4321] = 99.0
    y[777] = -5.0
    xs, ys = thinned(np.arange(10_000.0), y, 300)
    assert len(xs) < 1300
    assert ys.max() == 99.0
    assert ys.min() == -5.0
    assert (xs[0], xs[-1]) == (0.0, 9999.0)
    assert (np.diff(xs) > 0).all()


@pytest.mark.parametrize("top", [0.0, math.nan, math.inf, 1e-9, 3.0, 613e6, 1e200])
def test_ticks_are_few_and_round(top):
    assert len(ticks(top, 4)) <= 6
    assert ticks(top, 4)[0] == 0.0


@given(st.floats(1e-6, 1e12))
def test_axes_grow_by_steps_of_at_most_an_eighth(size):
    found = with_room(size)
    assert size <= found <= size * 1.1251
    assert with_room(found) == found


def test_while_a_model_writes_the_axes_stay_as_they_are_for_some_tokens(qtbot, store):
    plot = shown(qtbot, KvCachePlot, store)
    events = make.tokens([" a"] * 64)
    store.take(ev.Loaded(facts()))
    store.take(make.start())
    seen = set()
    for token in events:
        store.take(token)
        plot.refresh()
        ((_, right), _) = plot.view.viewRange()
        assert right >= max(1, len(store.current.tokens) - 1)
        seen.add(right)
    assert len(seen) <= 32
    store.take(make.end(events))
    plot._drawn = ()
    plot.refresh()
    assert plot.view.viewRange()[0][1] == 63


def test_byte_labels_share_a_unit():
    assert bytes_ticks([0.0, 2e8, 4e8, 6e8]) == ["0", "200", "400", "600 MB"]
    assert bytes_ticks([0.0, 5e5, 1e6]) == ["0", "0.5", "1.0 MB"]


# ---------------------------------------------------------------- each plot


@pytest.mark.parametrize("kind", [KvCachePlot, SpeedPlot])
def test_a_plot_that_was_empty_has_room_for_its_axes_as_soon_as_it_is_drawn(qtbot, store, kind):
    plot = shown(qtbot, kind, store)
    plot.grab()
    write(store, make.tokens([*make.words(make.RIVER)]))
    plot.grab()
    assert plot.view.getAxis("left").isVisible()
    assert plot.view.getAxis("left").width() > 20
    assert plot.view.getAxis("bottom").height() > 10


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [190, 230, 420])
def test_an_axis_has_its_unit_at_its_beginning_beside_all_numbers(qtbot, store, kind, width):
    plot = shown(qtbot, kind, store)
    write(store, make.tokens([" a"] * 96))
    plot.resize(width, 200)
    plot.grab()
    assert plot.x_unit.text() == "tokens"
    assert plot.x_unit.isVisible()
    assert plot.x_unit.geometry().right() < plot.view.getViewBox().sceneBoundingRect().left()
    assert plot.x_unit.fontMetrics().horizontalAdvance("tokens") <= plot.x_unit.width()
    assert all(text.isdigit() for _, text in plot.view.getAxis("bottom")._tickLevels[0])


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_plot_says_what_will_be_drawn_and_what_to_press(qtbot, store, kind):
    plot = shown(qtbot, kind, store)
    assert plot.empty.isVisible()
    assert not plot.x_unit.isVisible()
    assert "ress Run" in plot.empty.text()


@pytest.mark.parametrize("kind", KINDS)
def test_a_plot_is_drawn_again_in_the_other_theme(qtbot, store, kind):
    plot = shown(qtbot, kind, store)
    write(store, make.river())
    before = plot.graph.grab().toImage()
    theme.set_mode("dark")
    after = plot.graph.grab().toImage()
    theme.set_mode("light")
    assert before.pixelColor(2, 2) == theme.LIGHT.panel
    assert after.pixelColor(2, 2) == theme.DARK.panel


def test_the_cache_is_drawn_as_measured_and_exact(qtbot, store):
    plot = shown(qtbot, KvCachePlot, store)
    write(store, make.river())
    tokens = store.current.tokens
    measured = plot.measured.ys
    exact = plot.exact.ys
    assert (measured[0], measured[-1]) == (tokens[0].kv_bytes, tokens[-1].kv_bytes)
    assert (exact[0], exact[-1]) == (23_040 * 38, 23_040 * (38 + tokens[-1].step))
    assert plot.remark_label.text() == f"1.9 MB · {38 + tokens[-1].step} tokens"


def test_the_exact_line_is_left_out_where_layers_keep_a_window(qtbot, store):
    plot = shown(qtbot, KvCachePlot, store)
    write(store, make.river(), loaded=facts(kv_bytes_per_token=11_520))
    assert len(plot.exact.xs) == 0
    assert exact_per_token(facts(kv_bytes_per_token=None), 1.0, 1.0) is None
    assert exact_per_token(None, 1.0, 1.0) is None


def test_what_is_allocated_is_drawn_where_it_is_more(qtbot, store):
    plot = shown(qtbot, KvCachePlot, store)
    write(store, make.tokens([" a", " b"], kv_allocated_bytes=5_000_000))
    assert list(plot.allocated.ys) == [5_000_000.0] * 2


def test_speed_is_the_rolling_mean_of_steps_without_the_first():
    times = np.array([10.0, 20.0, 30.0, 40.0])
    assert rolling_rate(times, 2) == pytest.approx([100.0, 1000 / 15, 40.0, 1000 / 35])
    assert rolling_rate(times, 1) == pytest.approx(1000 / times)
    assert np.isnan(rolling_rate(np.array([0.0, 0.0]))).all()
    assert len(rolling_rate(np.empty(0))) == 0


def test_prefill_and_decode_speed_stand_apart(qtbot, store):
    plot = shown(qtbot, SpeedPlot, store)
    write(store, make.tokens([" a"] * 40, forward_ms=19.4, sampling_ms=0.6))
    assert plot.remark_label.text() == "decode 50.0 / s · prefill 131 / s"
    xs, ys = plot.smooth.xs, plot.smooth.ys
    assert xs[0] == 1.0
    assert ys == pytest.approx(np.full(len(ys), 50.0))


@pytest.mark.parametrize(("reused", "said"), [(19, "prefill 65.5 / s"), (38, "prompt reused")])
def test_what_was_not_read_is_in_no_speed_of_reading(qtbot, store, reused, said):
    plot = shown(qtbot, SpeedPlot, store)
    again = ev.PrefillProgress(1, 38, 38, 290.0, 38 * 23_040, reused)
    write(store, [again, *make.tokens([" a"] * 4, forward_ms=19.4, sampling_ms=0.6)])
    assert plot.remark_label.text() == f"decode 50.0 / s · {said}"


def test_memory_draws_weights_cache_prediction_and_process(qtbot, store):
    plot = shown(qtbot, MemoryPlot, store)
    store.take(ev.Loaded(facts()))
    store.take(make.start())
    events = make.river()
    for at, event in enumerate(events):
        store.take(event)
        store.take(reading(at / 2, 480_000_000 + at))
        store.frame.emit()
    weights, cache = plot.weights.ys, plot.cache.ys
    assert set(weights) == {269_060_552.0}
    assert cache[-1] == 269_060_552 + events[-1].kv_bytes
    assert plot.predicted.ys[0] == predicted_weights(facts()) + 23_040 * 38
    xs, ys = plot.process.xs, plot.process.ys
    assert (xs[-1], ys[-1]) == (len(events) - 1, 480_000_000 + len(events) - 1)
    assert plot.cap.text.isVisible()
    assert "212 MB free" in plot.cap.text.toPlainText()


def test_before_a_run_memory_is_drawn_by_time(qtbot, store):
    plot = shown(qtbot, MemoryPlot, store)
    for at in range(5):
        store.take(reading(100.0 + at, 100_000_000 * (at + 1)))
    store.frame.emit()
    xs, ys = plot.process.xs, plot.process.ys
    assert list(xs) == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert ys[-1] == 500_000_000
    assert not plot.by_token


def test_gpu_memory_comes_from_the_allocator_and_the_driver(qtbot, store):
    plot = shown(qtbot, MemoryPlot, store)
    gpu = ev.GpuReading("A", 3_000_000_000, 4_000_000_000, 5_000_000_000, 24_000_000_000)
    untold = ev.GpuReading("B", 1_000_000_000, 1_000_000_000, None, 24_000_000_000)
    store.take(reading(0.0, gpus=(gpu, untold)))
    store.take(reading(1.0, gpus=(untold,)))
    store.frame.emit()
    assert list(plot.gpu.ys) == [4e9, 1e9]
    driver = plot.driver.ys
    assert driver[0] == 5e9
    assert math.isnan(driver[1])


def test_hovering_a_plot_lights_the_token_and_a_click_selects_it(qtbot, store):
    plot = shown(qtbot, KvCachePlot, store)
    write(store, make.river())
    box = plot.view.getViewBox().sceneBoundingRect()
    place = plot.graph.mapFromScene(box.center())
    qtbot.mouseMove(plot.graph.viewport(), QPoint(place.x() - 9, place.y()))
    qtbot.mouseMove(plot.graph.viewport(), place)
    middle = (len(store.current.tokens) - 1) / 2
    assert store.hovered_step == pytest.approx(middle, abs=1)
    assert plot.hover_line.isVisible()
    qtbot.mouseClick(plot.graph.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert store.selected_step == pytest.approx(middle, abs=1)
    assert plot.selected_line.value() == store.selected_step
    assert plot.step_at(QPointF(1, 1)) is None


def test_hovering_elsewhere_marks_the_token_here(qtbot, store):
    plot = shown(qtbot, SpeedPlot, store)
    write(store, make.river())
    store.hover(7)
    assert plot.hover_line.isVisible()
    assert plot.hover_line.value() == 7
    store.hover(None)
    assert not plot.hover_line.isVisible()


def test_a_hidden_plot_draws_when_it_is_shown(qtbot, store):
    store.kept = plot = KvCachePlot(store)
    qtbot.addWidget(plot)
    write(store, make.river())
    plot.resize(400, 200)
    plot.show()
    assert len(plot.measured.xs) > 10


def test_the_ceiling_is_the_bandwidth_over_what_a_token_reads_and_sinks_with_the_cache(qtbot, store):
    plot = shown(qtbot, SpeedPlot, store)
    loaded = replace(facts(), read_bytes_per_s=20e9, read_bytes_per_token=269_030_016)
    events = make.river()
    write(store, events, loaded)
    line = plot.ceiling.ys
    assert line[0] == pytest.approx(20e9 / (269_030_016 + events[1].kv_bytes))
    assert line[-1] < line[0]
    plot.resize(900, 300)
    plot.tell()
    assert "%&nbsp;reached" in plot.legend.text()


def test_without_a_measured_bandwidth_there_is_no_ceiling(qtbot, store):
    plot = shown(qtbot, SpeedPlot, store)
    write(store, make.river())
    assert not len(plot.ceiling.ys)


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_window_has_room_for_each_plot_with_its_figures(qtbot, store, kind):
    plot = shown(qtbot, kind, store)
    write(store, make.tokens([" a"] * 220))
    store.take(reading(1.0))
    store.select(219)
    plot.tell()
    plot.resize(200, 133)
    assert plot.minimumSizeHint().width() <= 192


@pytest.mark.parametrize("kind", KINDS)
def test_every_mark_of_a_legend_is_seen_whole_where_the_plot_is_narrow(qtbot, store, kind):
    plot = shown(qtbot, kind, store)
    write(store, make.tokens([" a"] * 30))
    store.take(reading(1.0))
    store.select(12)
    plot.tell()
    for width in (190, 230, 420):
        plot.resize(width, 200)
        qtbot.waitUntil(lambda: plot.legend.height() >= plot.legend.heightForWidth(plot.legend.width()) > 0)
        page = QTextDocument()
        page.setDefaultFont(plot.legend.font())
        page.setDocumentMargin(0)
        page.setHtml(plot.legend.text())
        page.setTextWidth(plot.legend.width())
        assert page.size().width() <= plot.legend.width()
        assert page.size().height() <= plot.legend.height()
