"""The report of a comparison: what it says is so, and no text in it is more than text."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from PySide6.QtGui import QTextDocument

from engine.export import ExportRun, as_json_lines, lettered, runs_of
from engine.export_report import Picture, as_html, as_markdown
from engine.export_told import UNKNOWN, figures_table, partings, prompts_of, report_title, settings_table
from engine.replay import Recorder, read_replay
from engine.settings import SamplingSettings
from tests.engine.export_runs import run_with, written_run
from tests.widgets.events_factory import end, start, tokens

WARM, COLD = SamplingSettings(temperature=1.2, min_p=0.05, seed=7), SamplingSettings(temperature=0.0, seed=7)
HOSTILE = [
    "<script>alert(1)</script>",
    "</div></section><img src=x onerror=alert(1)>",
    "```\n# not a heading\n[a](http://x.invalid)",
    "````js\n~~~",
    "| a | b |\n|---|---|",
    "&lt;b&gt;",
    "\u202egnp.exe",
    "a\0b\x1b[31m",
    "\ud83d",
    '"><svg/onload=1>',
]


def lane(number: int, texts: list[str], settings: SamplingSettings, ids: list[int], name: str = "") -> ExportRun:
    made = [replace(t, token_id=i, lane=number) for t, i in zip(tokens(texts), ids, strict=True)]
    begun = replace(start(3, number), lanes=2, settings=settings, name=name)
    return ExportRun(begun, tuple(made), end(made, run_id=3, lane=number), header={"raw": False, "model": "Tiny"})


@pytest.fixture
def two():
    one = lane(0, ["The", " river", " bends", "."], COLD, [1, 2, 3, 4])
    other = lane(1, ["The", " river", " sleeps", "!"], WARM, [1, 2, 9, 8], name="warm")
    return [one, other]


class Page(HTMLParser):
    """The text of each element with class "text", all tags, all addresses."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.texts: list[str] = []
        self.marks: list[tuple[str, str]] = []
        self._depth = 0
        self._marked = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        found = dict(attrs)
        assert not any(name.startswith("on") for name in found)
        self.addresses += [found[name] for name in ("src", "href") if name in found]
        if self._depth or found.get("class") == "text":
            self._depth += 1
            if self._depth == 1:
                self.texts.append("")
        if tag == "mark":
            self.marks.append((found["data-mark"], ""))
            self._marked = True

    def handle_endtag(self, tag):
        self._depth = max(0, self._depth - 1)
        self._marked = self._marked and tag != "mark"

    def handle_data(self, data):
        if self._depth:
            self.texts[-1] += data
        if self._marked:
            self.marks[-1] = (self.marks[-1][0], self.marks[-1][1] + data)


def test_the_first_parting_is_told_with_draws_and_odds_of_both(two):
    first, second = partings(two)
    assert (first.step, first.sentence) == (None, "The reference: the others are compared with it.")
    assert second.step == 2
    assert "token 3" in second.sentence
    assert "“ bends”" in second.sentence
    assert "“ sleeps”" in second.sentence
    for run in two:
        assert f"{100 * 2.718281828459045 ** run.tokens[2].logprob:.1f} %" in second.sentence


def test_the_others_are_compared_with_the_chosen_reference(two):
    third = lane(2, ["The", " sea", ".", "!"], COLD, [1, 7, 4, 8])
    chosen = [two[0], replace(two[1], reference=True), third]
    first, second, last = partings(chosen)
    assert first.sentence.startswith("Parts from warm (lane B) at token 3: “ sleeps”")
    assert second.sentence == "The reference: the others are compared with it."
    assert last.sentence.startswith("Parts from warm (lane B) at token 2")
    for text in ("".join(as_html(chosen, [])), "".join(as_markdown(chosen, []))):
        assert re.search(r"compared with(</dt><dd>|: )warm \(lane B\)", text)
    page = Page("".join(as_html(chosen, [])))
    assert page.marks == [("A", " bends"), ("C", " river"), ("A", " sleeps"), ("C", " sea")]


def test_runs_that_stand_side_by_side_have_a_letter_each_and_keep_that_of_the_page(two):
    other = replace(two[0], start=replace(two[0].start, run_id=5, lanes=1))
    runs = [two[1], other, replace(two[0], start=replace(two[0].start, run_id=6))]
    assert [row[0] for row in settings_table(lettered(runs))[1:]] == [
        "B: warm (run 3, lane B)", "C: run 5", "A: run 6, lane A"
    ]  # fmt: skip
    moved = [replace(two[0], beside="C"), replace(two[1], beside="A")]
    assert [run.letter for run in lettered(moved)] == ["C", "A"]
    assert [row[0] for row in settings_table(moved)[1:]] == ["lane C", "warm (lane A)"]
    assert [row["lane"] for row in map(json.loads, as_json_lines(moved))] == ["C"] * 4 + ["A"] * 4


def test_equal_texts_are_not_said_to_part(two):
    one = two[0]
    shorter = replace(one, tokens=one.tokens[:2])
    assert partings([one, one])[1].sentence == "The same tokens as lane A."
    assert partings([one, shorter])[1].step is None


def test_equal_settings_that_part_in_half_precision_are_explained(two):
    one, other = two
    other = replace(other, start=replace(other.start, settings=one.start.settings))
    half = [replace(run, header={**run.header, "precision": "bfloat16"}) for run in (one, other)]
    assert "rounding" in partings(half)[1].sentence
    assert "rounding" not in partings([one, other])[1].sentence


def test_the_settings_table_shows_what_is_on_and_stars_what_differs(two):
    head, one, other = settings_table(two)
    assert head == ["", "temperature *", "min-p *", "seed"]
    assert one == ["lane A", "0 (greedy)", "off", "7"]
    assert other == ["warm (lane B)", "1.2", "0.05", "7"]


def test_the_figures_are_those_of_the_run(two):
    head, one, _ = figures_table(two)
    row = dict(zip(head, one, strict=True))
    assert row["tokens"] == "4"
    assert row["ended by"] == "length"
    surprise = sum(token.surprise_nats for token in two[0].tokens) / 4
    assert row["mean surprise (nats)"] == f"{surprise:.2f}"
    assert row["distinct 3-grams"] == "100.0 %"
    assert row["repetition"] == "0.0 %"


def test_one_token_alone_has_no_speed(two):
    run = two[0]
    assert run.end is not None
    alone = replace(run, tokens=run.tokens[:1], end=replace(run.end, new_tokens=1, decode_tokens_per_s=0.0))
    head, row = figures_table([alone])
    assert row[head.index("tokens\u00a0/\u00a0s")] == UNKNOWN


def test_a_run_whose_recording_breaks_off_is_not_said_to_have_failed(tmp_path):
    made = tokens(["The", " river"])
    recorder = Recorder(tmp_path / "run.jsonl", {"raw": False})
    for event in (start(), *made):
        recorder.take(event)
    recorder.close()
    replay = read_replay(recorder.path)
    copy = Recorder(tmp_path / "copy.jsonl", replay.header)
    for event in replay.events:
        copy.take(event)
    copy.close()
    for path in (recorder.path, copy.path):
        again = read_replay(path)
        (run,) = runs_of(again.events, again.header)
        assert figures_table([run])[1][1:3] == ["2", "end of the recording"]
        assert "ends before its run did" in "".join(as_html([run], []))
    failed = replace(run, end=end(made, "error", sentence="The memory is full."))
    assert figures_table([failed])[1][2] == "error"
    assert "ends before its run did" not in "".join(as_markdown([failed], []))


def test_a_shared_prompt_stands_once_and_others_by_lane(two):
    assert len(prompts_of(two)) == 1
    one, other = two
    other = replace(other, start=replace(other.start, prompt="Otherwise?"))
    assert [text for _, text in prompts_of([one, other])] == [one.start.prompt, "Otherwise?"]


def test_the_page_holds_the_texts_and_marks_where_they_part(two):
    page = Page("".join(as_html(two, [])))
    assert page.texts == [two[0].start.prompt, two[0].text, two[1].text]
    assert page.marks == [("B", " bends"), ("B", " sleeps")]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_part_of_the_page(text):
    plain = Page("".join(as_html([written_run(["a"])] * 2, [])))
    run = written_run([text], prompt=text, system=text, name=text, stop=(text,))
    run = replace(run, header={"raw": False, "model": text, "model_path": text, "versions": {text: text}})
    page = Page("".join(as_html([run, run], [])))
    structure = ["html", "script", "img", "svg", "a"]
    assert [page.tags.count(tag) for tag in structure] == [plain.tags.count(tag) for tag in structure]
    assert page.addresses == []
    assert "".join(as_html([run], [])).encode("utf-8")


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_part_of_the_markdown(text, qapp):
    run = written_run([text], prompt=text, name=text)
    written = "".join(as_markdown([run, run], []))
    written.encode("utf-8")
    document = QTextDocument()
    document.setMarkdown(written)  # md4c, an other's reader
    assert not re.search(r'href="|<img', document.toHtml())
    headings = [
        block.text()
        for block in (document.findBlockByNumber(i) for i in range(document.blockCount()))
        if block.blockFormat().headingLevel() == 2
    ]
    assert headings == ["Settings", "Figures", "Texts"]


def test_markdown_parts_the_text_where_the_lanes_part(two, qapp):
    document = QTextDocument()
    document.setMarkdown("".join(as_markdown(two, [])))
    lines = document.toPlainText().split("\n")
    assert "The river bends." in lines
    at = lines.index("The river")
    assert lines[at + 1 : at + 3] == ["from here on otherwise:", " sleeps!"]


def test_pictures_are_inside(two):
    png, svg = Picture("Memory", "png", b"\x89PNG"), Picture("Speed", "svg", b"<svg/>")
    page = Page("".join(as_html(two, [png, svg])))
    assert [base64.b64decode(address.split(",")[1]) for address in page.addresses] == [b"\x89PNG", b"<svg/>"]
    assert page.addresses[1].startswith("data:image/svg+xml;base64,")
    assert f"![Memory]({png.address})" in "".join(as_markdown(two, [png]))


def test_a_page_fetches_nothing_and_runs_nothing(two):
    written = "".join(as_html(two, []))
    assert "default-src 'none'" in written
    assert "http://" not in written
    assert "https://" not in written


def test_a_run_alone_needs_no_star_and_no_parting():
    run = run_with(WARM)
    written = "".join(as_markdown([run], []))
    assert "star" not in written
    assert report_title([run]) == "Run 1 of tiny"


def test_a_title_keeps_the_lanes_letter(two):
    assert report_title(two[:1]) == "Run 3, lane A of Tiny"


def test_words_of_our_own_can_be_said_otherwise(two):
    written = "".join(as_html(two, [], say=lambda words: f"«{words}»", language="zh"))
    assert "«Settings»" in written
    assert '<html lang="zh">' in written


def test_a_report_of_nothing_is_refused():
    with pytest.raises(ValueError, match="needs a run"):
        next(as_html([], []))


def test_a_fork_without_its_parent_is_compared_by_ids_and_says_what_it_lacks(two):
    one, other = two
    fork = replace(other, start=replace(other.start, written=(1, 2)), tokens=other.tokens[2:])
    assert partings([one, fork])[1].step == 2
    assert "“ sleeps”" in partings([one, fork])[1].sentence
    page = Page("".join(as_html([one, fork], [])))
    assert page.marks == [("B", " bends"), ("B", " sleeps")]
    astray = replace(fork, start=replace(fork.start, written=(1, 9)))
    assert "not in this recording" in partings([one, astray])[1].sentence
