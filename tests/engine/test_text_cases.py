"""Text as it grows: nothing shown is taken back, nothing is held longer than needed, the end equals the record."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from engine.text import StopMatcher, TokenText, Vocabulary

DATA = Path(__file__).parents[1] / "data"
TEXT_CASES = json.loads((DATA / "text.json").read_text("utf-8"))
STOP_CASES = json.loads((DATA / "field_stop.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def default_vocabulary(default_model_path):
    return Vocabulary(AutoTokenizer.from_pretrained(str(default_model_path)))


def wrapped(raw: Tokenizer, **options) -> Vocabulary:
    return Vocabulary(PreTrainedTokenizerFast(tokenizer_object=raw, **options))


PIECES = ["▁", "a", "▁a", "▁▁", "<0xE9>", "<0x87>", "<0x8F>", "<0xF0>", "<0xFF>", "<0x41>", "\ufffd", "量", "▁x", "!"]


@pytest.fixture(scope="module")
def fallback() -> Vocabulary:
    """The tokenizer of TXT-4: SentencePiece's way, with byte tokens."""
    raw = Tokenizer(models.BPE({piece: i for i, piece in enumerate(PIECES)}, [], byte_fallback=True))
    raw.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    raw.add_special_tokens([AddedToken("</s>", special=True)])
    return wrapped(raw, eos_token="</s>")


def growth(vocabulary: Vocabulary, ids: list[int]) -> tuple[list[str], str]:
    """The visible text after each token, and at the end."""
    text, visible, after = TokenText(vocabulary), "", []
    for token_id in ids:
        visible += text.add(token_id)
        after.append(visible)
    return after, visible + text.finish()


def by_pieces(*pieces: str) -> list[int]:
    return [PIECES.index(piece) for piece in pieces]


# ---------------------------------------------------------------- growing


@pytest.mark.parametrize("case", TEXT_CASES, ids=[case["name"] for case in TEXT_CASES])
def test_visible_text_after_each_token(default_vocabulary, case) -> None:
    after, end = growth(default_vocabulary, case["token_ids"])
    assert after == case["visible_after_each_token"]
    assert end == case["final_text"]


def test_byte_tokens_become_a_character_when_it_is_whole(fallback) -> None:
    assert growth(fallback, by_pieces("▁", "<0xE9>", "<0x87>", "<0x8F>"))[0] == ["", "", "", "量"]
    assert growth(fallback, by_pieces("▁a")) == (["a"], "a")


def test_a_bad_byte_takes_nothing_back_that_was_whole(fallback) -> None:
    after, end = growth(fallback, by_pieces("▁", *["<0xE9>", "<0x87>", "<0x8F>"] * 2, "▁a"))
    assert after == ["", "", "", "量", "量", "量", "量量", "量量 a"]
    assert end == "量量 a"
    broken = by_pieces("▁", "<0xE9>", "<0x87>", "<0x8F>", "<0xE9>", "▁a")
    assert growth(fallback, broken) == (["", "", "", "量", "量", "量\ufffd a"], "量\ufffd a")
    assert fallback.decode(broken) == "\ufffd\ufffd\ufffd\ufffd a"  # the library's own, which takes it back


def test_only_one_leading_space_is_stripped_and_only_at_the_beginning(fallback) -> None:
    assert growth(fallback, by_pieces("▁▁", "▁a"))[1] == "  a"
    assert growth(fallback, by_pieces("▁", "▁", "a"))[1] == " a"
    assert growth(fallback, by_pieces("a", "▁", "a"))[1] == "a a"


@settings(max_examples=200)
@given(st.data())
def test_without_broken_bytes_the_text_is_the_library_decode(fallback, data) -> None:
    whole = st.sampled_from([[p] for p in PIECES if "<" not in p] + [["<0xE9>", "<0x87>", "<0x8F>"], ["<0x41>"]])
    ids = by_pieces(*(piece for part in data.draw(st.lists(whole, max_size=12)) for piece in part))
    assert growth(fallback, ids)[1] == fallback.decode(ids)


@settings(max_examples=100)
@given(st.data(), st.sampled_from(["always", "first", "never"]))
def test_signs_for_spaces_in_the_first_token_grow_into_the_library_decode(data, scheme) -> None:
    """SentencePiece's decoder takes every such sign out of the first token, and out of no other."""
    pieces = ["▁", "▁▁", "▁▁a", "a▁b", "b▁", " c", "x"]
    raw = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, []))
    raw.decoder = decoders.Metaspace(prepend_scheme=scheme)
    vocabulary = wrapped(raw)
    ids = data.draw(st.lists(st.integers(0, len(pieces) - 1), max_size=6))
    assert growth(vocabulary, ids)[1] == vocabulary.decode(ids)


UNUSUAL = {
    "strips each token": [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Strip(" ", 1, 0)],
    "strips before it replaces": [decoders.Strip(" ", 1, 0), decoders.Replace("▁", " "), decoders.ByteFallback()],
    "two signs": [decoders.Replace("▁", " "), decoders.Replace("量", " "), decoders.ByteFallback(), decoders.Fuse()],
    "bytes before spaces": [decoders.ByteFallback(), decoders.Metaspace()],
}


@settings(max_examples=100)
@given(st.data(), st.sampled_from(sorted(UNUSUAL)))
def test_unusual_decoders_grow_into_the_library_decode_and_lose_nothing_to_a_broken_byte(data, name) -> None:
    raw = Tokenizer(models.BPE({piece: i for i, piece in enumerate(PIECES)}, [], byte_fallback=True))
    raw.decoder = decoders.Sequence(UNUSUAL[name])
    vocabulary = wrapped(raw)
    ids = by_pieces(*data.draw(st.lists(st.sampled_from([p for p in PIECES if "<" not in p]), max_size=6)))
    assert growth(vocabulary, ids)[1] == vocabulary.decode(ids)
    after, end = growth(vocabulary, by_pieces("a", "<0xE9>", "<0x87>", "<0x8F>", "<0xE9>", "!", "a"))
    assert after == ["a", "a", "a", "a量", "a量", "a量\ufffd!", "a量\ufffd!a"]
    assert end == after[-1]


def test_added_tokens_hold_spaces_like_all_others() -> None:
    """Gemma's vocabulary has runs of spaces as added tokens that are not special."""
    raw = Tokenizer(models.BPE(vocab={"a": 0, "▁b": 1}, merges=[], byte_fallback=True))
    raw.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    raw.add_tokens([AddedToken("▁▁▁", normalized=False), AddedToken("<think>", normalized=False)])
    vocabulary = wrapped(raw)
    ids = [0, 2, 1, 3, 2]
    assert growth(vocabulary, ids) == (
        ["a", "a   ", "a    b", "a    b<think>", "a    b<think>   "],
        vocabulary.decode(ids),
    )


def test_half_a_character_at_the_end_is_released(default_vocabulary, fallback) -> None:
    after, end = growth(default_vocabulary, TEXT_CASES[0]["token_ids"][:4])
    assert after[-1] == "A wave "
    assert end == "A wave \ufffd"
    assert growth(fallback, by_pieces("a", "<0xE9>", "<0x87>"))[1] == "a\ufffd"


def test_a_real_replacement_character_is_shown_at_once(default_vocabulary) -> None:
    assert growth(default_vocabulary, [81, 24211, 82]) == (["a", "a\ufffd", "a\ufffdb"], "a\ufffdb")


def test_a_broken_byte_holds_nothing_back_for_ever(default_vocabulary) -> None:
    after, _ = growth(default_vocabulary, [111, *[82] * 5])
    assert after == ["", *["\ufffd" + "b" * n for n in range(1, 6)]]


@settings(max_examples=300)
@given(st.data())
def test_any_ids_grow_into_the_record_and_the_full_decode(default_vocabulary, data) -> None:
    small = st.sampled_from([10813, 230, 228, 111, 24211, 321, 231, 151, 219])
    ids = data.draw(st.lists(st.integers(3, 49_151) | small, max_size=15))
    ids = [i for i in ids if i not in default_vocabulary.special]
    after, end = growth(default_vocabulary, ids)
    for earlier, later in zip(after, [*after[1:], end], strict=False):
        assert later.startswith(earlier)
    assert end == default_vocabulary.decode(ids)


# ---------------------------------------------------------------- spaces and special tokens


def test_no_space_before_punctuation_is_cleaned_away() -> None:
    raw = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁x", -1.0), ("▁", -1.0), ("!", -1.0)], unk_id=0))
    raw.decoder = decoders.Metaspace()
    vocabulary = wrapped(raw, clean_up_tokenization_spaces=True, unk_token="<unk>")
    assert vocabulary.tokenizer.decode([1, 2, 3]) == "x!"  # the library takes the space back
    after, end = growth(vocabulary, [1, 2, 3])
    assert after == ["x", "x ", "x !"]
    assert end == vocabulary.decode([1, 2, 3]) == "x !"


def test_punctuation_keeps_its_spaces_in_the_default_model(default_vocabulary) -> None:
    text = "x != y , z ? it 's n't"
    ids = default_vocabulary.tokenizer(text, add_special_tokens=False)["input_ids"]
    assert growth(default_vocabulary, ids)[1] == text


@pytest.mark.parametrize("kind", ["wordpiece", "ctc", "wordlevel"])
def test_other_decoders_never_take_back_what_was_shown(kind: str) -> None:
    words = {"[UNK]": 0, "hello": 1, "##world": 2, ",": 3, "n't": 4, "do": 5, "|": 6, "a": 7}
    if kind == "wordlevel":
        raw = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    else:
        raw = Tokenizer(models.WordPiece(words, unk_token="[UNK]"))
        raw.decoder = decoders.WordPiece(cleanup=True) if kind == "wordpiece" else decoders.CTC(pad_token="[UNK]")
    vocabulary = wrapped(raw)
    after, end = growth(vocabulary, [1, 2, 3, 5, 4, 6, 7, 1, 3, 3, 7])
    for earlier, later in zip(after, [*after[1:], end], strict=False):
        assert later.startswith(earlier)
    for word in ("hello", "world", "do", "a"):
        assert word in end


def test_special_tokens_have_a_name_and_no_text(default_vocabulary, fallback) -> None:
    assert growth(default_vocabulary, [81, 2, 82])[0] == ["a", "a", "ab"]
    assert default_vocabulary.label(2) == "<|im_end|>"
    assert growth(fallback, [PIECES.index("a"), len(PIECES)])[1] == "a"
    assert fallback.label(len(PIECES)) == "</s>"


def test_an_end_token_inside_half_a_character_does_not_lose_it(default_vocabulary) -> None:
    after, end = growth(default_vocabulary, [81, 10813, 2])
    assert (after[-1], end) == ("a", "a\ufffd")


# ---------------------------------------------------------------- labels


def test_tokens_that_look_alike_have_different_labels(default_vocabulary) -> None:
    labels = [default_vocabulary.label(i) for i in range(default_vocabulary.size)]
    alike = {label: count for label, count in Counter(labels).items() if count > 1}
    assert not alike
    assert labels[230] == "<8C>"
    assert labels[24211] == "\ufffd"
    assert not [label for label in labels if not label]
    assert sum("\ufffd" in label for label in labels) <= 4  # only those that hold the real character


def test_ids_that_the_tokenizer_does_not_know_are_shown_by_number(default_vocabulary) -> None:
    unknown = default_vocabulary.size + 50
    assert default_vocabulary.label(unknown) == f"<id {unknown}>"
    after, end = growth(default_vocabulary, [81, unknown, 82])
    assert after == ["a", f"a<id {unknown}>", f"a<id {unknown}>b"]
    assert end == after[-1]


# ---------------------------------------------------------------- stop strings


def stopped(pieces: list[str], stop: list[str]) -> tuple[list[str], str, str | None]:
    matcher, visible, after = StopMatcher(tuple(stop)), "", []
    for piece in pieces:
        visible += matcher.add(piece)
        after.append(visible)
        if matcher.matched is not None:
            return after, visible, matcher.matched
    return after, visible + matcher.finish(), None


@pytest.mark.parametrize("case", STOP_CASES, ids=[case["name"] for case in STOP_CASES])
def test_stop_strings_as_they_arrive(case) -> None:
    after, end, matched = stopped(case["pieces"], case["stop"])
    assert after == case["visible_after_each_piece"]
    assert end == case["text_at_end"]
    assert (matched is not None) == (case["ended_by"] == "stop string")


@pytest.mark.parametrize(
    ("pieces", "stop", "after", "end"),
    [
        ([" br", "own", " fox"], ["own fox"], [" br", " br", " br"], " br"),  # TXT-7
        ([" done.END of"], ["END"], [" done."], " done."),  # TXT-8
        (["a", "\n\n", "User:"], ["\n\n", "\n\nUser:"], ["a", "a"], "a"),  # TXT-10
        (["a", "\n\nUser", ":"], ["\n\nUser:", "\nUser"], ["a", "a\n"], "a\n"),
        (["x", "词", "语", "。"], ["词语"], ["x", "x", "x"], "x"),
        (["ab"], ["b", "ab"], [""], ""),
    ],
)
def test_stop_strings_worked_out_by_hand(pieces, stop, after, end) -> None:
    assert stopped(pieces, stop)[:2] == (after, end)


@settings(max_examples=400)
@given(
    st.lists(st.text("ab\n", max_size=3), max_size=10),
    st.lists(st.text("ab\n", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_any_stop_strings_end_where_plain_search_ends_them(pieces, stop) -> None:
    after, end, matched = stopped(pieces, stop)
    whole, seen, expected = "".join(pieces), "", None
    for piece in pieces:  # the first piece that completes any of them, cut where the earliest begins
        seen += piece
        places = [seen.find(s) for s in stop if s in seen]
        if places:
            expected = seen[: min(places)]
            break
    assert (matched is not None) == (expected is not None)
    assert end == (whole if expected is None else expected)
    seen = ""
    for piece, visible in zip(pieces, after, strict=False):
        seen += piece
        if matched is None:
            held = seen[len(visible) :]
            assert seen.startswith(visible)
            assert held == "" or any(s.startswith(held) for s in stop)  # nothing longer than needed
