from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from scored import batch, scored
from tallies import mean

from cxrlab.evaluation.compare import ComparisonResult, compare
from cxrlab.metrics.statistics.intervals import METHOD

IDS = [f"s{k}" for k in range(40)]
VALUES = [k / 40 for k in range(40)]


def shifted(by: float) -> list[float]:
    """Higher by 0.9 of this in one patient, by 1.1 in the next."""
    return [value + by * (0.9 + 0.2 * (place // 2 % 2)) for place, value in enumerate(VALUES)]


@pytest.fixture
def pair(tmp_path: Path) -> list[Path]:
    """The second run is 0.2 higher in both metrics, which is good in one and bad in the other."""
    pairs = batch(IDS, [f"p{k // 2}" for k in range(40)])
    return [
        scored(tmp_path / name, pairs, [mean(shifted(by)), mean(shifted(by), "errors", "lower")])
        for name, by in (("a", 0.0), ("b", 0.2))
    ]


@pytest.fixture
def result(pair: list[Path]) -> ComparisonResult:
    return compare(pair, noninferior={"mean": 0.1, "errors": 0.1}, minimum_patients=20)


def test_the_table_names_runs_metrics_and_signs(result: ComparisonResult) -> None:
    text = result.text()
    assert "b against a" in text and "mean ↑" in text and "errors ↓" in text
    assert "40 studies of 20 patients" in text and "Holm over 2 tests" in text
    assert "+0.200 [+0.19" in text and METHOD in text
    assert "40/0/0" in text and "0/0/40" in text
    assert "gate PASS for b: mean: non-inferior" in text and "gate FAIL for b: errors: NOT shown" in text


def test_the_json_is_complete_and_strict(result: ComparisonResult) -> None:
    reported = result.to_json()
    assert json.loads(json.dumps(reported, allow_nan=False)) == reported
    assert (reported["baseline"], reported["n"], reported["patients"], reported["ok"]) == ("a", 40, 20, False)
    against = reported["metrics"]["errors"]["against"]["b"]
    assert against["difference"] == pytest.approx(0.2) and against["verdict"] == "worse"
    assert set(against) >= {"a", "b", "low", "high", "p", "p_holm", "by_study", "mcnemar", "exact", "smallest_p"}
    assert reported["metrics"]["errors"]["values"]["a"]["rank"] == 1
    assert [gate["shown"] for gate in reported["gates"]] == [True, False]
    assert [gate["verdict"] for gate in reported["gates"]] == ["non-inferior", "not shown"]
    assert reported["interval"] == METHOD


def test_what_does_not_differ_has_a_verdict(tmp_path: Path) -> None:
    """Equal counts and missing values are verdicts; one patient has a value and no interval."""
    nan = math.nan
    tallies = [[mean([x, 1.0]), mean([1, 2], "same"), mean([nan] * 2, "none")] for x in (0.5, 0.75)]
    runs = [
        scored(tmp_path / name, batch(["x", "y"], ["p", "p"]), reported)
        for name, reported in zip("ab", tallies, strict=True)
    ]
    text = compare(runs).text()
    verdicts = {line.split()[0]: line.split()[-2] for line in text.splitlines()[3:] if "/" in line}
    assert verdicts["same"] == "equal" and verdicts["none"] == "undefined"
    row = next(line for line in text.splitlines() if line.startswith("mean"))
    assert row.split() == ["mean", "↑", "0.750", "0.875", "+0.125", "1.0000", "too", "few", "1/1/0"]


def test_long_names_are_not_broken(tmp_path: Path) -> None:
    name = "chexpert.Enlarged Cardiomediastinum.f1:uncertain-positive"
    runs = [scored(tmp_path / str(by), batch(IDS), [mean(shifted(by), name)]) for by in (0.0, 0.1)]
    assert f"{name} ↑" in compare(runs).text()


def test_three_runs_are_ranked(pair: list[Path], tmp_path: Path) -> None:
    """Folders of one name are distinguished by their path, and brackets in a name are not markup."""
    (tmp_path / "[red]").mkdir()
    third = scored(tmp_path / "[red]" / "b", batch(IDS, [f"p{k // 2}" for k in range(40)]), [mean(shifted(0.4))])
    result = compare([*pair, third])
    assert [value.rank for value in result.metrics[0].values.values()] == [3, 2, 1]
    assert result.runs == ("a", str(pair[1]), str(third))
    assert "values and ranks" in result.text() and "[red]" in result.text()


def test_a_folder_is_named_by_its_last_part_also_when_given_as_a_dot(
    pair: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pair[0])
    assert compare([Path("."), pair[1]]).runs == ("a", "b")
