from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tables import every_row

from cxrlab.core.errors import DataError
from cxrlab.evaluation.config import ValidateConfig
from cxrlab.evaluation.published_benchmarks import Relation, parse_ranking, read_radjudge
from cxrlab.evaluation.validate_metrics import run_validation

NAMES = {"C1": 1, "C2": 1, "C3": 1}


def case(**changes: Any) -> dict[str, Any]:
    given = {
        "category": "Words",
        "id": "1a",
        "ground_truth": "one two three four",
        "candidates": {"C1": {"text": "one two three four"}, "C2": {"text": "one two"}, "C3": {"text": "one two"}},
        "expected_ranking": "C1 > C2 = C3",
    }
    return {**given, **changes}


def written(root: Path, *cases: Any) -> Path:
    (root / "cases.json").write_text(json.dumps(cases))
    return root


@pytest.mark.parametrize(
    ("ranking", "expected"),
    [
        ("C1 > C2", [("C1", "C2", False)]),
        ("C1=C2", [("C1", "C2", True)]),
        ("C2 < C1", [("C1", "C2", False)]),
        (["C1 > C2", "C2 > C3"], [("C1", "C2", False), ("C2", "C3", False)]),
        ("C1 > C2, C2 = C3", [("C1", "C2", False), ("C2", "C3", True)]),
        ("C1 > C2 = C3", [("C1", "C2", False), ("C1", "C3", False), ("C2", "C3", True)]),
        ("C1 = C2 > C3", [("C1", "C2", True), ("C1", "C3", False), ("C2", "C3", False)]),
    ],
)
def test_a_ranking_in_every_form(ranking: Any, expected: list[tuple[str, str, bool]]) -> None:
    """A chain also says how its ends stand to each other."""
    found = parse_ranking(ranking, NAMES, "case")
    assert [(one.first, one.second, one.equal) for one in found] == expected


@every_row("ranking", ["C1", "", 3, [], [3], "C1 > C9", "C1 ? C2", "C1 > C2 < C3", None])
def test_what_is_no_ranking_is_refused(ranking: Any) -> None:
    with pytest.raises(DataError, match="case"):
        parse_ranking(ranking, NAMES, "case")


def test_a_relation_holds_beyond_the_tie_tolerance() -> None:
    more, same = Relation("a", "b", equal=False), Relation("a", "b", equal=True)
    assert more.holds({"a": 0.52, "b": 0.5}, 0.01) and not more.holds({"a": 0.505, "b": 0.5}, 0.01)
    assert same.holds({"a": 0.505, "b": 0.5}, 0.01) and not same.holds({"a": 0.52, "b": 0.5}, 0.01)
    assert not more.holds({"a": math.nan, "b": 0.5}, 0.01) and not same.holds({"a": math.nan, "b": math.nan}, 0.01)


def test_a_metric_passes_a_case_when_everything_holds(tmp_path: Path) -> None:
    """ROUGE-1 is 1, 2/3, 2/3 here. In the second case C2 should win and does not."""
    root = written(tmp_path, case(), case(id="2a", expected_ranking="C2 > C1"))
    found = run_validation(ValidateConfig("radjudge", root, metrics=("rouge1:google",)))
    assert found["metrics"]["rouge1:google"] == {"passed": 1, "of": 2, "cases": {"1a": True, "2a": False}}
    assert found["tie"] == 0.05 and found["categories"]["1a"] == "Words"
    loose = run_validation(ValidateConfig("radjudge", root, metrics=("rouge1:google",), tie=1.0))
    assert loose["metrics"]["rouge1:google"]["passed"] == 0  # with so wide a tolerance nothing is better than anything


def test_a_lower_is_better_metric_is_turned_round(tmp_path: Path) -> None:
    """Fewer errors are better: identity has none, an empty report at least as many."""
    candidates = {"C1": "Large right pneumothorax.", "C2": ""}
    root = written(
        tmp_path, case(ground_truth="Large right pneumothorax.", candidates=candidates, expected_ranking="C1 > C2")
    )
    found = run_validation(ValidateConfig("radjudge", root, metrics=("errors.total",)))
    assert found["metrics"]["errors.total"]["passed"] == 1


def test_context_is_read_for_each_candidate(tmp_path: Path) -> None:
    candidates = {
        "C1": {"text": "x", "context": {"age": "25", "indication": "Chest pain."}},
        "C2": {"text": "x", "context": {"patient_age": "072Y"}},
        "C3": {"text": "x"},
    }
    pairs = read_radjudge(written(tmp_path, case(candidates=candidates, context={"age": 3})))[0].pairs
    assert [pairs[name].context.age for name in candidates] == [25.0, 72.0, 3.0]
    assert pairs["C1"].context.indication == "Chest pain."


@pytest.mark.parametrize(
    ("cases", "said"),
    [
        (({},), "case 1 has no 'id'"),
        ((3,), "case 1 must be an object"),
        ((case(), case()), "two cases '1a'"),
        ((case(candidates={"C1": "x"}),), "two or more candidates"),
        ((case(candidates={"C1": {"txt": "x"}, "C2": "y"}),), "candidate C1 has no 'text'"),
        ((case(candidates={"C1": 3, "C2": "y"}),), "candidate C1 is 3"),
        ((case(candidates={"C1": {"text": "x", "context": 3}, "C2": "y"}),), "the context is 3"),
        ((case(ground_truth=7),), "'ground_truth' is 7"),
        ((), "must hold a list of cases"),
    ],
)
def test_a_case_that_cannot_be_understood_is_named(tmp_path: Path, cases: tuple[Any, ...], said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_radjudge(written(tmp_path, *cases))


@pytest.mark.real_data
def test_the_real_cases_are_understood(real_data: Path) -> None:
    assert all(case.relations and len(case.pairs) >= 2 for case in read_radjudge(real_data / "radjudge"))


@pytest.mark.real_data
def test_the_rules_rank_real_cases(real_data: Path) -> None:
    """The promise: at least nine of ten; a constant score passes the ties alone."""
    config = ValidateConfig("radjudge", real_data / "radjudge", metrics=("clinical:rules", "rougeL:google"))
    found = run_validation(config)["metrics"]
    assert found["clinical:rules"]["passed"] >= 9 > found["rougeL:google"]["passed"]
