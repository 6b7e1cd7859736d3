"""Other settings over a finished run say where a true re-run goes elsewhere, or that they cannot say; never wrong."""

from __future__ import annotations

import json
import random
import warnings
from array import array
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine import events as ev
from engine.control import Control
from engine.draw import draw
from engine.errors import RunFailed
from engine.kept_rows import _largest_first
from engine.loading import load
from engine.loop import generate
from engine.redecide import FinishedRun
from engine.redecided import CUT_OPEN, ELSEWHERE, NOT_CUT, OPEN, STANDS
from engine.replay_lines import Reader, line_of
from engine.sampling import History, decide, final_probabilities
from engine.settings import LoadPlan, Request, SamplingSettings
from tests.tiny_models import tiny_folder

PLAIN = SamplingSettings()


def start_of(prompt: list[int], used: SamplingSettings, written: tuple[int, ...] = ()) -> ev.RunStart:
    tokens = tuple(ev.PromptToken(i, str(i), False) for i in prompt)
    return ev.RunStart(1, 0, 1, used, "", "", tokens, (), (), 99, 999, 0.0, (), written)


def event_of(
    logits: np.ndarray, history: History, used: SamplingSettings, step: int, bare: bool = False
) -> ev.TokenEvent:
    """The event that a run would make; bare: as older files have it, without the tail."""
    u = None if used.greedy else draw(used.seed, step)
    d = decide(logits, history, used, u)
    ids, raw = array("i", d.candidate_ids.tobytes()), array("d", d.candidate_logits.tobytes())
    adjusted = raw if d.candidate_adjusted is None else array("d", d.candidate_adjusted.tobytes())
    return ev.TokenEvent(
        1, 0, step, d.token_id, "", "", False, ids, raw, adjusted, d.candidate_cuts, tuple(map(str, ids)), d.logsumexp,
        d.entropy_nats, d.final_entropy_nats, d.stages, logits.size, d.rank, d.logprob, d.final_logprob, u, d.draw_low,
        d.draw_high, used.temperature, used, 0.0, 0.0, 0, 0, 0, tail=None if bare else d.tail,
    )  # fmt: skip


def walk(rows: list[np.ndarray], prompt: list[int], used: SamplingSettings, bare: bool = False):
    """A run over given logits: its events and the history before each."""
    history, events = History(prompt), []
    for step, logits in enumerate(rows):
        events.append(event_of(logits, history, used, step, bare))
        history.add(events[-1].token_id)
    return events


def check(events, rows, prompt, other) -> ev.Redecided:
    """Every answer against a decision on the whole vocabulary, token by token. Returns what was answered."""
    found = FinishedRun(start_of(prompt, events[0].settings), events).redecide(other)
    history = History(prompt)
    for step, (event, logits) in enumerate(zip(events, rows, strict=True)):
        u = None if other.greedy else draw(other.seed, step)
        true = decide(logits, history, other, u)
        where = f"step {step} of {other}"
        if found.fates[step] == STANDS:
            assert true.token_id == event.token_id, where
        elif found.fates[step] == ELSEWHERE:
            assert true.token_id != event.token_id, where
        if found.others[step] >= 0:
            assert true.token_id == found.others[step], where
        place = np.flatnonzero(true.candidate_ids == event.token_id)
        if found.cuts[step] != CUT_OPEN and place.size:
            assert true.candidate_cuts[int(place[0])] == found.cuts[step], where
        elif found.cuts[step] != CUT_OPEN and not other.greedy:
            assert (final_probabilities(logits, history, other)[event.token_id] == 0.0) == (found.cuts[step] > 0), where
        if found.choices_low[step] == found.choices_low[step]:
            choices = np.exp(true.final_entropy_nats)
            assert found.choices_low[step] <= choices * (1 + 1e-4) + 1e-6, where
            assert choices <= found.choices_high[step] * (1 + 1e-4) + 1e-6, where
        history.add(event.token_id)
    return found


any_settings = st.builds(
    SamplingSettings,
    temperature=st.sampled_from([1.0, 1.0, 0.0, 0.2, 0.7, 1.3, 3.0]) | st.floats(0.05, 5.0),
    top_k=st.sampled_from([0, 0, 1, 2, 5, 50, 150, 10_000]),
    top_p=st.just(1.0) | st.floats(0.01, 1.0),
    min_p=st.just(0.0) | st.floats(0.001, 1.0),
    typical_p=st.just(1.0) | st.floats(0.05, 1.0),
    repetition_penalty=st.just(1.0) | st.floats(0.5, 2.0),
    presence_penalty=st.just(0.0) | st.floats(-2.0, 2.0),
    frequency_penalty=st.just(0.0) | st.floats(-1.0, 1.0),
    no_repeat_ngram_size=st.sampled_from([0, 0, 0, 1, 2, 3]),
    seed=st.sampled_from([7, 7, 7, 8]),
    logit_bias=st.just(())
    | st.lists(st.tuples(st.integers(0, 1100), st.floats(-20, 20) | st.sampled_from([-100.0, 100.0])), max_size=4),
    banned=st.just(()) | st.lists(st.integers(0, 1100), max_size=30),
    banned_sequences=st.just(()) | st.lists(st.lists(st.integers(0, 19), min_size=2, max_size=3), max_size=5),
)
one_change = st.sampled_from(
    [
        {"top_p": 0.9}, {"top_p": 0.5}, {"top_k": 10}, {"top_k": 200}, {"min_p": 0.05}, {"typical_p": 0.8},
        {"temperature": 0.8}, {"temperature": 1.2}, {"repetition_penalty": 1.1}, {"presence_penalty": 0.5},
        {"no_repeat_ngram_size": 2}, {"temperature": 0.0}, {"seed": 8}, {}, {"logit_bias": ((0, 6.0), (2, -3.0))},
        {"banned": (0, 1)}, {"banned_sequences": ((1, 0), (0, 2))},
    ]
)  # fmt: skip


@settings(max_examples=150)
@given(
    any_settings, any_settings, one_change, st.booleans(), st.sampled_from([3, 20, 60, 300, 1000]),
    st.integers(0, 2**32 - 1), st.floats(0.1, 6.0), st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_no_certain_answer_is_wrong(first, other, change, little, size, seed, spread, bare, rough, shifted) -> None:
    random_ = np.random.default_rng(seed)
    rows = [(random_.normal(size=size) * spread + (20.0 if shifted else 0.0)).astype(np.float32) for _ in range(8)]
    if rough:  # many equal logits, as in bfloat16
        rows = [(np.round(row * 2) / 2).astype(np.float32) for row in rows]
    prompt = random_.integers(0, size, 5).tolist()
    other = replace(first, **change) if little else other
    try:
        events = walk(rows, prompt, first, bare)
        check(events, rows, prompt, other)
    except RunFailed:  # a small vocabulary may be banned as a whole
        assume(False)


@settings(max_examples=60)
@given(any_settings, st.integers(0, 2**32 - 1), st.floats(0.1, 6.0))
def test_where_the_whole_vocabulary_is_kept_nearly_everything_is_decided(other, seed, spread) -> None:
    random_ = np.random.default_rng(seed)
    rows = [(random_.normal(size=60) * spread).astype(np.float32) for _ in range(8)]
    events = walk(rows, [1, 2, 3], SamplingSettings(seed=7))
    assume(len(set(other.banned) & set(range(60))) < 25)
    if other.no_repeat_ngram_size == 1:  # bans may leave nobody
        return
    assert check(events, rows, [1, 2, 3], other).open_count <= 1


def test_a_run_under_its_own_settings_stands() -> None:
    random_ = np.random.default_rng(0)
    rows = [(random_.normal(size=5000) * 3).astype(np.float32) for _ in range(30)]
    used = SamplingSettings(temperature=0.9, top_p=0.9, typical_p=0.9, repetition_penalty=1.1, seed=3)
    for bare in (False, True):
        found = FinishedRun(start_of([1], used), walk(rows, [1], used, bare)).redecide(used)
        assert set(found.fates) == {STANDS}
        assert set(found.cuts) == {NOT_CUT}
        assert (found.first, found.open_at) == (None, None)


def test_one_token_by_hand() -> None:
    # Probabilities 0.5, 0.3, 0.2; the draw of seed 7 at step 0 falls on the last: top-p 0.7 leaves the first two.
    logits = np.log(np.array([0.5, 0.3, 0.2])).astype(np.float32)
    seed = next(seed for seed in range(100) if draw(seed, 0) > 0.85)
    events = walk([logits], [], SamplingSettings(seed=seed))
    assert events[0].token_id == 2
    found = FinishedRun(start_of([], PLAIN), events).redecide(SamplingSettings(top_p=0.7, seed=seed))
    assert (found.first, found.open_at, found.cut_count) == (0, None, 1)
    assert ev.FILTERS[found.cuts[0] - 1] == "top_p"
    assert found.others[0] == 1
    assert found.choices_low[0] == pytest.approx(1.9379, abs=1e-3)  # exp(H(5/8, 3/8))


def test_a_bias_is_decided_where_the_tokens_logit_is_kept_and_open_where_it_is_not() -> None:
    """The word that is lifted from far down may win everywhere: nothing is said unless its logit is known."""
    random_ = np.random.default_rng(5)
    rows = [(random_.normal(size=5000) * 3).astype(np.float32) for _ in range(12)]
    used = SamplingSettings(temperature=0.9, seed=3)
    events = walk(rows, [1], used)
    far = next(
        i for i in range(5000) if all(i not in FinishedRun(start_of([1], used), [e]).parts[0].ids for e in events)
    )
    lifted = replace(used, logit_bias=((far, 30.0),))
    assert check(events, rows, [1], lifted).open_count == len(rows)
    near = [int(event.candidate_ids[1]) for event in events]
    assert check(events, rows, [1], replace(used, logit_bias=((near[0], 3.0),))).fates[0] != OPEN
    # Once it is among the settings of the run its logit is kept, however far down it lies.
    biased = walk(rows, [1], replace(used, logit_bias=((far, 1.0),)))
    assert check(biased, rows, [1], lifted).open_count <= 1
    assert check(biased, rows, [1], replace(used, banned=(far,))).open_count <= 4


def test_a_given_word_stands_under_any_settings_and_shows_what_would_have_cut_it() -> None:
    logits = np.array([5, 4, 3, 2, 1], dtype=np.float32)
    used = SamplingSettings(top_k=2, seed=3)
    d = decide(logits, History([0]), used, draw(3, 0), forced=4)
    event = replace(event_of(logits, History([0]), used, 0), token_id=4, forced=True, candidate_cuts=d.candidate_cuts)
    run = FinishedRun(start_of([0], used), [event])
    for other, code in ((used, 1 + ev.FILTERS.index("top_k")), (replace(used, top_k=0), NOT_CUT)):
        found = run.redecide(other)
        assert (found.first, found.open_at, found.cuts[0]) == (None, None, code)


def test_nothing_to_decide_is_no_error() -> None:
    found = FinishedRun(start_of([1], PLAIN), []).redecide(PLAIN)
    assert (found.first, found.open_at, found.open_count) == (None, None, 0)


def test_what_is_kept_survives_the_file() -> None:
    random_ = np.random.default_rng(1)
    rows = [(random_.normal(size=5000) * 3).astype(np.float32) for _ in range(3)]
    used = SamplingSettings(
        temperature=1.5, seed=2, logit_bias=((7, -100.0), (8, 0.1)), banned=(3, 4999), banned_sequences=((1, 2, 3),)
    )
    for event in walk(rows, [1, 2], used):
        assert Reader().event(json.loads(line_of(event))) == event


# ---------------------------------------------------------------- against true re-runs


def run_of(session, used: SamplingSettings, count: int) -> tuple[ev.RunStart, list[ev.TokenEvent]]:
    request = Request(1, "A river bends.", lanes=(used,), max_new_tokens=count, ignore_ends=True)
    events = list(generate(session, request, Control()))
    starts = [event for event in events if isinstance(event, ev.RunStart)]
    return starts[0], [event for event in events if isinstance(event, ev.TokenEvent)]


def parts_where_it_was_shown(session, used: SamplingSettings, others: list[SamplingSettings], count: int) -> int:
    """Runs again under each of the others; returns how often the answer was certain up to where the texts part."""
    session.kept.on = False  # keys that another chunk computed differ in their last digits
    try:
        start, tokens = run_of(session, used, count)
        run, certain = FinishedRun(start, tokens), 0
        for other in others:
            found = run.redecide(other)
            again = run_of(session, other, count)[1]
            pairs = enumerate(zip(tokens, again, strict=True))
            parted = next((step for step, (one, two) in pairs if one.token_id != two.token_id), None)
            if found.open_at is None:
                certain += 1
                assert parted == found.first, other
                if parted is not None and found.others[parted] >= 0:
                    assert again[parted].token_id == found.others[parted], other
            else:
                assert parted is None or parted >= found.open_at, other
                assert found.first is None or (parted is not None and parted <= found.first), other
        return certain
    finally:
        session.kept.on = True


def some_settings(random_: random.Random, used: SamplingSettings) -> SamplingSettings:
    """One or two settings moved, a little or a lot."""
    moves: list[dict] = [
        {"temperature": used.temperature * random_.uniform(0.9, 1.1)}, {"temperature": random_.uniform(0.2, 1.6)},
        {"temperature": 0.0}, {"top_p": random_.uniform(0.6, 0.99)}, {"top_k": random_.randint(1, 200)},
        {"min_p": random_.uniform(0.001, 0.2)}, {"typical_p": random_.uniform(0.5, 0.99)},
        {"repetition_penalty": random_.uniform(0.9, 1.3)}, {"presence_penalty": random_.uniform(-0.5, 0.5)},
        {"frequency_penalty": random_.uniform(-0.2, 0.5)}, {"no_repeat_ngram_size": random_.randint(2, 4)},
        {"logit_bias": ((random_.randint(0, 200), random_.uniform(-9, 9)),)}, {"banned": (random_.randint(0, 200),)},
    ]  # fmt: skip
    return replace(used, **(random_.choice(moves) | random_.choice(moves)))


@pytest.fixture(scope="module")
def tiny_session(tmp_path_factory):
    folder = tiny_folder(tmp_path_factory.mktemp("tiny"))
    session = load(LoadPlan(str(folder), "float32", device_map="cpu"), lambda event: None, Control())
    yield session
    session.close()


@pytest.mark.parametrize("seed", range(4))
def test_a_tiny_model_run_again_parts_where_it_was_shown(tiny_session, seed) -> None:
    random_ = random.Random(seed)
    used = some_settings(random_, SamplingSettings(temperature=0.9, seed=seed))
    others = [some_settings(random_, used) for _ in range(12)]
    assert parts_where_it_was_shown(tiny_session, used, others, 24) >= 0.6 * len(others)


def test_typical_p_alone_is_decided_nearly_everywhere() -> None:
    """Its cut hangs on the entropy of all that live, of which most are only counted."""
    random_ = np.random.default_rng(2)
    rows = [(random_.gumbel(size=20_000) * 1.4).astype(np.float32) for _ in range(60)]
    opened = {}
    for used in (SamplingSettings(seed=3), SamplingSettings(temperature=0.8, top_p=0.97, seed=3)):
        events = walk(rows, [1], used)
        for other in (replace(used, typical_p=0.5), replace(used, typical_p=0.9)):
            opened[other] = check(events, rows, [1], other).open_count
    assert sum(opened.values()) <= 0.1 * 4 * len(rows), opened


def test_the_default_model_run_again_parts_where_it_was_shown(default_session) -> None:
    random_ = random.Random(1)
    used = SamplingSettings(temperature=0.7, top_p=0.95, repetition_penalty=1.1, seed=5)
    others = [replace(used, top_p=0.9), replace(used, temperature=0.72), *(some_settings(random_, used) for _ in "123")]
    assert parts_where_it_was_shown(default_session, used, others, 16) >= 4


def test_the_fast_order_is_a_stable_sort() -> None:
    dice = np.random.default_rng(3)
    values = (dice.normal(size=(200, 60)) * 5).astype(np.float32)
    values[dice.random(values.shape) < 0.2] = -np.inf
    values[dice.random(values.shape) < 0.1] = 1.5
    values[dice.random(values.shape) < 0.1] = 0.0
    values[dice.random(values.shape) < 0.1] = -0.0
    np.testing.assert_array_equal(_largest_first(values), np.argsort(-values, axis=1, kind="stable"))


def test_parts_of_a_long_run_answer_as_one_does(monkeypatch, default_session) -> None:
    request = Request(1, "Tell a story.", lanes=(SamplingSettings(seed=4, repetition_penalty=1.1),), max_new_tokens=40)
    events = list(generate(default_session, request, Control()))
    start = next(event for event in events if isinstance(event, ev.RunStart))
    tokens = [event for event in events if isinstance(event, ev.TokenEvent)]
    moved = [SamplingSettings(seed=4, **change) for change in (
        {"temperature": 1.4, "typical_p": 0.9}, {"repetition_penalty": 1.3, "top_p": 0.9}, {"no_repeat_ngram_size": 2},
        {"presence_penalty": 0.5, "min_p": 0.05}, {"logit_bias": ((30, 2.0),), "banned": (28,)}, {"temperature": 0.0},
    )]  # fmt: skip
    whole = [FinishedRun(start, tokens).redecide(settings) for settings in moved]
    monkeypatch.setattr("engine.redecide.WORTH_TWO", 2)
    parted = FinishedRun(start, tokens)
    assert len(parted.parts) == 2
    for other, one in zip(moved, whole, strict=True):
        both = parted.redecide(other)
        assert (both.fates, both.cuts, both.others) == (one.fates, one.cuts, one.others)
        for mine, theirs in ((both.choices_low, one.choices_low), (both.choices_high, one.choices_high)):
            # Bounds: in a part where no unnamed token may have moved they are narrower than in a whole with one.
            assert list(mine) == pytest.approx(list(theirs), rel=1e-3)


@pytest.mark.parametrize("logit", [1e308, -1e308, 3e38, 1e30])
def test_absurd_logits_of_a_damaged_file_are_decided_or_left_open_without_a_warning(logit) -> None:
    rows = [np.linspace(0, 9, 300, dtype=np.float32)] * 3
    used = SamplingSettings(temperature=0.9, seed=3)
    events = walk(rows, [1], used)
    logits = events[1].candidate_logits[:]
    logits[0] = logit
    events[1] = replace(events[1], candidate_logits=logits)
    for changes in (
        {"temperature": 0.3},
        {"top_p": 0.5},
        {"repetition_penalty": 1.3},
        {"typical_p": 0.5},
        {"min_p": 0.1},
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = FinishedRun(start_of([1], used), events).redecide(replace(used, **changes))
        assert len(found.fates) == 3
