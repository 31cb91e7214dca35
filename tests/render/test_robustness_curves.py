"""Figures of a robustness audit."""

from __future__ import annotations

import math
from xml.etree import ElementTree

from audits import audit, model

from cxrlab.render.robustness_curves import figure_svg

SVG = "{http://www.w3.org/2000/svg}"


def test_a_figure_is_xml_and_its_points_land_where_they_should() -> None:
    drawn = ElementTree.fromstring(figure_svg(audit(), "asked.accuracy", width=264, height=180))
    assert drawn.tag == f"{SVG}svg" and drawn[0].get("fill") == "#fff"
    # Left edge 50, right edge 264 - 14 = 250; top 34 is 1, base 180 - 46 = 134 is 0: 100 pixels high, 200 wide.
    lines = {line.get("stroke-dasharray"): line.get("points") for line in drawn.iter(f"{SVG}polyline")}
    assert lines[None] == "50.0,46.5 250.0,84.0"  # 0.875 on the clean image, 0.5 at 4/255
    assert lines["5 4"] == "50.0,46.5 250.0,46.5"  # the control, whose clean image is taken from the model
    shades = [one.get("points") for one in drawn.iter(f"{SVG}polygon") if one.get("fill-opacity")]
    assert "50.0,34.0 250.0,59.0 250.0,109.0 50.0,59.0" in shades
    words = [one.text for one in drawn.iter(f"{SVG}text")]
    assert {"accuracy, asked (lower is worse)", "pgd", "noise (control)", "0", "4", "0.2", "1"} <= set(words)


def test_a_figure_of_several_models_has_a_colour_each_and_one_control() -> None:
    two = {"one": model(), "two": model("b")}
    drawn = ElementTree.fromstring(figure_svg(audit(models=two), "asked.accuracy"))
    colours = [one.get("stroke") for one in drawn.iter(f"{SVG}polyline")]
    assert len(colours) == 4 and len(set(colours)) == 3  # two models, and the grey of both controls
    words = [one.text for one in drawn.iter(f"{SVG}text")]
    assert words.count("noise (control)") == 1 and {"a: one", "b: two"} <= set(words)
    assert figure_svg(audit(models=two), "asked.accuracy", models=["two"]).count("<polyline") == 2


def test_a_point_without_a_number_is_left_out_and_a_metric_without_points_is_not_drawn() -> None:
    line = [[4 / 255, 0.5, None, math.nan], [2 / 255, math.nan, 0.1, 0.2], [8 / 255, None], []]
    found = audit(models={"m": model(clean={}, curves={"report.loss": {"pgd": line}})})
    drawn = ElementTree.fromstring(figure_svg(found, "report.loss"))
    assert len(list(drawn.iter(f"{SVG}circle"))) == 2  # the point, and the sample in the legend
    assert figure_svg(found, "asked.accuracy") == "" and figure_svg({}, "asked.accuracy") == ""
