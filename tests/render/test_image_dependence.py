from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pages import page_of

from cxrlab.core.errors import DataError
from cxrlab.core.runs import Run

FOUND = {
    "n": 60, "patients": 50, "metric": "findings.f1.side", "verdict": "ignores_image", "sentence": "It does <not> look.",
    "right": {"findings.f1.side": {"value": 0.5, "low": 0.4, "high": 0.6}, "bleu1:coco": {"value": 0.25}},
    "wrong": {
        "noise": {"metrics": {"findings.f1.side": 0.45, "bleu1:coco": 0.2},
                  "difference": {"value": 0.05, "low": -0.1, "high": 0.2}, "unchanged": 0.75},
        "swapped": {"metrics": {"findings.f1.side": None}, "difference": {"value": None}, "unchanged": None},
    },
}  # fmt: skip


def page(tmp_path: Path, *found: dict[str, Any] | None) -> str:
    runs = []
    for number, one in enumerate(found):
        with Run.open(tmp_path / f"run{number}", {"level": 0.95}, seed=7) as run:
            controls = {} if one is None else {"image_dependence": one}
            run.write("scores.json", {"n": 60, "metrics": {"m": {"value": 1.0}}, "controls": controls})
        runs.append(tmp_path / f"run{number}")
    return page_of(*runs, out=tmp_path / "page.html")


def test_verdict_figures_and_the_rest_are_shown(tmp_path: Path) -> None:
    shown = page(tmp_path, FOUND)
    assert "Does the image matter?" in shown and "<p class=bad>It does &lt;not&gt; look.</p>" in shown
    assert "0.500" in shown and "0.400 to 0.600" in shown and "75 %" in shown
    assert 'style="left:45.0%"' in shown, "the tick of the noise image"
    assert "1 more metrics" in shown and "0.250" in shown
    assert shown.count("–") >= 2, "what is unknown is a dash, not a zero"


def test_a_run_that_looks_is_green_and_one_without_the_control_is_named(tmp_path: Path) -> None:
    only = {**FOUND, "verdict": "uses_image", "right": {"findings.f1.side": {"value": None}}}
    shown = page(tmp_path, only, {}, None)
    assert "<p class=here>" in shown and "Not tested: run1, run2." in shown and "more metrics</summary>" not in shown


def test_without_any_control_there_is_no_section(tmp_path: Path) -> None:
    assert "Does the image matter?" not in page(tmp_path, {}, None)


@pytest.mark.parametrize("broken", [{"sentence": 3}, {"right": []}, {"wrong": {"noise": {"unchanged": "all"}}}])
def test_a_damaged_file_is_named(tmp_path: Path, broken: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"scores.json: 'controls.image_dependence"):
        page(tmp_path, json.loads(json.dumps({**FOUND, **broken})))
