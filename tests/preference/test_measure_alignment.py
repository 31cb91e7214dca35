"""What alignment gained and cost: the model before and after on the same studies."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training_fixtures import phantoms

from cxrlab.core.files import read_json
from cxrlab.core.jsonl import read_jsonl
from cxrlab.preference.config import Measure
from cxrlab.preference.measure_alignment import calibration_error, measure_alignment

pytestmark = pytest.mark.slow

SMALL = Measure(
    n=6,
    max_new_tokens=160,
    batch_size=6,
    control_studies=0,
    encoder="builtin:encoder",
    metrics=("findings.f1", "rougeL:google"),
)


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("cost")
    names = {"before": "builtin:aligned", "after": "builtin:reporter"}
    corpus = phantoms(folder / "corpus", n=80)
    found = measure_alignment(names["before"], names["after"], corpus, SMALL, folder / "measured", 7)
    return {"found": found, "out": folder / "measured", "corpus": corpus, **names}


def test_a_difference_is_after_minus_before(room: dict[str, Any]) -> None:
    found = room["found"]
    assert found == read_json(room["out"] / "preference.json")
    assert {"findings.f1", "rougeL:google", "errors.total"} <= found["difference"].keys()
    for name, gap in found["difference"].items():
        before, after = found["before"][name]["value"], found["after"][name]["value"]
        if before is not None and after is not None:
            assert gap["difference"] == pytest.approx(after - before, abs=1e-12)
            assert gap["low"] <= gap["difference"] <= gap["high"]


def test_words_are_those_of_the_reports(room: dict[str, Any]) -> None:
    for side in ("before", "after"):
        lines = [record for _, record in read_jsonl(room["out"] / side / "predictions.jsonl")]
        mean = np.mean([len(str(record["report"]).split()) for record in lines])
        assert room["found"]["length"]["words"][side] == pytest.approx(mean)
    assert room["found"]["n"] == SMALL.n


def test_drift_is_the_mean_gap_of_log_probabilities_of_drawn_reports(room: dict[str, Any]) -> None:
    lines = [record for _, record in read_jsonl(room["out"] / "drift.jsonl")]
    gaps = [record["after"] - record["before"] for record in lines]
    measured = room["found"]["drift"]
    assert len(lines) == measured["n"] >= 3 and measured["n"] + measured["cut"] == SMALL.n
    assert measured["kl_report"] == pytest.approx(np.mean(gaps))
    assert measured["kl_report"] > 0  # another model: what it draws is likelier to itself


def test_a_report_that_was_cut_is_not_weighed(room: dict[str, Any], tmp_path: Path) -> None:
    short = dataclasses.replace(SMALL, max_new_tokens=5, n=3, questions=False, encoder=None)
    found = measure_alignment(room["before"], room["after"], room["corpus"], short, tmp_path / "short", 7)
    assert "drift" not in found  # none of them ended within five tokens


def test_a_model_has_not_drifted_from_itself(room: dict[str, Any], tmp_path: Path) -> None:
    few = dataclasses.replace(SMALL, n=3)
    found = measure_alignment(room["after"], room["after"], room["corpus"], few, tmp_path / "same", 7)
    assert found["drift"]["kl_report"] == 0.0
    assert all(gap["verdict"] in ("equal", "undefined") for gap in found["difference"].values())
    assert found["questions"]["accuracy"]["difference"] == 0.0


def test_questions_are_kept_with_both_probabilities_and_the_truth(room: dict[str, Any]) -> None:
    lines = [record for _, record in read_jsonl(room["out"] / "questions.jsonl")]
    measured = room["found"]["questions"]
    assert measured["n"] == len(lines) > SMALL.n
    right = np.mean([(record["after"] > 0.5) == record["truth"] for record in lines])
    assert measured["accuracy"]["after"] == pytest.approx(right)
    assert {record["truth"] for record in lines} == {True, False}


def test_a_finished_measurement_is_left_as_it_is(room: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cxrlab.preference.measure_alignment.generate", lambda *_: pytest.fail("written again"))
    again = measure_alignment(room["before"], room["after"], room["corpus"], SMALL, room["out"], 7)
    assert again == room["found"]


def test_calibration_error_by_hand() -> None:
    # Two bins: five answers at 0.9 of which four are yes, five at 0.1 of which none is.
    probability = np.array([0.9] * 5 + [0.1] * 5)
    truth = np.array([True] * 4 + [False] * 6)
    assert calibration_error(probability, truth) == pytest.approx((abs(4.5 - 4) + abs(0.5 - 0)) / 10)
    assert calibration_error(np.array([1.0, 0.0]), np.array([True, False])) == 0.0


def test_reports_look_for_their_images(room: dict[str, Any]) -> None:
    measured = room["found"]["retrieval"]
    assert measured["gallery"] == SMALL.n and measured["encoder"] == "builtin:encoder"
    for side in ("before", "after"):
        hits = [measured[f"recall@{k}"][side] for k in (1, 5, 10)]
        assert hits == sorted(hits) and hits[-1] == 1.0  # ten may be looked at, and there are six
