"""A sweep: the grid that was asked for, one prefill, written while it runs, gone on with where it stopped."""

from __future__ import annotations

import gc
import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from engine.control import Control
from engine.errors import FileRefused, PromptRefused, SettingsRefused
from engine.events import ExperimentProgress, RunEnd, RunStart, TokenEvent
from engine.experiments import FIGURES, Asked, Sweep, SweepAxis, SweepQuestion, values_named
from engine.figures import figures_of
from engine.loading import load
from engine.loop import generate
from engine.replay import read_replay
from engine.settings import LoadPlan, Request, SamplingSettings
from engine.sweep import lanes_that_fit, sweep
from engine.sweep_folder import FIGURES_FILE, QUESTION, SweepModel, open_or_begin, read, sweeps_under
from tests.tiny_models import tiny_folder

ASKED = Asked("The river runs.", raw=True, max_new_tokens=6)
BASE = SamplingSettings(repetition_penalty=1.1)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def session(model):
    made = load(LoadPlan(str(model), device_map="cpu"), lambda event: None, Control())
    yield made
    made.close()


@pytest.fixture
def question(tmp_path):
    axes = (values_named("temperature", "0..1 step 0.5"), values_named("top_p", "0.5, 1"))
    return SweepQuestion(str(tmp_path / "sweep"), ASKED, BASE, axes, (3, 4), batch=5)


def nobody(event):
    pass


# ---------------------------------------------------------------- what is asked


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.5,0.9,1", (0.5, 0.9, 1.0)),
        ("0..1.5 step 0.5", (0.0, 0.5, 1.0, 1.5)),
        ("0..0.3:0.1", (0.0, 0.1, 0.2, 0.3)),  # not 0.30000000000000004
        (" 0 … 1 STEP 0.4 ", (0.0, 0.4, 0.8)),
        ("0..2", (0.0, 1.0, 2.0)),
        ("0,5; 0,9", (0.5, 0.9)),
        ("1, 0..2 step 1", (1.0, 0.0, 2.0)),  # a value that is there already is not named again
    ],
)
def test_values_are_a_list_or_a_range(text, values):
    assert values_named("temperature", text) == SweepAxis("temperature", values)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("temperature", ""),
        ("temperature", "warm"),
        ("temperature", "nan"),
        ("temperature", "1e999999999"),
        ("temperature", "1..0 step 0.1"),
        ("temperature", "0..1 step 0"),
        ("temperature", "0..1 step 1e-9"),
        ("temperature", "-1"),
        ("top_p", "0, 0.5"),
        ("top_k", "1.5"),
        ("seed", "1"),
        ("colour", "1"),
    ],
)
def test_values_that_cannot_be_are_refused_with_a_way_out(name, text):
    with pytest.raises(SettingsRefused) as refused:
        values_named(name, text)
    assert refused.value.what
    assert refused.value.fix


def test_whole_number_settings_take_whole_numbers(tmp_path):
    question = SweepQuestion("", ASKED, BASE, (values_named("top_k", "0..40 step 20"),), (1,))
    assert [question.run(number).settings.top_k for number in range(question.count)] == [0, 20, 40]
    assert question.shape == (3, 1)


def test_each_cell_has_every_seed_and_only_what_is_varied_differs(question):
    runs = [question.run(number) for number in range(question.count)]
    assert len(runs) == 3 * 2 * 2
    assert len({run.settings for run in runs}) == 12
    assert {replace(run.settings, temperature=1.0, top_p=1.0, seed=0) for run in runs} == {BASE}
    for number, run in enumerate(runs):
        assert number in question.numbers(run.cell)
        assert run.settings.temperature == question.axes[0].values[run.cell[0]]
        assert run.settings.top_p == question.axes[1].values[run.cell[1]]


def test_a_sweep_that_makes_no_sense_is_refused():
    axis = values_named("temperature", "0,1")
    for axes, seeds, batch in (((), (1,), 4), ((axis, axis), (1,), 4), ((axis,), (), 4), ((axis,), (1, 1), 4)):
        with pytest.raises(SettingsRefused):
            SweepQuestion("", ASKED, BASE, axes, seeds, batch)
    with pytest.raises(SettingsRefused):
        SweepQuestion("", ASKED, BASE, (axis,), tuple(range(5001)))
    with pytest.raises(SettingsRefused):
        SweepQuestion("", ASKED, BASE, (axis,), (1,), 65)


# ---------------------------------------------------------------- it runs


def test_every_run_is_that_of_the_same_settings_alone_with_its_figures_and_its_replay(session, question):
    told = []
    found = sweep(question, session, Control(), told.append)
    assert found.complete
    for number, figures in enumerate(found.runs):
        run = question.run(number)
        alone = list(generate(session, ASKED.request([run.settings], number + 1), Control()))
        tokens = [event for event in alone if isinstance(event, TokenEvent)]
        (end,) = [event for event in alone if isinstance(event, RunEnd)]
        replay = read_replay(question.folder + "/" + run.file)
        assert replay.damage == ""
        (start,) = [event for event in replay.events if isinstance(event, RunStart)]
        assert (start.run_id, start.lane, start.lanes, start.settings) == (number + 1, 0, 1, run.settings)
        values = f"temperature {run.settings.temperature:g}, top_p {run.settings.top_p:g}"
        assert start.name == f"{values}, seed {run.settings.seed}"
        recorded = [event for event in replay.events if isinstance(event, TokenEvent)]
        assert [token.token_id for token in recorded] == list(end.token_ids)
        expected = figures_of(tokens)
        assert figures is not None
        assert figures.tokens == expected.tokens
        assert figures.mean_surprise_nats == pytest.approx(expected.mean_surprise_nats, rel=1e-4)
        assert figures.mean_entropy_nats == pytest.approx(expected.mean_entropy_nats, rel=1e-4)
        assert (figures.distinct, figures.repetition) == (expected.distinct, expected.repetition)
        assert figures.ended_by_eos == float(end.reason == "eos")
    last = told[-1]
    assert isinstance(last, ExperimentProgress)
    assert (last.done, last.total) == (12 * 6, 12 * 6)
    assert (last.runs_done, last.runs) == (12, 12)
    assert last.remaining_s == 0.0
    assert last.partial == found


def test_a_forced_beginning_of_the_window_stands_in_every_run(session, question):
    asked = Asked.of(Request(0, "The river runs.", raw=True, max_new_tokens=6, forced_text="So"))
    begun = replace(question, asked=asked)
    sweep(begun, session, Control(), nobody)
    for number in range(question.count):
        events = read_replay(begun.folder + "/" + begun.run(number).file).events
        assert [(t.token_text, t.forced) for t in events if isinstance(t, TokenEvent)][:2] == [("S", True), ("o", True)]
    with pytest.raises(SettingsRefused, match="forced text"):  # no other goes on there
        sweep(question, session, Control(), nobody)


def test_a_folder_that_cannot_be_looked_into_hides_no_sweep_beside_it(tmp_path, question, monkeypatch):
    open_or_begin(question, SweepModel("m", "", "float32", 1, "", ""))
    (tmp_path / "a locked one").mkdir()
    stat = os.stat

    def locked(path, *args, **named):
        if "locked" in os.fspath(path):
            raise PermissionError(13, "Permission denied")
        return stat(path, *args, **named)

    monkeypatch.setattr(os, "stat", locked)
    assert [found.model for found in sweeps_under(tmp_path)] == ["m"]
    assert sweeps_under(tmp_path / "a locked one") == ()
    assert sweeps_under(Path("a\0b")) == ()


def test_a_sweep_of_other_seeds_is_refused_however_long_they_are(tmp_path, question):
    model = SweepModel("m", "", "float32", 1, "", "")
    open_or_begin(question, model)
    with pytest.raises(SettingsRefused, match="seeds was '3, 4', and is '0x1000"):
        open_or_begin(replace(question, seeds=(2**20_000,)), model)


def test_later_batches_read_nothing_of_the_prompt(session, question):
    session.kept.drop()
    found = sweep(question, session, Control(), nobody)
    prompt = len(ASKED.prompt)  # a token for each byte
    assert [batch.runs for batch in found.batches] == [5, 5, 2]
    assert [batch.reused_tokens for batch in found.batches] == [0, prompt, prompt]
    assert all(batch.process_bytes > 0 and batch.elapsed_s > 0 for batch in found.batches)


@pytest.mark.parametrize("tokens", [1, 2, 6])
def test_what_is_kept_stays_true_to_its_tokens(session, question, tokens):
    """A cache that a batch goes on from at its very end is given to it, and must not be put back as it was."""
    asked = replace(ASKED, max_new_tokens=tokens)
    session.kept.drop()
    found = sweep(replace(question, asked=asked, batch=3), session, Control(), nobody)
    for kept in session.kept.caches:
        assert (kept.forward.lanes, kept.forward.tokens) == (1, len(kept.ids))
    for number in (0, 5, 11):
        settings = question.run(number).settings
        reused = list(generate(session, asked.request([settings]), Control()))
        session.kept.drop()
        fresh = list(generate(session, asked.request([settings]), Control()))
        ids = [[e.token_id for e in events if isinstance(e, TokenEvent)] for events in (reused, fresh)]
        assert ids[0] == ids[1]
        assert found.runs[number].tokens == len(ids[1])


def test_one_token_alone_has_no_speed(session, question):
    found = sweep(replace(question, asked=replace(ASKED, max_new_tokens=1)), session, Control(), nobody)
    assert all(run.tokens == 1 and math.isnan(run.tokens_per_s) for run in found.runs)
    assert math.isnan(found.mean("tokens_per_s", (0, 0)).mean)
    assert all(math.isnan(run.tokens_per_s) for run in read(Path(question.folder)).runs)


def test_a_switched_off_cache_is_kept_for_the_sweep_only(session, question):
    session.kept.on = False
    session.kept.drop()
    try:
        found = sweep(question, session, Control(), nobody)
        assert found.batches[1].reused_tokens == 0  # each batch lets it go
        assert not session.kept.on
        assert not session.kept.held_bytes
    finally:
        session.kept.on = True


def test_means_are_over_the_seeds_of_a_cell(session, question):
    found = sweep(question, session, Control(), nobody)
    for name in FIGURES:
        one, other = (found.runs[number].figure(name) for number in question.numbers((2, 1)))
        assert found.mean(name, (2, 1)).mean == pytest.approx((one + other) / 2, nan_ok=True)
    greedy = found.mean("mean_surprise_nats", (0, 0))
    assert greedy.deviation == 0.0  # no draw: every seed writes the same


def test_nothing_of_a_batch_stays_in_memory_but_one_cache(session, question, monkeypatch):
    """How much a hundred runs of a real model take was measured: docs/experiments.md."""
    session.kept.drop()
    gc.collect()
    gc.freeze()  # what is here now is looked through at no token

    def events() -> int:
        return sum(isinstance(thing, (TokenEvent, RunStart)) for thing in gc.get_objects())

    seen = []

    def look(event):
        gc.collect()
        seen.append((event.runs_done, events(), len(session.kept.caches)))

    monkeypatch.setattr("engine.gathering.TELL_EVERY_S", 0.0)  # look at every token
    try:
        found = sweep(question, session, Control(), look)
        gc.collect()
        left = events()
    finally:
        gc.unfreeze()
    # One step's tokens and the beginnings of the lanes may be there, and no more.
    assert {runs for runs, _, _ in seen} >= {0, 5, 10, 12}
    assert all(alive <= 2 * question.batch for _, alive, _ in seen), seen
    assert all(caches <= 1 for _, _, caches in seen), seen
    assert left == 0
    assert len(session.kept.caches) == 1
    assert len(found.batches) == 3


# ---------------------------------------------------------------- it stops and goes on


class StopAfter:
    """Cancels once so many runs are done."""

    def __init__(self, control, runs):
        self.control, self.runs = control, runs

    def __call__(self, event):
        if event.runs_done >= self.runs:
            self.control.cancel()


def test_a_cancelled_sweep_goes_on_where_it_stopped(session, question):
    control = Control()
    part = sweep(question, session, control, StopAfter(control, 5))
    assert 5 <= part.done < 12
    assert not part.complete
    files = {path.name for path in Path(question.folder).glob("run-*.jsonl")}
    assert files == {question.run(number).file for number, run in enumerate(part.runs) if run is not None}
    before = {name: (Path(question.folder) / name).stat().st_mtime_ns for name in files}
    whole = sweep(question, session, Control(), nobody)
    assert whole.complete
    assert {name: (Path(question.folder) / name).stat().st_mtime_ns for name in files} == before
    fresh = sweep(replace(question, folder=question.folder + " 2"), session, Control(), nobody)
    for one, other in zip(whole.runs, fresh.runs, strict=True):
        assert one.mean_surprise_nats == pytest.approx(other.mean_surprise_nats, rel=1e-4)
        assert (one.tokens, one.distinct) == (other.tokens, other.distinct)


def test_what_a_crash_left_half_written_is_done_again(session, question):
    sweep(question, session, Control(), nobody)
    folder = Path(question.folder)
    figures = folder / FIGURES_FILE
    lines = figures.read_bytes().splitlines(keepends=True)
    of_run = [at for at, line in enumerate(lines) if b'"kind":"run"' in line]
    # The last run's line breaks off, another run's replay is half there and has no line, a third's replay is gone.
    gone = json.loads(lines[of_run[1]])["number"]
    half = json.loads(lines[of_run[2]])["number"]
    last = json.loads(lines[of_run[-1]])["number"]
    kept = [line for at, line in enumerate(lines[: of_run[-1]]) if at != of_run[2]]
    figures.write_bytes(b"".join([*kept, lines[of_run[-1]][:40]]))
    (folder / question.run(gone).file).unlink()
    (folder / question.run(half).file).write_bytes(b'{"kind":"header","schema":1}\n{"kind":"tok')
    found = read(folder)
    assert {number for number, run in enumerate(found.runs) if run is None} == {gone, half, last}
    assert sweep(question, session, Control(), nobody).complete
    for number in (gone, half, last):
        assert read_replay(folder / question.run(number).file).damage == ""
    assert read(folder).sweep().complete


def test_figures_that_no_run_could_have_are_damage(session, question):
    sweep(question, session, Control(), nobody)
    figures = Path(question.folder) / FIGURES_FILE
    lines = figures.read_text("utf-8").splitlines()
    at = next(n for n, line in enumerate(lines) if '"kind":"run"' in line)
    values = json.loads(lines[at])
    values["figures"]["mean_surprise_nats"] = 1e308
    lines[at] = json.dumps(values)
    figures.write_text("\n".join(lines) + "\n", "utf-8")
    found = read(Path(question.folder)).sweep()
    assert [number for number, run in enumerate(found.runs) if run is None] == [values["number"]]
    assert any("left out: 1" in note for note in found.notes)


def test_another_question_is_refused_by_what_differs(session, question):
    control = Control()
    sweep(question, session, control, StopAfter(control, 5))
    for change, word in (
        ({"asked": replace(ASKED, prompt="Another.")}, "prompt"),
        ({"asked": replace(ASKED, max_new_tokens=7)}, "max new tokens"),
        ({"seeds": (3, 5)}, "seeds"),
        ({"axes": (question.axes[0],)}, "varied settings"),
        ({"base": replace(BASE, min_p=0.1)}, "min_p"),
    ):
        with pytest.raises(SettingsRefused) as refused:
            sweep(replace(question, **change), session, Control(), nobody)
        assert word in refused.value.what
        assert "another folder" in refused.value.fix
    # What is varied, the seed and the batch's size may be written otherwise: the runs are the same.
    assert sweep(
        replace(question, base=replace(BASE, temperature=0.3, seed=9), batch=2), session, Control(), nobody
    ).complete


def test_another_model_is_refused(session, question, tmp_path):
    control = Control()
    sweep(question, session, control, StopAfter(control, 5))
    other = load(
        LoadPlan(str(tiny_folder(tmp_path / "model", seed=1)), device_map="cpu"), lambda event: None, Control()
    )
    try:
        with pytest.raises(SettingsRefused, match="their files differ"):
            sweep(question, other, Control(), nobody)
    finally:
        other.close()
    same_files = load(LoadPlan(session.facts.model_path, "bfloat16", device_map="cpu"), lambda event: None, Control())
    try:
        with pytest.raises(SettingsRefused, match="the precision differs"):
            sweep(question, same_files, Control(), nobody)
    finally:
        same_files.close()


def test_a_folder_that_cannot_be_used_is_refused(session, question, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    with pytest.raises(FileRefused, match="other files"):
        sweep(replace(question, folder=str(tmp_path / "full")), session, Control(), nobody)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileRefused):
        sweep(replace(question, folder=str(tmp_path / "file")), session, Control(), nobody)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / QUESTION).write_text('{"kind":"sweep","schema":1,"question":{}}')
    with pytest.raises(FileRefused, match="damaged"):
        sweep(replace(question, folder=str(tmp_path / "broken")), session, Control(), nobody)
    (tmp_path / "broken" / QUESTION).write_text('{"schema":99}')
    with pytest.raises(FileRefused, match="newer"):
        read(tmp_path / "broken")
    assert sweeps_under(tmp_path) == ()


def test_two_programs_do_not_write_one_sweep(session, question):
    control = Control()
    sweep(question, session, control, StopAfter(control, 5))
    with read(Path(question.folder)).alone(), pytest.raises(FileRefused, match="Another program"):
        sweep(question, session, Control(), nobody)


def test_a_refused_prompt_leaves_no_folder(session, question):
    with pytest.raises(PromptRefused):
        sweep(replace(question, asked=replace(ASKED, prompt="x" * 600)), session, Control(), nobody)
    assert not Path(question.folder).exists()


def test_what_changed_between_two_parts_is_noted(session, question, monkeypatch):
    from engine import sweep_folder as module

    control = Control()
    part = sweep(question, session, control, StopAfter(control, 5))
    assert part.notes == ()
    monkeypatch.setattr(session, "facts", replace(session.facts, kernel="another"))
    monkeypatch.setattr(module, "library_versions", lambda: {"python": "9.9"})
    whole = sweep(question, session, Control(), nobody)
    assert whole.complete
    libraries, kernels = whole.notes
    assert "→ 9.9" in libraries
    assert "another" in kernels


def test_sweeps_are_found_with_what_they_asked(session, question, tmp_path):
    found = sweep(question, session, Control(), nobody)
    (there,) = sweeps_under(tmp_path)
    assert there == found
    assert isinstance(there, Sweep)
    assert there.question == question
    assert sweeps_under(Path(question.folder)) == (found,)
    assert sweeps_under(tmp_path / "nowhere") == ()


def test_seeds_of_any_size_and_odd_prompts_come_back(session, tmp_path):
    asked = replace(ASKED, prompt='水 "quoted" \u2028 🌊', stop=("。",))
    question = SweepQuestion(
        str(tmp_path / "s"), asked, BASE, (values_named("min_p", "0.1"),), (2**70, -5, 10**3999), batch=2
    )
    found = sweep(question, session, Control(), nobody)
    assert found.complete
    assert read(tmp_path / "s").question == question


def test_lanes_that_run_together_are_bounded_by_the_memory(session, question, monkeypatch):
    from engine import sweep as module
    from engine.readings import read_memory

    assert lanes_that_fit(question, session, 15) == 5
    lane = session.facts.kv_bytes_per_token * (15 + 6)
    free = replace(read_memory(), available_bytes=lane * 12)  # a quarter holds three
    monkeypatch.setattr(module, "read_memory", lambda: free)
    assert lanes_that_fit(question, session, 15) == 3
    monkeypatch.setattr(module, "read_memory", lambda: replace(free, available_bytes=0))
    assert lanes_that_fit(question, session, 15) == 1
