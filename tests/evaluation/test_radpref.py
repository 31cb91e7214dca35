from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cxrlab.core.errors import DataError
from cxrlab.evaluation.config import ValidateConfig
from cxrlab.evaluation.published_benchmarks import compare_raters, predict_ratings, read_radpref
from cxrlab.evaluation.validate_metrics import run_validation

CASES = [
    {
        "id": f"s{number}",
        "ground_truth_report": "the lungs are clear and the heart is normal",
        "C1_report": "the lungs are clear and the heart is normal",
        "C2_report": " ".join("the lungs are clear and the heart is normal".split()[: 1 + number]),
        "PatientAge": age,
        "Indication": "Cough",
    }
    for number, age in enumerate(("072Y", "25", None, "019M"))
]


def written(root: Path, cases: Any = CASES, folder: str = ".", **raters: Any) -> Path:
    """The folder as RadPref has it; each rater gives C1 a 5 and C2 1, 2, 3, 4 by study unless set otherwise."""
    (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "preference_data.json").write_text(json.dumps(cases))
    own = {f"s{n}": {"C1": {"rating": 5}, "C2": {"rating": n + 1}, "new_finding_indices": {}} for n in range(4)}
    for name in ("user_1", "user_2"):
        given = raters.get(name, {"user_id": name, "annotations": own})
        (root / folder / f"{name}.json").write_text(json.dumps(given))
    return root


@pytest.mark.parametrize("folder", [".", "radiologist_annotations"])
def test_both_layouts_are_read(tmp_path: Path, folder: str) -> None:
    data = read_radpref(written(tmp_path, folder=folder))
    assert [pair.id for pair in data.pairs][:3] == ["s0:C1", "s0:C2", "s1:C1"]
    assert data.raters == ("user_1", "user_2") and data.ratings.shape == (8, 2)
    assert data.mean.tolist() == [5, 1, 5, 2, 5, 3, 5, 4]
    ages = [pair.context.age for pair in data.pairs[::2]]
    assert ages == [72.0, 25.0, None, pytest.approx(19 / 12)] and data.pairs[0].context.indication == "Cough"


def test_a_rating_that_was_not_given_is_unknown(tmp_path: Path) -> None:
    """One rater skipped a candidate, both skipped another: the first keeps one rating, the second stays out."""
    half = {
        "annotations": {
            "s0": {"C1": {"rating": 3}, "C2": {}},
            "s1": {"C1": {"rating": None}},
            "s2": {"C1": {"rating": 1}},
        }
    }
    other = {"annotations": {"s0": {"C1": {"rating": 5}, "C2": {"rating": 2}}}}
    data = read_radpref(written(tmp_path, user_1=half, user_2=other))
    assert [pair.id for pair in data.pairs] == ["s0:C1", "s0:C2", "s2:C1"] and data.unrated == 5
    assert data.mean.tolist() == [4, 2, 1]


def test_a_metric_that_orders_as_the_raters_do_has_tau_one(tmp_path: Path) -> None:
    """More of the reference's words, a higher rating: ROUGE-L orders all eight as both raters do."""
    config = ValidateConfig("radpref", written(tmp_path), metrics=("rougeL:google", "bleu4:coco"), trials=50)
    found = run_validation(config)
    best = found["metrics"]["rougeL:google"]
    assert best["tau"] == pytest.approx(1.0) and best["n"] == 8
    assert best["preference_accuracy"] == 1.0 and best["preferences"] == 4
    assert found["metrics"]["bleu4:coco"]["above rougeL:google"]["difference"] <= 0
    assert found["ceiling"]["leave_one_out_tau"] == pytest.approx([1.0, 1.0])
    rows = found["raters"]["by_rater"]
    assert found["raters"]["judge"] in found["metrics"] and rows["user_1"]["rater_difference"] == 0.0
    assert (found["n"], found["studies"], found["unrated"]) == (8, 4, 0)


def test_one_rater_has_no_ceiling(tmp_path: Path) -> None:
    root = written(tmp_path)
    (root / "user_2.json").unlink()
    found = run_validation(ValidateConfig("radpref", root, metrics=("bleu1:coco",), trials=10))
    assert found["ceiling"] == {"leave_one_out_tau": []} and found["raters"] == {}


def test_the_line_is_fitted_without_the_study_in_question() -> None:
    """Others lie on y = 2 x; the odd study's own rating of 9 does not pull its prediction of 2 · 3 = 6."""
    values, ratings = np.array([1.0, 2.0, 3.0, math.nan]), np.array([2.0, 4.0, 9.0, 1.0])
    judged = predict_ratings(values, ratings, ["a", "b", "c", "d"])
    assert judged[2] == pytest.approx(6.0) and math.isnan(judged[3])
    flat = predict_ratings(np.array([1.0, 1.0, 1.0]), np.array([1.0, 2.0, 6.0]), ["a", "b", "c"])
    assert flat.tolist() == pytest.approx([4.0, 3.5, 1.5])  # no slope: the mean of the others


@pytest.mark.parametrize(
    ("cases", "rater", "said"),
    [
        ({"a": 1}, None, "must hold a list"),
        ([3], None, "entry 1 must be an object"),
        ([{"id": "s0"}], None, "no 'ground_truth_report'"),
        ([{"id": "s0", "ground_truth_report": "x"}], None, "no candidate such as 'C1_report'"),
        ([{"id": "s0", "ground_truth_report": "x", "C1_report": 4}], None, "'C1_report' is 4"),
        (CASES, {"nothing": 1}, "no object 'annotations'"),
        (CASES, {"annotations": {"s0": {"C1": {"rating": "good"}}}}, "must be a number"),
        ([{**CASES[0], "id": "elsewhere"}], None, "do not belong together"),
        ([CASES[0], CASES[1], CASES[0]], None, "the study 's0' twice"),
    ],
)
def test_another_layout_is_refused_with_its_place(tmp_path: Path, cases: Any, rater: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_radpref(written(tmp_path, cases, **({"user_1": rater} if rater else {})))


def test_a_folder_without_raters_or_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        read_radpref(tmp_path)
    (tmp_path / "preference_data.json").write_text(json.dumps(CASES))
    with pytest.raises(DataError, match=r"no user_\*.json"):
        read_radpref(tmp_path)


@pytest.mark.real_data
def test_the_raters_of_the_real_benchmark_agree_as_published(real_data: Path) -> None:
    """The ceiling is near 0.8 and ROUGE-L far below it, whatever the half of the studies."""
    found = run_validation(ValidateConfig("radpref", real_data / "radpref", metrics=("rougeL:google",), trials=100))
    assert found["n"] == 2 * found["studies"] == 100
    assert all(0.7 < tau < 0.9 for tau in found["ceiling"]["leave_one_out_tau"])
    assert 0.3 < found["metrics"]["rougeL:google"]["tau"] < 0.6


@pytest.mark.real_data
def test_the_rules_agree_with_radiologists_better_than_shared_words(real_data: Path) -> None:
    """The promise: τ-b of at least 0.70, and the paired interval against ROUGE-L above zero."""
    names = ("clinical:rules", "rougeL:google")
    found = run_validation(ValidateConfig("radpref", real_data / "radpref", metrics=names, trials=500))
    best = found["metrics"]["clinical:rules"]
    assert best["tau"] >= 0.70 and best["above rougeL:google"]["low"] > 0


def test_a_judge_that_orders_nothing_keeps_its_table(tmp_path: Path) -> None:
    """It says the same of every pair, so that no metric is the best, but raters can still be set beside it."""
    data = read_radpref(written(tmp_path))
    same, unordered = np.full(8, 3.0), {"tau": float("nan")}
    found = compare_raters(data, {"grade:m": same}, {"grade:m": unordered}, ["grade:m"])
    assert set(found) == {"judges"} and found["judges"]["grade:m"]["by_rater"]["user_1"]["n"] == 8
