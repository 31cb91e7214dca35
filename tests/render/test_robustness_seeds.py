"""Audits over seeds on a page, and their figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pages import page_of

from cxrlab.core.errors import DataError
from cxrlab.core.runs import Run
from cxrlab.render.drawing import Drawing
from cxrlab.render.page import svg_file
from cxrlab.render.robustness_seeds import alarms, answer_curves, dose_curve, drops_forest, has_answers, strongest

SVG = "{http://www.w3.org/2000/svg}"
SEEDS = (1, 2)
BLIND = (
    "{} does not use the image, so that its robustness means nothing: a model that ignores pixels cannot be fooled "
    "by them. Reports: findings.f1.side {}, no better than with blank images."
)


def over(*values: float) -> dict[str, Any]:
    mean = sum(values) / len(values)
    return {"values": list(values), "mean": mean, "low": mean - 0.0625, "high": mean + 0.0625, "seeds": len(values)}


def change(*values: float, clear: int = 0) -> dict[str, Any]:
    rows = [
        {
            "seed": seed,
            "value": value,
            "low": value - 0.125,
            "high": value + 0.125,
            "p_holm": 0.01 if turn < clear else 1.0,
        }
        for turn, (seed, value) in enumerate(zip(SEEDS, values, strict=True))
    ]
    return {**over(*values), "by_seed": rows, "clear": clear, "same_way": True}


def measured(start: float, aligned: float, **more: Any) -> dict[str, Any]:
    gap = change(aligned - start, aligned - start)
    return {"start": over(start, start), "aligned": over(aligned, aligned), "difference": gap, **more}


def variant(**changed: Any) -> dict[str, Any]:
    drop = change(-0.25, -0.125, clear=1)
    under = {
        "findings.f1": measured(0.5, 0.375, drop=drop),
        "closed_questions.accuracy": measured(0.75, 0.625, drop=change(0.0, 0.0)),
        "closed_questions.confidence": measured(0.875, 0.875, drop=change(0.0, 0.0)),
        "flip_rate": measured(0.25, 0.5),
    }
    worse = {**under, "closed_questions.accuracy": measured(0.25, 0.125, drop=change(0.0, 0.0))}
    lighter = {**worse, "findings.f1": measured(0.625, 0.5, drop=drop)}
    ratios = {"start_to_aligned": over(0.75, 0.8125), "aligned_to_start": over(0.5, 0.5)}
    return {
        "changes": "A judge <b>of</b> its own.",
        "equal_clean": [True, False],
        "clean": {name: measured(0.75, 0.875) for name in under if name != "flip_rate"},
        "conditions": {
            "pgd@2/255": under,
            "pgd@4/255": under,
            "pgd:answers@4/255": lighter,
            "noise@4/255": {"findings.f1": measured(0.75, 0.75, drop=drop)},
            "worst@4/255": {"findings.f1": measured(0.125, 0.125, drop=drop)},
        },
        "flips": {
            "pgd@4/255": [{"of": "reports", "only_a": 13, "only_b": 24, "both": 7, "n": 99, "p_holm": 0.5}, None]
        },
        "transfer": {"pgd@4/255": ratios, "noise@4/255": ratios},
        **changed,
    }


def audits(**changed: Any) -> dict[str, Any]:
    reported = {
        "seeds": list(SEEDS),
        "n": 300,
        "patients": 244,
        "threat": "Each pixel by at most <4/255>.",
        "warnings": [],
    }
    return {**reported, "variants": {"dpo": variant(), "<i>kto": variant()}, **changed}


def page(folder: Path, found: dict[str, Any]) -> str:
    with Run.open(folder / "run", {"start": "builtin:reporter"}, seed=7) as run:
        run.write("robustness_seeds.json", found)
    return page_of(folder / "run")


def drawn(drawing: Drawing | None) -> ElementTree.Element:
    """A drawing, read as XML."""
    assert drawing is not None
    return ElementTree.fromstring(svg_file(drawing))


def test_clean_images_attacks_and_seeds_stand_in_one_row(tmp_path: Path) -> None:
    shown = page(tmp_path, audits())
    row = shown[shown.index("<b>dpo</b>") :].split("</tr>")[0]
    assert "0.750 → 0.875" in row and "✓ ✗" in row and row.count("0.500 → 0.375") == 2
    # Drops of -0.25 and -0.125: their mean with its interval, and the one seed in which it is clear.
    assert "<b>-0.188</b>" in row and "-0.250 to -0.125" in row and "clear in 1 of 2 seeds" in row
    assert "pgd@2/255: findings F1" in shown and "pgd@4/255: findings F1" in shown
    assert "pgd:answers@4/255: accuracy, closed questions" in shown  # each quantity under the attack that harms it most


def test_every_seed_flip_and_transfer_is_folded_away(tmp_path: Path) -> None:
    shown = page(tmp_path, audits())
    assert "<b>-0.250</b> <span class=later>-0.375 to -0.125</span><br>-0.125 <span class=later>" in shown
    assert "13 / 24 / 7, of 99; p 0.500<br>–" in shown
    moved = shown[shown.index("Transfer between") :].split("</details>")[0]
    assert "0.781" in moved and "0.500" in moved and "noise@4/255" not in moved
    assert "worst@4/255" in shown[shown.index("All conditions, metrics and seeds") :]


def test_a_blind_model_comes_first_and_alike_lines_are_counted(tmp_path: Path) -> None:
    lines = [
        "hf:runs/s/seed1/train/dpo/checkpoint: pgd@4/255 reaches a lower loss (1.25) than pgd@2/255 (1.5).",
        "hf:runs/s/seed2/train/dpo/checkpoint: pgd@4/255 reaches a lower loss (0.25) than pgd@2/255 (0.5).",
        "hf:runs/s/seed2/train/dpo/checkpoint: pgd@8/255 reaches a lower loss (0.25) than pgd@2/255 (0.5).",
        BLIND.format("hf:runs/start/checkpoint", 0.013),
        BLIND.format("hf:runs/s/seed1/train/dpo/checkpoint", 0.014),
        BLIND.format("hf:runs/s/seed2/train/dpo/checkpoint", 0.015),
        BLIND.format("hf:runs/s/seed2/train/<i>kto/checkpoint", 0.016),
    ]
    shown = page(tmp_path, audits(warnings=lines))
    # Of the one start the file may name a line once for several audits; an aligned model has one audit.
    assert "⚠ Image ignored: the start does not use the image, in at least 1 of 4 audits" in shown
    assert "⚠ Image ignored: aligned models do not use the image, in 3 of 4 audits" in shown
    assert "seed1/train/dpo/checkpoint" in shown and "all 3 lines" in shown
    assert "Warning, in 2 of 4 audits.</b> hf:runs/s/seed1" in shown
    assert "Warning, in 1 of 4 audits.</b> hf:runs/s/seed2" in shown  # another radius is another warning
    assert (
        shown.index("Threat model") < shown.index("⚠ Image ignored") < shown.index("⚠ Warning") < shown.index("<table")
    )


def test_a_line_that_the_file_repeats_is_counted_exactly(tmp_path: Path) -> None:
    lines = [BLIND.format("hf:runs/start/checkpoint", 0.013)] * 3
    assert "does not use the image, in 3 of 4 audits" in page(tmp_path, audits(warnings=lines))


def test_what_comes_from_the_file_stays_text(tmp_path: Path) -> None:
    shown = page(tmp_path, audits(warnings=["<script>alert(1)</script>"]))
    assert "<script>" not in shown and "<i>kto" not in shown and "<b>of</b>" not in shown
    assert (
        "at most &lt;4/255&gt;" in shown and len(drawn(drops_forest(audits()))) and len(drawn(answer_curves(audits())))
    )


def test_absent_parts_are_left_out(tmp_path: Path) -> None:
    bare = {"conditions": {"pgd@4/255": {"findings.f1": {"start": over(0.5)}}}}
    shown = page(tmp_path, {"variants": {"dpo": bare}})
    assert "Alignment under attack" in shown and "<table" not in shown and "Threat model" not in shown
    empty = {"mean": None, "low": None, "high": None, "values": [None, None], "seeds": 0}
    unasked = {"closed_questions.accuracy": {"start": empty, "aligned": empty}}
    assert not has_answers(audits(variants={"dpo": variant(clean=unasked)})) and has_answers(audits())
    assert answer_curves({}) is drops_forest({}) is None and strongest({}, "findings.f1") is None
    assert "Alignment under attack" not in page(tmp_path / "none", {"variants": {}})


def test_a_word_for_a_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"robustness_seeds.json: 'variants.dpo.clean.x.start.mean' is 'much'"):
        page(tmp_path, {"variants": {"dpo": {"clean": {"x": {"start": {"mean": "much"}}}}}})


def test_curves_pass_through_the_means_and_dots_through_the_seeds() -> None:
    one = audits(variants={"dpo": variant()})
    made = drawn(answer_curves(one, ["findings.f1"], width=264 + 2 * 8, height=180))
    # Left edge 50, right edge 280 - 14 = 266, of which the dots take 2.25 + 6 at each end; 1 is at 34 and 0 at 134.
    lines = {line.get("stroke"): line.get("points") for line in made.iter(f"{SVG}polyline")}
    assert lines["#1d2126"] == "58.2,59.0 158.0,84.0 257.8,84.0"  # the start: 0.75 clean, then 0.5 and 0.5
    assert lines["#0072b2"] == "58.2,46.5 158.0,96.5 257.8,96.5"  # aligned: 0.875, then 0.375
    assert lines["#7d848c"] == "58.2,59.0 257.8,59.0"  # noise on the start
    dots = [dot for dot in made.iter(f"{SVG}circle") if dot.get("fill-opacity")]
    assert len(dots) == 2 * 3 * len(SEEDS)  # two lines, three radii; the control has none
    assert {dot.get("cx") for dot in dots if dot.get("fill") == "#1d2126"} == {"56.0", "155.8", "255.5"}


def test_a_figure_of_flips_starts_at_nought_and_panels_share_one_legend() -> None:
    made = drawn(answer_curves(audits(), ["flip_rate", "findings.f1", "report.loss"]))
    words = [one.text for one in made.iter(f"{SVG}text")]
    assert words.count("start") == 1 and "reports flipped" in words and "report.loss" not in words
    assert "ε of pgd, in 255ths (0: clean)" in words
    first = next(made.iter(f"{SVG}polyline")).get("points") or ""
    assert first.split()[0].endswith(",304.0")  # 350 high, less 46 for the axis


def test_the_forest_has_a_dot_a_radius_a_line_a_seed_and_zero_in_the_middle() -> None:
    made = drawn(drops_forest(audits()))
    words = [one.text for one in made.iter(f"{SVG}text")]
    assert words.count("dpo") == words.count("<i>kto") == 1 and words.count("ε 4/255") == 2
    assert "-0.188 (-0.250 to -0.125)" in words and "1 of 2" in words
    assert "findings F1 under pgd: difference of drops, aligned minus start" in words
    circles = list(made.iter(f"{SVG}circle"))
    means = [one for one in circles if one.get("r") == "4.6"]
    assert len(means) == 4 and len(circles) == 4 + 4 * len(SEEDS)
    # From 176 to 624, zero at 400; the furthest end is -0.375, and 5 % beyond it is the edge: 224 pixels are 0.39375.
    assert means[0].get("cx") == f"{400 - 224 * 0.1875 / 0.39375:.1f}"
    assert min(float(one.get("font-size") or 0) for one in made.iter(f"{SVG}text")) >= 11
    flips = drops_forest(audits(), "flip_rate")
    assert flips is not None and flips.heading == "reports flipped under pgd: difference, aligned minus start"


def dose(name: str, drift: float | None, value: float, condition: str = "pgd@2/255") -> dict[str, Any]:
    effect = {"value": value, "low_95": value - 0.1, "high_95": value + 0.1, "by_seed": [value - 0.01, value + 0.01]}
    row = {"name": name, "control": drift is None, "metric": "findings.f1", "condition": condition, "drift": drift}
    return {**row, **effect, "smallest_margin": abs(value) + 0.1, "p": 0.25, "patients": 40}


def dosed(**judged: Any) -> dict[str, Any]:
    sentence = "findings.f1: tuning changes the drop by less than <0.123>."
    verdict = {"metric": "findings.f1", "bound": 0.123, "established": False, "sensitive": True, "sentence": sentence}
    rows = [dose("dpo", 0.5, 0.02), dose("<i>kto", 0.25, -0.01), dose("hardened", None, 0.3)]
    response = {"margin": 0.05, "alpha": 0.05, "rows": rows, "metrics": [{**verdict, **judged}]}
    drift = {"dpo": variant(drift=over(0.45, 0.55)), "<i>kto": variant(drift=over(0.2, 0.3))}
    return audits(variants=drift, controls={"hardened": {"changes": "Made <robust>."}}, dose_response=response)


def test_the_bound_and_the_doses_stand_first_and_in_order_of_drift(tmp_path: Path) -> None:
    shown = page(tmp_path, dosed())
    assert "less than &lt;0.123&gt;" in shown and "Equivalence within the margin is not shown." in shown
    table = shown[shown.index("change of the drop over the drift") :]
    assert table.index("&lt;i&gt;kto") < table.index("<b>dpo</b>") < table.index("<b>hardened</b>")
    assert "Made &lt;robust&gt;." in shown and "+0.020" in table and "0.400" in table


def test_a_study_without_sensitivity_is_marked(tmp_path: Path) -> None:
    found = page(tmp_path, dosed(sensitive=False))
    assert "<p class=alarm><b>Equivalence" in found
    assert "<p class=alarm><b>Equivalence" not in page(tmp_path / "two", dosed())


def test_the_curve_runs_over_the_drift_and_controls_stand_at_zero() -> None:
    words = ElementTree.tostring(drawn(dose_curve(dosed())), encoding="unicode")
    assert "pgd@2/255, dpo: 0.020 (-0.080 to 0.120)" in words
    assert "pgd@2/255, positive control, hardened: 0.300" in words
    assert "nats per token" in words and "0.25" in words and "0.5" in words
    assert dose_curve(audits()) is None


def test_calibration_of_every_condition_is_shown(tmp_path: Path) -> None:
    sides = {"closed_questions.ece_fixed": {"start": over(0.125, 0.125), "aligned": over(0.25, 0.25)}}
    either = {"closed_questions.accuracy": {"start": over(0.5, 0.5), "aligned": over(0.25, 0.25)}}
    fitted = {"start": over(1.5, 1.5), "aligned": over(2.5, 2.5)}
    row = variant(calibration={"pgd@2/255": sides}, temperature=fitted, blanks_negative={"clean": either})
    shown = page(tmp_path, audits(variants={"dpo": row}))
    assert "0.125 → 0.250" in shown and "1.500 → 2.500" in shown and "0.500 → 0.250" in shown


def test_warnings_are_counted_among_the_audits_or_the_models_of_all_seeds() -> None:
    """One audit per seed: two seeds, two variants and a control make six models."""
    few = "There are few patients (12); intervals from fewer than 30 are rough."
    made = BLIND.format("hf:runs/seed1/harden/hardened/checkpoint", "0.100 [0.000, 0.200]")
    found = alarms({**dosed(), "warnings": [few, few, made]})
    assert [alarm.count for alarm in found] == ["in 1 of 6 models", "in 2 of 2 audits"]
