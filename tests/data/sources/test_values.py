"""Cells as values: what cannot be one is unknown, with a remark that can be counted."""

from __future__ import annotations

import pytest
from tables import every_row

from cxrlab.core.errors import DataError
from cxrlab.data.source_tables import (
    AGE_OUT_OF_RANGE,
    AGE_UNREADABLE,
    SEX_UNREADABLE,
    parse_age,
    parse_digits,
    parse_label,
    parse_sex,
    present_remarks,
)


@every_row(
    ("cell", "years", "remark"),
    [
        ("71", 71, None),
        ("71.0", 71, None),
        ("0", 0, None),
        ("054Y", 54, None),
        ("006M", 0.5, None),
        ("90+", 90, None),
        ("", None, None),
        ("nan", None, None),
        ("411", None, AGE_OUT_OF_RANGE),
        ("120", 120, None),
        ("-3", None, AGE_UNREADABLE),
        ("adult", None, AGE_UNREADABLE),
    ],
)
def test_ages(cell: str, years: float | None, remark: str | None) -> None:
    assert parse_age(cell) == (years, remark)


def test_a_week_and_a_day_are_parts_of_a_year() -> None:
    assert parse_age("002W").years == pytest.approx(14 / 365.25, abs=1e-3)
    assert parse_age("005D").years == pytest.approx(5 / 365.25, abs=1e-3)


@pytest.mark.parametrize(
    ("cell", "letter", "remark"),
    [("F", "F", None), ("Male", "M", None), ("Unknown", None, None), ("", None, None), ("x", None, SEX_UNREADABLE)],
)
def test_sexes(cell: str, letter: str | None, remark: str | None) -> None:
    assert parse_sex(cell) == (letter, remark)


@pytest.mark.parametrize(("cell", "value"), [("1.0", 1), ("0", 0), ("-1.0", -1), ("", None), ("nan", None)])
def test_labels(cell: str, value: int | None) -> None:
    assert parse_label(cell, "here") == value


@pytest.mark.parametrize("cell", ["2", "yes", "0.5", "inf"])
def test_a_label_of_another_kind_is_a_sentence_with_its_place(cell: str) -> None:
    with pytest.raises(DataError, match="train.csv:7, Edema is"):
        parse_label(cell, "train.csv:7, Edema")


def test_only_what_was_remarked_is_kept() -> None:
    assert present_remarks(None, "a", None, "b") == ("a", "b")


def test_digits_of_whole_numbers() -> None:
    """Other programs write 12.0; what Python would refuse to read as a number is no number of a table either."""
    assert parse_digits("12.0", "x") == "12" and parse_digits("0012", "x") == "0012"
    for cell in ("", "1.5", "-1", "１２", "nan", "9" * 5000):
        with pytest.raises(DataError, match=r"t\.csv:2: 'n' is .{1,90}, not a whole number"):
            parse_digits(cell, "t.csv:2: 'n'")
