"""A tokenizer that does not belong to the model is found and said (LOD-14, PRM-7)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.control import Control
from engine.errors import CannotLoad
from engine.loading import load
from engine.settings import LoadPlan
from tests.tiny_models import byte_tokenizer, tiny_folder


def notes_of(folder: Path) -> list[str]:
    session = load(LoadPlan(str(folder)), lambda event: None, Control())
    notes = list(session.facts.notes)
    session.close()
    return notes


def word_tokenizer(words: list[str], lowercase: bool = False, **special: str):
    """A tokenizer of whole words; what it does not know is <unk>."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: at for at, word in enumerate(["<unk>", "<s>", "</s>", *words])}
    raw = Tokenizer(models.WordLevel(vocab=vocabulary, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    if lowercase:
        raw.normalizer = normalizers.Lowercase()
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, unk_token="<unk>", bos_token="<s>", eos_token="</s>", model_max_length=10**30, **special
    )


def test_a_tokenizer_that_fits_leaves_no_note(tmp_path):
    folder = tiny_folder(tmp_path / "fits", vocab_size=261)
    assert notes_of(folder) == []


def test_rows_without_a_token_are_counted_exactly(tmp_path):
    folder = tiny_folder(tmp_path / "padded", vocab_size=300)
    assert "The tokenizer knows 261 tokens and the embedding has 300 rows: 39 rows are padding." in notes_of(folder)
    one = tiny_folder(tmp_path / "one", vocab_size=262)
    assert notes_of(one)[0].endswith("262 rows: one row is padding.")
    large = tiny_folder(tmp_path / "large", vocab_size=2000)
    assert any("261 tokens and the embedding has 2,000 rows: it may be another model's" in n for n in notes_of(large))


def test_more_rows_unused_than_padding_explains_are_said(tmp_path):
    folder = tiny_folder(tmp_path / "swapped", vocab_size=2000)
    word_tokenizer([f"w{i}" for i in range(1200)]).save_pretrained(folder)
    notes = notes_of(folder)
    assert any("1,203 tokens" in n and "797 rows are never used, more than padding explains" in n for n in notes)


def test_a_tokenizer_larger_than_the_embedding_is_refused_with_both_sizes(tmp_path):
    folder = tiny_folder(tmp_path / "small")
    word_tokenizer([f"w{i}" for i in range(400)]).save_pretrained(folder)
    with pytest.raises(CannotLoad) as caught:
        load(LoadPlan(str(folder)), lambda event: None, Control())
    assert "403 tokens" in caught.value.what
    assert "300 rows" in caught.value.what


def test_another_models_tokenizer_of_the_same_size_is_found_by_its_special_tokens_and_a_round_trip(tmp_path):
    folder = tiny_folder(tmp_path / "swapped", vocab_size=300)
    word_tokenizer([f"w{i}" for i in range(297)]).save_pretrained(folder)
    notes = " ".join(notes_of(folder))
    assert "end is 2 by the tokenizer, 257 by the model's files" in notes
    assert "beginning is 1 by the tokenizer, 256 by config.json" in notes
    assert "It may be another model's tokenizer." in notes
    assert "does not give back English and Chinese and digits and emoji" in notes
    assert "<unk>" in notes


def test_a_tokenizer_that_only_lacks_some_scripts_says_which(tmp_path):
    folder = tiny_folder(tmp_path / "english", vocab_size=300, bos_token_id=1, eos_token_id=2, pad_token_id=None)
    words = ["The", "river", "bends", "here", ",", "and", "it", "'", "s", "slow", ".", "3", "14159", "1", "024"]
    tokenizer = word_tokenizer(sorted(set(words)))
    from tokenizers import decoders

    tokenizer.backend_tokenizer.decoder = decoders.Fuse()
    tokenizer.save_pretrained(folder)
    notes = " ".join(notes_of(folder))
    assert "does not give back Chinese and emoji" in notes
    assert "such text cannot be read by this model" in notes
    assert "changes spaces" in notes  # words without the spaces between them


def test_a_damaged_merge_table_does_not_pass_the_round_trip(tmp_path):
    folder = tiny_folder(tmp_path / "damaged", vocab_size=261)
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = content["model"]["vocab"]
    for letter in ("e", "h"):  # two bytes' ids are gone, as in a file of another model
        vocabulary.pop(letter)
    path.write_text(json.dumps(content), encoding="utf-8")
    assert any("does not give back English" in note for note in notes_of(folder))


def test_an_end_token_that_the_tokenizer_or_the_model_lacks_is_said(tmp_path):
    folder = tiny_folder(tmp_path / "ends", vocab_size=300)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [257, 290]}))
    assert any("The tokenizer has no token 290" in note for note in notes_of(folder))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [257, 900]}))
    assert any("The end token 900 lies outside the vocabulary of 300" in note for note in notes_of(folder))


def test_special_tokens_beyond_the_embedding_are_named(tmp_path):
    folder = tiny_folder(tmp_path / "beyond", vocab_size=261)
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(["<|tool|>"], special_tokens=True)
    tokenizer.save_pretrained(folder)
    assert any("<|tool|>" in note and "beyond the model's embedding" in note for note in notes_of(folder))


def test_the_default_models_tokenizer_gives_everything_back(default_session):
    told = " ".join(default_session.facts.notes)
    assert "give back" not in told
    assert "Special tokens differ" not in told


def damaged(folder: Path, **parts) -> Path:
    """The folder with these parts of its tokenizer.json replaced."""
    told = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    (folder / "tokenizer.json").write_text(json.dumps(told | parts), "utf-8")
    return folder


@pytest.mark.parametrize("table", ["AQ==", "BAAAAGFiY2Q="], ids=["unreadable", "read and then wrong"])
def test_a_tokenizer_that_makes_its_library_panic_is_refused_or_told(tmp_path, table):
    """Such a panic is no Exception and would end the process."""
    normaliser = {"type": "Precompiled", "precompiled_charsmap": table}
    folder = damaged(tiny_folder(tmp_path / "panic"), normalizer=normaliser)
    if table == "AQ==":
        with pytest.raises(CannotLoad, match="The tokenizer cannot be read: "):
            notes_of(folder)
    else:
        assert any("does not give back English" in note for note in notes_of(folder))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 1234567\n", "only a pointer to the file ("),
        ("<!DOCTYPE html><html></html>", "a web page"),
        ("", "is empty"),
    ],
    ids=["pointer", "page", "empty"],
)
def test_a_tokenizer_file_that_is_something_else_is_named(tmp_path, content, words):
    folder = tiny_folder(tmp_path / "other")
    (folder / "tokenizer.json").write_text(content, "utf-8")
    with pytest.raises(CannotLoad) as refused:
        load(LoadPlan(str(folder)), lambda event: None, Control())
    assert "tokenizer.json" in refused.value.what
    assert words in refused.value.what


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", ["[]", "null", "{", "\ufeff{}", "[" * 100_000], ids=range(5))
def test_a_tokenizer_file_that_is_no_table_is_named(tmp_path, name, content):
    folder = tiny_folder(tmp_path / "other")
    (folder / name).write_text(content, "utf-8")
    with pytest.raises(CannotLoad) as refused:
        load(LoadPlan(str(folder)), lambda event: None, Control())
    assert refused.value.what == f"{name} is no table in JSON."
