"""Age, sex and view as other people's files write them."""

from __future__ import annotations

import re
from typing import Any

from cxrlab.core.errors import DataError, shown
from cxrlab.core.vocabulary import View

# `25`, `72.5`, DICOM's `072Y`, `019M`, `001D`, a grouped `90+` or `>89`.
_AGE = re.compile(r"[<>]?\s*(\d+(?:\.\d+)?)\s*([a-z]*)\.?\s*(?:old)?\s*\+?", re.IGNORECASE)
_YEARS = {"": 1.0, "y": 1.0, "m": 1 / 12, "w": 7 / 365.25, "d": 1 / 365.25}
_SEXES = {"f": "F", "female": "F", "w": "F", "woman": "F", "m": "M", "male": "M", "man": "M"}
_NOTHING = ("", "nan", "none", "null", "unknown", "n/a", "na", "?", "-", "___")


def age_years(value: Any, place: str) -> float | None:
    """An age in years; None where the source gives none; what cannot be an age is a `DataError`.

    >>> age_years("019M", "row 1")
    1.5833333333333333
    """
    if value is None or value != value or (isinstance(value, str) and value.strip().lower() in _NOTHING):
        return None
    found = _AGE.fullmatch(str(value).strip()) if not isinstance(value, bool) else None
    unit = found[2].lower().removesuffix("old").strip()[:1] if found else ""
    if found is None or unit not in _YEARS:
        raise DataError(f"{place}: the age is {shown(value)}; give years, or a number with Y, M, W or D such as 019M.")
    return float(found[1]) * _YEARS[unit]


def sex_letter(value: Any) -> str | None:
    """F or M; None for anything else, since a slice needs no more."""
    return _SEXES.get(str(value).strip().lower())


def view_word(value: Any) -> str | None:
    """PA, AP, frontal, lateral or other; None where the source gives none."""
    word = str(value if value is not None else "").strip().lower()
    if word in _NOTHING:
        return None
    known = {view.value.lower(): view.value for view in View}
    return known.get(word, "lateral" if word in ("ll", "lat") else View.OTHER.value)
