"""The reader against its case files, published vectors, narrated reports and any text at all."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import every_row

from cxrlab.core.errors import DataError
from cxrlab.core.records import Finding, chexpert_labels
from cxrlab.core.vocabulary import CHEXPERT_14, OBSERVATIONS
from cxrlab.findings.narrator import narrate
from cxrlab.findings.reader import Reading, read
from cxrlab.findings.reading.phrases import load_matcher
from cxrlab.findings.reading.sentences import LONGEST, split_sentences
from cxrlab.findings.reading.tokens import tokenize
from cxrlab.findings.simulated_patients import draw_patient

FILES = sorted((Path(__file__).parent / "cases" / "reader").glob("*.json"))
CASES = [(path.stem, case) for path in FILES for case in json.loads(path.read_text("utf-8"))]
STATED = ("side", "location", "severity", "size_mm", "change", "tip", "tip_mm")


def fits(expected: dict[str, Any], finding: Finding, text: str) -> bool:
    """Whether a finding is the expected one: kind, presence, certainty, and what the case states."""
    plain = {"presence": "present", "certainty": "certain"} | expected
    same = all(getattr(finding, key) == plain[key] for key in ("observation", "presence", "certainty"))
    if not same or any(getattr(finding, key) != expected[key] for key in STATED if key in expected):
        return False
    assert finding.span is not None
    words, (start, end) = expected.get("words"), finding.span
    places = [at for at in range(len(text)) if words and text.startswith(words, at)]
    return words is None or any(at < end and start < at + len(words) for at in places)


def matched(expected: list[dict[str, Any]], reading: Reading) -> int:
    """The largest number of expected findings that can each have a read finding of their own."""
    owner: dict[int, int] = {}

    def place(index: int, tried: set[int]) -> bool:
        for other, finding in enumerate(reading):
            if other not in tried and fits(expected[index], finding, reading.text):
                tried.add(other)
                if other not in owner or place(owner[other], tried):
                    owner[other] = index
                    return True
        return False

    return sum(place(index, set()) for index in range(len(expected)))


@every_row(("theme", "case"), CASES, ids=[f"{theme}-{case['name']}" for theme, case in CASES])
def test_a_case_is_read_as_it_should_be(theme: str, case: dict[str, Any]) -> None:
    """Every expected finding is read, and nothing else unless the case is partial."""
    reading = read(case["text"])
    count = matched(case["expect"], reading)
    assert count == len(case["expect"]), f"{case['reason']} Read: {[f.to_json() for f in reading]}"
    assert case.get("partial") or len(reading) == count, f"{case['reason']} Read: {[f.to_json() for f in reading]}"
    if "chexpert" in case:
        assert chexpert_labels(reading.findings, complete=False) == case["chexpert"]
    for name in ("normal", "unread"):
        assert len(getattr(reading, name)) == case.get(name, len(getattr(reading, name)))


@every_row("text", [None, "", " ", "\n\n", "___", "XXXX", "...", "🙂🙂", "123", "a"])
def test_text_without_a_statement_gives_an_empty_reading(text: str | None) -> None:
    """Nothing is said, so nothing is read; the text is kept."""
    assert read(text) == Reading(text or "")


def test_what_is_no_text_is_nothing_or_refused() -> None:
    """A column of a data frame holds not-a-number where there is no report."""
    assert read(float("nan")) == Reading("")  # type: ignore[arg-type]
    for wrong in (5, b"effusion", ["effusion"], True):
        with pytest.raises(DataError, match="a report is text, not"):
            read(wrong)  # type: ignore[arg-type]


def test_a_reading_is_the_sequence_of_its_findings() -> None:
    """Length, index, slice and iteration speak of the findings."""
    reading = read("Small left effusion. No pneumothorax.")
    assert len(reading) == 2 and reading[0].observation == "pleural effusion"
    assert reading[1:] == (reading.findings[1],) and list(reading) == list(reading.findings)


def key(finding: Finding) -> tuple[str, str | None, str | None]:
    row = OBSERVATIONS[finding.observation]
    return finding.observation, finding.side if row.sided else None, finding.severity if row.graded else None


@pytest.mark.parametrize("lexicon", ["A", "B"])
def test_narrated_reports_are_read_back(lexicon: str) -> None:
    """Kind, side and degree of what is present, as multisets over 300 reports: F1 of at least 0.97."""
    hits = reported = found = 0
    number = reports = 0
    while reports < 300:
        for visit in draw_patient(41, f"p{number}").visits:
            narration = narrate(visit, 41, f"p{number}-{visit.number}", lexicon)
            truth = Counter(key(finding) for finding in narration.findings if finding.present)
            seen = Counter(key(finding) for finding in read(narration.report.findings) if finding.present)
            hits, reported, found = hits + (truth & seen).total(), reported + truth.total(), found + seen.total()
            reports += 1
        number += 1
    assert 2 * hits / (reported + found) >= 0.97


WORDS = st.sampled_from(sorted(load_matcher().spelling.known))
MARKS = st.sampled_from(
    [".", ",", ";", ":", "/", "?", "\n", "(", "-", "XXXX", "___", "5", "2.3", "cm", "8th", "58th", "T9", "🙂"]
)


@pytest.mark.parametrize("heading", ["Cardiopulmonary findings", "Radiographic findings", "Chest finding"])
def test_a_heading_that_is_one_phrase_is_no_sentence(heading: str) -> None:
    """The phrase ends where the heading does, so nothing stands before the heading's last word."""
    assert [finding.observation for finding in read(f"{heading}: effusion.")] == ["pleural effusion"]


@pytest.mark.parametrize("rib", ["58th", "13th", "0th"])
def test_a_rib_that_nobody_has_is_no_place(rib: str) -> None:
    (finding,) = read(f"Fracture of the left {rib} rib.")
    assert (finding.observation, finding.location) == ("rib fracture", None)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=200), st.lists(st.one_of(WORDS, MARKS), max_size=60).map(" ".join)))
def test_any_text_is_read_and_spans_lie_inside_it(text: str) -> None:
    """Nothing raises; each span holds at least one character of the text."""
    reading = read(text)
    assert reading.text == text
    for span in (*(finding.span for finding in reading), *reading.normal, *reading.unread):
        assert span is not None and 0 <= span[0] < span[1] <= len(text)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(WORDS, MARKS), max_size=40).map(" ".join))
def test_capitals_change_nothing(text: str) -> None:
    """Findings with their spans are the same in capitals and in small letters."""
    assert read(text.upper()).findings == read(text).findings == read(text.lower()).findings


@pytest.mark.parametrize(
    "piece", ["no effusion, ", "the heart is enlarged and ", "may or not ", "in the left ", "ribs 5, "]
)
def test_text_without_a_full_stop_is_read_in_pieces(piece: str) -> None:
    """Work per sentence is bounded, so that time grows with the length of the text and no faster."""
    matcher = load_matcher()
    tokens = tokenize(piece * 2000, matcher.spelling)
    assert max(len(one.phrases) for one in split_sentences(tokens, matcher.find(tokens))) <= LONGEST
    assert read(piece * 2000).text == piece * 2000


def test_the_span_leaves_out_a_change_far_before_the_name() -> None:
    """What is marked in the text is the finding and not half the sentence."""
    text = "Again, as on the film of yesterday, there is a small left effusion."
    (finding,) = read(text)
    assert finding.span is not None and text[slice(*finding.span)] == "small left effusion"


def test_sentence_order_moves_findings_and_changes_none() -> None:
    """Each sentence is read by itself where no pronoun leads back."""
    parts = ["The heart is mildly enlarged.", "Small left effusion.", "No pneumothorax.", "Lungs are clear."]
    one, two = read(" ".join(parts)), read(" ".join(reversed(parts)))
    assert Counter(map(key, one)) == Counter(map(key, two)) and len(one.normal) == len(two.normal) == 1


def test_spans_name_the_words() -> None:
    """The span covers the name with its own modifiers and not the next statement's."""
    text = "Small left pleural effusion and mild cardiomegaly."
    spans = [text[slice(*finding.span)] for finding in read(text) if finding.span]
    assert spans == ["Small left pleural effusion", "mild cardiomegaly"]


@pytest.mark.real_data
def test_published_label_vectors_are_exact(real_data: Path) -> None:
    """The four reports that the CheXpert labeler ships, all fourteen cells of each."""
    with (real_data / "chexpert_vectors" / "labeled_reports.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    for row in rows:
        text = row.get("Reports") or row["Report Impression"]
        cells = {name: int(float(row[name])) for name in CHEXPERT_14 if row.get(name)}
        assert chexpert_labels(read(text).findings, complete=False) == cells


@pytest.mark.real_data
def test_every_real_report_is_read(real_data: Path) -> None:
    """All Open-I reports without an error, and something in nearly each: fewer than 2 % say nothing to the reader."""
    with (real_data / "openi" / "indiana_reports.csv").open(newline="", encoding="utf-8") as file:
        texts = [f"{row['findings']} {row['impression']}".strip() for row in csv.DictReader(file)]
    texts = [text for text in texts if text]
    silent = sum(not reading.findings and not reading.normal for reading in map(read, texts))
    assert len(texts) > 3000 and silent / len(texts) < 0.02
