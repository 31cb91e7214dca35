from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pages import page_of

from cxrlab.core.errors import DataError
from cxrlab.core.runs import Run


def page(folder: Path, found: dict[str, Any]) -> str:
    with Run.open(folder / "run", {"benchmark": found.get("benchmark")}, seed=7) as run:
        run.write("validation.json", found)
    return page_of(folder / "run")


def test_metrics_stand_by_their_agreement_beside_the_ceiling(tmp_path: Path) -> None:
    """Best first, what has no order last, and none of the twelve counts."""
    rows = {
        "poor": {"tau": 0.1, "low": 0.0, "high": 0.2, "n": 9},
        "none": {"tau": None, "low": None, "high": None, "n": 0},
        "good": {"tau": 0.7, "low": 0.6, "high": 0.8, "n": 9},
        "errors.omission_finding.significant": {"tau": 0.9, "low": 0.8, "high": 1.0, "n": 9},
    }
    shown = page(tmp_path, {"benchmark": "radpref", "metrics": rows, "ceiling": {"leave_one_out_tau": [0.75, 0.8]}})
    assert shown.index("good") < shown.index("poor") < shown.index("<td>none</td>")
    assert "0.600 to 0.800" in shown and "width:70.0%" in shown and "0.75, 0.8" in shown
    assert "omission_finding" not in shown


def test_ranking_cases_are_counted(tmp_path: Path) -> None:
    rows = {"a": {"passed": 3, "of": 10, "cases": {}}, "b": {"passed": 9, "of": 10, "cases": {}}}
    shown = page(tmp_path, {"benchmark": "radjudge", "metrics": rows})
    assert shown.index("9 of 10") < shown.index("3 of 10") and "width:90.0%" in shown


def test_a_run_without_metrics_has_no_section(tmp_path: Path) -> None:
    assert "Validation of metrics" not in page(tmp_path, {"benchmark": "radpref", "metrics": {}})


def seat(judge: str, near: float) -> dict[str, Any]:
    one = {"rater_difference": 0.7, "judge_difference": near, "t": -2.5, "df": 8, "p": 0.0004, "n": 9}
    return {"judge": judge, "by_rater": {"r1": one}, "mean": {"rater_difference": 0.7, "judge_difference": near}}


JUDGED: dict[str, Any] = {
    "benchmark": "rexval",
    "metrics": {
        "chexprompt:a": {"tau": 0.7, "low": 0.6, "high": 0.8, "tau_significant": 0.65, "low_significant": 0.5, "n": 9},
        "chexprompt.omission_finding.significant:a": {"tau": 0.9, "low": 0.8, "high": 1.0, "n": 9},
    },
    "raters": {"judges": {"chexprompt:a": {"total": seat("chexprompt:a", 0.551)}, "chexprompt:<b>": {}}},
    "differences": {
        "chexprompt:<b>": {"above": "chexprompt:a", "total": {"difference": -0.25, "low": -0.3, "high": -0.2}}
    },
    "judges": {
        "chexprompt:a": {"asked": 9, "parsed": 9, "partial": 0, "failed": 0, "reasons": {}},
        "chexprompt:<b>": {"asked": 9, "parsed": 6, "partial": 0, "failed": 3, "reasons": {"no <i>number</i>": 3}},
    },
}


def test_judges_stand_side_by_side(tmp_path: Path) -> None:
    """What could be read of each, the raters' seats, the difference; no name or reason becomes markup."""
    shown = page(tmp_path, JUDGED)
    assert "τ-b, significant" in shown and "0.650" in shown and "omission_finding" not in shown
    assert "0.551" in shown and "-2.500" in shown and "&lt; 0.001" in shown
    assert "-0.250" in shown and "-0.300 to -0.200" in shown
    assert "chexprompt:&lt;b&gt;" in shown and "3 × no &lt;i&gt;number&lt;/i&gt;" in shown and "<i>number" not in shown


def test_a_judge_of_another_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="judges.chexprompt:a.failed"):
        page(tmp_path, {**JUDGED, "judges": {"chexprompt:a": {"failed": "many"}}})
