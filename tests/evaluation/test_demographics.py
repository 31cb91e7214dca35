from __future__ import annotations

import math

import pytest
from tables import every_row

from cxrlab.core.errors import DataError
from cxrlab.evaluation.report_files import parse_age, parse_sex, parse_view


@every_row(
    ("given", "years"),
    [
        ("25", 25.0),
        (71, 71.0),
        (72.5, 72.5),
        ("072Y", 72.0),
        ("019M", 19 / 12),
        ("003W", 21 / 365.25),
        ("001D", 1 / 365.25),
        ("25 years", 25.0),
        ("6 months", 0.5),
        (">89", 89.0),
        ("90+", 90.0),
        (None, None),
        ("", None),
        ("unknown", None),
        (math.nan, None),
    ],
)
def test_an_age_as_files_write_it(given: object, years: float | None) -> None:
    """DICOM counts in Y, M, W and D; de-identified files group the oldest."""
    assert parse_age(given, "row 1") == (None if years is None else pytest.approx(years))


@pytest.mark.parametrize("given", ["old", "-4", True, "12 apples", [40]])
def test_what_is_no_age_is_refused_with_its_place(given: object) -> None:
    with pytest.raises(DataError, match="row 3: the age is .*019M"):
        parse_age(given, "row 3")


def test_sex_and_view() -> None:
    """Whatever is not F or M, or not a view of ours, makes no slice or the slice `other`."""
    assert [parse_sex(word) for word in ("F", "female", "M", "Male", "O", None, 3)] == ["F", "F", "M", "M"] + [None] * 3
    assert [parse_view(word) for word in ("pa", "AP", "LATERAL", "LL", "oblique", "", None)] == [
        "PA", "AP", "lateral", "lateral", "other", None, None,
    ]  # fmt: skip
