"""The whole table on a small corpus with attacks whose results are made up."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from corpora import toy_corpus

from cxrlab.core import plan as plans
from cxrlab.core.errors import ConfigError
from cxrlab.core.files import read_json, write_text
from cxrlab.core.json_values import dumps
from cxrlab.data.corpus import Corpus
from cxrlab.extraction.config import DefenceSettings, DefendConfig
from cxrlab.extraction.defence import base as room
from cxrlab.extraction.defence import defence_plan
from cxrlab.extraction.defence.base import DEFENCES, Defence, DefenceRejected
from cxrlab.extraction.defence.defence_plan import plan_defences
from cxrlab.extraction.defence.defend import Plan, defend, overrides
from cxrlab.extraction.defence.watermark import Watermark

pytestmark = pytest.mark.slow

KEY = b"a key of the tests, 24 b"
VALUES = {None: 0.6, "gate": 0.1, "quota": 0.3, "coarse": 0.5, "plain": 0.55, "watermark": 0.6}


class FakeAttack:
    """Results that a person can check: known values, adaptive ones nearer to what is had without a defence."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []

    def __call__(self, plan: Plan, out: Path) -> Mapping[str, Any]:
        self.plans.append(plan)
        knows = plan.adaptation != type(plan.adaptation)()
        value = (VALUES[plan.defence] + 0.6) / 2 if knows else VALUES[plan.defence]
        ends = {"value": value, "low": value - 0.02, "high": value + 0.02, "n": 50}
        said = "There is a small left pleural effusion. No pneumothorax is seen. The lungs are clear."
        text = Watermark(KEY).worded(said) if plan.defence == "watermark" and not knows else said
        write_text(out / "reports.jsonl", dumps({"id": "a", "report": text}) + "\n")
        if plan.adaptation.probes:
            probing = {"blend_chest": 0.1, "queries": 2 * plan.adaptation.probes, "passed": {"0": 0.0, "0.1": 1.0}}
            return {**self._result(ends), "probing": probing}
        return self._result(ends)

    def _result(self, ends: Mapping[str, Any]) -> dict[str, Any]:
        result = {"spent": 40, "surrogate": {"findings.f1": ends}, "victim": {"findings.f1": {"value": 0.8}}}
        return {**result, "method": "knockoff", "budget": 40, "predictions": "reports.jsonl"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return toy_corpus(tmp_path_factory.mktemp("benign") / "corpus", 48)


@pytest.fixture
def config(corpus: Corpus, tmp_path: Path) -> DefendConfig:
    (tmp_path / "key").write_bytes(KEY)
    settings = DefenceSettings(gate_bound=0.3, quota=10, images_per_window=(1.0,), key_file=tmp_path / "key")
    return DefendConfig("stub:normal", corpus.path, trials=40, settings=settings, probes=3, accounts=5, budget=40)


def test_the_plan_has_one_extraction_per_attack(
    config: DefendConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eleven attacks, with the reports of the victim once; the benign images are the sixteen of the run."""
    work = (
        plans.Work("reports of the victim", "report", 16, 0.5),
        plans.Work("queries", "query", 40, 0.25, once_s=1.0),
    )
    monkeypatch.setattr(defence_plan, "plan_extraction", lambda config: plans.Plan("extract", work, left_out=("x.",)))
    found = plan_defences(config, tmp_path / "run")
    behind = sum(name in ("preprocess",) for name in config.defences)
    benign, victim, queries = found.work
    assert (benign.count, victim.count, queries.count, queries.once_s) == (16 * (1 + behind), 16, 11 * 40, 11.0)
    assert found.facts == {"attacks": 11, "attacks_finished": 0} and not (tmp_path / "run").exists()


def test_the_table_its_attacks_and_the_summary(config: DefendConfig, tmp_path: Path) -> None:
    attack, out = FakeAttack(), tmp_path / "run"
    found = defend(config, out, attack)
    assert found == read_json(out / "defence.json") and found["n"] == 16
    asked = [(plan.defence, plan.adaptation.accounts, plan.adaptation.rewrite) for plan in attack.plans]
    assert asked[0] == (None, 1, False) and len(asked) == 11
    assert ("quota", 5, False) in asked and ("coarse", 1, True) in asked and ("watermark", 1, True) in asked
    rows = found["defences"]
    assert rows["coarse"]["attacks"]["plain"]["loss"]["difference"] == pytest.approx(-0.1)
    assert rows["quota"]["attacks"]["adaptive"]["loss"]["difference"] == pytest.approx(-0.15)
    assert rows["coarse"]["benign"]["difference"]["findings.f1"]["difference"] == 0.0
    assert rows["quota"]["benign"]["quota"]["share_refused"] < 1e-6
    assert rows["quota"]["benign"]["quota"]["accounts_needed"] == 4
    knows = rows["gate"]["attacks"]["adaptive"]  # three pictures each with two shares of a chest
    assert (knows["probes"], knows["probing"]["queries"], knows["blend_chest"]) == (3, 6, 0.1)
    assert "probing" not in rows["gate"]["attacks"]["plain"]
    assert found["summary"]["severity"] == "not established" and found["summary"]["cost_to_copy"]["queries"] == 40


def test_the_minimum_of_a_severity_is_a_setting(config: DefendConfig, tmp_path: Path) -> None:
    """The copy has 0.75 of the victim's score, from 40 queries on 50 studies."""
    fewer = dataclasses.replace(config, defences=("coarse",), adaptive=False, minimum_queries=40, minimum_studies=50)
    found = defend(fewer, tmp_path / "run", FakeAttack())
    assert found["summary"]["severity"] == "high" and found["minimum"] == {"queries": 40, "studies": 50}


def test_the_mark_is_looked_for_in_copies_and_the_key_stays_out_of_the_folder(
    config: DefendConfig, tmp_path: Path
) -> None:
    only = dataclasses.replace(config, defences=("watermark",))
    row = defend(only, tmp_path / "run", FakeAttack())["defences"]["watermark"]
    assert {"unmarked", "marked", "enriched", "reworded", "copies"} == row["evidence"].keys()
    copies = row["evidence"]["copies"]
    assert (copies["plain"]["green"], copies["plain"]["n_choices"]) == (3, 3)
    assert copies["plain"]["p"] == pytest.approx(1 / 64)
    assert copies["plain"]["contexts_needed"] == 4 and copies["plain"]["queries_needed"] is None
    assert len(row["key_sha256"]) == 64
    written = [file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()]
    assert written and not any(KEY in content for content in written)


def test_a_finished_run_is_left_as_it_is(config: DefendConfig, tmp_path: Path) -> None:
    few = dataclasses.replace(config, defences=("coarse",), adaptive=False)
    first = defend(few, tmp_path / "run", FakeAttack())
    again = FakeAttack()
    assert defend(few, tmp_path / "run", again) == first and again.plans == []


class Blind(Defence):
    """Says that nothing is there."""

    name = "blind"

    def reword(self, report: str) -> str:
        return report.replace("There is a small", "There is no")


def test_a_defence_that_changes_a_finding_stops_the_run_before_anything_is_attacked(
    config: DefendConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DEFENCES, "load", lambda name: Blind)
    attack = FakeAttack()
    with pytest.raises(DefenceRejected, match="'blind' was rejected on benign report 1 of 1"):
        defend(dataclasses.replace(config, defences=("coarse",)), tmp_path / "run", attack)
    assert attack.plans == [] and not (tmp_path / "run").exists()


def test_settings_that_contradict_are_refused(config: DefendConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'watermark'|Did you mean 'watermark'"):
        dataclasses.replace(config, defences=("watermarks",))
    settings = dataclasses.replace(config.settings, benign_split="test")
    with pytest.raises(ConfigError, match="benign_split=test"):
        defend(dataclasses.replace(config, settings=settings), tmp_path / "run", FakeAttack())
    with pytest.raises(ConfigError, match="benign=CORPUS"):
        room.open_defence("coarse", DefenceSettings(), 7)


def test_what_a_plan_tells_the_audit(config: DefendConfig) -> None:
    words = overrides(config, Plan("quota", config.settings))
    assert "victim=stub:normal" in words and "defence=quota" in words and "defence_settings.quota=10" in words
    assert "rewrite=false" in words and not any(word.startswith(("surrogate=", "chest=")) for word in words)
    assert not any(word.startswith("defence") for word in overrides(config, Plan(None, config.settings)))


def test_probes_that_the_budget_does_not_hold_are_refused_before_anything_is_attacked(
    config: DefendConfig, tmp_path: Path
) -> None:
    attack = FakeAttack()
    with pytest.raises(ConfigError, match="probes=4 may take 40 queries, too many of budget=40; give at most 3"):
        defend(dataclasses.replace(config, probes=4), tmp_path / "run", attack)
    assert attack.plans == [] and not (tmp_path / "run").exists()


def test_a_run_goes_on_under_the_leave_on_record_and_under_another(config: DefendConfig, tmp_path: Path) -> None:
    """As an extraction does: the words may be left out or changed; what was named last stands in the result."""
    few = dataclasses.replace(config, defences=("coarse",), adaptive=False)
    first, second = "the owner of this model", "the owner, asked once more"

    def stopped(plan: Plan, out: Path) -> Mapping[str, Any]:
        raise KeyboardInterrupt

    for said, stands in ((first, first), (None, first), (second, second)):
        with pytest.raises(KeyboardInterrupt):
            defend(dataclasses.replace(few, i_am_authorised=said), tmp_path / "run", stopped)
        assert read_json(tmp_path / "run" / "threat.json")["authorised"] == stands
    found = defend(few, tmp_path / "run", FakeAttack())
    assert found["authorised"] == second
    assert defend(dataclasses.replace(few, i_am_authorised=first), tmp_path / "run", FakeAttack()) == found
