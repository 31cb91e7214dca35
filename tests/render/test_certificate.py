"""The page of a certified file, from a certificate made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pages import page_of

from cxrlab.core.errors import DataError
from cxrlab.core.runs import Run


def share(value: float) -> dict[str, float]:
    return {"value": value, "low": value - 0.01, "high": value + 0.01}


def sides(one: float, two: float) -> dict[str, Any]:
    return {"predictions": share(one), "references": share(two), "difference": share(one - two)}


CHECKS = [
    {"name": "variety", "verdict": "fail", "sentence": "4 <different> reports.", "numbers": {"most_frequent": sides(0.5, 0.1)}},
    {"name": "fit to the studies", "verdict": "pass", "sentence": "It fits.", "numbers": {
        "findings.f1": {"predictions": 0.6, "baseline": 0.1, "direction": "higher", "gain": share(0.5)}}},
    {"name": "label prevalence", "verdict": "note", "sentence": "Few.", "numbers": {
        "labels": {"Edema": {**sides(0.2, 0.3), "count": 20, "present": 30}}}},
    {"name": "image dependence", "verdict": "not tested", "sentence": "Not tested.", "numbers": {}},
]  # fmt: skip


def certified(folder: Path, **changes: Any) -> Path:
    found = {"rule": "constant", "severity": "severe", "headline": "All are one.", "n": 1590, "patients": 1589,
             "checks": CHECKS, **changes}  # fmt: skip
    with Run.open(folder, {"predictions": "p"}, seed=7) as run:
        run.write("certificate.json", found)
    return folder


def test_the_verdict_stands_first_and_every_number_is_shown(tmp_path: Path) -> None:
    shown = page_of(certified(tmp_path / "run"), out=tmp_path / "page.html")
    order = [shown.index(words) for words in ("SEVERE", "All are one.", "4 &lt;different&gt; reports.", "It fits.")]
    assert order == sorted(order)
    for words in ("1,590", "1,589", "50.0 %", "49.0 % to 51.0 %", "+0.500", "+0.490 to +0.510", "Edema", "20", "30"):
        assert words in shown, words


def test_a_damaged_certificate_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="certificate.json"):
        page_of(certified(tmp_path / "run", checks=[{"name": 3}]), out=tmp_path / "page.html")
