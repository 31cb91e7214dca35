from __future__ import annotations

import json
import math
from dataclasses import replace
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
from scored import batch, scored
from tallies import card, f1_of, mean

from cxrlab.cli.evaluation import compare as compare_command
from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.core.randomness import generator
from cxrlab.evaluation.compare import compare, rank_values
from cxrlab.metrics.base import Tally, mean_of
from cxrlab.metrics.statistics.paired_tests import MINIMUM_PATIENTS

N = 40
IDS = [f"s{k:03d}" for k in range(N)]
PATIENTS = [f"p{k // 2:03d}" for k in range(N)]


def values(name: str, shift: float = 0.0) -> np.ndarray:
    """The same studies are hard for every system; each adds its own noise."""
    return generator(1, "hard").random(N) + 0.1 * generator(1, name).random(N) + shift


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A baseline, and a run that is 0.2 better in `mean` and as much higher in `errors`, where lower is better."""
    pairs = batch(IDS, PATIENTS)
    a, b = values("a"), values("b", 0.2)
    first = scored(tmp_path / "a", pairs, [mean(a), mean(a, "errors", "lower")])
    return first, scored(tmp_path / "b", pairs, [mean(b), mean(b, "errors", "lower")])


def test_better_and_worse_follow_the_direction_of_the_metric(pair: tuple[Path, Path]) -> None:
    result = compare(pair)
    assert (result.runs, result.n, result.patients, result.tests) == (("a", "b"), 40, 20, 2)
    good, bad = result.metrics
    assert (good.against[0].verdict, bad.against[0].verdict) == ("better", "worse")
    assert good.against[0].difference.difference == pytest.approx((values("b", 0.2) - values("a")).mean())
    assert good.values["b"].rank == 1 and bad.values["b"].rank == 2
    assert good.values["a"].low < good.values["a"].value < good.values["a"].high
    assert good.against[0].by_study is not None and good.against[0].by_study.win == 40
    assert bad.against[0].by_study is not None and bad.against[0].by_study.lose == 40


def test_holm_counts_every_test(pair: tuple[Path, Path], tmp_path: Path) -> None:
    """Two metrics and two other runs are four tests; asking for one metric makes it two."""
    third = scored(tmp_path / "c", batch(IDS, PATIENTS), [mean(values("c")), mean(values("c"), "errors", "lower")])
    result = compare([*pair, third])
    assert result.tests == 4
    smallest = min(item.difference.p for one in result.metrics for item in one.against)
    assert min(item.p_holm for one in result.metrics for item in one.against) == pytest.approx(4 * smallest)
    assert compare([*pair, third], metrics=["me*"]).tests == 2


def test_a_run_against_itself(pair: tuple[Path, Path]) -> None:
    """No difference, p of 1, all ties; the two labels differ. The interval is the exact one of 20 patients alike."""
    result = compare([pair[0], pair[0]])
    item = result.metrics[0].against[0]
    assert (item.difference.difference, item.difference.p) == (0, 1)
    assert item.difference.low == pytest.approx(0.025 ** (1 / 20) - 1)
    assert item.by_study is not None and item.by_study.tie == 40
    assert len(set(result.runs)) == 2
    assert item.verdict == "equal" and result.tests == 0 and math.isnan(item.p_holm)


def test_the_order_of_the_studies_does_not_matter(pair: tuple[Path, Path], tmp_path: Path) -> None:
    """The second run written in reverse order is paired by id."""
    shared = f1_of(generator(2).integers(0, 3, (N, 4)))
    a = scored(tmp_path / "a2", batch(IDS, PATIENTS), [mean(values("a")), shared, replace(shared, metric=card("g"))])
    b_values, rows = values("b", 0.2), generator(3).integers(0, 3, (N, 4))
    b = f1_of(rows)
    straight = scored(tmp_path / "s", batch(IDS, PATIENTS), [mean(b_values), b, replace(b, metric=card("g"))])
    turned = f1_of(rows[::-1])
    back = scored(
        tmp_path / "r",
        batch(IDS[::-1], PATIENTS[::-1]),
        [mean(b_values[::-1]), turned, replace(turned, metric=card("g"))],
    )
    for one, two in zip(compare([a, straight]).metrics, compare([a, back]).metrics, strict=True):
        assert one.against[0].by_study == two.against[0].by_study
        assert one.against[0].difference.p == two.against[0].difference.p
        assert one.against[0].difference.low == pytest.approx(two.against[0].difference.low)


def test_the_seed_decides(pair: tuple[Path, Path]) -> None:
    assert compare(pair, seed=3).to_json() == compare(pair, seed=3).to_json()
    assert compare(pair, seed=3).to_json() != compare(pair, seed=4).to_json()


@pytest.mark.parametrize(
    ("metric", "margin", "ok"),
    [("mean", 0.0, True), ("errors", 0.1, False), ("errors", 0.3, True)],
)
def test_the_gate(pair: tuple[Path, Path], metric: str, margin: float, ok: bool) -> None:
    """b is 0.2 better in one and 0.2 worse in the other: a margin of 0.1 fails, of 0.3 passes."""
    result = compare(pair, noninferior={metric: margin}, minimum_patients=20)
    assert result.ok is ok
    assert f"gate {'PASS' if ok else 'FAIL'} for b: {metric}" in result.text()


def test_a_gate_of_fewer_patients_than_the_minimum_is_not_established(pair: tuple[Path, Path]) -> None:
    """Twenty patients: enough where 20 are asked for, too few for the default of 30."""
    result = compare(pair, noninferior={"mean": 0.1})
    assert not result.ok and result.gates[0].verdict.verdict == "not established"
    assert "gate NOT ESTABLISHED for b: mean" in result.text() and "--minimum-patients" in result.text()
    assert (
        result.to_json()["gates"][0] | {"verdict": "not established", "patients": 20, "shown": False}
        == (result.to_json()["gates"][0])
    )
    assert MINIMUM_PATIENTS == 30 == signature(compare_command).parameters["minimum_patients"].default
    with pytest.raises(ConfigError, match="minimum_patients=1"):
        compare(pair, noninferior={"mean": 0.1}, minimum_patients=1)


def test_every_gate_must_pass(pair: tuple[Path, Path]) -> None:
    result = compare(pair, noninferior={"mean": 0.0, "errors": 0.1}, minimum_patients=20)
    assert [gate.verdict.established for gate in result.gates] == [True, False] and not result.ok


def test_without_a_gate_all_is_well(pair: tuple[Path, Path]) -> None:
    assert compare(pair).ok


def test_a_share_of_studies_gets_mcnemar(tmp_path: Path) -> None:
    """Free of errors: only the baseline on study 0, only the other on 1 to 5. A share of errors counts zeros."""
    a, b = np.array([1, 0, 0, 0, 0, 0, 1, 1]), np.array([0, 1, 1, 1, 1, 1, 1, 1])
    ids = IDS[:8]
    tallies = [[mean(x, "free"), mean(1 - x, "wrong", "lower"), mean(x * 0.5, "half")] for x in (a, b)]
    result = compare(
        [scored(tmp_path / name, batch(ids), reported) for name, reported in zip("ab", tallies, strict=True)]
    )
    free, wrong, half = (one.against[0].mcnemar for one in result.metrics)
    assert free is not None and (free.only_a, free.only_b, free.p) == (1, 5, pytest.approx(14 / 64))
    assert wrong == free and half is None


def test_a_metric_without_values_by_study_has_no_wins(tmp_path: Path) -> None:
    tally = Tally(card("corpus", by_pair=False), np.ones((2, 2)), np.ones(2, dtype=bool), mean_of)
    runs = [scored(tmp_path / name, batch(["x", "y"]), [tally]) for name in "ab"]
    assert compare(runs).metrics[0].against[0].by_study is None


def test_undefined_studies_and_metrics(tmp_path: Path) -> None:
    """A study without a value on one side is neither won nor lost; a metric without any has no verdict."""
    nan = math.nan
    first = scored(tmp_path / "a", batch(list("wxyz")), [mean([nan, 1, 0, 1]), mean([nan] * 4, "none")])
    second = scored(tmp_path / "b", batch(list("wxyz")), [mean([1, nan, 1, 1]), mean([nan] * 4, "none")])
    result = compare([first, second], noninferior={"none": 0.1})
    known, none = result.metrics
    assert known.against[0].by_study is not None
    assert (known.against[0].by_study.win, known.against[0].by_study.tie, known.against[0].by_study.lose) == (1, 1, 0)
    assert known.values["a"].undefined == 1
    assert none.against[0].verdict == "undefined" and none.values["a"].rank is None
    assert result.tests == 1 and not result.ok, "what cannot be judged does not pass a gate"
    json.dumps(result.to_json(), allow_nan=False)


@pytest.mark.parametrize("count", [0, 1])
def test_one_run_is_no_comparison(pair: tuple[Path, Path], count: int) -> None:
    with pytest.raises(ConfigError, match="at least two"):
        compare(pair[:count])


def test_bad_margins_and_folders_are_refused(pair: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="margin -1"):
        compare(pair, noninferior={"mean": -1})
    with pytest.raises(DataError, match="holds no tallies.json"):
        compare([pair[0], tmp_path / "nowhere"])
    with pytest.raises(ConfigError, match="trials=0"):
        compare(pair, trials=0)


def test_the_result_is_written_once(pair: tuple[Path, Path], tmp_path: Path) -> None:
    """The same comparison again leaves the file; another one in the same folder is refused."""
    out = tmp_path / "out"
    result = compare(pair, noninferior={"mean": 0.1}, out=out, minimum_patients=20)
    reported = json.loads((out / "comparison.json").read_text())
    assert reported == json.loads(json.dumps(result.to_json()))
    assert reported["metrics"]["mean"]["against"]["b"]["verdict"] == "better"
    assert reported["gates"][0]["shown"] is True and reported["ok"] is True
    before = (out / "comparison.json").stat().st_mtime_ns
    compare(pair, noninferior={"mean": 0.1}, out=out, minimum_patients=20)
    assert (out / "comparison.json").stat().st_mtime_ns == before
    with pytest.raises(RunError, match="other settings"):
        compare(pair, noninferior={"mean": 0.2}, out=out)


def test_ranks_share_ties_and_skip_the_unknown() -> None:
    assert rank_values([0.3, 0.5, 0.1 + 0.2, math.nan], "higher") == [2, 1, 2, None]
    assert rank_values([3.0, 1.0, 2.0], "lower") == [3, 1, 2]
