"""The section parser against its case files, and on any text at all."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import every_row

from cxrlab.core.records import SECTIONS, Report
from cxrlab.data.sections import parse

FILES = sorted((Path(__file__).parent / "cases").glob("*.json"))
CASES = [case for path in FILES for case in json.loads(path.read_text("utf-8"))]


@every_row("case", CASES, ids=lambda case: case["name"])
def test_a_layout_gives_its_sections(case: dict[str, Any]) -> None:
    """Every section as written by hand, and none besides; also what stands beside the five, where the case says."""
    parsed = parse(case["text"])
    assert {name: text for name, text in parsed.report.to_json().items() if text is not None} == case["expect"]
    assert parsed.how == case.get("how", "headers")
    assert parsed.merged == case.get("merged", False)
    for name, text in case.get("other", {}).items():
        assert parsed.section_text(name) == text


def test_the_cases_are_named_and_reasoned() -> None:
    """Names are unique, each has a reason, and what is expected is a section's text."""
    assert [name for name, times in Counter(case["name"] for case in CASES).items() if times > 1] == []
    assert all(case["reason"] and set(case["expect"]) <= set(SECTIONS) for case in CASES)
    assert len(CASES) >= 60


def test_offsets_point_into_the_text_as_it_was_given() -> None:
    """Carriage returns, tabs and tags before a section shift its offsets in the text, and they are not removed."""
    text = "<p>\r\n\tFINDINGS:\u00a0Clear\r\nlungs.</p><p>IMPRESSION: Normal.</p>"
    parsed = parse(text)
    assert [text[a:b] for a, b in parsed.spans["findings"]] == ["Clear\r\nlungs."]
    assert [text[a:b] for a, b in parsed.spans["impression"]] == ["Normal."]
    assert parsed.report == Report(findings="Clear lungs.", impression="Normal.")


def test_each_stretch_of_a_section_has_its_own_offsets() -> None:
    """Two findings sections are two spans in the order of the text."""
    text = "FINDINGS: One.\nCOMPARISON: None.\nFINDINGS: Two."
    assert parse(text).spans == {"findings": ((10, 14), (43, 47)), "comparison": ((27, 32),)}


@pytest.mark.parametrize("nothing", [None, math.nan, "", " \n\t "])
def test_no_text_has_no_sections(nothing: str | float | None) -> None:
    """An empty cell of a table comes as None or not-a-number."""
    parsed = parse(nothing)
    assert parsed.report == Report() and parsed.how == "nothing" and not parsed.spans


def test_what_is_no_text_is_refused() -> None:
    """Bytes would be parsed as nothing, silently."""
    with pytest.raises(TypeError, match="a report is text, not bytes"):
        parse(b"FINDINGS: Clear.")  # type: ignore[arg-type]


PIECES = st.sampled_from(
    "FINDINGS:|Findings:|findings:|FINDINGS|IMPRESSION:|Impression:|IMPRESSION -|COMPARISON: None.|Comparison:|HISTORY:"
    "|ADDENDUM:|WET READ:|FINAL REPORT|FINDINGS AND IMPRESSION:|LUNGS:|CHEST, TWO VIEWS:|TECHNIQUE:|RECOMMENDATION(S):"
    "|Electronically signed by|____________|SUMMARY:|EXAM:|SOMETHING:|opacity|opacity.|opacity seen|10:42|___|XXXX|1.|("
    "|)|INDICATION:|History:|[FINDINGS]|Dr A. Person|A. Person, MD|#1|Heart: normal|\\n|FINDINGS/IMPRESSION:"
    "|**|<b>|</b>|<br>|&amp;|\n|\n\n|\n \n|\r\n| |  |\t|\u00a0|:|;|-|#".split("|")
)
SHUFFLED = st.lists(PIECES, max_size=40).map(" ".join) | st.lists(PIECES, max_size=40).map("".join)


@settings(max_examples=400, deadline=None)
@given(st.text() | SHUFFLED)
def test_any_text_is_parsed_and_its_stretches_are_in_order(text: str) -> None:
    """Stretches of all sections together are filled, inside the text and never overlap; sections are their text."""
    parsed = parse(text)
    spans = sorted(span for found in (parsed.spans, parsed.other) for spans in found.values() for span in spans)
    assert all(0 <= start < end <= len(text) and text[start:end].strip() for start, end in spans)
    assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:], strict=False))
    assert all(tuple(sorted(own)) == own for own in parsed.spans.values())
    assert {name for name, words in parsed.report.to_json().items() if words is not None} == set(parsed.spans)


@settings(max_examples=300, deadline=None)
@given(SHUFFLED)
def test_no_word_of_the_text_is_lost(text: str) -> None:
    """A word that is in no header's name is in some stretch, of a section or of what stands beside them."""
    parsed = parse(text)
    spans = [span for found in (parsed.spans, parsed.other) for spans in found.values() for span in spans]
    assert sum(text[start:end].count("opacity") for start, end in spans) == text.count("opacity")


PLAIN_ENDS = re.compile(r"\r\n|[\r\n]")
# Bold, tags, line ends spelled out and odd blanks are rewritten, and have tests of their own.
UNPLAIN = re.compile(r"\*\*|<|\\|[\t\u00a0\ufeff：]")


def _check_joining(text: str) -> None:
    """The stated rule, told otherwise: each line of a stretch, freed of its ends, stands whole in the section's text,
    in order, parted by one blank or one line end.
    """
    parsed = parse(text)
    for name, spans in (*parsed.spans.items(), *parsed.other.items()):
        rest = parsed.section_text(name)
        assert rest is not None
        for line in (line.strip() for start, end in spans for line in PLAIN_ENDS.split(text[start:end])):
            assert rest.startswith(line), name
            rest = rest[len(line) :].removeprefix(" " if rest[len(line) :][:1] == " " else "\n") if line else rest
        assert rest == ""


@every_row("case", [case for case in CASES if not UNPLAIN.search(case["text"])], ids=lambda c: c["name"])
def test_the_offsets_give_the_sections_back(case: dict[str, Any]) -> None:
    """On every layout without markup: what stands between the offsets is the section."""
    _check_joining(case["text"])


@settings(max_examples=300, deadline=None)
@given(SHUFFLED.filter(lambda text: not UNPLAIN.search(text)))
def test_offsets_give_the_sections_of_any_text_back(text: str) -> None:
    """The same on texts made at random."""
    _check_joining(text)


@every_row("piece", ["a:", "FINDINGS: ", "ADDENDUM:\n", "WET READ: x\nIMPRESSION: y\n", " ", "_", "<b ", "("])
def test_hostile_texts_end_and_lose_nothing(piece: str) -> None:
    """Long runs of what looks like a header: a rule that reads them in every way would not end.

    How time grows with length is measured by `benchmarks/sections.py`.
    """
    text = piece * (48_000 // len(piece))
    parsed = parse(text)
    spans = [span for several in (*parsed.spans.values(), *parsed.other.values()) for span in several]
    assert all(0 <= start <= end <= len(text) for start, end in spans) and parsed.text == text
