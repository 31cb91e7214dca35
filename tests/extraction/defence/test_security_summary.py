from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cxrlab.cli import extraction
from cxrlab.extraction.config import DefendConfig
from cxrlab.extraction.defence.defend import loss
from cxrlab.extraction.defence.security_summary import MINIMUM_QUERIES, MINIMUM_STUDIES, security_summary
from cxrlab.render.extraction_protection import review

OPERATIONAL = {"per_query": 0.0, "per_1k_tokens": 0.0, "currency": "USD"}


def attack(value: float | None, **more: Any) -> dict[str, Any]:
    ends = {"low": None, "high": None} if value is None else {"low": value - 0.05, "high": value + 0.05}
    row = {"findings.f1": {"value": value, "n": 100, **ends}}
    return {"spent": 1500, "surrogate": row, "victim": {"findings.f1": {"value": 0.8}}, **more}


def row(plain: float, adaptive: float, harms: list[str] | None = None) -> dict[str, Any]:
    none = attack(0.6)
    losses = {
        "plain": loss(attack(plain), none, "findings.f1"),
        "adaptive": loss(attack(adaptive), none, "findings.f1"),
    }
    return {"attacks": {kind: {"loss": one} for kind, one in losses.items()}, "harms": harms or []}


def summary(value: float | None = 0.6, price: dict[str, Any] = OPERATIONAL, **rows: dict[str, Any]) -> dict[str, Any]:
    return security_summary({"undefended": attack(value), "defences": rows, "price": price})


@pytest.mark.parametrize(
    ("value", "level"), [(0.72, "critical"), (0.6, "high"), (0.4, "medium"), (0.39, "low"), (None, None)]
)
def test_severity_follows_the_share_of_the_victim(value: float | None, level: str | None) -> None:
    """The victim has 0.8: 0.72 is 0.9 of it, 0.6 is 0.75, 0.4 is half."""
    assert summary(value)["severity"] == level


@pytest.mark.parametrize(
    ("queries", "studies", "established", "flags"),
    [
        (MINIMUM_QUERIES, MINIMUM_STUDIES, True, []),
        (MINIMUM_QUERIES - 1, MINIMUM_STUDIES, False, [f"--budget {MINIMUM_QUERIES}", "--minimum-queries 499"]),
        (MINIMUM_QUERIES, MINIMUM_STUDIES - 1, False, ["99 studies", "--minimum-studies 99"]),
        (16, 12, False, ["16 queries", "--minimum-queries 16", "--minimum-studies 12"]),
    ],
)
def test_a_small_attack_establishes_no_severity(
    monkeypatch: pytest.MonkeyPatch, queries: int, studies: int, established: bool, flags: list[str]
) -> None:
    """JSON, terminal and page state the same; both sides of both thresholds."""
    undefended = attack(0.3) | {"spent": queries}
    undefended["surrogate"]["findings.f1"]["n"] = studies
    found = security_summary({"undefended": undefended, "defences": {}, "price": OPERATIONAL})
    level = "low" if established else "not established"
    assert found["severity"] == level and (found["missing"] is None) is established
    run = {"defences": {}, "n": 8, "summary": found}
    monkeypatch.setattr("cxrlab.extraction.defence.defend.defend", lambda config, out: run)
    terminal = extraction.defend(DefendConfig("stub:normal", Path("corpus")), Path("run")).text
    page = review(found)
    assert page is not None and f"severity: {level} (" in terminal and page.severity == level
    for flag in flags:
        assert flag in found["missing"] and flag in terminal and flag in page.missing
    assert bool(page.missing) is ("to establish it" in terminal) is not established


def test_the_minimum_can_be_set() -> None:
    """Of 16 queries and 12 studies, when that is what was asked for; an unknown number of studies is too few."""
    undefended = attack(0.3) | {"spent": 16}
    result = {"undefended": undefended, "defences": {}, "price": OPERATIONAL, "minimum": {"queries": 16, "studies": 12}}
    assert security_summary(result)["severity"] == "low"
    undefended["surrogate"]["findings.f1"]["n"] = None
    assert "unknown number" in security_summary(result)["missing"]


def test_what_is_dear_to_copy_is_a_step_less_severe() -> None:
    dear = summary(0.6, {**OPERATIONAL, "per_query": 10.0})
    assert dear["cost_to_copy"]["money"] == 15_000 and dear["severity"] == "medium"
    cheap = summary(0.6, {**OPERATIONAL, "per_query": 0.01})
    assert cheap["cost_to_copy"]["money"] == 15 and cheap["severity"] == "high"
    assert summary(0.6)["cost_to_copy"]["money"] is None


def test_the_technique_is_model_extraction() -> None:
    assert summary()["techniques"][0]["id"] == "AML.T0024.002"


def test_the_loss_of_two_attacks_by_hand() -> None:
    """0.4 ± 0.05 behind the defence, 0.6 ± 0.05 without: -0.2, at worst -0.3, at best -0.1."""
    found = loss(attack(0.4), attack(0.6), "findings.f1")
    assert [found[key] for key in ("difference", "low", "high")] == pytest.approx([-0.2, -0.3, -0.1])
    unknown = loss(attack(None), attack(0.6), "findings.f1")
    assert unknown["difference"] is None and unknown["low"] is None


def test_recommended_is_what_holds_against_who_knows_it_and_harms_nobody() -> None:
    """The gate looks best plain, and falls; the quota holds; coarse holds better and does harm."""
    found = summary(
        gate=row(0.1, 0.58), quota=row(0.3, 0.35), coarse=row(0.1, 0.1, ["errors.significant changes by +0.300"])
    )["recommended"]
    assert found["control"] == "quota"
    assert found["mitigation"] == {"id": "AML.M0004", "name": "Restrict Number of AI Model Queries"}
    assert "-0.250 [-0.350, -0.150]" in found["reason"] and "'coarse' was left out" in found["reason"]


def test_a_quota_is_not_recommended_without_the_accounts_that_undo_it() -> None:
    result = row(0.3, 0.35) | {"benign": {"quota": {"accounts_needed": 15}}}
    assert "15 accounts gets every answer" in summary(quota=result)["recommended"]["reason"]
    assert "accounts" not in summary(coarse=row(0.3, 0.35))["recommended"]["reason"]


def test_a_defence_that_was_not_shown_to_help_is_not_recommended() -> None:
    found = summary(gate=row(0.1, 0.58))["recommended"]
    assert found["control"] is None and found["nearest"] == "gate"
    assert found["reason"].startswith("no defence was shown to weaken the copy once the attacker knows it")
    unknown = row(0.58, 0.58) | {"attacks": {"plain": row(0.58, 0.58)["attacks"]["plain"]}}
    assert summary(gate=unknown)["recommended"]["reason"].startswith("no defence was shown to weaken the copy; ")
    assert summary()["recommended"]["control"] is None


def test_the_fewest_queries_of_a_curve() -> None:
    """The last point has 0.6; 0.54 is within a tenth of it, 0.5 is not."""
    points = {"100": 0.3, "500": 0.5, "1000": 0.54, "1500": 0.6}
    curve = {budget: {"findings.f1": {"value": value}} for budget, value in points.items()}
    found = security_summary({"undefended": attack(0.6, curve=curve), "defences": {}, "price": OPERATIONAL})
    assert found["cost_to_copy"]["least_queries"] == 1000
