"""The plan of a preference training: the steps, validations and reports of the real one, and nothing written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from preference_runs import changed, history, single_thread, tiny_preference_config

from cxrlab.core.jsonl import read_jsonl
from cxrlab.preference.alignment_plan import plan_alignment
from cxrlab.preference.config import LossSettings, Measure, PreferConfig, Validation
from cxrlab.preference.train import prefer

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    with single_thread():
        yield


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> PreferConfig:
    given = changed(tiny_preference_config(tmp_path_factory.mktemp("plan")), steps=5, batch_size=4)
    measure = Measure(
        split="test", n=3, metrics=("findings.f1",), drift=True, questions=False, control_studies=2, max_new_tokens=8,
        batch_size=2,
    )  # fmt: skip
    return replace(given, validation=Validation(n=5, every=2, max_new_tokens=8, batch_size=2), measure=measure)


def test_counts_are_those_of_the_training_and_nothing_is_written(config: PreferConfig, tmp_path: Path) -> None:
    before = sorted(config.data.parent.rglob("*"))
    plan = plan_alignment(config, tmp_path / "run")
    work = {one.name: one for one in plan.work}
    assert not list(tmp_path.iterdir()) and sorted(config.data.parent.rglob("*")) == before
    done, _ = prefer(config, tmp_path / "run")
    assert (work["training steps"].count, work["reference log-probabilities"].count) == (done.steps, done.rows)
    assert 2 <= work["training steps"].measured <= done.steps
    assert work["validations"].count == sum("evaluation" in line for line in history(tmp_path / "run")) == 4
    measured = tmp_path / "run" / "measured"
    reports = [sum(1 for _ in read_jsonl(measured / side / "predictions.jsonl")) for side in ("before", "after")]
    assert work["reports before, after and for the drift"].count == sum(reports) + reports[0] == 9
    assert plan.facts["trained_weights"] == done.trained_parameters and plan.facts["rows"] == done.rows
    assert plan.estimated_gb and plan.disk_gb and plan.seconds > 0 and not plan.untimed
    names = [one.name for one in plan_alignment(config, tmp_path / "run").work]
    assert names and all(name.startswith("reports") for name in names)


def test_a_loss_without_a_reference_computes_none(config: PreferConfig) -> None:
    without = replace(config, loss=LossSettings("orpo"), measure=replace(config.measure, n=0))
    plan = plan_alignment(replace(without, validation=Validation(n=0)))
    assert {one.name for one in plan.work} <= {"images into the cache", "training steps"}
    single = plan_alignment(replace(config, loss=LossSettings("kto"), measure=replace(config.measure, n=0)))
    assert "reference log-probabilities" in {one.name for one in single.work}
