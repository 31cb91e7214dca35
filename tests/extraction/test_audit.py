"""An audit from the first question to the measured copy, with tiny models: what it leaves, and that it stays."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from corpora import content, toy_corpus
from prediction_runs import effusions
from training_fixtures import saved_llava

from cxrlab.core.errors import RunError
from cxrlab.core.files import read_json
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.records import Report
from cxrlab.data.corpus import load_corpus
from cxrlab.extraction.audit import extract
from cxrlab.extraction.config import Alignment, ExtractConfig, FidelityConfig, Fitting, PaperDecoding, Policy
from cxrlab.extraction.extraction_plan import plan_extraction
from cxrlab.extraction.query_ledger import read_ledger
from cxrlab.serving.config import ServeConfig
from cxrlab.serving.guard import Refusal
from cxrlab.serving.http_server import Server
from cxrlab.serving.monitoring import Journal
from cxrlab.serving.service import open_service
from cxrlab.training.align_finetune import finetune
from cxrlab.training.config import FinetuneConfig, Optimisation

pytestmark = pytest.mark.slow

WORDS = ("Moderate cardiomegaly.", "Small left pleural effusion.")
SHORT = PaperDecoding(strategy="greedy", max_new_tokens=8)


@dataclass(frozen=True)
class World:
    """A victim that has learnt two sentences, and whatever audits of it share."""

    base: ExtractConfig
    folder: Path

    def audit(self, name: str, **changes: Any) -> tuple[dict[str, Any], Path]:
        return extract(replace(self.base, **changes), self.folder / name), self.folder / name


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("audit")
    said = {
        k: {"split": "train", "findings": (), "masks": {}, "labels": {}, "sections": Report(findings=WORDS[k % 2])}
        for k in range(8)
    }
    lessons = toy_corpus(folder / "lessons", 8, said).path
    start = saved_llava(folder / "start")
    optimisation = Optimisation(learning_rate=1e-2, schedule="constant", steps=40, batch_size=8, max_length=400, seed=1)
    settings = FinetuneConfig(
        lessons,
        start=f"hf:{start}",
        indication=False,
        lora_rank=0,
        train_vision_encoder=True,
        optimisation=optimisation,
    )
    finetune(settings, folder / "taught")
    base = ExtractConfig(
        victim=f"hf:{folder / 'taught' / 'checkpoint'}",
        data=effusions(folder / "data", 4, normal=(1,)),
        surrogate=f"hf:{start}",
        method="knockoff",
        pool="noise",
        budget=4,
        size=24,
        seed=3,
        batch_size=4,
        map_sentences=0,
        victim_run=folder / "victim",
        fitting=Fitting(learning_rate=1e-2, steps=1, batch_size=4, lora_rank=0, max_length=400),
        measure=FidelityConfig(metrics=("findings.f1", "rougeL:coco"), swaps=50),
        victim_decoding=SHORT,
        surrogate_decoding=SHORT,
    )
    return World(base, folder)


@pytest.fixture(scope="module")
def knockoff(world: World) -> tuple[dict[str, Any], Path]:
    return world.audit("knockoff", at=(2,))


@pytest.fixture(scope="module")
def ada_steal(world: World) -> tuple[dict[str, Any], Path]:
    return world.audit("ada-steal", method="ada-steal", budget=6, map_sentences=10)


def check_contract(found: Mapping[str, Any], method: str, budget: int, spent: int) -> None:
    assert (found["method"], found["budget"], found["spent"]) == (method, budget, spent)
    for key in ("victim", "surrogate", "fidelity", "ratio"):
        assert set(found[key]) == {"findings.f1", "rougeL:coco"}, key
        for measured in found[key].values():
            assert {"value", "low", "high", "n"} <= set(measured)
    assert {"distinct_finding_sets", "abnormal_share"} <= set(found["transcript"])
    assert found["threat"].startswith("Threat model") and found["n"] == 4
    assert found["cost"]["amount"] == 0.0


def test_knockoff_from_question_to_copy(knockoff: tuple[dict[str, Any], Path]) -> None:
    found, folder = knockoff
    check_contract(found, "knockoff", 4, 4)
    assert found == read_json(folder / "extraction.json")
    queries = read_ledger(folder / "ledger.sqlite")
    assert [(one.number, one.round) for one in queries] == [(k, 0) for k in range(4)]
    assert {one.report for one in queries} <= set(WORDS)  # the victim speaks
    assert found["transcript"]["abnormal_share"] == 1.0
    assert len(list((folder / "pictures").glob("*.png"))) == 4
    assert found["untouched"] is None and found["options"]["learning_rate"] == 1e-2
    assert found["fidelity"]["findings.f1"]["n"] == 4
    assert (folder / found["predictions"] / "predictions.jsonl").is_file()


def test_the_plan_has_the_counts_of_the_audit_and_writes_nothing(
    world: World, ada_steal: tuple[dict[str, Any], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, folder = ada_steal
    monkeypatch.chdir(tmp_path)
    before = sorted(world.folder.rglob("*"))
    config = replace(world.base, method="ada-steal", budget=6, map_sentences=10)
    plan = plan_extraction(config, tmp_path / "run")
    assert not list(tmp_path.iterdir()) and sorted(world.folder.rglob("*")) == before
    work = {one.name: one for one in plan.work}
    assert work["queries"].count == found["spent"] and work["reports of the victim"].done == 4  # in a shared folder
    fits = [read_json(file)["steps"] for file in folder.rglob("fit/summary.json")]
    assert (plan.facts["fits"], work["training steps of 3 fits"].count) == (len(fits), sum(fits)) == (3, 3)
    assert work["moved images"].count == work["reports of surrogates between rounds"].count == 4
    assert work["reports of copies"].count == 4 and not plan.untimed
    assert not plan_extraction(config, folder).work, "a finished audit takes nothing"
    again = plan_extraction(replace(world.base, method="none"))
    assert [one.count for one in again.work if one.name == "queries"] == [0] and again.facts["fits"] == 0


def test_every_point_of_the_curve_is_a_copy_of_its_own(knockoff: tuple[dict[str, Any], Path]) -> None:
    found, folder = knockoff
    assert list(found["curve"]) == list(found["fidelity_curve"]) == ["2", "4"]
    assert found["curve"]["4"] == found["surrogate"] and found["fidelity_curve"]["4"] == found["fidelity"]
    for budget in ("2", "4"):
        studies = (folder / "copies" / budget / "transcript" / "studies.jsonl").read_text().splitlines()
        assert len(studies) == int(budget)


def test_ada_steal_in_three_rounds(ada_steal: tuple[dict[str, Any], Path]) -> None:
    found, folder = ada_steal
    check_contract(found, "ada-steal", 6, 6)
    assert sorted(path.name for path in (folder / "rounds").iterdir()) == ["0", "1", "2"]
    assert [one.round for one in read_ledger(folder / "ledger.sqlite")] == [0, 0, 1, 1, 2, 2]
    assert list(found["transcript"]["rounds"]) == ["0", "1", "2"]
    assert (found["options"]["direction"], found["options"]["oracle"]) == ("towards", "rules")
    rows = read_json(folder / "map.json")["rows"]
    assert sum(row["count"] for row in rows if row["source"] == "clean") == 2
    assert sum(row["count"] for row in rows if row["source"] == "perturbed") == 4
    pairs = read_json(folder / "examples.json")
    assert len(pairs) == 4
    for pair in pairs:
        assert pair["wanted"] and pair["before"]["sha256"] != pair["after"]["sha256"]
        assert (folder / "pictures" / f"{pair['after']['sha256']}.png").is_file()


def test_a_guide_moves_pictures_from_the_first_round_on(world: World) -> None:
    """The encoder of the phantoms' encoder as guide: no surrogate is trained between rounds, and the page names it."""
    guided = Alignment(guide="builtin:encoder", eps="0.1")
    found, folder = world.audit("guided", method="ada-steal", budget=4, rounds=2, alignment=guided)
    check_contract(found, "ada-steal", 4, 4)
    keys = [one.key for one in read_ledger(folder / "ledger.sqlite")]
    assert [key.rpartition("@")[2] for key in keys] == ["0", "0", "1", "1"]
    assert found["options"]["guide"] == "builtin:encoder" and not list(folder.glob("rounds/*/fit"))
    plan = [row for _, row in read_jsonl(folder / "rounds" / "0" / "plan.jsonl")]
    assert all(row["after"] < row["before"] and row["target"]["text"] for row in plan)


def test_a_finished_audit_is_left_as_it_is(world: World, ada_steal: tuple[dict[str, Any], Path]) -> None:
    found, folder = ada_steal
    before = content(folder)
    again, _ = world.audit("ada-steal", method="ada-steal", budget=6, map_sentences=10, workers=2)
    assert again == found and content(folder) == before
    with pytest.raises(RunError):
        world.audit("ada-steal", method="ada-steal", budget=7)
    assert content(folder) == before


def test_without_a_query_the_start_is_measured(world: World) -> None:
    found, folder = world.audit("none", method="none")
    check_contract(found, "none", 4, 0)
    assert found["untouched"] == "no query was made" and found["transcript"]["n"] == 0
    assert found["transcript"]["abnormal_share"] is None  # unknown, not 0
    assert read_ledger(folder / "ledger.sqlite") == [] and list(found["curve"]) == ["0"]


def test_a_stopped_audit_goes_on(
    world: World, knockoff: tuple[dict[str, Any], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped when the copy is about to be measured; what was asked and trained is not done again."""
    from cxrlab.extraction import audit

    def stop(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(audit, "measure_fidelity", stop)
        with pytest.raises(KeyboardInterrupt):
            world.audit("stopped", i_am_authorised="the owner of this model")
    folder = world.folder / "stopped"
    kept = [*folder.rglob("*.safetensors"), *folder.glob("rounds/*/plan.jsonl")]
    assert not (folder / "extraction.json").exists() and len(kept) >= 2
    stamps = {path: path.stat().st_mtime_ns for path in kept}
    queries = read_ledger(folder / "ledger.sqlite")
    found, _ = world.audit("stopped")
    assert found["authorised"] == "the owner of this model"  # it stands, though it was not named again
    assert {path: path.stat().st_mtime_ns for path in kept} == stamps
    assert read_ledger(folder / "ledger.sqlite") == queries
    for key in ("surrogate", "fidelity", "ratio", "transcript"):
        assert found[key] == knockoff[0][key], key


def test_an_adaptive_audit_spends_its_budget_in_batches(world: World) -> None:
    found, folder = world.audit("adaptive", policy=Policy("adaptive", groups=2, batch=2))
    check_contract(found, "knockoff", 4, 4)
    assert list(found["transcript"]["rounds"]) == ["0"]  # no picture was moved
    rows = [(folder / "rounds" / str(k) / "rewards.jsonl").read_text() for k in (0, 1)]
    assert rows[0].count('"loss": null') == 2 and "null" not in rows[1]
    assert read_json(folder / "examples.json") == []


def test_probes_are_queries_of_the_audit(world: World) -> None:
    """The victim answers everything, so that one picture is enough to see that no chest is needed."""
    found, folder = world.audit("probed", budget=12, probes=1)
    assert found["probing"] == {"blend_chest": 0.0, "queries": 1, "passed": {"0": 1.0}}
    assert found["spent"] == found["budget"] == len(read_ledger(folder / "ledger.sqlite")) == 12
    assert len((folder / "rounds" / "0" / "plan.jsonl").read_text().splitlines()) == 11
    studies = (folder / "copies" / "12" / "transcript" / "studies.jsonl").read_text().splitlines()
    assert len(studies) == 12  # what was answered is learnt from, whatever it was asked for


class CountingGuard:
    """A guard that lets so many pictures of everybody pass, those on which the victim is measured not counted."""

    def __init__(self, passes: int) -> None:
        self.left, self.sent = passes, 0

    def check(self, pixels: Any, account: str) -> Refusal | None:
        self.sent += 1
        self.left -= 1
        return None if self.left >= 0 else Refusal("account_blocked", "this account is blocked.")

    def worded(self, report: str) -> str:
        return report


@contextmanager
def served(world: World, folder: Path, guard: CountingGuard | None = None) -> Iterator[str]:
    """Address of the world's victim behind our own server on this machine."""
    settings = ServeConfig(world.base.victim, name="victim", port=0)
    with Server(open_service(settings, folder, guard=guard, journal=Journal(io.StringIO()))) as server:
        yield f"{server.url}#victim"


def test_an_audit_over_http_gets_the_answers_of_the_local_victim(world: World, tmp_path: Path) -> None:
    """48 questions, put by several workers: each picture's answer is the one that the model gives in this process.

    In grey, since our server makes every image grey itself.
    """
    greedy = PaperDecoding(strategy="greedy", max_new_tokens=256)  # how a server is asked
    _, local = world.audit("48 here", budget=48, victim_decoding=greedy, victim_run=None, batch_size=16, colour="grey")
    with served(world, tmp_path / "server") as address:
        changes = {"victim": address, "victim_run": None, "workers": 2, "batch_size": 16, "colour": "grey"}
        found, folder = world.audit("48 there", budget=48, **changes)
    here, there = (read_ledger(place / "ledger.sqlite") for place in (local, folder))
    assert len({one.report for one in here}) > 1 and len(there) == 48
    assert [(one.sha256, one.report) for one in there] == [(one.sha256, one.report) for one in here]
    assert (found["spent"], found["refused"], found["lost"], found["stopped"]) == (48, 0, 0, None)
    assert found["unused_settings"] == ["victim_decoding.max_new_tokens", "victim_decoding.strategy"]
    assert "none required" in found["threat"] and found["options"]["shared_with_victim"] == []
    measured = (place / "victim" / "predictions.jsonl" for place in (local, folder))
    assert len({tuple(row["report"] for _, row in read_jsonl(file)) for file in measured}) == 1


def test_a_stopped_account_ends_the_audit_before_the_budget_does(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4 images of the measurement and 6 questions pass; 8 refusals in a row end it at question 14, always."""
    from cxrlab.extraction import audit

    guard = CountingGuard(10)
    with served(world, tmp_path / "server", guard) as address:
        changes = {"victim": address, "victim_run": None, "budget": 100, "stop_after_refusals": 8, "batch_size": 2}
        with monkeypatch.context() as patch:
            patch.setattr(audit, "diversity_by_round", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
            with pytest.raises(KeyboardInterrupt):
                world.audit("shut out", **changes)
        assert guard.sent == 4 + 14
        found, folder = world.audit("shut out", **changes)
        assert guard.sent == 4 + 14  # nothing is put twice
    expected = {"refusals": 8, "first": 7, "answer": "this account is blocked."}
    assert (found["stopped"], found["spent"], found["refused"]) == (expected, 14, 8)
    assert [one.refused for one in read_ledger(folder / "ledger.sqlite")] == [False] * 6 + [True] * 8
    assert found["transcript"]["n"] == 6 and found["untouched"] is None
    learnt = {str(study.id) for study in load_corpus(folder / "copies" / "14" / "transcript").studies()}
    assert learnt == {f"q{number:06d}" for number in range(6)}
