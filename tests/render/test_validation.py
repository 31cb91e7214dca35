from __future__ import annotations

from pathlib import Path
from typing import Any

from cxrlab.core.runs import Run
from cxrlab.render.page import write_page


def page(folder: Path, found: dict[str, Any]) -> str:
    with Run.open(folder / "run", {"benchmark": found.get("benchmark")}, seed=7) as run:
        run.write("validation.json", found)
    return write_page([folder / "run"]).read_text()


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
    assert "Metrics measured" not in page(tmp_path, {"benchmark": "radpref", "metrics": {}})
