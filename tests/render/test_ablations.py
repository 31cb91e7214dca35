"""The sections on whole experiments, from files alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pages import page_of

from cxrlab.core.errors import DataError
from cxrlab.render.page import write_page


def run_folder(folder: Path, name: str, content: Any) -> Path:
    folder.mkdir()
    (folder / "config.yaml").write_text("study: x\n")
    (folder / "status.json").write_text('{"state": "finished"}')
    (folder / name).write_text(json.dumps(content))
    return folder


def figures(mean: float | None, **more: Any) -> dict[str, Any]:
    return {"values": [mean, None], "mean": mean, "low": None, "high": None, "seeds": 1, **more}


ABLATED = {
    "metrics": ["m1", "m2"],
    "seeds": [1, 2],
    "n": 30,
    "variants": {
        "full": {
            "changes": "Nothing.",
            "published": {"ROUGE-L": 30.6},
            "metrics": {"m1": figures(0.5, difference=None)},
        },
        "<b>less": {
            "changes": "All <i>of</i> it.",
            "paper": "Variant #2",
            "stands_for": "something",
            "metrics": {"m1": figures(0.25, difference={"mean": -0.25, "low": -0.5, "high": 0.0})},
        },
    },
}


def test_a_row_states_change_value_and_difference(tmp_path: Path) -> None:
    page = page_of(run_folder(tmp_path / "a", "ablations.json", ABLATED))
    assert "<h2>Ablations</h2>" in page and "0.250" in page and "-0.250" in page and "-0.500 to +0.000" in page
    assert "Variant #2" in page and "stands for something" in page and "Published figures" in page and "30.6" in page


def test_the_papers_figures_stand_beneath_those_of_the_same_convention(tmp_path: Path) -> None:
    """In percent; a column that cannot be computed has a dash and its reason, whatever else was scored."""
    columns = [
        {"label": "ROUGE-L", "metric": "m1", "missing": "", "note": ""},
        {"label": "Micro-F1-14", "metric": None, "missing": "it needs weights", "note": ""},
    ]
    page = page_of(run_folder(tmp_path / "a", "ablations.json", {**ABLATED, "columns": columns}))
    shown = page[page.index("<h3>Published figures") :]
    assert "50.0<br><span class=" in shown and ">30.6</span>" in shown and "25.0<br>" in shown
    assert "Micro-F1-14: it needs weights." in shown and "–<br>" in shown and "0.500" not in shown


def test_what_is_unknown_is_a_dash_and_markup_stays_text(tmp_path: Path) -> None:
    """A seed without a value is no 0; a name cannot become markup."""
    page = page_of(run_folder(tmp_path / "a", "ablations.json", ABLATED))
    assert "0.500 –" in page and "&lt;b&gt;less" in page and "<b>less" not in page


def test_a_word_in_place_of_a_number_is_refused(tmp_path: Path) -> None:
    wrong = {**ABLATED, "n": "many"}
    with pytest.raises(DataError, match=r"ablations.json.*n"):
        write_page([run_folder(tmp_path / "a", "ablations.json", wrong)])


def test_nothing_compared_gives_no_section(tmp_path: Path) -> None:
    page = write_page([run_folder(tmp_path / "a", "ablations.json", {"metrics": [], "variants": {}})]).read_text()
    assert "<h2>Ablations</h2>" not in page


def test_two_texts_and_what_moves_with_them(tmp_path: Path) -> None:
    found = {
        "texts": {"studies": 10, "both": 9, "rule_only": 1, "processed_only": 0, "neither": 0},
        "metrics": {"bleu1:coco": {"value": 0.822, "low": 0.8, "high": 0.84, "n": 9}},
        "predictions": {"mine": {"bleu1:coco": {"a": 0.3, "b": 0.2, "difference": -0.1, "low": -0.2, "high": 0.0}}},
    }
    page = page_of(run_folder(tmp_path / "a", "analysis.json", found))
    assert "0.822" in page and "0.800 to 0.840" in page and "9 of 10 studies" in page
    assert "<h3>mine</h3>" in page and "-0.100" in page
