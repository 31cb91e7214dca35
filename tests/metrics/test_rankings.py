"""`clinical:rules` on candidates whose order a radiologist would not dispute; the reason stands in each case.

The cases were written down with their expected order before they were scored.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cxrlab.evaluation.published_benchmarks import parse_ranking
from cxrlab.metrics.finding_scores import RuleScores
from cxrlab.metrics.report_pairs import Batch, Context, Pair

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "cases" / "rankings.json").read_text("utf-8"))
# Values this near count as equal, as in `metrics validate`.
TIE = 0.01


def scores(case: dict[str, Any]) -> dict[str, float]:
    pairs = []
    for name, item in case["candidates"].items():
        reported = item.get("context", {})
        age = float(reported["age"]) if "age" in reported else None
        pairs.append(Pair(name, case["ground_truth"], item["text"], context=Context(age, reported.get("indication"))))
    tallies = {tally.metric.name: tally for tally in RuleScores().tallies(Batch(pairs))}
    return dict(zip(case["candidates"], tallies["clinical:rules"].by_pair.tolist(), strict=True))


def _marked(case: dict[str, Any]) -> Any:
    fault = case.get("known_fault")
    return pytest.param(case, id=case["id"], marks=[pytest.mark.xfail(reason=fault, strict=True)] if fault else [])


@pytest.mark.parametrize("case", [_marked(case) for case in CASES])
def test_the_better_report_scores_higher(case: dict[str, Any]) -> None:
    found = scores(case)
    for relation in parse_ranking(case["expected_ranking"], case["candidates"], case["id"]):
        assert relation.holds(found, TIE), (case["reason"], found)


def test_every_category_has_cases_and_every_case_a_reason() -> None:
    """Ten kinds of judgement, five cases or more each, under ids of their own."""
    kinds = [case["category"] for case in CASES]
    assert len(set(kinds)) == 10 and min(kinds.count(kind) for kind in kinds) >= 5
    assert len({case["id"] for case in CASES}) == len(CASES) and all(case["reason"] for case in CASES)
