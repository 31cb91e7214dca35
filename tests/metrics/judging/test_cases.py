"""Named answers of judges, each with what must be read from it and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tables import every_row

from cxrlab.core.vocabulary import ErrorKind
from cxrlab.metrics.judging.answer_text import Answer
from cxrlab.metrics.judging.count_formats import Parsed
from cxrlab.metrics.judging.grades_and_choices import parse_choice, parse_grade
from cxrlab.metrics.judging.judges import PublishedGreen, green_value
from cxrlab.metrics.judging.parse_counts import parse_counts

CASES = Path(__file__).parent / "cases"
MARK = "0a1b2c3d4e5f"
OF_COUNTS = ("chexprompt", "green", "objects_and_tables", "unreadable", "injections", "adversarial")


def cases(*names: str) -> list[dict[str, Any]]:
    found = []
    for name in names:
        for case in json.loads((CASES / f"{name}.json").read_text("utf-8")):
            found.append({**case, "id": f"{name}: {case['name']}"})
    return found


def answer(case: dict[str, Any]) -> Answer:
    text = "\n".join(case["answer"]).replace("{mark}", MARK).replace("{MARK}", MARK.upper())
    return Answer(text, MARK, tuple(case.get("reports", ())), case.get("cut", False))


def parsed_counts(case: dict[str, Any]) -> Parsed:
    green = case.get("ask_matched", False)
    return parse_counts(answer(case), matched=green)


@every_row("case", cases(*OF_COUNTS), ids=lambda case: case["id"])
def test_counts_are_read_as_written_down(case: dict[str, Any]) -> None:
    parsed = parsed_counts(case)
    for weight in ("significant", "insignificant"):
        expected = case.get(weight, [None] * 6)
        assert [parsed.counts.get((weight, kind)) for kind in ErrorKind] == expected, (weight, parsed)
    assert parsed.matched == case.get("matched"), parsed
    assert parsed.status == case["status"], parsed
    assert case.get("reason", "") in (parsed.reason or ""), parsed.reason
    assert (parsed.reason is None) == (case["status"] == "parsed")


@every_row("case", [case for case in cases(*OF_COUNTS) if "score" in case], ids=lambda case: case["id"])
def test_greens_formula_gives_the_score_of_the_counts(case: dict[str, Any]) -> None:
    """The five published completions give 0, 1/6, 1/3, 1/2 and 1/4; an answer with a gap gives none."""
    expected = case["score"]
    if isinstance(expected, list):
        expected = expected[0] / expected[1]
    assert green_value(parsed_counts(case)) == pytest.approx(expected)


PUBLISHED = {
    "two normal reports": 0.0,
    "kinds with errors only": 2 / 3,
    "rising counts of four kinds that begin at 0": 2 / 8,
}  # where the authors' program gives another score


def test_greens_published_conventions_differ_where_they_should(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing matched is 0 and a kind that is left out is 0; what cannot be read has no score there either."""
    monkeypatch.setattr(PublishedGreen, "__init__", lambda self: None)
    judge = PublishedGreen()
    for case in cases("green"):
        ours = green_value(parsed_counts(case))
        theirs = green_value(judge.parse(answer(case)), judge.nothing_matched)
        assert theirs == pytest.approx(PUBLISHED.get(case["name"], ours)), case["name"]


@every_row("case", cases("grades"), ids=lambda case: case["id"])
def test_grades_are_read_as_written_down(case: dict[str, Any]) -> None:
    parsed = parse_grade(answer(case))
    assert parsed.value == case.get("value"), parsed
    assert parsed.status == case["status"] and case.get("reason", "") in (parsed.reason or ""), parsed


@every_row("case", cases("choices"), ids=lambda case: case["id"])
def test_choices_are_read_as_written_down(case: dict[str, Any]) -> None:
    parsed = parse_choice(answer(case))
    assert parsed.value == case.get("value"), parsed
    assert parsed.status == case["status"] and case.get("reason", "") in (parsed.reason or ""), parsed


def test_there_are_enough_cases_and_each_says_why() -> None:
    counts, others = cases(*OF_COUNTS), cases("grades", "choices")
    assert len(counts) >= 300 and len(others) >= 110
    assert len({case["id"] for case in (*counts, *others)}) == len(counts) + len(others)
    assert all(len(case["why"]) > 3 for case in (*counts, *others))
