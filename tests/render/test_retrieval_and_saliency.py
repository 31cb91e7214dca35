"""Retrieval and zero-shot classification on a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pages import page_of

from cxrlab.core.errors import DataError
from cxrlab.core.runs import Run


def page(folder: Path, retrieved: dict[str, Any], classified: dict[str, Any] | None = None) -> str:
    with Run.open(folder / "run", {"model": "hf:x"}, seed=7) as run:
        run.write("retrieval.json", retrieved)
        if classified is not None:
            run.write("zero_shot.json", classified)
    return page_of(folder / "run")


def found(value: float | None = 0.25) -> dict[str, Any]:
    one = {
        "value": value,
        "low": 0.125,
        "high": None if value is None else 0.5,
        "n": 9,
        "chance": 0.0625,
        "fixed_order": 0.375,
    }
    recalls = {"image_to_text": {"text": {"recall@1": one}}, "text_to_image": {"<b>": {"recall@5": one}}}
    return {"model": "hf:x", "split": "test", "gallery": 9, "distinct_texts": 8, "recalls": recalls}


def test_recall_stands_beside_chance_both_ways(tmp_path: Path) -> None:
    shown = page(tmp_path, found())
    assert (
        "Do images find their reports?" in shown and "0.125 to 0.500" in shown and "0.062" in shown and "0.375" in shown
    )
    assert "image finds report" in shown and "report finds image" in shown and "width:25.0%" in shown
    assert "same &lt;b&gt;" in shown and "8 different reports" in shown and "Zero-shot" not in shown


def test_what_was_not_measured_is_a_dash(tmp_path: Path) -> None:
    assert page(tmp_path, found(None)).count("<td class=number>–</td>") == 4  # value and interval of both rows


def test_areas_are_folded_away_under_their_mean(tmp_path: Path) -> None:
    area = {"value": 0.75, "low": 0.7, "high": 0.8, "positives": 3, "negatives": 5}
    none = {"value": None, "n": 0}
    classified = {
        "sentences": "report/1", "labels": {"Edema": area}, "observations": {},
        "mean_labels": {"value": 0.75, "n": 1}, "mean_observations": none,
    }  # fmt: skip
    shown = page(tmp_path, found(), classified)
    assert "mean AUROC 0.750 over 1 labels; 0.5 is guessing" in shown and "0.700 to 0.800" in shown


def test_a_file_of_another_shape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'gallery' is 'many'"):
        page(tmp_path, {"gallery": "many"})
