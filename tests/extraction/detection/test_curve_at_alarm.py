"""The copy that an attacker has when the alarm rings."""

from __future__ import annotations

from pathlib import Path

import pytest

from cxrlab.core.errors import DataError
from cxrlab.core.files import write_json
from cxrlab.extraction.detection.detect import quality_at_alarm


@pytest.fixture
def run(tmp_path: Path) -> Path:
    figures = {"findings.f1": {"value": 0.4, "low": 0.3, "high": 0.5, "n": 90}}
    write_json(tmp_path / "extraction.json", {"curve": {"1000": figures, "500": {"findings.f1": 0.2}}})
    return tmp_path


@pytest.mark.parametrize(("alarm", "budget", "value"), [(500, 500, 0.2), (999, 500, 0.2), (1400, 1000, 0.4)])
def test_the_last_copy_before_the_alarm_counts(run: Path, alarm: int, budget: int, value: float) -> None:
    found = quality_at_alarm(run, alarm, "findings.f1")
    assert (found["budget"], found["value"], found["reason"]) == (budget, value, None)


def test_figures_keep_their_interval(run: Path) -> None:
    found = quality_at_alarm(run, 1000, "findings.f1")
    assert (found["low"], found["high"], found["n"]) == (0.3, 0.5, 90)


@pytest.mark.parametrize(
    ("alarm", "metric", "reason"),
    [
        (None, "findings.f1", "there was no alarm"),
        (499, "findings.f1", "the first copy was trained after 500 queries"),
        (700, "rougeL", "has no rougeL"),
    ],
)
def test_what_is_unknown_says_why(run: Path, alarm: int | None, metric: str, reason: str) -> None:
    found = quality_at_alarm(run, alarm, metric)
    assert found["value"] is None and reason in found["reason"]


def test_runs_without_a_curve(tmp_path: Path) -> None:
    assert "no extraction.json" in quality_at_alarm(tmp_path, 5, "findings.f1")["reason"]
    write_json(tmp_path / "extraction.json", {"budget": 1500})
    assert "no curve" in quality_at_alarm(tmp_path, 5, "findings.f1")["reason"]
    write_json(tmp_path / "extraction.json", {"curve": {"many": {}}})
    with pytest.raises(DataError, match="'many'"):
        quality_at_alarm(tmp_path, 5, "findings.f1")
