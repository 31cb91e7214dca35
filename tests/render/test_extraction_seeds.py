"""Studies of ways to copy on a page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from extraction_results import extraction_seeds
from pages import page_of

from cxrlab.core.runs import Run


def page(folder: Path, found: dict[str, Any]) -> str:
    with Run.open(folder / "study", {"study": "extraction"}, seed=7) as run:
        run.write("extraction_seeds.json", found)
    return page_of(folder / "study")


def test_comparisons_come_first_with_pooled_interval_and_every_seed(tmp_path: Path) -> None:
    shown = page(tmp_path, extraction_seeds())
    part = shown[shown.index("Comparison of methods") : shown.index("Table 3: surrogates")]
    for wanted in (
        "ada − knockoff",
        "▲&nbsp;+0.250",
        "+0.120 to +0.380",
        "+0.200, +0.300",
        "2.250",
        "1.500 to 3.100",
    ):
        assert wanted in part
    assert "seeds and patients" in part and "300 studies of 180 patients" in shown


def test_a_difference_that_holds_zero_is_not_marked(tmp_path: Path) -> None:
    found = extraction_seeds()
    found["contrasts"][0]["metrics"]["findings.f1"]["pooled"]["low"] = -0.01
    shown = page(tmp_path, found)
    part = shown[shown.index("Comparison of methods") : shown.index("Table 3")]
    assert ("▲" in part) is False and "+0.250" in part


def test_a_table_has_victim_copies_and_the_paper_beside(tmp_path: Path) -> None:
    shown = page(tmp_path, extraction_seeds())
    row = re.search(r"<tr><td><b>ada</b></td>.*?</tr>", shown)
    assert row is not None
    for wanted in ("Pictures are moved.", "0.450", "0.35 to 0.55", "0.500", ">90.0<", "0.700", "0.60 to 0.80"):
        assert wanted in row[0]
    assert "<span class=later>victim</span>" in shown and "0.900" in shown
    assert "24.7 <span class=later>(0.93)</span>" in shown and ">26.5<" in shown
    assert "findings F1 of each copy, over seeds" in shown and "victim 0.900" in shown


def test_every_victim_has_a_row_and_none_is_drawn_for_the_others(tmp_path: Path) -> None:
    found = extraction_seeds()
    found["variants"]["ada"]["asked"]["victim"] = "made:second"
    found["variants"]["ada"]["metrics"]["findings.f1"]["victim"] = {"mean": 0.8, "low": 0.79, "high": 0.81}
    shown = page(tmp_path, found)
    rows = re.findall(r"<tr><td><span class=later>victim</span></td>.*?</tr>", shown)
    assert ["0.800" in row for row in rows] == [False, True] and "of ada<" in rows[1]
    assert ("victim 0.900" in shown) is False


def test_the_curve_leaves_out_what_was_measured_once(tmp_path: Path) -> None:
    shown = page(tmp_path, extraction_seeds())
    assert "ada, queries 500: 0.225" in shown and "knockoff, queries 1500: 0.200" in shown
    assert ("none, queries" in shown) is False


def test_wins_and_texts_without_a_image(tmp_path: Path) -> None:
    shown = page(tmp_path, extraction_seeds())
    wins = shown[shown.index("Report against report") :]
    assert "ada against knockoff" in wins and "0.550" in wins and "+0.350" in wins
    assert "<li>BLEU-4: “the” as well as ada</li>" in shown


def test_a_study_of_a_few_figures_makes_a_page(tmp_path: Path) -> None:
    bare = {"seeds": [1], "variants": {"ada": {}}}
    shown = page(tmp_path, bare)
    assert "All methods" in shown
    for absent in (
        "Comparison of methods",
        "Over the queries",
        "Report against report",
        "Texts without an image",
        "published",
    ):
        assert (f"<h3>{absent}" in shown) is False


def test_images_made_on_a_copy_stand_beside_white_box_and_noise(tmp_path: Path) -> None:
    def of(value: float) -> dict[str, Any]:
        return {
            metric: {"mean": value, "low": value - 0.1, "high": value + 0.1} for metric in ("flip_rate", "errors.added")
        }

    gap = {"pooled": {"value": 0.35, "low": 0.2, "high": 0.5}}
    one = {
        "sources": {"copy": of(0.45), "noise": of(0.1)},
        "differences": {"noise": {"flip_rate": gap, "errors.added": gap}},
    }
    shown = page(tmp_path, extraction_seeds(transfer={"n": 40, "variants": {"ada": {"pgd@2/255": one}}}))
    rows = re.findall(r"<tr><td>ada</td><td>pgd@2/255</td>.*?</tr>", shown)
    assert len(rows) == 2 and "<b>copy</b>" in rows[0] and "0.450" in rows[0] and "+0.350" not in rows[0]
    assert "noise" in rows[1] and "▼&nbsp;+0.350" in rows[1] and "+0.200 to +0.500" in rows[1]
    assert "shown to its victim" not in page(tmp_path / "without", extraction_seeds())
