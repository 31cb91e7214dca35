"""Cells of other people's tables as values: ages, sexes, labels; what cannot be one is None, with a remark to count."""

from __future__ import annotations

import re
from typing import NamedTuple

from cxrlab.core.errors import DataError, shown

OLDEST = 120
AGE_OUT_OF_RANGE = f"age outside 0 to {OLDEST} years, left out"
AGE_UNREADABLE = "age not readable, left out"
SEX_UNREADABLE = "sex neither F nor M, left out"

# "054Y" is how DICOM writes an age; months, weeks and days stand for parts of a year.
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([YMWD]?)(?:ears?)?\+?", re.IGNORECASE)
_YEARS = {"Y": 1.0, "": 1.0, "M": 1 / 12, "W": 7 / 365.25, "D": 1 / 365.25}
_SEXES = {"f": "F", "female": "F", "w": "F", "woman": "F", "m": "M", "male": "M", "man": "M"}
# Python refuses to read whole numbers of thousands of digits; no id or count needs half a hundred.
_MOST_DIGITS = 50
_NO_SEX = ("", "o", "unknown", "other", "none", "nan", "u", "n/a")


class Age(NamedTuple):
    """An age in years, or None; and the remark where one was given that is none."""

    years: float | None
    remark: str | None = None


class Sex(NamedTuple):
    """F, M or None; and the remark where something else was given."""

    letter: str | None
    remark: str | None = None


def age_of(cell: str) -> Age:
    """An age as tables write it: "71", "71.0", "054Y", "6M" (months), "90+"; empty and 0 with no unit are as they are.

    Whole years come out as whole numbers.
    """
    if not cell or cell.lower() in ("nan", "none"):
        return Age(None)
    match = _AGE.fullmatch(cell)
    if match is None:
        return Age(None, AGE_UNREADABLE)
    years = float(match[1]) * _YEARS[match[2].upper()]
    if years > OLDEST:
        return Age(None, AGE_OUT_OF_RANGE)
    return Age(int(years) if years == int(years) else round(years, 3))


def sex_of(cell: str) -> Sex:
    """A sex as tables write it ("F", "Female"); "O", "Unknown" and nothing are unknown without a remark."""
    word = cell.strip().lower()
    if word in _SEXES:
        return Sex(_SEXES[word])
    return Sex(None, None if word in _NO_SEX else SEX_UNREADABLE)


def label_of(cell: str, place: str) -> int | None:
    """A label as tables write it: 1, 0, -1 as whole numbers or decimals; an empty cell is None (unknown).

    Args:
        cell: The text of the cell.
        place: File, line and column, for the error.
    """
    if not cell or cell.lower() == "nan":
        return None
    try:
        value = float(cell)
    except ValueError:
        value = 2.0
    if value not in (1.0, 0.0, -1.0):
        raise DataError(f"{place} is {shown(cell)}; a label is 1, 0, -1 or empty.")
    return int(value)


def digits(cell: str, place: str) -> str:
    """The digits of a whole number as a table writes it: an id, a count; other programs may have put ".0" behind it.

    Args:
        cell: The text of the cell.
        place: File, line and column, for the error.
    """
    number = cell.removesuffix(".0")
    if not (number.isascii() and number.isdecimal() and len(number) <= _MOST_DIGITS):
        raise DataError(f"{place} is {shown(cell)}, not a whole number; correct it or fetch the file again.")
    return number


def remarks_of(*remarks: str | None) -> tuple[str, ...]:
    """Those that are not None, in order."""
    return tuple(remark for remark in remarks if remark is not None)
