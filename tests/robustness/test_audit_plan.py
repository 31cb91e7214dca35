"""The plan of an audit: counts of the real audit, and its time by a clock that the model itself moves."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import planted_targets as planted
import pytest
from torch import Tensor

from cxrlab.attacks.config import AttackSettings
from cxrlab.core.errors import RunError
from cxrlab.core.files import read_json, write_json
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.model_interfaces import Capabilities
from cxrlab.data.corpus import Corpus
from cxrlab.robustness import audit as audits
from cxrlab.robustness import audit_plan
from cxrlab.robustness.audit_plan import plan_audit
from cxrlab.robustness.config import RobustnessConfig

pytestmark = pytest.mark.slow


class Ticking(planted.PatternTarget):
    """A second per image of each forward pass."""

    now = 0.0

    def margin(self, images: Tensor) -> Tensor:
        Ticking.now += len(images)
        return super().margin(images)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return planted.pattern_corpus(tmp_path_factory.mktemp("leaning") / "corpus", count=20)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits, "load_audited_model", lambda key, name, labels, *_, **__: Ticking(key, name, labels))
    monkeypatch.setattr(audit_plan.time, "perf_counter", lambda: Ticking.now)


def settings(corpus: Corpus, **changes: Any) -> RobustnessConfig:
    plain: dict[str, Any] = {
        "model": "planted:a",
        "data": corpus.path,
        "attacks": ("fgsm", "pgd", "random", "noise"),
        "eps": ("4/255", "16/255"),
        "corruptions": ("blur",),
        "only_labels": (planted.NAME,),
        "batch_size": 10,
        "trials": 10,
        "triptychs": 0,
        "control_studies": 40,
        "attack": AttackSettings(steps=5, restarts=2, queries=12),
    }
    return RobustnessConfig(**{**plain, **changes})


@pytest.mark.parametrize(
    ("versus", "attacks"),
    [
        ((), ("fgsm", "pgd", "random", "noise")),
        pytest.param(("planted:b",), ("pgd", "noise"), marks=pytest.mark.full),
    ],
)
def test_counts_and_time_are_those_of_the_audit(
    corpus: Corpus, tmp_path: Path, versus: tuple[str, ...], attacks: tuple[str, ...]
) -> None:
    config = settings(corpus, versus=versus, attacks=attacks)
    plan = plan_audit(config, tmp_path / "run")
    assert not list(tmp_path.iterdir()), "a plan writes nothing"
    start = Ticking.now
    audits.audit(config, tmp_path / "run")
    lines = [line for _, line in read_jsonl(tmp_path / "run" / "answers.jsonl")]
    controls = sum(1 for _ in read_jsonl(tmp_path / "run" / "controls.jsonl"))
    work = {one.name: one for one in plan.work}
    counted = sum(one.count for one in plan.work if one.name != "control images")
    # Without a second model each answer is that of one image under one condition.
    assert counted == len({(line["condition"], line.get("crafted_on"), line["study"]) for line in lines})
    assert work["control images"].count * (1 + len(versus)) == controls
    assert plan.seconds == pytest.approx(Ticking.now - start, rel=0.03)
    assert not plan.untimed and plan.hardware is not None
    assert not plan_audit(config, tmp_path / "run").work, "a finished audit takes nothing"


def test_what_a_begun_audit_has_is_done(corpus: Corpus, tmp_path: Path) -> None:
    config = settings(corpus, attacks=("pgd",), corruptions=(), aims=("answers",))
    audits.audit(config, tmp_path / "run")
    run = tmp_path / "run"
    kept = (run / "answers.jsonl").read_text().splitlines(keepends=True)[: 10 + 5]  # clean, then pgd at 4/255
    (run / "answers.jsonl").write_text("".join(kept))
    write_json(run / "status.json", {**read_json(run / "status.json"), "state": "interrupted"})
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    plan = plan_audit(config, run)
    assert {one.name: (one.done, one.left) for one in plan.work if one.done} == {
        "clean images": (10, 10),
        "pgd images": (5, 35),
    }
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before
    with pytest.raises(RunError, match="eps"):
        plan_audit(settings(corpus, attacks=("pgd",), corruptions=(), aims=("answers",), eps=("1/255",)), run)
    shutil.rmtree(run)


def test_requests_to_a_model_behind_an_address_are_counted_and_not_sent(corpus: Corpus) -> None:
    class Remote(Ticking):
        gradients = scores = False
        aims = ("report",)

        class model:
            capabilities = Capabilities(black_box=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audits, "load_audited_model", lambda key, name, labels, *_, **__: Remote(key, name, labels))
        start = Ticking.now
        plan = plan_audit(settings(corpus, attacks=("random-report", "noise"), aims=("report",), corruptions=()))
    assert Ticking.now == start and plan.untimed
    # Each image as it is and in 8 bits; the attack asks 12 times for each of 20 images and 2 radii.
    counts = {"clean images": 40, "random-report images": 40 * (12 + 2), "noise images": 80, "control images": 60}
    assert {one.name: one.count for one in plan.work} == counts
    assert plan.requests == sum(counts.values())
