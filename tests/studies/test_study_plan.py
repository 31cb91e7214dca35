"""The plan of a study: its runs times the seeds, the start in place of models that it makes, and nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest
from training_fixtures import FAST, phantoms, saved_llava

from cxrlab.core.plan import Plan
from cxrlab.studies.preference_study import PreferenceStudy, PreferenceStudyConfig
from cxrlab.studies.study_plan import plan_study

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("study")
    saved_llava(top / "start")
    phantoms(top / "corpus")
    return top


def plan(folder: Path, out: Path, **changes: object) -> Plan:
    optimisation = {"steps": FAST.steps, "batch_size": FAST.batch_size}
    settings = {
        "corpora": {"given": str(folder / "corpus")}, "data": "given",
        "start": {"start": f"hf:{folder / 'start'}", "lora_rank": 2, "optimisation": optimisation},
        "sample": {"n": 4, "answers": 2, "max_new_tokens": 6, "batch_size": 2},
        "train": {"validation": {"n": 0}, "measure": {"n": 2}},
        "variants": {"dpo": {"changes": "DPO."}, "ipo": {"changes": "IPO.", "train": {"loss": {"name": "ipo"}}}},
        "seeds": (1, 2, 3), "at_once": 2, "metrics": ("findings.f1",),
    }  # fmt: skip
    return plan_study(PreferenceStudy(PreferenceStudyConfig(**{**settings, **changes}), out))  # type: ignore[arg-type]


def test_runs_are_counted_over_seeds_and_the_start_stands_in(folder: Path, tmp_path: Path) -> None:
    found = plan(folder, tmp_path / "run")
    assert not list(tmp_path.iterdir())
    work = {one.name: one for one in found.work}
    assert work["start: training steps"].count == 3 * (FAST.steps or 0) and work["start: training steps"].seconds
    assert work["sample: studies with their candidates"].count == 3 * 4
    assert work["train/dpo"].count == work["train/ipo"].count == work["judge/dpo"].count == 3
    assert {"train/dpo", "train/ipo", "judge/dpo", "pair/dpo"} <= set(found.untimed)
    assert found.facts["runs"] == sum(1 for _ in range(3)) * 7
    notes = " ".join(found.left_out)
    assert "3 runs of train/ipo: needs seed1/pair/dpo" in notes and "stood in for sample" in notes


def test_a_corpus_that_the_study_draws_is_planned_and_its_readers_are_named(folder: Path, tmp_path: Path) -> None:
    drawn = {"drawn": {"phantom": {"n": 50, "size": 32, "workers": 1, "masks": False}}}
    found = plan(folder, tmp_path / "run", corpora=drawn, data="drawn")
    assert found.work[0].name == "corpus drawn: studies drawn" and found.work[0].count == 50 and found.work[0].seconds
    assert "3 runs of start: needs corpora/drawn" in " ".join(found.left_out) and not list(tmp_path.iterdir())
