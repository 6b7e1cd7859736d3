"""Blind tests as files: one JSON file each, written whole at every vote; CSV and JSON for others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from engine.blind import LETTERS, NO_PREFERENCE, BlindTest
from engine.errors import FileRefused
from engine.export import BOM, csv_cell, json_text
from engine.export_file import write_whole
from engine.replay_lines import DAMAGED, built, header_line, seed_value, settings_values

SCHEMA = 1


def write_test(path: Path, test: BlindTest) -> None:
    """Keeps a test. Raises FileRefused."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, [header_line({"kind": "blind test", "schema": SCHEMA, "test": test})])


def read_test(path: Path) -> BlindTest:
    """A test as it was kept. Raises FileRefused."""
    try:
        values = json.loads(path.read_text(encoding="utf-8-sig"))
        if values["schema"] > SCHEMA:
            raise FileRefused("{name} was made by a newer version.", "Open it with that version.", name=path.name)
        test: BlindTest = built(BlindTest, values["test"])
        for each in test.rounds:
            places = sorted(setting for group in each.shown for setting in group)
            vote = NO_PREFERENCE if each.vote is None else each.vote
            if places != list(range(len(test.settings))) or len(each.texts) != len(test.settings):
                raise ValueError("a round does not fit the settings")
            if not NO_PREFERENCE <= vote < len(each.shown):
                raise ValueError("a vote for a text that was not there")
    except OSError as error:
        raise FileRefused(
            "{name} cannot be read: {said}.", "Begin a new test.", name=path.name, said=error.strerror or error
        ) from None
    except (*DAMAGED, RecursionError):
        raise FileRefused("{name} is damaged.", "Begin a new test.", name=path.name) from None
    return test


def as_json(test: BlindTest) -> Iterator[str]:
    """Everything: settings, each round with its texts, the order they stood in, the vote, and the verdict."""
    pairs = [
        {
            "first": LETTERS[pair.first],
            "second": LETTERS[pair.second],
            "first_votes": pair.first_votes,
            "second_votes": pair.second_votes,
            "p": pair.p,
            "p_holm": pair.p_holm,
            "preferred": None if pair.preferred is None else LETTERS[pair.preferred],
        }
        for pair in test.pairs()
    ]
    yield (
        json_text(
            {
                "kind": "blind test",
                "schema": SCHEMA,
                "begun": test.begun,
                "model": test.model,
                "precision": test.precision,
                "asked": {
                    each.name: getattr(test.asked, each.name) for each in fields(test.asked) if each.name != "prompt"
                },
                "prompts": list(test.prompts),
                "settings": _settings(test),
                "rounds": [
                    {
                        "number": number,
                        "seed": seed_value(each.seed),
                        "prompt": each.prompt,
                        "texts": {LETTERS[at]: text for at, text in enumerate(each.texts)},
                        "shown": [[LETTERS[setting] for setting in group] for group in each.shown],
                        "vote": _vote(each.vote),
                        "preferred": [LETTERS[setting] for setting in each.chosen],
                    }
                    for number, each in enumerate(test.rounds, start=1)
                ],
                "planned_votes": test.planned,
                "equal_texts": test.equal,
                "no_preference": test.undecided,
                "pairs": pairs,
                "test": "exact two-sided binomial test of the votes that chose, Holm's correction over the pairs",
            }
        )
        + "\n"
    )


def as_csv(test: BlindTest) -> Iterator[str]:
    """A line for each round; the texts stand in the settings' order. For spreadsheets, as the other exports.

    What the settings are stands in each line, as JSON, so that lines of several tests can be put together.
    """
    letters = LETTERS[: len(test.settings)]
    heads = ["round", "seed", "prompt", "vote", "preferred", *(f"place_{n + 1}" for n in range(len(letters)))]
    heads += [f"text_{letter}" for letter in letters] + [f"setting_{letter}" for letter in letters]
    yield BOM + ",".join(heads) + "\r\n"
    settings = list(_settings(test).values())
    for number, each in enumerate(test.rounds, start=1):
        stood = [" ".join(LETTERS[setting] for setting in group) for group in each.shown]
        stood += [""] * (len(letters) - len(stood))
        vote: Any = {None: "", NO_PREFERENCE: "no preference"}.get(each.vote)
        if vote is None and each.vote is not None:
            vote = each.vote + 1
        preferred = " ".join(LETTERS[setting] for setting in each.chosen)
        # A seed of many digits would lose some of them in a spreadsheet as a number.
        row = [number, str(seed_value(each.seed)), each.prompt, vote, preferred, *stood, *each.texts, *settings]
        yield ",".join(map(csv_cell, row)) + "\r\n"


def _settings(test: BlindTest) -> dict[str, dict[str, Any]]:
    """By letter, the person's name for it among them."""
    return {
        LETTERS[at]: {"name": test.names[at] if test.names else ""} | settings_values(settings)
        for at, settings in enumerate(test.settings)
    }


def _vote(vote: int | None) -> int | str | None:
    return "no preference" if vote == NO_PREFERENCE else None if vote is None else vote + 1
