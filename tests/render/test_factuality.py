"""The sections on factuality, from files made by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pages import page_of

from cxrlab.core.runs import Run

EDEMA, FRACTURE = "chexbert.Edema.f1:uncertain-positive", "chexbert.Fracture.f1:uncertain-positive"


def metric(value: float | None, support: int | None = None) -> dict[str, Any]:
    low, high = (None, None) if value is None else (value - 0.1, value + 0.1)
    found = {"value": value, "low": low, "high": high, "n": 9, "undefined": 0, "direction": "higher", "range": [0, 1]}
    return {
        **found,
        "signature": "s",
        **({} if support is None else {"support": {"reference": support, "candidate": 1}}),
    }


def scored(folder: Path, metrics: dict[str, Any], predictions: Path | None = None) -> Path:
    with Run.open(folder, {"references": "r", "predictions": str(predictions)}, seed=7) as run:
        run.write("scores.json", {"n": 9, "metrics": metrics, "floors": {}, "slices": {}})
        run.write("per_study.jsonl", "")
    return folder


def generated(folder: Path, model: str, parameters: int | None) -> Path:
    with Run.open(folder, {"model": model}, seed=7) as run:
        run.write("summary.json", {"model": model, "predictions": 9, "parameters": parameters})
    return folder


def test_models_stand_beside_each_other_by_observation(tmp_path: Path) -> None:
    """Most frequent first with its count; a circle's area follows the count: a quarter of it has half the radius."""
    one = scored(tmp_path / "rad", {EDEMA: metric(0.25, 25), FRACTURE: metric(0.5, 100)})
    two = scored(tmp_path / "gpt", {EDEMA: metric(0.75, 25), FRACTURE: metric(None, 100)})
    page = page_of(one, two, out=tmp_path / "page.html")
    page = page[page.index("<h2>Factuality by observation") :]
    assert page.index("Fracture (100)") < page.index("Edema (25)") < page.index("Cardiomegaly (0)")
    assert "0.750 <span class=later>0.650 to 0.850</span>" in page and "Labels by CheXbert" in page
    radii = {words: float(radius) for radius, words in re.findall(r'r="([\d.]+)"[^>]*><title>([^<]*)</title>', page)}
    assert radii["rad, Fracture (100): 0.500 (0.400 to 0.600)"] == 11.0
    assert radii["gpt, Edema (25): 0.750 (0.650 to 0.850)"] == 5.5 and not any("gpt, Fracture" in one for one in radii)


def test_labels_by_rules_and_by_chexbert_never_share_a_table(tmp_path: Path) -> None:
    """Where one run has CheXbert's labels, a run with labels by rules alone is not in the table."""
    rules = EDEMA.replace("chexbert", "chexpert")
    one, two = scored(tmp_path / "a", {EDEMA: metric(0.25, 4)}), scored(tmp_path / "b", {rules: metric(0.875, 4)})
    page = page_of(one, two, out=tmp_path / "page.html")
    section = page[page.index("<h2>Factuality by observation") :].split("</section>")[0]
    assert "0.250" in section and "0.875" not in section
    alone = page_of(two, out=tmp_path / "alone.html")
    assert "Labels by the built-in rules" in alone and "0.875" in alone
    assert "Factuality by observation" not in page_of(scored(tmp_path / "c", {"m": metric(0.5)}))


def test_size_is_drawn_against_the_first_factual_score_that_all_models_have(tmp_path: Path) -> None:
    micro, findings = "chexbert14.micro.f1:uncertain-negative", "findings.f1"
    runs = []
    for name, size, metrics in (
        ("small", 7_000_000_000, {micro: metric(0.573), findings: metric(0.3)}),
        ("large", 84_000_000_000, {findings: metric(0.4)}),
        ("unknown", None, {findings: metric(0.9)}),
    ):
        reports = generated(tmp_path / name, f"hf:{name}", size)
        runs += [reports, scored(tmp_path / f"{name}-scores", metrics, reports)]
    page = page_of(*runs, out=tmp_path / "page.html")
    section = page[page.index("<h2>Model size and factuality") :].split("</section>")[0]
    assert "hf:small, 7 billion weights: 0.300" in section and "hf:large, 84 billion weights: 0.400" in section
    assert len(re.findall(r"<path d=.M[\d.]+ [\d.]+V[\d.]+. stroke=.#[0-9a-f]+. stroke-opacity", section)) == 2, (
        "intervals"
    )
    assert "hf:unknown" not in section and "Model size" not in page_of(*runs[:2], out=tmp_path / "one.html")
