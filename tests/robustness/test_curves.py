"""Curves over the size of an attack."""

from __future__ import annotations

import pytest
from small_evidence import audit, image, lines, truth

from cxrlab.robustness.condition_results import curves

STUDIES = [truth("s1", e=1), truth("s2", e=1)]


def test_points_rise_from_the_clean_images() -> None:
    """Both right when clean, one at 2/255, none at 4/255; the file names the larger size first."""
    made = audit(
        STUDIES,
        lines("a", "clean", {"s1": image(e=0.9), "s2": image(e=0.9)}),
        lines("a", "pgd@4/255", {"s1": image(e=0.1), "s2": image(e=0.1)}),
        lines("a", "pgd@2/255", {"s1": image(e=0.1), "s2": image(e=0.9)}),
        lines("a", "blur@2", {"s1": image(e=0.9), "s2": image(e=0.9)}),
    )
    found = curves(made.clean("a").image, [made.outcome(table) for table in made.tables("a").values()])
    assert set(found["closed_questions.accuracy"]) == {"pgd", "worst"}
    points = found["closed_questions.accuracy"]["pgd"]
    assert [point[:2] for point in points] == [[0.0, 1.0], [pytest.approx(2 / 255), 0.5], [pytest.approx(4 / 255), 0.0]]
    assert points[1][2] <= 0.5 <= points[1][3]
    # Flips have no clean value; reports were not written.
    assert [point[1] for point in found["closed_questions.flips"]["pgd"]] == [0.5, 1.0]
    assert "findings.f1" not in found
