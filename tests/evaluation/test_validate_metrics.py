from __future__ import annotations

import json
from pathlib import Path

import pytest

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.tables import as_text
from cxrlab.evaluation.config import ValidateConfig
from cxrlab.evaluation.validate_metrics import BENCHMARKS, run_validation, validation_parts


@pytest.fixture(scope="module")
def phantom_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("validation") / "run"
    run_validation(ValidateConfig("phantom", n=20, metrics=("clinical:rules", "rougeL:google"), trials=20), out)
    return out


def test_phantom_needs_no_files_and_gives_tau_and_sensitivity(phantom_run: Path) -> None:
    found = json.loads((phantom_run / "validation.json").read_text())
    assert found["benchmark"] == "phantom" and set(found["metrics"]) == {"clinical:rules", "rougeL:google"}
    assert {"tau", "low", "high", "tau_significant", "n"} <= set(found["metrics"]["rougeL:google"])
    assert found["sensitivity"]["rows"]
    text = as_text(validation_parts(found))
    assert "clinical:rules" in text and "sensitivity" in text and "significant errors" in text


def test_a_finished_validation_is_left_as_it_is(phantom_run: Path) -> None:
    before = (phantom_run / "validation.json").stat().st_mtime_ns
    config = ValidateConfig("phantom", n=20, metrics=("clinical:rules", "rougeL:google"), trials=20)
    assert run_validation(config, phantom_run)["benchmark"] == "phantom"
    assert (phantom_run / "validation.json").stat().st_mtime_ns == before


def test_a_benchmark_that_cannot_be_read_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        run_validation(ValidateConfig("radjudge", tmp_path / "nowhere"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_settings_are_checked() -> None:
    assert set(BENCHMARKS) == {"radpref", "radjudge", "rexval", "phantom"}
    for changes, said in (
        ({"benchmark": "radpref"}, "--root is missing; name the folder with the files of radpref"),
        ({"benchmark": "phantom", "n": 1}, "n=1"),
        ({"benchmark": "phantom", "trials": 0}, "trials=0"),
        ({"benchmark": "phantom", "tie": -1.0}, "tie=-1.0"),
    ):
        with pytest.raises(ConfigError, match=said):
            ValidateConfig(**changes)  # type: ignore[arg-type]


def test_the_text_puts_the_best_first_and_what_has_no_order_last() -> None:
    rows = {
        "errors.omission_finding.significant": {"tau": 0.95, "low": 0.9, "high": 1.0, "preference_accuracy": 1.0},
        "low": {"tau": 0.1, "low": 0.0, "high": 0.2, "preference_accuracy": 0.5},
        "none": {"tau": None, "low": None, "high": None, "preference_accuracy": None},
        "high": {"tau": 0.9, "low": 0.8, "high": 1.0, "preference_accuracy": 1.0},
    }
    raters = {"judge": "high", "by_rater": {"user_1": {"rater_difference": 0.5, "judge_difference": 0.7, "p": 0.0001}}}
    found = {"benchmark": "radpref", "metrics": rows, "ceiling": {"leave_one_out_tau": [0.75]}, "raters": raters}
    lines = as_text(validation_parts(found)).splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["high", "low", "none"]
    assert "0.750" in lines[4] and "user_1: 0.500" in lines[5] and "p < 0.001" in lines[5]
    one, both = {"x": True, "y": False}, {"x": True, "y": True}
    scored = {"a": {"passed": 1, "of": 2, "cases": one}, "b": {"passed": 2, "of": 2, "cases": both}}
    ranked = {"benchmark": "radjudge", "tie": 0.01, "metrics": scored}
    lines = as_text(validation_parts(ranked)).splitlines()
    assert lines[1].startswith("b") and lines[2].split()[-1] == "y" and "0.01" in lines[3]
