"""Many continuations of one beginning: the same as each alone, one prefill, merged into a tree with shares."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from engine.answers import answer
from engine.continuations import lanes_at_once
from engine.control import Control
from engine.errors import CannotLoad, PromptRefused
from engine.events import ExperimentProgress, RunEnd, TokenEvent
from engine.futures import (
    Future,
    Futures,
    Node,
    different,
    effective_number,
    scatter,
    shared_tokens,
    tree_of,
    words_of,
)
from engine.loading import load
from engine.loop import generate
from engine.prompt import end_tokens
from engine.sampling import History, final_probabilities
from engine.settings import FuturesQuestion, LoadPlan, Request, SamplingSettings
from tests.tiny_models import tiny_folder

DRAWN = SamplingSettings(temperature=0.8, top_k=20, seed=40)


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    folder = tiny_folder(tmp_path_factory.mktemp("tiny"))
    made = load(LoadPlan(str(folder), device_map="cpu"), lambda event: None, Control())
    yield made
    made.close()


def alone(session, settings=DRAWN, written=(), tokens=6) -> list:
    request = Request(1, "The river", raw=True, lanes=(settings,), written=written, ignore_ends=True,
                      max_new_tokens=len(written) + tokens)  # fmt: skip
    return list(generate(session, request, Control()))


def question(session, count=70, tokens=6, settings=DRAWN, written=(), **changes) -> FuturesQuestion:
    ids = tuple(session.tokenizer("The river")["input_ids"])
    request = Request(0, "The river", raw=True, lanes=(settings,), prompt_ids=ids, written=written,
                      max_new_tokens=len(written) + 1, ignore_ends=True, **changes)  # fmt: skip
    return FuturesQuestion(request, count, tokens)


def asked(session, what, control=None) -> tuple[Futures, list]:
    told: list = []
    found = answer(what, session, control or Control(), told.append)
    assert isinstance(found, Futures)
    return found, told


def test_each_future_is_what_its_seed_writes_alone(session):
    """SAM-3, and the draws: lane i of the batch has seed + i."""
    written = next(end.token_ids for end in alone(session) if isinstance(end, RunEnd))
    found, _ = asked(session, question(session, 70, written=written))
    assert [future.seed for future in found.futures] == list(range(40, 110))
    for place in (0, 1, 63, 64, 69):
        settings = SamplingSettings(temperature=0.8, top_k=20, seed=40 + place)
        end = alone(session, settings, written)[-2]
        assert (*written, *found.futures[place].token_ids) == end.token_ids
    assert found.begins_with == next(e for e in alone(session) if isinstance(e, RunEnd)).text
    assert found.whole
    assert not found.stopped


def test_the_beginning_is_read_once_for_all(session):
    session.kept.drop()
    (end,) = [e for e in alone(session) if isinstance(e, RunEnd)]
    found, _ = asked(session, question(session, 100, written=end.token_ids))
    assert found.batches == 2
    assert found.read_tokens == 1  # the newest word, whose logits are wanted, by the first batch
    assert found.reused_tokens == 2 * (end.prompt_tokens + len(end.token_ids)) - 1
    session.kept.drop()
    found, _ = asked(session, question(session, 100, written=end.token_ids))
    assert found.read_tokens == end.prompt_tokens + len(end.token_ids)


def test_behind_an_end_token_there_is_no_future_and_a_sentence_says_so(session):
    last = end_tokens(session, raw=True)[0].token_id
    what = question(session, 4, written=(last,))
    with pytest.raises(PromptRefused, match="come to its end"):
        asked(session, replace(what, request=replace(what.request, ignore_ends=False)))


def test_the_expected_shares_are_the_exact_odds_of_the_first_word(session):
    first = next(event for event in alone(session) if isinstance(event, TokenEvent))
    ids = session.tokenizer("The river")["input_ids"]
    import torch

    with torch.no_grad():
        logits = session.model(torch.tensor([ids])).logits[0, -1].float().numpy()
    exact = final_probabilities(logits, History(list(ids)), DRAWN)
    found, _ = asked(session, question(session, 40))
    assert {word.token_id for word in found.first} == set(exact.nonzero()[0].tolist())
    for word in found.first:
        assert word.share == pytest.approx(exact[word.token_id], abs=1e-6)
    assert found.expected(first.token_id) == pytest.approx(math.exp(first.final_logprob), abs=1e-9)
    assert math.fsum(word.share for word in found.first) == pytest.approx(1.0, abs=1e-6)
    assert found.expected(299) is None or found.expected(299) > 0


def test_sampled_shares_come_near_the_exact_ones(session):
    found, _ = asked(session, question(session, 256, tokens=1))
    most = found.first[0]
    share = sum(future.token_ids[0] == most.token_id for future in found.futures) / 256
    assert abs(share - most.share) < 4 * scatter(most.share, 256)


def test_a_stop_keeps_what_is_there(session):
    control, told = Control(), []

    def tell(event):
        told.append(event)
        if isinstance(event, ExperimentProgress) and event.done > 64 * 3:
            control.cancel()

    found = answer(question(session, 256, tokens=200), session, control, tell)
    assert found.stopped
    assert found.whole
    assert len(found.futures) == 64
    assert {len(future.token_ids) for future in found.futures} <= {3, 4, 5}
    assert max(event.total for event in told if isinstance(event, ExperimentProgress)) == 256 * 200


def test_what_is_there_so_far_goes_out_while_it_is_written(session, monkeypatch):
    monkeypatch.setattr("engine.continuations.TELL_EVERY_S", 0.0)
    _, told = asked(session, question(session, 8))
    parts = [event.partial for event in told if isinstance(event, ExperimentProgress) and event.partial is not None]
    assert len(parts) >= 6
    assert not any(part.whole for part in parts)
    assert [max(len(f.token_ids) for f in part.futures) for part in parts] == sorted(
        max(len(f.token_ids) for f in part.futures) for part in parts
    )


def test_greedy_has_one_future(session):
    found, _ = asked(session, question(session, 100, settings=SamplingSettings(temperature=0.0)))
    assert len(found.futures) == 1
    assert effective_number(found.futures) == 1.0


def test_without_a_model_there_is_a_sentence(session):
    with pytest.raises(CannotLoad):
        answer(question(session), None, Control())


def test_a_long_context_gets_fewer_lanes_at_once(session, monkeypatch):
    from dataclasses import replace

    from engine import readings

    reading = replace(readings.read_memory(), available_bytes=session.facts.kv_bytes_per_token * 1000 * 10, gpus=())
    monkeypatch.setattr(readings, "read_memory", lambda: reading)
    assert lanes_at_once(session, 1000) == 3  # 0.3 of ten lanes' caches
    assert lanes_at_once(session, 10) == 64
    assert lanes_at_once(session, 10**6) == 1


# ---------------------------------------------------------------- the tree


def futures(*texts: str) -> list[Future]:
    """Each letter a token."""
    return [
        Future(seed, tuple(map(ord, text)), tuple(text), tuple(text), reason="length")
        for seed, text in enumerate(texts)
    ]


def shape(found, node: Node):
    return words_of(found, node), node.count, [shape(found, child) for child in node.children]


def test_continuations_are_merged_by_what_they_begin_with():
    found = futures("abcd", "abce", "abxx", "abcd")
    assert shape(found, tree_of(found)) == (
        "ab", 4, [("c", 3, [("d", 2, []), ("e", 1, [])]), ("xx", 1, [])]
    )  # fmt: skip
    assert shared_tokens(found) == 2
    assert different(found) == 3


def test_each_future_is_in_one_child_or_ends(session):
    found, _ = asked(session, question(session, 60))

    def check(node: Node):
        assert node.count == sum(child.count for child in node.children) + node.ended
        for child in node.children:
            assert child.begin == node.end < child.end
            check(child)

    check(tree_of(found.futures))


def test_one_that_ends_early_is_counted_where_it_ends():
    found = futures("ab", "abc", "abd")
    root = tree_of(found)
    assert (words_of(found, root), root.ended, root.count) == ("ab", 1, 3)
    assert tree_of([]).count == 0
    assert words_of([], tree_of([])) == ""


def test_half_a_character_is_shown_by_its_bytes():
    """Two Chinese characters that share their first bytes part inside a character."""
    one = Future(0, (1, 2), ("<E6 B2>", "<B3>"), ("", "河"))
    two = Future(1, (1, 3), ("<E6 B2>", "<99>"), ("", "沙"))
    root = tree_of([one, two])
    assert words_of([one, two], root) == "<E6 B2>"
    assert [words_of([one, two], child) for child in root.children] == ["河", "沙"]


def test_the_effective_number_is_the_perplexity_of_the_shares():
    assert effective_number(futures("ab", "ab", "ab")) == 1.0
    assert effective_number(futures("aa", "ab", "ba", "bb")) == pytest.approx(4.0)
    assert effective_number(futures("aa", "ab", "ba", "bb"), 1) == pytest.approx(2.0)
    # Shares 3/4 and 1/4: exp(0.75 ln(4/3) + 0.25 ln 4), worked out by hand.
    assert effective_number(futures("a", "a", "a", "b")) == pytest.approx(1.7547654)
    assert math.isnan(effective_number([]))


def test_a_share_scatters_as_the_binomial_does():
    assert scatter(0.5, 100) == pytest.approx(0.05)
    assert scatter(1.0, 100) == 0.0
