"""Every view rendered offscreen from real data: a real load, a real run, pictures and the replay of it."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import FileRefused, RunFailed
from engine.settings import SamplingSettings

if TYPE_CHECKING:
    from PySide6.QtWidgets import QWidget

    from app.main_window import MainWindow

PROMPT = "Describe how a river shapes the land it crosses."
CHINESE = "用一句话介绍量子计算。🌊"
SETTINGS = SamplingSettings(temperature=0.8, top_k=40, top_p=0.9, min_p=0.02, repetition_penalty=1.1, seed=7)
TOKENS = 96
WAIT_S = 600.0
SIZES = {"": (1440, 900), "-small": (1024, 700), "-large": (1920, 1080)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="where the pictures and the replay go")
    parser.add_argument("--model", default="default", help="the model to load (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the files as one JSON object")


def run(args: argparse.Namespace) -> int:
    os.environ["QT_QPA_PLATFORM"] = "offscreen"  # pictures, whatever display there is
    folder = Path(args.folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileRefused(
            "The folder {folder} cannot be made: {said}.",
            "Name another one.",
            folder=str(folder),
            said=error.strerror or str(error),
        ) from None
    files = tour(folder, args.model, None if args.json else say)
    if args.json:
        print(json.dumps({"folder": str(folder), "files": files}))
    else:
        print(f"{len(files)} files in {folder.resolve()}")
    return 0


def say(line: str) -> None:
    print(line, flush=True)


def tour(folder: Path, model: str, tell: Callable[[str], None] | None) -> list[str]:
    """Does what a person would do and takes pictures. Returns the names of the files. Raises WorkbenchError."""
    from PySide6.QtWidgets import QApplication

    from app.main_window import MainWindow
    from app.preferences import Preferences
    from widgets import theme
    from widgets.pipeline_boxes import BOXES

    tell = tell or (lambda line: None)
    app = QApplication.instance() or QApplication(["glasswork"])
    assert isinstance(app, QApplication)
    theme.set_mode("light")
    theme.apply(app)
    theme.motion = False
    preferences = Preferences(theme="light", motion=False, model=model, prompt=PROMPT, max_new_tokens=TOKENS)
    preferences.sampling = SETTINGS.as_dict()
    window = MainWindow(preferences, visit="")
    camera = Camera(window, folder)
    try:
        window.show()
        camera.shoot("01-empty")
        window.start()
        tell("Loading the model …")
        wait(lambda: window.store.load_progress is not None and window.store.load_progress.stage == "weights", window)
        camera.shoot("02-loading")
        wait(lambda: not window.engine.busy, window)
        if window.store.facts is None:
            raise RunFailed("The model did not load: {said}", "See python -m app doctor.", said=window.banner.text)
        window.show_model_panel()
        camera.shoot("03-model")
        browser = window.models.show_browser()
        browser.resize(1240, 700)  # the offscreen screen is smaller than it asks for
        wait(lambda: bool(browser.local.table.rows.things), window)
        for mode in ("light", "dark"):
            theme.set_mode(mode)
            camera.shoot_widget(f"03-models-{mode}", browser)
        theme.set_mode("light")
        browser.close()
        window.toggle_model_panel()
        tell(f"Running the prompt: {PROMPT}")
        window.running.start_run()
        wait(lambda: bool(window.store.current) and len(window.store.current.tokens) >= TOKENS // 3, window)
        window.running.toggle_pause()
        camera.shoot("04-paused")
        window.running.toggle_pause()
        wait(lambda: not window.engine.busy, window)
        run = window.store.current
        assert run is not None
        if run.end is None or run.end.reason == "error":
            raise RunFailed("The run broke off: {said}", "See the log.", said=window.banner.text)
        tell(f"{run.end.new_tokens} tokens at {run.end.decode_tokens_per_s:.1f} tokens/s: {run.end.text[:100]}…")
        window.store.select(max(range(len(run.tokens)), key=lambda step: run.tokens[step].surprise_nats))
        for mode in ("light", "dark"):
            theme.set_mode(mode)
            for name, size in SIZES.items():
                camera.shoot(f"05-workbench-{mode}{name}", size)
        theme.set_mode("light")
        for box in BOXES:
            window.show_box(box)
            camera.shoot(f"06-box-{box}")
        inside_pages(window, camera)
        window.show_box("sample")
        window.replays.save_to(folder / "tour.jsonl")
        wait(lambda: not window.replays.at_work, window)
        camera.files.append("tour.jsonl")
        window.banner.dismiss()
        tell("Going on another way …")
        fork_pages(window, camera)
        tell("Writing three lanes …")
        lane_pages(window, camera)
        tell(f"Running a Chinese prompt: {CHINESE}")
        window.prompt_panel.restore(CHINESE, None, False)
        window.sampling_panel.restore(SETTINGS, 40, (), 0.0)
        window.running.start_run()
        wait(lambda: not window.engine.busy, window)
        camera.shoot("07-chinese")
        tell("Comparing float32 with bfloat16 …")
        dialog, view = window.xrays.opened()
        view.restore("float32", "bfloat16", "prose", "")
        view.ask()
        wait(lambda: not window.engine.busy, window)
        if flips := (view.found.flips if view.found is not None else ()):
            view.text.select(flips[0])
        for mode in ("light", "dark"):
            theme.set_mode(mode)
            camera.shoot_widget(f"09-xray-{mode}", dialog)
        theme.set_mode("light")
        dialog.close()
        window.replays.open_file(folder / "tour.jsonl")
        wait(lambda: not window.replays.at_work, window)
        camera.shoot("08-replay")
        window.timeline.marks.put("bookmark", 12, "")
        window.timeline.marks.put("note", 12, "Here it could have gone elsewhere.")
        window.store.rewind(12)
        for mode in ("light", "dark"):
            theme.set_mode(mode)
            camera.shoot(f"08-back-{mode}")
        theme.set_mode("light")
        window.store.select(None)
        window.sampling_panel.set_settings(SETTINGS)
        window.sampling_panel.take_settings(replace(SETTINGS, top_p=0.7))
        wait(window.text_view.redecided_bar.isVisible, window)
        for mode in ("light", "dark"):
            theme.set_mode(mode)
            camera.shoot(f"10-sliders-{mode}")
        theme.set_mode("light")
        tell("Running a small sweep, luck or setting, and a blind round …")
        experiment_pages(window, camera)
    finally:
        window.close()
    return camera.files


def placement_pages(window: MainWindow, camera: Camera) -> None:
    """The other sides of the placement box: layers with the measured price of offload, a plan for other GPUs."""
    from widgets.boxes.placement_page import PlacementPage
    from widgets.planner_view import PlannerDialog

    window.show_box("placement")
    page = window.box_view.page("placement")
    assert isinstance(page, PlacementPage)
    page.tabs.setCurrentIndex(1)
    wait(page.price.measure.isEnabled, window)
    page.price.measure.click()
    wait(lambda: bool(page.price.words.text()), window)
    camera.shoot("06-box-placement-layers")
    window.model_panel.open_planner()
    dialog = window.findChild(PlannerDialog)
    assert isinstance(dialog, PlannerDialog)
    wait(lambda: bool(dialog.planner.picture.lines()), window)
    camera.shoot_widget("06-planner", dialog)
    dialog.close()


def inside_pages(window: MainWindow, camera: Camera) -> None:
    """The second sides of the boxes of loading: the config as written, a found layer, a tensor's numbers."""
    from widgets.boxes.blueprint_page import BlueprintPage
    from widgets.boxes.skeleton_page import SkeletonPage
    from widgets.boxes.weights_page import WeightsPage

    window.show_box("blueprint")
    blueprint = window.box_view.page("blueprint")
    assert isinstance(blueprint, BlueprintPage)
    blueprint.tabs.setCurrentIndex(1)
    camera.shoot("06-box-blueprint-config")
    window.show_box("skeleton")
    skeleton = window.box_view.page("skeleton")
    assert isinstance(skeleton, SkeletonPage)
    skeleton.search.setText("layers.17.self_attn")
    skeleton.unfold.setChecked(True)
    camera.shoot("06-box-skeleton-search")
    placement_pages(window, camera)
    window.show_box("weights")
    weights = window.box_view.page("weights")
    assert isinstance(weights, WeightsPage)
    weights.tabs.setCurrentIndex(1)
    weights.table.selectRow(0)
    weights.ask_numbers()
    wait(weights.histogram.isVisible, window)
    camera.shoot("06-box-weights-numbers")


def experiment_pages(window: MainWindow, camera: Camera) -> None:
    """The pages of the laboratory that run a prompt many times, on few tokens."""
    from engine.events import SweepAxis

    laboratory = window.laboratory
    laboratory.show("sweep")
    sweep = laboratory.page("sweep")
    axes = (SweepAxis("temperature", (0.2, 0.8, 1.4)), SweepAxis("top_p", (0.5, 0.9, 1.0)))
    sweep.form.show_axes(axes, (0, 1), 24, 9)
    sweep.ask()
    wait(lambda: sweep.sweep is not None and sweep.sweep.done and not window.engine.busy, window)
    sweep.map.go((1, 1))
    laboratory.show("luck")
    luck = laboratory.page("luck")
    luck.restore({"seeds": 8, "tokens": 24})
    luck.ask()
    wait(lambda: luck.luck is not None and not window.engine.busy, window)
    luck.plot.choose((1, 2))
    laboratory.show("blind")
    blind = laboratory.page("blind")
    blind.restore({"tokens": 24, "planned": 2})
    blind.begin()
    wait(lambda: blind.test is not None and blind.test.open_round is not None, window)
    camera.shoot_pages("11", "sweep", "luck", "blind")
    wait(lambda: not window.engine.busy, window)
    laboratory.show_text()


def fork_pages(window: MainWindow, camera: Camera) -> None:
    """The run goes on another way at three words; the tree of that, and the futures of one word."""
    from engine.settings import ForkWish

    root, laboratory, store = window.store.current, window.laboratory, window.store
    assert root is not None
    middle = len(root.tokens) // 2
    other = next((c.token_id for c in root.tokens[middle].candidates if not c.chosen), root.tokens[middle].token_id)
    for wish in (
        ForkWish(root.place(middle), forced=(other,)),
        ForkWish(root.place(middle // 3), text=" like a snake that"),
        ForkWish(root.place(middle + middle // 2), settings=replace(SETTINGS, temperature=1.3)),
    ):
        window.forks.fork(wish)
        wait(lambda: not window.engine.busy, window)
    store.select(middle)
    window.text_view.write_here()
    camera.shoot("12-write-here")
    window.text_view.write_field.close_it()
    store.show(root)
    store.select(middle)
    laboratory.show("futures")
    futures = laboratory.page("futures")
    futures.restore({"count": 64, "tokens": 12})
    futures.ask()
    wait(lambda: futures.found is not None and futures.found.whole and not window.engine.busy, window)
    if len(futures.picture.boxes) > 1:
        futures.picture.choose(futures.picture.boxes[1])
    camera.shoot_pages("12", "forks", "futures")
    laboratory.show_text()


def lane_pages(window: MainWindow, camera: Camera) -> None:
    """Three lanes side by side, at the first word where two part; the small window of one of them."""
    from widgets.lab.lane_set import Lane, LaneSet

    laboratory = window.laboratory
    laboratory.show("lanes")
    page = laboratory.page("lanes")
    kinds = (
        ("control", SETTINGS),
        ("hotter", replace(SETTINGS, temperature=1.4)),
        ("greedy", replace(SETTINGS, temperature=0.0)),
    )
    lanes = tuple(Lane(key, settings, name) for key, (name, settings) in enumerate(kinds))
    page.restore(LaneSet(lanes, 0, max_new_tokens=48))
    camera.shoot_widget("13-lanes-empty", window)
    page.run_page(one_token=False)
    wait(lambda: not window.engine.busy and window.store.current.end is not None, window)
    page.look()
    table = page.texts.table.view
    table.picked.emit(table.rows.rows[0].step if table.rows.rows else 0, 1)
    camera.shoot_pages("13", "lanes")
    page.edit(1)
    camera.shoot_widget("13-lanes-edit", page.editor)
    laboratory.show_text()


class Camera:
    """Takes pictures of a window once it has come to rest."""

    def __init__(self, window: MainWindow, folder: Path) -> None:
        self.window, self.folder = window, folder
        self.files: list[str] = []

    def shoot(self, name: str, size: tuple[int, int] = (1440, 900)) -> None:
        if (self.window.width(), self.window.height()) != size:
            self.window.resize(*size)
            self.window.restore_layout()
        self.shoot_widget(name, self.window)

    def shoot_pages(self, number: str, *pages: str) -> None:
        """Pages of the laboratory, light and dark, in each size."""
        from widgets import theme

        for mode in ("light", "dark"):
            theme.set_mode(mode)
            for name, size in SIZES.items():
                self.window.laboratory.show_text()  # another size brings back docks that a page does not want
                self.window.resize(*size)
                self.window.restore_layout()
                for page in pages:
                    self.window.laboratory.show(page)
                    self.shoot_widget(f"{number}-{page}-{mode}{name}", self.window)
        theme.set_mode("light")

    def shoot_widget(self, name: str, widget: QWidget) -> None:
        from PySide6.QtCore import QElapsedTimer
        from PySide6.QtWidgets import QApplication

        rest = QElapsedTimer()
        rest.start()
        rounds = 0
        while rest.elapsed() < 300 or rounds < 12:  # a few frames, also where one takes long
            QApplication.processEvents()
            time.sleep(0.005)
            rounds += 1
        path = self.folder / f"{name}.png"
        if not widget.grab().save(str(path)):
            raise FileRefused("The picture {path} cannot be written.", "Name another folder.", path=str(path))
        self.files.append(path.name)


def wait(condition: Callable[[], bool], window: MainWindow) -> None:
    """Lets the window live until the condition holds, or the engine has stopped without it."""
    from PySide6.QtWidgets import QApplication

    began = time.monotonic()
    while not condition():
        QApplication.processEvents()
        time.sleep(0.005)
        if time.monotonic() - began > WAIT_S or (not window.engine.busy and window.banner.isVisible()):
            return
