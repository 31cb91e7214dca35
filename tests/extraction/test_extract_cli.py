"""`cxrlab extract` as a user reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cxrlab.cli.extraction import extract
from cxrlab.extraction import audit
from cxrlab.extraction.config import ExtractConfig


def figure(value: float, **more: Any) -> dict[str, Any]:
    return {"value": value, "low": value - 0.1, "high": value + 0.1, "n": 12, **more}


def found(**changes: Any) -> dict[str, Any]:
    metrics = {"findings.f1": "higher", "errors.significant": "lower", "crimson:rules": "higher"}
    zero = {"findings.f1": True, "errors.significant": True, "crimson:rules": False}
    return {
        **{"threat": "Threat model: words alone.", "method": "knockoff"},
        **{"spent": 6, "budget": 8, "refused": 1, "n": 12, "patients": 7, "untouched": None, "curve": {}},
        "cost": {"amount": 1.5, "currency": "EUR"},
        "transcript": {"distinct_finding_sets": 3, "abnormal_share": None},
        "victim": {name: figure(0.8, direction=way) for name, way in metrics.items()},
        "surrogate": {name: figure(0.4, direction=way) for name, way in metrics.items()},
        "ratio": {name: figure(0.5, natural_zero=zero[name]) for name in metrics},
        "fidelity": {name: figure(0.6) for name in metrics},
        **changes,
    }


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> list[str]:
    monkeypatch.setattr(audit, "extract", lambda config, out: found(**getattr(request, "param", {})))
    return extract(ExtractConfig("stub:normal", Path("corpus")), Path("run")).text.splitlines()


def test_the_threat_comes_first_and_every_figure_has_its_n(printed: list[str]) -> None:
    assert printed[0].startswith("Threat model")
    assert printed[2] == "6 of 8 queries (1.50 EUR), 1 refused; 3 distinct sets of findings, abnormal –"
    assert printed[-1].startswith("12 studies of 7 patients; intervals of 95 % by patient")


def test_directions_are_marked_and_a_ratio_without_a_natural_zero_is_left_out(printed: list[str]) -> None:
    rows = {line.split()[0]: line.split()[1:] for line in printed[4:-1]}
    assert rows["findings.f1"][0] == "↑" and rows["errors.significant"][0] == "↓"
    assert rows["findings.f1"][7:10] == ["0.500", "[0.400,", "0.600]"]
    assert rows["crimson:rules"][7] == "–" and "0.500" not in rows["crimson:rules"]


@pytest.mark.parametrize("printed", [{"untouched": "nothing was asked"}], indirect=True)
def test_an_untouched_surrogate_is_not_called_a_copy_in_silence(printed: list[str]) -> None:
    assert "! the copy is the untrained surrogate: nothing was asked" in printed


@pytest.mark.parametrize("printed", [{"unused_settings": ["alignment.eps", "oracle"]}], indirect=True)
def test_settings_without_effect_are_named(printed: list[str]) -> None:
    assert "! settings without effect on knockoff: alignment.eps, oracle" in printed


@pytest.mark.parametrize("printed", [{"probing": {"blend_chest": 0.3, "queries": 4, "passed": {}}}], indirect=True)
def test_what_probes_have_cost_is_reported(printed: list[str]) -> None:
    assert "1 refused, 4 spent on probes" in printed[2] and "image: 0.3)" in printed[2]


STOPPED = {"refusals": 50, "first": 4, "answer": "this account is blocked"}
ASKED = {
    "model": "hf:words",
    "queries": 25,
    "answers": {"parsed": 20, "partial": 3, "failed": 2},
    "dropped": {"duplicate": 6, "other category": 1},
    "kept": {"abnormal": {"airway": 4, "cardiac": 5}, "normal": {"airway": 1, "cardiac": 2}},
}


@pytest.mark.parametrize("printed", [{"stopped": STOPPED, "oracle": ASKED}], indirect=True)
def test_blocked_accounts_and_oracle_answers_are_reported(printed: list[str]) -> None:
    shut = "! the victim blocked the attacker: 50 refusals in a row from query 4 on ('this account is blocked')"
    assert shut in printed
    assert "oracle hf:words: 12 descriptions kept, 7 dropped, of 25 answers (2 unreadable)" in printed
