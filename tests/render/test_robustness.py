"""A robustness audit on a page, and its figures."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from pages import page_of
from robustness_results import audit, comparison, condition, label_row, measure, model

from cxrlab.core.errors import DataError
from cxrlab.core.image_codec import encode_png
from cxrlab.core.runs import Run
from cxrlab.render.metric_titles import middle_radius, ordered, radius
from cxrlab.render.page import svg_file
from cxrlab.render.robustness import MOST_TRIPTYCHS, radius_curve, strongest_attack

SVG = "{http://www.w3.org/2000/svg}"
NASTY = "<script>alert(1)</script>"


def page(folder: Path, found: dict[str, Any], images: tuple[dict[str, Any], ...] = ()) -> str:
    with Run.open(folder / "run", {"model": "builtin:reporter"}, seed=7) as run:
        run.write("robustness.json", found)
        for name in ("clean", "x10", "pgd"):
            run.write(f"triptychs/s1_{name}.png", encode_png(np.full((4, 4), 128, np.uint8)))
        for image in images:
            run.append("triptychs.jsonl", image)
    return page_of(folder / "run", allow_unfinished=not found)


def image(**changed: Any) -> dict[str, Any]:
    return {
        "id": "s1",
        "model": "a",
        "condition": "pgd@2/255",
        "clean": "triptychs/s1_clean.png",
        "difference": "triptychs/s1_x10.png",
        "perturbed": "triptychs/s1_pgd.png",
        "reference": "Mild edema.",
        "before": "Mild edema.",
        "after": f"Left nodule. {NASTY}",
        "spans": {"before": [[0, 10, "lost"]], "after": [[0, 11, "new"]]},
        "label_flips": [{"label": "edema", "before": 0.91, "after": 0.12, "truth": 1}],
        "eps": "2/255",
        "linf": 2 / 255,
        **changed,
    }


def test_the_headline_shows_original_perturbed_and_difference_by_label(tmp_path: Path) -> None:
    shown = page(tmp_path, audit())
    table = shown[shown.index("accuracy of answers") : shown.index("Over the radius")]
    row = re.search(r"<tr><td>edema</td>.*?</tr>", table)
    assert row is not None
    for wanted in ("0.875", "0.81 to 0.94", "0.375", "▼&nbsp;-0.500", "-0.56 to -0.44", "0.812", ">40<", ">13<"):
        assert wanted in row[0]
    assert table.index("<b>all</b>") < table.index("<td>edema</td>")  # all labels together come first
    assert "<b>pgd@2/255</b>: the strongest attack with the model" in shown


def test_the_threat_comes_first_then_what_takes_the_ground_from_every_figure(tmp_path: Path) -> None:
    blind = {"a": {"verdict": "ignores_image", "sentence": "It scores the same on noise."}}
    warnings = ["Few patients.", "builtin:reporter does not use it. It scores the same on noise."]
    shown = page(tmp_path, audit(controls={"image_dependence": blind}, warnings=warnings))
    order = ["reads gradients", "⚠ Image ignored: builtin:reporter", "⚠ Warning.</b> Few patients", "by label"]
    places = [shown.index(words) for words in order]
    assert places == sorted(places)
    assert shown.count("It scores the same on noise.") == 1 and "✓ uses" not in shown
    assert "✓ uses the image" in page(tmp_path / "other", audit())


def test_many_warnings_are_folded(tmp_path: Path) -> None:
    assert "4 more warnings" in page(tmp_path, audit(warnings=[f"Doubt {number}." for number in range(10)]))


def test_every_condition_stands_with_float_and_eight_bits(tmp_path: Path) -> None:
    shown = page(tmp_path, audit())
    row = re.search(r"<tr><td>fgsm@2/255</td>.*?</tr>", shown[shown.index("Every condition") :])
    assert row is not None and "0.625<br><span class=small>0.688" in row[0] and "0.750" in row[0]
    assert "worst case at 2/255" in shown and "0.719" in shown  # 0.71875 of the studies are harmed


def test_an_image_beyond_its_radius_is_reported(tmp_path: Path) -> None:
    far = {"linf": {"mean": 2 / 255, "max": 3 / 255}}
    found = audit(models={"m": model(attacks={"pgd@2/255": condition(0.5, realised=far)})})
    assert "beyond its radius" not in page(tmp_path / "kept", audit(models={"m": model(attacks={})}))
    shown = page(tmp_path, found)
    assert (
        "pgd@2/255<br><span class=bad><b>⚠ beyond its radius</b>" in shown and ">3.00<" in shown and ">25 %<" in shown
    )


def test_a_corruption_is_the_darker_the_more_is_lost(tmp_path: Path) -> None:
    shown = page(tmp_path, audit())
    # From 0.875 to 0.65625 a quarter is lost, half of the way to the darkest shade of 0.75.
    assert 'rgba(200,80,10,0.38)">0.656' in shown and 'rgba(200,80,10,0.00)">0.875' in shown


def test_models_are_held_against_each_other_with_corrected_tests(tmp_path: Path) -> None:
    two = {"builtin:reporter": model(), "builtin:tuned": model("b")}
    shown = page(tmp_path, audit(models=two, comparison={"a:b": comparison()}))
    part = shown[shown.index("Comparison of models") :]
    for wanted in ("✓ On clean images the two are equal.", "40 studies of 31 patients", "0.250", "0.094", "&lt; 0.001"):
        assert wanted in part
    # The interval of the difference leaves out zero, but only the drop survives the correction.
    assert "▲&nbsp;+0.188" in part and "▲&nbsp;+0.125" not in part and "+0.125" in part
    assert "harm × 0.44" in part and ">17<" in part


def test_reports_are_shown_with_images_marks_and_flips(tmp_path: Path) -> None:
    shown = page(tmp_path, audit(), (image(),))
    assert shown.count("<figure><img") == 3 and "mid grey: unchanged" in shown
    assert "<mark class=lost>Mild edema</mark><sup>− lost</sup>." in shown
    assert "<mark class=new>Left nodule</mark><sup>+ new</sup>." in shown
    assert "P(present) 0.91 → 0.12, truth: present" in shown and "✗ now wrong" in shown
    assert "largest change of a pixel 2.00/255" in shown


def test_whatever_a_file_says_is_shown_and_never_obeyed(tmp_path: Path) -> None:
    rows = {NASTY: label_row()}
    bad = model(NASTY, labels={"pgd@2/255": rows}, corruptions={f"{NASTY}@1": condition(0.5)})
    bad["attacks"][f"{NASTY}@2/255"] = condition(0.5, **{NASTY: measure(0.5)})
    bad["curves"]["closed_questions.accuracy"][NASTY] = [[0.1, 0.5, 0.4, 0.6]]
    reported = audit(
        models={NASTY: bad},
        threat=NASTY,
        warnings=[NASTY],
        comparison={f"{NASTY}:b": {**comparison(), "sentence": NASTY}},
        controls={"image_dependence": {NASTY: {"verdict": "ignores_image", "sentence": NASTY}}},
        protocol={NASTY: NASTY},
    )
    words = image(id=NASTY, model=NASTY, condition=NASTY, label_flips=[{"label": NASTY}], before=NASTY, reference=NASTY)
    shown = page(tmp_path, reported, (words,))
    assert "<script" not in shown and shown.count("&lt;script&gt;") > 15


def test_absent_parts_leave_the_rest_and_a_dash(tmp_path: Path) -> None:
    lone = model(attacks={"pgd@2/255": {"closed_questions.accuracy": measure(None), "flip_rate": None}}, clean={})
    lone["labels"] = {"pgd@2/255": {"edema": {**label_row(), "positives": None}}}
    shown = page(tmp_path, {"models": {"m": lone}}, (image(clean=None, spans=None, label_flips=None, after=None),))
    assert "<td class=number>–</td>" in shown and "nan" not in shown and "None" not in shown
    assert "Threat" not in shown and "Comparison of models" not in shown
    for number, empty in enumerate(({}, {"models": {}}, {"models": {"m": {}}}, {"models": {"m": {"key": "a"}}})):
        assert "<h2>Robustness" not in page(tmp_path / str(number), empty)


def test_a_word_for_a_curve_is_refused_with_its_place(tmp_path: Path) -> None:
    wrong = model(curves={"closed_questions.accuracy": {"pgd": [["x"]]}})
    with pytest.raises(DataError, match=r"models\.m\.curves\.closed_questions\.accuracy\.pgd\[0\]\[0\]"):
        page(tmp_path, {"models": {"m": wrong}})


def test_twelve_models_keep_to_a_page(tmp_path: Path) -> None:
    keys = "abcdefghijkl"
    few = len(page(tmp_path / "few", audit(models={f"m{key}": model(key) for key in keys[:3]})))
    shown = page(tmp_path, audit(models={f"m{key}": model(key) for key in keys}))
    assert "11 other models" in shown and "6 of 12 models drawn" in shown and len(shown) < 2.5 * few


def test_more_images_than_a_page_carries_are_counted(tmp_path: Path) -> None:
    shown = page(tmp_path, audit(), tuple(image(id=f"s{number}") for number in range(MOST_TRIPTYCHS + 2)))
    assert shown.count("<article class=marked>") == MOST_TRIPTYCHS and "2 more in triptychs.jsonl" in shown


def test_the_strongest_white_box_attack_at_the_middle_radius_is_the_strongest_attack() -> None:
    found = model()
    assert strongest_attack(found) == "pgd@2/255"  # noise harms more here, and is no attack
    assert strongest_attack({"attacks": {"noise@2/255": condition(0.5)}}) == "noise@2/255"
    assert strongest_attack({}) is None
    assert middle_radius(["x@1/255", "x@0.5", "y@1/255", "clean"]) == 0.5 and middle_radius(["clean"]) is None


def test_conditions_of_one_attack_stand_together_with_rising_radii() -> None:
    reported = ["noise@1/255", "pgd@10/255", "fgsm@2/255", "pgd@2/255", "fgsm@0.001"]
    assert ordered(reported) == ["pgd@2/255", "pgd@10/255", "fgsm@0.001", "fgsm@2/255", "noise@1/255"]
    assert radius("2/255") == 2 / 255 and radius("0.01") == 0.01 and radius("x") is radius("1/0") is None


def test_certificates_of_a_smoothed_model_stand_with_their_intervals(tmp_path: Path) -> None:
    promised = {
        "right_within": {"0": measure(0.75), "0.1": measure(0.5)},
        "abstained": measure(0.125),
        "sentence": NASTY,
    }
    shown = page(tmp_path, audit(models={"smoothed:0.1:hf:x": model(certified=promised)}))
    table = shown[shown.index("Certified answers") :]
    table = table[: table.index("</table>")]
    for wanted in ("0.750", "0.688 to 0.812", "0.500", "no answer", "0.125"):
        assert wanted in table
    assert NASTY not in shown
    assert "Certified answers" not in page(tmp_path / "plain", audit())


def test_a_page_names_no_address_and_a_drawing_of_its_own_does(tmp_path: Path) -> None:
    """Inside a page a drawing needs no namespace; as a file it does."""
    shown = page(tmp_path, audit())
    assert "<svg" in shown and "http://" not in shown
    drawing = radius_curve(audit(), "closed_questions.accuracy")
    assert drawing is not None and 'xmlns="http://www.w3.org/2000/svg"' in svg_file(drawing)


# Curves -------------------------------------------------------------------------------------------------------------


def drawn(found: dict[str, Any], metric: str = "closed_questions.accuracy", **settings: Any) -> ElementTree.Element:
    """The drawing of a metric, read as XML."""
    drawing = radius_curve(found, metric, **settings)
    assert drawing is not None
    return ElementTree.fromstring(svg_file(drawing))


def test_a_figure_is_xml_and_its_points_land_where_they_should() -> None:
    curve = drawn(audit(), size=(264, 180))
    assert curve.tag == f"{SVG}svg" and curve[0].get("fill") == "#fff"
    # Left edge 50, right edge 264 - 14 = 250; top 34 is 1, base 180 - 46 = 134 is 0: 100 pixels high, 200 wide.
    lines = {line.get("stroke-dasharray"): line.get("points") for line in curve.iter(f"{SVG}polyline")}
    assert lines[None] == "50.0,46.5 250.0,84.0"  # 0.875 on the clean image, 0.5 at 4/255
    assert lines["5 4"] == "50.0,46.5 250.0,46.5"  # the control, whose clean image is taken from the model
    shades = [one.get("points") for one in curve.iter(f"{SVG}polygon") if one.get("fill-opacity")]
    assert "50.0,34.0 250.0,59.0 250.0,109.0 50.0,59.0" in shades
    words = [one.text for one in curve.iter(f"{SVG}text")]
    assert {"accuracy, closed questions (lower is worse)", "pgd", "noise (control)", "0", "4", "0.2", "1"} <= set(words)


def test_a_figure_of_several_models_has_a_colour_each_and_one_control() -> None:
    two = {"one": model(), "two": model("b")}
    curve = drawn(audit(models=two))
    colours = [one.get("stroke") for one in curve.iter(f"{SVG}polyline")]
    assert len(colours) == 4 and len(set(colours)) == 3  # two models, and the grey of both controls
    words = [one.text for one in curve.iter(f"{SVG}text")]
    assert words.count("noise (control)") == 1 and {"a: one", "b: two"} <= set(words)
    assert len(list(drawn(audit(models=two), models=["two"]).iter(f"{SVG}polyline"))) == 2


def test_a_point_without_a_number_is_left_out_and_a_metric_without_points_is_not_drawn() -> None:
    line = [[4 / 255, 0.5, None, math.nan], [2 / 255, math.nan, 0.1, 0.2], [8 / 255, None], []]
    found = audit(models={"m": model(clean={}, curves={"report.loss": {"pgd": line}})})
    curve = drawn(found, "report.loss")
    assert len(list(curve.iter(f"{SVG}circle"))) == 2  # the point, and the sample in the legend
    assert (
        radius_curve(found, "closed_questions.accuracy") is None
        and radius_curve({}, "closed_questions.accuracy") is None
    )
